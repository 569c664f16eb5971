//! Why a call of a model failed, and the fault that the caller gets for it.

use std::{borrow::Cow, time::Duration};

use crate::fault::{Fault, FaultKind};

/// Why a call of a model failed.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The API key of the upstream is not configured.
    #[error("upstream `{upstream}` has no key: variable {variable} is not set")]
    NoKey {
        /// The upstream.
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

    /// Whether the upstream reports that it does not have, or does not accept, the earlier answer with this id.
    pub fn is_forgotten(&self, id: &str) -> bool {
        let Self::Refused { status: 400 | 404 | 410 | 422, message, code, param, .. } = self else { return false };
        let text = message.as_deref().unwrap_or_default().to_ascii_lowercase();
        code.as_deref() == Some("previous_response_not_found")
            || param.as_deref() == Some("previous_response_id")
            || text.contains("previous_response_id")
            || text.contains("previous response")
            || (text.contains("not found") && message.as_deref().is_some_and(|message| message.contains(id)))
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
            Self::Unreadable(what) => {
                return Fault::new(FaultKind::UpstreamBroken, "The upstream gave an answer that cannot be read.")
                    .detail("upstream gave an answer that cannot be read")
                    .quote(what);
            }
            Self::TooLarge(_) => {
                Fault::new(FaultKind::UpstreamBroken, "The upstream gave an answer that cannot be read.")
            }
            Self::Resting(wait) => {
                Fault::new(FaultKind::UpstreamDown, "The upstream is failing; try again later.").retry_after(Some(wait))
            }
            Self::Refused { status, retry_after, message, code, param, body } => {
                return refusal(status, retry_after, message, code, param)
                    .detail(format_args!("upstream answered {status}"))
                    .quote(body);
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
    let text = message.unwrap_or_default().to_ascii_lowercase();
    code.is_some_and(|code| CODES.contains(&code)) || WORDS.iter().any(|words| text.contains(words))
}

/// Whether a "not found" message is about a model: not all upstreams have a code for that.
fn names_model(message: Option<&str>) -> bool {
    message.is_some_and(|message| message.to_ascii_lowercase().contains("model"))
}

/// Maps a refusal to a fault: with the upstream's message if the caller can fix the request, otherwise with a message
/// of this server.
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
        let mut fault = Fault::new(kind, message.clone().map_or(fallback.into(), Cow::Owned));
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
