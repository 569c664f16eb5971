//! The port for storage. The store crates implement it; nothing here knows SQL.
//!
//! Every method takes a [`Scope`](crate::Scope), an [`Admin`](crate::Admin) or an [`Operator`], and
//! treats data of another tenant or user as missing. Callers make ids and times. A write is durable when its method
//! returns.

mod agents;
mod audit;
mod bank;
mod catalogue;
mod console;
mod conversations;
mod execute;
mod files;
mod knowledge;
mod limits;
mod processes;
mod responses;
mod store_meter;
mod tenancy;
mod threads;
mod turn_details;
mod turn_list;
mod turns;
mod webhooks;

use std::time::Duration;

use crate::{
    fault::{Fault, FaultKind},
    ports::BoxFuture,
    scope::Operator,
};

pub use agents::{
    AgentConfig, AgentProfile, AgentStore, Course, CoursePage, CourseStore, ImportCounts, MessageRecord,
    MetadataRecord, NewUserMessage, QueueEntry, SessionEnd, SessionHistory, SessionRecord, SessionStore, Ticket,
    Within, session_topic,
};
pub use audit::{AuditFilter, AuditStore};
pub use bank::{
    Approval, BankKind, BankOf, BankStore, BankTool, Decision, DecisionOutcome, ToolOutcome, ToolRun, ToolStatistics,
};
pub use catalogue::{CatalogueStore, LearnerCourse};
pub use console::{ConsoleOwner, ConsoleSession, ConsoleStore, ConsoleUser, SignIn};
pub use conversations::{
    AppendOutcome, Conversation, ConversationItem, ConversationStore, Listing, NewItem, Order, Page,
};
pub use execute::{
    AgentSession, AgentStep, AgentTurn, ExecuteStore, Fingerprint, Mode, ModeChange, ModeStore, NewStep, StepState,
    SubmittedSession, TakenStep,
};
pub use files::{FileListing, FileRecord, FileStore};
pub use knowledge::{
    ChunkRanking, Collection, DocumentListing, DocumentRecord, FoundChunk, KnowledgeQuery, KnowledgeStore, NewChunk,
    NewDocument,
};
pub use limits::{HoldSettlement, LimitReservation, LimitStore, PriceRecord, ReserveOutcome};
pub use processes::{ProcessId, ProcessStore, PruneCounts, QueuedTurn, RecoveryCounts, Reset, Retention};
pub use responses::{
    CancelOutcome, EventChunk, EventTail, ItemsOf, Lineage, ResponseSettingsStore, ResponseState, ResponseStore,
    StoredResponse,
};
pub use store_meter::{FlushReading, StoreMeter};
pub use tenancy::{KeyRecord, NewKey, TenancyStore, TenantChange, TenantRecord};
pub use threads::{OwnedBy, SessionDeletion, ThreadStore};
pub use turn_details::{CallBodies, RecentTurns, StoredCall, TurnDetailStore};
pub use turn_list::{
    ListedTurn, TurnCursor, TurnFilter, TurnPage, TurnsOf, UsageGroup, UsageQuery, UsageStore, UsageSums,
};
pub use turns::{
    Answer, Base, Begin, ChainPosition, Claim, Ending, IdempotencyKey, Transcript, TurnRecord, TurnStore, TurnWrite,
    WriteOutcome,
};
pub use webhooks::WebhookStore;

/// The return type of the store's methods.
pub type Stored<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A database: all storage traits together.
pub trait Store:
    ResponseStore
    + ResponseSettingsStore
    + TurnStore
    + TurnDetailStore
    + UsageStore
    + ConversationStore
    + BankStore
    + AgentStore
    + SessionStore
    + CourseStore
    + CatalogueStore
    + ThreadStore
    + ExecuteStore
    + ModeStore
    + FileStore
    + KnowledgeStore
    + TenancyStore
    + ConsoleStore
    + AuditStore
    + WebhookStore
    + LimitStore
    + ProcessStore
{
    /// Subscribes, at the moment of the call, to changes of one response; with an empty id to changes of the background
    /// queue; with [`session_topic`] to changes of a session queue. Resolves when something may have changed in this
    /// process or, if the engine can detect it, in another one. It may resolve early or never, so the caller also needs
    /// a timer.
    fn changed(&self, response_id: &str) -> BoxFuture<'static, ()>;

    /// Checks that the store is available, for `/readyz` and `doctor`.
    fn ping(&self) -> Stored<'_, ()>;

    /// The bytes that the database has on its disk.
    fn size(&self, operator: Operator) -> Stored<'_, u64>;
}

/// Why a method of a store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached, or is full: the same call may work later.
    #[error("the store cannot be used: {0}")]
    Unavailable(String),
    /// Too many calls are waiting for the store.
    #[error("the store is busy")]
    Busy,
    /// The stored data or the call is inconsistent.
    #[error("the store is wrong: {0}")]
    Broken(String),
}

impl StoreError {
    /// The reason, without a prefix about the store.
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
