//! The demo's answer as data: written into the prepared body and played from there.

use amalgam_core::{CallHead, CallKind, CallMap, Finish, ModelEvent, unwrap_custom};
use amalgam_protocol::{Literal, Usage};
use serde::{Deserialize, Serialize};

use crate::reasoning_seal::Sealing;

/// The maximum length of one token.
const LONGEST_PIECE: usize = 16;

/// One answer.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Script {
    /// The reasoning summary.
    pub(super) reasoning: Option<String>,
    /// The text of the message.
    pub(super) message: Option<String>,
    /// The calls instead of a message.
    pub(super) calls: Vec<ScriptedCall>,
    /// Whether the answer was cut off at the caller's token limit.
    pub(super) cut: bool,
    /// The number of prompt tokens.
    pub(super) input_tokens: u64,
}

/// One call, by the name under which the tool was offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScriptedCall {
    pub(super) name: String,
    /// JSON text.
    pub(super) arguments: String,
}

impl Script {
    /// Shortens the answer to `most` tokens. A call that does not fit is dropped, because half a call is useless.
    pub(super) fn cut(&mut self, most: Option<u64>) {
        let Some(mut left) = most else { return };
        for text in [&mut self.reasoning, &mut self.message].into_iter().flatten() {
            let length = pieces(text).count() as u64;
            if length > left {
                *text = pieces(text).take(left as usize).collect();
                self.cut = true;
            }
            left = left.saturating_sub(length);
        }
        let calls = self.calls.len();
        self.calls.retain(|call| {
            let length = pieces(&call.arguments).count() as u64;
            let fits = length <= left;
            left = if fits { left - length } else { 0 };
            fits
        });
        self.cut |= self.calls.len() < calls;
    }

    /// The events in order, in batches that are sent one after the other.
    pub(super) fn batches(&self, model: &str, calls: &CallMap, sealing: &Sealing) -> Vec<Vec<ModelEvent>> {
        let mut output_tokens = 0;
        let mut reasoning_tokens = 0;
        let mut batches = vec![vec![ModelEvent::Begun { id: None, model: Some(model.to_owned()) }]];
        if let Some(text) = self.reasoning.as_deref().filter(|text| !text.is_empty()) {
            for piece in pieces(text) {
                reasoning_tokens += 1;
                batches.push(vec![ModelEvent::ReasoningSummary(Literal::from_text(piece))]);
            }
            let encrypted_content = sealing.close(|writer| writer.key("text").string(text));
            batches.push(vec![ModelEvent::ReasoningEnd { encrypted_content }]);
        }
        if let Some(text) = self.message.as_deref().filter(|text| !text.is_empty()) {
            for piece in pieces(text) {
                output_tokens += 1;
                batches.push(vec![ModelEvent::Text { delta: Literal::from_text(piece), logprobs: None }]);
            }
            batches.push(vec![ModelEvent::MessageEnd]);
        }
        for (key, call) in (0_u64..).zip(&self.calls) {
            let target = calls.target(&call.name);
            let text = match target.kind {
                CallKind::Custom => unwrap_custom(&call.arguments),
                CallKind::Function | CallKind::Client(_) => call.arguments.clone(),
            };
            let head = CallHead { kind: target.kind, call_id: None, name: target.name, namespace: target.namespace };
            batches.push(vec![ModelEvent::CallStart { key, call: head }]);
            for piece in pieces(&text) {
                output_tokens += 1;
                batches.push(vec![ModelEvent::CallDelta { key, delta: Literal::from_text(piece) }]);
            }
            batches.push(vec![ModelEvent::CallEnd { key }]);
        }
        let usage = Usage {
            input_tokens: self.input_tokens,
            output_tokens: output_tokens + reasoning_tokens,
            reasoning_tokens,
            ..Usage::default()
        };
        let finish = if self.cut { Finish::Length } else { Finish::Stop };
        batches.push(vec![ModelEvent::Usage(usage), ModelEvent::Finish(finish)]);
        batches
    }
}

/// The demo's tokens: words with the following space, long ones in several pieces. Joined, they are the text.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace).flat_map(|word| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let (piece, tail) = rest.split_at_checked(rest.floor_char_boundary(LONGEST_PIECE))?;
            rest = tail;
            (!piece.is_empty()).then_some(piece)
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_add_up_to_the_text(text in ".{0,80}") {
            prop_assert_eq!(pieces(&text).collect::<String>(), text);
        }
    }

    #[test]
    fn a_cut_answer_keeps_whole_calls_only() {
        let call = |name: &str| ScriptedCall { name: name.to_owned(), arguments: "{}".to_owned() };
        let mut script = Script { calls: vec![call("a"), call("b")], ..Script::default() };
        script.cut(Some(1));
        assert_eq!(script, Script { calls: vec![call("a")], cut: true, ..Script::default() });

        let mut script = Script { message: Some("one two three".to_owned()), ..Script::default() };
        script.cut(Some(2));
        assert_eq!(script, Script { message: Some("one two ".to_owned()), cut: true, ..Script::default() });

        let mut script = Script { message: Some("one two".to_owned()), ..Script::default() };
        script.cut(Some(2));
        assert!(!script.cut);
    }
}
