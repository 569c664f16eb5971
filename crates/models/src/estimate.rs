//! Estimates usage for upstreams that report none: an answer without usage gets one, marked as an estimate. Reported
//! usage calibrates later estimates.
//!
//! Counting runs on the blocking pool, and only if an upstream has not reported usage.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use amalgam_core::{Finish, ModelError, ModelEvent, ModelStream, PreparedRequest};
use amalgam_protocol::{Literal, Usage};
use amalgam_tokens::{COUNTED_BYTES, TokenCalibration, count_beginning, count_prompt};
use bytes::Bytes;
use futures_core::Stream;
use tokio::task::JoinHandle;

/// Passes a stream on, and adds usage before its end if the upstream reports none. `prepared` is the request.
pub(crate) fn with_usage(
    stream: ModelStream,
    prepared: &PreparedRequest,
    calibration: &Arc<TokenCalibration>,
) -> ModelStream {
    let text = CountedText {
        prompt: prepared.body.clone(),
        model: prepared.answer_context.model.clone(),
        calibration: Arc::clone(calibration),
        ..CountedText::default()
    };
    Box::pin(UsageStream { stream, state: State::Collecting(text) })
}

struct UsageStream {
    stream: ModelStream,
    state: State,
}

enum State {
    /// The upstream has reported no usage yet.
    Collecting(CountedText),
    /// The answer has ended and is being counted.
    Counting { counting: JoinHandle<Usage>, finish: Option<Finish> },
    /// Everything is passed on unchanged.
    PassThrough,
}

/// The text to count.
#[derive(Default)]
struct CountedText {
    prompt: Bytes,
    /// The model's name at the upstream.
    model: String,
    calibration: Arc<TokenCalibration>,
    answer: Text,
    reasoning: Text,
    /// Whether the answer has any content.
    has_content: bool,
}

/// Escaped text up to a bound, and its full length.
#[derive(Default)]
struct Text {
    beginning: Vec<u8>,
    length: usize,
}

impl Stream for UsageStream {
    type Item = Result<Vec<ModelEvent>, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let State::Counting { counting, finish } = &mut this.state {
                let usage = ready!(Pin::new(counting).poll(cx)).ok();
                let finish = finish.take().map(ModelEvent::Finish);
                this.state = State::PassThrough;
                return Poll::Ready(Some(Ok(usage.map(ModelEvent::Usage).into_iter().chain(finish).collect())));
            }
            let batch = ready!(this.stream.as_mut().poll_next(cx));
            let State::Collecting(text) = &mut this.state else { return Poll::Ready(batch) };
            let mut events = match batch {
                Some(Ok(events)) => events,
                other => return Poll::Ready(other),
            };
            let reported = events.iter().find_map(|event| match event {
                ModelEvent::Usage(usage) => Some(usage.input_tokens),
                _ => None,
            });
            if let Some(tokens) = reported {
                text.calibration.report(&text.model, &text.prompt, tokens);
                this.state = State::PassThrough;
                return Poll::Ready(Some(Ok(events)));
            }
            events.iter().for_each(|event| text.add(event));
            match events.pop() {
                Some(ModelEvent::Finish(finish)) if text.counts(&finish) => {
                    let text = std::mem::take(text);
                    let counting = tokio::task::spawn_blocking(move || text.count());
                    this.state = State::Counting { counting, finish: Some(finish) };
                }
                last => events.extend(last),
            }
            if !events.is_empty() {
                return Poll::Ready(Some(Ok(events)));
            }
        }
    }
}

impl CountedText {
    /// A failed answer has no usage, and an answer that ended before its first content has nothing to count.
    fn counts(&self, finish: &Finish) -> bool {
        match finish {
            Finish::Failed(_) => false,
            Finish::Stop => true,
            Finish::Length | Finish::ContentFilter | Finish::Incomplete(_) => self.has_content,
        }
    }

    fn add(&mut self, event: &ModelEvent) {
        self.has_content |= !matches!(event, ModelEvent::Begun { .. } | ModelEvent::Finish(_));
        match event {
            ModelEvent::Text { delta, .. } | ModelEvent::Refusal(delta) | ModelEvent::CallDelta { delta, .. } => {
                self.answer.push(delta.escaped());
            }
            ModelEvent::CallStart { call, .. } => self.answer.push(call.name.as_bytes()),
            ModelEvent::ReasoningSummary(delta) | ModelEvent::ReasoningText(delta) => {
                self.reasoning.push(delta.escaped());
            }
            _ => {}
        }
    }

    fn count(&self) -> Usage {
        let reasoning_tokens = self.reasoning.count();
        Usage {
            input_tokens: self.calibration.prompt(&self.model, count_prompt(&self.prompt)).total(),
            output_tokens: self.answer.count() + reasoning_tokens,
            reasoning_tokens,
            estimated: true,
            ..Usage::default()
        }
    }
}

impl Text {
    fn push(&mut self, escaped: &[u8]) {
        self.length += escaped.len();
        let room = COUNTED_BYTES.saturating_sub(self.beginning.len());
        self.beginning.extend_from_slice(escaped.get(..room.min(escaped.len())).unwrap_or_default());
    }

    fn count(&self) -> u64 {
        count_beginning(&Literal::from_escaped(&self.beginning).decode(), self.beginning.len(), self.length)
    }
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
