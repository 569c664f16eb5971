//! Writes of turns, and idempotency keys.

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
/// A child takes the next position of its parent's run of rows. If that position is taken, the child is a fork: it
/// begins a run of its own that refers to its parent's position. So a chain is one range of rows, and a fork never
/// contains rows of another fork.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChainPosition {
    /// The id of the response that began the run, or of the one at the position.
    pub chain: String,
    /// The row within the run, or within all rows.
    pub position: u64,
}

/// One step of a turn, written atomically.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnWrite {
    /// The response's id.
    pub response_id: String,
    /// The process that runs the turn. Writes of a process that was removed, or for a cancelled response, have no
    /// effect.
    pub process: ProcessId,
    /// With the first step: creates the response.
    pub begin: Option<Box<Begin>>,
    /// Whether the turn was queued and starts with this step.
    pub started: bool,
    /// Frames that were sent or are about to be sent.
    pub events: Option<EventChunk>,
    /// With the last step: ends the response.
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
    /// The position of the response that it continues; `None` for a new chain.
    pub parent: Option<ChainPosition>,
    /// The status: queued or in progress.
    pub status: Status,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// The request parameters that the response object repeats.
    pub settings: Bytes,
    /// Its own input items, a JSON array; every item has an id.
    pub input: Json,
    /// Whether the turn runs in the background.
    pub background: bool,
    /// Whether the events are stored.
    pub streamed: bool,
    /// The conversation that the items are added to when the turn ends.
    pub conversation: Option<String>,
    /// The request's body, for the process that runs a queued turn. Deleted when the turn ends.
    pub request: Option<Bytes>,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// The status, the error and the usage.
    pub state: ResponseState,
    /// The output items, a JSON array.
    pub output: Json,
    /// What an upstream that stores state has stored of the turn.
    pub upstream: Option<UpstreamMemory>,
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write is durable.
    Kept,
    /// Nothing was written: the response has ended by another write, belongs to another process now, or this step was
    /// written before.
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
    /// Milliseconds until the first event; `None` if there was none.
    pub first_token_ms: Option<u64>,
    /// Milliseconds until the end.
    pub duration_ms: u64,
    /// The number of further attempts before the upstream accepted the request.
    pub retries: u32,
    /// The earlier request that `request` continues; `None` if `request` is the whole body. When read, it is set only
    /// if the earlier request is missing.
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

/// A prefix that a request shares with an earlier one. Each turn of a chain sends the whole history again; the store
/// holds it once. A call is stored as long as other calls refer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// The response of the earlier call, of the same tenant and user.
    pub response_id: String,
    /// The number of that call within its turn.
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
    /// This is the first request with the key: the caller runs it.
    First,
    /// The first request with the key is still running.
    Running {
        /// `resp_…`
        response_id: String,
    },
    /// The first request with the key has ended.
    Done {
        /// `resp_…`
        response_id: String,
        /// Its answer.
        answer: Answer,
    },
    /// The key was used with another body.
    Mismatch,
}

/// The answer to retries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The stored response is the answer.
    Stored,
    /// The answer itself, for requests without a stored response.
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
    /// Writes one step of a turn. Shared, so that the caller can write it again after an error. If the first attempt
    /// was written after all, the response does not begin, start or end twice, and the outcome may be
    /// [`WriteOutcome::Lost`].
    fn write<'a>(&'a self, scope: &'a Scope, write: Arc<TurnWrite>) -> Stored<'a, WriteOutcome>;

    /// Adds data of a lost write to a response that another writer ended while its turn ran: its model calls, unless
    /// the response has some; its summary; and if the response was cancelled, its output, usage and provenance, unless
    /// it has those. No effect unless the response exists and has ended.
    fn add_unfinished<'a>(&'a self, scope: &'a Scope, lost: Arc<TurnWrite>) -> Stored<'a, ()>;

    /// Adds turns that are not stored to the list of turns and to the usage, in one transaction. A turn that is in the list
    /// already is not added again.
    fn add_summaries(&self, summaries: Vec<TurnSummary>) -> Stored<'_, ()>;

    /// Claims an idempotency key for the request of this process, or returns the state of the request that has claimed
    /// it.
    fn claim<'a>(
        &'a self,
        scope: &'a Scope,
        key: &'a IdempotencyKey,
        body_hash: [u8; 32],
        response_id: &'a str,
        process: ProcessId,
        now_ms: u64,
    ) -> Stored<'a, Claim>;

    /// Releases a claim (`None`), or settles it with an answer, for requests that write no turn. No effect if the key
    /// is claimed for another response by now.
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
