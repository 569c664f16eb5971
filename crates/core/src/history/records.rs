//! Renders tool calls and outputs as text if they cannot be sent as items, and compares records.

use std::{borrow::Cow, collections::HashMap};

use amalgam_protocol::{Content, Part, Raw, Role, Shape};

use super::{Call, Entry, Output, Payload, indented};

/// The maximum number of names in a note.
const NAMES_IN_NOTE: usize = 5;

pub(super) fn same_call(one: &Call<'_>, other: &Call<'_>) -> bool {
    let payload = match (one.payload, other.payload) {
        (Payload::Arguments(one), Payload::Arguments(other)) => {
            let (one, other) = (one.decode(), other.decode());
            match (Raw::parse(one.as_bytes()), Raw::parse(other.as_bytes())) {
                (Ok(one), Ok(other)) => same_value(one, other),
                _ => one == other,
            }
        }
        (Payload::Input(one), Payload::Input(other)) => one.decode() == other.decode(),
        (Payload::Value(one), Payload::Value(other)) | (Payload::Queries(one), Payload::Queries(other)) => {
            same_value(one, other)
        }
        _ => false,
    };
    payload && one.name == other.name && one.namespace == other.namespace
}

pub(super) fn same_output(one: &Output<'_>, other: &Output<'_>) -> bool {
    match (&one.content, &other.content) {
        (Content::Text(one), Content::Text(other)) => one.decode() == other.decode(),
        (Content::Value(one), Content::Value(other)) => same_value(*one, *other),
        (Content::Parts(one), Content::Parts(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same_value(one.raw, other.raw))
        }
        _ => false,
    }
}

/// Equal as JSON: the order of keys and the escaping do not matter.
fn same_value(one: Raw<'_>, other: Raw<'_>) -> bool {
    if one == other {
        return true;
    }
    match (one.shape(), other.shape()) {
        (Shape::Object, Shape::Object) => {
            let (ones, others) = (by_name(one), by_name(other));
            let same = |(name, value): (&Cow<'_, str>, &Raw<'_>)| {
                others.get(name).is_some_and(|other_value| same_value(*value, *other_value))
            };
            ones.len() == others.len() && ones.iter().all(same)
        }
        (Shape::Array, Shape::Array) => {
            one.elements().count() == other.elements().count()
                && one.elements().zip(other.elements()).all(|(one, other)| same_value(one, other))
        }
        (Shape::String, Shape::String) => {
            one.as_str().map(|text| text.decode()) == other.as_str().map(|text| text.decode())
        }
        (Shape::Number, Shape::Number) => one.text() == other.text() || one.as_f64() == other.as_f64(),
        _ => false,
    }
}

fn by_name(object: Raw<'_>) -> HashMap<Cow<'_, str>, Raw<'_>> {
    object.fields().map(|(name, value)| (name.decode(), value)).collect()
}

pub(super) fn unanswered_note(names: &[Cow<'_, str>]) -> String {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut order: Vec<&str> = Vec::new();
    for name in names {
        let count = counts.entry(name).or_default();
        if *count == 0 {
            order.push(name);
        }
        *count += 1;
    }
    let counted_name = |name: &&str| match counts.get(name) {
        Some(count) if *count > 1 => format!("{name} (×{count})"),
        _ => (*name).to_owned(),
    };
    let listed: Vec<String> = order.iter().take(NAMES_IN_NOTE).map(counted_name).collect();
    let more = match order.len().saturating_sub(NAMES_IN_NOTE) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "[Tool history] No result is recorded for: {}{more}. Whether the tool ran is unknown: check before calling it again.",
        listed.join(", ")
    )
}

/// An output without its call: its text with a note on its origin, followed by its other parts.
pub(super) fn render_orphan<'a>(output: &Output<'a>, entries: &mut Vec<Entry<'a>>) {
    entries.push(Entry::Note(format!(
        "[Tool history] Result of call {}, whose request is not in this conversation:\n{}",
        output.call_id,
        indented(&output.content.text())
    )));
    push_media(&output.content, entries);
}

/// Another output of a call that has had one since an earlier turn.
pub(super) fn render_further<'a>(output: &Output<'a>, entries: &mut Vec<Entry<'a>>) {
    entries.push(Entry::Note(format!(
        "[Tool history] A further result of call {}:\n{}",
        output.call_id,
        indented(&output.content.text())
    )));
    push_media(&output.content, entries);
}

/// Contradicting records: all of them as text.
pub(super) fn render_conflict<'a>(calls: &[&Call<'a>], outputs: &[&Output<'a>], entries: &mut Vec<Entry<'a>>) {
    let call_id = calls.first().map_or(Cow::Borrowed(""), |call| call.call_id.clone());
    let mut text = format!("[Tool history] Conflicting records for call {call_id}:");
    for call in calls {
        text.push_str(&format!("\nRequest: {}\n{}", call.name, indented(&call.payload.text())));
    }
    for output in outputs {
        text.push_str(&format!("\nResult:\n{}", indented(&output.content.text())));
    }
    entries.push(Entry::Note(text));
    for output in outputs {
        push_media(&output.content, entries);
    }
}

fn push_media<'a>(content: &Content<'a>, entries: &mut Vec<Entry<'a>>) {
    let Content::Parts(parts) = content else { return };
    let media: Vec<Part<'a>> = parts.iter().filter(|part| part.text().is_none()).cloned().collect();
    if !media.is_empty() {
        entries.push(Entry::Message { role: Role::User, content: Content::Parts(media), item: None });
    }
}
