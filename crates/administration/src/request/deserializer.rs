//! Reads a JSON value into a serde type, with errors that name the field and its mistake.
//!
//! The errors of `serde_json` name the field only inside a message, and it cannot return a part of the text unchanged.

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map},
    fmt,
};

use amalgam_core::Fault;
use amalgam_protocol::{Raw, Shape};
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, Error, Expected, IntoDeserializer, MapAccess, Unexpected, Visitor,
        value::{CowStrDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};

use super::{missing, mistyped, unknown, wrong};

/// A newtype struct of this name is given the text of its value as it was written.
pub(crate) const VERBATIM: &str = "Verbatim";

/// Reads a value into `T`.
pub(super) fn read<'de, T: Deserialize<'de>>(value: Raw<'de>) -> Result<T, FieldError> {
    T::deserialize(JsonValue(value))
}

/// What is wrong with a field.
#[derive(Debug)]
pub(super) struct FieldError {
    /// The innermost field that was being read.
    field: Option<String>,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    /// What would have the right type.
    Type(String),
    /// Why the value is wrong.
    Value(String),
    Missing(&'static str),
    Unknown {
        name: String,
        known: &'static [&'static str],
    },
}

impl FieldError {
    fn new(problem: Problem) -> Self {
        Self { field: None, problem }
    }

    fn within(mut self, name: &str) -> Self {
        self.field.get_or_insert_with(|| name.to_owned());
        self
    }
}

impl From<FieldError> for Fault {
    fn from(FieldError { field, problem }: FieldError) -> Self {
        let field = field.unwrap_or_else(|| "body".to_owned());
        match problem {
            Problem::Type(expected) => mistyped(field, &expected),
            Problem::Value(why) => wrong(field, &why),
            Problem::Missing(name) => missing(name),
            Problem::Unknown { name, known } => unknown(&name, known),
        }
    }
}

impl std::error::Error for FieldError {}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self:?}")
    }
}

impl Error for FieldError {
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self::new(Problem::Value(why.to_string()))
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(Problem::Type(expected.to_string()))
    }

    fn unknown_variant(_: &str, known: &'static [&'static str]) -> Self {
        let quoted: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
        Self::new(Problem::Value(match quoted.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => quoted.concat(),
        }))
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self::new(Problem::Unknown { name: name.to_owned(), known })
    }

    fn missing_field(name: &'static str) -> Self {
        Self::new(Problem::Missing(name))
    }
}

struct JsonValue<'de>(Raw<'de>);

impl<'de> Deserializer<'de> for JsonValue<'de> {
    type Error = FieldError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        let Self(raw) = self;
        match raw.shape() {
            Shape::Object => visitor.visit_map(Entries::of(raw)),
            Shape::Array => visitor.visit_seq(SeqDeserializer::new(raw.elements().map(JsonValue))),
            Shape::String => match raw.as_str().map(|text| text.decode()).unwrap_or_default() {
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            },
            Shape::Number => match (raw.text().parse(), raw.text().parse(), raw.as_f64()) {
                (Ok(number), _, _) => visitor.visit_i64(number),
                (_, Ok(number), _) => visitor.visit_u64(number),
                (_, _, number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Shape::Bool => visitor.visit_bool(raw.as_bool() == Some(true)),
            Shape::Null => visitor.visit_unit(),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.0.is_null() {
            true => visitor.visit_none(),
            false => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &str, visitor: V) -> Result<V::Value, FieldError> {
        match name == VERBATIM {
            true => visitor.visit_borrowed_str(self.0.text()),
            false => visitor.visit_newtype_struct(self),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct
        map struct enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, FieldError> for JsonValue<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The fields of an object. Of several of one name the last counts; null counts as absent.
struct Entries<'de> {
    rest: btree_map::IntoIter<Cow<'de, str>, Raw<'de>>,
    current: Option<(Cow<'de, str>, Raw<'de>)>,
}

impl<'de> Entries<'de> {
    fn of(object: Raw<'de>) -> Self {
        let mut fields: BTreeMap<_, _> = object.fields().map(|(name, value)| (name.decode(), value)).collect();
        fields.retain(|_, value| !value.is_null());
        Self { rest: fields.into_iter(), current: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = FieldError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, FieldError> {
        self.current = self.rest.next();
        let Some((name, _)) = &self.current else { return Ok(None) };
        let name: CowStrDeserializer<'_, FieldError> = Cow::Borrowed(&**name).into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, FieldError> {
        let (name, value) = self.current.take().expect("serde asks for a value after its key");
        seed.deserialize(JsonValue(value)).map_err(|error| error.within(&name))
    }
}
