//! Rules of the Messages API for clients: reads requests into parameters of a response, and renders responses as
//! messages, streamed or whole.
//!
//! Pure functions: no waiting, no storage. What the Messages API has and the Responses API has not travels in the field
//! `anthropic` of parameters, tools, items and parts ([`amalgam_protocol::ANTHROPIC`]); upstreams with the Messages API
//! get it back, and the others report it as a loss.

mod answer;
mod blocks;
mod convert;
mod error;
mod extension;
mod models;
mod request;
mod settings;
mod stop;
mod stream;
#[cfg(test)]
mod testing;
mod tools;

pub use answer::{message, write_message_usage};
pub use error::{THREADS_UNSUPPORTED, error_body, error_type, error_type_of_status};
pub use models::{ModelPage, write_model, write_models};
pub use request::{MessagesCall, MessagesHeaders, MessagesPurpose, MessagesRendering, ThinkingDisplay};
pub use stream::MessageStream;
