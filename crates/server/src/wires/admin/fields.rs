//! Field types of administrative requests and responses. Each one knows its limits: reading a request checks them, and the
//! OpenAPI document publishes them.
//!
//! Most comments are not doc comments, because those become descriptions in the document.

use std::{borrow::Cow, fmt};

use amalgam_core::{Decider, OnError, TenantState, store::BankKind};
use amalgam_protocol::{Json, Raw, Shape};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, IgnoredAny, SeqAccess, Unexpected, Visitor},
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

impl<'de, const LONGEST: usize> Deserialize<'de> for Line<LONGEST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match !text.trim().is_empty() && text.chars().count() <= LONGEST && !text.chars().any(char::is_control) {
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
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Positive;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an integer")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Positive, E> {
                match number {
                    1.. => Ok(Positive(number)),
                    _ => self.visit_f64(0.0),
                }
            }

            fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<Positive, E> {
                self.visit_f64(0.0)
            }

            fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Positive, E> {
                Err(E::custom("must be a whole number from 1"))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

// A list of strings.
pub(super) struct Texts(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Texts;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of strings")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                let mistyped = |_| A::Error::invalid_type(Unexpected::Seq, &"a list of strings");
                while let Some(text) = elements.next_element::<String>().map_err(mistyped)? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_seq(Reader)
    }
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
                let expected = format!("names of 1 to {TOOL} letters, digits, dashes and underscores");
                return Err(D::Error::invalid_type(Unexpected::Str(&tool), &expected.as_str()));
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
        let expected = format!("a name of 1 to {TOOL} letters, digits, dashes and underscores");
        let mistyped = || D::Error::invalid_type(Unexpected::Other("no name"), &expected.as_str());
        match String::deserialize(deserializer).map_err(|_| mistyped())? {
            blank if blank.trim().is_empty() => Ok(Self(None)),
            tool if is_tool_name(&tool) => Ok(Self(Some(tool))),
            _ => Err(mistyped()),
        }
    }
}

fn is_tool_name(tool: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !tool.is_empty() && tool.len() <= TOOL && tool.bytes().all(plain)
}

// One of the words of a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word<T>(pub(super) T);

pub(super) trait Vocabulary: Copy {
    const WORDS: &'static [&'static str];

    fn word(self) -> &'static str;

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

impl From<&Json> for Verbatim {
    fn from(value: &Json) -> Self {
        Self(value.clone())
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
            _ => Err(D::Error::invalid_type(Unexpected::Other("another value"), &"an object")),
        }
    }
}

impl From<&Json> for Object {
    fn from(value: &Json) -> Self {
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
pub(crate) struct UnixSeconds(#[schemars(with = "i64")] u64);

impl UnixSeconds {
    pub(crate) fn from_ms(milliseconds: u64) -> Self {
        Self(milliseconds / 1000)
    }
}

// Values of the field `object`, which names the type of a response.
macro_rules! kinds {
    ($($kind:ident = $name:literal;)*) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $kind;

        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($name)
            }
        }

        impl JsonSchema for $kind {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"const": $name})
            }
        }
    )*};
}

kinds! {
    AgentConfigKind = "agent_config";
    ApiKeyKind = "api_key";
    ApprovalKind = "approval";
    CollectionKind = "knowledge.collection";
    DiagnosisKind = "diagnosis";
    DocumentKind = "knowledge.document";
    ListKind = "list";
    ModeKind = "mode";
    ProfileDiffKind = "profile.diff";
    ProfileKind = "profile";
    SessionKind = "session";
    SessionMessageKind = "session.message";
    TenantKind = "tenant";
    ToolKind = "tool";
    ToolStatisticsKind = "tool.statistics";
    ToolUsageKind = "tool.usage";
    TurnKind = "turn";
}
