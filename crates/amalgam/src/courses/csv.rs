//! Courses as CSV: RFC 4180, with what spreadsheets make of it (semicolons, tabs, any line end).

use serde_json::Value;

use super::{
    Row, RowFault,
    row::{Fields, LISTS, NAMES, shown},
};

/// What stands between the parts of a list, inside one field.
const PARTS: char = '|';

/// The rows behind the first, which names the fields.
pub(super) fn rows(text: &str) -> Result<impl Iterator<Item = Row>, RowFault> {
    let mut records = Records { text, at: 0, line: 1, delimiter: delimiter(text) };
    let Some((line, header)) = records.next() else {
        return Err(RowFault { line: 1, reason: "the file is empty".to_owned() });
    };
    let refuse = |reason: String| RowFault { line, reason };
    let names: Vec<String> = header.map_err(refuse)?.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    check(&names).map_err(refuse)?;
    Ok(records.map(move |(line, values)| (line, values.and_then(|values| fields(&names, values)))))
}

fn check(names: &[String]) -> Result<(), String> {
    for (index, name) in names.iter().enumerate() {
        if !NAMES.contains(&name.as_str()) {
            return Err(format!("`{}` is no field of a course; there are {}", shown(name), NAMES.join(", ")));
        }
        if names.iter().take(index).any(|earlier| earlier == name) {
            return Err(format!("`{name}` is there twice"));
        }
    }
    match ["id", "title"].into_iter().find(|needed| !names.iter().any(|name| name == needed)) {
        Some(missing) => Err(format!("the first line has to name the fields, and `{missing}` is not among them")),
        None => Ok(()),
    }
}

fn fields(names: &[String], values: Vec<String>) -> Result<Fields, String> {
    if values.len() != names.len() {
        return Err(format!("there are {} fields where the first line names {}", values.len(), names.len()));
    }
    let value = |name: &str, text: String| match LISTS.contains(&name) {
        true => text.split(PARTS).map(Value::from).collect(),
        false => Value::from(text),
    };
    Ok(names.iter().zip(values).map(|(name, text)| (name.clone(), value(name, text))).collect())
}

/// What the first line has most of.
fn delimiter(text: &str) -> u8 {
    let first = text.lines().next().unwrap_or_default();
    let count = |delimiter: &u8| first.bytes().filter(|byte| byte == delimiter).count();
    // Of equals the last one wins: a comma where there is none of any.
    [b'\t', b';', b','].into_iter().max_by_key(count).unwrap_or(b',')
}

/// Goes through a text record by record.
struct Records<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    delimiter: u8,
}

/// What a field ends with.
enum End {
    Field,
    Record,
}

impl Iterator for Records<'_> {
    type Item = (usize, Result<Vec<String>, String>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.peek()?;
            let line = self.line;
            match self.record() {
                // A line of nothing.
                Ok(fields) if matches!(fields.as_slice(), [only] if only.trim().is_empty()) => {}
                record => return Some((line, record)),
            }
        }
    }
}

impl Records<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn record(&mut self) -> Result<Vec<String>, String> {
        let mut fields = Vec::new();
        loop {
            let field = if self.peek() == Some(b'"') { self.quoted() } else { self.bare() };
            let read = field.and_then(|field| self.end().map(|end| (field, end)));
            match read {
                Ok((field, end)) => {
                    fields.push(field);
                    if matches!(end, End::Record) {
                        return Ok(fields);
                    }
                }
                Err(reason) => {
                    // The next line is worth another try.
                    while !matches!(self.peek(), None | Some(b'\n' | b'\r')) {
                        self.at += 1;
                    }
                    self.line_end();
                    return Err(reason);
                }
            }
        }
    }

    /// Up to the next delimiter or line end.
    fn bare(&mut self) -> Result<String, String> {
        let start = self.at;
        while !matches!(self.peek(), None | Some(b'\n' | b'\r')) && self.peek() != Some(self.delimiter) {
            self.at += 1;
        }
        let field = self.text.get(start..self.at).unwrap_or_default();
        match field.contains('"') {
            true => Err("a quote is inside a field that does not begin with one".to_owned()),
            false => Ok(field.to_owned()),
        }
    }

    /// Between quotes; two of them stand for one.
    fn quoted(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut field = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some((before, behind)) = rest.split_once('"') else {
                self.at = self.text.len();
                return Err("a quote is opened and never closed".to_owned());
            };
            self.line += line_ends(before);
            field.push_str(before);
            self.at += before.len() + 1;
            if !behind.starts_with('"') {
                return Ok(field);
            }
            field.push('"');
            self.at += 1;
        }
    }

    fn end(&mut self) -> Result<End, String> {
        match self.peek() {
            Some(byte) if byte == self.delimiter => {
                self.at += 1;
                Ok(End::Field)
            }
            None | Some(b'\n' | b'\r') => {
                self.line_end();
                Ok(End::Record)
            }
            Some(_) => Err("there is text behind a closing quote".to_owned()),
        }
    }

    /// Goes past a line end, if there is one.
    fn line_end(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with(['\n', '\r'])) };
        self.at += length;
        self.line += usize::from(length > 0);
    }
}

fn line_ends(text: &str) -> usize {
    let bytes = text.as_bytes();
    let lone = |index: usize| bytes.get(index + 1) != Some(&b'\n');
    bytes.iter().enumerate().filter(|(index, byte)| **byte == b'\n' || (**byte == b'\r' && lone(*index))).count()
}
