//! `GET` and `DELETE /v1/responses/{id}`, `POST /v1/responses/{id}/cancel`

use std::{sync::Arc, time::Duration};

use amalgam_app::turns::ReplyHead;
use amalgam_core::{Fault, FaultKind, Scope, file_search::Results, store::Cancelled};
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::{IntoResponse, Response},
};

use super::resume::resume;
use crate::{
    app::App,
    layers,
    wires::{
        WireError, answer,
        query::{Query, id_of, missing},
        reply,
    },
};

/// How long a cancellation waits for its turn to write down what it has said.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a missing response is called.
pub(super) const RESPONSE: &str = "Response";

/// The response as its creator got it, or as it stands now.
pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
    query: Query,
) -> Result<Response, WireError> {
    let id = id_of(RESPONSE, id)?;
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

/// Forgets a response.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let id = id_of(RESPONSE, id)?;
    match app.store.delete_response(&scope, &id).await? {
        true => {
            // A turn that still runs has no reader any more.
            app.engine.cancel(&id);
            Ok(answer::deleted(&id, "response"))
        }
        false => Err(missing(RESPONSE, &id).into()),
    }
}

/// Ends a background response; one that has ended stays as it is.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let response = end(&app, &scope, id).await.into_response();
    // The body means nothing here and was not read.
    layers::unread(&request, response)
}

async fn end(app: &App, scope: &Scope, id: Result<Path<String>, PathRejection>) -> Result<Response, WireError> {
    let id = id_of(RESPONSE, id)?;
    // A turn that runs here ends by itself, with what it has said; the store ends those that wait or run elsewhere.
    if let Some(response) = app.store.response(scope, &id).await?
        && response.background
        && !response.status.status.is_final()
    {
        app.engine.cancel_and_wait(&id, PATIENCE).await;
    }
    let now_ms = app.clock.now_ms();
    let cancelled = app.store.cancel_response(scope, &id, now_ms).await?;
    match cancelled.ok_or_else(|| missing(RESPONSE, &id))? {
        Cancelled::Ended(response) if response.background => {
            // Other processes hear of it through the store.
            app.engine.cancel(&id);
            Ok(reply::with_head(&ReplyHead::named(&id), answer::json(response.object())))
        }
        Cancelled::Ended(_) | Cancelled::Foreground => Err(foreground().into()),
    }
}

fn foreground() -> Fault {
    Fault::new(FaultKind::Invalid, "Only a response that was created with `background` set to true can be cancelled.")
        .code("response_not_cancellable")
}
