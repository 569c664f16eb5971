//! The events of a response as the events of a message.

use amalgam_protocol::{ErrorObject, Event, EventKind, Json, JsonStr, MESSAGES_BLOCK, Raw, Writer};

use crate::{
    answer::{
        PARAGRAPH, arguments, part_text, signature, write_call_head, write_head, write_message_usage, write_redacted,
        write_search,
    },
    error::error_type,
    extension::block,
    request::{MessagesRendering, ThinkingDisplay},
    stop::{Stop, is_call},
};

/// Renders the events of one response.
#[derive(Debug)]
pub struct MessageStream {
    rendering: MessagesRendering,
    /// The response as its first event shows it, until `message_start` is written.
    waiting: Option<Json>,
    started: bool,
    ended: bool,
    /// The index of the next block, or of the open one.
    index: u64,
    open: Option<OpenBlock>,
    /// Whether the current part of a message had a block.
    had_block: bool,
}

/// The block that is being written; there is never more than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenBlock {
    Text,
    Thinking {
        /// Whether another part of the reasoning begins.
        between_parts: bool,
    },
    Call {
        /// Whether a piece of the input was written.
        has_input: bool,
    },
}

impl MessageStream {
    /// A stream before its first event.
    pub fn new(rendering: MessagesRendering) -> Self {
        Self { rendering, waiting: None, started: false, ended: false, index: 0, open: None, had_block: false }
    }

    /// Appends the frames for an event of the response.
    pub fn on(&mut self, event: &Event<'_>, frames: &mut Writer) {
        let Some(kind) = event.kind.filter(|_| !self.ended) else { return };
        match kind {
            EventKind::Created | EventKind::InProgress => self.begin(event, frames),
            EventKind::Keepalive => frames.frame("ping", |_| {}),
            EventKind::ItemAdded => self.item_added(event, frames),
            EventKind::ItemDone => self.item_done(event, frames),
            EventKind::PartAdded => self.had_block = false,
            EventKind::PartDone => self.part_done(event, frames),
            EventKind::TextDelta | EventKind::RefusalDelta => self.text(event.delta.unwrap_or_default(), frames),
            EventKind::SummaryPartAdded => {
                if let Some(OpenBlock::Thinking { between_parts }) = &mut self.open {
                    *between_parts = true;
                }
            }
            EventKind::SummaryTextDelta => self.thinking(event.delta.unwrap_or_default(), frames),
            EventKind::ArgumentsDelta => self.input(event.delta.unwrap_or_default(), frames),
            EventKind::Completed | EventKind::Incomplete => self.end(event, frames),
            EventKind::Error | EventKind::Failed | EventKind::Cancelled => self.fail(event, frames),
            _ => {}
        }
    }

    /// The response's first event begins the message if it says how many tokens the prompt has. Otherwise the message
    /// begins with the event that does, or with its first content.
    fn begin(&mut self, event: &Event<'_>, frames: &mut Writer) {
        let Some(response) = event.response.filter(|_| !self.started) else { return };
        let is_counted = response.get("usage").is_some_and(|usage| !usage.is_null());
        self.waiting = Some(response.into());
        if is_counted {
            self.start(frames);
        }
    }

    fn start(&mut self, frames: &mut Writer) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        let response = self.waiting.take();
        let response = response.as_ref().map_or(Raw::EMPTY_OBJECT, Json::raw);
        frames.frame("message_start", |writer| {
            writer.key("message").object(|writer| {
                write_head(writer, response);
                writer.key("content").array(|_| {});
                writer.key("stop_reason").null();
                writer.key("stop_sequence").null();
                write_message_usage(writer.key("usage"), response);
            });
        });
        frames.frame("ping", |_| {});
    }

    fn item_added(&mut self, event: &Event<'_>, frames: &mut Writer) {
        let Some(item) = event.item.filter(|item| is_call(*item)) else { return };
        self.open_block(OpenBlock::Call { has_input: false }, frames, |writer| {
            write_call_head(writer, item);
            writer.key("input").object(|_| {});
        });
    }

    fn item_done(&mut self, event: &Event<'_>, frames: &mut Writer) {
        let Some(item) = event.item else { return };
        match item.get_str("type").as_deref() {
            Some("reasoning") => self.reasoning_done(item, frames),
            Some("function_call" | "custom_tool_call") if self.open == Some(OpenBlock::Call { has_input: false }) => {
                let arguments = Json::string(&arguments(item));
                self.input(arguments.raw().as_str().unwrap_or_default(), frames);
            }
            Some("web_search_call") => {
                let mut blocks = Writer::default();
                blocks.array(|writer| write_search(writer, item));
                let blocks = Json::from_writer(blocks);
                blocks.raw().elements().for_each(|block| self.whole_block(block, frames));
            }
            Some(MESSAGES_BLOCK) => {
                if let Some(block) = block(item) {
                    self.whole_block(block, frames);
                }
            }
            _ => {}
        }
        self.close(frames);
    }

    fn part_done(&mut self, event: &Event<'_>, frames: &mut Writer) {
        if let (false, Some(text)) = (self.had_block, event.part.and_then(part_text)) {
            self.text(text, frames);
        }
        self.close(frames);
    }

    fn text(&mut self, text: JsonStr<'_>, frames: &mut Writer) {
        if text.is_empty() {
            return;
        }
        if self.open != Some(OpenBlock::Text) {
            self.had_block = true;
            self.open_block(OpenBlock::Text, frames, |writer| {
                writer.key("type").string("text");
                writer.key("text").string("");
            });
        }
        self.delta(frames, "text_delta", "text", text);
    }

    fn thinking(&mut self, text: JsonStr<'_>, frames: &mut Writer) {
        if text.is_empty() || self.rendering.thinking != ThinkingDisplay::Shown {
            return;
        }
        match self.open {
            Some(OpenBlock::Thinking { between_parts: true }) => {
                let paragraph = Json::string(PARAGRAPH);
                self.delta(frames, "thinking_delta", "thinking", paragraph.raw().as_str().unwrap_or_default());
            }
            Some(OpenBlock::Thinking { between_parts: false }) => {}
            _ => self.open_thinking(frames),
        }
        self.open = Some(OpenBlock::Thinking { between_parts: false });
        self.delta(frames, "thinking_delta", "thinking", text);
    }

    fn open_thinking(&mut self, frames: &mut Writer) {
        self.open_block(OpenBlock::Thinking { between_parts: false }, frames, |writer| {
            writer.key("type").string("thinking");
            writer.key("thinking").string("");
            writer.key("signature").string("");
        });
    }

    fn reasoning_done(&mut self, item: Raw<'_>, frames: &mut Writer) {
        let is_open = matches!(self.open, Some(OpenBlock::Thinking { .. }));
        let Some(signature) = signature(item) else { return };
        match (self.rendering.thinking, is_open) {
            (ThinkingDisplay::Hidden, _) => return,
            (ThinkingDisplay::Shown, false) => {
                let mut redacted = Writer::default();
                write_redacted(&mut redacted, signature);
                return self.whole_block(Json::from_writer(redacted).raw(), frames);
            }
            (ThinkingDisplay::Omitted, _) => self.open_thinking(frames),
            (ThinkingDisplay::Shown, true) => {}
        }
        self.delta(frames, "signature_delta", "signature", signature);
    }

    fn input(&mut self, piece: JsonStr<'_>, frames: &mut Writer) {
        if let (false, Some(OpenBlock::Call { has_input })) = (piece.is_empty(), &mut self.open) {
            *has_input = true;
            self.delta(frames, "input_json_delta", "partial_json", piece);
        }
    }

    fn whole_block(&mut self, block: Raw<'_>, frames: &mut Writer) {
        self.close(frames);
        self.start(frames);
        let index = self.index;
        frames.frame("content_block_start", |writer| {
            writer.key("index").number(index);
            writer.key("content_block").raw(block);
        });
        self.stop(frames);
    }

    fn open_block(&mut self, block: OpenBlock, frames: &mut Writer, fill: impl FnOnce(&mut Writer)) {
        self.close(frames);
        self.start(frames);
        let index = self.index;
        frames.frame("content_block_start", |writer| {
            writer.key("index").number(index);
            writer.key("content_block").object(fill);
        });
        self.open = Some(block);
    }

    fn delta(&self, frames: &mut Writer, kind: &str, field: &'static str, text: JsonStr<'_>) {
        frames.frame("content_block_delta", |writer| {
            writer.key("index").number(self.index);
            writer.key("delta").object(|writer| {
                writer.key("type").string(kind);
                writer.key(field).json_str(text);
            });
        });
    }

    fn close(&mut self, frames: &mut Writer) {
        if self.open.take().is_some() {
            self.stop(frames);
        }
    }

    fn stop(&mut self, frames: &mut Writer) {
        let index = self.index;
        frames.frame("content_block_stop", |writer| writer.key("index").number(index));
        self.index += 1;
    }

    fn end(&mut self, event: &Event<'_>, frames: &mut Writer) {
        let response = event.response.unwrap_or(Raw::EMPTY_OBJECT);
        if response.get_str("status").as_deref() == Some("cancelled") {
            return self.error("api_error", "The response was cancelled.", frames);
        }
        if !self.started {
            self.waiting = Some(response.into());
        }
        self.start(frames);
        self.close(frames);
        frames.frame("message_delta", |writer| {
            writer.key("delta").object(|writer| Stop::of(response).write(writer));
            write_message_usage(writer.key("usage"), response);
        });
        frames.frame("message_stop", |_| {});
        self.ended = true;
    }

    fn fail(&mut self, event: &Event<'_>, frames: &mut Writer) {
        let error = event.raw.get("error").or_else(|| event.response?.get("error"));
        let error = ErrorObject::read(error.filter(|error| !error.is_null()).unwrap_or(event.raw));
        let message = if error.message.is_empty() { "The response failed." } else { &error.message };
        self.error(error_type(&error), message, frames);
    }

    fn error(&mut self, kind: &str, message: &str, frames: &mut Writer) {
        frames.frame("error", |writer| {
            writer.key("error").object(|writer| {
                writer.key("type").string(kind);
                writer.key("message").string(message);
            });
        });
        self.ended = true;
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
