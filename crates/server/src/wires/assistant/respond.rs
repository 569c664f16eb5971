//! `POST /api/v2/ai-agent/respond/`: a user's message, and what its assistant says to it.

use std::sync::Arc;

use amalgam_core::{
    Fault, FaultKind, Remembers, Route, Scope, UpstreamMemory,
    assistant::{
        catalog::forced_tool,
        prompt::Prompt,
        request::{self, RespondRequest},
        safety_identifier, window,
    },
    store::{Course, MetadataRecord, NewUserMessage, SessionHistory},
};
use amalgam_engine::{Announcement, Identity, Opening, Run, Thread, look};
use amalgam_protocol::{Json, Raw, Status, Writer};
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};
use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use tokio::time::Instant;

use super::{
    agent::Agent,
    error::AssistantError,
    is_enabled,
    line::Place,
    stream,
    told::{self, Numbers},
};
use crate::{
    app::App,
    body::read_json,
    wires::{
        WireError, answer,
        query::{EVENT_STREAM, Query, accepts, last_event},
        responses::{
            deliver::event_stream,
            error::object_in_stream,
            head::{First, RESPONSE_ID, TurnHead, begun_or_due},
            once,
            turn::{Begun, Offered, Order, Settled, begin},
        },
        retell::LONGEST_FRAME,
    },
};

/// Answers a message. RNCC-19: who asks, whether it may, what it says, whether anybody can be asked, and then it is.
pub(super) async fn respond(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, AssistantError> {
    if !is_enabled(&app, &scope).await? {
        return Err(AssistantError::Disabled);
    }
    let (head, body) = read_json(request, app.limits.text_body(), &app.memory).await?;
    let streamed = accepts(&head.headers, EVENT_STREAM);
    let Some(key) = once::key(&head.headers)? else {
        if streamed {
            return stream_of(app, scope, body, None).await;
        }
        let turn = Turn::begin(&app, &scope, &body, None).await?;
        let head = TurnHead::of(&turn.run);
        return Ok(head.on(answer::json(turn.whole(&app, &scope).await?)));
    };
    match once::claim(&app, &scope, "POST /api/v2/ai-agent/respond", key, &body).await {
        Err(WireError(fault)) => Err(fault.into()),
        Ok(once::Standing::Told(response)) => {
            let response = with_response_id(&app, &scope, response).await?;
            match streamed {
                true => Ok(stream::at_once(response).await?),
                false => Ok(response),
            }
        }
        Ok(once::Standing::First(first)) if streamed => stream_of(app, scope, body, Some(first)).await,
        Ok(once::Standing::First(first)) => {
            let working = (Arc::clone(&app), scope.clone());
            let work = async move {
                let (app, scope) = working;
                let turn = Turn::begin(&app, &scope, &body, None).await?;
                turn.whole(&app, &scope).await
            };
            let response = first.answer(work).await?;
            with_response_id(&app, &scope, response).await
        }
    }
}

/// Names the response of a whole answer in its head. The claim of an idempotency key has another id.
async fn with_response_id(app: &App, scope: &Scope, response: Response) -> Result<Response, AssistantError> {
    if !response.status().is_success() {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let body = axum::body::to_bytes(body, LONGEST_FRAME).await.map_err(Fault::internal)?;
    let answered = Raw::parse(&body).ok().and_then(|answer| answer.get_str("response_id").map(|id| id.into_owned()));
    let response_id = match &answered {
        Some(answered) => app.store.response_of_answer(scope, answered).await?,
        None => None,
    };
    let mut response = Response::from_parts(head, body.into());
    response.headers_mut().remove(RESPONSE_ID);
    Ok(match response_id {
        Some(id) => TurnHead::named(&id).on(response),
        None => response,
    })
}

/// Picks up the stream of an answer. P6
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, AssistantError> {
    let not_found = || Fault::new(FaultKind::NotFound, "Not found.");
    let Ok(Path(id)) = id else { return Err(not_found().into()) };
    let after = query.number("starting_after")?.or_else(|| last_event(&headers));
    // From the beginning: what a call is called was said there.
    let tail = match look(&*app.store, &scope, &id, None).await? {
        Some(tail) => tail,
        // `response_id` of an answer is what the model's server calls it.
        None => {
            let id = app.store.response_of_answer(&scope, &id).await?.ok_or_else(not_found)?;
            look(&*app.store, &scope, &id, None).await?.ok_or_else(not_found)?
        }
    };
    let numbers = numbers_of(&tail.response.settings)?.ok_or_else(not_found)?;
    let head = TurnHead::named(&tail.response.id);
    let ended = matches!(tail.response.status.status, Status::Completed | Status::Incomplete);
    if ended && (!tail.response.streamed || tail.last.is_none()) {
        // Without events there is the end alone.
        let body = told::body(&app, &scope, numbers).await?;
        return Ok(head.on(stream::at_once(answer::json(body)).await?));
    }
    let frames = Box::pin(app.engine.follow(scope.clone(), tail, None, object_in_stream));
    Ok(head.on(event_stream(stream::events(app, scope, frames, numbers, after))))
}

/// A turn that runs.
struct Turn {
    run: Box<Run>,
    numbers: Numbers,
}

impl Turn {
    /// Begins a turn; one that streams is announced.
    async fn begin(
        app: &Arc<App>,
        scope: &Scope,
        body: &Bytes,
        announcement: Option<Announcement>,
    ) -> Result<Self, AssistantError> {
        let raw = Raw::parse(body).map_err(|error| {
            Fault::new(FaultKind::Invalid, format!("JSON parse error - {error}")).code("invalid_json")
        })?;
        // The limits of a request are those of its profile, so that this one field is looked at before the others.
        let slug = raw.get_str("agent").unwrap_or_default();
        let slug = Some(slug.trim()).filter(|slug| slug.chars().count() <= request::AGENT_CHARS);
        let agent = Agent::of(app, scope, slug).await?;
        let limits = request::Limits {
            max_input_chars: agent.resolved.max_input_chars.value,
            metadata_max_bytes: agent.resolved.metadata_max_bytes.value,
        };
        let asked = request::read(raw, limits)?;
        let route = agent.route(app, scope).await?;
        let course = match asked.course_id {
            Some(id) => app.store.course(scope, id).await?,
            None => None,
        };
        let prompt = agent.prompt(course.as_ref());
        let profile = agent.profile.as_ref().map(|profile| profile.slug.as_str());
        let mut place = Place::take(app, scope, profile).await?;
        let identity = app.engine.identity();
        let words = words(app, &agent, &asked, &identity, course.as_ref());
        let (ticket, heard) = place.speak(words).await?;
        let numbers = Numbers {
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
        let settled = Settled {
            memory: memory(app, scope, &route, heard.answered_by.as_deref()).await?,
            route,
            before: history(&agent, &heard),
            thread: Some(Box::new(thread)),
            offered: Offered::Run,
            own_tools: Vec::new(),
            first_tool: first_tool(&agent, &asked),
            rounds: Some(u32::try_from(agent.resolved.max_tool_iterations.value).unwrap_or(u32::MAX)),
            limit_each_call: true,
            model: agent.resolved.model.value.clone(),
            raw_answer: false,
            keeps: true,
        };
        let body = compose(scope, &agent, &prompt, &asked, numbers, announcement.is_some());
        let mut order = Order::settled(identity, settled).announced(announcement);
        match begin(app, scope, &body, &mut order).await {
            Ok(Begun::Running(running)) => {
                place.hand_on();
                Ok(Self { run: running.run, numbers })
            }
            Ok(Begun::Queued { .. }) => Err(Fault::internal("an assistant's turn was put into the queue").into()),
            Err(fault) => {
                // Where the model refused, the turn's end has told the thread already, and this changes nothing.
                place.fail(fault.code.as_deref().unwrap_or("failed"), &fault.message).await;
                Err(fault.into())
            }
        }
    }

    /// The whole answer.
    async fn whole(self, app: &App, scope: &Scope) -> Result<Bytes, AssistantError> {
        self.run.finish(object_in_stream).await?;
        Ok(told::body(app, scope, self.numbers).await?.into())
    }
}

/// The answer as it comes. Under a key it comes to its end whether or not anybody reads it.
async fn stream_of(
    app: Arc<App>,
    scope: Scope,
    body: Bytes,
    first: Option<once::First>,
) -> Result<Response, AssistantError> {
    let began = Instant::now();
    let (announcement, announced) = Announcement::new(false);
    let (working, whose) = (Arc::clone(&app), scope.clone());
    let mut beginning = Box::pin(async move { Turn::begin(&working, &whose, &body, Some(announcement)).await });
    match begun_or_due(&app.engine, began, announced, &mut beginning).await {
        First::Begun(Ok(Turn { run, numbers })) => {
            drop(beginning);
            let head = TurnHead::of(&run);
            Ok(head.on(streamed(app, scope, run.into_frames(object_in_stream), numbers, first)))
        }
        First::Begun(Err(error)) => {
            if let Some(first) = first {
                first.give_back().await;
            }
            Err(error)
        }
        First::Due(announced) => {
            let head = TurnHead::named(&announced.identity.response_id);
            let numbers = numbers_of(announced.settings.bytes())?
                .ok_or_else(|| Fault::internal("a turn of an assistant does not know its numbers"))?;
            let beginning =
                Box::pin(async move { beginning.await.map(|turn| turn.run).map_err(AssistantError::into_fault) });
            let frames = Opening::new(&app.engine, announced, beginning, object_in_stream);
            Ok(head.on(streamed(app, scope, frames, numbers, first)))
        }
    }
}

fn streamed(
    app: Arc<App>,
    scope: Scope,
    frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    numbers: Numbers,
    first: Option<once::First>,
) -> Response {
    let events = stream::events(Arc::clone(&app), scope.clone(), frames, numbers, None);
    match first {
        None => event_stream(events),
        Some(first) => event_stream(
            first.pass_on(events, async move { told::body(&app, &scope, numbers).await.ok().map(Bytes::from) }),
        ),
    }
}

/// The numbers of a turn, from what its response repeats of its request.
fn numbers_of(settings: &Bytes) -> Result<Option<Numbers>, Fault> {
    let settings = Bytes::from([b"{".as_slice(), settings, b"}"].concat());
    let settings = Raw::parse(&settings).map_err(Fault::internal)?;
    Ok(settings.get("metadata").and_then(Numbers::read))
}

/// The tool that has to be called first. RNCC-34
fn first_tool(agent: &Agent, asked: &RespondRequest) -> Option<String> {
    let profile = agent.profile.as_ref()?;
    let of_course = forced_tool(&profile.slug, asked.course_id, &profile.tools).map(str::to_owned);
    of_course.or_else(|| agent.first_tool())
}

/// What the user says, and what is known about it.
fn words(
    app: &App,
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

/// What an upstream that keeps state knows of the thread, where one of those that may answer keeps any.
async fn memory(
    app: &App,
    scope: &Scope,
    route: &Route,
    answered_by: Option<&str>,
) -> Result<Option<UpstreamMemory>, Fault> {
    let keeps = route.candidates.iter().any(|candidate| candidate.model.remembers() != Remembers::Nothing);
    let Some(id) = answered_by.filter(|_| keeps) else { return Ok(None) };
    let lineage = app.store.lineage(scope, id).await?;
    Ok(lineage.and_then(|lineage| lineage.upstream))
}

/// What was said before, as much of it as the tenant wants told. RNCC-28
fn history(agent: &Agent, heard: &SessionHistory) -> Vec<Json> {
    let messages = usize::try_from(agent.resolved.history_max_messages.value).unwrap_or(usize::MAX);
    let characters = usize::try_from(agent.resolved.history_max_chars.value).unwrap_or(usize::MAX);
    let said = window(&heard.history, messages, characters);
    let mut writer = Writer::default();
    writer.array(|writer| {
        // An answer that was cut before its first word says nothing, and upstreams refuse a message without text.
        for (role, content) in said.iter().filter(|(_, content)| !content.trim().is_empty()) {
            writer.object(|writer| {
                writer.key("type").string("message");
                writer.key("role").string(role);
                writer.key("content").string(content);
            });
        }
    });
    vec![Json::from_writer(writer)]
}

/// The turn as a request of the canonical door.
fn compose(
    scope: &Scope,
    agent: &Agent,
    prompt: &Prompt,
    asked: &RespondRequest,
    numbers: Numbers,
    streamed: bool,
) -> Bytes {
    let resolved = &agent.resolved;
    let mut writer = Writer::with_capacity(prompt.text.len() + asked.message.len() + 1024);
    writer.object(|writer| {
        writer.key("model").string(&resolved.model.value);
        if !prompt.text.is_empty() {
            writer.key("instructions").string(&prompt.text);
        }
        writer.key("input").array(|writer| {
            writer.object(|writer| {
                writer.key("type").string("message");
                writer.key("role").string("user");
                writer.key("content").string(&asked.message);
            });
        });
        agent.write_settings(writer);
        if let Some(salt) = &resolved.safety_salt.value {
            writer.key("safety_identifier").string(&safety_identifier(&salt.0, scope.tenant_id(), scope.user()));
        }
        writer.key("stream").bool(streamed);
        writer.key("metadata").object(|writer| {
            agent.write_metadata(writer, prompt);
            writer.key("session_id").string(&numbers.session_id.to_string());
            writer.key("user_message_id").string(&numbers.user_message_id.to_string());
            writer.key("assistant_message_id").string(&numbers.assistant_message_id.to_string());
        });
    });
    writer.into_bytes().into()
}
