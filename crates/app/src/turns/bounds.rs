//! Checks the limits of a request before any work is done for it.

use std::{borrow::Cow, collections::HashSet};

use amalgam_core::{Fault, FaultKind};
use amalgam_protocol::{
    ClientTool, Content, CreateResponse, Input, Item, ItemKind, Json, JsonStr, Part, PartKind, Raw, ResponseParameters,
    Shape, TextFormat, Tool, ToolChoice, ToolKind, item_path,
};

use crate::app::Limits;

/// The maximum number of unknown fields. An upstream may know some of them, but none has nearly as many.
const MAX_UNKNOWN_FIELDS: usize = 256;

/// The maximum number of fields of `reasoning`, for the same reason.
const MAX_REASONING_FIELDS: usize = 32;

/// Checks the counts and sizes of a well-formed request; `request` is a view of `parameters`.
pub(crate) fn check(
    parameters: &ResponseParameters,
    request: &CreateResponse<'_>,
    limits: &Limits,
) -> Result<(), Fault> {
    if let Some((name, _)) = request.chat_fields.iter().chain(&request.extra).nth(MAX_UNKNOWN_FIELDS) {
        let name: String = name.decode().chars().take(64).collect();
        let message =
            format!("At most {MAX_UNKNOWN_FIELDS} fields are taken that are not known here; '{name}' is one more.");
        return Err(Fault::invalid(name, message).code("object_above_max_properties"));
    }
    if request.reasoning.as_ref().is_some_and(|reasoning| reasoning.raw.fields().count() > MAX_REASONING_FIELDS) {
        let message = format!("At most {MAX_REASONING_FIELDS} fields of 'reasoning' are taken.");
        return Err(Fault::invalid("reasoning", message).code("object_above_max_properties"));
    }
    let mut tally = Tally::default();
    for (list, input) in [("instructions", &request.instructions), ("input", &request.input)] {
        match input {
            None => {}
            Some(Input::Text(text)) => bound(*text, || list.to_owned(), limits)?,
            Some(Input::Items(items)) => {
                let sent = if list == "input" { &parameters.input } else { &parameters.instructions };
                let sent = sent.as_ref().map(Json::raw);
                check_items(items, list, limits.input_items, sent, &mut tally, limits)?;
            }
        }
    }
    check_size(&tally, parameters.size(), limits)?;
    check_tools(&request.tools, &|| "tools".to_owned(), &mut tally.tools, limits)?;
    if let Some(ToolChoice::Allowed(allowed)) = &request.tool_choice
        && allowed.tools.len() > limits.tools
    {
        return Err(too_many("tool_choice.tools", limits.tools, "tools"));
    }
    if let TextFormat::JsonSchema(format) = &request.text.format {
        check_schema(format.schema, || "text.format.schema".to_owned(), limits)?;
    }
    check_metadata(request.metadata)
}

/// The totals of a request's items.
#[derive(Debug, Default)]
pub struct Tally<'a> {
    /// Bytes of images and files.
    media: usize,
    /// Content parts.
    parts: usize,
    /// Tools inside the history.
    tools: usize,
    /// The JSON of these tools: a tool that several searches found counts once.
    known: HashSet<&'a str>,
}

/// Checks the items of one list, at most `max`; `sent` is the list in the request.
pub fn check_items<'a>(
    items: &[Item<'a>],
    list: &'static str,
    max: usize,
    sent: Option<Raw<'_>>,
    tally: &mut Tally<'a>,
    limits: &Limits,
) -> Result<(), Fault> {
    if items.len() > max {
        return Err(too_many(list, max, "items"));
    }
    for item in items {
        let path = || item_path(list, sent, item.raw);
        tally.media += item_bytes(item, path, limits)?;
        tally.parts += parts_of(item);
        if tally.parts > limits.content_parts {
            return Err(too_many(path(), limits.content_parts, "content parts"));
        }
        match &item.kind {
            ItemKind::AdditionalTools(additional) => check_item_tools(&additional.tools.0, path, tally, limits)?,
            ItemKind::ClientCallOutput(ClientTool::ToolSearch, _) => {
                let Some(found) = item.raw.get("tools").filter(|found| !found.is_null()) else { continue };
                let found = Tool::list(found).map_err(|error| error.under("tools").under(&path()))?;
                check_item_tools(&found, path, tally, limits)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks the tools inside an item.
fn check_item_tools<'a>(
    tools: &[Tool<'a>],
    path: impl Fn() -> String,
    tally: &mut Tally<'a>,
    limits: &Limits,
) -> Result<(), Fault> {
    for (index, tool) in tools.iter().enumerate() {
        if tally.known.insert(tool.raw.text()) {
            check_tool(tool, &|| format!("{}.tools[{index}]", path()), &mut tally.tools, limits)?;
        }
    }
    Ok(())
}

/// The number of content parts of an item.
fn parts_of(item: &Item<'_>) -> usize {
    let content = match &item.kind {
        ItemKind::Message(message) | ItemKind::AgentMessage(message) => &message.content,
        ItemKind::FunctionCallOutput(output) | ItemKind::CustomToolCallOutput(output) => &output.output,
        ItemKind::Reasoning(reasoning) => return reasoning.summary.0.len() + reasoning.content.0.len(),
        _ => return 0,
    };
    match content {
        Content::Parts(parts) => parts.len(),
        Content::Text(_) | Content::Value(_) => 0,
    }
}

/// Checks the size of a body whose items were counted.
pub fn check_size(tally: &Tally<'_>, body_bytes: usize, limits: &Limits) -> Result<(), Fault> {
    if tally.media > limits.media_bytes {
        return Err(Fault::new(
            FaultKind::TooLarge,
            format!("Images and files have more than {} bytes.", limits.media_bytes),
        ));
    }
    if body_bytes.saturating_sub(tally.media) > limits.body_bytes {
        return Err(Fault::new(
            FaultKind::TooLarge,
            format!("The request body has more than {} bytes, images and files apart.", limits.body_bytes),
        ));
    }
    Ok(())
}

/// Bytes of images and files in an item; checks the length of its texts.
fn item_bytes(item: &Item<'_>, path: impl Fn() -> String, limits: &Limits) -> Result<usize, Fault> {
    let (field, content) = match &item.kind {
        ItemKind::Message(message) | ItemKind::AgentMessage(message) => ("content", &message.content),
        ItemKind::FunctionCallOutput(output) | ItemKind::CustomToolCallOutput(output) => ("output", &output.output),
        ItemKind::FunctionCall(call) => {
            return bound(call.arguments, || format!("{}.arguments", path()), limits).map(|()| 0);
        }
        ItemKind::CustomToolCall(call) => {
            return bound(call.input, || format!("{}.input", path()), limits).map(|()| 0);
        }
        _ => return Ok(0),
    };
    content_bytes(content, limits).map_err(|TooLong| too_long(format!("{}.{field}", path()), limits))
}

fn bound(text: JsonStr<'_>, path: impl Fn() -> String, limits: &Limits) -> Result<(), Fault> {
    match text.escaped().len() > limits.string_bytes {
        true => Err(too_long(path(), limits)),
        false => Ok(()),
    }
}

/// A text exceeds its limit.
struct TooLong;

/// Bytes of images and files.
fn content_bytes(content: &Content<'_>, limits: &Limits) -> Result<usize, TooLong> {
    match content {
        Content::Text(text) if text.escaped().len() > limits.string_bytes => Err(TooLong),
        Content::Parts(parts) => parts.iter().map(|part| part_bytes(part, limits)).sum(),
        _ => Ok(0),
    }
}

fn part_bytes(part: &Part<'_>, limits: &Limits) -> Result<usize, TooLong> {
    match &part.kind {
        PartKind::Image(image) | PartKind::Screenshot(image) => {
            Ok(image.url.map(|url| url.0.escaped()).filter(|url| url.starts_with("data:")).map_or(0, str::len))
        }
        PartKind::File(file) => Ok(file.data.map_or(0, |data| data.escaped().len())),
        PartKind::Audio | PartKind::Video => Ok(part.raw.text().len()),
        _ => match part.text() {
            Some(text) if text.escaped().len() > limits.string_bytes => Err(TooLong),
            _ => Ok(0),
        },
    }
}

/// Counts tools; those in namespaces count one by one. Paths are built only for errors.
fn check_tools(tools: &[Tool<'_>], path: &dyn Fn() -> String, count: &mut usize, limits: &Limits) -> Result<(), Fault> {
    let mut tools = tools.iter().enumerate();
    tools.try_for_each(|(index, tool)| check_tool(tool, &|| format!("{}[{index}]", path()), count, limits))
}

/// The path is a `dyn` function, since generic closures would nest one type per level.
fn check_tool(tool: &Tool<'_>, path: &dyn Fn() -> String, count: &mut usize, limits: &Limits) -> Result<(), Fault> {
    *count += 1;
    if *count > limits.tools {
        return Err(too_many("tools", limits.tools, "tools"));
    }
    let schema = match &tool.kind {
        ToolKind::Function(function) if function.name.is_empty() => {
            let path = format!("{}.name", path());
            return Err(Fault::invalid(path.clone(), format!("Invalid value for '{path}': a tool needs a name.")));
        }
        ToolKind::Function(function) => function.parameters,
        ToolKind::Client(_, settings) => settings.parameters,
        ToolKind::Namespace(group) => {
            check_tools(&group.tools.0, &|| format!("{}.tools", path()), count, limits)?;
            None
        }
        ToolKind::Custom(_) | ToolKind::Hosted(..) | ToolKind::Other(_) => None,
    };
    let Some(schema) = schema else { return Ok(()) };
    let path = || format!("{}.parameters", path());
    if !matches!(schema.shape(), Shape::Object | Shape::Null) {
        let message = format!("Invalid type for '{}': expected a JSON Schema object.", path());
        return Err(Fault::invalid(path(), message).code("invalid_type"));
    }
    check_schema(schema, path, limits)
}

fn check_schema(schema: Raw<'_>, path: impl Fn() -> String, limits: &Limits) -> Result<(), Fault> {
    let mut left = limits.schema_nodes;
    match count_nodes(schema, &mut left) {
        true => Ok(()),
        false => Err(Fault::invalid(path(), format!("The schema has more than {} values.", limits.schema_nodes))),
    }
}

/// Counts down; false when the count reaches zero. The depth was limited when the body was parsed.
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
pub fn check_metadata(metadata: Option<Raw<'_>>) -> Result<(), Fault> {
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

fn too_many(path: impl Into<Cow<'static, str>>, max: usize, what: &str) -> Fault {
    Fault::invalid(path, format!("At most {max} {what} are taken.")).code("array_above_max_length")
}

fn too_long(path: String, limits: &Limits) -> Fault {
    Fault::invalid(path, format!("A text has at most {} bytes.", limits.string_bytes)).code("string_above_max_length")
}
