//! Compares the final object of an answer with the events before it: which of its items are known, and which are new.

use std::{
    collections::{HashMap, VecDeque},
    mem::{Discriminant, discriminant},
};

use amalgam_protocol::{Json, Raw};
use bytes::Bytes;

use super::super::open::{Kind, OpenItem, same_words};

/// An item that events announced, as far as needed to recognise it.
#[derive(Debug)]
pub(super) struct SeenItem {
    index: Option<u64>,
    id: Option<String>,
    kind: Discriminant<Kind>,
    /// The content of a finished message.
    content: Option<Json>,
}

impl SeenItem {
    pub(super) fn of(open: &OpenItem) -> Self {
        Self { index: open.index, id: open.id.clone(), kind: discriminant(&open.kind), content: None }
    }

    /// A finished item; its end may contain more than its beginning. `whole` is the text that it was read from.
    pub(super) fn ended(open: &OpenItem, index: Option<u64>, item: Raw<'_>, whole: &Bytes) -> Self {
        let id = item.get_str("id").map(|id| id.into_owned());
        let content = item.get("content").filter(|_| open.kind.is_message());
        Self {
            index: open.index.or(index),
            id: id.or_else(|| open.id.clone()),
            kind: discriminant(&open.kind),
            content: content.map(|content| Json::within(whole, content)),
        }
    }

    /// Whether the final object contains another text of a message than its end.
    pub(super) fn is_contradicted_by(&self, item: Raw<'_>) -> bool {
        let (Some(known), Some(content)) = (&self.content, item.get("content")) else { return false };
        // The usual case: no texts need to be compared.
        if known.raw().text() == content.text() {
            return false;
        }
        let content = text_of(content);
        // Some upstreams repeat nothing in the final object.
        !content.is_empty() && !same_words(&text_of(known.raw()), &content)
    }
}

fn text_of(content: Raw<'_>) -> String {
    match content.as_str() {
        Some(text) => text.decode().into_owned(),
        None => content.elements().filter_map(|part| part.get_str("text")).collect(),
    }
}

/// Finds every known item in the final object: by id, otherwise by index. Some servers have neither, or assign new ids
/// in the final object; then remaining items of one kind are matched in order, because a duplicated item is worse than
/// a missing one.
pub(super) fn match_items(seen: &[SeenItem], output: &[Raw<'_>]) -> Vec<Option<usize>> {
    if seen.is_empty() {
        return Vec::new();
    }
    let kinds: Vec<_> = output.iter().map(|item| discriminant(&Kind::of(*item))).collect();
    let ids: HashMap<_, _> =
        output.iter().enumerate().filter_map(|(place, item)| Some((item.get_str("id")?, place))).collect();
    let mut is_free = vec![true; output.len()];
    let mut take = |seen: &SeenItem, place: usize| {
        let fits = kinds.get(place) == Some(&seen.kind);
        is_free.get_mut(place).is_some_and(|free| fits && std::mem::take(free)).then_some(place)
    };
    let by_id = |seen: &SeenItem| ids.get(seen.id.as_deref()?).copied();
    let mut found: Vec<_> = seen.iter().map(|seen| take(seen, by_id(seen)?)).collect();
    for (found, seen) in found.iter_mut().zip(seen) {
        let by_place = || usize::try_from(seen.index?).ok();
        *found = found.or_else(|| take(seen, by_place()?));
    }
    let mut left: HashMap<_, VecDeque<_>> = HashMap::new();
    for (place, kind) in kinds.iter().enumerate().filter(|(place, _)| is_free.get(*place) == Some(&true)) {
        left.entry(*kind).or_default().push_back(place);
    }
    for (found, seen) in found.iter_mut().zip(seen) {
        *found = found.or_else(|| left.get_mut(&seen.kind)?.pop_front());
    }
    found
}
