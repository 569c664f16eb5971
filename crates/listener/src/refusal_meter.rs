//! Counts connections that are refused before a request is routed, and logs them: at most one line in ten seconds for each
//! reason, so that a client that is refused again and again cannot fill the log.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tracing::{info, warn};

use super::reply::Refusal;

/// The shortest time between two lines with the same reason.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Why a connection was refused before a request was routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// The server has as many connections as it can serve.
    TooManyConnections,
    /// The client's address has as many connections as it may.
    TooManyConnectionsOfAddress,
    /// The server shuts down.
    ShuttingDown,
    /// The request head is not HTTP, or too large.
    BadHead,
    /// The request head was not sent in time.
    SlowHead,
    /// The TLS handshake failed, or was not finished in time.
    Tls,
}

impl RefusalReason {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::TooManyConnections,
        Self::TooManyConnectionsOfAddress,
        Self::ShuttingDown,
        Self::BadHead,
        Self::SlowHead,
        Self::Tls,
    ];

    /// The name in metrics and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooManyConnections => "too_many_connections",
            Self::TooManyConnectionsOfAddress => "too_many_connections_of_address",
            Self::ShuttingDown => "shutting_down",
            Self::BadHead => "bad_head",
            Self::SlowHead => "slow_head",
            Self::Tls => "tls",
        }
    }

    /// Whether the server lacks something, and not the client.
    const fn is_of_the_server(self) -> bool {
        matches!(self, Self::TooManyConnections | Self::TooManyConnectionsOfAddress)
    }
}

impl From<Refusal> for RefusalReason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::BadHead | Refusal::UriTooLong | Refusal::HeadTooLarge => Self::BadHead,
            Refusal::HeadTimeout => Self::SlowHead,
            Refusal::Full => Self::TooManyConnections,
            Refusal::FullForAddress => Self::TooManyConnectionsOfAddress,
            Refusal::ShuttingDown => Self::ShuttingDown,
        }
    }
}

/// Counts and logs refused connections. Clones share one count.
#[derive(Debug, Clone, Default)]
pub struct RefusalMeter(Arc<[RefusalCount; RefusalReason::ALL.len()]>);

#[derive(Debug, Default)]
struct RefusalCount {
    all: AtomicU64,
    line: Mutex<LastLine>,
}

#[derive(Debug, Default)]
struct LastLine {
    at: Option<Instant>,
    /// Refusals since then.
    unlogged: u64,
}

/// Settings that differ in what was counted are the same.
impl PartialEq for RefusalMeter {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RefusalMeter {}

impl RefusalMeter {
    /// Counts a refusal. `detail` is the system's or the TLS library's own text.
    pub(super) fn refused(&self, reason: RefusalReason, peer: SocketAddr, detail: Option<String>) {
        let Some(count) = self.0.get(reason as usize) else { return };
        count.all.fetch_add(1, Ordering::Relaxed);
        let Some(unlogged) = count.take_line(Instant::now()) else { return };
        let (reason, detail) = (reason, detail.as_deref());
        match reason.is_of_the_server() {
            true => warn!(reason = reason.name(), %peer, unlogged, detail, "a connection was refused"),
            false => info!(reason = reason.name(), %peer, unlogged, detail, "a connection was refused"),
        }
    }

    /// The number of refusals by reason.
    pub fn read(&self) -> [(RefusalReason, u64); RefusalReason::ALL.len()] {
        let count = |reason| self.0.get(reason as usize).map_or(0, |count| count.all.load(Ordering::Relaxed));
        RefusalReason::ALL.map(|reason| (reason, count(reason)))
    }
}

impl RefusalCount {
    /// Whether a line may be written now: then the number of earlier refusals without one.
    fn take_line(&self, now: Instant) -> Option<u64> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        match line.at {
            Some(at) if now.saturating_duration_since(at) < LINE_INTERVAL => {
                line.unlogged += 1;
                None
            }
            _ => Some(std::mem::replace(&mut *line, LastLine { at: Some(now), unlogged: 0 }).unlogged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_at_most_once_in_ten_seconds_and_says_how_many_were_not() {
        let (count, start) = (RefusalCount::default(), Instant::now());
        let at = |seconds: u64| count.take_line(start + Duration::from_secs(seconds));
        assert_eq!([at(0), at(1), at(9), at(10), at(11), at(30)], [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[tokio::test]
    async fn refusals_are_counted_by_reason_and_clones_share_the_count() {
        let meter = RefusalMeter::default();
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        for _ in 0..3 {
            meter.clone().refused(RefusalReason::Tls, peer, None);
        }
        meter.refused(Refusal::HeadTooLarge.into(), peer, None);
        let counted: Vec<_> = meter.read().into_iter().filter(|(_, number)| *number > 0).collect();
        assert_eq!(counted, [(RefusalReason::BadHead, 1), (RefusalReason::Tls, 3)]);
    }
}
