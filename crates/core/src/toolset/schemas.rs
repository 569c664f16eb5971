//! Schemas and descriptions of tools with their own item types, for upstreams with only functions.

use amalgam_protocol::{ClientTool, Raw};

/// The one argument of a wrapped custom tool.
pub(super) fn custom_input() -> Raw<'static> {
    raw(
        r#"{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool, as plain text."}},"required":["input"],"additionalProperties":false}"#,
    )
}

/// The arguments of a client-run tool: the action, operation or arguments of its call item.
pub(super) fn of(tool: ClientTool) -> Raw<'static> {
    raw(match tool {
        ClientTool::Shell => {
            r#"{"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"},"description":"Commands to run, each by a shell, in order."},"timeout_ms":{"type":"integer"},"max_output_length":{"type":"integer"}},"required":["commands"]}"#
        }
        ClientTool::LocalShell => {
            r#"{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"},"description":"The program and its arguments."},"timeout_ms":{"type":"integer"},"working_directory":{"type":"string"},"env":{"type":"object","additionalProperties":{"type":"string"}}},"required":["command"]}"#
        }
        ClientTool::ApplyPatch => {
            r#"{"type":"object","properties":{"type":{"type":"string","enum":["create_file","update_file","delete_file"]},"path":{"type":"string"},"diff":{"type":"string","description":"The V4A diff; not for delete_file."}},"required":["type","path"]}"#
        }
        ClientTool::ToolSearch => {
            r#"{"type":"object","properties":{"query":{"type":"string","description":"What the wanted tool should do."}},"required":["query"]}"#
        }
        ClientTool::Computer => r#"{"type":"object"}"#,
    })
}

/// The default description of a client-run tool.
pub(super) fn description(tool: ClientTool) -> &'static str {
    match tool {
        ClientTool::Shell => "Runs shell commands on the user's machine and returns their output.",
        ClientTool::LocalShell => "Runs one program on the user's machine and returns its output.",
        ClientTool::ApplyPatch => "Creates, updates or deletes one file by a V4A diff.",
        ClientTool::ToolSearch => "Finds further tools by what they do; those found may be called afterwards.",
        ClientTool::Computer => "Controls a computer.",
    }
}

fn raw(schema: &'static str) -> Raw<'static> {
    Raw::parse(schema.as_bytes()).expect("our own schemas are valid JSON")
}
