//! A turn that goes on by itself: what the model calls is run, and the model is asked again, until it is done.
//!
//! [`amalgam_core::turn::Turn`] decides; this does. The items of every round are one response. They are shown in the
//! model's order: what it says after a call of the server's waits until that call is over.

mod answer;
mod working;

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll},
};

use amalgam_core::{
    BoxFuture, CallDisplay, Fault, FaultKind, Finish, HostedCall, IdKind, ModelEvent, ServerTool,
    store::{Approval, ToolRun},
    turn::{
        CallDecision, CallResult, Cap, Caps, RequestedCall, Step, StepOrderError, SubstituteOutput, ToolFailure, Turn,
        TurnUsage,
    },
};
use amalgam_protocol::Json;
use tokio::sync::mpsc;

use crate::{
    call_record::CallRecord,
    loss_log::log_losses,
    model_call::Accepted,
    run::{Engine, Now, Run},
    tool_runs::{Job, Progress, Work, not_run, work},
    turn_tools::{Round, TurnTools},
};
use answer::{Answer, Held};
use working::{CallState, Dealt};

pub(crate) use working::Working;

/// The rounds of one turn.
pub(crate) struct Rounds {
    engine: Engine,
    tooling: Box<TurnTools>,
    machine: Turn,
    answer: Answer,
    /// Items of the rounds that are over.
    said: Vec<Vec<Json>>,
    /// Where in the output the items of this round begin.
    from: usize,
    /// Calls that were written down.
    calls: u32,
    /// Whether a model was asked in this turn.
    asked: bool,
}

/// A model that is being asked again.
pub(crate) type Asking = BoxFuture<'static, (Result<Accepted, Fault>, CallRecord)>;

impl Rounds {
    pub(crate) fn new(engine: Engine, tooling: Box<TurnTools>) -> Self {
        let caps = engine.settings.tools.caps;
        let calls = tooling.max_calls.map_or(caps.calls, |most| most.min(caps.calls));
        let caps = Caps { calls, rounds: tooling.rounds.unwrap_or(caps.rounds), ..caps };
        let machine = match tooling.decided.len() {
            0 => Turn::new(caps),
            decided => Turn::with_granted(caps, decided),
        };
        let asked = tooling.decided.is_empty();
        Self { engine, tooling, machine, answer: Answer::default(), said: Vec::new(), from: 0, calls: 0, asked }
    }

    /// Where in the output the items of the last round begin.
    pub(crate) fn from(&self) -> usize {
        self.from
    }

    /// Calls of an answer that is not complete, which are not shown before it is.
    pub(crate) fn held_calls(&self) -> String {
        self.answer.calls.iter().flat_map(|call| [call.name.as_str(), &call.arguments]).collect()
    }

    fn tool(&self, name: &str) -> Option<&Arc<ServerTool>> {
        self.tooling.tools.get(name)
    }
}

impl Run {
    /// Shows what is known before anybody is asked. Whether that is anything.
    pub(crate) fn show_listings(&mut self) -> bool {
        let Some(rounds) = &mut self.rounds else { return false };
        let listings = std::mem::take(&mut rounds.tooling.listings);
        for (label, tools) in &listings {
            self.emitter.list_tools(label, tools);
        }
        self.spoken |= !listings.is_empty();
        !listings.is_empty()
    }

    /// Takes an event of a turn with tools.
    pub(crate) fn take_in_round(&mut self, event: ModelEvent) -> Result<(), Fault> {
        let Some(rounds) = &mut self.rounds else { return self.emitter.on(event) };
        let Rounds { answer, tooling, .. } = &mut **rounds;
        match answer.take(event, |call| tooling.is_ours(call)) {
            None => Ok(()),
            Some(ModelEvent::Finish(Finish::Failed(fault))) => Err(fault),
            Some(ModelEvent::Finish(finish)) => self.answered(finish),
            Some(event) => self.emitter.on(event),
        }
    }

    /// The model's answer is over.
    fn answered(&mut self, finish: Finish) -> Result<(), Fault> {
        self.end_call(None);
        let spent = self.spent();
        let kept = self.recorder.is_some();
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        if !kept {
            rounds.machine.be_unattended();
        }
        let answer = std::mem::take(&mut rounds.answer);
        let tools: Vec<Option<Arc<ServerTool>>> =
            answer.calls.iter().map(|call| rounds.tool(&call.name).cloned()).collect();
        let wanted: Vec<RequestedCall<'_>> = answer
            .calls
            .iter()
            .zip(&tools)
            .map(|(call, tool)| RequestedCall { tool: tool.as_deref(), name: &call.name, arguments: &call.arguments })
            .collect();
        let step =
            rounds.machine.answered(&wanted, finish == Finish::Stop, answer.for_client, spent).map_err(out_of_order)?;
        match step {
            Step::Run(verdicts) => self.deal(answer, tools, verdicts),
            // Calls that are not handled are not shown either: they would have no output.
            step => {
                for held in answer.held {
                    if let Held::Event(event) = held {
                        self.emitter.on(event)?;
                    }
                }
                self.go_on(step, finish)
            }
        }
    }

    /// Deals with the calls of an answer.
    fn deal(
        &mut self,
        answer: Answer,
        tools: Vec<Option<Arc<ServerTool>>>,
        verdicts: Vec<CallDecision>,
    ) -> Result<(), Fault> {
        let mut dealt = Vec::with_capacity(verdicts.len());
        for ((call, tool), verdict) in answer.calls.iter().zip(tools).zip(verdicts) {
            let fate = match verdict {
                CallDecision::Run => CallState::Running,
                CallDecision::Substitute(told) => CallState::Substitute(told),
                CallDecision::Ask(_) => CallState::Waits,
            };
            let shown_as = tool.as_ref().map_or(CallDisplay::McpCall, |tool| tool.shown);
            let kind = match (&fate, shown_as) {
                (CallState::Waits, _) => IdKind::McpApprovalRequest,
                (CallState::Substitute(_) | CallState::Running | CallState::Ran(_), CallDisplay::McpCall) => {
                    IdKind::McpCall
                }
                (CallState::Substitute(_) | CallState::Running | CallState::Ran(_), CallDisplay::FileSearch { .. }) => {
                    IdKind::FileSearchCall
                }
            };
            let call_id = self.emitter.call_id(Some(call.call_id.clone()));
            let shown = HostedCall {
                id: self.emitter.make_id(kind),
                shown: shown_as,
                call_id,
                label: tool.as_ref().map_or(amalgam_core::BANK_LABEL, |tool| &tool.label).to_owned(),
                name: tool.as_ref().map_or(&call.name, |tool| &tool.own_name).clone(),
                arguments: call.arguments.clone(),
                approval_request_id: None,
            };
            dealt.push(Dealt { tool, shown, fate });
        }
        self.begin_work(dealt, answer.held)
    }

    /// Begins a turn with calls that were decided about since they were asked for.
    pub(crate) fn begin_decided(&mut self) -> Result<(), Fault> {
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        let decided = std::mem::take(&mut rounds.tooling.decided);
        let mut dealt = Vec::with_capacity(decided.len());
        for approval in decided {
            let tool = rounds.tooling.named(&approval.label, &approval.name).cloned();
            let fate = match &tool {
                Some(_) => CallState::Running,
                None => CallState::Substitute(SubstituteOutput::error(
                    ToolFailure::UnknownTool,
                    "Not run: the tool is not offered any more.",
                )),
            };
            let shown = HostedCall {
                id: self.emitter.make_id(IdKind::McpCall),
                shown: CallDisplay::McpCall,
                call_id: approval.call_id,
                label: approval.label,
                name: approval.name,
                arguments: approval.arguments,
                approval_request_id: Some(approval.id),
            };
            dealt.push(Dealt { tool, shown, fate });
        }
        let held = (0..dealt.len()).map(Held::Call).collect();
        self.begin_work(dealt, held)
    }

    /// Runs the calls that run.
    fn begin_work(&mut self, dealt: Vec<Dealt>, held: VecDeque<Held>) -> Result<(), Fault> {
        let now_ms = self.clock.now_ms();
        let response_id = self.response_id().to_owned();
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        let limits = rounds.engine.settings.tools;
        let scope = rounds.tooling.scope.clone();
        let (mut jobs, mut records, mut approvals) = (Vec::new(), Vec::new(), Vec::new());
        for (index, Dealt { tool, shown, fate }) in dealt.iter().enumerate() {
            if let (CallState::Waits, Some(decider)) =
                (fate, tool.as_ref().and_then(|tool| tool.policy.requires_approval))
            {
                approvals.push(Approval {
                    id: shown.id.clone(),
                    response_id: response_id.clone(),
                    user: scope.user().to_owned(),
                    call_id: shown.call_id.clone(),
                    label: shown.label.clone(),
                    name: shown.name.clone(),
                    arguments: shown.arguments.clone(),
                    decider,
                    asked_at_ms: now_ms,
                    expires_at_ms: now_ms + limits.approval_deadline.as_millis() as u64,
                    decision: None,
                    used_by: None,
                });
                continue;
            }
            let record = ToolRun {
                number: rounds.calls,
                item_id: shown.id.clone(),
                call_id: shown.call_id.clone(),
                label: shown.label.clone(),
                name: shown.name.clone(),
                arguments: shown.arguments.clone(),
                idempotent: tool.as_ref().is_some_and(|tool| tool.policy.idempotent),
                started_at_ms: now_ms,
                outcome: match fate {
                    CallState::Substitute(told) => Some(not_run(told)),
                    CallState::Waits | CallState::Running | CallState::Ran(_) => None,
                },
            };
            rounds.calls += 1;
            if let (CallState::Running, Some(tool)) = (fate, tool) {
                let key = shown.approval_request_id.as_ref().unwrap_or(&shown.id).clone();
                let approval_id = shown.approval_request_id.clone();
                jobs.push(Job { index, tool: Arc::clone(tool), record: record.clone(), key, approval_id });
            }
            records.push(record);
        }
        let one_by_one = rounds.tooling.one_by_one;
        let (sender, progress) = mpsc::unbounded_channel();
        let (mut intending, mut journal) = (None, None);
        if let Some(recorder) = &mut self.recorder {
            recorder.approvals.append(&mut approvals);
            intending = Some(recorder.intend(records));
            journal = Some(recorder.journal());
        }
        let store = Arc::clone(&rounds.engine.running.store);
        let work_ahead =
            Work { jobs, intending, journal, store, response_id, scope, limits, one_by_one, progress: sender };
        let running = work(work_ahead);
        self.spoken = true;
        self.now = Now::Working(Box::new(Working {
            running: Some(Box::pin(running)),
            progress,
            intended: false,
            dealt,
            held,
            begun: None,
        }));
        Ok(())
    }

    /// Goes on with the calls that are dealt with: ready when something was shown, or all of it is over.
    pub(crate) fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let Now::Working(working) = &mut self.now else { return Poll::Ready(Ok(())) };
        if let Some(running) = &mut working.running
            && let Poll::Ready(over) = running.as_mut().poll(context)
        {
            working.running = None;
            if let Err(fault) = over {
                return Poll::Ready(Err(fault));
            }
        }
        while let Ok(progress) = working.progress.try_recv() {
            match progress {
                Progress::Intended => working.intended = true,
                Progress::Done(index, outcome) => {
                    if let Some(dealt) = working.dealt.get_mut(index) {
                        dealt.fate = CallState::Ran(outcome);
                    }
                }
            }
        }
        let shown = match working.show(&mut self.emitter) {
            Ok(shown) => shown,
            Err(fault) => return Poll::Ready(Err(fault)),
        };
        if working.running.is_none() && working.held.is_empty() {
            return Poll::Ready(self.worked());
        }
        match shown {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// All calls of the answer are dealt with.
    fn worked(&mut self) -> Result<(), Fault> {
        let spent = self.spent();
        let Now::Working(working) = &self.now else { return Ok(()) };
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        if let Some(recorder) = &mut self.recorder {
            recorder.ran(working.dealt.iter().filter_map(Dealt::ran));
        }
        let ran: Vec<CallResult<'_>> = working
            .dealt
            .iter()
            .map(|dealt| CallResult {
                tool: dealt.tool.as_deref(),
                failure: match &dealt.fate {
                    CallState::Substitute(told) => Some(told.failure),
                    CallState::Ran(outcome) => outcome.failure,
                    CallState::Waits | CallState::Running => None,
                },
            })
            .collect();
        let step = rounds.machine.ran(&ran, spent).map_err(out_of_order)?;
        self.go_on(step, Finish::Stop)
    }

    /// Does what the machine says, other than running calls.
    fn go_on(&mut self, step: Step, finish: Finish) -> Result<(), Fault> {
        match step {
            Step::Ask { tools } => self.ask_again(tools),
            Step::Park | Step::End(None) => self.emitter.on(ModelEvent::Finish(finish)),
            Step::End(Some(cap)) => self.end_at(cap, finish),
            Step::Fail { tool } => {
                Err(Fault::new(FaultKind::ToolFailed, format!("The tool `{tool}` failed, and the response with it.")))
            }
            Step::Run(_) => Err(out_of_order(StepOrderError)),
        }
    }

    /// A cap was met: the response says which, unless something else cut it before.
    fn end_at(&mut self, cap: Cap, finish: Finish) -> Result<(), Fault> {
        let finish = match finish {
            Finish::Stop => Finish::Incomplete(cap.reason().to_owned()),
            finish => finish,
        };
        self.emitter.on(ModelEvent::Finish(finish))
    }

    fn ask_again(&mut self, tools: bool) -> Result<(), Fault> {
        self.asked = None;
        self.emitter.end_round();
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        let output = self.emitter.kept_output();
        rounds.said.push(output.get(rounds.from..).unwrap_or_default().to_vec());
        rounds.from = output.len();
        let used = self.emitter.usage().unwrap_or_default().output_tokens;
        let left = match rounds.tooling.limit_each_call {
            true => self.output_tokens,
            false => self.output_tokens.map(|most| most.saturating_sub(used)),
        };
        if left == Some(0) {
            return self.emitter.on(ModelEvent::Finish(Finish::Length));
        }
        let round = Round {
            said: rounds.said.clone(),
            instructions: rounds.machine.instructions().to_vec(),
            tools,
            // Calls that were decided about before are not the model's first word in this turn.
            free: rounds.asked,
            output_tokens: left,
        };
        rounds.asked = true;
        let (engine, plan) = (rounds.engine.clone(), Arc::clone(&rounds.tooling.prompt));
        let scope = rounds.tooling.scope.clone();
        let mut calling = self.calling.clone();
        self.now = Now::Asking(Box::pin(async move {
            let asked = plan.ask(&engine, &scope, &round, &mut calling).await;
            (asked, calling)
        }));
        Ok(())
    }

    /// Waits for a model to accept another round.
    pub(crate) fn poll_asking(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let Now::Asking(asking) = &mut self.now else { return Poll::Ready(Ok(())) };
        let (asked, calling) = std::task::ready!(asking.as_mut().poll(context));
        self.calling = calling;
        Poll::Ready(asked.map(|accepted| {
            if accepted.losses != self.losses {
                log_losses(self.response_id(), &accepted.upstream, &accepted.model, &accepted.losses);
            }
            self.emitter.answered_by(accepted.provenance());
            self.upstream = accepted.upstream;
            self.model = accepted.model;
            self.remembering = accepted.remembering;
            self.asked = accepted.asked;
            self.losses = accepted.losses;
            self.alone = self.alone.map(|_| 0);
            self.first = accepted.first;
            self.now = Now::Model(accepted.stream);
        }))
    }

    fn spent(&self) -> TurnUsage {
        let tokens = self.emitter.usage().map_or(0, |usage| usage.total());
        TurnUsage { tokens, time: self.started.elapsed() }
    }
}

fn out_of_order(error: StepOrderError) -> Fault {
    Fault::internal(error)
}
