//! From a [`TurnRequest`] to a turn: checked, gathered, equipped with tools, and then run or put in the queue.

pub(crate) mod bounds;
mod context;
mod files;
mod head;
mod no_model;
mod profile;
mod queue;
mod reply;
mod request;
pub(crate) mod rules;
mod tools;

use std::{collections::HashSet, sync::Arc, time::Duration};

use amalgam_core::{
    Delivery, Entry, Fault, FaultKind, History, Ids, InstructionsOf, Route, Scope, Stem, SystemPrompt, TenantState,
    compaction::{self, UnreadableSummary},
    normalise, number_items,
    store::{Begin, StoredResponse},
};
use amalgam_engine::{AnswerFormat, ModelCall, Run, TurnStart, TurnStorage};
use amalgam_protocol::{CreateResponse, Input, Json, ResponseParameters, ResponseSettings, Status, TextFormat};

use crate::app::Application;
use rules::{CheckedRequest, Storage};

pub use bounds::{Tally, check_items, check_metadata, check_size};
pub(crate) use context::Context;
pub use context::{ConnectionMemory, no_such_response};
pub(crate) use files::check as check_files;
pub use head::{HeadDue, head_or_start};
pub(crate) use profile::apply as apply_profile;
pub use queue::QueueRunner;
pub use reply::{EventStream, ReplyBody, ReplyHead, TurnReply, follow, respond};
pub(crate) use reply::{Starting, opening, reply, reply_detached};
pub use request::{HistorySource, OfferedTools, ShownParameters, TurnPolicy, TurnRequest};

/// How old frames may become before they are written: with a caller that reads them as they come, and with others only.
const FLUSH_READ: Duration = Duration::from_secs(1);
const FLUSH_FOLLOWED: Duration = Duration::from_millis(100);

/// A turn that has begun.
pub enum StartedTurn {
    /// It runs.
    Running(RunningTurn),
    /// It waits for a process.
    Queued {
        /// The response as it is stored.
        response: Box<StoredResponse>,
        /// How the caller wants its answer.
        delivery: Delivery,
    },
}

/// A turn that runs.
pub struct RunningTurn {
    /// The turn itself.
    pub run: Box<Run>,
    /// How the caller wants its answer.
    pub delivery: Delivery,
    /// Whether the response is stored.
    pub stored: bool,
    /// What a connection has to remember of a response that is not stored.
    pub unstored: Option<Box<UnstoredInput>>,
}

/// The items up to the answer of a response that is not stored.
pub struct UnstoredInput {
    /// The history before the request, as far as the connection does not remember it anyway.
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

/// Begins a turn. Until a model has accepted, every failure is a plain error.
pub async fn begin(app: &Application, scope: &Scope, mut turn: TurnRequest<'_>) -> Result<StartedTurn, Fault> {
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
    // In boxes: the futures are large, and would be copied into every future around them.
    if let Some(route) = route {
        return Box::pin(run(app, scope, &turn, policy, view, checked, route)).await;
    }
    let applied = Box::pin(profile::apply(app, scope, &turn.parameters)).await?;
    let (parameters, policy) = applied.ok_or_else(|| no_such_model(model))?;
    drop(view);
    *turn.parameters = parameters;
    let view = Box::new(turn.parameters.view()?);
    let route = policy.route.clone();
    Box::pin(run(app, scope, &turn, Some(Box::new(policy)), view, checked, route)).await
}

/// What the response repeats of its request.
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

/// Gathers what a turn builds on, and runs it or puts it into the queue; `view` is a view of the turn's parameters.
async fn run(
    app: &Application,
    scope: &Scope,
    turn: &TurnRequest<'_>,
    mut policy: Option<Box<TurnPolicy>>,
    view: Box<CreateResponse<'_>>,
    mut checked: CheckedRequest,
    route: Route,
) -> Result<StartedTurn, Fault> {
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
            // A wire that stores everything composes the prompt anew for each turn.
            if policy.is_some_and(|policy| policy.always_stored) {
                context.leave_out_prompts();
            }
            context
        }
    };
    let background = checked.storage == Storage::Background;
    let queues = background && turn.resumes_after.is_none();
    if turn.generate && !queues {
        requested.decided = tools::approved(app, scope, &view, &mut context).await?;
    }
    let own = match stored && context.in_connection {
        // The history that only the connection remembers is stored with the first response that is stored.
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
        return match Box::pin(queue::enqueue(app, scope, turn, begin, settings)).await? {
            Some(queued) => Ok(queued),
            // What it continues was deleted in the meantime.
            None => Err(no_such_response(view.previous_response_id.as_deref().unwrap_or_default())),
        };
    }
    let said = context.input(view.input.as_ref())?;
    let said = said.as_ref().or(view.input.as_ref());
    let equipped = match turn.generate {
        true => tools::equip(app, scope, policy, &view, requested, said).await?,
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
        keyed: turn.idempotency.clone(),
        streamed,
        thread: policy.and_then(|policy| policy.thread.clone()),
        raw_answer: policy.is_some_and(|policy| policy.keep_raw_answer),
    });
    let unstored = (turn.connection.is_some() && !stored).then(|| {
        Box::new(UnstoredInput { before: context.stored_before().to_vec(), input: number_items(own, &mut ids) })
    });
    let seal_context = scope.seal_context();
    let mut losses = std::mem::take(&mut checked.losses);
    losses.extend(equipped.iter().flat_map(|tools| tools.losses.iter().cloned()));
    let written_by = if policy.is_some() { InstructionsOf::Server } else { InstructionsOf::Caller };
    let guidance = equipped.as_ref().and_then(|tools| tools.guidance.as_deref());
    let prompt = SystemPrompt::compose(view.instructions.as_ref(), written_by, guidance);
    let prepared = (!turn.generate).then(|| no_model::candidates(&route));
    let candidates = prepared.as_deref().unwrap_or(&route.candidates);
    let turn_tools = equipped
        .map(|tools| {
            let limits = (view.max_tool_calls, view.parallel_tool_calls);
            let basis = tools::Basis {
                parameters,
                context: &context,
                candidates,
                delivery: checked.delivery,
                strict: turn.strict,
                stored,
                losses: &losses,
                prompt: prompt.as_ref(),
            };
            tools.into_turn_tools(app, scope, limits, policy, basis)
        })
        .transpose()?;
    // The same prompt serves all rounds; the first one is asked from here.
    let offered = turn_tools.as_ref().map(|tools| Arc::clone(&tools.prompt));
    let offered_view = offered.as_ref().map(|prompt| prompt.parameters.view()).transpose()?.map(Box::new);
    let view = offered_view.as_ref().unwrap_or(&view);
    let mut history = open_history(app, &seal_context, parameters, view, own, said)?;
    if let Some(prompt) = &prompt {
        prompt.apply(&mut history);
    }
    let start = Box::new(TurnStart {
        identity: &turn.identity,
        storage,
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
            kept: stored,
            memory: context.memory.as_ref(),
            losses,
            announcement: turn.announcement.as_ref(),
        },
        tools: turn_tools,
        call_ids: policy.is_some_and(|policy| policy.thread.is_some()),
        used_calls: match policy.is_some_and(|policy| policy.always_stored) {
            true => call_ids(&history),
            false => HashSet::new(),
        },
        format: answer_format(app, &view.text.format).await,
    });
    let run = app.engine.start(start).await?;
    Ok(StartedTurn::Running(RunningTurn { run, delivery: checked.delivery, stored, unstored }))
}

/// The format that the final text has to have, with what checks it.
async fn answer_format(app: &Application, format: &TextFormat<'_>) -> Option<AnswerFormat> {
    match format {
        TextFormat::Text | TextFormat::Other(_) => None,
        TextFormat::JsonObject => Some(AnswerFormat::Object),
        TextFormat::JsonSchema(format) => {
            Some(AnswerFormat::Schema(app.toolbox.answer_check(&Json::from(format.schema)).await))
        }
    }
}

/// The ids of all calls of a history.
fn call_ids(history: &History<'_>) -> HashSet<String> {
    let calls = history.entries.iter().filter_map(|entry| match entry {
        Entry::Call(call) => Some(call.call_id.clone().into_owned()),
        _ => None,
    });
    calls.collect()
}

/// The whole history, fit for any upstream: calls paired, our own summaries opened. `said` is all of it, `own` what the
/// request brought; `request` is a view of `parameters`.
pub(crate) fn open_history<'a>(
    app: &Application,
    seal_context: &str,
    parameters: &ResponseParameters,
    request: &'a CreateResponse<'a>,
    own: Option<&Input<'_>>,
    said: Option<&'a Input<'a>>,
) -> Result<History<'a>, Fault> {
    let mut history = normalise(request.instructions.as_ref(), said);
    compaction::open_all(&mut history, &*app.seal, seal_context)
        .map_err(|closed| closed_item(parameters, own, &closed))?;
    Ok(history)
}

/// A compaction item that is another tenant's, or not whole.
fn closed_item(parameters: &ResponseParameters, own: Option<&Input<'_>>, closed: &UnreadableSummary<'_>) -> Fault {
    let item = match own {
        Some(Input::Items(items)) => items.iter().find(|item| std::ptr::eq(item.raw.text(), closed.item.text())),
        _ => None,
    };
    closed.fault(&item.map_or("input".to_owned(), |item| parameters.item_path("input", item.raw)))
}

/// A model that does not exist, or that the caller may not ask.
pub fn no_such_model(model: &str) -> Fault {
    let shown: String = model.chars().take(200).collect();
    Fault::new(FaultKind::NotFound, format!("The model '{shown}' does not exist or you do not have access to it."))
        .param("model")
        .code("model_not_found")
}
