//! Zero-copy views of JSON text that keep it as it was written.
//!
//! A text is checked once ([`Raw::parse`]); from then on it is walked in place, and everything handed out is a slice
//! of it. Strings keep their escapes until they are decoded, so that a text can pass from one wire to
//! another without being decoded and encoded again.

mod check;
mod quotes;
mod walk;
mod write;

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use memchr::{memchr, memchr_iter};

pub use check::SyntaxError;
use walk::Cursor;
pub use walk::Ends;
pub use write::Writer;

/// The default limit on the nesting of untrusted JSON.
pub const DEFAULT_DEPTH: usize = 64;

/// One valid JSON value, without white space around it.
#[derive(Clone, Copy)]
pub struct Raw<'a> {
    text: &'a str,
    /// Where the values inside it are, if the check has taken note of it.
    ends: Option<&'a Ends>,
    /// Its own number there.
    number: u32,
}

/// What a value is, by its first character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number.
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

impl Shape {
    /// The name with its article, for error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::String => "a string",
            Self::Number => "a number",
            Self::Bool => "a boolean",
            Self::Null => "null",
        }
    }
}

impl<'a> Raw<'a> {
    /// `null`, for where a value is absent.
    pub const NULL: Raw<'static> = Raw::unnoted("null");

    /// `{}`
    pub const EMPTY_OBJECT: Raw<'static> = Raw::unnoted("{}");

    /// Checks `text` as one JSON value of at most [`DEFAULT_DEPTH`] levels.
    pub fn parse(text: &'a [u8]) -> Result<Self, SyntaxError> {
        Self::parse_within(text, DEFAULT_DEPTH)
    }

    /// Checks `text` as one JSON value of at most `depth` levels.
    pub fn parse_within(text: &'a [u8], depth: usize) -> Result<Self, SyntaxError> {
        check::check(text, depth, None).map(Raw::unnoted)
    }

    /// The same for a large text; `ends` is filled, and serves every walk through the value.
    pub fn parse_large(text: &'a [u8], depth: usize, ends: &'a mut Ends) -> Result<Self, SyntaxError> {
        ends.begin(text.len());
        let text = check::check(text, depth, Some(ends))?;
        Ok(Raw { text, ends: ends.noted(), number: 0 })
    }

    /// Valid text whose values are not indexed.
    const fn unnoted(text: &'a str) -> Self {
        Raw { text, ends: None, number: 0 }
    }

    /// Takes text that this server itself wrote as one JSON value; nothing where it is not text.
    pub(crate) fn written_here(text: &'a [u8]) -> Option<Self> {
        check::utf8(text).ok().map(Raw::unnoted)
    }

    /// The text of the value.
    pub fn text(self) -> &'a str {
        self.text
    }

    /// What the value is.
    pub fn shape(self) -> Shape {
        match self.text.as_bytes().first() {
            Some(b'{') => Shape::Object,
            Some(b'[') => Shape::Array,
            Some(b'"') => Shape::String,
            Some(b't' | b'f') => Shape::Bool,
            Some(b'n') => Shape::Null,
            _ => Shape::Number,
        }
    }

    /// Whether the value is `null`.
    pub fn is_null(self) -> bool {
        self.text == "null"
    }

    /// The fields of an object in their order; none for anything else.
    pub fn fields(self) -> Fields<'a> {
        Fields(Cursor::inside(self, b'{'))
    }

    /// The elements of an array in their order; none for anything else.
    pub fn elements(self) -> Elements<'a> {
        Elements(Cursor::inside(self, b'['))
    }

    /// The value of the first field of this name.
    pub fn get(self, name: &str) -> Option<Raw<'a>> {
        match self.ends {
            Some(ends) => ends.get(self, name),
            None => self.fields().find(|(key, _)| key.is(name)).map(|(_, value)| value),
        }
    }

    /// The string, if it is one.
    pub fn as_str(self) -> Option<JsonStr<'a>> {
        let inner = self.text.strip_prefix('"')?.strip_suffix('"')?;
        Some(JsonStr(inner))
    }

    /// The decoded characters of the field `name`, if it is a string.
    pub fn get_str(self, name: &str) -> Option<Cow<'a, str>> {
        Some(self.get(name)?.as_str()?.decode())
    }

    /// The boolean, if it is one.
    pub fn as_bool(self) -> Option<bool> {
        match self.text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The number as a whole number of at least zero; `3.0` counts.
    pub fn as_u64(self) -> Option<u64> {
        self.text.parse().ok().or_else(|| {
            let number = self.as_f64()?;
            (number >= 0.0 && number.fract() == 0.0 && number < 9_007_199_254_740_992.0).then_some(number as u64)
        })
    }

    /// The number, if it is a finite one.
    pub fn as_f64(self) -> Option<f64> {
        (self.shape() == Shape::Number).then(|| self.text.parse().ok())?.filter(|number: &f64| number.is_finite())
    }
}

/// Equal as text.
impl PartialEq for Raw<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Raw<'_> {}

impl fmt::Debug for Raw<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text)
    }
}

/// A JSON string as it was written: the text between the quotes, escapes and all.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct JsonStr<'a>(&'a str);

impl<'a> JsonStr<'a> {
    /// The text between the quotes, escapes and all.
    pub fn escaped(self) -> &'a str {
        self.0
    }

    /// The characters. A surrogate without its partner becomes U+FFFD.
    pub fn decode(self) -> Cow<'a, str> {
        match memchr(b'\\', self.0.as_bytes()).is_some() {
            true => Cow::Owned(check::unescape(self.0)),
            false => Cow::Borrowed(self.0),
        }
    }

    /// Whether the string has no characters.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Whether the characters are exactly these.
    pub fn is(self, text: &str) -> bool {
        let (escaped, wanted) = (self.0.as_bytes(), text.as_bytes());
        // An escape is longer than what it stands for, and what is before it is the same.
        escaped == wanted
            || (escaped.len() > wanted.len()
                && escaped.iter().zip(wanted).find(|(one, other)| one != other).is_none_or(|(byte, _)| *byte == b'\\')
                && self.decode() == text)
    }
}

impl fmt::Debug for JsonStr<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{}\"", self.0)
    }
}

/// An owned piece of a JSON string: escaped text that may stand between quotes. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Literal(Bytes);

impl Literal {
    /// Escapes `text`.
    pub fn from_text(text: &str) -> Self {
        let mut escaped = Vec::with_capacity(text.len() + 8);
        write::escape(&mut escaped, text);
        Self(escaped.into())
    }

    /// Takes text that should be escaped already; nothing if it could not stand between quotes.
    pub fn check(escaped: Bytes) -> Option<Self> {
        check::is_escaped(&escaped).then_some(Self(escaped))
    }

    /// The string `part` of the message `whole`, without copying it.
    pub fn within(whole: &Bytes, part: JsonStr<'_>) -> Self {
        match part.is_empty() {
            true => Self::default(),
            false => Self(whole.slice_ref(part.0.as_bytes())),
        }
    }

    /// Text that is escaped already: pieces of other literals.
    pub fn from_escaped(escaped: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(escaped))
    }

    /// The escaped text.
    pub fn escaped(&self) -> &[u8] {
        &self.0
    }

    /// The same as a borrowed string; empty for a piece that ends in the middle of a character.
    pub fn as_json_str(&self) -> JsonStr<'_> {
        JsonStr(check::utf8(&self.0).unwrap_or_default())
    }

    /// Whether the string has no characters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The characters.
    pub fn decode(&self) -> String {
        check::unescape(&check::utf8(&self.0).map_or_else(|_| String::from_utf8_lossy(&self.0), Cow::Borrowed))
    }
}

impl From<JsonStr<'_>> for Literal {
    fn from(part: JsonStr<'_>) -> Self {
        Self(Bytes::copy_from_slice(part.0.as_bytes()))
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{}\"", String::from_utf8_lossy(&self.0))
    }
}

/// An owned JSON value. Cheap to clone.
#[derive(Clone)]
pub struct Json {
    text: Bytes,
    /// Where the values of the document are that this value is a part of, if the check has taken note of it.
    ends: Option<Arc<Ends>>,
    /// Its own number there.
    number: u32,
}

impl Json {
    fn unnoted(text: Bytes) -> Self {
        Self { text, ends: None, number: 0 }
    }

    /// The value `part` of the message `whole`, without copying it.
    pub fn within(whole: &Bytes, part: Raw<'_>) -> Self {
        Self::unnoted(whole.slice_ref(part.text.as_bytes()))
    }

    /// Takes what a [`Writer`] wrote as one value.
    pub fn from_writer(writer: Writer) -> Self {
        Self::unnoted(writer.into_bytes().into())
    }

    /// A JSON string of these characters.
    pub fn string(text: &str) -> Self {
        let mut writer = Writer::with_capacity(text.len() + 16);
        writer.string(text);
        Self::from_writer(writer)
    }

    /// A JSON array of what `fill` writes.
    pub fn array(fill: impl FnOnce(&mut Writer)) -> Self {
        let mut writer = Writer::default();
        writer.array(fill);
        Self::from_writer(writer)
    }

    /// A JSON object of what `fill` writes.
    pub fn object(fill: impl FnOnce(&mut Writer)) -> Self {
        let mut writer = Writer::default();
        writer.object(fill);
        Self::from_writer(writer)
    }

    /// Checks `text` as one JSON value.
    pub fn parse(text: &Bytes) -> Result<Self, SyntaxError> {
        Raw::parse(text).map(|raw| Self::within(text, raw))
    }

    /// Checks a large document of at most `depth` levels. It and its parts know where their values end, so that every walk
    /// costs as much as it has values, not as it has bytes.
    pub fn parse_document(text: &Bytes, depth: usize) -> Result<Self, SyntaxError> {
        let mut ends = Ends::default();
        ends.begin(text.len());
        let value = check::check(text, depth, Some(&mut ends))?;
        let text = text.slice_ref(value.as_bytes());
        let noted = ends.noted().is_some();
        Ok(Self { text, ends: noted.then(|| Arc::new(ends)), number: 0 })
    }

    /// A part of this document, without copying it.
    pub fn part(&self, part: Raw<'_>) -> Self {
        let text = self.text.slice_ref(part.text.as_bytes());
        Self { text, ends: part.ends.and(self.ends.clone()), number: part.number }
    }

    /// The value, to be walked.
    pub fn raw(&self) -> Raw<'_> {
        let text = check::utf8(&self.text).expect("a Json is made from checked text only");
        Raw { text, ends: self.ends.as_deref(), number: self.number }
    }

    /// The text of the value.
    pub fn bytes(&self) -> &Bytes {
        &self.text
    }
}

/// Equal as text.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Json {}

impl From<Raw<'_>> for Json {
    fn from(raw: Raw<'_>) -> Self {
        Self::unnoted(Bytes::copy_from_slice(raw.text.as_bytes()))
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(&self.text))
    }
}

/// The fields of an object.
#[derive(Clone)]
pub struct Fields<'a>(Cursor<'a>);

impl<'a> Iterator for Fields<'a> {
    type Item = (JsonStr<'a>, Raw<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.field()
    }
}

/// The elements of an array.
#[derive(Clone)]
pub struct Elements<'a>(Cursor<'a>);

impl<'a> Iterator for Elements<'a> {
    type Item = Raw<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.value()
    }
}

/// Counts the lines before `offset`, for error messages.
fn line_of(text: &[u8], offset: usize) -> usize {
    memchr_iter(b'\n', text.get(..offset).unwrap_or(text)).count() + 1
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
