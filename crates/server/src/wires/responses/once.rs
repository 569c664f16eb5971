//! `Idempotency-Key`: the same request sent twice is done once. S1
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
use amalgam_engine::{Announcement, Identity, InHand};
use amalgam_protocol::Raw;
use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    deliver::{Beginning, deliver, deliver_detached, event_stream, followed, opening, told},
    error,
    head::{First as Head, TurnHead, begun_or_due},
    retrieve::RESPONSE,
    turn::{Begun, Order, Running, begin},
};
use crate::{
    app::App,
    wires::{WireError, query::missing},
};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The longest key.
const LONGEST_KEY: usize = 255;

/// How often a twin looks whether the first one is done, besides being woken.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The largest answer that is kept for a response which itself is not.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The caller's key, if it sent one.
pub(in crate::wires) fn key(headers: &HeaderMap) -> Result<Option<&str>, Fault> {
    let Some(value) = headers.get(KEY) else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=LONGEST_KEY).contains(&key.len()) => Ok(Some(key)),
        _ => Err(Fault::invalid("Idempotency-Key", format!("Must be 1 to {LONGEST_KEY} visible ASCII characters."))
            .code("invalid_idempotency_key")),
    }
}

/// Makes a response, unless the same one was made or is being made.
pub(super) async fn create(
    app: &Arc<App>,
    scope: &Scope,
    key: &str,
    strict: bool,
    body: Bytes,
) -> Result<Response, WireError> {
    match claim(app, scope, "POST /v1/responses", key, &body).await? {
        Standing::Told(response) => Ok(response),
        Standing::First(First { identity, claimed }) => run(app, scope, claimed, identity, strict, body).await,
    }
}

/// How a request under a key stands.
pub(in crate::wires) enum Standing {
    /// Nobody has sent it before.
    First(First),
    /// It was done: this is its answer.
    Told(Response),
}

/// Work to be done once. Unless its answer is remembered, the key can be used again.
pub(in crate::wires) struct First {
    /// Who the answer is.
    pub(super) identity: Identity,
    claimed: Claimed,
}

impl First {
    /// Keeps an answer for whoever sends the same again.
    pub(in crate::wires) fn remember(mut self, body: Bytes) {
        let settled = self.claimed.settle(Some(whole(body)));
        self.claimed.app.engine.outlive(settled);
    }

    /// The work came to nothing; what is said of it may be said again.
    pub(in crate::wires) async fn refuse(mut self, fault: &Fault) {
        self.claimed.refuse(fault).await;
    }

    /// Does the work and settles the claim before it is answered, also when the caller leaves meanwhile: whoever comes
    /// again finds it done, or the key free.
    pub(in crate::wires) async fn answer<E: From<Fault> + Send + 'static>(
        mut self,
        work: impl Future<Output = Result<Bytes, E>> + Send + 'static,
    ) -> Result<Response, E> {
        let (answered, answer) = oneshot::channel();
        let app = Arc::clone(&self.claimed.app);
        app.engine.outlive(async move {
            let outcome = work.await;
            match &outcome {
                Ok(body) => self.claimed.answer(whole(body.clone())).await,
                Err(_) => self.claimed.give_back().await,
            }
            // Nobody listens when the caller has left.
            let _ = answered.send(outcome);
        });
        let body = answer.await.map_err(|_| Fault::internal("work under a key ended without an answer"))??;
        Ok(crate::wires::answer::json(body))
    }

    /// Passes a stream on, and drives it to its end also when the caller leaves. `answer` is what is kept of it then; with
    /// nothing the key is free again.
    pub(in crate::wires) fn pass_on(
        mut self,
        mut frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
        answer: impl Future<Output = Option<Bytes>> + Send + 'static,
    ) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
        // A caller that reads slowly makes the turn wait; one that has left does not.
        let (caller, passing) = mpsc::channel(1);
        let app = Arc::clone(&self.claimed.app);
        app.engine.outlive(async move {
            while let Some(piece) = frames.next().await {
                let _ = caller.send(piece).await;
            }
            // The stream stays open until then: whoever has seen it close finds the claim settled.
            match answer.await {
                Some(body) => self.claimed.answer(whole(body)).await,
                None => self.claimed.give_back().await,
            }
        });
        Passing(passing)
    }

    /// The work could not be begun: the key is free again.
    pub(in crate::wires) async fn give_back(mut self) {
        self.claimed.give_back().await;
    }
}

/// Claims a request by its key; waits for a twin that is being worked on.
pub(in crate::wires) async fn claim(
    app: &Arc<App>,
    scope: &Scope,
    route: &str,
    key: &str,
    body: &Bytes,
) -> Result<Standing, WireError> {
    let keyed = Keyed { route: route.to_owned(), key: key.to_owned() };
    let hash: [u8; 32] = Sha256::digest(body).into();
    let identity = app.engine.identity();
    // A caller that leaves while it claims never hears that it was the first: without this the claim is given back.
    let in_hand = app.engine.in_hand(&identity.response_id);
    let deadline = Instant::now() + app.engine.turn_deadline();
    loop {
        let (process, now_ms) = (app.engine.process(), app.clock.now_ms());
        let claim = app.store.claim(scope, &keyed, hash, &identity.response_id, process, now_ms).await?;
        match claim {
            Claim::First => {
                let (app, scope, response_id) = (Arc::clone(app), scope.clone(), identity.response_id.clone());
                let claimed = Claimed { app, scope, response_id, keyed: Some(keyed), in_hand: Some(in_hand) };
                return Ok(Standing::First(First { identity, claimed }));
            }
            Claim::Mismatch => {
                return Err(Fault::new(FaultKind::Mismatch, "This Idempotency-Key was used with another body.").into());
            }
            Claim::Done { response_id, answer } => {
                return replay(app, scope, &response_id, answer, body).await.map(Standing::Told);
            }
            Claim::Running { response_id } => {
                let changed = app.store.changed(&response_id);
                // One that is kept and streamed can be followed while it runs.
                if let Some(response) = app.store.response(scope, &response_id).await?
                    && response.streamed
                {
                    return Ok(Standing::Told(replayed(told(app, scope, &response).await?)));
                }
                let _ = tokio::time::timeout(LOOK_AGAIN, changed).await;
                if Instant::now() >= deadline {
                    return Err(
                        Fault::new(FaultKind::Deadline, "The first request with this key is not done yet.").into()
                    );
                }
            }
        }
    }
}

/// Does the work, whatever becomes of the caller. However that goes, the claim does not stay.
async fn run(
    app: &Arc<App>,
    scope: &Scope,
    claimed: Claimed,
    identity: Identity,
    strict: bool,
    body: Bytes,
) -> Result<Response, WireError> {
    let (answered, answer) = oneshot::channel();
    let (working, scope) = (Arc::clone(app), scope.clone());
    app.engine.outlive(async move {
        work(&working, &scope, claimed, identity, strict, body, answered).await;
    });
    answer.await.map_err(|_| Fault::internal("work under a key ended without an answer"))?
}

/// The receiver of `answered` is gone when the caller has left.
async fn work(
    app: &Arc<App>,
    scope: &Scope,
    claimed: Claimed,
    identity: Identity,
    strict: bool,
    body: Bytes,
    answered: oneshot::Sender<Result<Response, WireError>>,
) {
    let began = Instant::now();
    let (announcement, announced) = Announcement::new(strict);
    let (working, whose, keyed) = (Arc::clone(app), scope.clone(), claimed.keyed.clone());
    let mut beginning: Beginning = Box::pin(async move {
        let mut order = Order { strict, keyed, announcement: Some(announcement), ..Order::new(identity) };
        begin(&working, &whose, &body, &mut order).await
    });
    match begun_or_due(&app.engine, began, announced, &mut beginning).await {
        Head::Begun(begun) => {
            drop(beginning);
            let _ = answered.send(answer(app, scope, claimed, begun).await);
        }
        Head::Due(announced) if announced.kept => {
            let _ = answered.send(followed(app, scope, &announced.identity.response_id).await);
            go_on(app, claimed, beginning).await;
        }
        Head::Due(announced) => {
            let head = TurnHead::named(&announced.identity.response_id);
            let (sender, receiver) = mpsc::channel(1);
            let _ = answered.send(Ok(head.on(event_stream(Passing(receiver)))));
            let frames = opening(app, announced, beginning);
            stream_out(frames, |frames| frames.output().is_some(), sender, claimed).await;
        }
    }
}

/// Runs a turn whose caller follows it through the store.
async fn go_on(app: &App, mut claimed: Claimed, beginning: Beginning) {
    match beginning.await {
        Err(fault) => claimed.refuse(&fault).await,
        Ok(begun) => {
            // Its end settles the claim.
            claimed.keyed = None;
            if let Begun::Running(running) = begun {
                drop(app.engine.detach(running.run));
            }
        }
    }
}

async fn answer(
    app: &Arc<App>,
    scope: &Scope,
    mut claimed: Claimed,
    begun: Result<Begun, Fault>,
) -> Result<Response, WireError> {
    match begun {
        Err(fault) => {
            claimed.refuse(&fault).await;
            Err(fault.into())
        }
        Ok(queued @ Begun::Queued { .. }) => {
            claimed.keyed = None;
            deliver(app, scope, queued).await
        }
        Ok(Begun::Running(running)) if running.kept => {
            // Its end settles the claim.
            claimed.keyed = None;
            deliver_detached(app, scope, running).await
        }
        Ok(Begun::Running(running)) => remembered(app, running, claimed).await,
    }
}

/// Answers with a response that is not kept: its answer is, for as long as the key.
async fn remembered(app: &App, running: Running, mut claimed: Claimed) -> Result<Response, WireError> {
    let head = TurnHead::of(&running.run);
    let response = match running.delivery {
        Delivery::Whole => match running.run.finish().await {
            Ok(body) => {
                let body = Bytes::from(body);
                claimed.answer(whole(body.clone())).await;
                crate::wires::answer::json(body)
            }
            Err(fault) => {
                claimed.give_back().await;
                return Err(fault.into());
            }
        },
        Delivery::Stream => {
            // A caller that reads slowly makes the turn wait; one that has left does not.
            let (sender, receiver) = mpsc::channel(1);
            let frames = running.run.into_frames();
            app.engine.outlive(stream_out(frames, |frames| frames.output().is_some(), sender, claimed));
            event_stream(Passing(receiver))
        }
    };
    Ok(head.on(response))
}

/// Drives a stream to its end and keeps what it said for the next caller, if it has ended well.
async fn stream_out<S: Stream<Item = Bytes> + Unpin>(
    mut frames: S,
    has_ended_well: fn(&S) -> bool,
    caller: mpsc::Sender<Bytes>,
    mut claimed: Claimed,
) {
    let mut said = Vec::new();
    while let Some(piece) = frames.next().await {
        if said.len() <= ANSWER_BYTES {
            said.extend_from_slice(&piece);
        }
        let _ = caller.send(piece).await;
    }
    match has_ended_well(&frames) && said.len() <= ANSWER_BYTES {
        true => {
            let content_type = "text/event-stream; charset=utf-8".to_owned();
            claimed.answer(Answer::Body { status: 200, content_type, body: said.into() }).await;
        }
        false => claimed.give_back().await,
    }
}

fn whole(body: Bytes) -> Answer {
    Answer::Body { status: 200, content_type: "application/json".to_owned(), body }
}

async fn replay(
    app: &App,
    scope: &Scope,
    response_id: &str,
    answer: Answer,
    body: &Bytes,
) -> Result<Response, WireError> {
    let response = match answer {
        Answer::Stored => {
            let response = app.store.response(scope, response_id).await?;
            let response = response.ok_or_else(|| missing(RESPONSE, response_id))?;
            match !response.streamed && asks_for_stream(body) {
                // Events are kept for less long than keys: what is left is the beginning and the end.
                true => {
                    TurnHead::named(response_id).on(event_stream(stream::iter([Bytes::from(response.all_words())])))
                }
                false => told(app, scope, &response).await?,
            }
        }
        Answer::Body { status, content_type, body } => {
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
            if let Ok(content_type) = HeaderValue::try_from(content_type) {
                response.headers_mut().insert(header::CONTENT_TYPE, content_type);
            }
            match status < 300 {
                true => TurnHead::named(response_id).on(response),
                false => response,
            }
        }
    };
    Ok(replayed(response))
}

fn asks_for_stream(body: &Bytes) -> bool {
    Raw::parse(body).is_ok_and(|body| body.get("stream").is_some_and(|stream| stream.text() == "true"))
}

pub(in crate::wires) fn replayed(mut response: Response) -> Response {
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// A claim that is given back unless it is settled.
struct Claimed {
    app: Arc<App>,
    scope: Scope,
    response_id: String,
    keyed: Option<Keyed>,
    in_hand: Option<InHand>,
}

impl Claimed {
    /// Settles the claim of work that came to nothing. What an upstream has refused for good is told again, so that it is
    /// asked once; with anything else whoever comes back is the first again.
    async fn refuse(&mut self, fault: &Fault) {
        let stays = matches!(
            fault.kind,
            FaultKind::UpstreamRejected
                | FaultKind::UpstreamUnknownModel
                | FaultKind::ContextLength
                | FaultKind::ContentPolicy
        );
        let answer = stays.then(|| Answer::Body {
            status: error::status(fault),
            content_type: "application/json".to_owned(),
            body: fault.error_object().envelope().into(),
        });
        self.settle(answer).await;
    }

    async fn answer(&mut self, answer: Answer) {
        self.settle(Some(answer)).await;
    }

    async fn give_back(&mut self) {
        self.settle(None).await;
    }

    fn settle(&mut self, answer: Option<Answer>) -> BoxFuture<'static, ()> {
        let Some(keyed) = self.keyed.take() else { return Box::pin(async {}) };
        let (app, scope, response_id) = (Arc::clone(&self.app), self.scope.clone(), self.response_id.clone());
        let in_hand = self.in_hand.take();
        Box::pin(async move {
            if let Err(error) = app.store.settle(&scope, &keyed, &response_id, answer).await {
                // The engine gives it back when the store can be used again.
                tracing::warn!("a claim could not be settled: {error}");
            }
            drop(in_hand);
        })
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if self.keyed.is_some() {
            let settled = self.settle(None);
            self.app.engine.outlive(settled);
        }
    }
}

/// Frames that somebody else drives.
pub(in crate::wires) struct Passing(pub(in crate::wires) mpsc::Receiver<Bytes>);

impl Stream for Passing {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.poll_recv(context)
    }
}
