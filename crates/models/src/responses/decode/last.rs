//! The final object of an answer beside what was told before it: which of its items are known, and which are new.

use std::{
    collections::{HashMap, VecDeque},
    mem::{Discriminant, discriminant},
};

use amalgam_protocol::Raw;

use super::super::open::{Kind, OpenItem};

/// An item that was told of: enough to know it again.
#[derive(Debug)]
pub(super) struct Seen {
    index: Option<u64>,
    id: Option<String>,
    kind: Discriminant<Kind>,
}

impl Seen {
    pub(super) fn of(open: &OpenItem) -> Self {
        Self { index: open.index, id: open.id.clone(), kind: discriminant(&open.kind) }
    }

    /// An item that is over: its end may say more of it than its beginning.
    pub(super) fn ended(open: &OpenItem, index: Option<u64>, item: Raw<'_>) -> Self {
        let id = item.get_str("id").map(|id| id.into_owned());
        Self { index: open.index.or(index), id: id.or_else(|| open.id.clone()), kind: discriminant(&open.kind) }
    }
}

/// For every item that was seen its place in the final object: by id, else by place. Some servers have neither, or make
/// ids anew for the final object; what is left over of one kind is then taken for the same, in its order: an item that is
/// told twice is worse than one that is not told.
pub(super) fn find_again(seen: &[Seen], output: &[Raw<'_>]) -> Vec<Option<usize>> {
    if seen.is_empty() {
        return Vec::new();
    }
    let kinds: Vec<_> = output.iter().map(|item| discriminant(&Kind::of(*item))).collect();
    let ids: HashMap<_, _> =
        output.iter().enumerate().filter_map(|(place, item)| Some((item.get_str("id")?, place))).collect();
    let mut is_free = vec![true; output.len()];
    let mut take = |seen: &Seen, place: usize| {
        let fits = kinds.get(place) == Some(&seen.kind);
        is_free.get_mut(place).is_some_and(|free| fits && std::mem::take(free)).then_some(place)
    };
    let by_id = |seen: &Seen| ids.get(seen.id.as_deref()?).copied();
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
