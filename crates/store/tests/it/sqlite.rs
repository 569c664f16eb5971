//! The embedded engine: the contract, and what only a file can do.

mod ahead;
mod crash;
mod faults;
mod files;
mod steps;
mod threads;

use std::sync::Arc;

use amalgam_core::BoxFuture;
use amalgam_store::sqlite::{Options, Sqlite};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::given::Engine;

mod contract {
    use super::run;

    contract!(run);
}

fn run(check: impl FnOnce(Engine) -> BoxFuture<'static, ()>) {
    let home = Home::new();
    runtime().block_on(check(home.open(Options::default())));
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A folder for one database.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("data").join("amalgam.db")
    }

    fn open(&self, options: Options) -> Engine {
        Arc::new(Sqlite::open(self.path(), options).unwrap())
    }

    /// Looks at the file behind the store's back.
    fn look(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    fn count(&self, table: &str) -> i64 {
        let rows = format!("SELECT COUNT(*) FROM {table}");
        self.look().query_row(&rows, [], |row| row.get(0)).unwrap()
    }
}
