//! What a turn writes into the thread that it speaks in.

use amalgam_core::{
    store::{Ending, MetadataRecord, SessionEnd, Ticket},
    turn::ToolFailure,
};
use amalgam_protocol::{Content, HostedItem, Item, ItemKind, Json, Status};

/// The thread that a turn speaks in.
#[derive(Debug, Clone)]
pub struct Thread {
    /// Its place in the line.
    pub ticket: Ticket,
    /// What the user said.
    pub user_message_id: i64,
    /// The number that was kept for the answer.
    pub assistant_message_id: i64,
    /// The model that was asked for.
    pub model: String,
    /// What is known about the answer before it is given.
    pub metadata: Vec<MetadataRecord>,
}

/// A call that the server dealt with.
#[derive(Debug, Clone)]
pub(crate) struct RanCall {
    /// The model's id for it.
    pub(crate) call_id: String,
    /// The tool's own name.
    pub(crate) name: String,
    /// The exact text that the model sent.
    pub(crate) arguments: String,
    /// What the model was told.
    pub(crate) output: Json,
    /// What went wrong.
    pub(crate) failure: Option<ToolFailure>,
}

/// What is known about a turn beside its response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aside {
    /// The calls that the server dealt with, in order.
    pub(crate) calls: Vec<RanCall>,
    /// The upstream's own id of its last answer.
    pub(crate) provider_id: Option<String>,
}

impl Thread {
    /// What the end of the turn adds.
    pub(crate) fn end(self, response_id: &str, ending: &Ending, aside: &Aside, now_ms: u64) -> SessionEnd {
        let Self { ticket, user_message_id, assistant_message_id, model, metadata } = self;
        let text = answer_text(&ending.output);
        let good = match ending.told.status {
            Status::Completed | Status::Incomplete => true,
            // What was said until then is part of the thread: its reader has seen it, and the next turn goes on from it.
            Status::Cancelled => !text.is_empty(),
            Status::Failed | Status::Queued | Status::InProgress => false,
        };
        let (answer, about) = match good {
            true => (Some((assistant_message_id, text)), assistant_message_id),
            false => (None, user_message_id),
        };
        let mut known: Vec<(i64, MetadataRecord)> = Vec::new();
        if good {
            known.extend(metadata.into_iter().map(|record| (about, record)));
            known.push((about, usage(&model, response_id, ending, aside)));
        } else {
            known.push((about, failure(ending)));
        }
        for call in &aside.calls {
            known.push((about, tool_call(call)));
            // RNCC-32: what broke is an error of its own, whatever the model made of it.
            if matches!(call.failure, Some(ToolFailure::Broken | ToolFailure::TimedOut | ToolFailure::TooLarge)) {
                known.push((about, broken(call)));
            }
        }
        SessionEnd { ticket, answer, metadata: known, now_ms }
    }
}

fn usage(model: &str, response_id: &str, ending: &Ending, aside: &Aside) -> MetadataRecord {
    let usage = ending.told.usage.unwrap_or_default();
    MetadataRecord::new("model_usage", |writer| {
        writer.key("model").string(model);
        writer.key("response_id").string(aside.provider_id.as_deref().unwrap_or(response_id));
        writer.key("turn_id").string(response_id);
        writer.key("input_tokens").number(usage.input_tokens);
        writer.key("cached_tokens").number(usage.cached_tokens);
        writer.key("output_tokens").number(usage.output_tokens);
        writer.key("reasoning_tokens").number(usage.reasoning_tokens);
        writer.key("total_tokens").number(usage.total());
        let cancelled = (ending.told.status == Status::Cancelled).then_some(Status::Cancelled.name());
        if let Some(reason) = ending.told.incomplete_reason.as_deref().or(cancelled) {
            writer.key("incomplete_reason").string(reason);
        }
    })
}

fn failure(ending: &Ending) -> MetadataRecord {
    let error = ending.told.error.as_ref();
    MetadataRecord::new("error", |writer| {
        let code = error.and_then(|error| error.code.as_deref()).unwrap_or(ending.told.status.name());
        writer.key("code").string(code);
        writer.key("message").string(error.map_or("The turn did not come to its end.", |error| &error.message));
    })
}

fn tool_call(call: &RanCall) -> MetadataRecord {
    MetadataRecord::new("tool_call", |writer| {
        writer.key("id").string(&call.call_id);
        writer.key("name").string(&call.name);
        writer.key("arguments").string(&call.arguments);
        writer.key("output").valid(call.output.bytes());
    })
}

fn broken(call: &RanCall) -> MetadataRecord {
    MetadataRecord::new("error", |writer| {
        writer.key("code").string("tool_failed");
        let failure = call.failure.map_or("broken", ToolFailure::name);
        writer.key("message").string(&format!("The tool `{}` did not give a result: {failure}.", call.name));
        writer.key("tool_call_id").string(&call.call_id);
    })
}

/// What the model said after its last call, without what it said before. C-21
pub(crate) fn answer_text(output: &Json) -> String {
    let mut texts: Vec<String> = Vec::new();
    for item in output.raw().elements() {
        let Ok(item) = Item::read(item) else { continue };
        match &item.kind {
            ItemKind::Hosted(HostedItem::McpCall | HostedItem::FileSearchCall) => texts.clear(),
            ItemKind::Message(message) => texts.push(text_of(&message.content)),
            _ => {}
        }
    }
    texts.retain(|text| !text.is_empty());
    texts.join("\n\n")
}

fn text_of(content: &Content<'_>) -> String {
    content.text().trim().to_owned()
}
