//! A database of our own on the PostgreSQL server that `AMALGAM_BENCH_POSTGRES` names, and what that server costs.
//!
//! `psql` makes, measures and drops it. CPU is read from `/proc`, so it is known only where the server runs on this machine.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::process::{self, CpuSnapshot};

/// Dropped with its database.
pub(crate) struct Database {
    server: String,
    name: String,
    pub(crate) url: String,
    /// The server's first process, the parent of all others; `None` when it is elsewhere.
    postmaster: Option<u32>,
}

impl Database {
    /// A fresh database; `None` when no server is named.
    pub(crate) fn create() -> anyhow::Result<Option<Self>> {
        let Ok(server) = std::env::var("AMALGAM_BENCH_POSTGRES") else { return Ok(None) };
        let name = format!("amalgam_bench_{}", std::process::id());
        let url = address_of(&server, &name).context("AMALGAM_BENCH_POSTGRES is no postgres://USER@HOST/DATABASE")?;
        psql(&server, &format!("CREATE DATABASE {name}"))?;
        let mut database = Self { server, name, url, postmaster: None };
        let backend = psql(&database.url, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")?;
        database.postmaster = backend.parse().ok().and_then(process::parent_of);
        Ok(Some(database))
    }

    /// What a commit waits for.
    pub(crate) fn durability(&self) -> anyhow::Result<String> {
        psql(
            &self.url,
            "SELECT 'fsync ' || current_setting('fsync') || ', synchronous_commit ' || current_setting('synchronous_commit')",
        )
    }

    pub(crate) fn bytes(&self) -> anyhow::Result<u64> {
        let bytes = psql(&self.url, "SELECT pg_database_size(current_database())")?;
        bytes.parse().with_context(|| format!("`{bytes}` is no size"))
    }

    /// What the server's processes have used up to now.
    pub(crate) fn cpu(&self) -> Option<Vec<(u32, CpuSnapshot)>> {
        let children = process::children_of(self.postmaster?);
        Some(children.into_iter().filter_map(|pid| Some((pid, CpuSnapshot::take(pid).ok()?))).collect())
    }

    /// The same since `earlier`. What a process used that has come or gone since is not in it.
    pub(crate) fn cpu_since(&self, earlier: &[(u32, CpuSnapshot)]) -> Option<Duration> {
        let now = self.cpu()?;
        let used = now.iter().filter_map(|(pid, now)| {
            let (_, before) = earlier.iter().find(|(earlier, _)| earlier == pid)?;
            Some(now.since(before))
        });
        Some(used.sum())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Err(error) = psql(&self.server, &format!("DROP DATABASE {} WITH (FORCE)", self.name)) {
            eprintln!("amalgam-bench: {error:#}");
        }
    }
}

/// One statement; what it says.
fn psql(url: &str, statement: &str) -> anyhow::Result<String> {
    let output = Command::new("psql")
        .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--dbname", url, "--command", statement])
        .output()
        .context("running psql")?;
    if !output.status.success() {
        bail!("psql: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The same server, another database.
fn address_of(server: &str, database: &str) -> Option<String> {
    let (scheme, rest) = server.split_once("://")?;
    let host = rest.split(['/', '?']).next().filter(|host| !host.is_empty())?;
    Some(format!("{scheme}://{host}/{database}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_another_database_keeps_server_and_password() {
        let address = address_of("postgres://me:hush@127.0.0.1:5432/postgres?x=y", "bench");

        assert_eq!(address.as_deref(), Some("postgres://me:hush@127.0.0.1:5432/bench"));
        assert_eq!(address_of("postgres://me@host", "bench").as_deref(), Some("postgres://me@host/bench"));
        assert_eq!(address_of("127.0.0.1", "bench"), None);
        assert_eq!(address_of("postgres:///x", "bench"), None);
    }
}
