//! Limits how many turns run at once. A turn above the limit is refused at once instead of waiting.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::{Fault, FaultKind};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// The admission of turns in this process.
#[derive(Debug, Clone)]
pub struct Admission {
    room: Arc<Semaphore>,
    size: Arc<Mutex<Size>>,
    /// Whether running turns must end.
    shutdown: Arc<watch::Sender<bool>>,
    /// Notified when a slot is released.
    freed: Arc<Notify>,
}

/// The limit, and the slots above it that were taken before it was lowered.
#[derive(Debug, Clone, Copy)]
struct Size {
    limit: usize,
    excess: usize,
}

fn locked(size: &Mutex<Size>) -> MutexGuard<'_, Size> {
    size.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The slot of a running turn, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    permit: Option<OwnedSemaphorePermit>,
    size: Arc<Mutex<Size>>,
    shutdown: watch::Receiver<bool>,
    freed: Arc<Notify>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Released before the notification, so that the notified task can take it.
        if let Some(permit) = self.permit.take() {
            let mut size = locked(&self.size);
            match size.excess {
                0 => drop(permit),
                _ => {
                    size.excess -= 1;
                    permit.forget();
                }
            }
        }
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
            size: Arc::new(Mutex::new(Size { limit: size, excess: 0 })),
            shutdown: Arc::new(watch::Sender::new(false)),
            freed: Arc::default(),
        }
    }

    /// The number of turns that run now.
    pub fn in_flight(&self) -> usize {
        let Size { limit, excess } = *locked(&self.size);
        (limit + excess).saturating_sub(self.room.available_permits())
    }

    /// Changes the limit for new turns. Running turns continue, also those above a lower limit.
    pub fn resize(&self, limit: usize) {
        let mut size = locked(&self.size);
        match limit.checked_sub(size.limit) {
            Some(more) => {
                let kept = more.min(size.excess);
                size.excess -= kept;
                self.room.add_permits(more - kept);
            }
            None => {
                let fewer = size.limit - limit;
                size.excess += fewer - self.room.forget_permits(fewer);
            }
        }
        size.limit = limit;
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
                Ok(Slot { permit: Some(permit), size: Arc::clone(&self.size), shutdown, freed })
            }
            Err(tokio::sync::TryAcquireError::NoPermits) => {
                Err(Fault::new(FaultKind::Overloaded, "The server is busy; try again in a moment.")
                    .retry_after(Some(Duration::from_secs(1))))
            }
            Err(tokio::sync::TryAcquireError::Closed) => Err(shutting_down()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_limit_counts_the_turns_that_run() {
        let admission = Admission::new(3);
        let mut slots: Vec<Slot> = (0..3).map(|_| admission.enter().unwrap()).collect();
        admission.resize(1);
        assert_eq!((admission.in_flight(), admission.room()), (3, 0));
        slots.truncate(1);
        assert_eq!((admission.in_flight(), admission.room()), (1, 0), "two slots are gone for good");
        assert!(admission.enter().is_err());
        admission.resize(2);
        slots.push(admission.enter().unwrap());
        assert!(admission.enter().is_err());
        // Lowered below what runs, and raised again before anything has ended.
        admission.resize(1);
        admission.resize(4);
        assert_eq!((admission.in_flight(), admission.room()), (2, 2));
        slots.clear();
        assert_eq!((admission.in_flight(), admission.room()), (0, 4));
    }
}
