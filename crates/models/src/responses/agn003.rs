//! The dialect `agn003`: a request in the literal shapes of AGN-003, composed by [`amalgam_core::compose`].
//!
//! The dialect knows one system message and one user message. What was said before the last user message cannot be
//! expressed and is told as a loss; outputs of tools at the end travel as its block of results.

use amalgam_core::{
    ComposeBlocks, ComposeRequest, ConversationContext, DEFAULT_MODE, Delivery, Entry, History, Loss, ModelRequest,
    Output, Payload, Prepared, compose,
};
use amalgam_protocol::{Content, CreateResponse, PartKind, Role, TextFormat, ToolChoice, Writer};

use super::convert::note;

pub(super) fn convert(request: &ModelRequest<'_>) -> Prepared {
    let mut losses = Losses::default();
    let said = Said::read(request.history, &mut losses);
    let settings = request.settings;
    let tools = tools_json(settings);
    let choice = match &settings.tool_choice {
        Some(ToolChoice::Function(name) | ToolChoice::Custom(name)) => Some(&**name),
        None | Some(ToolChoice::Auto) => None,
        Some(_) => {
            losses.add("tool_choice", "the dialect can only name one tool");
            None
        }
    };
    lose_settings(settings, &mut losses);
    let body = compose(
        &ConversationContext { model_name: request.model, system: &said.system, temperature: settings.temperature },
        &ComposeRequest {
            mode: DEFAULT_MODE,
            instruction: &said.instruction,
            response_continuation_id: None,
            tools_json: tools.as_deref(),
            tool_choice_name: choice,
            tool_results_json: said.results_json.as_deref(),
            system_prompt: None,
        },
        &ComposeBlocks { stream: (request.delivery == Delivery::Stream).then_some(true), ..ComposeBlocks::default() },
    );
    Prepared {
        body: body.into(),
        losses: losses.0,
        delivery: request.delivery,
        calls: Default::default(),
        note: note(request),
    }
}

/// Each loss once.
#[derive(Default)]
struct Losses(Vec<Loss>);

impl Losses {
    fn add(&mut self, field: &'static str, reason: &'static str) {
        let loss = Loss::new(field, reason);
        if !self.0.contains(&loss) {
            self.0.push(loss);
        }
    }
}

/// A history in the dialect's terms.
#[derive(Default)]
struct Said {
    system: String,
    instruction: String,
    results_json: Option<String>,
}

impl Said {
    fn read(history: &History<'_>, losses: &mut Losses) -> Self {
        let mut said = Self::default();
        let entries = &history.entries;
        let last_user = entries.iter().rposition(|entry| is_user(entry));
        let tail = entries.iter().rposition(|entry| !matches!(entry, Entry::Output(_) | Entry::Note(_)));
        let mut results = Vec::new();
        for entry in &history.instructions {
            match entry {
                Entry::Message { content, .. } => join(&mut said.system, &text(content, losses)),
                _ => losses.add("instructions", "the dialect has only text here"),
            }
        }
        for (position, entry) in entries.iter().enumerate() {
            match entry {
                Entry::Message { role: Role::System | Role::Developer, content, .. } => {
                    join(&mut said.system, &text(content, losses));
                }
                Entry::Message { role: Role::User, content, .. } if Some(position) == last_user => {
                    join(&mut said.instruction, &text(content, losses));
                }
                // The dialect has no place for what was said before, but for this.
                Entry::Summary(summary) => join(&mut said.instruction, summary),
                // Our own words about what could not stand belong to the last thing said.
                Entry::Note(note) if last_user.is_none_or(|last| position > last) => join(&mut said.instruction, note),
                Entry::Output(output) if tail.is_none_or(|tail| position > tail) => results.push(output),
                // Told together with its output.
                Entry::Call(call) if results_follow(entries, tail, &call.call_id) => {}
                _ => losses.add("input", "the dialect sends only the last user message and the results behind it"),
            }
        }
        said.results_json = (!results.is_empty()).then(|| results_json(&results, entries, losses));
        said
    }
}

fn is_user(entry: &Entry<'_>) -> bool {
    matches!(entry, Entry::Message { role: Role::User, .. })
}

fn results_follow(entries: &[Entry<'_>], tail: Option<usize>, call_id: &str) -> bool {
    let behind = entries.iter().skip(tail.map_or(0, |tail| tail + 1));
    behind.filter_map(output).any(|output| output.call_id == call_id)
}

fn output<'e, 'a>(entry: &'e Entry<'a>) -> Option<&'e Output<'a>> {
    match entry {
        Entry::Output(output) => Some(output),
        _ => None,
    }
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

fn results_json(results: &[&Output<'_>], entries: &[Entry<'_>], losses: &mut Losses) -> String {
    let mut writer = Writer::default();
    writer.array(|writer| {
        for output in results {
            let call = entries.iter().find_map(|entry| match entry {
                Entry::Call(call) if call.call_id == output.call_id && call.kind == output.kind => Some(call),
                _ => None,
            });
            writer.object(|writer| {
                writer.key("CallId").string(&output.call_id);
                if let Some(call) = call {
                    writer.key("Name").string(&call.name);
                    match call.payload {
                        Payload::Arguments(text) | Payload::Input(text) => writer.key("ArgumentsJson").json_str(text),
                        Payload::Value(value) => writer.key("ArgumentsJson").string(value.text()),
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

/// Everything that the caller set and the dialect has no field for.
fn lose_settings(settings: &CreateResponse<'_>, losses: &mut Losses) {
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
    for (field, _) in &settings.extra {
        losses.0.push(Loss::new(field.decode().into_owned(), "the dialect has no such field"));
    }
}

#[cfg(test)]
#[path = "agn003_tests.rs"]
mod tests;
