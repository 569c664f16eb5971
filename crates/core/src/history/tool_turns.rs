//! The order that Chat Completions and Messages upstreams require: outputs directly after their calls.
//!
//! Entries move as little as possible. A message between a call and its output moves after the output. The assistant's
//! text between a call and its output, or between calls of one answer, belongs to that answer and moves before its
//! first call; both APIs have them in the same message.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
};

use amalgam_protocol::{ItemKind, Role};

use super::{Entry, History};
use crate::toolset::CallKind;

impl<'a> History<'a> {
    /// The entries with the outputs of each run of calls directly after it. Borrowed if they have this order already.
    pub fn in_tool_turns(&self) -> Cow<'_, [Entry<'a>]> {
        match is_in_tool_turns(&self.entries) {
            true => Cow::Borrowed(&self.entries),
            false => Cow::Owned(arrangement(&self.entries)),
        }
    }
}

/// The role of an entry relative to the run of calls before it.
enum Part {
    Call,
    Output,
    /// Text of the assistant.
    AssistantText,
    /// Reasoning, and items that are allowed between calls.
    Between,
    /// An entry that ends the run.
    End,
}

impl Part {
    fn of(entry: &Entry<'_>) -> Self {
        match entry {
            Entry::Call(_) => Self::Call,
            Entry::Output(_) => Self::Output,
            Entry::Message { role: Role::Assistant, .. } => Self::AssistantText,
            Entry::Message { .. } | Entry::Note(_) | Entry::Summary(_) => Self::End,
            Entry::Opaque(item) if matches!(item.kind, ItemKind::Compaction(_)) => Self::End,
            Entry::Reasoning(_) | Entry::Opaque(_) => Self::Between,
        }
    }
}

/// Whether the outputs of each run of calls follow it directly, in the order of the calls.
fn is_in_tool_turns(entries: &[Entry<'_>]) -> bool {
    let mut open: VecDeque<(CallKind, &str)> = VecDeque::new();
    let mut answering = false;
    let mut trailing = false;
    for entry in entries {
        match Part::of(entry) {
            Part::Call if !open.is_empty() && answering => return false,
            Part::Call => {
                open.extend(id_of(entry));
                (answering, trailing) = (false, false);
            }
            Part::Output if trailing || open.pop_front() != id_of(entry) => return false,
            Part::Output => answering = true,
            Part::AssistantText | Part::End if !open.is_empty() => return false,
            Part::Between if !open.is_empty() && answering => return false,
            Part::Between => trailing = !open.is_empty(),
            Part::AssistantText | Part::End => {}
        }
    }
    true
}

/// The id that a call and its output share.
fn id_of<'e>(entry: &'e Entry<'_>) -> Option<(CallKind, &'e str)> {
    match entry {
        Entry::Call(call) => Some((call.kind, &*call.call_id)),
        Entry::Output(output) => Some((output.kind, &*output.call_id)),
        _ => None,
    }
}

fn arrangement<'a>(entries: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let outputs = entries.iter().filter_map(|entry| match entry {
        Entry::Output(output) => Some(((output.kind, &*output.call_id), entry)),
        _ => None,
    });
    let mut arrangement = Arrangement {
        entries: Vec::with_capacity(entries.len()),
        outputs: outputs.collect(),
        run: Vec::new(),
        assistant_text: Vec::new(),
        trailing: Vec::new(),
    };
    for entry in entries {
        match Part::of(entry) {
            Part::Call => {
                arrangement.run.append(&mut arrangement.trailing);
                arrangement.run.push(entry);
            }
            // The output is placed after its call.
            Part::Output => arrangement.close(),
            _ if arrangement.run.is_empty() => arrangement.entries.push(entry.clone()),
            Part::AssistantText => {
                arrangement.assistant_text.append(&mut arrangement.trailing);
                arrangement.assistant_text.push(entry);
            }
            Part::Between => arrangement.trailing.push(entry),
            Part::End => {
                arrangement.close();
                arrangement.entries.push(entry.clone());
            }
        }
    }
    arrangement.close();
    arrangement.entries
}

struct Arrangement<'e, 'a> {
    entries: Vec<Entry<'a>>,
    /// The output of every call.
    outputs: HashMap<(CallKind, &'e str), &'e Entry<'a>>,
    /// Calls that are not answered yet, and the entries between them.
    run: Vec<&'e Entry<'a>>,
    /// The assistant's text in the same answer, with its reasoning.
    assistant_text: Vec<&'e Entry<'a>>,
    /// The entries after the last call so far.
    trailing: Vec<&'e Entry<'a>>,
}

impl Arrangement<'_, '_> {
    fn close(&mut self) {
        // Reasoning after the last call led to none of them; no API accepts it between a call and its output.
        let before = self.assistant_text.drain(..).chain(self.trailing.drain(..));
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
