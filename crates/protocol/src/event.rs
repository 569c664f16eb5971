//! The kinds of stream events, and a view of a received event.

use std::borrow::Cow;

use crate::json::{JsonStr, Raw};

macro_rules! events {
    ($( $(#[$meta:meta])* $kind:ident = $name:literal, )*) => {
        /// Every known kind of stream event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventKind {
            $( #[doc = concat!("`", $name, "`")] $kind, )*
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &'static [EventKind] = &[$( Self::$kind, )*];

            /// The wire name.
            pub fn name(self) -> &'static str {
                match self { $( Self::$kind => $name, )* }
            }

            /// The kind with this name, if it is known.
            pub fn named(name: &str) -> Option<Self> {
                Some(match name { $( $name => Self::$kind, )* _ => return None })
            }
        }
    };
}

events! {
    Created = "response.created",
    Queued = "response.queued",
    InProgress = "response.in_progress",
    Completed = "response.completed",
    Failed = "response.failed",
    Incomplete = "response.incomplete",
    Cancelled = "response.cancelled",
    ItemAdded = "response.output_item.added",
    ItemDone = "response.output_item.done",
    PartAdded = "response.content_part.added",
    PartDone = "response.content_part.done",
    TextDelta = "response.output_text.delta",
    TextDone = "response.output_text.done",
    AnnotationAdded = "response.output_text.annotation.added",
    RefusalDelta = "response.refusal.delta",
    RefusalDone = "response.refusal.done",
    ArgumentsDelta = "response.function_call_arguments.delta",
    ArgumentsDone = "response.function_call_arguments.done",
    CustomInputDelta = "response.custom_tool_call_input.delta",
    CustomInputDone = "response.custom_tool_call_input.done",
    SummaryPartAdded = "response.reasoning_summary_part.added",
    SummaryPartDone = "response.reasoning_summary_part.done",
    SummaryTextDelta = "response.reasoning_summary_text.delta",
    SummaryTextDone = "response.reasoning_summary_text.done",
    ReasoningTextDelta = "response.reasoning_text.delta",
    ReasoningTextDone = "response.reasoning_text.done",
    ReasoningDelta = "response.reasoning.delta",
    ReasoningDone = "response.reasoning.done",
    FileSearchInProgress = "response.file_search_call.in_progress",
    FileSearchSearching = "response.file_search_call.searching",
    FileSearchCompleted = "response.file_search_call.completed",
    WebSearchInProgress = "response.web_search_call.in_progress",
    WebSearchSearching = "response.web_search_call.searching",
    WebSearchCompleted = "response.web_search_call.completed",
    ImageInProgress = "response.image_generation_call.in_progress",
    ImageGenerating = "response.image_generation_call.generating",
    ImagePartial = "response.image_generation_call.partial_image",
    ImageCompleted = "response.image_generation_call.completed",
    CodeInProgress = "response.code_interpreter_call.in_progress",
    CodeInterpreting = "response.code_interpreter_call.interpreting",
    CodeCompleted = "response.code_interpreter_call.completed",
    CodeDelta = "response.code_interpreter_call_code.delta",
    CodeDone = "response.code_interpreter_call_code.done",
    McpCallInProgress = "response.mcp_call.in_progress",
    McpCallCompleted = "response.mcp_call.completed",
    McpCallFailed = "response.mcp_call.failed",
    McpArgumentsDelta = "response.mcp_call_arguments.delta",
    McpArgumentsDone = "response.mcp_call_arguments.done",
    McpListInProgress = "response.mcp_list_tools.in_progress",
    McpListCompleted = "response.mcp_list_tools.completed",
    McpListFailed = "response.mcp_list_tools.failed",
    AudioDelta = "response.audio.delta",
    AudioDone = "response.audio.done",
    TranscriptDelta = "response.audio.transcript.delta",
    TranscriptDone = "response.audio.transcript.done",
    ShellCommandAdded = "response.shell_call_command.added",
    ShellCommandDelta = "response.shell_call_command.delta",
    ShellCommandDone = "response.shell_call_command.done",
    ShellOutputDelta = "response.shell_call_output_content.delta",
    ShellOutputDone = "response.shell_call_output_content.done",
    PatchDiffDelta = "response.apply_patch_call_operation_diff.delta",
    PatchDiffDone = "response.apply_patch_call_operation_diff.done",
    Error = "error",
    Keepalive = "keepalive",
}

/// A received event, with the text that it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Event<'a> {
    /// The event as it was written.
    pub raw: Raw<'a>,
    /// The name: the field `type`, or the frame's `event:` line if it is missing.
    pub name: Cow<'a, str>,
    /// The kind, if the name is known.
    pub kind: Option<EventKind>,
    /// The index of the output item.
    pub output_index: Option<u64>,
    /// The index of the content or summary part.
    pub part_index: Option<u64>,
    /// The item's id.
    pub item_id: Option<JsonStr<'a>>,
    /// `delta`, if it is a string or an object with a string `text`.
    pub delta: Option<JsonStr<'a>>,
    /// `item`
    pub item: Option<Raw<'a>>,
    /// `part`
    pub part: Option<Raw<'a>>,
    /// `response`
    pub response: Option<Raw<'a>>,
}

impl<'a> Event<'a> {
    /// Reads an event; `line` is the value of the frame's `event:` line.
    pub fn read(raw: Raw<'a>, line: Option<&'a str>) -> Self {
        let mut event = Self {
            raw,
            name: Cow::Borrowed(line.unwrap_or_default()),
            kind: None,
            output_index: None,
            part_index: None,
            item_id: None,
            delta: None,
            item: None,
            part: None,
            response: None,
        };
        for (key, value) in raw.fields() {
            match key.escaped() {
                "type" => event.name = value.as_str().map_or(event.name, JsonStr::decode),
                "output_index" => event.output_index = value.as_u64(),
                "content_index" | "summary_index" => event.part_index = value.as_u64(),
                "item_id" => event.item_id = value.as_str(),
                // O-19: upstreams send deltas in four forms.
                "delta" => event.delta = value.as_str().or_else(|| value.get("text")?.as_str()),
                "output_text" => {
                    let delta = value.get("delta");
                    let inner = delta.and_then(|delta| delta.as_str().or_else(|| delta.get("text")?.as_str()));
                    event.delta = event.delta.or(inner);
                }
                "item" => event.item = Some(value),
                "part" => event.part = Some(value),
                "response" => event.response = Some(value),
                _ => {}
            }
        }
        event.kind = EventKind::named(&event.name);
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_name() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::named(kind.name()), Some(*kind));
        }
    }

    #[test]
    fn a_delta_is_found_in_all_four_shapes() {
        // O-19
        for text in [
            r#"{"type":"response.output_text.delta","delta":"hi"}"#,
            r#"{"type":"response.output_text.delta","delta":{"text":"hi"}}"#,
            r#"{"type":"response.output_text.delta","output_text":{"delta":"hi"}}"#,
            r#"{"type":"response.output_text.delta","output_text":{"delta":{"text":"hi"}}}"#,
        ] {
            let event = Event::read(Raw::parse(text.as_bytes()).unwrap(), None);
            assert_eq!((event.kind, event.delta.map(JsonStr::escaped)), (Some(EventKind::TextDelta), Some("hi")));
        }
    }

    #[test]
    fn the_frame_names_an_event_that_does_not_name_itself() {
        // O-18
        let event = Event::read(Raw::parse(b"{}").unwrap(), Some("response.completed"));
        assert_eq!(event.kind, Some(EventKind::Completed));
    }
}
