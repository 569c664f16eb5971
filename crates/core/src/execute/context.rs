//! The `[CONTEXT]` block of a turn: pieces of files that were found, as a model reads them.
//!
//! The block and the list of sources always agree. A chunk cannot end its own fence or pass
//! for another piece: fences are longer than any run of backticks inside, and names stand on one line.

use std::{borrow::Cow, collections::HashSet};

pub use crate::knowledge::language_of;

/// The default number of chunks for a turn.
pub const DEFAULT_CHUNKS: usize = 8;

/// How many candidates are looked at for so many pieces.
pub fn candidates_for(chunks: usize) -> usize {
    chunks.saturating_mul(3).clamp(12, 50)
}

/// A chunk of a file that a search returned.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk<'a> {
    /// What it is known by.
    pub id: Cow<'a, str>,
    /// The file.
    pub path: Cow<'a, str>,
    /// What it is in the file, such as a function's name.
    pub symbol: Option<Cow<'a, str>>,
    /// Its first line, from 1.
    pub start_line: u64,
    /// Its last line.
    pub end_line: u64,
    /// The language; derived from the path by default.
    pub language: Option<Cow<'a, str>>,
    /// What is in it.
    pub content: Cow<'a, str>,
    /// How well it fits; more is better.
    pub score: f64,
}

/// The reference of an answer to a chunk in its prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRef {
    /// What it is known by.
    pub id: String,
    /// The file.
    pub path: String,
    /// Its first line, from 1.
    pub start_line: u64,
    /// Its last line.
    pub end_line: u64,
    /// Its language.
    pub language: String,
}

/// A context block for the prompt; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextBlock {
    /// `[CONTEXT]` and the pieces.
    pub text: String,
    /// Exactly the pieces in it, in their order.
    pub sources: Vec<SourceRef>,
    /// How many pieces had no room.
    pub left_out: usize,
    /// Whether its only piece had to be cut to have room.
    pub cut: bool,
}

impl ContextBlock {
    /// The warning for the answer, if not everything fitted.
    pub fn warning(&self) -> Option<String> {
        match (self.left_out, self.cut) {
            (0, false) => None,
            (0, true) => Some("context was truncated: a chunk was cut to fit".to_owned()),
            (left_out, false) => Some(format!("context was truncated: chunks without room: {left_out}")),
            (left_out, true) => {
                Some(format!("context was truncated: a chunk was cut to fit, chunks without room: {left_out}"))
            }
        }
    }
}

/// The best `most` of what was found: best first, and only one for each symbol of a path.
pub fn select<'a>(mut found: Vec<Chunk<'a>>, most: usize) -> Vec<Chunk<'a>> {
    found.sort_by(|one, other| other.score.total_cmp(&one.score));
    let mut seen = HashSet::new();
    found.retain(|chunk| {
        // Pieces of a file that have no names are told apart by where they begin.
        let part = match chunk.symbol.as_deref().map(str::trim).filter(|symbol| !symbol.is_empty()) {
            Some(symbol) => symbol.to_lowercase(),
            None => format!("\n{}", chunk.start_line),
        };
        seen.insert((chunk.path.to_lowercase(), part))
    });
    found.truncate(most);
    found
}

/// The block of these pieces in their order, as long as it has at most `budget` tokens by `count`.
///
/// A piece that has no room is left out, and a smaller one behind it may still have some. If not even one has room, the
/// first is cut behind a line. Without any piece there is no block.
pub fn block(chunks: &[Chunk<'_>], budget: u64, count: impl Fn(&str) -> u64) -> Option<ContextBlock> {
    let mut pieces: Vec<(String, SourceRef)> = Vec::new();
    let mut used = count(HEADER);
    let filled: Vec<&Chunk<'_>> = chunks.iter().filter(|chunk| !chunk.content.trim().is_empty()).collect();
    for chunk in &filled {
        let piece = piece(chunk, pieces.len() + 1, &chunk.content);
        let cost = count(&piece);
        if used.saturating_add(cost) <= budget {
            used = used.saturating_add(cost);
            pieces.push((piece, source(chunk, &chunk.content)));
        }
    }
    // Tokens of a whole are not always those of its parts.
    while !pieces.is_empty() && count(&joined(&pieces)) > budget {
        pieces.pop();
    }
    let cut = pieces.is_empty();
    if cut {
        pieces.push(filled.iter().find_map(|chunk| cut_to(chunk, budget, &count))?);
    }
    let (text, sources) = (joined(&pieces), pieces.into_iter().map(|(_, source)| source).collect::<Vec<_>>());
    Some(ContextBlock { text, left_out: filled.len() - sources.len(), sources, cut })
}

/// One blank line stands behind it, and behind every piece.
const HEADER: &str = "[CONTEXT]\n\n";

fn joined(pieces: &[(String, SourceRef)]) -> String {
    let mut text = HEADER.to_owned();
    pieces.iter().for_each(|(piece, _)| text.push_str(piece));
    text
}

/// As many whole lines of a piece as have room.
fn cut_to(chunk: &Chunk<'_>, budget: u64, count: impl Fn(&str) -> u64) -> Option<(String, SourceRef)> {
    let ends: Vec<usize> = chunk.content.match_indices('\n').map(|(at, _)| at).collect();
    let whole = |lines: usize| {
        let end = ends.get(lines.checked_sub(1)?)?;
        let content = chunk.content.get(..*end).filter(|content| !content.trim().is_empty())?;
        Some((piece(chunk, 1, content), source(chunk, content)))
    };
    let fits = |lines: &usize| whole(*lines).is_none_or(|piece| count(&joined(&[piece])) <= budget);
    // More lines are never fewer tokens, so that the place is found by halving.
    let (mut most, mut too_many) = (0, ends.len() + 1);
    while too_many - most > 1 {
        let middle = most.midpoint(too_many);
        match fits(&middle) {
            true => most = middle,
            false => too_many = middle,
        }
    }
    whole(most).filter(|piece| count(&joined(std::slice::from_ref(piece))) <= budget)
}

fn piece(chunk: &Chunk<'_>, number: usize, content: &str) -> String {
    let source = source(chunk, content);
    let fence = fence(content);
    let tag: String = source.language.chars().filter(|one| one.is_alphanumeric() || "+#-_.".contains(*one)).collect();
    let end = if content.ends_with('\n') { "" } else { "\n" };
    format!(
        "=== CHUNK {number} ===\nId: {}\nPath: {}\nLines: {}-{}\nLanguage: {}\n{fence}{tag}\n{content}{end}{fence}\n\n",
        source.id, source.path, source.start_line, source.end_line, source.language,
    )
}

/// Lines begin at 1, and there are never more of them than the content has.
fn source(chunk: &Chunk<'_>, content: &str) -> SourceRef {
    let lines = content.lines().count().max(1) as u64;
    let start_line = chunk.start_line.max(1);
    let language = chunk.language.as_deref().map(one_line).filter(|language| !language.trim().is_empty());
    SourceRef {
        id: one_line(&chunk.id),
        path: one_line(&chunk.path),
        start_line,
        end_line: chunk.end_line.clamp(start_line, start_line.saturating_add(lines - 1)),
        language: language.unwrap_or_else(|| language_of(&chunk.path).to_owned()),
    }
}

fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Backticks that no run inside `content` is as long as; three at least.
pub fn fence(content: &str) -> String {
    let longest = content.split(|one| one != '`').map(str::len).max().unwrap_or_default();
    "`".repeat(longest.saturating_add(1).max(3))
}

/// Lines `start` to `end` of a file, from 1: where they really are, and what is in them.
///
/// Both are held to the lines that there are; an end before its start is the start.
pub fn excerpt(text: &str, start: u64, end: u64) -> (u64, u64, &str) {
    let count = text.lines().count().max(1) as u64;
    let start = start.clamp(1, count);
    let end = end.clamp(start, count);
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let place = |line: u64| usize::try_from(line).ok().and_then(|line| starts.get(line).copied());
    let from = place(start - 1).unwrap_or_default();
    let to = place(end).unwrap_or(text.len());
    let lines = text.get(from..to).unwrap_or_default();
    (start, end, lines.strip_suffix('\n').unwrap_or(lines))
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
