//! What a turn writes as it goes, and what it is made to write once.

use std::sync::Arc;

use amalgam_protocol::{Json, Status};
use bytes::Bytes;

use super::{
    Stored,
    agents::SessionEnd,
    bank::{Approval, ToolRun},
    processes::ProcessId,
    responses::{EventChunk, ResponseState},
};
use crate::{
    history::UpstreamMemory,
    raw_answer::RawAnswer,
    scope::{Admin, Scope},
};

/// Where a response's items are, in the store's own terms: callers hand it back as it is.
///
/// A child takes the next position of its parent's run of rows. If that is taken, the child is a fork: it begins a run of its own
/// that points at its parent's position. So a chain is one range of rows, and forks never see each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChainPosition {
    /// The id of a response that it is told by: the one that began the run, or the one that is there.
    pub chain: String,
    /// Which row of the run, or of all.
    pub position: u64,
}

/// Everything that one step of a turn writes, all of it or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnWrite {
    /// The response's id.
    pub response_id: String,
    /// Who runs it. A process that was declared dead, or whose response was cancelled, writes nothing any more.
    pub process: ProcessId,
    /// The first step: the response comes into being.
    pub begin: Option<Box<Begin>>,
    /// It was waiting, and runs from now on.
    pub started: bool,
    /// Frames that were or are about to be sent.
    pub events: Option<EventChunk>,
    /// The last step.
    pub end: Option<Box<Ending>>,
    /// Model calls that are over.
    pub transcripts: Vec<Transcript>,
    /// What the model's server sent last, where that is kept with the response; with the last step.
    pub raw_answer: Option<RawAnswer>,
    /// Calls of tools: about to run, or over. One of the same number goes in the place of the one before.
    pub tools: Vec<ToolRun>,
    /// Calls that wait for somebody to agree.
    pub approvals: Vec<Approval>,
    /// What the turn adds to the thread that it speaks in; with the last step.
    pub session: Option<Box<SessionEnd>>,
    /// What to answer when the same key comes again; with the last step.
    pub answer: Option<(Keyed, Option<Answer>)>,
}

/// A response that comes into being.
#[derive(Debug, Clone, PartialEq)]
pub struct Begin {
    /// The response that it continues.
    pub parent: Option<ChainPosition>,
    /// Queued or in progress.
    pub status: Status,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// What the object repeats of its request.
    pub settings: Bytes,
    /// Its own input items, a JSON array; every item has an id.
    pub input: Json,
    /// Whether it runs without its caller.
    pub background: bool,
    /// Whether its events are kept.
    pub streamed: bool,
    /// The conversation that its items are added to at its end.
    pub conversation: Option<String>,
    /// The request's body, for whoever runs a queued turn. Forgotten at the end.
    pub request: Option<Bytes>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// Status, error, usage.
    pub told: ResponseState,
    /// The output items, a JSON array.
    pub output: Json,
    /// What an upstream that keeps state knows from here on.
    pub upstream: Option<UpstreamMemory>,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is on disk.
    Kept,
    /// Nothing was written: the response has ended in another way or is another process's by now.
    Lost,
}

/// One call of a model, exactly.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    /// From 0, within its turn.
    pub number: u32,
    /// The operator's name of the upstream.
    pub upstream: String,
    /// The model that the upstream was asked for.
    pub model: String,
    /// When it was asked, in milliseconds since 1970.
    pub asked_at_ms: u64,
    /// Milliseconds until the first event, if one came.
    pub first_token_ms: Option<u64>,
    /// Milliseconds until the end.
    pub duration_ms: u64,
    /// Further tries before the upstream accepted.
    pub retries: u32,
    /// What `request` goes on from; none where it is the whole body. Read back there is one only if it is missing.
    pub base: Option<Base>,
    /// The body that was sent, or what follows its base. Read back it is the whole body, unless its base is missing.
    pub request: Bytes,
    /// The body that came back, as far as it came.
    pub response: Bytes,
    /// Whether `response` was cut because it is longer than what is kept.
    pub cut: bool,
    /// What it cost; counts of tokens as [`amalgam_protocol::Usage`] writes them.
    pub usage: Option<Json>,
    /// What was not carried over, one text a loss.
    pub losses: Vec<String>,
    /// Why it failed.
    pub error: Option<String>,
}

/// The beginning of a request, which is the beginning of an earlier one: the turns of a chain send what was said before
/// again and again, and it is kept once. A call that others build on is kept as long as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// The response whose call it was, of the same tenant and user.
    pub response_id: String,
    /// Which of its calls.
    pub number: u32,
    /// So many bytes are the same.
    pub shared: u64,
}

/// A turn as an administrator sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnRecord {
    /// The response.
    pub response: super::StoredResponse,
    /// Whose it is.
    pub user: String,
    /// The calls in order.
    pub transcripts: Vec<Transcript>,
    /// The calls of the server's tools, in order.
    pub tools: Vec<ToolRun>,
}

/// A request that is to be done once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Keyed {
    /// The route that the key was sent to.
    pub route: String,
    /// The caller's key.
    pub key: String,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// The caller is the first: it does the work.
    First,
    /// The same request is being worked on; this is its response.
    Running {
        /// `resp_…`
        response_id: String,
    },
    /// The same request was done.
    Done {
        /// `resp_…`
        response_id: String,
        /// What it was answered.
        answer: Answer,
    },
    /// The key was used for another body.
    Mismatch,
}

/// An answer that can be given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The response is stored: it is told from there.
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
    /// One step of a turn. Shared: it is read where it is written, and belongs to whoever may have to write it again.
    fn write<'a>(&'a self, scope: &'a Scope, write: Arc<TurnWrite>) -> Stored<'a, Written>;

    /// Adds what a turn had done when it was ended from outside while it ran, from the write that was lost because of that:
    /// its model calls, unless the response has some, and, if the response was cancelled, its output, usage and provenance,
    /// unless it has those. Nothing unless the response is there and has ended.
    fn add_unfinished<'a>(&'a self, scope: &'a Scope, lost: Arc<TurnWrite>) -> Stored<'a, ()>;

    /// Claims a request by its key, for this process.
    fn claim<'a>(
        &'a self,
        scope: &'a Scope,
        keyed: &'a Keyed,
        body_hash: [u8; 32],
        response_id: &'a str,
        process: ProcessId,
        now_ms: u64,
    ) -> Stored<'a, Claim>;

    /// Gives a claim back, so that the same key can be used again (`None`), or answers it, for requests that write no turn.
    /// Nothing when somebody else has claimed it since, for another response.
    fn settle<'a>(
        &'a self,
        scope: &'a Scope,
        keyed: &'a Keyed,
        response_id: &'a str,
        answer: Option<Answer>,
    ) -> Stored<'a, ()>;

    /// A turn of the administrator's tenant, with its model calls.
    fn turn<'a>(&'a self, admin: Admin<'a>, response_id: &'a str) -> Stored<'a, Option<TurnRecord>>;
}
