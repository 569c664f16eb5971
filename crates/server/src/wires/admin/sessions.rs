//! `/admin/sessions`: the threads of a tenant's users with its assistants.

use std::sync::Arc;

use amalgam_core::{
    Fault, Scope,
    store::{MessageRecord, SessionRecord, Within},
};
use amalgam_protocol::Writer;
use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};

use super::{bank::admin, named_tenant, number_after, number_in, page, place, write_text};
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{Query, missing},
    },
};

/// What a missing thread is called.
const SESSION: &str = "Session";

/// Threads, the newest first; with `user` those of one user.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let tenant = place(&app, &scope, named_tenant(&query)?).await?;
    let asked = query.page()?;
    let within = Within::Own(admin(&tenant)?);
    let found = app.store.sessions_within(within, query.get("user"), number_after(&asked)?, asked.limit + 1);
    let sessions = found.await.map_err(Fault::from)?;
    let id = |writer: &mut Writer, session: &SessionRecord| writer.number(session.id.unsigned_abs());
    Ok(page(&sessions, asked.limit, id, |writer, session| {
        writer.object(|writer| write_session(writer, session));
    }))
}

/// One thread with a page of its messages, the newest first, and all that is known about them.
pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let id = number_in(SESSION, id)?;
    let tenant = place(&app, &scope, named_tenant(&query)?).await?;
    let asked = query.page()?;
    let within = Within::Own(admin(&tenant)?);
    let found = app.store.session_within(within, id, number_after(&asked)?, asked.limit + 1);
    let (session, messages) = found.await.map_err(Fault::from)?.ok_or_else(|| missing(SESSION, &id.to_string()))?;
    let shown = messages.get(..asked.limit).unwrap_or(&messages);
    let mut writer = Writer::with_capacity(4096);
    writer.object(|writer| {
        write_session(writer, &session);
        writer.key("messages").array(|writer| shown.iter().for_each(|message| write_message(writer, message)));
        for (name, message) in [("first_id", shown.first()), ("last_id", shown.last())] {
            match message {
                Some(message) => writer.key(name).number(message.id.unsigned_abs()),
                None => writer.key(name).null(),
            }
        }
        writer.key("has_more").bool(messages.len() > asked.limit);
    });
    Ok(answer::json(writer.into_bytes()))
}

fn write_session(writer: &mut Writer, session: &SessionRecord) {
    writer.key("id").number(session.id.unsigned_abs());
    writer.key("object").string("session");
    writer.key("user").string(&session.user);
    write_text(writer, "profile", session.profile.as_deref());
    writer.key("status").string(if session.active { "active" } else { "closed" });
    writer.key("message_count").number(session.messages);
    writer.key("created_at").number(session.created_at_ms / 1000);
    writer.key("updated_at").number(session.updated_at_ms / 1000);
}

fn write_message(writer: &mut Writer, message: &MessageRecord) {
    writer.object(|writer| {
        writer.key("id").number(message.id.unsigned_abs());
        writer.key("object").string("session.message");
        writer.key("role").string(&message.role);
        writer.key("content").string(&message.content);
        // What the turn asked its model, and what came back, is under this id in `/admin/turns`.
        write_text(writer, "response_id", message.response_id.as_deref());
        writer.key("created_at").number(message.created_at_ms / 1000);
        writer.key("metadata").array(|writer| {
            for record in &message.metadata {
                writer.object(|writer| {
                    writer.key("kind").string(&record.kind);
                    writer.key("value").raw(record.value.raw());
                });
            }
        });
    });
}
