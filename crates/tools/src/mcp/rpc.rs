//! JSON-RPC as MCP uses it: messages to and from servers.

use std::borrow::Cow;

use amalgam_core::ToolError;
use amalgam_protocol::{Json, Raw, Shape, Writer};
use bytes::Bytes;

use crate::text;

/// The protocol version that we request.
pub(super) const PROTOCOL: &str = "2025-11-25";
/// The versions that we accept.
const ACCEPTED_PROTOCOLS: [&str; 3] = [PROTOCOL, "2025-06-18", "2025-03-26"];
const METHOD_NOT_FOUND: &str = "-32601";
/// How much of a server's message an error quotes.
const MAX_WORDS: usize = 500;

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server was not reached, or its answer was not understood.
    Tool(ToolError),
    /// The server returned an error; its message, bounded.
    Refused(String),
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self::Tool(error)
    }
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Tool(error) => error,
            Failure::Refused(words) => Self::Refused(words),
        }
    }
}

/// One message of a server.
#[derive(Debug)]
pub(super) enum Message<'a> {
    /// The answer to one of our requests.
    Answer { id: u64, result: Result<Raw<'a>, String> },
    /// A request of the server.
    Request { id: Raw<'a>, method: Cow<'a, str> },
    /// A notification of the server.
    Notification { method: Cow<'a, str> },
}

/// The messages in a text: one, or several in an array, as an older version allows. Anything else is ignored.
pub(super) fn messages(whole: Raw<'_>) -> impl Iterator<Item = Message<'_>> {
    let one = (whole.shape() != Shape::Array).then_some(whole);
    one.into_iter().chain(whole.elements()).filter_map(message)
}

fn message(raw: Raw<'_>) -> Option<Message<'_>> {
    let id = raw.get("id").filter(|id| !id.is_null());
    let method = raw.get_str("method");
    match (id, method) {
        (Some(id), Some(method)) => Some(Message::Request { id, method }),
        (None, Some(method)) => Some(Message::Notification { method }),
        (Some(id), None) => {
            let result = match raw.get("error") {
                Some(error) => Err(words(error)),
                None => Ok(raw.get("result")?),
            };
            Some(Message::Answer { id: id.as_u64()?, result })
        }
        (None, None) => None,
    }
}

fn words(error: Raw<'_>) -> String {
    let message = error.get_str("message").unwrap_or_default();
    let code = error.get("code").map_or("", Raw::text);
    format!(
        "the MCP server answered with error {}: {}",
        text::printable(code, 20),
        text::printable(&message, MAX_WORDS)
    )
}

/// A request; `params` is an object.
pub(super) fn request(id: u64, method: &'static str, params: Raw<'_>) -> Bytes {
    written(|writer| {
        writer.key("id").number(id);
        writer.key("method").string(method);
        writer.key("params").raw(params);
    })
}

/// A notification; `params` is an object.
pub(super) fn notice(method: &'static str, params: Raw<'_>) -> Bytes {
    written(|writer| {
        writer.key("method").string(method);
        writer.key("params").raw(params);
    })
}

/// The notification that a request is cancelled.
pub(super) fn cancelled(id: u64) -> Bytes {
    let mut params = Writer::default();
    params.object(|params| {
        params.key("requestId").number(id);
        params.key("reason").string("the caller has gone or its time is over");
    });
    notice("notifications/cancelled", Json::from_writer(params).raw())
}

/// Our answer to a server's request: a `ping` succeeds, anything else is not supported.
pub(super) fn reply(id: Raw<'_>, method: &str) -> Bytes {
    written(|writer| {
        writer.key("id").raw(id);
        match method {
            "ping" => writer.key("result").raw(Raw::EMPTY_OBJECT),
            _ => writer.key("error").object(|error| {
                error.key("code").valid(METHOD_NOT_FOUND.as_bytes());
                error.key("message").string("this client does not offer that");
            }),
        }
    })
}

fn written(fill: impl FnOnce(&mut Writer)) -> Bytes {
    let mut writer = Writer::with_capacity(256);
    writer.object(|writer| {
        writer.key("jsonrpc").string("2.0");
        fill(writer);
    });
    writer.into_bytes().into()
}

/// The parameters of `initialize`.
pub(super) fn initialize_params() -> Json {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("protocolVersion").string(PROTOCOL);
        writer.key("capabilities").raw(Raw::EMPTY_OBJECT);
        writer.key("clientInfo").object(|writer| {
            writer.key("name").string("amalgam");
            writer.key("version").string(env!("CARGO_PKG_VERSION"));
        });
    });
    Json::from_writer(writer)
}

/// The version that the server chose, if we support it.
pub(super) fn chosen_protocol(introduction: Raw<'_>) -> Result<&'static str, ToolError> {
    let chosen = introduction.get_str("protocolVersion").unwrap_or_default();
    ACCEPTED_PROTOCOLS
        .into_iter()
        .find(|spoken| *spoken == chosen)
        .ok_or_else(|| broken(format!("the MCP server speaks protocol `{}`", text::printable(&chosen, 40))))
}

pub(super) fn broken(detail: impl Into<String>) -> ToolError {
    ToolError::Broken { detail: detail.into() }
}
