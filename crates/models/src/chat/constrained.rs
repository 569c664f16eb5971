//! Tools for models without tool calls: the tool list becomes a JSON schema for the answer, and the answer becomes
//! calls.
//!
//! Under the schema the model writes `{"calls": [{"tool": …, "arguments": …}]}` or `{"answer": …}`. Any other text is
//! prose and passed on as text. Prose, and an answer that is a string, are streamed. The JSON form is never shown:
//! calls that are cut off, empty or not allowed are dropped.

use amalgam_core::{Choice, ModelEvent, Toolset};
use amalgam_protocol::{JsonStr, Literal, Raw, Shape, TextFormat, Writer};

use super::calls::Calls;

/// Shows the decoder that the request used the schema of this module.
pub(super) const NOTE: &str = "constrained";

/// Shows the decoder that no call is allowed, although the model may imitate calls of the history.
pub(super) const NOTE_WITHOUT_CALLS: &str = "constrained without calls";

/// The description of the tools in the instructions.
pub(super) fn preamble(toolset: &Toolset<'_>, format: &TextFormat<'_>) -> String {
    let mut text = String::from("Reply with one JSON object and nothing else.\n");
    let several = match toolset.parallel {
        Some(false) => "exactly one call",
        _ => "one or more calls",
    };
    text.push_str(&format!(
        "To call tools, reply {{\"calls\": [{{\"tool\": NAME, \"arguments\": {{...}}}}]}} with {several}; \
         their output comes in the next message.\n"
    ));
    text.push_str(match (may_answer(toolset), format) {
        (false, _) => "You must call a tool now.\n",
        (true, TextFormat::JsonSchema(_) | TextFormat::JsonObject) => {
            "To answer without calling tools, reply {\"answer\": {...}} with the JSON value that was asked for.\n"
        }
        (true, _) => "To answer without calling tools, reply {\"answer\": \"your text\"}.\n",
    });
    if let TextFormat::JsonSchema(format) = format
        && let Some(description) = format.description
    {
        text.push_str(&format!("About that value: {}\n", description.decode()));
    }
    text.push_str("\nTools:\n");
    for offer in &toolset.offers {
        let mut description = Writer::default();
        if let Some(words) = &offer.description {
            words.write(&mut description);
        }
        let description = Raw::parse(description.bytes()).ok().and_then(Raw::as_str).map(JsonStr::decode);
        let arguments = offer.parameters.map_or("{}", Raw::text);
        text.push_str(&format!(
            "\n{}: {}\nJSON Schema of its arguments: {arguments}\n",
            offer.name,
            description.unwrap_or_default()
        ));
    }
    text
}

/// The JSON schema of an answer.
pub(super) fn schema(toolset: &Toolset<'_>, format: &TextFormat<'_>) -> Vec<u8> {
    let mut definitions = Writer::default();
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("anyOf").array(|writer| {
            one_field(writer, "calls", |writer| {
                writer.object(|writer| {
                    writer.key("type").string("array");
                    writer.key("minItems").number(1);
                    if toolset.parallel == Some(false) {
                        writer.key("maxItems").number(1);
                    }
                    writer.key("items").object(|writer| {
                        writer.key("anyOf").array(|writer| {
                            for (index, offer) in toolset.offers.iter().enumerate() {
                                let place = format!("tool_{index}");
                                call_schema(writer, &offer.name, |writer| {
                                    embed(writer, &mut definitions, offer.parameters, &place);
                                });
                            }
                        });
                    });
                });
            });
            if may_answer(toolset) {
                one_field(writer, "answer", |writer| match format {
                    TextFormat::JsonSchema(format) => embed(writer, &mut definitions, Some(format.schema), "answer"),
                    TextFormat::JsonObject => embed(writer, &mut definitions, None, "answer"),
                    TextFormat::Text | TextFormat::Other(_) => writer.valid(br#"{"type":"string"}"#),
                });
            }
        });
        if !definitions.bytes().is_empty() {
            writer.key("$defs").valid(&[b"{", definitions.bytes(), b"}"].concat());
        }
    });
    writer.into_bytes()
}

fn may_answer(toolset: &Toolset<'_>) -> bool {
    matches!(toolset.choice, Choice::Auto | Choice::None)
}

/// An object with exactly this field.
fn one_field(writer: &mut Writer, name: &str, schema: impl FnOnce(&mut Writer)) {
    writer.object(|writer| {
        writer.key("type").string("object");
        writer.key("properties").object(|writer| schema(writer.key_text(name)));
        writer.key("required").array(|writer| writer.string(name));
        writer.key("additionalProperties").bool(false);
    });
}

fn call_schema(writer: &mut Writer, name: &str, arguments: impl FnOnce(&mut Writer)) {
    writer.object(|writer| {
        writer.key("type").string("object");
        writer.key("properties").object(|writer| {
            writer.key("tool").object(|writer| {
                writer.key("type").string("string");
                writer.key("enum").array(|writer| writer.string(name));
            });
            arguments(writer.key("arguments"));
        });
        writer.key("required").array(|writer| {
            writer.string("tool");
            writer.string("arguments");
        });
        writer.key("additionalProperties").bool(false);
    });
}

/// Writes a client's schema inside the tool schema. A schema with references to its own parts moves to the definitions,
/// and its references are adjusted.
fn embed(writer: &mut Writer, definitions: &mut Writer, schema: Option<Raw<'_>>, place: &str) {
    match schema {
        None => writer.valid(br#"{"type":"object"}"#),
        Some(schema) if !schema.text().contains("$ref") => writer.raw(schema),
        Some(schema) => {
            let root = format!("#/$defs/{place}");
            relocate(definitions.key_text(place), schema, &root);
            writer.object(|writer| writer.key("$ref").string(&root));
        }
    }
}

/// Copies a schema and redirects its references from `#` to `root`. The request's depth bounds the recursion.
fn relocate(writer: &mut Writer, schema: Raw<'_>, root: &str) {
    match schema.shape() {
        Shape::Object => writer.object(|writer| {
            for (key, value) in schema.fields() {
                let name = key.decode();
                let target = value.as_str().filter(|_| name == "$ref").map(JsonStr::decode);
                match target.as_deref().and_then(|target| target.strip_prefix('#')) {
                    Some(rest) => writer.key_text(&name).string(&format!("{root}{rest}")),
                    None => relocate(writer.key_text(&name), value, root),
                }
            }
        }),
        Shape::Array => writer.array(|writer| schema.elements().for_each(|element| relocate(writer, element, root))),
        _ => writer.raw(schema),
    }
}

/// Reads the text of an answer by the tool schema.
#[derive(Debug)]
pub(super) struct AnswerReader {
    /// Text that was received and not passed on.
    text: String,
    state: State,
    allows_calls: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The form is not known yet.
    #[default]
    Unknown,
    /// Inside the string of `{"answer": "…`.
    Answering,
    /// After the string; the rest closes the object.
    Answered,
    /// The model writes prose, which is passed on unchanged.
    Prose,
}

impl AnswerReader {
    /// The reader that a request's note selects, if any.
    pub(super) fn of_note(answer_context: Option<&str>) -> Option<Self> {
        let allows_calls = match answer_context? {
            NOTE => true,
            NOTE_WITHOUT_CALLS => false,
            _ => return None,
        };
        Some(Self { text: String::new(), state: State::Unknown, allows_calls })
    }

    /// Handles a piece of text. Passes on what is certain to be the answer's text.
    pub(super) fn push(&mut self, piece: &str, events: &mut Vec<ModelEvent>) {
        match self.state {
            State::Answered => return,
            State::Prose => return emit_text(piece, events),
            State::Unknown | State::Answering => self.text.push_str(piece),
        }
        if self.state == State::Unknown {
            if is_prose(&self.text) {
                self.state = State::Prose;
                return emit_text(&std::mem::take(&mut self.text), events);
            }
            let Some(start) = answer_start(&self.text) else { return };
            self.text.drain(..start);
            self.state = State::Answering;
        }
        let (length, closed) = string_run(self.text.as_bytes());
        let run: String = self.text.drain(..length).collect();
        if !run.is_empty() {
            events.push(ModelEvent::Text { delta: tidy(&run), logprobs: None });
        }
        if closed {
            self.state = State::Answered;
        }
    }

    /// Handles the end of the answer: emits the calls or the text that were not passed on. Returns whether the answer
    /// was cut off.
    pub(super) fn conclude(&mut self, calls: &mut Calls, events: &mut Vec<ModelEvent>) -> bool {
        let text = std::mem::take(&mut self.text);
        // An answer that was cut off may end in half an escape, which cannot be shown.
        if self.state != State::Unknown {
            return false;
        }
        let object = unfenced(&text);
        let Ok(raw) = Raw::parse(object.as_bytes()) else {
            match beginning(&text) {
                None => emit_text(&text, events),
                Some(Beginning::Calls) => return true,
                Some(Beginning::Answer(rest)) => {
                    emit_text(rest, events);
                    return true;
                }
            }
            return false;
        };
        let wanted: Vec<Raw<'_>> = match raw.get("calls") {
            Some(list) if list.shape() == Shape::Array => list.elements().collect(),
            _ if raw.get("tool").is_some() => vec![raw],
            _ => Vec::new(),
        };
        if !wanted.is_empty() && wanted.iter().all(|call| call.get("tool").is_some_and(|name| name.as_str().is_some()))
        {
            for call in wanted.into_iter().filter(|_| self.allows_calls) {
                let name = call.get_str("tool").unwrap_or_default();
                calls.add_whole(&name, call.get("arguments").unwrap_or(Raw::NULL), events);
            }
            return false;
        }
        match raw.get("answer") {
            Some(answer) => match answer.as_str() {
                Some(answer) => emit_text(&answer.decode(), events),
                None => emit_text(answer.text(), events),
            },
            None if raw.get("calls").is_some() || raw.get("tool").is_some() => {}
            None => emit_text(&text, events),
        }
        false
    }
}

/// The beginning of an incomplete object under the tool schema.
enum Beginning<'t> {
    /// Calls, or too short to know.
    Calls,
    /// An answer that is not a string, from its first character.
    Answer(&'t str),
}

/// Recognises the beginning of an object under the tool schema.
fn beginning(text: &str) -> Option<Beginning<'_>> {
    let unfenced = text.trim_start();
    let unfenced = unfenced.strip_prefix("```").map_or(unfenced, |rest| rest.strip_prefix("json").unwrap_or(rest));
    let inner = unfenced.trim_start().strip_prefix('{')?.trim_start();
    if let Some(rest) = inner.strip_prefix("\"answer\"").and_then(|rest| rest.trim_start().strip_prefix(':')) {
        return Some(Beginning::Answer(rest.trim_start()));
    }
    let ours =
        ["\"calls\"", "\"tool\"", "\"answer\""].iter().any(|key| inner.starts_with(key) || key.starts_with(inner));
    ours.then_some(Beginning::Calls)
}

/// Whether a text can no longer become an object under the tool schema, with or without a code fence.
fn is_prose(text: &str) -> bool {
    text.trim_start().chars().next().is_some_and(|first| !matches!(first, '{' | '`'))
}

/// Repairs the text of a JSON string. Models whose output is not constrained write bare control characters and invalid
/// escapes.
fn tidy(run: &str) -> Literal {
    let quoted = format!("\"{run}\"");
    if let Some(text) = Raw::parse(quoted.as_bytes()).ok().and_then(Raw::as_str) {
        return text.into();
    }
    let mut escaped = Vec::with_capacity(run.len() + 16);
    let mut rest = run.chars();
    while let Some(character) = rest.next() {
        match character {
            '\\' => match rest.next() {
                Some(next @ ('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't')) => escaped.extend([b'\\', next as u8]),
                Some('u') if let Some(digits) = hex_digits(rest.as_str()) => {
                    escaped.extend_from_slice(b"\\u");
                    escaped.extend_from_slice(digits.as_bytes());
                    rest = rest.as_str().split_at(digits.len()).1.chars();
                }
                Some(next) => escaped.extend_from_slice(Literal::from_text(&format!("\\{next}")).escaped()),
                None => {}
            },
            other => escaped.extend_from_slice(Literal::from_text(other.encode_utf8(&mut [0; 4])).escaped()),
        }
    }
    Literal::from_escaped(&escaped)
}

/// The four digits of an escape at the beginning of a text.
fn hex_digits(text: &str) -> Option<&str> {
    text.get(..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

fn emit_text(text: &str, events: &mut Vec<ModelEvent>) {
    if !text.is_empty() {
        events.push(ModelEvent::Text { delta: Literal::from_text(text), logprobs: None });
    }
}

/// Where the string begins in `{"answer": "…`; `None` while that is not certain.
fn answer_start(text: &str) -> Option<usize> {
    let mut rest = text.trim_start();
    for token in ["{", "\"answer\"", ":"] {
        rest = rest.strip_prefix(token)?.trim_start();
    }
    rest.strip_prefix('"').map(|rest| text.len() - rest.len())
}

/// The length of the complete escapes and characters of an escaped string, and whether its closing quote follows.
fn string_run(bytes: &[u8]) -> (usize, bool) {
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'"' => return (at, true),
            b'\\' => match escape_length(bytes.get(at..).unwrap_or_default()) {
                Some(length) => length,
                None => return (at, false),
            },
            _ => 1,
        };
    }
    (at, false)
}

/// The length of the escape at the beginning, if it is complete. Both halves of a surrogate pair belong together.
fn escape_length(bytes: &[u8]) -> Option<usize> {
    match bytes.get(1)? {
        b'u' => {
            let high = matches!(bytes.get(2..4)?, [b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B']);
            bytes.get(..6)?;
            match high {
                true => bytes.get(..12).map(|_| 12),
                false => Some(6),
            }
        }
        _ => Some(2),
    }
}

/// The text inside a code fence, which some models add.
fn unfenced(text: &str) -> &str {
    let trimmed = text.trim();
    let inner = trimmed.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(trimmed, |inner| inner.strip_prefix("json").unwrap_or(inner).trim())
}

#[cfg(test)]
#[path = "constrained_tests.rs"]
mod tests;
