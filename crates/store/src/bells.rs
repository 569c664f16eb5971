//! Who waits for news of a response, in this process. Shared by the engines.
//!
//! Waiting begins at the call, not at the first poll, so that nothing that happens in between is missed. A name that
//! nobody waits for takes no memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use amalgam_core::BoxFuture;
use tokio::sync::{Notify, futures::OwnedNotified};

/// Names, and who waits for each.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    waiting: Mutex<HashMap<Arc<str>, Bell>>,
}

#[derive(Debug, Default)]
struct Bell {
    notify: Arc<Notify>,
    waiters: usize,
}

impl Bells {
    /// Comes back at the next ring of `name` after this call.
    pub(crate) fn wait(self: &Arc<Self>, name: &str) -> BoxFuture<'static, ()> {
        let waiter = Waiter::new(Arc::clone(self), name);
        Box::pin(async move {
            let mut waiter = waiter;
            if let Some(notified) = waiter.notified.take() {
                notified.await;
            }
        })
    }

    /// Wakes whoever waits for one of these names.
    pub(crate) fn ring<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut waiting = self.lock();
        for name in names {
            if waiting.is_empty() {
                return;
            }
            if let Some(bell) = waiting.remove(name) {
                bell.notify.notify_waiters();
            }
        }
    }

    /// Wakes everybody: something may have happened that was not told.
    pub(crate) fn ring_all(&self) {
        for (_, bell) in self.lock().drain() {
            bell.notify.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Bell>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Waiter {
    bells: Arc<Bells>,
    name: Arc<str>,
    notify: Arc<Notify>,
    notified: Option<OwnedNotified>,
}

impl Waiter {
    fn new(bells: Arc<Bells>, name: &str) -> Self {
        let mut waiting = bells.lock();
        let name = waiting.get_key_value(name).map_or_else(|| Arc::from(name), |(known, _)| Arc::clone(known));
        let bell = waiting.entry(Arc::clone(&name)).or_default();
        bell.waiters += 1;
        let notify = Arc::clone(&bell.notify);
        // Made under the lock: a ring that comes behind it finds this waiter, polled or not.
        let notified = Some(Arc::clone(&notify).notified_owned());
        drop(waiting);
        Self { bells, name, notify, notified }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.bells.lock();
        // A bell that was rung is gone; one of the same name may be somebody else's.
        let Some(bell) = waiting.get_mut(&self.name).filter(|bell| Arc::ptr_eq(&bell.notify, &self.notify)) else {
            return;
        };
        bell.waiters -= 1;
        if bell.waiters == 0 {
            waiting.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn is_ready(future: &mut Pin<Box<dyn Future<Output = ()> + Send>>) -> bool {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn a_ring_between_the_call_and_the_first_poll_is_heard() {
        let bells = Arc::new(Bells::default());
        let mut first = bells.wait("resp_1");
        let mut other = bells.wait("resp_2");
        bells.ring(["resp_1"]);
        let mut late = bells.wait("resp_1");
        assert!(is_ready(&mut first));
        assert!(!is_ready(&mut other));
        assert!(!is_ready(&mut late));
        bells.ring_all();
        assert!(is_ready(&mut other));
        assert!(is_ready(&mut late));
    }

    #[test]
    fn names_vanish_when_nobody_waits_for_them() {
        let bells = Arc::new(Bells::default());
        let first = bells.wait("resp_1");
        let second = bells.wait("resp_1");
        drop(first);
        assert_eq!(bells.lock().len(), 1);
        drop(second);
        assert_eq!(bells.lock().len(), 0);

        let mut rung = bells.wait("resp_1");
        bells.ring(["resp_1"]);
        let newer = bells.wait("resp_1");
        assert!(is_ready(&mut rung));
        drop(rung);
        assert_eq!(bells.lock().len(), 1, "the waiter that came later is still there");
        drop(newer);
        assert_eq!(bells.lock().len(), 0);
    }
}
