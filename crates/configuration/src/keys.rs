//! The list of all configuration keys. The file reader, the environment, suggestions, `check` and `docs/configuration.md` use it.
//!
//! A new key is one line here and one field in `config.rs` that `assemble.rs` reads.

use amalgam_core::TenantState;
use amalgam_execute::{envelope::Casing, request::UnknownFields};
use amalgam_models::{Dialect, ReplayReasoning, StructuredOutput, SystemRole, ToolCalls};

use super::choices::{ImageUrls, KeepTranscripts, Kind, LogFormat, Modality, NamedChoice};
use super::schema::DefaultValue::{self, Required, Unset, Value};
use super::schema::Section::{
    self, Assistant, Auth, ConsoleOidc, Egress, Execute, Limits, Log, Mcp, Metrics, Models, Process, Retention, Seed,
    Server, Store, Telemetry, Tenants, Tls, Upstreams,
};
use super::schema::{Key, Shape};
use super::value::CONSOLE_SCOPES;

const REMOTE: &[Kind] = &[Kind::Responses, Kind::Chat, Kind::Anthropic];
const MINUTES: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTES;
const YEARS: u64 = 3650 * DAY;
const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
const TIMEOUT: Shape = Shape::Duration { least: 1, most: DAY };
const PRICE: Shape = Shape::Decimal { most: 1_000_000 };
const TOKENS: Shape = Shape::Integer { least: 1, most: 1_000_000_000 };

const fn count(least: i64, most: i64) -> Shape {
    Shape::Integer { least, most }
}

const fn key(section: Section, name: &'static str, shape: Shape, preset: DefaultValue, effect: &'static str) -> Key {
    Key { section, name, shape, preset, kinds: &[], effect }
}

#[rustfmt::skip] // one key a line, so that the list reads as a table
pub(crate) const KEYS: &[Key] = &[
    key(Process, "config", Shape::Path, Unset("none"), "Path of the configuration file; `--config` overrides it. Without a file, the server binds loopback addresses only."),
    key(Process, "data", Shape::Path, Value("amalgam-data"), "The data folder; `--data` overrides it."),
    key(Process, "bootstrap_key", Shape::Secret, Unset("none"), "An additional key for tenant 1 with all scopes. If it is set, the first start creates no key."),
    key(Process, "secret_key", Shape::Secret, Unset("none"), "The master keys that encrypt stored secrets and values given to clients, newest first, separated by commas; 32 bytes each, in hexadecimal or base64. Default: `secret.key` in the data folder."),

    key(Server, "listen", Shape::Listen, Value("127.0.0.1:8080"), "The address to listen on, or `unix:PATH` for a Unix socket. Port 0 selects a free port. Any address that other machines can reach requires a configuration file and a key."),
    key(Server, "admin_listen", Shape::Listen, Value("127.0.0.1:8081"), "The address for `/admin` if other machines can reach `listen`. Otherwise `/admin` is on `listen`."),
    key(Server, "public_url", Shape::BaseUrl, Unset("`http://`, with TLS `https://`, and the listen address"), "The address under which callers reach the server; links in responses start with it."),
    key(Server, "allowed_origins", Shape::Origins, Value(""), "Origins whose web pages may call the server, such as `https://app.example.com`. Requests of other pages get 403."),
    key(Server, "trusted_proxies", Shape::Networks, Value(""), "Networks of reverse proxies in front of the server, such as `127.0.0.0/8` or `10.1.2.3`. The server trusts their `X-Forwarded-For` and does not apply `max_connections_per_address` to them."),
    key(Server, "max_connections", count(1, 1_000_000), Value("10000"), "Maximum number of connections. A further connection replaces the one that has been idle longest; if none is idle, it gets 503. `/healthz` and `/readyz` are always answered."),
    key(Server, "max_connections_per_address", count(1, 1_000_000), Value("2000"), "The same for one client address; not applied to `trusted_proxies`."),
    key(Server, "max_connections_per_key", count(1, 1_000_000), Value("5000"), "Maximum number of connections of one key or token; requests on further connections get 429."),
    key(Server, "websocket_idle_timeout", TIMEOUT, Value("10m"), "How long a WebSocket stays open without a request. If a client does not answer a ping within 15 seconds, the connection is closed at once."),
    key(Server, "header_timeout", TIMEOUT, Value("10s"), "Timeout for a TLS handshake, for a complete request head, and for an idle keep-alive connection."),
    key(Server, "body_timeout", TIMEOUT, Value("10s"), "Maximum pause inside a request body. After this time a body must also arrive at 16 KiB per second or faster."),
    key(Server, "drain_timeout", Shape::Duration { least: 0, most: DAY }, Value("30s"), "How long running requests may continue after SIGTERM or SIGINT."),

    key(Tls, "certificate", Shape::Path, Unset("none"), "The server's certificate in PEM, followed by intermediate ones. With it, TCP listeners accept only HTTPS (TLS 1.2 and 1.3). Relative to the configuration file. The server reads changed files without a restart."),
    key(Tls, "key", Shape::Path, Unset("none"), "The private key of the certificate in PEM, without a passphrase."),

    key(Log, "level", Shape::LogFilter, Value("info"), "Log level, or directives such as `info,amalgam=debug`. `AMALGAM_LOG` sets it too."),
    key(Log, "format", Shape::Choice(LogFormat::NAMES), Value("text"), "`text` for people, `json` for one JSON object per line."),
    key(Log, "sample", Shape::Decimal { most: 1 }, Value("1"), "The share of successful requests that get a line, from `0.0` to `1.0`. Refused and failed requests always get one."),
    key(Log, "doors", Shape::DoorLevels, Value(""), "The lowest level of the lines of each door, such as `{ execute = \"warn\" }`; `off` leaves out all of them. Doors: `responses`, `chat_completions`, `embeddings`, `messages`, `conversations`, `files`, `models`, `assistant`, `execute`, `admin`, `operations`, `other`."),

    key(Metrics, "listen", Shape::Listen, Unset("none"), "An address of its own for `GET /metrics`, where no key is needed. On the other addresses, callers from other machines need a key with the scope `metrics` or `admin`."),

    key(Telemetry, "otlp", Shape::BaseUrl, Unset("none"), "The OpenTelemetry collector that receives traces and metrics by OTLP over HTTP, such as `http://127.0.0.1:4318`; `/v1/traces` and `/v1/metrics` are appended. Private addresses are allowed. Without it nothing is exported. `OTEL_EXPORTER_OTLP_ENDPOINT` sets it too."),
    key(Telemetry, "headers", Shape::Headers, Value(""), "Headers of every export, such as a credential; a value may be `env:NAME` or `file:PATH`. `OTEL_EXPORTER_OTLP_HEADERS` sets them too."),
    key(Telemetry, "service_name", Shape::Text, Value("amalgam"), "The resource attribute `service.name`. `OTEL_SERVICE_NAME` sets it too."),
    key(Telemetry, "attributes", Shape::Variables, Value(""), "Further resource attributes, such as `{ \"deployment.environment.name\" = \"production\" }`. `OTEL_RESOURCE_ATTRIBUTES` sets them too."),
    key(Telemetry, "sample", Shape::Decimal { most: 1 }, Value("1"), "The share of traces that are exported, from `0.0` to `1.0`. The `traceparent` of a caller decides for its own trace."),
    key(Telemetry, "content", Shape::Boolean, Value("false"), "Whether spans of tool calls include arguments and results, up to 16 KiB each."),
    key(Telemetry, "interval", Shape::Duration { least: 10, most: 60 * MINUTES }, Value("5s"), "The longest time until spans are exported."),
    key(Telemetry, "metrics_interval", Shape::Duration { least: 0, most: 60 * MINUTES }, Value("60s"), "The time between two exports of the metrics; `0` exports none."),
    key(Telemetry, "timeout", TIMEOUT, Value("10s"), "Timeout of one export."),
    key(Telemetry, "queue", count(1, 1_000_000), Value("2048"), "Maximum number of requests and turns that wait to be exported. The spans of further ones are dropped and counted in `amalgam_telemetry_dropped_total`."),

    key(Store, "url", Shape::StoreUrl, Unset("`amalgam.db` in the data folder"), "The database: `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST/DATABASE`; also `env:NAME` or `file:PATH`, because it may contain a password."),
    key(Store, "connections", count(1, 1000), Value("8"), "Size of this process's PostgreSQL connection pool. Writes of turns use two additional connections."),
    key(Store, "timeout", TIMEOUT, Value("5s"), "Timeout of one statement on PostgreSQL. A request waits two fifths of it for a connection before it gets 503."),

    key(Tenants, "id", count(1, i64::MAX), Required, "The tenant's number; unique."),
    key(Tenants, "state", Shape::Choice(TenantState::NAMES), Unset("the stored value, initially `stored`"), "`stored` stores responses for later turns; `stateless` stores none and refuses requests that need them."),
    key(Tenants, "keys", Shape::Secrets, Value(""), "Keys that callers of this tenant send as `Authorization: Bearer KEY`, in addition to those of `amalgam keys`. They have the scopes `use` and `admin`."),

    key(Auth, "jwt_secret", Shape::Secret, Unset("none"), "Accept tokens signed with this secret (HS256); 32 characters or more."),
    key(Auth, "jwks", Shape::PathOrUrl, Unset("none"), "Accept tokens signed with a key of this JSON Web Key Set (RS256, ES256, EdDSA): a file, or an `https` URL."),
    key(Auth, "jwt_tenant_claim", Shape::Text, Value("tenant"), "The claim that contains the tenant's number."),
    key(Auth, "jwt_issuer", Shape::Text, Unset("none; required for tokens"), "Required value of `iss`; `*` accepts any."),
    key(Auth, "jwt_audience", Shape::Text, Unset("none; required for tokens"), "Required value of `aud`; `*` accepts any, including tokens for other services."),
    key(Auth, "jwt_max_lifetime", Shape::Duration { least: MINUTES, most: YEARS }, Value("24h"), "Maximum lifetime of a token, from `iat` (or now, without `iat`) to `exp`."),

    key(ConsoleOidc, "issuer", Shape::Url, Unset("none; required for single sign-on"), "The OpenID Connect provider whose users sign in to the console: an `https` URL, below which the provider serves `/.well-known/openid-configuration`. Private addresses are allowed."),
    key(ConsoleOidc, "client_id", Shape::Text, Unset("none; required for single sign-on"), "The name of this server at the provider."),
    key(ConsoleOidc, "client_secret", Shape::Secret, Unset("none: a public client"), "The secret of this server at the provider. PKCE is used with and without it."),
    key(ConsoleOidc, "name", Shape::Argument, Unset("the host of `issuer`"), "The name of the provider on the sign-in page."),
    key(ConsoleOidc, "scopes", Shape::Names, Value("openid,profile,email"), "The scopes of the request to the provider; `openid` is one of them."),
    key(ConsoleOidc, "redirect_url", Shape::Url, Unset("`server.public_url` and `/admin/console/oidc/callback`"), "The address to which the provider sends browsers back, as registered there. Its host is the one under which browsers open the console."),
    key(ConsoleOidc, "tenant", count(1, i64::MAX), Unset("none"), "The number of the tenant of all users; with `tenant_claim`, of users without that claim. One of both keys is required."),
    key(ConsoleOidc, "tenant_claim", Shape::Text, Unset("none"), "The claim with the number of the user's tenant. Dots lead into nested claims."),
    key(ConsoleOidc, "user_claim", Shape::Text, Value("sub"), "The claim with the user's name, which owns what the user creates. Choose one that users cannot change themselves."),
    key(ConsoleOidc, "roles_claim", Shape::Text, Unset("none"), "The claim with the user's roles or groups: a text or a list, such as `groups` or `realm_access.roles`."),
    key(ConsoleOidc, "roles", Shape::Roles, Value(""), "The scopes of each value of `roles_claim`, such as `{ support = \"view\", platform = [\"use\", \"operator\"] }`. Scopes: `use`, `view`, `admin`, `operator`. A user has those of all its roles."),
    key(ConsoleOidc, "default_scopes", Shape::Choices(CONSOLE_SCOPES), Value(""), "The scopes of every user. Users without `view`, `admin` or `operator` are refused."),
    key(ConsoleOidc, "email_domains", Shape::Names, Value(""), "If set, only users with a verified email address of one of these domains may sign in."),
    key(ConsoleOidc, "end_session", Shape::Boolean, Value("false"), "Whether signing out of the console also leads to the provider's sign-out page, if it has one."),

    key(Upstreams, "kind", Shape::Choice(Kind::NAMES), Required, "The upstream's API: Responses, Chat Completions, Anthropic Messages, or the built-in demo."),
    key(Upstreams, "base_url", Shape::BaseUrl, Required, "Base URL including the version: `https://api.openai.com/v1`.").for_kinds(REMOTE),
    key(Upstreams, "api_key", Shape::Secret, Unset("none"), "The upstream's API key. If its variable is missing, the server starts, and requests that need the key get an error.").for_kinds(REMOTE),
    key(Upstreams, "headers", Shape::Headers, Value(""), "Additional headers of every request; a value may be `env:NAME` or `file:PATH`.").for_kinds(REMOTE),
    key(Upstreams, "models", Shape::Names, Value(""), "The models of the upstream. If empty, the server requests the list from the upstream and caches it.").for_kinds(REMOTE),
    key(Upstreams, "connect_timeout", TIMEOUT, Value("5s"), "Timeout for opening a connection.").for_kinds(REMOTE),
    key(Upstreams, "first_byte_timeout", TIMEOUT, Value("120s"), "Timeout until a streamed answer starts.").for_kinds(REMOTE),
    key(Upstreams, "total_timeout", TIMEOUT, Unset("`turn_deadline`"), "Timeout for an answer that is not streamed, including retries.").for_kinds(REMOTE),
    key(Upstreams, "idle_timeout", TIMEOUT, Value("60s"), "Maximum pause inside a stream.").for_kinds(REMOTE),
    key(Upstreams, "retries", count(0, 2), Value("2"), "Retries after a failure before any output.").for_kinds(REMOTE),
    key(Upstreams, "dialect", Shape::Choice(Dialect::NAMES), Value("standard"), "The request format: the published one, or the literal format of the document AGN-003.").for_kinds(&[Kind::Responses]),
    key(Upstreams, "keeps_state", Shape::Boolean, Value("false"), "The upstream stores the responses that are stored here, and a continued turn sends only new items with `previous_response_id`. If the upstream's state differs, the whole history is sent.").for_kinds(&[Kind::Responses]),
    key(Upstreams, "tool_calls", Shape::Choice(ToolCalls::NAMES), Value("native"), "`constrained` requests tool calls as structured output, for models without tool support.").for_kinds(&[Kind::Chat]),
    key(Upstreams, "system_role", Shape::Choice(SystemRole::NAMES), Value("system"), "The role of the message with the instructions.").for_kinds(&[Kind::Chat]),
    key(Upstreams, "replay_reasoning", Shape::Choice(ReplayReasoning::NAMES), Value("auto"), "Which reasoning is sent back to the model, in the field that it came in (`reasoning_content`, `reasoning`): `auto` sends that of the current tool turn, except to hosts that refuse the field; `always` also that of earlier turns; `never` none. Omitted reasoning is reported as a loss.").for_kinds(&[Kind::Chat]),
    key(Upstreams, "image_urls", Shape::Choice(ImageUrls::NAMES), Value("pass"), "`pass` forwards image URLs, except `file:` and private addresses; `fetch` downloads the images and sends their bytes.").for_kinds(REMOTE),
    key(Upstreams, "stream_usage", Shape::Boolean, Value("true"), "Request token counts at the end of a stream.").for_kinds(&[Kind::Chat]),
    key(Upstreams, "history_recovery", Shape::Boolean, Value("false"), "Retry once with a repaired history if the upstream reports a tool result without a call.").for_kinds(REMOTE),
    key(Upstreams, "anthropic_version", Shape::Text, Value("2023-06-01"), "The `anthropic-version` header of the Messages API.").for_kinds(&[Kind::Anthropic]),
    key(Upstreams, "max_output_tokens", TOKENS, Value("4096"), "Sent if a request has no limit, because the Messages API requires one.").for_kinds(&[Kind::Anthropic]),
    key(Upstreams, "structured_output", Shape::Choice(StructuredOutput::NAMES), Value("auto"), "How a JSON schema is requested: `native` uses the API's structured output, `tool` uses a tool whose input is the answer, `auto` uses `native` if the model's name indicates support. A schema that the API does not accept uses `tool`. The answer is always validated.").for_kinds(&[Kind::Anthropic]),
    key(Upstreams, "pace", Shape::Duration { least: 0, most: MINUTES }, Value("20ms"), "The pause between two words of a stream.").for_kinds(&[Kind::Demo]),

    key(Models, "upstream", Shape::Text, Required, "The upstream that serves the model."),
    key(Models, "model", Shape::Text, Unset("the entry's name"), "The model's name at the upstream. For an entry whose name has `*`, which stands for any text, the name in the request."),
    key(Models, "fallback", Shape::Names, Value(""), "Models to try in order if this one fails before any output."),
    key(Models, "context_window", TOKENS, Unset("unknown"), "Maximum tokens of input and output together; limits prompts, and is shown by `GET /v1/models/{id}`."),
    key(Models, "max_output_tokens", TOKENS, Unset("unknown"), "Maximum tokens of one answer; shown by `GET /v1/models/{id}`."),
    key(Models, "price.input", PRICE, Unset("unknown"), "Price of a million prompt tokens in US dollars, in `[models.NAME.price]`. Without a price, the cost of the model's calls is unknown."),
    key(Models, "price.cached_input", PRICE, Unset("`price.input`"), "The same for prompt tokens that the upstream reads from its cache."),
    key(Models, "price.cache_write", PRICE, Unset("`price.input`"), "The same for prompt tokens that the upstream writes to its cache."),
    key(Models, "price.output", PRICE, Unset("unknown"), "The same for tokens of the answer."),
    key(Models, "price.reasoning", PRICE, Unset("`price.output`"), "The same for reasoning tokens of the answer."),
    key(Models, "modalities", Shape::Choices(Modality::NAMES), Value("text,image"), "Input modalities; shown by `GET /v1/models/{id}`."),
    key(Models, "tools", Shape::Boolean, Value("true"), "Whether the model supports tools; shown by `GET /v1/models/{id}`."),
    key(Models, "structured_output", Shape::Boolean, Value("true"), "Whether the model supports JSON schemas; shown by `GET /v1/models/{id}`."),

    key(Mcp, "command", Shape::Path, Unset("none"), "The program of an MCP server that uses standard streams. The server starts it when it is first needed."),
    key(Mcp, "args", Shape::Arguments, Value(""), "Arguments of the program. Other users of the machine can see them: put secrets into `env`."),
    key(Mcp, "env", Shape::Variables, Value(""), "The program's environment, in addition to a default `PATH`; a value may be `env:NAME` or `file:PATH`."),
    key(Mcp, "url", Shape::Url, Unset("none"), "URL of an MCP server with streamable HTTP; private addresses are allowed."),
    key(Mcp, "authorization", Shape::Credential, Unset("none"), "The credential for `url`: a token, or a scheme with its value."),
    key(Mcp, "timeout", Shape::Duration { least: 100, most: 10 * MINUTES }, Value("30s"), "Timeout of one call."),
    key(Mcp, "tenants", Shape::Ids, Unset("all"), "The tenants that may use the server."),

    key(Assistant, "model", Shape::Text, Unset("the first of `[models]`, else the first model of an upstream"), "The model of `/api/v2` and `/api/agent` if neither `AI_AGENT_MODEL` nor the tenant nor the profile names one."),

    key(Execute, "casing", Shape::Choice(Casing::NAMES), Value("pascal"), "Field names in responses of `/api/agent`: `TurnId` or `turnId`. Requests may use either."),
    key(Execute, "unknown_fields", Shape::Choice(UnknownFields::NAMES), Value("refuse"), "Whether `/api/agent` refuses or ignores unknown fields of a request."),
    key(Execute, "context_tokens", count(0, 1_000_000), Value("8000"), "Maximum tokens of knowledge in the prompt of a turn; `0` disables the search."),
    key(Execute, "estimate_usage", Shape::Boolean, Value("false"), "Whether `Usage` of `/api/agent` includes estimates for model calls that the upstream does not report, with a warning. Otherwise they count as 0."),

    key(Limits, "max_in_flight", count(1, 1_000_000), Value("512"), "Maximum concurrent turns. Further turns wait for a slot; free slots go to the waiting tenants in turn."),
    key(Limits, "max_in_flight_per_tenant", count(1, 1_000_000), Unset("`max_in_flight`"), "The same for one tenant in one process."),
    key(Limits, "max_waiting", count(0, 1_000_000), Value("1024"), "Maximum number of turns that wait for a slot; further requests get 429 with `Retry-After` at once."),
    key(Limits, "queue_wait", Shape::Duration { least: 0, most: MINUTES }, Value("2s"), "How long a turn waits for a slot, or until another turn of its limit `in_flight` has ended, before it gets 429 with `Retry-After`. `0s` refuses at once."),
    key(Limits, "reserve_output_tokens", TOKENS, Value("1024"), "Output tokens that limits and budgets reserve for a model call whose request does not set `max_output_tokens`."),
    key(Limits, "max_queued", count(1, 1_000_000), Value("1000"), "Maximum queued background turns of one tenant; further requests get 429 with `Retry-After`."),
    key(Limits, "max_queued_total", count(1, 10_000_000), Value("10000"), "The same for all tenants together."),
    key(Limits, "turn_deadline", TIMEOUT, Value("10m"), "Maximum duration of a turn."),
    key(Limits, "keepalive", Shape::Duration { least: 100, most: DAY }, Value("10s"), "Interval of keepalive events in a stream without output."),
    key(Limits, "body_bytes", Shape::Size { least: KIB, most: GIB }, Value("2MiB"), "Maximum size of a request body, without images and files."),
    key(Limits, "media_bytes", Shape::Size { least: 0, most: GIB }, Value("32MiB"), "Maximum size of the images and files in a body, of the uploaded files of one turn, and of the images fetched for it."),
    // The JSON reader itself stops at 128 levels.
    key(Limits, "json_depth", count(8, 120), Value("64"), "Maximum nesting of a request body."),
    key(Limits, "input_items", count(1, 1_000_000), Value("10000"), "Maximum input items of a request."),
    key(Limits, "content_parts", count(1, 1_000_000), Value("20000"), "Maximum content parts of all input items together."),
    key(Limits, "tools", count(0, 10_000), Value("128"), "Maximum tools of a request."),
    key(Limits, "schema_nodes", count(1, 1_000_000), Value("2000"), "Maximum nodes of a JSON schema in a request."),
    key(Limits, "string_bytes", Shape::Size { least: KIB, most: GIB }, Value("10MiB"), "Maximum length of one string in a request."),
    key(Limits, "file_bytes", Shape::Size { least: KIB, most: GIB / 2 }, Value("32MiB"), "Maximum size of an uploaded file."),
    key(Limits, "files_bytes_per_tenant", Shape::Size { least: 0, most: 1024 * GIB }, Value("1GiB"), "Maximum size of all uploaded files of one tenant."),
    key(Limits, "request_bytes_total", Shape::Size { least: 1024 * KIB, most: 1024 * GIB }, Unset("a quarter of the memory of the machine or container, at most `1GiB`"), "Maximum memory of all requests of this process: bodies, WebSocket messages, uploads, remembered items. Further requests get 503 with `Retry-After`."),
    key(Limits, "remembered_bytes", Shape::Size { least: 0, most: 1024 * GIB }, Value("256MiB"), "The part of that memory for remembered items: responses that are not stored and that WebSocket clients can continue."),

    key(Limits, "tool_iterations", count(1, 100), Value("8"), "Maximum rounds of tool calls in a turn; then the model is called once more without tools."),
    key(Limits, "tool_calls", count(1, 10_000), Value("64"), "Maximum tool calls in one turn."),
    key(Limits, "tool_calls_at_once", count(1, 1_000), Value("32"), "Maximum tool calls in one model answer; further ones are not run."),
    key(Limits, "parallel_tools", count(1, 256), Value("8"), "Maximum concurrent tool calls of one turn."),
    key(Limits, "tool_output_bytes", Shape::Size { least: KIB, most: 16 * 1024 * KIB }, Value("256KiB"), "Maximum size of a tool's output."),
    key(Limits, "turn_tokens", TOKENS, Unset("no limit"), "Maximum tokens of all model calls of one turn; beyond it no tool runs."),
    key(Limits, "approval_deadline", Shape::Duration { least: 1_000, most: 365 * DAY }, Value("24h"), "How long a tool call waits for approval."),

    key(Retention, "responses", Shape::Duration { least: MINUTES, most: YEARS }, Unset("unlimited"), "How long responses and their items are stored."),
    key(Retention, "events", Shape::Duration { least: 0, most: YEARS }, Value("1h"), "How long a stream can be resumed after its end."),
    key(Retention, "transcripts", Shape::Duration { least: 0, most: YEARS }, Value("30d"), "How long the exact model requests and answers are stored; `0` stores none."),
    key(Retention, "keep_transcripts", Shape::Choice(KeepTranscripts::NAMES), Value("stored"), "Which turns have transcripts: stored ones, or none."),

    key(Egress, "allow_private", Shape::Targets, Value(""), "Private addresses that tools, images and files may use nevertheless: `127.0.0.1:9000`, `10.0.0.0/8`, `files.internal:80`."),

    key(Seed, "demo", Shape::Boolean, Value("true"), "Whether the first start on an empty store adds sample profiles, tools, settings and courses to tenant 1."),
];
