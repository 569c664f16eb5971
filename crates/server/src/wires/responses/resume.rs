//! `GET /v1/responses/{id}?stream=true`: the events of a response, from any point.

use amalgam_app::turns;
use amalgam_core::{Fault, Scope};
use amalgam_engine::read_tail;
use amalgam_protocol::Status;
use axum::response::Response;

use super::retrieve::RESPONSE;
use crate::{
    app::App,
    wires::{
        WireError,
        query::{Query, missing},
        reply,
    },
};

/// The largest sequence number that a store can hold.
const LAST: u64 = i64::MAX.unsigned_abs();

/// Sends the events after `starting_after`: first the stored ones, then new ones.
pub(super) async fn resume(app: &App, scope: &Scope, id: &str, query: &Query) -> Result<Response, WireError> {
    let after = query.number("starting_after")?.map(|after| after.min(LAST));
    let tail = read_tail(&*app.store, scope, id, after).await?.ok_or_else(|| missing(RESPONSE, id))?;
    let ended = matches!(tail.response.status.status, Status::Completed | Status::Incomplete);
    if !tail.response.streamed || (ended && tail.last.is_none()) {
        return Err(Fault::invalid(
            "stream",
            "This response has no events: it was not created with `stream: true`, or they are no longer kept.",
        )
        .code("stream_not_available")
        .into());
    }
    Ok(reply::event_stream(turns::follow(app, scope, tail, after)))
}
