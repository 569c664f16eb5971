//! The session of an assistant as a turn sees it: the part of its history that is sent to the model, and what the turn adds
//! to it, the answer and records about it.

use amalgam_core::{
    ServerCall, SessionTurn, TurnEnd, answer_text,
    store::{Ending, MetadataRecord, SessionEnd, Ticket},
    turn::ToolFailure,
};
use amalgam_protocol::Status;

/// The newest messages of a thread: whole ones, at most `messages` of them, with at most `characters` in total.
/// `history` is role and content, oldest first; the result is its end.
///
/// The first message that exceeds a limit ends the window: older ones would make no sense without it. A window does not
/// begin with a tool's result, since the call that it answers would be missing.
pub fn window(history: &[(String, String)], messages: usize, characters: usize) -> &[(String, String)] {
    let mut left = characters;
    let newest_messages = history
        .iter()
        .rev()
        .take(messages)
        .take_while(|(_, content)| match left.checked_sub(content.chars().count()) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .count();
    let newest = history.get(history.len() - newest_messages..).unwrap_or_default();
    let orphans = newest.iter().take_while(|(role, _)| role == "tool").count();
    newest.get(orphans..).unwrap_or_default()
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn thread(messages: &[(&str, &str)]) -> Vec<(String, String)> {
        messages.iter().map(|(role, content)| ((*role).to_owned(), (*content).to_owned())).collect()
    }

    #[test]
    fn either_limit_ends_the_window_and_no_message_is_split() {
        // RNCC-28
        let history = thread(&[("user", "one"), ("assistant", "two"), ("user", "héé"), ("assistant", "four")]);
        for (messages, characters, length) in [
            (4, 13, 4),
            (4, 12, 3),
            (2, 1000, 2),
            // Characters, not bytes.
            (3, 7, 2),
            (3, 6, 1),
            (3, 3, 0),
            (0, 1000, 0),
            (usize::MAX, usize::MAX, 4),
        ] {
            let newest = &history[history.len() - length..];
            assert_eq!(window(&history, messages, characters), newest, "{messages} {characters}");
        }
        assert_eq!(window(&[], 5, 5), []);
    }

    #[test]
    fn a_message_behind_one_that_is_too_long_is_not_taken_instead() {
        let history = thread(&[("user", "a"), ("assistant", "much too long"), ("user", "b")]);
        assert_eq!(window(&history, 10, 5), &history[2..]);
    }

    #[test]
    fn a_window_does_not_begin_with_the_result_of_a_call_that_is_gone() {
        let history = thread(&[("assistant", "call"), ("tool", "one"), ("tool", "two"), ("assistant", "answer")]);
        assert_eq!(window(&history, 3, 1000), &history[3..]);
        assert_eq!(window(&history, 4, 1000), history);
    }

    proptest! {
        #[test]
        fn a_window_is_the_end_of_its_thread_within_both_limits(
            contents in proptest::collection::vec(".{0,12}", 0..30), messages in 0usize..40, characters in 0usize..200,
        ) {
            let history: Vec<_> = contents.into_iter().map(|content| ("user".to_owned(), content)).collect();
            let window = window(&history, messages, characters);
            let weight = |messages: &[(String, String)]| messages.iter().map(|(_, text)| text.chars().count()).sum::<usize>();
            prop_assert!(history.ends_with(window));
            prop_assert!(window.len() <= messages && weight(window) <= characters);
            // One more message would exceed a limit.
            if window.len() < history.len().min(messages) {
                prop_assert!(weight(&history[history.len() - window.len() - 1..]) > characters);
            }
        }
    }
}
