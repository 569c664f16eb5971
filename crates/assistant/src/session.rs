//! What a turn of the assistant adds to its session: the answer, and records about it.

use amalgam_core::{
    ServerCall, SessionTurn, TurnEnd, answer_text,
    store::{Ending, MetadataRecord, SessionEnd, Ticket},
    turn::ToolFailure,
};
use amalgam_protocol::Status;

/// A turn of a session, from the user's message to the answer.
#[derive(Debug, Clone)]
pub struct AssistantSessionTurn {
    /// Its position in the session's queue.
    pub ticket: Ticket,
    /// The user's message.
    pub user_message_id: i64,
    /// The id that is reserved for the answer.
    pub assistant_message_id: i64,
    /// The requested model.
    pub model: String,
    /// Records about the answer that are known before it.
    pub metadata: Vec<MetadataRecord>,
}

impl SessionTurn for AssistantSessionTurn {
    fn end(&self, turn: TurnEnd<'_>) -> SessionEnd {
        // PostgreSQL cannot store NUL in text; replaced here so that the caller receives what is stored.
        let text = answer_text(&turn.ending.output).replace('\0', "\u{fffd}");
        let good = match turn.ending.state.status {
            Status::Completed | Status::Incomplete => true,
            // The user has seen the text so far, and the next turn continues from it.
            Status::Cancelled => !text.is_empty(),
            Status::Failed | Status::Queued | Status::InProgress => false,
        };
        let (answer, about) = match good {
            true => (Some((self.assistant_message_id, text)), self.assistant_message_id),
            false => (None, self.user_message_id),
        };
        let mut records: Vec<(i64, MetadataRecord)> = Vec::new();
        if good {
            records.extend(self.metadata.iter().map(|record| (about, record.clone())));
            records.push((about, usage(&self.model, turn)));
        } else {
            records.push((about, failure(turn.ending)));
        }
        for call in turn.calls {
            records.push((about, tool_call(call)));
            // RNCC-32: a tool that failed is a record of its own, whatever the model made of it.
            if matches!(call.failure, Some(ToolFailure::Broken | ToolFailure::TimedOut | ToolFailure::TooLarge)) {
                records.push((about, broken(call)));
            }
        }
        SessionEnd { ticket: self.ticket, answer, metadata: records, now_ms: turn.now_ms }
    }
}

fn usage(model: &str, turn: TurnEnd<'_>) -> MetadataRecord {
    let usage = turn.ending.state.usage.unwrap_or_default();
    MetadataRecord::new("model_usage", |writer| {
        writer.key("model").string(model);
        writer.key("response_id").string(turn.provider_id.unwrap_or(turn.response_id));
        writer.key("turn_id").string(turn.response_id);
        writer.key("input_tokens").number(usage.input_tokens);
        writer.key("cached_tokens").number(usage.cached_tokens);
        writer.key("output_tokens").number(usage.output_tokens);
        writer.key("reasoning_tokens").number(usage.reasoning_tokens);
        writer.key("total_tokens").number(usage.total());
        let cancelled = (turn.ending.state.status == Status::Cancelled).then_some(Status::Cancelled.name());
        if let Some(reason) = turn.ending.state.incomplete_reason.as_deref().or(cancelled) {
            writer.key("incomplete_reason").string(reason);
        }
    })
}

fn failure(ending: &Ending) -> MetadataRecord {
    let error = ending.state.error.as_ref();
    MetadataRecord::new("error", |writer| {
        let code = error.and_then(|error| error.code.as_deref()).unwrap_or(ending.state.status.name());
        writer.key("code").string(code);
        writer.key("message").string(error.map_or("The turn did not come to its end.", |error| &error.message));
    })
}

fn tool_call(call: &ServerCall) -> MetadataRecord {
    MetadataRecord::new("tool_call", |writer| {
        writer.key("id").string(&call.call_id);
        writer.key("name").string(&call.name);
        writer.key("arguments").string(&call.arguments);
        writer.key("output").valid(call.output.bytes());
    })
}

fn broken(call: &ServerCall) -> MetadataRecord {
    MetadataRecord::new("error", |writer| {
        writer.key("code").string("tool_failed");
        let failure = call.failure.map_or("broken", ToolFailure::name);
        writer.key("message").string(&format!("The tool `{}` did not give a result: {failure}.", call.name));
        writer.key("tool_call_id").string(&call.call_id);
    })
}
