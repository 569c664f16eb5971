//! The bounds of a request, checked before anything is spent on it.

use amalgam_core::{Fault, FaultKind};
use amalgam_protocol::{
    Content, CreateResponse, Input, Item, ItemKind, Part, PartKind, Raw, Shape, TextFormat, Tool, ToolKind,
};

use crate::app::Limits;

/// Checks counts and sizes of a request that has the right shape.
pub(super) fn check(request: &CreateResponse<'_>, body_bytes: usize, limits: &Limits) -> Result<(), Fault> {
    let items: &[Item<'_>] = match &request.input {
        Some(Input::Items(items)) => items,
        _ => &[],
    };
    if items.len() > limits.input_items {
        return Err(too_many("input", limits.input_items, "items"));
    }
    if let Some(Input::Text(text)) = request.input
        && text.escaped().len() > limits.string_bytes
    {
        return Err(too_long("input".to_owned(), limits));
    }
    let mut media = 0;
    for (index, item) in items.iter().enumerate() {
        let content = match &item.kind {
            ItemKind::Message(message) | ItemKind::AgentMessage(message) => &message.content,
            ItemKind::FunctionCallOutput(output) | ItemKind::CustomToolCallOutput(output) => &output.output,
            _ => continue,
        };
        media += content_bytes(content, limits).map_err(|path| too_long(format!("input[{index}]{path}"), limits))?;
    }
    if media > limits.media_bytes {
        return Err(Fault::new(
            FaultKind::TooLarge,
            format!("Images and files have more than {} bytes.", limits.media_bytes),
        ));
    }
    if body_bytes - media > limits.body_bytes {
        return Err(Fault::new(
            FaultKind::TooLarge,
            format!("The request body has more than {} bytes, images and files apart.", limits.body_bytes),
        ));
    }
    let mut count = 0;
    check_tools(&request.tools, "tools", &mut count, limits)?;
    if let TextFormat::JsonSchema(format) = &request.text.format {
        check_schema(format.schema, "text.format.schema", limits)?;
    }
    check_metadata(request.metadata)
}

/// Bytes of images and files; the path of a text that is too long.
fn content_bytes(content: &Content<'_>, limits: &Limits) -> Result<usize, &'static str> {
    match content {
        Content::Text(text) if text.escaped().len() > limits.string_bytes => Err(".content"),
        Content::Parts(parts) => parts.iter().map(|part| part_bytes(part, limits)).sum(),
        _ => Ok(0),
    }
}

fn part_bytes(part: &Part<'_>, limits: &Limits) -> Result<usize, &'static str> {
    match &part.kind {
        PartKind::Image(image) | PartKind::Screenshot(image) => {
            Ok(image.url.map(|url| url.0.escaped()).filter(|url| url.starts_with("data:")).map_or(0, str::len))
        }
        PartKind::File(file) => Ok(file.data.map_or(0, |data| data.escaped().len())),
        PartKind::Audio | PartKind::Video => Ok(part.raw.text().len()),
        _ => match part.text() {
            Some(text) if text.escaped().len() > limits.string_bytes => Err(".content"),
            _ => Ok(0),
        },
    }
}

fn check_tools(tools: &[Tool<'_>], path: &str, count: &mut usize, limits: &Limits) -> Result<(), Fault> {
    for (index, tool) in tools.iter().enumerate() {
        *count += 1;
        if *count > limits.tools {
            return Err(too_many("tools", limits.tools, "tools"));
        }
        match &tool.kind {
            ToolKind::Function(function) => {
                if function.name.is_empty() {
                    return Err(Fault::invalid(format!("{path}[{index}].name"), "A tool needs a name."));
                }
                if let Some(schema) = function.parameters {
                    let path = format!("{path}[{index}].parameters");
                    if !matches!(schema.shape(), Shape::Object | Shape::Null) {
                        return Err(Fault::invalid(path, "The parameters of a function are a JSON Schema object.")
                            .code("invalid_type"));
                    }
                    check_schema(schema, &path, limits)?;
                }
            }
            ToolKind::Namespace(group) => {
                check_tools(&group.tools.0, &format!("{path}[{index}].tools"), count, limits)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_schema(schema: Raw<'_>, path: &str, limits: &Limits) -> Result<(), Fault> {
    let mut left = limits.schema_nodes;
    match count_nodes(schema, &mut left) {
        true => Ok(()),
        false => {
            Err(Fault::invalid(path.to_owned(), format!("The schema has more than {} values.", limits.schema_nodes)))
        }
    }
}

/// Counts down; false when nothing is left. Depth was bounded when the body was checked.
fn count_nodes(value: Raw<'_>, left: &mut usize) -> bool {
    if *left == 0 {
        return false;
    }
    *left -= 1;
    match value.shape() {
        Shape::Object => value.fields().all(|(_, value)| count_nodes(value, left)),
        Shape::Array => value.elements().all(|value| count_nodes(value, left)),
        _ => true,
    }
}

/// At most 16 pairs of strings; keys of 64 characters, values of 512.
fn check_metadata(metadata: Option<Raw<'_>>) -> Result<(), Fault> {
    let Some(metadata) = metadata else { return Ok(()) };
    if metadata.shape() != Shape::Object {
        return Err(Fault::invalid("metadata", "Invalid type for 'metadata': expected an object.").code("invalid_type"));
    }
    if metadata.fields().count() > 16 {
        return Err(too_many("metadata", 16, "pairs"));
    }
    for (key, value) in metadata.fields() {
        let key = key.decode();
        let shown: String = key.chars().take(64).collect();
        if key.chars().count() > 64 {
            return Err(Fault::invalid("metadata", "A metadata key has at most 64 characters."));
        }
        let path = format!("metadata.{shown}");
        match value.as_str() {
            None => return Err(Fault::invalid(path, "A metadata value is a string.").code("invalid_type")),
            Some(text) if text.decode().chars().count() > 512 => {
                return Err(Fault::invalid(path, "A metadata value has at most 512 characters."));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn too_many(path: &'static str, most: usize, what: &str) -> Fault {
    Fault::invalid(path, format!("At most {most} {what} are taken.")).code("array_above_max_length")
}

fn too_long(path: String, limits: &Limits) -> Fault {
    Fault::invalid(path, format!("A text has at most {} bytes.", limits.string_bytes)).code("string_above_max_length")
}
