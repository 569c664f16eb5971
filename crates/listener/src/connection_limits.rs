//! Limits connections, in total and per address.
//!
//! At the limit, the connection that has been idle for longest is closed first. A connection is idle while no request
//! runs on it: it waits for a head, or was kept alive after a response.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::{AbortHandle, Id},
    time::Instant,
};

use super::{ListenerConfig, reply::Refusal};
use crate::proxies::{TrustedProxies, network_of};

/// How long a connection has to be idle before another one may replace it: enough time to send a head.
const GRACE: Duration = Duration::from_secs(1);

/// Marks a running request.
const BUSY: u64 = u64::MAX;

/// Whether a request runs on a connection, and since when none does.
#[derive(Debug)]
pub(super) struct Activity {
    created_at: Instant,
    /// Milliseconds since `created_at`.
    idle_since: AtomicU64,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self { created_at: Instant::now(), idle_since: AtomicU64::new(0) }
    }

    /// A request starts.
    pub(super) fn begin(&self) {
        self.idle_since.store(BUSY, Ordering::Relaxed);
    }

    /// The request has ended.
    pub(super) fn end(&self) {
        self.idle_since.store(self.age_ms(), Ordering::Relaxed);
    }

    fn idle_for(&self) -> Option<Duration> {
        match self.idle_since.load(Ordering::Relaxed) {
            BUSY => None,
            since => Some(Duration::from_millis(self.age_ms().saturating_sub(since))),
        }
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.created_at.elapsed().as_millis()).unwrap_or(BUSY - 1)
    }
}

/// The served connections.
pub(super) struct ConnectionLimits {
    max: usize,
    max_per_address: usize,
    proxies: TrustedProxies,
    served: HashMap<Id, ServedConnection>,
    of_address: HashMap<IpAddr, usize>,
}

struct ServedConnection {
    /// None for a proxy, which serves many clients.
    address: Option<IpAddr>,
    activity: Arc<Activity>,
    connection: AbortHandle,
}

impl ConnectionLimits {
    pub(super) fn new(config: &ListenerConfig) -> Self {
        Self {
            max: config.max_connections,
            max_per_address: config.max_connections_per_address,
            proxies: config.proxies.clone(),
            served: HashMap::new(),
            of_address: HashMap::new(),
        }
    }

    /// Makes room for one more connection, by closing an idle one if necessary; else the reason for a refusal.
    pub(super) fn make_room(&mut self, peer: SocketAddr) -> Result<(), Refusal> {
        let address = self.counted(peer);
        let own = address.map(|address| self.of_address.get(&address).copied().unwrap_or(0));
        let (is_among, refusal): (&dyn Fn(&ServedConnection) -> bool, _) = match own {
            Some(own) if own >= self.max_per_address => (&|entry| entry.address == address, Refusal::FullForAddress),
            _ if self.served.len() >= self.max => (&|_| true, Refusal::Full),
            _ => return Ok(()),
        };
        let idle = self.served.iter().filter(|(_, entry)| is_among(entry));
        let idle = idle.filter_map(|(id, entry)| Some((entry.activity.idle_for()?, *id)));
        match idle.filter(|(idle, _)| *idle >= GRACE).max_by_key(|(idle, _)| *idle) {
            Some((_, id)) => {
                if let Some(entry) = self.free(id) {
                    entry.connection.abort();
                }
                Ok(())
            }
            None => Err(refusal),
        }
    }

    /// Adds a connection.
    pub(super) fn add(&mut self, connection: AbortHandle, peer: SocketAddr, activity: Arc<Activity>) {
        let address = self.counted(peer);
        if let Some(address) = address {
            *self.of_address.entry(address).or_default() += 1;
        }
        self.served.insert(connection.id(), ServedConnection { address, activity, connection });
    }

    /// Removes a connection that has ended.
    pub(super) fn end(&mut self, id: Id) {
        self.free(id);
    }

    fn free(&mut self, id: Id) -> Option<ServedConnection> {
        let entry = self.served.remove(&id)?;
        if let Some(address) = entry.address
            && let Some(count) = self.of_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.of_address.remove(&address);
            }
        }
        Some(entry)
    }

    fn counted(&self, peer: SocketAddr) -> Option<IpAddr> {
        (!self.proxies.contains(peer.ip())).then(|| network_of(peer.ip()))
    }
}
