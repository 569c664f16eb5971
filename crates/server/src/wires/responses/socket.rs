//! `GET /v1/responses` as WebSocket: requests in, events out, one response after the other.
//!
//! A response goes the way that `POST` goes; here is only how it is asked for and told. Whatever is not kept in the store
//! the connection itself remembers, for as long as it lives. A client that leaves takes its turn with it, and one that
//! does not read makes it wait: nothing is queued in between.

mod frame;
mod handshake;
mod line;
mod memory;
mod message;

use std::{
    pin::{Pin, pin},
    sync::{Arc, OnceLock},
    time::Duration,
};

use amalgam_app::turns::{HeadDue, TurnRequest, begin, head_or_start};
use amalgam_core::{Fault, FaultKind, Scope, array_of};
use amalgam_engine::{Announcement, EarlyEvents};
use amalgam_protocol::{EventBatch, ResponseParameters};
use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::StreamExt;
use http::Version;
use http_body::Body as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    select,
    sync::watch,
    time::{Instant, Sleep, sleep_until},
};
use tracing::debug;

use self::frame::code;
use self::line::{Deaf, Heard, Line};
use self::memory::Remembered;
use self::message::{Create, Lane, in_lane, refusal};
use crate::{
    app::App,
    auth::{Admission, Door},
    layers,
    listener::{Switch, Switched},
    wires::{WireError, headers::is_strict},
};

/// The longest that a connection lives; a response that runs by then may end.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// Silence after which the client is pinged. It also keeps those between us awake.
const PING_AFTER: Duration = Duration::from_secs(15);

/// How long the client may take to answer a ping.
const PONG_WITHIN: Duration = Duration::from_secs(15);

/// Makes a socket of the connection.
pub(super) async fn open(State(app): State<Arc<App>>, mut request: Request) -> Response {
    let switch = request.extensions_mut().remove::<Switch>();
    let answer = match handshake::answer(request.headers()) {
        Ok(answered) => answered,
        Err(refused) => return layers::unread(&request, *refused),
    };
    let (Some(switch), Version::HTTP_11, true) = (switch, request.version(), request.body().is_end_stream()) else {
        let fault = Fault::new(FaultKind::Invalid, "A socket is opened with HTTP/1.1, and without a body.");
        return layers::unread(&request, WireError(fault).into_response());
    };
    let (asked, _) = request.into_parts();
    switch.to(move |Switched { stream, draining }| Connection::new(app, asked, stream, draining).run());
    answer
}

/// One socket.
struct Connection<S> {
    app: Arc<App>,
    /// The request that it began with. Who asks is found out again for every response: keys are revoked and run out.
    asked: http::Request<()>,
    /// Whether a loss is a fault.
    strict: bool,
    line: Line<S>,
    memory: Remembered,
    draining: watch::Receiver<bool>,
    /// The end of its life.
    over_at: Instant,
    /// When to look whether the client lives.
    alarm: Pin<Box<Sleep>>,
}

/// Why a connection is over.
#[derive(Debug)]
enum Over {
    /// The client is gone.
    Left,
    /// It said farewell.
    Farewell(Option<u16>),
    /// We do.
    Close(u16, &'static str),
}

/// What became of a turn.
enum Turn {
    /// It ended well.
    Ended,
    /// It failed, and its events say so.
    Failed,
    /// Nothing was told about it yet.
    Refused(Fault),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn new(app: Arc<App>, asked: http::request::Parts, stream: S, draining: watch::Receiver<bool>) -> Self {
        let most = app.whole_body();
        let now = Instant::now();
        Self {
            strict: is_strict(&asked.headers),
            asked: http::Request::from_parts(asked, ()),
            line: Line::new(stream, most, &app.memory),
            // No more than a request could have brought along instead.
            memory: Remembered::new(most.bytes, &app.remembering),
            draining,
            over_at: now + LIFETIME,
            alarm: Box::pin(sleep_until(now + PING_AFTER)),
            app,
        }
    }

    /// Serves until somebody has enough.
    async fn run(mut self) {
        let over = loop {
            let served = match self.next().await {
                Ok(message) => self.respond(message).await,
                Err(over) => Err(over),
            };
            if let Err(over) = served {
                break over;
            }
        };
        debug!("a socket is over: {over:?}");
        match over {
            Over::Left => {}
            Over::Farewell(said) => self.line.close_too(said).await,
            Over::Close(code, reason) => self.line.close(code, reason).await,
        }
    }

    /// The next message, while no response runs.
    async fn next(&mut self) -> Result<Bytes, Over> {
        let Self { line, alarm, draining, over_at, app, .. } = self;
        let idle_at = Instant::now() + app.limits.websocket_idle;
        loop {
            let heard = select! {
                biased;
                () = told(draining) => return Err(Over::Close(code::AWAY, "the server is shutting down")),
                () = sleep_until(*over_at) => {
                    tell(line, &too_old(), &None).await?;
                    return Err(Over::Close(code::AWAY, "the connection is too old"));
                }
                () = sleep_until(idle_at) => return Err(Over::Close(code::AWAY, "nothing was asked for too long")),
                heard = listen(line, alarm) => heard,
            };
            if let Some(message) = attend(line, alarm, heard).await? {
                return Ok(message);
            }
        }
    }

    /// Does what a message asks for.
    async fn respond(&mut self, message: Bytes) -> Result<(), Over> {
        let (lane, create) = message::read(&message, self.app.limits.json_depth);
        // The request is a copy of the message, and counts in its place.
        let mut reservation = self.app.memory.reservation();
        let create = create.and_then(|create| {
            reservation.expect(create.body.len())?;
            Ok(Create { body: reservation.hold(create.body), ..create })
        });
        drop(message);
        let create = match create {
            Ok(create) => create,
            Err(fault) => return tell(&mut self.line, &fault, &lane).await,
        };
        let previous = create.previous.clone();
        let turn = self.turn(create, &lane).await?;
        // Nobody goes on from where going on has failed.
        if let (Turn::Failed | Turn::Refused(_), Some(previous)) = (&turn, previous) {
            self.memory.forget(&previous);
        }
        let Turn::Refused(fault) = turn else { return Ok(()) };
        tell(&mut self.line, &fault, &lane).await?;
        match fault.kind {
            FaultKind::Unauthenticated | FaultKind::Forbidden => {
                Err(Over::Close(code::POLICY, "the credential is not good any more"))
            }
            _ => Ok(()),
        }
    }

    /// Runs a turn to its end, with an ear to the client.
    async fn turn(&mut self, create: Create, lane: &Lane) -> Result<Turn, Over> {
        let Self { app, asked, strict, line, memory, alarm, .. } = self;
        let depth = app.limits.json_depth;
        let identity = app.engine.identity();
        let id = identity.response_id.clone();
        let (announcement, announced) = Announcement::new(*strict);
        let unstored = OnceLock::new();
        let beginning = async {
            let scope = admitted(app, asked).await?;
            let turn = TurnRequest {
                strict: *strict,
                connection: Some(&*memory),
                generate: create.generate,
                announcement: Some(announcement),
                ..TurnRequest::new(identity, ResponseParameters::parse(&create.body, depth)?)
            };
            let running = begin(app, &scope, turn).await?.running()?;
            // A turn begins once.
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
                        heard = listen(line, alarm) => put_off(line, alarm, heard, depth).await?,
                    }
                }
            };
            match first {
                HeadDue::Started(Err(fault)) => return Ok(Turn::Refused(fault)),
                HeadDue::Started(Ok(run)) => {
                    let mut frames = run.into_events();
                    pass_on(line, alarm, lane, depth, &mut frames).await?;
                    frames.output()
                }
                HeadDue::Due(announced) => {
                    let mut frames = EarlyEvents::new(&app.engine, announced, beginning);
                    pass_on(line, alarm, lane, depth, &mut frames).await?;
                    frames.output()
                }
            }
        };
        let Some(output) = output else { return Ok(Turn::Failed) };
        if let Some(Some(unstored)) = unstored.into_inner() {
            memory.remember(id, create.previous.as_deref(), *unstored, array_of(&output));
        }
        Ok(Turn::Ended)
    }
}

/// Sends the events of a response, with an ear to the client.
async fn pass_on<S>(
    line: &mut Line<S>,
    alarm: &mut Pin<Box<Sleep>>,
    lane: &Lane,
    depth: usize,
    events: &mut (impl Stream<Item = EventBatch> + Unpin),
) -> Result<(), Over>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        select! {
            batch = events.next() => {
                let Some(batch) = batch else { return Ok(()) };
                batch.data().for_each(|event| line.say(&in_lane(event.text().as_bytes(), lane)));
                line.flush().await.map_err(|_| Over::Left)?;
                // A client that has seen the last event may request the next response: nothing is delayed from here on.
                if batch.is_last() {
                    return Ok(());
                }
            }
            heard = listen(line, alarm) => put_off(line, alarm, heard, depth).await?,
        }
    }
}

async fn admitted(app: &App, asked: &http::Request<()>) -> Result<Scope, Fault> {
    match app.auth.admit(asked, Door::Use) {
        Admission::Now(admitted) => admitted,
        Admission::Later(asking) => asking.await,
    }
}

/// Waits for the drain to begin.
async fn told(draining: &mut watch::Receiver<bool>) {
    // The sender lives as long as the accept loop, which ends all connections when it goes.
    let _ = draining.wait_for(|draining| *draining).await;
}

/// What the client says; nothing when it is time to look whether it lives. May be dropped at any point.
async fn listen<S>(line: &mut Line<S>, alarm: &mut Pin<Box<Sleep>>) -> Result<Option<Heard>, Deaf>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    select! {
        heard = line.hear() => heard.map(Some),
        () = alarm.as_mut() => Ok(None),
    }
}

/// Does what the protocol wants; hands on a message.
async fn attend<S>(
    line: &mut Line<S>,
    alarm: &mut Pin<Box<Sleep>>,
    heard: Result<Option<Heard>, Deaf>,
) -> Result<Option<Bytes>, Over>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (fault, over) = match heard {
        Ok(Some(Heard::Text(message))) => return Ok(Some(message)),
        Ok(Some(Heard::Pong)) => return Ok(None),
        Ok(Some(Heard::Ping(payload))) => {
            line.pong(&payload).await.map_err(|_| Over::Left)?;
            return Ok(None);
        }
        Ok(None) => {
            look_after(line, alarm).await?;
            return Ok(None);
        }
        Ok(Some(Heard::Close(said))) => return Err(Over::Farewell(said)),
        Ok(Some(Heard::Binary)) => (
            Fault::new(FaultKind::UnsupportedMedia, "Binary messages are not supported. Send text."),
            Over::Close(code::UNSUPPORTED, "text only"),
        ),
        Err(Deaf::Gone) => return Err(Over::Left),
        Err(Deaf::Wrong(why)) => return Err(Over::Close(code::PROTOCOL, why)),
        Err(Deaf::NotText) => return Err(Over::Close(code::NOT_TEXT, "a message is not UTF-8")),
        Err(Deaf::Refused(fault)) => {
            let over = match fault.kind {
                FaultKind::TooLarge => Over::Close(code::TOO_LARGE, "a message is too large"),
                FaultKind::OutOfMemory => Over::Close(code::TRY_AGAIN, "there is no memory for a message"),
                _ => Over::Close(code::POLICY, "a message was not sent in time"),
            };
            (fault, over)
        }
    };
    tell(line, &fault, &None).await?;
    Err(over)
}

/// The same while a response runs: a message has to wait for another time.
async fn put_off<S>(
    line: &mut Line<S>,
    alarm: &mut Pin<Box<Sleep>>,
    heard: Result<Option<Heard>, Deaf>,
    depth: usize,
) -> Result<(), Over>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(message) = attend(line, alarm, heard).await? else { return Ok(()) };
    let (lane, create) = message::read(&message, depth);
    let fault = create.err().unwrap_or_else(|| {
        let message = "A response is in progress on this connection: wait for its end, or open another connection.";
        Fault::new(FaultKind::Conflict, message).code("response_in_progress")
    });
    tell(line, &fault, &lane).await
}

/// Asks a silent client for a sign of life, or gives it up.
async fn look_after<S>(line: &mut Line<S>, alarm: &mut Pin<Box<Sleep>>) -> Result<(), Over>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let now = Instant::now();
    let silent = now.duration_since(line.heard_at());
    if silent < PING_AFTER {
        alarm.as_mut().reset(line.heard_at() + PING_AFTER);
        return Ok(());
    }
    match line.pinged_at().filter(|at| *at > line.heard_at()) {
        // Anything that came since is a sign of life, too.
        Some(at) if now >= at + PONG_WITHIN => Err(Over::Close(code::POLICY, "a ping was not answered in time")),
        Some(at) => {
            alarm.as_mut().reset(at + PONG_WITHIN);
            Ok(())
        }
        None => {
            alarm.as_mut().reset(now + PONG_WITHIN);
            line.ping().await.map_err(|_| Over::Left)
        }
    }
}

/// Tells the client of a fault.
async fn tell<S>(line: &mut Line<S>, fault: &Fault, lane: &Lane) -> Result<(), Over>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    line.say(&in_lane(&refusal(fault), lane));
    line.flush().await.map_err(|_| Over::Left)
}

fn too_old() -> Fault {
    let message = "A connection lives for 60 minutes. Open another one to go on.";
    Fault::new(FaultKind::Invalid, message).code("websocket_connection_limit_reached")
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
