//! The accept loop: accepts connections, limits them, and drains them at shutdown.
//!
//! hyper implements HTTP/1; this file decides which connections are served and for how long. `connection` serves one
//! connection, `socket` and `tls` are its transport, `client_stream` is its stream, `switch` hands it to another protocol,
//! and `reply` has the responses that no wire sends.

mod client_stream;
mod connection;
mod connection_limits;
mod head_guard;
mod key_connections;
mod proxies;
mod refusal_meter;
mod reply;
mod socket;
mod switch;
mod tls;

use std::{collections::VecDeque, future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use tracing::{debug, error, info, warn};

use self::connection::{Connections, HttpService};
use self::connection_limits::{Activity, ConnectionLimits};
use self::reply::Refusal;
use self::socket::AcceptedSocket;

pub use self::connection::{Peer, linger};
pub use self::key_connections::{ConnectionKey, KeyConnections};
pub use self::proxies::{TrustedProxies, network_of};
pub use self::refusal_meter::{RefusalMeter, RefusalReason};
pub use self::socket::ListeningSocket;
pub use self::switch::{Switch, Switched};
pub use self::tls::{CertificateFiles, ServerTls, TlsError, Validity};

/// The maximum number of connections beyond the limit that are handled at once: health checks, and refusals whose
/// client has not hung up.
const MAX_REFUSALS: usize = 256;
/// The first pause after the system ran out of sockets; doubled up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The limits of the listener, per client and in total.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The maximum number of connections; a further one replaces an idle one, or gets a 503 and is closed.
    pub max_connections: usize,
    /// The same limit per address.
    pub max_connections_per_address: usize,
    /// Proxies serve many clients: the limit per address does not apply to them.
    pub proxies: TrustedProxies,
    /// The maximum size of a request head; a larger one gets a 431. At least 8 KiB.
    pub max_head_bytes: usize,
    /// The time for a TLS handshake, for a complete request head, for the first byte of a connection, and between two
    /// requests.
    pub header_timeout: Duration,
    /// How long a client may leave a full socket unread before it is disconnected.
    pub write_timeout: Duration,
    /// How long running requests may take to finish after the shutdown signal.
    pub drain_timeout: Duration,
    /// Counts connections that are refused.
    pub refusals: RefusalMeter,
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
            refusals: RefusalMeter::default(),
        }
    }
}

/// The outcome of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Connections that were open at the signal and ended by themselves.
    pub finished: usize,
    /// Connections that were closed at the timeout.
    pub dropped: usize,
    /// The time from the signal to the end.
    pub took: Duration,
}

/// Serves `service` on `listener` until `shutdown` resolves, then waits for running requests.
///
/// A connection beyond the limit gets a 503 instead of waiting in the backlog: the client learns at once that it should
/// try elsewhere or later, where a backlog would look like a server that hangs. New connections during a drain get the
/// same response.
pub async fn serve(
    listener: impl Into<ListeningSocket>,
    service: impl HttpService,
    config: ListenerConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> DrainReport {
    serve_from(listener.into(), service, config, shutdown).await
}

/// A source of connections; a trait so that a test can make the system run out of sockets.
trait Accept {
    fn accept(&mut self) -> impl Future<Output = io::Result<(AcceptedSocket, SocketAddr)>> + Send;
}

impl Accept for ListeningSocket {
    async fn accept(&mut self) -> io::Result<(AcceptedSocket, SocketAddr)> {
        ListeningSocket::accept(self).await
    }
}

async fn serve_from(
    source: impl Accept,
    service: impl HttpService,
    config: ListenerConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> DrainReport {
    let (drain, draining) = watch::channel(false);
    let connections = Arc::new(Connections::new(service, &config, draining));
    // The task set owns every connection: dropping it, or the future that holds it, ends them all.
    let mut open = JoinSet::new();
    let mut acceptor = Acceptor { source, refusals: JoinSet::new(), oldest: VecDeque::new(), pause: None };
    let mut connection_limits = ConnectionLimits::new(&config);

    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = open.join_next_with_id() => connection_limits.end(log_end(ended)),
            (stream, peer) = acceptor.next() => match connection_limits.make_room(peer) {
                Ok(()) => {
                    let activity = Arc::new(Activity::new());
                    let connection = open.spawn(Arc::clone(&connections).run(stream, peer, Arc::clone(&activity)));
                    connection_limits.add(connection, peer, activity);
                }
                Err(refusal) => {
                    config.refusals.refused(refusal.into(), peer, None);
                    let connections = Arc::clone(&connections);
                    acceptor.handle_excess(async move { connections.check_or_refuse(stream, peer, refusal).await });
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
                log_end(ended);
            }
            () = &mut deadline => break,
            (stream, peer) = acceptor.next() => {
                config.refusals.refused(RefusalReason::ShuttingDown, peer, None);
                let max_head_bytes = config.max_head_bytes;
                let refusing = connection::refuse(stream, Refusal::ShuttingDown, max_head_bytes);
                acceptor.handle_excess(refusing);
            }
        }
    }
    let dropped = open.len();
    open.shutdown().await;
    DrainReport { finished: running - dropped, dropped, took: signalled.elapsed() }
}

/// A panic in a handler ends its connection and nothing else; it is logged here, once.
fn log_end(ended: Result<(Id, ()), JoinError>) -> Id {
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

/// Accepts connections, and handles those beyond the limit.
struct Acceptor<A> {
    source: A,
    /// Connections beyond the limit: health checks and refusals.
    refusals: JoinSet<()>,
    /// The oldest refusal is first.
    oldest: VecDeque<AbortHandle>,
    /// After the system ran out of sockets: the pause, and its end.
    pause: Option<(Duration, Instant)>,
}

impl<A: Accept> Acceptor<A> {
    /// The next connection. No failure to accept ends the loop; dropping this future loses no connection.
    async fn next(&mut self) -> (AcceptedSocket, SocketAddr) {
        loop {
            if let Some((_, until)) = self.pause {
                sleep_until(until).await;
            }
            match self.source.accept().await {
                Ok(accepted) => {
                    self.pause = None;
                    return accepted;
                }
                // These errors concern one client that connected and disconnected.
                Err(error) if is_client_abort(&error) => debug!(%error, "a client left before it was accepted"),
                // These errors concern this process: out of descriptors or memory. Retrying at once would only burn a
                // core.
                Err(error) => {
                    let length = match self.pause {
                        Some((last, _)) => (last * 2).min(MAX_PAUSE),
                        None => FIRST_PAUSE,
                    };
                    self.pause = Some((length, Instant::now() + length));
                    warn!(%error, "could not accept a connection, trying again in {length:?}");
                }
            }
        }
    }

    /// Handles a connection beyond the limit. If there are too many, the oldest is dropped.
    fn handle_excess(&mut self, handling: impl Future<Output = ()> + Send + 'static) {
        while self.refusals.try_join_next().is_some() {}
        self.oldest.retain(|one| !one.is_finished());
        while self.oldest.len() >= MAX_REFUSALS {
            if let Some(oldest) = self.oldest.pop_front() {
                oldest.abort();
            }
        }
        self.oldest.push_back(self.refusals.spawn(handling));
    }
}

fn is_client_abort(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
