//! The answers of the demo model: computed from the request alone, as a [`Script`].

use amalgam_core::{CallKind, Choice, Entry, Fault, History, Loss, Losses, ModelRequest, Offer, Toolset};
use amalgam_protocol::{
    Content, CreateResponse, Item, ItemKind, JsonStr, Part, PartKind, Role, TextFormat, ToolChoice,
};
use amalgam_samples::{SampleHints, instance};
use serde_json::{Value, json};

use crate::reasoning_seal::Owner;

use super::script::{Script, ScriptedCall, pieces};

/// Words of tool names that do not describe the tool.
const GENERIC: [&str; 22] = [
    "get", "set", "list", "fetch", "find", "lookup", "create", "make", "do", "run", "call", "use", "tool", "function",
    "current", "the", "a", "of", "for", "to", "by", "in",
];

/// The maximum length of a quoted tool output.
const QUOTED_CHARACTERS: usize = 600;

/// Computes the answer to a request.
pub(super) fn script(request: &ModelRequest<'_>, toolset: &Toolset<'_>) -> Result<Script, Fault> {
    let scene = Scene::of(request.history);
    let settings = request.settings;
    let hints = SampleHints::new(&scene.question);
    let calls = choose_calls(&scene, toolset, &hints, settings);
    let mut script = Script { input_tokens: count_input(request, toolset), ..Script::default() };
    let thinks = settings.reasoning.as_ref().is_some_and(|reasoning| {
        reasoning.summary.is_some() || reasoning.effort.as_deref().is_some_and(|effort| effort != "none")
    });
    if thinks {
        script.reasoning = Some(reasoning(&scene, &calls));
    }
    match calls.is_empty() {
        true => script.message = Some(message(&scene, toolset, settings, request.model)),
        false => script.calls = calls.iter().map(|offer| call(offer, &scene)).collect::<Result<_, _>>()?,
    }
    script.cut(settings.max_output_tokens);
    Ok(script)
}

/// Losses for parameters without effect.
pub(super) fn losses(settings: &CreateResponse<'_>) -> Vec<Loss> {
    let set = [
        ("temperature", settings.temperature.is_some_and(|value| value != 1.0)),
        ("top_p", settings.top_p.is_some_and(|value| value != 1.0)),
        ("presence_penalty", settings.presence_penalty.is_some_and(|value| value != 0.0)),
        ("frequency_penalty", settings.frequency_penalty.is_some_and(|value| value != 0.0)),
        ("top_logprobs", settings.top_logprobs.is_some_and(|count| count > 0)),
        ("text.verbosity", settings.text.verbosity.is_some()),
        ("text.format", matches!(settings.text.format, TextFormat::Other(_))),
    ];
    let lost = set.iter().filter(|(_, set)| *set);
    lost.map(|(field, _)| Loss::new(*field, "the demo model always answers in the same way")).collect()
}

/// Losses for history items without effect, each kind once.
pub(super) fn unread(history: &History<'_>, owner: Owner<'_>) -> Vec<Loss> {
    let mut losses = Losses::default();
    for entry in &history.entries {
        let loss = match entry {
            Entry::Opaque(Item { kind: ItemKind::AdditionalTools(_), .. }) => continue,
            Entry::Opaque(item) => {
                let kind = item.raw.get_str("type").unwrap_or_default();
                Loss::new(format!("input.{kind}"), "the demo model does not read it")
            }
            Entry::Reasoning(Item { kind: ItemKind::Reasoning(reasoning), .. })
                if let Some(sealed) = reasoning.encrypted_content.filter(|sealed| !sealed.is_empty())
                    && owner.open(&sealed.decode()).is_none() =>
            {
                Loss::new("input.reasoning", "the demo model does not read it")
            }
            _ => continue,
        };
        losses.push(loss);
    }
    losses.into_list()
}

/// The part of a conversation that an answer depends on.
#[derive(Debug, Default)]
struct Scene {
    /// The user's last message.
    question: String,
    /// Media types in that message, in order.
    media: Vec<String>,
    /// Names and outputs of tools that were called since.
    results: Vec<(String, String)>,
    /// The number of earlier messages.
    earlier: usize,
    /// The number of words in summaries of earlier turns.
    summarised: usize,
    /// The number of words in instructions.
    instructed: usize,
}

impl Scene {
    fn of(history: &History<'_>) -> Self {
        let mut scene = Self::default();
        let mut names: Vec<(String, String)> = Vec::new();
        for entry in history.instructions.iter().chain(&history.entries) {
            match entry {
                Entry::Message { role: Role::System | Role::Developer, content, .. } => {
                    scene.instructed += content.text().split_whitespace().count();
                }
                Entry::Message { role: Role::User, content, .. } => {
                    scene.earlier += usize::from(!scene.question.is_empty());
                    scene.question = content.text().into_owned();
                    scene.media = media(content);
                    scene.results.clear();
                }
                Entry::Message { role: Role::Assistant, .. } => scene.earlier += 1,
                Entry::Call(call) => names.push((call.call_id.to_string(), call.wire_name())),
                Entry::Output(output) => {
                    let name = names.iter().rev().find(|(call_id, _)| *call_id == output.call_id);
                    let name = name.map(|(_, name)| name.clone()).unwrap_or_default();
                    let mut text = output.content.text().into_owned();
                    for kind in media(&output.content) {
                        text.push_str(&format!(" [{kind}]"));
                    }
                    scene.results.push((name, text));
                }
                Entry::Summary(text) => scene.summarised += text.split_whitespace().count(),
                Entry::Note(_) | Entry::Reasoning(_) | Entry::Opaque(_) => {}
            }
        }
        scene
    }
}

/// The media types of a content's parts that are not text.
fn media(content: &Content<'_>) -> Vec<String> {
    let Content::Parts(parts) = content else { return Vec::new() };
    let of = |url: Option<JsonStr<'_>>, otherwise: &str| {
        let url = url.map(JsonStr::decode).unwrap_or_default();
        let head = url.strip_prefix("data:").and_then(|rest| rest.split([';', ',']).next());
        head.filter(|head| !head.is_empty()).unwrap_or(otherwise).to_owned()
    };
    let kind = |part: &Part<'_>| match &part.kind {
        PartKind::Image(image) | PartKind::Screenshot(image) => Some(of(image.url.map(|url| url.0), "image")),
        PartKind::File(file) => {
            let kind = of(file.data, "file");
            Some(file.filename.as_ref().map_or(kind.clone(), |name| format!("{kind} ({name})")))
        }
        PartKind::Audio => Some("audio".to_owned()),
        PartKind::Video => Some("video".to_owned()),
        PartKind::Other(kind) => Some(kind.to_string()),
        PartKind::Text { .. } | PartKind::Refusal(_) | PartKind::Encrypted => None,
    };
    parts.iter().filter_map(kind).collect()
}

/// The tools to call now: what `tool_choice` requires, or what the message asks for and was not called yet.
fn choose_calls<'t, 'a>(
    scene: &Scene,
    toolset: &'t Toolset<'a>,
    hints: &SampleHints,
    settings: &CreateResponse<'_>,
) -> Vec<&'t Offer<'a>> {
    let named = |name: &str| toolset.offers.iter().filter(|offer| offer.name == name).collect();
    let mentioned = || toolset.offers.iter().filter(|offer| is_mentioned(offer, hints));
    let mut calls: Vec<&Offer<'a>> = match &toolset.choice {
        Choice::None => Vec::new(),
        Choice::Named(name) => named(name),
        Choice::Required => match mentioned().collect::<Vec<_>>() {
            none if none.is_empty() => toolset.offers.first().into_iter().collect(),
            some => some,
        },
        Choice::Auto => {
            let called = |offer: &Offer<'_>| scene.results.iter().any(|(name, _)| *name == offer.name);
            mentioned().filter(|offer| !called(offer)).collect()
        }
    };
    // A name that is part of another mentioned name is not meant itself.
    let names: Vec<String> = calls.iter().map(|offer| offer.target.name.to_lowercase()).collect();
    if matches!(settings.tool_choice, None | Some(ToolChoice::Auto)) {
        calls.retain(|offer| {
            let name = offer.target.name.to_lowercase();
            !names.iter().any(|other| *other != name && other.contains(&name) && hints.says(other))
        });
    }
    if toolset.parallel == Some(false) {
        calls.truncate(1);
    }
    calls
}

/// A tool is mentioned by its name, or by all descriptive words of its name.
fn is_mentioned(offer: &Offer<'_>, hints: &SampleHints) -> bool {
    if hints.says(&offer.target.name) || hints.says(&offer.name) {
        return true;
    }
    let words = words_of(&offer.target.name);
    let mut telling: Vec<&String> = words.iter().filter(|word| !GENERIC.contains(&word.as_str())).collect();
    telling.retain(|word| word.len() > 3);
    !telling.is_empty() && telling.iter().all(|word| hints.says(word) || hints.says(&format!("{word}s")))
}

/// `getWeather`, `get_weather` and `get-weather` are the same words.
fn words_of(name: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(name.len() + 8);
    let mut before_lower = false;
    for c in name.chars() {
        if c.is_uppercase() && before_lower {
            spaced.push(' ');
        }
        before_lower = c.is_lowercase();
        spaced.push(if c.is_alphanumeric() { c } else { ' ' });
    }
    spaced.split_whitespace().map(str::to_lowercase).collect()
}

fn call(offer: &Offer<'_>, scene: &Scene) -> Result<ScriptedCall, Fault> {
    // Each tool starts with all hints: several calls may use the same one.
    let hints = SampleHints::new(&without_name(&scene.question, offer));
    let arguments = match (offer.target.kind, offer.parameters) {
        (CallKind::Custom, _) => json!({"input": hints.free_text()}),
        (_, None) => json!({}),
        (_, Some(schema)) => match instance(&parse(schema.text(), "tools")?, &hints) {
            object @ Value::Object(_) => object,
            _ => json!({}),
        },
    };
    Ok(ScriptedCall { name: offer.name.clone(), arguments: arguments.to_string() })
}

/// The message without the tool's name, which is not an argument.
fn without_name(text: &str, offer: &Offer<'_>) -> String {
    text.replace(&offer.target.name, " ").replace(&offer.name, " ")
}

fn parse(text: &str, field: &'static str) -> Result<Value, Fault> {
    serde_json::from_str(text)
        .map_err(|error| Fault::invalid(field, format!("The JSON Schema cannot be read: {error}.")))
}

fn reasoning(scene: &Scene, calls: &[&Offer<'_>]) -> String {
    let words = scene.question.split_whitespace().count();
    let mut text = format!("The last message has {words} words. ");
    match (calls, scene.results.len()) {
        ([], 0) => text.push_str("The message asks for no tool, so I describe what arrived."),
        ([], count) => text.push_str(&format!("{count} tool results are there, so I report them.")),
        (calls, _) => {
            let names: Vec<&str> = calls.iter().map(|offer| offer.target.name.as_str()).collect();
            text.push_str(&format!("I call {}.", names.join(" and ")));
        }
    }
    text
}

fn message(scene: &Scene, toolset: &Toolset<'_>, settings: &CreateResponse<'_>, model: &str) -> String {
    match &settings.text.format {
        TextFormat::JsonSchema(format) => {
            let results = scene.results.iter().map(|(_, text)| text.as_str());
            let known: Vec<&str> = std::iter::once(scene.question.as_str()).chain(results).collect();
            let schema: Value = serde_json::from_str(format.schema.text()).unwrap_or_default();
            instance(&schema, &SampleHints::new(&known.join("\n"))).to_string()
        }
        TextFormat::JsonObject => json!({"model": model, "demo": true, "message": words(scene, toolset)}).to_string(),
        TextFormat::Text | TextFormat::Other(_) => words(scene, toolset),
    }
}

fn words(scene: &Scene, toolset: &Toolset<'_>) -> String {
    let mut lines = vec![
        "This is Amalgam's demo model: it runs inside the server, offline, and gives the same answer to the same request."
            .to_owned(),
    ];
    for (name, output) in &scene.results {
        let quoted: String = output.chars().take(QUOTED_CHARACTERS).collect();
        let more = if quoted.len() < output.len() { " …" } else { "" };
        lines.push(format!("The tool {name} answered: {quoted}{more}"));
    }
    if !scene.question.is_empty() && scene.results.is_empty() {
        let quoted: String = scene.question.chars().take(QUOTED_CHARACTERS).collect();
        let more = if quoted.len() < scene.question.len() { " …" } else { "" };
        lines.push(format!("You wrote: “{quoted}{more}”"));
    }
    if !scene.media.is_empty() {
        lines.push(format!("With it came: {}.", scene.media.join(", ")));
    }
    let mut around = Vec::new();
    if scene.instructed > 0 {
        around.push(format!("instructions of {} words", scene.instructed));
    }
    if scene.earlier > 0 {
        around.push(format!("{} earlier messages", scene.earlier));
    }
    if scene.summarised > 0 {
        around.push(format!("a summary of {} words", scene.summarised));
    }
    if !around.is_empty() {
        lines.push(format!("I also see {}.", around.join(" and ")));
    }
    if scene.results.is_empty() && toolset.choice != Choice::None && !toolset.offers.is_empty() {
        let names: Vec<&str> = toolset.offers.iter().map(|offer| offer.name.as_str()).take(8).collect();
        let more = if toolset.offers.len() > names.len() { ", …" } else { "" };
        lines.push(format!("Tools that you can ask me to use by name: {}{more}.", names.join(", ")));
    }
    lines.join("\n")
}

/// Counts all text of the request, and each image or file as one.
fn count_input(request: &ModelRequest<'_>, toolset: &Toolset<'_>) -> u64 {
    let content = |content: &Content<'_>| pieces(&content.text()).count() + media(content).len();
    let entry = |entry: &Entry<'_>| match entry {
        Entry::Message { content: part, .. } => content(part),
        Entry::Note(text) | Entry::Summary(text) => pieces(text).count(),
        Entry::Output(output) => content(&output.content),
        Entry::Call(call) => 1 + pieces(&call.payload.text()).count(),
        Entry::Reasoning(_) | Entry::Opaque(_) => 0,
    };
    let tool = |offer: &Offer<'_>| 1 + offer.parameters.map_or(0, |schema| pieces(schema.text()).count());
    let history: usize = request.history.instructions.iter().chain(&request.history.entries).map(entry).sum();
    (history + toolset.offers.iter().map(tool).sum::<usize>()) as u64
}
