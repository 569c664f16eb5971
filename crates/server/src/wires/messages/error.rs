//! Faults in the format of this wire.

use std::sync::Arc;

use amalgam_core::{Fault, FaultKind, Scope};
use amalgam_messages::{error_body, error_type_of_status};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue};

use crate::{
    request_log::Failure,
    wires::error::{closes, refused, retry_after},
};

/// The header in which clients of this wire look for the id of their request.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// An error of this wire.
#[derive(Debug)]
pub(in crate::wires) struct MessagesError {
    fault: Fault,
    request_id: Option<Arc<str>>,
}

impl MessagesError {
    /// The fault of an authenticated request.
    pub(in crate::wires) fn of(fault: Fault, scope: &Scope) -> Self {
        Self { fault, request_id: scope.request_id().cloned() }
    }

    /// The fault of a request that has no scope.
    pub(in crate::wires) fn before_routing(fault: Fault, request_id: Option<&str>) -> Self {
        Self { fault, request_id: request_id.map(Into::into) }
    }
}

/// The status of a fault.
fn status(fault: &Fault) -> u16 {
    match fault.kind {
        FaultKind::Invalid
        | FaultKind::UpstreamRejected
        | FaultKind::ContextLength
        | FaultKind::ContentPolicy
        | FaultKind::Mismatch => 400,
        FaultKind::UnsupportedMedia => 415,
        FaultKind::Unauthenticated => 401,
        FaultKind::Forbidden => 403,
        FaultKind::NotFound | FaultKind::UpstreamUnknownModel => 404,
        FaultKind::MethodNotAllowed => 405,
        FaultKind::RequestTimeout => 408,
        FaultKind::Conflict => 409,
        FaultKind::TooLarge => 413,
        FaultKind::RateLimited | FaultKind::QuotaExceeded | FaultKind::UpstreamBusy | FaultKind::UpstreamQuota => 429,
        FaultKind::Cancelled => 499,
        FaultKind::Internal => 500,
        FaultKind::UpstreamCredential | FaultKind::UpstreamBroken | FaultKind::ToolServer | FaultKind::ToolFailed => {
            502
        }
        // An upstream that sends `Retry-After` is unavailable rather than broken.
        FaultKind::UpstreamDown => {
            if fault.retry_after.is_some() {
                529
            } else {
                502
            }
        }
        FaultKind::UpstreamTimeout | FaultKind::Deadline => 504,
        FaultKind::Overloaded | FaultKind::OutOfMemory | FaultKind::ShuttingDown | FaultKind::StoreDown => 529,
    }
}

/// The message of a fault. Clients recognise a prompt that they have to shorten by these words.
fn message(fault: &Fault) -> String {
    match fault.kind {
        FaultKind::ContextLength => format!("prompt is too long: {}", fault.message),
        _ => fault.message.clone().into_owned(),
    }
}

impl IntoResponse for MessagesError {
    fn into_response(self) -> Response {
        let Self { fault, request_id } = self;
        let status = status(&fault);
        let kind = error_type_of_status(status);
        let body = error_body(kind, &message(&fault), fault.code.as_deref(), request_id.as_deref());
        let response = refused(status, body, retry_after(&fault), closes(fault.kind));
        Failure::of(&fault).attach(with_request_id(response, request_id.as_deref()))
    }
}

/// The response with the id of its request.
pub(super) fn with_request_id(mut response: Response, request_id: Option<&str>) -> Response {
    if let Some(id) = request_id.and_then(|id| HeaderValue::from_str(id).ok()) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_is_too_long_is_reported_in_the_words_that_clients_look_for() {
        let fault = Fault::new(FaultKind::ContextLength, "9000 tokens do not fit into 8000.");
        assert_eq!(message(&fault), "prompt is too long: 9000 tokens do not fit into 8000.");
        assert_eq!((status(&fault), error_type_of_status(status(&fault))), (400, "invalid_request_error"));
    }

    #[test]
    fn a_server_without_room_is_overloaded() {
        let fault = Fault::new(FaultKind::Overloaded, "later");
        assert_eq!((status(&fault), error_type_of_status(status(&fault))), (529, "overloaded_error"));
    }
}
