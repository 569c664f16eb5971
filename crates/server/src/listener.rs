//! The accept loop: takes connections, caps them, times them, and lets them finish when the process ends.
//!
//! HTTP/1 is hyper's; this file decides who gets in and for how long. What happens on one connection is in
//! `connection`, its stream in `client_stream`, how it leaves HTTP in `switch`, and the answers that no wire
//! gives in `reply`.

mod client_stream;
mod connection;
mod head_guard;
mod key_place;
mod places;
mod reply;
mod switch;

use std::{collections::VecDeque, future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use tracing::{debug, error, info, warn};

use self::connection::{Connections, Serves};
use self::places::{Activity, Places};
use self::reply::Refusal;
use crate::proxies::TrustedProxies;

pub use self::connection::Peer;
pub(crate) use self::connection::linger;
pub use self::key_place::ConnectionKey;
pub(crate) use self::key_place::KeyPlaces;
pub(crate) use self::switch::{Switch, Switched};

/// How many connections without a place are dealt with at once: health checks, and refusals whose client has not hung up.
const MAX_REFUSALS: usize = 256;
/// The first pause after the system had no socket to give, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What the listener allows one client, and all of them together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Connections served at once; the next one takes the place of a silent one, or is answered 503 and closed.
    pub max_connections: usize,
    /// The same for the connections of one address.
    pub max_connections_per_address: usize,
    /// Machines that speak for many clients: the limit for one address is not theirs.
    pub proxies: TrustedProxies,
    /// The largest request head; a larger one is answered 431. At least 8 KiB.
    pub max_head_bytes: usize,
    /// Time for a complete request head, for the first byte of a connection, and between two requests.
    pub header_timeout: Duration,
    /// How long a client may leave a full socket unread before it is let go.
    pub write_timeout: Duration,
    /// How long running exchanges may take to finish after the shutdown signal.
    pub drain_timeout: Duration,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_connections_per_address: 2_000,
            proxies: TrustedProxies::default(),
            max_head_bytes: 64 * 1024,
            header_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(12),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// How the end went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Connections that were open at the signal and ended by themselves.
    pub finished: usize,
    /// Connections that were cut when the time was over.
    pub dropped: usize,
    /// From the signal to the end.
    pub took: Duration,
}

/// Serves `service` on `listener` until `shutdown` resolves, then lets what is running finish.
///
/// A connection beyond the cap is answered 503 instead of being left in the backlog: the client learns at once
/// that it should try elsewhere or later, where a backlog would look like a server that hangs. While draining,
/// new connections get the same treatment.
pub async fn serve(
    listener: TcpListener,
    service: impl Serves,
    config: ListenerConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> DrainReport {
    serve_from(listener, service, config, shutdown).await
}

/// Where connections come from; a trait so that a test can make the system run out of sockets.
trait Accept {
    fn accept(&mut self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send;
}

impl Accept for TcpListener {
    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        TcpListener::accept(self).await
    }
}

async fn serve_from(
    source: impl Accept,
    service: impl Serves,
    config: ListenerConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> DrainReport {
    let (drain, draining) = watch::channel(false);
    let connections = Arc::new(Connections::new(service, &config, draining));
    // A task set owns every connection: dropping it, or the future that holds it, ends them all.
    let mut open = JoinSet::new();
    let mut door = Door { source, refusals: JoinSet::new(), oldest: VecDeque::new(), pause: None };
    let mut places = Places::new(&config);

    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = open.join_next_with_id() => places.end(note_end(ended)),
            (stream, peer) = door.next() => match places.make_room(peer) {
                Ok(()) => {
                    let activity = Arc::new(Activity::new());
                    let connection = open.spawn(Arc::clone(&connections).run(stream, peer, Arc::clone(&activity)));
                    places.take(connection, peer, activity);
                }
                Err(refusal) => {
                    debug!(connections = open.len(), %peer, "connection refused: {refusal:?}");
                    let connections = Arc::clone(&connections);
                    door.turn_away(async move { connections.check_or_refuse(stream, peer, refusal).await });
                }
            }
        }
    }

    let signalled = Instant::now();
    let running = open.len();
    info!(connections = running, "draining {running} connections");
    drain.send_replace(true);
    let mut deadline = pin!(sleep_until(signalled + config.drain_timeout));
    while !open.is_empty() {
        tokio::select! {
            biased;
            Some(ended) = open.join_next_with_id() => {
                note_end(ended);
            }
            () = &mut deadline => break,
            (stream, _) = door.next() => {
                let max_head_bytes = config.max_head_bytes;
                let refusing = connection::refuse(stream, Refusal::ShuttingDown, max_head_bytes);
                door.turn_away(refusing);
            }
        }
    }
    let dropped = open.len();
    open.shutdown().await;
    DrainReport { finished: running - dropped, dropped, took: signalled.elapsed() }
}

/// A panic in a handler takes its connection with it and nothing else; it is told here, once.
fn note_end(ended: Result<(Id, ()), JoinError>) -> Id {
    match ended {
        Ok((id, ())) => id,
        Err(error) => {
            let id = error.id();
            if error.is_panic() {
                error!(%error, "a connection ended in a panic");
            }
            id
        }
    }
}

/// The place where connections come in, and where some are turned away.
struct Door<A> {
    source: A,
    /// Connections that have no place: health checks, and clients that are told so.
    refusals: JoinSet<()>,
    /// The first of them came first.
    oldest: VecDeque<AbortHandle>,
    /// After the system had no socket to give: how long to wait, and until when.
    pause: Option<(Duration, Instant)>,
}

impl<A: Accept> Door<A> {
    /// The next connection. No failure to accept ends the loop; dropping this future loses no connection.
    async fn next(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            if let Some((_, until)) = self.pause {
                sleep_until(until).await;
            }
            match self.source.accept().await {
                Ok(accepted) => {
                    self.pause = None;
                    return accepted;
                }
                // These are about the one client that came and left again.
                Err(error) if left_early(&error) => debug!(%error, "a client left before it was accepted"),
                // These are about us: out of descriptors or memory. Asking again at once would only burn a core.
                Err(error) => {
                    let length = match self.pause {
                        Some((last, _)) => (last * 2).min(LONGEST_PAUSE),
                        None => FIRST_PAUSE,
                    };
                    self.pause = Some((length, Instant::now() + length));
                    warn!(%error, "could not accept a connection, trying again in {length:?}");
                }
            }
        }
    }

    /// Deals with a connection that has no place. Of too many of them the one that came first is dropped.
    fn turn_away(&mut self, dealing: impl Future<Output = ()> + Send + 'static) {
        while self.refusals.try_join_next().is_some() {}
        self.oldest.retain(|one| !one.is_finished());
        while self.oldest.len() >= MAX_REFUSALS {
            if let Some(oldest) = self.oldest.pop_front() {
                oldest.abort();
            }
        }
        self.oldest.push_back(self.refusals.spawn(dealing));
    }
}

fn left_early(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
