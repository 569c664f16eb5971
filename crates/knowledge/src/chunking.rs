//! Splits a document into chunks that can be found and read separately.
//!
//! A chunk consists of whole lines. It begins at a boundary: a heading, a declaration, or after a blank line. Without
//! such a boundary two chunks share a few lines, so that text at the split is complete in one of them. The time is
//! linear in the length of any text.

use std::{collections::HashMap, rc::Rc};

use amalgam_core::store::NewChunk;

use super::{declarations, words::words};

/// Has to change whenever the same text is chunked or described differently.
pub const CHUNKING_VERSION: u32 = 1;

/// The maximum number of lines and characters of a chunk.
const MAX_LINES: usize = 60;
const MAX_CHARS: usize = 2000;
/// From this size on, a chunk ends before the next declaration.
const GOOD_LINES: usize = 24;
const GOOD_CHARS: usize = 1000;
/// The lines that chunks share without a boundary, if that is at most a tenth of a chunk.
const SHARED_LINES: usize = 3;
const SHARED_CHARS: usize = MAX_CHARS / 10;
/// The maximum number of chunks of a document; the rest is left out.
const MAX_CHUNKS: usize = 1 << 16;
/// A NUL character in this prefix means that the document is not text.
const BINARY_CHECK_BYTES: usize = 8192;
const SYMBOL_CHARS: usize = 160;

/// The chunks of a document in order, with their words and without embeddings; none for a document without words or one
/// that is not text.
pub fn chunks(path: &str, language: &str, text: &str) -> Vec<NewChunk> {
    if text.bytes().take(BINARY_CHECK_BYTES).any(|byte| byte == 0) {
        return Vec::new();
    }
    // A byte order mark is not part of the text.
    let rows = rows(text.strip_prefix('\u{feff}').unwrap_or(text));
    let marks = match language {
        "markdown" => headings(&rows),
        _ => declarations(&rows, language),
    };
    let named = words(path.rsplit(['/', '\\']).next().unwrap_or(path));
    let mut symbols = Symbols::default();
    let mut chunks = Vec::new();
    let mut from = 0;
    while let Some(started) = marks.get(from..).and_then(|rest| rest.iter().position(|mark| !mark.blank)) {
        if chunks.len() == MAX_CHUNKS {
            break;
        }
        let begin = from + started;
        let (end, next) = end_of(&rows, &marks, begin);
        from = next;
        let (Some(rows), Some(marks)) = (rows.get(begin..end), marks.get(begin..end)) else { break };
        if let Some(chunk) = chunk(rows, &named, || symbols.of(marks)) {
            chunks.push(chunk);
        }
    }
    chunks
}

/// A line, or a part of one that is too long for a chunk.
struct Row<'a> {
    text: &'a str,
    chars: usize,
    /// The line number, from 1.
    line: u64,
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (line, mut text) in (1..).zip(text.lines()) {
        while let Some((end, _)) = text.char_indices().nth(MAX_CHARS) {
            let (most, _) = text.split_at(end);
            let good = |c: char| c.is_whitespace() || ";,}>".contains(c);
            let at = most.char_indices().rev().take(MAX_CHARS / 4).find(|(_, c)| good(*c));
            let (part, rest) = text.split_at(at.map_or(end, |(at, c)| at + c.len_utf8()));
            rows.push(Row { text: part, chars: part.chars().count(), line });
            text = rest;
        }
        rows.push(Row { text, chars: text.chars().count(), line });
    }
    rows
}

/// How well a chunk can begin at a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Border {
    None,
    /// After a blank line.
    Gap,
    /// After a blank line without indentation; or a declaration inside another.
    Part,
    /// A declaration.
    Declaration,
    /// A heading.
    Heading,
}

/// The analysis of a row.
struct Mark {
    blank: bool,
    border: Border,
    /// The declaration in this row with its parents, or a heading with those above it.
    declares: Option<Rc<str>>,
    /// The declaration around the row; shared by all of its rows, of which there may be many.
    within: Option<Rc<str>>,
}

fn declarations(rows: &[Row<'_>], language: &str) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::with_capacity(rows.len());
    // The enclosing declarations, with their indentation.
    let mut enclosing: Vec<(usize, String)> = Vec::new();
    let path = |enclosing: &[(usize, String)]| {
        let names: Vec<&str> = enclosing.iter().rev().take(3).rev().map(|(_, name)| name.as_str()).collect();
        (!names.is_empty()).then(|| Rc::from(names.join(".")))
    };
    let mut within: Option<Rc<str>> = None;
    for (at, row) in rows.iter().enumerate() {
        let trimmed = row.text.trim();
        let blank = trimmed.is_empty();
        let after_gap = at.checked_sub(1).and_then(|before| marks.get(before)).is_none_or(|before| before.blank);
        let indent = row.text.chars().take_while(|c| c.is_whitespace()).count();
        let mut border = match (blank, after_gap) {
            (false, true) if indent == 0 => Border::Part,
            (false, true) => Border::Gap,
            _ => Border::None,
        };
        let declared = if blank { None } else { declarations::name(language, trimmed) };
        let mut declares = None;
        if let Some(name) = declared {
            enclosing.retain(|(outer, _)| *outer < indent);
            enclosing.push((indent, symbol_text(name)));
            declares = path(&enclosing);
            within.clone_from(&declares);
            let own = if indent == 0 { Border::Declaration } else { Border::Part };
            // A declaration begins with the comments and attributes directly above it.
            let attached = |before: &usize| {
                let row = rows.get(*before).map_or("", |row| row.text.trim());
                declarations::is_attached(row)
            };
            let head = (0..at).rev().take(MAX_LINES / 2).take_while(attached).last();
            match head.and_then(|head| marks.get_mut(head)) {
                Some(head) => head.border = head.border.max(own),
                None => border = border.max(own),
            }
        } else if !blank && enclosing.last().is_some_and(|(outer, _)| *outer >= indent && !is_closing(trimmed)) {
            enclosing.retain(|(outer, _)| *outer < indent);
            within = path(&enclosing);
        }
        marks.push(Mark { blank, border, declares, within: within.clone() });
    }
    marks
}

/// Whether a line ends the enclosing declaration, or continues its head.
fn is_closing(trimmed: &str) -> bool {
    trimmed.starts_with(['}', ')', ']', '{']) || declarations::is_attached(trimmed) || trimmed == "end"
}

fn headings(rows: &[Row<'_>]) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::with_capacity(rows.len());
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut fence: Option<(char, usize)> = None;
    let mut within: Option<Rc<str>> = None;
    for (at, row) in rows.iter().enumerate() {
        let trimmed = row.text.trim();
        let blank = trimmed.is_empty();
        let after_gap = at.checked_sub(1).and_then(|before| marks.get(before)).is_none_or(|before| before.blank);
        let mut border = match (blank, after_gap) {
            (false, true) if fence.is_none() => Border::Part,
            (false, true) => Border::Gap,
            _ => Border::None,
        };
        let mut declares = None;
        let run = |c: char| trimmed.chars().take_while(|one| *one == c).count();
        match fence {
            Some((c, length)) => {
                if run(c) >= length && trimmed.trim_start_matches(c).is_empty() {
                    fence = None;
                }
            }
            None if run('`') >= 3 => fence = Some(('`', run('`'))),
            None if run('~') >= 3 => fence = Some(('~', run('~'))),
            None => {
                if let Some((level, title)) = heading(row.text) {
                    above.retain(|(outer, _)| *outer < level);
                    above.push((level, symbol_text(title)));
                    let titles: Vec<&str> = above.iter().map(|(_, title)| title.as_str()).collect();
                    within = Some(Rc::from(titles.join(" > ")));
                    declares.clone_from(&within);
                    // A heading directly below another one stays with it.
                    let alone = (0..at).rev().find(|before| marks.get(*before).is_some_and(|mark| !mark.blank));
                    let follows =
                        alone.and_then(|before| marks.get(before)).is_some_and(|mark| mark.declares.is_some());
                    border = if follows { Border::None } else { Border::Heading };
                }
            }
        }
        marks.push(Mark { blank, border, declares, within: within.clone() });
    }
    marks
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let rest = line.trim_start_matches('#');
    let title = rest.trim().trim_end_matches('#').trim_end();
    ((1..=6).contains(&level) && rest.starts_with([' ', '\t']) && !title.is_empty()).then_some((level, title))
}

/// The end of the chunk that begins at a row, and the beginning of the next one.
fn end_of(rows: &[Row<'_>], marks: &[Mark], begin: usize) -> (usize, usize) {
    let (mut lines, mut chars) = (0, 0);
    let mut best: Option<(Border, usize)> = None;
    for (at, (row, mark)) in rows.iter().zip(marks).enumerate().skip(begin) {
        let border = if at == begin { Border::None } else { mark.border };
        let good = lines >= GOOD_LINES || chars >= GOOD_CHARS;
        if border == Border::Heading || (border == Border::Declaration && good) {
            return (at, at);
        }
        let enough = lines >= MAX_LINES / 4 || chars >= MAX_CHARS / 4;
        if border > Border::None && enough && best.is_none_or(|(before, _)| border >= before) {
            best = Some((border, at));
        }
        if lines == MAX_LINES || (at > begin && chars + row.chars > MAX_CHARS) {
            if let Some((_, end)) = best {
                return (end, end);
            }
            let shared = rows.get(begin + 1..at).unwrap_or_default().iter().rev().take(SHARED_LINES);
            let mut room = SHARED_CHARS;
            let shared = shared.take_while(|shared| {
                let fits = shared.chars <= room && shared.line != row.line;
                room = room.saturating_sub(shared.chars);
                fits
            });
            return (at, at - shared.count());
        }
        lines += 1;
        chars += row.chars + 1;
    }
    (rows.len(), rows.len())
}

/// The chunk of these rows; none if it has no words.
fn chunk(rows: &[Row<'_>], named: &[String], symbol: impl FnOnce() -> Option<String>) -> Option<NewChunk> {
    let filled = rows.iter().rposition(|row| !row.text.trim().is_empty())?;
    let rows = rows.get(..=filled)?;
    let (first, last) = (rows.first()?, rows.last()?);
    let mut content = String::with_capacity(rows.iter().map(|row| row.text.len() + 1).sum());
    let mut line = first.line;
    for row in rows {
        if row.line != line {
            content.push('\n');
            line = row.line;
        }
        content.push_str(row.text);
    }
    let mut found = words(&content);
    if found.is_empty() {
        return None;
    }
    let symbol = symbol();
    found.extend(words(symbol.as_deref().unwrap_or_default()));
    found.extend_from_slice(named);
    Some(NewChunk { symbol, start_line: first.line, end_line: last.line, content, words: found, embedding: None })
}

/// The text, truncated to the maximum length of a symbol.
fn symbol_text(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SYMBOL_CHARS).collect()
}

/// The symbols of a document's chunks, which are unique regardless of case.
#[derive(Default)]
struct Symbols(HashMap<String, u32>);

impl Symbols {
    fn of(&mut self, marks: &[Mark]) -> Option<String> {
        let declared = marks.iter().find_map(|mark| mark.declares.as_ref());
        let symbol = declared.or_else(|| marks.first().and_then(|mark| mark.within.as_ref()))?;
        let symbol = symbol_text(symbol);
        let count = self.0.entry(symbol.to_lowercase()).or_default();
        *count += 1;
        Some(if *count == 1 { symbol } else { format!("{symbol} ({count})") })
    }
}

#[cfg(test)]
#[path = "chunking_tests.rs"]
mod tests;
