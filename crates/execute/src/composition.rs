//! Composition of an upstream request (AGN-003): one value, written in two ways.
//!
//! [`Composition::literal`] follows the document literally; [`Composition::body`] is its equivalent in the published
//! formats. Pure: the input is strings, the output a JSON body. Text blocks are composed elsewhere; this decides their
//! order and when they are left out.

mod items;

use std::borrow::Cow;

use amalgam_protocol::{Json, Raw, Shape, Writer};

/// The default mode of a turn.
pub const DEFAULT_MODE: &str = "general";

/// The parts that stay the same in a conversation.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConversationContext<'a> {
    /// The model.
    pub model_name: &'a str,
    /// The base prompt; sent even if it is empty.
    pub system: &'a str,
    /// Left out if unset: some models refuse it.
    pub temperature: Option<f64>,
}

/// The parts of one turn.
#[derive(Debug, Clone, Copy, Default)]
pub struct ComposeRequest<'a> {
    /// A name such as `general`, the default for a blank one.
    pub mode: &'a str,
    /// The user's instruction, unchanged.
    pub instruction: &'a str,
    /// The previous response; blank counts as none.
    pub response_continuation_id: Option<&'a str>,
    /// A JSON array of tool schemas.
    pub tools_json: Option<&'a str>,
    /// The one tool that must be called.
    pub tool_choice_name: Option<&'a str>,
    /// A JSON array of tool results.
    pub tool_results_json: Option<&'a str>,
    /// The caller's instructions for this request only.
    pub system_prompt: Option<&'a str>,
}

/// Additional parts of a turn.
#[derive(Debug, Clone, Copy, Default)]
pub struct ComposeBlocks<'a> {
    /// A composed `[CONTEXT]` block.
    pub rag_context_block: Option<&'a str>,
    /// The output of [`tool_usage_block`](amalgam_core::tool_usage_block).
    pub tool_usage_metadata_block: Option<&'a str>,
    /// Left out if unset.
    pub stream: Option<bool>,
}

/// The parts of one upstream request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Composition<'a> {
    /// The parts that stay the same in a conversation.
    pub context: ConversationContext<'a>,
    /// The parts of one turn.
    pub request: ComposeRequest<'a>,
    /// Additional parts.
    pub blocks: ComposeBlocks<'a>,
    /// Content parts of the user's message, such as images: after the instruction, before everything else.
    pub attachments: &'a [Json],
    /// Earlier turns, for an upstream without state: items, or for the literal body messages as
    /// [`Composition::literal_user`] and [`literal_message`] write them.
    pub history: &'a [Json],
    /// When tools are sent; the literal format sends them only with initial requests.
    pub tools: ToolsSent,
}

/// When the published format includes tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolsSent {
    /// Upstreams do not carry tools over from one response to the next.
    #[default]
    OnEveryCall,
    /// As in AGN-003.
    OnInitialCalls,
}

/// The literal body of a request without attachments.
pub fn compose(context: &ConversationContext<'_>, request: &ComposeRequest<'_>, blocks: &ComposeBlocks<'_>) -> Vec<u8> {
    Composition { context: *context, request: *request, blocks: *blocks, ..Composition::default() }.literal()
}

impl<'a> Composition<'a> {
    /// The body in the literal format of AGN-003.
    pub fn literal(&self) -> Vec<u8> {
        let Self { context, request, blocks, .. } = self;
        let continuation = self.continuation();
        let room: usize = self.history.iter().map(|message| message.bytes().len()).sum();
        let mut writer = Writer::with_capacity(room + 1024);
        writer.object(|writer| {
            self.write_head(writer, continuation);
            writer.key("input").array(|writer| {
                if continuation.is_none() {
                    let own = [filled(request.system_prompt), filled(blocks.tool_usage_metadata_block)];
                    write_message(writer, "system", context.system, &[], own);
                }
                self.history.iter().for_each(|message| writer.raw(message.raw()));
                self.write_literal_user(writer);
            });
            if continuation.is_none() {
                write_tools(writer, request.tools_json);
            }
            write_choice(writer, "tool", request.tool_choice_name);
        });
        writer.into_bytes()
    }

    /// Only the user's message, as in the literal body.
    pub fn literal_user(&self) -> Json {
        let mut writer = Writer::with_capacity(512);
        self.write_literal_user(&mut writer);
        Json::from_writer(writer)
    }

    fn write_literal_user(&self, writer: &mut Writer) {
        let results = self.request.tool_results_json.and_then(tool_results_block);
        let instruction = user_text(self.request.mode, self.request.instruction);
        let blocks = [filled(self.blocks.rag_context_block), results.as_deref()];
        write_message(writer, "user", &instruction, self.attachments, blocks);
    }

    /// The previous response; none for an initial request.
    fn continuation(&self) -> Option<&'a str> {
        self.request.response_continuation_id.filter(|id| !id.trim().is_empty())
    }

    /// Writes the fields before the input, in either format.
    fn write_head(&self, writer: &mut Writer, continuation: Option<&str>) {
        writer.key("model").string(self.context.model_name);
        if let Some(temperature) = self.context.temperature {
            writer.key("temperature").float(temperature);
        }
        if let Some(stream) = self.blocks.stream {
            writer.key("stream").bool(stream);
        }
        if let Some(id) = continuation {
            writer.key("previous_response_id").string(id);
        }
    }
}

/// A message with one text in the literal format, such as an earlier answer of the model.
pub fn literal_message(role: &str, text: &str) -> Json {
    let mut writer = Writer::with_capacity(text.len() + 64);
    write_message(&mut writer, role, text, &[], [None, None]);
    Json::from_writer(writer)
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.trim().is_empty())
}

fn user_text(mode: &str, instruction: &str) -> String {
    let mode = filled(Some(mode)).unwrap_or(DEFAULT_MODE);
    format!("[MODE: {mode}]\n\n[INSTRUCTION]\n{instruction}")
}

/// The first text is always written, the others only if they are not blank.
fn write_message(writer: &mut Writer, role: &str, first: &str, attachments: &[Json], others: [Option<&str>; 2]) {
    writer.object(|writer| {
        writer.key("role").string(role);
        writer.key("content").array(|writer| {
            write_text(writer, "text", first);
            for part in attachments.iter().map(Json::raw) {
                match part.get("text").and_then(Raw::as_str) {
                    Some(text) => write_text(writer, "text", &text.decode()),
                    None => writer.raw(part),
                }
            }
            others.into_iter().flatten().for_each(|text| write_text(writer, "text", text));
        });
    });
}

fn write_text(writer: &mut Writer, kind: &str, text: &str) {
    writer.object(|writer| {
        writer.key("type").string(kind);
        writer.key("text").string(text);
    });
}

fn write_choice(writer: &mut Writer, kind: &str, name: Option<&str>) {
    if let Some(name) = filled(name) {
        writer.key("tool_choice").object(|writer| {
            writer.key("type").string(kind);
            writer.key("name").string(name);
        });
    }
}

/// Objects of the array are passed unchanged; without an array of objects there are no tools.
fn write_tools(writer: &mut Writer, tools_json: Option<&str>) {
    let Some(tools) = tools_json.and_then(|text| Raw::parse(text.as_bytes()).ok()) else { return };
    let mut objects = tools.elements().filter(|tool| tool.shape() == Shape::Object).peekable();
    if objects.peek().is_some() {
        writer.key("tools").array(|writer| objects.for_each(|tool| writer.raw(tool)));
    }
}

/// Tool results as text, or none if `json` has none.
///
/// Every line of a value is indented and every name is on one line, so that a tool's output cannot pass for a result of
/// another tool.
pub fn tool_results_block(json: &str) -> Option<String> {
    results_block(results_of(json))
}

/// The objects of a JSON array.
fn results_of(json: &str) -> impl Iterator<Item = Raw<'_>> {
    let results = Raw::parse(json.as_bytes()).ok();
    results.into_iter().flat_map(Raw::elements).filter(|result| result.shape() == Shape::Object)
}

fn results_block<'a>(results: impl Iterator<Item = Raw<'a>>) -> Option<String> {
    let rendered: Vec<String> = results.map(render_result).collect();
    (!rendered.is_empty()).then(|| format!("[TOOL_RESULTS]\n\n{}", rendered.join("\n\n")))
}

fn render_result(result: Raw<'_>) -> String {
    let either = |pascal: &str, camel: &str| result.get(pascal).or_else(|| result.get(camel));
    let name = |pascal, camel| {
        let text = either(pascal, camel).and_then(plain).map(|text| text.replace(['\r', '\n'], " "));
        text.filter(|text| !text.trim().is_empty()).unwrap_or_else(|| "(missing)".to_owned())
    };
    let mut rendered = format!("- CallId: {}\n  Name: {}", name("CallId", "callId"), name("Name", "name"));
    for flag in ["IsServerTool", "WasExecuted"] {
        if let Some(value) = result.get(flag).and_then(Raw::as_bool) {
            rendered.push_str(&format!("\n  {flag}: {value}"));
        }
    }
    for (label, value) in [
        ("ArgumentsJson", either("ArgumentsJson", "argumentsJson")),
        ("ResultJson", either("ResultJson", "resultJson")),
        ("ErrorMessage", result.get("ErrorMessage")),
    ] {
        if let Some(text) = value.and_then(plain).filter(|text| !text.trim().is_empty()) {
            rendered.push_str(&format!("\n  {label}:"));
            let text = text.replace("\r\n", "\n").replace('\r', "\n");
            text.trim_end().split('\n').for_each(|line| rendered.push_str(&format!("\n    {line}")));
        }
    }
    rendered
}

/// A string's characters, or the JSON of anything else that is not null.
fn plain(value: Raw<'_>) -> Option<Cow<'_, str>> {
    match value.as_str() {
        Some(text) => Some(text.decode()),
        None => (!value.is_null()).then(|| Cow::Borrowed(value.text())),
    }
}

#[cfg(test)]
#[path = "composition_tests.rs"]
mod tests;
