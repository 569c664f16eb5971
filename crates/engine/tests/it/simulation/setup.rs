//! What one seed makes: the limits of a turn, what its caller wants and does, and everything that its model will say.

use std::time::Duration;

use amalgam_core::{
    CallHead, CallKind, Decider, Delivery, Fault, FaultKind, Finish, ModelEvent, store::Approval, turn::Caps,
};
use amalgam_engine::ToolLimits;
use amalgam_protocol::{Literal, Usage};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// The tools that the server runs: one that may run twice, one that may not, one whose failure fails its turn, one that
/// needs an approval.
pub(super) const READ: &str = "read";
pub(super) const WRITE: &str = "write";
pub(super) const FATAL: &str = "fatal";
pub(super) const GUARDED: &str = "guarded";
/// A tool of an MCP server, as the model calls it.
pub(super) const FOREIGN: &str = "docs__find";
/// The client's function.
pub(super) const CLIENT: &str = "client";
/// A tool that is not offered.
pub(super) const UNKNOWN: &str = "unknown";

/// The most that a tool may give back.
pub(super) const OUTPUT_BYTES: usize = 160;

/// One turn, and what surrounds it.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) seed: u64,
    pub(super) delivery: Delivery,
    pub(super) kept: bool,
    pub(super) limits: ToolLimits,
    pub(super) deadline: Duration,
    pub(super) sequential: bool,
    pub(super) max_calls: Option<u32>,
    /// Whether calls of unknown tools are distinguished from the client's.
    pub(super) knows_client: bool,
    pub(super) required: bool,
    pub(super) output_tokens: Option<u64>,
    pub(super) listing: bool,
    pub(super) decided: Vec<Approval>,
    /// When the caller leaves.
    pub(super) leaves: Option<Duration>,
    /// Whether the store fails now and then.
    pub(super) troubled: bool,
    pub(super) answers: Vec<Answer>,
}

/// The model's answer to one call.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// It does not answer at all.
    pub(super) refuses: bool,
    pub(super) said: Vec<Said>,
}

#[derive(Debug, Clone)]
pub(super) enum Said {
    Event(ModelEvent),
    Pause(Duration),
    Cut,
    Hang,
}

/// A call that a model made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MadeCall {
    pub(super) key: u64,
    pub(super) name: String,
    pub(super) arguments: String,
}

impl Setup {
    pub(super) fn of(seed: u64) -> Self {
        let mut dice = Dice { rng: StdRng::seed_from_u64(seed), calls: 0, made: Vec::new() };
        let caps = Caps {
            rounds: dice.rng.random_range(1..=4),
            calls: dice.rng.random_range(1..=12),
            calls_at_once: dice.rng.random_range(1..=6),
            repairs: dice.rng.random_range(1..=3),
            tokens: dice.maybe(0.1, |rng| rng.random_range(10..300)),
            time: Duration::from_millis(dice.maybe(0.2, |rng| rng.random_range(1..5000)).unwrap_or(60_000)),
        };
        let limits = ToolLimits {
            caps,
            parallel: dice.rng.random_range(1..=4),
            output_bytes: OUTPUT_BYTES,
            approval_deadline: Duration::from_secs(3600),
        };
        let kept = dice.chance(0.9);
        let decided = match dice.chance(0.1) {
            true => (0..dice.rng.random_range(1..=2)).map(|number| dice.decided(number)).collect(),
            false => Vec::new(),
        };
        let rounds = caps.rounds as usize + 2;
        Self {
            seed,
            delivery: if dice.chance(0.7) { Delivery::Stream } else { Delivery::Whole },
            kept,
            limits,
            deadline: Duration::from_millis(dice.maybe(0.1, |rng| rng.random_range(1..6000)).unwrap_or(40_000)),
            sequential: dice.chance(0.2),
            max_calls: dice.maybe(0.15, |rng| rng.random_range(0..4)),
            knows_client: dice.chance(0.85),
            required: dice.chance(0.2),
            output_tokens: dice.maybe(0.15, |rng| rng.random_range(1..60)),
            listing: dice.chance(0.1),
            decided,
            leaves: dice.maybe(0.1, |rng| Duration::from_millis(rng.random_range(0..4000))),
            troubled: dice.chance(0.15),
            answers: (0..rounds).map(|_| dice.answer()).collect(),
        }
    }
}

struct Dice {
    rng: StdRng,
    calls: u64,
    /// Calls so far, to be made again.
    made: Vec<(&'static str, String)>,
}

impl Dice {
    fn chance(&mut self, probability: f64) -> bool {
        self.rng.random_bool(probability)
    }

    fn maybe<T>(&mut self, probability: f64, make: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
        self.chance(probability).then(|| make(&mut self.rng))
    }

    fn decided(&mut self, number: u32) -> Approval {
        Approval {
            id: format!("mcpr_AM-{number:024}"),
            response_id: format!("resp_AM-0000000000000-{:024}", 7),
            user: "user".to_owned(),
            call_id: format!("d{number}"),
            label: amalgam_core::BANK_LABEL.to_owned(),
            name: if self.chance(0.8) { GUARDED } else { UNKNOWN }.to_owned(),
            arguments: format!(r#"{{"n":{}}}"#, 900 + number),
            decider: Decider::Caller,
            asked_at_ms: 0,
            expires_at_ms: 1,
            decision: None,
            used_by: self.chance(0.2).then(|| "another".to_owned()),
        }
    }

    fn answer(&mut self) -> Answer {
        let mut said = Vec::new();
        for _ in 0..self.rng.random_range(0..=3) {
            match self.rng.random_range(0..100) {
                0..30 => said.push(Said::Event(ModelEvent::Text { delta: text("word "), logprobs: None })),
                30..38 => said.push(Said::Event(ModelEvent::ReasoningSummary(text("thought ")))),
                38..41 => said.push(Said::Event(ModelEvent::Refusal(text("no ")))),
                41..50 => said.push(Said::Pause(Duration::from_millis(self.rng.random_range(1..1500)))),
                50..54 => {
                    let flood = self.rng.random_range(8..=24);
                    self.calls(flood, &mut said);
                }
                _ => {
                    let calls = self.rng.random_range(1..=3);
                    self.calls(calls, &mut said);
                }
            }
        }
        if self.chance(0.8) {
            let usage = Usage {
                input_tokens: self.rng.random_range(1..50),
                output_tokens: self.rng.random_range(0..20),
                ..Usage::default()
            };
            said.push(Said::Event(ModelEvent::Usage(usage)));
        }
        said.push(match self.rng.random_range(0..100) {
            0..84 => finish(Finish::Stop),
            84..88 => finish(Finish::Length),
            88..90 => finish(Finish::ContentFilter),
            90..92 => finish(Finish::Incomplete("paused".to_owned())),
            92..94 => finish(Finish::Failed(Fault::new(FaultKind::UpstreamDown, "It failed."))),
            94..97 => Said::Cut,
            _ => Said::Hang,
        });
        Answer { refuses: self.chance(0.03), said }
    }

    /// Calls that follow on each other, or whose pieces come mixed.
    fn calls(&mut self, count: usize, said: &mut Vec<Said>) {
        let mut beginnings = Vec::new();
        let mut pieces = Vec::new();
        let mut ends = Vec::new();
        let mixed = self.chance(0.3);
        for _ in 0..count {
            let key = self.calls;
            let (name, arguments) = self.call();
            let call_id = (!self.chance(0.05)).then(|| format!("c{key}"));
            let head = CallHead { kind: CallKind::Function, call_id, name: name.to_owned(), namespace: None };
            let (one, other) = arguments.split_at(arguments.len() / 2);
            let begin = Said::Event(ModelEvent::CallStart { key, call: head });
            let delta = |piece| Said::Event(ModelEvent::CallDelta { key, delta: text(piece) });
            let end = Said::Event(ModelEvent::CallEnd { key });
            match mixed {
                true => {
                    beginnings.extend([begin, delta(one)]);
                    pieces.push(delta(other));
                    ends.push(end);
                }
                false => said.extend([begin, delta(one), delta(other), end]),
            }
        }
        said.append(&mut beginnings);
        said.append(&mut pieces);
        said.append(&mut ends);
    }

    fn call(&mut self) -> (&'static str, String) {
        let number = self.calls;
        self.calls += 1;
        if self.chance(0.2)
            && let Some(again) = self.made.choose(&mut self.rng)
        {
            return again.clone();
        }
        let name = match self.rng.random_range(0..100) {
            0..30 => READ,
            30..60 => WRITE,
            60..70 => FOREIGN,
            70..76 => FATAL,
            76..81 => GUARDED,
            81..92 => CLIENT,
            _ => UNKNOWN,
        };
        let arguments = match self.rng.random_range(0..100) {
            0..80 => format!(r#"{{"n":{number}}}"#),
            80..88 => format!(r#"{{"bad":{number}}}"#),
            88..94 => format!(r#"{{"n":{number}"#),
            _ => String::new(),
        };
        self.made.push((name, arguments.clone()));
        (name, arguments)
    }
}

fn text(text: &str) -> Literal {
    Literal::from_text(text)
}

fn finish(finish: Finish) -> Said {
    Said::Event(ModelEvent::Finish(finish))
}
