//! `Idempotency-Key`: retries of a request get the reply of the first request. S1
//!
//! A turn with a key continues when its caller disconnects, so that a retry can fetch its reply.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use amalgam_core::{
    BoxFuture, Delivery, Fault, FaultKind, Scope,
    store::{Answer, Claim, IdempotencyKey},
};
use amalgam_engine::{Announcement, ClaimGuard, Identity};
use amalgam_protocol::{EventBatch, Raw};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use sha2::{Digest, Sha256};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    app::Application,
    ids::not_found,
    turns::{
        self, HeadDue, ReplyBody, ReplyHead, RunningTurn, StartFuture, StartedTurn, TurnReply, TurnRequest,
        head_or_start, opening, reply, reply_detached,
    },
};

/// How often a retry polls the store for the first request's reply, besides being notified.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The largest stored reply of a response that is not stored itself.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The outcome of claiming a key.
pub enum ClaimOutcome {
    /// The request is the first one with this key.
    First(FirstRequest),
    /// The request is a retry; this is the reply.
    Replayed(TurnReply),
}

/// The first request with a key. Unless its reply is stored, the key is released.
pub struct FirstRequest {
    /// The id and the creation time of the response.
    pub identity: Identity,
    claim: OpenClaim,
}

impl FirstRequest {
    /// Stores a reply for retries.
    pub fn store(mut self, body: Bytes) {
        let settling = self.claim.settle(Some(json(body)));
        self.claim.app.engine.spawn_detached(settling);
    }

    /// Releases the key of a failed request. An upstream's final refusal is stored for retries.
    pub async fn refuse(mut self, fault: &Fault) {
        self.claim.refuse(fault).await;
    }

    /// Does the work and settles the claim before it replies. Continues when the caller disconnects: a retry finds
    /// either the reply or a free key.
    pub async fn run<E: From<Fault> + Send + 'static>(
        mut self,
        work: impl Future<Output = Result<Bytes, E>> + Send + 'static,
    ) -> Result<Bytes, E> {
        let (reply_sender, answer) = oneshot::channel();
        let app = Arc::clone(&self.claim.app);
        app.engine.spawn_detached(async move {
            let outcome = work.await;
            match &outcome {
                Ok(body) => self.claim.settle(Some(json(body.clone()))).await,
                Err(_) => self.claim.settle(None).await,
            }
            // The receiver is dropped when the caller disconnects.
            let _ = reply_sender.send(outcome);
        });
        answer.await.map_err(|_| Fault::internal("work under an idempotency key ended without a reply"))?
    }

    /// Forwards a stream, and drives it to its end even when the caller disconnects. `answer` is the reply to store;
    /// none releases the key.
    pub fn forward(
        mut self,
        mut frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
        answer: impl Future<Output = Option<Bytes>> + Send + 'static,
    ) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
        // A slow reader slows the turn down; a disconnected one does not.
        let (caller, receiver) = mpsc::channel(1);
        let app = Arc::clone(&self.claim.app);
        app.engine.spawn_detached(async move {
            while let Some(chunk) = frames.next().await {
                let _ = caller.send(chunk).await;
            }
            // The stream closes after this, so a caller that sees it close finds the claim settled.
            self.claim.settle(answer.await.map(json)).await;
        });
        ReceiverStream(receiver)
    }

    /// Releases the key: the work failed to start.
    pub async fn release(mut self) {
        self.claim.settle(None).await;
    }
}

/// Runs a turn with a key, unless the request is a retry. `turn` builds the turn for the claimed response.
pub async fn respond(
    app: &Arc<Application>,
    scope: &Scope,
    route: &str,
    (key, body): (&str, &Bytes),
    turn: impl FnOnce(Identity) -> Result<TurnRequest<'static>, Fault>,
) -> Result<TurnReply, Fault> {
    let FirstRequest { identity, mut claim } = match claim(app, scope, route, key, body).await? {
        ClaimOutcome::Replayed(reply) => return Ok(reply),
        ClaimOutcome::First(first) => first,
    };
    let turn = match turn(identity) {
        Ok(turn) => turn,
        Err(fault) => {
            claim.refuse(&fault).await;
            return Err(fault);
        }
    };
    let (answering, answer) = oneshot::channel();
    let (working, caller) = (Arc::clone(app), scope.clone());
    // The turn continues when the caller disconnects. Every path settles the claim.
    app.engine.spawn_detached(async move { run(&working, &caller, claim, turn, answering).await });
    answer.await.map_err(|_| Fault::internal("work under an idempotency key ended without a reply"))?
}

/// Claims a key; waits while the first request with it runs.
pub async fn claim(
    app: &Arc<Application>,
    scope: &Scope,
    route: &str,
    key: &str,
    body: &Bytes,
) -> Result<ClaimOutcome, Fault> {
    let idempotency_key = IdempotencyKey { route: route.to_owned(), key: key.to_owned() };
    let hash: [u8; 32] = Sha256::digest(body).into();
    let identity = app.engine.identity();
    // A caller that disconnects during the claim never learns that it was first; the guard releases the claim then.
    let guard = app.engine.guard_claim(&identity.response_id);
    let deadline = Instant::now() + app.engine.turn_deadline();
    loop {
        let (process, now_ms) = (app.engine.process(), app.clock.now_ms());
        let claim = app.store.claim(scope, &idempotency_key, hash, &identity.response_id, process, now_ms).await?;
        match claim {
            Claim::First => {
                let (app, scope, response_id) = (Arc::clone(app), scope.clone(), identity.response_id.clone());
                let claim =
                    OpenClaim { app, scope, response_id, idempotency_key: Some(idempotency_key), guard: Some(guard) };
                return Ok(ClaimOutcome::First(FirstRequest { identity, claim }));
            }
            Claim::Mismatch => {
                return Err(Fault::new(FaultKind::Mismatch, "This Idempotency-Key was used with another body."));
            }
            Claim::Done { response_id, answer } => {
                return replay(app, scope, &response_id, answer, body).await.map(ClaimOutcome::Replayed);
            }
            Claim::Running { response_id } => {
                let changed = app.store.changed(&response_id);
                // A stored stream can be followed while it runs.
                if let Some(response) = app.store.response(scope, &response_id).await?
                    && response.streamed
                {
                    let reply = TurnReply::of_stored(app, scope, &response).await?;
                    return Ok(ClaimOutcome::Replayed(TurnReply { replayed: true, ..reply }));
                }
                let _ = tokio::time::timeout(POLL_INTERVAL, changed).await;
                if Instant::now() >= deadline {
                    return Err(Fault::new(FaultKind::Deadline, "The first request with this key is not done yet."));
                }
            }
        }
    }
}

type ReplySender = oneshot::Sender<Result<TurnReply, Fault>>;

/// Runs a turn. The receiver of `answering` is dropped when the caller disconnects.
async fn run(
    app: &Arc<Application>,
    scope: &Scope,
    claim: OpenClaim,
    mut turn: TurnRequest<'static>,
    answering: ReplySender,
) {
    let received = Instant::now();
    let (announcement, announced) = Announcement::new(turn.strict);
    turn.announcement = Some(announcement);
    turn.idempotency.clone_from(&claim.idempotency_key);
    let (working, caller) = (Arc::clone(app), scope.clone());
    let mut starting: StartFuture = Box::pin(async move { turns::begin(&working, &caller, turn).await });
    match head_or_start(&app.engine, received, announced, &mut starting).await {
        HeadDue::Started(started) => {
            drop(starting);
            let _ = answering.send(reply_to(app, scope, claim, started).await);
        }
        HeadDue::Due(announced) if announced.stored => {
            let _ = answering.send(TurnReply::followed(app, scope, &announced.identity.response_id).await);
            run_detached(app, claim, starting).await;
        }
        HeadDue::Due(announced) => {
            let head = ReplyHead::named(&announced.identity.response_id);
            let (sender, receiver) = mpsc::channel(1);
            let _ = answering.send(Ok(TurnReply::events(head, ReceiverStream(receiver))));
            let events = opening(app, announced, starting);
            stream_out(events, |events| events.output().is_some(), sender, claim).await;
        }
    }
}

/// Runs a turn whose caller follows it through the store.
async fn run_detached(app: &Application, mut claim: OpenClaim, starting: StartFuture) {
    match starting.await {
        Err(fault) => claim.refuse(&fault).await,
        Ok(started) => {
            // The turn's last write settles the claim.
            claim.idempotency_key = None;
            if let StartedTurn::Running(running) = started {
                drop(app.engine.detach(running.run));
            }
        }
    }
}

async fn reply_to(
    app: &Arc<Application>,
    scope: &Scope,
    mut claim: OpenClaim,
    started: Result<StartedTurn, Fault>,
) -> Result<TurnReply, Fault> {
    match started {
        Err(fault) => {
            claim.refuse(&fault).await;
            Err(fault)
        }
        Ok(queued @ StartedTurn::Queued { .. }) => {
            claim.idempotency_key = None;
            reply(app, scope, queued).await
        }
        Ok(StartedTurn::Running(running)) if running.stored => {
            // The turn's last write settles the claim.
            claim.idempotency_key = None;
            reply_detached(app, scope, running).await
        }
        Ok(StartedTurn::Running(running)) => reply_unstored(app, running, claim).await,
    }
}

/// Replies with a response that is not stored. Its reply is, as long as the key is valid.
async fn reply_unstored(app: &Application, running: RunningTurn, mut claim: OpenClaim) -> Result<TurnReply, Fault> {
    let head = ReplyHead::of(&running.run);
    match running.delivery {
        Delivery::Whole => match running.run.finish().await {
            Ok(finished) => {
                let body = Bytes::from(finished.response);
                claim.settle(Some(json(body.clone()))).await;
                Ok(TurnReply::new(head, ReplyBody::Object(body)))
            }
            Err(fault) => {
                claim.settle(None).await;
                Err(fault)
            }
        },
        Delivery::Stream => {
            // A slow reader slows the turn down; a disconnected one does not.
            let (sender, receiver) = mpsc::channel(1);
            let events = running.run.into_events();
            app.engine.spawn_detached(stream_out(events, |events| events.output().is_some(), sender, claim));
            Ok(TurnReply::events(head, ReceiverStream(receiver)))
        }
    }
}

/// Drives a stream to its end and stores it for retries, unless it failed.
async fn stream_out<S: Stream<Item = EventBatch> + Unpin>(
    mut events: S,
    has_ended_well: fn(&S) -> bool,
    caller: mpsc::Sender<EventBatch>,
    mut claim: OpenClaim,
) {
    let mut sent = Vec::new();
    while let Some(batch) = events.next().await {
        if sent.len() <= ANSWER_BYTES {
            sent.extend_from_slice(batch.frames());
        }
        let _ = caller.send(batch).await;
    }
    let answer = (has_ended_well(&events) && sent.len() <= ANSWER_BYTES).then(|| Answer::Body {
        status: 200,
        content_type: "text/event-stream; charset=utf-8".to_owned(),
        body: sent.into(),
    });
    claim.settle(answer).await;
}

fn json(body: Bytes) -> Answer {
    Answer::Body { status: 200, content_type: "application/json".to_owned(), body }
}

async fn replay(
    app: &Application,
    scope: &Scope,
    response_id: &str,
    answer: Answer,
    body: &Bytes,
) -> Result<TurnReply, Fault> {
    let reply = match answer {
        Answer::Stored => {
            let response = app.store.response(scope, response_id).await?;
            let response = response.ok_or_else(|| not_found("Response", response_id))?;
            match !response.streamed && asks_for_stream(body) {
                // Events are stored for a shorter time than keys: only the beginning and the end are left.
                true => TurnReply::events(
                    ReplyHead::named(response_id),
                    stream::iter([EventBatch::from_frames(response.all_frames())]),
                ),
                false => TurnReply::of_stored(app, scope, &response).await?,
            }
        }
        Answer::Body { status, content_type, body } => {
            let head = if status < 300 { ReplyHead::named(response_id) } else { ReplyHead::default() };
            TurnReply::new(head, ReplyBody::Stored { status, content_type, body })
        }
    };
    Ok(TurnReply { replayed: true, ..reply })
}

fn asks_for_stream(body: &Bytes) -> bool {
    Raw::parse(body).is_ok_and(|body| body.get("stream").is_some_and(|stream| stream.text() == "true"))
}

/// A claim that is released unless it is settled.
struct OpenClaim {
    app: Arc<Application>,
    scope: Scope,
    response_id: String,
    idempotency_key: Option<IdempotencyKey>,
    guard: Option<ClaimGuard>,
}

impl OpenClaim {
    /// Settles the claim of a failed request. An upstream's final refusal is stored, so that retries do not ask the
    /// upstream again; after any other failure a retry counts as the first request.
    async fn refuse(&mut self, fault: &Fault) {
        let is_final = matches!(
            fault.kind,
            FaultKind::UpstreamRejected
                | FaultKind::UpstreamUnknownModel
                | FaultKind::ContextLength
                | FaultKind::ContentPolicy
        );
        let answer = is_final.then(|| Answer::Body {
            status: fault.kind.status(),
            content_type: "application/json".to_owned(),
            body: fault.error_object().envelope().into(),
        });
        self.settle(answer).await;
    }

    fn settle(&mut self, answer: Option<Answer>) -> BoxFuture<'static, ()> {
        let Some(idempotency_key) = self.idempotency_key.take() else { return Box::pin(async {}) };
        let (app, scope, response_id) = (Arc::clone(&self.app), self.scope.clone(), self.response_id.clone());
        let guard = self.guard.take();
        Box::pin(async move {
            if let Err(error) = app.store.settle(&scope, &idempotency_key, &response_id, answer).await {
                // The engine releases the claim when the store is available again.
                tracing::warn!("an idempotency claim could not be settled: {error}");
            }
            drop(guard);
        })
    }
}

impl Drop for OpenClaim {
    fn drop(&mut self) {
        if self.idempotency_key.is_some() {
            let settling = self.settle(None);
            self.app.engine.spawn_detached(settling);
        }
    }
}

/// The items that another task produces, such as the events of a turn.
pub struct ReceiverStream<T>(pub mpsc::Receiver<T>);

impl<T> Stream for ReceiverStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}
