//! Who has a place: all connections together, and those of one address.
//!
//! When places run out, the connection that has been silent for longest goes first. A connection is silent while no request
//! runs on it: it waits for a head, or was kept open after an answer.

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
use crate::proxies::{TrustedProxies, network};

/// How long a connection may be silent before it can be dropped for another one: time enough to send a head.
const GRACE: Duration = Duration::from_secs(1);

/// A time that no clock reaches: a request runs.
const BUSY: u64 = u64::MAX;

/// Whether a request runs on a connection, and since when none does.
#[derive(Debug)]
pub(super) struct Activity {
    begun_at: Instant,
    /// Milliseconds since then.
    silent_since: AtomicU64,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self { begun_at: Instant::now(), silent_since: AtomicU64::new(0) }
    }

    /// A request runs.
    pub(super) fn begin(&self) {
        self.silent_since.store(BUSY, Ordering::Relaxed);
    }

    /// It is answered.
    pub(super) fn end(&self) {
        self.silent_since.store(self.age_ms(), Ordering::Relaxed);
    }

    fn silent_for(&self) -> Option<Duration> {
        match self.silent_since.load(Ordering::Relaxed) {
            BUSY => None,
            since => Some(Duration::from_millis(self.age_ms().saturating_sub(since))),
        }
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.begun_at.elapsed().as_millis()).unwrap_or(BUSY - 1)
    }
}

/// The connections that are served.
pub(super) struct Places {
    most: usize,
    most_of_address: usize,
    proxies: TrustedProxies,
    taken: HashMap<Id, Place>,
    of_address: HashMap<IpAddr, usize>,
}

struct Place {
    /// None for a proxy, which speaks for many.
    address: Option<IpAddr>,
    activity: Arc<Activity>,
    connection: AbortHandle,
}

impl Places {
    pub(super) fn new(config: &ListenerConfig) -> Self {
        Self {
            most: config.max_connections,
            most_of_address: config.max_connections_per_address,
            proxies: config.proxies.clone(),
            taken: HashMap::new(),
            of_address: HashMap::new(),
        }
    }

    /// Makes room for one more connection, by ending a silent one if need be; else why there is none.
    pub(super) fn make_room(&mut self, peer: SocketAddr) -> Result<(), Refusal> {
        let address = self.counted(peer);
        let own = address.map(|address| self.of_address.get(&address).copied().unwrap_or(0));
        let (is_among, refusal): (&dyn Fn(&Place) -> bool, _) = match own {
            Some(own) if own >= self.most_of_address => (&|place| place.address == address, Refusal::FullForAddress),
            _ if self.taken.len() >= self.most => (&|_| true, Refusal::Full),
            _ => return Ok(()),
        };
        let silent = self.taken.iter().filter(|(_, place)| is_among(place));
        let silent = silent.filter_map(|(id, place)| Some((place.activity.silent_for()?, *id)));
        match silent.filter(|(silent, _)| *silent >= GRACE).max_by_key(|(silent, _)| *silent) {
            Some((_, id)) => {
                if let Some(place) = self.free(id) {
                    place.connection.abort();
                }
                Ok(())
            }
            None => Err(refusal),
        }
    }

    /// Gives a connection its place.
    pub(super) fn take(&mut self, connection: AbortHandle, peer: SocketAddr, activity: Arc<Activity>) {
        let address = self.counted(peer);
        if let Some(address) = address {
            *self.of_address.entry(address).or_default() += 1;
        }
        self.taken.insert(connection.id(), Place { address, activity, connection });
    }

    /// A connection has ended.
    pub(super) fn end(&mut self, id: Id) {
        self.free(id);
    }

    fn free(&mut self, id: Id) -> Option<Place> {
        let place = self.taken.remove(&id)?;
        if let Some(address) = place.address
            && let Some(count) = self.of_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.of_address.remove(&address);
            }
        }
        Some(place)
    }

    fn counted(&self, peer: SocketAddr) -> Option<IpAddr> {
        (!self.proxies.contains(peer.ip())).then(|| network(peer.ip()))
    }
}
