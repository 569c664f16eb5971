//! Limits how many turns run at once. A turn above the limit waits for a slot; free slots go to the waiting tenants in turn,
//! so that one tenant with many requests cannot keep the others out.

mod queue;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::{Fault, FaultKind};
use tokio::{
    sync::{Notify, oneshot, watch},
    time::timeout,
};

use queue::{Grant, Queue, Ticket};

/// How many turns run and wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionSettings {
    /// Turns that run at once.
    pub max_in_flight: usize,
    /// Turns of one tenant that run at once.
    pub max_in_flight_per_tenant: usize,
    /// Turns that wait for a slot.
    pub max_waiting: usize,
    /// The longest time that a turn waits for a slot.
    pub queue_wait: Duration,
}

impl AdmissionSettings {
    /// Admits `size` turns at once, of any tenant. Further turns are refused at once.
    pub fn without_queue(size: usize) -> Self {
        Self { max_in_flight: size, max_in_flight_per_tenant: size, max_waiting: 0, queue_wait: Duration::ZERO }
    }
}

/// The admission of turns in this process.
#[derive(Debug, Clone)]
pub struct Admission {
    shared: Arc<Shared>,
    /// Whether running turns must end.
    shutdown: Arc<watch::Sender<bool>>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue<oneshot::Sender<Slot>>>,
    /// Notified when a slot is released.
    freed: Notify,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue<oneshot::Sender<Slot>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes granted slots on. The queue must not be locked: a slot whose receiver is gone is dropped, which locks it.
    fn hand_out(self: &Arc<Self>, granted: Vec<Grant<oneshot::Sender<Slot>>>, shutdown: &watch::Receiver<bool>) {
        for Grant { tenant_id, waiter } in granted {
            drop(waiter.send(Slot { shared: Arc::clone(self), tenant_id, shutdown: shutdown.clone() }));
        }
    }
}

/// The slot of a running turn, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    shared: Arc<Shared>,
    tenant_id: i64,
    shutdown: watch::Receiver<bool>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let granted = self.shared.queue().release(self.tenant_id);
        self.shared.hand_out(granted, &self.shutdown);
        // Last, so that the notified task can take the slot.
        self.shared.freed.notify_one();
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

fn busy() -> Fault {
    Fault::new(FaultKind::Overloaded, "The server is busy; try again in a moment.")
        .retry_after(Some(Duration::from_secs(1)))
}

/// Removes a turn from the queue when it stops waiting for any reason.
struct Waiting<'a> {
    shared: &'a Shared,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.queue().leave(self.ticket);
    }
}

impl Admission {
    /// Admits turns by these settings.
    pub fn new(settings: AdmissionSettings) -> Self {
        let shared = Shared { queue: Mutex::new(Queue::new(settings)), freed: Notify::new() };
        Self { shared: Arc::new(shared), shutdown: Arc::new(watch::Sender::new(false)) }
    }

    /// The number of turns that run now.
    pub fn in_flight(&self) -> usize {
        self.shared.queue().in_flight()
    }

    /// The number of turns that wait for a slot.
    pub fn waiting(&self) -> usize {
        self.shared.queue().waiting()
    }

    /// Changes the limits for new turns. Running turns continue, also those above a lower limit.
    pub fn change(&self, settings: AdmissionSettings) {
        let granted = self.shared.queue().change(settings);
        self.shared.hand_out(granted, &self.shutdown.subscribe());
    }

    /// The longest time that a turn waits for a slot.
    pub(crate) fn queue_wait(&self) -> Duration {
        self.shared.queue().queue_wait()
    }

    /// The number of turns that can start now.
    pub(crate) fn room(&self) -> usize {
        self.shared.queue().room()
    }

    /// Resolves when a slot was released since the last wait. One task waits at a time.
    pub(crate) async fn freed(&self) {
        self.shared.freed.notified().await;
    }

    /// Refuses new and waiting turns from now on.
    pub fn close(&self) {
        // Dropped without the lock: the tasks that waited drop their tickets.
        let waiters = self.shared.queue().close();
        drop(waiters);
    }

    /// Ends every running turn; its caller receives a fault.
    pub fn end_turns(&self) {
        self.shutdown.send_replace(true);
    }

    /// A slot for a turn of this tenant, at once or after waiting for it at most so long.
    pub(crate) async fn enter(&self, tenant_id: i64, queue_wait: Duration) -> Result<Slot, Fault> {
        let (waiting, slot) = {
            let mut queue = self.shared.queue();
            if queue.is_closed() {
                return Err(shutting_down());
            }
            if queue.enter(tenant_id) {
                drop(queue);
                return Ok(Slot { shared: Arc::clone(&self.shared), tenant_id, shutdown: self.shutdown.subscribe() });
            }
            let (sender, slot) = oneshot::channel();
            let ticket = if queue_wait.is_zero() { None } else { queue.wait(tenant_id, sender) };
            let Some(ticket) = ticket else { return Err(busy()) };
            (Waiting { shared: &self.shared, ticket }, slot)
        };
        let granted = timeout(queue_wait, slot).await;
        drop(waiting);
        match granted {
            Ok(Ok(slot)) => Ok(slot),
            // `close` has dropped the sender.
            Ok(Err(_)) => Err(shutting_down()),
            Err(_) => Err(busy()),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const WAIT: Duration = Duration::from_secs(2);

    fn queued(size: usize) -> Admission {
        let settings = AdmissionSettings { max_waiting: 8, queue_wait: WAIT, ..AdmissionSettings::without_queue(size) };
        Admission::new(settings)
    }

    fn kind(result: Result<Slot, Fault>) -> FaultKind {
        result.expect_err("no slot is free").kind
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_above_the_limit_waits_for_a_slot() {
        let admission = queued(1);
        let slot = admission.enter(1, WAIT).await.unwrap();
        let (second, ()) = tokio::join!(admission.enter(1, WAIT), async {
            tokio::time::sleep(WAIT / 2).await;
            assert_eq!(admission.waiting(), 1);
            drop(slot);
        });
        assert!(second.is_ok());
        assert_eq!((admission.in_flight(), admission.waiting()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_waited_too_long_is_refused_and_leaves_the_queue() {
        let admission = queued(1);
        let _slot = admission.enter(1, WAIT).await.unwrap();
        let started = tokio::time::Instant::now();
        assert_eq!(kind(admission.enter(1, WAIT).await), FaultKind::Overloaded);
        assert_eq!((started.elapsed(), admission.waiting()), (WAIT, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_disconnects_leaves_the_queue_and_loses_no_slot() {
        let admission = queued(1);
        let slot = admission.enter(1, WAIT).await.unwrap();
        assert!(timeout(WAIT / 2, admission.enter(2, WAIT)).await.is_err());
        assert_eq!(admission.waiting(), 0);
        drop(slot);
        assert_eq!(admission.in_flight(), 0);
        assert!(admission.enter(3, WAIT).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_is_granted_to_a_dropped_future_is_free_again() {
        let admission = queued(1);
        let slot = admission.enter(1, WAIT).await.unwrap();
        let mut waiting = Box::pin(admission.enter(2, WAIT));
        assert!((&mut waiting).now_or_never().is_none());
        // Granted, but the future is never polled again.
        drop(slot);
        drop(waiting);
        assert_eq!((admission.in_flight(), admission.room()), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_refuses_waiting_turns_at_once() {
        let admission = queued(1);
        let _slot = admission.enter(1, WAIT).await.unwrap();
        let (refused, ()) = tokio::join!(admission.enter(1, WAIT), async { admission.close() });
        assert_eq!(kind(refused), FaultKind::ShuttingDown);
        assert_eq!(kind(admission.enter(1, WAIT).await), FaultKind::ShuttingDown);
    }
}
