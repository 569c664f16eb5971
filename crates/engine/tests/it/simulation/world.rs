//! One simulated world: what has happened in it step by step, when its process dies, and what was seen on the way.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::{Clock, Finish};
use amalgam_engine::{Engine, HousekeepingSettings};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{sync::Notify, time::Instant};

use super::{
    setup::{MadeCall, Setup},
    store::Shelf,
};

/// What happens to the process at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Nothing of it moves any more.
    Crash,
    /// Others take it for dead while it lives.
    Bury,
}

/// Everything outside of the engine.
pub(super) struct World {
    state: Mutex<State>,
    died: Notify,
    born: Instant,
    /// The process that looks after the store when this one is dead.
    heir: Mutex<Option<Engine>>,
}

/// What is known about the world.
pub(super) struct State {
    /// Everything that has happened, in order.
    pub(super) steps: Vec<String>,
    stop: Option<(usize, Stop)>,
    pub(super) dead: bool,
    /// Where chance comes from.
    pub(super) chance: StdRng,
    /// Failures of the store in a row.
    pub(super) troubles: u32,
    pub(super) shelf: Shelf,
    pub(super) asks: Vec<AskSeen>,
    pub(super) effects: Vec<Effect>,
    /// Frames that the caller has got.
    pub(super) frames: Vec<u8>,
    /// The caller has its answer, or has left.
    pub(super) over: bool,
    /// What was wrong on the way.
    pub(super) problems: Vec<String>,
}

/// One call of the model.
#[derive(Debug, Clone)]
pub(super) struct AskSeen {
    pub(super) choice: Option<String>,
    pub(super) output_tokens: Option<u64>,
    /// The calls of its answer so far, in the order in which they began.
    pub(super) calls: Vec<MadeCall>,
    /// Tokens in and out, if it came to say so.
    pub(super) cost: (u64, u64),
    pub(super) finish: Option<Finish>,
}

impl AskSeen {
    /// Whether the model could call tools.
    pub(super) fn with_tools(&self) -> bool {
        self.choice.as_deref() != Some("None")
    }
}

/// What a tool has done to the world outside.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) key: String,
    pub(super) call_id: String,
    pub(super) name: String,
    pub(super) idempotent: bool,
}

impl World {
    pub(super) fn new(seed: u64, stop: Option<(usize, Stop)>) -> Arc<Self> {
        let state = State {
            steps: Vec::new(),
            stop,
            dead: false,
            chance: StdRng::seed_from_u64(seed ^ 0x5eed),
            troubles: 0,
            shelf: Shelf::default(),
            asks: Vec::new(),
            effects: Vec::new(),
            frames: Vec::new(),
            over: false,
            problems: Vec::new(),
        };
        let (state, heir) = (Mutex::new(state), Mutex::default());
        Arc::new(Self { state, died: Notify::new(), born: Instant::now(), heir })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the store into the setup's state.
    pub(super) fn prepare(&self, setup: &Setup) {
        let shelf = &mut self.state().shelf;
        (shelf.kept, shelf.troubled) = (setup.kept, setup.troubled);
        let taken = setup.decided.iter().filter(|approval| approval.used_by.is_some());
        shelf.taken = taken.map(|approval| approval.id.clone()).collect();
    }

    /// Something is about to happen; it does not if the process is dead.
    pub(super) async fn step(&self, what: String) {
        let stop = self.state().count(what);
        match stop {
            None => {}
            Some(Stop::Crash) => {
                self.died.notify_one();
                std::future::pending::<()>().await;
            }
            Some(Stop::Bury) => self.end_dead_process().await,
        }
    }

    /// Comes when the process has died.
    pub(super) async fn died(&self) {
        self.died.notified().await;
    }

    pub(super) fn set_heir(&self, heir: Option<Engine>) {
        *self.heir.lock().unwrap() = heir;
    }

    /// Lets the heir end what the process has left.
    pub(super) async fn end_dead_process(&self) {
        let heir = self.heir.lock().unwrap().clone();
        let life = HousekeepingSettings {
            events: Duration::from_secs(60),
            transcripts: Duration::from_secs(60),
            responses: None,
            alone: true,
        };
        heir.expect("a world has an heir until its end").register_process(life).await.unwrap();
    }

    /// A pause of at most this number of milliseconds; none half of the time.
    pub(super) async fn pause(&self, most_ms: u64) {
        let pause = {
            let chance = &mut self.state().chance;
            if chance.random_bool(0.5) { 0 } else { chance.random_range(0..=most_ms) }
        };
        if pause > 0 {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// How long it has existed.
    pub(super) fn age(&self) -> Duration {
        self.born.elapsed()
    }
}

impl Clock for World {
    fn now_ms(&self) -> u64 {
        1_700_000_000_000 + self.age().as_millis() as u64
    }
}

impl State {
    fn count(&mut self, what: String) -> Option<Stop> {
        if self.dead {
            return Some(Stop::Crash);
        }
        self.steps.push(what);
        let (at, stop) = self.stop?;
        if at + 1 != self.steps.len() {
            return None;
        }
        self.dead = stop == Stop::Crash;
        Some(stop)
    }

    pub(super) fn complain(&mut self, what: impl Into<String>) {
        self.problems.push(what.into());
    }
}
