//! `/admin/sessions`: the threads between a tenant's users and its assistants.

use std::sync::Arc;

use amalgam_core::{
    Fault, Scope,
    store::{MessageRecord, MetadataRecord, SessionRecord, Within},
};
use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    answer,
    fields::{Object, SessionKind, SessionMessageKind, UnixSeconds},
    list_page, number_after, number_in, tenant_admin_scope, tenant_in_query,
    tool_bank::admin,
};
use crate::{
    app::App,
    wires::{
        WireError,
        query::{Query, missing},
    },
};

/// The thread in not-found errors.
const SESSION: &str = "Session";

/// A thread between one user and one profile.
#[derive(Serialize, JsonSchema)]
pub(super) struct SessionHead<'a> {
    #[schemars(range(min = 1))]
    id: i64,
    object: SessionKind,
    /// The owner.
    user: &'a str,
    /// The profile; null if none was found.
    profile: Option<&'a str>,
    #[schemars(extend("enum" = ["active", "closed"]))]
    status: &'static str,
    message_count: u64,
    created_at: UnixSeconds,
    updated_at: UnixSeconds,
}

/// A thread between one user and one profile.
#[derive(Serialize, JsonSchema)]
pub(super) struct Session<'a> {
    #[serde(flatten)]
    head: SessionHead<'a>,
    messages: Vec<SessionMessage<'a>>,
    first_id: Option<i64>,
    last_id: Option<i64>,
    /// Whether there are older messages.
    has_more: bool,
}

/// A message of a thread.
#[derive(Serialize, JsonSchema)]
struct SessionMessage<'a> {
    #[schemars(range(min = 1))]
    id: i64,
    object: SessionMessageKind,
    #[schemars(extend("enum" = ["user", "assistant", "system"]))]
    role: &'a str,
    /// The content.
    content: &'a str,
    /// The response of the turn.
    response_id: Option<&'a str>,
    created_at: UnixSeconds,
    metadata: Vec<MessageFact<'a>>,
}

/// A record about the message.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct MessageFact<'a> {
    #[schemars(extend("enum" = ["system_prompt", "context", "model_usage", "tool_call", "error"]))]
    kind: &'a str,
    value: Object,
}

/// Threads, newest first; with `user` those of one user.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let tenant = tenant_admin_scope(&app, &scope, tenant_in_query(&query)?).await?;
    let asked = query.page()?;
    let within = Within::Own(admin(&tenant)?);
    let found = app.store.sessions_within(within, query.get("user"), number_after(&asked)?, asked.limit + 1);
    let sessions = found.await.map_err(Fault::from)?;
    Ok(list_page(&sessions, asked.limit, |session| session.id, SessionHead::from))
}

/// One thread with a page of its messages, newest first, and their records.
pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let id = number_in(SESSION, id)?;
    let tenant = tenant_admin_scope(&app, &scope, tenant_in_query(&query)?).await?;
    let asked = query.page()?;
    let within = Within::Own(admin(&tenant)?);
    let found = app.store.session_within(within, id, number_after(&asked)?, asked.limit + 1);
    let (session, messages) = found.await.map_err(Fault::from)?.ok_or_else(|| missing(SESSION, &id.to_string()))?;
    let shown = messages.get(..asked.limit).unwrap_or(&messages);
    Ok(answer(&Session {
        head: (&session).into(),
        messages: shown.iter().map(SessionMessage::from).collect(),
        first_id: shown.first().map(|message| message.id),
        last_id: shown.last().map(|message| message.id),
        has_more: messages.len() > asked.limit,
    }))
}

impl<'a> From<&'a SessionRecord> for SessionHead<'a> {
    fn from(session: &'a SessionRecord) -> Self {
        Self {
            id: session.id,
            object: SessionKind,
            user: &session.user,
            profile: session.profile.as_deref(),
            status: if session.active { "active" } else { "closed" },
            message_count: session.messages,
            created_at: UnixSeconds::from_ms(session.created_at_ms),
            updated_at: UnixSeconds::from_ms(session.updated_at_ms),
        }
    }
}

impl<'a> From<&'a MessageRecord> for SessionMessage<'a> {
    fn from(message: &'a MessageRecord) -> Self {
        let fact = |record: &'a MetadataRecord| MessageFact { kind: &record.kind, value: (&record.value).into() };
        Self {
            id: message.id,
            object: SessionMessageKind,
            role: &message.role,
            content: &message.content,
            // `/admin/turns` has the model calls of the turn under this id.
            response_id: message.response_id.as_deref(),
            created_at: UnixSeconds::from_ms(message.created_at_ms),
            metadata: message.metadata.iter().map(fact).collect(),
        }
    }
}
