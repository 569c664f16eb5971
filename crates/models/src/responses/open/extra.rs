//! Unknown fields and unknown parts of an item, which are passed on unchanged.

use amalgam_core::{ItemExtra, ModelEvent, PartOwner};
use amalgam_protocol::{Item, Json, Raw, Writer};

use super::{DeltaKind, Kind, OpenItem, PartText, Parts};

/// Fields that events carry, or that the emitter assigns.
const MESSAGE: &[&str] = &["type", "id", "status", "role", "content"];
const REASONING: &[&str] = &["type", "id", "status", "summary", "content", "encrypted_content"];
const CALL: &[&str] = &["type", "id", "status", "call_id", "name", "namespace", "arguments", "input"];
const TEXT: &[&str] = &["type", "text", "annotations", "logprobs"];
const REFUSAL: &[&str] = &["type", "refusal"];
const REASONING_TEXT: &[&str] = &["type", "text"];

impl DeltaKind {
    fn saying(self) -> PartOwner {
        match self {
            Self::Text | Self::Refusal => PartOwner::Message,
            Self::Summary | Self::Reasoning => PartOwner::Reasoning,
        }
    }

    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Text => TEXT,
            Self::Refusal => REFUSAL,
            Self::Summary | Self::Reasoning => REASONING_TEXT,
        }
    }
}

impl OpenItem {
    /// The fields of an item that ends, as far as no event tells them.
    pub(in super::super) fn item_fields(&self, item: Raw<'_>, events: &mut Vec<ModelEvent>) {
        let known = match &self.kind {
            Kind::Message(_) => MESSAGE,
            Kind::Reasoning { .. } => REASONING,
            Kind::Call { begun: true, .. } => CALL,
            Kind::Call { .. } | Kind::Passing => return,
        };
        // A phase that is none could not be read again.
        let phase = || item.get("phase").is_some_and(|phase| phase.is_null() || phase.as_str().is_some());
        let told = |name: &str| known.contains(&name) || (name == "phase" && (self.phased || !phase()));
        let Some(fields) = beyond(item, told) else { return };
        events.push(ModelEvent::Extra(match &self.kind {
            Kind::Message(_) => ItemExtra::Item { of: PartOwner::Message, fields },
            Kind::Reasoning { .. } => ItemExtra::Item { of: PartOwner::Reasoning, fields },
            Kind::Call { .. } | Kind::Passing => ItemExtra::Call { key: self.key, fields },
        }));
    }

    /// The fields of a part that is complete, as far as no event tells them.
    pub(super) fn part_fields(
        &mut self,
        kind: DeltaKind,
        index: Option<u64>,
        part: Raw<'_>,
        events: &mut Vec<ModelEvent>,
    ) {
        let Some(fields) = beyond(part, |name| kind.fields().contains(&name)) else { return };
        let before = match (&self.kind, kind) {
            // Reasoning text follows its summary.
            (Kind::Reasoning { summary, .. }, DeltaKind::Reasoning) => summary.list.len(),
            _ => 0,
        };
        let Some(parts) = self.parts(kind) else { return };
        let wanted = index.or(parts.current).unwrap_or(0);
        let Some(position) = parts.list.iter().position(|(known, _)| *known == wanted) else {
            // Nothing was said of it, and there is nothing to say.
            return self.pass_part(kind, index, whole_part(kind, part), events);
        };
        let told = parts.list.get_mut(position).map(|(_, said)| std::mem::replace(&mut said.passed, true));
        if told == Some(false) {
            events.push(ModelEvent::Extra(ItemExtra::Part { of: kind.saying(), index: before + position, fields }));
        }
    }

    /// A part that goes on as it is, once.
    pub(super) fn pass_part(&mut self, kind: DeltaKind, index: Option<u64>, part: Json, events: &mut Vec<ModelEvent>) {
        let Some(parts) = self.parts(kind) else { return };
        let index =
            index.unwrap_or_else(|| parts.list.iter().map(|(known, _)| known.saturating_add(1)).max().unwrap_or(0));
        if is_readable(&part) && parts.list.iter().all(|(known, _)| *known != index) {
            parts.list.push((index, PartText { passed: true, ..PartText::default() }));
            parts.current = Some(index);
            events.push(ModelEvent::Extra(ItemExtra::Whole { of: kind.saying(), part }));
        }
    }
}

impl Parts {
    /// Whether something was said of this part.
    pub(super) fn has_said(&self, index: Option<u64>) -> bool {
        let index = index.or(self.current).unwrap_or(0);
        self.list.iter().any(|(known, said)| *known == index && !said.escaped.is_empty())
    }
}

/// A part without text, with the lists that clients look for in a text.
fn whole_part(kind: DeltaKind, part: Raw<'_>) -> Json {
    let lists: &[&'static str] = if kind == DeltaKind::Text { &["annotations", "logprobs"] } else { &[] };
    let mut writer = Writer::default();
    writer.object(|writer| {
        part.fields().for_each(|(key, value)| writer.key_text(&key.decode()).raw(value));
        let missing = lists.iter().filter(|name| part.get(name).is_none());
        missing.for_each(|name| writer.key(name).array(|_| {}));
    });
    Json::from_writer(writer)
}

/// Whether the part can be read again when the answer is told to a model: one that is broken stays out.
fn is_readable(part: &Json) -> bool {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("role").string("assistant");
        writer.key("content").array(|writer| writer.valid(part.bytes()));
    });
    Raw::parse(writer.bytes()).is_ok_and(|message| Item::read(message).is_ok())
}

/// The fields of an object that have no event of their own; none if there are no such fields.
fn beyond(object: Raw<'_>, told: impl Fn(&str) -> bool) -> Option<Json> {
    let mut rest = object.fields().filter(|(key, _)| !told(&key.decode())).peekable();
    rest.peek()?;
    let mut writer = Writer::default();
    writer.object(|writer| rest.for_each(|(key, value)| writer.key_text(&key.decode()).raw(value)));
    Some(Json::from_writer(writer))
}
