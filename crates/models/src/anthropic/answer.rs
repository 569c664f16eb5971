//! Requests and reads answers that follow a JSON schema.
//!
//! Newer models have structured output, which works with thinking and tools, but supports only a part of JSON Schema.
//! Otherwise a tool whose input is the answer is used, forced if no other tool may be called; its input becomes the
//! message's text. The engine checks whether the answer follows the schema.

mod native;

use amalgam_core::{Choice, Toolset};
use amalgam_protocol::{JsonSchemaFormat, Raw, Shape, TextFormat, Writer};

/// The tool whose input is the answer.
const NAME: &str = "amalgam_json";

/// The field that wraps an answer that is not an object.
pub(super) const WRAPPER: &str = "answer";

/// The source of the answer's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The model's text.
    Plain,
    /// The model's text; the API enforces the schema.
    Native,
    /// The model's text, held so that only the JSON in it is passed on.
    Object,
    /// The input of this tool.
    Tool {
        /// The tool's name for the model.
        name: String,
        /// Whether the answer is wrapped in an object.
        wrapped: bool,
    },
}

impl Answer {
    /// The source for `format`. If the caller requires one of its own tools, the answer is a call without text.
    /// `native` says whether the model has structured output.
    pub(super) fn new(format: &TextFormat<'_>, toolset: &Toolset<'_>, native: bool) -> Self {
        match format {
            TextFormat::Text | TextFormat::Other(_) => Self::Plain,
            TextFormat::JsonObject => Self::Object,
            TextFormat::JsonSchema(_) if matches!(toolset.choice, Choice::Required | Choice::Named(_)) => Self::Plain,
            TextFormat::JsonSchema(format) if native && native::takes(format.schema) => Self::Native,
            TextFormat::JsonSchema(format) => {
                let mut name = NAME.to_owned();
                while toolset.offers.iter().any(|offer| offer.name == name) {
                    name.push('_');
                }
                Self::Tool { name, wrapped: !has_object_root(format.schema) }
            }
        }
    }

    /// The instruction for the model, if the API does not enforce the format.
    pub(super) fn instruction(&self, forced: bool) -> Option<String> {
        match self {
            Self::Plain | Self::Native => None,
            Self::Object => Some(
                "Answer with a single JSON object and nothing else: no words before or after it and no code fence."
                    .to_owned(),
            ),
            Self::Tool { .. } if forced => None,
            Self::Tool { name, .. } => Some(format!(
                "Give your final answer only by calling the tool `{name}` once, with the answer as its input; write no \
                 other text."
            )),
        }
    }

    /// Writes the tool, if there is one.
    pub(super) fn write_tool(&self, format: &TextFormat<'_>, writer: &mut Writer) {
        let (Self::Tool { name, wrapped }, TextFormat::JsonSchema(format)) = (self, format) else { return };
        writer.object(|writer| {
            writer.key("name").string(name);
            writer.key("description").string(&description(format));
            match wrapped {
                false => writer.key("input_schema").raw(format.schema),
                true => wrapper(writer.key("input_schema"), format.schema),
            }
        });
    }

    /// A short form that is stored between request and answer.
    pub(super) fn to_note(&self) -> Option<String> {
        match self {
            Self::Plain | Self::Native => None,
            Self::Object => Some("object".to_owned()),
            Self::Tool { name, wrapped: false } => Some(format!("tool {name}")),
            Self::Tool { name, wrapped: true } => Some(format!("wrapped {name}")),
        }
    }

    /// Reads the short form.
    pub(super) fn from_context(own: Option<&str>) -> Self {
        match own.map(|own| own.split_once(' ').unwrap_or((own, ""))) {
            Some(("object", _)) => Self::Object,
            Some(("tool", name)) => Self::Tool { name: name.to_owned(), wrapped: false },
            Some(("wrapped", name)) => Self::Tool { name: name.to_owned(), wrapped: true },
            _ => Self::Plain,
        }
    }
}

fn description(format: &JsonSchemaFormat<'_>) -> String {
    let own = format!("Gives the final answer, `{}`: the input of this tool is the answer.", format.name);
    match format.description {
        Some(description) => format!("{own} {}", description.decode()),
        None => own,
    }
}

/// Whether a schema can be a tool's schema: an object at its root, without alternatives there.
pub(super) fn has_object_root(schema: Raw<'_>) -> bool {
    let object = schema.get("type").and_then(Raw::as_str).is_some_and(|kind| kind.is("object"));
    object && !["anyOf", "oneOf", "allOf", "$ref"].iter().any(|word| schema.get(word).is_some())
}

/// Writes an object with one field that follows `schema`. Definitions move to the root, where references start.
fn wrapper(writer: &mut Writer, schema: Raw<'_>) {
    let definitions = |name: &str| schema.get(name).filter(|value| value.shape() == Shape::Object);
    writer.object(|writer| {
        writer.key("type").string("object");
        writer.key("properties").object(|writer| writer.key(WRAPPER).raw(schema));
        writer.key("required").array(|writer| writer.string(WRAPPER));
        writer.key("additionalProperties").bool(false);
        for name in ["$defs", "definitions"] {
            if let Some(value) = definitions(name) {
                writer.key(name).raw(value);
            }
        }
    });
}

/// The JSON in a text with words or a code fence around it; the text itself if it has no JSON.
pub(super) fn bare_object(text: &str) -> &str {
    let whole = text.trim();
    let inner = whole.find('{').zip(whole.rfind('}')).and_then(|(start, end)| whole.get(start..=end));
    inner.filter(|inner| Raw::parse(inner.as_bytes()).is_ok()).unwrap_or(text)
}
