//! Content blocks as content parts.

use std::borrow::Cow;

use amalgam_protocol::{JsonStr, Raw, Shape, ShapeError, Writer};

use crate::{
    extension::{write_block, write_rest},
    request::{present, required, text},
};

/// Whose text a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartSide {
    /// The caller's, or a tool's.
    Input,
    /// The model's.
    Output,
}

/// The type of a block.
pub(crate) fn kind(block: Raw<'_>) -> Result<Cow<'_, str>, ShapeError> {
    if block.shape() != Shape::Object {
        return Err(ShapeError::expected("", "a content block", block));
    }
    let kind = required(block, "type")?;
    kind.as_str().map(JsonStr::decode).ok_or_else(|| ShapeError::expected("type", "a string", kind))
}

/// Writes a block as a part.
pub(crate) fn write_part(writer: &mut Writer, block: Raw<'_>, side: PartSide) -> Result<(), ShapeError> {
    match &*kind(block)? {
        "text" => {
            let text = string(block, "text")?;
            writer.object(|writer| {
                let kind = if side == PartSide::Output { "output_text" } else { "input_text" };
                writer.key("type").string(kind);
                writer.key("text").json_str(text);
                write_rest(writer, block, &["type", "text"]);
            });
            Ok(())
        }
        "image" => write_image(writer, block),
        "document" => write_document(writer, block),
        // Blocks of the Messages API that other upstreams can only read as text.
        name => {
            let shown = match name {
                "search_result" => search_result(block),
                "tool_reference" => format!("[Tool available: {}]", block.get_str("tool_name").unwrap_or_default()),
                "tool_addition" => format!("[Tool available: {}]", named_tool(block)),
                "tool_removal" => format!("[Tool no longer available: {}]", named_tool(block)),
                _ => block.text().to_owned(),
            };
            writer.object(|writer| {
                writer.key("type").string("input_text");
                writer.key("text").string(&shown);
                write_block(writer, block);
            });
            Ok(())
        }
    }
}

fn write_image(writer: &mut Writer, block: Raw<'_>) -> Result<(), ShapeError> {
    let source = source(block)?;
    let under = |error: ShapeError| error.under("source");
    let (field, value) = match &*kind(source).map_err(under)? {
        "base64" => {
            let media_type = text(source, "media_type").map_err(under)?;
            let data = string(source, "data").map_err(under)?;
            ("image_url", format!("data:{media_type};base64,{}", data.decode()))
        }
        "url" => ("image_url", text(source, "url").map_err(under)?),
        "file" => ("file_id", text(source, "file_id").map_err(under)?),
        other => return Err(under(ShapeError::value("type", format!("unknown source `{other}`")))),
    };
    writer.object(|writer| {
        writer.key("type").string("input_image");
        writer.key_text(field).string(&value);
        write_rest(writer, block, &["type", "source"]);
    });
    Ok(())
}

/// A document with text becomes a file with its bytes, so that every upstream gets it under its title.
fn write_document(writer: &mut Writer, block: Raw<'_>) -> Result<(), ShapeError> {
    let source = source(block)?;
    let under = |error: ShapeError| error.under("source");
    let title = block.get_str("title");
    let file = |writer: &mut Writer, field: &str, value: &str| {
        writer.object(|writer| {
            writer.key("type").string("input_file");
            if let Some(title) = &title {
                writer.key("filename").string(title);
            }
            writer.key_text(field).string(value);
            write_rest(writer, block, &["type", "source", "title"]);
        });
    };
    match &*kind(source).map_err(under)? {
        "base64" => {
            let media_type = text(source, "media_type").map_err(under)?;
            let data = string(source, "data").map_err(under)?.decode();
            file(writer, "file_data", &format!("data:{media_type};base64,{data}"));
        }
        "url" => file(writer, "file_url", &text(source, "url").map_err(under)?),
        "file" => file(writer, "file_id", &text(source, "file_id").map_err(under)?),
        "text" => {
            let data = string(source, "data").map_err(under)?.decode();
            write_text_document(writer, block, title.as_deref(), &data);
        }
        "content" => {
            let content = required(source, "content").map_err(under)?;
            let data = match content.as_str() {
                Some(text) => text.decode().into_owned(),
                None => texts_of(content),
            };
            write_text_document(writer, block, title.as_deref(), &data);
        }
        other => return Err(under(ShapeError::value("type", format!("unknown source `{other}`")))),
    }
    Ok(())
}

fn write_text_document(writer: &mut Writer, block: Raw<'_>, title: Option<&str>, data: &str) {
    writer.object(|writer| {
        writer.key("type").string("input_text");
        let title = title.filter(|title| !title.trim().is_empty()).unwrap_or("Document");
        writer.key("text").string(&format!("[{title}]\n{data}"));
        write_block(writer, block);
    });
}

fn search_result(block: Raw<'_>) -> String {
    let field = |name| block.get_str(name).unwrap_or_default();
    let content = texts_of(block.get("content").unwrap_or(Raw::NULL));
    format!("[{}]({})\n{content}", field("title"), field("source"))
}

/// The name of the tool that a block is about.
fn named_tool(block: Raw<'_>) -> Cow<'_, str> {
    block.get("tool").and_then(|tool| tool.get_str("name")).unwrap_or_default()
}

/// The texts of a list of blocks, one below the other.
fn texts_of(blocks: Raw<'_>) -> String {
    let texts = blocks.elements().filter_map(|block| Some(block.get_str("text")?.into_owned()));
    texts.collect::<Vec<_>>().join("\n")
}

fn source(block: Raw<'_>) -> Result<Raw<'_>, ShapeError> {
    let source = required(block, "source")?;
    match source.shape() {
        Shape::Object => Ok(source),
        _ => Err(ShapeError::expected("source", "an object", source)),
    }
}

/// A string that must be there; it may be empty.
fn string<'a>(object: Raw<'a>, name: &str) -> Result<JsonStr<'a>, ShapeError> {
    match present(object, name) {
        Some(value) => value.as_str().ok_or_else(|| ShapeError::expected(name, "a string", value)),
        None => Err(ShapeError::missing(name)),
    }
}
