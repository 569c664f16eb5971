//! Field types of administrative requests and responses. Each one knows its limits: reading a request checks them, and the
//! OpenAPI document publishes them.
//!
//! Most comments are not doc comments, because those become descriptions in the document.

use std::{borrow::Cow, fmt};

use amalgam_core::{BudgetPeriod, BudgetUnit, Decider, LimitKind, OnError, TenantState, store::BankKind};
use amalgam_protocol::{Json, Raw, Shape};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, IgnoredAny, Unexpected, Visitor},
    ser::Error as _,
};
use serde_json::value::RawValue;

use super::request::VERBATIM;

// The maximum number of tools in a list.
const TOOLS: usize = 128;
// The maximum length of a tool name.
const TOOL: usize = 64;

// One line of text, not blank.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent, extend("maxLength" = LONGEST))]
pub(super) struct Line<const LONGEST: usize>(pub(super) String);

impl<const LONGEST: usize> Line<LONGEST> {
    pub(super) fn allows(text: &str) -> bool {
        !text.trim().is_empty() && text.chars().count() <= LONGEST && !text.chars().any(char::is_control)
    }
}

impl<'de, const LONGEST: usize> Deserialize<'de> for Line<LONGEST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match Self::allows(&text) {
            true => Ok(Self(text)),
            false => {
                Err(D::Error::custom(format_args!("must have 1 to {LONGEST} characters and none that cannot be seen")))
            }
        }
    }
}

// Text of several lines, not blank.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent, extend("maxLength" = LONGEST))]
pub(super) struct Prose<const LONGEST: usize>(pub(super) String);

impl<'de, const LONGEST: usize> Deserialize<'de> for Prose<LONGEST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match ProseOrBlank::<LONGEST>::deserialize(deserializer)? {
            ProseOrBlank(text) if text.is_empty() => Err(prose_error(LONGEST)),
            ProseOrBlank(text) => Ok(Self(text)),
        }
    }
}

// Text of several lines; blank counts as empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent, extend("maxLength" = LONGEST))]
pub(super) struct ProseOrBlank<const LONGEST: usize>(pub(super) String);

impl<'de, const LONGEST: usize> Deserialize<'de> for ProseOrBlank<LONGEST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let control = |character: char| character.is_control() && !matches!(character, '\n' | '\r' | '\t');
        match text.trim().is_empty() {
            true => Ok(Self(String::new())),
            false if text.chars().count() <= LONGEST && !text.chars().any(control) => Ok(Self(text)),
            false => Err(prose_error(LONGEST)),
        }
    }
}

fn prose_error<E: serde::de::Error>(longest: usize) -> E {
    E::custom(format_args!("must have 1 to {longest} characters and none that cannot be written"))
}

// A whole number from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent)]
pub(super) struct Positive(#[schemars(range(min = 1))] pub(super) i64);

impl<'de> Deserialize<'de> for Positive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Verbatim(value) = Verbatim::deserialize(deserializer)?;
        match (value.raw().shape(), value.raw().text().parse()) {
            (Shape::Number, Ok(number @ 1..)) => Ok(Self(number)),
            (Shape::Number, _) => Err(D::Error::custom("must be a whole number from 1")),
            _ => Err(mistyped("an integer")),
        }
    }
}

// A list of strings.
pub(super) struct Texts(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Verbatim(value) = Verbatim::deserialize(deserializer)?;
        let text = |element: Raw<'_>| element.as_str().map(|text| text.decode().into_owned());
        let texts = match value.raw().shape() {
            Shape::Array => value.raw().elements().map(text).collect(),
            _ => None,
        };
        texts.map(Self).ok_or_else(|| mistyped("a list of strings"))
    }
}

/// A value of another type than `expected`.
pub(super) fn mistyped<E: serde::de::Error>(expected: &str) -> E {
    E::invalid_type(Unexpected::Other("another value"), &expected)
}

// Valid tool names without duplicates, ignoring case. The tools need not exist yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent, extend("maxItems" = TOOLS))]
pub(super) struct ToolNames(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for ToolNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Texts(named) = Texts::deserialize(deserializer)?;
        if named.len() > TOOLS {
            return Err(D::Error::custom(format_args!("at most {TOOLS} tools")));
        }
        let mut tools: Vec<String> = Vec::with_capacity(named.len());
        for tool in named {
            if !is_tool_name(&tool) {
                return Err(mistyped(&format!("names of 1 to {TOOL} letters, digits, dashes and underscores")));
            }
            if !tools.iter().any(|known| known.eq_ignore_ascii_case(&tool)) {
                tools.push(tool);
            }
        }
        Ok(Self(tools))
    }
}

// A valid tool name; blank counts as none.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent)]
pub(super) struct ToolName(#[schemars(with = "Line<TOOL>")] pub(super) Option<String>);

impl<'de> Deserialize<'de> for ToolName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer) {
            Ok(blank) if blank.trim().is_empty() => Ok(Self(None)),
            Ok(tool) if is_tool_name(&tool) => Ok(Self(Some(tool))),
            _ => Err(mistyped(&format!("a name of 1 to {TOOL} letters, digits, dashes and underscores"))),
        }
    }
}

fn is_tool_name(tool: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !tool.is_empty() && tool.len() <= TOOL && tool.bytes().all(plain)
}

/// One of the words of a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word<T>(pub T);

/// A closed list of words.
pub trait Vocabulary: Copy {
    /// All words.
    const WORDS: &'static [&'static str];

    /// The word for a value.
    fn word(self) -> &'static str;

    /// The value for a word.
    fn of_word(word: &str) -> Option<Self>;
}

macro_rules! vocabulary {
    ($($type:ty: $($word:literal)*;)*) => {$(
        impl Vocabulary for $type {
            const WORDS: &'static [&'static str] = &[$($word),*];

            fn word(self) -> &'static str {
                self.name()
            }

            fn of_word(word: &str) -> Option<Self> {
                Self::named(word)
            }
        }
    )*};
}

vocabulary! {
    TenantState: "stored" "stateless";
    BankKind: "builtin" "http" "mcp" "client";
    OnError: "continue" "fail_turn";
    Decider: "caller" "admin";
    LimitKind: "tenants" "keys" "users" "models";
    BudgetUnit: "usd" "tokens";
    BudgetPeriod: "day" "month" "total";
}

impl<T: Vocabulary> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.word())
    }
}

impl<'de, T: Vocabulary> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        T::of_word(&word).map(Self).ok_or_else(|| D::Error::unknown_variant(&word, T::WORDS))
    }
}

impl<T: Vocabulary> JsonSchema for Word<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::WORDS.concat().into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"enum": T::WORDS})
    }
}

// A JSON value that is stored and returned exactly as it was written.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent)]
pub(super) struct Verbatim(#[schemars(with = "serde_json::Value")] pub(super) Json);

impl Serialize for Verbatim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.0.raw().text()).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Verbatim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Verbatim;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("any value, by a deserializer that hands over its text")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Verbatim, E> {
                Raw::parse(text.as_bytes()).map(|raw| Verbatim(raw.into())).map_err(E::custom)
            }
        }
        deserializer.deserialize_newtype_struct(VERBATIM, Reader)
    }
}

impl Verbatim {
    // A text that should be JSON; none if it is not.
    pub(super) fn of_text(text: String) -> Option<Self> {
        Json::parse(&text.into()).ok().map(Self)
    }
}

impl From<Json> for Verbatim {
    fn from(value: Json) -> Self {
        Self(value)
    }
}

// A JSON object that is stored and returned exactly as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline, transparent)]
#[serde(transparent)]
pub(super) struct Object(#[schemars(extend("type" = "object"))] Verbatim);

impl Object {
    pub(super) fn into_json(self) -> Json {
        self.0.0
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Verbatim::deserialize(deserializer)?;
        match value.0.raw().shape() {
            Shape::Object => Ok(Self(value)),
            _ => Err(mistyped("an object")),
        }
    }
}

impl From<Json> for Object {
    fn from(value: Json) -> Self {
        Self(value.into())
    }
}

/// Accepted and ignored.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent)]
pub(super) struct Ignored(#[schemars(with = "serde_json::Value")] ());

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self(()))
    }
}

/// Unix time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline, transparent)]
#[serde(transparent)]
pub struct UnixSeconds(#[schemars(with = "i64")] u64);

impl UnixSeconds {
    pub(super) fn from_ms(milliseconds: u64) -> Self {
        Self(milliseconds / 1000)
    }

    /// Milliseconds since 1970.
    pub fn to_ms(self) -> u64 {
        self.0.saturating_mul(1000)
    }
}
