//! How turns end: what is stored of a turn that completed, failed or was cancelled.

use amalgam_core::{
    Fault, FaultKind, array_of, no_items,
    store::{Ending, ResponseState},
};
use amalgam_emitter::Emitter;
use amalgam_protocol::{ErrorObject, Provenance, Status};

/// The end of a turn in the emitter's present state.
pub(crate) fn ending(emitter: &Emitter, now_ms: u64) -> Ending {
    let status = emitter.status();
    Ending {
        state: ResponseState {
            status,
            completed_at_ms: (status == Status::Completed).then_some(now_ms),
            error: None,
            incomplete_reason: emitter.incomplete_reason().map(ToOwned::to_owned),
            usage: emitter.usage(),
            provenance: emitter.provenance().clone(),
        },
        output: array_of(&emitter.kept_output()),
        upstream: None,
    }
}

/// The end of a turn that failed with this fault. A turn that a limit refuses between its rounds keeps its output.
pub(crate) fn failed_by(fault: &Fault, emitter: &Emitter) -> Ending {
    let error = fault.response_error();
    match fault.kind {
        FaultKind::RateLimited | FaultKind::QuotaExceeded => {
            let Ending { state, output, upstream } = ending(emitter, 0);
            let state = ResponseState {
                status: Status::Failed,
                completed_at_ms: None,
                error: Some(error),
                incomplete_reason: None,
                ..state
            };
            Ending { state, output, upstream }
        }
        _ => failed(error, emitter.provenance().clone()),
    }
}

/// The end of a turn that failed before it had output.
pub(crate) fn failed(error: ErrorObject, provenance: Provenance) -> Ending {
    empty_ending(Status::Failed, Some(error), provenance)
}

/// The end of a turn that was cancelled before it produced output.
pub(crate) fn cancelled() -> Ending {
    empty_ending(Status::Cancelled, None, Provenance::default())
}

/// The end of a turn that was cancelled, with its output so far. The emitter must be interrupted before.
pub(crate) fn interrupted(emitter: &Emitter) -> Ending {
    let Ending { state, output, upstream } = ending(emitter, 0);
    Ending { state: ResponseState { status: Status::Cancelled, completed_at_ms: None, ..state }, output, upstream }
}

fn empty_ending(status: Status, error: Option<ErrorObject>, provenance: Provenance) -> Ending {
    let state =
        ResponseState { status, completed_at_ms: None, error, incomplete_reason: None, usage: None, provenance };
    Ending { state, output: no_items(), upstream: None }
}
