//! The one place that makes Responses events: order, ids, indices and numbers are right by construction.
//!
//! A model's events go in; frames come out, and the response that they add up to. A caller that wants the whole answer
//! gets the same state without frames, so that streamed and not streamed cannot differ.

mod calls;
mod citations;
mod ending;
mod extra;
mod frames;
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
    ErrorObject, EventKind, Json, Literal, Provenance, Raw, ResponseSettings, Status, Usage, Writer,
};

use amalgam_core::{Delivery, Fault, Ids, ModelEvent};
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
    stored_forms: Vec<(usize, Json)>,
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
    /// What the prompt is counted to cost, before the upstream reports it.
    prompt: Option<Usage>,
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
pub struct ResponseStart {
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
    pub fn new(start: ResponseStart) -> Self {
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
            stored_forms: Vec::new(),
            citations: None,
            open: None,
            waiting: VecDeque::new(),
            positions: OutputPositions::default(),
            usage: None,
            earlier: None,
            prompt: None,
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
    pub fn begin_after_waiting(&mut self, sent: u64) {
        self.sequence = sent;
        if sent <= EVENTS_OF_WAITING {
            self.life_cycle(EventKind::InProgress);
        }
    }

    /// Sets our own count of the prompt, which the events before the first output show.
    pub fn expect_prompt(&mut self, tokens: u64) {
        self.prompt = Some(Usage { input_tokens: tokens, estimated: true, ..Usage::default() });
    }

    /// Emits `response.in_progress` once more if it was emitted elsewhere, before the prompt was counted.
    pub fn announce_prompt(&mut self) {
        if self.prompt.is_some() {
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
            // An item's end is sent with the next thing that happens: only then is it known whether it was cut.
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

    /// The items that are complete, as they are shown.
    pub fn output(&self) -> &[Json] {
        &self.output
    }

    /// The complete items, as they are stored and sent to a model again.
    pub fn kept_output(&self) -> Cow<'_, [Json]> {
        if self.stored_forms.is_empty() {
            return Cow::Borrowed(&self.output);
        }
        let mut output = self.output.clone();
        for (index, stored) in &self.stored_forms {
            if let Some(item) = output.get_mut(*index) {
                *item = stored.clone();
            }
        }
        Cow::Owned(output)
    }

    /// The response's id.
    pub fn response_id(&self) -> &str {
        &self.response_id
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
}

/// Whether escaped text, decoded, is one complete JSON value.
fn is_complete_json(escaped: &[u8]) -> bool {
    escaped.ends_with(b"}") && Raw::parse(Literal::from_escaped(escaped).decode().as_bytes()).is_ok()
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
