//! Starts turns: checks a [`TurnRequest`], loads its history, resolves its tools, and then runs it or puts it into the
//! background queue.

pub(crate) mod bounds;
mod context;
mod files;
mod no_model;
mod profile;
mod queue;
mod reply;
mod request;
pub(crate) mod rules;
mod stored_responses;
mod tools;

use std::{collections::HashSet, sync::Arc, time::Duration};

use amalgam_core::{
    Delivery, Entry, Fault, FaultKind, History, Ids, InstructionsOf, Route, Scope, Stem, SystemPrompt, TenantState,
    TurnOrigin, TurnSpan, TurnStep, Wire,
    compaction::{self, UnreadableSummary},
    normalise, number_items,
    store::{Begin, StoredResponse},
};
use amalgam_engine::{AnswerFormat, ModelCall, Run, TurnStart, TurnStorage};
use amalgam_protocol::{CreateResponse, Input, Json, ResponseParameters, ResponseSettings, Status, TextFormat};
use tokio::time::Instant;

use crate::app::Application;
use rules::{CheckedRequest, Storage};

pub use bounds::{Tally, check_items, check_metadata, check_size};
pub(crate) use context::Context;
pub use context::{ConnectionMemory, no_such_response};
pub(crate) use files::check as check_files;
pub(crate) use profile::apply as apply_profile;
pub use queue::QueueRunner;
pub use reply::{HeadDue, ReplyBody, ReplyHead, ResponseEvents, TurnReply, follow, head_or_start, respond};
pub(crate) use reply::{StartFuture, opening, reply, reply_detached};
pub use request::{HistorySource, OfferedTools, ShownParameters, TurnPolicy, TurnRequest};
pub use stored_responses::cursor;
pub use stored_responses::stored_responses;

/// The maximum age of unwritten frames. A caller that is connected reads its frames directly; followers wait for the
/// store.
const FLUSH_READ: Duration = Duration::from_secs(1);
const FLUSH_FOLLOWED: Duration = Duration::from_millis(100);

/// A turn that has started.
pub enum StartedTurn {
    /// The turn runs in this process.
    Running(RunningTurn),
    /// The turn waits in the background queue.
    Queued {
        /// The response as it is stored.
        response: Box<StoredResponse>,
        /// The delivery that the caller requested.
        delivery: Delivery,
    },
}

/// A turn that runs in this process.
pub struct RunningTurn {
    /// The turn itself.
    pub run: Box<Run>,
    /// The delivery that the caller requested.
    pub delivery: Delivery,
    /// Whether the response is stored.
    pub stored: bool,
    /// The items that a connection has to remember for a response that is not stored.
    pub unstored: Option<Box<UnstoredInput>>,
}

/// The input of a response that is not stored.
pub struct UnstoredInput {
    /// The history before the request, without the items that the connection remembers already.
    pub before: Vec<Json>,
    /// The request's own items.
    pub input: Json,
}

impl StartedTurn {
    /// The turn of a wire whose turns are never queued.
    pub fn running(self) -> Result<RunningTurn, Fault> {
        match self {
            Self::Running(running) => Ok(running),
            Self::Queued { .. } => Err(Fault::internal("a turn that runs in the foreground was queued")),
        }
    }
}

/// Starts a turn. Until a model has accepted, every failure is a plain error.
pub async fn begin(app: &Application, scope: &Scope, mut turn: TurnRequest<'_>) -> Result<StartedTurn, Fault> {
    let began = Instant::now();
    let state = turn.state(scope.state());
    let stored = state == TenantState::Stored && turn.parameters.store.unwrap_or(true);
    if stored || turn.connection.is_some() {
        turn.parameters.include_sealed_reasoning();
    }
    let policy = turn.policy.take();
    let view = Box::new(turn.parameters.view()?);
    let checked = rules::check(&turn, &view, state)?;
    bounds::check(&turn.parameters, &view, &app.limits)?;
    let model = view.model.as_deref().unwrap_or_default();
    let route = match policy.as_deref() {
        Some(policy) => Some(policy.route.clone()),
        None => app.catalog.resolve(scope, model).await?,
    };
    let origin = turn.origin(scope, policy.as_deref(), model);
    // Boxed: the futures are large, and would be copied into every future around them.
    if let Some(route) = route {
        return Box::pin(run(app, scope, &turn, policy, view, checked, ResolvedModel { route, origin, began })).await;
    }
    let applied = Box::pin(profile::apply(app, scope, &turn.parameters)).await?;
    let (parameters, policy) = applied.ok_or_else(|| no_such_model(model))?;
    let origin = TurnOrigin { profile: policy.profile.clone(), ..origin };
    drop(view);
    *turn.parameters = parameters;
    let view = Box::new(turn.parameters.view()?);
    let route = policy.route.clone();
    Box::pin(run(app, scope, &turn, Some(Box::new(policy)), view, checked, ResolvedModel { route, origin, began }))
        .await
}

/// Adds a step before a turn, from `started` until now, to the spans of the turn.
pub(crate) fn add_step(scope: &Scope, step: TurnStep, started: Instant) {
    scope.add_span(TurnSpan::ended(step, started.into_std(), Instant::now().into_std()));
}

/// The request's settings as the response shows them.
fn settings_of(
    policy: Option<&TurnPolicy>,
    view: &CreateResponse<'_>,
    checked: &CheckedRequest,
) -> Result<ResponseSettings, Fault> {
    let model = view.model.as_deref().unwrap_or_default();
    Ok(match policy.map(|policy| &policy.shown) {
        None => ResponseSettings::new(view, checked.effective(model)),
        Some(ShownParameters::WithoutInstructions) => {
            let shown = CreateResponse { instructions: None, ..view.clone() };
            ResponseSettings::new(&shown, checked.effective(model))
        }
        Some(ShownParameters::Sent(sent)) => {
            ResponseSettings::new(&sent.view()?, checked.effective(sent.model.as_deref().unwrap_or_default()))
        }
    })
}

/// The models that may answer a turn, and the origin of the turn.
struct ResolvedModel {
    route: Route,
    origin: TurnOrigin,
    /// When the turn began.
    began: Instant,
}

/// Loads the history and the tools of a turn, and runs it or puts it into the queue; `view` is a view of the turn's
/// parameters.
async fn run(
    app: &Application,
    scope: &Scope,
    turn: &TurnRequest<'_>,
    mut policy: Option<Box<TurnPolicy>>,
    view: Box<CreateResponse<'_>>,
    mut checked: CheckedRequest,
    resolved: ResolvedModel,
) -> Result<StartedTurn, Fault> {
    let ResolvedModel { route, origin, began } = resolved;
    let known_limits = app.engine.limiter().known();
    known_limits.check_model(scope, origin.key_id.as_deref(), &origin.model, route.candidates.first())?;
    let stored = checked.storage != Storage::None;
    let own_tools = policy.as_mut().map_or_else(Vec::new, |policy| std::mem::take(&mut policy.own_tools));
    let policy = policy.as_deref();
    let parameters = &*turn.parameters;
    let settings = settings_of(policy, &view, &checked)?;
    let mut requested = tools::requested(&view, scope.state())?;
    requested.own = own_tools;
    files::check(app, scope, parameters, &view).await?;
    let mut context = match policy.map(|policy| &policy.history) {
        Some(HistorySource::Given(before, memory)) => Context::of(before.clone(), memory.clone()),
        Some(HistorySource::Parameters) | None => {
            let mut context = Context::gather(app, scope, checked.state, parameters, &view, turn.connection).await?;
            // A wire that stores everything composes a new prompt for each turn.
            if policy.is_some_and(|policy| policy.always_stored) {
                context.leave_out_prompts();
            }
            context
        }
    };
    let background = checked.storage == Storage::Background;
    let queues = background && turn.resumes_after.is_none();
    if turn.generate && !queues {
        requested.approved = tools::approved(app, scope, &view, &mut context).await?;
    }
    let own = match stored && context.in_connection {
        // A history that only the connection remembers is stored with the first stored response.
        true => context.input(view.input.as_ref())?,
        false => context.own_input()?,
    };
    let own = own.as_ref().or(view.input.as_ref());
    let mut ids = Stem::of(&turn.identity.response_id).map_or(Ids::Unguessable, Ids::Within);
    let streamed = checked.delivery == Delivery::Stream;
    let begin = |status, input: Json, request| Begin {
        parent: context.parent.clone(),
        status,
        created_at_ms: turn.identity.created_at_ms,
        settings: settings.bytes().clone(),
        input,
        background,
        streamed,
        conversation: context.conversation.clone(),
        request,
    };
    if queues {
        let sent = policy.map(|policy| &policy.shown);
        let waiting = queue::stored_request(app, scope, parameters, sent, requested.has_secrets);
        let begin = begin(Status::Queued, number_items(own, &mut ids), Some(waiting));
        app.engine.admit_request(scope, &origin, &route.candidates).await?;
        return match Box::pin(queue::enqueue(app, scope, turn, begin, origin, settings)).await? {
            Some(queued) => Ok(queued),
            // The response that it continues was deleted in the meantime.
            None => Err(no_such_response(view.previous_response_id.as_deref().unwrap_or_default())),
        };
    }
    let input = context.input(view.input.as_ref())?;
    let input = input.as_ref().or(view.input.as_ref());
    let equipped = match turn.generate {
        true => {
            let allowed = tools::PermittedTools::of(known_limits, scope, origin.key_id.as_deref());
            tools::equip(app, scope, policy, &view, requested, input, allowed).await?
        }
        false => None,
    };
    let storage = stored.then(|| TurnStorage {
        scope: scope.clone(),
        begin: turn
            .resumes_after
            .is_none()
            .then(|| Box::new(begin(Status::InProgress, number_items(own, &mut ids), None))),
        flush_after: if background || turn.idempotency.is_some() { FLUSH_FOLLOWED } else { FLUSH_READ },
        previous: view.previous_response_id.as_deref().filter(|id| !id.is_empty()).map(ToOwned::to_owned),
        idempotency_key: turn.idempotency.clone(),
        streamed,
        session: policy.and_then(|policy| policy.session.clone()),
        raw_answer: policy.is_some_and(|policy| policy.keep_raw_answer),
    });
    let unstored = (turn.connection.is_some() && !stored).then(|| {
        Box::new(UnstoredInput { before: context.stored_before().to_vec(), input: number_items(own, &mut ids) })
    });
    let seal_context = scope.seal_context();
    let mut losses = turn.losses.clone();
    losses.append(&mut checked.losses);
    losses.extend(equipped.iter().flat_map(|tools| tools.losses.iter().cloned()));
    let written_by = if policy.is_some() { InstructionsOf::Server } else { InstructionsOf::Caller };
    let guidance = equipped.as_ref().and_then(|tools| tools.guidance.as_deref());
    let prompt = SystemPrompt::compose(view.instructions.as_ref(), written_by, guidance);
    let prepared = (!turn.generate).then(|| no_model::candidates(&route));
    let candidates = prepared.as_deref().unwrap_or(&route.candidates);
    let turn_tools = equipped
        .map(|tools| {
            let limits = (view.max_tool_calls, view.parallel_tool_calls);
            let parts = tools::PromptParts {
                parameters,
                context: &context,
                candidates,
                delivery: checked.delivery,
                strict: turn.strict,
                stored,
                losses: &losses,
                prompt: prompt.as_ref(),
            };
            tools.into_turn_tools(app, scope, limits, policy, parts)
        })
        .transpose()?;
    // All rounds use the same prompt; the first model call is made from here.
    let offered = turn_tools.as_ref().map(|tools| Arc::clone(&tools.prompt));
    let offered_view = offered.as_ref().map(|prompt| prompt.parameters.view()).transpose()?.map(Box::new);
    let view = offered_view.as_ref().unwrap_or(&view);
    let mut history = open_history(app, &seal_context, parameters, view, own, input)?;
    if let Some(prompt) = &prompt {
        prompt.apply(&mut history);
    }
    let start = Box::new(TurnStart {
        identity: &turn.identity,
        storage,
        origin,
        began,
        resumes_after: turn.resumes_after,
        settings,
        call: ModelCall {
            scope,
            candidates,
            parameters,
            request: view,
            history: &history,
            delivery: checked.delivery,
            seal_context: &seal_context,
            strict: turn.strict,
            stored,
            memory: context.memory.as_ref(),
            losses,
            announcement: turn.announcement.as_ref(),
        },
        tools: turn_tools,
        call_ids: policy.is_some_and(|policy| policy.session.is_some()),
        used_calls: match policy.is_some_and(|policy| policy.always_stored) {
            true => call_ids(&history),
            false => HashSet::new(),
        },
        format: answer_format(app, &view.text.format).await,
        counts_prompt: turn.wire == Wire::Messages && checked.delivery == Delivery::Stream,
    });
    let run = app.engine.start(start).await?;
    Ok(StartedTurn::Running(RunningTurn { run, delivery: checked.delivery, stored, unstored }))
}

/// The format of the final text, with its validator.
async fn answer_format(app: &Application, format: &TextFormat<'_>) -> Option<AnswerFormat> {
    match format {
        TextFormat::Text | TextFormat::Other(_) => None,
        TextFormat::JsonObject => Some(AnswerFormat::Object),
        TextFormat::JsonSchema(format) => {
            Some(AnswerFormat::Schema(app.toolbox.answer_check(&Json::from(format.schema)).await))
        }
    }
}

/// The ids of all calls in a history.
fn call_ids(history: &History<'_>) -> HashSet<String> {
    let calls = history.entries.iter().filter_map(|entry| match entry {
        Entry::Call(call) => Some(call.call_id.clone().into_owned()),
        _ => None,
    });
    calls.collect()
}

/// The whole history, valid for any upstream: calls are paired with outputs, and sealed summaries are opened. `input`
/// is all of it, `own` the request's part; `request` is a view of `parameters`.
pub(crate) fn open_history<'a>(
    app: &Application,
    seal_context: &str,
    parameters: &ResponseParameters,
    request: &'a CreateResponse<'a>,
    own: Option<&Input<'_>>,
    input: Option<&'a Input<'a>>,
) -> Result<History<'a>, Fault> {
    let mut history = normalise(request.instructions.as_ref(), input);
    compaction::open_all(&mut history, &*app.seal, seal_context)
        .map_err(|summary| unreadable_item(parameters, own, &summary))?;
    Ok(history)
}

/// The error for a compaction item that is damaged or belongs to another tenant.
fn unreadable_item(parameters: &ResponseParameters, own: Option<&Input<'_>>, summary: &UnreadableSummary<'_>) -> Fault {
    let item = match own {
        Some(Input::Items(items)) => items.iter().find(|item| std::ptr::eq(item.raw.text(), summary.item.text())),
        _ => None,
    };
    summary.fault(&item.map_or("input".to_owned(), |item| parameters.item_path("input", item.raw)))
}

/// The error for a model that does not exist or that the caller may not use.
pub fn no_such_model(model: &str) -> Fault {
    let shown: String = model.chars().take(200).collect();
    Fault::new(FaultKind::NotFound, format!("The model '{shown}' does not exist or you do not have access to it."))
        .param("model")
        .code("model_not_found")
}
