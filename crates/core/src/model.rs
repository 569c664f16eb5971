//! What a model is to us: something that takes a [`ModelRequest`] and answers with [`ModelEvent`]s.
//!
//! A model yields small events; ids, order and numbering are made by [`crate::Emitter`] alone.

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

/// How the caller wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Events as they come.
    Stream,
    /// One object at the end.
    Whole,
}

/// What an upstream keeps itself of what it was asked, so that a later call need not say it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UpstreamRetention {
    /// Every call stands for itself.
    #[default]
    Nothing,
    /// What was said. Instructions are told with every call.
    Items,
    /// What was said, and the instructions that it began with.
    Everything,
}

/// How a call stands to others, for an upstream that retains answers; other upstreams ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Chain<'a> {
    /// It is not to be remembered.
    #[default]
    Standalone,
    /// It says everything, and is to be remembered.
    Start,
    /// It goes on from an answer that is remembered, and says only what is new.
    Continue {
        /// The upstream's own id of the answer.
        id: &'a str,
        /// So many entries of the history are known there.
        known: usize,
    },
}

impl Chain<'_> {
    /// The same for a call that says everything.
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
    /// What the upstream is asked for.
    pub model: &'a str,
    /// Everything that the caller set, other than what is said.
    pub settings: &'a CreateResponse<'a>,
    /// What is said: instructions apart, tool calls paired.
    pub history: &'a History<'a>,
    /// How the call continues an answer that the upstream retains.
    pub chain: Chain<'a>,
    /// How the upstream is asked for its answer.
    pub delivery: Delivery,
    /// Whom sealed content is bound to.
    pub seal_context: &'a str,
    /// Images that were fetched for this call, as `data:` URIs by their address. Empty unless the model asked for it.
    pub images: &'a HashMap<String, String>,
}

/// A translated request, ready to be sent, also more than once.
#[derive(Debug, Clone)]
pub struct PreparedRequest {
    /// The exact body.
    pub body: Bytes,
    /// What the body does not carry over.
    pub losses: Vec<Loss>,
    /// How the answer will come.
    pub delivery: Delivery,
    /// What the answer's calls mean; empty where the upstream speaks for itself.
    pub calls: CallMap,
    /// What the model needs to remember between asking and reading, such as sealing context.
    pub answer_context: AnswerContext,
}

/// The tokens of a prompt by our own count: an estimate, since every upstream counts in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenCount {
    /// Of everything that is text: what is said, the tools, the schema of the answer.
    pub text: u64,
    /// Of images and files.
    pub media: u64,
}

impl TokenCount {
    /// What a message costs beyond its text.
    pub const PER_MESSAGE: u64 = 4;
    /// What an image of a usual size costs.
    pub const PER_MEDIA: u64 = 765;

    /// All of them.
    pub fn total(self) -> u64 {
        self.text.saturating_add(self.media)
    }
}

/// What a model needs to remember between asking and reading.
#[derive(Debug, Clone, Default)]
pub struct AnswerContext {
    /// What the upstream was asked for.
    pub model: String,
    /// Whom sealed content is bound to.
    pub seal_context: String,
    /// Tokens of output that the upstream was allowed.
    pub max_output_tokens: Option<u64>,
    /// The client asked for `reasoning.encrypted_content`.
    pub wants_sealed_reasoning: bool,
    /// The client asked for `message.output_text.logprobs`.
    pub wants_logprobs: bool,
    /// Anything else, in the model's own words.
    pub own: Option<String>,
    /// Who wants to know exactly what is said.
    pub recorder: Option<CallRecorder>,
}

/// The events of one answer; each batch is what one piece of the network held.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<Vec<ModelEvent>, ModelError>> + Send>>;

/// Something that answers.
///
/// An implementer promises: `prepare` does no I/O; the stream ends after [`ModelEvent::Finish`] or an error and holds no
/// more memory than a few network pieces; dropping the future or the stream closes the upstream call at once.
pub trait Model: Send + Sync {
    /// Translates a request; what cannot be carried over is listed, never dropped in silence.
    fn prepare(&self, request: &ModelRequest<'_>) -> Result<PreparedRequest, Fault>;

    /// Sends it. An error here means that nothing was passed on to the caller yet.
    fn ask<'a>(&'a self, prepared: &'a PreparedRequest) -> BoxFuture<'a, Result<ModelStream, ModelError>>;

    /// The tokens of a translated request, by our own count. Takes its time over a long one: not for a thread that serves
    /// connections. Four bytes are a token unless the model knows better.
    fn count(&self, prepared: &PreparedRequest) -> TokenCount {
        TokenCount { text: (prepared.body.len() as u64).div_ceil(4), media: 0 }
    }

    /// The tokens of one text in a prompt for `model`, by the same count; takes its time as well.
    fn count_text(&self, _model: &str, text: &str) -> u64 {
        (text.len() as u64).div_ceil(4)
    }

    /// The variable that should hold the key which is missing; nothing where none is.
    fn missing_key(&self) -> Option<&str> {
        None
    }

    /// What the upstream itself calls the model of this name: proof that it is reached, takes our key and has the model.
    fn identify<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<String, ModelError>> {
        Box::pin(async move { Ok(name.to_owned()) })
    }

    /// What it keeps itself between two calls.
    fn retention(&self) -> UpstreamRetention {
        UpstreamRetention::Nothing
    }

    /// Whether image addresses must be fetched before `prepare`.
    fn wants_image_bytes(&self) -> bool {
        false
    }

    /// Whether addresses of images and files in the history leave this process, and are checked before.
    fn sends_addresses(&self) -> bool {
        true
    }

    /// The same request with the history's tool calls written as labelled text, if `error` says that the upstream lost a
    /// call that the history holds, and the operator allows it.
    fn recover(&self, _request: &ModelRequest<'_>, _error: &ModelError) -> Option<Result<PreparedRequest, Fault>> {
        None
    }
}

/// What a model says, bit by bit.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The upstream accepted, and says who it is.
    Begun {
        /// Its own id for the answer.
        id: Option<String>,
        /// The model that really answers.
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
    /// What may be shown of the model's thoughts.
    ReasoningSummary(Literal),
    /// A summary part ends; more summary begins another one.
    ReasoningSummaryEnd,
    /// The thoughts themselves, where the upstream gives them apart from a summary.
    ReasoningText(Literal),
    /// The thoughts end.
    ReasoningEnd {
        /// What the model wants back next time, sealed.
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
    /// An item of a kind that passes along as it is, begun.
    ItemStart {
        /// Tells such items apart.
        key: u64,
        /// The item so far.
        item: Json,
    },
    /// Progress of such an item: an event as the upstream wrote it. Indices and numbers are made anew.
    ItemProgress {
        /// Which item; none for an event that belongs to no item.
        key: Option<u64>,
        /// The event.
        event: Json,
    },
    /// An item of a kind that passes along as it is, whole. Begins it too if it was not begun.
    ItemEnd {
        /// Which item.
        key: u64,
        /// The item.
        item: Json,
    },
    /// What an item has beyond all this.
    Extra(ItemExtra),
    /// Something that was asked for and is not in the answer. Told beside the answer, not in it.
    Loss(Loss),
    /// What it cost; the last one counts.
    Usage(Usage),
    /// The answer is over. Nothing follows.
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

/// Why an answer is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The model was done, with or without calls.
    Stop,
    /// No more tokens were allowed.
    Length,
    /// A filter cut it off.
    ContentFilter,
    /// Another reason for an early end, in the Responses wire's words.
    Incomplete(String),
    /// The upstream says that it failed.
    Failed(Fault),
}

/// How asking a model goes wrong.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The operator has not given a key that the upstream needs.
    #[error("upstream `{upstream}` has no key: variable {variable} is not set")]
    NoKey {
        /// Which upstream.
        upstream: String,
        /// The variable that should hold it.
        variable: String,
    },
    /// No connection, or it broke before an answer began.
    #[error("could not reach the upstream: {0}")]
    Unreachable(String),
    /// The proxy on the way to the upstream makes no connection to it.
    #[error("the proxy made no connection to the upstream: {0}")]
    Proxy(String),
    /// An answer that is not 2xx.
    #[error("upstream answered {status}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// When the upstream wants to be asked again.
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
    /// Silence for too long.
    #[error("upstream was silent for {0:?}")]
    Silent(Duration),
    /// The stream ended before its end.
    #[error("upstream closed the stream before its end")]
    CutShort,
    /// An answer that cannot be read.
    #[error("upstream gave an answer that cannot be read: {0}")]
    Unreadable(String),
    /// An answer that goes on past every bound.
    #[error("upstream gave an answer past the limit: {0}")]
    TooLarge(String),
    /// The upstream is resting after many failures.
    #[error("upstream is resting after repeated failures")]
    Resting(Duration),
}

impl ModelError {
    /// Whether the same request may be sent once more, as long as nothing was passed on.
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

    /// Whether another upstream would have to refuse the same request: then there is no point in asking it.
    pub fn is_of_the_request(&self) -> bool {
        matches!(self, Self::Refused { status: 400 | 413 | 415 | 422, .. })
    }

    /// How long the upstream wants us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Resting(wait) => Some(*wait),
            _ => None,
        }
    }

    /// Whether the upstream says that the prompt is longer than its model takes.
    pub fn is_too_long(&self) -> bool {
        match self {
            Self::Refused { status: 400 | 413 | 422, message, code, .. } => {
                says_too_long(message.as_deref(), code.as_deref())
            }
            _ => false,
        }
    }

    /// Whether the upstream does not know, or does not want to know, the answer of this id that a call goes on from.
    pub fn is_forgotten(&self, id: &str) -> bool {
        let Self::Refused { status: 400 | 404 | 410 | 422, message, code, param, .. } = self else { return false };
        let said = message.as_deref().unwrap_or_default().to_ascii_lowercase();
        code.as_deref() == Some("previous_response_not_found")
            || param.as_deref() == Some("previous_response_id")
            || said.contains("previous_response_id")
            || said.contains("previous response")
            || (said.contains("not found") && message.as_deref().is_some_and(|message| message.contains(id)))
    }

    /// What the caller is told. The upstream's own words reach it only where they concern its request.
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

/// The words that upstreams have for it.
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

/// Whether what an upstream says of something that it does not have is said of a model: not all of them have a code for it.
fn names_model(message: Option<&str>) -> bool {
    message.is_some_and(|message| message.to_ascii_lowercase().contains("model"))
}

/// Reads a refusal: what the caller can mend is told in the upstream's words, what it cannot is told in ours.
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
