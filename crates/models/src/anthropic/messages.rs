//! Converts a history to alternating messages of user and assistant.
//!
//! System messages at the beginning are sent separately; later ones keep their position, as marked text in the user's
//! message. Adjacent messages of one role are merged. Tool results come first in their message, as the API requires.

use std::collections::{HashMap, HashSet};

use amalgam_core::{Call, Entry, History, Losses, Output, Seal, wire_name};
use amalgam_protocol::{Content, Item, ItemKind, Json, Part, PartKind, Raw, Role, Shape, Writer};

use crate::{
    messages_fields,
    reasoning_seal::{FOREIGN_REASONING, Owner, reasoning_summary},
};

use super::{
    content::{Blocks, Place, is_blank, text_block},
    native::with_fields,
    thinking,
};

/// The API requires a message even if the conversation has none.
const OPENING: &str = "(The conversation begins.)";
const GO_ON: &str = "(Please go on.)";

/// The settings and the request that converting a history needs.
pub(super) struct Context<'a> {
    /// The upstream's name, which identifies its own reasoning.
    pub(super) upstream: &'a str,
    /// The model's name at the upstream.
    pub(super) model: &'a str,
    /// The tenant that sealed reasoning is bound to.
    pub(super) seal_context: &'a str,
    pub(super) seal: &'a dyn Seal,
    /// Images that were fetched for this call.
    pub(super) images: &'a HashMap<String, String>,
    /// Whether reasoning of earlier turns is sent back.
    pub(super) replay: bool,
    /// Whether the request came from a client of this API, so that its blocks are sent as they came.
    pub(super) native: bool,
}

/// A history in the format of the API.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Text blocks of `system`, separated by commas.
    pub(super) system: Writer,
    turns: Vec<Turn>,
    /// Names of tools that the history calls.
    pub(super) called: Vec<String>,
    pub(super) losses: Losses,
}

#[derive(Debug)]
struct Turn {
    side: Side,
    /// Tool results, which come first.
    results: Writer,
    blocks: Writer,
    calls: bool,
    /// Further fields of the message.
    fields: Vec<(String, Json)>,
    begins_with_thoughts: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    User,
    Assistant,
    /// Only for clients of this API that send system messages between others.
    System,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

impl Messages {
    /// Converts the whole history.
    pub(super) fn new(history: &History<'_>, context: &Context<'_>) -> Self {
        let mut messages = Self::default();
        let mut known = HashSet::new();
        let mut leading = true;
        for entry in history.instructions.iter().chain(&*history.in_tool_turns()) {
            leading = leading && is_leading(entry);
            messages.entry(entry, leading, context, &mut known);
        }
        match context.native {
            false => messages.settle(),
            true => drop_empty(&mut messages.turns),
        }
        messages
    }

    /// Whether the current tool loop does not begin with a thinking block. With a thinking budget the API refuses to
    /// continue it.
    pub(super) fn loop_lacks_thinking(&self) -> bool {
        let mut first = None;
        for turn in self.turns.iter().rev() {
            match turn.side {
                Side::User if turn.results.bytes().is_empty() => break,
                Side::User if first.is_some() && !turn.blocks.bytes().is_empty() => break,
                Side::User => {}
                Side::Assistant if turn.calls => first = Some(turn),
                Side::Assistant | Side::System => break,
            }
        }
        first.is_some_and(|turn| !turn.begins_with_thoughts)
    }

    /// Writes the array; `cache` marks the end of the last message.
    pub(super) fn write(&self, writer: &mut Writer, cache: Option<&str>) {
        writer.array(|writer| {
            for (index, turn) in self.turns.iter().enumerate() {
                let last = index + 1 == self.turns.len();
                writer.object(|writer| {
                    writer.key("role").string(turn.side.name());
                    for (name, value) in &turn.fields {
                        writer.key_text(name).valid(value.bytes());
                    }
                    writer.key("content").array(|writer| {
                        let written: Vec<&Writer> =
                            [&turn.results, &turn.blocks].into_iter().filter(|part| !part.bytes().is_empty()).collect();
                        for (index, part) in written.iter().enumerate() {
                            match cache.filter(|_| last && index + 1 == written.len()) {
                                Some(cache) => writer.valid(&marked(part.bytes(), cache)),
                                None => writer.valid(part.bytes()),
                            }
                        }
                    });
                });
            }
        });
    }

    fn entry(&mut self, entry: &Entry<'_>, leading: bool, context: &Context<'_>, known: &mut HashSet<String>) {
        match entry {
            Entry::Message { role, content, item } => {
                self.message(*role, content, leading, context);
                self.end_message(item.and_then(messages_fields::of).filter(|_| context.native));
            }
            Entry::Note(text) | Entry::Summary(text) => {
                text_block(self.blocks(Side::User), |writer| writer.string(text))
            }
            Entry::Call(call) => {
                let name = call.wire_name();
                self.call(call, &name, context);
                if known.insert(name.clone()) {
                    self.called.push(name);
                }
            }
            Entry::Output(output) => self.output(output, context),
            Entry::Reasoning(item) => self.reasoning(item, context),
            Entry::Opaque(Item { kind: ItemKind::AdditionalTools(_), raw }) => {
                let fields = messages_fields::of(*raw).filter(|_| context.native);
                if let Some(block) = fields.and_then(|fields| fields.get("block")) {
                    self.blocks(Side::System).raw(block);
                    self.end_message(fields.and_then(|fields| fields.get("message")));
                }
            }
            Entry::Opaque(item) if context.native && messages_fields::is_block(item) => {
                if let Some(block) = messages_fields::of(item.raw).and_then(|fields| fields.get("block")) {
                    self.blocks(Side::Assistant).raw(block);
                }
            }
            Entry::Opaque(item) => {
                let kind = item.raw.get_str("type").unwrap_or_default();
                self.losses.add(format!("input.{kind}"), "the upstream has no such item");
            }
        }
    }

    fn message(&mut self, role: Role, content: &Content<'_>, leading: bool, context: &Context<'_>) {
        let losses = &mut self.losses;
        let (images, native) = (context.images, context.native);
        match role {
            Role::System | Role::Developer if leading => {
                Blocks { writer: &mut self.system, place: Place::System, images, losses, native }.content(content);
            }
            Role::System if native => {
                let writer = blocks_of(&mut self.turns, Side::System);
                Blocks { writer, place: Place::System, images, losses, native }.content(content);
            }
            Role::System | Role::Developer => {
                // Some models have no system role after the beginning. The position matters more than the role.
                let mut inner = Writer::default();
                Blocks { writer: &mut inner, place: Place::System, images, losses, native }.content(content);
                if !inner.bytes().is_empty() {
                    let writer = self.blocks(Side::User);
                    text_block(writer, |writer| {
                        writer.string(&format!("<{0}>\n{1}\n</{0}>", role.name(), content.text()))
                    });
                }
            }
            Role::User | Role::Assistant => {
                let (side, place) = match role {
                    Role::Assistant => (Side::Assistant, Place::Assistant),
                    _ => (Side::User, Place::User),
                };
                let writer = blocks_of(&mut self.turns, side);
                Blocks { writer, place, images, losses, native }.content(content);
            }
        }
    }

    /// Gives the last message its further fields.
    fn end_message(&mut self, fields: Option<Raw<'_>>) {
        if let (Some(fields), Some(turn)) = (fields, self.turns.last_mut()) {
            turn.fields = fields.fields().map(|(key, value)| (key.decode().into_owned(), value.into())).collect();
        }
    }

    fn call(&mut self, call: &Call<'_>, name: &str, context: &Context<'_>) {
        let arguments = call.wire_arguments().decode();
        // The API requires an object; other arguments become text inside one.
        let input = Raw::parse(arguments.as_bytes()).ok().filter(|raw| raw.shape() == Shape::Object);
        if input.is_none() {
            self.losses.add("input.arguments", "arguments that are no JSON object are sent as text inside one");
        }
        let mut block = Writer::default();
        block.object(|writer| {
            writer.key("type").string("tool_use");
            writer.key("id").string(&wire_id(&call.call_id));
            writer.key("name").string(name);
            match input {
                Some(input) => writer.key("input").raw(input),
                None => writer.key("input").object(|writer| writer.key("arguments").string(&arguments)),
            }
        });
        let blocks = self.blocks(Side::Assistant);
        match messages_fields::of(call.item).filter(|_| context.native) {
            Some(fields) => blocks.valid(&with_fields(block.bytes(), fields)),
            None => blocks.valid(block.bytes()),
        }
        if let Some(turn) = self.turns.last_mut() {
            turn.calls = true;
        }
    }

    fn output(&mut self, output: &Output<'_>, context: &Context<'_>) {
        let turn = turn_of(&mut self.turns, Side::User);
        let (losses, native) = (&mut self.losses, context.native);
        let fields = messages_fields::of(output.item);
        let mut block = Writer::default();
        block.object(|writer| {
            writer.key("type").string("tool_result");
            writer.key("tool_use_id").string(&wire_id(&output.call_id));
            let place = Place::ToolResult;
            match &output.content {
                Content::Text(text) if !is_blank(*text) => writer.key("content").json_str(*text),
                Content::Value(_) if let Some(url) = output.screenshot() => writer.key("content").array(|writer| {
                    Blocks { writer, place, images: context.images, losses, native }.image_at(url);
                }),
                Content::Value(value) if !value.is_null() => writer.key("content").string(value.text()),
                Content::Text(_) | Content::Value(_) => {}
                Content::Parts(parts) if parts.is_empty() => {}
                Content::Parts(parts) => match parts.as_slice() {
                    [Part { kind: PartKind::Text { text, .. }, raw }]
                        if !(is_blank(*text) || native && messages_fields::of(*raw).is_some()) =>
                    {
                        writer.key("content").json_str(*text);
                    }
                    _ => writer.key("content").array(|writer| {
                        Blocks { writer, place, images: context.images, losses, native }.content(&output.content);
                    }),
                },
            }
            if output.item.get_str("status").as_deref() == Some("failed") {
                writer.key("is_error").bool(true);
            }
            if let (false, Some(error)) = (native, fields.and_then(|fields| fields.get("is_error"))) {
                writer.key("is_error").raw(error);
            }
        });
        match fields.filter(|_| native) {
            Some(fields) => turn.results.valid(&with_fields(block.bytes(), fields)),
            None => turn.results.valid(block.bytes()),
        }
    }

    /// Thinking blocks are sent back unchanged or not at all: a summary is not a thinking block. Reasoning of other
    /// models is reported as a loss.
    fn reasoning(&mut self, item: &Item<'_>, context: &Context<'_>) {
        let ItemKind::Reasoning(reasoning) = &item.kind else { return };
        let Some(sealed) = reasoning.encrypted_content.filter(|sealed| !sealed.is_empty()) else {
            // The client has it from an upstream of this API, not from this server.
            let block = messages_fields::of(item.raw).and_then(|fields| fields.get("block"));
            if let Some(block) = block.filter(|_| context.native) {
                let turn = turn_of(&mut self.turns, Side::Assistant);
                turn.begins_with_thoughts |= turn.blocks.bytes().is_empty();
                return turn.blocks.raw(block);
            }
            return self.losses.add("input.reasoning", "it came without encrypted_content");
        };
        let Context { upstream, model, seal_context, seal, .. } = *context;
        match thinking::open(&sealed.decode(), Owner { upstream, model, context: seal_context, seal }) {
            Some(_) if !context.replay => self.losses.add("input.reasoning", "thinking is off for this call"),
            Some(blocks) => {
                let turn = turn_of(&mut self.turns, Side::Assistant);
                turn.begins_with_thoughts |= turn.blocks.bytes().is_empty();
                turn.blocks.valid(&blocks);
            }
            None => {
                self.losses.add("input.reasoning", FOREIGN_REASONING);
                if let Some(summary) = reasoning_summary(reasoning) {
                    text_block(self.blocks(Side::Assistant), |writer| writer.string(&summary));
                }
            }
        }
    }

    fn blocks(&mut self, side: Side) -> &mut Writer {
        blocks_of(&mut self.turns, side)
    }

    /// Makes the conversation begin and end with the user, as the API requires.
    fn settle(&mut self) {
        drop_empty(&mut self.turns);
        if self.turns.first().is_none_or(|turn| turn.side == Side::Assistant) {
            let mut opening = Turn::new(Side::User);
            text_block(&mut opening.blocks, |writer| writer.string(OPENING));
            self.turns.insert(0, opening);
        }
        if self.turns.last().is_some_and(|turn| turn.side == Side::Assistant) {
            text_block(self.blocks(Side::User), |writer| writer.string(GO_ON));
        }
    }
}

impl Turn {
    fn new(side: Side) -> Self {
        Self {
            side,
            results: Writer::default(),
            blocks: Writer::default(),
            calls: false,
            fields: Vec::new(),
            begins_with_thoughts: false,
        }
    }
}

/// Whether an entry may be part of `system`, before the conversation.
fn is_leading(entry: &Entry<'_>) -> bool {
    match entry {
        Entry::Message { role, .. } => matches!(role, Role::System | Role::Developer),
        Entry::Opaque(item) => matches!(item.kind, ItemKind::AdditionalTools(_)),
        _ => false,
    }
}

fn blocks_of(turns: &mut Vec<Turn>, side: Side) -> &mut Writer {
    &mut turn_of(turns, side).blocks
}

/// The last message if it has this role; otherwise a new one.
fn turn_of(turns: &mut Vec<Turn>, side: Side) -> &mut Turn {
    drop_empty(turns);
    // A message with fields of its own is complete.
    if turns.last().is_none_or(|turn| turn.side != side || !turn.fields.is_empty()) {
        turns.push(Turn::new(side));
    }
    turns.last_mut().expect("a turn was just made sure of")
}

/// Drops empty messages, so that their neighbours are merged.
fn drop_empty(turns: &mut Vec<Turn>) {
    while turns.last().is_some_and(|turn| turn.results.bytes().is_empty() && turn.blocks.bytes().is_empty()) {
        turns.pop();
    }
}

/// A call id in the characters that the API allows: letters, digits, `_` and `-`. The same for a call and its result.
fn wire_id(call_id: &str) -> String {
    match call_id.is_empty() {
        true => "call".to_owned(),
        false => wire_name(None, call_id),
    }
}

/// `objects` with the cache mark inside the last one.
pub(super) fn marked(objects: &[u8], cache: &str) -> Vec<u8> {
    let mut bytes = objects.to_vec();
    if bytes.pop() == Some(b'}') {
        bytes.extend_from_slice(b",\"cache_control\":");
        bytes.extend_from_slice(cache.as_bytes());
        bytes.push(b'}');
    }
    bytes
}
