//! The reply to a turn: the whole response, or its events as they arrive. A wire renders it.

use std::{pin::Pin, sync::Arc};

use amalgam_core::{
    BoxFuture, Delivery, Fault, Loss, Scope,
    store::{EventTail, StoredResponse},
};
use amalgam_engine::{Announcement, EarlyEvents, Engine, Run, StreamHead, read_tail};
use amalgam_protocol::EventBatch;
use bytes::Bytes;
use futures_core::Stream;
use tokio::{select, sync::oneshot, time::Instant};

use super::{RunningTurn, StartedTurn, TurnRequest, begin, context::no_such_response};
use crate::app::Application;

/// The events of a response as they arrive.
pub type ResponseEvents = Pin<Box<dyn Stream<Item = EventBatch> + Send>>;

/// The reply to a turn.
pub struct TurnReply {
    /// The facts about the turn when the reply starts.
    pub head: ReplyHead,
    /// The response.
    pub body: ReplyBody,
    /// Whether the request was a retry.
    pub replayed: bool,
}

/// The response in a reply.
pub enum ReplyBody {
    /// The response object.
    Object(Bytes),
    /// The events as they arrive.
    Events(ResponseEvents),
    /// A reply that is stored with its idempotency key.
    Stored {
        /// The status code.
        status: u16,
        /// The content type.
        content_type: String,
        /// The body.
        body: Bytes,
    },
}

/// The facts about a turn when its reply starts.
#[derive(Debug, Clone, Default)]
pub struct ReplyHead {
    /// The id of the response.
    pub response_id: String,
    /// `upstream/model` of the candidate, once one has accepted.
    pub model: Option<String>,
    /// The losses so far.
    pub losses: Vec<Loss>,
}

impl ReplyHead {
    /// The head for a running turn.
    pub fn of(run: &Run) -> Self {
        Self {
            response_id: run.response_id().to_owned(),
            model: run.answered_by().map(ToOwned::to_owned),
            losses: run.losses().to_vec(),
        }
    }

    /// The head when only the id of the response is known.
    pub fn named(response_id: &str) -> Self {
        Self { response_id: response_id.to_owned(), ..Self::default() }
    }
}

impl TurnReply {
    pub(crate) fn new(head: ReplyHead, body: ReplyBody) -> Self {
        Self { head, body, replayed: false }
    }

    pub(crate) fn object(head: ReplyHead, object: Vec<u8>) -> Self {
        Self::new(head, ReplyBody::Object(object.into()))
    }

    pub(crate) fn events(head: ReplyHead, events: impl Stream<Item = EventBatch> + Send + 'static) -> Self {
        Self::new(head, ReplyBody::Events(Box::pin(events)))
    }

    /// The stream of a response that another task or process runs, from its beginning.
    pub(crate) async fn followed(app: &Application, scope: &Scope, id: &str) -> Result<Self, Fault> {
        let tail = read_tail(&*app.store, scope, id, None).await?.ok_or_else(|| no_such_response(id))?;
        Ok(Self::events(ReplyHead::named(id), follow(app, scope, tail, None)))
    }

    /// A stored response in the delivery that its request had.
    pub(crate) async fn of_stored(app: &Application, scope: &Scope, response: &StoredResponse) -> Result<Self, Fault> {
        match response.streamed {
            true => Self::followed(app, scope, &response.id).await,
            false => Ok(Self::object(ReplyHead::named(&response.id), response.object())),
        }
    }
}

/// The events of a response after a sequence number: first the stored ones, then new ones.
pub fn follow(app: &Application, scope: &Scope, tail: EventTail, after: Option<u64>) -> ResponseEvents {
    Box::pin(app.engine.follow(scope.clone(), tail, after))
}

/// The start of a turn.
pub(crate) type StartFuture = BoxFuture<'static, Result<StartedTurn, Fault>>;

/// Starts a turn and replies to its caller. When the caller disconnects, a foreground turn ends.
pub async fn respond(
    app: &Arc<Application>,
    scope: &Scope,
    mut turn: TurnRequest<'static>,
) -> Result<TurnReply, Fault> {
    let received = Instant::now();
    let (announcement, announced) = Announcement::new(turn.strict);
    turn.announcement = Some(announcement);
    let (working, caller) = (Arc::clone(app), scope.clone());
    // Boxed: a stream whose model is silent keeps this future.
    let mut starting: StartFuture = Box::pin(async move { begin(&working, &caller, turn).await });
    match head_or_start(&app.engine, received, announced, &mut starting).await {
        HeadDue::Started(started) => {
            drop(starting);
            reply(app, scope, started?).await
        }
        HeadDue::Due(announced) => {
            let head = ReplyHead::named(&announced.identity.response_id);
            Ok(TurnReply::events(head, opening(app, announced, starting)))
        }
    }
}

/// The first of two events: the turn starts, or its caller has to be sent a head.
pub enum HeadDue<T> {
    /// The turn has started or was refused.
    Started(T),
    /// The head is due, and no model has accepted yet.
    Due(StreamHead),
}

/// Waits for a turn to start, but no longer than a stream may be without its head. `received` is the arrival of the
/// request.
pub async fn head_or_start<F: Future + Unpin>(
    engine: &Engine,
    received: Instant,
    announced: oneshot::Receiver<StreamHead>,
    starting: &mut F,
) -> HeadDue<F::Output> {
    let due = async {
        match announced.await {
            Ok(announced) => {
                tokio::time::sleep_until(received + engine.head_after()).await;
                announced
            }
            // The turn is not streamed, or was refused.
            Err(_) => std::future::pending().await,
        }
    };
    select! {
        biased;
        started = starting => HeadDue::Started(started),
        announced = due => HeadDue::Due(announced),
    }
}

/// Replies to the caller that started a turn.
pub(crate) async fn reply(app: &Application, scope: &Scope, started: StartedTurn) -> Result<TurnReply, Fault> {
    match started {
        StartedTurn::Running(RunningTurn { run, delivery, .. }) => {
            let head = ReplyHead::of(&run);
            Ok(match delivery {
                Delivery::Whole => TurnReply::object(head, run.finish().await?.response),
                Delivery::Stream => TurnReply::events(head, run.into_events()),
            })
        }
        StartedTurn::Queued { response, delivery: Delivery::Whole } => {
            Ok(TurnReply::object(ReplyHead::named(&response.id), response.object()))
        }
        StartedTurn::Queued { response, delivery: Delivery::Stream } => {
            TurnReply::followed(app, scope, &response.id).await
        }
    }
}

/// Replies with a turn that continues when its caller disconnects.
pub(crate) async fn reply_detached(app: &Application, scope: &Scope, running: RunningTurn) -> Result<TurnReply, Fault> {
    let RunningTurn { run, delivery, .. } = running;
    let head = ReplyHead::of(&run);
    let answer_receiver = app.engine.detach(run);
    match delivery {
        Delivery::Whole => {
            let answer =
                answer_receiver.await.map_err(|_| Fault::internal("a detached turn ended without an answer"))?;
            Ok(TurnReply::object(head, answer?.response))
        }
        Delivery::Stream => {
            let followed = TurnReply::followed(app, scope, &head.response_id).await?;
            Ok(TurnReply { head, ..followed })
        }
    }
}

/// The events of a turn whose head is sent before a model has accepted.
pub(crate) fn opening(
    app: &Application,
    announced: StreamHead,
    starting: StartFuture,
) -> EarlyEvents<BoxFuture<'static, Result<Box<Run>, Fault>>> {
    let starting = async move { Ok(starting.await?.running()?.run) };
    EarlyEvents::new(&app.engine, announced, Box::pin(starting))
}
