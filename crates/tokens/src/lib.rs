//! Counts the tokens of prompts, for everything that happens before an upstream can count itself.
//!
//! One tokenizer serves all upstreams: theirs differ by some hundredths, and what is decided by a count leaves room for
//! that. A count of a long text takes milliseconds, so no count runs on a thread that serves connections.

mod calibration;
mod encoding;
mod pieces;
mod prompt_segments;
mod table;

use amalgam_core::TokenCount;
use amalgam_protocol::{Raw, Shape};

use encoding::Encoder;

pub use calibration::TokenCalibration;
pub use prompt_segments::{PromptSegment, SegmentKind, prompt_segments};

/// More text than this is not tokenized; the rest is taken to be like it.
pub const COUNTED_BYTES: usize = 512 * 1024;

/// Fields that steer an upstream, or that it does not show to its model.
const UNSAID: [&str; 14] = [
    "role",
    "type",
    "id",
    "status",
    "call_id",
    "tool_call_id",
    "tool_use_id",
    "phase",
    "annotations",
    "logprobs",
    "cache_control",
    "signature",
    "encrypted_content",
    "data",
];

/// The tokens of one text.
pub fn count_text(text: &str) -> u64 {
    let mut prefix = Text::default();
    prefix.add(text);
    prefix.count()
}

/// The tokens of a request body of any wire: messages, tools, the answer's schema, and an overhead for every message.
pub fn count_prompt(body: &[u8]) -> TokenCount {
    let Ok(raw) = Raw::parse_within(body, usize::MAX) else { return TokenCount::default() };
    let mut prompt = Prompt::default();
    let mut messages = 0;
    for (key, value) in raw.fields() {
        match key.escaped() {
            "messages" | "input" => {
                messages += value.elements().count() as u64;
                prompt.read(value);
            }
            "instructions" | "system" => {
                messages += 1;
                prompt.read(value);
            }
            // Upstreams put these before their models in forms of their own, all of about this length.
            "tools" | "response_format" | "text" => prompt.text.add(value.text()),
            _ => {}
        }
    }
    TokenCount {
        text: prompt.text.count() + messages * TokenCount::PER_MESSAGE,
        media: prompt.media * TokenCount::PER_MEDIA,
    }
}

/// The content of a prompt.
#[derive(Default)]
struct Prompt {
    text: Text,
    media: u64,
}

impl Prompt {
    fn read(&mut self, raw: Raw<'_>) {
        match raw.shape() {
            Shape::String => self.text.add(&raw.as_str().unwrap_or_default().decode()),
            Shape::Array => raw.elements().for_each(|element| self.read(element)),
            Shape::Object if is_media(raw) => self.media += 1,
            Shape::Object => {
                let is_text_source = raw.get("type").and_then(Raw::as_str).is_some_and(|kind| kind.is("text"));
                for (key, value) in raw.fields() {
                    // What a tool was asked is a value of its own words, whatever they are.
                    if key.is("input") {
                        self.text.add(value.text());
                        continue;
                    }
                    // A text document has its text in the field that holds the bytes of other documents.
                    if !UNSAID.contains(&key.escaped()) || (is_text_source && key.is("data")) {
                        self.read(value);
                    }
                }
            }
            Shape::Number | Shape::Bool | Shape::Null => {}
        }
    }
}

/// An image or a file, in the words of any wire; a document whose source is text is text.
fn is_media(object: Raw<'_>) -> bool {
    let Some(kind) = object.get("type").and_then(Raw::as_str) else { return false };
    match kind.escaped() {
        "image"
        | "image_url"
        | "input_image"
        | "input_file"
        | "file"
        | "input_audio"
        | "input_video"
        | "computer_screenshot" => true,
        "document" => {
            let source = object.get("source").and_then(|source| source.get("type")).and_then(Raw::as_str);
            !source.is_some_and(|source| matches!(source.escaped(), "text" | "content"))
        }
        _ => false,
    }
}

/// The beginning of a text, and the length of all of it.
struct Text {
    beginning: String,
    length: usize,
    /// The largest length of the beginning.
    limit: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self::up_to(COUNTED_BYTES)
    }
}

impl Text {
    fn up_to(limit: usize) -> Self {
        Self { beginning: String::new(), length: 0, limit }
    }

    fn add(&mut self, text: &str) {
        self.length += text.len();
        let room = text.floor_char_boundary(self.limit.saturating_sub(self.beginning.len()));
        self.beginning.push_str(text.get(..room).unwrap_or_default());
    }

    fn count(&self) -> u64 {
        count_beginning(&self.beginning, self.beginning.len(), self.length)
    }
}

/// The tokens of a text of `length` bytes that begins with `beginning`, which takes up `beginning_length` of these bytes.
pub fn count_beginning(beginning: &str, beginning_length: usize, length: usize) -> u64 {
    if beginning.is_empty() {
        return 0;
    }
    let mut encoder = Encoder::default();
    let tokens: u64 = pieces::of(beginning).map(|piece| encoder.count(piece.as_bytes())).sum();
    match length > beginning_length {
        true => (tokens as f64 * length as f64 / beginning_length as f64).ceil() as u64,
        false => tokens,
    }
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
