//! Notifications of changes, for the tasks of this process that wait for them. Shared by the engines.
//!
//! Waiting begins at the call, not at the first poll, so that nothing that happens in between is missed. A topic without
//! waiting tasks takes no memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use amalgam_core::{BoxFuture, LimitKind, LimitSubject, store::StoreMeter};
use tokio::sync::{Notify, futures::OwnedNotified};
use tracing::warn;

/// Topics by name: the id of a response, or the queue of a session.
#[derive(Debug, Default)]
pub struct Notifications {
    waiting: Mutex<HashMap<Arc<str>, Topic>>,
    /// Counts what a committed transaction of this process reports.
    meter: StoreMeter,
}

/// A budget that has reached a threshold: a topic that stays in this process.
const BUDGET_REACHED: &str = "budget reached/";

/// The topic that reports the threshold which the budget of a limit has reached.
pub(crate) fn budget_reached(subject: &LimitSubject, percent: u64) -> String {
    format!("{BUDGET_REACHED}{}/{percent}/{}/{}", subject.kind.name(), subject.tenant_id, subject.id)
}

#[derive(Debug, Default)]
struct Topic {
    notify: Arc<Notify>,
    waiters: usize,
}

impl Notifications {
    /// Without topics; reports count here.
    pub fn counting(meter: StoreMeter) -> Self {
        Self { meter, ..Self::default() }
    }

    /// Reports a budget that has reached a threshold.
    fn report(&self, reached: &str) {
        let mut parts = reached.splitn(4, '/');
        let mut part = || parts.next().unwrap_or_default();
        let (kind, percent, tenant_id, id) = (part(), part(), part(), part());
        let Some(of_kind) = LimitKind::named(kind) else { return };
        self.meter.budget_reached(of_kind, percent.parse().unwrap_or_default());
        warn!(kind, tenant = tenant_id, id, percent, "a budget has reached {percent} %");
    }

    /// Resolves at the next notification of `name` after this call.
    pub fn wait(self: &Arc<Self>, name: &str) -> BoxFuture<'static, ()> {
        let waiter = Waiter::new(Arc::clone(self), name);
        Box::pin(async move {
            let mut waiter = waiter;
            if let Some(notified) = waiter.notified.take() {
                notified.await;
            }
        })
    }

    /// Wakes the tasks that wait for one of these names.
    pub fn notify<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut reports = Vec::new();
        let mut waiting = self.lock();
        for name in names {
            if let Some(reached) = name.strip_prefix(BUDGET_REACHED) {
                reports.push(reached);
            } else if let Some(topic) = waiting.remove(name) {
                topic.notify.notify_waiters();
            }
        }
        drop(waiting);
        reports.into_iter().for_each(|reached| self.report(reached));
    }

    /// Wakes every waiting task: a notification may have been missed.
    pub fn notify_all(&self) {
        for (_, topic) in self.lock().drain() {
            topic.notify.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Topic>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Waiter {
    notifications: Arc<Notifications>,
    name: Arc<str>,
    notify: Arc<Notify>,
    notified: Option<OwnedNotified>,
}

impl Waiter {
    fn new(notifications: Arc<Notifications>, name: &str) -> Self {
        let mut waiting = notifications.lock();
        let name = waiting.get_key_value(name).map_or_else(|| Arc::from(name), |(known, _)| Arc::clone(known));
        let topic = waiting.entry(Arc::clone(&name)).or_default();
        topic.waiters += 1;
        let notify = Arc::clone(&topic.notify);
        // Made under the lock: a later notification finds this waiter, polled or not.
        let notified = Some(Arc::clone(&notify).notified_owned());
        drop(waiting);
        Self { notifications, name, notify, notified }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.notifications.lock();
        // A notified topic is removed from the map; a topic that has the same name now belongs to other waiters.
        let Some(topic) = waiting.get_mut(&self.name).filter(|topic| Arc::ptr_eq(&topic.notify, &self.notify)) else {
            return;
        };
        topic.waiters -= 1;
        if topic.waiters == 0 {
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
    fn a_notification_between_the_call_and_the_first_poll_is_received() {
        let notifications = Arc::new(Notifications::default());
        let mut first = notifications.wait("resp_1");
        let mut other = notifications.wait("resp_2");
        notifications.notify(["resp_1"]);
        let mut late = notifications.wait("resp_1");
        assert!(is_ready(&mut first));
        assert!(!is_ready(&mut other));
        assert!(!is_ready(&mut late));
        notifications.notify_all();
        assert!(is_ready(&mut other));
        assert!(is_ready(&mut late));
    }

    #[test]
    fn topics_without_waiters_are_removed() {
        let notifications = Arc::new(Notifications::default());
        let first = notifications.wait("resp_1");
        let second = notifications.wait("resp_1");
        drop(first);
        assert_eq!(notifications.lock().len(), 1);
        drop(second);
        assert_eq!(notifications.lock().len(), 0);

        let mut notified = notifications.wait("resp_1");
        notifications.notify(["resp_1"]);
        let newer = notifications.wait("resp_1");
        assert!(is_ready(&mut notified));
        drop(notified);
        assert_eq!(notifications.lock().len(), 1, "the waiter that came later is still there");
        drop(newer);
        assert_eq!(notifications.lock().len(), 0);
    }
}
