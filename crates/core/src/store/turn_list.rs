//! Turns without their content, as lists and usage show them.

use amalgam_protocol::Json;

use super::{Stored, agents::Within};
use crate::{
    Cost, TokenSums, TurnSummary, Wire,
    scope::{Admin, Operator, Scope},
};

/// The tenants whose turns are listed.
#[derive(Debug, Clone, Copy)]
pub enum TurnsOf<'a> {
    /// One tenant.
    Tenant(Within<'a>),
    /// All tenants.
    All(Operator),
    /// One user: the caller.
    Caller(&'a Scope),
}

/// Which turns are listed. A field that is not set does not restrict the list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnFilter {
    /// The key of the caller.
    pub key_id: Option<String>,
    /// The owner.
    pub user: Option<String>,
    /// The API.
    pub wire: Option<Wire>,
    /// The session.
    pub session_id: Option<String>,
    /// The profile.
    pub profile: Option<String>,
    /// The model, as it was requested or as the upstream knows it.
    pub model: Option<String>,
    /// The upstream.
    pub upstream: Option<String>,
    /// The name of a server-run tool.
    pub tool: Option<String>,
    /// The status.
    pub status: Option<String>,
    /// The code of the error.
    pub error: Option<String>,
    /// The request id.
    pub request_id: Option<String>,
    /// Text of its input or output.
    pub text: Option<String>,
    /// Created at this time or later, in milliseconds since 1970.
    pub from_ms: Option<u64>,
    /// Created before this time.
    pub to_ms: Option<u64>,
    /// Lasted at least this long, in milliseconds.
    pub min_duration_ms: Option<u64>,
    /// Ended, and took this long at most.
    pub max_duration_ms: Option<u64>,
    /// Cost at least this much.
    pub min_cost: Option<Cost>,
    /// Cost this much at most; turns of unknown cost are not among them.
    pub max_cost: Option<Cost>,
    /// Whether the content is stored.
    pub stored: Option<bool>,
}

impl TurnFilter {
    /// Whether a running turn matches. A condition on facts that exist only after the end of a turn never matches a
    /// running one.
    pub fn fits_running(&self, turn: &TurnSummary) -> bool {
        let fits =
            |wanted: &Option<String>, value: Option<&str>| wanted.as_deref().is_none_or(|wanted| value == Some(wanted));
        let origin = &turn.origin;
        let is_of_ended = self.upstream.is_some()
            || self.tool.is_some()
            || self.error.is_some()
            || self.text.is_some()
            || self.min_duration_ms.is_some()
            || self.max_duration_ms.is_some()
            || self.min_cost.is_some()
            || self.max_cost.is_some();
        !is_of_ended
            && fits(&self.key_id, origin.key_id.as_deref())
            && fits(&self.user, Some(&turn.user))
            && self.wire.is_none_or(|wire| wire == origin.wire)
            && fits(&self.session_id, origin.session_id.as_deref())
            && fits(&self.profile, origin.profile.as_deref())
            && fits(&self.model, Some(&origin.model))
            && fits(&self.status, Some(turn.status.name()))
            && fits(&self.request_id, origin.request_id.as_deref())
            && self.from_ms.is_none_or(|from_ms| turn.created_at_ms >= from_ms)
            && self.stored.is_none_or(|stored| stored == turn.stored)
            && self.to_ms.is_none_or(|to_ms| turn.created_at_ms < to_ms)
    }
}

/// A turn of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedTurn {
    /// The tenant.
    pub tenant_id: i64,
    /// `resp_…`
    pub response_id: String,
    /// The request id.
    pub request_id: Option<String>,
    /// The key of the caller.
    pub key_id: Option<String>,
    /// The owner.
    pub user: String,
    /// The API.
    pub wire: Wire,
    /// The session.
    pub session_id: Option<String>,
    /// The profile.
    pub profile: Option<String>,
    /// The model that the request named.
    pub requested_model: String,
    /// The upstream of the last model call.
    pub upstream: Option<String>,
    /// The model of the last model call, as the upstream knows it.
    pub model: Option<String>,
    /// The status.
    pub status: String,
    /// The code of the error.
    pub error: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970; `None` while the turn runs.
    pub ended_at_ms: Option<u64>,
    /// Milliseconds until its first output.
    pub first_token_ms: Option<u64>,
    /// The tokens.
    pub tokens: TokenSums,
    /// The cost; none if it is unknown.
    pub cost: Option<Cost>,
    /// Model calls.
    pub calls: u64,
    /// Further attempts of model calls.
    pub retries: u64,
    /// The number of losses.
    pub losses: u64,
    /// The names of server-run tools.
    pub tools: Vec<String>,
    /// Whether its content is stored.
    pub stored: bool,
    /// The trace that it belongs to.
    pub trace_id: Option<u128>,
}

impl From<TurnSummary> for ListedTurn {
    fn from(turn: TurnSummary) -> Self {
        let (tokens, cost, retries) = (turn.tokens(), turn.cost(), turn.retries().into());
        let last = turn.calls.last().cloned();
        Self {
            tenant_id: turn.tenant_id,
            response_id: turn.response_id,
            request_id: turn.origin.request_id.map(|id| id.to_string()),
            key_id: turn.origin.key_id.map(|id| id.to_string()),
            user: turn.user.to_string(),
            wire: turn.origin.wire,
            session_id: turn.origin.session_id,
            profile: turn.origin.profile,
            requested_model: turn.origin.model,
            upstream: last.as_ref().map(|call| call.upstream.clone()),
            model: last.map(|call| call.model),
            status: turn.status.name().to_owned(),
            error: turn.error,
            created_at_ms: turn.created_at_ms,
            ended_at_ms: turn.ended_at_ms,
            first_token_ms: turn.first_token_ms,
            tokens,
            cost,
            calls: turn.calls.len() as u64,
            retries,
            losses: turn.losses.into(),
            tools: turn.tools,
            stored: turn.stored,
            trace_id: turn.origin.trace.map(|trace| trace.trace_id),
        }
    }
}

/// A position in the list of turns, which is sorted by time, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TurnCursor {
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// `resp_…`; empty for a position before all turns of that millisecond.
    pub response_id: String,
}

/// A part of the list of turns.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnPage {
    /// The turns, newest first.
    pub turns: Vec<ListedTurn>,
    /// Where the list continues; `None` at its end. A page may be short or even empty before the end, because one
    /// request examines a bounded number of turns.
    pub next: Option<TurnCursor>,
}

/// What usage is grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsageGroup {
    /// The tenant.
    Tenant,
    /// The key.
    Key,
    /// The user.
    User,
    /// The API.
    Wire,
    /// The profile.
    Profile,
    /// The upstream.
    Upstream,
    /// The model, as the upstream knows it.
    Model,
    /// The day, in UTC.
    Day,
    /// The hour, in UTC.
    Hour,
}

impl UsageGroup {
    /// All groups.
    pub const ALL: [Self; 9] = [
        Self::Tenant,
        Self::Key,
        Self::User,
        Self::Wire,
        Self::Profile,
        Self::Upstream,
        Self::Model,
        Self::Day,
        Self::Hour,
    ];

    /// The name in requests and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Key => "key",
            Self::User => "user",
            Self::Wire => "door",
            Self::Profile => "profile",
            Self::Upstream => "upstream",
            Self::Model => "model",
            Self::Day => "day",
            Self::Hour => "hour",
        }
    }

    /// The group with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }
}

/// Which usage is summed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageQuery {
    /// The first hour, in hours since 1970.
    pub from_hour: u64,
    /// The hour after the last one.
    pub to_hour: u64,
    /// The groups, in order.
    pub group_by: Vec<UsageGroup>,
    /// Only of this key.
    pub key_id: Option<String>,
    /// Only of this user.
    pub user: Option<String>,
    /// Only of this model.
    pub model: Option<String>,
}

/// The usage of one group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageSums {
    /// The value of each group, in the order of the query. Hours and days are numbers since 1970.
    pub group: Vec<String>,
    /// Turns that have ended.
    pub turns: u64,
    /// Of those, turns that failed.
    pub failed_turns: u64,
    /// Model calls.
    pub calls: u64,
    /// Calls with tokens whose price is unknown.
    pub unpriced_calls: u64,
    /// The tokens.
    pub tokens: TokenSums,
    /// The cost of the calls whose price is known.
    pub cost: Cost,
}

impl UsageSums {
    /// Adds the sums of another group.
    pub fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.failed_turns += other.failed_turns;
        self.calls += other.calls;
        self.unpriced_calls += other.unpriced_calls;
        self.tokens = TokenSums {
            input: self.tokens.input + other.tokens.input,
            cached_input: self.tokens.cached_input + other.tokens.cached_input,
            cache_write: self.tokens.cache_write + other.tokens.cache_write,
            output: self.tokens.output + other.tokens.output,
            reasoning: self.tokens.reasoning + other.tokens.reasoning,
        };
        self.cost = self.cost.plus(other.cost);
    }
}

/// Lists of turns, and usage.
pub trait UsageStore: Send + Sync {
    /// Returns a page of the list of turns, after `after`, newest first.
    fn turns<'a>(
        &'a self,
        of: TurnsOf<'a>,
        filter: TurnFilter,
        after: Option<TurnCursor>,
        limit: usize,
    ) -> Stored<'a, TurnPage>;

    /// Returns the sums of usage, one for each group with usage.
    fn usage<'a>(&'a self, of: TurnsOf<'a>, query: UsageQuery) -> Stored<'a, Vec<UsageSums>>;

    /// Returns the spans of an ended turn as a JSON array, sorted by their start; `None` if there are none.
    fn spans_of_turn<'a>(
        &'a self,
        admin: Admin<'a>,
        created_at_ms: u64,
        response_id: &'a str,
    ) -> Stored<'a, Option<Json>>;

    /// Returns the response of the request with this id, the newest if several have it; `None` if there is none.
    fn response_of_request<'a>(&'a self, admin: Admin<'a>, request_id: &'a str) -> Stored<'a, Option<String>>;
}
