//! A cache of MCP servers that tenants and callers name: their sessions and tool lists are reused between turns.
//!
//! Requests share a server only if they name the same address with the same credentials in the same tenant. It is dropped
//! when it has been idle for a while, or when there are too many.

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
/// One tenant does not push out the servers of all others.
const MAX_OF_TENANT: usize = 64;
const IDLE: Duration = Duration::from_secs(600);
/// Sessions that are being ended at once; further ones end by themselves at their servers.
const MAX_FAREWELLS: usize = 32;

/// A server, and who asks for it.
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
    kept: Mutex<Kept>,
    farewells: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Kept {
    entries: HashMap<Key, Entry>,
    uses: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    tenant_id: i64,
    /// Of address and credentials.
    hash: [u8; 32],
}

struct Entry {
    server: McpServer,
    used_at_ms: u64,
    /// The order of uses, also of those in one millisecond.
    used: u64,
}

impl Servers {
    pub(super) fn new(egress: Arc<Egress>, clock: Arc<dyn Clock>) -> Self {
        Self { egress, clock, kept: Mutex::default(), farewells: Mutex::default() }
    }

    /// The server at an address. It is reached when it is asked something.
    pub(super) fn get(&self, address: &Address) -> Result<McpServer, BankFault> {
        let (key, now_ms) = (address.key(), self.clock.now_ms());
        let mut kept = self.kept();
        let mut gone = kept.let_go_of_idle(now_ms);
        let server = match kept.take_up(&key, now_ms) {
            Some(server) => server,
            None => {
                let server = self.connect(address)?;
                gone.extend(kept.keep(key, server.clone(), now_ms));
                server
            }
        };
        drop(kept);
        gone.into_iter().for_each(|server| self.say_farewell(server));
        Ok(server)
    }

    /// Whether there could be a server at this address.
    pub(super) fn check(&self, address: &Address) -> Result<(), BankFault> {
        self.connect(address).map(|_| ())
    }

    /// Ends all sessions.
    pub(super) async fn close(&self) {
        let entries = std::mem::take(&mut self.kept().entries);
        join_all(entries.values().map(|entry| entry.server.close())).await;
        let mut farewells = std::mem::take(&mut *self.farewells());
        while farewells.join_next().await.is_some() {}
    }

    fn connect(&self, address: &Address) -> Result<McpServer, BankFault> {
        let Address { label, url, authorization, headers, tenant_id } = address.clone();
        // A call ends by its tool's own limit, which differs from tool to tool.
        let timeout = LONGEST_TIMEOUT;
        let settings = McpSettings { label, url, authorization, headers, tenant_id: Some(tenant_id), timeout };
        McpServer::connect(settings, Arc::clone(&self.egress))
    }

    /// Ends the session of a server that was evicted. One that a turn still uses stays open until the turn ends.
    fn say_farewell(&self, server: McpServer) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut farewells = self.farewells();
        while farewells.try_join_next().is_some() {}
        if !server.is_shared() && farewells.len() < MAX_FAREWELLS {
            farewells.spawn_on(async move { server.close().await }, &runtime);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Every change is whole before anything could panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn farewells(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.farewells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Address {
    fn key(&self) -> Key {
        let mut hash = Sha256::new();
        // Each with its length, so that no two addresses are the same text.
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

impl Kept {
    fn take_up(&mut self, key: &Key, now_ms: u64) -> Option<McpServer> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        (entry.used, entry.used_at_ms) = (self.uses, now_ms);
        Some(entry.server.clone())
    }

    /// Keeps a server; gives back those that had to go for it.
    fn keep(&mut self, key: Key, server: McpServer, now_ms: u64) -> Vec<McpServer> {
        self.uses += 1;
        let mut gone = Vec::new();
        let of_tenant = self.entries.keys().filter(|other| other.tenant_id == key.tenant_id).count();
        if of_tenant >= MAX_OF_TENANT {
            gone.extend(self.let_go_of_oldest(|other| other.tenant_id == key.tenant_id));
        }
        if self.entries.len() >= MAX_SERVERS {
            gone.extend(self.let_go_of_oldest(|_| true));
        }
        self.entries.insert(key, Entry { server, used_at_ms: now_ms, used: self.uses });
        gone
    }

    /// One that no turn uses, if there is any.
    fn let_go_of_oldest(&mut self, among: impl Fn(&Key) -> bool) -> Option<McpServer> {
        let candidates = self.entries.iter().filter(|(key, _)| among(key));
        let oldest = candidates.min_by_key(|(_, entry)| (entry.server.is_shared(), entry.used)).map(|(key, _)| *key)?;
        self.entries.remove(&oldest).map(|entry| entry.server)
    }

    fn let_go_of_idle(&mut self, now_ms: u64) -> Vec<McpServer> {
        let is_idle = |entry: &Entry| {
            Duration::from_millis(now_ms.saturating_sub(entry.used_at_ms)) >= IDLE && !entry.server.is_shared()
        };
        self.entries.extract_if(|_, entry| is_idle(entry)).map(|(_, entry)| entry.server).collect()
    }
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
