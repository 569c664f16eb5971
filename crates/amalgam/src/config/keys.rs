//! The one list of keys. Reading the file, the environment, suggestions, `check` and `docs/configuration.md` follow it.
//!
//! A new key is one line here and one field in `config.rs` that `assemble.rs` reads.

use super::choices::{
    Casing, Choice, Dialect, ImageUrls, KeepTranscripts, Kind, LogFormat, Modality, ReplayReasoning, State,
    StructuredOutput, SystemRole, ToolCalls, UnknownFields,
};
use super::schema::DefaultValue::{self, Required, Unset, Value};
use super::schema::Section::{
    self, Assistant, Auth, Egress, Execute, Limits, Mcp, Models, Process, Retention, Seed, Server, Store, Tenants,
    Upstreams,
};
use super::schema::{Key, Shape};

const REMOTE: &[Kind] = &[Kind::Responses, Kind::Chat, Kind::Anthropic];
const MINUTES: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTES;
const YEARS: u64 = 3650 * DAY;
const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
const TIMEOUT: Shape = Shape::Duration { least: 1, most: DAY };
const TOKENS: Shape = Shape::Integer { least: 1, most: 1_000_000_000 };

const fn count(least: i64, most: i64) -> Shape {
    Shape::Integer { least, most }
}

const fn key(section: Section, name: &'static str, shape: Shape, preset: DefaultValue, effect: &'static str) -> Key {
    Key { section, name, shape, preset, kinds: &[], effect }
}

#[rustfmt::skip] // one key a line, so that the list reads as a table
pub(crate) const KEYS: &[Key] = &[
    key(Process, "config", Shape::Path, Unset("none"), "The configuration file; `--config` wins. Without one, only a loopback address can be bound."),
    key(Process, "data", Shape::Path, Value("amalgam-data"), "The folder for everything that is kept on disk; `--data` wins."),
    key(Process, "bootstrap_key", Shape::Secret, Unset("none"), "One more key for the tenant with id 1, with every right. Set, the first start prints none."),
    key(Process, "secret_key", Shape::Secret, Unset("none"), "The secrets that stored and handed-out values are sealed with, the newest first, separated by commas; 32 bytes each, in hexadecimal or base64. Without it they are in `secret.key` in the data folder."),
    key(Process, "log", Shape::LogFilter, Value("info"), "What is logged: a level, or directives such as `info,amalgam=debug`."),
    key(Process, "log_format", Shape::Choice(LogFormat::NAMES), Value("text"), "`text` for people, `json` for one object a line."),

    key(Server, "listen", Shape::Address, Value("127.0.0.1:8080"), "The address to serve on. Port 0 takes a free one. Anything but loopback needs a configuration file and a key."),
    key(Server, "admin_listen", Shape::Address, Value("127.0.0.1:8081"), "The address for `/admin` when other machines reach `listen`. When they do not, `/admin` is on `listen` itself."),
    key(Server, "public_url", Shape::BaseUrl, Unset("`http://` and the address that is listened on"), "Where callers reach the server: links in answers begin with it."),
    key(Server, "allowed_origins", Shape::Origins, Value(""), "Origins of other sites whose web pages may call the server: `https://app.example.com`. Requests of all other pages are refused with 403."),
    key(Server, "trusted_proxies", Shape::Networks, Value(""), "Networks of proxies in front of the server: `127.0.0.0/8`, `10.1.2.3`. They are believed about the client's address (`X-Forwarded-For`), and the limit of connections for one address is not theirs."),
    key(Server, "max_connections", count(1, 1_000_000), Value("10000"), "Connections at once. The next one takes the place of one that has been silent for longest; where none is silent it is answered with 503. `/healthz` and `/readyz` are answered all the same."),
    key(Server, "max_connections_per_address", count(1, 1_000_000), Value("2000"), "The same for the connections of one address; not for `trusted_proxies`."),
    key(Server, "max_connections_per_key", count(1, 1_000_000), Value("5000"), "Connections of one key or token at once; requests on more of them get 429."),
    key(Server, "websocket_idle_timeout", TIMEOUT, Value("10m"), "How long a WebSocket stays open on which nothing is asked. One whose client does not answer a ping within 15 seconds is closed at once."),
    key(Server, "header_timeout", TIMEOUT, Value("10s"), "The time for a complete request head, and for a kept connection to stay idle."),
    key(Server, "body_timeout", TIMEOUT, Value("10s"), "The longest pause inside a request body. For so long it may also come as slowly as it likes; then it has to bring 16 KiB a second."),
    key(Server, "drain_timeout", Shape::Duration { least: 0, most: DAY }, Value("30s"), "How long running requests may go on after a signal to stop."),

    key(Store, "url", Shape::StoreUrl, Unset("`sqlite:`, `amalgam.db` in the data folder"), "The database: `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST/DATABASE`; also `env:NAME` or `file:PATH`, since it may hold a password."),
    key(Store, "connections", count(1, 1000), Value("8"), "Connections to PostgreSQL that this process keeps for everything but the writes of turns, which have two of their own."),
    key(Store, "timeout", TIMEOUT, Value("5s"), "The time for one statement on PostgreSQL. Callers wait two fifths of it for a connection before they are told to try again."),

    key(Tenants, "id", count(1, i64::MAX), Required, "The number of the tenant; no two share one."),
    key(Tenants, "state", Shape::Choice(State::NAMES), Unset("what the store has, at first `stored`"), "`stored` keeps responses for later turns; `stateless` refuses requests that need them."),
    key(Tenants, "keys", Shape::Secrets, Value(""), "Keys that callers of this tenant send as `Authorization: Bearer KEY`, beside those of `amalgam keys`. They may use and administer the tenant."),

    key(Auth, "jwt_secret", Shape::Secret, Unset("none"), "Accept tokens that are signed with this secret (HS256); 32 characters or more."),
    key(Auth, "jwks", Shape::PathOrUrl, Unset("none"), "Accept tokens that are signed with a key of this set (RS256, ES256, EdDSA): a file, or an `https` address."),
    key(Auth, "jwt_tenant_claim", Shape::Text, Value("tenant"), "The claim of a token that holds the tenant id."),
    key(Auth, "jwt_issuer", Shape::Text, Unset("none; needed for tokens"), "The required `iss` of a token; `*` for any."),
    key(Auth, "jwt_audience", Shape::Text, Unset("none; needed for tokens"), "The required `aud` of a token; `*` for any, including tokens issued for other services."),
    key(Auth, "jwt_max_lifetime", Shape::Duration { least: MINUTES, most: YEARS }, Value("24h"), "The longest lifetime of a token, from `iat` to `exp`; without `iat`, from now."),

    key(Upstreams, "kind", Shape::Choice(Kind::NAMES), Required, "The API of the upstream: Responses, Chat Completions, Anthropic Messages, or the built-in demo."),
    key(Upstreams, "base_url", Shape::BaseUrl, Required, "Its base URL, including the version: `https://api.openai.com/v1`.").for_kinds(REMOTE),
    key(Upstreams, "api_key", Shape::Secret, Unset("none"), "The key for the upstream. When its variable is missing the server starts, and requests that need it say so.").for_kinds(REMOTE),
    key(Upstreams, "headers", Shape::Headers, Value(""), "More headers for every request to it; a value may be `env:NAME` or `file:PATH` too.").for_kinds(REMOTE),
    key(Upstreams, "models", Shape::Names, Value(""), "The model names that it serves. When empty, its model list is fetched and cached.").for_kinds(REMOTE),
    key(Upstreams, "connect_timeout", TIMEOUT, Value("5s"), "The time to open a connection.").for_kinds(REMOTE),
    key(Upstreams, "first_byte_timeout", TIMEOUT, Value("120s"), "The time until a streamed answer begins.").for_kinds(REMOTE),
    key(Upstreams, "total_timeout", TIMEOUT, Unset("`turn_deadline`"), "The time for a complete answer that is not streamed, retries included.").for_kinds(REMOTE),
    key(Upstreams, "idle_timeout", TIMEOUT, Value("60s"), "The idle timeout of a stream.").for_kinds(REMOTE),
    key(Upstreams, "retries", count(0, 2), Value("2"), "Retries after a failure before any output.").for_kinds(REMOTE),
    key(Upstreams, "dialect", Shape::Choice(Dialect::NAMES), Value("standard"), "The request shapes to send: the published ones, or the literal ones of the `agn003` contract.").for_kinds(&[Kind::Responses]),
    key(Upstreams, "keeps_state", Shape::Boolean, Value("false"), "Have the upstream keep the responses that are kept here, and go on from them there: a turn then sends what is new, with `previous_response_id`. Where that is not possible the whole is sent, as always without this.").for_kinds(&[Kind::Responses]),
    key(Upstreams, "tool_calls", Shape::Choice(ToolCalls::NAMES), Value("native"), "`constrained` asks for tool calls as structured output, for models that have no tool support.").for_kinds(&[Kind::Chat]),
    key(Upstreams, "system_role", Shape::Choice(SystemRole::NAMES), Value("system"), "The role that carries instructions.").for_kinds(&[Kind::Chat]),
    key(Upstreams, "replay_reasoning", Shape::Choice(ReplayReasoning::NAMES), Value("auto"), "Which reasoning of the model is sent back in the field that it came in (`reasoning_content`, `reasoning`): `auto` sends that of a tool turn that is under way, except to hosts that refuse the field; `always` also that of earlier turns; `never` none. What is left out is reported as a loss.").for_kinds(&[Kind::Chat]),
    key(Upstreams, "image_urls", Shape::Choice(ImageUrls::NAMES), Value("pass"), "`pass` passes image URLs on, but no `file:` and no private ones; `fetch` fetches them here and sends the bytes.").for_kinds(REMOTE),
    key(Upstreams, "stream_usage", Shape::Boolean, Value("true"), "Request token counts at the end of a stream.").for_kinds(&[Kind::Chat]),
    key(Upstreams, "history_recovery", Shape::Boolean, Value("false"), "Retry once with a repaired history when the upstream finds no call for a tool result.").for_kinds(REMOTE),
    key(Upstreams, "anthropic_version", Shape::Text, Value("2023-06-01"), "The version header of the Messages API.").for_kinds(&[Kind::Anthropic]),
    key(Upstreams, "max_output_tokens", TOKENS, Value("4096"), "Sent when a request names no limit, which the Messages API demands.").for_kinds(&[Kind::Anthropic]),
    key(Upstreams, "structured_output", Shape::Choice(StructuredOutput::NAMES), Value("auto"), "How an answer by a JSON schema is asked for: `native` by the API's own structured output, `tool` by a tool whose input is the answer; `auto` by the former where the model's name says that it has it. A schema that the API does not take goes the other way. The answer is checked in any case.").for_kinds(&[Kind::Anthropic]),
    key(Upstreams, "pace", Shape::Duration { least: 0, most: MINUTES }, Value("20ms"), "The pause between two words of a stream.").for_kinds(&[Kind::Demo]),

    key(Models, "upstream", Shape::Text, Required, "The upstream that serves it."),
    key(Models, "model", Shape::Text, Unset("the entry's own name"), "The upstream's name of the model."),
    key(Models, "fallback", Shape::Names, Value(""), "Models to try in order when this one fails before any output."),
    key(Models, "context_window", TOKENS, Unset("unknown"), "Tokens of input and output together, used to limit prompts; returned by `GET /v1/models/{id}`."),
    key(Models, "max_output_tokens", TOKENS, Unset("unknown"), "The most tokens of one answer; returned by `GET /v1/models/{id}`."),
    key(Models, "modalities", Shape::Choices(Modality::NAMES), Value("text,image"), "Its input modalities; returned by `GET /v1/models/{id}`."),
    key(Models, "tools", Shape::Boolean, Value("true"), "Whether it calls tools; returned by `GET /v1/models/{id}`."),
    key(Models, "structured_output", Shape::Boolean, Value("true"), "Whether it follows a JSON schema; returned by `GET /v1/models/{id}`."),

    key(Mcp, "command", Shape::Path, Unset("none"), "The program of a server on this machine that uses the stdio transport. It is started on first use."),
    key(Mcp, "args", Shape::Arguments, Value(""), "The arguments of the program. Others on the machine may see them: secrets go into `env`."),
    key(Mcp, "env", Shape::Variables, Value(""), "The environment of the program, beside a plain `PATH`; a value may be `env:NAME` or `file:PATH` too."),
    key(Mcp, "url", Shape::Url, Unset("none"), "The URL of a server with the streamable HTTP transport; may be a private address."),
    key(Mcp, "authorization", Shape::Credential, Unset("none"), "The credential for the server at `url`: a token, or a scheme with its value."),
    key(Mcp, "timeout", Shape::Duration { least: 100, most: 10 * MINUTES }, Value("30s"), "The timeout of one call."),
    key(Mcp, "tenants", Shape::Ids, Unset("all"), "The ids of the tenants that may use it."),

    key(Assistant, "model", Shape::Text, Unset("the first of `[models]`, else the first model that an upstream names or lists"), "The model of the assistant and execute doors where neither `AI_AGENT_MODEL` nor the tenant nor the profile names one."),

    key(Execute, "casing", Shape::Choice(Casing::NAMES), Value("pascal"), "The casing of names in answers of `/api/agent`: `TurnId` or `turnId`. Requests may use either."),
    key(Execute, "unknown_fields", Shape::Choice(UnknownFields::NAMES), Value("refuse"), "What happens to unknown fields of a request to `/api/agent`."),
    key(Execute, "context_tokens", count(0, 1_000_000), Value("8000"), "The most tokens of retrieved knowledge in a turn; `0` for none."),
    key(Execute, "estimate_usage", Shape::Boolean, Value("false"), "Whether `Usage` of `/api/agent` is estimated for calls that the model's server does not report; a warning says so. Otherwise they count as 0."),

    key(Limits, "max_in_flight", count(1, 1_000_000), Value("512"), "Turns at once; beyond it callers get 429 with `Retry-After`."),
    key(Limits, "max_queued", count(1, 1_000_000), Value("1000"), "Background turns of one tenant that wait for a process; beyond it callers get 429 with `Retry-After`."),
    key(Limits, "max_queued_total", count(1, 10_000_000), Value("10000"), "The same of all tenants together."),
    key(Limits, "turn_deadline", TIMEOUT, Value("10m"), "The deadline of one turn."),
    key(Limits, "keepalive", Shape::Duration { least: 100, most: DAY }, Value("10s"), "The idle time after which a stream sends a keep-alive."),
    key(Limits, "body_bytes", Shape::Size { least: KIB, most: GIB }, Value("2MiB"), "The largest request body, images and files not counted."),
    key(Limits, "media_bytes", Shape::Size { least: 0, most: GIB }, Value("32MiB"), "The most bytes of images and files inside a body, of uploaded files that one turn uses, and of images that are fetched for it."),
    // The JSON reader itself stops at 128 levels.
    key(Limits, "json_depth", count(8, 120), Value("64"), "The deepest nesting of a request body."),
    key(Limits, "input_items", count(1, 1_000_000), Value("10000"), "The most input items of a request."),
    key(Limits, "content_parts", count(1, 1_000_000), Value("20000"), "The most parts that the contents of all input items have together."),
    key(Limits, "tools", count(0, 10_000), Value("128"), "The most tools of a request."),
    key(Limits, "schema_nodes", count(1, 1_000_000), Value("2000"), "The most nodes of a JSON schema in a request."),
    key(Limits, "string_bytes", Shape::Size { least: KIB, most: GIB }, Value("10MiB"), "The longest single text of a request."),
    key(Limits, "file_bytes", Shape::Size { least: KIB, most: GIB / 2 }, Value("32MiB"), "The largest file that can be uploaded."),
    key(Limits, "files_bytes_per_tenant", Shape::Size { least: 0, most: 1024 * GIB }, Value("1GiB"), "The most bytes of all uploaded files of one tenant."),
    key(Limits, "request_bytes_total", Shape::Size { least: 1024 * KIB, most: 1024 * GIB }, Unset("a quarter of the memory of the machine or container, at most `1GiB`"), "The most bytes that all requests of this process hold together: bodies, messages of WebSockets, uploads, remembered items. Beyond it callers get 503 with `Retry-After`."),
    key(Limits, "remembered_bytes", Shape::Size { least: 0, most: 1024 * GIB }, Value("256MiB"), "The most of those bytes that are remembered items: responses that are not stored, and that WebSockets can go on from."),

    key(Limits, "tool_iterations", count(1, 100), Value("8"), "The most tool rounds of a turn; then the model is called once more without tools."),
    key(Limits, "tool_calls", count(1, 10_000), Value("64"), "The most calls of tools in one turn."),
    key(Limits, "tool_calls_at_once", count(1, 1_000), Value("32"), "The most calls of tools in one answer of a model; further ones are not run."),
    key(Limits, "parallel_tools", count(1, 256), Value("8"), "Calls of one turn that run at the same time."),
    key(Limits, "tool_output_bytes", Shape::Size { least: KIB, most: 16 * 1024 * KIB }, Value("256KiB"), "The largest output of a tool."),
    key(Limits, "turn_tokens", TOKENS, Unset("no limit"), "Tokens of all model calls of one turn together; beyond it no tool is run."),
    key(Limits, "approval_deadline", Shape::Duration { least: 1_000, most: 365 * DAY }, Value("24h"), "How long a call waits for approval."),

    key(Retention, "responses", Shape::Duration { least: MINUTES, most: YEARS }, Unset("unlimited"), "How long responses and their items are kept."),
    key(Retention, "events", Shape::Duration { least: 0, most: YEARS }, Value("1h"), "How long the events of a stream can be read again after its end."),
    key(Retention, "transcripts", Shape::Duration { least: 0, most: YEARS }, Value("30d"), "How long the exact requests to models and their answers are kept; `0` keeps none."),
    key(Retention, "keep_transcripts", Shape::Choice(KeepTranscripts::NAMES), Value("stored"), "For which turns transcripts are kept: stored turns, or none."),

    key(Egress, "allow_private", Shape::Targets, Value(""), "Private targets that tools and URLs of images and files may use: `127.0.0.1:9000`, `10.0.0.0/8`, `files.internal:80`."),

    key(Seed, "demo", Shape::Boolean, Value("true"), "Whether the first start on an empty store seeds tenant 1 with sample profiles, tools, settings and courses."),
];
