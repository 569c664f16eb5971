//! One entry of the redo log: the statements that were run together, with what was bound to them.
//!
//! ```text
//! length u32 · checksum u32 · number i64 · parts
//! part: 0 · length u32 · text                                      the next text that statements refer to
//!       1 · which text u16 · changed rows i64 · count u16 · values a statement as it was run
//! value: 0 nothing · 1 i64 · 2 f64 · 3 length u32, text · 4 length u32, bytes
//! ```
//!
//! Numbers have their lowest byte first. The checksum covers everything behind it, the length, and the identity of the
//! database. A batch brings every text that it needs, so that it can be run by a later version of the program.

use rusqlite::types::{ToSqlOutput, ValueRef};

use super::Sequence;

const HEAD: usize = 16;
/// A larger batch goes to the database itself.
const MOST_BYTES: usize = 1024 * 1024;
/// Of a statement whose rows nobody has counted.
const UNCOUNTED: i64 = -1;

const TEXT: u8 = 0;
const RUN: u8 = 1;

/// The statements of one group of work, as they are bound and run.
#[derive(Debug)]
pub(in crate::sqlite) struct Batch {
    bytes: Vec<u8>,
    texts: Vec<&'static str>,
    /// Whether everything is in it.
    whole: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Self { bytes: vec![0; HEAD], texts: Vec::new(), whole: true }
    }
}

impl Batch {
    /// Ready for the next group.
    pub(in crate::sqlite) fn clear(&mut self) {
        self.bytes.truncate(HEAD);
        self.texts.clear();
        self.whole = true;
    }

    /// Whether there is anything in it.
    pub(in crate::sqlite) fn is_empty(&self) -> bool {
        self.bytes.len() == HEAD
    }

    /// Whether all that was run is in it: it may have been too much.
    pub(in crate::sqlite) fn is_whole(&self) -> bool {
        self.whole
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// A statement that is about to run; its values follow.
    pub(in crate::sqlite) fn statement(&mut self, text: &'static str) -> Statement<'_> {
        let known = self.texts.iter().position(|known| std::ptr::eq(*known, text));
        let number = known.unwrap_or_else(|| {
            self.bytes.push(TEXT);
            put_bytes(&mut self.bytes, text.as_bytes());
            self.texts.push(text);
            self.texts.len() - 1
        });
        self.bytes.push(RUN);
        self.bytes.extend_from_slice(&(number as u16).to_le_bytes());
        let place = self.bytes.len();
        self.bytes.extend_from_slice(&UNCOUNTED.to_le_bytes());
        self.bytes.extend_from_slice(&0u16.to_le_bytes());
        Statement { batch: self, place, count: 0 }
    }

    /// How many rows the statement at `place` changed: when it is run again, it has to change as many.
    pub(in crate::sqlite) fn changed(&mut self, place: usize, rows: u64) {
        // What was too much is gone.
        if let Some(field) = self.bytes.get_mut(place..place + 8) {
            field.copy_from_slice(&i64::try_from(rows).unwrap_or(UNCOUNTED).to_le_bytes());
        }
    }

    /// Writes number and checksum; gives all of it.
    pub(super) fn seal(&mut self, identity: i64, number: Sequence) -> &[u8] {
        let length = (self.bytes.len() as u32).to_le_bytes();
        if let Some(field) = self.bytes.get_mut(..4) {
            field.copy_from_slice(&length);
        }
        if let Some(field) = self.bytes.get_mut(8..HEAD) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = checksum(identity, &self.bytes).to_le_bytes();
        if let Some(field) = self.bytes.get_mut(4..8) {
            field.copy_from_slice(&checksum);
        }
        &self.bytes
    }
}

/// A statement whose values are being bound.
pub(in crate::sqlite) struct Statement<'b> {
    batch: &'b mut Batch,
    place: usize,
    count: u16,
}

impl Statement<'_> {
    pub(in crate::sqlite) fn value(&mut self, value: &ToSqlOutput<'_>) {
        let batch = &mut *self.batch;
        match value {
            ToSqlOutput::Borrowed(value) => put_value(&mut batch.bytes, *value),
            ToSqlOutput::Owned(value) => put_value(&mut batch.bytes, ValueRef::from(value)),
            _ => batch.whole = false,
        }
        self.count += 1;
        if let Some(field) = batch.bytes.get_mut(self.place + 8..self.place + 10) {
            field.copy_from_slice(&self.count.to_le_bytes());
        }
        if batch.bytes.len() > MOST_BYTES {
            batch.whole = false;
        }
    }

    /// Where it is, for [`Batch::changed`].
    pub(in crate::sqlite) fn place(&self) -> usize {
        self.place
    }
}

fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    into.extend_from_slice(bytes);
}

fn put_value(into: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => into.push(0),
        ValueRef::Integer(number) => {
            into.push(1);
            into.extend_from_slice(&number.to_le_bytes());
        }
        ValueRef::Real(number) => {
            into.push(2);
            into.extend_from_slice(&number.to_le_bytes());
        }
        ValueRef::Text(text) => {
            into.push(3);
            put_bytes(into, text);
        }
        ValueRef::Blob(bytes) => {
            into.push(4);
            put_bytes(into, bytes);
        }
    }
}

fn checksum(identity: i64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&identity.to_le_bytes());
    hasher.update(bytes.get(..4).unwrap_or_default());
    hasher.update(bytes.get(8..).unwrap_or_default());
    hasher.finalize()
}

/// A batch as it was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'b> {
    pub(super) number: Sequence,
    /// All of it.
    pub(super) bytes: &'b [u8],
    parts: Parts<'b>,
}

impl<'b> Found<'b> {
    /// The batch at the beginning of `bytes` and its length; nothing where there is none, or not all of it.
    pub(super) fn read(identity: i64, bytes: &'b [u8]) -> Option<(Self, usize)> {
        let (found, length) = Self::own(bytes)?;
        let batch = bytes.get(..length)?;
        (checksum(identity, batch) == Parts(batch.get(4..8)?).u32()?).then_some((found, length))
    }

    /// The same for bytes that this process has written.
    pub(super) fn own(bytes: &'b [u8]) -> Option<(Self, usize)> {
        let mut head = Parts(bytes);
        let (length, _, number) = (head.u32()? as usize, head.u32()?, head.i64()?);
        let parts = Parts(bytes.get(HEAD..length)?);
        Some((Self { number, bytes: bytes.get(..length)?, parts }, length))
    }

    /// Hands on every statement; `None` where the batch is not in order.
    pub(super) fn each<E>(mut self, mut run: impl FnMut(&Again<'b>) -> Result<(), E>) -> Option<Result<(), E>> {
        let mut texts = Vec::new();
        while let Some(kind) = self.parts.u8() {
            if kind == TEXT {
                texts.push(std::str::from_utf8(self.parts.bytes()?).ok()?);
                continue;
            }
            let text = *texts.get(usize::from(self.parts.u16()?)).filter(|_| kind == RUN)?;
            let changed = u64::try_from(self.parts.i64()?).ok();
            let count = self.parts.u16()?;
            let values = (0..count).map(|_| self.parts.value()).collect::<Option<_>>()?;
            if let Err(error) = run(&Again { text, values, changed }) {
                return Some(Err(error));
            }
        }
        Some(Ok(()))
    }
}

/// A statement that is to be run again.
#[derive(Debug, PartialEq)]
pub(in crate::sqlite) struct Again<'b> {
    pub(in crate::sqlite) text: &'b str,
    pub(in crate::sqlite) values: Vec<ValueRef<'b>>,
    /// How many rows it changed the first time, where they were counted.
    pub(in crate::sqlite) changed: Option<u64>,
}

/// What is left to be read.
#[derive(Debug, Clone, Copy)]
struct Parts<'b>(&'b [u8]);

impl<'b> Parts<'b> {
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn value(&mut self) -> Option<ValueRef<'b>> {
        Some(match self.u8()? {
            0 => ValueRef::Null,
            1 => ValueRef::Integer(self.i64()?),
            2 => ValueRef::Real(self.array().map(f64::from_le_bytes)?),
            3 => ValueRef::Text(self.bytes()?),
            4 => ValueRef::Blob(self.bytes()?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use rusqlite::types::Value;

    use super::*;

    const TEXTS: [&str; 3] = ["INSERT INTO a VALUES (?1)", "UPDATE b SET c = ?1", "DELETE FROM d"];

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::Integer),
            (-1e9..1e9f64).prop_map(Value::Real),
            ".{0,40}".prop_map(Value::Text),
            vec(any::<u8>(), 0..200).prop_map(Value::Blob),
        ]
    }

    fn batch_of(statements: &[(usize, Vec<Value>, Option<u64>)]) -> Batch {
        let mut batch = Batch::default();
        for (text, values, changed) in statements {
            let mut statement = batch.statement(TEXTS[*text]);
            values.iter().for_each(|value| statement.value(&ToSqlOutput::Owned(value.clone())));
            let place = statement.place();
            if let Some(rows) = changed {
                batch.changed(place, *rows);
            }
        }
        batch
    }

    fn statements(found: Found<'_>) -> Vec<(String, Vec<Value>, Option<u64>)> {
        let mut all = Vec::new();
        let run = |again: &Again<'_>| {
            let values = again.values.iter().map(|value| Value::try_from(*value).unwrap()).collect();
            all.push((again.text.to_owned(), values, again.changed));
            Ok::<_, ()>(())
        };
        found.each(run).unwrap().unwrap();
        all
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again_and_nothing_that_is_cut_or_changed_is(
            told in vec((0..3usize, vec(value(), 0..6), proptest::option::of(0..9u64)), 0..8),
            at in any::<prop::sample::Index>(), bit in 0..8u32,
        ) {
            let mut batch = batch_of(&told);
            let bytes = batch.seal(7, 41).to_vec();
            let followed = [&bytes[..], b"rest"].concat();
            let (found, length) = Found::read(7, &followed).unwrap();
            prop_assert_eq!((found.number, length), (41, bytes.len()));
            let expected: Vec<_> =
                told.into_iter().map(|(text, values, changed)| (TEXTS[text].to_owned(), values, changed)).collect();
            prop_assert_eq!(statements(found), expected);

            prop_assert!(Found::read(8, &bytes).is_none(), "it is another database's");
            prop_assert!(Found::read(7, &bytes[..at.index(bytes.len())]).is_none());
            let mut changed = bytes.clone();
            changed[at.index(bytes.len())] ^= 1 << bit;
            prop_assert!(Found::read(7, &changed).is_none());
        }

        #[test]
        fn whatever_is_found_in_a_file_is_read_without_harm(bytes in vec(any::<u8>(), 0..300)) {
            let _ = Found::read(7, &bytes);
            if let Some((found, _)) = Found::own(&bytes) {
                let _ = found.each(|_| Ok::<_, ()>(()));
            }
        }
    }

    #[test]
    fn what_is_too_much_for_a_batch_is_told() {
        let mut batch = Batch::default();
        batch.statement("INSERT").value(&ToSqlOutput::from("x".repeat(MOST_BYTES)));
        assert!(!batch.is_whole());
        batch.clear();
        assert!(batch.is_whole() && batch.is_empty());
    }

    #[test]
    fn nothing_is_no_batch() {
        // A part of a file that was never written to.
        assert!(Found::read(7, &[0; 64]).is_none());
    }
}
