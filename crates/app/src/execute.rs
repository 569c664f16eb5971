//! The strict turn contract: submissions are steps of a turn, and each step is a stored response.

mod answer;
mod change_mode;
mod composer;
mod submission;

use amalgam_core::{
    Fault, FaultKind, Scope,
    execute::{
        envelope::{Casing, UncountedUsage},
        request::Bounds,
    },
    store::AgentSession,
};

use crate::app::Application;

pub use answer::{ExecuteAnswer, ExecuteStep, MODE_CHANGES, ServerToolCall, is_pending, server_calls};
pub use submission::{Submission, SubmissionError, SubmittedStep};

/// What a missing session is called.
pub const SESSION: &str = "Session";

/// The installation's settings of the strict contract.
#[derive(Debug, Clone, Copy)]
pub struct ExecuteSettings {
    /// How names are written in answers.
    pub casing: Casing,
    /// How much of everything is taken, and what happens to unknown fields.
    pub bounds: Bounds,
    /// How many tokens of retrieved knowledge a turn is given.
    pub context_tokens: u64,
    /// What is reported of tokens that the model's server has not counted.
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

/// A session that is not there, or belongs to another caller.
pub fn no_such_session(id: &str) -> Fault {
    let shown: String = id.chars().take(200).collect();
    Fault::new(FaultKind::NotFound, format!("{SESSION} '{shown}' not found.")).code("session_not_found")
}

/// A turn that is not there, or belongs to another caller.
pub fn no_such_turn(turn_id: &str) -> Fault {
    let shown: String = turn_id.chars().take(200).collect();
    Fault::new(FaultKind::NotFound, format!("Turn '{shown}' not found.")).code("turn_not_found")
}
