//! Walks valid JSON text from value to value.

use memchr::memchr;

use super::{JsonStr, Raw, check};

/// The index of a text: where its values begin and end. With it the cost of a walk depends on the number of values, not
/// of bytes.
#[derive(Debug, Default)]
pub struct ValueIndex {
    /// All values and keys in order; each before the values inside it.
    spans: Vec<Span>,
    /// Whether there are too many values for the text's size; then nothing is recorded.
    full: bool,
    most: usize,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    /// The index after its last byte.
    end: u32,
    /// The next value that is not inside it.
    next: u32,
}

impl ValueIndex {
    /// Starts an index for a text of this many bytes. An index of tiny values would be several times as large as the
    /// text, so it is recorded only if values have at least four bytes on average.
    pub(super) fn begin(&mut self, length: usize) {
        self.spans.clear();
        // Most values of a large text are long, and most of a small one are short.
        self.spans.reserve(length.min(1024) / 12 + length / 64);
        self.full = u32::try_from(length).is_err();
        self.most = if self.full { 0 } else { length / 4 + 64 };
    }

    /// Begins an object or array; returns its position, for [`Self::close`].
    #[inline]
    pub(super) fn open(&mut self, start: usize) -> usize {
        let number = self.spans.len();
        self.push(Span { start: start as u32, end: 0, next: 0 });
        number
    }

    /// Ends the value at this position.
    #[inline]
    pub(super) fn close(&mut self, number: usize, end: usize) {
        let next = self.spans.len() as u32;
        if let Some(span) = self.spans.get_mut(number) {
            (span.end, span.next) = (end as u32, next);
        }
    }

    /// Records a key or a scalar value.
    #[inline]
    pub(super) fn leaf(&mut self, start: usize, end: usize) {
        let next = self.spans.len() as u32 + 1;
        self.push(Span { start: start as u32, end: end as u32, next });
    }

    #[inline]
    fn push(&mut self, span: Span) {
        match self.spans.len() < self.most {
            true => self.spans.push(span),
            false => self.full = true,
        }
    }

    /// The value of the first field with this name in `object`, without creating the other values.
    pub(super) fn get<'a>(&'a self, object: Raw<'a>, name: &str) -> Option<Raw<'a>> {
        let whole = self.spans.get(object.position as usize).filter(|_| object.text.starts_with('{'))?;
        let bytes = object.text.as_bytes();
        let mut number = object.position + 1;
        while number < whole.next {
            let key = self.spans.get(number as usize)?;
            let value = self.spans.get(key.next as usize)?;
            let (start, end) = ((key.start - whole.start) as usize + 1, (key.end - whole.start) as usize - 1);
            // Most keys differ in length or first byte, and a key that is not longer has no escape.
            let first = bytes.get(start).filter(|_| end > start);
            if end - start >= name.len()
                && (first == name.as_bytes().first() || first == Some(&b'\\'))
                && JsonStr(object.text.get(start..end)?).is(name)
            {
                let place = (value.start - whole.start) as usize..(value.end - whole.start) as usize;
                return Some(Raw { text: object.text.get(place)?, index: Some(self), position: key.next });
            }
            number = value.next;
        }
        None
    }

    /// The index, if it is complete.
    pub(super) fn complete(&self) -> Option<&Self> {
        (!self.full).then_some(self)
    }
}

/// Iterates over the values directly inside another one.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    whole: Raw<'a>,
    /// The next value: its position in the index, or a byte before it.
    at: usize,
    /// The position of the first value that is not inside.
    stop: usize,
    /// The start of the whole text.
    start: u32,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) fn inside(whole: Raw<'a>, open: u8) -> Self {
        if whole.text.as_bytes().first() != Some(&open) {
            return Self { whole: Raw::unindexed(""), at: 0, stop: 0, start: 0 };
        }
        match whole.index.and_then(|index| index.spans.get(whole.position as usize)) {
            Some(span) => Self { whole, at: whole.position as usize + 1, stop: span.next as usize, start: span.start },
            None => Self { whole, at: 1, stop: 0, start: 0 },
        }
    }

    #[inline]
    pub(super) fn value(&mut self) -> Option<Raw<'a>> {
        let Some(index) = self.whole.index else { return self.scan() };
        if self.at >= self.stop {
            return None;
        }
        let number = self.at;
        let span = index.spans.get(number)?;
        self.at = span.next as usize;
        let text = self.whole.text.get((span.start - self.start) as usize..(span.end - self.start) as usize)?;
        Some(Raw { text, index: Some(index), position: number as u32 })
    }

    /// The next key and its value.
    #[inline]
    pub(super) fn field(&mut self) -> Option<(JsonStr<'a>, Raw<'a>)> {
        let key = self.value()?.text;
        let key = key.get(1..key.len().checked_sub(1)?)?;
        Some((JsonStr(key), self.value()?))
    }

    /// The next value at this level. Commas and colons count as white space, because the text is valid.
    fn scan(&mut self) -> Option<Raw<'a>> {
        let bytes = self.whole.text.as_bytes();
        while matches!(bytes.get(self.at)?, b' ' | b'\n' | b'\r' | b'\t' | b',' | b':') {
            self.at += 1;
        }
        let start = self.at;
        self.at = match bytes.get(start)? {
            b'}' | b']' => return None,
            b'"' => short_string(bytes, start).unwrap_or_else(|| end_of_string(bytes, start)),
            b'{' | b'[' => end_of_nest(bytes, start),
            _ => end_of_word(bytes, start),
        };
        self.whole.text.get(start..self.at).map(Raw::unindexed)
    }
}

/// The index after the closing quote, if it is near and no escape precedes it, as for most strings.
#[inline]
fn short_string(bytes: &[u8], start: usize) -> Option<usize> {
    let head = bytes.get(start + 1..)?;
    let found = check::quote_or_backslash(head, 24)?;
    (head.get(found) == Some(&b'"')).then_some(start + found + 2)
}

/// The index after the closing quote of the string that opens at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    // Texts have many escapes and few quotes: a quote ends the string unless an odd number of backslashes precedes it.
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr(b'"', rest)) {
        at += found;
        let before = bytes.get(start + 1..at).unwrap_or_default();
        let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
        at += 1;
        if backslashes % 2 == 0 {
            return at;
        }
    }
    bytes.len()
}

/// The index after the bracket that closes the one at `start`.
fn end_of_nest(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = end_of_string(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

fn end_of_word(bytes: &[u8], start: usize) -> usize {
    let rest = bytes.get(start..).unwrap_or_default();
    let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' | b':'));
    start + length.unwrap_or(rest.len())
}
