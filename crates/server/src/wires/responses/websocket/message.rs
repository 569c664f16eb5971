//! Reads the client's messages, and writes the error events.

use amalgam_core::{Fault, FaultKind};
use amalgam_protocol::{Json, JsonStr, Raw, Shape, ValueIndex, Writer};
use bytes::Bytes;

use crate::wires::error;

/// The maximum length of a lane's name.
const MAX_LANE_BYTES: usize = 256;

/// `response.create`
#[derive(Debug, PartialEq)]
pub(super) struct Create {
    /// The body of `POST /v1/responses`, streamed.
    pub(super) body: Bytes,
    /// Whether a model is called.
    pub(super) generate: bool,
    /// The response that it continues.
    pub(super) previous: Option<String>,
}

/// The client's name for a request, repeated in every event about it: a JSON string.
pub(super) type Lane = Option<Json>;

/// Reads a message. Returns the lane of a refused message too, if it can be read.
pub(super) fn read(message: &Bytes, depth: usize) -> (Lane, Result<Create, Fault>) {
    let mut ends = ValueIndex::default();
    let event = match Raw::parse_large(message, depth, &mut ends) {
        Ok(event) => event,
        Err(fault) => return (None, Err(fault.into())),
    };
    let lane = event.get("stream_id").filter(|lane| !lane.is_null());
    match lane.map(|lane| lane.as_str().filter(|name| name.escaped().len() <= MAX_LANE_BYTES).ok_or(lane)) {
        Some(Err(_)) => (None, Err(wrong("stream_id", format!("Must be a string of at most {MAX_LANE_BYTES} bytes.")))),
        Some(Ok(_)) => (lane.map(Json::from), create(event)),
        None => (None, create(event)),
    }
}

fn create(event: Raw<'_>) -> Result<Create, Fault> {
    if event.shape() != Shape::Object {
        return Err(Fault::new(FaultKind::Invalid, "A message must be a JSON object.").code("invalid_type"));
    }
    match event.get_str("type").as_deref() {
        Some("response.create") => {}
        Some(other) => {
            let shown: String = other.chars().take(100).collect();
            let message = format!("Unknown event type: '{shown}'. This connection takes `response.create`.");
            return Err(Fault::invalid("type", message).code("invalid_value"));
        }
        None => {
            return Err(
                Fault::invalid("type", "Missing required parameter: 'type'.").code("missing_required_parameter")
            );
        }
    }
    if event.get("background").and_then(Raw::as_bool) == Some(true) {
        return Err(Fault::invalid("background", "A response on a socket cannot be made in the background.")
            .code("unsupported_parameter"));
    }
    let generate = match event.get("generate") {
        None => true,
        Some(value) if value.is_null() => true,
        Some(value) => value.as_bool().ok_or_else(|| wrong("generate", "Must be a boolean.".to_owned()))?,
    };
    let previous = event.get_str("previous_response_id").filter(|id| !id.is_empty()).map(|id| id.into_owned());
    Ok(Create { body: body_of(event), generate, previous })
}

/// The request without the fields of the WebSocket protocol. It is always streamed, since the connection carries only
/// events.
fn body_of(event: Raw<'_>) -> Bytes {
    const OWN: [&str; 6] = ["type", "stream", "stream_options", "background", "generate", "stream_id"];
    let mut writer = Writer::with_capacity(event.text().len());
    writer.object(|writer| {
        let sent = event.fields().filter(|(key, _)| !OWN.iter().any(|own| key.is(own)));
        sent.for_each(|(key, value)| write_field(writer, key, value));
        writer.key("stream").bool(true);
    });
    writer.into_bytes().into()
}

fn write_field(writer: &mut Writer, key: JsonStr<'_>, value: Raw<'_>) {
    writer.json_str(key);
    writer.outside(b":");
    writer.raw(value);
}

fn wrong(name: &'static str, message: String) -> Fault {
    Fault::invalid(name, message).code("invalid_type")
}

/// The event for a request that failed.
pub(super) fn refusal(fault: &Fault) -> Bytes {
    let status = error::status(fault);
    let mut writer = Writer::with_capacity(256);
    writer.object(|writer| {
        writer.key("type").string("error");
        writer.key("status").number(status.into());
        writer.key("error").object(|writer| {
            fault.error_object().write_fields(writer);
            if let Some(seconds) = error::retry_after(fault) {
                writer.key("headers").object(|writer| writer.key("retry-after").string(&seconds.to_string()));
            }
        });
    });
    writer.into_bytes().into()
}

/// Adds the lane to an event.
pub(super) fn in_lane(event: Bytes, lane: &Lane) -> Bytes {
    match (lane, event.strip_suffix(b"}")) {
        (Some(lane), Some(open)) => [open, b",\"stream_id\":", lane.bytes(), b"}"].concat().into(),
        _ => event,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read_text(text: &str) -> (Lane, Result<Create, Fault>) {
        read(&Bytes::copy_from_slice(text.as_bytes()), 16)
    }

    fn refused(text: &str) -> (Option<String>, Option<String>) {
        let fault = read_text(text).1.unwrap_err().into_parts();
        (fault.param.map(Into::into), fault.code.map(Into::into))
    }

    #[test]
    fn a_create_is_the_request_without_what_belongs_to_the_socket() {
        let text = r#" {"type":"response.create","model":"m","stream":false,"stream_options":{"x":1},"generate":null,
            "input":[{"role":"user","content":"\u00e9"}],"background":false,"previous_response_id":"resp_1","x y":[1]} "#;
        let (lane, create) = read_text(text);
        let create = create.unwrap();
        assert_eq!((lane, create.generate, create.previous.as_deref()), (None, true, Some("resp_1")));
        let body = r#"{"model":"m","input":[{"role":"user","content":"\u00e9"}],"previous_response_id":"resp_1","x y":[1],"stream":true}"#;
        assert_eq!(create.body, body.as_bytes());
    }

    #[test]
    fn what_is_no_create_is_refused_with_a_code() {
        let cases = [
            ("{", None, "invalid_json"),
            ("[1]", None, "invalid_type"),
            ("{}", Some("type"), "missing_required_parameter"),
            (r#"{"type":7}"#, Some("type"), "missing_required_parameter"),
            (r#"{"type":"response.steer"}"#, Some("type"), "invalid_value"),
            (r#"{"type":"response.create","background":true}"#, Some("background"), "unsupported_parameter"),
            (r#"{"type":"response.create","generate":"no"}"#, Some("generate"), "invalid_type"),
            (r#"{"type":"response.create","stream_id":7}"#, Some("stream_id"), "invalid_type"),
        ];
        for (text, param, code) in cases {
            assert_eq!(refused(text), (param.map(str::to_owned), Some(code.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_refusal_has_the_error_object_and_says_when_to_come_back() {
        let wait = Some(std::time::Duration::from_millis(1500));
        let event: Value =
            serde_json::from_slice(&refusal(&Fault::new(FaultKind::Overloaded, "busy").retry_after(wait))).unwrap();
        let error = json!({"message": "busy", "type": "too_many_requests", "param": null, "code": "server_is_overloaded",
            "headers": {"retry-after": "2"}});
        assert_eq!(event, json!({"type": "error", "status": 429, "error": error}));
    }

    #[test]
    fn an_event_names_its_lane() {
        let event = Bytes::from_static(br#"{"type":"a"}"#);
        let lane = read_text(r#"{"type":"response.create","stream_id":"l\u00e4ne"}"#).0;
        assert_eq!(in_lane(event.clone(), &lane), &br#"{"type":"a","stream_id":"l\u00e4ne"}"#[..]);
        assert_eq!(in_lane(event.clone(), &None), event);
    }
}
