//! The rounds of a turn with server-run tools: run the calls of an answer, call the model again, until it is done.
//!
//! [`amalgam_core::turn::Turn`] decides; this module performs. The items of all rounds form one response, in the
//! model's order: output after a server-run call is held until that call has finished.

mod answer;
mod tool_phase;

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll},
};

use amalgam_core::{
    BoxFuture, CallDisplay, Fault, FaultKind, Finish, IdKind, ModelEvent, ServerTool,
    store::{Approval, ToolRun},
    turn::{
        CallDecision, CallResult, Cap, Caps, RequestedCall, Step, StepOrderError, SubstituteOutput, ToolFailure, Turn,
        TurnUsage,
    },
};
use amalgam_emitter::HostedCall;
use amalgam_protocol::Json;
use tokio::sync::mpsc;

use crate::{
    call_record::CallRecord,
    engine::Engine,
    loss_log::log_losses,
    model_call::AcceptedCall,
    run::{Phase, Run},
    tool_runs::{CallBatch, Job, Progress, not_run, run_batch},
    turn_tools::{Round, TurnTools},
};
use answer::{Answer, HeldOutput};
use tool_phase::{CallState, RoundCall};

pub(crate) use tool_phase::ToolPhase;

/// The rounds of one turn.
pub(crate) struct Rounds {
    engine: Engine,
    turn_tools: Box<TurnTools>,
    machine: Turn,
    answer: Answer,
    /// Output items of earlier rounds.
    earlier: Vec<Vec<Json>>,
    /// The index in the output of this round's first item.
    start: usize,
    /// The number of journalled calls.
    calls: u32,
    /// Whether a model was called in this turn.
    model_called: bool,
}

/// The model call of the next round.
pub(crate) type PendingModelCall = BoxFuture<'static, (Result<AcceptedCall, Fault>, CallRecord)>;

impl Rounds {
    pub(crate) fn new(engine: Engine, turn_tools: Box<TurnTools>) -> Self {
        let caps = engine.settings.tools.caps;
        let calls = turn_tools.max_calls.map_or(caps.calls, |most| most.min(caps.calls));
        let caps = Caps { calls, rounds: turn_tools.rounds.unwrap_or(caps.rounds), ..caps };
        let machine = match turn_tools.approved.len() {
            0 => Turn::new(caps),
            decided => Turn::with_granted(caps, decided),
        };
        let model_called = turn_tools.approved.is_empty();
        Self {
            engine,
            turn_tools,
            machine,
            answer: Answer::default(),
            earlier: Vec::new(),
            start: 0,
            calls: 0,
            model_called,
        }
    }

    /// The index in the output of the last round's first item.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Names and arguments of calls in an answer that is still incomplete.
    pub(crate) fn held_calls(&self) -> String {
        self.answer.calls.iter().flat_map(|call| [call.name.as_str(), &call.arguments]).collect()
    }

    fn tool(&self, name: &str) -> Option<&Arc<ServerTool>> {
        self.turn_tools.tools.get(name)
    }
}

impl Run {
    /// Emits the tool lists of MCP servers, before the first model call. Returns whether there are any.
    pub(crate) fn show_listings(&mut self) -> bool {
        let Some(rounds) = &mut self.rounds else { return false };
        let listings = std::mem::take(&mut rounds.turn_tools.listings);
        for (label, tools) in &listings {
            self.emitter.list_tools(label, tools);
        }
        self.has_output |= !listings.is_empty();
        !listings.is_empty()
    }

    /// Handles an event of a turn with server-run tools.
    pub(crate) fn on_round_event(&mut self, event: ModelEvent) -> Result<(), Fault> {
        let Some(rounds) = &mut self.rounds else { return self.emitter.on(event) };
        let Rounds { answer, turn_tools, .. } = &mut **rounds;
        match answer.take(event, |call| turn_tools.is_server_call(call)) {
            None => Ok(()),
            Some(ModelEvent::Finish(Finish::Failed(fault))) => Err(fault),
            Some(ModelEvent::Finish(finish)) => self.on_answer_finished(finish),
            Some(event) => self.emitter.on(event),
        }
    }

    /// Handles the end of the model's answer.
    fn on_answer_finished(&mut self, finish: Finish) -> Result<(), Fault> {
        self.end_call(None);
        let spent = self.usage_so_far();
        let stored = self.recorder.is_some();
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        if !stored {
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
        let step = rounds
            .machine
            .answered(&wanted, finish == Finish::Stop, answer.calls_client_tools, spent)
            .map_err(out_of_order)?;
        match step {
            Step::Run(decisions) => self.start_calls(answer, tools, decisions),
            // Calls that do not run are not emitted either, because they would have no output.
            step => {
                for held in answer.held {
                    if let HeldOutput::Event(event) = held {
                        self.emitter.on(event)?;
                    }
                }
                self.apply_step(step, finish)
            }
        }
    }

    /// Decides how each call of an answer is handled, and starts them.
    fn start_calls(
        &mut self,
        answer: Answer,
        tools: Vec<Option<Arc<ServerTool>>>,
        decisions: Vec<CallDecision>,
    ) -> Result<(), Fault> {
        let mut calls = Vec::with_capacity(decisions.len());
        for ((call, tool), decision) in answer.calls.iter().zip(tools).zip(decisions) {
            let state = match decision {
                CallDecision::Run => CallState::Running,
                CallDecision::Substitute(output) => CallState::Substitute(output),
                CallDecision::Ask(_) => CallState::AwaitingApproval,
            };
            let shown_as = tool.as_ref().map_or(CallDisplay::McpCall, |tool| tool.shown);
            let kind = match (&state, shown_as) {
                (CallState::AwaitingApproval, _) => IdKind::McpApprovalRequest,
                (CallState::Substitute(_) | CallState::Running | CallState::Finished(_), CallDisplay::McpCall) => {
                    IdKind::McpCall
                }
                (
                    CallState::Substitute(_) | CallState::Running | CallState::Finished(_),
                    CallDisplay::FileSearch { .. },
                ) => IdKind::FileSearchCall,
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
            calls.push(RoundCall { tool, shown, state });
        }
        self.run_calls(calls, answer.held)
    }

    /// Starts a turn with calls that were approved since the model requested them.
    pub(crate) fn start_approved_calls(&mut self) -> Result<(), Fault> {
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        let approved = std::mem::take(&mut rounds.turn_tools.approved);
        let mut calls = Vec::with_capacity(approved.len());
        for approval in approved {
            let tool = rounds.turn_tools.named(&approval.label, &approval.name).cloned();
            let state = match &tool {
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
            calls.push(RoundCall { tool, shown, state });
        }
        let held = (0..calls.len()).map(HeldOutput::Call).collect();
        self.run_calls(calls, held)
    }

    /// Journals the calls and runs those that the server may run.
    fn run_calls(&mut self, calls: Vec<RoundCall>, held: VecDeque<HeldOutput>) -> Result<(), Fault> {
        let now_ms = self.clock.now_ms();
        let response_id = self.response_id().to_owned();
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        let limits = rounds.engine.settings.tools;
        let scope = rounds.turn_tools.scope.clone();
        let (mut jobs, mut records, mut approvals) = (Vec::new(), Vec::new(), Vec::new());
        for (index, RoundCall { tool, shown, state }) in calls.iter().enumerate() {
            if let (CallState::AwaitingApproval, Some(decider)) =
                (state, tool.as_ref().and_then(|tool| tool.policy.requires_approval))
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
                outcome: match state {
                    CallState::Substitute(output) => Some(not_run(output)),
                    CallState::AwaitingApproval | CallState::Running | CallState::Finished(_) => None,
                },
            };
            rounds.calls += 1;
            if let (CallState::Running, Some(tool)) = (state, tool) {
                let key = shown.approval_request_id.as_ref().unwrap_or(&shown.id).clone();
                let approval_id = shown.approval_request_id.clone();
                jobs.push(Job { index, tool: Arc::clone(tool), record: record.clone(), key, approval_id });
            }
            records.push(record);
        }
        self.call_record.add_tools(records.iter().map(|record| record.name.as_str()));
        let sequential = rounds.turn_tools.sequential;
        let (sender, progress) = mpsc::unbounded_channel();
        let (mut recording, mut journal) = (None, None);
        if let Some(recorder) = &mut self.recorder {
            recorder.approvals.append(&mut approvals);
            recording = Some(recorder.record_intents(records));
            journal = Some(recorder.journal());
        }
        let running = Arc::clone(&rounds.engine.running);
        let call_record = self.call_record.clone();
        let batch = CallBatch {
            jobs,
            recording,
            journal,
            running,
            response_id,
            scope,
            limits,
            sequential,
            call_record,
            progress: sender,
        };
        let running = run_batch(batch);
        self.has_output = true;
        self.phase = Phase::RunningTools(Box::new(ToolPhase {
            running: Some(Box::pin(running)),
            progress,
            recorded: false,
            calls,
            held,
            shown: None,
        }));
        Ok(())
    }

    /// Advances the calls. Ready when something was emitted or all calls have finished.
    pub(crate) fn poll_tools(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let Phase::RunningTools(phase) = &mut self.phase else { return Poll::Ready(Ok(())) };
        if let Some(running) = &mut phase.running
            && let Poll::Ready(over) = running.as_mut().poll(context)
        {
            phase.running = None;
            if let Err(fault) = over {
                return Poll::Ready(Err(fault));
            }
        }
        while let Ok(progress) = phase.progress.try_recv() {
            match progress {
                Progress::Recorded => phase.recorded = true,
                Progress::Finished(index, outcome) => {
                    if let Some(call) = phase.calls.get_mut(index) {
                        call.state = CallState::Finished(outcome);
                    }
                }
            }
        }
        let shown = match phase.show(&mut self.emitter) {
            Ok(shown) => shown,
            Err(fault) => return Poll::Ready(Err(fault)),
        };
        if phase.running.is_none() && phase.held.is_empty() {
            return Poll::Ready(self.on_calls_finished());
        }
        match shown {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Handles the end of all calls of an answer.
    fn on_calls_finished(&mut self) -> Result<(), Fault> {
        let spent = self.usage_so_far();
        let Phase::RunningTools(phase) = &self.phase else { return Ok(()) };
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        if let Some(recorder) = &mut self.recorder {
            recorder.add_calls(phase.calls.iter().filter_map(RoundCall::server_call));
        }
        let ran: Vec<CallResult<'_>> = phase
            .calls
            .iter()
            .map(|call| CallResult {
                tool: call.tool.as_deref(),
                failure: match &call.state {
                    CallState::Substitute(output) => Some(output.failure),
                    CallState::Finished(outcome) => outcome.failure,
                    CallState::AwaitingApproval | CallState::Running => None,
                },
            })
            .collect();
        let step = rounds.machine.ran(&ran, spent).map_err(out_of_order)?;
        self.apply_step(step, Finish::Stop)
    }

    /// Performs a step other than running calls.
    fn apply_step(&mut self, step: Step, finish: Finish) -> Result<(), Fault> {
        match step {
            Step::Ask { tools } => self.start_next_round(tools),
            Step::Park | Step::End(None) => self.emitter.on(ModelEvent::Finish(finish)),
            Step::End(Some(cap)) => self.end_at_cap(cap, finish),
            Step::Fail { tool } => {
                Err(Fault::new(FaultKind::ToolFailed, format!("The tool `{tool}` failed, and the response with it.")))
            }
            Step::Run(_) => Err(out_of_order(StepOrderError)),
        }
    }

    /// Ends the turn at a cap. The response names the cap, unless the answer was cut off for another reason.
    fn end_at_cap(&mut self, cap: Cap, finish: Finish) -> Result<(), Fault> {
        let finish = match finish {
            Finish::Stop => Finish::Incomplete(cap.reason().to_owned()),
            finish => finish,
        };
        self.emitter.on(ModelEvent::Finish(finish))
    }

    fn start_next_round(&mut self, tools: bool) -> Result<(), Fault> {
        self.sent_request = None;
        self.emitter.end_round();
        let Some(rounds) = &mut self.rounds else { return Ok(()) };
        let output = self.emitter.kept_output();
        rounds.earlier.push(output.get(rounds.start..).unwrap_or_default().to_vec());
        rounds.start = output.len();
        let used = self.emitter.usage().unwrap_or_default().output_tokens;
        let left = match rounds.turn_tools.limit_each_call {
            true => self.output_tokens,
            false => self.output_tokens.map(|most| most.saturating_sub(used)),
        };
        if left == Some(0) {
            return self.emitter.on(ModelEvent::Finish(Finish::Length));
        }
        let round = Round {
            earlier: rounds.earlier.clone(),
            instructions: rounds.machine.instructions().to_vec(),
            allow_tools: tools,
            // Approved calls at the beginning do not count: the model has not been called in this turn.
            relax_tool_choice: rounds.model_called,
            output_tokens: left,
        };
        rounds.model_called = true;
        let (engine, prompt) = (rounds.engine.clone(), Arc::clone(&rounds.turn_tools.prompt));
        let scope = rounds.turn_tools.scope.clone();
        let mut call_record = self.call_record.clone();
        self.phase = Phase::CallingModel(Box::pin(async move {
            let result = prompt.call(&engine, &scope, &round, &mut call_record).await;
            (result, call_record)
        }));
        Ok(())
    }

    /// Waits until a model accepts the next round.
    pub(crate) fn poll_model_call(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let Phase::CallingModel(asking) = &mut self.phase else { return Poll::Ready(Ok(())) };
        let (result, call_record) = std::task::ready!(asking.as_mut().poll(context));
        self.call_record = call_record;
        Poll::Ready(result.map(|accepted| {
            if accepted.losses != self.losses {
                log_losses(self.response_id(), &accepted.upstream, &accepted.model, &accepted.losses);
            }
            self.emitter.answered_by(accepted.provenance());
            self.upstream = accepted.upstream;
            self.model = accepted.model;
            self.upstream_state = accepted.upstream_state;
            self.sent_request = accepted.sent_request;
            self.losses = accepted.losses;
            self.sequential_calls = self.sequential_calls.map(|_| 0);
            self.first = accepted.first;
            self.phase = Phase::Streaming(accepted.stream);
        }))
    }

    fn usage_so_far(&self) -> TurnUsage {
        let tokens = self.emitter.usage().map_or(0, |usage| usage.total());
        TurnUsage { tokens, time: self.started.elapsed() }
    }
}

fn out_of_order(error: StepOrderError) -> Fault {
    Fault::internal(error)
}
