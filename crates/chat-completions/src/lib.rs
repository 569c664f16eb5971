//! Rules of the Chat Completions wire: requests as parameters of a turn, responses as completions and chunks.
//!
//! Pure functions: no waiting, no storage. The wire in `crates/server` reads requests and writes answers with them.

mod answer;
mod content;
mod fields;
mod ids;
mod messages;
mod output;
mod request;
mod stored;
mod stream;
mod tools;
mod usage;

pub use answer::completion;
pub use ids::{completion_id, response_id};
pub use request::{AnswerOptions, CallStyle, ChatRequest, FieldNames};
pub use stored::{CompletionSettings, StoredMessages, message_id};
pub use stream::ChunkStream;
pub use usage::write_usage;
