//! Limits how many turns run at once. A turn above the limit is refused at once instead of waiting.

use std::{sync::Arc, time::Duration};

use amalgam_core::{Fault, FaultKind};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// The admission of turns in this process.
#[derive(Debug, Clone)]
pub struct Admission {
    room: Arc<Semaphore>,
    size: usize,
    /// Whether running turns must end.
    shutdown: Arc<watch::Sender<bool>>,
    /// Notified when a slot is released.
    freed: Arc<Notify>,
}

/// The slot of a running turn, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    permit: Option<OwnedSemaphorePermit>,
    shutdown: watch::Receiver<bool>,
    freed: Arc<Notify>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Released before the notification, so that the notified task can take it.
        drop(self.permit.take());
        self.freed.notify_one();
    }
}

impl Slot {
    /// Whether the turn must end.
    pub(crate) fn is_shutting_down(&self) -> bool {
        *self.shutdown.borrow()
    }

    /// Resolves when the turn must end because the process shuts down.
    pub(crate) fn shutdown(&self) -> impl Future<Output = Fault> + Send + 'static {
        let mut shutdown = self.shutdown.clone();
        async move {
            // The engine holds the sender as long as turns run.
            let _ = shutdown.wait_for(|shutdown| *shutdown).await;
            shutting_down()
        }
    }
}

fn shutting_down() -> Fault {
    Fault::new(FaultKind::ShuttingDown, "The server is shutting down.").retry_after(Some(Duration::from_secs(5)))
}

impl Admission {
    /// Admits `size` turns at once.
    pub fn new(size: usize) -> Self {
        Self {
            room: Arc::new(Semaphore::new(size)),
            size,
            shutdown: Arc::new(watch::Sender::new(false)),
            freed: Arc::default(),
        }
    }

    /// The number of turns that run now.
    pub fn in_flight(&self) -> usize {
        self.size.saturating_sub(self.room.available_permits())
    }

    /// The number of turns that can start now.
    pub(crate) fn room(&self) -> usize {
        match self.room.is_closed() {
            true => 0,
            false => self.room.available_permits(),
        }
    }

    /// Resolves when a slot was released since the last wait. One task waits at a time.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Refuses new turns from now on.
    pub fn close(&self) {
        self.room.close();
    }

    /// Ends every running turn; its caller receives a fault.
    pub fn end_turns(&self) {
        self.shutdown.send_replace(true);
    }

    pub(crate) fn enter(&self) -> Result<Slot, Fault> {
        match Arc::clone(&self.room).try_acquire_owned() {
            Ok(permit) => {
                let (shutdown, freed) = (self.shutdown.subscribe(), Arc::clone(&self.freed));
                Ok(Slot { permit: Some(permit), shutdown, freed })
            }
            Err(tokio::sync::TryAcquireError::NoPermits) => {
                Err(Fault::new(FaultKind::Overloaded, "The server is busy; try again in a moment.")
                    .retry_after(Some(Duration::from_secs(1))))
            }
            Err(tokio::sync::TryAcquireError::Closed) => Err(shutting_down()),
        }
    }
}
