//! A profile of the tenant's assistant in the place of a model: its prompt, its tools and its limits apply.

use amalgam_core::{AskedTool, Equipped, Fault, Scope, assistant::prompt::Prompt};
use amalgam_protocol::{CreateResponse, Input, Json, Raw, Writer};
use bytes::Bytes;

use super::turn::{Offered, Settled};
use crate::{
    app::App,
    wires::assistant::{Agent, AssistantError, require_enabled},
};

/// The most pairs of metadata that a response has; what the profile says about itself goes before the rest.
const PAIRS: usize = 16;

/// A request as it is once a profile stands in for its model.
pub(super) struct StandIn {
    /// The request.
    pub(super) body: Bytes,
    /// What the response shows as its metadata.
    pub(super) metadata: Json,
    /// Who answers, and on which terms.
    pub(super) settled: Settled,
}

/// The profile of this name, if the tenant has an active one. `sent` is the request, `raw` the text that it was read from.
pub(super) async fn stand_in(
    app: &App,
    scope: &Scope,
    slug: &str,
    sent: &CreateResponse<'_>,
    raw: Raw<'_>,
) -> Result<Option<StandIn>, Fault> {
    let Some(profile) = app.store.profile(scope, slug).await?.filter(|profile| profile.active) else { return Ok(None) };
    require_enabled(app, scope).await?;
    let mut agent = Agent::with(app, scope, Some(profile)).await?;
    let route = agent.route(app, scope).await.map_err(AssistantError::into_fault)?;
    leave_out_unknown(app, scope, &mut agent).await?;
    let prompt = agent.prompt(None);
    let metadata = metadata(&agent, &prompt, sent.metadata);
    let settled = Settled {
        route,
        before: Vec::new(),
        memory: None,
        thread: None,
        offered: Offered::All,
        own_tools: Vec::new(),
        first_tool: agent.first_tool().filter(|_| sent.tool_choice.is_none()),
        rounds: Some(u32::try_from(agent.resolved.max_tool_iterations.value).unwrap_or(u32::MAX)),
        // The caller's own limit is one of the whole response; the profile's is one of each call.
        limit_each_call: sent.max_output_tokens.is_none(),
        model: slug.to_owned(),
        raw_answer: false,
        keeps: false,
    };
    Ok(Some(StandIn { body: compose(&agent, &prompt, sent, raw), metadata, settled }))
}

/// A tool that nobody can run is not offered. RNCC-30
async fn leave_out_unknown(app: &App, scope: &Scope, agent: &mut Agent) -> Result<(), Fault> {
    let Some(profile) = agent.profile.as_mut().filter(|profile| !profile.tools.is_empty()) else { return Ok(()) };
    let asked = profile.tools.iter().cloned().map(AskedTool::Named).collect();
    let equipped = app.toolbox.equip(scope, asked).await?;
    let known = profile.tools.drain(..).zip(equipped).filter(|(_, equipped)| !matches!(equipped, Equipped::Unknown));
    let known: Vec<String> = known.map(|(name, _)| name).collect();
    profile.tools = known;
    Ok(())
}

/// The same request with everything in it that the profile says; what the caller says goes before it.
fn compose(agent: &Agent, prompt: &Prompt, sent: &CreateResponse<'_>, raw: Raw<'_>) -> Bytes {
    let resolved = &agent.resolved;
    let said = |name: &str| raw.get(name).is_some_and(|value| !value.is_null());
    let mut writer = Writer::with_capacity(raw.text().len() + prompt.text.len() + 1024);
    writer.object(|writer| {
        for (key, value) in raw.fields() {
            match &*key.decode() {
                "model" | "instructions" | "tools" | "metadata" => {}
                key => writer.key_text(key).raw(value),
            }
        }
        writer.key("model").string(&resolved.model.value);
        write_instructions(writer, &prompt.text, sent.instructions.as_ref());
        writer.key("tools").array(|writer| {
            agent.write_tools(writer);
            sent.tools.iter().for_each(|tool| writer.raw(tool.raw));
        });
        if let (false, Some(temperature)) = (said("temperature"), resolved.temperature.value) {
            writer.key("temperature").float(temperature);
        }
        if let (false, Some(top_p)) = (said("top_p"), resolved.top_p.value) {
            writer.key("top_p").float(top_p);
        }
        if let (false, Some(tokens)) = (said("max_output_tokens"), resolved.max_output_tokens.value) {
            writer.key("max_output_tokens").number(tokens);
        }
        if !said("truncation") {
            writer.key("truncation").string(resolved.truncation.value.name());
        }
        if !said("parallel_tool_calls") {
            writer.key("parallel_tool_calls").bool(resolved.parallel_tool_calls.value);
        }
    });
    writer.into_bytes().into()
}

fn write_instructions(writer: &mut Writer, prompt: &str, sent: Option<&Input<'_>>) {
    match sent {
        Some(Input::Items(items)) => writer.key("instructions").array(|writer| {
            if !prompt.is_empty() {
                writer.object(|writer| {
                    writer.key("type").string("message");
                    writer.key("role").string("system");
                    writer.key("content").string(prompt);
                });
            }
            items.iter().for_each(|item| writer.raw(item.raw));
        }),
        Some(Input::Text(text)) if !text.is_empty() => {
            // Two parts of one system message: the profile's prompt, and then the caller's own. C-02
            writer.key("instructions").array(|writer| {
                writer.object(|writer| {
                    writer.key("type").string("message");
                    writer.key("role").string("system");
                    writer.key("content").array(|writer| {
                        for text in [prompt, &text.decode()] {
                            writer.object(|writer| {
                                writer.key("type").string("input_text");
                                writer.key("text").string(text);
                            });
                        }
                    });
                });
            });
        }
        _ if prompt.is_empty() => {}
        _ => writer.key("instructions").string(prompt),
    }
}

/// What the caller has set, and what the profile says about itself.
fn metadata(agent: &Agent, prompt: &Prompt, sent: Option<Raw<'_>>) -> Json {
    let mut own = Writer::default();
    own.object(|writer| agent.write_metadata(writer, prompt));
    let own = Json::from_writer(own);
    let taken: Vec<String> = own.raw().fields().map(|(key, _)| key.decode().into_owned()).collect();
    let mut writer = Writer::default();
    writer.object(|writer| {
        let sent = sent.map(Raw::fields).into_iter().flatten();
        let sent = sent.filter(|(key, _)| !taken.iter().any(|taken| *taken == *key.decode()));
        for (key, value) in sent.take(PAIRS - taken.len()).chain(own.raw().fields()) {
            writer.key_text(&key.decode()).raw(value);
        }
    });
    Json::from_writer(writer)
}
