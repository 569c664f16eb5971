//! `/v1/conversations`: lists of items that several responses extend, stored under one id.

mod body;
mod items;

use amalgam_app::{
    idempotency::{self, ClaimOutcome},
    turns::check_metadata,
};
use amalgam_core::{Fault, IdKind, Ids, Scope, TenantState, store::Conversation};
use amalgam_protocol::{CreateConversation, Json, Raw, UpdateConversation, Writer};
use axum::{
    Router,
    extract::Request,
    response::Response,
    routing::{get, post},
};
use bytes::Bytes;

use super::{WireError, answer, headers::idempotency_key, query::missing, reply};
use crate::app::{App, CurrentApp};
use crate::wires::call::Call;

/// The resource name in errors about missing conversations.
const CONVERSATION: &str = "Conversation";

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new()
        .route("/v1/conversations", post(create))
        .route("/v1/conversations/{id}", get(retrieve).post(update).delete(delete))
        .route("/v1/conversations/{id}/items", get(items::list).post(items::add))
        .route("/v1/conversations/{id}/items/{item_id}", get(items::retrieve).delete(items::delete))
}

/// Creates a conversation, with or without items; idempotent with an `Idempotency-Key`. S1
async fn create(Call { app, scope, .. }: Call, request: Request) -> Result<Response, WireError> {
    let key = idempotency_key(request.headers())?.map(str::to_owned);
    let body = body::read(&app, request).await?;
    expect_state(&scope)?;
    let Some(key) = key else {
        return Ok(answer::json(begin(&app, &scope, &body).await?));
    };
    match idempotency::claim(&app.app, &scope, "POST /v1/conversations", &key, &body).await? {
        ClaimOutcome::Replayed(replayed) => Ok(reply::render(replayed)),
        ClaimOutcome::First(first) => {
            let work = async move { begin(&app, &scope, &body).await.map(Bytes::from) };
            Ok(answer::json(first.run(work).await?))
        }
    }
}

async fn begin(app: &App, scope: &Scope, body: &Bytes) -> Result<Vec<u8>, Fault> {
    let document = body::parse(app, body)?;
    let raw = document.raw();
    let request_body = CreateConversation::read(raw).map_err(Fault::from)?;
    body::check_items(app, &request_body.items, raw, body.len())?;
    check_metadata(request_body.metadata)?;
    let items = items::items_to_store(app, scope, &request_body.items, raw).await?;
    let conversation = Conversation {
        id: Ids::Unguessable.make(IdKind::Conversation),
        created_at_ms: app.clock.now_ms(),
        metadata: Json::from(request_body.metadata.unwrap_or(Raw::EMPTY_OBJECT)),
    };
    app.store.create_conversation(scope, &conversation, items).await?;
    Ok(conversation_object(&conversation))
}

async fn retrieve(Call { app, scope, path, .. }: Call) -> Result<Response, WireError> {
    expect_state(&scope)?;
    let id = path.id(CONVERSATION)?;
    Ok(answer::json(conversation_object(&find(&app, &scope, &id).await?)))
}

/// Replaces the metadata.
async fn update(Call { app, scope, path, .. }: Call, request: Request) -> Result<Response, WireError> {
    let body = body::read(&app, request).await?;
    expect_state(&scope)?;
    let id = path.id(CONVERSATION)?;
    let document = body::parse(&app, &body)?;
    let raw = document.raw();
    let UpdateConversation { metadata } = UpdateConversation::read(raw).map_err(Fault::from)?;
    body::check_items(&app, &[], raw, body.len())?;
    let metadata = if metadata.is_null() { Raw::EMPTY_OBJECT } else { metadata };
    check_metadata(Some(metadata))?;
    let updated = app.store.update_conversation(&scope, &id, Json::from(metadata)).await?;
    Ok(answer::json(conversation_object(&updated.ok_or_else(|| missing(CONVERSATION, &id))?)))
}

/// Deletes a conversation and its items.
async fn delete(Call { app, scope, path, .. }: Call) -> Result<Response, WireError> {
    expect_state(&scope)?;
    let id = path.id(CONVERSATION)?;
    match app.store.delete_conversation(&scope, &id).await? {
        true => Ok(answer::deleted(&id, "conversation.deleted")),
        false => Err(missing(CONVERSATION, &id).into()),
    }
}

async fn find(app: &App, scope: &Scope, id: &str) -> Result<Conversation, Fault> {
    app.store.conversation(scope, id).await?.ok_or_else(|| missing(CONVERSATION, id))
}

/// Refuses callers of a stateless tenant, with the same error as the Responses API.
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
fn conversation_object(conversation: &Conversation) -> Vec<u8> {
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
