//! Handles a user's message to an assistant: composes the turn of its session and starts it.

use std::sync::Arc;

use amalgam_assistant::{
    AssistantSessionTurn,
    catalog::forced_tool,
    prompt::Prompt,
    request::{self, FieldFaults, RespondRequest},
    safety_identifier, window,
};
use amalgam_core::{
    Fault, Route, Scope, StoreError, TurnStep, UpstreamMemory, UpstreamRetention, Wire,
    store::{Course, MetadataRecord, NewUserMessage, SessionHistory},
};
use amalgam_engine::{Announcement, Identity, Run};
use amalgam_protocol::{Json, Raw, ResponseParameters};
use tokio::time::Instant;

use super::{agent::Agent, agent::RouteError, answer::MessageIds, client_secrets, session_queue::QueuePosition};
use crate::{
    app::Application,
    turns::{self, HistorySource, OfferedTools, ShownParameters, TurnPolicy, TurnRequest},
};

/// Why a message is not answered.
#[derive(Debug)]
pub enum RespondError {
    /// Fields of the request are invalid.
    Fields(FieldFaults),
    /// The variable that should hold the upstream's key is not set.
    MissingKey(String),
    /// Anything else.
    Fault(Fault),
}

impl From<Fault> for RespondError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<StoreError> for RespondError {
    fn from(error: StoreError) -> Self {
        Self::Fault(error.into())
    }
}

impl From<FieldFaults> for RespondError {
    fn from(faults: FieldFaults) -> Self {
        Self::Fields(faults)
    }
}

impl From<RouteError> for RespondError {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::Fault(fault) => Self::Fault(fault),
            RouteError::MissingKey(variable) => Self::MissingKey(variable),
        }
    }
}

/// A running turn of an assistant.
pub struct AssistantTurn {
    /// The turn itself.
    pub run: Box<Run>,
    /// The ids of the messages that it writes.
    pub messages: MessageIds,
}

impl AssistantTurn {
    /// Starts the turn of a request. A streamed turn has an announcement. RNCC-19
    pub async fn begin(
        app: &Arc<Application>,
        scope: &Scope,
        request: Raw<'_>,
        announcement: Option<Announcement>,
    ) -> Result<Self, RespondError> {
        let began = Instant::now();
        // The profile sets the limits of the request, so this field is read before the others.
        let slug = request.get_str("agent").unwrap_or_default();
        let slug = Some(slug.trim()).filter(|slug| slug.chars().count() <= request::AGENT_CHARS);
        client_secrets::require_agent(scope, slug)?;
        let agent = Agent::of(app, scope, slug).await?;
        let limits = request::RespondLimits {
            max_input_chars: agent.resolved.max_input_chars.value,
            metadata_max_bytes: agent.resolved.metadata_max_bytes.value,
        };
        let respond_request = request::read(request, limits)?;
        let route = agent.route(app, scope).await?;
        let course = match respond_request.course_id {
            Some(id) => app.store.course(scope, id).await?,
            None => None,
        };
        let prompt = agent.prompt(course.as_ref());
        let profile = agent.profile.as_ref().map(|profile| profile.slug.as_str());
        let message = |identity: &Identity| user_message(app, &agent, &respond_request, identity, course.as_ref());
        let mut identity = app.engine.identity();
        turns::add_step(scope, TurnStep::Prompt, began);
        client_secrets::count_message(app, scope).await?;
        let (position, ticket, appended) = QueuePosition::join(app, scope, profile, message(&identity)).await?;
        let session_history = match appended {
            Some(history) => history,
            None => {
                position.wait().await?;
                // A turn that had to wait begins now.
                identity = app.engine.identity();
                position.append(message(&identity)).await?
            }
        };
        let messages = MessageIds {
            session_id: ticket.session_id,
            user_message_id: session_history.user_message_id,
            assistant_message_id: session_history.assistant_message_id,
        };
        let session = AssistantSessionTurn {
            ticket,
            user_message_id: session_history.user_message_id,
            assistant_message_id: session_history.assistant_message_id,
            model: agent.resolved.model.value.clone(),
            metadata: vec![MetadataRecord::new("system_prompt", |writer| {
                writer.key("version").string(&agent.resolved.prompt_version.value);
                writer.key("hash").string(&prompt.hash);
                if let Some(profile) = &agent.profile {
                    writer.key("profile_version").number(profile.version);
                }
                writer.key("text").string(&prompt.text);
            })],
        };
        let memory = upstream_memory(app, scope, &route, session_history.answered_by.as_deref()).await?;
        let policy = TurnPolicy {
            route,
            history: HistorySource::Given(vec![history(&agent, &session_history)], memory),
            profile: profile.map(ToOwned::to_owned),
            session_id: Some(messages.session_id.to_string()),
            session: Some(Arc::new(session)),
            offered: OfferedTools::ServerRun,
            own_tools: Vec::new(),
            first_tool: first_tool(&agent, &respond_request),
            max_rounds: Some(agent.max_rounds()),
            limit_each_call: true,
            shown: ShownParameters::WithoutInstructions,
            keep_raw_answer: false,
            always_stored: true,
        };
        let parameters = parameters(scope, &agent, &prompt, &respond_request, messages, announcement.is_some());
        let turn = TurnRequest::new(Wire::Assistant, identity, parameters);
        let turn = TurnRequest { policy: Some(Box::new(policy)), announcement, ..turn };
        match turns::begin(app, scope, turn).await.and_then(turns::StartedTurn::running) {
            Ok(running) => {
                position.keep_for_turn();
                Ok(Self { run: running.run, messages })
            }
            Err(fault) => {
                // If the model refused, the engine has recorded the end of the turn already, and this has no effect.
                position.fail(fault.code.as_deref().unwrap_or("failed"), &fault.message).await;
                Err(fault.into())
            }
        }
    }

    /// Waits for the whole answer.
    pub async fn finish(self) -> Result<Vec<u8>, Fault> {
        let written = self.run.finish().await?.written;
        let end = written.as_ref().and_then(|write| write.session.as_deref());
        let end = end.ok_or_else(|| Fault::internal("a turn of an assistant did not write to its session"))?;
        super::answer::written_body(end, self.messages)
    }
}

/// The tool that the model has to call first. RNCC-34
fn first_tool(agent: &Agent, respond_request: &RespondRequest) -> Option<String> {
    let profile = agent.profile.as_ref()?;
    let course_tool = forced_tool(&profile.slug, respond_request.course_id, &profile.tools).map(str::to_owned);
    course_tool.or_else(|| agent.first_tool())
}

/// The user's message with its metadata.
fn user_message(
    app: &Application,
    agent: &Agent,
    respond_request: &RespondRequest,
    identity: &Identity,
    course: Option<&Course>,
) -> NewUserMessage {
    let context = MetadataRecord::new("context", |writer| {
        match &respond_request.agent {
            Some(agent) => writer.key("agent").string(agent),
            None => writer.key("agent").null(),
        }
        writer.key("profile_found").bool(agent.profile.is_some());
        match respond_request.course_id {
            Some(id) => writer.key("course_id").number(id.unsigned_abs()),
            None => writer.key("course_id").null(),
        }
        writer.key("course_found").bool(course.is_some());
    });
    NewUserMessage {
        response_id: identity.response_id.clone(),
        content: respond_request.message.clone(),
        metadata: vec![context],
        history_messages: usize::try_from(agent.resolved.history_max_messages.value).unwrap_or(usize::MAX),
        starts_session: respond_request.new_session,
        now_ms: app.clock.now_ms(),
    }
}

/// What an upstream has stored of the session, if one of the candidates stores state.
async fn upstream_memory(
    app: &Application,
    scope: &Scope,
    route: &Route,
    answered_by: Option<&str>,
) -> Result<Option<UpstreamMemory>, Fault> {
    let keeps_state =
        route.candidates.iter().any(|candidate| candidate.model.retention() != UpstreamRetention::Nothing);
    let Some(id) = answered_by.filter(|_| keeps_state) else { return Ok(None) };
    let lineage = app.store.lineage(scope, id).await?;
    Ok(lineage.and_then(|lineage| lineage.upstream))
}

/// The latest messages, as many as the tenant's settings allow. RNCC-28
fn history(agent: &Agent, session_history: &SessionHistory) -> Json {
    let messages = usize::try_from(agent.resolved.history_max_messages.value).unwrap_or(usize::MAX);
    let characters = usize::try_from(agent.resolved.history_max_chars.value).unwrap_or(usize::MAX);
    let messages = window(&session_history.history, messages, characters);
    Json::array(|writer| {
        // An answer that was cancelled before its first token is empty, and upstreams refuse a message without text.
        for (role, content) in messages.iter().filter(|(_, content)| !content.trim().is_empty()) {
            writer.object(|writer| {
                writer.key("type").string("message");
                writer.key("role").string(role);
                writer.key("content").string(content);
            });
        }
    })
}

fn parameters(
    scope: &Scope,
    agent: &Agent,
    prompt: &Prompt,
    respond_request: &RespondRequest,
    messages: MessageIds,
    streamed: bool,
) -> ResponseParameters {
    let resolved = &agent.resolved;
    let salt = resolved.safety_salt.value.as_ref();
    let mut parameters = ResponseParameters {
        model: Some(resolved.model.value.clone()),
        instructions: (!prompt.text.is_empty()).then(|| Json::string(&prompt.text)),
        input: Some(Json::array(|writer| {
            writer.object(|writer| {
                writer.key("type").string("message");
                writer.key("role").string("user");
                writer.key("content").string(&respond_request.message);
            });
        })),
        tools: Some(agent.tools()),
        safety_identifier: salt.map(|salt| safety_identifier(&salt.0, scope.tenant_id(), scope.user())),
        stream: Some(streamed),
        metadata: Some(Json::object(|writer| {
            agent.write_metadata(writer, prompt);
            writer.key("session_id").string(&messages.session_id.to_string());
            writer.key("user_message_id").string(&messages.user_message_id.to_string());
            writer.key("assistant_message_id").string(&messages.assistant_message_id.to_string());
        })),
        ..ResponseParameters::default()
    };
    agent.apply_terms(&mut parameters);
    parameters
}
