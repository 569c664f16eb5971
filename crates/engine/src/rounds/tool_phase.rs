//! The server-run calls of one round while they run, and how they are emitted.

use std::{collections::VecDeque, sync::Arc};

use amalgam_core::{
    BoxFuture, Fault, ServerCall, ServerTool,
    turn::{SubstituteOutput, ToolFailure},
};
use amalgam_emitter::{Emitter, HostedCall, HostedCallResult};
use tokio::sync::mpsc::UnboundedReceiver;

use super::answer::HeldOutput;
use crate::tool_runs::{Outcome, Progress};

/// The server-run calls of one round.
pub(crate) struct ToolPhase {
    pub(super) running: Option<BoxFuture<'static, Result<(), Fault>>>,
    pub(super) progress: UnboundedReceiver<Progress>,
    /// Whether the journal has the calls, so that they may be emitted.
    pub(super) recorded: bool,
    pub(super) calls: Vec<RoundCall>,
    pub(super) held: VecDeque<HeldOutput>,
    /// The call that was emitted as running.
    pub(super) shown: Option<usize>,
}

/// A server-run call and its state.
pub(super) struct RoundCall {
    pub(super) tool: Option<Arc<ServerTool>>,
    pub(super) shown: HostedCall,
    pub(super) state: CallState,
}

/// The state of a server-run call.
pub(super) enum CallState {
    /// The call waits for an approval.
    AwaitingApproval,
    /// The call does not run; the model receives this output instead.
    Substitute(SubstituteOutput),
    Running,
    Finished(Outcome),
}

impl ToolPhase {
    /// Emits what is complete, in order. Returns whether anything was emitted.
    pub(super) fn show(&mut self, emitter: &mut Emitter) -> Result<bool, Fault> {
        let mut shown = false;
        while self.recorded
            && let Some(held) = self.held.pop_front()
        {
            match held {
                HeldOutput::Event(event) => emitter.on(event)?,
                HeldOutput::Call(index) => {
                    let Some(call) = self.calls.get(index) else { continue };
                    if matches!(call.state, CallState::AwaitingApproval) {
                        emitter.request_approval(&call.shown);
                        shown = true;
                        continue;
                    }
                    if self.shown != Some(index) {
                        emitter.begin_hosted(&call.shown);
                        self.shown = Some(index);
                        shown = true;
                    }
                    let Some(end) = call.end() else {
                        self.held.push_front(HeldOutput::Call(index));
                        return Ok(shown);
                    };
                    emitter.end_hosted(&call.shown, &end);
                }
            }
            shown = true;
        }
        Ok(shown)
    }
}

impl RoundCall {
    /// The finished call as a session stores it.
    pub(super) fn server_call(&self) -> Option<ServerCall> {
        let (output, failure) = match &self.state {
            CallState::Substitute(output) => (&output.output, Some(output.failure)),
            CallState::Finished(outcome) => (&outcome.output, outcome.failure),
            CallState::AwaitingApproval | CallState::Running => return None,
        };
        Some(ServerCall {
            call_id: self.shown.call_id.clone(),
            name: self.shown.name.clone(),
            arguments: self.shown.arguments.clone(),
            output: output.clone(),
            failure,
        })
    }

    /// The result as the response shows it, once the call has finished.
    fn end(&self) -> Option<HostedCallResult> {
        let (output, failure) = match &self.state {
            CallState::Substitute(output) => (&output.output, Some(output.failure)),
            CallState::Finished(outcome) => (&outcome.output, outcome.failure),
            CallState::AwaitingApproval | CallState::Running => return None,
        };
        let raw = output.raw();
        let error = match failure {
            // Shown as a success, because the model continues with the output of the earlier call.
            None | Some(ToolFailure::Repeated) => None,
            Some(failure) => {
                Some(raw.get_str("error").map_or_else(|| failure.name().to_owned(), |text| text.into_owned()))
            }
        };
        let output = match raw.as_str() {
            Some(text) => text.decode().into_owned(),
            None => raw.text().to_owned(),
        };
        Some(HostedCallResult { output, error })
    }
}
