//! The dialect `agn003`: a request in the literal shapes of AGN-003, composed by [`amalgam_execute::composition::Composition`].
//!
//! One system message, then the messages of user and model in order, the last one the user's. A request that continues
//! an answer that the upstream stores names that answer and sends only new messages; any other request sends the whole
//! history. The document has no items for tools: results are in its `[TOOL_RESULTS]` block, inside the user message
//! before them. A message that was composed by the same rules is split into its parts again, so that nothing occurs
//! twice.

use std::collections::HashMap;

use amalgam_core::{
    AnswerContext, Call, CallKind, Chain, Delivery, Entry, History, Losses, ModelRequest, Output, Payload,
    PreparedRequest,
};
use amalgam_execute::composition::{
    ComposeBlocks, ComposeRequest, Composition, ConversationContext, DEFAULT_MODE, literal_message,
};
use amalgam_protocol::{ANTHROPIC, Content, CreateResponse, Json, PartKind, Role, TextFormat, ToolChoice, Writer};

use super::convert::{answer_context, new_entries};
use crate::messages_fields;

pub(super) fn convert(request: &ModelRequest<'_>) -> PreparedRequest {
    let mut losses = Losses::default();
    let continuation = match request.chain {
        Chain::Continue { id, .. } => Some(id),
        Chain::Standalone | Chain::Start => None,
    };
    let mut messages = Messages::read(request, continuation.is_some(), &mut losses);
    messages.user();
    let last = messages.open.take().unwrap_or_default();
    let calls = calls_of(request.history);
    let earlier: Vec<Json> = messages.list.iter().map(|message| message.write(&calls, &mut losses)).collect();
    let results = last.results_json(&calls, &mut losses);
    let settings = request.settings;
    let tools = tools_json(settings);
    let choice = match &settings.tool_choice {
        Some(ToolChoice::Function(name, _) | ToolChoice::Custom(name, _)) => Some(&**name),
        None | Some(ToolChoice::Auto) => None,
        Some(_) => {
            losses.add("tool_choice", "the dialect can only name one tool");
            None
        }
    };
    report_losses(settings, &mut losses);
    messages_fields::report_losses(settings, request.history, &[], &mut losses);
    let [system, prompt, usage] = messages.system.each_ref().map(String::as_str);
    let body = Composition {
        context: ConversationContext { model_name: request.model, system, temperature: settings.temperature },
        request: ComposeRequest {
            response_continuation_id: continuation,
            tools_json: tools.as_deref(),
            tool_choice_name: choice,
            tool_results_json: results.as_deref(),
            system_prompt: Some(prompt),
            ..last.request()
        },
        blocks: ComposeBlocks {
            tool_usage_metadata_block: Some(usage),
            stream: (request.delivery == Delivery::Stream).then_some(true),
            ..ComposeBlocks::default()
        },
        attachments: &last.parts,
        history: &earlier,
        ..Composition::default()
    }
    .literal();
    PreparedRequest {
        body: body.into(),
        losses: losses.into_list(),
        delivery: request.delivery,
        calls: Default::default(),
        // This dialect has no field for a limit.
        answer_context: AnswerContext { max_output_tokens: None, ..answer_context(request) },
    }
}

/// A history in the format of the dialect.
struct Messages<'a> {
    /// The base prompt, the caller's prompt and the block about tools.
    system: [String; 3],
    list: Vec<Message<'a>>,
    /// The last message of the user, to which results and notes may still be added.
    open: Option<UserMessage<'a>>,
    /// The mode of the last message that names one.
    mode: String,
}

enum Message<'a> {
    User(UserMessage<'a>),
    /// A text with this role: answers of the model, and a summary of earlier turns.
    Text(&'static str, String),
}

/// A message of the user, with the blocks that the document appends.
#[derive(Default)]
struct UserMessage<'a> {
    mode: String,
    instruction: String,
    /// Other parts, such as images.
    parts: Vec<Json>,
    results: Vec<&'a Output<'a>>,
}

/// Every call of a history, by its id.
type Calls<'a> = HashMap<(CallKind, &'a str), &'a Call<'a>>;

impl<'a> Messages<'a> {
    fn read(request: &ModelRequest<'a>, continues: bool, losses: &mut Losses) -> Self {
        let history: &'a History<'a> = request.history;
        let new = new_entries(request);
        let (known, _) = history.entries.split_at(history.entries.len() - new.len());
        let mode = known.iter().rev().find_map(|entry| Some(composed(entry)?.0));
        let mut messages = Self {
            system: if continues { Default::default() } else { system(history, losses) },
            list: Vec::with_capacity(new.len()),
            open: None,
            mode: mode.unwrap_or_else(|| DEFAULT_MODE.to_owned()),
        };
        for entry in history.entries.get(known.len()..).unwrap_or_default() {
            messages.take(entry, continues, losses);
        }
        messages
    }

    fn take(&mut self, entry: &'a Entry<'a>, continues: bool, losses: &mut Losses) {
        match entry {
            // Instructions that the server adds after tool calls.
            Entry::Message { role: Role::System | Role::Developer, content, item: None } => {
                self.remark(&content.text())
            }
            Entry::Message { role: Role::System | Role::Developer, .. } if continues => {
                losses.add("instructions", "the dialect sends its system message on initial requests only");
            }
            // Part of the system message.
            Entry::Message { role: Role::System | Role::Developer, .. } => {}
            Entry::Message { role: Role::User, content, .. } => {
                let (mode, instruction, parts) = composed(entry)
                    .unwrap_or_else(|| (self.mode.clone(), content.text().into_owned(), beside_text(content)));
                self.mode.clone_from(&mode);
                self.close();
                self.open = Some(UserMessage { mode, instruction, parts, results: Vec::new() });
            }
            Entry::Message { content, .. } => self.push_text("assistant", text(content, losses)),
            Entry::Summary(summary) => self.push_text("user", summary.clone()),
            Entry::Note(answer_context) => self.remark(answer_context),
            // Written together with its output.
            Entry::Call(_) => {}
            Entry::Output(output) => self.user().results.push(output),
            Entry::Reasoning(_) => losses.add("reasoning", "the dialect has no place for earlier reasoning"),
            Entry::Opaque(_) => losses.add("input", "the dialect has only messages and the results of tools"),
        }
    }

    /// Adds an instruction of the server to the user's last message.
    fn remark(&mut self, text: &str) {
        let mut writer = Writer::with_capacity(text.len() + 64);
        writer.object(|writer| {
            writer.key("type").string("input_text");
            writer.key("text").string(text);
        });
        self.user().parts.push(Json::from_writer(writer));
    }

    /// The user's last message; one without an instruction if the model's message is last. C-07
    fn user(&mut self) -> &mut UserMessage<'a> {
        let mode = &self.mode;
        self.open.get_or_insert_with(|| UserMessage { mode: mode.clone(), ..UserMessage::default() })
    }

    fn close(&mut self) {
        self.list.extend(self.open.take().map(Message::User));
    }

    fn push_text(&mut self, role: &'static str, text: String) {
        self.close();
        self.list.push(Message::Text(role, text));
    }
}

impl Message<'_> {
    fn write(&self, calls: &Calls<'_>, losses: &mut Losses) -> Json {
        match self {
            Self::Text(role, text) => literal_message(role, text),
            Self::User(message) => {
                let results = message.results_json(calls, losses);
                let request = ComposeRequest { tool_results_json: results.as_deref(), ..message.request() };
                Composition { request, attachments: &message.parts, ..Composition::default() }.literal_user()
            }
        }
    }
}

impl UserMessage<'_> {
    fn request(&self) -> ComposeRequest<'_> {
        ComposeRequest { mode: &self.mode, instruction: &self.instruction, ..ComposeRequest::default() }
    }

    fn results_json(&self, calls: &Calls<'_>, losses: &mut Losses) -> Option<String> {
        (!self.results.is_empty()).then(|| results_json(&self.results, calls, losses))
    }
}

/// The system message. A composed one is split into its parts; further system messages of the caller join the second
/// part, which is the caller's. Anything else becomes one text.
fn system(history: &History<'_>, losses: &mut Losses) -> [String; 3] {
    let mut contents: Vec<&Content<'_>> = Vec::new();
    for entry in &history.instructions {
        match entry {
            Entry::Message { content, .. } => contents.push(content),
            _ => losses.add("instructions", "the dialect has only text here"),
        }
    }
    contents.extend(history.entries.iter().filter_map(|entry| match entry {
        Entry::Message { role: Role::System | Role::Developer, content, item: Some(_) } => Some(content),
        _ => None,
    }));
    let mut parts: [String; 3] = Default::default();
    let own = match contents.split_first() {
        Some((Content::Parts(first), own)) if first.len() <= 3 && first.iter().all(|part| part.text().is_some()) => {
            let texts = first.iter().filter_map(|part| Some(part.text()?.decode().into_owned()));
            parts.iter_mut().zip(texts).for_each(|(part, text)| *part = text);
            let [_, second, _] = &mut parts;
            own.iter().for_each(|content| join(second, &text(content, losses)));
            return parts;
        }
        _ => contents,
    };
    let [first, ..] = &mut parts;
    own.iter().for_each(|content| join(first, &text(content, losses)));
    parts
}

/// Splits a message of the user that was composed by AGN-003's rules into mode, instruction and other parts.
fn composed(entry: &Entry<'_>) -> Option<(String, String, Vec<Json>)> {
    let Entry::Message { role: Role::User, content: Content::Parts(parts), .. } = entry else { return None };
    let (first, others) = parts.split_first()?;
    let first = first.text()?.decode();
    let (mode, instruction) = first.strip_prefix("[MODE: ")?.split_once("]\n\n[INSTRUCTION]\n")?;
    let plain = !mode.is_empty() && !mode.contains([']', '\n']);
    plain.then(|| (mode.to_owned(), instruction.to_owned(), others.iter().map(|part| Json::from(part.raw)).collect()))
}

/// The parts of a message that are not text, as the caller sent them.
fn beside_text(content: &Content<'_>) -> Vec<Json> {
    let Content::Parts(parts) = content else { return Vec::new() };
    let is_text = |kind: &PartKind<'_>| matches!(kind, PartKind::Text { .. } | PartKind::Refusal(_));
    parts.iter().filter(|part| !is_text(&part.kind)).map(|part| Json::from(part.raw)).collect()
}

fn calls_of<'a>(history: &'a History<'a>) -> Calls<'a> {
    let calls = history.entries.iter().filter_map(|entry| match entry {
        Entry::Call(call) => Some(((call.kind, &*call.call_id), call)),
        _ => None,
    });
    calls.collect()
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

fn text(content: &Content<'_>, losses: &mut Losses) -> String {
    if let Content::Parts(parts) = content
        && parts.iter().any(|part| !matches!(part.kind, PartKind::Text { .. } | PartKind::Refusal(_)))
    {
        losses.add("input", "the dialect has only text parts");
    }
    content.text().into_owned()
}

fn results_json(results: &[&Output<'_>], calls: &Calls<'_>, losses: &mut Losses) -> String {
    let mut writer = Writer::default();
    writer.array(|writer| {
        for output in results {
            let call = calls.get(&(output.kind, &*output.call_id));
            writer.object(|writer| {
                writer.key("CallId").string(&output.call_id);
                if let Some(call) = call {
                    writer.key("Name").string(&call.name);
                    match call.payload {
                        Payload::Arguments(text) | Payload::Input(text) => writer.key("ArgumentsJson").json_str(text),
                        payload => writer.key("ArgumentsJson").string(&payload.text()),
                    }
                }
                writer.key("ResultJson").string(&text(&output.content, losses));
            });
        }
    });
    String::from_utf8(writer.into_bytes()).expect("a writer writes text")
}

fn tools_json(settings: &CreateResponse<'_>) -> Option<String> {
    if settings.tools.is_empty() {
        return None;
    }
    let mut writer = Writer::default();
    writer.array(|writer| settings.tools.iter().for_each(|tool| writer.raw(tool.raw)));
    Some(String::from_utf8(writer.into_bytes()).expect("a writer writes text"))
}

/// Reports all parameters for which the dialect has no field.
fn report_losses(settings: &CreateResponse<'_>, losses: &mut Losses) {
    let set = [
        ("top_p", settings.top_p.is_some()),
        ("presence_penalty", settings.presence_penalty.is_some()),
        ("frequency_penalty", settings.frequency_penalty.is_some()),
        ("top_logprobs", settings.top_logprobs.is_some()),
        ("max_output_tokens", settings.max_output_tokens.is_some()),
        ("parallel_tool_calls", settings.parallel_tool_calls == Some(false)),
        ("reasoning", settings.reasoning.is_some()),
        ("text.format", settings.text.format != TextFormat::Text),
        ("text.verbosity", settings.text.verbosity.is_some()),
        ("prompt", settings.prompt.is_some()),
        ("context_management", settings.context_management.is_some()),
    ];
    for (field, _) in set.into_iter().filter(|(_, set)| *set) {
        losses.add(field, "the dialect has no such field");
    }
    let fields = settings.chat_fields.iter().chain(&settings.extra);
    for (field, _) in fields.filter(|(field, _)| !field.is(ANTHROPIC)) {
        losses.add(field.decode().into_owned(), "the dialect has no such field");
    }
}

#[cfg(test)]
#[path = "agn003_tests.rs"]
mod tests;
