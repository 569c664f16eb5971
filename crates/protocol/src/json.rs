//! Zero-copy views of JSON text.
//!
//! A text is checked once ([`Raw::parse`]); then it is walked in place, and every value is a slice of it. Strings keep
//! their escapes until they are decoded, so that a text can pass from one API to another without being decoded and
//! encoded again.

mod check;
mod quotes;
mod walk;
mod write;

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use bytestring::ByteString;
use memchr::{memchr, memchr_iter};

pub use check::SyntaxError;
use walk::Cursor;
pub use walk::ValueIndex;
pub use write::Writer;

/// The default limit on the nesting of untrusted JSON.
pub const DEFAULT_DEPTH: usize = 64;

/// One valid JSON value, without white space around it.
#[derive(Clone, Copy)]
pub struct Raw<'a> {
    text: &'a str,
    /// The index of the values inside it, if the check has recorded one.
    index: Option<&'a ValueIndex>,
    /// Its position in the index.
    position: u32,
}

/// The type of a value, known by its first character.
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
    /// `null`, for an absent value.
    pub const NULL: Raw<'static> = Raw::unindexed("null");

    /// `{}`
    pub const EMPTY_OBJECT: Raw<'static> = Raw::unindexed("{}");

    /// Checks `text` as one JSON value of at most [`DEFAULT_DEPTH`] levels.
    pub fn parse(text: &'a [u8]) -> Result<Self, SyntaxError> {
        Self::parse_within(text, DEFAULT_DEPTH)
    }

    /// Checks `text` as one JSON value of at most `depth` levels.
    pub fn parse_within(text: &'a [u8], depth: usize) -> Result<Self, SyntaxError> {
        check::check(text, depth, None).map(Raw::unindexed)
    }

    /// The same for a large text. Fills `index`, which every walk through the value uses.
    pub fn parse_large(text: &'a [u8], depth: usize, index: &'a mut ValueIndex) -> Result<Self, SyntaxError> {
        index.begin(text.len());
        let text = check::check(text, depth, Some(index))?;
        Ok(Raw { text, index: index.complete(), position: 0 })
    }

    /// Valid text without an index.
    const fn unindexed(text: &'a str) -> Self {
        Raw { text, index: None, position: 0 }
    }

    /// Text that this server wrote as one JSON value; `None` if it is not UTF-8.
    pub fn written_here(text: &'a [u8]) -> Option<Self> {
        check::utf8(text).ok().map(Raw::unindexed)
    }

    /// The text of the value.
    pub fn text(self) -> &'a str {
        self.text
    }

    /// The type of the value.
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

    /// The fields of an object, in order; none for any other value.
    pub fn fields(self) -> Fields<'a> {
        Fields(Cursor::inside(self, b'{'))
    }

    /// The elements of an array, in order; none for any other value.
    pub fn elements(self) -> Elements<'a> {
        Elements(Cursor::inside(self, b'['))
    }

    /// The value of the first field with this name.
    pub fn get(self, name: &str) -> Option<Raw<'a>> {
        match self.index {
            Some(index) => index.get(self, name),
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

    /// The number as a non-negative integer; `3.0` counts.
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

/// Compares the text.
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

/// A JSON string in its escaped form, without the quotes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct JsonStr<'a>(&'a str);

impl<'a> JsonStr<'a> {
    /// The escaped text, without the quotes.
    pub fn escaped(self) -> &'a str {
        self.0
    }

    /// The decoded characters. An unpaired surrogate becomes U+FFFD.
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

    /// Whether the decoded characters equal `text`.
    pub fn is(self, text: &str) -> bool {
        let (escaped, wanted) = (self.0.as_bytes(), text.as_bytes());
        // An escape is longer than its character, so the lengths differ if there is one.
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

/// An owned piece of a JSON string in its escaped form. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Literal(Bytes);

impl Literal {
    /// Escapes `text`.
    pub fn from_text(text: &str) -> Self {
        let mut escaped = Vec::with_capacity(text.len() + 8);
        write::escape(&mut escaped, text);
        Self(escaped.into())
    }

    /// Checks text that should be escaped; `None` if it is not valid inside quotes.
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

    /// Text that is already escaped: pieces of other literals.
    pub fn from_escaped(escaped: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(escaped))
    }

    /// The escaped text.
    pub fn escaped(&self) -> &[u8] {
        &self.0
    }

    /// The same as a borrowed string; empty for a piece that ends inside a character.
    pub fn as_json_str(&self) -> JsonStr<'_> {
        JsonStr(check::utf8(&self.0).unwrap_or_default())
    }

    /// Whether the string has no characters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The decoded characters.
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
    text: ByteString,
    /// The index of the document that this value is a part of, if the check has recorded one.
    index: Option<Arc<ValueIndex>>,
    /// Its position in the index.
    position: u32,
}

impl Json {
    fn unindexed(text: Bytes) -> Self {
        let text = ByteString::try_from(text).expect("a Json is made from checked text only");
        Self { text, index: None, position: 0 }
    }

    /// The value `part` of the message `whole`, without copying it.
    pub fn within(whole: &Bytes, part: Raw<'_>) -> Self {
        Self::unindexed(whole.slice_ref(part.text.as_bytes()))
    }

    /// The value that a [`Writer`] wrote.
    pub fn from_writer(writer: Writer) -> Self {
        Self::unindexed(writer.into_bytes().into())
    }

    /// A JSON string with these characters.
    pub fn string(text: &str) -> Self {
        let mut writer = Writer::with_capacity(text.len() + 16);
        writer.string(text);
        Self::from_writer(writer)
    }

    /// A JSON array with the elements that `fill` writes.
    pub fn array(fill: impl FnOnce(&mut Writer)) -> Self {
        let mut writer = Writer::default();
        writer.array(fill);
        Self::from_writer(writer)
    }

    /// A JSON object with the fields that `fill` writes.
    pub fn object(fill: impl FnOnce(&mut Writer)) -> Self {
        let mut writer = Writer::default();
        writer.object(fill);
        Self::from_writer(writer)
    }

    /// Checks `text` as one JSON value.
    pub fn parse(text: &Bytes) -> Result<Self, SyntaxError> {
        Raw::parse(text).map(|raw| Self::within(text, raw))
    }

    /// Checks a large document of at most `depth` levels and records the index of its values, so that the cost of a walk
    /// depends on the number of values, not of bytes.
    pub fn parse_document(text: &Bytes, depth: usize) -> Result<Self, SyntaxError> {
        let whole = ByteString::try_from(text.clone()).map_err(|error| check::not_text(text, error))?;
        let mut index = ValueIndex::default();
        index.begin(text.len());
        let text = whole.slice_ref(check::check_text(&whole, depth, Some(&mut index))?);
        let indexed = index.complete().is_some();
        Ok(Self { text, index: indexed.then(|| Arc::new(index)), position: 0 })
    }

    /// A part of this document, without copying it.
    pub fn part(&self, part: Raw<'_>) -> Self {
        let text = self.text.slice_ref(part.text);
        Self { text, index: part.index.and(self.index.clone()), position: part.position }
    }

    /// A view of the value.
    pub fn raw(&self) -> Raw<'_> {
        Raw { text: &self.text, index: self.index.as_deref(), position: self.position }
    }

    /// The text of the value.
    pub fn bytes(&self) -> &Bytes {
        self.text.as_bytes()
    }
}

/// Compares the text.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Json {}

impl From<Raw<'_>> for Json {
    fn from(raw: Raw<'_>) -> Self {
        Self { text: ByteString::from(raw.text), index: None, position: 0 }
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
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
