//! Whether a request becomes a socket, RFC 6455 section 4.2.

use amalgam_core::{Fault, FaultKind};
use axum::response::{IntoResponse, Response};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::wires::WireError;

/// What the protocol adds to a client's key.
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const VERSION: &str = "13";

/// The answer that turns a connection into a socket, or the one that says why it does not become one.
///
/// Extensions are declined by leaving them out.
pub(super) fn answer(headers: &HeaderMap) -> Result<Response, Box<Response>> {
    let names = |header: HeaderName, wanted: &str| {
        let values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case(wanted))
    };
    if !names(header::UPGRADE, "websocket") || !names(header::CONNECTION, "upgrade") {
        return Err(upgrade_required("This path is a WebSocket: ask for one, or use POST."));
    }
    if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
        return Err(upgrade_required("Only version 13 of WebSocket is spoken here."));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|key| is_key(key)).ok_or_else(|| {
        refused(Fault::invalid("Sec-WebSocket-Key", "Must be 16 bytes in base64.").code("invalid_value"))
    })?;
    let mut response = switching();
    response.headers_mut().insert(header::SEC_WEBSOCKET_ACCEPT, accept(key.as_bytes()));
    Ok(response)
}

fn switching() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    response
}

fn upgrade_required(message: &'static str) -> Box<Response> {
    let mut response = refused(Fault::new(FaultKind::Invalid, message).code("upgrade_required"));
    *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
    response
}

fn refused(fault: Fault) -> Box<Response> {
    Box::new(WireError(fault).into_response())
}

fn is_key(key: &HeaderValue) -> bool {
    STANDARD.decode(key.as_bytes().trim_ascii()).is_ok_and(|key| key.len() == 16)
}

fn accept(key: &[u8]) -> HeaderValue {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.trim_ascii(), MAGIC].concat());
    HeaderValue::try_from(STANDARD.encode(hash)).expect("base64 is plain ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(changes: &[(&'static str, Option<&'static str>)]) -> HeaderMap {
        let usual = [
            ("host", "127.0.0.1:8080"),
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-extensions", "permessage-deflate; client_max_window_bits"),
        ];
        let mut headers: HeaderMap =
            usual.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect();
        for (name, value) in changes {
            match value {
                Some(value) => _ = headers.insert(*name, HeaderValue::from_static(value)),
                None => _ = headers.remove(*name),
            }
        }
        headers
    }

    fn status(changes: &[(&'static str, Option<&'static str>)]) -> u16 {
        match answer(&asking(changes)) {
            Ok(response) => response.status().as_u16(),
            Err(response) => response.status().as_u16(),
        }
    }

    #[test]
    fn the_example_of_the_specification_is_answered() {
        let response = answer(&asking(&[])).unwrap();
        assert_eq!(response.status(), 101);
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(!response.headers().contains_key("sec-websocket-extensions"), "compression is declined");
    }

    #[test]
    fn what_asks_for_no_socket_or_wrongly_gets_none() {
        assert_eq!(status(&[("upgrade", None)]), 426);
        assert_eq!(status(&[("upgrade", Some("h2c"))]), 426);
        assert_eq!(status(&[("connection", Some("close"))]), 426);
        assert_eq!(status(&[("sec-websocket-version", Some("8"))]), 426);
        assert_eq!(status(&[("sec-websocket-version", None)]), 426);
        assert_eq!(status(&[("sec-websocket-key", None)]), 400);
        assert_eq!(status(&[("sec-websocket-key", Some("c2hvcnQ="))]), 400);
        assert_eq!(status(&[("sec-websocket-key", Some("not base64 at all!"))]), 400);
    }
}
