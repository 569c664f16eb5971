//! Checks whether a request becomes a WebSocket. tungstenite has the rules; refusals have the error format of the API.

use amalgam_core::{Fault, FaultKind};
use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use tokio_tungstenite::tungstenite::{Error, error::ProtocolError, handshake::server::create_response_with_body};

use crate::wires::WireError;

/// The 101 response, or an error response.
///
/// Extensions, and with them compression, are declined by omitting them.
pub(super) fn answer(request: &Request) -> Result<Response, Box<Response>> {
    let answer = create_response_with_body(request, Body::empty);
    answer.map_err(|error| Box::new(refusal(&error)))
}

fn refusal(error: &Error) -> Response {
    match error {
        Error::Protocol(ProtocolError::MissingSecWebSocketKey | ProtocolError::InvalidSecWebSocketKey) => {
            let fault = Fault::invalid("Sec-WebSocket-Key", "Must be 16 bytes in base64.").code("invalid_value");
            WireError(fault).into_response()
        }
        Error::Protocol(ProtocolError::MissingSecWebSocketVersionHeader) => {
            upgrade_required("Only WebSocket version 13 is supported.")
        }
        Error::Protocol(ProtocolError::WrongHttpVersion) => not_possible(),
        _ => upgrade_required("This path is a WebSocket endpoint: send an upgrade request, or use POST."),
    }
}

/// The response to an upgrade request on a connection that cannot be upgraded.
pub(super) fn not_possible() -> Response {
    let fault = Fault::new(FaultKind::Invalid, "A WebSocket is opened with HTTP/1.1 and without a body.");
    WireError(fault).into_response()
}

fn upgrade_required(message: &'static str) -> Response {
    let fault = Fault::new(FaultKind::Invalid, message).code("upgrade_required");
    let mut response = WireError(fault).into_response();
    *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(changes: &[(&'static str, Option<&'static str>)]) -> Request {
        let usual = [
            ("host", "127.0.0.1:8080"),
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-extensions", "permessage-deflate; client_max_window_bits"),
        ];
        let mut request = Request::default();
        let headers = request.headers_mut();
        for (name, value) in usual {
            headers.insert(name, HeaderValue::from_static(value));
        }
        for (name, value) in changes {
            match value {
                Some(value) => _ = headers.insert(*name, HeaderValue::from_static(value)),
                None => _ = headers.remove(*name),
            }
        }
        request
    }

    fn status(changes: &[(&'static str, Option<&'static str>)]) -> u16 {
        answer(&asking(changes)).unwrap_or_else(|refusal| *refusal).status().as_u16()
    }

    #[test]
    fn the_example_of_the_specification_is_answered() {
        let response = answer(&asking(&[])).unwrap();
        assert_eq!(response.status(), 101);
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(!response.headers().contains_key("sec-websocket-extensions"), "compression is declined");
    }

    #[test]
    fn a_request_for_no_websocket_or_a_malformed_one_is_refused() {
        assert_eq!(status(&[("upgrade", None)]), 426);
        assert_eq!(status(&[("upgrade", Some("h2c"))]), 426);
        assert_eq!(status(&[("connection", Some("close"))]), 426);
        assert_eq!(status(&[("sec-websocket-version", Some("8"))]), 426);
        assert_eq!(status(&[("sec-websocket-version", None)]), 426);
        assert_eq!(status(&[("sec-websocket-key", None)]), 400);
        assert_eq!(status(&[("sec-websocket-key", Some("c2hvcnQ="))]), 400);
        assert_eq!(status(&[("sec-websocket-key", Some("not base64 at all!"))]), 400);
    }

    #[test]
    fn an_older_version_of_http_and_other_methods_are_refused() {
        let mut old = asking(&[]);
        *old.version_mut() = http::Version::HTTP_10;
        assert_eq!(answer(&old).unwrap_err().status(), 400);
        let mut post = asking(&[]);
        *post.method_mut() = http::Method::POST;
        assert_eq!(answer(&post).unwrap_err().status(), 426);
    }
}
