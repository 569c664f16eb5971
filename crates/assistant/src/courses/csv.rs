//! Courses as CSV: RFC 4180 and the variants that spreadsheets write (semicolons, tabs, any line ending).

use serde_json::Value;

use super::{
    Row, RowFault,
    row::{Columns, Fields, LISTS, shown},
};

/// Separates the elements of a list inside one field.
const LIST_SEPARATOR: char = '|';

const LINE_ENDS: [char; 2] = ['\r', '\n'];

/// The rows after the header row.
pub(super) fn rows(text: &str, columns: Columns) -> Result<impl Iterator<Item = Row>, RowFault> {
    let mut records = Records::new(text);
    let Some((line, header)) = records.next() else {
        return Err(RowFault { line: 1, reason: "the file is empty".to_owned() });
    };
    let refuse = |reason: String| RowFault { line, reason };
    let names: Vec<String> = header.map_err(refuse)?.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    check(&names, columns).map_err(refuse)?;
    Ok(records.map(move |(line, values)| (line, values.and_then(|values| fields(&names, values)))))
}

fn check(names: &[String], columns: Columns) -> Result<(), String> {
    for (index, name) in names.iter().enumerate() {
        if !columns.names.contains(&name.as_str()) {
            return Err(format!("unknown field `{}`; known fields are {}", shown(name), columns.names.join(", ")));
        }
        if names.iter().take(index).any(|earlier| earlier == name) {
            return Err(format!("`{name}` appears twice"));
        }
    }
    match columns.needed.iter().find(|needed| !names.iter().any(|name| name == *needed)) {
        Some(missing) => Err(format!("the first line has to name the fields, and `{missing}` is not among them")),
        None => Ok(()),
    }
}

fn fields(names: &[String], values: Vec<String>) -> Result<Fields, String> {
    if values.len() != names.len() {
        return Err(format!("there are {} fields where the first line names {}", values.len(), names.len()));
    }
    let value = |name: &str, text: String| match LISTS.contains(&name) {
        true => text.split(LIST_SEPARATOR).map(Value::from).collect(),
        false => Value::from(text),
    };
    Ok(names.iter().zip(values).map(|(name, text)| (name.clone(), value(name, text))).collect())
}

/// The most frequent candidate in the first line.
fn delimiter(text: &str) -> u8 {
    let first = text.lines().next().unwrap_or_default();
    let count = |delimiter: &u8| first.bytes().filter(|byte| byte == delimiter).count();
    // The last one wins a tie: without any candidate it is a comma.
    [b'\t', b';', b','].into_iter().max_by_key(count).unwrap_or(b',')
}

/// Iterates over the records of a text.
struct Records<'a> {
    text: &'a str,
    reader: csv::Reader<&'a [u8]>,
    delimiter: char,
    /// The position up to which line endings are counted, and its line number.
    at: usize,
    line: usize,
}

impl<'a> Records<'a> {
    fn new(text: &'a str) -> Self {
        let delimiter = delimiter(text);
        let reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .has_headers(false)
            // The number of fields is checked below, with a better message.
            .flexible(true)
            .from_reader(text.as_bytes());
        Self { text, reader, delimiter: char::from(delimiter), at: 0, line: 1 }
    }

    /// The line number of a record. `csv` counts only line feeds, but spreadsheets also end lines with a single
    /// carriage return.
    fn line_at(&mut self, start: usize) -> usize {
        self.line += line_ends(self.text.get(self.at..start).unwrap_or_default());
        self.at = start;
        self.line
    }
}

impl Iterator for Records<'_> {
    type Item = (usize, Result<Vec<String>, String>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut record = csv::StringRecord::new();
        loop {
            let start = self.reader.position().byte() as usize;
            match self.reader.read_record(&mut record) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some((self.line_at(start), Err(error.to_string()))),
            }
            let end = self.reader.position().byte() as usize;
            let with_line_ends = self.text.get(start..end).unwrap_or_default();
            // Skips the rest of the last line ending, and empty lines.
            let written = with_line_ends.trim_start_matches(LINE_ENDS);
            let line = self.line_at(start + with_line_ends.len() - written.len());
            let fields: Vec<String> = record.iter().map(str::to_owned).collect();
            // Skips blank lines.
            if !matches!(fields.as_slice(), [only] if only.trim().is_empty()) {
                return Some((line, check_quotes(written, self.delimiter).map(|()| fields)));
            }
        }
    }
}

/// Refuses a record with quotes where RFC 4180 allows none. `csv` accepts them, and would import a course with half of
/// the next one in its description.
fn check_quotes(record: &str, delimiter: char) -> Result<(), String> {
    let mut rest = record;
    loop {
        let rest_of_line = match rest.strip_prefix('"') {
            Some(quoted) => {
                let end = closing_quote(quoted).ok_or("a quote is opened and never closed")?;
                quoted.get(end + 1..).unwrap_or_default()
            }
            None => {
                let (field, rest_of_line) = rest.split_at(rest.find([delimiter, '\n', '\r']).unwrap_or(rest.len()));
                if field.contains('"') {
                    return Err("a quote is inside a field that does not begin with one".to_owned());
                }
                rest_of_line
            }
        };
        match rest_of_line.strip_prefix(delimiter) {
            Some(next) => rest = next,
            None if rest_of_line.is_empty() || rest_of_line.starts_with(LINE_ENDS) => return Ok(()),
            None => return Err("there is text behind a closing quote".to_owned()),
        }
    }
}

/// The position of the quote that ends a field; two quotes are an escaped one.
fn closing_quote(quoted: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        at += quoted.get(at..)?.find('"')?;
        if !quoted.get(at + 1..)?.starts_with('"') {
            return Some(at);
        }
        at += 2;
    }
}

fn line_ends(text: &str) -> usize {
    let bytes = text.as_bytes();
    let lone = |index: usize| bytes.get(index + 1) != Some(&b'\n');
    bytes.iter().enumerate().filter(|(index, byte)| **byte == b'\n' || (**byte == b'\r' && lone(*index))).count()
}
