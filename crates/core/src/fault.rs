//! Everything that can go wrong in a turn, once.
//!
//! A fault carries two texts: `message` is for the caller, `detail` is for the log. Its canonical form, which responses store
//! and the Responses API shows, is made in `fault/error_object.rs`. Wires decide the HTTP status; nothing here knows HTTP.

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
    /// The caller's request is wrong and will stay wrong.
    Invalid,
    /// No credential, or none that we know.
    Unauthenticated,
    /// The caller's key does not allow the request.
    Forbidden,
    /// Missing, or owned by another caller; the two are indistinguishable on purpose.
    NotFound,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// The body, or something in it, is larger than we take.
    TooLarge,
    /// The body is not JSON by its content type.
    UnsupportedMedia,
    /// The caller took too long to send its request.
    RequestTimeout,
    /// The same identity was used for something else before.
    Conflict,
    /// The same idempotency key came with another body.
    Mismatch,
    /// We have no room for this turn now.
    Overloaded,
    /// Requests hold as much memory as they may.
    OutOfMemory,
    /// The process is about to end.
    ShuttingDown,
    /// The upstream has no room for us now.
    UpstreamBusy,
    /// The upstream account's quota is exhausted.
    UpstreamQuota,
    /// The upstream does not accept our credential.
    UpstreamCredential,
    /// The upstream refused what we sent, for a reason that the caller can mend.
    UpstreamRejected,
    /// The upstream does not know the model.
    UpstreamUnknownModel,
    /// The prompt is longer than the model takes.
    ContextLength,
    /// The upstream's safety system refused.
    ContentPolicy,
    /// The upstream could not be reached, or answered with a failure of its own.
    UpstreamDown,
    /// The upstream answered with something that is not an answer, or stopped in the middle of one.
    UpstreamBroken,
    /// The upstream stayed silent for too long.
    UpstreamTimeout,
    /// An MCP server could not be reached.
    ToolServer,
    /// A tool failed that must not.
    ToolFailed,
    /// The turn ran past its own deadline.
    Deadline,
    /// The caller disconnected, or cancelled the response.
    Cancelled,
    /// The store cannot be used now.
    StoreDown,
    /// Our own mistake.
    Internal,
}

/// One fault. As small as a pointer: nearly everything may fail, hardly anything does, and every result has room for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(Box<FaultParts>);

/// What a fault consists of: its kind, what the caller reads, and what the log reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultParts {
    /// Which decision this is.
    pub kind: FaultKind,
    /// For the caller; never holds a secret or a foreign body.
    pub message: Cow<'static, str>,
    /// The JSON path or field at fault, such as `input[2].content[0].text`.
    pub param: Option<Cow<'static, str>>,
    /// A code more exact than the kind's own, such as `missing_required_parameter`.
    pub code: Option<Cow<'static, str>>,
    /// When trying again makes sense.
    pub retry_after: Option<Duration>,
    /// For the log; may quote what an upstream said.
    pub detail: Option<String>,
}

impl Fault {
    /// A fault of this kind with the caller's text.
    pub fn new(kind: FaultKind, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self(Box::new(FaultParts { kind, message, param: None, code: None, retry_after: None, detail: None }))
    }

    /// What the fault consists of.
    pub fn into_parts(self) -> FaultParts {
        *self.0
    }

    /// All that is known: what the log reads, or else what the caller reads.
    pub fn into_detail(self) -> String {
        let FaultParts { detail, message, .. } = self.into_parts();
        detail.unwrap_or_else(|| message.into_owned())
    }

    /// A caller's mistake in one field.
    pub fn invalid(param: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FaultKind::Invalid, message).param(param)
    }

    /// Our own mistake; the caller learns nothing, the log everything.
    pub fn internal(detail: impl fmt::Display) -> Self {
        Self::new(FaultKind::Internal, "The server had an error while processing your request.").detail(detail)
    }

    /// Names the field at fault.
    #[must_use]
    pub fn param(mut self, param: impl Into<Cow<'static, str>>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Gives a code more exact than the kind's own.
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

    /// Adds what only the log may read.
    #[must_use]
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        self.detail = Some(detail.to_string());
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
