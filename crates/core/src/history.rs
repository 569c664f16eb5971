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
    /// What normalising changed.
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
        /// As it was sent.
        item: Option<Raw<'a>>,
    },
    /// Our own text in place of an item that could not be sent; always in the user's role.
    Note(String),
    /// A summary in place of all entries before it; always in the user's role.
    Summary(String),
    /// A tool call.
    Call(Call<'a>),
    /// The tool answered.
    Output(Output<'a>),
    /// Reasoning of the model.
    Reasoning(Item<'a>),
    /// An item that only some upstreams understand: hosted tools, compaction, unknown kinds.
    Opaque(Item<'a>),
}

impl Entry<'_> {
    /// About as many bytes as it was sent with.
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

/// A text that a tool or a model wrote, to stand in a note of ours: every line is indented, so that none can pass for a label
/// of ours.
pub fn indented(text: &str) -> String {
    text.split('\n').map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

/// A tool call that has its output.
#[derive(Debug, Clone, PartialEq)]
pub struct Call<'a> {
    /// As it was sent.
    pub item: Raw<'a>,
    /// Function, custom tool, or a tool with items of its own.
    pub kind: CallKind,
    /// Unique in this history.
    pub call_id: Cow<'a, str>,
    /// Whether `call_id` is ours, because the client's was used before.
    pub renamed: bool,
    /// The tool's name as the client knows it.
    pub name: Cow<'a, str>,
    /// The namespace that the client has it in.
    pub namespace: Option<Cow<'a, str>>,
    /// Its arguments or input.
    pub payload: Payload<'a>,
    /// Whether this server ran it: then `item` is no `function_call`, and the call is written from its parts.
    pub hosted: bool,
}

/// The arguments or input of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Payload<'a> {
    /// A function's arguments: a string that should hold JSON.
    Arguments(JsonStr<'a>),
    /// A custom tool's input: free text.
    Input(JsonStr<'a>),
    /// The action or operation of a tool with items of its own.
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

/// The output of the call of the same id.
#[derive(Debug, Clone, PartialEq)]
pub struct Output<'a> {
    /// As it was sent.
    pub item: Raw<'a>,
    /// Which kind of call it answers.
    pub kind: CallKind,
    /// The call's id, renamed along with it.
    pub call_id: Cow<'a, str>,
    /// Whether `call_id` is ours.
    pub renamed: bool,
    /// What came out.
    pub content: Content<'a>,
    /// Whether a server of ours ran the call: then `item` is the call as well.
    pub hosted: bool,
}

impl<'a> Output<'a> {
    /// Where the picture is, if a screenshot is all that came out.
    pub fn screenshot(&self) -> Option<JsonStr<'a>> {
        let Content::Value(value) = self.content else { return None };
        let kind = value.get("type").and_then(Raw::as_str)?;
        value.get("image_url").and_then(Raw::as_str).filter(|_| kind.is("computer_screenshot"))
    }
}
