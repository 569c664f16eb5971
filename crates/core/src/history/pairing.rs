//! Pairs every call with its output by id, at any distance.
//!
//! An output answers the nearest call before it that has its id and no output yet. An id that is used again after its
//! output belongs to another pair, which gets a new id. Calls without an output, outputs without a call, and
//! contradicting records become text at the end of their tool turn.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet, hash_map},
};

use amalgam_protocol::ItemKind;

use super::{
    Call, Entry, Output,
    records::{render_conflict, render_further, render_orphan, same_call, same_output, unanswered_note},
};
use crate::{loss::Losses, toolset::CallKind};

/// The calls and outputs of a list of entries, by entry index.
#[derive(Default)]
pub(super) struct Pairs<'a> {
    /// The latest group of each id. Function, custom and other calls have separate id spaces.
    latest: HashMap<(CallKind, Cow<'a, str>), usize>,
    groups: Vec<Group>,
    /// Outputs without a call before them.
    orphans: Vec<usize>,
    /// Groups without an output so far.
    waiting: usize,
    /// The kind of the first call.
    kind: Option<CallKind>,
    /// Whether an id may have been used more than once.
    repeated: bool,
    /// The last output and its call.
    last: Option<(usize, usize)>,
    /// Whether an output directly follows the output of a later call.
    unordered: bool,
}

/// Calls with one id, and the outputs after them.
struct Group {
    call: usize,
    output: Option<usize>,
    /// Further calls before the first output. Empty for nearly every group.
    more_calls: Vec<usize>,
    /// Further outputs before the next call of this id.
    more_outputs: Vec<usize>,
}

impl<'a> Pairs<'a> {
    /// Records the call at `index`.
    pub(super) fn call(&mut self, index: usize, call: &Call<'a>) {
        let new = Group { call: index, output: None, more_calls: Vec::new(), more_outputs: Vec::new() };
        self.repeated |= *self.kind.get_or_insert(call.kind) != call.kind;
        match self.latest.entry((call.kind, call.call_id.clone())) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(self.groups.len());
            }
            hash_map::Entry::Occupied(mut occupied) => {
                self.repeated = true;
                if let Some(group) = self.groups.get_mut(*occupied.get())
                    && group.output.is_none()
                {
                    return group.more_calls.push(index);
                }
                occupied.insert(self.groups.len());
            }
        }
        self.groups.push(new);
        self.waiting += 1;
    }

    /// Whether the latest call of this id has no output yet.
    pub(super) fn is_open(&self, kind: CallKind, call_id: Cow<'a, str>) -> bool {
        let group = self.latest.get(&(kind, call_id)).and_then(|group| self.groups.get(*group));
        group.is_some_and(|group| group.output.is_none())
    }

    /// Records the output at `index`.
    pub(super) fn output(&mut self, index: usize, output: &Output<'a>) {
        let group = self.latest.get(&(output.kind, output.call_id.clone()));
        match group.and_then(|group| self.groups.get_mut(*group)) {
            None => self.orphans.push(index),
            Some(group) if group.output.is_none() => {
                group.output = Some(index);
                self.waiting -= 1;
                self.unordered |= self.last.is_some_and(|(last, call)| last + 1 == index && group.call < call);
                self.last = Some((index, group.call));
            }
            Some(group) => {
                self.repeated = true;
                group.more_outputs.push(index);
            }
        }
    }

    /// The entries with every call and its one output under unique ids, and the rest as text. Consecutive outputs have
    /// the order of their calls.
    pub(super) fn resolve(self, entries: Vec<Entry<'a>>, losses: &mut Losses) -> Vec<Entry<'a>> {
        let unordered = self.unordered;
        // Nearly every history is in order already.
        let mut entries = match self.waiting == 0 && self.orphans.is_empty() && !self.repeated {
            true => entries,
            false => self.mended(entries, losses),
        };
        if unordered {
            order_outputs(&mut entries);
        }
        entries
    }

    fn mended(self, entries: Vec<Entry<'a>>, losses: &mut Losses) -> Vec<Entry<'a>> {
        let mut pairing = Pairing {
            positions: positions(&entries),
            entries: entries.into_iter().map(Some).collect(),
            pairs: Vec::new(),
            unanswered: BTreeMap::new(),
            notes: Vec::new(),
            losses,
        };
        for group in &self.groups {
            pairing.group(group);
        }
        for orphan in self.orphans {
            pairing.orphan(orphan);
        }
        pairing.finish()
    }
}

fn order_outputs(entries: &mut [Entry<'_>]) {
    let calls = entries.iter().enumerate().filter_map(|(index, entry)| match entry {
        Entry::Call(call) => Some(((call.kind, call.call_id.to_string()), index)),
        _ => None,
    });
    let calls: HashMap<(CallKind, String), usize> = calls.collect();
    let call_of = |entry: &Entry<'_>| match entry {
        Entry::Output(output) => calls.get(&(output.kind, output.call_id.to_string())).copied(),
        _ => None,
    };
    let is_output = |entry: &Entry<'_>| matches!(entry, Entry::Output(_));
    for run in entries.chunk_by_mut(|one, next| is_output(one) && is_output(next)) {
        run.sort_by_cached_key(call_of);
    }
}

/// The position of an entry among the tool turns.
#[derive(Clone, Copy)]
struct TurnPosition {
    /// The tool turn of the entry, or the last one before it. The first one is 1.
    turn: usize,
    /// Whether it belongs to that turn.
    inside: bool,
}

/// A tool turn is a run of calls and the outputs after it. It ends at a message or a summary, and at reasoning or a
/// call after an output.
fn positions(entries: &[Entry<'_>]) -> Vec<TurnPosition> {
    let mut position = TurnPosition { turn: 0, inside: false };
    let mut answering = false;
    let next = |entry: &Entry<'_>| {
        match entry {
            Entry::Call(_) => {
                if !position.inside || answering {
                    position = TurnPosition { turn: position.turn + 1, inside: true };
                }
                answering = false;
            }
            Entry::Output(_) => {
                if !position.inside {
                    position = TurnPosition { turn: position.turn + 1, inside: true };
                }
                answering = true;
            }
            Entry::Message { .. } | Entry::Note(_) | Entry::Summary(_) => position.inside = false,
            Entry::Opaque(item) if matches!(item.kind, ItemKind::Compaction(_)) => position.inside = false,
            Entry::Reasoning(_) | Entry::Opaque(_) => position.inside &= !answering,
        }
        position
    };
    entries.iter().map(next).collect()
}

/// Entries while they are being paired.
struct Pairing<'a, 'l> {
    /// None for a removed entry.
    entries: Vec<Option<Entry<'a>>>,
    positions: Vec<TurnPosition>,
    /// Calls and their outputs.
    pairs: Vec<(usize, usize)>,
    /// Names of the calls without an output, by tool turn.
    unanswered: BTreeMap<usize, Vec<Cow<'a, str>>>,
    /// The notes at the end of tool turns.
    notes: Vec<(usize, Entry<'a>)>,
    losses: &'l mut Losses,
}

impl<'a> Pairing<'a, '_> {
    fn group(&mut self, group: &Group) {
        let Some(output) = group.output else {
            self.unanswered(group.call);
            return group.more_calls.iter().for_each(|call| self.unanswered(*call));
        };
        if group.more_calls.is_empty() && group.more_outputs.is_empty() {
            return self.pairs.push((group.call, output));
        }
        let calls: Vec<usize> = [group.call].into_iter().chain(group.more_calls.iter().copied()).collect();
        let outputs: Vec<usize> = [output].into_iter().chain(group.more_outputs.iter().copied()).collect();
        self.pair_repeated(calls, outputs);
    }

    /// Handles several calls before the first output, or several outputs, with one id.
    fn pair_repeated(&mut self, calls: Vec<usize>, outputs: Vec<usize>) {
        let one_turn = |indices: &[usize]| {
            let mut turns = indices.iter().map(|index| self.turn(*index));
            let first = turns.next();
            turns.all(|turn| Some(turn) == first)
        };
        let repetition = one_turn(&calls) && self.same_calls(&calls) && self.same_outputs(&outputs);
        if calls.len() == outputs.len() && !repetition {
            // Outputs of one turn have the order of their calls; otherwise each belongs to the nearest call.
            return match one_turn(&outputs) {
                true => self.pairs.extend(calls.into_iter().zip(outputs)),
                false => self.pairs.extend(calls.into_iter().rev().zip(outputs)),
            };
        }
        // Calls of an earlier turn had no output when the id was used again.
        let turn = calls.last().map(|call| self.turn(*call));
        let (calls, earlier): (Vec<usize>, Vec<usize>) =
            calls.into_iter().partition(|call| Some(self.turn(*call)) == turn);
        earlier.into_iter().for_each(|call| self.unanswered(call));
        let turn = outputs.first().map(|output| self.turn(*output));
        let (outputs, later): (Vec<usize>, Vec<usize>) =
            outputs.into_iter().partition(|output| Some(self.turn(*output)) == turn);
        let agreed = self.same_outputs(&outputs);
        // Further outputs are compared with the previous one.
        let mut previous = outputs.first().copied().filter(|_| agreed);
        if agreed && self.same_calls(&calls) {
            self.pairs.extend(calls.first().copied().zip(previous));
            calls.iter().skip(1).chain(outputs.iter().skip(1)).for_each(|index| drop(self.take(*index)));
        } else if calls.len() == outputs.len() {
            self.pairs.extend(calls.into_iter().zip(outputs));
        } else {
            self.conflict(&calls, &outputs);
            previous = None;
        }
        let mut repetitions = Vec::new();
        for output in later {
            match previous.is_some_and(|previous| self.same_outputs(&[previous, output])) {
                true => {
                    previous = Some(output);
                    repetitions.push(output);
                }
                false => self.further(output),
            }
        }
        repetitions.into_iter().for_each(|output| drop(self.take(output)));
    }

    // Neighbours are compared, so that the cost is linear in the length of the records.
    fn same_calls(&self, calls: &[usize]) -> bool {
        let calls: Vec<_> = calls.iter().filter_map(|call| self.call(*call)).collect();
        calls.iter().zip(calls.iter().skip(1)).all(|(one, other)| same_call(one, other))
    }

    fn same_outputs(&self, outputs: &[usize]) -> bool {
        let outputs: Vec<_> = outputs.iter().filter_map(|output| self.output(*output)).collect();
        outputs.iter().zip(outputs.iter().skip(1)).all(|(one, other)| same_output(one, other))
    }

    fn unanswered(&mut self, call: usize) {
        let turn = self.turn(call);
        if let Some(Entry::Call(call)) = self.take(call) {
            self.losses.add("input", "tool calls without an output were replaced by a note");
            self.unanswered.entry(turn).or_default().push(call.name);
        }
    }

    fn orphan(&mut self, output: usize) {
        self.losses.add("input", "a tool output without its call was sent as text");
        self.add_notes(output, render_orphan);
    }

    fn further(&mut self, output: usize) {
        self.losses.add("input", "a further output of a call that had one was sent as text");
        self.add_notes(output, render_further);
    }

    fn add_notes(&mut self, output: usize, render: impl FnOnce(&Output<'a>, &mut Vec<Entry<'a>>)) {
        let turn = self.turn(output);
        if let Some(Entry::Output(output)) = self.take(output) {
            let mut notes = Vec::new();
            render(&output, &mut notes);
            self.notes.extend(notes.into_iter().map(|note| (turn, note)));
        }
    }

    fn conflict(&mut self, calls: &[usize], outputs: &[usize]) {
        self.losses.add("input", "tool records that contradict each other were sent as text");
        let turn = outputs.last().map_or(0, |output| self.turn(*output));
        let mut notes = Vec::new();
        {
            let calls: Vec<&Call<'a>> = calls.iter().filter_map(|call| self.call(*call)).collect();
            let outputs: Vec<&Output<'a>> = outputs.iter().filter_map(|output| self.output(*output)).collect();
            render_conflict(&calls, &outputs, &mut notes);
        }
        self.notes.extend(notes.into_iter().map(|note| (turn, note)));
        calls.iter().chain(outputs).for_each(|index| drop(self.take(*index)));
    }

    /// Gives every pair a unique id and inserts the notes.
    fn finish(mut self) -> Vec<Entry<'a>> {
        self.rename();
        for (turn, names) in std::mem::take(&mut self.unanswered) {
            self.notes.push((turn, Entry::Note(unanswered_note(&names))));
        }
        // Stable: within a turn conflicts come first, then outputs without a call, then calls without an output.
        self.notes.sort_by_key(|(turn, _)| *turn);
        let mut notes = self.notes.into_iter().peekable();
        let mut entries = Vec::with_capacity(self.entries.len() + notes.len());
        for (entry, position) in self.entries.into_iter().zip(self.positions) {
            let is_past = |turn: usize| turn < position.turn || (turn == position.turn && !position.inside);
            while let Some((_, note)) = notes.next_if(|(turn, _)| is_past(*turn)) {
                entries.push(note);
            }
            entries.extend(entry);
        }
        entries.extend(notes.map(|(_, note)| note));
        entries
    }

    /// A pair whose id an earlier call has gets a new one, which is always the same.
    fn rename(&mut self) {
        let mut pairs = std::mem::take(&mut self.pairs);
        pairs.sort_unstable();
        let mut used: HashSet<Cow<'a, str>> = HashSet::with_capacity(pairs.len());
        let (mut turn, mut in_turn) = (0, 0);
        for (call, output) in pairs {
            let position = self.turn(call);
            in_turn = if position == turn { in_turn + 1 } else { 1 };
            turn = position;
            let Some(call_id) = self.call(call).map(|call| call.call_id.clone()) else { continue };
            if used.insert(call_id) {
                continue;
            }
            let mut fresh = format!("am_history_{turn}_{in_turn}");
            while !used.insert(Cow::Owned(fresh.clone())) {
                fresh.push('_');
            }
            if let Some(Some(Entry::Call(call))) = self.entries.get_mut(call) {
                (call.call_id, call.renamed) = (Cow::Owned(fresh.clone()), true);
            }
            if let Some(Some(Entry::Output(output))) = self.entries.get_mut(output) {
                (output.call_id, output.renamed) = (Cow::Owned(fresh), true);
            }
        }
    }

    fn turn(&self, index: usize) -> usize {
        self.positions.get(index).map_or(0, |position| position.turn)
    }

    fn call(&self, index: usize) -> Option<&Call<'a>> {
        match self.entries.get(index) {
            Some(Some(Entry::Call(call))) => Some(call),
            _ => None,
        }
    }

    fn output(&self, index: usize) -> Option<&Output<'a>> {
        match self.entries.get(index) {
            Some(Some(Entry::Output(output))) => Some(output),
            _ => None,
        }
    }

    fn take(&mut self, index: usize) -> Option<Entry<'a>> {
        self.entries.get_mut(index).and_then(Option::take)
    }
}
