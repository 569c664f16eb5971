//! What a turn is and what happens next; pure, without clock, network or database.

pub mod assistant;
mod catalog;
pub mod compaction;
mod emit;
pub mod execute;
mod fault;
mod history;
mod ids;
mod items;
mod loss;
mod model;
mod ports;
mod prompt;
mod scope;
pub mod search;
pub mod store;
mod tap;
mod tell;
mod tool;
mod toolset;
pub mod turn;
mod units;

pub use catalog::{Candidate, Catalog, ModelCard, OwnTerms, Route};
pub use emit::{Emitter, ShownCall, ShownEnd, Start};
pub use fault::{Fault, FaultKind};
pub use history::{Call, Entry, History, Output, Payload, normalise, window};
pub use ids::{IdKind, Ids, Stem};
pub use items::{joined, number_item, number_items, read_items, write_item};
pub use loss::Loss;
pub use model::{
    CallHead, Delivery, Finish, Model, ModelError, ModelEvent, ModelRequest, ModelStream, Note, Prepared, TokenCount,
};
pub use ports::{BoxFuture, Clock, Fetch, Fetched, Seal};
pub use prompt::{
    ComposeBlocks, ComposeRequest, Composition, ConversationContext, DEFAULT_MODE, ToolsSent, compose,
    tool_results_block, tool_usage_block,
};
pub use scope::{Admin, Operator, Rights, Scope, TenantState};
pub use store::{Store, StoreError};
pub use tap::{Heard, Tap};
pub use tell::{array_of, no_items};
pub use tool::{
    AllowedNames, ArgumentCheck, AskedApproval, AskedServer, AskedTool, BANK_LABEL, BankFault, BuiltinWords, Decider,
    Equipped, Handler, OnError, Policy, SecretText, ServerTool, ToolCall, ToolError, ToolOutput, Toolbox,
};
pub use toolset::{CallKind, CallMap, CallTarget, Choice, Offer, Toolset, Words, unwrap_custom, wire_name};
pub use units::{duration_from_text, duration_to_text, leading_number};
