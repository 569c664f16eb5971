//! Faults as callers of the OpenAI-compatible door read them: one table.

use std::time::Duration;

use amalgam_core::{Fault, FaultKind, StoreError};
use amalgam_protocol::{ErrorObject, ShapeError, ShapeFault, SyntaxError};
use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use tracing::{error, warn};

/// What a caller is told to wait where the upstream has not said.
const UNTOLD_WAIT: Duration = Duration::from_secs(2);

/// A fault on its way out.
#[derive(Debug)]
pub(crate) struct WireError(pub(crate) Fault);

impl From<Fault> for WireError {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

impl From<StoreError> for WireError {
    fn from(error: StoreError) -> Self {
        Self(error.into())
    }
}

/// Status, `type`, and the `code` that holds unless the fault has one of its own.
fn table(kind: FaultKind) -> (u16, &'static str, Option<&'static str>) {
    match kind {
        FaultKind::Invalid => (400, "invalid_request_error", Some("invalid_value")),
        FaultKind::Unauthenticated => (401, "invalid_request_error", Some("invalid_api_key")),
        FaultKind::Forbidden => (403, "invalid_request_error", Some("insufficient_permissions")),
        FaultKind::NotFound => (404, "invalid_request_error", Some("not_found")),
        FaultKind::MethodNotAllowed => (405, "invalid_request_error", Some("method_not_allowed")),
        FaultKind::RequestTimeout => (408, "invalid_request_error", Some("request_timeout")),
        FaultKind::UpstreamUnknownModel => (404, "invalid_request_error", Some("model_not_found")),
        FaultKind::Conflict => (409, "invalid_request_error", Some("conflict")),
        FaultKind::TooLarge => (413, "invalid_request_error", Some("request_too_large")),
        FaultKind::UnsupportedMedia => (415, "invalid_request_error", Some("unsupported_media_type")),
        FaultKind::Mismatch => (422, "invalid_request_error", Some("idempotency_mismatch")),
        FaultKind::UpstreamRejected => (400, "invalid_request_error", Some("invalid_request")),
        FaultKind::ContextLength => (400, "invalid_request_error", Some("context_length_exceeded")),
        FaultKind::ContentPolicy => (400, "invalid_request_error", Some("invalid_prompt")),
        FaultKind::ToolServer => (424, "external_connector_error", Some("tool_server_unavailable")),
        FaultKind::Overloaded => (429, "too_many_requests", Some("server_is_overloaded")),
        FaultKind::UpstreamBusy => (429, "too_many_requests", Some("rate_limit_exceeded")),
        FaultKind::UpstreamQuota => (429, "insufficient_quota", Some("insufficient_quota")),
        FaultKind::Cancelled => (499, "invalid_request_error", Some("request_cancelled")),
        FaultKind::UpstreamCredential => (502, "server_error", Some("upstream_credential")),
        FaultKind::UpstreamDown => (502, "server_error", Some("upstream_unavailable")),
        FaultKind::UpstreamBroken => (502, "server_error", Some("upstream_error")),
        FaultKind::ToolFailed => (502, "server_error", Some("tool_failed")),
        FaultKind::OutOfMemory => (503, "server_error", Some("server_is_overloaded")),
        FaultKind::ShuttingDown => (503, "server_error", Some("server_is_shutting_down")),
        FaultKind::StoreDown => (503, "server_error", Some("store_unavailable")),
        FaultKind::UpstreamTimeout => (504, "timeout_error", Some("upstream_timeout")),
        FaultKind::Deadline => (504, "timeout_error", Some("request_timeout")),
        FaultKind::Internal => (500, "internal_error", None),
    }
}

/// What the caller reads, in an HTTP body or in a stream.
pub(crate) fn object(fault: &Fault) -> ErrorObject {
    let (_, kind, code) = table(fault.kind);
    ErrorObject {
        message: fault.message.clone().into_owned(),
        kind: kind.to_owned(),
        param: fault.param.as_deref().map(str::to_owned),
        code: fault.code.as_deref().or(code).map(str::to_owned),
    }
}

/// What the caller reads of a fault inside a stream: there the code is all that tells faults apart, so there is always one.
pub(crate) fn object_in_stream(fault: &Fault) -> ErrorObject {
    let mut object = object(fault);
    let server = matches!(
        fault.kind,
        FaultKind::UpstreamDown | FaultKind::UpstreamBroken | FaultKind::UpstreamCredential | FaultKind::Internal
    );
    if server && fault.code.is_none() {
        object.code = Some("server_error".to_owned());
    }
    object
}

/// The status that a fault is told with; what somebody should look at goes to the log.
pub(crate) fn status(fault: &Fault) -> u16 {
    let (status, ..) = table(fault.kind);
    // An upstream that says when to come back is unavailable rather than broken.
    let status = match (fault.kind, fault.retry_after) {
        (FaultKind::UpstreamDown, Some(_)) => 503,
        _ => status,
    };
    match status {
        500 => error!(detail = fault.detail, "request failed: {fault}"),
        501.. => warn!(kind = ?fault.kind, detail = fault.detail, "request failed: {fault}"),
        _ => {}
    }
    status
}

/// Seconds after which the caller may try again, where there is something to say about it.
pub(crate) fn retry_after(fault: &Fault) -> Option<u64> {
    let wait = match (fault.kind, fault.retry_after) {
        // An upstream that refuses without saying for how long: by then it was asked more than once.
        (FaultKind::UpstreamBusy, None) => Some(UNTOLD_WAIT),
        (_, wait) => wait,
    };
    wait.map(|wait| wait.as_secs_f64().ceil() as u64)
}

/// Whether the body was not read to its end, so that the connection cannot be used again.
pub(crate) fn closes(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::RequestTimeout | FaultKind::TooLarge | FaultKind::UnsupportedMedia)
}

impl IntoResponse for WireError {
    fn into_response(self) -> Response {
        let Self(fault) = self;
        refused(status(&fault), object(&fault).envelope(), retry_after(&fault), closes(fault.kind))
    }
}

/// A refusal with everything that its headers have to say, whatever the shape of its body.
pub(crate) fn refused(status: u16, body: impl Into<Body>, retry_after: Option<u64>, closes: bool) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if closes {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if status == 401 {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// A body that is not JSON.
pub(in crate::wires) fn syntax(error: &SyntaxError) -> Fault {
    Fault::new(FaultKind::Invalid, format!("We could not parse the JSON body of your request: {error}."))
        .code("invalid_json")
}

/// A field of the wrong shape.
pub(in crate::wires) fn shape(error: ShapeError) -> Fault {
    let path = match error.path.is_empty() {
        true => "body".to_owned(),
        false => error.path,
    };
    let (message, code) = match &error.fault {
        ShapeFault::Missing => (format!("Missing required parameter: '{path}'."), "missing_required_parameter"),
        ShapeFault::Type { .. } => (format!("Invalid type for '{path}': {}.", error.fault), "invalid_type"),
        ShapeFault::Value(_) => (format!("Invalid value for '{path}': {}.", error.fault), "invalid_value"),
    };
    Fault::new(FaultKind::Invalid, message).param(path).code(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_named_in_message_and_param() {
        let fault = shape(ShapeError::missing("call_id").at(2).under("input"));
        assert_eq!(fault.message, "Missing required parameter: 'input[2].call_id'.");
        assert_eq!(fault.param.as_deref(), Some("input[2].call_id"));
    }
}
