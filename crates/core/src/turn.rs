//! What happens next in a turn with tools that the server runs.
//!
//! Pure: it is told what happened and says what to do. Whoever drives it asks the model, runs the tools and writes; this
//! decides. A model is not trusted: how many calls, how often the same one, how many rounds, how many tokens and how much
//! time are bounded here, and so is how often it may mend its arguments.

mod signature;

use std::{borrow::Cow, collections::HashMap, time::Duration};

use amalgam_protocol::{Json, Raw, Writer};

use crate::tool::{Decider, OnError, ServerTool};
use signature::signature;

/// What a turn may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Rounds of tools.
    pub rounds: u32,
    /// Calls in all rounds together.
    pub calls: u32,
    /// Calls in one answer of the model.
    pub calls_at_once: u32,
    /// Rounds in which arguments were wrong.
    pub repairs: u32,
    /// Tokens in all rounds together, in and out; none for any number.
    pub tokens: Option<u64>,
    /// Time from the beginning of the turn.
    pub time: Duration,
}

impl Default for Caps {
    fn default() -> Self {
        Self { rounds: 8, calls: 64, calls_at_once: 32, repairs: 3, tokens: None, time: Duration::from_secs(480) }
    }
}

/// The cap that a turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cap {
    /// [`Caps::rounds`]
    Rounds,
    /// [`Caps::calls`]
    Calls,
    /// [`Caps::repairs`]
    Repairs,
    /// [`Caps::tokens`]
    Tokens,
    /// [`Caps::time`]
    Time,
}

impl Cap {
    /// The reason that an incomplete response gives.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Rounds => "max_tool_iterations",
            Self::Calls => "max_tool_calls",
            Self::Repairs => "max_tool_repairs",
            Self::Tokens => "max_turn_tokens",
            Self::Time => "max_tool_time",
        }
    }
}

/// Why a call was not run, or did not go well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mishap {
    /// No such tool was offered.
    UnknownTool,
    /// The arguments are not what its schema wants.
    InvalidArguments,
    /// Too many calls in one answer.
    TooManyAtOnce,
    /// Too many calls in one turn.
    TooManyCalls,
    /// The same call again and again.
    Repeated,
    /// Somebody said no, or nobody said yes in time.
    Denied,
    /// The tool says no.
    Refused,
    /// The tool could not be run, or broke.
    Broken,
    /// The tool took too long.
    TimedOut,
    /// The tool gave more than is taken.
    TooLarge,
}

impl Mishap {
    /// The name that it is recorded under.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArguments => "invalid_arguments",
            Self::TooManyAtOnce => "too_many_calls_at_once",
            Self::TooManyCalls => "too_many_calls",
            Self::Repeated => "repeated",
            Self::Denied => "denied",
            Self::Refused => "refused",
            Self::Broken => "broken",
            Self::TimedOut => "timed_out",
            Self::TooLarge => "too_large",
        }
    }
}

/// A call in a model's answer that the server has to deal with.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The tool, if one of this name was offered.
    pub tool: Option<&'a ServerTool>,
    /// The name that the model called.
    pub name: &'a str,
    /// The exact text that it sent.
    pub arguments: &'a str,
}

/// What a turn has taken so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Tokens, in and out.
    pub tokens: u64,
    /// Time since its beginning.
    pub time: Duration,
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It runs.
    Run,
    /// It does not; the model is told this instead.
    Told(Told),
    /// It waits for somebody to agree.
    Ask(Decider),
}

/// What a model is told in the place of a tool's output.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Why.
    pub mishap: Mishap,
    /// A JSON value.
    pub output: Json,
}

impl Told {
    /// `{"error": text}`
    pub fn error(mishap: Mishap, text: &str) -> Self {
        let mut writer = Writer::with_capacity(text.len() + 16);
        writer.object(|writer| writer.key("error").string(text));
        Self { mishap, output: Json::from_writer(writer) }
    }
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Deal with the calls of the answer, each as its verdict says; then say how they went.
    Run(Vec<Verdict>),
    /// Ask the model again.
    Ask {
        /// Whether it may call tools.
        tools: bool,
    },
    /// The answer goes to the client, which has calls to run, or to whoever has to agree to some.
    Park,
    /// The turn is over, at a cap if there is one.
    End(Option<Cap>),
    /// A tool failed whose turn fails with it.
    Fail {
        /// Which one.
        tool: String,
    },
}

/// How a call went.
#[derive(Debug, Clone, Copy)]
pub struct Ran<'a> {
    /// Its tool, if there is one.
    pub tool: Option<&'a ServerTool>,
    /// What went wrong; none when it went well.
    pub mishap: Option<Mishap>,
}

/// The machine was told something that cannot have happened: its driver is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a turn was told that something happened that it had not asked for")]
pub struct OutOfOrder;

/// A turn with tools.
#[derive(Debug, Clone)]
pub struct Turn {
    caps: Caps,
    phase: Phase,
    rounds: u32,
    calls: u32,
    repairs: u32,
    /// How often each call was made.
    seen: HashMap<String, u32>,
    /// Whether a tool has given anything back in this turn.
    has_results: bool,
    /// Whether nobody can be asked to agree to a call.
    unattended: bool,
    /// What the model is told at the end of what is said, from now on.
    instructions: Vec<String>,
    spent: Spent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The model speaks; for the last time if a cap was met.
    Asked {
        last: Option<Cap>,
    },
    /// Calls are dealt with.
    Running {
        calls: usize,
        waits: bool,
        repaired: bool,
    },
    Over,
}

/// How often the same call is run.
const SAME_CALLS: u32 = 2;

impl Turn {
    /// A turn whose model is about to be asked for the first time.
    pub fn new(caps: Caps) -> Self {
        Self {
            caps,
            phase: Phase::Asked { last: None },
            rounds: 0,
            calls: 0,
            repairs: 0,
            seen: HashMap::new(),
            has_results: false,
            unattended: false,
            instructions: Vec::new(),
            spent: Spent::default(),
        }
    }

    /// A turn that begins with calls that were agreed to before: how they went is told first.
    pub fn with_granted(caps: Caps, calls: usize) -> Self {
        Self { phase: Phase::Running { calls, waits: false, repaired: false }, ..Self::new(caps) }
    }

    /// Nobody can be asked to agree to anything in this turn: what would wait for that is refused.
    pub fn be_unattended(&mut self) {
        self.unattended = true;
    }

    /// What the model is to be told at the end of what is said, beyond the outputs themselves.
    pub fn instructions(&self) -> &[String] {
        &self.instructions
    }

    /// Rounds of tools so far.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The model has answered. `whole` is whether it came to its own end; `for_client` whether it made calls that the client
    /// has to run.
    pub fn answered(
        &mut self,
        wanted: &[Wanted<'_>],
        whole: bool,
        for_client: bool,
        spent: Spent,
    ) -> Result<Step, OutOfOrder> {
        let Phase::Asked { last } = self.phase else { return Err(OutOfOrder) };
        self.spent = spent;
        // Calls of an answer that was cut may be cut as well, and calls that nobody offered are nobody's.
        if wanted.is_empty() || !whole || last.is_some() {
            self.phase = Phase::Over;
            return Ok(Step::End(last));
        }
        let mut repaired = false;
        let verdicts: Vec<Verdict> = wanted
            .iter()
            .enumerate()
            .map(|(index, call)| {
                let verdict = self.judge(index, call);
                repaired |= matches!(&verdict, Verdict::Told(told) if told.mishap == Mishap::InvalidArguments);
                verdict
            })
            .collect();
        let waits = for_client || verdicts.iter().any(|verdict| matches!(verdict, Verdict::Ask(_)));
        self.phase = Phase::Running { calls: wanted.len(), waits, repaired };
        Ok(Step::Run(verdicts))
    }

    /// The calls of the answer are dealt with, in its order; those that wait for somebody to agree count as well.
    pub fn ran(&mut self, ran: &[Ran<'_>], spent: Spent) -> Result<Step, OutOfOrder> {
        let Phase::Running { calls, waits, repaired } = self.phase else { return Err(OutOfOrder) };
        if ran.len() != calls {
            return Err(OutOfOrder);
        }
        self.spent = spent;
        self.rounds += 1;
        self.has_results = true;
        self.repairs += u32::from(repaired);
        for call in ran {
            let Some(tool) = call.tool else { continue };
            match call.mishap {
                None => {
                    if let Some(instruction) = &tool.policy.after_call_instruction {
                        self.instruct(instruction.clone());
                    }
                }
                Some(mishap) if mishap.is_a_failure() && tool.policy.on_error == OnError::FailTurn => {
                    self.phase = Phase::Over;
                    return Ok(Step::Fail { tool: tool.name.clone() });
                }
                Some(_) => {}
            }
        }
        if waits {
            self.phase = Phase::Over;
            return Ok(Step::Park);
        }
        let last = self.cap();
        self.phase = Phase::Asked { last };
        Ok(Step::Ask { tools: last.is_none() })
    }

    /// The cap that is met by now.
    fn cap(&self) -> Option<Cap> {
        let caps = &self.caps;
        [
            (self.rounds >= caps.rounds, Cap::Rounds),
            (self.calls >= caps.calls, Cap::Calls),
            (self.repairs >= caps.repairs, Cap::Repairs),
            (caps.tokens.is_some_and(|tokens| self.spent.tokens >= tokens), Cap::Tokens),
            (self.spent.time >= caps.time, Cap::Time),
        ]
        .into_iter()
        .find_map(|(met, cap)| met.then_some(cap))
    }

    fn judge(&mut self, index: usize, call: &Wanted<'_>) -> Verdict {
        let told = |mishap, text: &str| Verdict::Told(Told::error(mishap, text));
        if index >= self.caps.calls_at_once as usize {
            return told(Mishap::TooManyAtOnce, "Not run: there are too many calls in one answer.");
        }
        if self.calls >= self.caps.calls {
            return told(Mishap::TooManyCalls, "Not run: no more tools can be called in this turn. Answer now.");
        }
        self.calls += 1;
        let Some(tool) = call.tool else {
            return told(Mishap::UnknownTool, &format!("There is no tool named {}.", shown(call.name)));
        };
        let arguments = arguments(call.arguments);
        let faults = match Raw::parse(arguments.as_bytes()) {
            Err(error) => Err(format!("the arguments are not JSON: {error}")),
            Ok(raw) => tool.check.check(raw),
        };
        if let Err(faults) = faults {
            return told(Mishap::InvalidArguments, &format!("Not run: {faults}."));
        }
        let seen = self.seen.entry(signature(call.name, &arguments, tool.parameters.raw())).or_default();
        *seen += 1;
        let seen = *seen;
        if self.has_results && seen > SAME_CALLS {
            return Verdict::Told(Told { mishap: Mishap::Repeated, output: self.suppressed(call.name) });
        }
        if self.has_results && seen == SAME_CALLS {
            self.instruct(format!(
                "The tool {} was called again with the same arguments. Use the result that is there; do not call it \
                 like this once more.",
                shown(call.name)
            ));
        }
        match tool.policy.requires_approval {
            Some(_) if self.unattended => told(
                Mishap::Denied,
                "Not run: somebody has to agree to this call, and nobody can be asked because the response is not stored.",
            ),
            Some(decider) => Verdict::Ask(decider),
            None => Verdict::Run,
        }
    }

    /// What stands for the output of a call that was made too often. O-29
    fn suppressed(&self, name: &str) -> Json {
        let guidance = match self.rounds + 2 >= self.caps.rounds {
            true => "Give the final answer now, without calling any tool.",
            false => "The result of this call is above and will not change: go on from it, or answer.",
        };
        let mut writer = Writer::default();
        writer.object(|writer| {
            writer.key("error").string("Not run: this call was made before with the same arguments.");
            writer.key("suppressed").bool(true);
            writer.key("reason").string("repeat_tool_call_detected");
            writer.key("tool").string(name);
            writer.key("guidance").string(guidance);
        });
        Json::from_writer(writer)
    }

    fn instruct(&mut self, instruction: String) {
        if !self.instructions.contains(&instruction) {
            self.instructions.push(instruction);
        }
    }
}

impl Mishap {
    /// Whether the tool itself, or the way to it, failed.
    fn is_a_failure(self) -> bool {
        matches!(self, Self::Refused | Self::Broken | Self::TimedOut | Self::TooLarge)
    }
}

/// The arguments of a call: a model that wants none may send none.
pub fn arguments(sent: &str) -> Cow<'_, str> {
    match sent.trim().is_empty() {
        true => Cow::Borrowed("{}"),
        false => Cow::Borrowed(sent),
    }
}

/// A name that a model made up, fit to be repeated.
fn shown(name: &str) -> String {
    let short: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    format!("`{short}`")
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
