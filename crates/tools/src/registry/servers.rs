//! A cache of MCP servers that tenants and callers name: their sessions and tool lists are reused between turns.
//!
//! Requests share a server only if they name the same address with the same credentials in the same tenant. A server is
//! evicted when it has been idle for a while, or when there are too many.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::{BankFault, Clock};
use futures_util::future::join_all;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::{runtime::Handle, task::JoinSet};

use super::LONGEST_TIMEOUT;
use crate::{
    egress::Egress,
    headers::HeaderText,
    mcp::{McpServer, McpSettings},
};

const MAX_SERVERS: usize = 256;
/// The maximum for one tenant, so that it cannot evict the servers of all others.
const MAX_OF_TENANT: usize = 64;
const IDLE: Duration = Duration::from_secs(600);
/// The maximum number of sessions that are being ended; further ones expire at their servers.
const MAX_CLOSING: usize = 32;

/// A server's address and its caller.
#[derive(Debug, Clone)]
pub(super) struct Address {
    /// For the log.
    pub(super) label: String,
    pub(super) url: String,
    pub(super) authorization: Option<SecretString>,
    pub(super) headers: Vec<(String, HeaderText)>,
    pub(super) tenant_id: i64,
}

pub(super) struct Servers {
    egress: Arc<Egress>,
    clock: Arc<dyn Clock>,
    cache: Mutex<Cache>,
    closing: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Cache {
    entries: HashMap<Key, Entry>,
    uses: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    tenant_id: i64,
    /// The hash of address and credentials.
    hash: [u8; 32],
}

struct Entry {
    server: McpServer,
    used_at_ms: u64,
    /// The order of uses, also within one millisecond.
    used: u64,
}

impl Servers {
    pub(super) fn new(egress: Arc<Egress>, clock: Arc<dyn Clock>) -> Self {
        Self { egress, clock, cache: Mutex::default(), closing: Mutex::default() }
    }

    /// The server at an address. It is connected when first needed.
    pub(super) fn get(&self, address: &Address) -> Result<McpServer, BankFault> {
        let (key, now_ms) = (address.key(), self.clock.now_ms());
        let mut cache = self.cache();
        let mut evicted = cache.evict_idle(now_ms);
        let server = match cache.get(&key, now_ms) {
            Some(server) => server,
            None => {
                let server = self.connect(address)?;
                evicted.extend(cache.insert(key, server.clone(), now_ms));
                server
            }
        };
        drop(cache);
        evicted.into_iter().for_each(|server| self.close_session(server));
        Ok(server)
    }

    /// Checks whether the address and its credentials are valid.
    pub(super) fn check(&self, address: &Address) -> Result<(), BankFault> {
        self.connect(address).map(|_| ())
    }

    /// Ends all sessions.
    pub(super) async fn close(&self) {
        let entries = std::mem::take(&mut self.cache().entries);
        join_all(entries.values().map(|entry| entry.server.close())).await;
        let mut closing = std::mem::take(&mut *self.closing());
        while closing.join_next().await.is_some() {}
    }

    fn connect(&self, address: &Address) -> Result<McpServer, BankFault> {
        let Address { label, url, authorization, headers, tenant_id } = address.clone();
        // A call is limited by its tool's own timeout.
        let timeout = LONGEST_TIMEOUT;
        let settings = McpSettings { label, url, authorization, headers, tenant_id: Some(tenant_id), timeout };
        McpServer::connect(settings, Arc::clone(&self.egress))
    }

    /// Ends the session of an evicted server. A server that a turn still uses stays open until the turn ends.
    fn close_session(&self, server: McpServer) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut closing = self.closing();
        while closing.try_join_next().is_some() {}
        if !server.is_shared() && closing.len() < MAX_CLOSING {
            closing.spawn_on(async move { server.close().await }, &runtime);
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        // No change can panic half-way, so a poisoned lock is still consistent.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closing(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Address {
    fn key(&self) -> Key {
        let mut hash = Sha256::new();
        // Each with its length, so that no two addresses give the same text.
        let mut add = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(&self.url);
        match &self.authorization {
            Some(authorization) => ["1", authorization.expose_secret()].into_iter().for_each(&mut add),
            None => add("0"),
        }
        let mut headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.expose())).collect();
        headers.sort_unstable();
        for (name, value) in headers {
            add(&name);
            add(value);
        }
        Key { tenant_id: self.tenant_id, hash: hash.finalize().into() }
    }
}

impl Cache {
    fn get(&mut self, key: &Key, now_ms: u64) -> Option<McpServer> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        (entry.used, entry.used_at_ms) = (self.uses, now_ms);
        Some(entry.server.clone())
    }

    /// Adds a server; returns the evicted ones.
    fn insert(&mut self, key: Key, server: McpServer, now_ms: u64) -> Vec<McpServer> {
        self.uses += 1;
        let mut evicted = Vec::new();
        let of_tenant = self.entries.keys().filter(|other| other.tenant_id == key.tenant_id).count();
        if of_tenant >= MAX_OF_TENANT {
            evicted.extend(self.evict_oldest(|other| other.tenant_id == key.tenant_id));
        }
        if self.entries.len() >= MAX_SERVERS {
            evicted.extend(self.evict_oldest(|_| true));
        }
        self.entries.insert(key, Entry { server, used_at_ms: now_ms, used: self.uses });
        evicted
    }

    /// Evicts the least recently used server; one that no turn uses, if there is any.
    fn evict_oldest(&mut self, matches: impl Fn(&Key) -> bool) -> Option<McpServer> {
        let candidates = self.entries.iter().filter(|(key, _)| matches(key));
        let oldest = candidates.min_by_key(|(_, entry)| (entry.server.is_shared(), entry.used)).map(|(key, _)| *key)?;
        self.entries.remove(&oldest).map(|entry| entry.server)
    }

    fn evict_idle(&mut self, now_ms: u64) -> Vec<McpServer> {
        let is_idle = |entry: &Entry| {
            Duration::from_millis(now_ms.saturating_sub(entry.used_at_ms)) >= IDLE && !entry.server.is_shared()
        };
        self.entries.extract_if(|_, entry| is_idle(entry)).map(|(_, entry)| entry.server).collect()
    }
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
