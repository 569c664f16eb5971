//! Processes that share a store: heartbeats, the background queue, claims, and retention.

use bytes::Bytes;

use super::Stored;
use crate::{
    TurnOrigin,
    scope::{Operator, Scope},
};

/// A process of the server; it gets a new id at each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u128);

/// A turn that waits for a process.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedTurn {
    /// The owner, with the fewest rights.
    pub scope: Scope,
    /// `resp_…`
    pub response_id: String,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// The request's body.
    pub request: Bytes,
    /// Whether its events are stored.
    pub streamed: bool,
    /// The origin of the turn, for its summary.
    pub origin: TurnOrigin,
}

/// What [`ProcessStore::reset`] deletes. An empty list of tenants means all tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reset {
    /// The data of turns and callers: sessions, responses, conversations, files, transcripts.
    Runtime(Vec<i64>),
    /// The same, and the profiles, tools and settings of assistants; with an empty list also the common tools.
    Assistants(Vec<i64>),
    /// Everything, including tenants and keys.
    Everything,
}

/// The turns that a dead process left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryCounts {
    /// Turns that were running; they are failed now.
    pub failed: u64,
    /// Turns that had not begun; they are in the queue again.
    pub queued: u64,
}

/// Data older than these times, in milliseconds since 1970, is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Events of streams that have ended.
    pub events_before_ms: u64,
    /// Transcripts of model calls.
    pub transcripts_before_ms: u64,
    /// Idempotency keys.
    pub claims_before_ms: u64,
    /// Responses and their items; `None` never deletes them.
    pub responses_before_ms: Option<u64>,
    /// Files with an expiry time, by that time.
    pub files_before_ms: u64,
}

/// The result of deleting data by retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PruneCounts {
    /// The number of deleted rows of all kinds. If it is not zero, there may be more to delete.
    pub rows: u64,
}

/// Coordination of processes.
pub trait ProcessStore: Send + Sync {
    /// Records a heartbeat: `beat` grows each time. The first call registers the process.
    fn beat(&self, operator: Operator, process: ProcessId, beat: u64) -> Stored<'_, ()>;

    /// Returns all registered processes with their last heartbeat.
    fn processes(&self, operator: Operator) -> Stored<'_, Vec<(ProcessId, u64)>>;

    /// Removes a process whose last heartbeat is still `beat`. Its running turns fail; `error` makes their error object
    /// (JSON text) from the names of the tools that had begun, were not declared idempotent, and have no recorded end.
    /// Turns that had not begun are queued again, and claims of unfinished requests are released. `None` if the process
    /// is alive or another process has removed it.
    fn end_dead_process<'a>(
        &'a self,
        operator: Operator,
        process: ProcessId,
        beat: u64,
        error: fn(&[String]) -> String,
        now_ms: u64,
    ) -> Stored<'a, Option<RecoveryCounts>>;

    /// Takes at most `limit` turns from the queue, oldest first. Other processes do not get the same turns.
    fn take_queued(&self, operator: Operator, process: ProcessId, limit: usize) -> Stored<'_, Vec<QueuedTurn>>;

    /// Returns the number of queued turns of one tenant, and of all tenants.
    fn count_queued(&self, operator: Operator, tenant_id: i64) -> Stored<'_, (u64, u64)>;

    /// Puts turns that this process has taken and will not run back into the queue.
    fn give_back<'a>(&'a self, operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()>;

    /// Returns the unfinished turns of this process with their owners, which have the fewest rights.
    fn held(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<(String, Scope)>>;

    /// Returns the responses of the claims that this process has not settled.
    fn claims(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<String>>;

    /// Settles claims of this process whose requests no task works on any more, given their responses. A claim whose
    /// response runs or has completed is answered by that response; the others are released.
    fn release<'a>(&'a self, operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()>;

    /// Deletes a bounded number of rows that are past their retention.
    fn prune(&self, operator: Operator, retention: Retention) -> Stored<'_, PruneCounts>;

    /// Deletes the data that `what` selects.
    fn reset(&self, operator: Operator, what: Reset) -> Stored<'_, ()>;
}
