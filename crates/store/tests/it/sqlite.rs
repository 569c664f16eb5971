//! The embedded engine: the contract, and what only a file can do.

mod crash;
mod faults;
mod files;
mod legacy_redo_log;
mod steps;
mod threads;
mod write_ahead_log;

use std::sync::Arc;

use amalgam_core::BoxFuture;
use amalgam_store_sqlite::{Sqlite, SqliteOptions};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::given::Engine;

mod contract {
    use super::run;

    contract!(run);
}

fn run(check: impl FnOnce(Engine) -> BoxFuture<'static, ()>) {
    let home = Home::new();
    runtime().block_on(check(home.open(SqliteOptions::default())));
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

    fn open(&self, options: SqliteOptions) -> Engine {
        Arc::new(Sqlite::open(self.path(), options).unwrap())
    }

    /// Looks at the file behind the store's back.
    fn look(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    /// What a crash would leave: the database and its write-ahead log, without the index of the log.
    fn copy_files(&self) -> Self {
        let copy = Self::new();
        std::fs::create_dir_all(copy.path().parent().unwrap()).unwrap();
        for name in ["amalgam.db", "amalgam.db-wal"] {
            std::fs::copy(self.path().with_file_name(name), copy.path().with_file_name(name)).unwrap();
        }
        copy
    }

    fn count(&self, table: &str) -> i64 {
        let rows = format!("SELECT COUNT(*) FROM {table}");
        self.look().query_row(&rows, [], |row| row.get(0)).unwrap()
    }
}
