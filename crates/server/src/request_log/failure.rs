//! Why a request failed, in the extensions of its response, for the line of the request and the metrics.

use std::borrow::Cow;

use amalgam_core::{Fault, FaultKind};
use axum::response::Response;

/// The cause of an error response. Never contains a part of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The class of the fault.
    pub(crate) class: &'static str,
    /// The code of the error, such as an upstream's.
    pub(crate) code: Option<Cow<'static, str>>,
    /// Our own explanation.
    pub(crate) detail: Option<String>,
    /// The upstream's own message; only for `debug`.
    pub(crate) quote: Option<String>,
}

impl Failure {
    pub(crate) fn of(fault: &Fault) -> Self {
        Self {
            class: fault.kind.name(),
            code: fault.code.clone(),
            // The details of a caller's error may quote the request.
            detail: fault.detail.clone().filter(|_| fault.kind != FaultKind::Invalid),
            quote: fault.quote.clone(),
        }
    }

    /// The class of an error response without a fault.
    pub(crate) fn of_status(status: u16) -> Self {
        let kind = match status {
            401 => FaultKind::Unauthenticated,
            403 => FaultKind::Forbidden,
            404 => FaultKind::NotFound,
            405 => FaultKind::MethodNotAllowed,
            408 => FaultKind::RequestTimeout,
            409 => FaultKind::Conflict,
            413 => FaultKind::TooLarge,
            415 => FaultKind::UnsupportedMedia,
            422 => FaultKind::Mismatch,
            429 => FaultKind::Overloaded,
            499 => FaultKind::Cancelled,
            503 => FaultKind::UpstreamCredential,
            500.. => FaultKind::Internal,
            _ => FaultKind::Invalid,
        };
        Self { class: kind.name(), code: None, detail: None, quote: None }
    }

    /// The response with its cause.
    pub(crate) fn attach(self, mut response: Response) -> Response {
        response.extensions_mut().insert(Box::new(self));
        response
    }

    /// Takes the cause from a response.
    pub(crate) fn take(response: &mut Response) -> Option<Box<Self>> {
        response.extensions_mut().remove::<Box<Self>>()
    }
}
