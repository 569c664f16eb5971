//! Truncates a history: drops the oldest turns as a whole, and records their number as one loss.
//!
//! A turn starts at a user message and ends before the next. A message between a call and its output does not start a
//! turn, so dropping whole turns never splits a pair. Instructions, summaries, tools inside the history, and the last
//! turn are never dropped.

use amalgam_protocol::{Content, ItemKind, Part, PartKind, Role};

use super::{Entry, History};
use crate::{
    fault::{Fault, FaultKind},
    loss::Loss,
    model::TokenCount,
};

/// The percentage of the context window that is reserved for the answer if the caller does not set its length.
const ANSWER_PERCENT: u64 = 15;
/// Token counts are estimates: a prompt is refused without asking the upstream only if it exceeds the window by this
/// percentage.
const DOUBT_PERCENT: u64 = 25;

/// The longest end of a history within a token `budget`, turn by turn; none if the whole history fits, or nothing can
/// be dropped. `weigh` is called once for each instruction and each entry, in order.
///
/// Summaries are dropped only if nothing else can be.
pub fn fit<'a>(history: &History<'a>, budget: u64, mut weigh: impl FnMut(&Entry<'a>) -> u64) -> Option<History<'a>> {
    let instructions: u64 = history.instructions.iter().map(&mut weigh).fold(0, u64::saturating_add);
    let weights: Vec<u64> = history.entries.iter().map(weigh).collect();
    let mut total = weights.iter().fold(instructions, |sum, weight| sum.saturating_add(*weight));
    let turns = Turns::of(&history.entries);
    let mut dropped = 0;
    while total > budget && dropped < turns.droppable() {
        let range = turns.range(dropped);
        let entries = history.entries.iter().zip(&weights).take(range.end).skip(range.start);
        total = total.saturating_sub(entries.filter(|(entry, _)| !is_kept(entry)).map(|(_, weight)| *weight).sum());
        dropped += 1;
    }
    shortened(history, &turns, dropped, if total > budget { Summaries::Go } else { Summaries::Stay })
}

/// The number of turns of a history.
pub fn turns(history: &History<'_>) -> usize {
    Turns::of(&history.entries).0.len()
}

/// The history with only its latest turns, `turns_to_keep` of them and at least one; `None` if that is all of them.
///
/// For an upstream whose context window is not configured, and which only reports that a prompt is too long.
pub fn latest<'a>(history: &History<'a>, turns_to_keep: usize) -> Option<History<'a>> {
    let turns = Turns::of(&history.entries);
    shortened(history, &turns, turns.0.len().saturating_sub(turns_to_keep.max(1)), Summaries::Stay)
}

/// The part of a context window for the prompt: without the reserve for the answer.
pub fn room(window: u64, max_output_tokens: Option<u64>) -> u64 {
    let answer = max_output_tokens.unwrap_or(window.saturating_mul(ANSWER_PERCENT) / 100);
    // An answer that may be longer than the window must not leave no space for a prompt.
    window - answer.min(window / 2)
}

/// Refuses a prompt that exceeds the window even if the count is far too high. `shortens` says that the oldest turns
/// are dropped already.
pub fn refuse(count: TokenCount, window: u64, shortens: bool) -> Result<(), Fault> {
    // The token count of an image differs tenfold between upstreams, so images are not counted here.
    if count.text <= window.saturating_add(window.saturating_mul(DOUBT_PERCENT) / 100) {
        return Ok(());
    }
    let remedy = match shortens {
        true => "The oldest turns are left out already: send less in the last one, or fewer instructions and tools.",
        false => "Send less of it, or let the oldest turns be left out with `truncation` set to `auto`.",
    };
    let message =
        format!("The input has about {} tokens and the model's context window holds {window}. {remedy}", count.total());
    Err(Fault::new(FaultKind::ContextLength, message).param("input").code("context_length_exceeded"))
}

/// The countable content of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CountableText {
    /// All of its text.
    pub text: String,
    /// The number of images, files and the like.
    pub media: u64,
}

impl CountableText {
    /// The countable content of `entry`.
    pub fn of(entry: &Entry<'_>) -> Self {
        match entry {
            Entry::Message { content, .. } => Self::content(content),
            Entry::Note(text) | Entry::Summary(text) => Self { text: text.clone(), media: 0 },
            Entry::Call(call) => Self { text: format!("{} {}", call.name, call.payload.text()), media: 0 },
            Entry::Output(output) => Self::content(&output.content),
            // Sealed content is not text, and only its upstream knows its token count.
            Entry::Reasoning(item) => match &item.kind {
                ItemKind::Reasoning(reasoning) => {
                    let parts = reasoning.summary.0.iter().chain(&reasoning.content.0);
                    let texts: Vec<_> = parts.filter_map(Part::text).map(|text| text.decode()).collect();
                    Self { text: texts.join("\n"), media: 0 }
                }
                _ => Self::default(),
            },
            Entry::Opaque(item) => {
                let sealed = item.raw.get("encrypted_content").map_or(0, |content| content.text().len());
                let text = if sealed > 0 { "" } else { item.raw.text() };
                Self { text: text.to_owned(), media: 0 }
            }
        }
    }

    /// The number of tokens by a tokenizer.
    pub fn weight(&self, count_text: impl FnOnce(&str) -> u64) -> u64 {
        count_text(&self.text) + self.media * TokenCount::PER_MEDIA + TokenCount::PER_MESSAGE
    }

    fn content(content: &Content<'_>) -> Self {
        let is_media =
            |part: &&Part<'_>| !matches!(part.kind, PartKind::Text { .. } | PartKind::Refusal(_) | PartKind::Encrypted);
        let media = match content {
            Content::Parts(parts) => parts.iter().filter(is_media).count() as u64,
            Content::Text(_) | Content::Value(_) => 0,
        };
        Self { text: content.text().into_owned(), media }
    }
}

/// The ranges of turns, oldest first.
struct Turns(Vec<std::ops::Range<usize>>);

impl Turns {
    fn of(entries: &[Entry<'_>]) -> Self {
        let mut starts: Vec<usize> = Vec::new();
        let mut unanswered = 0_usize;
        for (index, entry) in entries.iter().enumerate() {
            match entry {
                Entry::Call(_) => unanswered += 1,
                Entry::Output(_) => unanswered = unanswered.saturating_sub(1),
                entry if unanswered == 0 && starts_turn(entry) => starts.push(index),
                _ => {}
            }
        }
        // Entries before the first user message are a turn of their own, unless none of them can be dropped.
        let head = starts.first().copied().unwrap_or(entries.len());
        if entries.iter().take(head).any(|entry| !is_kept(entry)) {
            starts.insert(0, 0);
        }
        let ends = starts.iter().skip(1).copied().chain([entries.len()]);
        Self(starts.iter().zip(ends).map(|(start, end)| *start..end).collect())
    }

    /// How many turns can be dropped: all but the last.
    fn droppable(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    fn range(&self, index: usize) -> std::ops::Range<usize> {
        self.0.get(index).cloned().unwrap_or_default()
    }
}

/// Whether an entry is a message that the user wrote. One without an item is a tool's output that this server appended.
fn starts_turn(entry: &Entry<'_>) -> bool {
    matches!(entry, Entry::Message { role: Role::User, item: Some(_), .. })
}

/// Whether an entry is kept when its turn is dropped.
fn is_kept(entry: &Entry<'_>) -> bool {
    match entry {
        Entry::Message { role, .. } => matches!(role, Role::System | Role::Developer),
        Entry::Opaque(item) => matches!(item.kind, ItemKind::AdditionalTools(_) | ItemKind::Compaction(_)),
        Entry::Summary(_) => true,
        Entry::Note(_) | Entry::Call(_) | Entry::Output(_) | Entry::Reasoning(_) => false,
    }
}

fn is_summary(entry: &Entry<'_>) -> bool {
    match entry {
        Entry::Summary(_) => true,
        Entry::Opaque(item) => matches!(item.kind, ItemKind::Compaction(_)),
        _ => false,
    }
}

/// How summaries before the last turn are handled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Summaries {
    Stay,
    Go,
}

fn shortened<'a>(history: &History<'a>, turns: &Turns, dropped: usize, summaries: Summaries) -> Option<History<'a>> {
    let cut = turns.range(dropped).start;
    let last_turn = turns.range(turns.droppable()).start;
    let goes = |index: usize, entry: &Entry<'a>| {
        (index < cut && !is_kept(entry)) || (summaries == Summaries::Go && index < last_turn && is_summary(entry))
    };
    let mut entries = Vec::with_capacity(history.entries.len());
    for (index, entry) in history.entries.iter().enumerate() {
        if !goes(index, entry) {
            entries.push(entry.clone());
        }
    }
    let items = history.entries.len() - entries.len();
    if items == 0 {
        return None;
    }
    let mut losses = history.losses.clone();
    losses.push(Loss::new("input", loss_reason(dropped, items)));
    Some(History { instructions: history.instructions.clone(), entries, losses })
}

fn loss_reason(turns: usize, items: usize) -> String {
    let plural = if items == 1 { "" } else { "s" };
    match turns {
        0 => "the summary of what came before was left out to fit the context window".to_owned(),
        1 => format!("the oldest turn ({items} item{plural}) was left out to fit the context window"),
        turns => format!("the {turns} oldest turns ({items} item{plural}) were left out to fit the context window"),
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
