//! `GET /v1/responses` as a WebSocket: requests in, events out, one response at a time.
//!
//! Responses are created as for `POST`; this module reads requests and sends events. The connection remembers responses
//! that are not stored until it closes. A client that disconnects cancels its turn, and one that does not read slows it
//! down: no events are queued for it.

mod bounded_stream;
mod client;
mod handshake;
mod message;
mod message_stream;
mod unstored_responses;

use std::{
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use amalgam_app::turns::{HeadDue, TurnRequest, begin, head_or_start};
use amalgam_core::{Fault, FaultKind, Scope, Wire, array_of};
use amalgam_engine::{Announcement, EarlyEvents};
use amalgam_listener::{Switch, Switched};
use amalgam_protocol::{EventBatch, ResponseParameters};
use axum::{
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::StreamExt;
use http_body::Body as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    select,
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tracing::debug;

use self::client::{Client, End, RefusalLog};
use self::message::{Create, Lane, in_lane};
use self::unstored_responses::UnstoredResponses;
use crate::{
    app::{App, CurrentApp},
    auth::{CallerLookup, RequiredRight},
    layers,
    origins::Page,
    wires::headers::is_strict,
};

/// The maximum lifetime of a connection; a response that runs at the end may finish.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// Upgrades the connection to a WebSocket.
pub(super) async fn open(State(current): State<CurrentApp>, mut request: Request) -> Response {
    let switch = request.extensions_mut().remove::<Switch>();
    let answer = match handshake::answer(&request) {
        Ok(answer) => answer,
        Err(refusal) => return layers::unread(&request, *refusal),
    };
    let (Some(switch), true) = (switch, request.body().is_end_stream()) else {
        return layers::unread(&request, handshake::not_possible());
    };
    let (upgrade, _) = request.into_parts();
    switch.to(move |Switched { stream, draining }| serve(current, upgrade, stream, draining));
    answer
}

/// Serves a connection until it ends.
async fn serve<S>(
    current: impl Into<CurrentApp>,
    upgrade: http::request::Parts,
    stream: S,
    draining: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let current = current.into();
    let app = current.load();
    let limits = app.whole_body();
    let opened_by = upgrade.extensions.get::<Scope>().cloned();
    let connection = Connection {
        strict: is_strict(&upgrade.headers),
        upgrade: http::Request::from_parts(upgrade, ()),
        client: Client::new(stream, limits, &app.memory, RefusalLog { log: Arc::clone(&app.log), opened_by }).await,
        // No more than a request could send instead.
        responses: UnstoredResponses::new(limits.bytes, &app.connection_memory),
        draining,
        ends_at: Instant::now() + LIFETIME,
        app,
        current,
    };
    connection.run().await;
}

/// One WebSocket.
struct Connection<S> {
    current: CurrentApp,
    /// The application that the last message found in force.
    app: Arc<App>,
    /// The upgrade request. Its credential is checked again for every response, since keys are revoked and expire.
    upgrade: http::Request<()>,
    /// Whether a loss is an error.
    strict: bool,
    client: Client<S>,
    responses: UnstoredResponses,
    draining: watch::Receiver<bool>,
    /// The end of the connection's lifetime.
    ends_at: Instant,
}

/// The outcome of a turn.
enum Turn {
    /// The turn completed.
    Ended,
    /// The turn failed, and its events say so.
    Failed,
    /// The turn did not start, and no event about it was sent.
    Refused(Fault),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Serves one message after the other.
    async fn run(mut self) {
        let end = loop {
            let served = match self.next().await {
                Ok(message) => self.respond(message).await,
                Err(end) => Err(end),
            };
            if let Err(end) = served {
                break end;
            }
        };
        debug!("a WebSocket ends: {end:?}");
        self.client.end(end).await;
    }

    /// The next message, while no response runs.
    async fn next(&mut self) -> Result<Bytes, End> {
        let Self { client, draining, ends_at, app, .. } = self;
        let idle_at = Instant::now() + app.limits.websocket_idle;
        loop {
            let activity = select! {
                biased;
                () = shutting_down(draining) => return Err(End::close(CloseCode::Away, "the server is shutting down")),
                () = sleep_until(*ends_at) => {
                    client.send_fault(&too_old(), &None).await?;
                    return Err(End::close(CloseCode::Away, "the connection is too old"));
                }
                () = sleep_until(idle_at) => return Err(End::close(CloseCode::Away, "nothing was asked for too long")),
                activity = client.activity() => activity,
            };
            if let Some(message) = client.handle(activity).await? {
                return Ok(message);
            }
        }
    }

    /// Handles a message.
    async fn respond(&mut self, message: Bytes) -> Result<(), End> {
        self.app = self.current.load();
        let (lane, create) = message::read(&message, self.app.limits.json_depth);
        // The request is a copy of the message, and is counted instead of it.
        let mut reservation = self.app.memory.reservation();
        let create = create.and_then(|create| {
            reservation.expect(create.body.len())?;
            Ok(Create { body: reservation.hold(create.body), ..create })
        });
        drop(message);
        let create = match create {
            Ok(create) => create,
            Err(fault) => return self.client.send_fault(&fault, &lane).await,
        };
        let previous = create.previous.clone();
        let turn = self.turn(create, &lane).await?;
        // A response is not continued again after a failed attempt.
        if let (Turn::Failed | Turn::Refused(_), Some(previous)) = (&turn, previous) {
            self.responses.forget(&previous);
        }
        let Turn::Refused(fault) = turn else { return Ok(()) };
        self.client.send_fault(&fault, &lane).await?;
        match fault.kind {
            FaultKind::Unauthenticated | FaultKind::Forbidden => {
                Err(End::close(CloseCode::Policy, "the credential is not good any more"))
            }
            _ => Ok(()),
        }
    }

    /// Runs a turn to its end, and handles the client's messages meanwhile.
    async fn turn(&mut self, create: Create, lane: &Lane) -> Result<Turn, End> {
        let Self { app, upgrade, strict, client, responses, .. } = self;
        let depth = app.limits.json_depth;
        let identity = app.engine.identity();
        let id = identity.response_id.clone();
        let (announcement, announced) = Announcement::new(*strict);
        let unstored = OnceLock::new();
        let beginning = async {
            let scope = admitted(app, upgrade).await?;
            let turn = TurnRequest {
                strict: *strict,
                connection: Some(&*responses),
                generate: create.generate,
                announcement: Some(announcement),
                ..TurnRequest::new(Wire::Responses, identity, ResponseParameters::parse(&create.body, depth)?)
            };
            let running = begin(app, &scope, turn).await?.running()?;
            // A turn starts only once.
            let _ = unstored.set(running.unstored);
            Ok(running.run)
        };
        let output = {
            let mut beginning = pin!(beginning);
            let first = {
                let mut first = pin!(head_or_start(&app.engine, Instant::now(), announced, &mut beginning));
                loop {
                    select! {
                        first = &mut first => break first,
                        activity = client.activity() => client.handle_busy(activity, depth).await?,
                    }
                }
            };
            match first {
                HeadDue::Started(Err(fault)) => return Ok(Turn::Refused(fault)),
                HeadDue::Started(Ok(run)) => {
                    let mut events = run.into_events();
                    send_events(client, lane, depth, &mut events).await?;
                    events.output()
                }
                HeadDue::Due(announced) => {
                    let mut events = EarlyEvents::new(&app.engine, announced, beginning);
                    send_events(client, lane, depth, &mut events).await?;
                    events.output()
                }
            }
        };
        let Some(output) = output else { return Ok(Turn::Failed) };
        if let Some(Some(unstored)) = unstored.into_inner() {
            responses.add(id, create.previous.as_deref(), *unstored, array_of(&output));
        }
        Ok(Turn::Ended)
    }
}

/// Sends the events of a response, and handles the client's messages meanwhile.
async fn send_events<S>(
    client: &mut Client<S>,
    lane: &Lane,
    depth: usize,
    events: &mut (impl Stream<Item = EventBatch> + Unpin),
) -> Result<(), End>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        select! {
            batch = events.next() => {
                let Some(batch) = batch else { return Ok(()) };
                for event in batch.data() {
                    let event = batch.frames().slice_ref(event.text().as_bytes());
                    client.queue(in_lane(event, lane)).await?;
                }
                client.flush().await?;
                // A client that has received the last event may request the next response: nothing is delayed from here
                // on.
                if batch.is_last() {
                    return Ok(());
                }
            }
            activity = client.activity() => client.handle_busy(activity, depth).await?,
        }
    }
}

async fn admitted(app: &App, upgrade: &http::Request<()>) -> Result<Scope, Fault> {
    let scope = match app.auth.admit(upgrade, RequiredRight::Use, &Page::Own) {
        CallerLookup::Done(admitted) => admitted,
        CallerLookup::Pending(lookup) => lookup.await,
    }?;
    // Its turns have the id of the upgrade, and spans below that of it.
    let opened = upgrade.extensions().get::<Scope>().and_then(Scope::request);
    Ok(match opened {
        Some(opened) => scope.with_request(Arc::new(opened.continued())),
        None => scope,
    })
}

/// Waits for the shutdown to begin.
async fn shutting_down(draining: &mut watch::Receiver<bool>) {
    // The accept loop owns the sender, and ends all connections when it stops.
    let _ = draining.wait_for(|draining| *draining).await;
}

fn too_old() -> Fault {
    let message = "A connection lives for 60 minutes. Open another one to go on.";
    Fault::new(FaultKind::Invalid, message).code("websocket_connection_limit_reached")
}

#[cfg(test)]
#[path = "websocket_tests.rs"]
mod tests;
