//! Background turns: their slots in the queue, and how they run until they end, are cancelled, or go to another
//! process.

use std::{sync::Arc, time::Duration};

use amalgam_core::{
    Delivery, Fault, FaultKind, Operator, Scope, StoreError, StoredPart, TurnOrigin, TurnSummary, store::TurnWrite,
    store::WriteOutcome,
};
use amalgam_protocol::{ErrorObject, Provenance, Status};
use futures_util::StreamExt;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::{
    call_record::CallRecord,
    drive::FinishedTurn,
    engine::{Engine, Identity},
    recorder,
    run::{Run, wait_for_cancellation},
    running_turns::ClaimGuard,
};

/// Limits of the background queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Waiting turns of one tenant.
    pub of_tenant: u64,
    /// Waiting turns of all tenants.
    pub of_all: u64,
}

/// A slot in the background queue, held until the turn is in the store.
#[derive(Debug)]
pub struct QueueSlot {
    _counted: Arc<()>,
}

/// The `Retry-After` of a caller for which the queue is full.
const RETRY_AFTER: Duration = Duration::from_secs(5);

impl Engine {
    /// Reserves a slot in the queue. Exact within one process; several processes may exceed a limit by the number of
    /// turns that they accept at the same moment.
    pub async fn reserve_queue_slot(&self, scope: &Scope, limits: QueueLimits) -> Result<QueueSlot, Fault> {
        let slot = QueueSlot { _counted: Arc::clone(&self.running.queueing) };
        // Counted before the store is read: a turn that releases its slot in between is in the store by then.
        let pending = (Arc::strong_count(&self.running.queueing) - 1) as u64;
        let counted = self.running.store.count_queued(Operator::of_this_process(), scope.tenant_id()).await?;
        match counted.0 + pending <= limits.of_tenant && counted.1 + pending <= limits.of_all {
            true => Ok(slot),
            false => {
                Err(Fault::new(FaultKind::Overloaded, "Too many background responses are waiting; try again later.")
                    .retry_after(Some(RETRY_AFTER)))
            }
        }
    }

    /// Runs a turn to its end even if its caller disconnects. The receiver gets a whole answer; a stream is followed
    /// through the store.
    pub fn detach(&self, run: Box<Run>) -> oneshot::Receiver<Result<FinishedTurn, Fault>> {
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

    /// Spawns a task that outlives its request.
    pub fn spawn_detached(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.tasks.spawn(task);
    }

    /// Registers, before the claim is made, that a request of this process holds it. Housekeeping releases claims of
    /// this process that have neither a guard nor a running turn.
    pub fn guard_claim(&self, response_id: &str) -> ClaimGuard {
        self.running.guard_claim(response_id)
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

    /// Returns a turn to the queue, for another process.
    pub async fn hand_over(&self, response_id: &str) {
        let ids = [response_id.to_owned()];
        match self.running.store.give_back(Operator::of_this_process(), self.running.process, &ids).await {
            Ok(()) => info!(response.id = response_id, "a background turn waits for another process"),
            // Other processes find the turn when this process has no heartbeat.
            Err(error) => warn!(response.id = response_id, "a background turn could not be handed over: {error}"),
        }
    }

    /// Fails a turn of this process that was never started. Returns its summary, unless it has ended before.
    pub async fn fail_unstarted(
        &self,
        scope: &Scope,
        identity: &Identity,
        origin: TurnOrigin,
        error: ErrorObject,
    ) -> Result<Option<Box<TurnSummary>>, StoreError> {
        let summary = Box::new(TurnSummary {
            response_id: identity.response_id.clone(),
            tenant_id: scope.tenant_id(),
            user: Arc::clone(scope.user_id()),
            origin,
            status: Status::Failed,
            error: Some(error.code.clone().unwrap_or_else(|| error.kind.to_string())),
            created_at_ms: identity.created_at_ms,
            ended_at_ms: Some(self.clock.now_ms()),
            first_token_ms: None,
            calls: Vec::new(),
            tools: Vec::new(),
            spans: Vec::new(),
            losses: 0,
            stored: true,
        });
        let write = TurnWrite {
            response_id: identity.response_id.clone(),
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
            summary: Some(summary.clone()),
            answer: None,
            settlements: Vec::new(),
        };
        let written = self.running.write(scope, write.into(), StoredPart::End, &CallRecord::default()).await?;
        Ok((written == WriteOutcome::Kept).then_some(summary))
    }

    async fn stream_in_background(&self, run: Box<Run>) -> bool {
        let mut shutdown = std::pin::pin!(run.slot.shutdown());
        let mut cancelled = run.cancelled();
        let mut frames = run.into_events();
        let mut can_hand_over = true;
        loop {
            tokio::select! {
                biased;
                // Dropping the frames ends the upstream call. The cancellation is stored already.
                () = wait_for_cancellation(&mut cancelled) => return false,
                _ = &mut shutdown, if can_hand_over => {
                    if frames.hand_over().await {
                        return true;
                    }
                    // The turn has produced output, so no other process can restart it: the stream fails.
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
