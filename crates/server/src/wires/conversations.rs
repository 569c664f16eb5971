//! `/v1/conversations`: items that several responses add to, kept under one id.

mod body;
mod items;

use std::sync::Arc;

use amalgam_app::{
    idempotency::{self, Claimed},
    turns::check_metadata,
};
use amalgam_core::{Fault, IdKind, Ids, Scope, TenantState, store::Conversation};
use amalgam_protocol::{CreateConversation, Json, Raw, UpdateConversation, Writer};
use axum::{
    Extension, Router,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
    routing::{get, post},
};
use bytes::Bytes;

use super::{
    WireError, answer,
    headers::idempotency_key,
    query::{id_of, missing},
    reply,
};
use crate::app::App;

/// What a missing conversation is called.
const CONVERSATION: &str = "Conversation";

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/conversations", post(create))
        .route("/v1/conversations/{id}", get(retrieve).post(update).delete(delete))
        .route("/v1/conversations/{id}/items", get(items::list).post(items::add))
        .route("/v1/conversations/{id}/items/{item_id}", get(items::retrieve).delete(items::delete))
}

/// Begins a conversation, with items or without; under an `Idempotency-Key` once. S1
async fn create(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let key = idempotency_key(request.headers())?.map(str::to_owned);
    let body = body::read(&app, request).await?;
    expect_state(&scope)?;
    let Some(key) = key else {
        return Ok(answer::json(begin(&app, &scope, &body).await?));
    };
    match idempotency::claim(&app.app, &scope, "POST /v1/conversations", &key, &body).await? {
        Claimed::Replayed(replayed) => Ok(reply::render(replayed)),
        Claimed::First(first) => {
            let work = async move { begin(&app, &scope, &body).await.map(Bytes::from) };
            Ok(answer::json(first.run(work).await?))
        }
    }
}

async fn begin(app: &App, scope: &Scope, body: &Bytes) -> Result<Vec<u8>, Fault> {
    let document = body::parse(app, body)?;
    let raw = document.raw();
    let asked = CreateConversation::read(raw).map_err(Fault::from)?;
    body::check_items(app, &asked.items, raw, body.len())?;
    check_metadata(asked.metadata)?;
    let items = items::keepable(app, scope, &asked.items, raw).await?;
    let conversation = Conversation {
        id: Ids::Unguessable.make(IdKind::Conversation),
        created_at_ms: app.clock.now_ms(),
        metadata: Json::from(asked.metadata.unwrap_or(Raw::EMPTY_OBJECT)),
    };
    app.store.create_conversation(scope, &conversation, items).await?;
    Ok(told(&conversation))
}

async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    expect_state(&scope)?;
    let id = id_of(CONVERSATION, id)?;
    Ok(answer::json(told(&find(&app, &scope, &id).await?)))
}

/// Sets the metadata, all of it.
async fn update(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, WireError> {
    let body = body::read(&app, request).await?;
    expect_state(&scope)?;
    let id = id_of(CONVERSATION, id)?;
    let document = body::parse(&app, &body)?;
    let raw = document.raw();
    let UpdateConversation { metadata } = UpdateConversation::read(raw).map_err(Fault::from)?;
    body::check_items(&app, &[], raw, body.len())?;
    let metadata = if metadata.is_null() { Raw::EMPTY_OBJECT } else { metadata };
    check_metadata(Some(metadata))?;
    let updated = app.store.update_conversation(&scope, &id, Json::from(metadata)).await?;
    Ok(answer::json(told(&updated.ok_or_else(|| missing(CONVERSATION, &id))?)))
}

/// Forgets a conversation and its items.
async fn delete(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    expect_state(&scope)?;
    let id = id_of(CONVERSATION, id)?;
    match app.store.delete_conversation(&scope, &id).await? {
        true => Ok(answer::deleted(&id, "conversation.deleted")),
        false => Err(missing(CONVERSATION, &id).into()),
    }
}

async fn find(app: &App, scope: &Scope, id: &str) -> Result<Conversation, Fault> {
    app.store.conversation(scope, id).await?.ok_or_else(|| missing(CONVERSATION, id))
}

/// A tenant that keeps nothing has no conversations either, and is told so in the words of the other door.
fn expect_state(scope: &Scope) -> Result<(), Fault> {
    match scope.state() {
        TenantState::Stored => Ok(()),
        TenantState::Stateless => Err(Fault::invalid(
            "conversation",
            "Conversations are not kept: send the full conversation history in `input`.",
        )
        .code("unsupported_parameter")),
    }
}

/// The conversation object.
fn told(conversation: &Conversation) -> Vec<u8> {
    let mut writer = Writer::with_capacity(conversation.metadata.bytes().len() + 128);
    writer.object(|writer| {
        writer.key("id").string(&conversation.id);
        writer.key("object").string("conversation");
        writer.key("created_at").number(conversation.created_at_ms / 1000);
        writer.key("metadata").valid(conversation.metadata.bytes());
    });
    writer.into_bytes()
}

#[cfg(test)]
#[path = "conversations_tests.rs"]
mod tests;
