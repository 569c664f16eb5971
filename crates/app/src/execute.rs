//! The strict turn contract: submissions are steps of a turn, and each step is a stored response.

mod answer;
mod change_mode;
mod composer;
mod submission;

use amalgam_core::{Fault, FaultKind, Scope, store::AgentSession};
use amalgam_execute::{
    envelope::{Casing, UncountedUsage},
    request::Bounds,
};

use crate::app::Application;

pub use answer::{ExecuteAnswer, ExecuteStep, MODE_CHANGES, ServerToolCall, is_pending, server_calls};
pub use submission::{Submission, SubmissionError, SubmittedStep};

/// The resource name in errors about missing sessions.
pub const SESSION: &str = "Session";

/// The installation's settings of the strict contract.
#[derive(Debug, Clone, Copy)]
pub struct ExecuteSettings {
    /// The casing of field names in answers.
    pub casing: Casing,
    /// The limits of requests, and how unknown fields are handled.
    pub bounds: Bounds,
    /// The maximum number of tokens of retrieved knowledge in a turn.
    pub context_tokens: u64,
    /// The usage that is reported for tokens that the upstream has not counted.
    pub uncounted: UncountedUsage,
}

impl Default for ExecuteSettings {
    fn default() -> Self {
        Self {
            casing: Casing::default(),
            bounds: Bounds::default(),
            context_tokens: 8_000,
            uncounted: UncountedUsage::Zero,
        }
    }
}

/// One of the caller's sessions.
pub async fn session(app: &Application, scope: &Scope, id: &str) -> Result<AgentSession, Fault> {
    app.store.agent_session(scope, id).await?.ok_or_else(|| no_such_session(id))
}

/// The error for a session that does not exist or belongs to another caller.
pub fn no_such_session(id: &str) -> Fault {
    let shown: String = id.chars().take(200).collect();
    Fault::new(FaultKind::NotFound, format!("{SESSION} '{shown}' not found.")).code("session_not_found")
}

/// The error for a turn that does not exist or belongs to another caller.
pub fn no_such_turn(turn_id: &str) -> Fault {
    let shown: String = turn_id.chars().take(200).collect();
    Fault::new(FaultKind::NotFound, format!("Turn '{shown}' not found.")).code("turn_not_found")
}
