//! The order that Chat Completions and Messages upstreams demand: the outputs directly behind their calls.
//!
//! Everything moves by the smallest step. A message between a call and its output goes behind the output. Words of the
//! assistant between a call and its output, or between calls of one answer, are part of that answer and go before its first
//! call; both wires have them in the same message.

use std::{borrow::Cow, collections::HashMap};

use amalgam_protocol::{ItemKind, Role};

use super::{Entry, History};
use crate::toolset::CallKind;

impl<'a> History<'a> {
    /// The entries with the outputs of each run of calls directly behind it. Borrowed where they stand so already.
    pub fn in_tool_turns(&self) -> Cow<'_, [Entry<'a>]> {
        match is_in_tool_turns(&self.entries) {
            true => Cow::Borrowed(&self.entries),
            false => Cow::Owned(arranged(&self.entries)),
        }
    }
}

/// What an entry is to the run of calls before it.
enum Part {
    Call,
    Output,
    /// Words of the assistant.
    Words,
    /// Reasoning, and items that may stand between calls.
    Between,
    /// What ends the run.
    End,
}

impl Part {
    fn of(entry: &Entry<'_>) -> Self {
        match entry {
            Entry::Call(_) => Self::Call,
            Entry::Output(_) => Self::Output,
            Entry::Message { role: Role::Assistant, .. } => Self::Words,
            Entry::Message { .. } | Entry::Note(_) | Entry::Summary(_) => Self::End,
            Entry::Opaque(item) if matches!(item.kind, ItemKind::Compaction(_)) => Self::End,
            Entry::Reasoning(_) | Entry::Opaque(_) => Self::Between,
        }
    }
}

/// Since every call has one output behind it, counting is enough: outputs behind a run belong to it as long as all runs
/// before it are answered.
fn is_in_tool_turns(entries: &[Entry<'_>]) -> bool {
    let mut open = 0_usize;
    let mut answering = false;
    let mut trailing = false;
    for entry in entries {
        match Part::of(entry) {
            Part::Call if open > 0 && answering => return false,
            Part::Call => {
                open += 1;
                (answering, trailing) = (false, false);
            }
            Part::Output if trailing => return false,
            Part::Output => {
                open = open.saturating_sub(1);
                answering = true;
            }
            Part::Words | Part::End if open > 0 => return false,
            Part::Between if open > 0 && answering => return false,
            Part::Between => trailing = open > 0,
            Part::Words | Part::End => {}
        }
    }
    true
}

fn arranged<'a>(entries: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let outputs = entries.iter().filter_map(|entry| match entry {
        Entry::Output(output) => Some(((output.kind, &*output.call_id), entry)),
        _ => None,
    });
    let mut arranged = Arranged {
        entries: Vec::with_capacity(entries.len()),
        outputs: outputs.collect(),
        run: Vec::new(),
        words: Vec::new(),
        trailing: Vec::new(),
    };
    for entry in entries {
        match Part::of(entry) {
            Part::Call => {
                arranged.run.append(&mut arranged.trailing);
                arranged.run.push(entry);
            }
            // It has its place behind its call.
            Part::Output => arranged.close(),
            _ if arranged.run.is_empty() => arranged.entries.push(entry.clone()),
            Part::Words => {
                arranged.words.append(&mut arranged.trailing);
                arranged.words.push(entry);
            }
            Part::Between => arranged.trailing.push(entry),
            Part::End => {
                arranged.close();
                arranged.entries.push(entry.clone());
            }
        }
    }
    arranged.close();
    arranged.entries
}

struct Arranged<'e, 'a> {
    entries: Vec<Entry<'a>>,
    /// The output of every call.
    outputs: HashMap<(CallKind, &'e str), &'e Entry<'a>>,
    /// Calls that are not answered yet, and what stands between them.
    run: Vec<&'e Entry<'a>>,
    /// What the assistant said in the same answer, with the reasoning that led to it.
    words: Vec<&'e Entry<'a>>,
    /// What stands behind the last call so far.
    trailing: Vec<&'e Entry<'a>>,
}

impl Arranged<'_, '_> {
    fn close(&mut self) {
        // Reasoning behind the last call led to none of them; no wire takes it between a call and its output.
        let before = self.words.drain(..).chain(self.trailing.drain(..));
        self.entries.extend(before.cloned());
        self.entries.extend(self.run.iter().copied().cloned());
        for entry in self.run.drain(..) {
            if let Entry::Call(call) = entry {
                self.entries.extend(self.outputs.get(&(call.kind, &*call.call_id)).copied().cloned());
            }
        }
    }
}

#[cfg(test)]
#[path = "tool_turns_tests.rs"]
mod tests;
