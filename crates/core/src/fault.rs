//! Faults: everything that can go wrong in a turn.
//!
//! A fault has two texts: `message` is for the caller, `detail` is for the log. Its canonical form, which responses
//! store and the Responses API shows, is made in `fault/error_object.rs`. Wires decide the HTTP status; nothing here
//! knows HTTP.

mod error_object;
mod request;

use std::{
    borrow::Cow,
    fmt,
    ops::{Deref, DerefMut},
    time::Duration,
};

/// The kind of a fault; each wire maps it to a status and a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The request is invalid; a retry would fail too.
    Invalid,
    /// No credential, or an unknown one.
    Unauthenticated,
    /// The caller's key does not allow the request.
    Forbidden,
    /// Missing, or owned by another caller; the two are indistinguishable on purpose.
    NotFound,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// The body, or something in it, exceeds a limit.
    TooLarge,
    /// The body is not JSON by its content type.
    UnsupportedMedia,
    /// The caller took too long to send its request.
    RequestTimeout,
    /// The same id was used for another request before.
    Conflict,
    /// The same idempotency key was used with another body.
    Mismatch,
    /// The server has no capacity for this turn now.
    Overloaded,
    /// A rate limit of the caller is reached.
    RateLimited,
    /// A budget of the caller is spent.
    QuotaExceeded,
    /// Requests use all of their memory budget.
    OutOfMemory,
    /// The process is shutting down.
    ShuttingDown,
    /// The upstream has no capacity now.
    UpstreamBusy,
    /// The upstream account's quota is exhausted.
    UpstreamQuota,
    /// The upstream does not accept the server's credential.
    UpstreamCredential,
    /// The upstream refused the request for a reason that the caller can correct.
    UpstreamRejected,
    /// The upstream has no such model.
    UpstreamUnknownModel,
    /// The prompt is longer than the model's context window.
    ContextLength,
    /// The upstream's safety system refused.
    ContentPolicy,
    /// The upstream could not be reached, or failed.
    UpstreamDown,
    /// The upstream's answer is invalid or incomplete.
    UpstreamBroken,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// An MCP server could not be reached.
    ToolServer,
    /// A tool failed, and its policy makes the turn fail.
    ToolFailed,
    /// The turn exceeded its deadline.
    Deadline,
    /// The caller disconnected, or cancelled the response.
    Cancelled,
    /// The store is not available.
    StoreDown,
    /// A bug of this server.
    Internal,
}

impl FaultKind {
    /// The name of the class in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::TooLarge => "too_large",
            Self::UnsupportedMedia => "unsupported_media",
            Self::RequestTimeout => "request_timeout",
            Self::Conflict => "conflict",
            Self::Mismatch => "mismatch",
            Self::Overloaded => "overloaded",
            Self::RateLimited => "rate_limited",
            Self::QuotaExceeded => "quota_exceeded",
            Self::OutOfMemory => "out_of_memory",
            Self::ShuttingDown => "shutting_down",
            Self::UpstreamBusy => "upstream_busy",
            Self::UpstreamQuota => "upstream_quota",
            Self::UpstreamCredential => "upstream_credential",
            Self::UpstreamRejected => "upstream_rejected",
            Self::UpstreamUnknownModel => "upstream_unknown_model",
            Self::ContextLength => "context_length",
            Self::ContentPolicy => "content_policy",
            Self::UpstreamDown => "upstream_down",
            Self::UpstreamBroken => "upstream_broken",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::ToolServer => "tool_server",
            Self::ToolFailed => "tool_failed",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::StoreDown => "store_down",
            Self::Internal => "internal",
        }
    }
}

/// A fault. Boxed, so that every `Result` stays small: nearly everything may fail, but rarely does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(Box<FaultParts>);

/// The parts of a fault: its kind, the caller's text, and the log's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultParts {
    /// The kind.
    pub kind: FaultKind,
    /// For the caller; never contains a secret or an upstream's body.
    pub message: Cow<'static, str>,
    /// The JSON path or field at fault, such as `input[2].content[0].text`.
    pub param: Option<Cow<'static, str>>,
    /// A more specific code than the kind's own, such as `missing_required_parameter`.
    pub code: Option<Cow<'static, str>>,
    /// When a retry makes sense.
    pub retry_after: Option<Duration>,
    /// For the log.
    pub detail: Option<String>,
    /// The upstream's own message; only for the log at `debug`.
    pub quote: Option<String>,
}

impl Fault {
    /// A fault of this kind with the caller's text.
    pub fn new(kind: FaultKind, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self(Box::new(FaultParts {
            kind,
            message,
            param: None,
            code: None,
            retry_after: None,
            detail: None,
            quote: None,
        }))
    }

    /// The parts of the fault.
    pub fn into_parts(self) -> FaultParts {
        *self.0
    }

    /// The most detailed text: the log's if there is one, otherwise the caller's.
    pub fn into_detail(self) -> String {
        let FaultParts { detail, quote, message, .. } = self.into_parts();
        match (detail, quote) {
            (Some(detail), Some(quote)) => format!("{detail}: {quote}"),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => message.into_owned(),
        }
    }

    /// The message with its detail, for the operator.
    pub fn explained(&self) -> String {
        match (&self.detail, &self.quote) {
            (Some(detail), Some(quote)) => format!("{self} ({detail}: {quote})"),
            (Some(text), None) | (None, Some(text)) => format!("{self} ({text})"),
            (None, None) => self.to_string(),
        }
    }

    /// An error of the caller in one field.
    pub fn invalid(param: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FaultKind::Invalid, message).param(param)
    }

    /// A bug of this server; the caller gets no detail, the log gets all of it.
    pub fn internal(detail: impl fmt::Display) -> Self {
        Self::new(FaultKind::Internal, "The server had an error while processing your request.").detail(detail)
    }

    /// Sets the field at fault.
    #[must_use]
    pub fn param(mut self, param: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Sets a more specific code than the kind's own.
    #[must_use]
    pub fn code(mut self, code: impl Into<Cow<'static, str>>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Sets when a retry makes sense.
    #[must_use]
    pub fn retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// Sets the detail for the log.
    #[must_use]
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        self.detail = Some(detail.to_string());
        self
    }

    /// Sets the upstream's own message.
    #[must_use]
    pub fn quote(mut self, quote: impl Into<String>) -> Self {
        self.quote = Some(quote.into());
        self
    }
}

impl Deref for Fault {
    type Target = FaultParts;

    fn deref(&self) -> &FaultParts {
        &self.0
    }
}

impl DerefMut for Fault {
    fn deref_mut(&mut self) -> &mut FaultParts {
        &mut self.0
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        match &self.param {
            Some(param) => write!(formatter, " ({param})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}
