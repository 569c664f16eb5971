//! Stored completions: what lists show of them, their metadata, and their messages.

use amalgam_protocol::{Json, JsonStr, Raw, Shape, Writer};

use crate::{
    answer::write_message,
    ids::completion_id,
    output::{ShownCall, ShownOutput},
    request::CallStyle,
};

/// What a stored completion repeats of its request: the fields of an object, without its braces.
#[derive(Debug)]
pub struct CompletionSettings(Json);

impl CompletionSettings {
    /// Reads stored settings; empty ones if they cannot be read.
    pub fn read(settings: &[u8]) -> Self {
        let document = bytes::Bytes::from([b"{".as_slice(), settings, b"}"].concat());
        Self(Json::parse(&document).unwrap_or_else(|_| Json::object(|_| {})))
    }

    /// The metadata.
    pub fn metadata(&self) -> Raw<'_> {
        self.0.raw().get("metadata").unwrap_or(Raw::EMPTY_OBJECT)
    }

    /// Whether the metadata has all these pairs.
    pub fn has_metadata(&self, pairs: &[(String, String)]) -> bool {
        pairs.iter().all(|(name, value)| self.metadata().get_str(name).as_deref() == Some(value))
    }

    /// The instructions as items: those that precede the messages.
    pub fn instructions(&self) -> Option<Json> {
        let instructions = self.0.raw().get("instructions").filter(|instructions| !instructions.is_null())?;
        Some(match instructions.as_str() {
            None => instructions.into(),
            Some(text) => Json::array(|writer| {
                writer.object(|writer| {
                    writer.key("role").string("system");
                    writer.key("content").json_str(text);
                });
            }),
        })
    }

    /// The settings with other metadata.
    pub fn with_metadata(&self, metadata: Raw<'_>) -> Vec<u8> {
        let mut writer = Writer::with_capacity(self.0.bytes().len() + metadata.text().len());
        for (key, value) in self.0.raw().fields().filter(|(key, _)| !key.is("metadata")) {
            writer.key_text(&key.decode()).raw(value);
        }
        writer.key("metadata").raw(metadata);
        writer.into_bytes()
    }
}

/// The messages of a stored completion: its items in the form of this API.
#[derive(Debug, Default)]
pub struct StoredMessages {
    messages: Vec<Json>,
}

impl StoredMessages {
    /// The messages of these items.
    pub fn of<'a>(items: impl Iterator<Item = Raw<'a>>) -> Self {
        let mut messages = Self::default();
        let mut answer: Vec<Raw<'a>> = Vec::new();
        for item in items {
            let is_answer = match kind_of(item) {
                "message" | "" => item.get_str("role").as_deref() == Some("assistant"),
                "function_call_output" | "custom_tool_call_output" => false,
                // Everything else is part of the model's answer, or not shown.
                _ => true,
            };
            if is_answer {
                // A text after calls begins the next answer.
                let calls = answer.iter().any(|item| ShownCall::of(*item).is_some());
                if calls && ShownCall::of(item).is_none() {
                    messages.add_answer(&mut answer);
                }
                answer.push(item);
                continue;
            }
            messages.add_answer(&mut answer);
            messages.add(item);
        }
        messages.add_answer(&mut answer);
        messages
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The index of the message with this id.
    pub fn position(&self, response_id: &str, id: &str) -> Option<usize> {
        let index = id.strip_prefix(&completion_id(response_id))?.strip_prefix('-')?.parse().ok()?;
        (index < self.messages.len()).then_some(index)
    }

    /// Writes the message at an index with its id.
    pub fn write(&self, response_id: &str, index: usize, writer: &mut Writer) {
        let Some(message) = self.messages.get(index) else { return };
        writer.object(|writer| {
            writer.key("id").string(&message_id(response_id, index));
            message.raw().fields().for_each(|(key, value)| writer.key_text(&key.decode()).raw(value));
        });
    }

    fn add_answer(&mut self, items: &mut Vec<Raw<'_>>) {
        let output = ShownOutput::of(items.drain(..));
        let is_shown = !(output.text.is_empty() && output.refusal.is_empty() && output.calls.is_empty());
        if is_shown {
            self.messages.push(Json::object(|writer| {
                write_message(writer, &output, CallStyle::Tools);
                writer.key("name").null();
                writer.key("content_parts").null();
            }));
        }
    }

    fn add(&mut self, item: Raw<'_>) {
        let (role, content) = match kind_of(item) {
            "message" | "" => (item.get_str("role").unwrap_or_default().into_owned(), item.get("content")),
            _ => ("tool".to_owned(), item.get("output")),
        };
        let content = content.unwrap_or(Raw::NULL);
        self.messages.push(Json::object(|writer| {
            writer.key("role").string(&role);
            writer.key("content");
            match content.shape() {
                Shape::Array => {
                    let texts = content.elements().filter_map(|part| part.get("text")?.as_str());
                    let texts: Vec<&[u8]> = texts.map(|text| text.escaped().as_bytes()).collect();
                    writer.escaped(&texts);
                }
                _ => writer.raw(content),
            }
            if role == "tool" {
                writer.key("tool_call_id").raw(item.get("call_id").unwrap_or(Raw::NULL));
            }
            writer.key("name").null();
            match content.shape() {
                Shape::Array if content.elements().any(|part| kind_of(part) != "input_text") => {
                    writer
                        .key("content_parts")
                        .array(|writer| content.elements().for_each(|part| write_part(writer, part)));
                }
                _ => writer.key("content_parts").null(),
            }
        }));
    }
}

/// The id of a message: the completion's, and an index.
pub fn message_id(response_id: &str, index: usize) -> String {
    format!("{}-{index}", completion_id(response_id))
}

fn kind_of(value: Raw<'_>) -> &str {
    value.get("type").and_then(Raw::as_str).map(JsonStr::escaped).unwrap_or_default()
}

/// Writes a part of an item in the form of this API.
fn write_part(writer: &mut Writer, part: Raw<'_>) {
    let copy = |writer: &mut Writer, names: &[&'static str]| {
        for name in names {
            if let Some(value) = part.get(name) {
                writer.key(name).raw(value);
            }
        }
    };
    match kind_of(part) {
        "input_text" => writer.object(|writer| {
            writer.key("type").string("text");
            copy(writer, &["text"]);
        }),
        "input_image" => writer.object(|writer| {
            writer.key("type").string("image_url");
            writer.key("image_url").object(|writer| {
                if let Some(url) = part.get("image_url") {
                    writer.key("url").raw(url);
                }
                copy(writer, &["detail", "file_id"]);
            });
        }),
        "input_file" => writer.object(|writer| {
            writer.key("type").string("file");
            writer.key("file").object(|writer| copy(writer, &["file_id", "filename", "file_data"]));
        }),
        _ => writer.raw(part),
    }
}
