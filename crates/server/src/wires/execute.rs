//! `/api/agent/…`: the strict turn contract. Intent comes in, or the results of tools that the client ran; one envelope goes out.
//!
//! A submission that is taken is a step of a turn, and its answer a response like any other: kept, run by the engine, and
//! gone on from by the next one. The turn's name is the client's, so that whatever it sends again is answered the same.

mod ask;
mod compose;
mod error;
mod mode_tool;
mod run;
mod sessions;
mod stream;
mod told;
mod turns;

use std::sync::Arc;

use amalgam_core::execute::{
    envelope::{Casing, UncountedUsage},
    request::Bounds,
};
use axum::{
    Router,
    routing::{get, post},
};

use crate::app::App;

pub(in crate::wires) use error::ExecuteError;

/// What an installation settles about this door.
#[derive(Debug, Clone, Copy)]
pub struct ExecuteSettings {
    /// How names are written in answers.
    pub casing: Casing,
    /// How much of everything is taken, and what happens to fields that nobody knows.
    pub bounds: Bounds,
    /// How many tokens of what was looked up a turn is given.
    pub context_tokens: u64,
    /// What is told of tokens that the model's server has not counted.
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

/// Whether errors on a path are told in this door's shape.
pub(crate) fn is_ours(path: &str) -> bool {
    path.starts_with("/api/agent/")
}

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/agent/execute", post(run::execute))
        .route("/api/agent/sessions", post(sessions::open).get(sessions::list))
        .route("/api/agent/sessions/{session_id}", get(sessions::show).delete(sessions::delete))
        .route("/api/agent/sessions/{session_id}/turns", get(turns::list))
        .route("/api/agent/sessions/{session_id}/turns/{turn_id}", get(turns::show))
}
