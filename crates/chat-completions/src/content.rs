//! The content of messages: parts of this API as parts of items.

use amalgam_core::Losses;
use amalgam_protocol::{Raw, Shape, ShapeError, Writer};

use crate::fields::{expect_object, present, required_object, required_text, text_of};

/// Whose content it is, which determines the types of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentSource {
    /// A user, instructions, a tool.
    Input,
    /// The model.
    Model,
}

/// Writes a content: a text, or an array of parts.
pub(crate) fn write_content(
    writer: &mut Writer,
    content: Raw<'_>,
    source: ContentSource,
    losses: &mut Losses,
) -> Result<(), ShapeError> {
    match content.shape() {
        Shape::String => writer.json_str(text_of(content, "")?),
        Shape::Array => {
            let mut parts = Ok(());
            writer.array(|writer| {
                parts = content
                    .elements()
                    .enumerate()
                    .try_for_each(|(index, part)| write_part(writer, part, source, losses).map_err(|e| e.at(index)));
            });
            parts?;
        }
        _ => return Err(ShapeError::expected("", "a string or an array of content parts", content)),
    }
    Ok(())
}

fn write_part(
    writer: &mut Writer,
    part: Raw<'_>,
    source: ContentSource,
    losses: &mut Losses,
) -> Result<(), ShapeError> {
    expect_object(part)?;
    let kind = required_text(part, "type")?.decode();
    if present(part, "cache_control").is_some() {
        losses.add("messages.content.cache_control", "this API caches by prompt_cache_key");
    }
    match (&*kind, source) {
        ("text" | "input_text" | "output_text", _) => {
            let text = required_text(part, "text")?;
            writer.object(|writer| {
                writer.key("type").string(match source {
                    ContentSource::Input => "input_text",
                    ContentSource::Model => "output_text",
                });
                writer.key("text").json_str(text);
            });
        }
        ("refusal", ContentSource::Model) => {
            let refusal = required_text(part, "refusal")?;
            writer.object(|writer| {
                writer.key("type").string("refusal");
                writer.key("refusal").json_str(refusal);
            });
        }
        (_, ContentSource::Model) => {
            return Err(ShapeError::value(
                "type",
                format!("must be one of `text`, `refusal`, but is `{}`", shown(&kind)),
            ));
        }
        ("image_url", _) => write_image(writer, part)?,
        ("file", _) => write_file(writer, part)?,
        ("input_audio", _) => {
            let audio = required_object(part, "input_audio")?;
            required_text(audio, "data").map_err(|error| error.under("input_audio"))?;
            writer.raw(part);
        }
        // A server may know more kinds; an upstream that does not know it reports a loss.
        (_, ContentSource::Input) => writer.raw(part),
    }
    Ok(())
}

fn write_image(writer: &mut Writer, part: Raw<'_>) -> Result<(), ShapeError> {
    let image = present(part, "image_url").ok_or_else(|| ShapeError::missing("image_url"))?;
    let (url, detail) = match image.shape() {
        Shape::Object => {
            let url = required_text(image, "url").map_err(|error| error.under("image_url"))?;
            (url, crate::fields::text(image, "detail").map_err(|error| error.under("image_url"))?)
        }
        _ => (text_of(image, "image_url")?, None),
    };
    writer.object(|writer| {
        writer.key("type").string("input_image");
        writer.key("image_url").json_str(url);
        if let Some(detail) = detail {
            writer.key("detail").json_str(detail);
        }
    });
    Ok(())
}

fn write_file(writer: &mut Writer, part: Raw<'_>) -> Result<(), ShapeError> {
    let file = required_object(part, "file")?;
    let fields = ["file_id", "filename", "file_data"];
    let mut values = Vec::with_capacity(fields.len());
    for name in fields {
        if let Some(value) = crate::fields::text(file, name).map_err(|error| error.under("file"))? {
            values.push((name, value));
        }
    }
    if !values.iter().any(|(name, _)| *name != "filename") {
        return Err(ShapeError::value("file", "needs `file_id` or `file_data`"));
    }
    writer.object(|writer| {
        writer.key("type").string("input_file");
        values.iter().for_each(|(name, value)| writer.key_text(name).json_str(*value));
    });
    Ok(())
}

/// A value, shortened for an error message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}
