//! Pauses between writes, so that a server on the same SQLite file can write too.
//!
//! Only one process at a time writes to an SQLite database, and a waiting process polls at least every 100 ms. A command
//! that writes without a pause would keep the server waiting until its requests time out.

use std::time::{Duration, Instant};

use crate::config::StoreUrl;

/// How long this process writes before it pauses.
const OURS: Duration = Duration::from_millis(200);
/// How long it pauses: longer than a waiting process sleeps between two polls.
const THEIRS: Duration = Duration::from_millis(120);

/// Pauses between writes on databases that only one process at a time can write to.
pub(crate) struct WriteThrottle {
    shared_file: bool,
    written: Duration,
}

impl WriteThrottle {
    /// For the store at this URL. PostgreSQL needs no pauses.
    pub(crate) fn on(store: &StoreUrl) -> Self {
        let shared_file = match store {
            StoreUrl::Sqlite(_) => true,
            StoreUrl::Postgres(_) => false,
        };
        Self { shared_file, written: Duration::ZERO }
    }

    /// Runs one write, and pauses afterwards if this process has written for long enough.
    pub(crate) async fn write<T>(&mut self, write: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let written = write.await;
        self.written += begun.elapsed();
        if self.shared_file && self.written >= OURS {
            tokio::time::sleep(THEIRS).await;
            self.written = Duration::ZERO;
        }
        written
    }
}
