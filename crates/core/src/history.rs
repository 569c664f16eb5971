//! A conversation that is safe to send to any upstream: every tool call has exactly one output, and the reverse.

mod normalise;
mod pairing;
mod records;
mod system_prompt;
mod tool_turns;
pub mod uploads;
mod upstream_memory;
pub mod window;

use std::borrow::Cow;

use amalgam_protocol::{Content, Item, JsonStr, Raw, Role};

use crate::{loss::Loss, toolset::CallKind};

pub use normalise::{normalise, normalise_rounds};
pub use system_prompt::{InstructionsOf, SystemPrompt};
pub use upstream_memory::{ConversationDigest, UpstreamMemory};

/// A conversation in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History<'a> {
    /// The instructions.
    pub instructions: Vec<Entry<'a>>,
    /// The entries in the order in which they were sent. Every call has one output, somewhere after it.
    pub entries: Vec<Entry<'a>>,
    /// The losses of normalisation.
    pub losses: Vec<Loss>,
}

/// One step of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry<'a> {
    /// A message. `item` is the item that it came from; none for a bare text.
    Message {
        /// The role.
        role: Role,
        /// The content.
        content: Content<'a>,
        /// The original item.
        item: Option<Raw<'a>>,
    },
    /// Text of this server in place of an item that could not be sent; always in the user's role.
    Note(String),
    /// A summary in place of all entries before it; always in the user's role.
    Summary(String),
    /// A tool call.
    Call(Call<'a>),
    /// A tool's output.
    Output(Output<'a>),
    /// Reasoning of the model.
    Reasoning(Item<'a>),
    /// An item that only some upstreams understand: hosted tools, compaction, unknown kinds.
    Opaque(Item<'a>),
}

impl Entry<'_> {
    /// The approximate size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an entry is never nothing")]
    pub fn len(&self) -> usize {
        match self {
            Self::Message { item: Some(item), .. } => item.text().len(),
            Self::Message { content: Content::Text(text), .. } => text.escaped().len(),
            Self::Message { content: Content::Value(value), .. } => value.text().len(),
            Self::Message { content: Content::Parts(parts), .. } => {
                parts.iter().map(|part| part.raw.text().len()).sum()
            }
            Self::Note(text) | Self::Summary(text) => text.len(),
            Self::Call(call) => call.item.text().len(),
            Self::Output(output) => output.item.text().len(),
            Self::Reasoning(item) | Self::Opaque(item) => item.raw.text().len(),
        }
    }
}

/// Indents every line of a tool's or a model's text inside a note of this server, so that no line can pass for a label
/// of the note.
pub fn indented(text: &str) -> String {
    text.split('\n').map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

/// A tool call, which has an output.
#[derive(Debug, Clone, PartialEq)]
pub struct Call<'a> {
    /// The original item.
    pub item: Raw<'a>,
    /// Function, custom tool, or a tool with its own item type.
    pub kind: CallKind,
    /// Unique in this history.
    pub call_id: Cow<'a, str>,
    /// Whether `call_id` is new, because the client's was used before.
    pub renamed: bool,
    /// The client's name for the tool.
    pub name: Cow<'a, str>,
    /// The client's namespace of the tool.
    pub namespace: Option<Cow<'a, str>>,
    /// Its arguments or input.
    pub payload: Payload<'a>,
    /// Whether this server ran it: then `item` is not a `function_call`, and the call is written from its parts.
    pub hosted: bool,
}

/// The arguments or input of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Payload<'a> {
    /// A function's arguments: a string that should hold JSON.
    Arguments(JsonStr<'a>),
    /// A custom tool's input: free text.
    Input(JsonStr<'a>),
    /// The action or operation of a tool with its own item type.
    Value(Raw<'a>),
    /// The queries of a search: an array of strings.
    Queries(Raw<'a>),
}

impl<'a> Payload<'a> {
    /// The payload as text.
    pub fn text(self) -> Cow<'a, str> {
        match self {
            Self::Arguments(text) | Self::Input(text) => text.decode(),
            Self::Value(value) => Cow::Borrowed(value.text()),
            Self::Queries(queries) => Cow::Owned(format!("{{\"queries\":{}}}", queries.text())),
        }
    }
}

/// The output of the call with the same id.
#[derive(Debug, Clone, PartialEq)]
pub struct Output<'a> {
    /// The original item.
    pub item: Raw<'a>,
    /// The kind of the call.
    pub kind: CallKind,
    /// The call's id, renamed along with it.
    pub call_id: Cow<'a, str>,
    /// Whether `call_id` is new.
    pub renamed: bool,
    /// The content.
    pub content: Content<'a>,
    /// Whether this server ran the call: then `item` is the call as well.
    pub hosted: bool,
}

impl<'a> Output<'a> {
    /// The image URL, if the content is only a screenshot.
    pub fn screenshot(&self) -> Option<JsonStr<'a>> {
        let Content::Value(value) = self.content else { return None };
        let kind = value.get("type").and_then(Raw::as_str)?;
        value.get("image_url").and_then(Raw::as_str).filter(|_| kind.is("computer_screenshot"))
    }
}
