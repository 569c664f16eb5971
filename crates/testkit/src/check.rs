//! The rules for every answer of a Responses server, as functions from an answer to its violations.
//!
//! An empty list means that there are none. The rules come from the Open Responses specification and from the needs of
//! published clients; they check plain JSON and do not use the server's types.

mod item;
mod response;
mod stream;

#[cfg(test)]
mod check_tests;

pub use response::response;
pub use stream::stream;

use serde_json::Value;

use crate::sse;

/// The violations of the body of a streamed answer: frames, the closing `[DONE]`, and the rules of [`stream`].
pub fn body(bytes: &[u8]) -> Vec<String> {
    let mut frames = match sse::try_events(bytes) {
        Ok(frames) => frames,
        Err(problem) => return vec![problem],
    };
    let mut violations = Vec::new();
    match frames.pop() {
        Some(last) if last.is_done() && last.event.is_none() => {}
        Some(last) => {
            violations.push("the last frame is not `data: [DONE]`".to_owned());
            frames.push(last);
        }
        None => violations.push("the stream is empty".to_owned()),
    }
    let mut events = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        match serde_json::from_str::<Value>(&frame.data) {
            Ok(event) => {
                if frame.event.as_deref() != event["type"].as_str() {
                    violations.push(format!("frame {index}: the event name {:?} is not the type", frame.event));
                }
                events.push(event);
            }
            Err(error) => violations.push(format!("frame {index}: the data is not JSON: {error}")),
        }
    }
    violations.extend(stream(&events));
    violations
}

/// The violations of the body of an error answer: the envelope with all four fields of its object.
pub fn error(envelope: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    let error = &envelope["error"];
    for (key, nullable) in [("message", false), ("type", false), ("param", true), ("code", true)] {
        match error.get(key) {
            None => violations.push(format!("error.{key} is missing")),
            Some(Value::Null) if nullable => {}
            Some(Value::String(text)) if !text.is_empty() => {}
            Some(other) => violations.push(format!("error.{key} is {other}")),
        }
    }
    violations
}

/// The text at a key, or an empty one: rules about presence are separate from rules about content.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
