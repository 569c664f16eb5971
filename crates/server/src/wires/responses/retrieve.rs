//! `GET` and `DELETE /v1/responses/{id}`, `POST /v1/responses/{id}/cancel`

use std::time::Duration;

use amalgam_app::turns::ReplyHead;
use amalgam_core::{Fault, FaultKind, Scope, file_search::Results, store::CancelOutcome};
use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};

use super::resume::resume;
use crate::wires::call::{Call, PathParameters};
use crate::{
    app::App,
    layers,
    wires::{WireError, answer, query::missing, reply},
};

/// How long a cancellation waits for its turn to write its output so far.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// The resource name in errors about missing responses.
pub(super) const RESPONSE: &str = "Response";

/// The response in its current state.
pub(super) async fn retrieve(Call { app, scope, path, query, .. }: Call) -> Result<Response, WireError> {
    let id = path.id(RESPONSE)?;
    let results = query.include()?;
    if query.flag("stream")? {
        return resume(&app, &scope, &id, &query).await;
    }
    let response = app.store.response(&scope, &id).await?;
    let response = response.ok_or_else(|| missing(RESPONSE, &id))?;
    let response = match results {
        Results::Shown => response.with_results(),
        Results::Hidden => response,
    };
    Ok(reply::with_head(&ReplyHead::named(&id), answer::json(response.object())))
}

/// Deletes a response.
pub(super) async fn delete(Call { app, scope, path, .. }: Call) -> Result<Response, WireError> {
    let id = path.id(RESPONSE)?;
    match app.store.delete_response(&scope, &id).await? {
        true => {
            // No caller can read the result of a running turn any more.
            app.engine.cancel(&id);
            Ok(answer::deleted(&id, "response"))
        }
        false => Err(missing(RESPONSE, &id).into()),
    }
}

/// Cancels a background response; one that has ended does not change.
pub(super) async fn cancel(Call { app, scope, path, .. }: Call, request: Request) -> Response {
    let response = end(&app, &scope, &path).await.into_response();
    // The body has no meaning here and was not read.
    layers::unread(&request, response)
}

async fn end(app: &App, scope: &Scope, path: &PathParameters) -> Result<Response, WireError> {
    let id = path.id(RESPONSE)?;
    // A turn of this process ends by itself, with its output so far; the store ends turns that are queued or run
    // elsewhere.
    if let Some(response) = app.store.response(scope, &id).await?
        && response.background
        && !response.status.status.is_final()
    {
        app.engine.cancel_and_wait(&id, CANCEL_TIMEOUT).await;
    }
    let now_ms = app.clock.now_ms();
    let cancelled = app.store.cancel_response(scope, &id, now_ms).await?;
    match cancelled.ok_or_else(|| missing(RESPONSE, &id))? {
        CancelOutcome::Ended(response) if response.background => {
            // Other processes are notified through the store.
            app.engine.cancel(&id);
            Ok(reply::with_head(&ReplyHead::named(&id), answer::json(response.object())))
        }
        CancelOutcome::Ended(_) | CancelOutcome::Foreground => Err(foreground().into()),
    }
}

fn foreground() -> Fault {
    Fault::new(FaultKind::Invalid, "Only a response that was created with `background` set to true can be cancelled.")
        .code("response_not_cancellable")
}
