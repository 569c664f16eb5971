//! What a process does besides answering: it says that it lives, ends what dead ones left, runs what waits, and clears
//! away what need not be kept.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use amalgam_core::{
    BoxFuture, Fault, FaultKind, Operator, Scope, StoreError,
    store::{ProcessId, QueuedTurn, Retention, Written},
};
use amalgam_protocol::{ErrorObject, Status};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{debug, info, warn};

use crate::run::Engine;

/// How often a process says that it lives, and looks who else does.
const BEAT: Duration = Duration::from_secs(1);

/// A process that has said nothing for so long is dead. What it left is final a beat or two later.
const DEAD_AFTER: Duration = Duration::from_secs(6);

/// A process that was not awake for so long between two beats cannot say who else was.
const ASLEEP: Duration = Duration::from_secs(3);

/// The longest wait before the store is asked for queued turns, in case a notification was missed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Queued turns that are taken at once.
const TAKEN_AT_ONCE: usize = 16;

/// How often rows are cleared away, and how soon again while there are more.
const PRUNE: Duration = Duration::from_secs(60);
const PRUNE_MORE: Duration = Duration::from_millis(200);

/// A claim is kept this long. S1
const CLAIMS: Duration = Duration::from_secs(48 * 3600);

/// Runs a turn that has waited. Implemented by the door that took it.
pub trait Runner: Send + Sync {
    /// Runs it to its end, whatever that is.
    fn run(&self, turn: QueuedTurn) -> BoxFuture<'static, ()>;
}

/// How long things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HousekeepingSettings {
    /// Events of streams that have ended.
    pub events: Duration,
    /// Model calls.
    pub transcripts: Duration,
    /// Responses; none for ever.
    pub responses: Option<Duration>,
    /// No other process can use the store: every other process known there is dead.
    pub alone: bool,
}

impl Engine {
    /// Makes the process known to the store. Before this no turn can be kept. A store that takes no writes is told later, by
    /// [`Engine::housekeep`]; until then turns that are to be kept are refused.
    pub async fn be_born(&self, settings: HousekeepingSettings) -> Result<(), StoreError> {
        match self.register(settings).await {
            Err(StoreError::Unavailable(why)) => {
                self.running.store_is_away(true);
                warn!("the store takes no writes, so that it is only read for now: {why}");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Whether the store took no writes when it was last told that this process lives.
    pub fn store_is_away(&self) -> bool {
        self.running.expect_store().is_err()
    }

    async fn register(&self, settings: HousekeepingSettings) -> Result<(), StoreError> {
        let operator = Operator::of_this_process();
        let store = &self.running.store;
        store.beat(operator, self.running.process, 0).await?;
        if settings.alone {
            let known = store.processes(operator).await?;
            for (process, beat) in known.into_iter().filter(|(process, _)| *process != self.running.process) {
                self.bury(process, beat).await?;
            }
        }
        Ok(())
    }

    /// Looks after this process, the others and the queue until it is dropped.
    pub async fn housekeep(&self, settings: HousekeepingSettings, runner: Arc<dyn Runner>) {
        tokio::join!(self.beat(), self.run_queued(runner), self.clear_away(settings));
    }

    /// Waits until nothing that outlives its request runs any more.
    pub async fn rest(&self) {
        self.running.tasks.finish(None).await;
    }

    /// Waits until nothing that outlives its request runs any more, or for so long; then says farewell to the store.
    pub async fn die(&self, patience: Duration) {
        self.running.tasks.finish(Some(patience)).await;
        let operator = Operator::of_this_process();
        let known = self.running.store.processes(operator).await.unwrap_or_default();
        if let Some((process, beat)) = known.into_iter().find(|(process, _)| *process == self.running.process)
            && let Err(error) = self.bury(process, beat).await
        {
            warn!("this process could not say farewell to the store: {error}");
        }
    }

    async fn beat(&self) {
        let operator = Operator::of_this_process();
        let store = &self.running.store;
        let mut beats = 0;
        // When each other process was first seen with its last beat, by our own clock: clocks of other processes are not trusted.
        let mut seen: HashMap<ProcessId, (u64, Instant)> = HashMap::new();
        let mut ticks = interval(BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut awake = Instant::now();
        let mut orphans = HashSet::new();
        loop {
            ticks.tick().await;
            if awake.elapsed() >= ASLEEP {
                seen.clear();
            }
            awake = Instant::now();
            beats += 1;
            let known = async {
                store.beat(operator, self.running.process, beats).await?;
                self.end_orphans(&mut orphans).await?;
                store.processes(operator).await
            };
            let known = known.await;
            self.running.store_is_away(known.is_err());
            let known = match known {
                Ok(known) => known,
                Err(error) => {
                    // While the store is unavailable no process can send heartbeats, so none counts as dead.
                    seen.clear();
                    warn!("the store could not be told that this process lives: {error}");
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
                    && let Err(error) = self.bury(process, beat).await
                {
                    warn!("what a dead process left could not be ended: {error}");
                }
            }
        }
    }

    async fn bury(&self, process: ProcessId, beat: u64) -> Result<(), StoreError> {
        let operator = Operator::of_this_process();
        if let Some(buried) = self.running.store.bury(operator, process, beat, stopped, self.clock.now_ms()).await?
            && process != self.running.process
        {
            info!(failed = buried.failed, queued = buried.queued, "ended what a dead process left");
        }
        Ok(())
    }

    /// Turns that are this process's in the store but no longer run, because their end could not be written;
    /// and turns that run here although they are not this process's any more. `orphans` are those of the last look.
    async fn end_orphans(&self, orphans: &mut HashSet<String>) -> Result<(), StoreError> {
        let begun = self.running.begun_ids();
        let held = self.running.store.held(Operator::of_this_process(), self.running.process).await?;
        for id in begun.iter().filter(|id| !held.iter().any(|(held, _)| held == *id)) {
            self.running.cancel(id);
        }
        let left: Vec<&(String, Scope)> = held.iter().filter(|(id, _)| !self.running.runs(id)).collect();
        // A turn that was taken just now is in the store before this process has registered it: only what it has not
        // come for by the next look is an orphan.
        for (id, scope) in left.iter().filter(|(id, _)| orphans.contains(id)) {
            self.end_orphan(id, scope).await?;
        }
        *orphans = left.into_iter().map(|(id, _)| id.clone()).collect();
        self.free_claims(&held).await
    }

    /// Claims of this process without a request that works on them: their callers left while they claimed, or could
    /// not settle them. Twins would wait for them for as long as this process lives. `held` are turns that have not ended:
    /// once they have, it is known what becomes of their claims.
    async fn free_claims(&self, held: &[(String, Scope)]) -> Result<(), StoreError> {
        let operator = Operator::of_this_process();
        let claims = self.running.store.claims(operator, self.running.process).await?;
        // A request registers before it claims, and stays registered until the claim is settled: one look is enough.
        let is_left = |id: &String| !self.running.works_on(id) && !held.iter().any(|(held, _)| held == id);
        let left: Vec<String> = claims.into_iter().filter(is_left).collect();
        if left.is_empty() {
            return Ok(());
        }
        self.running.store.release(operator, self.running.process, &left).await?;
        info!(claims = left.len(), "released idempotency claims without a running request");
        Ok(())
    }

    async fn end_orphan(&self, id: &str, scope: &Scope) -> Result<(), StoreError> {
        let response = self.running.store.response(scope, id).await?;
        if response.is_some_and(|response| response.status.status == Status::Queued) {
            self.hand_over(id).await;
            return Ok(());
        }
        let fault = Fault::new(FaultKind::StoreDown, "The end of the response could not be written.");
        if self.give_up(scope, id, fault.response_error()).await? == Written::Kept {
            warn!(response.id = id, "ended a turn that no longer runs");
        }
        Ok(())
    }

    async fn run_queued(&self, runner: Arc<dyn Runner>) {
        let store = &self.running.store;
        loop {
            let changed = store.changed("");
            let room = self.admission.room().min(TAKEN_AT_ONCE);
            let taken = match room {
                0 => Vec::new(),
                room => match store.take_queued(Operator::of_this_process(), self.running.process, room).await {
                    Ok(taken) => taken,
                    Err(error) => {
                        debug!("queued turns could not be asked for: {error}");
                        Vec::new()
                    }
                },
            };
            let took_all = taken.len() < room;
            for turn in taken {
                let taken = self.running.take(&turn.response_id);
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
                let _ = tokio::time::timeout(LOOK_AGAIN, wait).await;
            }
        }
    }

    async fn clear_away(&self, settings: HousekeepingSettings) {
        loop {
            let now_ms = self.clock.now_ms();
            let before = |age: Duration| now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            let retention = Retention {
                events_before_ms: before(settings.events),
                transcripts_before_ms: before(settings.transcripts),
                claims_before_ms: before(CLAIMS),
                responses_before_ms: settings.responses.map(before),
                files_before_ms: now_ms,
            };
            let pause = match self.running.store.prune(Operator::of_this_process(), retention).await {
                Ok(pruned) if pruned.rows > 0 => PRUNE_MORE,
                Ok(_) => PRUNE,
                Err(error) => {
                    debug!("rows could not be cleared away: {error}");
                    PRUNE
                }
            };
            sleep(pause).await;
        }
    }
}

/// What is kept of a turn whose process ended in the middle of it, as JSON. S3: `tools` had begun, and it is unknown what
/// became of them.
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
        // Its last beat was seen a beat late at most, and its silence is noticed at the first beat after the bound. Another
        // two are for a machine and a store that have other things to do.
        const PROMISED: Duration = Duration::from_secs(10);
        assert!(DEAD_AFTER + 4 * BEAT <= PROMISED, "{DEAD_AFTER:?} {BEAT:?}");
        // Neither one late beat nor a process that has slept itself makes the living look dead.
        assert!(2 * BEAT < ASLEEP && ASLEEP < DEAD_AFTER);
    }

    #[test]
    fn a_turn_that_stopped_names_the_tools_of_unknown_end() {
        let told = |names: &[&str]| stopped(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let error = |message: &str| {
            format!(r#"{{"message":"{message}","type":"internal_error","param":null,"code":"server_error"}}"#)
        };
        let plain = "The server stopped while it worked on this response.";
        assert_eq!(told(&[]), error(plain));
        assert_eq!(told(&["pay"]), error(&format!("{plain} It is not known whether the tool `pay` ran.")));
        let both = format!("{plain} It is not known whether the tools `mail`, `pay` ran.");
        assert_eq!(told(&["mail", "pay"]), error(&both));
    }
}
