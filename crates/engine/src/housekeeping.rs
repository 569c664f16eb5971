//! Periodic work of a process: it sends heartbeats, ends turns of dead processes, runs queued turns, and prunes expired
//! rows.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use amalgam_core::{
    BoxFuture, Fault, FaultKind, Operator, Scope, StoreError, TurnOrigin,
    store::{ProcessId, QueuedTurn, Retention},
};
use amalgam_protocol::{ErrorObject, Status};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{debug, info, warn};

use crate::engine::{Engine, Identity};

/// The interval of heartbeats, and of checks of other processes.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// A process without a new heartbeat for this long is dead. Its turns are ended one or two heartbeats later.
const DEAD_AFTER: Duration = Duration::from_secs(6);

/// After a longer gap between its own heartbeats a process was suspended, and cannot judge other processes.
const MAX_HEARTBEAT_GAP: Duration = Duration::from_secs(3);

/// The longest wait between reads of the queue, in case a notification is missed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of queued turns taken at once.
const QUEUE_BATCH: usize = 16;

/// The interval of pruning, and the pause while there is more to prune.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);
const PRUNE_PAUSE: Duration = Duration::from_millis(200);

/// How long idempotency claims are stored. S1
const CLAIM_RETENTION: Duration = Duration::from_secs(48 * 3600);

/// Runs queued turns. Implemented by the application layer.
pub trait Runner: Send + Sync {
    /// Runs a turn to its end.
    fn run(&self, turn: QueuedTurn) -> BoxFuture<'static, ()>;
}

/// How long data is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HousekeepingSettings {
    /// Events of ended streams.
    pub events: Duration,
    /// Transcripts of model calls.
    pub transcripts: Duration,
    /// Responses; `None` stores them without a time limit.
    pub responses: Option<Duration>,
    /// Whether no other process can use the store: every other process known to it is dead.
    pub alone: bool,
}

impl Engine {
    /// Registers the process in the store; before that no turn can be stored. If the store accepts no writes,
    /// [`Engine::housekeep`] registers it later, and turns that must be stored are refused until then.
    pub async fn register_process(&self, settings: HousekeepingSettings) -> Result<(), StoreError> {
        match self.register(settings).await {
            Err(StoreError::Unavailable(why)) => {
                self.running.set_store_unavailable(true);
                warn!("the store accepts no writes and is used read-only for now: {why}");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Whether the last heartbeat failed.
    pub fn is_store_unavailable(&self) -> bool {
        self.running.check_store().is_err()
    }

    async fn register(&self, settings: HousekeepingSettings) -> Result<(), StoreError> {
        let operator = Operator::of_this_process();
        let store = &self.running.store;
        store.beat(operator, self.running.process, 0).await?;
        if settings.alone {
            let known = store.processes(operator).await?;
            for (process, beat) in known.into_iter().filter(|(process, _)| *process != self.running.process) {
                self.end_dead_process(process, beat).await?;
            }
        }
        self.running.limiter.refresh().await
    }

    /// Does the periodic work until it is dropped.
    pub async fn housekeep(&self, settings: HousekeepingSettings, runner: Arc<dyn Runner>) {
        let unstored = self.running.unstored.write_periodically(&*self.running.store);
        let limiter = &self.running.limiter;
        let limits = async { tokio::join!(limiter.keep_current(), limiter.settle_periodically()) };
        tokio::join!(self.send_heartbeats(), self.run_queued(runner), self.prune(settings), unstored, limits);
    }

    /// Waits for all detached tasks.
    pub async fn wait_for_tasks(&self) {
        self.running.tasks.finish(None).await;
    }

    /// Waits at most `patience` for all detached tasks, then removes the process from the store.
    pub async fn shut_down(&self, patience: Duration) {
        self.running.tasks.finish(Some(patience)).await;
        self.running.unstored.write(&*self.running.store).await;
        self.running.limiter.settle_waiting().await;
        let operator = Operator::of_this_process();
        let known = self.running.store.processes(operator).await.unwrap_or_default();
        if let Some((process, beat)) = known.into_iter().find(|(process, _)| *process == self.running.process)
            && let Err(error) = self.end_dead_process(process, beat).await
        {
            warn!("this process could not be removed from the store: {error}");
        }
    }

    async fn send_heartbeats(&self) {
        let operator = Operator::of_this_process();
        let store = &self.running.store;
        let mut beats = 0;
        // The last heartbeat of each other process, and when this process first saw it. Clocks of other processes are
        // not trusted.
        let mut seen: HashMap<ProcessId, (u64, Instant)> = HashMap::new();
        let mut ticks = interval(HEARTBEAT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_tick = Instant::now();
        let mut orphans = HashSet::new();
        loop {
            ticks.tick().await;
            if last_tick.elapsed() >= MAX_HEARTBEAT_GAP {
                seen.clear();
            }
            last_tick = Instant::now();
            beats += 1;
            let known = async {
                store.beat(operator, self.running.process, beats).await?;
                self.end_orphans(&mut orphans).await?;
                store.processes(operator).await
            };
            let known = known.await;
            self.running.set_store_unavailable(known.is_err());
            let known = match known {
                Ok(known) => known,
                Err(error) => {
                    // While the store is unavailable no process can send heartbeats, so none counts as dead.
                    seen.clear();
                    warn!("the heartbeat could not be written: {error}");
                    continue;
                }
            };
            seen.retain(|process, _| known.iter().any(|(other, _)| other == process));
            for (process, beat) in known {
                if process == self.running.process {
                    continue;
                }
                let entry = seen.entry(process).or_insert((beat, Instant::now()));
                if entry.0 != beat {
                    *entry = (beat, Instant::now());
                } else if entry.1.elapsed() >= DEAD_AFTER
                    && let Err(error) = self.end_dead_process(process, beat).await
                {
                    warn!("the turns of a dead process could not be ended: {error}");
                }
            }
        }
    }

    async fn end_dead_process(&self, process: ProcessId, beat: u64) -> Result<(), StoreError> {
        let operator = Operator::of_this_process();
        if let Some(recovered) =
            self.running.store.end_dead_process(operator, process, beat, stopped, self.clock.now_ms()).await?
            && process != self.running.process
        {
            info!(failed = recovered.failed, queued = recovered.queued, "ended the turns of a dead process");
        }
        self.running.limiter.settle_dead().await
    }

    /// Ends turns that belong to this process in the store but no longer run, because their end could not be written.
    /// Cancels turns that run here but no longer belong to this process. `orphans` holds the candidates of the last
    /// check.
    async fn end_orphans(&self, orphans: &mut HashSet<String>) -> Result<(), StoreError> {
        let begun = self.running.begun_ids();
        let held = self.running.store.held(Operator::of_this_process(), self.running.process).await?;
        for id in begun.iter().filter(|id| !held.iter().any(|(held, _)| held == *id)) {
            self.running.cancel(id);
        }
        let left: Vec<&(String, Scope)> = held.iter().filter(|(id, _)| !self.running.runs(id)).collect();
        // A turn that was just taken is in the store before it is registered here, so only a turn found by two checks
        // in a row is an orphan.
        for (id, scope) in left.iter().filter(|(id, _)| orphans.contains(id)) {
            self.end_orphan(id, scope).await?;
        }
        *orphans = left.into_iter().map(|(id, _)| id.clone()).collect();
        self.release_claims(&held).await
    }

    /// Releases claims of this process that have no running request: the caller disconnected while claiming, or the
    /// claim could not be settled. Retries would otherwise wait as long as this process lives. `held` are turns that
    /// have not ended; their ends settle their claims.
    async fn release_claims(&self, held: &[(String, Scope)]) -> Result<(), StoreError> {
        let operator = Operator::of_this_process();
        let claims = self.running.store.claims(operator, self.running.process).await?;
        // A request registers before it claims and until its claim is settled, so one check is enough.
        let is_left = |id: &String| !self.running.holds_claim(id) && !held.iter().any(|(held, _)| held == id);
        let left: Vec<String> = claims.into_iter().filter(is_left).collect();
        if left.is_empty() {
            return Ok(());
        }
        self.running.store.release(operator, self.running.process, &left).await?;
        info!(claims = left.len(), "released idempotency claims without a running request");
        Ok(())
    }

    async fn end_orphan(&self, id: &str, scope: &Scope) -> Result<(), StoreError> {
        let Some(response) = self.running.store.response(scope, id).await? else { return Ok(()) };
        if response.status.status == Status::Queued {
            self.hand_over(id).await;
            return Ok(());
        }
        let fault = Fault::new(FaultKind::StoreDown, "The end of the response could not be written.");
        let identity = Identity { response_id: id.to_owned(), created_at_ms: response.created_at_ms };
        // The row of the turn has its origin already.
        let failed = self.fail_unstarted(scope, &identity, TurnOrigin::default(), fault.response_error()).await?;
        if failed.is_some() {
            warn!(response.id = id, "ended a turn that no longer runs");
        }
        Ok(())
    }

    async fn run_queued(&self, runner: Arc<dyn Runner>) {
        let store = &self.running.store;
        loop {
            let changed = store.changed("");
            let room = self.admission.room().min(QUEUE_BATCH);
            let taken = match room {
                0 => Vec::new(),
                room => match store.take_queued(Operator::of_this_process(), self.running.process, room).await {
                    Ok(taken) => taken,
                    Err(error) => {
                        debug!("queued turns could not be read: {error}");
                        Vec::new()
                    }
                },
            };
            let took_all = taken.len() < room;
            for turn in taken {
                let taken = self.running.guard_queued(&turn.response_id);
                let run = runner.run(turn);
                self.running.tasks.spawn(async move {
                    run.await;
                    drop(taken);
                });
            }
            let wait = async {
                match room {
                    0 => self.admission.freed().await,
                    _ => changed.await,
                }
            };
            if took_all || room == 0 {
                let _ = tokio::time::timeout(POLL_INTERVAL, wait).await;
            }
        }
    }

    async fn prune(&self, settings: HousekeepingSettings) {
        loop {
            let now_ms = self.clock.now_ms();
            let before = |age: Duration| now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            let retention = Retention {
                events_before_ms: before(settings.events),
                transcripts_before_ms: before(settings.transcripts),
                claims_before_ms: before(CLAIM_RETENTION),
                responses_before_ms: settings.responses.map(before),
                files_before_ms: now_ms,
            };
            let pause = match self.running.store.prune(Operator::of_this_process(), retention).await {
                Ok(pruned) if pruned.rows > 0 => PRUNE_PAUSE,
                Ok(_) => PRUNE_INTERVAL,
                Err(error) => {
                    debug!("rows could not be pruned: {error}");
                    PRUNE_INTERVAL
                }
            };
            sleep(pause).await;
        }
    }
}

/// The error of a turn whose process died, as JSON. S3: `tools` had started, and their result is unknown.
fn stopped(tools: &[String]) -> String {
    let mut message = "The server stopped while it worked on this response.".to_owned();
    if !tools.is_empty() {
        let names: Vec<String> = tools.iter().map(|name| format!("`{name}`")).collect();
        let what = if tools.len() == 1 { "tool" } else { "tools" };
        message = format!("{message} It is not known whether the {what} {} ran.", names.join(", "));
    }
    let error =
        ErrorObject { message, kind: "internal_error".to_owned(), param: None, code: Some("server_error".to_owned()) };
    error.to_json().raw().text().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_ended_within_ten_seconds() {
        // The last heartbeat is seen at most one interval late, and the silence is noticed at the first heartbeat after
        // the bound. Two more intervals allow for a busy machine and a busy store.
        const PROMISED: Duration = Duration::from_secs(10);
        assert!(DEAD_AFTER + 4 * HEARTBEAT_INTERVAL <= PROMISED, "{DEAD_AFTER:?} {HEARTBEAT_INTERVAL:?}");
        // Neither one late heartbeat nor a suspended process makes a live process look dead.
        assert!(2 * HEARTBEAT_INTERVAL < MAX_HEARTBEAT_GAP && MAX_HEARTBEAT_GAP < DEAD_AFTER);
    }

    #[test]
    fn a_turn_that_stopped_names_the_tools_of_unknown_end() {
        let text = |names: &[&str]| stopped(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let error = |message: &str| {
            format!(r#"{{"message":"{message}","type":"internal_error","param":null,"code":"server_error"}}"#)
        };
        let plain = "The server stopped while it worked on this response.";
        assert_eq!(text(&[]), error(plain));
        assert_eq!(text(&["pay"]), error(&format!("{plain} It is not known whether the tool `pay` ran.")));
        let both = format!("{plain} It is not known whether the tools `mail`, `pay` ran.");
        assert_eq!(text(&["mail", "pay"]), error(&both));
    }
}
