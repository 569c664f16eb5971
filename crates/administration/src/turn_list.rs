//! The list of turns: without content, with every filter.

use amalgam_app::turns::cursor;
use amalgam_core::{
    Cost, Fault, Scope, TurnSummary, Wire,
    store::{ListedTurn, Page, TurnFilter, TurnPage, TurnsOf, Within},
};
use amalgam_protocol::Status;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Administration,
    access::{admin, operator, target_tenant},
    fields::UnixSeconds,
    list::List,
    request::wrong,
};

/// A turn without its content.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "TurnRow")]
pub struct TurnRow {
    /// The id of the response.
    pub id: String,
    #[schemars(extend("const" = "turn.row"))]
    object: &'static str,
    tenant_id: i64,
    /// The `x-request-id` of the request.
    pub request_id: Option<String>,
    /// The key that the caller authenticated with; null for keys of the configuration, tokens and callers without a key.
    key_id: Option<String>,
    /// The owner.
    pub user: String,
    /// The API.
    #[schemars(extend("enum" = ["responses", "chat_completions", "embeddings", "assistant", "execute", "messages"]))]
    pub door: &'static str,
    pub(super) session_id: Option<String>,
    profile: Option<String>,
    /// The model that was asked for.
    pub requested_model: String,
    /// The upstream of the last model call.
    upstream: Option<String>,
    /// The model of the last model call, as its upstream knows it.
    pub model: Option<String>,
    /// The status.
    #[schemars(extend("enum" = ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]))]
    pub status: String,
    /// The code of the error that ended it.
    pub error: Option<String>,
    /// When it was created.
    pub created_at: UnixSeconds,
    /// Unix time in milliseconds.
    created_at_ms: u64,
    /// Milliseconds from start to end; null while it runs.
    #[schemars(with = "Option<i64>")]
    pub duration_ms: Option<u64>,
    /// Milliseconds until the first output.
    #[schemars(with = "Option<i64>")]
    first_token_ms: Option<u64>,
    /// Prompt tokens, including cached ones.
    pub input_tokens: u64,
    cached_input_tokens: u64,
    cache_write_tokens: u64,
    /// Tokens of the answer, including reasoning.
    pub output_tokens: u64,
    reasoning_tokens: u64,
    /// The cost in US dollars; null if a price is unknown.
    pub cost_usd: Option<f64>,
    /// Model calls.
    calls: u64,
    /// Retries of model calls.
    retries: u64,
    /// Parts of the request that were not passed on.
    losses: u64,
    /// The server-run tools, one entry for each call.
    tools: Vec<String>,
    /// Whether the content is stored.
    stored: bool,
    /// The trace that the turn belongs to, in hexadecimal; null without telemetry and without a `traceparent` of the caller.
    trace_id: Option<String>,
}

impl TurnRow {
    pub(super) fn created_at_ms(&self) -> u64 {
        self.created_at_ms
    }
}

impl From<ListedTurn> for TurnRow {
    fn from(turn: ListedTurn) -> Self {
        Self {
            id: turn.response_id,
            object: "turn.row",
            tenant_id: turn.tenant_id,
            request_id: turn.request_id,
            key_id: turn.key_id,
            user: turn.user,
            door: turn.wire.name(),
            session_id: turn.session_id,
            profile: turn.profile,
            requested_model: turn.requested_model,
            upstream: turn.upstream,
            model: turn.model,
            status: turn.status,
            error: turn.error,
            created_at: UnixSeconds::from_ms(turn.created_at_ms),
            created_at_ms: turn.created_at_ms,
            duration_ms: turn.ended_at_ms.map(|ended| ended.saturating_sub(turn.created_at_ms)),
            first_token_ms: turn.first_token_ms,
            input_tokens: turn.tokens.input,
            cached_input_tokens: turn.tokens.cached_input,
            cache_write_tokens: turn.tokens.cache_write,
            output_tokens: turn.tokens.output,
            reasoning_tokens: turn.tokens.reasoning,
            cost_usd: turn.cost.map(Cost::usd),
            calls: turn.calls,
            retries: turn.retries,
            losses: turn.losses,
            tools: turn.tools,
            stored: turn.stored,
            trace_id: turn.trace_id.map(|id| format!("{id:032x}")),
        }
    }
}

/// A request for the list of turns.
#[derive(Debug, Clone, Default)]
pub struct TurnQuery {
    /// The tenant by its number, `all`, or the caller's own.
    pub tenant: Option<String>,
    /// Which turns.
    pub filter: TurnFilter,
}

/// The names of all parameters of [`TurnQuery`].
pub const TURN_PARAMETERS: [&str; 19] = [
    "tenant",
    "key",
    "user",
    "door",
    "session",
    "profile",
    "model",
    "upstream",
    "tool",
    "status",
    "error",
    "request_id",
    "q",
    "from",
    "to",
    "min_duration_ms",
    "max_duration_ms",
    "min_cost_usd",
    "max_cost_usd",
];

/// The maximum length of a searched text.
const MAX_TEXT: usize = 200;

impl TurnQuery {
    /// Reads the parameters; `get` returns the value of one of [`TURN_PARAMETERS`].
    pub fn read<'a>(get: impl Fn(&'static str) -> Option<&'a str>) -> Result<Self, Fault> {
        let text = |name| get(name).map(ToOwned::to_owned);
        let wire = get("door").map(|name| {
            Wire::named(name).ok_or_else(|| wrong("door", "must be `responses`, `assistant`, `execute` or `messages`"))
        });
        let status = text("status");
        if status.as_deref().is_some_and(|status| Status::named(status).is_none()) {
            return Err(wrong("status", "is not the status of a response"));
        }
        let searched = text("q");
        if searched.as_ref().is_some_and(|text| text.chars().count() > MAX_TEXT) {
            return Err(wrong("q", "must have at most 200 characters"));
        }
        let cost = |name: &'static str| {
            get(name)
                .map(|text| match text.parse::<f64>() {
                    Ok(usd) if usd.is_finite() && usd >= 0.0 => Ok(Cost::from_nano_usd((usd * 1e9).round() as u64)),
                    _ => Err(wrong(name, "must be an amount in US dollars")),
                })
                .transpose()
        };
        let duration = |name: &'static str| {
            let read = |text: &str| text.parse().map_err(|_| wrong(name, "must be a whole number of at least 0"));
            get(name).map(read).transpose()
        };
        let filter = TurnFilter {
            key_id: text("key"),
            user: text("user"),
            wire: wire.transpose()?,
            session_id: text("session"),
            profile: text("profile"),
            model: text("model"),
            upstream: text("upstream"),
            tool: text("tool"),
            status,
            error: text("error"),
            request_id: text("request_id"),
            text: searched,
            from_ms: get("from").map(|text| time_ms("from", text)).transpose()?,
            to_ms: get("to").map(|text| time_ms("to", text)).transpose()?,
            min_duration_ms: duration("min_duration_ms")?,
            max_duration_ms: duration("max_duration_ms")?,
            min_cost: cost("min_cost_usd")?,
            max_cost: cost("max_cost_usd")?,
            stored: None,
        };
        Ok(Self { tenant: text("tenant"), filter })
    }
}

/// A time of RFC 3339 in milliseconds since 1970.
pub(super) fn time_ms(name: &'static str, text: &str) -> Result<u64, Fault> {
    let time = text.parse::<Timestamp>().ok().and_then(|time| u64::try_from(time.as_millisecond()).ok());
    time.ok_or_else(|| wrong(name, "must be a time as RFC 3339 has it, such as `2026-01-31T12:00:00Z`"))
}

impl Administration<'_> {
    /// A page of the list of turns, newest first. `running` has the turns of this process, which may not be in the store yet.
    pub async fn turns(
        &self,
        scope: &Scope,
        query: &TurnQuery,
        page: &Page,
        running: Vec<TurnSummary>,
    ) -> Result<List<TurnRow, String>, Fault> {
        let after = page.after.as_deref().map(cursor).transpose()?;
        let is_first = after.is_none();
        let (tenant, of) = turns_of(scope, query.tenant.as_deref())?;
        let TurnPage { turns, next } = self.store.turns(of, query.filter.clone(), after, page.limit).await?;
        let mut rows: Vec<TurnRow> = turns.into_iter().map(TurnRow::from).collect();
        if is_first {
            let unlisted = running
                .into_iter()
                .filter(|turn| tenant.is_none_or(|tenant| tenant == turn.tenant_id))
                .filter(|turn| query.filter.fits_running(turn) && rows.iter().all(|row| row.id != turn.response_id))
                .map(|turn| TurnRow::from(ListedTurn::from(turn)))
                .collect::<Vec<_>>();
            rows.extend(unlisted);
            rows.sort_by(|one, other| (other.created_at_ms, &other.id).cmp(&(one.created_at_ms, &one.id)));
        }
        Ok(List::until(rows, next.map(|next| next.response_id), |row| row.id.clone()))
    }
}

/// The tenants that a caller may see: its own, the named one, or `all` for operators.
pub(super) fn turns_of<'a>(scope: &'a Scope, named: Option<&str>) -> Result<(Option<i64>, TurnsOf<'a>), Fault> {
    if named == Some("all") {
        return Ok((None, TurnsOf::All(operator(scope)?)));
    }
    let named = named.map(|id| id.parse().map_err(|_| wrong("tenant", "must be the number of a tenant, or `all`")));
    Ok(match target_tenant(scope, named.transpose()?)? {
        None => (None, TurnsOf::All(operator(scope)?)),
        Some(id) if id == scope.tenant_id() && scope.admin().is_some() => {
            (Some(id), TurnsOf::Tenant(Within::Own(admin(scope)?)))
        }
        Some(id) => (Some(id), TurnsOf::Tenant(Within::Named(operator(scope)?, id))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &'static str, value: &'static str) -> Result<TurnQuery, Fault> {
        TurnQuery::read(|asked| (asked == name).then_some(value))
    }

    #[test]
    fn every_parameter_is_read() {
        for name in TURN_PARAMETERS {
            let value = match name {
                "door" => "execute",
                "status" => "failed",
                "from" | "to" => "2026-01-31T12:00:00Z",
                _ => "7",
            };
            let query = read(name, value).unwrap();
            let is_set = query.tenant.is_some() || query.filter != TurnFilter::default();
            assert!(is_set, "{name}");
        }
        assert_eq!(read("from", "1970-01-01T01:00:00+00:00").unwrap().filter.from_ms, Some(3_600_000));
        assert_eq!(read("min_cost_usd", "0.5").unwrap().filter.min_cost, Some(Cost::from_nano_usd(500_000_000)));
    }

    #[test]
    fn a_parameter_that_cannot_be_read_is_named() {
        let wrong = [
            ("door", "window"),
            ("status", "done"),
            ("from", "yesterday"),
            ("to", "12:00"),
            ("min_cost_usd", "-1"),
            ("min_cost_usd", "NaN"),
            ("max_cost_usd", "free"),
            ("max_duration_ms", "-1"),
            ("min_duration_ms", "1.5"),
        ];
        for (name, value) in wrong {
            assert_eq!(read(name, value).unwrap_err().param.as_deref(), Some(name));
        }
    }
}
