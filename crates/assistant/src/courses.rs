//! Reads course files: every row becomes a course, or a fault with its line number.
//!
//! The caller decides whether a file with invalid rows is imported in part or not at all.

mod csv;
mod json;
mod row;

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    hash::Hash,
    path::Path,
};

use amalgam_core::store::{Course, LearnerCourse};
use serde_json::{Map, Value};

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

/// The content of a file of what learners have of courses.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LearnerFile {
    /// The valid rows in order, each user and course once.
    pub courses: Vec<LearnerCourse>,
    /// The invalid rows in order, up to a limit.
    pub faults: Vec<RowFault>,
    /// The number of further faults.
    pub omitted: usize,
}

/// An unchecked row: its first line, and its fields or its error.
type Row = (usize, Result<row::Fields, String>);

/// Reads a file of courses.
pub fn read(bytes: &[u8], format: CourseFormat) -> CourseFile {
    let read = read_rows(
        bytes,
        format,
        row::COURSE,
        row::course,
        |course| course.id,
        |course| format!("number {}", course.id),
    );
    CourseFile { courses: read.rows, faults: read.faults, omitted: read.omitted }
}

/// Reads a file of what learners have of courses, as of a time.
pub fn read_learners(bytes: &[u8], format: CourseFormat, now_ms: u64) -> LearnerFile {
    let parse =
        |fields: &row::Fields| row::learner_course(fields).map(|one| LearnerCourse { updated_at_ms: now_ms, ..one });
    let key = |one: &LearnerCourse| (one.user.clone(), one.course_id);
    let name = |one: &LearnerCourse| format!("course {} of the user {}", one.course_id, one.user);
    let read = read_rows(bytes, format, row::LEARNER, parse, key, name);
    LearnerFile { courses: read.rows, faults: read.faults, omitted: read.omitted }
}

/// The course that a JSON object describes, by the rules for the rows of a file; the error names the fields.
pub fn course_of(fields: &Map<String, Value>) -> Result<Course, String> {
    row::course(fields)
}

/// What a learner has of a course, from a JSON object, as of a time; the error names the fields.
pub fn learner_course_of(fields: &Map<String, Value>, now_ms: u64) -> Result<LearnerCourse, String> {
    row::learner_course(fields).map(|one| LearnerCourse { updated_at_ms: now_ms, ..one })
}

/// The rows of any file.
struct RowFile<T> {
    rows: Vec<T>,
    faults: Vec<RowFault>,
    omitted: usize,
}

impl<T> RowFile<T> {
    fn refuse(&mut self, line: usize, reason: impl Into<String>) {
        match self.faults.len() < MAX_FAULTS {
            true => self.faults.push(RowFault { line, reason: reason.into() }),
            false => self.omitted += 1,
        }
    }
}

/// Reads the rows of a file, each with another key.
fn read_rows<T, K: Hash + Eq>(
    bytes: &[u8],
    format: CourseFormat,
    columns: row::Columns,
    parse: impl Fn(&row::Fields) -> Result<T, String>,
    key: impl Fn(&T) -> K,
    name: impl Fn(&T) -> String,
) -> RowFile<T> {
    let mut file = RowFile { rows: Vec::new(), faults: Vec::new(), omitted: 0 };
    let text = match text_of(bytes) {
        Ok(text) => text,
        Err(RowFault { line, reason }) => {
            file.refuse(line, reason);
            return file;
        }
    };
    let rows: Result<Box<dyn Iterator<Item = Row> + '_>, RowFault> = match format {
        CourseFormat::Csv => csv::rows(text, columns).map(|rows| Box::new(rows) as _),
        CourseFormat::Json => json::rows(text).map(|rows| Box::new(rows) as _),
    };
    let rows = match rows {
        Ok(rows) => rows,
        Err(RowFault { line, reason }) => {
            file.refuse(line, reason);
            return file;
        }
    };
    let mut lines: HashMap<K, usize> = HashMap::new();
    for (line, fields) in rows {
        let row = match fields.and_then(|fields| parse(&fields)) {
            Ok(row) => row,
            Err(reason) => {
                file.refuse(line, reason);
                continue;
            }
        };
        match lines.entry(key(&row)) {
            Entry::Occupied(first) => {
                file.refuse(line, format!("the {} is on line {} already", name(&row), first.get()));
                continue;
            }
            Entry::Vacant(free) => drop(free.insert(line)),
        }
        if file.rows.len() == MAX_COURSES {
            file.refuse(line, format!("a file has at most {MAX_COURSES} rows; split it"));
            return file;
        }
        file.rows.push(row);
    }
    file
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
