//! The one place that makes Responses events: order, ids, indices and numbers are right by construction.
//!
//! A model's events go in; frames come out, and the response that they add up to. A caller that wants the whole answer
//! gets the same state without frames, so that streamed and not streamed cannot differ.

mod calls;
mod citations;
mod extra;
mod hosted;
mod items;
mod partial;
mod passthrough;
mod text_items;

use std::{
    borrow::Cow,
    collections::{HashSet, VecDeque},
};

use amalgam_protocol::{
    DONE, ErrorObject, EventKind, Json, Literal, Provenance, Raw, ResponseSettings, Snapshot, Status, Usage, Writer,
};

use crate::{
    fault::Fault,
    ids::Ids,
    model::{Delivery, Finish, ModelEvent},
    stored_response::error_frame,
    toolset::CallKind,
};
use citations::Citations;
pub use hosted::{HostedCall, HostedCallResult};
use items::{OpenCall, OpenMessage, OpenReasoning, Place};
pub use partial::PartialAnswer;
use passthrough::OutputPositions;

/// Turns model events into the events and the object of one response.
#[derive(Debug)]
pub struct Emitter {
    response_id: String,
    created_at: u64,
    settings: ResponseSettings,
    delivery: Delivery,
    ids: Ids,
    call_ids: bool,
    used_calls: HashSet<String>,
    /// Ids of the calls of the answer that comes in.
    answer_calls: HashSet<String>,
    /// Whether a call of that answer has an id that the model does not know.
    reassigned: bool,
    /// The number of the model's answer that comes in, and where in the output its items begin.
    round: u64,
    round_from: usize,
    sequence: u64,
    frames: Writer,
    output: Vec<Json>,
    /// Items that are stored with private fields, by their position.
    kept: Vec<(usize, Json)>,
    /// Where something was found that can be cited.
    citations: Option<Box<Citations>>,
    open: Option<Open>,
    /// Calls that have begun while another one was not complete.
    waiting: VecDeque<OpenCall>,
    /// Positions of items in the output that later events may still change.
    positions: OutputPositions,
    /// What the model's call that runs has cost.
    usage: Option<Usage>,
    /// What the calls before it have cost.
    earlier: Option<Usage>,
    /// Who answers.
    provenance: Provenance,
    status: Status,
    error: Option<ErrorObject>,
    incomplete_reason: Option<String>,
    completed_at: Option<u64>,
}

/// The item that is being written; there is never more than one.
#[derive(Debug)]
enum Open {
    Message(OpenMessage),
    Reasoning(OpenReasoning),
    Call(OpenCall),
    /// An item that passes along as it is.
    Passing {
        key: u64,
        item: Json,
    },
}

/// How many events [`Emitter::wait`] writes.
const EVENTS_OF_WAITING: u64 = 2;
/// A little more than the frame of one text delta.
const FRAME_BYTES: usize = 288;

/// A response before its first output.
#[derive(Debug)]
pub struct Start {
    /// `resp_…`
    pub response_id: String,
    /// Seconds since 1970.
    pub created_at: u64,
    /// What the response repeats of its request.
    pub settings: ResponseSettings,
    /// Whether frames are wanted.
    pub delivery: Delivery,
    /// Where item ids come from.
    pub ids: Ids,
    /// Whether items of calls that the server ran include the model's call id, for APIs that identify calls by it.
    pub call_ids: bool,
}

impl Emitter {
    /// A response about to begin.
    pub fn new(start: Start) -> Self {
        Self {
            response_id: start.response_id,
            created_at: start.created_at,
            settings: start.settings,
            delivery: start.delivery,
            ids: start.ids,
            call_ids: start.call_ids,
            used_calls: HashSet::new(),
            answer_calls: HashSet::new(),
            reassigned: false,
            round: 0,
            round_from: 0,
            sequence: 0,
            frames: Writer::default(),
            output: Vec::new(),
            kept: Vec::new(),
            citations: None,
            open: None,
            waiting: VecDeque::new(),
            positions: OutputPositions::default(),
            usage: None,
            earlier: None,
            provenance: Provenance::default(),
            status: Status::InProgress,
            error: None,
            incomplete_reason: None,
            completed_at: None,
        }
    }

    /// `response.created` and `response.in_progress`.
    pub fn begin(&mut self) {
        self.life_cycle(EventKind::Created);
        self.life_cycle(EventKind::InProgress);
    }

    /// Emits `response.created` and `response.queued` for a response that waits in the queue.
    pub fn wait(&mut self) {
        self.status = Status::Queued;
        self.life_cycle(EventKind::Created);
        self.life_cycle(EventKind::Queued);
        self.status = Status::InProgress;
    }

    /// `response.in_progress`, after the events of [`Emitter::wait`]; nothing if more than those were emitted before, by
    /// a process that began the response and did not finish it.
    pub fn begin_after_waiting(&mut self, told: u64) {
        self.sequence = told;
        if told <= EVENTS_OF_WAITING {
            self.life_cycle(EventKind::InProgress);
        }
    }

    /// The events before this number were written elsewhere: the next one has it.
    pub fn resume_at(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    /// Sets the model that answers, for all later response objects.
    pub fn answered_by(&mut self, provenance: Provenance) {
        let provider_id = provenance.provider_id.or_else(|| self.provenance.provider_id.take());
        self.provenance = Provenance { provider_id, ..provenance };
    }

    /// Sets the upstream's id of the answer.
    pub fn answered_as(&mut self, provider_id: Option<&str>) {
        self.provenance.provider_id = provider_id.map(ToOwned::to_owned);
    }

    /// Who answers, as far as that is known.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// So many events come together: makes room for their frames at once.
    pub fn expect(&mut self, events: usize) {
        if self.delivery == Delivery::Stream && events > 1 {
            self.frames.reserve(events * FRAME_BYTES);
        }
    }

    /// Handles an event of the model. After a [`ModelEvent::Finish`] every item is closed and [`Emitter::conclude`] is due.
    pub fn on(&mut self, event: ModelEvent) -> Result<(), Fault> {
        if !matches!(
            event,
            ModelEvent::Text { .. } | ModelEvent::Begun { .. } | ModelEvent::Usage(_) | ModelEvent::Loss(_)
        ) {
            self.release();
        }
        match event {
            ModelEvent::Begun { .. } | ModelEvent::Loss(_) => {}
            ModelEvent::MessageStart { phase } => {
                self.close();
                self.open_message(phase);
            }
            ModelEvent::Text { delta, logprobs } => self.text(&delta, logprobs.as_ref()),
            ModelEvent::Annotation(annotation) => self.annotation(annotation),
            ModelEvent::Refusal(delta) => self.refusal(&delta),
            ModelEvent::PartEnd => self.close_part(),
            // An item's end is told with the next thing that happens: only then is it known whether it was cut.
            ModelEvent::MessageEnd => {
                if let Some(Open::Message(message)) = &mut self.open {
                    message.ended = true;
                }
            }
            ModelEvent::ReasoningSummary(delta) | ModelEvent::ReasoningText(delta) => self.summary(&delta),
            ModelEvent::ReasoningSummaryEnd => self.close_summary(),
            ModelEvent::ReasoningEnd { encrypted_content } => self.end_reasoning(encrypted_content),
            ModelEvent::CallStart { key, call } => self.start_call(key, call),
            ModelEvent::CallDelta { key, delta } => self.call_delta(key, &delta)?,
            ModelEvent::CallEnd { key } => self.end_call(key),
            ModelEvent::ItemStart { key, item } => self.start_passing(key, item),
            ModelEvent::ItemProgress { key, event } => self.progress(key, &event),
            ModelEvent::ItemEnd { key, item } => self.end_passing(key, item),
            ModelEvent::Extra(extra) => self.extra(extra),
            ModelEvent::Usage(usage) => self.usage = Some(usage),
            ModelEvent::Finish(finish) => self.finish(finish)?,
        }
        Ok(())
    }

    /// Whether the model is done and only the terminal event is missing.
    pub fn is_finished(&self) -> bool {
        self.status != Status::InProgress
    }

    /// The state of the response.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Why it is incomplete.
    pub fn incomplete_reason(&self) -> Option<&str> {
        self.incomplete_reason.as_deref()
    }

    /// The number of the next event.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The usage of the turn over all model calls, as far as the upstream has reported it.
    pub fn usage(&self) -> Option<Usage> {
        match (self.earlier, self.usage) {
            (Some(earlier), Some(usage)) => Some(earlier.plus(usage)),
            (earlier, usage) => earlier.or(usage),
        }
    }

    /// Adds our own count for the current model call, whose upstream reported no usage.
    pub fn counted(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// What the model's call that runs has cost.
    pub fn usage_of_call(&self) -> Option<Usage> {
        self.usage
    }

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

    /// The items that are complete, as they are shown.
    pub fn output(&self) -> &[Json] {
        &self.output
    }

    /// The complete items, as they are stored and sent to a model again.
    pub fn kept_output(&self) -> Cow<'_, [Json]> {
        if self.kept.is_empty() {
            return Cow::Borrowed(&self.output);
        }
        let mut output = self.output.clone();
        for (index, kept) in &self.kept {
            if let Some(item) = output.get_mut(*index) {
                *item = kept.clone();
            }
        }
        Cow::Owned(output)
    }

    /// The response's id.
    pub fn response_id(&self) -> &str {
        &self.response_id
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

    /// A sign of life for a client that waits; counts as an event.
    pub fn keepalive(&mut self) {
        self.event(EventKind::Keepalive, |_| {});
    }

    /// Whether frames wait to be sent.
    pub fn has_frames(&self) -> bool {
        !self.frames.bytes().is_empty()
    }

    /// The frames that wait to be sent.
    pub fn frames(&self) -> &[u8] {
        self.frames.bytes()
    }

    /// Bytes of frames that wait to be sent.
    pub fn frames_len(&self) -> usize {
        self.frames.bytes().len()
    }

    /// The complete frames since the last call.
    pub fn take_frames(&mut self) -> Vec<u8> {
        self.frames.take()
    }

    /// The current response object.
    pub fn response(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(self.response_len());
        self.snapshot().write(&mut writer);
        writer.into_bytes()
    }

    /// Roughly the length of the response object.
    fn response_len(&self) -> usize {
        let output: usize = self.output.iter().map(|item| item.bytes().len() + 1).sum();
        output + self.settings.len() + 640
    }

    fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            id: &self.response_id,
            created_at: self.created_at,
            completed_at: self.completed_at,
            status: self.status,
            error: self.error.as_ref(),
            incomplete_reason: self.incomplete_reason.as_deref(),
            output: &self.output,
            usage: self.usage(),
            provenance: &self.provenance,
            settings: &self.settings,
        }
    }

    fn life_cycle(&mut self, kind: EventKind) {
        if self.delivery == Delivery::Whole {
            return;
        }
        let mut frames = std::mem::take(&mut self.frames);
        frames.reserve(self.response_len());
        frames.frame(kind.name(), |writer| {
            writer.key("sequence_number").number(self.sequence);
            self.snapshot().write(writer.key("response"));
        });
        self.frames = frames;
        self.sequence += 1;
    }

    fn event(&mut self, kind: EventKind, fill: impl FnOnce(&mut Writer)) {
        if self.delivery == Delivery::Whole {
            return;
        }
        let sequence = self.sequence;
        self.frames.frame(kind.name(), |writer| {
            writer.key("sequence_number").number(sequence);
            fill(writer);
        });
        self.sequence += 1;
    }

    fn done(&mut self) {
        if self.delivery == Delivery::Stream {
            self.frames.outside(DONE);
        }
    }

    /// Discards the output, so that a failed response contains no partial answer.
    fn clear_output(&mut self) {
        self.output.clear();
        self.positions = OutputPositions::default();
        self.kept.clear();
        self.citations = None;
    }

    fn place(&self) -> Place {
        Place { output_index: self.output.len() as u64 }
    }

    /// Emits `output_item.added`; the item is built only for a stream.
    fn item_added(&mut self, item: impl FnOnce() -> Json) {
        let place = self.place();
        self.event(EventKind::ItemAdded, |writer| {
            writer.key("output_index").number(place.output_index);
            writer.key("item").valid(item().bytes());
        });
    }

    fn item_done(&mut self, item: Json) {
        let place = self.place();
        self.event(EventKind::ItemDone, |writer| {
            writer.key("output_index").number(place.output_index);
            writer.key("item").valid(item.bytes());
        });
        self.output.push(item);
    }

    /// Closes whatever is open, as completed.
    fn close(&mut self) {
        self.close_open("completed");
        while let Some(call) = self.waiting.pop_front() {
            self.open_call(call);
            self.close_open("completed");
        }
    }

    fn close_open(&mut self, status: &str) {
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

    fn finish(&mut self, finish: Finish) -> Result<(), Fault> {
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

/// Whether escaped text, decoded, is one complete JSON value.
fn is_complete_json(escaped: &[u8]) -> bool {
    escaped.ends_with(b"}") && Raw::parse(Literal::from_escaped(escaped).decode().as_bytes()).is_ok()
}

#[cfg(test)]
#[path = "emit_tests.rs"]
mod tests;
