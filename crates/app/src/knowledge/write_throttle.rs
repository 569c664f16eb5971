//! Pauses between writes, so that a server on the same SQLite file can write too.
//!
//! Only one process at a time writes to an SQLite database, and a waiting process polls at least every 100 ms. A command
//! that writes without a pause would keep the server waiting until its requests time out.

use std::time::{Duration, Instant};

/// How long this process writes before it pauses.
const WRITE_TIME: Duration = Duration::from_millis(200);
/// How long it pauses: longer than the polling interval of a waiting process.
const PAUSE: Duration = Duration::from_millis(120);

/// Pauses between writes on databases that only one process at a time can write to.
pub struct WriteThrottle {
    shared_file: bool,
    written: Duration,
}

impl WriteThrottle {
    /// For a database file that a server may write to at the same time.
    pub fn of_shared_file() -> Self {
        Self { shared_file: true, written: Duration::ZERO }
    }

    /// For a database server, which needs no pauses.
    pub fn none() -> Self {
        Self { shared_file: false, written: Duration::ZERO }
    }

    /// Runs one write, and pauses afterwards if this process has written for long enough.
    pub async fn write<T>(&mut self, write: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let written = write.await;
        self.written += begun.elapsed();
        if self.shared_file && self.written >= WRITE_TIME {
            tokio::time::sleep(PAUSE).await;
            self.written = Duration::ZERO;
        }
        written
    }
}
