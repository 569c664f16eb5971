//! How many turns run at once. Beyond that a turn is refused at once rather than made to wait.

use std::{sync::Arc, time::Duration};

use amalgam_core::{Fault, FaultKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The room for turns in this process.
#[derive(Debug, Clone)]
pub struct Admission {
    room: Arc<Semaphore>,
    size: usize,
}

/// A turn's place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place(#[expect(dead_code, reason = "held, never read: dropping it is its use")] OwnedSemaphorePermit);

impl Admission {
    /// Room for `size` turns at once.
    pub fn new(size: usize) -> Self {
        Self { room: Arc::new(Semaphore::new(size)), size }
    }

    /// Turns that run now.
    pub fn in_flight(&self) -> usize {
        self.size.saturating_sub(self.room.available_permits())
    }

    /// No turn starts from now on.
    pub fn close(&self) {
        self.room.close();
    }

    pub(crate) fn enter(&self) -> Result<Place, Fault> {
        match Arc::clone(&self.room).try_acquire_owned() {
            Ok(permit) => Ok(Place(permit)),
            Err(tokio::sync::TryAcquireError::NoPermits) => {
                Err(Fault::new(FaultKind::Overloaded, "The server is busy; try again in a moment.")
                    .retry_after(Some(Duration::from_secs(1))))
            }
            Err(tokio::sync::TryAcquireError::Closed) => {
                Err(Fault::new(FaultKind::ShuttingDown, "The server is shutting down.")
                    .retry_after(Some(Duration::from_secs(5))))
            }
        }
    }
}
