//! Reads a list of items into a history in which every call has exactly one output: strict upstreams refuse a call
//! without its output, or an output without its call.
//!
//! Calls and outputs are paired by id, at any distance, and entries keep the order of the items. Unpaired ones are
//! never dropped: they become text that describes them (`pairing.rs`). For upstreams that require outputs directly
//! after their calls, `tool_turns.rs` changes the order.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use amalgam_protocol::{
    Content, HostedItem, Input, Item, ItemKind, McpApprovalResponse, McpCall, Part, PartKind, Raw, Role, Shape,
    TextKind,
};

use super::{Call, Entry, History, Output, Payload, indented, pairing::Pairs};
use crate::{
    file_search::{self, FILE_SEARCH},
    ids::Stem,
    loss::Losses,
    private_fields,
    tool::is_house_label,
    toolset::{CallKind, wire_name},
};

/// Builds a history from instructions and input, in which every call has exactly one output, somewhere after it.
pub fn normalise<'a>(instructions: Option<&Input<'a>>, input: Option<&Input<'a>>) -> History<'a> {
    normalise_rounds(instructions, input, &[])
}

/// The same with the model's answers of the running turn: the items of each round follow everything before it. A later
/// response that continues the turn reads the same entries from its output items.
pub fn normalise_rounds<'a>(
    instructions: Option<&Input<'a>>,
    input: Option<&Input<'a>>,
    rounds: &[Vec<Item<'a>>],
) -> History<'a> {
    let mut losses = Losses::default();
    let instructions = read_entries(instructions, Role::System, &[], &mut losses);
    let entries = read_entries(input, Role::User, rounds, &mut losses);
    History { instructions, entries, losses: losses.into_list() }
}

fn read_entries<'a>(
    input: Option<&Input<'a>>,
    role: Role,
    rounds: &[Vec<Item<'a>>],
    losses: &mut Losses,
) -> Vec<Entry<'a>> {
    let mut reader = Reader::default();
    match input {
        Some(Input::Text(text)) if !text.is_empty() => {
            reader.entries.push(Entry::Message { role, content: Content::Text(*text), item: None });
        }
        Some(Input::Items(items)) => {
            reader.entries.reserve(items.len());
            reader.denied = denied_requests(items);
            reader.take_all(items);
        }
        _ => {}
    }
    rounds.iter().for_each(|items| reader.take_all(items));
    reader.pairs.resolve(reader.entries, losses)
}

/// The entries so far.
#[derive(Default)]
struct Reader<'a> {
    entries: Vec<Entry<'a>>,
    pairs: Pairs<'a>,
    /// Outputs from items that contain call and output. Such an item does not show when the next call was made, so
    /// consecutive calls count as one answer of the model and the outputs follow the last of them, unless the items
    /// name their rounds.
    held: Vec<Output<'a>>,
    /// The round of the held outputs, if the last of them names it.
    round: Option<u64>,
    /// Denied approval requests.
    denied: HashSet<Cow<'a, str>>,
    /// The model's call ids of these requests, by request id.
    requested: HashMap<Cow<'a, str>, Cow<'a, str>>,
}

impl<'a> Reader<'a> {
    fn take_all(&mut self, items: &[Item<'a>]) {
        items.iter().for_each(|item| self.take(item));
        self.release();
    }

    fn take(&mut self, item: &Item<'a>) {
        if let Some(call) = call_of(item) {
            return self.call(call);
        }
        if let ItemKind::Hosted(hosted) = &item.kind
            && is_server_item(*hosted, item)
        {
            return self.take_hosted(item);
        }
        self.release();
        if let Some(output) = output_of(item) {
            return self.output(output);
        }
        self.entries.push(match &item.kind {
            ItemKind::Message(message) | ItemKind::AgentMessage(message) => {
                Entry::Message { role: message.role, content: message.content.clone(), item: Some(item.raw) }
            }
            ItemKind::Reasoning(_) => Entry::Reasoning(item.clone()),
            _ => Entry::Opaque(item.clone()),
        });
    }

    fn call(&mut self, call: Call<'a>) {
        self.pairs.call(self.entries.len(), &call);
        self.entries.push(Entry::Call(call));
    }

    fn output(&mut self, output: Output<'a>) {
        self.pairs.output(self.entries.len(), &output);
        self.entries.push(Entry::Output(output));
    }

    fn release(&mut self) {
        if !self.held.is_empty() {
            std::mem::take(&mut self.held).into_iter().for_each(|output| self.output(output));
        }
    }

    /// Adds a call and its output, if it has one, both under the model's call id.
    fn hosted_call(&mut self, call: Call<'a>, content: Option<Content<'a>>) {
        let round = private_fields::round(call.item);
        // The outputs of a round precede the next round, as they did when the model gave that answer.
        if round != self.round {
            self.release();
        }
        self.round = round;
        let Call { item, kind, ref call_id, .. } = call;
        let output = content.map(|content| Output {
            item,
            kind,
            call_id: call_id.clone(),
            renamed: false,
            content,
            hosted: true,
        });
        self.call(call);
        self.held.extend(output);
    }

    /// A call that this server ran contains its output. Tool lists and approval requests are not for the model.
    fn take_hosted(&mut self, item: &Item<'a>) {
        match item.kind {
            ItemKind::Hosted(HostedItem::McpCall) => self.take_run(item),
            ItemKind::Hosted(HostedItem::FileSearchCall) => self.take_search(item),
            ItemKind::Hosted(HostedItem::McpApprovalRequest) => self.take_request(item),
            ItemKind::Hosted(HostedItem::McpApprovalResponse) => self.take_denial(item),
            _ => {}
        }
    }

    /// Adds a denied call. An approved call has its own item, and a pending one is not a call yet.
    fn take_request(&mut self, item: &Item<'a>) {
        let Ok(request) = McpCall::of(item.raw) else { return };
        if self.denied.contains(&request.id) {
            let call = run_call(item, &request);
            self.requested.insert(request.id, call.call_id.clone());
            self.hosted_call(call, None);
        }
    }

    /// The denial is the output of a denied call.
    fn take_denial(&mut self, item: &Item<'a>) {
        // A decided call is run or denied after the answer that requested it.
        self.release();
        let Ok(response) = McpApprovalResponse::of(item.raw) else { return };
        if response.approve || !self.denied.remove(&response.approval_request_id) {
            return;
        }
        let content = denial(item.raw);
        let call_id = self.requested.remove(&response.approval_request_id).unwrap_or(response.approval_request_id);
        if !self.pairs.is_open(CallKind::Function, call_id.clone()) {
            let text =
                format!("[Tool history] A call that waited for approval was not run:\n{}", indented(&content.text()));
            return self.entries.push(Entry::Note(text));
        }
        self.output(Output {
            item: item.raw,
            kind: CallKind::Function,
            call_id,
            renamed: false,
            content,
            hosted: true,
        });
    }

    /// A search is a function call for every upstream, with the results as its output.
    fn take_search(&mut self, item: &Item<'a>) {
        let queries = item.raw.get("queries").filter(|queries| queries.shape() == Shape::Array);
        let (Some(id), Some(queries)) = (item.id(), queries) else { return };
        let call = Call {
            item: item.raw,
            kind: CallKind::Function,
            call_id: private_fields::call_id(item.raw, &id),
            renamed: false,
            name: Cow::Borrowed(FILE_SEARCH),
            namespace: None,
            payload: Payload::Queries(queries),
            hosted: true,
        };
        let model_output = file_search::model_output(item.raw);
        self.hosted_call(call, Some(model_output.as_str().map_or(Content::Value(model_output), Content::Text)));
    }

    fn take_run(&mut self, item: &Item<'a>) {
        let Ok(run) = McpCall::of(item.raw) else { return };
        let error = run.error.filter(|error| !error.is_null());
        let content = match (run.output, error.map(|error| error.as_str().ok_or(error))) {
            (Some(output), _) => Some(Content::Text(output)),
            (None, Some(Ok(text))) => Some(Content::Text(text)),
            (None, Some(Err(value))) => Some(Content::Value(value)),
            (None, None) => None,
        };
        self.hosted_call(run_call(item, &run), content);
    }
}

/// The call of an item, as the model made it.
fn run_call<'a>(item: &Item<'a>, run: &McpCall<'a>) -> Call<'a> {
    let label = (!is_house_label(&run.server_label)).then_some(&*run.server_label);
    Call {
        item: item.raw,
        kind: CallKind::Function,
        call_id: private_fields::call_id(item.raw, &run.id),
        renamed: false,
        name: Cow::Owned(wire_name(label, &run.name)),
        namespace: None,
        payload: Payload::Arguments(run.arguments),
        hosted: true,
    }
}

/// Approval requests of this server that an item denies, except those whose call was run anyway.
fn denied_requests<'a>(items: &[Item<'a>]) -> HashSet<Cow<'a, str>> {
    let responses = items.iter().filter(|item| matches!(item.kind, ItemKind::Hosted(HostedItem::McpApprovalResponse)));
    let responses = responses.filter_map(|item| McpApprovalResponse::of(item.raw).ok());
    let mut denied: HashSet<_> =
        responses.filter(|response| !response.approve).map(|response| response.approval_request_id.clone()).collect();
    if !denied.is_empty() {
        for item in items.iter().filter(|item| matches!(item.kind, ItemKind::Hosted(HostedItem::McpCall))) {
            item.raw.get_str("approval_request_id").inspect(|id| drop(denied.take(id)));
        }
    }
    denied
}

/// The output for a denial: that the call was not run, and the reason if there is one.
fn denial<'a>(response: Raw<'a>) -> Content<'a> {
    const DENIED: &[u8] = br#""Not run: the call was denied.""#;
    let denied = Raw::parse(DENIED).expect("a quoted sentence is JSON");
    let part = |raw: Raw<'a>| {
        let text = raw.as_str().filter(|text| !text.is_empty())?;
        Some(Part { raw, kind: PartKind::Text { kind: TextKind::Input, text } })
    };
    Content::Parts([Some(denied), response.get("reason")].into_iter().flatten().filter_map(part).collect())
}

/// Whether this server made the item, rather than an upstream that runs tools of its own.
pub(super) fn is_server_item(kind: HostedItem, item: &Item<'_>) -> bool {
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

#[cfg(test)]
#[path = "normalise_tests.rs"]
pub(in crate::history) mod tests;
