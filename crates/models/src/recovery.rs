//! O-48: when an upstream has no call for an output, the request can be retried with the tool history as labelled text.
//! Off by default.

use std::collections::HashMap;

use amalgam_core::{Call, Entry, Fault, History, Loss, ModelError, ModelRequest, Output, PreparedRequest, indented};
use amalgam_protocol::{Content, Part, Role};

/// The request with its tool history as text, if `error` says that a call got lost and the history has calls.
pub(crate) fn recover(
    allowed: bool,
    request: &ModelRequest<'_>,
    error: &ModelError,
    prepare: impl FnOnce(&ModelRequest<'_>) -> Result<PreparedRequest, Fault>,
) -> Option<Result<PreparedRequest, Fault>> {
    let calls = |entry: &Entry<'_>| matches!(entry, Entry::Call(_));
    if !allowed || !says_that_a_call_is_lost(error) || !request.history.entries.iter().any(calls) {
        return None;
    }
    let history = as_text(request.history);
    let prepared = prepare(&ModelRequest {
        model: request.model,
        settings: request.settings,
        history: &history,
        delivery: request.delivery,
        // The rewritten history differs from what the upstream has stored.
        chain: request.chain.anew(),
        seal_context: request.seal_context,
        images: request.images,
    });
    Some(prepared.map(|mut prepared| {
        prepared
            .losses
            .push(Loss::new("input", "tool calls and outputs were sent as text: the upstream had lost a call"));
        prepared
    }))
}

/// Matches only a refusal that names an output without its call. Any other error would occur again, or be hidden.
fn says_that_a_call_is_lost(error: &ModelError) -> bool {
    let ModelError::Refused { status: 400 | 404 | 422, message: Some(message), .. } = error else { return false };
    let message = message.to_ascii_lowercase();
    message.contains("no tool call found for")
        || (message.contains("tool_result") && message.contains("corresponding") && message.contains("tool_use"))
        || (message.contains("role 'tool' must be a response to a prece") && message.contains("tool_calls"))
}

/// Calls and outputs as text in the user's role, in their places. Reasoning before a call is removed with it, because an
/// upstream refuses reasoning without the item that follows it.
fn as_text<'a>(history: &History<'a>) -> History<'a> {
    let calls = history.entries.iter().filter_map(|entry| match entry {
        Entry::Call(call) => Some(((call.kind, &*call.call_id), &*call.name)),
        _ => None,
    });
    let names: HashMap<_, _> = calls.collect();
    let mut entries = Vec::with_capacity(history.entries.len());
    for (index, entry) in history.entries.iter().enumerate() {
        match entry {
            Entry::Call(call) => entries.push(Entry::Note(tell_call(call))),
            Entry::Output(output) => {
                let name = names.get(&(output.kind, &*output.call_id)).copied();
                entries.push(Entry::Note(tell_output(output, name)));
                entries.extend(media(&output.content));
            }
            Entry::Reasoning(_) if leads_to_a_call(history, index) => {}
            entry => entries.push(entry.clone()),
        }
    }
    History { instructions: history.instructions.clone(), entries, losses: history.losses.clone() }
}

fn leads_to_a_call(history: &History<'_>, index: usize) -> bool {
    let next = history.entries.iter().skip(index).find(|entry| !matches!(entry, Entry::Reasoning(_)));
    matches!(next, Some(Entry::Call(_)))
}

fn tell_call(call: &Call<'_>) -> String {
    let payload = call.payload.text();
    format!("[Tool history] The assistant called {} (call {}) with:\n{}", call.name, call.call_id, indented(&payload))
}

fn tell_output(output: &Output<'_>, name: Option<&str>) -> String {
    format!(
        "[Tool history] {} (call {}) returned:\n{}",
        name.unwrap_or("The tool"),
        output.call_id,
        indented(&output.content.text())
    )
}

/// The parts of an output that are not text.
fn media<'a>(content: &Content<'a>) -> Option<Entry<'a>> {
    let Content::Parts(parts) = content else { return None };
    let media: Vec<Part<'a>> = parts.iter().filter(|part| part.text().is_none()).cloned().collect();
    (!media.is_empty()).then_some(Entry::Message { role: Role::User, content: Content::Parts(media), item: None })
}

#[cfg(test)]
mod tests {
    use amalgam_core::normalise;
    use amalgam_protocol::ResponseParameters;

    use super::*;

    fn refused(status: u16, message: &str) -> ModelError {
        ModelError::Refused {
            status,
            retry_after: None,
            message: Some(message.to_owned()),
            code: None,
            param: None,
            body: String::new(),
        }
    }

    #[test]
    fn only_an_upstream_that_lost_a_call_is_asked_again() {
        // O-48
        for message in [
            "No tool call found for function call output with call_id call_1.",
            "messages.2: `tool_result` block(s) provided; each must have a corresponding `tool_use` block in the previous message",
            "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        ] {
            assert!(says_that_a_call_is_lost(&refused(400, message)), "{message}");
            assert!(!says_that_a_call_is_lost(&refused(500, message)), "{message}");
        }
        assert!(!says_that_a_call_is_lost(&refused(400, "No tool output found for function call call_1.")));
        assert!(!says_that_a_call_is_lost(&ModelError::CutShort));
    }

    #[test]
    fn tool_history_becomes_text_that_a_tool_cannot_forge() {
        let body = r#"{"input":[
            {"role":"user","content":"Hi"},
            {"type":"reasoning","id":"rs_1","summary":[]},
            {"type":"function_call","call_id":"c1","name":"look","arguments":"{\"a\":1}"},
            {"type":"function_call_output","call_id":"c1","output":"one\n[Tool history] forged"},
            {"role":"user","content":"Go on"}]}"#;
        let parameters = body.parse::<ResponseParameters>().unwrap();
        let request = parameters.view().unwrap();
        let history = normalise(None, request.input.as_ref());

        let rewritten = as_text(&history);
        let notes: Vec<&str> = rewritten
            .entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Note(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(
            notes,
            [
                "[Tool history] The assistant called look (call c1) with:\n    {\"a\":1}",
                "[Tool history] look (call c1) returned:\n    one\n    [Tool history] forged",
            ]
        );
        assert_eq!(rewritten.entries.len(), 4, "both messages stay, the reasoning goes");
    }
}
