//! Invariants of every turn, with any outcome.

use std::collections::HashMap;

use amalgam_core::{
    Fault, Finish, ModelEvent,
    store::{StoredResponse, ToolRun},
};
use amalgam_protocol::Status;
use amalgam_testkit::{check, sse};
use serde_json::Value;

use super::{
    setup::{CLIENT, FATAL, FOREIGN, Said, Setup, UNKNOWN},
    store::KeptTurn,
    world::{AskSeen, State, Stop, World},
};

/// What the caller received.
pub(super) enum Received {
    /// The turn did not begin.
    Refused(Fault),
    Whole(Result<Vec<u8>, Fault>),
    Stream,
    /// Nothing more: it has left.
    Left,
    /// There are no further observations: the process died.
    Died,
}

/// The reasons of a turn that came to one of its caps.
const CAPS: [&str; 5] =
    ["max_tool_iterations", "max_tool_calls", "max_tool_repairs", "max_turn_tokens", "max_tool_time"];

/// Everything that is wrong. `left` is what the process has left in the store.
pub(super) fn check(
    setup: &Setup,
    world: &World,
    received: &Received,
    stop: Option<Stop>,
    left: Option<&KeptTurn>,
) -> Vec<String> {
    let state = world.state();
    let mut check = Check { setup, state: &state, problems: state.problems.clone() };
    check.caps();
    check.effects();
    if world.age() > setup.deadline + std::time::Duration::from_secs(12) {
        check.complain(format!("the turn took {:?}", world.age()));
    }
    let answered = check.answered(received);
    if let Some(response) = &answered {
        check.response(response);
    }
    let failure = match received {
        Received::Refused(fault) | Received::Whole(Err(fault)) => Some(fault.message.as_ref()),
        _ => answered.as_ref().and_then(|response| response["error"]["message"].as_str()),
    };
    if let Some(message) = failure
        && !check.is_right(message, world.age(), stop)
    {
        check.complain(format!("no part of the script explains {message:?}"));
    }
    check.store(received, stop, left, answered.as_ref());
    check.problems
}

struct Check<'a> {
    setup: &'a Setup,
    state: &'a State,
    problems: Vec<String>,
}

impl Check<'_> {
    fn complain(&mut self, what: impl Into<String>) {
        self.problems.push(what.into());
    }

    fn expect<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, found: T, expected: T) {
        if found != expected {
            self.complain(format!("{what} is {found:?} and not {expected:?}"));
        }
    }

    /// The response that the caller received at the end, if any.
    fn answered(&mut self, received: &Received) -> Option<Value> {
        match received {
            Received::Whole(Ok(body)) => {
                let response = serde_json::from_slice(body).unwrap();
                self.problems.extend(check::response(&response));
                Some(response)
            }
            Received::Stream => {
                self.problems.extend(check::body(&self.state.frames));
                let events = sse::json_events(&self.state.frames);
                events.last().map(|last| last["response"].clone())
            }
            // The caller may have received the end before.
            Received::Left | Received::Died => {
                let text = String::from_utf8_lossy(&self.state.frames);
                text.ends_with("data: [DONE]\n\n").then(|| {
                    let events = sse::json_events(&self.state.frames);
                    events.last().unwrap()["response"].clone()
                })
            }
            Received::Refused(_) | Received::Whole(Err(_)) => None,
        }
    }

    /// How often the model is asked, and for what.
    fn caps(&mut self) {
        let (setup, asks) = (self.setup, &self.state.asks);
        let most = setup.limits.caps.rounds as usize + usize::from(setup.decided.is_empty());
        if asks.len() > most {
            self.complain(format!("the model was asked {} times", asks.len()));
        }
        let mut used = 0;
        for (index, ask) in asks.iter().enumerate() {
            let is_last = index + 1 == asks.len();
            if !ask.with_tools() && !is_last {
                self.complain("the model was asked again after its last time");
            }
            // C-30
            let choice = match (setup.required, index) {
                _ if !ask.with_tools() => Some("None"),
                (true, 0) => Some("Required"),
                (true, _) => Some("Auto"),
                (false, _) => None,
            };
            self.expect("the choice", ask.choice.as_deref(), choice);
            let left = setup.output_tokens.map(|most| most.saturating_sub(used));
            self.expect("what is left of the output", ask.output_tokens, left);
            if left == Some(0) {
                self.complain("the model was asked for no output");
            }
            used += ask.cost.1;
        }
    }

    /// What tools did.
    fn effects(&mut self) {
        let mut times: HashMap<&str, usize> = HashMap::new();
        for effect in &self.state.effects {
            *times.entry(&effect.key).or_default() += 1;
        }
        let calls = self.setup.max_calls.unwrap_or(u32::MAX).min(self.setup.limits.caps.calls) as usize;
        if times.len() > calls + self.setup.decided.len() {
            self.complain(format!("{} calls were run", times.len()));
        }
        for effect in &self.state.effects {
            // S3
            let most = if effect.idempotent { 2 } else { 1 };
            if times.get(&*effect.key).is_some_and(|times| *times > most) {
                self.complain(format!("{} {} ran more than {most} times", effect.name, effect.call_id));
            }
        }
    }

    /// A response that has ended.
    fn response(&mut self, response: &Value) {
        let status = response["status"].as_str().unwrap_or_default().to_owned();
        if status != "completed" && status != "incomplete" {
            return self.expect("the output", &response["output"], &Value::Array(Vec::new()));
        }
        let output = response["output"].as_array().cloned().unwrap_or_default();
        let shown: Vec<(bool, String, String)> = output.iter().filter_map(shown_call).collect();
        self.expect("what is shown of calls", shown, self.expected_calls());
        for item in output.iter().filter(|item| item["type"] == "mcp_call") {
            if !item["output"].is_string() || !["completed", "failed"].contains(&item["status"].as_str().unwrap_or(""))
            {
                self.complain(format!("a call has no output: {item}"));
            }
        }
        if let Some(item) =
            output.iter().find(|item| item["type"].as_str().is_some_and(|kind| kind.ends_with("_output")))
        {
            self.complain(format!("an output for a call of the client's: {item}"));
        }
        let cost = self.state.asks.iter().fold((0, 0), |sum, ask| (sum.0 + ask.cost.0, sum.1 + ask.cost.1));
        let usage = &response["usage"];
        let tokens = |key: &str| usage[key].as_u64().unwrap_or_default();
        self.expect("the usage", (tokens("input_tokens"), tokens("output_tokens")), cost);
        let reason = response["incomplete_details"]["reason"].as_str().unwrap_or_default();
        let right = match self.state.asks.last() {
            None => false,
            Some(AskSeen { finish: Some(Finish::Length), .. }) => reason == "max_output_tokens",
            Some(AskSeen { finish: Some(Finish::ContentFilter), .. }) => reason == "content_filter",
            Some(AskSeen { finish: Some(Finish::Incomplete(seen)), .. }) => reason == seen,
            Some(ask @ AskSeen { finish: Some(Finish::Stop), .. }) => match ask.with_tools() {
                true => reason.is_empty() || reason == "max_output_tokens" && Some(cost.1) >= self.setup.output_tokens,
                false => CAPS.contains(&reason),
            },
            Some(_) => false,
        };
        if !right {
            self.complain(format!("the response is {status} for {reason:?}"));
        }
    }

    /// Whether a failure has the reason that it states.
    fn is_right(&self, message: &str, age: std::time::Duration, stop: Option<Stop>) -> bool {
        let last = self.state.asks.len().checked_sub(1);
        let answer = last.and_then(|last| self.setup.answers.get(last));
        let ends_in = |wanted: fn(&Said) -> bool| answer.and_then(|answer| answer.said.last()).is_some_and(wanted);
        let failed =
            |run: &&ToolRun| run.name == FATAL && run.outcome.as_ref().is_some_and(|outcome| outcome.error.is_some());
        match message {
            "The upstream closed the stream before the answer was complete." => {
                ends_in(|said| matches!(said, Said::Cut))
            }
            "The upstream could not be reached." => answer.is_none_or(|answer| answer.refuses),
            "It failed." => ends_in(|said| matches!(said, Said::Event(ModelEvent::Finish(Finish::Failed(_))))),
            "The tool `fatal` failed, and the response with it." => match &self.state.shelf.turn {
                Some(turn) => turn.tools.values().any(|run| failed(&run)),
                None => !self.setup.kept,
            },
            "The request took longer than the server allows." => age >= self.setup.deadline,
            "The server cannot reach its store; try again in a moment." => self.setup.troubled,
            "The response was cancelled." | "The server stopped while it worked on this response." => {
                stop == Some(Stop::Bury)
            }
            // Whether the tools that it names are the right ones is looked at where the store is.
            message => message.starts_with("The server stopped while") && stop == Some(Stop::Bury),
        }
    }

    /// The calls that are to be shown, in the model's order: all of an answer that was dealt with, of others the client's.
    fn expected_calls(&self) -> Vec<(bool, String, String)> {
        let decided = self.setup.decided.iter();
        let mut calls: Vec<_> =
            decided.map(|approval| (true, approval.name.clone(), approval.arguments.clone())).collect();
        for ask in &self.state.asks {
            let dealt_with = ask.with_tools() && ask.finish == Some(Finish::Stop);
            for call in &ask.calls {
                let ours = self.is_ours(&call.name);
                if dealt_with || !ours {
                    let arguments = if !ours && call.arguments.is_empty() { "{}" } else { &call.arguments };
                    calls.push((ours, call.name.clone(), arguments.to_owned()));
                }
            }
        }
        calls
    }

    fn is_ours(&self, name: &str) -> bool {
        match self.setup.knows_client {
            true => name != CLIENT,
            false => name != CLIENT && name != UNKNOWN,
        }
    }

    /// The store's state, before and after housekeeping.
    fn store(&mut self, received: &Received, stop: Option<Stop>, left: Option<&KeptTurn>, answered: Option<&Value>) {
        let Some(turn) = self.state.shelf.turn.clone() else {
            if self.setup.kept && answered.is_some() {
                self.complain("what the caller received is not in the store");
            }
            return;
        };
        let Some(left) = left else { return self.complain("the turn came into being after its end") };
        let stored = object(&turn.response());
        // P1, P5
        if let Some(answered) = answered {
            self.expect("what is stored", &stored, answered);
        }
        // P3
        if !turn.state.status.is_final() {
            self.complain(format!("the response is {} for ever", turn.state.status.name()));
        }
        let was_ended = left.state.status.is_final();
        let recovered = stop == Some(Stop::Bury);
        let left_open = match received {
            Received::Died => true,
            // If its beginning may not have been written, housekeeping of this process ends it.
            Received::Refused(_) => self.setup.troubled,
            Received::Whole(_) | Received::Stream | Received::Left => false,
        };
        if !was_ended && !left_open {
            self.complain(format!("the response was left {}", left.state.status.name()));
        }
        match (received, turn.state.status) {
            (_, Status::Cancelled) if self.setup.leaves.is_none() => {
                self.complain("the response was cancelled without a request");
            }
            (Received::Whole(Err(_)) | Received::Refused(_), Status::Completed | Status::Incomplete) => {
                self.complain("the caller received a failure of a response that is stored as a success");
            }
            _ => {}
        }
        if matches!(turn.state.status, Status::Completed | Status::Incomplete) {
            self.journal(&turn, &stored);
        }
        if (!was_ended && matches!(received, Received::Died)) || recovered {
            self.named(&turn, left);
        }
    }

    /// The journal of a turn that ended successfully.
    fn journal(&mut self, turn: &KeptTurn, stored: &Value) {
        let shown = stored["output"].as_array().cloned().unwrap_or_default();
        let mut calls = shown.iter().filter(|item| item["type"] == "mcp_call");
        for run in turn.tools.values() {
            let output = run.outcome.as_ref().map(|outcome| {
                let raw = outcome.output.raw();
                raw.as_str().map_or_else(|| raw.text().to_owned(), |text| text.decode().into_owned())
            });
            let item = calls.next().cloned().unwrap_or_default();
            let found = (item["id"].as_str(), item["output"].as_str());
            self.expect("a call", found, (Some(run.item_id.as_str()), output.as_deref()));
        }
        if let Some(item) = calls.next() {
            self.complain(format!("the journal does not know {item}"));
        }
        let asked = shown.iter().filter(|item| item["type"] == "mcp_approval_request");
        let asked: Vec<&str> = asked.filter_map(|item| item["id"].as_str()).collect();
        let approvals: Vec<&str> = turn.approvals.iter().map(|approval| &*approval.id).collect();
        self.expect("calls that wait for an approval", approvals, asked);
    }

    /// Tools with an unknown result are named, and no others. S3
    fn named(&mut self, turn: &KeptTurn, left: &KeptTurn) {
        if turn.state.status != Status::Failed {
            return;
        }
        let Some(error) = &turn.state.error else { return self.complain("a failure without an error") };
        if !error.message.starts_with("The server stopped") {
            return;
        }
        self.expect("the code", error.code.as_deref(), Some("server_error"));
        let named: Vec<&str> = error.message.split('`').skip(1).step_by(2).collect();
        for effect in self.state.effects.iter().filter(|effect| !effect.idempotent) {
            let run = left.tools.values().find(|run| run.item_id == effect.key || run.call_id == effect.call_id);
            let known = run.is_some_and(|run| run.outcome.is_some());
            if !known && !named.contains(&&*effect.name) {
                self.complain(format!("{} may have run and is not named: {}", effect.name, error.message));
            }
        }
        for name in named {
            let open = |run: &&ToolRun| run.name == name && run.outcome.is_none() && !run.idempotent;
            if !left.tools.values().any(|run| open(&run)) {
                self.complain(format!("{name} is named for nothing"));
            }
        }
    }
}

/// Whether a call is server-run, its name as the model called it, its arguments.
fn shown_call(item: &Value) -> Option<(bool, String, String)> {
    let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
    match item["type"].as_str()? {
        "mcp_call" | "mcp_approval_request" => {
            let name = if item["server_label"] == "docs" { FOREIGN.to_owned() } else { text("name") };
            Some((true, name, text("arguments")))
        }
        "function_call" => Some((false, text("name"), text("arguments"))),
        _ => None,
    }
}

fn object(response: &StoredResponse) -> Value {
    serde_json::from_slice(&response.object()).unwrap()
}
