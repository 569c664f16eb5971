//! The parts of a request body in the order in which a model reads them: tools, instructions, messages.
//!
//! Upstreams cache a prompt by its beginning, in this order and not in the order of the body's fields. So two requests are
//! compared segment by segment.

use std::collections::HashMap;

use amalgam_core::TokenCount;
use amalgam_protocol::{Raw, Shape};

use crate::{COUNTED_BYTES, Prompt, Text};

/// What a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// The definition of one tool.
    Tool,
    /// The format of the answer.
    AnswerFormat,
    /// A system prompt, or a message with that role.
    Instructions,
    /// A message of the user.
    User,
    /// An answer of the model, a call, or reasoning.
    Assistant,
    /// The result of a call.
    ToolResult,
}

/// One part of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptSegment<'a> {
    /// What it is.
    pub kind: SegmentKind,
    /// The name of the tool, of the definition or of the call; empty for others.
    pub tool: String,
    /// The exact JSON of the body.
    pub json: &'a str,
    /// Its tokens, estimated.
    pub tokens: u64,
}

/// The segments of a request body of any wire; none if it is not a JSON object. Of a long body, the beginning of each segment is
/// counted.
pub fn prompt_segments(body: &[u8]) -> Vec<PromptSegment<'_>> {
    let Ok(raw) = Raw::parse_within(body, usize::MAX) else { return Vec::new() };
    let mut found = Segments { share: share(body.len()), ..Segments::default() };
    let field = |name: &str| raw.get(name).filter(|value| !value.is_null());
    field("tools").into_iter().flat_map(Raw::elements).for_each(|tool| found.tool(tool));
    for format in ["response_format", "text"].into_iter().filter_map(field) {
        found.add(SegmentKind::AnswerFormat, String::new(), format);
    }
    for prompt in ["system", "instructions"].into_iter().filter_map(field) {
        found.add(SegmentKind::Instructions, String::new(), prompt);
    }
    for messages in ["messages", "input"].into_iter().filter_map(field) {
        match messages.shape() {
            Shape::Array => messages.elements().for_each(|message| found.message(message)),
            _ => found.add(SegmentKind::User, String::new(), messages),
        }
    }
    found.segments
}

/// The part of each segment that is counted.
fn share(length: usize) -> f64 {
    if length <= COUNTED_BYTES { 1.0 } else { COUNTED_BYTES as f64 / length as f64 }
}

#[derive(Default)]
struct Segments<'a> {
    segments: Vec<PromptSegment<'a>>,
    /// The names of calls by their ids, for their results.
    calls: HashMap<String, String>,
    share: f64,
}

impl<'a> Segments<'a> {
    fn add(&mut self, kind: SegmentKind, tool: String, raw: Raw<'a>) {
        let tokens = self.count(kind, raw);
        self.segments.push(PromptSegment { kind, tool, json: raw.text(), tokens });
    }

    fn tool(&mut self, tool: Raw<'a>) {
        let named = tool.get("function").unwrap_or(tool);
        let name = named.get_str("name").or_else(|| tool.get_str("type")).unwrap_or_default().into_owned();
        self.add(SegmentKind::Tool, name, tool);
    }

    fn message(&mut self, message: Raw<'a>) {
        self.remember_calls(message);
        let role = message.get_str("role").unwrap_or_default();
        let kind = message.get_str("type").unwrap_or_default();
        let result = match (&*role, &*kind) {
            ("tool", _) => message.get_str("tool_call_id"),
            ("", kind) if kind.ends_with("_output") => message.get_str("call_id"),
            ("user", _) => blocks(message).find_map(|block| block.get_str("tool_use_id")),
            _ => None,
        };
        if let Some(id) = result {
            let name = self.calls.get(&*id).cloned().unwrap_or_default();
            return self.add(SegmentKind::ToolResult, name, message);
        }
        let kind = match &*role {
            "system" | "developer" => SegmentKind::Instructions,
            "user" => SegmentKind::User,
            _ => SegmentKind::Assistant,
        };
        self.add(kind, String::new(), message);
    }

    fn remember_calls(&mut self, message: Raw<'a>) {
        let mut remember = |id: Option<std::borrow::Cow<'_, str>>, named: Raw<'_>| {
            if let (Some(id), Some(name)) = (id, named.get_str("name")) {
                self.calls.insert(id.into_owned(), name.into_owned());
            }
        };
        remember(message.get_str("call_id"), message);
        for call in message.get("tool_calls").into_iter().flat_map(Raw::elements) {
            remember(call.get_str("id"), call.get("function").unwrap_or(call));
        }
        for block in blocks(message).filter(|block| block.get_str("type").as_deref() == Some("tool_use")) {
            remember(block.get_str("id"), block);
        }
    }

    fn count(&self, kind: SegmentKind, raw: Raw<'_>) -> u64 {
        let limit = (raw.text().len() as f64 * self.share) as usize;
        let mut prompt = Prompt { text: Text::up_to(limit.max(1)), media: 0 };
        match kind {
            SegmentKind::Tool | SegmentKind::AnswerFormat => prompt.text.add(raw.text()),
            _ => prompt.read(raw),
        }
        let message = match kind {
            SegmentKind::Tool | SegmentKind::AnswerFormat => 0,
            _ => TokenCount::PER_MESSAGE,
        };
        prompt.text.count() + message + prompt.media * TokenCount::PER_MEDIA
    }
}

/// The parts of a message's content.
fn blocks(message: Raw<'_>) -> impl Iterator<Item = Raw<'_>> {
    let content = message.get("content").filter(|content| content.shape() == Shape::Array);
    content.into_iter().flat_map(Raw::elements).filter(|block| block.shape() == Shape::Object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count_prompt;

    fn shown(body: &str) -> Vec<(SegmentKind, String)> {
        prompt_segments(body.as_bytes()).into_iter().map(|segment| (segment.kind, segment.tool)).collect()
    }

    #[test]
    fn tools_come_first_and_results_have_the_name_of_their_call_in_every_wire() {
        use SegmentKind::{Assistant, Instructions, Tool, ToolResult, User};
        let chat = r#"{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"},
            {"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"find","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"c1","content":"found"}],
            "tools":[{"type":"function","function":{"name":"find"}}]}"#;
        let anthropic = r#"{"system":"Be kind.","messages":[{"role":"user","content":"Hi"},
            {"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"find","input":{}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"found"}]}],
            "tools":[{"name":"find"}]}"#;
        let responses = r#"{"instructions":"Be kind.","input":[{"role":"user","content":"Hi"},
            {"type":"function_call","call_id":"c1","name":"find","arguments":"{}"},
            {"type":"function_call_output","call_id":"c1","output":"found"}],
            "tools":[{"type":"function","name":"find"}]}"#;
        let expected = [(Tool, "find"), (Instructions, ""), (User, ""), (Assistant, ""), (ToolResult, "find")];
        let expected = expected.map(|(kind, tool)| (kind, tool.to_owned()));
        for body in [chat, anthropic, responses] {
            assert_eq!(shown(body), expected, "{body}");
        }
        assert_eq!(shown(r#"{"input":"Hi","tools":null}"#), [(User, String::new())]);
        assert_eq!(shown("not JSON"), []);
    }

    #[test]
    fn the_segments_have_together_about_the_tokens_of_the_prompt() {
        let long = "Leadership is a skill that can be learned. ".repeat(30_000);
        for text in ["Hi there, how are you?", &long] {
            let body = serde_json::json!({
                "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}],
                "tools": [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}],
            });
            let body = body.to_string();
            let whole = count_prompt(body.as_bytes()).text as f64;
            let sum = prompt_segments(body.as_bytes()).iter().map(|segment| segment.tokens).sum::<u64>() as f64;
            assert!((sum - whole).abs() <= whole * 0.02 + 8.0, "{sum} of {whole}");
        }
    }
}
