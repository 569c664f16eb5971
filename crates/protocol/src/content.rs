//! The content of messages and tool outputs: a text, or a list of parts.

use std::borrow::Cow;

use crate::{
    json::{JsonStr, Raw, Shape},
    shape::{Field, ShapeError, list, object, shape_keep, shape_name, shape_take, view},
};

/// The content of a message or of a tool's output.
#[derive(Debug, Clone, PartialEq)]
pub enum Content<'a> {
    /// One text.
    Text(JsonStr<'a>),
    /// Parts in order.
    Parts(Vec<Part<'a>>),
    /// Any other JSON value, which some clients send as a tool's output.
    Value(Raw<'a>),
}

impl<'a> Content<'a> {
    /// No content.
    pub const EMPTY: Content<'static> = Content::Parts(Vec::new());

    /// All text, joined, without parts that are not text.
    pub fn text(&self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text.decode(),
            Self::Value(value) => Cow::Borrowed(value.text()),
            Self::Parts(parts) => match parts.as_slice() {
                [Part { kind: PartKind::Text { text, .. }, .. }] => text.decode(),
                parts => parts.iter().filter_map(Part::text).map(JsonStr::decode).collect::<Vec<_>>().join("").into(),
            },
        }
    }

    /// Whether it has neither text nor parts.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
            Self::Value(_) => false,
        }
    }
}

/// The content of a message: a string or a list of parts; `null` is empty.
impl<'a> Field<'a> for Content<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        match raw.shape() {
            Shape::String => JsonStr::read(raw).map(Self::Text),
            Shape::Array => list(raw, "an array", Part::read).map(Self::Parts),
            _ => Err(ShapeError::expected("", "a string or an array of content parts", raw)),
        }
    }
}

/// The output of a tool: as content, or any other JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Output<'a>(pub(crate) Content<'a>);

impl<'a> Field<'a> for Output<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        match raw.shape() {
            Shape::String => Content::read(raw).map(Self),
            // A list of parts is content; any other list is a value that the client did not encode as text.
            Shape::Array if raw.elements().all(|part| part.get("type").is_some_and(|kind| kind.as_str().is_some())) => {
                Content::read(raw).map(Self)
            }
            _ => Ok(Self(Content::Value(raw))),
        }
    }
}

/// One part of a content, with the text that it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Part<'a> {
    /// The part as it was written.
    pub raw: Raw<'a>,
    /// Its kind.
    pub kind: PartKind<'a>,
}

/// The kinds of content parts.
#[derive(Debug, Clone, PartialEq)]
pub enum PartKind<'a> {
    /// `input_text`, `output_text`, `text`, `summary_text`, `reasoning_text`.
    Text {
        /// The part's type.
        kind: TextKind,
        /// The text; null counts as empty.
        text: JsonStr<'a>,
    },
    /// `refusal`
    Refusal(JsonStr<'a>),
    /// `input_image`, and `image_url` as chat clients write it.
    Image(Image<'a>),
    /// `input_file`
    File(File<'a>),
    /// `input_audio`
    Audio,
    /// `input_video`
    Video,
    /// `computer_screenshot`
    Screenshot(Image<'a>),
    /// `encrypted_content`: never shown to a model in plain text.
    Encrypted,
    /// A kind that this version does not know.
    Other(Cow<'a, str>),
}

/// The five types of text parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// `input_text`
    Input,
    /// `output_text`
    Output,
    /// `text`
    Plain,
    /// `summary_text`
    Summary,
    /// `reasoning_text`
    Reasoning,
}

view! {
    /// An image by address, by data URI or by file id.
    pub struct Image<'a> {
        /// `https://…` or `data:image/…;base64,…`
        url as "image_url": Option<ImageUrl<'a>>,
        /// The id of an uploaded file.
        file_id: Option<Cow<'a, str>>,
        /// `low`, `high`, `auto`, `original`.
        detail: Option<Cow<'a, str>>,
    }
}

/// The address of an image: a string, or `{"url": …}` as chat clients write it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImageUrl<'a>(pub JsonStr<'a>);

impl<'a> Field<'a> for ImageUrl<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        match raw.get("url") {
            Some(url) => JsonStr::field("url", url).map(Self),
            None => JsonStr::read(raw).map(Self),
        }
    }
}

view! {
    /// A file by address, by its bytes or by file id.
    pub struct File<'a> {
        /// Base64, with or without the prefix `data:…;base64,`.
        data as "file_data": Option<JsonStr<'a>>,
        /// `https://…`
        url as "file_url": Option<JsonStr<'a>>,
        /// The id of an uploaded file.
        file_id: Option<Cow<'a, str>>,
        /// The user's name of the file.
        filename: Option<Cow<'a, str>>,
    }
}

impl<'a> Part<'a> {
    /// The text, if the part is text or a refusal.
    pub fn text(&self) -> Option<JsonStr<'a>> {
        match &self.kind {
            PartKind::Text { text, .. } | PartKind::Refusal(text) => Some(*text),
            _ => None,
        }
    }
}

impl<'a> Field<'a> for Part<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        object(raw)?;
        let kind: Cow<'a, str> = match raw.get("type") {
            Some(kind) => Field::field("type", kind)?,
            None => return Err(ShapeError::missing("type")),
        };
        let text = |kind| text_of(raw, "text").map(|text| PartKind::Text { kind, text });
        let kind = match &*kind {
            "input_text" => text(TextKind::Input)?,
            "output_text" => text(TextKind::Output)?,
            "text" => text(TextKind::Plain)?,
            "summary_text" => text(TextKind::Summary)?,
            "reasoning_text" => text(TextKind::Reasoning)?,
            "refusal" => PartKind::Refusal(text_of(raw, "refusal")?),
            "input_image" | "image_url" => PartKind::Image(Image::read(raw)?),
            "computer_screenshot" => PartKind::Screenshot(Image::read(raw)?),
            "input_file" => PartKind::File(File::read(raw)?),
            "input_audio" => PartKind::Audio,
            "input_video" => PartKind::Video,
            "encrypted_content" => PartKind::Encrypted,
            _ => PartKind::Other(kind),
        };
        Ok(Self { raw, kind })
    }
}

fn text_of<'a>(raw: Raw<'a>, name: &str) -> Result<JsonStr<'a>, ShapeError> {
    match raw.get(name) {
        Some(text) => Ok(Option::<JsonStr<'a>>::field(name, text)?.unwrap_or_default()),
        None => Err(ShapeError::missing(name)),
    }
}
