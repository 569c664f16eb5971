//! The model and the tools of a simulated world.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use amalgam_core::{
    AnswerContext, BoxFuture, CallMap, Decider, Entry, Fault, Handler, Model, ModelError, ModelEvent, ModelRequest,
    ModelStream, OnError, Payload, Policy, PreparedRequest, ServerTool, ToolCall, ToolError, ToolOutput,
};
use futures_util::stream;
use rand::RngExt;

use super::{
    setup::{Answer, FATAL, FOREIGN, GUARDED, MadeCall, OUTPUT_BYTES, READ, Said, Setup, WRITE},
    world::{AskSeen, Effect, World},
};
use crate::tooled::{json, tool};

/// Says what the setup has for it.
pub(super) struct Speaker {
    pub(super) world: Arc<World>,
    pub(super) setup: Arc<Setup>,
}

impl Model for Speaker {
    fn prepare(&self, request: &ModelRequest<'_>) -> Result<PreparedRequest, Fault> {
        let mut state = self.world.state();
        for problem in unpaired(&request.history.entries) {
            state.complain(format!("the model was asked with {problem}"));
        }
        state.asks.push(AskSeen {
            choice: request.settings.tool_choice.as_ref().map(|choice| format!("{choice:?}")),
            output_tokens: request.settings.max_output_tokens,
            calls: Vec::new(),
            cost: (0, 0),
            finish: None,
        });
        Ok(PreparedRequest {
            body: b"asked".to_vec().into(),
            losses: Vec::new(),
            delivery: request.delivery,
            calls: CallMap::default(),
            answer_context: AnswerContext::default(),
        })
    }

    fn ask<'a>(&'a self, _: &'a PreparedRequest) -> BoxFuture<'a, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            let round = self.world.state().asks.len() - 1;
            self.world.step(format!("model: asked for answer {round}")).await;
            self.world.pause(300).await;
            let Some(Answer { refuses: false, said }) = self.setup.answers.get(round).cloned() else {
                return Err(ModelError::Unreachable("connection refused".to_owned()));
            };
            let speech = Speech { world: Arc::clone(&self.world), round, said: said.into() };
            Ok(Box::pin(stream::unfold(speech, Speech::next)) as ModelStream)
        })
    }
}

struct Speech {
    world: Arc<World>,
    round: usize,
    said: VecDeque<Said>,
}

impl Speech {
    async fn next(mut self) -> Option<(Result<Vec<ModelEvent>, ModelError>, Self)> {
        loop {
            match self.said.pop_front()? {
                Said::Pause(pause) => tokio::time::sleep(pause).await,
                Said::Hang => std::future::pending().await,
                Said::Cut => return Some((Err(ModelError::CutShort), self)),
                Said::Event(event) => {
                    self.world.step(format!("model: {event:?}")).await;
                    self.answer_context(&event);
                    return Some((Ok(vec![event]), self));
                }
            }
        }
    }

    fn answer_context(&self, event: &ModelEvent) {
        let mut state = self.world.state();
        let Some(seen) = state.asks.get_mut(self.round) else { return };
        match event {
            ModelEvent::CallStart { key, call } => {
                seen.calls.push(MadeCall { key: *key, name: call.name.clone(), arguments: String::new() });
            }
            ModelEvent::CallDelta { key, delta } => {
                if let Some(call) = seen.calls.iter_mut().find(|call| call.key == *key) {
                    call.arguments.push_str(&delta.decode());
                }
            }
            ModelEvent::Usage(usage) => seen.cost = (usage.input_tokens, usage.output_tokens),
            ModelEvent::Finish(finish) => seen.finish = Some(finish.clone()),
            _ => {}
        }
    }
}

/// Calls without exactly one output, outputs without a call, and outputs of other calls.
fn unpaired(entries: &[Entry<'_>]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut open: HashMap<&str, String> = HashMap::new();
    for entry in entries {
        match entry {
            Entry::Call(call) => {
                let Payload::Arguments(arguments) = call.payload else { continue };
                if open.insert(&call.call_id, arguments.decode().into_owned()).is_some() {
                    problems.push(format!("call {} twice", call.call_id));
                }
            }
            Entry::Output(output) => {
                let text = output.content.text();
                match open.remove(&*output.call_id) {
                    None => problems.push(format!("an output of {} that no call waits for", output.call_id)),
                    Some(arguments) => {
                        let saw = text.strip_prefix(r#"{"saw":"#).and_then(|text| text.strip_suffix('}'));
                        let arguments = if arguments.is_empty() { "{}" } else { &arguments };
                        if saw.is_some_and(|saw| saw != arguments) {
                            problems.push(format!("the output {text} for a call with {arguments}"));
                        }
                    }
                }
            }
            Entry::Note(note) => problems.push(format!("a note: {note}")),
            _ => {}
        }
    }
    problems.extend(open.keys().map(|id| format!("call {id} without its output")));
    problems
}

/// The tools of the turn.
pub(super) fn tools(world: &Arc<World>) -> Vec<Arc<ServerTool>> {
    let policy = |idempotent| Policy { timeout: Duration::from_secs(5), idempotent, ..Policy::default() };
    let does = |name: &str, policy: Policy| {
        let acts = Acts { world: Arc::clone(world), name: name.to_owned(), idempotent: policy.idempotent };
        tool(name, policy, acts)
    };
    let foreign = does(FOREIGN, policy(true));
    let tools = [
        does(READ, Policy { after_call_instruction: Some("Say where it is from.".to_owned()), ..policy(true) }),
        does(WRITE, policy(false)),
        does(FATAL, Policy { on_error: OnError::FailTurn, ..policy(false) }),
        does(GUARDED, Policy { requires_approval: Some(Decider::Caller), ..policy(false) }),
        ServerTool { label: "docs".to_owned(), own_name: "find".to_owned(), ..foreign },
    ];
    tools.into_iter().map(Arc::new).collect()
}

/// A tool that may have a side effect, and may report it.
struct Acts {
    world: Arc<World>,
    name: String,
    idempotent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mood {
    Well,
    Refuses,
    Breaks,
    FallsOver,
    Hangs,
    TalksTooMuch,
}

impl Handler for Acts {
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let (before, after) = self.moods();
            self.world.pause(3000).await;
            self.act(before, call)?.await;
            // An id that the engine had to make is another one each time.
            let named = if call.call_id.starts_with("call_AM-") { "without an id" } else { call.call_id };
            let what = format!("tool {} {named}", self.name);
            self.world.step(format!("{what}: begins")).await;
            self.has_effect(call);
            self.world.pause(300).await;
            self.world.step(format!("{what}: has had its effect")).await;
            self.act(after, call)?.await;
            let output = match after {
                Mood::TalksTooMuch => json(&format!("{:?}", "x".repeat(OUTPUT_BYTES))),
                _ => json(&format!(r#"{{"saw":{}}}"#, call.arguments.text())),
            };
            Ok(ToolOutput { output })
        })
    }
}

impl Acts {
    /// The behaviour before the first output, and after it.
    fn moods(&self) -> (Mood, Mood) {
        let chance = &mut self.world.state().chance;
        let mut mood = |well: u32| match chance.random_range(0..well + 14) {
            0..3 => Mood::Refuses,
            3..7 => Mood::Breaks,
            7..10 => Mood::FallsOver,
            10..12 => Mood::Hangs,
            12..14 => Mood::TalksTooMuch,
            _ => Mood::Well,
        };
        (mood(80), mood(40))
    }

    fn act(&self, mood: Mood, call: ToolCall<'_>) -> Result<BoxFuture<'static, ()>, ToolError> {
        match mood {
            Mood::Well | Mood::TalksTooMuch => Ok(Box::pin(std::future::ready(()))),
            Mood::Refuses => Err(ToolError::Refused(format!("{} is not to be had", call.arguments.text()))),
            Mood::Breaks => Err(ToolError::Broken { detail: "no connection".to_owned() }),
            // Without the hook that prints.
            Mood::FallsOver => std::panic::resume_unwind(Box::new("a handler fell over")),
            Mood::Hangs => Ok(Box::pin(std::future::pending())),
        }
    }

    fn has_effect(&self, call: ToolCall<'_>) {
        let mut state = self.world.state();
        let (key, call_id) = (call.key.to_owned(), call.call_id.to_owned());
        if state.shelf.kept && !state.shelf.is_intended(&key, &call_id) {
            state.complain(format!("{} {call_id} ran without an intent in the store", self.name));
        }
        if key.starts_with("mcpr") && (!state.shelf.used.contains(&key) || state.shelf.taken.contains(&key)) {
            state.complain(format!("{} {call_id} ran on an approval that is not its own", self.name));
        }
        if state.over {
            state.complain(format!("{} {call_id} ran although the turn was over", self.name));
        }
        state.effects.push(Effect { key, call_id, name: self.name.clone(), idempotent: self.idempotent });
    }
}
