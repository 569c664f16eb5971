//! `/api/agent/…`: the strict turn contract. The client submits an instruction or the results of tools that it ran; the
//! answer is one envelope.

mod error;
mod run;
mod sessions;
mod stream;
mod turns;

use axum::{
    Router,
    routing::{get, post},
};

use crate::app::CurrentApp;

pub(in crate::wires) use error::ExecuteError;

/// Whether errors on a path have the format of this wire.
pub(crate) fn owns_path(path: &str) -> bool {
    path.starts_with("/api/agent/")
}

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new()
        .route("/api/agent/execute", post(run::execute))
        .route("/api/agent/sessions", post(sessions::open).get(sessions::list))
        .route("/api/agent/sessions/{session_id}", get(sessions::show).delete(sessions::delete))
        .route("/api/agent/sessions/{session_id}/turns", get(turns::list))
        .route("/api/agent/sessions/{session_id}/turns/{turn_id}", get(turns::show))
}
