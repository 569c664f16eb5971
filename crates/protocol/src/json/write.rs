//! Writes JSON text; commas are placed by the last byte written.

use memchr::memchr2;

use super::{JsonStr, Literal, Raw, check::plain_run};

/// Builds JSON text. Keys are constants without escapes; values are escaped or known to be valid.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty writer with this capacity.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity) }
    }

    /// Writes an object around what `fill` writes.
    pub fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.separate();
        self.bytes.push(b'{');
        fill(self);
        self.bytes.push(b'}');
    }

    /// Writes an array around what `fill` writes.
    pub fn array(&mut self, fill: impl FnOnce(&mut Self)) {
        self.separate();
        self.bytes.push(b'[');
        fill(self);
        self.bytes.push(b']');
    }

    /// Writes a key that needs no escaping; a value must follow.
    #[inline]
    pub fn key(&mut self, key: &'static str) -> &mut Self {
        self.separate();
        self.bytes.reserve(key.len() + 3);
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.extend_from_slice(b"\":");
        self
    }

    /// Writes a key that needs escaping; a value must follow.
    pub fn key_text(&mut self, key: &str) -> &mut Self {
        self.string(key);
        self.bytes.push(b':');
        self
    }

    /// Writes a string.
    pub fn string(&mut self, text: &str) {
        self.separate();
        self.bytes.push(b'"');
        escape(&mut self.bytes, text);
        self.bytes.push(b'"');
    }

    /// Writes a string from pieces that are already escaped.
    pub fn escaped(&mut self, pieces: &[&[u8]]) {
        self.separate();
        self.bytes.push(b'"');
        pieces.iter().for_each(|piece| self.bytes.extend_from_slice(piece));
        self.bytes.push(b'"');
    }

    /// Writes a string in its original escaped form.
    pub fn json_str(&mut self, text: JsonStr<'_>) {
        self.escaped(&[text.escaped().as_bytes()]);
    }

    /// Writes a string from its escaped text.
    pub fn literal(&mut self, text: &Literal) {
        self.escaped(&[text.escaped()]);
    }

    /// Writes a value in its original form.
    pub fn raw(&mut self, value: Raw<'_>) {
        self.valid(value.text().as_bytes());
    }

    /// Writes text that is known to be one JSON value.
    pub fn valid(&mut self, value: &[u8]) {
        self.separate();
        self.bytes.extend_from_slice(value);
    }

    /// Reserves capacity for this many bytes.
    pub fn reserve(&mut self, length: usize) {
        self.bytes.reserve(length);
    }

    /// Writes an integer.
    pub fn number(&mut self, number: u64) {
        self.separate();
        self.digits(number);
    }

    /// Writes the digits of a number without a comma before them.
    pub(crate) fn digits(&mut self, number: u64) {
        // Most numbers are small: sequence numbers, tokens and indices.
        if number < 1000 {
            let [hundreds, tens, ones] = [number / 100, number / 10 % 10, number % 10].map(|digit| b'0' + digit as u8);
            match number {
                100.. => self.bytes.extend_from_slice(&[hundreds, tens, ones]),
                10.. => self.bytes.extend_from_slice(&[tens, ones]),
                _ => self.bytes.push(ones),
            }
            return;
        }
        let mut digits = [0_u8; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            if let Some(digit) = digits.get_mut(at) {
                *digit = b'0' + (rest % 10) as u8;
            }
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(digits.get(at..).unwrap_or_default());
    }

    /// Writes a number; `null` if JSON cannot represent it.
    pub fn float(&mut self, number: f64) {
        match number {
            whole if whole.fract() == 0.0 && (0.0..1e15).contains(&whole) => self.number(whole as u64),
            finite if finite.is_finite() => self.valid(finite.to_string().as_bytes()),
            _ => self.null(),
        }
    }

    /// Writes `true` or `false`.
    pub fn bool(&mut self, value: bool) {
        self.valid(if value { b"true" } else { b"false" });
    }

    /// Writes `null`.
    pub fn null(&mut self) {
        self.valid(b"null");
    }

    /// The text so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The text.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes bytes that are not JSON: the frame around a value.
    pub fn outside(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Replaces newlines by spaces in the text since `start`. In valid JSON they are only between values.
    pub(crate) fn keep_to_one_line(&mut self, start: usize) {
        let mut rest = self.bytes.get_mut(start..).unwrap_or_default();
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let (line, next) = rest.split_at_mut(at + 1);
            if let Some(end) = line.last_mut() {
                *end = b' ';
            }
            rest = next;
        }
    }

    /// Takes the text and leaves the writer empty, with a small capacity.
    pub fn take(&mut self) -> Vec<u8> {
        let room = self.bytes.len();
        std::mem::replace(&mut self.bytes, Vec::with_capacity(room.min(1024)))
    }

    /// A comma is needed after a complete value.
    #[inline]
    fn separate(&mut self) {
        if matches!(self.bytes.last(), Some(b'}' | b']' | b'"' | b'0'..=b'9' | b'e' | b'l')) {
            self.bytes.push(b',');
        }
    }
}

/// Appends `text` with the escapes of a JSON string.
#[inline]
pub(super) fn escape(bytes: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    // Nearly every text needs no escapes.
    if plain_run(rest) == rest.len() {
        return bytes.extend_from_slice(rest);
    }
    loop {
        let (plain, tail) = rest.split_at(plain_run(rest));
        bytes.extend_from_slice(plain);
        let Some((&special, after)) = tail.split_first() else { return };
        match special {
            b'"' => bytes.extend_from_slice(b"\\\""),
            b'\\' => bytes.extend_from_slice(b"\\\\"),
            b'\n' => bytes.extend_from_slice(b"\\n"),
            b'\r' => bytes.extend_from_slice(b"\\r"),
            b'\t' => bytes.extend_from_slice(b"\\t"),
            control => {
                let digit = |value: u8| HEX.get(usize::from(value & 0xf)).copied().unwrap_or(b'0');
                bytes.extend_from_slice(b"\\u00");
                bytes.extend_from_slice(&[digit(control >> 4), digit(control)]);
            }
        }
        rest = after;
    }
}
