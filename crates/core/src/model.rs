//! The port to models: a [`Model`] takes a [`ModelRequest`] and answers with [`ModelEvent`]s.
//!
//! A model yields small events; [`crate::Emitter`] alone assigns ids, order and sequence numbers.

mod item_extra;

use std::{collections::HashMap, pin::Pin, time::Duration};

use amalgam_protocol::{CreateResponse, Json, Literal, Usage};
use bytes::Bytes;
use futures_core::Stream;

use crate::{
    call_recorder::CallRecorder,
    fault::{Fault, FaultKind},
    history::History,
    loss::Loss,
    ports::BoxFuture,
    toolset::{CallKind, CallMap},
};

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
        /// How many entries of the history the upstream knows.
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
    /// What the translation left out or changed.
    pub losses: Vec<Loss>,
    /// How the answer is delivered.
    pub delivery: Delivery,
    /// Maps the names in the answer's calls to tools; empty where the upstream needs no mapping.
    pub calls: CallMap,
    /// What reading the answer needs to know about the request.
    pub answer_context: AnswerContext,
}

/// The tokens of a prompt by our own count: an estimate, since every upstream has its own tokenizer.
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

/// What reading an answer needs to know about its request.
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
    /// Anything else, in a format of the adapter.
    pub own: Option<String>,
    /// Records the answer byte for byte.
    pub recorder: Option<CallRecorder>,
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

    /// The tokens of a translated request, by our own count. CPU-bound on long requests: call it on the blocking pool. The
    /// default counts four bytes as a token.
    fn count(&self, prepared: &PreparedRequest) -> TokenCount {
        TokenCount { text: (prepared.body.len() as u64).div_ceil(4), media: 0 }
    }

    /// The tokens of one text in a prompt for `model`, by the same count; CPU-bound as well.
    fn count_text(&self, _model: &str, text: &str) -> u64 {
        (text.len() as u64).div_ceil(4)
    }

    /// The environment variable of a missing API key; none if no key is missing.
    fn missing_key(&self) -> Option<&str> {
        None
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

/// One event of a model's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The upstream has accepted the request.
    Begun {
        /// Its own id for the answer.
        id: Option<String>,
        /// The model that answers, by the upstream's account.
        model: Option<String>,
    },
    /// A message begins. Optional: text opens one by itself.
    MessageStart {
        /// `commentary` or `final_answer`.
        phase: Option<String>,
    },
    /// Text of a message.
    Text {
        /// The piece.
        delta: Literal,
        /// Its log probabilities, as the Responses wire writes them: an array.
        logprobs: Option<Json>,
    },
    /// An annotation of the text so far, as the Responses wire writes it.
    Annotation(Json),
    /// Text of a refusal.
    Refusal(Literal),
    /// The content part ends; more text begins another one.
    PartEnd,
    /// The message ends; more text begins another one.
    MessageEnd,
    /// Text of a reasoning summary.
    ReasoningSummary(Literal),
    /// A summary part ends; more summary begins another one.
    ReasoningSummaryEnd,
    /// Reasoning text, where the upstream returns it separately from a summary.
    ReasoningText(Literal),
    /// The reasoning item ends.
    ReasoningEnd {
        /// What the model needs back in the next request, sealed.
        encrypted_content: Option<String>,
    },
    /// A call begins.
    CallStart {
        /// Tells the calls of one answer apart.
        key: u64,
        /// What is called.
        call: CallHead,
    },
    /// More of a call's arguments, or of a custom tool's input.
    CallDelta {
        /// Which call.
        key: u64,
        /// The piece.
        delta: Literal,
    },
    /// A call is complete.
    CallEnd {
        /// Which call.
        key: u64,
    },
    /// An item of an unknown kind begins; it is passed on unchanged.
    ItemStart {
        /// Tells such items apart.
        key: u64,
        /// The item so far.
        item: Json,
    },
    /// Progress of such an item: an event as the upstream wrote it. Indices and sequence numbers are assigned anew.
    ItemProgress {
        /// Which item; none for an event that belongs to no item.
        key: Option<u64>,
        /// The event.
        event: Json,
    },
    /// An item of an unknown kind, complete. Begins the item too if it has not begun.
    ItemEnd {
        /// Which item.
        key: u64,
        /// The item.
        item: Json,
    },
    /// Fields or parts of an item that no other event carries.
    Extra(ItemExtra),
    /// Something that was requested and is missing in the answer. Reported beside the answer, not in it.
    Loss(Loss),
    /// Token usage; the last event counts.
    Usage(Usage),
    /// The answer is complete. Nothing follows.
    Finish(Finish),
}

/// What is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHead {
    /// Function, custom tool, or a tool with items of its own.
    pub kind: CallKind,
    /// The upstream's id for the call; one of ours where it has none.
    pub call_id: Option<String>,
    /// The tool's name as the client knows it.
    pub name: String,
    /// The namespace that the client has it in.
    pub namespace: Option<String>,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The model finished, with or without calls.
    Stop,
    /// The token limit was reached.
    Length,
    /// A content filter stopped it.
    ContentFilter,
    /// Another reason, as `incomplete_details.reason` names it.
    Incomplete(String),
    /// The upstream reported a failure.
    Failed(Fault),
}

/// Why a call of a model failed.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The API key of the upstream is not configured.
    #[error("upstream `{upstream}` has no key: variable {variable} is not set")]
    NoKey {
        /// Which upstream.
        upstream: String,
        /// The variable that should hold it.
        variable: String,
    },
    /// No connection, or it was lost before an answer began.
    #[error("could not reach the upstream: {0}")]
    Unreachable(String),
    /// The proxy did not connect to the upstream.
    #[error("the proxy made no connection to the upstream: {0}")]
    Proxy(String),
    /// An answer that is not 2xx.
    #[error("upstream answered {status}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The upstream's `Retry-After`.
        retry_after: Option<Duration>,
        /// The error object's message, where there is one.
        message: Option<String>,
        /// The error object's code or type.
        code: Option<String>,
        /// The error object's param.
        param: Option<String>,
        /// The beginning of the body, for the log.
        body: String,
    },
    /// The idle timeout has passed.
    #[error("upstream was silent for {0:?}")]
    Silent(Duration),
    /// The stream ended without its final event.
    #[error("upstream closed the stream before its end")]
    CutShort,
    /// An answer that cannot be read.
    #[error("upstream gave an answer that cannot be read: {0}")]
    Unreadable(String),
    /// An answer beyond the size limits.
    #[error("upstream gave an answer past the limit: {0}")]
    TooLarge(String),
    /// The circuit breaker is open after repeated failures.
    #[error("upstream is resting after repeated failures")]
    Resting(Duration),
}

impl ModelError {
    /// Whether the request may be retried, as long as nothing was sent to the caller.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Proxy(_) => true,
            Self::Refused { status, code, .. } => {
                matches!(status, 408 | 409 | 429 | 500 | 502 | 503 | 504 | 529)
                    && code.as_deref() != Some("insufficient_quota")
            }
            Self::NoKey { .. }
            | Self::Silent(_)
            | Self::CutShort
            | Self::Unreadable(_)
            | Self::TooLarge(_)
            | Self::Resting(_) => false,
        }
    }

    /// Whether another upstream would refuse the request as well, so that a fallback is pointless.
    pub fn is_of_the_request(&self) -> bool {
        matches!(self, Self::Refused { status: 400 | 413 | 415 | 422, .. })
    }

    /// How long to wait before a retry.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Resting(wait) => Some(*wait),
            _ => None,
        }
    }

    /// Whether the upstream says that the prompt exceeds the model's context window.
    pub fn is_too_long(&self) -> bool {
        match self {
            Self::Refused { status: 400 | 413 | 422, message, code, .. } => {
                says_too_long(message.as_deref(), code.as_deref())
            }
            _ => false,
        }
    }

    /// Whether the upstream does not know, or does not accept, the earlier answer of this id.
    pub fn is_forgotten(&self, id: &str) -> bool {
        let Self::Refused { status: 400 | 404 | 410 | 422, message, code, param, .. } = self else { return false };
        let said = message.as_deref().unwrap_or_default().to_ascii_lowercase();
        code.as_deref() == Some("previous_response_not_found")
            || param.as_deref() == Some("previous_response_id")
            || said.contains("previous_response_id")
            || said.contains("previous response")
            || (said.contains("not found") && message.as_deref().is_some_and(|message| message.contains(id)))
    }

    /// The fault for the caller. The upstream's own message is included only where it concerns the request.
    pub fn into_fault(self) -> Fault {
        let detail = self.to_string();
        match self {
            Self::NoKey { .. } => {
                Fault::new(FaultKind::UpstreamCredential, "The upstream's API key is not configured.")
            }
            Self::Unreachable(_) => Fault::new(FaultKind::UpstreamDown, "The upstream could not be reached."),
            Self::Proxy(_) => {
                Fault::new(FaultKind::UpstreamDown, "The proxy on the way to the upstream made no connection to it.")
            }
            Self::Silent(_) => Fault::new(FaultKind::UpstreamTimeout, "The upstream did not answer in time."),
            Self::CutShort => {
                Fault::new(FaultKind::UpstreamBroken, "The upstream closed the stream before the answer was complete.")
            }
            Self::Unreadable(_) | Self::TooLarge(_) => {
                Fault::new(FaultKind::UpstreamBroken, "The upstream gave an answer that cannot be read.")
            }
            Self::Resting(wait) => {
                Fault::new(FaultKind::UpstreamDown, "The upstream is failing; try again later.").retry_after(Some(wait))
            }
            Self::Refused { status, retry_after, message, code, param, body } => {
                return refusal(status, retry_after, message, code, param)
                    .detail(format_args!("upstream answered {status}: {body}"));
            }
        }
        .detail(detail)
    }
}

/// Phrases that upstreams use for it.
fn says_too_long(message: Option<&str>, code: Option<&str>) -> bool {
    const CODES: [&str; 2] = ["context_length_exceeded", "exceed_context_size_error"];
    const WORDS: [&str; 8] = [
        "context length",
        "context window",
        "context size",
        "context limit",
        "prompt is too long",
        "input is too long",
        "prompt too long",
        "maximum number of tokens",
    ];
    let said = message.unwrap_or_default().to_ascii_lowercase();
    code.is_some_and(|code| CODES.contains(&code)) || WORDS.iter().any(|words| said.contains(words))
}

/// Whether a "not found" message is about a model: not all upstreams have a code for that.
fn names_model(message: Option<&str>) -> bool {
    message.is_some_and(|message| message.to_ascii_lowercase().contains("model"))
}

/// Maps a refusal to a fault: with the upstream's message where the caller can fix the request, with ours otherwise.
fn refusal(
    status: u16,
    retry_after: Option<Duration>,
    message: Option<String>,
    code: Option<String>,
    param: Option<String>,
) -> Fault {
    let is = |name: &str| code.as_deref() == Some(name);
    let too_long = says_too_long(message.as_deref(), code.as_deref());
    let in_its_words = |kind, fallback: &'static str| {
        let mut fault = Fault::new(kind, message.clone().map_or(fallback.into(), std::borrow::Cow::Owned));
        fault.param = param.clone().map(Into::into);
        fault
    };
    match status {
        400 | 413 | 422 if too_long => {
            in_its_words(FaultKind::ContextLength, "The input is longer than the model takes.")
                .code("context_length_exceeded")
        }
        400 | 422 if is("content_filter") || is("content_policy_violation") || is("invalid_prompt") => {
            in_its_words(FaultKind::ContentPolicy, "The upstream refused the content.")
        }
        400 | 413 | 415 | 422 => {
            let mut fault = in_its_words(FaultKind::UpstreamRejected, "The upstream refused the request.");
            fault.code = code.map(Into::into);
            fault
        }
        401 | 403 => Fault::new(FaultKind::UpstreamCredential, "The upstream refused our credential."),
        404 if is("model_not_found") || names_model(message.as_deref()) => {
            let fault = in_its_words(FaultKind::UpstreamUnknownModel, "The upstream does not know this model.");
            if fault.param.is_some() { fault } else { fault.param("model") }
        }
        404 => in_its_words(FaultKind::UpstreamRejected, "The upstream does not know this model."),
        429 if is("insufficient_quota") => Fault::new(FaultKind::UpstreamQuota, "The upstream's quota is used up."),
        429 => in_its_words(FaultKind::UpstreamBusy, "The upstream is rate limited.").retry_after(retry_after),
        503 | 529 => {
            Fault::new(FaultKind::UpstreamDown, "The upstream is overloaded or unavailable.").retry_after(retry_after)
        }
        _ => Fault::new(FaultKind::UpstreamDown, "The upstream failed.").retry_after(retry_after),
    }
}
