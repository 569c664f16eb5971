//! Items of an answer that are not complete: the text received so far, and what the end adds.
//!
//! A conforming upstream sends everything in deltas and repeats it at the end. Others send it only at the end, or only
//! in part. So the text that was passed on is kept until the item is complete, and missing text follows then.

mod extra;

use amalgam_core::{CallHead, CallKind, ModelEvent};
use amalgam_protocol::{Json, JsonStr, Literal, Raw, Writer};
use bytes::Bytes;

/// An item that has begun.
#[derive(Debug)]
pub(super) struct OpenItem {
    pub(super) key: u64,
    pub(super) index: Option<u64>,
    pub(super) id: Option<String>,
    pub(super) kind: Kind,
    /// Whether its phase was passed on.
    pub(super) phase_sent: bool,
}

#[derive(Debug)]
pub(super) enum Kind {
    Message(Parts),
    Reasoning {
        summary: Parts,
        content: Parts,
    },
    Call {
        kind: CallKind,
        /// Whether the call's name is known and was passed on.
        started: bool,
        input: PartText,
    },
    /// An item that is passed on unchanged.
    PassThrough,
}

/// The escaped text of one part so far, and the number of its annotations.
#[derive(Debug, Default)]
pub(super) struct PartText {
    escaped: Vec<u8>,
    annotations: usize,
    /// Whether the part's other fields were passed on.
    passed: bool,
}

/// Parts by the upstream's index. The current one is the last that received text.
#[derive(Debug, Default)]
pub(super) struct Parts {
    list: Vec<(u64, PartText)>,
    current: Option<u64>,
}

/// The end of an item contradicts its deltas.
#[derive(Debug)]
pub(super) struct TextMismatch;

impl Kind {
    /// The kind of an item.
    pub(super) fn of(item: Raw<'_>) -> Self {
        match item.get("type").and_then(Raw::as_str).map(JsonStr::escaped) {
            Some("message") => Self::Message(Parts::default()),
            Some("reasoning") => Self::Reasoning { summary: Parts::default(), content: Parts::default() },
            Some("function_call") => Self::call(CallKind::Function),
            Some("custom_tool_call") => Self::call(CallKind::Custom),
            // A message without `type`.
            None if item.get("role").is_some() => Self::Message(Parts::default()),
            _ => Self::PassThrough,
        }
    }

    pub(super) fn call(kind: CallKind) -> Self {
        Self::Call { kind, started: false, input: PartText::default() }
    }

    pub(super) fn is_message(&self) -> bool {
        matches!(self, Self::Message(_))
    }

    pub(super) fn is_reasoning(&self) -> bool {
        matches!(self, Self::Reasoning { .. })
    }

    pub(super) fn is_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }
}

impl PartText {
    fn add(&mut self, delta: &Literal) {
        self.escaped.extend_from_slice(delta.escaped());
    }

    /// The part of `full` that is missing in the text so far. `whole` is the message that contains `full`.
    fn rest(&self, full: JsonStr<'_>, whole: &Bytes) -> Result<Option<Literal>, TextMismatch> {
        let text = full.escaped().as_bytes();
        if self.escaped.is_empty() {
            return Ok((!full.is_empty()).then(|| Literal::within(whole, full)));
        }
        if let Some(rest) = text.strip_prefix(&*self.escaped) {
            return Ok((!rest.is_empty()).then(|| Literal::from_escaped(rest)));
        }
        // Some upstreams repeat nothing at the end.
        if full.is_empty() {
            return Ok(None);
        }
        // The same characters may be escaped differently.
        let text = Literal::from_escaped(&self.escaped).decode();
        let full = full.decode();
        match full.strip_prefix(&*text) {
            Some("") => Ok(None),
            Some(rest) => Ok(Some(Literal::from_text(rest))),
            None if same_words(&full, &text) => Ok(None),
            None => Err(TextMismatch),
        }
    }
}

/// Whether two texts differ only in white space: some servers trim the final text, or reformat arguments.
pub(super) fn same_words(one: &str, other: &str) -> bool {
    let letters = |text: &'_ str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    letters(one) == letters(other)
}

impl Parts {
    /// The part of this index, or the current one. `end` is emitted if another part was current.
    fn at(&mut self, index: Option<u64>, end: ModelEvent, events: &mut Vec<ModelEvent>) -> &mut PartText {
        let index = index.or(self.current).unwrap_or(0);
        if self.current.is_some_and(|current| current != index) {
            events.push(end);
        }
        self.current = Some(index);
        let position = match self.list.iter().position(|(known, _)| *known == index) {
            Some(position) => position,
            None => {
                self.list.push((index, PartText::default()));
                self.list.len() - 1
            }
        };
        &mut self.list[position].1
    }

    /// The texts in the upstream's order.
    fn texts(&self) -> Vec<&[u8]> {
        let mut parts: Vec<_> = self.list.iter().filter(|(_, text)| !text.escaped.is_empty()).collect();
        parts.sort_by_key(|(index, _)| *index);
        parts.into_iter().map(|(_, text)| &*text.escaped).collect()
    }

    fn end(&mut self, end: ModelEvent, events: &mut Vec<ModelEvent>) {
        if self.current.is_some() {
            events.push(end);
        }
    }
}

/// The kind of a text delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeltaKind {
    Text,
    Refusal,
    Summary,
    Reasoning,
}

impl DeltaKind {
    fn event(self, delta: Literal, logprobs: Option<Json>) -> ModelEvent {
        match self {
            Self::Text => ModelEvent::Text { delta, logprobs },
            Self::Refusal => ModelEvent::Refusal(delta),
            Self::Summary => ModelEvent::ReasoningSummary(delta),
            Self::Reasoning => ModelEvent::ReasoningText(delta),
        }
    }

    fn end(self) -> ModelEvent {
        match self {
            Self::Text | Self::Refusal => ModelEvent::PartEnd,
            Self::Summary | Self::Reasoning => ModelEvent::ReasoningSummaryEnd,
        }
    }
}

impl OpenItem {
    fn parts(&mut self, kind: DeltaKind) -> Option<&mut Parts> {
        match (&mut self.kind, kind) {
            (Kind::Message(parts), DeltaKind::Text | DeltaKind::Refusal) => Some(parts),
            (Kind::Reasoning { summary, .. }, DeltaKind::Summary) => Some(summary),
            (Kind::Reasoning { content, .. }, DeltaKind::Reasoning) => Some(content),
            _ => None,
        }
    }

    /// Whether there is any reasoning in plain text.
    pub(super) fn has_reasoning_text(&self) -> bool {
        matches!(&self.kind, Kind::Reasoning { summary, content } if !summary.texts().is_empty() || !content.texts().is_empty())
    }

    /// Writes the text fields of a reasoning item.
    pub(super) fn write_reasoning_text(&self, writer: &mut Writer) {
        let Kind::Reasoning { summary, content } = &self.kind else { return };
        for (field, kind, parts) in [("summary", "summary_text", summary), ("content", "reasoning_text", content)] {
            let texts = parts.texts();
            // Every reasoning item has a summary, even an empty one.
            if field == "summary" || !texts.is_empty() {
                writer.key(field).array(|writer| {
                    for text in texts {
                        writer.object(|writer| {
                            writer.key("type").string(kind);
                            writer.key("text").escaped(&[text]);
                        });
                    }
                });
            }
        }
    }

    /// Handles a delta of a message or of reasoning.
    pub(super) fn push_text(
        &mut self,
        kind: DeltaKind,
        part: Option<u64>,
        delta: Literal,
        logprobs: Option<Json>,
        events: &mut Vec<ModelEvent>,
    ) {
        let Some(parts) = self.parts(kind) else { return };
        parts.at(part, kind.end(), events).add(&delta);
        events.push(kind.event(delta, logprobs));
    }

    /// Handles the complete text of a part: emits what the deltas did not contain.
    pub(super) fn complete(
        &mut self,
        kind: DeltaKind,
        part: Option<u64>,
        full: JsonStr<'_>,
        logprobs: Option<Json>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), TextMismatch> {
        let Some(parts) = self.parts(kind) else { return Ok(()) };
        let index = part.or(parts.current).unwrap_or(0);
        let known = parts.list.iter().find(|(known, _)| *known == index);
        let rest = match known {
            Some((_, text)) => text.rest(full, whole)?,
            None => PartText::default().rest(full, whole)?,
        };
        if let Some(rest) = rest {
            parts.at(Some(index), kind.end(), events).add(&rest);
            events.push(kind.event(rest, logprobs));
        }
        Ok(())
    }

    /// Handles an annotation of a part; `index` is the annotation's own, if the upstream sends it.
    pub(super) fn annotate(&mut self, part: Option<u64>, annotation: Json, events: &mut Vec<ModelEvent>) {
        let Some(parts) = self.parts(DeltaKind::Text) else { return };
        parts.at(part, ModelEvent::PartEnd, events).annotations += 1;
        events.push(ModelEvent::Annotation(annotation));
    }

    /// Handles the end of a part.
    pub(super) fn end_part(&mut self, kind: DeltaKind, events: &mut Vec<ModelEvent>) {
        if let Some(parts) = self.parts(kind) {
            parts.end(kind.end(), events);
        }
    }

    /// Handles a complete part: text, refusal, or a kind that is passed on unchanged. `usual` is the kind of text in
    /// this item.
    pub(super) fn complete_part(
        &mut self,
        usual: DeltaKind,
        index: Option<u64>,
        part: Raw<'_>,
        logprobs: bool,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), TextMismatch> {
        let kind = match part.get("type").and_then(Raw::as_str).map(JsonStr::escaped) {
            Some("refusal") if usual == DeltaKind::Text => DeltaKind::Refusal,
            Some("summary_text") if usual != DeltaKind::Text => DeltaKind::Summary,
            Some("reasoning_text") if usual != DeltaKind::Text => DeltaKind::Reasoning,
            None | Some("output_text" | "input_text" | "text") => usual,
            // A part of an unknown kind that had text deltas is text.
            _ if self.parts(usual).is_some_and(|parts| parts.has_text(index)) => usual,
            _ => {
                self.pass_part(usual, index, Json::within(whole, part), events);
                return Ok(());
            }
        };
        let text = part.get(if kind == DeltaKind::Refusal { "refusal" } else { "text" }).and_then(Raw::as_str);
        let Some(text) = text else { return Ok(()) };
        let list = part.get("logprobs").filter(|list| logprobs && list.elements().next().is_some());
        self.complete(kind, index, text, list.map(|list| Json::within(whole, list)), whole, events)?;
        if kind == DeltaKind::Text {
            let count = |parts: &mut Parts| {
                let index = index.or(parts.current).unwrap_or(0);
                parts.list.iter().find(|(known, _)| *known == index).map_or(0, |(_, text)| text.annotations)
            };
            let known = self.parts(kind).map_or(0, count);
            for annotation in part.get("annotations").map(Raw::elements).into_iter().flatten().skip(known) {
                self.annotate(index, Json::within(whole, annotation), events);
            }
        }
        self.part_fields(kind, index, part, events);
        Ok(())
    }

    /// Begins a message, if the item is one.
    pub(super) fn begin_message(&mut self, item: Raw<'_>, events: &mut Vec<ModelEvent>) {
        if self.kind.is_message() {
            let phase = item.get_str("phase").map(|phase| phase.into_owned());
            self.phase_sent = phase.is_some();
            events.push(ModelEvent::MessageStart { phase });
        }
    }

    /// Begins the call as soon as its name is known.
    pub(super) fn begin_call(&mut self, item: Raw<'_>, events: &mut Vec<ModelEvent>) {
        let Kind::Call { kind, started: started @ false, .. } = &mut self.kind else { return };
        let Some(name) = item.get_str("name").filter(|name| !name.is_empty()) else { return };
        *started = true;
        let text = |field: &str| item.get_str(field).filter(|text| !text.is_empty()).map(|text| text.into_owned());
        let call =
            CallHead { kind: *kind, call_id: text("call_id"), name: name.into_owned(), namespace: text("namespace") };
        events.push(ModelEvent::CallStart { key: self.key, call });
    }

    /// Handles a delta of a call's arguments or input; held while the call has no name.
    pub(super) fn call_delta(&mut self, delta: Literal, events: &mut Vec<ModelEvent>) {
        let Kind::Call { started, input, .. } = &mut self.kind else { return };
        input.add(&delta);
        if *started {
            events.push(ModelEvent::CallDelta { key: self.key, delta });
        }
    }

    /// Handles the complete arguments or input of a call.
    pub(super) fn complete_call(
        &mut self,
        full: JsonStr<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), TextMismatch> {
        let Kind::Call { input, .. } = &self.kind else { return Ok(()) };
        if let Some(rest) = input.rest(full, whole)? {
            self.call_delta(rest, events);
        }
        Ok(())
    }

    /// Handles the end of a call: emits everything that was held until its name.
    pub(super) fn end_call(
        &mut self,
        item: Raw<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), TextMismatch> {
        let Kind::Call { kind, started: was_started, .. } = &self.kind else { return Ok(()) };
        let was_started = *was_started;
        let field = if *kind == CallKind::Custom { "input" } else { "arguments" };
        self.begin_call(item, events);
        let Kind::Call { started: true, input, .. } = &self.kind else { return Ok(()) };
        if !was_started && !input.escaped.is_empty() {
            events.push(ModelEvent::CallDelta { key: self.key, delta: Literal::from_escaped(&input.escaped) });
        }
        let is_empty = input.escaped.is_empty();
        let value = item.get(field).unwrap_or(Raw::NULL);
        match value.as_str() {
            Some(full) => self.complete_call(full, whole, events)?,
            // Some servers send arguments as an object instead of a string.
            None if is_empty && !value.is_null() => self.call_delta(Literal::from_text(value.text()), events),
            None => {}
        }
        self.item_fields(item, events);
        events.push(ModelEvent::CallEnd { key: self.key });
        Ok(())
    }
}
