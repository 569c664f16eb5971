//! Faults as HTTP errors in OpenAI's format, and what the errors of all wires share.

use std::time::Duration;

use amalgam_core::{Fault, FaultKind, StoreError};
use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};

use crate::request_log::Failure;

/// The `Retry-After` for a busy upstream that sent none.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(2);

/// A fault as an HTTP response.
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

/// The status of a fault.
pub(crate) fn status(fault: &Fault) -> u16 {
    let status = fault.kind.status();
    // An upstream that sends `Retry-After` is unavailable rather than broken.
    match (fault.kind, fault.retry_after) {
        (FaultKind::UpstreamDown, Some(_)) => 503,
        _ => status,
    }
}

/// The seconds of `Retry-After`, if the fault has one.
pub(crate) fn retry_after(fault: &Fault) -> Option<u64> {
    let wait = match (fault.kind, fault.retry_after) {
        // By now the upstream has refused several attempts.
        (FaultKind::UpstreamBusy, None) => Some(DEFAULT_RETRY_AFTER),
        (_, wait) => wait,
    };
    wait.map(|wait| wait.as_secs_f64().ceil() as u64)
}

/// Whether the body was not read to its end, so that the connection has to be closed.
pub(crate) fn closes(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::RequestTimeout | FaultKind::TooLarge | FaultKind::UnsupportedMedia)
}

impl IntoResponse for WireError {
    fn into_response(self) -> Response {
        let Self(fault) = self;
        let response =
            refused(status(&fault), fault.error_object().envelope(), retry_after(&fault), closes(fault.kind));
        Failure::of(&fault).attach(response)
    }
}

/// An error response with its headers, whatever the format of its body.
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
