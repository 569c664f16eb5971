//! Sessions of the strict contract, their turns and steps.

use std::sync::atomic::{AtomicBool, Ordering};

use amalgam_core::{
    Scope, StoreError,
    store::{AgentSession, AgentStep, AgentTurn, ExecuteStore, ModeChange, NewStep, StepState, Stored, TakenStep},
};
use tokio_postgres::Row;

use super::{
    Postgres,
    connection::{Connection, Failure, Param},
    job::{most, process_bytes, signed, unsigned},
    pool::Lease,
    sql::statements,
};
use crate::{
    assistant,
    execute::{self, Known, OtherTurn, Verdict, Write},
    pending_release::Reservation,
    rows,
};

statements! {
    Caller ADD_SESSION = "
        INSERT INTO agent_sessions (tenant_id, user_id, id, profile, mode, solution_context, turns, created_at,
            updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (tenant_id, user_id, id) DO NOTHING";
    Caller SESSION = "
        SELECT id, profile, mode, solution_context, turns, created_at, updated_at FROM agent_sessions
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    /// The mode of a session, locked against other changes.
    Caller HOLD_SESSION = "
        SELECT mode FROM agent_sessions WHERE tenant_id = $1 AND user_id = $2 AND id = $3 FOR NO KEY UPDATE";
    Caller SESSIONS = "
        SELECT id, profile, mode, solution_context, turns, created_at, updated_at FROM agent_sessions
        WHERE tenant_id = $1 AND user_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4";
    Caller TOUCH_SESSION = "
        UPDATE agent_sessions SET turns = turns + $4, solution_context = COALESCE($5, solution_context),
            updated_at = GREATEST(updated_at, $6)
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    Caller DELETE_SESSION = "DELETE FROM agent_sessions WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    Caller DELETE_STEPS = "
        DELETE FROM agent_steps WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3
        RETURNING response_id, turn, step";
    Caller DELETE_MODE_CHANGES = "
        DELETE FROM mode_changes WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3";
    /// How a step stands is told by its response, and without one by the process that took it. A response is looked up by its
    /// stem, which its id ends with.
    Caller STEPS_OF_TURN = "
        SELECT s.turn, s.turn_id, s.fingerprint, s.response_id, s.mode, s.notes, s.created_at, r.status,
            p.id IS NOT NULL
        FROM agent_steps s
        LEFT JOIN responses r ON r.tenant_id = $1 AND r.user_id = $2 AND r.stem = left(right(s.response_id, 24), 16)
            AND r.id = s.response_id
        LEFT JOIN processes p ON p.id = s.process
        WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3 AND s.turn_id = $4
        ORDER BY s.step";
    Caller STEPS_OF_TURNS = "
        SELECT s.turn, s.turn_id, s.fingerprint, s.response_id, s.mode, s.notes, s.created_at, r.status,
            p.id IS NOT NULL
        FROM agent_steps s
        LEFT JOIN responses r ON r.tenant_id = $1 AND r.user_id = $2 AND r.stem = left(right(s.response_id, 24), 16)
            AND r.id = s.response_id
        LEFT JOIN processes p ON p.id = s.process
        WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3 AND s.turn >= $4 AND s.turn < $5
        ORDER BY s.turn, s.step";
    /// The last step of the newest turn but one.
    Caller LAST_OF_OTHERS = "
        SELECT s.turn, s.turn_id, r.status, p.id IS NOT NULL
        FROM agent_steps s
        LEFT JOIN responses r ON r.tenant_id = $1 AND r.user_id = $2 AND r.stem = left(right(s.response_id, 24), 16)
            AND r.id = s.response_id
        LEFT JOIN processes p ON p.id = s.process
        WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3 AND s.turn_id <> $4
        ORDER BY s.turn DESC, s.step DESC LIMIT 1";
    Caller LAST_ENDED_WELL = "
        SELECT s.response_id
        FROM agent_steps s JOIN responses r ON r.tenant_id = $1 AND r.user_id = $2
            AND r.stem = left(right(s.response_id, 24), 16) AND r.id = s.response_id
        WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3 AND r.status IN ('completed', 'incomplete')
        ORDER BY s.turn DESC, s.step DESC LIMIT 1";
    Caller FIRST_OF_PAGE = "
        SELECT turn FROM agent_steps
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND turn < $4 AND step = 1
        ORDER BY turn DESC LIMIT 1 OFFSET $5";
    Caller ADD_STEP = "
        INSERT INTO agent_steps (tenant_id, user_id, session_id, turn, step, turn_id, fingerprint, response_id, mode, notes,
            process, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    Caller TAKE_AGAIN = "
        UPDATE agent_steps SET turn = $6, response_id = $7, mode = $8, notes = $9, process = $10, created_at = $11
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND turn = $4 AND step = $5";
    /// Where the step of a response is, while there is no such response.
    Caller FIND_STEP = "
        SELECT turn, step FROM agent_steps
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND response_id = $4
            AND NOT EXISTS (SELECT FROM responses r
                WHERE r.tenant_id = $1 AND r.user_id = $2 AND r.stem = left(right($4, 24), 16) AND r.id = $4)";
    /// The step at this place, if none is behind it.
    Caller DROP_STEP = "
        DELETE FROM agent_steps
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND turn = $4 AND step = $5
            AND NOT EXISTS (SELECT FROM agent_steps later
                WHERE later.tenant_id = $1 AND later.user_id = $2 AND later.session_id = $3 AND later.turn = $4
                    AND later.step > $5)
        RETURNING pg_notify('amalgam_changed', response_id)::text";
    Caller LEAVE_STEP = "
        UPDATE agent_steps SET process = NULL WHERE tenant_id = $1 AND user_id = $2 AND response_id = $3";
    Caller SET_MODE = "
        UPDATE agent_sessions SET mode = $4, updated_at = GREATEST(updated_at, $5)
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    Caller ADD_MODE_CHANGE = "
        INSERT INTO mode_changes (tenant_id, user_id, session_id, number, previous, mode, reason, turn_id, at)
        SELECT $1, $2, $3, 1 + COALESCE((
            SELECT number FROM mode_changes WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3
            ORDER BY number DESC LIMIT 1), 0), $4, $5, $6, $7, $8";
    Caller MODE_CHANGES = "
        SELECT previous, mode, reason, turn_id, at FROM mode_changes
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 ORDER BY number DESC LIMIT $4";
}

impl ExecuteStore for Postgres {
    fn open_session<'a>(&'a self, scope: &'a Scope, session: AgentSession) -> Stored<'a, ()> {
        Box::pin(async move {
            let session = &session;
            // The id is new: one that is there after a first try was put there by it.
            let tried = &AtomicBool::new(false);
            let opened = self.pool.repeatably(move |connection: Lease| async move {
                let again = tried.swap(true, Ordering::Relaxed);
                Ok(open(&connection, scope, session).await? || again)
            });
            match opened.await? {
                true => Ok(()),
                false => Err(StoreError::Broken(format!("session `{}` is there already", session.id))),
            }
        })
    }

    fn agent_session<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<AgentSession>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move { get(&connection, scope, id).await }))
    }

    fn agent_sessions<'a>(
        &'a self,
        scope: &'a Scope,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentSession>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let after = after.unwrap_or(rows::BEHIND_ALL);
            let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &after, &most(limit)];
            connection.rows(&SESSIONS, &params).await?.iter().map(session_from).collect()
        }))
    }

    fn delete_session<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Vec<String>>> {
        Box::pin(self.pool.once(move |mut connection: Lease| async move {
            connection.begin().await?;
            let deleted = delete(&connection, scope, id).await;
            connection.end(deleted).await
        }))
    }

    fn agent_turn<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        turn_id: &'a str,
    ) -> Stored<'a, Option<AgentTurn>> {
        Box::pin(
            self.pool.repeatably(move |connection: Lease| async move {
                turn(&connection, scope, session_id, turn_id).await
            }),
        )
    }

    fn agent_turns<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Option<Vec<AgentTurn>>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            turns(&connection, scope, session_id, before, limit).await
        }))
    }

    fn take_step<'a>(&'a self, scope: &'a Scope, step: NewStep) -> Stored<'a, TakenStep> {
        Box::pin(async move {
            let (step, tried) = (&step, &AtomicBool::new(false));
            let reservation =
                Reservation::Step { session_id: step.session_id.clone(), response_id: step.response_id.clone() };
            let guard = self.pending_releases.guard(scope, reservation);
            let taken = self.pool.repeatably(move |mut connection: Lease| async move {
                let again = tried.swap(true, Ordering::Relaxed);
                connection.begin().await?;
                let taken = take(&connection, scope, step, again).await;
                connection.end(taken).await
            });
            let taken = taken.await;
            // Without a connection nothing was begun.
            if taken.is_ok() || !tried.load(Ordering::Relaxed) {
                guard.disarm();
            }
            taken
        })
    }

    fn drop_step<'a>(&'a self, scope: &'a Scope, session_id: &'a str, response_id: &'a str) -> Stored<'a, ()> {
        let (session_id, response_id) = (session_id.to_owned(), response_id.to_owned());
        self.release_entry(scope, Reservation::Step { session_id, response_id })
    }

    fn change_mode<'a>(&'a self, scope: &'a Scope, session_id: &'a str, change: ModeChange) -> Stored<'a, bool> {
        Box::pin(async move {
            let change = &change;
            let changed = self.pool.once(move |mut connection: Lease| async move {
                connection.begin().await?;
                let changed = change_mode(&connection, scope, session_id, change).await;
                connection.end(changed).await
            });
            changed.await
        })
    }

    fn mode_changes<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        limit: usize,
    ) -> Stored<'a, Option<Vec<ModeChange>>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            if get(&connection, scope, session_id).await?.is_none() {
                return Ok(None);
            }
            let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &session_id, &most(limit)];
            let found = connection.rows(&MODE_CHANGES, &params).await?;
            Ok(Some(found.iter().rev().map(change_from).collect::<Result<_, _>>()?))
        }))
    }
}

/// Whether it was not there before.
async fn open(connection: &Connection, scope: &Scope, session: &AgentSession) -> Result<bool, Failure> {
    let context = session.solution_context.as_deref().map(assistant::content);
    let params: [Param<'_>; 9] = [
        &scope.tenant_id(),
        &scope.user(),
        &session.id,
        &session.profile,
        &session.mode,
        &context,
        &signed(session.turns),
        &signed(session.created_at_ms),
        &signed(session.updated_at_ms),
    ];
    Ok(connection.execute(&ADD_SESSION, &params).await? == 1)
}

async fn get(connection: &Connection, scope: &Scope, id: &str) -> Result<Option<AgentSession>, Failure> {
    let row = connection.row(&SESSION, &[&scope.tenant_id(), &scope.user(), &id]).await?;
    row.as_ref().map(session_from).transpose()
}

async fn delete(connection: &Connection, scope: &Scope, id: &str) -> Result<Option<Vec<String>>, Failure> {
    let params: [Param<'_>; 3] = [&scope.tenant_id(), &scope.user(), &id];
    // The session first: a transaction that takes a step locks it, and its step is there once the lock is ours.
    if connection.execute(&DELETE_SESSION, &params).await? == 0 {
        return Ok(None);
    }
    connection.execute(&DELETE_MODE_CHANGES, &params).await?;
    let deleted = connection.rows(&DELETE_STEPS, &params).await?;
    let mut steps = deleted
        .iter()
        .map(|row| Ok(((row.try_get(1)?, row.try_get(2)?), row.try_get(0)?)))
        .collect::<Result<Vec<((i64, i64), String)>, Failure>>()?;
    steps.sort_unstable();
    Ok(Some(steps.into_iter().map(|(_, response_id)| response_id).collect()))
}

async fn turn(
    connection: &Connection,
    scope: &Scope,
    session_id: &str,
    turn_id: &str,
) -> Result<Option<AgentTurn>, Failure> {
    let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &session_id, &turn_id];
    let steps = connection.rows(&STEPS_OF_TURN, &params).await?;
    Ok(execute::turns(steps.iter().map(step_from).collect::<Result<_, _>>()?).pop())
}

async fn turns(
    connection: &Connection,
    scope: &Scope,
    session_id: &str,
    before: Option<u64>,
    limit: usize,
) -> Result<Option<Vec<AgentTurn>>, Failure> {
    let there = async || Ok(get(connection, scope, session_id).await?.map(|_| Vec::new()));
    let Some(behind_first) = limit.checked_sub(1) else { return there().await };
    let (tenant_id, user, before) = (scope.tenant_id(), scope.user(), before.map_or(i64::MAX, signed));
    let params: [Param<'_>; 5] = [&tenant_id, &user, &session_id, &before, &most(behind_first)];
    let first = connection.row(&FIRST_OF_PAGE, &params).await?;
    let first = first.map(|row| row.try_get::<_, i64>(0)).transpose()?.unwrap_or_default();
    let steps = connection.rows(&STEPS_OF_TURNS, &[&tenant_id, &user, &session_id, &first, &before]).await?;
    // A session that has turns is there.
    if steps.is_empty() {
        return there().await;
    }
    let mut turns = execute::turns(steps.iter().map(step_from).collect::<Result<_, _>>()?);
    turns.reverse();
    Ok(Some(turns))
}

/// Inside a transaction. `tried` says that the same may have been done before, with the answer lost.
async fn take(connection: &Connection, scope: &Scope, new: &NewStep, tried: bool) -> Result<TakenStep, Failure> {
    let (tenant_id, user, session_id) = (scope.tenant_id(), scope.user(), &new.session_id);
    if connection.row(&HOLD_SESSION, &[&tenant_id, &user, session_id]).await?.is_none() {
        return Ok(TakenStep::Missing);
    }
    let turn = turn(connection, scope, session_id, &new.turn_id).await?;
    let other = connection.row(&LAST_OF_OTHERS, &[&tenant_id, &user, session_id, &new.turn_id]).await?;
    let other = other.map(|row| {
        let (number, turn_id) = (unsigned(row.try_get(0)?), row.try_get(1)?);
        Ok::<_, Failure>(OtherTurn { turn_id, number, state: state_from(&row, 2)? })
    });
    let write = match execute::decide(new, Known { turn, other: other.transpose()?, tried }) {
        Verdict::Told(told) => return Ok(told),
        Verdict::First(write) => write,
    };
    let parent = match &new.follows {
        Some(follows) => Some(follows.clone()),
        None => {
            let row = connection.row(&LAST_ENDED_WELL, &[&tenant_id, &user, session_id]).await?;
            row.map(|row| row.try_get(0)).transpose()?
        }
    };
    if let Some(write) = write {
        keep(connection, scope, new, &write).await?;
        let context = new.solution_context.as_deref().map(assistant::content);
        let (more, now) = (i64::from(write.is_new_turn()), signed(new.now_ms));
        let params: [Param<'_>; 6] = [&tenant_id, &user, session_id, &more, &context, &now];
        connection.execute(&TOUCH_SESSION, &params).await?;
    }
    Ok(TakenStep::First { parent })
}

async fn keep(connection: &Connection, scope: &Scope, new: &NewStep, write: &Write) -> Result<(), Failure> {
    let NewStep { session_id, turn_id, response_id, mode, .. } = new;
    let (tenant_id, user, now) = (scope.tenant_id(), scope.user(), signed(new.now_ms));
    let (process, notes) = (process_bytes(new.process), new.notes.raw().text());
    let process = process.as_slice();
    let kept = match *write {
        Write::Add { turn, step } => {
            let (turn, step, fingerprint) = (signed(turn), signed(step), new.fingerprint.as_slice());
            let params: [Param<'_>; 12] = [
                &tenant_id,
                &user,
                session_id,
                &turn,
                &step,
                turn_id,
                &fingerprint,
                response_id,
                mode,
                &notes,
                &process,
                &now,
            ];
            connection.execute(&ADD_STEP, &params).await?
        }
        Write::Again { before, turn, step } => {
            let (before, turn, step) = (signed(before), signed(turn), signed(step));
            let params: [Param<'_>; 11] =
                [&tenant_id, &user, session_id, &before, &step, &turn, response_id, mode, &notes, &process, &now];
            connection.execute(&TAKE_AGAIN, &params).await?
        }
    };
    match kept {
        1 => Ok(()),
        _ => Err(Failure::broken("a step that is there cannot be taken")),
    }
}

/// Gives a submission back that has no response; whether there was one. Inside a transaction.
pub(super) async fn drop_step(
    connection: &Connection,
    scope: &Scope,
    session_id: &str,
    response_id: &str,
) -> Result<bool, Failure> {
    let (tenant_id, user) = (scope.tenant_id(), scope.user());
    if connection.row(&HOLD_SESSION, &[&tenant_id, &user, &session_id]).await?.is_none() {
        return Ok(false);
    }
    let found = connection.row(&FIND_STEP, &[&tenant_id, &user, &session_id, &response_id]).await?;
    let Some(found) = found else { return Ok(false) };
    let (turn, step): (i64, i64) = (found.try_get(0)?, found.try_get(1)?);
    if connection.row(&DROP_STEP, &[&tenant_id, &user, &session_id, &turn, &step]).await?.is_none() {
        return Ok(false);
    }
    if step == 1 {
        let none = None::<&str>;
        let params: [Param<'_>; 6] = [&tenant_id, &user, &session_id, &-1_i64, &none, &0_i64];
        connection.execute(&TOUCH_SESSION, &params).await?;
    }
    Ok(true)
}

/// A response is gone: its step is free again, whichever process took it.
pub(super) async fn leave(
    connection: &Connection,
    tenant_id: i64,
    user: &str,
    response_id: &str,
) -> Result<(), Failure> {
    connection.execute(&LEAVE_STEP, &[&tenant_id, &user, &response_id]).await.map(drop)
}

/// Inside a transaction.
async fn change_mode(
    connection: &Connection,
    scope: &Scope,
    session_id: &str,
    change: &ModeChange,
) -> Result<bool, Failure> {
    let (tenant_id, user, at) = (scope.tenant_id(), scope.user(), signed(change.at_ms));
    let held = connection.row(&HOLD_SESSION, &[&tenant_id, &user, &session_id]).await?;
    let Some(previous) = held.as_ref().map(|row| row.try_get::<_, &str>(0)).transpose()? else { return Ok(false) };
    let (mode, reason) = (&change.mode, assistant::content(&change.reason));
    connection.execute(&SET_MODE, &[&tenant_id, &user, &session_id, mode, &at]).await?;
    let params: [Param<'_>; 8] = [&tenant_id, &user, &session_id, &previous, mode, &reason, &change.turn_id, &at];
    connection.execute(&ADD_MODE_CHANGE, &params).await?;
    Ok(true)
}

fn session_from(row: &Row) -> Result<AgentSession, Failure> {
    Ok(AgentSession {
        id: row.try_get(0)?,
        profile: row.try_get(1)?,
        mode: row.try_get(2)?,
        solution_context: row.try_get(3)?,
        turns: unsigned(row.try_get(4)?),
        created_at_ms: unsigned(row.try_get(5)?),
        updated_at_ms: unsigned(row.try_get(6)?),
    })
}

/// A step, with the number and the name of its turn.
fn step_from(row: &Row) -> Result<(u64, String, AgentStep), Failure> {
    let step = AgentStep {
        fingerprint: rows::digest(row.try_get(2)?)?,
        response_id: row.try_get(3)?,
        mode: row.try_get(4)?,
        notes: rows::json(row.try_get(5)?),
        created_at_ms: unsigned(row.try_get(6)?),
        state: state_from(row, 7)?,
    };
    Ok((unsigned(row.try_get(0)?), row.try_get(1)?, step))
}

/// How a step stands, from this column on.
fn state_from(row: &Row, from: usize) -> Result<StepState, Failure> {
    let status = row.try_get::<_, Option<&str>>(from)?.map(rows::status).transpose()?;
    Ok(execute::state(status, row.try_get(from + 1)?))
}

fn change_from(row: &Row) -> Result<ModeChange, Failure> {
    Ok(ModeChange {
        previous: row.try_get(0)?,
        mode: row.try_get(1)?,
        reason: row.try_get(2)?,
        turn_id: row.try_get(3)?,
        at_ms: unsigned(row.try_get(4)?),
    })
}
