//! Makes any list of items safe to send: strict upstreams refuse a call without its output, or an output without its call.
//!
//! A tool turn is a run of calls and then their outputs. It closes at a message or a summary, at thoughts or a call after
//! an output, or at the end; outputs match calls of their own turn only. What does not match is never dropped: it becomes text that
//! says what it was.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use amalgam_protocol::{Content, HostedItem, Input, Item, ItemKind, McpCall, Part, Raw, Role, Shape};

use super::{Call, Entry, History, Output, Payload, indented};
use crate::{
    file_search::{self, FILE_SEARCH},
    ids::Stem,
    loss::Losses,
    tool::is_house_label,
    toolset::{CallKind, wire_name},
};

/// At most so many names are listed in a note.
const NAMES_IN_NOTE: usize = 5;

/// Brings instructions and input into one history in which every call has exactly one output.
pub fn normalise<'a>(instructions: Option<&Input<'a>>, input: Option<&Input<'a>>) -> History<'a> {
    let said = |input: Option<&Input<'a>>, role, losses: &mut Losses| match input {
        Some(Input::Text(text)) if !text.is_empty() => {
            vec![Entry::Message { role, content: Content::Text(*text), item: None }]
        }
        Some(Input::Items(items)) => {
            let mut builder = Builder { entries: Vec::with_capacity(items.len()), ..Builder::default() };
            items.iter().for_each(|item| builder.take(item));
            builder.close();
            losses.extend(builder.losses.into_list());
            builder.entries
        }
        _ => Vec::new(),
    };
    let mut losses = Losses::default();
    let instructions = said(instructions, Role::System, &mut losses);
    let entries = said(input, Role::User, &mut losses);
    History { instructions, entries, losses: losses.into_list() }
}

/// The entries so far, and what was collected of the tool turn that is open.
#[derive(Default)]
struct Builder<'a> {
    entries: Vec<Entry<'a>>,
    losses: Losses,
    /// Calls of the open turn, and what stood between them.
    asked: Vec<Entry<'a>>,
    /// Outputs of the open turn.
    outputs: Vec<Output<'a>>,
    /// Turns that were opened.
    turns: usize,
    /// Call ids that closed turns have used.
    used: HashSet<Cow<'a, str>>,
}

impl<'a> Builder<'a> {
    fn take(&mut self, item: &Item<'a>) {
        if let Some(call) = call_of(item) {
            self.close_if_answered();
            return self.asked.push(Entry::Call(call));
        }
        if let ItemKind::Hosted(hosted) = &item.kind
            && is_ours(*hosted, item)
        {
            return self.take_hosted(item);
        }
        if let Some(output) = output_of(item) {
            return self.outputs.push(output);
        }
        match &item.kind {
            ItemKind::Message(message) | ItemKind::AgentMessage(message) => {
                self.close();
                self.entries.push(Entry::Message {
                    role: message.role,
                    content: message.content.clone(),
                    item: Some(item.raw),
                });
            }
            // It is told as something said, so that it cannot stand between calls and their outputs.
            ItemKind::Compaction(_) => {
                self.close();
                self.entries.push(Entry::Opaque(item.clone()));
            }
            kind => {
                let entry = match kind {
                    ItemKind::Reasoning(_) => Entry::Reasoning(item.clone()),
                    _ => Entry::Opaque(item.clone()),
                };
                if !self.outputs.is_empty() {
                    self.close();
                }
                match self.asked.is_empty() {
                    true => self.entries.push(entry),
                    false => self.asked.push(entry),
                }
            }
        }
    }

    /// A call that was run here brings its output along. What was listed and asked on the way is not for the model.
    fn take_hosted(&mut self, item: &Item<'a>) {
        match item.kind {
            ItemKind::Hosted(HostedItem::McpCall) => self.take_run(item),
            ItemKind::Hosted(HostedItem::FileSearchCall) => self.take_search(item),
            _ => {}
        }
    }

    /// A search is the call of a function to every upstream, with what was found as its output.
    fn take_search(&mut self, item: &Item<'a>) {
        let queries = item.raw.get("queries").filter(|queries| queries.shape() == Shape::Array);
        let (Some(id), Some(queries)) = (item.id(), queries) else { return };
        self.close_if_answered();
        self.asked.push(Entry::Call(Call {
            item: item.raw,
            kind: CallKind::Function,
            call_id: id.clone(),
            renamed: false,
            name: Cow::Borrowed(FILE_SEARCH),
            namespace: None,
            payload: Payload::Queries(queries),
            hosted: true,
        }));
        let told = file_search::told(item.raw);
        self.outputs.push(Output {
            item: item.raw,
            kind: CallKind::Function,
            call_id: id,
            renamed: false,
            content: told.as_str().map_or(Content::Value(told), Content::Text),
            hosted: true,
        });
    }

    fn take_run(&mut self, item: &Item<'a>) {
        let Ok(run) = McpCall::of(item.raw) else { return };
        self.close_if_answered();
        let label = (!is_house_label(&run.server_label)).then_some(&*run.server_label);
        self.asked.push(Entry::Call(Call {
            item: item.raw,
            kind: CallKind::Function,
            call_id: run.id.clone(),
            renamed: false,
            name: Cow::Owned(wire_name(label, &run.name)),
            namespace: None,
            payload: Payload::Arguments(run.arguments),
            hosted: true,
        }));
        let error = run.error.filter(|error| !error.is_null());
        let content = match (run.output, error.map(|error| error.as_str().ok_or(error))) {
            (Some(output), _) => Content::Text(output),
            (None, Some(Ok(text))) => Content::Text(text),
            (None, Some(Err(value))) => Content::Value(value),
            (None, None) => return,
        };
        self.outputs.push(Output {
            item: item.raw,
            kind: CallKind::Function,
            call_id: run.id,
            renamed: false,
            content,
            hosted: true,
        });
    }

    /// A call that follows on outputs of the client is another turn. An output that came with its call says nothing about
    /// when the next call was made.
    fn close_if_answered(&mut self) {
        if self.outputs.iter().any(|output| !output.hosted) {
            self.close();
        }
    }

    /// Closes the open turn, if there is one.
    fn close(&mut self) {
        if self.asked.is_empty() && self.outputs.is_empty() {
            return;
        }
        self.turns += 1;
        let mut asked = std::mem::take(&mut self.asked);
        let mut outputs = std::mem::take(&mut self.outputs);
        self.settle(&asked, &outputs);
        // The next turn finds their room.
        asked.clear();
        outputs.clear();
        (self.asked, self.outputs) = (asked, outputs);
    }

    /// Settles a turn: pairs first, contiguous, then in words whatever is no pair.
    fn settle(&mut self, asked: &[Entry<'a>], outputs: &[Output<'a>]) {
        // Nearly every turn is one call and its output.
        if let ([Entry::Call(call)], [output]) = (asked, outputs)
            && (call.kind, &call.call_id) == (output.kind, &output.call_id)
        {
            let answer = self.pair(call, output, 1);
            return self.entries.push(answer);
        }
        let mut groups = group(asked, outputs);
        let mut answers = Vec::new();
        let mut afterwards = Vec::new();
        let mut unanswered: Vec<Cow<'a, str>> = Vec::new();
        let mut settled = 0;
        for entry in asked {
            let Entry::Call(call) = entry else {
                self.entries.push(entry.clone());
                continue;
            };
            // A twin of a call that is settled already has no group of its own.
            let Some(Group { calls, results }) = groups.remove(&(call.kind, &*call.call_id)) else { continue };
            settled += 1;
            let one_call = calls.iter().skip(1).all(|twin| same_call(call, twin));
            match results.as_slice() {
                [] => unanswered.extend(calls.iter().map(|twin| twin.name.clone())),
                [first, rest @ ..] if one_call && rest.iter().all(|other| same_output(first, other)) => {
                    answers.push(self.pair(call, first, settled));
                }
                results => {
                    self.losses.add("input", "tool records that contradict each other were sent as text");
                    tell_conflict(&calls, results, &mut afterwards);
                }
            }
        }
        self.entries.append(&mut answers);
        // What is left in a group has no call.
        for output in outputs.iter().filter(|output| groups.contains_key(&(output.kind, &*output.call_id))) {
            self.losses.add("input", "a tool output without its call was sent as text");
            tell_orphan(output, &mut afterwards);
        }
        if !unanswered.is_empty() {
            self.losses.add("input", "tool calls without an output were replaced by a note");
            afterwards.push(Entry::Note(unanswered_note(&unanswered)));
        }
        self.entries.append(&mut afterwards);
    }

    /// Adds a call, under an id that no turn before has used; its output follows when all calls of the turn are there.
    fn pair(&mut self, call: &Call<'a>, output: &Output<'a>, group: usize) -> Entry<'a> {
        let (mut call, mut output) = (call.clone(), output.clone());
        if let Some(fresh) = self.fresh_id(call.call_id.clone(), group) {
            call.call_id = Cow::Owned(fresh.clone());
            output.call_id = Cow::Owned(fresh);
            (call.renamed, output.renamed) = (true, true);
        }
        self.entries.push(Entry::Call(call));
        Entry::Output(output)
    }

    /// A new id for a call whose id a turn before has used, the same one every time.
    fn fresh_id(&mut self, call_id: Cow<'a, str>, group: usize) -> Option<String> {
        if self.used.insert(call_id) {
            return None;
        }
        let mut fresh = format!("am_history_{}_{group}", self.turns);
        while !self.used.insert(Cow::Owned(fresh.clone())) {
            fresh.push('_');
        }
        Some(fresh)
    }
}

/// Calls of one id, and the outputs that answer them.
#[derive(Default)]
struct Group<'t, 'a> {
    calls: Vec<&'t Call<'a>>,
    results: Vec<&'t Output<'a>>,
}

/// Function, custom and other outputs are id spaces of their own.
fn group<'t, 'a>(asked: &'t [Entry<'a>], outputs: &'t [Output<'a>]) -> HashMap<(CallKind, &'t str), Group<'t, 'a>> {
    let mut groups: HashMap<_, Group<'t, 'a>> = HashMap::new();
    for entry in asked {
        if let Entry::Call(call) = entry {
            groups.entry((call.kind, &*call.call_id)).or_default().calls.push(call);
        }
    }
    for output in outputs {
        groups.entry((output.kind, &*output.call_id)).or_default().results.push(output);
    }
    groups
}

/// Whether a step of a server's tool was made here, rather than by an upstream that runs tools of its own.
pub(super) fn is_ours(kind: HostedItem, item: &Item<'_>) -> bool {
    let id = match kind {
        HostedItem::McpCall
        | HostedItem::McpListTools
        | HostedItem::McpApprovalRequest
        | HostedItem::FileSearchCall => item.raw.get_str("id"),
        HostedItem::McpApprovalResponse => item.raw.get_str("approval_request_id"),
        _ => None,
    };
    id.is_some_and(|id| Stem::of(&id).is_some())
}

pub(super) fn call_of<'a>(item: &Item<'a>) -> Option<Call<'a>> {
    let call = |kind, call_id: &Cow<'a, str>, name: Cow<'a, str>, namespace: Option<Cow<'a, str>>, payload| Call {
        item: item.raw,
        kind,
        call_id: call_id.clone(),
        renamed: false,
        name,
        namespace,
        payload,
        hosted: false,
    };
    match &item.kind {
        ItemKind::FunctionCall(function) => Some(call(
            CallKind::Function,
            &function.call_id,
            function.name.clone(),
            function.namespace.clone(),
            Payload::Arguments(function.arguments),
        )),
        ItemKind::CustomToolCall(custom) => Some(call(
            CallKind::Custom,
            &custom.call_id,
            custom.name.clone(),
            custom.namespace.clone(),
            Payload::Input(custom.input),
        )),
        ItemKind::ClientCall(tool, client) => Some(call(
            CallKind::Client(*tool),
            &client.call_id,
            Cow::Borrowed(tool.name()),
            None,
            Payload::Value(client.payload),
        )),
        _ => None,
    }
}

fn output_of<'a>(item: &Item<'a>) -> Option<Output<'a>> {
    let (kind, call_id, content) = match &item.kind {
        ItemKind::FunctionCallOutput(output) => (CallKind::Function, &output.call_id, output.output.clone()),
        ItemKind::CustomToolCallOutput(output) => (CallKind::Custom, &output.call_id, output.output.clone()),
        ItemKind::ClientCallOutput(tool, output) => {
            let content = match output.output.as_str() {
                Some(text) => Content::Text(text),
                None => Content::Value(output.output),
            };
            (CallKind::Client(*tool), &output.call_id, content)
        }
        _ => return None,
    };
    Some(Output { item: item.raw, kind, call_id: call_id.clone(), renamed: false, content, hosted: false })
}

fn same_call(one: &Call<'_>, other: &Call<'_>) -> bool {
    let payload = match (one.payload, other.payload) {
        (Payload::Arguments(one), Payload::Arguments(other)) => {
            let (one, other) = (one.decode(), other.decode());
            match (Raw::parse(one.as_bytes()), Raw::parse(other.as_bytes())) {
                (Ok(one), Ok(other)) => same_value(one, other),
                _ => one == other,
            }
        }
        (Payload::Input(one), Payload::Input(other)) => one.decode() == other.decode(),
        (Payload::Value(one), Payload::Value(other)) | (Payload::Queries(one), Payload::Queries(other)) => {
            same_value(one, other)
        }
        _ => false,
    };
    payload && one.name == other.name && one.namespace == other.namespace
}

fn same_output(one: &Output<'_>, other: &Output<'_>) -> bool {
    match (&one.content, &other.content) {
        (Content::Text(one), Content::Text(other)) => one.decode() == other.decode(),
        (Content::Value(one), Content::Value(other)) => same_value(*one, *other),
        (Content::Parts(one), Content::Parts(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same_value(one.raw, other.raw))
        }
        _ => false,
    }
}

/// Equal as JSON: the order of keys and the way of escaping do not count.
fn same_value(one: Raw<'_>, other: Raw<'_>) -> bool {
    if one == other {
        return true;
    }
    match (one.shape(), other.shape()) {
        (Shape::Object, Shape::Object) => {
            let (ones, others) = (by_name(one), by_name(other));
            let same = |(name, value): (&Cow<'_, str>, &Raw<'_>)| {
                others.get(name).is_some_and(|other_value| same_value(*value, *other_value))
            };
            ones.len() == others.len() && ones.iter().all(same)
        }
        (Shape::Array, Shape::Array) => {
            one.elements().count() == other.elements().count()
                && one.elements().zip(other.elements()).all(|(one, other)| same_value(one, other))
        }
        (Shape::String, Shape::String) => {
            one.as_str().map(|text| text.decode()) == other.as_str().map(|text| text.decode())
        }
        (Shape::Number, Shape::Number) => one.text() == other.text() || one.as_f64() == other.as_f64(),
        _ => false,
    }
}

fn by_name(object: Raw<'_>) -> HashMap<Cow<'_, str>, Raw<'_>> {
    object.fields().map(|(name, value)| (name.decode(), value)).collect()
}

fn unanswered_note(names: &[Cow<'_, str>]) -> String {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut order: Vec<&str> = Vec::new();
    for name in names {
        let count = counts.entry(name).or_default();
        if *count == 0 {
            order.push(name);
        }
        *count += 1;
    }
    let told = |name: &&str| match counts.get(name) {
        Some(count) if *count > 1 => format!("{name} (×{count})"),
        _ => (*name).to_owned(),
    };
    let listed: Vec<String> = order.iter().take(NAMES_IN_NOTE).map(told).collect();
    let more = match order.len().saturating_sub(NAMES_IN_NOTE) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "[Tool history] No result is recorded for: {}{more}. Whether the tool ran is unknown: check before calling it again.",
        listed.join(", ")
    )
}

/// An output whose call is not here: its text with a word on where it comes from, and its other parts behind it.
fn tell_orphan<'a>(output: &Output<'a>, entries: &mut Vec<Entry<'a>>) {
    entries.push(Entry::Note(format!(
        "[Tool history] Result of call {}, whose request is not in this conversation:\n{}",
        output.call_id,
        indented(&output.content.text())
    )));
    push_media(&output.content, entries);
}

/// Records that contradict each other: all of them in words, none of them chosen.
fn tell_conflict<'a>(calls: &[&Call<'a>], outputs: &[&Output<'a>], entries: &mut Vec<Entry<'a>>) {
    let call_id = calls.first().map_or(Cow::Borrowed(""), |call| call.call_id.clone());
    let mut text = format!("[Tool history] Conflicting records for call {call_id}:");
    for call in calls {
        text.push_str(&format!("\nRequest: {}\n{}", call.name, indented(&call.payload.text())));
    }
    for output in outputs {
        text.push_str(&format!("\nResult:\n{}", indented(&output.content.text())));
    }
    entries.push(Entry::Note(text));
    for output in outputs {
        push_media(&output.content, entries);
    }
}

fn push_media<'a>(content: &Content<'a>, entries: &mut Vec<Entry<'a>>) {
    let Content::Parts(parts) = content else { return };
    let media: Vec<Part<'a>> = parts.iter().filter(|part| part.text().is_none()).cloned().collect();
    if !media.is_empty() {
        entries.push(Entry::Message { role: Role::User, content: Content::Parts(media), item: None });
    }
}

#[cfg(test)]
#[path = "normalise_tests.rs"]
pub(in crate::history) mod tests;
