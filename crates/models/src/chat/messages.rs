//! Converts a history to chat messages.
//!
//! Strict servers and chat templates determine the form: one message of instructions at the front; text and calls of
//! the model in one message; all outputs directly after it, in the order of the calls, as plain strings; anything else
//! that an output or an instruction contains in a user message after them. Content that is only text is always one
//! string, with its parts joined by newlines, because many servers accept nothing else there.

use std::collections::HashMap;

use amalgam_core::{Call, CallKind, Entry, Losses, ModelRequest, Output};
use amalgam_protocol::{Content, Item, ItemKind, Literal, Part, PartKind, Raw, Role, Shape, Writer};

use crate::{
    reasoning_seal::{FOREIGN_REASONING, Owner, reasoning_summary},
    settings::{SystemRole, ToolCalls},
};

use super::{
    REASONING_FIELDS, Replay, Wire,
    parts::{ChatPart, Escaped, PartReader, own, unchanged, write_joined},
};

/// Between the parts of one content.
const LINE: &[u8] = b"\\n";
/// Between contents that were separate messages.
const PARAGRAPH: &[u8] = b"\\n\\n";

/// Writes the messages of a history; `preamble` is added to the instructions.
pub(super) fn write<'a>(
    writer: &mut Writer,
    wire: Wire,
    request: &ModelRequest<'a>,
    owner: Owner<'_>,
    preamble: Option<String>,
    losses: &mut Losses,
) {
    let history = request.history;
    let parts = PartReader { images: request.images, losses };
    let mut conversation = Conversation {
        writer,
        parts,
        wire,
        owner,
        leading: Some(Vec::new()),
        by_schema: preamble.is_some(),
        preamble,
        turn: Turn::default(),
        media: Vec::new(),
    };
    for entry in &history.instructions {
        conversation.take(entry, false);
    }
    let entries = history.in_tool_turns();
    let live = current_turn_start(&entries);
    for (index, entry) in entries.iter().enumerate() {
        conversation.take(entry, index >= live);
    }
    conversation.flush();
    conversation.lead();
}

/// The index after the user's last message, where the current tool turn begins.
fn current_turn_start(entries: &[Entry<'_>]) -> usize {
    let is_user = |entry: &Entry<'_>| {
        matches!(entry, Entry::Message { role: Role::User, .. } | Entry::Note(_) | Entry::Summary(_))
    };
    entries.iter().rposition(is_user).map_or(0, |index| index + 1)
}

struct Conversation<'a, 'w> {
    writer: &'w mut Writer,
    parts: PartReader<'a, 'w>,
    wire: Wire,
    owner: Owner<'w>,
    /// Instructions at the front, until another entry follows.
    leading: Option<Vec<Escaped<'a>>>,
    preamble: Option<String>,
    /// Whether the answer follows the tool schema. Only then are earlier calls written in its form, because a model
    /// imitates its history.
    by_schema: bool,
    turn: Turn<'a>,
    /// Parts that could not be written in their own message.
    media: Vec<ChatPart<'a>>,
}

/// One answer of the model: text, calls, and the outputs of the calls.
#[derive(Default)]
struct Turn<'a> {
    texts: Vec<Escaped<'a>>,
    reasoning_texts: Vec<Escaped<'a>>,
    /// The field in which the upstream returns its reasoning, if it is known.
    reasoning_field: Option<&'static str>,
    calls: Vec<Call<'a>>,
    outputs: Vec<Output<'a>>,
}

impl<'a> Conversation<'a, '_> {
    fn take(&mut self, entry: &Entry<'a>, live: bool) {
        match entry {
            Entry::Message { role: Role::System | Role::Developer, content, .. } => self.instruct(content),
            Entry::Message { role: Role::User, content, .. } => {
                self.flush();
                let parts = self.parts.read(content);
                self.user(parts);
            }
            Entry::Note(text) | Entry::Summary(text) => {
                self.flush();
                self.user(vec![ChatPart::Text(own(text))]);
            }
            Entry::Message { role: Role::Assistant, content, .. } => {
                if !self.turn.calls.is_empty() {
                    self.flush();
                }
                let text = self.text_of(content);
                self.turn.texts.extend(text);
            }
            Entry::Reasoning(item) => self.think(item, live),
            Entry::Call(call) => {
                if !self.turn.outputs.is_empty() {
                    self.flush();
                }
                self.turn.calls.push(call.clone());
            }
            Entry::Output(output) => self.turn.outputs.push(output.clone()),
            // The tools of this item are offered already.
            Entry::Opaque(Item { kind: ItemKind::AdditionalTools(_), .. }) => {}
            Entry::Opaque(item) => {
                let kind = item.raw.get_str("type").unwrap_or_default();
                let reason = "this upstream has no such item; it was left out";
                self.parts.losses.add(format!("input.{kind}"), reason);
            }
        }
    }

    /// The text of a content that must be a string; other parts are moved to the next user message.
    fn text_of(&mut self, content: &Content<'a>) -> Option<Escaped<'a>> {
        // Most contents are a single text.
        match content {
            Content::Text(text) => return Some(unchanged(*text)),
            Content::Parts(parts) => {
                if let [Part { kind: PartKind::Text { text, .. }, .. }] = parts.as_slice() {
                    return Some(unchanged(*text));
                }
            }
            Content::Value(_) => {}
        }
        let mut texts = Vec::new();
        for part in self.parts.read(content) {
            match part {
                ChatPart::Text(text) => texts.push(text),
                other => self.media.push(other),
            }
        }
        match texts.len() {
            0 | 1 => texts.pop(),
            _ => Some(texts.join(LINE).into()),
        }
    }

    fn instruct(&mut self, content: &Content<'a>) {
        self.flush();
        let Some(text) = self.text_of(content) else { return };
        match &mut self.leading {
            Some(leading) => leading.push(text),
            None => self.plain(role_of(self.wire.system_role), &[text]),
        }
    }

    fn think(&mut self, item: &Item<'a>, live: bool) {
        let ItemKind::Reasoning(reasoning) = &item.kind else { return };
        if !self.turn.outputs.is_empty() {
            self.flush();
        }
        let sealed = reasoning.encrypted_content.filter(|sealed| !sealed.is_empty());
        let opened = sealed.and_then(|sealed| self.owner.open(&sealed.decode()));
        let own = opened.as_deref().and_then(|plain| Raw::parse(plain).ok());
        let is_foreign = sealed.is_some() && own.is_none();
        if is_foreign {
            self.lose_reasoning(FOREIGN_REASONING);
        }
        let given = |parts: &[Part<'a>]| parts.iter().filter_map(Part::text).map(unchanged).collect::<Vec<_>>();
        let mut reasoning_texts: Vec<Escaped<'a>> = match own.and_then(|own| own.get("text")?.as_str()) {
            Some(text) => vec![text.escaped().as_bytes().to_vec().into()],
            None => given(&reasoning.content.0),
        };
        if reasoning_texts.is_empty() {
            reasoning_texts = given(&reasoning.summary.0);
        }
        let wanted = match self.wire.replay {
            Replay::Never => false,
            Replay::RunningTurn => live,
            Replay::Always => true,
        };
        if wanted && !reasoning_texts.is_empty() {
            let field = own.and_then(|own| own.get("field")?.as_str());
            let known = REASONING_FIELDS.into_iter().find(|known| field.is_some_and(|field| field.is(known)));
            self.turn.reasoning_field = known.or(self.turn.reasoning_field);
            self.turn.reasoning_texts.append(&mut reasoning_texts);
        } else if is_foreign {
            self.turn.texts.extend(reasoning_summary(reasoning).map(|summary| super::parts::own(&summary)));
        } else if !reasoning_texts.is_empty() {
            self.lose_reasoning(match live {
                true => "this upstream does not accept earlier reasoning; it was left out",
                false => "reasoning of finished turns was left out",
            });
        }
    }

    fn lose_reasoning(&mut self, reason: &'static str) {
        self.parts.losses.add("input.reasoning", reason);
    }

    /// Writes what is pending: the model's answer, its outputs, and the moved parts.
    fn flush(&mut self) {
        let mut turn = std::mem::take(&mut self.turn);
        if !turn.texts.is_empty() || !turn.calls.is_empty() {
            self.lead();
            match self.wire.tool_calls {
                ToolCalls::Native => self.native(&turn),
                ToolCalls::Constrained => self.write_as_text(&turn),
            }
        } else if !turn.reasoning_texts.is_empty() {
            self.lose_reasoning("reasoning that no message or call follows was left out");
        }
        // Cleared instead of dropped, to reuse its memory.
        turn.clear();
        self.turn = turn;
        if !self.media.is_empty() {
            let media = std::mem::take(&mut self.media);
            self.user(media);
        }
    }

    /// Writes the instructions at the front as one message: several templates refuse a second one.
    fn lead(&mut self) {
        let Some(mut leading) = self.leading.take() else { return };
        leading.extend(self.preamble.take().map(|text| own(&text)));
        if !leading.is_empty() {
            self.plain(role_of(self.wire.system_role), &leading);
        }
    }

    fn plain(&mut self, role: &str, texts: &[Escaped<'a>]) {
        self.writer.object(|writer| {
            writer.key("role").string(role);
            write_joined(writer.key("content"), texts, PARAGRAPH);
        });
    }

    fn user(&mut self, parts: Vec<ChatPart<'a>>) {
        self.lead();
        let texts: Option<Vec<Escaped<'a>>> = parts
            .iter()
            .map(|part| match part {
                ChatPart::Text(text) => Some(text.clone()),
                _ => None,
            })
            .collect();
        self.writer.object(|writer| {
            writer.key("role").string("user");
            writer.key("content");
            match texts {
                Some(texts) => write_joined(writer, &texts, LINE),
                None => writer.array(|writer| parts.iter().for_each(|part| part.write(writer))),
            }
        });
    }

    fn native(&mut self, turn: &Turn<'a>) {
        let losses = &mut *self.parts.losses;
        self.writer.object(|writer| {
            writer.key("role").string("assistant");
            match turn.texts.is_empty() {
                true => writer.key("content").null(),
                false => write_joined(writer.key("content"), &turn.texts, PARAGRAPH),
            }
            if !turn.reasoning_texts.is_empty() {
                let field = turn.reasoning_field.unwrap_or(REASONING_FIELDS[0]);
                write_joined(writer.key_text(field), &turn.reasoning_texts, PARAGRAPH);
            }
            if !turn.calls.is_empty() {
                let calls = turn.calls.iter();
                writer.key("tool_calls").array(|writer| calls.for_each(|call| write_call(writer, call, losses)));
            }
        });
        for output in turn.outputs_in_order() {
            let text = self.output_text(output);
            self.writer.object(|writer| {
                writer.key("role").string("tool");
                writer.key("tool_call_id").string(&output.call_id);
                writer.key("content").escaped(&[&text]);
            });
        }
    }

    /// Writes calls as answers under the tool schema and outputs as labelled text, for a model without tool calls.
    fn write_as_text(&mut self, turn: &Turn<'a>) {
        let mut texts = turn.texts.clone();
        if !turn.calls.is_empty() {
            let text = match self.by_schema {
                true => calls_as_answer(&turn.calls, self.parts.losses),
                false => calls_as_text(&turn.calls),
            };
            texts.push(own(&text));
        }
        self.plain("assistant", &texts);
        let mut results = Vec::new();
        let names: HashMap<_, _> =
            turn.calls.iter().map(|call| ((call.kind, &call.call_id), call.wire_name())).collect();
        for output in turn.outputs_in_order() {
            let name = names.get(&(output.kind, &output.call_id)).map_or("", String::as_str);
            let label = format!("[output of tool {name} ({})]\n", output.call_id);
            let text = self.output_text(output);
            results.push(ChatPart::Text([&own(&label), &text[..]].concat().into()));
        }
        if !results.is_empty() {
            results.append(&mut self.media);
            self.user(results);
        }
    }

    fn output_text(&mut self, output: &Output<'a>) -> Escaped<'a> {
        let waiting = self.media.len();
        let text = self.text_of(&output.content).unwrap_or_default();
        let text = match text.is_empty() && self.media.len() > waiting {
            true => own("The output follows below."),
            false => text,
        };
        // A failed patch or command is often recognisable only by this field.
        let status = match output.kind {
            CallKind::Client(_) => {
                output.item.get_str("status").filter(|status| status != "completed" || text.is_empty())
            }
            CallKind::Function | CallKind::Custom => None,
        };
        match status {
            Some(status) => [&own(&format!("status: {status}\n")), &text[..]].concat().into(),
            None => text,
        }
    }
}

impl<'a> Turn<'a> {
    fn clear(&mut self) {
        let Self { texts, reasoning_texts, reasoning_field, calls, outputs } = self;
        *reasoning_field = None;
        texts.clear();
        reasoning_texts.clear();
        calls.clear();
        outputs.clear();
    }

    /// The outputs in the order of their calls.
    fn outputs_in_order(&self) -> Vec<&Output<'a>> {
        let mut outputs: Vec<_> = self.outputs.iter().collect();
        if outputs.len() > 1 {
            let calls = self.calls.iter().enumerate().rev();
            let places: HashMap<_, _> = calls.map(|(place, call)| ((call.kind, &call.call_id), place)).collect();
            outputs.sort_by_key(|output| places.get(&(output.kind, &output.call_id)).copied().unwrap_or(usize::MAX));
        }
        outputs
    }
}

fn role_of(role: SystemRole) -> &'static str {
    match role {
        SystemRole::System => "system",
        SystemRole::Developer => "developer",
        SystemRole::User => "user",
    }
}

fn write_call(writer: &mut Writer, call: &Call<'_>, losses: &mut Losses) {
    writer.object(|writer| {
        writer.key("id").string(&call.call_id);
        writer.key("type").string("function");
        writer.key("function").object(|writer| {
            writer.key("name").string(&call.wire_name());
            writer.key("arguments").literal(&arguments_of(call, losses));
        });
    });
}

/// Arguments that are not a JSON object make some servers refuse the history, so the original text is wrapped in an
/// object.
fn arguments_of(call: &Call<'_>, losses: &mut Losses) -> Literal {
    let arguments = call.wire_arguments();
    let text = arguments.decode();
    match Raw::parse(text.as_bytes()) {
        Ok(raw) if raw.shape() == Shape::Object => arguments,
        _ => {
            losses.add("input.arguments", "arguments that are no JSON object are sent as text inside one");
            let mut writer = Writer::default();
            writer.object(|writer| writer.key("arguments").string(&text));
            Literal::from_text(&String::from_utf8_lossy(writer.bytes()))
        }
    }
}

/// The calls as text.
fn calls_as_text(calls: &[Call<'_>]) -> String {
    let texts = calls.iter().map(|call| {
        let name = call.wire_name();
        format!("[call of tool {name} ({})]\n{}", call.call_id, call.wire_arguments().decode())
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

/// The calls in the form of the tool schema.
fn calls_as_answer(calls: &[Call<'_>], losses: &mut Losses) -> String {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("calls").array(|writer| {
            for call in calls {
                let arguments = arguments_of(call, losses).decode();
                writer.object(|writer| {
                    writer.key("tool").string(&call.wire_name());
                    writer.key("arguments").valid(arguments.as_bytes());
                });
            }
        });
    });
    String::from_utf8_lossy(writer.bytes()).into_owned()
}
