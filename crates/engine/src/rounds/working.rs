//! Calls while they are dealt with, and how they are shown.

use std::{collections::VecDeque, sync::Arc};

use amalgam_core::{
    BoxFuture, Emitter, Fault, HostedCall, HostedCallResult, ServerTool,
    turn::{SubstituteOutput, ToolFailure},
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::answer::Held;
use crate::{
    thread::RanCall,
    tool_runs::{Outcome, Progress},
};

/// Calls that are dealt with.
pub(crate) struct Working {
    pub(super) running: Option<BoxFuture<'static, Result<(), Fault>>>,
    pub(super) progress: UnboundedReceiver<Progress>,
    /// Whether it is written down that they are about to run.
    pub(super) intended: bool,
    pub(super) dealt: Vec<Dealt>,
    pub(super) held: VecDeque<Held>,
    /// The call that is shown as running.
    pub(super) begun: Option<usize>,
}

/// A call, and what becomes of it.
pub(super) struct Dealt {
    pub(super) tool: Option<Arc<ServerTool>>,
    pub(super) shown: HostedCall,
    pub(super) fate: CallState,
}

/// What becomes of a call.
pub(super) enum CallState {
    /// It waits for an approval.
    Waits,
    /// It is not run.
    Substitute(SubstituteOutput),
    Running,
    Ran(Outcome),
}

impl Working {
    /// Shows as much as is known by now, in order. Whether that is anything.
    pub(super) fn show(&mut self, emitter: &mut Emitter) -> Result<bool, Fault> {
        let mut shown = false;
        while self.intended
            && let Some(held) = self.held.pop_front()
        {
            match held {
                Held::Event(event) => emitter.on(event)?,
                Held::Call(index) => {
                    let Some(dealt) = self.dealt.get(index) else { continue };
                    if matches!(dealt.fate, CallState::Waits) {
                        emitter.request_approval(&dealt.shown);
                        shown = true;
                        continue;
                    }
                    if self.begun != Some(index) {
                        emitter.begin_hosted(&dealt.shown);
                        self.begun = Some(index);
                        shown = true;
                    }
                    let Some(end) = dealt.end() else {
                        self.held.push_front(Held::Call(index));
                        return Ok(shown);
                    };
                    emitter.end_hosted(&dealt.shown, &end);
                }
            }
            shown = true;
        }
        Ok(shown)
    }
}

impl Dealt {
    /// The call as a door tells of it.
    pub(super) fn ran(&self) -> Option<RanCall> {
        let (output, failure) = match &self.fate {
            CallState::Substitute(told) => (&told.output, Some(told.failure)),
            CallState::Ran(outcome) => (&outcome.output, outcome.failure),
            CallState::Waits | CallState::Running => return None,
        };
        Some(RanCall {
            call_id: self.shown.call_id.clone(),
            name: self.shown.name.clone(),
            arguments: self.shown.arguments.clone(),
            output: output.clone(),
            failure,
        })
    }

    /// How the call is shown to have ended, once it has.
    fn end(&self) -> Option<HostedCallResult> {
        let (output, failure) = match &self.fate {
            CallState::Substitute(told) => (&told.output, Some(told.failure)),
            CallState::Ran(outcome) => (&outcome.output, outcome.failure),
            CallState::Waits | CallState::Running => return None,
        };
        let raw = output.raw();
        let error = match failure {
            // Told as if it had gone well, so that the model goes on from it.
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
