//! Rows that are copied from one engine to another: the columns of the target, the form of a row, and digests for
//! comparison.
//!
//! A row is a line of text as PostgreSQL's `COPY` reads and writes it. The digest of a table is the sum of the SHA-256
//! of its rows, so that it does not depend on their order.

use amalgam_core::hex;
use sha2::{Digest as _, Sha256};

/// A table of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferTable {
    /// Its name, in both engines.
    pub name: String,
    /// Its columns.
    pub columns: Vec<TransferColumn>,
}

/// A column of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferColumn {
    /// Its name.
    pub name: String,
    /// The form of its values.
    pub form: ColumnForm,
}

/// The form of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnForm {
    /// A number.
    Integer,
    /// A truth value.
    Boolean,
    /// A number with a fraction.
    Real,
    /// A text.
    Text,
    /// Bytes.
    Bytes,
    /// The index words of a row: derived from the row, and not compared.
    Words,
}

/// A value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TransferValue<'a> {
    /// No value.
    Null,
    /// A number or a truth value.
    Integer(i64),
    /// A number with a fraction.
    Real(f64),
    /// A text, or bytes.
    Bytes(&'a [u8]),
}

/// The purpose of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinePurpose {
    /// The line is written to the target.
    Load,
    /// The line is compared with the target.
    Compare,
}

/// Appends a value to a line, after a tab if it is not the first one.
pub fn push_value(line: &mut Vec<u8>, form: ColumnForm, value: TransferValue<'_>, purpose: LinePurpose) {
    if purpose == LinePurpose::Compare && form == ColumnForm::Words {
        return;
    }
    if !line.is_empty() {
        line.push(b'\t');
    }
    match (form, value) {
        (_, TransferValue::Null) => line.extend_from_slice(b"\\N"),
        (ColumnForm::Boolean, TransferValue::Integer(truth)) => line.push(if truth == 0 { b'f' } else { b't' }),
        (ColumnForm::Real, number) if purpose == LinePurpose::Compare => {
            let number = match number {
                TransferValue::Real(number) => number,
                #[expect(clippy::cast_precision_loss, reason = "the target has it as a float, too")]
                TransferValue::Integer(number) => number as f64,
                _ => f64::NAN,
            };
            push_bytes(line, &number.to_be_bytes());
        }
        (_, TransferValue::Integer(number)) => line.extend_from_slice(number.to_string().as_bytes()),
        (_, TransferValue::Real(number)) => line.extend_from_slice(format!("{number:?}").as_bytes()),
        (ColumnForm::Bytes, TransferValue::Bytes(bytes)) => push_bytes(line, bytes),
        (_, TransferValue::Bytes(bytes)) => push_text(line, bytes),
    }
}

fn push_bytes(line: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    line.extend_from_slice(b"\\\\x");
    let digit = |half: u8| DIGITS.get(usize::from(half)).copied().unwrap_or(b'0');
    line.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
}

fn push_text(line: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        let escaped = match byte {
            b'\\' => b'\\',
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            other => {
                line.push(*other);
                continue;
            }
        };
        line.extend_from_slice(&[b'\\', escaped]);
    }
}

/// The number of rows of a table, and the sum of their digests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableDigest {
    /// The number of rows.
    pub rows: u64,
    sum: [u64; 4],
}

impl TableDigest {
    /// Adds a row: its line without the line break.
    pub fn add(&mut self, line: &[u8]) {
        self.rows += 1;
        let digest = Sha256::digest(line);
        let (parts, _) = digest.as_chunks::<8>();
        for (sum, part) in self.sum.iter_mut().zip(parts) {
            *sum = sum.wrapping_add(u64::from_be_bytes(*part));
        }
    }

    /// The digest in hexadecimal.
    pub fn text(&self) -> String {
        self.sum.iter().map(|part| hex(&part.to_be_bytes())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(values: &[(ColumnForm, TransferValue<'_>)], purpose: LinePurpose) -> String {
        let mut line = Vec::new();
        values.iter().for_each(|(form, value)| push_value(&mut line, *form, *value, purpose));
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_row_is_a_line_as_copy_writes_it() {
        let values = [
            (ColumnForm::Integer, TransferValue::Integer(-7)),
            (ColumnForm::Boolean, TransferValue::Integer(1)),
            (ColumnForm::Text, TransferValue::Bytes("a\tb\\\n\r\u{8}ü".as_bytes())),
            (ColumnForm::Bytes, TransferValue::Bytes(&[0, 255, b'\n'])),
            (ColumnForm::Text, TransferValue::Null),
            (ColumnForm::Real, TransferValue::Real(0.5)),
            (ColumnForm::Words, TransferValue::Bytes(b"'a'")),
        ];
        assert_eq!(line(&values, LinePurpose::Load), "-7\tt\ta\\tb\\\\\\n\\r\\bü\t\\\\x00ff0a\t\\N\t0.5\t'a'");
        let compared = "-7\tt\ta\\tb\\\\\\n\\r\\bü\t\\\\x00ff0a\t\\N\t\\\\x3fe0000000000000";
        assert_eq!(line(&values, LinePurpose::Compare), compared);
    }

    #[test]
    fn a_digest_knows_rows_and_their_number_but_not_their_order() {
        let digest = |lines: &[&str]| {
            let mut digest = TableDigest::default();
            lines.iter().for_each(|line| digest.add(line.as_bytes()));
            digest
        };
        assert_eq!(digest(&["a", "b"]), digest(&["b", "a"]));
        for other in [&["a"][..], &["a", "c"], &["a", "b", "b"]] {
            assert_ne!(digest(&["a", "b"]), digest(other));
        }
        assert_eq!(digest(&["a"]).text().len(), 64);
    }
}
