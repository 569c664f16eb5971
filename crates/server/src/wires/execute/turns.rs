//! `/api/agent/sessions/{SessionId}/turns`: the turns of a session and their answers.

use amalgam_app::execute::{
    ExecuteAnswer, ExecuteStep, SESSION, is_pending, no_such_session, no_such_turn, server_calls,
};
use amalgam_core::{
    Fault, Scope,
    store::{AgentTurn, StepState},
};
use amalgam_protocol::{Status, Writer};
use axum::response::Response;

use super::{ExecuteError, sessions::object};
use crate::wires::call::Call;
use crate::{app::App, wires::query::is_id};

/// The turns of a session, the newest first.
pub(super) async fn list(Call { app, scope, path, query, .. }: Call) -> Result<Response, ExecuteError> {
    let casing = app.execute.casing;
    let listed = async {
        let id = path.id(SESSION)?;
        let (limit, before) = (query.page()?.limit, query.number("before")?);
        let turns = app.store.agent_turns(&scope, &id, before, limit + 1).await?;
        let mut turns = turns.ok_or_else(|| no_such_session(&id))?;
        let more = turns.len() > limit;
        turns.truncate(limit);
        let newest = newest(&app, &scope, &id).await?;
        let mut statuses = Vec::with_capacity(turns.len());
        for turn in &turns {
            statuses.push(status(&app, &scope, turn, newest).await?);
        }
        Ok::<_, ExecuteError>(object(|writer| {
            casing.key(writer, "Turns").array(|writer| {
                for (turn, status) in turns.iter().zip(&statuses) {
                    writer.object(|writer| write(&app, writer, turn, status));
                }
            });
            casing.key(writer, "HasMore").bool(more);
        }))
    };
    listed.await.map_err(|error| error.with_casing(casing))
}

/// One turn, with its answer.
pub(super) async fn show(Call { app, scope, path, .. }: Call) -> Result<Response, ExecuteError> {
    let casing = app.execute.casing;
    let shown = async {
        let (session_id, turn_id) = (path.text(0), path.text(1));
        if !is_id(session_id) || !is_id(turn_id) {
            return Err(no_such_turn(turn_id).into());
        }
        let turn = app.store.agent_turn(&scope, session_id, turn_id).await?.ok_or_else(|| no_such_turn(turn_id))?;
        let newest = newest(&app, &scope, session_id).await?;
        let status = status(&app, &scope, &turn, newest).await?;
        let mut calls = Vec::new();
        for step in &turn.steps {
            calls.extend(app.store.response(&scope, &step.response_id).await?.iter().flat_map(server_calls));
        }
        let answer = match turn.steps.last() {
            Some(step) => ExecuteAnswer::of(&app, &scope, &ExecuteStep::stored(session_id, turn_id, step)).await?,
            None => None,
        };
        Ok::<_, ExecuteError>(object(|writer| {
            write(&app, writer, &turn, status);
            casing.key(writer, "ServerToolCalls").array(|writer| {
                calls.iter().for_each(|call| call.write(writer, casing));
            });
            match answer.filter(|_| status != "running") {
                Some(answer) => answer.write(&app, casing.key(writer, "Result")),
                None => casing.key(writer, "Result").null(),
            }
        }))
    };
    shown.await.map_err(|error: ExecuteError| error.with_casing(casing))
}

/// The number of a session's newest turn.
async fn newest(app: &App, scope: &Scope, session_id: &str) -> Result<u64, Fault> {
    let turns = app.store.agent_turns(scope, session_id, None, 1).await?.unwrap_or_default();
    Ok(turns.first().map_or(0, |turn| turn.number))
}

async fn status(app: &App, scope: &Scope, turn: &AgentTurn, newest: u64) -> Result<&'static str, Fault> {
    let Some(step) = turn.steps.last() else { return Ok("failed") };
    Ok(match step.state {
        StepState::Running => "running",
        StepState::Gone | StepState::Ended(Status::Failed | Status::Cancelled) => "failed",
        StepState::Ended(_) if !is_pending(app, scope, turn).await? => "completed",
        StepState::Ended(_) if turn.number < newest => "given_up",
        StepState::Ended(_) => "pending",
    })
}

fn write(app: &App, writer: &mut Writer, turn: &AgentTurn, status: &str) {
    let casing = app.execute.casing;
    let first = turn.steps.first();
    casing.key(writer, "TurnId").string(&turn.turn_id);
    casing.key(writer, "Number").number(turn.number);
    casing.key(writer, "Status").string(status);
    casing.key(writer, "Mode").string(first.map_or("", |step| &step.mode));
    casing.key(writer, "Steps").number(turn.steps.len() as u64);
    casing.key(writer, "CreatedAt").number(first.map_or(0, |step| step.created_at_ms) / 1000);
}
