//! Counts for upstreams that do not: an answer that ends without usage gets one, marked as an estimate.
//!
//! The tokenizer takes tens of megabytes and a moment to load, so it is loaded by the first answer that needs it, and
//! counting happens off the threads that serve connections.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use amalgam_core::{Finish, ModelError, ModelEvent, ModelStream};
use amalgam_protocol::{Literal, Raw, Shape, Usage};
use bytes::Bytes;
use futures_core::Stream;
use tokio::task::JoinHandle;

/// More text than this is not tokenized; the rest is taken to be like it.
const COUNTED_BYTES: usize = 512 * 1024;
/// What a message costs beyond its text.
const PER_MESSAGE: u64 = 4;
/// What an image of a usual size costs.
const PER_IMAGE: u64 = 765;

/// Passes a stream on, with usage before its end if the upstream gave none. `prompt` is the body that was sent.
pub(crate) fn counted(stream: ModelStream, prompt: Bytes) -> ModelStream {
    Box::pin(Counted { stream, state: State::Watching(Heard { prompt, ..Heard::default() }) })
}

struct Counted {
    stream: ModelStream,
    state: State,
}

enum State {
    /// No usage has come yet.
    Watching(Heard),
    /// The answer is over and is being counted.
    Counting { counting: JoinHandle<Usage>, finish: Option<Finish> },
    /// There is nothing to do.
    Passing,
}

/// What there is to count.
#[derive(Default)]
struct Heard {
    prompt: Bytes,
    answer: Text,
    thoughts: Text,
}

/// Escaped text up to a bound, and the length of all of it.
#[derive(Default)]
struct Text {
    kept: Vec<u8>,
    length: usize,
}

impl Stream for Counted {
    type Item = Result<Vec<ModelEvent>, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let State::Counting { counting, finish } = &mut this.state {
                let usage = ready!(Pin::new(counting).poll(cx)).ok();
                let finish = finish.take().map(ModelEvent::Finish);
                this.state = State::Passing;
                return Poll::Ready(Some(Ok(usage.map(ModelEvent::Usage).into_iter().chain(finish).collect())));
            }
            let batch = ready!(this.stream.as_mut().poll_next(cx));
            let State::Watching(heard) = &mut this.state else { return Poll::Ready(batch) };
            let mut events = match batch {
                Some(Ok(events)) => events,
                other => return Poll::Ready(other),
            };
            if events.iter().any(|event| matches!(event, ModelEvent::Usage(_))) {
                this.state = State::Passing;
                return Poll::Ready(Some(Ok(events)));
            }
            events.iter().for_each(|event| heard.hear(event));
            match events.pop() {
                // A failed answer has no usage anyway.
                Some(ModelEvent::Finish(finish)) if !matches!(finish, Finish::Failed(_)) => {
                    let heard = std::mem::take(heard);
                    let counting = tokio::task::spawn_blocking(move || heard.count());
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

impl Heard {
    fn hear(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::Text { delta, .. } | ModelEvent::Refusal(delta) | ModelEvent::CallDelta { delta, .. } => {
                self.answer.push(delta.escaped());
            }
            ModelEvent::CallStart { call, .. } => self.answer.push(call.name.as_bytes()),
            ModelEvent::ReasoningSummary(delta) | ModelEvent::ReasoningText(delta) => {
                self.thoughts.push(delta.escaped());
            }
            _ => {}
        }
    }

    fn count(&self) -> Usage {
        let reasoning_tokens = self.thoughts.count();
        Usage {
            input_tokens: prompt_tokens(&self.prompt),
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
        let room = COUNTED_BYTES.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(escaped.get(..room.min(escaped.len())).unwrap_or_default());
    }

    fn count(&self) -> u64 {
        match self.kept.len() {
            0 => 0,
            kept => scaled(tokens(&Literal::from_escaped(&self.kept).decode()), kept, self.length),
        }
    }
}

/// The tokens of a request body: its texts, its tools, a little for every message and image.
fn prompt_tokens(body: &Bytes) -> u64 {
    let Ok(raw) = Raw::parse_within(body, usize::MAX) else { return 0 };
    let mut prompt = Prompt::default();
    let messages = raw.get("messages").unwrap_or(Raw::NULL);
    prompt.read(messages);
    for schema in ["tools", "response_format"] {
        prompt.add(raw.get(schema).map_or("", Raw::text));
    }
    let kept = prompt.text.len();
    let counted = scaled(tokens(&prompt.text), kept.max(1), prompt.length.max(1));
    counted + messages.elements().count() as u64 * PER_MESSAGE + prompt.images * PER_IMAGE
}

#[derive(Default)]
struct Prompt {
    text: String,
    length: usize,
    images: u64,
}

impl Prompt {
    fn read(&mut self, raw: Raw<'_>) {
        match raw.shape() {
            Shape::String => {
                let text = raw.as_str().unwrap_or_default().decode();
                match text.starts_with("data:") {
                    true => self.images += 1,
                    false => self.add(&text),
                }
            }
            Shape::Array => raw.elements().for_each(|element| self.read(element)),
            Shape::Object => {
                let said =
                    raw.fields().filter(|(key, _)| !matches!(key.escaped(), "role" | "type" | "id" | "tool_call_id"));
                said.for_each(|(_, value)| self.read(value));
            }
            _ => {}
        }
    }

    fn add(&mut self, text: &str) {
        self.length += text.len();
        let room = text.floor_char_boundary(COUNTED_BYTES.saturating_sub(self.text.len()));
        self.text.push_str(text.get(..room).unwrap_or_default());
    }
}

fn tokens(text: &str) -> u64 {
    match text.is_empty() {
        true => 0,
        false => bpe_openai::o200k_base().count(text) as u64,
    }
}

fn scaled(tokens: u64, counted: usize, all: usize) -> u64 {
    match all > counted {
        true => (tokens as f64 * all as f64 / counted as f64).ceil() as u64,
        false => tokens,
    }
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
