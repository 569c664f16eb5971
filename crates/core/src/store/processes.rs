//! Processes that share a store: who lives, what waits for one of them, what can go.

use bytes::Bytes;

use super::Stored;
use crate::scope::{Operator, Scope};

/// One run of the server; a new one each time it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u128);

/// A turn that waits for a process.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedTurn {
    /// Whose it is; its rights are the least ones.
    pub scope: Scope,
    /// `resp_…`
    pub response_id: String,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// The request's body.
    pub request: Bytes,
    /// Whether its events are kept.
    pub streamed: bool,
}

/// What [`ProcessStore::reset`] removes. Where tenants are named, only theirs; an empty list stands for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reset {
    /// What turns and callers have written: threads, sessions, responses, conversations, files, transcripts.
    Runtime(Vec<i64>),
    /// The same, with the profiles, tools and settings of assistants. The common tools go where no tenant is named.
    Assistants(Vec<i64>),
    /// Everything, tenants and keys too.
    Everything,
}

/// What a dead process left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Buried {
    /// Turns that were running and have failed now.
    pub failed: u64,
    /// Turns that had not begun and wait for another process now.
    pub queued: u64,
}

/// How long things are kept, as moments in milliseconds since 1970: what is older goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Events of streams that have ended.
    pub events_before_ms: u64,
    /// Model calls.
    pub transcripts_before_ms: u64,
    /// Keys of requests that are done once.
    pub claims_before_ms: u64,
    /// Responses and their items; none for ever.
    pub responses_before_ms: Option<u64>,
    /// Files that were to go by themselves, by when they were to.
    pub files_before_ms: u64,
}

/// What went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Rows, of whatever kind. More may be left when it is not zero.
    pub rows: u64,
}

/// What processes ask for.
pub trait ProcessStore: Send + Sync {
    /// Says that a process lives: `beat` grows each time. The first call makes it known.
    fn beat(&self, operator: Operator, process: ProcessId, beat: u64) -> Stored<'_, ()>;

    /// Everybody who is known, with the last beat.
    fn processes(&self, operator: Operator) -> Stored<'_, Vec<(ProcessId, u64)>>;

    /// Ends what a process left behind, if its last beat is still `beat`: running turns fail with what `error` makes (an
    /// error object as JSON text) of the tools that had begun, were not declared idempotent, and whose end is not known; those that had not begun wait again, claims of unfinished requests are given back, the process is
    /// forgotten. Nothing when somebody else was faster or it lives.
    fn bury<'a>(
        &'a self,
        operator: Operator,
        process: ProcessId,
        beat: u64,
        error: fn(&[String]) -> String,
        now_ms: u64,
    ) -> Stored<'a, Option<Buried>>;

    /// Takes at most `limit` turns that wait for a process, the oldest first. No other process gets the same ones.
    fn take_queued(&self, operator: Operator, process: ProcessId, limit: usize) -> Stored<'_, Vec<QueuedTurn>>;

    /// How many turns wait for a process: those of one tenant, and those of all.
    fn count_queued(&self, operator: Operator, tenant_id: i64) -> Stored<'_, (u64, u64)>;

    /// Gives turns back that this process will not run: they wait for another one.
    fn give_back<'a>(&'a self, operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()>;

    /// The turns that are this process's and have not ended, and whose they are; rights are the least ones.
    fn held(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<(String, Scope)>>;

    /// The responses whose requests this process has claimed and not settled.
    fn claims(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<String>>;

    /// Lets go of claims of this process that nobody works on any more, by their responses: one whose response lives on,
    /// or has ended well, is answered by it, and the others are free again.
    fn release<'a>(&'a self, operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()>;

    /// Removes a bounded number of rows that need not be kept any longer.
    fn prune(&self, operator: Operator, retention: Retention) -> Stored<'_, Pruned>;

    /// Removes what `what` names.
    fn reset(&self, operator: Operator, what: Reset) -> Stored<'_, ()>;
}
