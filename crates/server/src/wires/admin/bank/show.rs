//! A tool as administrators see it, field by field.

use std::time::Duration;

use amalgam_core::store::{BankTool, ToolStatistics};
use amalgam_protocol::{Json, Writer};

use crate::wires::admin::{write_text, write_time};

/// The whole tool, with its settings as they may be shown.
pub(super) fn tool(tool: &BankTool, settings: &Json) -> Json {
    let room = tool.parameters.bytes().len() + settings.bytes().len() + tool.description.len();
    let mut writer = Writer::with_capacity(room + 1024);
    writer.object(|writer| {
        writer.key("name").string(&tool.name);
        writer.key("object").string("tool");
        writer.key("common").bool(tool.common);
        writer.key("active").bool(tool.active);
        writer.key("kind").string(tool.kind.name());
        writer.key("description").string(&tool.description);
        writer.key("parameters").raw(tool.parameters.raw());
        writer.key("settings").raw(settings.raw());
        write_text(writer, "guidance", tool.guidance.as_deref());
        write_seconds(writer.key("timeout"), tool.policy.timeout);
        writer.key("on_error").string(tool.policy.on_error.name());
        writer.key("idempotent").bool(tool.policy.idempotent);
        write_text(writer, "after_call_instruction", tool.policy.after_call_instruction.as_deref());
        match tool.policy.requires_approval {
            Some(decider) => writer.key("requires_approval").string(decider.name()),
            None => writer.key("requires_approval").bool(false),
        }
        writer.key("created_at").number(tool.created_at_ms / 1000);
        writer.key("updated_at").number(tool.updated_at_ms / 1000);
    });
    Json::from_writer(writer)
}

/// Whole seconds as a whole number.
fn write_seconds(writer: &mut Writer, duration: Duration) {
    match duration.subsec_nanos() {
        0 => writer.number(duration.as_secs()),
        _ => writer.float(duration.as_secs_f64()),
    }
}

/// How the calls of a tool went.
pub(super) fn statistics(tool: &BankTool, found: &ToolStatistics) -> Json {
    let ended = found.calls.saturating_sub(found.unknown);
    let mut writer = Writer::with_capacity(256);
    writer.object(|writer| {
        writer.key("name").string(&tool.name);
        writer.key("object").string("tool.statistics");
        writer.key("calls").number(found.calls);
        writer.key("failed").number(found.failed);
        writer.key("unknown").number(found.unknown);
        match found.duration_ms.checked_div(ended) {
            Some(average) => writer.key("average_ms").number(average),
            None => writer.key("average_ms").null(),
        }
        match ended {
            0 => writer.key("longest_ms").null(),
            _ => writer.key("longest_ms").number(found.longest_ms),
        }
        write_time(writer, "last_called_at", found.last_called_at_ms);
    });
    Json::from_writer(writer)
}
