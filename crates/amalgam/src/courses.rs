//! Reads files of courses: every row becomes a course or a reason, with the line that it begins on.
//!
//! Pure. The command decides whether a file with invalid rows is imported in part or not at all.

mod csv;
mod json;
mod row;

use std::{collections::HashMap, fmt, path::Path};

use amalgam_core::store::Course;

/// The courses that come with the program: half of them English, half Indonesian.
pub(crate) const SAMPLE: &str = include_str!("../data/courses.json");

/// A file larger than this is no catalogue.
const FILE_BYTES: usize = 64 * 1024 * 1024;
/// The most courses of one file.
const MOST_COURSES: usize = 200_000;
/// The most faults that are told one by one.
const MOST_FAULTS: usize = 1_000;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// A row of names, then one row a course. Lists have `|` between their parts.
    Csv,
    /// An array of objects, or an object with one under `courses`.
    Json,
}

impl Format {
    /// By the ending of the file's name.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowFault {
    /// Where it begins, counted from one.
    pub(crate) line: usize,
    pub(crate) reason: String,
}

impl fmt::Display for RowFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.reason)
    }
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Contents {
    /// The good rows, in order, each number once.
    pub(crate) courses: Vec<Course>,
    /// The others, in order, as far as they are told.
    pub(crate) faults: Vec<RowFault>,
    /// How many more there are.
    pub(crate) untold: usize,
}

impl Contents {
    fn refuse(&mut self, line: usize, reason: impl Into<String>) {
        match self.faults.len() < MOST_FAULTS {
            true => self.faults.push(RowFault { line, reason: reason.into() }),
            false => self.untold += 1,
        }
    }
}

/// A row before it is known to be a course: where it begins, and its fields or what is wrong with it.
type Row = (usize, Result<row::Fields, String>);

/// Reads a file.
pub(crate) fn read(bytes: &[u8], format: Format) -> Contents {
    let mut contents = Contents::default();
    let text = match text_of(bytes) {
        Ok(text) => text,
        Err(RowFault { line, reason }) => {
            contents.refuse(line, reason);
            return contents;
        }
    };
    let rows: Result<Box<dyn Iterator<Item = Row> + '_>, RowFault> = match format {
        Format::Csv => csv::rows(text).map(|rows| Box::new(rows) as _),
        Format::Json => json::rows(text).map(|rows| Box::new(rows) as _),
    };
    match rows {
        Ok(rows) => gather(rows, &mut contents),
        Err(RowFault { line, reason }) => contents.refuse(line, reason),
    }
    contents
}

fn gather(rows: impl Iterator<Item = Row>, contents: &mut Contents) {
    let mut lines: HashMap<i64, usize> = HashMap::new();
    for (line, fields) in rows {
        let course = match fields.and_then(|fields| row::course(&fields)) {
            Ok(course) => course,
            Err(reason) => {
                contents.refuse(line, reason);
                continue;
            }
        };
        if let Some(first) = lines.insert(course.id, line) {
            contents.refuse(line, format!("the number {} is on line {first} already", course.id));
            lines.insert(course.id, first);
            continue;
        }
        if contents.courses.len() == MOST_COURSES {
            contents.refuse(line, format!("a file has at most {MOST_COURSES} courses; split it"));
            return;
        }
        contents.courses.push(course);
    }
}

/// The text of a file, without the mark that some programs put before it.
fn text_of(bytes: &[u8]) -> Result<&str, RowFault> {
    if bytes.len() > FILE_BYTES {
        let reason = format!("a file has at most {} MiB; split it", FILE_BYTES / 1024 / 1024);
        return Err(RowFault { line: 1, reason });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        RowFault { line, reason: "the file is not UTF-8 text from here on".to_owned() }
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

#[cfg(test)]
#[path = "courses_tests.rs"]
mod tests;
