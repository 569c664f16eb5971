//! Closes items, ends a round, and ends the response: completed, incomplete, failed or cancelled.

use amalgam_protocol::{ErrorObject, EventKind, Literal, Status};

use super::{Emitter, Open, passthrough::OutputPositions};
use amalgam_core::{CallKind, Delivery, Fault, Finish, error_frame};

impl Emitter {
    /// The model's answer is over, and the response is not: whatever is open is closed.
    pub fn end_round(&mut self) {
        self.close();
        self.end_late();
        self.earlier = self.usage();
        self.usage = None;
        self.answer_calls.clear();
        self.reassigned = false;
        self.round += 1;
        self.round_from = self.output.len();
    }

    /// Writes the terminal event. What must be on disk by then is on disk.
    pub fn conclude(&mut self, now: u64) {
        let kind = match self.status {
            Status::Completed => {
                self.completed_at = Some(now);
                EventKind::Completed
            }
            Status::Incomplete => EventKind::Incomplete,
            _ => EventKind::Failed,
        };
        self.life_cycle(kind);
        self.done();
    }

    /// Ends the response in an error: `error`, `response.failed`, and nothing after it.
    pub fn fail(&mut self, error: ErrorObject) {
        self.open = None;
        self.waiting.clear();
        if self.delivery == Delivery::Stream {
            error_frame(&mut self.frames, self.sequence, &error);
            self.sequence += 1;
        }
        self.status = Status::Failed;
        self.error = Some(error);
        self.incomplete_reason = None;
        self.clear_output();
        (self.usage, self.earlier) = (None, None);
        self.life_cycle(EventKind::Failed);
        self.done();
    }

    /// Closes what is open because the answer is not waited for any longer: a message stays as far as it was written, and a
    /// call whose arguments are complete. Half a call and unfinished reasoning are of no use to a later turn.
    pub fn interrupt(&mut self) {
        self.release();
        self.waiting.clear();
        match &self.open {
            Some(Open::Message(message)) if message.ended => self.close_open("completed"),
            Some(Open::Message(message)) if message.has_content() => self.close_open("incomplete"),
            Some(Open::Call(call)) if call.is_complete() => self.close_open("completed"),
            _ => self.open = None,
        }
        self.end_late();
        self.status = Status::Cancelled;
        self.incomplete_reason = None;
    }

    /// Ends a response that was interrupted because it was cancelled: `response.incomplete` with status `cancelled`, and
    /// nothing after it.
    pub fn cancel(&mut self) {
        self.interrupt();
        self.life_cycle(EventKind::Incomplete);
        self.done();
    }

    /// Discards the output, so that a failed response contains no partial answer.
    pub(super) fn clear_output(&mut self) {
        self.output.clear();
        self.positions = OutputPositions::default();
        self.stored_forms.clear();
        self.citations = None;
    }

    /// Closes whatever is open, as completed.
    pub(super) fn close(&mut self) {
        self.close_open("completed");
        while let Some(call) = self.waiting.pop_front() {
            self.open_call(call);
            self.close_open("completed");
        }
    }

    pub(super) fn close_open(&mut self, status: &str) {
        self.close_part();
        self.close_summary();
        let place = self.place();
        match self.open.take() {
            None => {}
            Some(Open::Message(message)) => self.item_done(message.item(status)),
            Some(Open::Reasoning(reasoning)) => self.item_done(reasoning.item()),
            Some(Open::Passing { key, item }) => self.leave_passing(key, item),
            Some(Open::Call(mut call)) => {
                if call.kind == CallKind::Function && call.text.is_empty() {
                    call.text.extend_from_slice(b"{}");
                    self.call_delta_event(&call, place, &Literal::from_text("{}"));
                }
                match call.kind {
                    CallKind::Function => self.event(EventKind::ArgumentsDone, |writer| {
                        call.locate(place, writer);
                        writer.key("name").string(&call.name);
                        writer.key("arguments").escaped(&[&call.text]);
                    }),
                    CallKind::Custom => self.event(EventKind::CustomInputDone, |writer| {
                        call.locate(place, writer);
                        writer.key("input").escaped(&[&call.text]);
                    }),
                    CallKind::Client(_) => self.item_added(|| call.item("in_progress")),
                }
                self.positions.calls.push((call.key, self.output.len()));
                self.item_done(call.item(status));
            }
        }
    }

    pub(super) fn finish(&mut self, finish: Finish) -> Result<(), Fault> {
        let reason = match finish {
            Finish::Failed(fault) => return Err(fault),
            Finish::Stop => None,
            Finish::Length => Some("max_output_tokens".to_owned()),
            Finish::ContentFilter => Some("content_filter".to_owned()),
            Finish::Incomplete(reason) => Some(reason),
        };
        match reason {
            None => {
                self.close();
                self.status = Status::Completed;
            }
            Some(reason) => {
                // Calls that waited count as complete; only the last item was cut off.
                while !self.waiting.is_empty() {
                    self.close_open("completed");
                    if let Some(call) = self.waiting.pop_front() {
                        self.open_call(call);
                    }
                }
                self.close_open(match &self.open {
                    Some(Open::Call(call)) if call.is_whole() => "completed",
                    _ => "incomplete",
                });
                self.status = Status::Incomplete;
                self.incomplete_reason = Some(reason);
            }
        }
        self.end_late();
        Ok(())
    }
}
