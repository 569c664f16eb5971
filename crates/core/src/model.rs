//! The port to models: a [`Model`] takes a [`ModelRequest`] and answers with [`ModelEvent`]s.
//!
//! A model yields small events; the emitter (`amalgam_emitter`) alone assigns ids, order and sequence numbers.

mod error;
mod event;
mod item_extra;

use std::{collections::HashMap, pin::Pin, sync::Arc};

use amalgam_protocol::CreateResponse;
use bytes::Bytes;
use futures_core::Stream;

use crate::{
    TraceContext, call_recorder::CallRecorder, fault::Fault, history::History, loss::Loss, ports::BoxFuture,
    toolset::CallMap,
};

pub use error::ModelError;
pub use event::{CallHead, Finish, ModelEvent};
pub use item_extra::{ItemExtra, PartOwner};

/// How an answer is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// As a stream of events.
    Stream,
    /// As one object at the end.
    Whole,
}

/// What an upstream retains of earlier calls, so that a later call need not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UpstreamRetention {
    /// Nothing; every call is self-contained.
    #[default]
    Nothing,
    /// The items. Instructions are sent with every call.
    Items,
    /// The items and the instructions of the first call.
    Everything,
}

/// How a call relates to earlier calls, for an upstream that retains answers; other upstreams ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Chain<'a> {
    /// The answer is not retained.
    #[default]
    Standalone,
    /// The call sends the whole history, and its answer is retained.
    Start,
    /// The call continues a retained answer, and sends only what is new.
    Continue {
        /// The upstream's own id of the answer.
        id: &'a str,
        /// How many entries of the history the upstream has stored.
        known: usize,
    },
}

impl Chain<'_> {
    /// The same for a call that sends the whole history.
    #[must_use]
    pub fn anew(self) -> Self {
        match self {
            Self::Standalone => Self::Standalone,
            Self::Start | Self::Continue { .. } => Self::Start,
        }
    }
}

/// One call of a model.
#[derive(Debug)]
pub struct ModelRequest<'a> {
    /// The upstream's name of the model.
    pub model: &'a str,
    /// All parameters of the request except its input.
    pub settings: &'a CreateResponse<'a>,
    /// The conversation: instructions separate, tool calls paired with their outputs.
    pub history: &'a History<'a>,
    /// How the call continues an answer that the upstream retains.
    pub chain: Chain<'a>,
    /// Whether the upstream streams its answer.
    pub delivery: Delivery,
    /// The tenant that sealed content is bound to.
    pub seal_context: &'a str,
    /// Images that were fetched for this call, as `data:` URIs by their address. Empty unless the model needs image bytes.
    pub images: &'a HashMap<String, String>,
}

/// A translated request; it may be sent more than once.
#[derive(Debug, Clone)]
pub struct PreparedRequest {
    /// The exact body.
    pub body: Bytes,
    /// The parts of the request that the translation left out or changed.
    pub losses: Vec<Loss>,
    /// How the answer is delivered.
    pub delivery: Delivery,
    /// Maps the names in the answer's calls to tools; empty where the upstream needs no mapping.
    pub calls: CallMap,
    /// The facts about the request that are needed to read the answer.
    pub answer_context: AnswerContext,
}

/// The tokens of a prompt as this server counts them: an estimate, since every upstream has its own tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenCount {
    /// Of all text: the conversation, the tools, the schema of the answer.
    pub text: u64,
    /// Of images and files.
    pub media: u64,
}

impl TokenCount {
    /// The overhead of a message.
    pub const PER_MESSAGE: u64 = 4;
    /// The cost of an image of a usual size.
    pub const PER_MEDIA: u64 = 765;

    /// All of them.
    pub fn total(self) -> u64 {
        self.text.saturating_add(self.media)
    }
}

/// The facts about a request that are needed to read its answer.
#[derive(Debug, Clone, Default)]
pub struct AnswerContext {
    /// The upstream's name of the model.
    pub model: String,
    /// The tenant that sealed content is bound to.
    pub seal_context: String,
    /// The limit on output tokens that was sent to the upstream.
    pub max_output_tokens: Option<u64>,
    /// The client asked for `reasoning.encrypted_content`.
    pub wants_sealed_reasoning: bool,
    /// The client asked for `message.output_text.logprobs`.
    pub wants_logprobs: bool,
    /// Whether the request came from a client of the Messages API, so that what only that API has is kept.
    pub keeps_messages_blocks: bool,
    /// The flags of beta features for the upstream's header.
    pub betas: Option<String>,
    /// Anything else, in a format of the adapter.
    pub own: Option<String>,
    /// Records the answer byte for byte.
    pub recorder: Option<CallRecorder>,
    /// The trace that the upstream receives.
    pub trace: Option<TraceContext>,
    /// The caller's `tracestate`.
    pub trace_state: Option<Arc<str>>,
    /// The id of the caller's request, for the log.
    pub request_id: Option<Arc<str>>,
}

/// The events of one answer; each batch is what one piece of the network held.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<Vec<ModelEvent>, ModelError>> + Send>>;

/// A model behind an upstream.
///
/// An implementer promises: `prepare` does no I/O; the stream ends after [`ModelEvent::Finish`] or an error and holds no
/// more memory than a few network pieces; dropping the future or the stream closes the upstream call at once.
pub trait Model: Send + Sync {
    /// Translates a request; everything that is lost in translation is listed, never dropped silently.
    fn prepare(&self, request: &ModelRequest<'_>) -> Result<PreparedRequest, Fault>;

    /// Sends a request. An error here means that nothing has been sent to the caller yet.
    fn ask<'a>(&'a self, prepared: &'a PreparedRequest) -> BoxFuture<'a, Result<ModelStream, ModelError>>;

    /// Counts the tokens of a translated request. CPU-bound on long requests: call it on the blocking pool. The default
    /// counts four bytes as a token.
    fn count(&self, prepared: &PreparedRequest) -> TokenCount {
        TokenCount { text: (prepared.body.len() as u64).div_ceil(4), media: 0 }
    }

    /// The tokens of one text in a prompt for `model`, by the same count; CPU-bound as well.
    fn count_text(&self, _model: &str, text: &str) -> u64 {
        (text.len() as u64).div_ceil(4)
    }

    /// The provider in traces, as the GenAI conventions name it: the API of the upstream.
    fn provider_name(&self) -> &'static str {
        "openai"
    }

    /// The environment variable of a missing API key; none if no key is missing.
    fn missing_key(&self) -> Option<&str> {
        None
    }

    /// Whether the upstream is not called for now, because it failed repeatedly.
    fn is_resting(&self) -> bool {
        false
    }

    /// The upstream's own name of this model. Succeeds only if the upstream is reachable, accepts the key and has the model.
    fn identify<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<String, ModelError>> {
        Box::pin(async move { Ok(name.to_owned()) })
    }

    /// What the upstream retains between calls.
    fn retention(&self) -> UpstreamRetention {
        UpstreamRetention::Nothing
    }

    /// Whether image addresses must be fetched before `prepare`.
    fn wants_image_bytes(&self) -> bool {
        false
    }

    /// Whether URLs of images and files are sent to the upstream, and therefore have to be checked before.
    fn sends_addresses(&self) -> bool {
        true
    }

    /// The same request with the history's tool calls as labelled text, if `error` says that the upstream does not know a
    /// call of the history, and the operator allows that.
    fn recover(&self, _request: &ModelRequest<'_>, _error: &ModelError) -> Option<Result<PreparedRequest, Fault>> {
        None
    }
}
