//! How many turns run at once. Beyond that a turn is refused at once rather than made to wait.

use std::{sync::Arc, time::Duration};

use amalgam_core::{Fault, FaultKind};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// The room for turns in this process.
#[derive(Debug, Clone)]
pub struct Admission {
    room: Arc<Semaphore>,
    size: usize,
    /// Whether turns that still run have to end.
    over: Arc<watch::Sender<bool>>,
    /// Rings when a place has become free.
    freed: Arc<Notify>,
}

/// A turn's place; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    permit: Option<OwnedSemaphorePermit>,
    over: watch::Receiver<bool>,
    freed: Arc<Notify>,
}

impl Drop for Place {
    fn drop(&mut self) {
        // Free before anybody hears of it.
        drop(self.permit.take());
        self.freed.notify_one();
    }
}

impl Place {
    /// Whether the turn has to end.
    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Comes back when the turn has to end, whatever it is doing.
    pub(crate) fn over(&self) -> impl Future<Output = Fault> + Send + 'static {
        let mut over = self.over.clone();
        async move {
            // The sender is part of the admission that the engine holds.
            let _ = over.wait_for(|over| *over).await;
            shutting_down()
        }
    }
}

fn shutting_down() -> Fault {
    Fault::new(FaultKind::ShuttingDown, "The server is shutting down.").retry_after(Some(Duration::from_secs(5)))
}

impl Admission {
    /// Room for `size` turns at once.
    pub fn new(size: usize) -> Self {
        Self {
            room: Arc::new(Semaphore::new(size)),
            size,
            over: Arc::new(watch::Sender::new(false)),
            freed: Arc::default(),
        }
    }

    /// Turns that run now.
    pub fn in_flight(&self) -> usize {
        self.size.saturating_sub(self.room.available_permits())
    }

    /// Turns that could start now.
    pub(crate) fn room(&self) -> usize {
        match self.room.is_closed() {
            true => 0,
            false => self.room.available_permits(),
        }
    }

    /// Resolves when a place has become free since the last wait. One task waits at a time.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// No turn starts from now on.
    pub fn close(&self) {
        self.room.close();
    }

    /// Every turn that still runs ends now, and says so to its caller.
    pub fn end_turns(&self) {
        self.over.send_replace(true);
    }

    pub(crate) fn enter(&self) -> Result<Place, Fault> {
        match Arc::clone(&self.room).try_acquire_owned() {
            Ok(permit) => {
                let (over, freed) = (self.over.subscribe(), Arc::clone(&self.freed));
                Ok(Place { permit: Some(permit), over, freed })
            }
            Err(tokio::sync::TryAcquireError::NoPermits) => {
                Err(Fault::new(FaultKind::Overloaded, "The server is busy; try again in a moment.")
                    .retry_after(Some(Duration::from_secs(1))))
            }
            Err(tokio::sync::TryAcquireError::Closed) => Err(shutting_down()),
        }
    }
}
