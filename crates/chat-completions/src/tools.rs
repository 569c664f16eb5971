//! The tools and the tool choice of a request, in the form of the Responses API.

use amalgam_protocol::{Json, JsonStr, Raw, Shape, ShapeError, Writer};

use crate::{
    content::shown,
    fields::{expect_array, expect_object, required_object, required_text, text},
};

/// Tools that the server or an upstream runs. They have the same form in both APIs.
const RUN_ELSEWHERE: [&str; 4] = ["mcp", "file_search", "code_interpreter", "image_generation"];

/// Reads `tools`. An error names the path below it.
pub(crate) fn tools(tools: Raw<'_>) -> Result<Json, ShapeError> {
    expect_array(tools, "an array of tools")?;
    let mut writer = Writer::with_capacity(tools.text().len());
    let mut read = Ok(());
    writer.array(|writer| {
        read = tools
            .elements()
            .enumerate()
            .try_for_each(|(index, tool)| write_tool(writer, tool).map_err(|error| error.at(index)));
    });
    read.map(|()| Json::from_writer(writer))
}

fn write_tool(writer: &mut Writer, tool: Raw<'_>) -> Result<(), ShapeError> {
    expect_object(tool)?;
    let kind = required_text(tool, "type")?.decode();
    match &*kind {
        "function" => {
            // Some clients send the flat form of the Responses API.
            let flat = tool.get("function").is_none() && tool.get("name").is_some();
            let function = if flat { tool } else { required_object(tool, "function")? };
            required_text(function, "name").map_err(|error| if flat { error } else { error.under("function") })?;
            write_flat(writer, "function", function);
        }
        "custom" => {
            let flat = tool.get("custom").is_none() && tool.get("name").is_some();
            let custom = if flat { tool } else { required_object(tool, "custom")? };
            required_text(custom, "name").map_err(|error| if flat { error } else { error.under("custom") })?;
            write_flat(writer, "custom", custom);
        }
        name if name.starts_with("web_search") || RUN_ELSEWHERE.contains(&name) => writer.raw(tool),
        other => {
            let message =
                format!("must be `function` or `custom`, or a tool that the server runs, but is `{}`", shown(other));
            return Err(ShapeError::value("type", message));
        }
    }
    Ok(())
}

/// Writes the fields of a tool one level higher.
fn write_flat(writer: &mut Writer, kind: &str, fields: Raw<'_>) {
    writer.object(|writer| {
        writer.key("type").string(kind);
        for (key, value) in fields.fields().filter(|(key, _)| !key.is("type")) {
            let key = key.decode();
            let grammar = value.get("grammar").filter(|grammar| grammar.shape() == Shape::Object);
            match (&*key, grammar) {
                ("format", Some(grammar)) => write_flat(writer.key("format"), "grammar", grammar),
                _ => writer.key_text(&key).raw(value),
            }
        }
    });
}

/// Reads `functions`, the older form of `tools`.
pub(crate) fn functions(functions: Raw<'_>) -> Result<Json, ShapeError> {
    expect_array(functions, "an array of functions")?;
    let mut writer = Writer::with_capacity(functions.text().len() + 64);
    let mut read = Ok(());
    writer.array(|writer| {
        read = functions.elements().enumerate().try_for_each(|(index, function)| {
            let named = expect_object(function).and_then(|()| required_text(function, "name").map(drop));
            named.map_err(|error| error.at(index))?;
            write_flat(writer, "function", function);
            Ok(())
        });
    });
    read.map(|()| Json::from_writer(writer))
}

/// Reads `function_call`, the older form of `tool_choice`.
pub(crate) fn function_call(choice: Raw<'_>) -> Result<Json, ShapeError> {
    if choice.as_str().is_some() {
        return Ok(choice.into());
    }
    expect_object(choice)?;
    let name = required_text(choice, "name")?;
    Ok(Json::object(|writer| write_named(writer, "function", name)))
}

/// Reads `tool_choice`. An error names the path below it.
pub(crate) fn tool_choice(choice: Raw<'_>) -> Result<Json, ShapeError> {
    if choice.as_str().is_some() {
        return Ok(choice.into());
    }
    let mut writer = Writer::with_capacity(choice.text().len());
    write_choice(&mut writer, choice)?;
    Ok(Json::from_writer(writer))
}

fn write_choice(writer: &mut Writer, choice: Raw<'_>) -> Result<(), ShapeError> {
    expect_object(choice)?;
    let kind = required_text(choice, "type")?.decode();
    match &*kind {
        "function" | "custom" if choice.get(&kind).is_some() => {
            let named = required_object(choice, &kind)?;
            let name = required_text(named, "name").map_err(|error| error.under(&kind))?;
            writer.object(|writer| write_named(writer, &kind, name));
        }
        "allowed_tools" if choice.get("allowed_tools").is_some() => {
            let allowed = required_object(choice, "allowed_tools")?;
            let below = |error: ShapeError| error.under("allowed_tools");
            let tools = allowed.get("tools").ok_or_else(|| below(ShapeError::missing("tools")))?;
            expect_array(tools, "an array of tool choices").map_err(|error| below(error.under("tools")))?;
            let mode = text(allowed, "mode").map_err(below)?;
            let mut read = Ok(());
            writer.object(|writer| {
                writer.key("type").string("allowed_tools");
                if let Some(mode) = mode {
                    writer.key("mode").json_str(mode);
                }
                writer.key("tools").array(|writer| {
                    read = tools.elements().enumerate().try_for_each(|(index, tool)| {
                        write_choice(writer, tool).map_err(|error| below(error.at(index).under("tools")))
                    });
                });
            });
            read?;
        }
        _ => writer.raw(choice),
    }
    Ok(())
}

fn write_named(writer: &mut Writer, kind: &str, name: JsonStr<'_>) {
    writer.key("type").string(kind);
    writer.key("name").json_str(name);
}
