//! Unknown fields and unknown parts of an item, which are passed on unchanged.

use amalgam_core::{ItemExtra, ModelEvent, PartOwner};
use amalgam_protocol::{Item, Json, Raw, Writer};

use super::{DeltaKind, Kind, OpenItem, PartText, Parts};

/// Fields that have their own events, or that the emitter assigns.
const MESSAGE: &[&str] = &["type", "id", "status", "role", "content"];
const REASONING: &[&str] = &["type", "id", "status", "summary", "content", "encrypted_content"];
const CALL: &[&str] = &["type", "id", "status", "call_id", "name", "namespace", "arguments", "input"];
const TEXT: &[&str] = &["type", "text", "annotations", "logprobs"];
const REFUSAL: &[&str] = &["type", "refusal"];
const REASONING_TEXT: &[&str] = &["type", "text"];

impl DeltaKind {
    fn owner(self) -> PartOwner {
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
    /// Passes on the fields of a finished item that no event contains.
    pub(in super::super) fn item_fields(&self, item: Raw<'_>, events: &mut Vec<ModelEvent>) {
        let known = match &self.kind {
            Kind::Message(_) => MESSAGE,
            Kind::Reasoning { .. } => REASONING,
            Kind::Call { started: true, .. } => CALL,
            Kind::Call { .. } | Kind::PassThrough => return,
        };
        // A phase that is neither null nor text could not be read again.
        let phase = || item.get("phase").is_some_and(|phase| phase.is_null() || phase.as_str().is_some());
        let is_known = |name: &str| known.contains(&name) || (name == "phase" && (self.phase_sent || !phase()));
        let Some(fields) = extra_fields(item, is_known) else { return };
        events.push(ModelEvent::Extra(match &self.kind {
            Kind::Message(_) => ItemExtra::Item { of: PartOwner::Message, fields },
            Kind::Reasoning { .. } => ItemExtra::Item { of: PartOwner::Reasoning, fields },
            Kind::Call { .. } | Kind::PassThrough => ItemExtra::Call { key: self.key, fields },
        }));
    }

    /// Passes on the fields of a complete part that no event contains.
    pub(super) fn part_fields(
        &mut self,
        kind: DeltaKind,
        index: Option<u64>,
        part: Raw<'_>,
        events: &mut Vec<ModelEvent>,
    ) {
        let Some(fields) = extra_fields(part, |name| kind.fields().contains(&name)) else { return };
        let before = match (&self.kind, kind) {
            // Reasoning text follows its summary.
            (Kind::Reasoning { summary, .. }, DeltaKind::Reasoning) => summary.list.len(),
            _ => 0,
        };
        let Some(parts) = self.parts(kind) else { return };
        let wanted = index.or(parts.current).unwrap_or(0);
        let Some(position) = parts.list.iter().position(|(known, _)| *known == wanted) else {
            // The part has no text and had no deltas.
            return self.pass_part(kind, index, whole_part(kind, part), events);
        };
        let passed = parts.list.get_mut(position).map(|(_, text)| std::mem::replace(&mut text.passed, true));
        if passed == Some(false) {
            events.push(ModelEvent::Extra(ItemExtra::Part { of: kind.owner(), index: before + position, fields }));
        }
    }

    /// Passes a part on unchanged, once.
    pub(super) fn pass_part(&mut self, kind: DeltaKind, index: Option<u64>, part: Json, events: &mut Vec<ModelEvent>) {
        let Some(parts) = self.parts(kind) else { return };
        let index =
            index.unwrap_or_else(|| parts.list.iter().map(|(known, _)| known.saturating_add(1)).max().unwrap_or(0));
        if is_readable(&part) && parts.list.iter().all(|(known, _)| *known != index) {
            parts.list.push((index, PartText { passed: true, ..PartText::default() }));
            parts.current = Some(index);
            events.push(ModelEvent::Extra(ItemExtra::Whole { of: kind.owner(), part }));
        }
    }
}

impl Parts {
    /// Whether this part had text.
    pub(super) fn has_text(&self, index: Option<u64>) -> bool {
        let index = index.or(self.current).unwrap_or(0);
        self.list.iter().any(|(known, text)| *known == index && !text.escaped.is_empty())
    }
}

/// A part without text, with the lists that clients expect in a text part.
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

/// Whether the part can be parsed again in a later prompt; an invalid part is dropped.
fn is_readable(part: &Json) -> bool {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("role").string("assistant");
        writer.key("content").array(|writer| writer.valid(part.bytes()));
    });
    Raw::parse(writer.bytes()).is_ok_and(|message| Item::read(message).is_ok())
}

/// The fields of an object that are not `known`; `None` if there are none.
fn extra_fields(object: Raw<'_>, known: impl Fn(&str) -> bool) -> Option<Json> {
    let mut rest = object.fields().filter(|(key, _)| !known(&key.decode())).peekable();
    rest.peek()?;
    let mut writer = Writer::default();
    writer.object(|writer| rest.for_each(|(key, value)| writer.key_text(&key.decode()).raw(value)));
    Some(Json::from_writer(writer))
}
