//! Requests and reads answers that follow a JSON schema.
//!
//! Newer models have structured output of their own, which goes well with thinking and with tools. It takes a part of JSON
//! Schema only. Elsewhere a tool whose input is the answer, forced where nothing else may be called, gives JSON by the
//! schema; its input comes out as the message's text. Whether the answer follows the schema is checked by the engine.

mod native;

use amalgam_core::{Choice, Toolset};
use amalgam_protocol::{JsonSchemaFormat, Raw, Shape, TextFormat, Writer};

/// The tool that takes the answer.
const NAME: &str = "amalgam_json";

/// The field around an answer that is not an object.
pub(super) const WRAPPER: &str = "answer";

/// What the text of the answer comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The model's text as it comes.
    Plain,
    /// The model's text, which the API itself holds to the schema.
    Native,
    /// The model's text, held back so that only the JSON in it is passed on.
    Object,
    /// The input of this tool.
    Tool {
        /// What the model calls it.
        name: String,
        /// Whether the answer stands inside an object of ours.
        wrapped: bool,
    },
}

impl Answer {
    /// What `format` needs. A caller that demands one of its own tools gets a call and no text.
    /// `native` says that the model has structured output of its own.
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

    /// What the model is told, where the wire itself does not make it obey.
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

    /// A short form that can be kept between asking and reading.
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

/// Whether a schema can stand as a tool's: an object at its root, without alternatives there.
pub(super) fn has_object_root(schema: Raw<'_>) -> bool {
    let object = schema.get("type").and_then(Raw::as_str).is_some_and(|kind| kind.is("object"));
    object && !["anyOf", "oneOf", "allOf", "$ref"].iter().any(|word| schema.get(word).is_some())
}

/// An object with one field that follows `schema`. Definitions move up with the root that references start from.
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

/// The JSON in a text that a model may have put words or a fence around; the text itself where there is none.
pub(super) fn bare_object(text: &str) -> &str {
    let whole = text.trim();
    let inner = whole.find('{').zip(whole.rfind('}')).and_then(|(start, end)| whole.get(start..=end));
    inner.filter(|inner| Raw::parse(inner.as_bytes()).is_ok()).unwrap_or(text)
}
