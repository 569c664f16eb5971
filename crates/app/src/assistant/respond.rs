//! A user's message to an assistant: composed into a turn of its session, and begun.

use std::sync::Arc;

use amalgam_core::{
    Fault, Route, Scope, StoreError, UpstreamMemory, UpstreamRetention,
    assistant::{
        catalog::forced_tool,
        prompt::Prompt,
        request::{self, FieldFaults, RespondRequest},
        safety_identifier, window,
    },
    store::{Course, MetadataRecord, NewUserMessage, SessionHistory},
};
use amalgam_engine::{Announcement, Identity, Run, Thread};
use amalgam_protocol::{Json, Raw, ResponseParameters};

use super::{agent::Agent, agent::RouteError, answer::MessageIds, session_queue::QueuePosition};
use crate::{
    app::Application,
    turns::{self, HistorySource, OfferedTools, ShownParameters, TurnPolicy, TurnRequest},
};

/// Why a message is not answered.
#[derive(Debug)]
pub enum RespondError {
    /// Fields of the request are wrong.
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

/// A turn of an assistant that runs.
pub struct AssistantTurn {
    /// The turn itself.
    pub run: Box<Run>,
    /// The messages that it writes.
    pub messages: MessageIds,
}

impl AssistantTurn {
    /// Begins the turn that a request asks for. One that streams has an announcement. RNCC-19
    pub async fn begin(
        app: &Arc<Application>,
        scope: &Scope,
        request: Raw<'_>,
        announcement: Option<Announcement>,
    ) -> Result<Self, RespondError> {
        // The limits of a request are those of its profile, so this one field is read before the others.
        let slug = request.get_str("agent").unwrap_or_default();
        let slug = Some(slug.trim()).filter(|slug| slug.chars().count() <= request::AGENT_CHARS);
        let agent = Agent::of(app, scope, slug).await?;
        let limits = request::RespondLimits {
            max_input_chars: agent.resolved.max_input_chars.value,
            metadata_max_bytes: agent.resolved.metadata_max_bytes.value,
        };
        let asked = request::read(request, limits)?;
        let route = agent.route(app, scope).await?;
        let course = match asked.course_id {
            Some(id) => app.store.course(scope, id).await?,
            None => None,
        };
        let prompt = agent.prompt(course.as_ref());
        let profile = agent.profile.as_ref().map(|profile| profile.slug.as_str());
        let mut position = QueuePosition::take(app, scope, profile).await?;
        let identity = app.engine.identity();
        let message = user_message(app, &agent, &asked, &identity, course.as_ref());
        let (ticket, heard) = position.append(message).await?;
        let messages = MessageIds {
            session_id: ticket.session_id,
            user_message_id: heard.user_message_id,
            assistant_message_id: heard.assistant_message_id,
        };
        let thread = Thread {
            ticket,
            user_message_id: heard.user_message_id,
            assistant_message_id: heard.assistant_message_id,
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
        let memory = upstream_memory(app, scope, &route, heard.answered_by.as_deref()).await?;
        let policy = TurnPolicy {
            route,
            history: HistorySource::Given(vec![history(&agent, &heard)], memory),
            thread: Some(Box::new(thread)),
            offered: OfferedTools::ServerRun,
            own_tools: Vec::new(),
            first_tool: first_tool(&agent, &asked),
            max_rounds: Some(agent.max_rounds()),
            limit_each_call: true,
            shown: ShownParameters::WithoutInstructions,
            keep_raw_answer: false,
            always_stored: true,
        };
        let parameters = parameters(scope, &agent, &prompt, &asked, messages, announcement.is_some());
        let turn =
            TurnRequest { policy: Some(Box::new(policy)), announcement, ..TurnRequest::new(identity, parameters) };
        match turns::begin(app, scope, turn).await.and_then(turns::StartedTurn::running) {
            Ok(running) => {
                position.hand_on();
                Ok(Self { run: running.run, messages })
            }
            Err(fault) => {
                // Where the model refused, the end of the turn is in the session already, and this changes nothing.
                position.fail(fault.code.as_deref().unwrap_or("failed"), &fault.message).await;
                Err(fault.into())
            }
        }
    }

    /// The whole answer.
    pub async fn finish(self, app: &Application, scope: &Scope) -> Result<Vec<u8>, Fault> {
        self.run.finish().await?;
        super::answer::body(app, scope, self.messages).await
    }
}

/// The tool that has to be called first. RNCC-34
fn first_tool(agent: &Agent, asked: &RespondRequest) -> Option<String> {
    let profile = agent.profile.as_ref()?;
    let of_course = forced_tool(&profile.slug, asked.course_id, &profile.tools).map(str::to_owned);
    of_course.or_else(|| agent.first_tool())
}

/// The user's message, and what is known about it.
fn user_message(
    app: &Application,
    agent: &Agent,
    asked: &RespondRequest,
    identity: &Identity,
    course: Option<&Course>,
) -> NewUserMessage {
    let context = MetadataRecord::new("context", |writer| {
        match &asked.agent {
            Some(agent) => writer.key("agent").string(agent),
            None => writer.key("agent").null(),
        }
        writer.key("profile_found").bool(agent.profile.is_some());
        match asked.course_id {
            Some(id) => writer.key("course_id").number(id.unsigned_abs()),
            None => writer.key("course_id").null(),
        }
        writer.key("course_found").bool(course.is_some());
    });
    NewUserMessage {
        response_id: identity.response_id.clone(),
        content: asked.message.clone(),
        metadata: vec![context],
        history_messages: usize::try_from(agent.resolved.history_max_messages.value).unwrap_or(usize::MAX),
        now_ms: app.clock.now_ms(),
    }
}

/// What an upstream that keeps state knows of the session, where one of those that may answer keeps any.
async fn upstream_memory(
    app: &Application,
    scope: &Scope,
    route: &Route,
    answered_by: Option<&str>,
) -> Result<Option<UpstreamMemory>, Fault> {
    let keeps = route.candidates.iter().any(|candidate| candidate.model.retention() != UpstreamRetention::Nothing);
    let Some(id) = answered_by.filter(|_| keeps) else { return Ok(None) };
    let lineage = app.store.lineage(scope, id).await?;
    Ok(lineage.and_then(|lineage| lineage.upstream))
}

/// The messages before, as many as the tenant wants sent. RNCC-28
fn history(agent: &Agent, heard: &SessionHistory) -> Json {
    let messages = usize::try_from(agent.resolved.history_max_messages.value).unwrap_or(usize::MAX);
    let characters = usize::try_from(agent.resolved.history_max_chars.value).unwrap_or(usize::MAX);
    let said = window(&heard.history, messages, characters);
    Json::array(|writer| {
        // An answer that was cut before its first word is empty, and upstreams refuse a message without text.
        for (role, content) in said.iter().filter(|(_, content)| !content.trim().is_empty()) {
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
    asked: &RespondRequest,
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
                writer.key("content").string(&asked.message);
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
