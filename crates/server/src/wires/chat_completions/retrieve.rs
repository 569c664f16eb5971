//! `GET`, `POST` and `DELETE /v1/chat/completions/{id}`

use amalgam_app::{
    chat_completions::{COMPLETION, replace_metadata},
    turns::{ReplyHead, check_metadata},
};
use amalgam_chat_completions::{AnswerOptions, completion, response_id};
use amalgam_core::{Fault, Scope, store::StoredResponse};
use amalgam_protocol::{Json, Raw, ShapeError};
use axum::{extract::Request, response::Response};

use crate::{
    app::App,
    body::read_json,
    wires::{
        WireError, answer,
        call::{Call, PathParameters},
        query::missing,
        reply::with_head,
    },
};

/// The completion in its current state.
pub(super) async fn retrieve(Call { app, scope, path, .. }: Call) -> Result<Response, WireError> {
    Ok(shown(&stored(&app, &scope, &path).await?))
}

/// Replaces the metadata.
pub(super) async fn update(Call { app, scope, path, .. }: Call, request: Request) -> Result<Response, WireError> {
    let (_, body) = read_json(request, app.text_body(), &app.memory).await?;
    let document = Json::parse_document(&body, app.limits.json_depth).map_err(Fault::from)?;
    let metadata = match document.raw().get("metadata") {
        Some(metadata) if metadata.is_null() => Raw::EMPTY_OBJECT,
        Some(metadata) => metadata,
        None => return Err(Fault::from(ShapeError::missing("metadata")).into()),
    };
    check_metadata(Some(metadata))?;
    let response = stored(&app, &scope, &path).await?;
    replace_metadata(&app.app, &scope, &response.id, metadata).await?;
    Ok(shown(&stored(&app, &scope, &path).await?))
}

/// Deletes a completion, which is the response that it shows.
pub(super) async fn delete(Call { app, scope, path, .. }: Call) -> Result<Response, WireError> {
    let id = response_of(&path)?;
    match app.store.delete_response(&scope, &id).await? {
        true => {
            // A running turn has no reader any more.
            app.engine.cancel(&id);
            Ok(answer::deleted(path.text(0), "chat.completion.deleted"))
        }
        false => Err(missing(COMPLETION, path.text(0)).into()),
    }
}

/// The stored response that the path names.
pub(super) async fn stored(app: &App, scope: &Scope, path: &PathParameters) -> Result<StoredResponse, Fault> {
    let response = app.store.response(scope, &response_of(path)?).await?;
    response.ok_or_else(|| missing(COMPLETION, path.text(0)))
}

/// The id of the response that the path names.
fn response_of(path: &PathParameters) -> Result<String, Fault> {
    let id = path.id(COMPLETION)?;
    response_id(&id).ok_or_else(|| missing(COMPLETION, &id))
}

fn shown(response: &StoredResponse) -> Response {
    let object = response.object();
    let object = Raw::written_here(&object).unwrap_or(Raw::EMPTY_OBJECT);
    with_head(&ReplyHead::named(&response.id), answer::json(completion(object, AnswerOptions::default())))
}
