//! Why a message ended.

use std::borrow::Cow;

use amalgam_protocol::{ANTHROPIC, Raw, Writer};

/// `stop_reason` and `stop_sequence`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stop<'a> {
    reason: &'static str,
    sequence: Option<Cow<'a, str>>,
}

impl<'a> Stop<'a> {
    /// The end of a response.
    pub(crate) fn of(response: Raw<'a>) -> Self {
        let output = response.get("output").unwrap_or(Raw::NULL);
        let incomplete = response.get("incomplete_details").and_then(|details| details.get_str("reason"));
        let has = |is: fn(Raw<'_>) -> bool| output.elements().any(is);
        let reason = match incomplete.as_deref() {
            Some("max_output_tokens") => "max_tokens",
            Some("content_filter") => "refusal",
            // The server has run as many tools as it may: the caller can let it go on.
            Some("pause_turn" | "max_tool_calls") => "pause_turn",
            _ if has(is_call) => "tool_use",
            _ if has(has_refusal) => "refusal",
            _ => "end_turn",
        };
        let sequence = output.elements().filter_map(stop_sequence).last().filter(|_| reason == "end_turn");
        match sequence {
            Some(sequence) => Self { reason: "stop_sequence", sequence: Some(sequence) },
            None => Self { reason, sequence: None },
        }
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.key("stop_reason").string(self.reason);
        match &self.sequence {
            Some(sequence) => writer.key("stop_sequence").string(sequence),
            None => writer.key("stop_sequence").null(),
        }
    }
}

/// Whether an item is a call that the caller runs.
pub(crate) fn is_call(item: Raw<'_>) -> bool {
    matches!(item.get_str("type").as_deref(), Some("function_call" | "custom_tool_call"))
}

fn has_refusal(item: Raw<'_>) -> bool {
    let parts = item.get("content").unwrap_or(Raw::NULL);
    parts.elements().any(|part| part.get_str("type").as_deref() == Some("refusal"))
}

/// The stop sequence that ended a message.
fn stop_sequence(item: Raw<'_>) -> Option<Cow<'_, str>> {
    item.get(ANTHROPIC)?.get_str("stop_sequence")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_follows_from_status_and_output() {
        let call = r#"{"type":"function_call"}"#;
        let text = r#"{"type":"message","content":[{"type":"output_text"}]}"#;
        let cases = [
            ("[]", None, "end_turn"),
            (&*format!("[{text}]"), None, "end_turn"),
            (&*format!("[{text},{call}]"), None, "tool_use"),
            (&*format!("[{text},{call}]"), Some("max_output_tokens"), "max_tokens"),
            (&*format!("[{text}]"), Some("content_filter"), "refusal"),
            (&*format!("[{text}]"), Some("pause_turn"), "pause_turn"),
            (r#"[{"type":"message","content":[{"type":"refusal"}]}]"#, None, "refusal"),
        ];
        for (output, incomplete, reason) in cases {
            let details = incomplete.map_or("null".to_owned(), |reason| format!(r#"{{"reason":"{reason}"}}"#));
            let response = format!(r#"{{"output":{output},"incomplete_details":{details}}}"#);
            let stop = Stop::of(Raw::parse(response.as_bytes()).unwrap());
            assert_eq!(stop, Stop { reason, sequence: None }, "{response}");
        }
    }

    #[test]
    fn a_stop_sequence_of_the_upstream_is_named() {
        let response = r#"{"output":[{"type":"message","content":[],"anthropic":{"stop_sequence":"END"}}]}"#;
        let stop = Stop::of(Raw::parse(response.as_bytes()).unwrap());
        assert_eq!(stop, Stop { reason: "stop_sequence", sequence: Some("END".into()) });
    }
}
