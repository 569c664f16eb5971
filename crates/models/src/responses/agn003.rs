//! The dialect `agn003`: a request in the literal shapes of AGN-003, composed by [`amalgam_core::Composition`].
//!
//! The dialect knows one system message and one user message. What was said before the last user message cannot be
//! expressed: an upstream that keeps state knows it, and else it is told as a loss. Outputs of tools at the end travel as its
//! block of results. A message that was composed by the same rules is taken apart again, so that nothing stands twice.

use std::collections::{HashMap, HashSet};

use amalgam_core::{
    Chain, ComposeBlocks, ComposeRequest, Composition, ConversationContext, DEFAULT_MODE, Delivery, Entry, History,
    Losses, ModelRequest, Output, Payload, Prepared,
};
use amalgam_protocol::{Content, CreateResponse, Json, PartKind, Role, TextFormat, ToolChoice, Writer};

use super::convert::{new_entries, note};

pub(super) fn convert(request: &ModelRequest<'_>) -> Prepared {
    let mut losses = Losses::default();
    let said = Said::read(request, &mut losses);
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
    lose_settings(settings, &mut losses);
    let [system, prompt, usage] = said.system.each_ref().map(String::as_str);
    let body = Composition {
        context: ConversationContext { model_name: request.model, system, temperature: settings.temperature },
        request: ComposeRequest {
            mode: &said.mode,
            instruction: &said.instruction,
            response_continuation_id: match request.chain {
                Chain::GoesOn { id, .. } => Some(id),
                Chain::Apart | Chain::Begun => None,
            },
            tools_json: tools.as_deref(),
            tool_choice_name: choice,
            tool_results_json: said.results_json.as_deref(),
            system_prompt: Some(prompt),
        },
        blocks: ComposeBlocks {
            tool_usage_metadata_block: Some(usage),
            stream: (request.delivery == Delivery::Stream).then_some(true),
            ..ComposeBlocks::default()
        },
        attachments: &said.parts,
        ..Composition::default()
    }
    .literal();
    Prepared {
        body: body.into(),
        losses: losses.into_list(),
        delivery: request.delivery,
        calls: Default::default(),
        note: note(request),
    }
}

/// A history in the dialect's terms.
#[derive(Default)]
struct Said {
    /// The base prompt, the caller's own and the block about tools.
    system: [String; 3],
    mode: String,
    instruction: String,
    /// Further parts of the user's message.
    parts: Vec<Json>,
    results_json: Option<String>,
}

impl Said {
    fn read(request: &ModelRequest<'_>, losses: &mut Losses) -> Self {
        let (history, new) = (request.history, new_entries(request));
        let goes_on = new.len() < history.entries.len();
        let mode = history.entries.iter().rev().find_map(|entry| Some(composed(entry)?.0));
        let mut said = Self { mode: mode.unwrap_or_else(|| DEFAULT_MODE.to_owned()), ..Self::default() };
        if !goes_on {
            said.system = system(history, losses);
        }
        let last_user = new.iter().rposition(is_user);
        let tail = new.iter().rposition(|entry| !matches!(entry, Entry::Output(_) | Entry::Note(_)));
        let behind = new.iter().skip(tail.map_or(0, |tail| tail + 1));
        let answered: HashSet<_> = behind.filter_map(output).map(|output| &output.call_id).collect();
        let mut results = Vec::new();
        for (position, entry) in new.iter().enumerate() {
            match entry {
                Entry::Message { role: Role::System | Role::Developer, .. } if goes_on => {
                    losses.add("instructions", "the dialect says what the model is to be at the beginning alone");
                }
                Entry::Message { role: Role::System | Role::Developer, .. } => {}
                Entry::Message { role: Role::User, content, .. } if Some(position) == last_user => {
                    match composed(entry) {
                        Some((_, instruction, parts)) => {
                            join(&mut said.instruction, &instruction);
                            said.parts = parts;
                        }
                        None => join(&mut said.instruction, &text(content, losses)),
                    }
                }
                // The dialect has no place for what was said before, but for this.
                Entry::Summary(summary) => join(&mut said.instruction, summary),
                // Our own words about what could not stand belong to the last thing said.
                Entry::Note(note) if last_user.is_none_or(|last| position > last) => join(&mut said.instruction, note),
                Entry::Output(output) if tail.is_none_or(|tail| position > tail) => results.push(output),
                // Told together with its output.
                Entry::Call(call) if answered.contains(&call.call_id) => {}
                _ => losses.add("input", "the dialect sends only the last user message and the results behind it"),
            }
        }
        said.results_json = (!results.is_empty()).then(|| results_json(&results, &history.entries, losses));
        said
    }
}

/// What the model is told to be. The parts of one message stay apart; several messages become one text.
fn system(history: &History<'_>, losses: &mut Losses) -> [String; 3] {
    let mut told: Vec<&Content<'_>> = Vec::new();
    for entry in &history.instructions {
        match entry {
            Entry::Message { content, .. } => told.push(content),
            _ => losses.add("instructions", "the dialect has only text here"),
        }
    }
    told.extend(history.entries.iter().filter_map(|entry| match entry {
        Entry::Message { role: Role::System | Role::Developer, content, .. } => Some(content),
        _ => None,
    }));
    let texts: Vec<String> = match told.as_slice() {
        [Content::Parts(parts)] if parts.len() <= 3 && parts.iter().all(|part| part.text().is_some()) => {
            parts.iter().filter_map(|part| Some(part.text()?.decode().into_owned())).collect()
        }
        told => {
            let mut whole = String::new();
            told.iter().for_each(|content| join(&mut whole, &text(content, losses)));
            vec![whole]
        }
    };
    let mut texts = texts.into_iter();
    std::array::from_fn(|_| texts.next().unwrap_or_default())
}

/// The mode, the instruction and the further parts of a message of the user that AGN-003's rules have composed.
fn composed(entry: &Entry<'_>) -> Option<(String, String, Vec<Json>)> {
    let Entry::Message { role: Role::User, content: Content::Parts(parts), .. } = entry else { return None };
    let (first, others) = parts.split_first()?;
    let first = first.text()?.decode();
    let (mode, instruction) = first.strip_prefix("[MODE: ")?.split_once("]\n\n[INSTRUCTION]\n")?;
    let plain = !mode.is_empty() && !mode.contains([']', '\n']);
    plain.then(|| (mode.to_owned(), instruction.to_owned(), others.iter().map(|part| Json::from(part.raw)).collect()))
}

fn is_user(entry: &Entry<'_>) -> bool {
    matches!(entry, Entry::Message { role: Role::User, .. })
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
    let calls: HashMap<_, _> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Call(call) => Some(((call.kind, &call.call_id), call)),
            _ => None,
        })
        .collect();
    let mut writer = Writer::default();
    writer.array(|writer| {
        for output in results {
            let call = calls.get(&(output.kind, &output.call_id));
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
        losses.add(field.decode().into_owned(), "the dialect has no such field");
    }
}

#[cfg(test)]
#[path = "agn003_tests.rs"]
mod tests;
