//! Items of an answer while they are not complete: what was said of them, and what the end adds.
//!
//! A clean upstream says everything in deltas and repeats it at the end. Others say it only at the end, or only in part;
//! so the text that was passed on is kept until the item is complete, and whatever is missing then follows.

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
    /// Its phase was passed on.
    pub(super) phased: bool,
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
        /// Its name is known and was passed on.
        begun: bool,
        said: PartText,
    },
    /// Passed along as it is.
    Passing,
}

/// The text of one part so far, escaped, and how many annotations it has.
#[derive(Debug, Default)]
pub(super) struct PartText {
    escaped: Vec<u8>,
    annotations: usize,
    /// What the part has beyond its text was passed on.
    passed: bool,
}

/// Parts by the upstream's index; the current one is the last that something was said of.
#[derive(Debug, Default)]
pub(super) struct Parts {
    list: Vec<(u64, PartText)>,
    current: Option<u64>,
}

/// The end of an item contradicts what was said of it.
#[derive(Debug)]
pub(super) struct TextMismatch;

impl Kind {
    /// What an item of this type is to us.
    pub(super) fn of(item: Raw<'_>) -> Self {
        match item.get("type").and_then(Raw::as_str).map(JsonStr::escaped) {
            Some("message") => Self::Message(Parts::default()),
            Some("reasoning") => Self::Reasoning { summary: Parts::default(), content: Parts::default() },
            Some("function_call") => Self::call(CallKind::Function),
            Some("custom_tool_call") => Self::call(CallKind::Custom),
            // A message that does not say that it is one.
            None if item.get("role").is_some() => Self::Message(Parts::default()),
            _ => Self::Passing,
        }
    }

    pub(super) fn call(kind: CallKind) -> Self {
        Self::Call { kind, begun: false, said: PartText::default() }
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

    /// What `full` has beyond what was said. `whole` is the message that `full` was read from.
    fn rest(&self, full: JsonStr<'_>, whole: &Bytes) -> Result<Option<Literal>, TextMismatch> {
        let text = full.escaped().as_bytes();
        if self.escaped.is_empty() {
            return Ok((!full.is_empty()).then(|| Literal::within(whole, full)));
        }
        if let Some(rest) = text.strip_prefix(&*self.escaped) {
            return Ok((!rest.is_empty()).then(|| Literal::from_escaped(rest)));
        }
        // An end that repeats nothing says nothing.
        if full.is_empty() {
            return Ok(None);
        }
        // The same characters may be escaped in another way.
        let said = Literal::from_escaped(&self.escaped).decode();
        let full = full.decode();
        match full.strip_prefix(&*said) {
            Some("") => Ok(None),
            Some(rest) => Ok(Some(Literal::from_text(rest))),
            None if same_words(&full, &said) => Ok(None),
            None => Err(TextMismatch),
        }
    }
}

/// Whether two texts differ in white space at most: some servers trim the final text, or write arguments anew.
pub(super) fn same_words(one: &str, other: &str) -> bool {
    let letters = |text: &'_ str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    letters(one) == letters(other)
}

impl Parts {
    /// The part of this index, or the current one. `end` is sent when another one was current.
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

    /// The texts that were said, in the upstream's order.
    fn texts(&self) -> Vec<&[u8]> {
        let mut parts: Vec<_> = self.list.iter().filter(|(_, said)| !said.escaped.is_empty()).collect();
        parts.sort_by_key(|(index, _)| *index);
        parts.into_iter().map(|(_, said)| &*said.escaped).collect()
    }

    fn end(&mut self, end: ModelEvent, events: &mut Vec<ModelEvent>) {
        if self.current.is_some() {
            events.push(end);
        }
    }
}

/// What a piece of text is.
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

    /// Whether any reasoning was given in the clear.
    pub(super) fn has_reasoning_text(&self) -> bool {
        matches!(&self.kind, Kind::Reasoning { summary, content } if !summary.texts().is_empty() || !content.texts().is_empty())
    }

    /// Writes the fields of a reasoning item that hold its texts.
    pub(super) fn write_reasoning_text(&self, writer: &mut Writer) {
        let Kind::Reasoning { summary, content } = &self.kind else { return };
        for (field, kind, parts) in [("summary", "summary_text", summary), ("content", "reasoning_text", content)] {
            let texts = parts.texts();
            // Every reasoning item has a summary, if only an empty one.
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

    /// A piece of a message or of reasoning.
    pub(super) fn say(
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

    /// The whole of a part, once it is complete: what was not said of it follows.
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
            Some((_, said)) => said.rest(full, whole)?,
            None => PartText::default().rest(full, whole)?,
        };
        if let Some(rest) = rest {
            parts.at(Some(index), kind.end(), events).add(&rest);
            events.push(kind.event(rest, logprobs));
        }
        Ok(())
    }

    /// An annotation of a part; `index` is its own, where the upstream says it.
    pub(super) fn annotate(&mut self, part: Option<u64>, annotation: Json, events: &mut Vec<ModelEvent>) {
        let Some(parts) = self.parts(DeltaKind::Text) else { return };
        parts.at(part, ModelEvent::PartEnd, events).annotations += 1;
        events.push(ModelEvent::Annotation(annotation));
    }

    /// A part is over.
    pub(super) fn end_part(&mut self, kind: DeltaKind, events: &mut Vec<ModelEvent>) {
        if let Some(parts) = self.parts(kind) {
            parts.end(kind.end(), events);
        }
    }

    /// A part as it stands at its end: text, refusal, or a kind that goes on as it is. `usual` is what is said where it
    /// stands.
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
            // A kind of its own that was told as text is text.
            _ if self.parts(usual).is_some_and(|parts| parts.has_said(index)) => usual,
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
            let told = |parts: &mut Parts| {
                let index = index.or(parts.current).unwrap_or(0);
                parts.list.iter().find(|(known, _)| *known == index).map_or(0, |(_, said)| said.annotations)
            };
            let told = self.parts(kind).map_or(0, told);
            for annotation in part.get("annotations").map(Raw::elements).into_iter().flatten().skip(told) {
                self.annotate(index, Json::within(whole, annotation), events);
            }
        }
        self.part_fields(kind, index, part, events);
        Ok(())
    }

    /// A message begins, if it is one.
    pub(super) fn begin_message(&mut self, item: Raw<'_>, events: &mut Vec<ModelEvent>) {
        if self.kind.is_message() {
            let phase = item.get_str("phase").map(|phase| phase.into_owned());
            self.phased = phase.is_some();
            events.push(ModelEvent::MessageStart { phase });
        }
    }

    /// The call begins as soon as its name is known.
    pub(super) fn begin_call(&mut self, item: Raw<'_>, events: &mut Vec<ModelEvent>) {
        let Kind::Call { kind, begun: begun @ false, .. } = &mut self.kind else { return };
        let Some(name) = item.get_str("name").filter(|name| !name.is_empty()) else { return };
        *begun = true;
        let text = |field: &str| item.get_str(field).filter(|text| !text.is_empty()).map(|text| text.into_owned());
        let call =
            CallHead { kind: *kind, call_id: text("call_id"), name: name.into_owned(), namespace: text("namespace") };
        events.push(ModelEvent::CallStart { key: self.key, call });
    }

    /// More of a call's arguments or input; kept while the call has no name.
    pub(super) fn call_delta(&mut self, delta: Literal, events: &mut Vec<ModelEvent>) {
        let Kind::Call { begun, said, .. } = &mut self.kind else { return };
        said.add(&delta);
        if *begun {
            events.push(ModelEvent::CallDelta { key: self.key, delta });
        }
    }

    /// The whole of a call's arguments or input.
    pub(super) fn complete_call(
        &mut self,
        full: JsonStr<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), TextMismatch> {
        let Kind::Call { said, .. } = &self.kind else { return Ok(()) };
        if let Some(rest) = said.rest(full, whole)? {
            self.call_delta(rest, events);
        }
        Ok(())
    }

    /// A call that ends: everything that waited for its name follows it.
    pub(super) fn end_call(
        &mut self,
        item: Raw<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), TextMismatch> {
        let Kind::Call { kind, begun: was_begun, .. } = &self.kind else { return Ok(()) };
        let was_begun = *was_begun;
        let field = if *kind == CallKind::Custom { "input" } else { "arguments" };
        self.begin_call(item, events);
        let Kind::Call { begun: true, said, .. } = &self.kind else { return Ok(()) };
        if !was_begun && !said.escaped.is_empty() {
            events.push(ModelEvent::CallDelta { key: self.key, delta: Literal::from_escaped(&said.escaped) });
        }
        let nothing_said = said.escaped.is_empty();
        let value = item.get(field).unwrap_or(Raw::NULL);
        match value.as_str() {
            Some(full) => self.complete_call(full, whole, events)?,
            // Arguments as an object: some servers forget that they are a string.
            None if nothing_said && !value.is_null() => self.call_delta(Literal::from_text(value.text()), events),
            None => {}
        }
        self.item_fields(item, events);
        events.push(ModelEvent::CallEnd { key: self.key });
        Ok(())
    }
}
