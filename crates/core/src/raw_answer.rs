//! The upstream's last answer of a turn, byte for byte; stored with the response for APIs that return it.

use std::borrow::Cow;

use amalgam_protocol::{Json, Raw, Writer};

use crate::call_recorder::CallRecording;

/// The last answer of a turn's model, byte for byte except the server's own secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawAnswer {
    /// The upstream's name of the model; the requested one if the upstream names none.
    pub model: Option<String>,
    /// The HTTP status of an answer that is not successful or has no body.
    pub status: Option<u16>,
    /// The body; for a stream its final object. None if there was no answer.
    pub body: Option<String>,
    /// Whether the call failed, for any reason.
    pub failed: bool,
}

impl RawAnswer {
    /// The recording of a finished call.
    pub fn of(recording: &CallRecording, model: Option<String>, failed: bool) -> Self {
        let body = recording.last.as_ref().and_then(|last| final_object(last));
        let whole = || (!recording.body.is_empty()).then(|| String::from_utf8_lossy(&recording.body).into_owned());
        Self { model, status: recording.status, body: body.or_else(whole), failed }
    }

    /// The stored form: a JSON object.
    pub fn to_json(&self) -> Json {
        let mut writer = Writer::with_capacity(self.body.as_ref().map_or(0, String::len) + 128);
        writer.object(|writer| {
            if let Some(model) = &self.model {
                writer.key("model").string(model);
            }
            if let Some(status) = self.status {
                writer.key("status").number(u64::from(status));
            }
            if let Some(body) = &self.body {
                writer.key("body").string(body);
            }
            writer.key("failed").bool(self.failed);
        });
        Json::from_writer(writer)
    }

    /// Parses the stored form.
    pub fn read(stored: Raw<'_>) -> Self {
        let text = |name: &str| stored.get_str(name).map(Cow::into_owned);
        Self {
            model: text("model"),
            status: stored.get("status").and_then(Raw::as_u64).and_then(|status| u16::try_from(status).ok()),
            body: text("body"),
            failed: stored.get("failed").and_then(Raw::as_bool).unwrap_or_default(),
        }
    }
}

/// The object in the last event of a stream: the response, or the error. Streams of other APIs have none.
fn final_object(event: &[u8]) -> Option<String> {
    let event = Raw::parse(event).ok()?;
    let is_error = event.get("error").is_some() || event.get_str("type").as_deref() == Some("error");
    let object = event.get("response").or(is_error.then_some(event))?;
    Some(object.text().to_owned())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn recording(body: &'static str, last: Option<&'static str>) -> CallRecording {
        let body = Bytes::from_static(body.as_bytes());
        CallRecording {
            body,
            cut: false,
            retries: 0,
            status: None,
            last: last.map(|last| Bytes::from_static(last.as_bytes())),
        }
    }

    // right C2
    #[test]
    fn a_stream_is_its_final_object_and_everything_else_is_what_came() {
        let body = |recording: &CallRecording| RawAnswer::of(recording, None, false).body;
        let stream = "data: {...}\n\n";
        for (recording, expected) in [
            (recording("", None), None),
            (recording("<html>", None), Some("<html>")),
            (recording(stream, Some(r#"{"type":"response.completed","response":{"id" : 1}}"#)), Some(r#"{"id" : 1}"#)),
            (recording(stream, Some(r#"{"type":"error","message":"no"}"#)), Some(r#"{"type":"error","message":"no"}"#)),
            (recording(stream, Some("[DONE]")), Some(stream)),
            (recording(stream, Some(r#"{"type":"message_stop"}"#)), Some(stream)),
        ] {
            assert_eq!(body(&recording).as_deref(), expected);
        }
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let full = RawAnswer { model: Some("m".into()), status: Some(502), body: Some("a\0\"b".into()), failed: true };
        for answer in [full, RawAnswer::default()] {
            assert_eq!(RawAnswer::read(answer.to_json().raw()), answer);
        }
    }
}
