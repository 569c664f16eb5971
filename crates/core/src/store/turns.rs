//! What a turn writes as it goes, and what it is made to write once.

use std::sync::Arc;

use amalgam_protocol::{Json, Status};
use bytes::Bytes;

use super::{
    Stored,
    agents::SessionEnd,
    bank::{Approval, ToolRun},
    limits::HoldSettlement,
    processes::ProcessId,
    responses::{EventChunk, ResponseState},
};
use crate::{
    TurnSummary,
    history::UpstreamMemory,
    raw_answer::RawAnswer,
    scope::{Admin, Scope},
};

/// Where a response's items are, in the store's own terms; opaque to callers.
///
/// A child takes the next position of its parent's run of rows. If that is taken, the child is a fork: it begins a run of its own
/// that points at its parent's position. So a chain is one range of rows, and forks never see each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChainPosition {
    /// The id of the response that began the run, or of the one at the position.
    pub chain: String,
    /// The row within the run, or within all rows.
    pub position: u64,
}

/// Everything that one step of a turn writes, atomically.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnWrite {
    /// The response's id.
    pub response_id: String,
    /// The process that runs the turn. Writes of a process that was removed, or of a cancelled response, have no effect.
    pub process: ProcessId,
    /// The first step: creates the response.
    pub begin: Option<Box<Begin>>,
    /// The turn was queued, and runs from now on.
    pub started: bool,
    /// Frames that were or are about to be sent.
    pub events: Option<EventChunk>,
    /// The last step.
    pub end: Option<Box<Ending>>,
    /// Finished model calls.
    pub transcripts: Vec<Transcript>,
    /// The upstream's last answer as received, if it is stored with the response; with the last step.
    pub raw_answer: Option<RawAnswer>,
    /// Tool calls that are about to run, or have ended. A call replaces an earlier record of the same number.
    pub tools: Vec<ToolRun>,
    /// Calls that need an approval.
    pub approvals: Vec<Approval>,
    /// What the turn adds to its session; with the last step.
    pub session: Option<Box<SessionEnd>>,
    /// Facts about the turn for lists and usage: while it runs with the first step, and complete with the last one.
    pub summary: Option<Box<TurnSummary>>,
    /// The answer for retries with the same idempotency key; with the last step.
    pub answer: Option<(IdempotencyKey, Option<Answer>)>,
    /// Reservations of limits that end with this step.
    pub settlements: Vec<HoldSettlement>,
}

/// A new response.
#[derive(Debug, Clone, PartialEq)]
pub struct Begin {
    /// The response that it continues.
    pub parent: Option<ChainPosition>,
    /// Queued or in progress.
    pub status: Status,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// The request parameters that the response object repeats.
    pub settings: Bytes,
    /// Its own input items, a JSON array; every item has an id.
    pub input: Json,
    /// Whether it runs in the background.
    pub background: bool,
    /// Whether its events are stored.
    pub streamed: bool,
    /// The conversation that its items are added to at its end.
    pub conversation: Option<String>,
    /// The request's body, for the process that runs a queued turn. Deleted at the end.
    pub request: Option<Bytes>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// Status, error, usage.
    pub state: ResponseState,
    /// The output items, a JSON array.
    pub output: Json,
    /// What an upstream that stores state has stored of the turn.
    pub upstream: Option<UpstreamMemory>,
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is durable.
    Kept,
    /// Nothing was written: the response has ended otherwise, or belongs to another process now.
    Lost,
}

/// The exact request of a model call and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    /// From 0, within its turn.
    pub number: u32,
    /// The operator's name of the upstream.
    pub upstream: String,
    /// The model that the upstream was asked for.
    pub model: String,
    /// When it was sent, in milliseconds since 1970.
    pub asked_at_ms: u64,
    /// Milliseconds until the first event, if one came.
    pub first_token_ms: Option<u64>,
    /// Milliseconds until the end.
    pub duration_ms: u64,
    /// Further tries before the upstream accepted.
    pub retries: u32,
    /// The earlier request that `request` continues; none if `request` is the whole body. When read, it is set only if that
    /// request is missing.
    pub base: Option<Base>,
    /// The body, or the part after its base. When read, it is the whole body, unless its base is missing.
    pub request: Bytes,
    /// The body of the answer, as far as it was received.
    pub response: Bytes,
    /// Whether `response` was cut at the size limit.
    pub cut: bool,
    /// Token counts as [`amalgam_protocol::Usage`] writes them.
    pub usage: Option<Json>,
    /// The losses of the translation.
    pub losses: Vec<String>,
    /// Why it failed.
    pub error: Option<String>,
}

/// A prefix that a request shares with an earlier one: each turn of a chain sends the whole history again, and it is stored once.
/// A call is stored as long as others refer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// The response of the earlier call, of the same tenant and user.
    pub response_id: String,
    /// Which of its calls.
    pub number: u32,
    /// The length of the prefix, in bytes.
    pub shared: u64,
}

/// A turn as an administrator sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnRecord {
    /// The response.
    pub response: super::StoredResponse,
    /// Its owner.
    pub user: String,
    /// The server-run tool calls, in order.
    pub tools: Vec<ToolRun>,
}

/// A client's name for a request, so that retries have the same answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// The route that the key was sent to.
    pub route: String,
    /// The caller's key.
    pub key: String,
}

/// The outcome of a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// This request is the first, and does the work.
    First,
    /// The first request is running; this is its response.
    Running {
        /// `resp_…`
        response_id: String,
    },
    /// The first request has ended.
    Done {
        /// `resp_…`
        response_id: String,
        /// Its answer.
        answer: Answer,
    },
    /// The key was used for another body.
    Mismatch,
}

/// The answer to retries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The stored response.
    Stored,
    /// The answer itself.
    Body {
        /// The HTTP status.
        status: u16,
        /// The content type.
        content_type: String,
        /// The body.
        body: Bytes,
    },
}

/// Writes of turns.
pub trait TurnStore: Send + Sync {
    /// Writes one step of a turn. Shared, so that the caller can write it again after an error.
    fn write<'a>(&'a self, scope: &'a Scope, write: Arc<TurnWrite>) -> Stored<'a, WriteOutcome>;

    /// Adds data of a lost write to a response that was ended from outside while its turn ran: its model calls, unless the
    /// response has some, its summary, and, if the response was cancelled, its output, usage and provenance, unless it has those. No effect
    /// unless the response exists and has ended.
    fn add_unfinished<'a>(&'a self, scope: &'a Scope, lost: Arc<TurnWrite>) -> Stored<'a, ()>;

    /// Adds turns that are not stored to the list of turns and to the usage, in one transaction. A turn that is in the list
    /// already is not added again.
    fn add_summaries(&self, summaries: Vec<TurnSummary>) -> Stored<'_, ()>;

    /// Claims an idempotency key for this process.
    fn claim<'a>(
        &'a self,
        scope: &'a Scope,
        key: &'a IdempotencyKey,
        body_hash: [u8; 32],
        response_id: &'a str,
        process: ProcessId,
        now_ms: u64,
    ) -> Stored<'a, Claim>;

    /// Releases a claim (`None`), or settles it with an answer, for requests that write no turn. No effect if another request has
    /// claimed the key since, for another response.
    fn settle<'a>(
        &'a self,
        scope: &'a Scope,
        key: &'a IdempotencyKey,
        response_id: &'a str,
        answer: Option<Answer>,
    ) -> Stored<'a, ()>;

    /// A turn of the administrator's tenant, without its model calls.
    fn turn<'a>(&'a self, admin: Admin<'a>, response_id: &'a str) -> Stored<'a, Option<TurnRecord>>;
}
