//! Tools and the tool choice.
//!
//! A tool with `input_schema` is a function of the caller. A tool with only a name may be one of the tool bank. Tools
//! with a type of their own are run by the client, with a schema that models know, or by the upstream.

use amalgam_protocol::{ANTHROPIC, Json, Raw, ResponseParameters, Shape, ShapeError, Writer};

use crate::{
    extension::write_rest,
    request::{flag, present, text},
};

/// The schemas of client-run tools with a type of their own, by the beginning of the type.
const CLIENT_TOOLS: [(&str, &str, &str); 3] = [
    (
        "bash_",
        "Runs a command in a persistent bash session of the user's machine.",
        r#"{"type":"object","properties":{"command":{"type":"string","description":"The command to run."},"restart":{"type":"boolean","description":"Whether to restart the session instead."}}}"#,
    ),
    (
        "text_editor_",
        "Views, creates and edits files of the user's machine.",
        r#"{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert"]},"path":{"type":"string","description":"The path of the file or folder."},"view_range":{"type":"array","items":{"type":"integer"},"description":"For `view`: the first and the last line."},"file_text":{"type":"string","description":"For `create`: the content."},"old_str":{"type":"string","description":"For `str_replace`: the text to replace, which must be unique."},"new_str":{"type":"string","description":"For `str_replace`: the new text."},"insert_line":{"type":"integer","description":"For `insert`: the line after which to insert."},"insert_text":{"type":"string","description":"For `insert`: the text."}},"required":["command","path"]}"#,
    ),
    (
        "memory_",
        "Stores notes in files below /memories on the user's machine, and reads them.",
        r#"{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"]},"path":{"type":"string"},"view_range":{"type":"array","items":{"type":"integer"}},"file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":{"type":"string"},"old_path":{"type":"string"},"new_path":{"type":"string"}},"required":["command"]}"#,
    ),
];

/// Reads `tools` and `tool_choice`.
pub(crate) fn read(body: Raw<'_>, parameters: &mut ResponseParameters) -> Result<(), ShapeError> {
    if let Some(tools) = present(body, "tools") {
        if tools.shape() != Shape::Array {
            return Err(ShapeError::expected("tools", "an array", tools));
        }
        let mut writer = Writer::with_capacity(tools.text().len() + 256);
        for (index, tool) in tools.elements().enumerate() {
            write_tool(&mut writer, tool).map_err(|error| error.at(index).under("tools"))?;
        }
        let list = writer.into_bytes();
        parameters.tools = (!list.is_empty()).then(|| Json::array(|writer| writer.valid(&list)));
    }
    if let Some(choice) = present(body, "tool_choice") {
        read_choice(choice, parameters).map_err(|error| error.under("tool_choice"))?;
    }
    Ok(())
}

/// Writes a tool in the form of the Responses API.
pub(crate) fn write_tool(writer: &mut Writer, tool: Raw<'_>) -> Result<(), ShapeError> {
    if tool.shape() != Shape::Object {
        return Err(ShapeError::expected("", "an object", tool));
    }
    let kind = match present(tool, "type") {
        None => None,
        Some(kind) => Some(kind.as_str().ok_or_else(|| ShapeError::expected("type", "a string", kind))?.decode()),
    };
    match kind.as_deref() {
        None | Some("custom" | "function") => write_function(writer, tool),
        Some(kind) => {
            write_typed(writer, kind, tool);
            Ok(())
        }
    }
}

fn write_function(writer: &mut Writer, tool: Raw<'_>) -> Result<(), ShapeError> {
    let name = text(tool, "name")?;
    let schema = present(tool, "input_schema");
    if let Some(schema) = schema.filter(|schema| schema.shape() != Shape::Object) {
        return Err(ShapeError::expected("input_schema", "an object", schema));
    }
    let strict = flag(tool, "strict")?;
    let description = present(tool, "description");
    if let Some(description) = description.filter(|text| text.as_str().is_none()) {
        return Err(ShapeError::expected("description", "a string", description));
    }
    writer.object(|writer| {
        writer.key("type").string("function");
        writer.key("name").string(&name);
        if let Some(description) = description {
            writer.key("description").raw(description);
        }
        if let Some(schema) = schema {
            writer.key("parameters").raw(schema);
        }
        if let Some(strict) = strict {
            writer.key("strict").bool(strict);
        }
        write_rest(writer, tool, &["type", "name", "description", "input_schema", "strict"]);
    });
    Ok(())
}

/// Upstreams with the Messages API get the tool as it was sent; the others get a function if the client runs it.
fn write_typed(writer: &mut Writer, kind: &str, tool: Raw<'_>) {
    let known = CLIENT_TOOLS.iter().find(|(prefix, ..)| kind.starts_with(prefix));
    writer.object(|writer| {
        match (known, tool.get_str("name")) {
            (Some((_, description, schema)), Some(name)) => {
                writer.key("type").string("function");
                writer.key("name").string(&name);
                writer.key("description").string(description);
                writer.key("parameters").valid(schema.as_bytes());
            }
            _ if kind.starts_with("web_search_") => writer.key("type").string("web_search"),
            _ => writer.key("type").string(kind),
        }
        writer.key(ANTHROPIC).raw(tool);
    });
}

fn read_choice(choice: Raw<'_>, parameters: &mut ResponseParameters) -> Result<(), ShapeError> {
    if choice.shape() != Shape::Object {
        return Err(ShapeError::expected("", "an object", choice));
    }
    parameters.tool_choice = Some(match &*text(choice, "type")? {
        "auto" => Json::string("auto"),
        "any" => Json::string("required"),
        "none" => Json::string("none"),
        "tool" => {
            let name = text(choice, "name")?;
            Json::object(|writer| {
                writer.key("type").string("function");
                writer.key("name").string(&name);
            })
        }
        other => {
            let message = format!("must be `auto`, `any`, `tool` or `none`, but is `{other}`");
            return Err(ShapeError::value("type", message));
        }
    });
    if flag(choice, "disable_parallel_tool_use")? == Some(true) {
        parameters.parallel_tool_calls = Some(false);
    }
    Ok(())
}
