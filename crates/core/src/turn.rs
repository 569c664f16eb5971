//! The state machine of a turn whose tools the server runs.
//!
//! Pure: its input is events, its output the next step. The engine calls the model, runs the tools and writes to the
//! store. A model is not trusted, so this file limits the number of calls, repeated calls, rounds, tokens, attempts to
//! repair arguments, and the time.

mod signature;

use std::{borrow::Cow, collections::HashMap, time::Duration};

use amalgam_protocol::{Json, Raw, Writer};

use crate::tool::{Decider, OnError, ServerTool};
use signature::signature;

/// The limits of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Rounds of tools.
    pub rounds: u32,
    /// Calls in all rounds together.
    pub calls: u32,
    /// Calls in one answer of the model.
    pub calls_at_once: u32,
    /// Rounds in which arguments did not match the schema.
    pub repairs: u32,
    /// Tokens in all rounds together, input and output; none for no limit.
    pub tokens: Option<u64>,
    /// Time since the start of the turn.
    pub time: Duration,
}

impl Default for Caps {
    fn default() -> Self {
        Self { rounds: 8, calls: 64, calls_at_once: 32, repairs: 3, tokens: None, time: Duration::from_secs(480) }
    }
}

/// The limit that a turn has reached.
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
    /// The value of `incomplete_details.reason`.
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

/// Why a call was not run, or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolFailure {
    /// No tool with this name was offered.
    UnknownTool,
    /// The arguments do not match its schema.
    InvalidArguments,
    /// Too many calls in one answer.
    TooManyAtOnce,
    /// Too many calls in one turn.
    TooManyCalls,
    /// The same call was made too often.
    Repeated,
    /// Approval was refused, or not given in time.
    Denied,
    /// The tool refused the call.
    Refused,
    /// The tool could not be run, or failed while running.
    Broken,
    /// The tool took too long.
    TimedOut,
    /// The output is larger than allowed.
    TooLarge,
}

impl ToolFailure {
    /// The name in records and metrics.
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

/// A call in a model's answer that the server handles.
#[derive(Debug, Clone, Copy)]
pub struct RequestedCall<'a> {
    /// The tool, if the request offers one with this name.
    pub tool: Option<&'a ServerTool>,
    /// The name that the model called.
    pub name: &'a str,
    /// The exact text of its arguments.
    pub arguments: &'a str,
}

/// What a turn has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TurnUsage {
    /// Input and output tokens.
    pub tokens: u64,
    /// Time since the start of the turn.
    pub time: Duration,
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallDecision {
    /// The call runs.
    Run,
    /// The call does not run; the model gets this output instead.
    Substitute(SubstituteOutput),
    /// The call waits for approval.
    Ask(Decider),
}

/// The output that a model gets for a call that was not run or that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct SubstituteOutput {
    /// The reason.
    pub failure: ToolFailure,
    /// A JSON value.
    pub output: Json,
}

impl SubstituteOutput {
    /// `{"error": text}`
    pub fn error(failure: ToolFailure, text: &str) -> Self {
        let mut writer = Writer::with_capacity(text.len() + 16);
        writer.object(|writer| writer.key("error").string(text));
        Self { failure, output: Json::from_writer(writer) }
    }
}

/// What the engine does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Handle the calls of the answer, each by its decision, then report the results with [`Turn::ran`].
    Run(Vec<CallDecision>),
    /// Call the model again.
    Ask {
        /// Whether it may call tools.
        tools: bool,
    },
    /// Return the answer: the client has calls to run, or an approver has calls to decide.
    Park,
    /// The turn has ended; with the limit that ended it, if one did.
    End(Option<Cap>),
    /// A tool failed, and its policy makes the turn fail.
    Fail {
        /// The name of the tool.
        tool: String,
    },
}

/// The result of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallResult<'a> {
    /// Its tool, if there is one.
    pub tool: Option<&'a ServerTool>,
    /// Why it failed; none when it succeeded.
    pub failure: Option<ToolFailure>,
}

/// The engine reported something that the current phase does not allow; a bug in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a turn received a report that its current phase does not expect")]
pub struct StepOrderError;

/// A turn with tools.
#[derive(Debug, Clone)]
pub struct Turn {
    caps: Caps,
    phase: Phase,
    rounds: u32,
    calls: u32,
    repairs: u32,
    /// The number of times each call was made.
    seen: HashMap<String, u32>,
    /// Whether a tool has returned an output in this turn.
    has_results: bool,
    /// Whether approvals cannot be requested.
    unattended: bool,
    /// Instructions that follow the conversation in every later call of the model.
    instructions: Vec<String>,
    usage: TurnUsage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The model is answering; for the last time if a limit was reached.
    Calling {
        last: Option<Cap>,
    },
    /// The calls are being handled.
    Running {
        calls: usize,
        waits: bool,
        repaired: bool,
    },
    Over,
}

/// The maximum number of runs of the same call.
const SAME_CALLS: u32 = 2;

impl Turn {
    /// A turn before its first model call.
    pub fn new(caps: Caps) -> Self {
        Self {
            caps,
            phase: Phase::Calling { last: None },
            rounds: 0,
            calls: 0,
            repairs: 0,
            seen: HashMap::new(),
            has_results: false,
            unattended: false,
            instructions: Vec::new(),
            usage: TurnUsage::default(),
        }
    }

    /// A turn that starts with calls that were approved before; their results are reported first.
    pub fn with_granted(caps: Caps, calls: usize) -> Self {
        Self { phase: Phase::Running { calls, waits: false, repaired: false }, ..Self::new(caps) }
    }

    /// Approvals cannot be requested in this turn: calls that need one are refused.
    pub fn be_unattended(&mut self) {
        self.unattended = true;
    }

    /// Instructions that follow the conversation, beyond the outputs themselves.
    pub fn instructions(&self) -> &[String] {
        &self.instructions
    }

    /// Rounds of tools so far.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The model has answered. `whole` says that the answer is complete; `for_client` that it contains calls for the
    /// client.
    pub fn answered(
        &mut self,
        calls: &[RequestedCall<'_>],
        whole: bool,
        for_client: bool,
        usage: TurnUsage,
    ) -> Result<Step, StepOrderError> {
        let Phase::Calling { last } = self.phase else { return Err(StepOrderError) };
        self.usage = usage;
        // Calls of an incomplete answer may be incomplete, and after a limit no tool was offered.
        if calls.is_empty() || !whole || last.is_some() {
            self.phase = Phase::Over;
            return Ok(Step::End(last));
        }
        let mut repaired = false;
        let verdicts: Vec<CallDecision> = calls
            .iter()
            .enumerate()
            .map(|(index, call)| {
                let verdict = self.judge(index, call);
                repaired |= matches!(&verdict, CallDecision::Substitute(output) if output.failure == ToolFailure::InvalidArguments);
                verdict
            })
            .collect();
        let waits = for_client || verdicts.iter().any(|verdict| matches!(verdict, CallDecision::Ask(_)));
        self.phase = Phase::Running { calls: calls.len(), waits, repaired };
        Ok(Step::Run(verdicts))
    }

    /// All calls of the answer have a result, in order; calls that wait for approval count as well.
    pub fn ran(&mut self, ran: &[CallResult<'_>], usage: TurnUsage) -> Result<Step, StepOrderError> {
        let Phase::Running { calls, waits, repaired } = self.phase else { return Err(StepOrderError) };
        if ran.len() != calls {
            return Err(StepOrderError);
        }
        self.usage = usage;
        self.rounds += 1;
        self.has_results = true;
        self.repairs += u32::from(repaired);
        for call in ran {
            let Some(tool) = call.tool else { continue };
            match call.failure {
                None => {
                    if let Some(instruction) = &tool.policy.after_call_instruction {
                        self.instruct(instruction.clone());
                    }
                }
                Some(failure) if failure.is_failure() && tool.policy.on_error == OnError::FailTurn => {
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
        self.phase = Phase::Calling { last };
        Ok(Step::Ask { tools: last.is_none() })
    }

    /// The limit that has been reached, if any.
    fn cap(&self) -> Option<Cap> {
        let caps = &self.caps;
        [
            (self.rounds >= caps.rounds, Cap::Rounds),
            (self.calls >= caps.calls, Cap::Calls),
            (self.repairs >= caps.repairs, Cap::Repairs),
            (caps.tokens.is_some_and(|tokens| self.usage.tokens >= tokens), Cap::Tokens),
            (self.usage.time >= caps.time, Cap::Time),
        ]
        .into_iter()
        .find_map(|(met, cap)| met.then_some(cap))
    }

    fn judge(&mut self, index: usize, call: &RequestedCall<'_>) -> CallDecision {
        let substitute = |failure, text: &str| CallDecision::Substitute(SubstituteOutput::error(failure, text));
        if index >= self.caps.calls_at_once as usize {
            return substitute(ToolFailure::TooManyAtOnce, "Not run: there are too many calls in one answer.");
        }
        if self.calls >= self.caps.calls {
            return substitute(
                ToolFailure::TooManyCalls,
                "Not run: no more tools can be called in this turn. Answer now.",
            );
        }
        self.calls += 1;
        let Some(tool) = call.tool else {
            return substitute(ToolFailure::UnknownTool, &format!("There is no tool named {}.", shown(call.name)));
        };
        let arguments = arguments(call.arguments);
        let faults = match Raw::parse(arguments.as_bytes()) {
            Err(error) => Err(format!("the arguments are not JSON: {error}")),
            Ok(raw) => tool.check.check(raw),
        };
        if let Err(faults) = faults {
            return substitute(ToolFailure::InvalidArguments, &format!("Not run: {faults}."));
        }
        let seen = self.seen.entry(signature(call.name, &arguments, tool.parameters.raw())).or_default();
        *seen += 1;
        let seen = *seen;
        if self.has_results && seen > SAME_CALLS {
            return CallDecision::Substitute(SubstituteOutput {
                failure: ToolFailure::Repeated,
                output: self.suppressed(call.name),
            });
        }
        if self.has_results && seen == SAME_CALLS {
            self.instruct(format!(
                "The tool {} was called again with the same arguments. Use the result that is there; do not call it \
                 like this once more.",
                shown(call.name)
            ));
        }
        match tool.policy.requires_approval {
            Some(_) if self.unattended => substitute(
                ToolFailure::Denied,
                "Not run: this call needs approval, and approval cannot be requested because the response is not stored.",
            ),
            Some(decider) => CallDecision::Ask(decider),
            None => CallDecision::Run,
        }
    }

    /// The output for a call that was made too often. O-29
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

impl ToolFailure {
    /// Whether the tool itself, or the connection to it, failed.
    fn is_failure(self) -> bool {
        matches!(self, Self::Refused | Self::Broken | Self::TimedOut | Self::TooLarge)
    }
}

/// The arguments of a call; an empty text means `{}`, because some models send nothing.
pub fn arguments(sent: &str) -> Cow<'_, str> {
    match sent.trim().is_empty() {
        true => Cow::Borrowed("{}"),
        false => Cow::Borrowed(sent),
    }
}

/// A model's name for a tool, shortened and escaped.
fn shown(name: &str) -> String {
    let short: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    format!("`{short}`")
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
