//! From a body to a turn: read, understood, looked up, and then run or put in the queue.

use std::{collections::HashSet, sync::Arc, time::Duration};

use amalgam_core::{
    Delivery, Emitter, Entry, Fault, FaultKind, History, Ids, InstructionsOf, Route, Scope, ServerTool, Start, Stem,
    SystemPrompt, TenantState, UpstreamMemory,
    compaction::{self, Unopened},
    no_items, normalise, number_items,
    store::{Begin, EventChunk, Keyed, StoredResponse, ToldStatus, TurnWrite, Written},
};
use amalgam_engine::{Announcement, AnswerFormat, Ask, Identity, Keep, Question, Run, Thread};
use amalgam_protocol::{CreateResponse, Ends, Input, Json, Provenance, Raw, Settings, Status, TextFormat};
use bytes::Bytes;

use super::{
    bounds, convert,
    convert::{Kept, Meaning},
    error,
    gather::{Memory, Prior, gather, no_such_response},
    profile::{self, StandIn},
    silent,
    tools::{self, Asked, Basis},
    uploads,
};
use crate::app::App;

/// How old frames may become before they are written: with a caller that reads them as they come, and with others only.
const FLUSH_READ: Duration = Duration::from_secs(1);
const FLUSH_FOLLOWED: Duration = Duration::from_millis(100);

/// What is known about a turn besides its body.
pub(in crate::wires) struct Order<'a> {
    pub(super) identity: Identity,
    /// Whether a loss is a fault.
    pub(super) strict: bool,
    /// The claim that its end settles.
    pub(super) keyed: Option<Keyed>,
    /// Where else earlier responses may be found.
    pub(super) memory: Option<&'a dyn Memory>,
    /// How many events were told of a turn that has waited in the queue and runs now; nothing for one that begins.
    pub(super) waited: Option<u64>,
    /// Whether a model is asked; else the turn only makes ready for the next one.
    pub(super) generate: bool,
    /// What another door has settled about it.
    pub(super) settled: Option<Box<Settled>>,
    /// Told when the caller of a stream may be shown its head.
    pub(super) announcement: Option<Announcement>,
}

/// What a door that is not this one settles about a turn before it begins.
pub(in crate::wires) struct Settled {
    /// Who answers.
    pub(in crate::wires) route: Route,
    /// What was said before, arrays of items.
    pub(in crate::wires) before: Vec<Json>,
    /// What an upstream that keeps state knows of it.
    pub(in crate::wires) memory: Option<UpstreamMemory>,
    /// The thread that the turn speaks in.
    pub(in crate::wires) thread: Option<Box<Thread>>,
    /// Which of the named tools are offered.
    pub(in crate::wires) offered: Offered,
    /// Tools of the door's own, besides those that the request names.
    pub(in crate::wires) own_tools: Vec<ServerTool>,
    /// The tool that has to be called first, if it is offered.
    pub(in crate::wires) first_tool: Option<String>,
    /// The most rounds of tools.
    pub(in crate::wires) rounds: Option<u32>,
    /// Whether the request's limit of output bounds every call of the model, instead of the whole response.
    pub(in crate::wires) limit_each_call: bool,
    /// The name that the caller asked for.
    pub(in crate::wires) model: String,
    /// Whether what the model's server sends last is kept with the response.
    pub(in crate::wires) raw_answer: bool,
    /// Whether the response is kept even where the tenant's others are not. C-18
    pub(in crate::wires) keeps: bool,
}

/// Which of the tools that a request names by name alone are offered to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::wires) enum Offered {
    /// All of them: one that the server does not know is the caller's.
    All,
    /// Those that the server knows, whoever runs them.
    Known,
    /// Those that the server runs itself: nobody else is there who could. RNCC-30
    Run,
}

impl<'a> Order<'a> {
    /// A turn that begins now.
    pub(in crate::wires) fn new(identity: Identity) -> Self {
        Self {
            identity,
            strict: false,
            keyed: None,
            memory: None,
            waited: None,
            generate: true,
            settled: None,
            announcement: None,
        }
    }

    /// The same on terms of another door.
    pub(in crate::wires) fn settled(identity: Identity, settled: Settled) -> Self {
        Self { settled: Some(Box::new(settled)), ..Self::new(identity) }
    }

    /// The same, announced as soon as the caller of a stream may be shown its head.
    pub(in crate::wires) fn announced(self, announcement: Option<Announcement>) -> Self {
        Self { announcement, ..self }
    }
}

/// A turn that has begun.
pub(in crate::wires) enum Begun {
    /// It runs.
    Running(Running),
    /// It waits for a process.
    Queued {
        /// The response as it stands.
        response: Box<StoredResponse>,
        delivery: Delivery,
    },
}

/// A turn that runs.
pub(in crate::wires) struct Running {
    pub(in crate::wires) run: Box<Run>,
    pub(super) delivery: Delivery,
    /// Whether the response is kept.
    pub(super) kept: bool,
    /// What a connection that remembers has to remember, where the response is not kept.
    pub(super) unkept: Option<Box<Unkept>>,
}

/// What was said up to a response that is not kept.
pub(in crate::wires) struct Unkept {
    /// Before the request: what the connection does not remember anyway.
    pub(super) before: Vec<Json>,
    /// The request's own items.
    pub(super) input: Json,
}

/// Begins a turn. Up to here every failure is a plain error.
pub(in crate::wires) async fn begin(
    app: &App,
    scope: &Scope,
    body: &Bytes,
    order: &mut Order<'_>,
) -> Result<Begun, Fault> {
    let mut ends = Ends::default();
    let raw = Raw::parse_large(body, app.limits.json_depth, &mut ends).map_err(|fault| error::syntax(&fault))?;
    let request = Box::new(CreateResponse::read(raw).map_err(error::shape)?);
    let settled = order.settled.as_deref();
    let meaning = convert::meaning(&request, raw, state_of(scope, settled), order)?;
    bounds::check(&request, raw, body.len(), &app.limits)?;
    let model = request.model.as_deref().unwrap_or_default();
    let route = match settled {
        Some(settled) => Some(settled.route.clone()),
        None => app.catalog.resolve(scope, model).await?,
    };
    let Some(route) = route else {
        // In a box, as everything here that few requests need: the others need no room for it.
        return Box::pin(begin_with_profile(app, scope, body, order, (raw, &request), meaning)).await;
    };
    let settings = match settled {
        None => Settings::new(&request, meaning.effective(model)),
        // What another door tells the model stays between the two.
        Some(settled) => {
            let shown = CreateResponse { instructions: None, ..(*request).clone() };
            Settings::new(&shown, meaning.effective(&settled.model))
        }
    };
    run(app, scope, order, &mut Sent { body, waits: body, raw, request, meaning, route }, settings).await
}

/// Begins a turn whose model is one of the tenant's profiles; `sent` is the request and the text that it was read from.
async fn begin_with_profile(
    app: &App,
    scope: &Scope,
    body: &Bytes,
    order: &mut Order<'_>,
    (raw, sent): (Raw<'_>, &CreateResponse<'_>),
    meaning: Meaning,
) -> Result<Begun, Fault> {
    let model = sent.model.as_deref().unwrap_or_default();
    let stand_in = profile::stand_in(app, scope, model, sent, raw).await?;
    let StandIn { body: told, metadata, settled } = stand_in.ok_or_else(|| no_such_model(model))?;
    let mut ends = Ends::default();
    let raw = Raw::parse_large(&told, app.limits.json_depth, &mut ends).map_err(|fault| error::syntax(&fault))?;
    let request = Box::new(CreateResponse::read(raw).map_err(error::shape)?);
    // What the profile is told stays between it and the model.
    let shown = CreateResponse { metadata: Some(metadata.raw()), ..sent.clone() };
    let settings = Settings::new(&shown, meaning.effective(model));
    let route = settled.route.clone();
    order.settled = Some(Box::new(settled));
    run(app, scope, order, &mut Sent { body: &told, waits: body, raw, request, meaning, route }, settings).await
}

/// What is remembered for the caller: doors that keep everything do so for every tenant. C-18
fn state_of(scope: &Scope, settled: Option<&Settled>) -> TenantState {
    match settled.is_some_and(|settled| settled.keeps) {
        true => TenantState::Stored,
        false => scope.state(),
    }
}

/// A request that was read, and what was settled about it.
struct Sent<'a> {
    /// The text that it was read from.
    body: &'a Bytes,
    /// The text that waits, if it has to.
    waits: &'a Bytes,
    raw: Raw<'a>,
    request: Box<CreateResponse<'a>>,
    meaning: Meaning,
    route: Route,
}

/// Looks up what a turn builds on, and runs it or puts it into the queue. `settings` is what the response repeats.
async fn run(
    app: &App,
    scope: &Scope,
    order: &mut Order<'_>,
    sent: &mut Sent<'_>,
    settings: Settings,
) -> Result<Begun, Fault> {
    let Sent { body, waits, raw, request, meaning, route } = sent;
    let raw = *raw;
    if meaning.kept != Kept::No || order.memory.is_some() {
        request.keep_thoughts();
    }
    let asked = tools::asked(request, scope.state())?;
    uploads::check(app, scope, request, raw).await?;
    let settled = order.settled.as_deref();
    let mut prior = match settled.filter(|settled| settled.thread.is_some()) {
        Some(settled) => Prior::of(settled.before.clone(), settled.memory.clone()),
        None => {
            let mut prior = gather(app, scope, state_of(scope, settled), request, raw, order.memory).await?;
            // A door that keeps everything composes the prompt anew for each turn.
            if settled.is_some_and(|settled| settled.keeps) {
                prior.leave_out_prompts();
            }
            prior
        }
    };
    let background = meaning.kept == Kept::Background;
    let kept = meaning.kept != Kept::No;
    let queues = background && order.waited.is_none();
    let decided = match order.generate && !queues {
        true => tools::approved(app, scope, request, &mut prior).await?,
        false => Vec::new(),
    };
    let own = match kept && prior.unkept {
        // What only the connection remembers gets into the store with the first response that is kept.
        true => prior.input(request.input.as_ref())?,
        false => prior.own_input()?,
    };
    let own = own.as_ref().or(request.input.as_ref());
    let numbered = |ids: &mut Ids| number_items(own, ids);
    let mut ids = Stem::of(&order.identity.response_id).map_or(Ids::Unguessable, Ids::Within);
    let streamed = meaning.delivery == Delivery::Stream;
    let begin = |status, input: Json, request: Option<Bytes>| Begin {
        parent: prior.parent.clone(),
        status,
        created_at_ms: order.identity.created_at_ms,
        settings: settings.bytes().clone(),
        input,
        background,
        streamed,
        conversation: prior.conversation.clone(),
        request,
    };
    if queues {
        let begin = begin(Status::Queued, numbered(&mut ids), Some(waiting(app, scope, waits, &asked)));
        return match Box::pin(enqueue(app, scope, order, begin, settings)).await? {
            Some(queued) => Ok(queued),
            // What it continues was deleted this very moment.
            None => Err(no_such_response(request.previous_response_id.as_deref().unwrap_or_default())),
        };
    }
    let said = prior.input(request.input.as_ref())?;
    let said = said.as_ref().or(request.input.as_ref());
    let equipped = match order.generate {
        true => tools::equip(app, scope, order.settled.as_deref_mut(), request, asked, decided, said).await?,
        false => None,
    };
    let settled = order.settled.as_deref();
    let keep = kept.then(|| Keep {
        scope: scope.clone(),
        begin: order.waited.is_none().then(|| Box::new(begin(Status::InProgress, numbered(&mut ids), None))),
        flush_after: if background || order.keyed.is_some() { FLUSH_FOLLOWED } else { FLUSH_READ },
        previous: request.previous_response_id.as_deref().filter(|id| !id.is_empty()).map(ToOwned::to_owned),
        keyed: order.keyed.clone(),
        streamed,
        thread: settled.and_then(|settled| settled.thread.clone()),
        raw_answer: settled.is_some_and(|settled| settled.raw_answer),
    });
    let unkept = (order.memory.is_some() && !kept)
        .then(|| Box::new(Unkept { before: prior.kept_before().to_vec(), input: numbered(&mut ids) }));
    let seal_context = scope.seal_context();
    let mut losses = std::mem::take(&mut meaning.losses);
    losses.extend(equipped.iter().flat_map(|tools| tools.losses.iter().cloned()));
    let written_by = if settled.is_some() { InstructionsOf::Server } else { InstructionsOf::Caller };
    let guidance = equipped.as_ref().and_then(|tools| tools.guidance.as_deref());
    let prompt = SystemPrompt::compose(request.instructions.as_ref(), written_by, guidance);
    let ready = (!order.generate).then(|| silent::candidates(route));
    let candidates = ready.as_deref().unwrap_or(&route.candidates);
    let tooling = equipped.map(|tools| {
        let limits = (request.max_tool_calls, request.parallel_tool_calls);
        let basis = Basis {
            body,
            prior: &prior,
            candidates,
            delivery: meaning.delivery,
            strict: order.strict,
            kept,
            losses: &losses,
            prompt: prompt.as_ref(),
        };
        tools.tooling(app, scope, limits, settled, basis)
    });
    let plan = tooling.as_ref().map(|tooling| Arc::clone(&tooling.plan));
    let mut offered: Option<Box<CreateResponse<'_>>> = None;
    if let Some(plan) = &plan {
        plan.offer(offered.insert(request.clone()))?;
    }
    let request: &CreateResponse<'_> = offered.as_ref().unwrap_or(request);
    let mut history = history(app, &seal_context, request, raw, own, said)?;
    if let Some(prompt) = &prompt {
        prompt.apply(&mut history);
    }
    let ask = Box::new(Ask {
        identity: &order.identity,
        keep,
        waited: order.waited,
        settings,
        question: Question {
            scope,
            candidates,
            request,
            history: &history,
            message: body,
            delivery: meaning.delivery,
            seal_context: &seal_context,
            strict: order.strict,
            kept,
            memory: prior.memory.as_ref(),
            losses,
            announcement: order.announcement.as_ref(),
        },
        tooling,
        call_ids: settled.is_some_and(|settled| settled.thread.is_some()),
        used_calls: match settled.is_some_and(|settled| settled.keeps) {
            true => calls_of(&history),
            false => HashSet::new(),
        },
        format: format(app, &request.text.format).await,
    });
    let run = app.engine.start(ask, error::object_in_stream).await?;
    Ok(Begun::Running(Running { run, delivery: meaning.delivery, kept, unkept }))
}

/// The format that the final text has to have, with what checks it.
async fn format(app: &App, format: &TextFormat<'_>) -> Option<AnswerFormat> {
    match format {
        TextFormat::Text | TextFormat::Other(_) => None,
        TextFormat::JsonObject => Some(AnswerFormat::Object),
        TextFormat::JsonSchema(format) => {
            Some(AnswerFormat::Schema(app.toolbox.answer_check(&Json::from(format.schema)).await))
        }
    }
}

/// The ids of all calls so far.
fn calls_of(history: &History<'_>) -> HashSet<String> {
    let calls = history.entries.iter().filter_map(|entry| match entry {
        Entry::Call(call) => Some(call.call_id.clone().into_owned()),
        _ => None,
    });
    calls.collect()
}

/// The request as it waits: sealed where it holds what a server of the caller's is authorised by. P12
fn waiting(app: &App, scope: &Scope, body: &Bytes, asked: &Asked) -> Bytes {
    // The process that runs it later does not know whether the caller had a key.
    let body = match scope.has_credential() {
        true => body.clone(),
        false => tools::with_operator_approvals(body),
    };
    match asked.has_secrets {
        true => app.seal.seal(&scope.seal_context(), &body).into(),
        false => body,
    }
}

/// The request that has waited.
pub(super) fn waited(app: &App, scope: &Scope, request: Bytes) -> Result<Bytes, Fault> {
    match std::str::from_utf8(&request) {
        Ok(text) if app.seal.is_sealed(text) => match app.seal.open(&scope.seal_context(), text) {
            Some(body) => Ok(body.into()),
            None => Err(Fault::internal("a request that has waited cannot be opened")),
        },
        _ => Ok(request),
    }
}

/// Puts a turn in the queue; from here on it is run whatever happens to its caller. Nothing when what it continues is gone.
async fn enqueue(
    app: &App,
    scope: &Scope,
    order: &Order<'_>,
    begin: Begin,
    settings: Settings,
) -> Result<Option<Begun>, Fault> {
    let _place = app.engine.queue_place(scope, app.limits.queue).await?;
    let Identity { response_id, created_at_ms } = order.identity.clone();
    let delivery = if begin.streamed { Delivery::Stream } else { Delivery::Whole };
    let mut emitter = Emitter::new(Start {
        response_id: response_id.clone(),
        created_at: created_at_ms / 1000,
        settings,
        delivery,
        ids: Ids::Unguessable,
        call_ids: false,
    });
    emitter.wait();
    let events = begin.streamed.then(|| EventChunk {
        first: 0,
        last: emitter.sequence() - 1,
        frames: emitter.take_frames().into(),
    });
    let response = StoredResponse {
        id: response_id.clone(),
        status: ToldStatus {
            status: Status::Queued,
            completed_at_ms: None,
            error: None,
            incomplete_reason: None,
            usage: None,
            provenance: Provenance::default(),
        },
        created_at_ms,
        settings: begin.settings.clone(),
        input: begin.input.clone(),
        output: no_items(),
        background: true,
        streamed: begin.streamed,
        conversation: begin.conversation.clone(),
        place: begin
            .parent
            .clone()
            .unwrap_or(amalgam_core::store::ChainPosition { chain: response_id.clone(), position: 0 }),
    };
    let write = TurnWrite {
        response_id,
        process: app.engine.process(),
        begin: Some(Box::new(begin)),
        started: false,
        events,
        end: None,
        transcripts: Vec::new(),
        raw_answer: None,
        tools: Vec::new(),
        approvals: Vec::new(),
        session: None,
        // The work is handed to the queue: whoever sends the same again gets the same response.
        answer: order.keyed.clone().map(|keyed| (keyed, Some(amalgam_core::store::Answer::Stored))),
    };
    Ok(match app.store.write(scope, write.into()).await? {
        Written::Kept => Some(Begun::Queued { response: Box::new(response), delivery }),
        Written::Lost => None,
    })
}

/// Everything that is said, fit for any upstream: calls paired, our own summaries opened. `said` is all of it, `own` what
/// the request brought, `body` the text that it was read from.
pub(super) fn history<'a>(
    app: &App,
    seal_context: &str,
    request: &'a CreateResponse<'a>,
    body: Raw<'_>,
    own: Option<&Input<'_>>,
    said: Option<&'a Input<'a>>,
) -> Result<History<'a>, Fault> {
    let mut history = normalise(request.instructions.as_ref(), said);
    compaction::open_all(&mut history, &*app.seal, seal_context).map_err(|closed| closed_item(body, own, &closed))?;
    Ok(history)
}

/// A compaction item that is not this tenant's, or not whole.
fn closed_item(body: Raw<'_>, own: Option<&Input<'_>>, closed: &Unopened<'_>) -> Fault {
    let item = match own {
        Some(Input::Items(items)) => items.iter().find(|item| std::ptr::eq(item.raw.text(), closed.item.text())),
        _ => None,
    };
    closed.fault(&item.map_or("input".to_owned(), |item| bounds::path_of(body, "input", item)))
}

pub(super) fn no_such_model(model: &str) -> Fault {
    let shown: String = model.chars().take(200).collect();
    Fault::new(FaultKind::NotFound, format!("The model '{shown}' does not exist or you do not have access to it."))
        .param("model")
        .code("model_not_found")
}
