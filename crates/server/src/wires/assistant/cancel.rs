//! `POST /api/v2/ai-agent/respond/{response_id}/cancel/`: stops an answer.

use std::time::Duration;

use amalgam_app::turns::ReplyHead;
use amalgam_core::{Fault, FaultKind};
use amalgam_protocol::{Status, Writer};
use axum::{
    extract::Request,
    response::{IntoResponse as _, Response},
};

use super::{error::AssistantError, respond::messages_of};
use crate::{
    layers,
    wires::{answer, call::Call, reply::with_head},
};

/// How long a turn of this process may take to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Cancels the turn of an answer; one that has ended does not change.
pub(super) async fn cancel(call: Call, request: Request) -> Response {
    let response = cancelled(call).await.into_response();
    // The body has no meaning here and was not read.
    layers::unread(&request, response)
}

async fn cancelled(Call { app, scope, path, .. }: Call) -> Result<Response, AssistantError> {
    let not_found = || Fault::new(FaultKind::NotFound, "Not found.");
    let id = path.id("Response").map_err(|_| not_found())?;
    let response = app.store.response(&scope, &id).await?.ok_or_else(not_found)?;
    messages_of(&response.settings)?.ok_or_else(not_found)?;
    if !response.status.status.is_final() {
        // A turn of this process ends by itself and keeps its text; the store ends one that runs elsewhere.
        app.engine.cancel_and_wait(&id, CANCEL_TIMEOUT).await;
    }
    let ended = app.store.end_response(&scope, &id, app.clock.now_ms()).await?.ok_or_else(not_found)?;
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("response_id").string(&id);
        writer.key("cancelled").bool(ended.status.status == Status::Cancelled);
    });
    Ok(with_head(&ReplyHead::named(&id), answer::json(writer.into_bytes())))
}
