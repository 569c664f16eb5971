//! A profile of the tenant's assistant requested as a model: its prompt, tools and limits apply.

use std::sync::Arc;

use amalgam_assistant::prompt::Prompt;
use amalgam_core::{Fault, ResolvedTool, Scope, ToolRequest};
use amalgam_protocol::{Json, Raw, ResponseParameters, Shape, Writer};

use super::request::{HistorySource, OfferedTools, ShownParameters, TurnPolicy};
use crate::{
    app::Application,
    assistant::{Agent, require_enabled},
};

/// The maximum number of metadata pairs of a response. The profile's pairs take precedence.
const MAX_METADATA_PAIRS: usize = 16;

/// Applies the profile that the request names as its model. Returns the parameters and the turn's policy; none if the
/// tenant has no such active profile. The caller's settings take precedence over the profile's.
pub(crate) async fn apply(
    app: &Application,
    scope: &Scope,
    sent: &ResponseParameters,
) -> Result<Option<(ResponseParameters, TurnPolicy)>, Fault> {
    let slug = sent.model.as_deref().unwrap_or_default();
    let Some(profile) = app.store.profile(scope, slug).await?.filter(|profile| profile.active) else { return Ok(None) };
    require_enabled(app, scope).await?;
    let mut agent = Agent::with(app, scope, Some(profile)).await?;
    let route = agent.route(app, scope).await?;
    leave_out_unknown(app, scope, &mut agent).await?;
    let prompt = agent.prompt(None);
    let metadata = metadata(&agent, &prompt, sent.metadata.as_ref().map(Json::raw));
    let policy = TurnPolicy {
        route,
        history: HistorySource::Parameters,
        profile: Some(slug.to_owned()),
        session_id: None,
        session: None,
        offered: OfferedTools::All,
        own_tools: Vec::new(),
        first_tool: agent.first_tool().filter(|_| sent.tool_choice.is_none()),
        max_rounds: Some(agent.max_rounds()),
        // The caller's limit applies to the whole response; the profile's applies to each call.
        limit_each_call: sent.max_output_tokens.is_none(),
        // The response does not show the profile's prompt.
        shown: ShownParameters::Sent(Arc::new(ResponseParameters { metadata: Some(metadata), ..sent.clone() })),
        keep_raw_answer: false,
        always_stored: false,
    };
    let mut parameters = ResponseParameters {
        model: Some(agent.resolved.model.value.clone()),
        instructions: instructions(&prompt.text, sent.instructions.as_ref()),
        tools: Some(Json::array(|writer| {
            agent.write_tools(writer);
            let own = sent.tools.iter().flat_map(|tools| tools.raw().elements());
            own.for_each(|tool| writer.raw(tool));
        })),
        metadata: None,
        ..sent.clone()
    };
    agent.apply_terms(&mut parameters);
    Ok(Some((parameters, policy)))
}

/// Removes tools that neither the server nor a client can run. RNCC-30
async fn leave_out_unknown(app: &Application, scope: &Scope, agent: &mut Agent) -> Result<(), Fault> {
    let Some(profile) = agent.profile.as_mut().filter(|profile| !profile.tools.is_empty()) else { return Ok(()) };
    let requested = profile.tools.iter().cloned().map(ToolRequest::Named).collect();
    let equipped = app.toolbox.equip(scope, requested).await?;
    let known =
        profile.tools.drain(..).zip(equipped).filter(|(_, equipped)| !matches!(equipped, ResolvedTool::Unknown));
    let known: Vec<String> = known.map(|(name, _)| name).collect();
    profile.tools = known;
    Ok(())
}

/// The profile's prompt, followed by the caller's instructions.
fn instructions(prompt: &str, sent: Option<&Json>) -> Option<Json> {
    let Some(sent) = sent else { return (!prompt.is_empty()).then(|| Json::string(prompt)) };
    match sent.raw().shape() {
        Shape::Array => Some(Json::array(|writer| {
            if !prompt.is_empty() {
                write_system(writer, |writer| writer.string(prompt));
            }
            sent.raw().elements().for_each(|item| writer.raw(item));
        })),
        // Both are parts of one system message. C-02
        _ => match sent.raw().as_str() {
            Some(text) if !text.is_empty() => Some(Json::array(|writer| {
                write_system(writer, |writer| {
                    writer.array(|writer| {
                        for text in [prompt, &text.decode()] {
                            writer.object(|writer| {
                                writer.key("type").string("input_text");
                                writer.key("text").string(text);
                            });
                        }
                    });
                });
            })),
            _ => instructions(prompt, None),
        },
    }
}

fn write_system(writer: &mut Writer, content: impl FnOnce(&mut Writer)) {
    writer.object(|writer| {
        writer.key("type").string("message");
        writer.key("role").string("system");
        content(writer.key("content"));
    });
}

/// The caller's metadata with the pairs of the profile.
fn metadata(agent: &Agent, prompt: &Prompt, sent: Option<Raw<'_>>) -> Json {
    let own = Json::object(|writer| agent.write_metadata(writer, prompt));
    let reserved: Vec<String> = own.raw().fields().map(|(key, _)| key.decode().into_owned()).collect();
    Json::object(|writer| {
        let sent = sent.map(Raw::fields).into_iter().flatten();
        let sent = sent.filter(|(key, _)| !reserved.iter().any(|reserved| *reserved == *key.decode()));
        for (key, value) in sent.take(MAX_METADATA_PAIRS - reserved.len()).chain(own.raw().fields()) {
            writer.key_text(&key.decode()).raw(value);
        }
    })
}
