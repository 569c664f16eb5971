//! `Idempotency-Key`: retries of a request are answered with the first one's reply. S1
//!
//! A turn under a key goes on when its caller leaves, so that the caller can come back for it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use amalgam_core::{
    BoxFuture, Delivery, Fault, FaultKind, Scope,
    store::{Answer, Claim, Keyed},
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
        self, HeadDue, ReplyBody, ReplyHead, RunningTurn, StartedTurn, Starting, TurnReply, TurnRequest, head_or_start,
        opening, reply, reply_detached,
    },
};

/// How often a retry asks the store whether the first request is done, besides being notified.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The largest reply that is stored for a response which itself is not.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// How a request under a key stands.
pub enum Claimed {
    /// It is the first one under this key.
    First(FirstRequest),
    /// It was sent before: this is its reply.
    Replayed(TurnReply),
}

/// The first request under a key. Unless its reply is stored, the key can be used again.
pub struct FirstRequest {
    /// The id and the time of the response to be.
    pub identity: Identity,
    claim: OpenClaim,
}

impl FirstRequest {
    /// Stores a reply for retries.
    pub fn store(mut self, body: Bytes) {
        let settled = self.claim.settle(Some(json(body)));
        self.claim.app.engine.outlive(settled);
    }

    /// The request failed. Refusals of an upstream that are final are stored for retries.
    pub async fn refuse(mut self, fault: &Fault) {
        self.claim.refuse(fault).await;
    }

    /// Does the work and settles the claim before the reply, also when the caller leaves meanwhile: a retry finds the work
    /// done, or the key free.
    pub async fn run<E: From<Fault> + Send + 'static>(
        mut self,
        work: impl Future<Output = Result<Bytes, E>> + Send + 'static,
    ) -> Result<Bytes, E> {
        let (answered, answer) = oneshot::channel();
        let app = Arc::clone(&self.claim.app);
        app.engine.outlive(async move {
            let outcome = work.await;
            match &outcome {
                Ok(body) => self.claim.settle(Some(json(body.clone()))).await,
                Err(_) => self.claim.settle(None).await,
            }
            // The receiver is gone when the caller has left.
            let _ = answered.send(outcome);
        });
        answer.await.map_err(|_| Fault::internal("work under an idempotency key ended without a reply"))?
    }

    /// Passes a stream on, and drives it to its end also when the caller leaves. `answer` is what is stored of it then; with
    /// nothing the key is free again.
    pub fn pass_on(
        mut self,
        mut frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
        answer: impl Future<Output = Option<Bytes>> + Send + 'static,
    ) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
        // A caller that reads slowly makes the turn wait; one that has left does not.
        let (caller, passed) = mpsc::channel(1);
        let app = Arc::clone(&self.claim.app);
        app.engine.outlive(async move {
            while let Some(piece) = frames.next().await {
                let _ = caller.send(piece).await;
            }
            // The stream stays open until then: a caller that has seen it close finds the claim settled.
            self.claim.settle(answer.await.map(json)).await;
        });
        Passed(passed)
    }

    /// The work could not begin: the key is free again.
    pub async fn release(mut self) {
        self.claim.settle(None).await;
    }
}

/// Runs a turn under a key, unless the same request was sent before. `turn` builds it for the response that was claimed.
pub async fn respond(
    app: &Arc<Application>,
    scope: &Scope,
    route: &str,
    (key, body): (&str, &Bytes),
    turn: impl FnOnce(Identity) -> Result<TurnRequest<'static>, Fault>,
) -> Result<TurnReply, Fault> {
    let FirstRequest { identity, mut claim } = match claim(app, scope, route, key, body).await? {
        Claimed::Replayed(reply) => return Ok(reply),
        Claimed::First(first) => first,
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
    // The turn goes on when the caller leaves. However it ends, the claim is settled.
    app.engine.outlive(async move { run(&working, &caller, claim, turn, answering).await });
    answer.await.map_err(|_| Fault::internal("work under an idempotency key ended without a reply"))?
}

/// Claims a request by its key; waits for a first one that still runs.
pub async fn claim(
    app: &Arc<Application>,
    scope: &Scope,
    route: &str,
    key: &str,
    body: &Bytes,
) -> Result<Claimed, Fault> {
    let keyed = Keyed { route: route.to_owned(), key: key.to_owned() };
    let hash: [u8; 32] = Sha256::digest(body).into();
    let identity = app.engine.identity();
    // A caller that leaves while it claims never learns that it was the first: without this the claim is released.
    let in_hand = app.engine.guard_claim(&identity.response_id);
    let deadline = Instant::now() + app.engine.turn_deadline();
    loop {
        let (process, now_ms) = (app.engine.process(), app.clock.now_ms());
        let claim = app.store.claim(scope, &keyed, hash, &identity.response_id, process, now_ms).await?;
        match claim {
            Claim::First => {
                let (app, scope, response_id) = (Arc::clone(app), scope.clone(), identity.response_id.clone());
                let claim = OpenClaim { app, scope, response_id, keyed: Some(keyed), in_hand: Some(in_hand) };
                return Ok(Claimed::First(FirstRequest { identity, claim }));
            }
            Claim::Mismatch => {
                return Err(Fault::new(FaultKind::Mismatch, "This Idempotency-Key was used with another body."));
            }
            Claim::Done { response_id, answer } => {
                return replay(app, scope, &response_id, answer, body).await.map(Claimed::Replayed);
            }
            Claim::Running { response_id } => {
                let changed = app.store.changed(&response_id);
                // One that is stored and streamed can be followed while it runs.
                if let Some(response) = app.store.response(scope, &response_id).await?
                    && response.streamed
                {
                    let reply = TurnReply::of_stored(app, scope, &response).await?;
                    return Ok(Claimed::Replayed(TurnReply { replayed: true, ..reply }));
                }
                let _ = tokio::time::timeout(LOOK_AGAIN, changed).await;
                if Instant::now() >= deadline {
                    return Err(Fault::new(FaultKind::Deadline, "The first request with this key is not done yet."));
                }
            }
        }
    }
}

type Answering = oneshot::Sender<Result<TurnReply, Fault>>;

/// Runs a turn. The receiver of `answering` is gone when the caller has left.
async fn run(
    app: &Arc<Application>,
    scope: &Scope,
    claim: OpenClaim,
    mut turn: TurnRequest<'static>,
    answering: Answering,
) {
    let received = Instant::now();
    let (announcement, announced) = Announcement::new(turn.strict);
    turn.announcement = Some(announcement);
    turn.idempotency.clone_from(&claim.keyed);
    let (working, caller) = (Arc::clone(app), scope.clone());
    let mut starting: Starting = Box::pin(async move { turns::begin(&working, &caller, turn).await });
    match head_or_start(&app.engine, received, announced, &mut starting).await {
        HeadDue::Started(started) => {
            drop(starting);
            let _ = answering.send(reply_to(app, scope, claim, started).await);
        }
        HeadDue::Due(announced) if announced.kept => {
            let _ = answering.send(TurnReply::followed(app, scope, &announced.identity.response_id).await);
            run_detached(app, claim, starting).await;
        }
        HeadDue::Due(announced) => {
            let head = ReplyHead::named(&announced.identity.response_id);
            let (sender, receiver) = mpsc::channel(1);
            let _ = answering.send(Ok(TurnReply::events(head, Passed(receiver))));
            let events = opening(app, announced, starting);
            stream_out(events, |events| events.output().is_some(), sender, claim).await;
        }
    }
}

/// Runs a turn whose caller follows it through the store.
async fn run_detached(app: &Application, mut claim: OpenClaim, starting: Starting) {
    match starting.await {
        Err(fault) => claim.refuse(&fault).await,
        Ok(started) => {
            // Its end settles the claim.
            claim.keyed = None;
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
            claim.keyed = None;
            reply(app, scope, queued).await
        }
        Ok(StartedTurn::Running(running)) if running.stored => {
            // Its end settles the claim.
            claim.keyed = None;
            reply_detached(app, scope, running).await
        }
        Ok(StartedTurn::Running(running)) => reply_unstored(app, running, claim).await,
    }
}

/// Replies with a response that is not stored: its reply is, for as long as the key.
async fn reply_unstored(app: &Application, running: RunningTurn, mut claim: OpenClaim) -> Result<TurnReply, Fault> {
    let head = ReplyHead::of(&running.run);
    match running.delivery {
        Delivery::Whole => match running.run.finish().await {
            Ok(body) => {
                let body = Bytes::from(body);
                claim.settle(Some(json(body.clone()))).await;
                Ok(TurnReply::new(head, ReplyBody::Object(body)))
            }
            Err(fault) => {
                claim.settle(None).await;
                Err(fault)
            }
        },
        Delivery::Stream => {
            // A caller that reads slowly makes the turn wait; one that has left does not.
            let (sender, receiver) = mpsc::channel(1);
            let events = running.run.into_events();
            app.engine.outlive(stream_out(events, |events| events.output().is_some(), sender, claim));
            Ok(TurnReply::events(head, Passed(receiver)))
        }
    }
}

/// Drives a stream to its end and stores it for retries, if it has ended well.
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
                // Events are stored for less long than keys: what is left is the beginning and the end.
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
    keyed: Option<Keyed>,
    in_hand: Option<ClaimGuard>,
}

impl OpenClaim {
    /// Settles the claim of a request that failed. A refusal of the upstream that is final is stored, so that the upstream is
    /// asked once; after any other failure a retry is the first request again.
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
        let Some(keyed) = self.keyed.take() else { return Box::pin(async {}) };
        let (app, scope, response_id) = (Arc::clone(&self.app), self.scope.clone(), self.response_id.clone());
        let in_hand = self.in_hand.take();
        Box::pin(async move {
            if let Err(error) = app.store.settle(&scope, &keyed, &response_id, answer).await {
                // The engine releases it when the store can be used again.
                tracing::warn!("an idempotency claim could not be settled: {error}");
            }
            drop(in_hand);
        })
    }
}

impl Drop for OpenClaim {
    fn drop(&mut self) {
        if self.keyed.is_some() {
            let settled = self.settle(None);
            self.app.engine.outlive(settled);
        }
    }
}

/// What another task drives, such as the events of a turn.
pub struct Passed<T>(pub mpsc::Receiver<T>);

impl<T> Stream for Passed<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}
