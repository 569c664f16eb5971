//! Turns without a waiting caller: their room in the queue, and how they run until their end, until they are cancelled, or
//! until another process has to go on.

use std::{sync::Arc, time::Duration};

use amalgam_core::{Delivery, Fault, FaultKind, Operator, Scope, StoreError, store::TurnWrite, store::Written};
use amalgam_protocol::{ErrorObject, Provenance};
use futures_util::StreamExt;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::{
    recorder,
    run::{Engine, Run, stop},
    running_turns::ClaimGuard,
};

/// How many turns may wait for a process.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Those of one tenant.
    pub of_tenant: u64,
    /// Those of all tenants together.
    pub of_all: u64,
}

/// A turn's place in the queue, held until the store has it.
#[derive(Debug)]
pub struct QueuePlace {
    _counted: Arc<()>,
}

/// When a caller that found no place in the queue may try again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

impl Engine {
    /// A place in the queue, or the fault that there is none. Within one process no two get the same place; several
    /// processes may go past the limit by as many turns as they take in at the same moment.
    pub async fn queue_place(&self, scope: &Scope, limits: QueueLimits) -> Result<QueuePlace, Fault> {
        let place = QueuePlace { _counted: Arc::clone(&self.running.queueing) };
        // Counted before the store is asked: who is not on the way any more by then is in the store.
        let on_the_way = (Arc::strong_count(&self.running.queueing) - 1) as u64;
        let counted = self.running.store.count_queued(Operator::of_this_process(), scope.tenant_id()).await?;
        match counted.0 + on_the_way <= limits.of_tenant && counted.1 + on_the_way <= limits.of_all {
            true => Ok(place),
            false => {
                Err(Fault::new(FaultKind::Overloaded, "Too many background responses are waiting; try again later.")
                    .retry_after(Some(RETRY_AFTER)))
            }
        }
    }

    /// Runs a turn to its end also when its caller leaves. The whole answer comes back for a caller that is
    /// still there; a streamed one is followed through the store.
    pub fn detach(&self, run: Box<Run>) -> oneshot::Receiver<Result<Vec<u8>, Fault>> {
        let (answered, answer) = oneshot::channel();
        self.running.tasks.spawn(async move {
            match run.delivery() {
                Delivery::Whole => {
                    let _ = answered.send(run.finish().await);
                }
                Delivery::Stream => {
                    let mut frames = run.into_events();
                    while frames.next().await.is_some() {}
                }
            }
        });
        answer
    }

    /// Starts something that outlives its request.
    pub fn outlive(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.tasks.spawn(task);
    }

    /// Announces, before it is claimed, that this process works on the request of a claim. What this process has claimed without
    /// anybody having such a guard, or a turn that runs, is given back.
    pub fn guard_claim(&self, response_id: &str) -> ClaimGuard {
        self.running.claim(response_id)
    }

    /// Runs a background turn.
    pub async fn run_in_background(&self, run: Box<Run>) {
        let id = run.response_id().to_owned();
        let handed_over = match run.delivery() {
            Delivery::Whole => run.finish_in_background().await,
            Delivery::Stream => self.stream_in_background(run).await,
        };
        if handed_over {
            self.hand_over(&id).await;
        }
    }

    /// Gives a turn back that this process will not run: another one does.
    pub async fn hand_over(&self, response_id: &str) {
        let ids = [response_id.to_owned()];
        match self.running.store.give_back(Operator::of_this_process(), self.running.process, &ids).await {
            Ok(()) => info!(response.id = response_id, "a background turn waits for another process"),
            // It is found by its lease.
            Err(error) => warn!(response.id = response_id, "a background turn could not be handed over: {error}"),
        }
    }

    /// Ends a turn of this process that did not come to run.
    pub async fn give_up(&self, scope: &Scope, response_id: &str, error: ErrorObject) -> Result<Written, StoreError> {
        let write = TurnWrite {
            response_id: response_id.to_owned(),
            process: self.running.process,
            begin: None,
            started: false,
            events: None,
            end: Some(Box::new(recorder::failed(error, Provenance::default()))),
            transcripts: Vec::new(),
            raw_answer: None,
            tools: Vec::new(),
            approvals: Vec::new(),
            session: None,
            answer: None,
        };
        self.running.store.write(scope, write.into()).await
    }

    async fn stream_in_background(&self, run: Box<Run>) -> bool {
        let mut over = std::pin::pin!(run.place.over());
        let mut stopped = run.stopped();
        let mut frames = run.into_events();
        let mut can_hand_over = true;
        loop {
            tokio::select! {
                biased;
                // Dropping the frames ends the upstream's call; the store knows already.
                () = stop(&mut stopped) => return false,
                _ = &mut over, if can_hand_over => {
                    if frames.hand_over().await {
                        return true;
                    }
                    // Too much was told to begin anew elsewhere: the stream fails by itself.
                    can_hand_over = false;
                }
                frame = frames.next() => {
                    if frame.is_none() {
                        return false;
                    }
                }
            }
        }
    }
}
