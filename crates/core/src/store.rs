//! What is kept, and how it is asked for. Engines of the `store` crate implement it; nothing here knows SQL.
//!
//! Every method takes a [`Scope`](crate::Scope), an [`Admin`](crate::Admin) or an [`Operator`](crate::Operator): without one there is nothing to call. A thing of
//! another tenant or user looks exactly like a missing one. Ids and times are made by the caller. What a method has
//! acknowledged is on disk.

mod agents;
mod bank;
mod conversations;
mod execute;
mod files;
mod knowledge;
mod processes;
mod responses;
mod tenancy;
mod turns;

use std::time::Duration;

use crate::{
    fault::{Fault, FaultKind},
    ports::BoxFuture,
};

pub use agents::{
    AgentConfig, AgentProfile, AgentStore, Course, CoursePage, CourseStore, Imported, MessageRecord, MetadataRecord,
    NewUserMessage, SessionEnd, SessionHistory, SessionRecord, SessionStore, Ticket, Within, session_topic,
};
pub use bank::{
    Approval, BankKind, BankOf, BankStore, BankTool, Decided, Decision, ToolOutcome, ToolRun, ToolStatistics,
};
pub use conversations::{Added, Conversation, ConversationItem, ConversationStore, Listing, NewItem, Order, Page};
pub use execute::{
    AgentSession, AgentStep, AgentTurn, ExecuteStore, Mode, ModeChange, ModeStore, NewStep, StepState, TakenStep,
};
pub use files::{FileListing, FileRecord, FileStore};
pub use knowledge::{
    Collection, DocumentListing, DocumentRecord, FoundChunk, KnowledgeQuery, KnowledgeStore, NewChunk, NewDocument,
};
pub use processes::{Buried, ProcessId, ProcessStore, Pruned, QueuedTurn, Reset, Retention};
pub use responses::{Cancelled, EventChunk, EventTail, ItemsOf, Lineage, ResponseState, ResponseStore, StoredResponse};
pub use tenancy::{KeyRecord, NewKey, TenancyStore, TenantChange, TenantRecord};
pub use turns::{
    Answer, Base, Begin, ChainPosition, Claim, Ending, Keyed, Transcript, TurnRecord, TurnStore, TurnWrite, Written,
};

/// What a store's methods give back.
pub type Stored<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A database, behind everything that it is asked for.
pub trait Store:
    ResponseStore
    + TurnStore
    + ConversationStore
    + BankStore
    + AgentStore
    + SessionStore
    + CourseStore
    + ExecuteStore
    + ModeStore
    + FileStore
    + KnowledgeStore
    + TenancyStore
    + ProcessStore
{
    /// Registers interest in one response (or, with an empty id, in queued turns, and under [`session_topic`] in the queue of a
    /// session) at the moment of the call, and resolves when something about it may have changed, in this process or, where the
    /// engine can tell, in another one. It may resolve early and it may never do so: the caller has a timer too, and looks
    /// again.
    fn changed(&self, response_id: &str) -> BoxFuture<'static, ()>;

    /// Whether the store can be used now; asked by `/readyz` and `doctor`.
    fn ping(&self) -> Stored<'_, ()>;
}

/// How a store fails.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or has no room: the same call may work later.
    #[error("the store cannot be used: {0}")]
    Unavailable(String),
    /// Too many calls wait for it already.
    #[error("the store is busy")]
    Busy,
    /// What it holds, or what it was told, cannot be.
    #[error("the store is wrong: {0}")]
    Broken(String),
}

impl StoreError {
    /// What went wrong, without saying again that it concerns the store.
    pub fn reason(&self) -> &str {
        match self {
            Self::Unavailable(reason) | Self::Broken(reason) => reason,
            Self::Busy => "too many calls wait for it",
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::Unavailable(_) | StoreError::Busy => {
                Fault::new(FaultKind::StoreDown, "The server cannot reach its store; try again in a moment.")
                    .retry_after(Some(Duration::from_secs(1)))
            }
            StoreError::Broken(_) => Fault::internal("the store is wrong"),
        }
        .detail(detail)
    }
}
