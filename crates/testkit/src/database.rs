//! A PostgreSQL database for one test, if a server is configured.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The variable with the server: `postgres://USER@HOST:PORT/DATABASE`, with a user who may create databases.
const SERVER: &str = "AMALGAM_TEST_POSTGRES";

/// An empty database, dropped with its handle.
#[derive(Debug)]
pub struct Database {
    server: String,
    name: String,
    url: String,
}

impl Database {
    /// A new database; `None` if no server is configured.
    #[expect(clippy::disallowed_methods, reason = "the environment of the test run names the server")]
    pub fn fresh() -> Option<Self> {
        let server = std::env::var(SERVER).ok().filter(|server| !server.is_empty())?;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Tests of one run are separate processes, and several runs use the same server.
        let name = format!("amalgam_test_{}_{now:x}_{count}", std::process::id());
        let url = with_database(&server, &name);
        execute(&server, &format!("CREATE DATABASE {name}"));
        Some(Self { server, name, url })
    }

    /// The result of a statement as `psql` prints it without a frame.
    pub fn ask(&self, statement: &str) -> String {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url, "-c", statement])
            .stdin(Stdio::null());
        match psql.output() {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            Ok(output) => panic!("`{statement}` failed: {}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => panic!("psql cannot be started: {error}"),
        }
    }

    /// The address of the database.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        execute(&self.server, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// The same address with another database.
fn with_database(server: &str, name: &str) -> String {
    let (address, options) = match server.split_once('?') {
        Some((address, options)) => (address, format!("?{options}")),
        None => (server, String::new()),
    };
    let (scheme, rest) = match address.split_once("://") {
        Some(parts) => parts,
        None => panic!("{SERVER} is no address: it has no `://`"),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    format!("{scheme}://{authority}/{name}{options}")
}

fn execute(server: &str, statement: &str) {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", server, "-c", statement]).stdin(Stdio::null());
    match psql.output() {
        Ok(output) if output.status.success() => {}
        // A second panic in a failing test would hide the first one.
        _ if std::thread::panicking() => {}
        Ok(output) => panic!("`{statement}` failed: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("psql cannot be started: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_an_address_is_replaced_and_nothing_else() {
        for (server, url) in [
            ("postgres://u:p@127.0.0.1:5433/postgres", "postgres://u:p@127.0.0.1:5433/x"),
            ("postgres://u@h", "postgres://u@h/x"),
            ("postgresql://u@h/db?sslmode=disable&a=/", "postgresql://u@h/x?sslmode=disable&a=/"),
        ] {
            assert_eq!(with_database(server, "x"), url);
        }
    }
}
