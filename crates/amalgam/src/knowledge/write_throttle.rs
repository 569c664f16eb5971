//! Leaves a server that shares a file with us time to write.
//!
//! Only one process at a time writes to an SQLite database, and whoever waits looks again every 100 ms at the latest. A
//! command that writes without a pause would keep everybody else out until they give up.

use std::time::{Duration, Instant};

use crate::config::StoreUrl;

/// How long we write before others have their turn.
const OURS: Duration = Duration::from_millis(200);
/// How long their turn is: longer than whoever waits sleeps between two looks.
const THEIRS: Duration = Duration::from_millis(120);

/// Pauses between writes where that helps somebody.
pub(crate) struct WriteThrottle {
    shared_file: bool,
    written: Duration,
}

impl WriteThrottle {
    /// On the store of this address. Databases that are servers let several write at once.
    pub(crate) fn on(store: &StoreUrl) -> Self {
        let shared_file = match store {
            StoreUrl::Sqlite(_) => true,
            StoreUrl::Postgres(_) => false,
        };
        Self { shared_file, written: Duration::ZERO }
    }

    /// Writes, and waits afterwards if it is the others' turn.
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
