//! The `[CONTEXT]` block of a turn: retrieved chunks of files for the model.
//!
//! The block and the list of sources always agree. A chunk cannot close its own fence or pass for another chunk: fences
//! are longer than any run of backticks inside, and names are on one line.

use std::{borrow::Cow, collections::HashSet};

pub use amalgam_knowledge::language_of;

/// The default number of chunks for a turn.
pub const DEFAULT_CHUNKS: usize = 8;

/// The number of candidates to retrieve for this many chunks.
pub fn candidates_for(chunks: usize) -> usize {
    chunks.saturating_mul(3).clamp(12, 50)
}

/// A chunk of a file that a search returned.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk<'a> {
    /// The id of the chunk.
    pub id: Cow<'a, str>,
    /// The file.
    pub path: Cow<'a, str>,
    /// The name of the symbol, such as a function.
    pub symbol: Option<Cow<'a, str>>,
    /// Its first line, from 1.
    pub start_line: u64,
    /// Its last line.
    pub end_line: u64,
    /// The language; derived from the path by default.
    pub language: Option<Cow<'a, str>>,
    /// The text of the chunk.
    pub content: Cow<'a, str>,
    /// The relevance; higher is better.
    pub score: f64,
}

/// A source of an answer: a chunk in its prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRef {
    /// The id of the chunk.
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
    /// `[CONTEXT]` and the chunks.
    pub text: String,
    /// Exactly the chunks in the block, in order.
    pub sources: Vec<SourceRef>,
    /// The number of chunks that did not fit.
    pub left_out: usize,
    /// Whether the only chunk was truncated to fit.
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

/// The best `max` chunks: best first, and only one per symbol of a path.
pub fn select<'a>(mut found: Vec<Chunk<'a>>, max: usize) -> Vec<Chunk<'a>> {
    found.sort_by(|left, right| right.score.total_cmp(&left.score));
    let mut seen = HashSet::new();
    found.retain(|chunk| {
        // Chunks without a symbol are distinguished by their first line.
        let part = match chunk.symbol.as_deref().map(str::trim).filter(|symbol| !symbol.is_empty()) {
            Some(symbol) => symbol.to_lowercase(),
            None => format!("\n{}", chunk.start_line),
        };
        seen.insert((chunk.path.to_lowercase(), part))
    });
    found.truncate(max);
    found
}

/// The block of these chunks in order, with at most `budget` tokens by `count`.
///
/// A chunk that does not fit is left out, and a smaller one after it may still fit. If none fits, the first one is
/// truncated after a line. Without chunks there is no block.
pub fn block(chunks: &[Chunk<'_>], budget: u64, count: impl Fn(&str) -> u64) -> Option<ContextBlock> {
    let mut rendered: Vec<(String, SourceRef)> = Vec::new();
    let mut used = count(HEADER);
    let filled: Vec<&Chunk<'_>> = chunks.iter().filter(|chunk| !chunk.content.trim().is_empty()).collect();
    for chunk in &filled {
        let chunk_text = render_chunk(chunk, rendered.len() + 1, &chunk.content);
        let cost = count(&chunk_text);
        if used.saturating_add(cost) <= budget {
            used = used.saturating_add(cost);
            rendered.push((chunk_text, source(chunk, &chunk.content)));
        }
    }
    // The tokens of the joined text are not always the sum of its parts.
    while !rendered.is_empty() && count(&joined(&rendered)) > budget {
        rendered.pop();
    }
    let cut = rendered.is_empty();
    if cut {
        rendered.push(filled.iter().find_map(|chunk| cut_to(chunk, budget, &count))?);
    }
    let (text, sources) = (joined(&rendered), rendered.into_iter().map(|(_, source)| source).collect::<Vec<_>>());
    Some(ContextBlock { text, left_out: filled.len() - sources.len(), sources, cut })
}

/// A blank line follows the header and every chunk.
const HEADER: &str = "[CONTEXT]\n\n";

fn joined(rendered: &[(String, SourceRef)]) -> String {
    let mut text = HEADER.to_owned();
    rendered.iter().for_each(|(chunk_text, _)| text.push_str(chunk_text));
    text
}

/// As many whole lines of a chunk as fit.
fn cut_to(chunk: &Chunk<'_>, budget: u64, count: impl Fn(&str) -> u64) -> Option<(String, SourceRef)> {
    let ends: Vec<usize> = chunk.content.match_indices('\n').map(|(at, _)| at).collect();
    let whole = |lines: usize| {
        let end = ends.get(lines.checked_sub(1)?)?;
        let content = chunk.content.get(..*end).filter(|content| !content.trim().is_empty())?;
        Some((render_chunk(chunk, 1, content), source(chunk, content)))
    };
    let fits = |lines: &usize| whole(*lines).is_none_or(|rendered| count(&joined(&[rendered])) <= budget);
    // More lines are never fewer tokens, so a binary search finds the limit.
    let (mut fitting, mut too_many) = (0, ends.len() + 1);
    while too_many - fitting > 1 {
        let middle = fitting.midpoint(too_many);
        match fits(&middle) {
            true => fitting = middle,
            false => too_many = middle,
        }
    }
    whole(fitting).filter(|rendered| count(&joined(std::slice::from_ref(rendered))) <= budget)
}

fn render_chunk(chunk: &Chunk<'_>, number: usize, content: &str) -> String {
    let source = source(chunk, content);
    let fence = fence(content);
    let tag: String = source
        .language
        .chars()
        .filter(|character| character.is_alphanumeric() || "+#-_.".contains(*character))
        .collect();
    let end = if content.ends_with('\n') { "" } else { "\n" };
    format!(
        "=== CHUNK {number} ===\nId: {}\nPath: {}\nLines: {}-{}\nLanguage: {}\n{fence}{tag}\n{content}{end}{fence}\n\n",
        source.id, source.path, source.start_line, source.end_line, source.language,
    )
}

/// Line numbers start at 1, and do not exceed the number of lines.
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

/// A run of backticks longer than any inside `content`; at least three.
pub fn fence(content: &str) -> String {
    let longest = content.split(|character| character != '`').map(str::len).max().unwrap_or_default();
    "`".repeat(longest.saturating_add(1).max(3))
}

/// Lines `start` to `end` of a file, from 1: the effective line numbers and the text.
///
/// Both numbers are clamped to existing lines; an end before the start becomes the start.
pub fn excerpt(text: &str, start: u64, end: u64) -> (u64, u64, &str) {
    let count = text.lines().count().max(1) as u64;
    let start = start.clamp(1, count);
    let end = end.clamp(start, count);
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let offset_of = |line: u64| usize::try_from(line).ok().and_then(|line| starts.get(line).copied());
    let from = offset_of(start - 1).unwrap_or_default();
    let to = offset_of(end).unwrap_or(text.len());
    let lines = text.get(from..to).unwrap_or_default();
    (start, end, lines.strip_suffix('\n').unwrap_or(lines))
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
