//! What a turn is and what happens next; pure, without clock, network or database.

pub mod assistant;
mod catalog;
pub mod compaction;
mod emit;
pub mod execute;
mod fault;
pub mod file_search;
mod hex;
mod history;
mod ids;
mod items;
pub mod knowledge;
mod loss;
pub mod media;
mod model;
mod ports;
mod private_fields;
mod prompt;
mod raw_answer;
mod retrieval;
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
pub use emit::{Emitter, PartialAnswer, ShownCall, ShownEnd, Start};
pub use fault::{Fault, FaultKind, FaultParts};
pub use hex::hex;
pub use history::{
    Call, Entry, History, InstructionsOf, Output, Payload, SaidSoFar, SystemPrompt, UpstreamMemory, indented,
    normalise, normalise_rounds, uploads, window,
};
pub use ids::{IdKind, Ids, Stem};
pub use items::{joined, number_item, number_items, read_items, write_item};
pub use loss::{Loss, Losses};
pub use model::{
    Beyond, CallHead, Chain, Delivery, Finish, Model, ModelError, ModelEvent, ModelRequest, ModelStream, Note,
    Prepared, Remembers, Saying, TokenCount,
};
pub use ports::{BoxFuture, Clock, Fetch, Fetched, Seal};
pub use prompt::{
    ComposeBlocks, ComposeRequest, Composition, ConversationContext, DEFAULT_MODE, ToolsSent, compose, literal_message,
    tool_results_block, tool_usage_block,
};
pub use raw_answer::RawAnswer;
pub use retrieval::{Embedder, Found, Lookup, Retrieval};
pub use scope::{Admin, Operator, Rights, Scope, TenantState};
pub use store::{Store, StoreError};
pub use tap::{Heard, Tap};
pub use tell::{array_of, no_items};
pub use tool::{
    AllowedNames, AnswerCheck, ArgumentCheck, AskedApproval, AskedSearch, AskedServer, AskedTool, BANK_LABEL,
    BankFault, BuiltinWords, Decider, Equipped, Handler, OWN_LABEL, OnError, Policy, SecretText, ServerTool, ShownAs,
    ToolCall, ToolError, ToolOutput, Toolbox, is_house_label,
};
pub use toolset::{CallKind, CallMap, CallTarget, Choice, Offer, Toolset, Words, unwrap_custom, wire_name};
pub use units::{duration_from_text, duration_to_text, leading_number};
