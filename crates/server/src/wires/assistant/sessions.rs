//! `GET /api/v2/ai-agent/sessions/…`: a user's own threads, so that a front end can show them again.

use std::sync::Arc;

use amalgam_core::{Fault, FaultKind, Scope};
use amalgam_protocol::Writer;
use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};

use super::error::AssistantError;
use crate::{
    app::App,
    wires::{answer, query::Query},
};

/// The default page size, and the largest one.
const USUAL: u64 = 20;
const LARGEST: u64 = 100;

/// The caller's threads, the newest first.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, AssistantError> {
    let Page { after, limit } = Page::read(&query)?;
    let mut sessions = app.store.sessions(&scope, after, limit + 1).await?;
    let more = sessions.len() > limit;
    sessions.truncate(limit);
    let next = more.then(|| sessions.last().map(|session| session.id)).flatten();
    Ok(page(next, |writer| {
        for session in &sessions {
            writer.object(|writer| {
                writer.key("id").number(session.id.unsigned_abs());
                match &session.profile {
                    Some(profile) => writer.key("agent").string(profile),
                    None => writer.key("agent").null(),
                }
                writer.key("status").string(if session.active { "active" } else { "closed" });
                writer.key("message_count").number(session.messages);
                writer.key("created_at").number(session.created_at_ms / 1000);
                writer.key("updated_at").number(session.updated_at_ms / 1000);
            });
        }
    }))
}

/// The messages of one of them, the newest first.
pub(super) async fn messages(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
    query: Query,
) -> Result<Response, AssistantError> {
    let not_found = || Fault::new(FaultKind::NotFound, "Not found.");
    let id = id.ok().and_then(|Path(id)| id.parse().ok()).ok_or_else(not_found)?;
    let Page { after, limit } = Page::read(&query)?;
    let mut messages = app.store.messages(&scope, id, after, limit + 1).await?.ok_or_else(not_found)?;
    let more = messages.len() > limit;
    messages.truncate(limit);
    let next = more.then(|| messages.last().map(|message| message.id)).flatten();
    Ok(page(next, |writer| {
        for message in &messages {
            writer.object(|writer| {
                writer.key("id").number(message.id.unsigned_abs());
                writer.key("role").string(&message.role);
                writer.key("message").string(&message.content);
                writer.key("created_at").number(message.created_at_ms / 1000);
            });
        }
    }))
}

struct Page {
    after: Option<i64>,
    limit: usize,
}

impl Page {
    fn read(query: &Query) -> Result<Self, Fault> {
        let limit = match query.number("limit")? {
            None => USUAL,
            Some(limit @ 1..=LARGEST) => limit,
            Some(_) => return Err(Fault::invalid("limit", format!("limit must be between 1 and {LARGEST}."))),
        };
        let after = query.number("after")?.map(|after| i64::try_from(after).unwrap_or(i64::MAX));
        Ok(Self { after, limit: limit as usize })
    }
}

/// `next` is what to give as `after` for the page behind this one.
fn page(next: Option<i64>, results: impl FnOnce(&mut Writer)) -> Response {
    let mut writer = Writer::default();
    writer.object(|writer| {
        match next {
            Some(next) => writer.key("next").number(next.unsigned_abs()),
            None => writer.key("next").null(),
        }
        writer.key("results").array(results);
    });
    answer::json(writer.into_bytes())
}
