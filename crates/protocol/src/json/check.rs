//! Checks that a text is valid JSON: UTF-8, grammar, depth. Written without recursion, so that depth is only a number.

use std::str::Utf8Error;

use super::{Shape, ValueIndex, line_of, quotes::Quotes};

/// Why a text is not JSON, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at line {line} (byte {offset})")]
pub struct SyntaxError {
    /// What is wrong.
    pub message: &'static str,
    /// The line, from 1.
    pub line: usize,
    /// The byte, from 0.
    pub offset: usize,
}

/// Checks bytes as [`check_text`] does.
pub(super) fn check<'a>(bytes: &'a [u8], depth: usize, index: Option<&mut ValueIndex>) -> Result<&'a str, SyntaxError> {
    check_text(utf8(bytes).map_err(|error| not_text(bytes, error))?, depth, index)
}

/// Checks `text` and returns it without the white space around it; records in `index` where values begin and end.
pub(super) fn check_text<'a>(
    text: &'a str,
    depth: usize,
    index: Option<&mut ValueIndex>,
) -> Result<&'a str, SyntaxError> {
    let bytes = text.as_bytes();
    let mut checker = Checker { bytes, at: 0, quotes: Some(Quotes::new(bytes)), index };
    checker.document(depth).map_err(|(message, offset)| fail(bytes, message, offset))?;
    Ok(text.trim_matches([' ', '\n', '\r', '\t']))
}

/// The error for bytes that are not UTF-8.
pub(super) fn not_text(bytes: &[u8], error: Utf8Error) -> SyntaxError {
    fail(bytes, "text is not UTF-8", error.valid_up_to())
}

fn fail(bytes: &[u8], message: &'static str, offset: usize) -> SyntaxError {
    SyntaxError { message, line: line_of(bytes, offset), offset }
}

/// The bytes as text, if they are UTF-8.
#[inline]
pub(super) fn utf8(text: &[u8]) -> Result<&str, Utf8Error> {
    // The fast check does not report the position of an error.
    simdutf8::basic::from_utf8(text).or_else(|_| std::str::from_utf8(text))
}

/// Whether `text` is valid between the quotes of a JSON string.
pub(super) fn is_escaped(text: &[u8]) -> bool {
    // Most pieces of an answer are short words, which need one pass.
    if text.len() <= SHORT && text.iter().fold(true, |plain, byte| plain & PLAIN[usize::from(*byte)]) {
        return true;
    }
    let mut checker = Checker { bytes: text, at: 0, quotes: None, index: None };
    loop {
        checker.at += plain_run(text.get(checker.at..).unwrap_or_default());
        match checker.peek() {
            None => return utf8(text).is_ok(),
            Some(b'\\') if checker.escape().is_ok() => {}
            Some(_) => return false,
        }
    }
}

const SHORT: usize = 16;

/// Bytes that need no escape and no check of their neighbours.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0x20;
    while byte < 0x80 {
        plain[byte] = byte != b'"' as usize && byte != b'\\' as usize;
        byte += 1;
    }
    plain
};

type Fault = (&'static str, usize);

struct Checker<'a, 's> {
    bytes: &'a [u8],
    at: usize,
    /// Finds strings in blocks. `None` after the first invalid string: from then on strings are read byte by byte, to
    /// find the error.
    quotes: Option<Quotes<'a>>,
    index: Option<&'s mut ValueIndex>,
}

impl Checker<'_, '_> {
    fn document(&mut self, depth: usize) -> Result<(), Fault> {
        // One entry for each open level: its type, and its position in the index.
        let mut open: Vec<(Shape, usize)> = Vec::with_capacity(8);
        loop {
            // A value is expected.
            self.skip_space();
            match self.peek() {
                Some(b'{') => {
                    self.enter(&mut open, Shape::Object, depth)?;
                    if !self.closes(b'}') {
                        self.key()?;
                        continue;
                    }
                    self.leave(&mut open);
                }
                Some(b'[') => {
                    self.enter(&mut open, Shape::Array, depth)?;
                    if !self.closes(b']') {
                        continue;
                    }
                    self.leave(&mut open);
                }
                Some(b'"') => self.recorded(Self::string)?,
                Some(b'-' | b'0'..=b'9') => self.recorded(Self::number)?,
                Some(b't') => self.recorded(|checker| checker.word(b"true"))?,
                Some(b'f') => self.recorded(|checker| checker.word(b"false"))?,
                Some(b'n') => self.recorded(|checker| checker.word(b"null"))?,
                Some(_) => return Err(("expected a value", self.at)),
                None => return Err(("text ends where a value should be", self.at)),
            }
            // A value has ended: close levels until another one is expected.
            loop {
                self.skip_space();
                match (open.last().map(|(shape, _)| shape), self.peek()) {
                    (None, None) => return Ok(()),
                    (None, Some(_)) => return Err(("text goes on after the value", self.at)),
                    (Some(Shape::Object), Some(b',')) => {
                        self.at += 1;
                        self.skip_space();
                        self.key()?;
                        break;
                    }
                    (Some(_), Some(b',')) => {
                        self.at += 1;
                        break;
                    }
                    (Some(Shape::Object), Some(b'}')) | (Some(Shape::Array), Some(b']')) => {
                        self.at += 1;
                        self.leave(&mut open);
                    }
                    (Some(_), Some(_)) => return Err(("expected a comma or a closing bracket", self.at)),
                    (Some(_), None) => return Err(("text ends inside an object or array", self.at)),
                }
            }
        }
    }

    fn enter(&mut self, open: &mut Vec<(Shape, usize)>, shape: Shape, depth: usize) -> Result<(), Fault> {
        if open.len() >= depth {
            return Err(("nesting is too deep", self.at));
        }
        let number = self.open();
        open.push((shape, number));
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    fn leave(&mut self, open: &mut Vec<(Shape, usize)>) {
        if let Some((_, number)) = open.pop() {
            self.close(number);
        }
    }

    /// Checks a key or a scalar value, and records it.
    #[inline]
    fn recorded(&mut self, check: impl FnOnce(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        let start = self.at;
        check(self)?;
        if let Some(index) = &mut self.index {
            index.leaf(start, self.at);
        }
        Ok(())
    }

    #[inline]
    fn open(&mut self) -> usize {
        let at = self.at;
        self.index.as_mut().map_or(0, |index| index.open(at))
    }

    #[inline]
    fn close(&mut self, number: usize) {
        if let Some(index) = &mut self.index {
            index.close(number, self.at);
        }
    }

    fn closes(&mut self, bracket: u8) -> bool {
        let closes = self.peek() == Some(bracket);
        self.at += usize::from(closes);
        closes
    }

    fn key(&mut self) -> Result<(), Fault> {
        if self.peek() != Some(b'"') {
            return Err(("expected a key in quotes", self.at));
        }
        self.recorded(Self::string)?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(("expected a colon after the key", self.at));
        }
        self.at += 1;
        Ok(())
    }

    #[inline]
    fn string(&mut self) -> Result<(), Fault> {
        if let Some(quotes) = &mut self.quotes
            && let Some(end) = quotes.string(self.at)
        {
            self.at = end;
            return Ok(());
        }
        self.string_by_bytes()
    }

    #[cold]
    fn string_by_bytes(&mut self) -> Result<(), Fault> {
        self.quotes = None;
        self.at += 1;
        loop {
            self.at += plain_run(self.bytes.get(self.at..).unwrap_or_default());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(("control character in a string", self.at)),
                None => return Err(("text ends inside a string", self.at)),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') if (2..6).all(|step| hex(self.bytes.get(self.at + step))) => self.at += 6,
            _ => return Err(("bad escape in a string", self.at)),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(("bad number", start)),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits(start)?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.some_digits(start)?;
        }
        Ok(())
    }

    fn some_digits(&mut self, start: usize) -> Result<(), Fault> {
        match self.peek() {
            Some(b'0'..=b'9') => {
                self.digits();
                Ok(())
            }
            _ => Err(("bad number", start)),
        }
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Fault> {
        match self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            true => {
                self.at += word.len();
                Ok(())
            }
            false => Err(("expected a value", self.at)),
        }
    }

    #[inline]
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }
}

/// The number of bytes at the start that need no escape in a JSON string. Eight at a time, because most of the time of
/// a large request is spent here.
#[inline]
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    let (eights, rest) = bytes.as_chunks::<8>();
    let mut run = 0;
    for eight in eights {
        let found = special(*eight);
        if found != 0 {
            return run + (found.trailing_zeros() / 8) as usize;
        }
        run += 8;
    }
    // The last eight bytes cover the rest, and some bytes a second time.
    if bytes.last_chunk().is_some_and(|last| special(*last) == 0) {
        return bytes.len();
    }
    run + rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).unwrap_or(rest.len())
}

/// The high bit of each byte that is a quote, a backslash or a control character. A borrow can only mark bytes above a
/// true one.
#[inline]
fn special(eight: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(eight);
    let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
    quotes_and_backslashes(word) | control
}

/// The same without control characters.
#[inline]
fn quotes_and_backslashes(word: u64) -> u64 {
    let (quote, backslash) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
    ((quote.wrapping_sub(ONES) & !quote) | (backslash.wrapping_sub(ONES) & !backslash)) & HIGHS
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The first quote or backslash in about `most` bytes.
#[inline]
pub(super) fn quote_or_backslash(bytes: &[u8], most: usize) -> Option<usize> {
    let mut at = 0;
    while at < most {
        let Some(eight) = bytes.get(at..at + 8) else {
            let rest = bytes.get(at..)?;
            return rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).map(|found| at + found);
        };
        let word = u64::from_le_bytes(eight.try_into().expect("the slice has eight bytes"));
        let found = quotes_and_backslashes(word);
        if found != 0 {
            return Some(at + (found.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    None
}

/// Decodes an escaped text.
pub(super) fn unescape(escaped: &str) -> String {
    let mut text = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((plain, tail)) = rest.split_once('\\') {
        text.push_str(plain);
        let mut after = tail.chars();
        match after.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('b') => text.push('\u{8}'),
            Some('f') => text.push('\u{c}'),
            Some('u') => {
                let (character, remaining) = unicode(after.as_str());
                text.push(character);
                rest = remaining;
                continue;
            }
            Some(same) => text.push(same),
            None => {}
        }
        rest = after.as_str();
    }
    text.push_str(rest);
    text
}

/// Reads the digits after `\u`, and the second half of a surrogate pair if there is one.
fn unicode(after: &str) -> (char, &str) {
    let digits = |text: &str| text.get(..4).and_then(|four| u32::from_str_radix(four, 16).ok());
    let Some(first) = digits(after) else { return (char::REPLACEMENT_CHARACTER, after) };
    let tail = after.get(4..).unwrap_or_default();
    if (0xd800..0xdc00).contains(&first)
        && let Some(second_half) = tail.strip_prefix("\\u")
        && let Some(second) = digits(second_half).filter(|second| (0xdc00..0xe000).contains(second))
    {
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), second_half.get(4..).unwrap_or_default());
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), tail)
}
