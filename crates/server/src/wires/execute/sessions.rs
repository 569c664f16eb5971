//! `/api/agent/sessions`: creates, lists, shows and deletes sessions.

use amalgam_app::{
    assistant::require_enabled,
    execute::{MODE_CHANGES, SESSION, is_pending, no_such_session, session},
};
use amalgam_core::{
    Fault, IdKind, Ids, Scope,
    store::{AgentSession, ModeChange},
};
use amalgam_execute::{composition::DEFAULT_MODE, envelope::Casing, modes, request};
use amalgam_protocol::{Raw, Writer};
use axum::{extract::Request, response::Response};

use super::ExecuteError;
use crate::wires::call::Call;
use crate::{app::App, body::read_json, wires::answer};

/// Creates a session. C-11
pub(super) async fn open(Call { app, scope, .. }: Call, request: Request) -> Result<Response, ExecuteError> {
    let casing = app.execute.casing;
    opened(&app, &scope, request).await.map_err(|error| error.with_casing(casing))
}

async fn opened(app: &App, scope: &Scope, request: Request) -> Result<Response, ExecuteError> {
    let (_, body) = read_json(request, app.text_body(), &app.memory).await?;
    let raw = match body.is_empty() {
        true => None,
        false => Some(Raw::parse(&body).map_err(Fault::from)?),
    };
    let request = match raw {
        Some(raw) => request::read_session(raw, &app.execute.bounds)?,
        None => request::SessionRequest::default(),
    };
    let profile = match request.agent_context_id.as_deref() {
        None => None,
        Some(slug) => match app.store.profile(scope, slug).await?.filter(|profile| profile.active) {
            Some(profile) => {
                require_enabled(app, scope).await?;
                Some(profile.slug)
            }
            None => return Err(ExecuteError::field("AgentContextId", "names no active agent of this tenant")),
        },
    };
    let own = app.store.modes(scope).await?;
    let mode = request.mode.as_deref().unwrap_or(DEFAULT_MODE);
    let Some(mode) = modes::find(mode, &own) else {
        return Err(ExecuteError::field("Mode", "names no mode of this tenant"));
    };
    let now_ms = app.clock.now_ms();
    let session = AgentSession {
        id: Ids::Unguessable.dated(IdKind::Session, now_ms),
        profile,
        mode: mode.name,
        solution_context: None,
        turns: 0,
        created_at_ms: now_ms,
        updated_at_ms: now_ms,
    };
    app.store.open_session(scope, session.clone()).await?;
    Ok(object(|writer| write(writer, app.execute.casing, &session, None)))
}

/// The caller's sessions, the newest first.
pub(super) async fn list(Call { app, scope, query, .. }: Call) -> Result<Response, ExecuteError> {
    let casing = app.execute.casing;
    let page = query.page().map_err(|fault| ExecuteError::from(fault).with_casing(casing))?;
    let listed = app.store.agent_sessions(&scope, page.after.as_deref(), page.limit + 1).await;
    let mut sessions = listed.map_err(|error| ExecuteError::from(error).with_casing(casing))?;
    let more = sessions.len() > page.limit;
    sessions.truncate(page.limit);
    Ok(object(|writer| {
        casing.key(writer, "Sessions").array(|writer| {
            for session in &sessions {
                writer.object(|writer| write(writer, casing, session, None));
            }
        });
        casing.key(writer, "HasMore").bool(more);
    }))
}

/// One session with its details.
pub(super) async fn show(Call { app, scope, path, .. }: Call) -> Result<Response, ExecuteError> {
    let casing = app.execute.casing;
    let shown = async {
        let id = path.id(SESSION)?;
        let session = session(&app, &scope, &id).await?;
        let changes = app.store.mode_changes(&scope, &id, MODE_CHANGES).await?.unwrap_or_default();
        let newest = app.store.agent_turns(&scope, &id, None, 1).await?.unwrap_or_default().pop();
        let pending = match &newest {
            Some(turn) if is_pending(&app, &scope, turn).await? => Some(turn.turn_id.as_str()),
            _ => None,
        };
        Ok::<_, ExecuteError>(object(|writer| {
            write(writer, casing, &session, pending);
            match &session.solution_context {
                Some(text) => casing.key(writer, "SolutionContextText").string(text),
                None => casing.key(writer, "SolutionContextText").null(),
            }
            casing.key(writer, "ModeHistory").array(|writer| {
                changes.iter().for_each(|change| write_change(writer, casing, change));
            });
        }))
    };
    shown.await.map_err(|error| error.with_casing(casing))
}

/// Deletes a session and its responses.
pub(super) async fn delete(Call { app, scope, path, .. }: Call) -> Result<Response, ExecuteError> {
    let casing = app.execute.casing;
    let deleted = async {
        let id = path.id(SESSION)?;
        let responses = app.store.delete_session(&scope, &id).await?.ok_or_else(|| no_such_session(&id))?;
        for response in &responses {
            app.store.delete_response(&scope, response).await?;
        }
        Ok::<_, ExecuteError>(object(|writer| {
            casing.key(writer, "SessionId").string(&id);
            casing.key(writer, "Deleted").bool(true);
        }))
    };
    deleted.await.map_err(|error| error.with_casing(casing))
}

fn write(writer: &mut Writer, casing: Casing, session: &AgentSession, pending: Option<&str>) {
    casing.key(writer, "SessionId").string(&session.id);
    match &session.profile {
        Some(profile) => casing.key(writer, "AgentContextId").string(profile),
        None => casing.key(writer, "AgentContextId").null(),
    }
    casing.key(writer, "Mode").string(&session.mode);
    casing.key(writer, "Turns").number(session.turns);
    match pending {
        Some(turn_id) => casing.key(writer, "PendingTurnId").string(turn_id),
        None => casing.key(writer, "PendingTurnId").null(),
    }
    casing.key(writer, "CreatedAt").number(session.created_at_ms / 1000);
    casing.key(writer, "UpdatedAt").number(session.updated_at_ms / 1000);
}

fn write_change(writer: &mut Writer, casing: Casing, change: &ModeChange) {
    writer.object(|writer| {
        casing.key(writer, "Previous").string(&change.previous);
        casing.key(writer, "Mode").string(&change.mode);
        casing.key(writer, "Reason").string(&change.reason);
        casing.key(writer, "TurnId").string(&change.turn_id);
        casing.key(writer, "At").number(change.at_ms / 1000);
    });
}

/// A JSON object with these fields.
pub(super) fn object(fill: impl FnOnce(&mut Writer)) -> Response {
    let mut writer = Writer::default();
    writer.object(fill);
    answer::json(writer.into_bytes())
}
