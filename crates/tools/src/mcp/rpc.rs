//! JSON-RPC as MCP uses it: what we write, and what may come back.

use std::borrow::Cow;

use amalgam_core::ToolError;
use amalgam_protocol::{Json, Raw, Shape, Writer};
use bytes::Bytes;

use crate::text;

/// The protocol that we ask for.
pub(super) const PROTOCOL: &str = "2025-11-25";
/// What a server may answer instead.
const SPOKEN: [&str; 3] = [PROTOCOL, "2025-06-18", "2025-03-26"];
const METHOD_NOT_FOUND: &str = "-32601";
/// How much of a server's words goes into an error.
const MAX_WORDS: usize = 500;

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server was not reached, or not understood.
    Tool(ToolError),
    /// The server says no; its own words, bounded.
    Said(String),
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
            Failure::Said(words) => Self::Refused(words),
        }
    }
}

/// One message from a server.
#[derive(Debug)]
pub(super) enum Message<'a> {
    /// The answer to one of our requests.
    Answer { id: u64, result: Result<Raw<'a>, String> },
    /// It wants something of us.
    Request { id: Raw<'a>, method: Cow<'a, str> },
    /// It tells us something.
    Notice { method: Cow<'a, str> },
}

/// The messages in a text: one, or several in an array, as an older protocol had it. What is none is left out.
pub(super) fn messages(whole: Raw<'_>) -> impl Iterator<Item = Message<'_>> {
    let one = (whole.shape() != Shape::Array).then_some(whole);
    one.into_iter().chain(whole.elements()).filter_map(message)
}

fn message(raw: Raw<'_>) -> Option<Message<'_>> {
    let id = raw.get("id").filter(|id| !id.is_null());
    let method = raw.get_str("method");
    match (id, method) {
        (Some(id), Some(method)) => Some(Message::Request { id, method }),
        (None, Some(method)) => Some(Message::Notice { method }),
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

/// The word that the answer to a request is no longer wanted.
pub(super) fn cancelled(id: u64) -> Bytes {
    let mut params = Writer::default();
    params.object(|params| {
        params.key("requestId").number(id);
        params.key("reason").string("the caller has gone or its time is over");
    });
    notice("notifications/cancelled", Json::from_writer(params).raw())
}

/// Our answer to a server's request: we are alive, and offer nothing else.
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

/// What we say about ourselves.
pub(super) fn introduction() -> Json {
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

/// The protocol that the server chose, if we speak it.
pub(super) fn agreed(introduction: Raw<'_>) -> Result<&'static str, ToolError> {
    let chosen = introduction.get_str("protocolVersion").unwrap_or_default();
    SPOKEN
        .into_iter()
        .find(|spoken| *spoken == chosen)
        .ok_or_else(|| broken(format!("the MCP server speaks protocol `{}`", text::printable(&chosen, 40))))
}

pub(super) fn broken(detail: impl Into<String>) -> ToolError {
    ToolError::Broken { detail: detail.into() }
}
