//! Tasks that outlive the request that started them. The engine owns them and can wait for them.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use amalgam_core::BoxFuture;
use tokio::{
    runtime::Handle,
    task::JoinSet,
    time::{Instant, timeout_at},
};

/// The tasks of one engine. Clones share one set.
#[derive(Clone, Default)]
pub(crate) struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    /// Spawns a task. Without a runtime, which only happens while the process exits, the task is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Ok(handle) = Handle::try_current() else { return };
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, &handle);
    }

    /// A future that continues as a task if it is dropped before it is ready.
    pub(crate) fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> BoxFuture<'static, T> {
        Box::pin(RunToCompletion { work: Some(Box::pin(work)), tasks: self.clone() })
    }

    /// Waits until every task has ended, at most for `patience`. Tasks that remain are aborted.
    pub(crate) async fn finish(&self, patience: Option<Duration>) {
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            // A task may spawn others, so the set is taken again until it is empty.
            let mut tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            if tasks.is_empty() {
                return;
            }
            let over = async { while tasks.join_next().await.is_some() {} };
            match until {
                None => over.await,
                Some(until) => {
                    if timeout_at(until, over).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

struct RunToCompletion<T: Send + 'static> {
    work: Option<BoxFuture<'static, T>>,
    tasks: Tasks,
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let work = self.work.as_mut().expect("a future is not polled after it is ready");
        let done = std::task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(done)
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.tasks.spawn(async move {
                work.await;
            });
        }
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tasks")
    }
}
