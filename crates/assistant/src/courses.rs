//! Reads course files: every row becomes a course, or a fault with its line number.
//!
//! The caller decides whether a file with invalid rows is imported in part or not at all.

mod csv;
mod json;
mod row;

use std::{collections::HashMap, fmt, path::Path};

use amalgam_core::store::Course;

/// The sample courses: half of them English, half Indonesian.
pub const SAMPLE: &str = include_str!("../data/courses.json");

/// The maximum size of a file.
const FILE_BYTES: usize = 64 * 1024 * 1024;
/// The maximum number of courses in a file.
const MAX_COURSES: usize = 200_000;
/// The maximum number of reported faults.
const MAX_FAULTS: usize = 1_000;

/// The format of a course file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CourseFormat {
    /// A header row, then one row per course. `|` separates the elements of lists.
    Csv,
    /// An array of objects, or an object that has one under `courses`.
    Json,
}

impl CourseFormat {
    /// The format by the file's extension.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// A fault of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFault {
    /// The first line of the row, from 1.
    pub line: usize,
    /// The error message for the operator.
    pub reason: String,
}

impl fmt::Display for RowFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.reason)
    }
}

/// The content of a course file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CourseFile {
    /// The valid rows in order, without duplicate ids.
    pub courses: Vec<Course>,
    /// The invalid rows in order, up to a limit.
    pub faults: Vec<RowFault>,
    /// The number of further faults.
    pub omitted: usize,
}

impl CourseFile {
    fn refuse(&mut self, line: usize, reason: impl Into<String>) {
        match self.faults.len() < MAX_FAULTS {
            true => self.faults.push(RowFault { line, reason: reason.into() }),
            false => self.omitted += 1,
        }
    }
}

/// An unchecked row: its first line, and its fields or its error.
type Row = (usize, Result<row::Fields, String>);

/// Reads a file.
pub fn read(bytes: &[u8], format: CourseFormat) -> CourseFile {
    let mut file = CourseFile::default();
    let text = match text_of(bytes) {
        Ok(text) => text,
        Err(RowFault { line, reason }) => {
            file.refuse(line, reason);
            return file;
        }
    };
    let rows: Result<Box<dyn Iterator<Item = Row> + '_>, RowFault> = match format {
        CourseFormat::Csv => csv::rows(text).map(|rows| Box::new(rows) as _),
        CourseFormat::Json => json::rows(text).map(|rows| Box::new(rows) as _),
    };
    match rows {
        Ok(rows) => collect_rows(rows, &mut file),
        Err(RowFault { line, reason }) => file.refuse(line, reason),
    }
    file
}

fn collect_rows(rows: impl Iterator<Item = Row>, file: &mut CourseFile) {
    let mut lines: HashMap<i64, usize> = HashMap::new();
    for (line, fields) in rows {
        let course = match fields.and_then(|fields| row::course(&fields)) {
            Ok(course) => course,
            Err(reason) => {
                file.refuse(line, reason);
                continue;
            }
        };
        if let Some(first) = lines.insert(course.id, line) {
            file.refuse(line, format!("the number {} is on line {first} already", course.id));
            lines.insert(course.id, first);
            continue;
        }
        if file.courses.len() == MAX_COURSES {
            file.refuse(line, format!("a file has at most {MAX_COURSES} courses; split it"));
            return;
        }
        file.courses.push(course);
    }
}

/// The text of a file, without a byte order mark.
fn text_of(bytes: &[u8]) -> Result<&str, RowFault> {
    if bytes.len() > FILE_BYTES {
        let reason = format!("a file has at most {} MiB; split it", FILE_BYTES / 1024 / 1024);
        return Err(RowFault { line: 1, reason });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        RowFault { line, reason: "the file is not UTF-8 text from here on".to_owned() }
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

#[cfg(test)]
#[path = "courses_tests.rs"]
mod tests;
