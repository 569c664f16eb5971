//! `POST /v1/responses`: the request, as a view of its [`ResponseParameters`](crate::ResponseParameters).

use std::borrow::Cow;

use crate::{
    item::Item,
    json::{JsonStr, Raw, Shape},
    shape::{Field, Nulls, Present, ShapeError, list_of_present, object},
    tool::{Tool, ToolChoice},
};

/// The body of `POST /v1/responses`. Absent fields are `None`; null counts as absent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreateResponse<'a> {
    /// The model's name.
    pub model: Option<Cow<'a, str>>,
    /// The input.
    pub input: Option<Input<'a>>,
    /// The instructions before all input.
    pub instructions: Option<Input<'a>>,
    /// The response that this one continues.
    pub previous_response_id: Option<Cow<'a, str>>,
    /// The conversation that this one belongs to: an id, or an object with one.
    pub conversation: Option<Raw<'a>>,
    /// The tools.
    pub tools: Vec<Tool<'a>>,
    /// Which tools must or must not be called.
    pub tool_choice: Option<ToolChoice<'a>>,
    /// Whether one answer may contain several calls.
    pub parallel_tool_calls: Option<bool>,
    /// The maximum number of server-run tool calls.
    pub max_tool_calls: Option<u64>,
    /// The format and verbosity of the answer's text.
    pub text: Text<'a>,
    /// Reasoning effort and summary.
    pub reasoning: Option<ReasoningSettings<'a>>,
    /// Optional parts of the output to include.
    pub include: Vec<Cow<'a, str>>,
    /// The maximum number of output tokens.
    pub max_output_tokens: Option<u64>,
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// 0 to 1.
    pub top_p: Option<f64>,
    /// −2 to 2.
    pub presence_penalty: Option<f64>,
    /// −2 to 2.
    pub frequency_penalty: Option<f64>,
    /// 0 to 20.
    pub top_logprobs: Option<u64>,
    /// `auto` or `disabled`.
    pub truncation: Option<Cow<'a, str>>,
    /// Whether events are streamed.
    pub stream: Option<bool>,
    /// `include_obfuscation` and the like.
    pub stream_options: Option<Raw<'a>>,
    /// Whether the response is stored.
    pub store: Option<bool>,
    /// Whether the turn runs in the background.
    pub background: Option<bool>,
    /// Up to 16 pairs of strings.
    pub metadata: Option<Raw<'a>>,
    /// `auto`, `default`, `flex`, `priority`.
    pub service_tier: Option<Cow<'a, str>>,
    /// The end user, hashed.
    pub safety_identifier: Option<Cow<'a, str>>,
    /// Groups requests that share a prefix in the upstream's cache.
    pub prompt_cache_key: Option<Cow<'a, str>>,
    /// `in_memory`, `24h`.
    pub prompt_cache_retention: Option<Cow<'a, str>>,
    /// The end user; the older field.
    pub user: Option<Cow<'a, str>>,
    /// A prompt template.
    pub prompt: Option<Raw<'a>>,
    /// When to compact automatically.
    pub context_management: Option<Raw<'a>>,
    /// Fields of Chat Completions servers that this API does not have, in order.
    pub chat_fields: Vec<(JsonStr<'a>, Raw<'a>)>,
    /// Unknown fields, in order.
    pub extra: Vec<(JsonStr<'a>, Raw<'a>)>,
    /// Skipped null elements of `input`, `instructions` or `tools`.
    pub nulls: Vec<(&'static str, Nulls)>,
}

/// A text, or a list of items.
#[derive(Debug, Clone, PartialEq)]
pub enum Input<'a> {
    /// One text.
    Text(JsonStr<'a>),
    /// Items in order; null entries are skipped.
    Items(Vec<Item<'a>>),
}

impl Input<'_> {
    /// Whether it counts as missing: an empty text does, an empty list does not.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }
}

impl<'a> Input<'a> {
    /// Reads a caller's input, and which null elements were skipped.
    pub(crate) fn from_caller(raw: Raw<'a>) -> Result<(Self, Option<Nulls>), ShapeError> {
        match raw.shape() {
            Shape::String => JsonStr::read(raw).map(|text| (Self::Text(text), None)),
            Shape::Array => {
                let Present { list, nulls } = list_of_present(raw, "an array of items", Item::from_caller)?;
                Ok((Self::Items(list), nulls))
            }
            _ => Err(ShapeError::expected("", "a string or an array of items", raw)),
        }
    }
}

/// `text`: format and verbosity of the answer's text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Text<'a> {
    /// The object as it was written; `None` if it is absent.
    pub raw: Option<Raw<'a>>,
    /// Plain text, JSON, or JSON that follows a schema.
    pub format: TextFormat<'a>,
    /// `low`, `medium`, `high`.
    pub verbosity: Option<Cow<'a, str>>,
}

/// `text.format`
#[derive(Debug, Clone, PartialEq, Default)]
pub enum TextFormat<'a> {
    /// Plain text.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that follows a schema.
    JsonSchema(JsonSchemaFormat<'a>),
    /// An unknown format.
    Other(Raw<'a>),
}

/// `text.format` of type `json_schema`.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonSchemaFormat<'a> {
    /// The schema's name.
    pub name: Cow<'a, str>,
    /// Its description for the model.
    pub description: Option<JsonStr<'a>>,
    /// The schema.
    pub schema: Raw<'a>,
    /// Whether the answer must follow the schema exactly.
    pub strict: Option<bool>,
}

impl<'a> Field<'a> for Text<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        let mut text = Self { raw: Some(raw), ..Self::default() };
        for (key, value) in object(raw)? {
            match &*key.decode() {
                "format" if !value.is_null() => {
                    text.format = TextFormat::read(value).map_err(|error| error.under("format"))?;
                }
                "verbosity" => text.verbosity = Field::field("verbosity", value)?,
                _ => {}
            }
        }
        Ok(text)
    }
}

impl<'a> Field<'a> for TextFormat<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        object(raw)?;
        let kind = raw.get("type").ok_or_else(|| ShapeError::missing("type"))?;
        match JsonStr::field("type", kind)?.escaped() {
            "text" => Ok(Self::Text),
            "json_object" => Ok(Self::JsonObject),
            "json_schema" => {
                // Chat Completions has the same fields one level deeper.
                let (fields, prefix) = match raw.get("json_schema") {
                    Some(nested) if nested.shape() == Shape::Object => (nested, "json_schema."),
                    _ => (raw, ""),
                };
                let path = |name: &str| format!("{prefix}{name}");
                let schema = fields.get("schema").ok_or_else(|| ShapeError::missing(&path("schema")))?;
                if !matches!(schema.shape(), Shape::Object | Shape::Bool) {
                    return Err(ShapeError::expected(&path("schema"), "an object", schema));
                }
                let name = fields.get("name").ok_or_else(|| ShapeError::missing(&path("name")))?;
                Ok(Self::JsonSchema(JsonSchemaFormat {
                    name: Field::field(&path("name"), name)?,
                    description: optional(fields, "description")?,
                    schema,
                    strict: optional(fields, "strict")?,
                }))
            }
            _ => Ok(Self::Other(raw)),
        }
    }
}

/// `reasoning`
#[derive(Debug, Clone, PartialEq)]
pub struct ReasoningSettings<'a> {
    /// The object as it was written.
    pub raw: Raw<'a>,
    /// `none`, `minimal`, `low`, `medium`, `high`, `xhigh`.
    pub effort: Option<Cow<'a, str>>,
    /// `auto`, `concise`, `detailed`.
    pub summary: Option<Cow<'a, str>>,
}

impl<'a> Field<'a> for ReasoningSettings<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        object(raw)?;
        let summary: Option<Cow<'a, str>> = optional(raw, "summary")?;
        let summary = match summary {
            None => optional(raw, "generate_summary")?,
            value => value,
        };
        Ok(Self { raw, effort: optional(raw, "effort")?, summary })
    }
}

fn optional<'a, T: Field<'a>>(raw: Raw<'a>, name: &str) -> Result<Option<T>, ShapeError> {
    match raw.get(name) {
        Some(value) => Field::field(name, value),
        None => Ok(None),
    }
}

impl<'a> Field<'a> for ToolChoice<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        Self::read(raw)
    }
}
