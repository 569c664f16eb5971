//! Walks text that is known to be valid, from value to value.

use memchr::memchr;

use super::{JsonStr, Raw, check};

/// Where the values of one text begin and end. With it, a walk costs as much as it has values, not as it has bytes.
#[derive(Debug, Default)]
pub struct Ends {
    /// Every value and every key, in the order of their first bytes; each before what is inside of it.
    spans: Vec<Span>,
    /// There are more values than the text is worth: nothing is noted.
    full: bool,
    most: usize,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    /// Behind its last byte.
    end: u32,
    /// The next one that is not inside of it.
    next: u32,
}

impl Ends {
    /// Begins anew, for a text of so many bytes. A text of nothing but tiny values would cost several times its size, so
    /// that notes are taken only as long as values have four bytes each.
    pub(super) fn begin(&mut self, length: usize) {
        self.spans.clear();
        // Most values of a large text are long, and most of a small one are not.
        self.spans.reserve(length.min(1024) / 12 + length / 64);
        self.full = u32::try_from(length).is_err();
        self.most = if self.full { 0 } else { length / 4 + 64 };
    }

    /// A value begins that may hold others; gives back its number, which is to be told when it ends.
    #[inline]
    pub(super) fn open(&mut self, start: usize) -> usize {
        let number = self.spans.len();
        self.push(Span { start: start as u32, end: 0, next: 0 });
        number
    }

    /// The value of this number has ended.
    #[inline]
    pub(super) fn close(&mut self, number: usize, end: usize) {
        let next = self.spans.len() as u32;
        if let Some(span) = self.spans.get_mut(number) {
            (span.end, span.next) = (end as u32, next);
        }
    }

    /// A key, or a value that holds no others.
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

    /// The value of the first field of this name in `object`, looked up without making a value of every other one.
    pub(super) fn get<'a>(&'a self, object: Raw<'a>, name: &str) -> Option<Raw<'a>> {
        let whole = self.spans.get(object.number as usize).filter(|_| object.text.starts_with('{'))?;
        let bytes = object.text.as_bytes();
        let mut number = object.number + 1;
        while number < whole.next {
            let key = self.spans.get(number as usize)?;
            let value = self.spans.get(key.next as usize)?;
            let (start, end) = ((key.start - whole.start) as usize + 1, (key.end - whole.start) as usize - 1);
            // Most keys differ in their length or their first letter already, and a key that is not longer has no escape.
            let first = bytes.get(start).filter(|_| end > start);
            if end - start >= name.len()
                && (first == name.as_bytes().first() || first == Some(&b'\\'))
                && JsonStr(object.text.get(start..end)?).is(name)
            {
                let place = (value.start - whole.start) as usize..(value.end - whole.start) as usize;
                return Some(Raw { text: object.text.get(place)?, ends: Some(self), number: key.next });
            }
            number = value.next;
        }
        None
    }

    /// The notes, if they are whole.
    pub(super) fn noted(&self) -> Option<&Self> {
        (!self.full).then_some(self)
    }
}

/// Goes through the values directly inside of another one.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    whole: Raw<'a>,
    /// The next value: its number where there are notes, else a byte before it.
    at: usize,
    /// The number of the first value that is not inside.
    stop: usize,
    /// Where the whole begins.
    start: u32,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) fn inside(whole: Raw<'a>, open: u8) -> Self {
        if whole.text.as_bytes().first() != Some(&open) {
            return Self { whole: Raw::unnoted(""), at: 0, stop: 0, start: 0 };
        }
        match whole.ends.and_then(|ends| ends.spans.get(whole.number as usize)) {
            Some(span) => Self { whole, at: whole.number as usize + 1, stop: span.next as usize, start: span.start },
            None => Self { whole, at: 1, stop: 0, start: 0 },
        }
    }

    #[inline]
    pub(super) fn value(&mut self) -> Option<Raw<'a>> {
        let Some(ends) = self.whole.ends else { return self.scan() };
        if self.at >= self.stop {
            return None;
        }
        let number = self.at;
        let span = ends.spans.get(number)?;
        self.at = span.next as usize;
        let text = self.whole.text.get((span.start - self.start) as usize..(span.end - self.start) as usize)?;
        Some(Raw { text, ends: Some(ends), number: number as u32 })
    }

    /// The next key and its value.
    #[inline]
    pub(super) fn field(&mut self) -> Option<(JsonStr<'a>, Raw<'a>)> {
        let key = self.value()?.text;
        let key = key.get(1..key.len().checked_sub(1)?)?;
        Some((JsonStr(key), self.value()?))
    }

    /// The next value at this level; commas and colons count as white space, since the text is valid.
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
        self.whole.text.get(start..self.at).map(Raw::unnoted)
    }
}

/// The index behind the closing quote, if it is near and nothing is escaped before it: most strings are like that.
#[inline]
fn short_string(bytes: &[u8], start: usize) -> Option<usize> {
    let head = bytes.get(start + 1..)?;
    let found = check::quote_or_backslash(head, 24)?;
    (head.get(found) == Some(&b'"')).then_some(start + found + 2)
}

/// The index behind the closing quote of the string that opens at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    // Texts have many escapes and few quotes: a quote ends the string unless an odd number of backslashes stands before.
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

/// The index behind the bracket that closes the one at `start`.
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
