//! The output of a response as this API shows it: one text, one reasoning text, and the calls of the client's tools.
//!
//! Items of tools that the server ran are not shown.

use amalgam_protocol::{JsonStr, Raw, Writer};

use crate::request::CallStyle;

/// Between two messages, and between two parts of reasoning.
pub(crate) const PARAGRAPH: &str = "\\n\\n";

/// The output of a response.
#[derive(Debug, Default)]
pub(crate) struct ShownOutput<'a> {
    /// Pieces of escaped text.
    pub(crate) text: Vec<&'a str>,
    pub(crate) refusal: Vec<&'a str>,
    pub(crate) reasoning: Vec<&'a str>,
    pub(crate) calls: Vec<ShownCall<'a>>,
    pub(crate) annotations: Vec<Raw<'a>>,
    pub(crate) logprobs: Vec<Raw<'a>>,
}

/// A call of a tool of the client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ShownCall<'a> {
    pub(crate) kind: CallKindName,
    pub(crate) call_id: JsonStr<'a>,
    pub(crate) name: JsonStr<'a>,
    pub(crate) payload: JsonStr<'a>,
}

/// The two kinds of calls that this API has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKindName {
    Function,
    Custom,
}

impl CallKindName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Custom => "custom",
        }
    }

    /// The field with the arguments.
    pub(crate) fn payload(self) -> &'static str {
        match self {
            Self::Function => "arguments",
            Self::Custom => "input",
        }
    }
}

impl<'a> ShownCall<'a> {
    /// Reads a call; none for any other item.
    pub(crate) fn of(item: Raw<'a>) -> Option<Self> {
        let kind = match item.get("type")?.as_str()?.escaped() {
            "function_call" => CallKindName::Function,
            "custom_tool_call" => CallKindName::Custom,
            _ => return None,
        };
        let text = |name: &str| item.get(name).and_then(Raw::as_str).unwrap_or_default();
        Some(Self { kind, call_id: text("call_id"), name: text("name"), payload: text(kind.payload()) })
    }

    /// Writes the call as an element of `tool_calls`; a chunk of a stream has its index.
    pub(crate) fn write(&self, writer: &mut Writer, index: Option<u64>) {
        writer.object(|writer| {
            if let Some(index) = index {
                writer.key("index").number(index);
            }
            writer.key("id").json_str(self.call_id);
            writer.key("type").string(self.kind.name());
            writer.key(self.kind.name()).object(|writer| {
                writer.key("name").json_str(self.name);
                writer.key(self.kind.payload()).json_str(self.payload);
            });
        });
    }
}

impl<'a> ShownOutput<'a> {
    /// Collects the items of an output.
    pub(crate) fn of(items: impl Iterator<Item = Raw<'a>>) -> Self {
        let mut output = Self::default();
        items.for_each(|item| output.add(item));
        output
    }

    fn add(&mut self, item: Raw<'a>) {
        match item.get("type").and_then(Raw::as_str).map(JsonStr::escaped) {
            Some("message") => {
                let mut first = true;
                // A message that the caller sent may be a text instead of parts.
                push(&mut self.text, escaped(item, "content"), true);
                for part in item.get("content").map(Raw::elements).into_iter().flatten() {
                    self.add_part(part, &mut first);
                }
            }
            Some("reasoning") => {
                for list in ["summary", "content"] {
                    for part in item.get(list).map(Raw::elements).into_iter().flatten() {
                        push(&mut self.reasoning, escaped(part, "text"), true);
                    }
                }
            }
            _ => self.calls.extend(ShownCall::of(item)),
        }
    }

    fn add_part(&mut self, part: Raw<'a>, first: &mut bool) {
        let text = escaped(part, "text");
        if !text.is_empty() {
            push(&mut self.text, text, std::mem::take(first));
        }
        push(&mut self.refusal, escaped(part, "refusal"), false);
        let elements = |name: &str| part.get(name).map(Raw::elements).into_iter().flatten();
        self.annotations.extend(elements("annotations").filter(|annotation| is_shown(*annotation)));
        self.logprobs.extend(elements("logprobs"));
    }

    /// Why the answer ended; `incomplete` is the reason of an incomplete response.
    pub(crate) fn finish_reason(&self, incomplete: Option<&str>, calls: CallStyle) -> &'static str {
        finish_reason(!self.calls.is_empty(), incomplete, calls)
    }
}

/// Why an answer ended.
pub(crate) fn finish_reason(has_calls: bool, incomplete: Option<&str>, calls: CallStyle) -> &'static str {
    match (incomplete, has_calls, calls) {
        (Some("content_filter"), ..) => "content_filter",
        (Some(_), ..) => "length",
        (None, true, CallStyle::Tools) => "tool_calls",
        (None, true, CallStyle::Function) => "function_call",
        (None, false, _) => "stop",
    }
}

/// The reason of an incomplete response.
pub(crate) fn incomplete_reason(response: Raw<'_>) -> Option<String> {
    response.get("incomplete_details")?.get_str("reason").map(std::borrow::Cow::into_owned)
}

/// Only citations of pages have a form in this API.
fn is_shown(annotation: Raw<'_>) -> bool {
    annotation.get("type").and_then(Raw::as_str).is_some_and(|kind| kind.is("url_citation"))
}

/// Writes a citation: its fields are one level deeper than in the Responses API.
pub(crate) fn write_annotation(writer: &mut Writer, annotation: Raw<'_>) {
    writer.object(|writer| {
        writer.key("type").string("url_citation");
        writer.key("url_citation").object(|writer| {
            for (key, value) in annotation.fields().filter(|(key, _)| !key.is("type")) {
                writer.key_text(&key.decode()).raw(value);
            }
        });
    });
}

fn escaped<'a>(part: Raw<'a>, name: &str) -> &'a str {
    part.get(name).and_then(Raw::as_str).map(JsonStr::escaped).unwrap_or_default()
}

/// Adds a piece, after an empty line if it begins something new.
fn push<'a>(pieces: &mut Vec<&'a str>, piece: &'a str, begins: bool) {
    if piece.is_empty() {
        return;
    }
    if begins && !pieces.is_empty() {
        pieces.push(PARAGRAPH);
    }
    pieces.push(piece);
}

/// Writes pieces of escaped text as one string; null for none.
pub(crate) fn write_pieces(writer: &mut Writer, pieces: &[&str]) {
    match pieces.is_empty() {
        true => writer.null(),
        false => {
            let pieces: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
            writer.escaped(&pieces);
        }
    }
}
