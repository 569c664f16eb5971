//! The domain of turns: interfaces (ports) and rules, without clock, network or database.

mod audit;
mod call_recorder;
mod catalog;
pub mod compaction;
mod fault;
pub mod file_search;
mod hex;
mod history;
mod ids;
mod items;
mod limits;
mod loss;
pub mod media;
mod model;
mod network;
mod ports;
mod private_fields;
mod raw_answer;
mod retrieval;
mod scope;
mod session;
pub mod store;
mod stored_response;
mod tool;
mod tool_guidance;
mod toolset;
pub mod turn;
mod units;
mod webhook;

pub use amalgam_summary::{
    Budget, BudgetPeriod, BudgetUnit, CallSummary, Cost, Door, EndedRequest, EndedTrace, KeptTurn, LimitKind,
    LimitRules, LimitSubject, MAX_SPANS, NoObserver, NoTraces, Price, RateLimits, RateWindow, RequestContext,
    StoredPart, TelemetryMeter, TelemetrySignal, TokenSums, ToolContent, ToolSpan, TraceContext, TraceSink,
    TurnObserver, TurnOrigin, TurnQueue, TurnSpan, TurnStep, TurnSummary, Wire, new_span_id,
};
pub use audit::{
    Actor, AuditAction, AuditBreak, AuditCheck, AuditDraft, AuditHash, AuditHead, AuditProblem, AuditRow, CHAIN_START,
    INSTALLATION,
};
pub use call_recorder::{CallRecorder, CallRecording};
pub use catalog::{Candidate, Catalog, ModelCard, ModelSelection, Route, UpstreamCheck};
pub use fault::{Fault, FaultKind, FaultParts};
pub use hex::hex;
pub use history::{
    Call, ConversationDigest, Entry, History, InstructionsOf, Output, Payload, SystemPrompt, UpstreamMemory, indented,
    normalise, normalise_rounds, uploads, window,
};
pub use ids::{IdKind, Ids, Stem};
pub use items::{joined, number_item, number_items, read_items, write_item};
pub use limits::{HoldShare, LimitCounters, LimitDemand, LimitReason, LimitRecord, LimitRefusal, UsedAmounts};
pub use loss::{Loss, Losses};
pub use model::{
    AnswerContext, CallHead, Chain, Delivery, Finish, ItemExtra, Model, ModelError, ModelEvent, ModelRequest,
    ModelStream, PartOwner, PreparedRequest, TokenCount, UpstreamRetention,
};
pub use network::{Network, NotANetwork};
pub use ports::{BoxFuture, Clock, Fetch, FetchedFile, Seal};
pub use private_fields::ModelCallId;
pub use raw_answer::RawAnswer;
pub use retrieval::{
    ComparisonOperator, Condition, EmbeddedTexts, Embedder, EmbeddingRequest, EmbeddingResult, EmbeddingUpstreams,
    Retrieval, RetrievalQuery, RetrievalResult,
};
pub use scope::{Admin, ClientTerms, Operator, Rights, Scope, TenantState};
pub use session::{ServerCall, SessionTurn, TurnEnd, answer_text};
pub use store::{Store, StoreError};
pub use stored_response::{array_of, error_frame, no_items};
pub use tool::{
    AllowedNames, AnswerCheck, ApprovalRule, ArgumentCheck, BANK_LABEL, BankFault, BuiltinDescription, CallDisplay,
    Decider, FileSearchRequest, Handler, McpServerRequest, OWN_LABEL, OnError, Policy, ResolvedTool, SecretText,
    ServerTool, ToolCall, ToolError, ToolOutput, ToolProvider, ToolRequest, is_house_label,
};
pub use tool_guidance::tool_usage_block;
pub use toolset::{CallKind, CallMap, CallTarget, Choice, Description, Offer, Toolset, unwrap_custom, wire_name};
pub use units::{duration_from_text, duration_to_text, leading_number};
pub use webhook::{
    DeliveryAttempt, DeliveryStatus, DueDelivery, WEBHOOK_EVENTS, WEBHOOK_TEST, WebhookDelivery, WebhookEndpoint,
    WebhookEvent, WebhookSender,
};
