//! Turns with tools in a simulated world: one seed is one history, and every history can be cut at any step.
//!
//! The engine is the real one. Store, model, tools and time are simulated in one thread. A seed is played to its end, then
//! once more with a process that dies (or is taken for dead) at one of its steps, and what must always be true is looked
//! at both times. `AMALGAM_SEEDS=n` plays more of them, `AMALGAM_SEED=n` plays one.

mod actors;
mod assistant;
mod console;
mod execute;
mod invariants;
mod limits;
mod setup;
mod store;
mod unasked;
mod webhooks;
mod world;

use std::{sync::Arc, time::Duration};

use amalgam_core::{BoxFuture, Candidate, Clock, Delivery, Fault, FaultKind, Fetch, FetchedFile, Model, Store};
use amalgam_engine::{Admission, AdmissionSettings, Engine, EngineSettings, Identity};
use futures_util::StreamExt;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::runtime::Builder;

use crate::{
    kept::{keep, scope},
    tooled::{Tooled, json},
};
use actors::Speaker;
use invariants::{Received, check};
use setup::Setup;
use store::{PROCESS, SimStore};
use world::{Stop, World};

/// The default number of seeds.
const SEEDS: u64 = 3000;

/// The process that does the housekeeping when the other one is dead.
const HEIR: amalgam_core::store::ProcessId = amalgam_core::store::ProcessId(2);

#[test]
fn every_call_has_one_output_and_nothing_runs_twice_whenever_the_process_dies() {
    // S2, S3, S4, P1, P2, P3, P5
    let seeds = match (number("AMALGAM_SEED"), number("AMALGAM_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, seeds) => 0..seeds.unwrap_or(SEEDS),
    };
    for seed in seeds {
        let whole = play(seed, None);
        whole.insist();
        let mut chance = StdRng::seed_from_u64(seed ^ 0xdead);
        // A caller may leave before anything happens.
        let at = chance.random_range(0..whole.steps.len().max(1));
        let stop = if chance.random_bool(0.8) { Stop::Crash } else { Stop::Bury };
        let mut cut = play(seed, Some((at, stop)));
        if cut.steps.get(..=at) != whole.steps.get(..=at) {
            cut.problems.push("the same seed gave another history".to_owned());
        }
        cut.insist();
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests' own setting, which no configuration knows")]
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number of seeds"))
}

/// One history.
struct Played {
    setup: Arc<Setup>,
    stop: Option<(usize, Stop)>,
    steps: Vec<String>,
    problems: Vec<String>,
}

impl Played {
    fn insist(&self) {
        if self.problems.is_empty() {
            return;
        }
        let Self { setup, stop, steps, problems } = self;
        let steps: String = steps.iter().enumerate().map(|(at, step)| format!("\n{at:5} {step}")).collect();
        panic!(
            "seed {}, stopped at {stop:?}:\n{}\nlimits {:?}, {:?}, kept {}, one by one {}, at most {:?} calls{steps}",
            setup.seed,
            problems.join("\n"),
            setup.limits,
            setup.delivery,
            setup.kept,
            setup.sequential,
            setup.max_calls,
        );
    }
}

fn play(seed: u64, stop: Option<(usize, Stop)>) -> Played {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let setup = Arc::new(Setup::of(seed));
    let (steps, problems) = runtime.block_on(async {
        let world = World::new(seed, stop);
        world.prepare(&setup);
        let engine = engine(&setup, &world, PROCESS);
        world.set_heir(Some(self::engine(&setup, &world, HEIR)));
        let received = async {
            let received = run(&setup, &world, &engine).await;
            world.state().over = true;
            // A caller that has left leaves something to be written.
            engine.wait_for_tasks().await;
            received
        };
        let received = tokio::select! {
            biased;
            () = world.died() => Received::Died,
            received = received => received,
        };
        let left = world.state().shelf.turn.clone();
        world.end_dead_process().await;
        world.set_heir(None);
        let problems = check(&setup, &world, &received, stop.map(|(_, stop)| stop), left.as_ref());
        let steps = world.state().steps.clone();
        (steps, problems)
    });
    Played { setup, stop, steps, problems }
}

fn engine(setup: &Setup, world: &Arc<World>, process: amalgam_core::store::ProcessId) -> Engine {
    let settings = EngineSettings {
        turn_deadline: setup.deadline,
        keepalive: Duration::from_secs(2),
        head_after: Duration::from_secs(1),
        transcripts: Some(Duration::from_secs(3600)),
        upload_bytes: 1024 * 1024,
        tools: setup.limits,
        reserve_output_tokens: 1024,
    };
    let store: Arc<dyn Store> = Arc::new(SimStore(Arc::clone(world)));
    let clock = Arc::clone(world) as Arc<dyn Clock>;
    Engine::new(
        settings,
        Admission::new(AdmissionSettings::without_queue(1)),
        clock,
        Arc::new(NoAddress),
        store,
        process,
        Arc::new(amalgam_core::NoObserver),
    )
}

/// The turn from its caller's side.
async fn run(setup: &Arc<Setup>, world: &Arc<World>, engine: &Engine) -> Received {
    let leaves = setup.leaves.unwrap_or(Duration::from_secs(3600));
    tokio::time::timeout(leaves, run_to_the_end(setup, world, engine)).await.unwrap_or(Received::Left)
}

async fn run_to_the_end(setup: &Arc<Setup>, world: &Arc<World>, engine: &Engine) -> Received {
    let speaker = Speaker { world: Arc::clone(world), setup: Arc::clone(setup) };
    let candidate = Candidate {
        upstream: "u".to_owned(),
        model: Arc::new(speaker) as Arc<dyn Model>,
        name: "m".to_owned(),
        alias: None,
        context_window: None,
        price: None,
    };
    let choice = if setup.required { r#","tool_choice":"required""# } else { "" };
    let most = setup.output_tokens.map_or_else(String::new, |most| format!(r#","max_output_tokens":{most}"#));
    let listing = ("docs".to_owned(), json(r#"[{"name":"find","input_schema":{}}]"#));
    let tooled = Tooled {
        body: &format!(r#"{{"model":"m","input":"hi","tools":[{{"type":"function","name":"read"}}]{choice}{most}}}"#),
        delivery: setup.delivery,
        identity: Identity {
            response_id: format!("resp_AM-1700000000000-{:024}", setup.seed),
            created_at_ms: world.now_ms(),
        },
        keep: setup.kept.then_some(keep),
        scope: scope(),
        candidate,
        tools: actors::tools(world),
        client_functions: setup.knows_client.then(|| vec![setup::CLIENT]),
        sequential: setup.sequential,
        max_calls: setup.max_calls,
        listings: if setup.listing { vec![listing] } else { Vec::new() },
        decided: setup.decided.clone(),
    };
    let run = match tooled.start(engine).await {
        Ok(run) => run,
        Err(fault) => return Received::Refused(fault),
    };
    match setup.delivery {
        Delivery::Whole => Received::Whole(run.finish().await.map(|turn| turn.response)),
        Delivery::Stream => {
            let mut frames = run.into_events();
            while let Some(chunk) = frames.next().await {
                hear(world, chunk.frames());
            }
            Received::Stream
        }
    }
}

/// The caller hears something: by then it is in the store.
fn hear(world: &World, chunk: &[u8]) {
    let mut state = world.state();
    state.frames.extend_from_slice(chunk);
    if !state.shelf.kept {
        return;
    }
    let problem = match &state.shelf.turn {
        None => Some("the caller received an id that is not in the store"),
        Some(turn) => {
            let text = String::from_utf8_lossy(chunk);
            let mut ends = text.split("\n\n").filter(|frame| frame.starts_with("event: response.output_item.done"));
            let early =
                |frame: &str| turn.tools.values().any(|run| run.outcome.is_none() && frame.contains(&run.item_id));
            ends.any(early).then_some("the end of a call was shown before it was in the store")
        }
    };
    if let Some(problem) = problem {
        state.complain(problem);
    }
}

/// No turn of the simulation fetches anything.
struct NoAddress;

impl Fetch for NoAddress {
    fn fetch<'a>(&'a self, _: &'a str, _: usize) -> BoxFuture<'a, Result<FetchedFile, Fault>> {
        Box::pin(async { Err(Fault::new(FaultKind::Invalid, "nothing is fetched here")) })
    }

    fn check<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }
}
