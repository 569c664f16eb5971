//! `GET /api/v2/ai-agent/sessions/…`: a user's own threads, for display in a front end.

use amalgam_app::assistant::write_tool_results;
use amalgam_core::{Fault, FaultKind};
use amalgam_protocol::Writer;
use axum::response::Response;

use super::error::AssistantError;
use crate::wires::call::Call;
use crate::wires::{answer, query::Query};

/// The default page size, and the largest one.
const DEFAULT_LIMIT: u64 = 20;
const MAX_LIMIT: u64 = 100;

/// The caller's threads, the newest first.
pub(super) async fn list(Call { app, scope, query, .. }: Call) -> Result<Response, AssistantError> {
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

/// The messages of a thread, the newest first.
pub(super) async fn messages(Call { app, scope, path, query, .. }: Call) -> Result<Response, AssistantError> {
    let not_found = || Fault::new(FaultKind::NotFound, "Not found.");
    let id = path.text(0).parse().map_err(|_| not_found())?;
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
                write_tool_results(writer, message.metadata.iter());
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
            None => DEFAULT_LIMIT,
            Some(limit @ 1..=MAX_LIMIT) => limit,
            Some(_) => return Err(Fault::invalid("limit", format!("limit must be between 1 and {MAX_LIMIT}."))),
        };
        let after = query.number("after")?.map(|after| i64::try_from(after).unwrap_or(i64::MAX));
        Ok(Self { after, limit: limit as usize })
    }
}

/// `next` is the value of `after` for the next page.
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
