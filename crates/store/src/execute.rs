//! Sessions of the strict contract, their turns and steps.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use amalgam_core::{
    Scope, StoreError,
    store::{
        AgentSession, AgentStep, AgentTurn, ExecuteStore, ModeChange, NewStep, StepState, Stored, SubmittedSession,
        TakenStep,
    },
};

use crate::{
    SqlStore,
    engine::{Repeat, SqlConnection, SqlEngine},
    pending_release::Reservation,
    rows,
    sql::shared_statements,
    steps::{self, OtherTurn, SessionState, StepDecision, StepWrite},
    values::{SqlRow, values},
};

shared_statements! {
    UserSql ADD_SESSION = "
        INSERT INTO agent_sessions (tenant_id, user_id, id, profile, mode, solution_context, turns, created_at,
            updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (tenant_id, user_id, id) DO NOTHING";
    UserSql SESSION = "
        SELECT id, profile, mode, solution_context, turns, created_at, updated_at FROM agent_sessions
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    UserSql SESSIONS = "
        SELECT id, profile, mode, solution_context, turns, created_at, updated_at FROM agent_sessions
        WHERE tenant_id = $1 AND user_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4";
    UserSql TOUCH_SESSION = "
        UPDATE agent_sessions SET turns = turns + $4, solution_context = COALESCE($5, solution_context),
            updated_at = CASE WHEN updated_at > $6 THEN updated_at ELSE $6 END
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    UserSql FORGET_SESSION = "DELETE FROM agent_sessions WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    UserSql FORGET_STEPS = "DELETE FROM agent_steps WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3";
    UserSql FORGET_MODE_CHANGES = "
        DELETE FROM mode_changes WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3";
    UserSql RESPONSES_OF_SESSION = "
        SELECT response_id FROM agent_steps WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3
        ORDER BY turn, step";
    /// A response is looked up by its stem, which its id ends with.
    UserSql STEPS_OF_TURN = "
        SELECT s.turn, s.turn_id, s.fingerprint, s.response_id, s.mode, s.notes, s.created_at, r.status,
            p.id IS NOT NULL
        FROM agent_steps AS s
        LEFT JOIN responses AS r ON r.tenant_id = $1 AND r.user_id = $2
            AND r.stem = substr(s.response_id, length(s.response_id) - 23, 16) AND r.id = s.response_id
        LEFT JOIN processes AS p ON p.id = s.process
        WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3 AND s.turn_id = $4
        ORDER BY s.step";
    UserSql STEPS_OF_TURNS = "
        SELECT s.turn, s.turn_id, s.fingerprint, s.response_id, s.mode, s.notes, s.created_at, r.status,
            p.id IS NOT NULL
        FROM agent_steps AS s
        LEFT JOIN responses AS r ON r.tenant_id = $1 AND r.user_id = $2
            AND r.stem = substr(s.response_id, length(s.response_id) - 23, 16) AND r.id = s.response_id
        LEFT JOIN processes AS p ON p.id = s.process
        WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3 AND s.turn >= $4 AND s.turn < $5
        ORDER BY s.turn, s.step";
    UserSql LAST_OF_OTHERS = "
        SELECT s.turn, s.turn_id, r.status, p.id IS NOT NULL
        FROM agent_steps AS s
        LEFT JOIN responses AS r ON r.tenant_id = $1 AND r.user_id = $2
            AND r.stem = substr(s.response_id, length(s.response_id) - 23, 16) AND r.id = s.response_id
        LEFT JOIN processes AS p ON p.id = s.process
        WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3 AND s.turn_id <> $4
        ORDER BY s.turn DESC, s.step DESC LIMIT 1";
    UserSql LAST_ENDED_WELL = "
        SELECT s.response_id
        FROM agent_steps AS s JOIN responses AS r ON r.tenant_id = $1 AND r.user_id = $2
            AND r.stem = substr(s.response_id, length(s.response_id) - 23, 16) AND r.id = s.response_id
        WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3 AND r.status IN ('completed', 'incomplete')
        ORDER BY s.turn DESC, s.step DESC LIMIT 1";
    UserSql FIRST_OF_PAGE = "
        SELECT turn FROM agent_steps
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND turn < $4 AND step = 1
        ORDER BY turn DESC LIMIT 1 OFFSET $5";
    UserSql ADD_STEP = "
        INSERT INTO agent_steps (tenant_id, user_id, session_id, turn, step, turn_id, fingerprint, response_id, mode, notes,
            process, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    UserSql RETAKE_STEP = "
        UPDATE agent_steps SET turn = $6, response_id = $7, mode = $8, notes = $9, process = $10, created_at = $11
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND turn = $4 AND step = $5";
    UserSql FIND_STEP = "
        SELECT turn, step FROM agent_steps
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND response_id = $4
            AND NOT EXISTS (SELECT 1 FROM responses AS r
                WHERE r.tenant_id = $1 AND r.user_id = $2 AND r.stem = substr($4, length($4) - 23, 16) AND r.id = $4)";
    UserSql DROP_STEP = "
        DELETE FROM agent_steps
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND turn = $4 AND step = $5
            AND NOT EXISTS (SELECT 1 FROM agent_steps AS later
                WHERE later.tenant_id = $1 AND later.user_id = $2 AND later.session_id = $3 AND later.turn = $4
                    AND later.step > $5)";
    UserSql SET_MODE = "
        UPDATE agent_sessions SET mode = $4, updated_at = CASE WHEN updated_at > $5 THEN updated_at ELSE $5 END
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    UserSql ADD_MODE_CHANGE = "
        INSERT INTO mode_changes (tenant_id, user_id, session_id, number, previous, mode, reason, turn_id, at)
        VALUES ($1, $2, $3, 1 + COALESCE((
            SELECT number FROM mode_changes WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3
            ORDER BY number DESC LIMIT 1), 0), $4, $5, $6, $7, $8)";
    UserSql MODE_CHANGES = "
        SELECT previous, mode, reason, turn_id, at FROM mode_changes
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 ORDER BY number DESC LIMIT $4";
}

impl<E: SqlEngine> ExecuteStore for SqlStore<E> {
    fn open_session<'a>(&'a self, scope: &'a Scope, session: AgentSession) -> Stored<'a, ()> {
        self.engine.change(Repeat::Safe, (scope.clone(), session), |connection, (scope, session)| {
            Box::pin(async move {
                let values = values![
                    &session.id,
                    &session.profile,
                    &session.mode,
                    session.solution_context.as_deref().map(rows::storable),
                    session.turns,
                    session.created_at_ms,
                    session.updated_at_ms,
                ];
                let added = connection.user(scope, ADD_SESSION, values).run().await? == 1;
                // The id is new: a session that exists when the work is repeated was written by its first run.
                match added || connection.is_repeated() {
                    true => Ok(()),
                    false => Err(StoreError::Broken(format!("session `{}` exists already", session.id)).into()),
                }
            })
        })
    }

    fn agent_session<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<AgentSession>> {
        self.engine.read((scope.clone(), id.to_owned()), |connection, (scope, id)| {
            Box::pin(connection.user(scope, SESSION, values![id]).first(session))
        })
    }

    fn agent_sessions<'a>(
        &'a self,
        scope: &'a Scope,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentSession>> {
        let arguments = (scope.clone(), after.unwrap_or(rows::BEHIND_ALL).to_owned(), limit);
        self.engine.read(arguments, |connection, (scope, after, limit)| {
            Box::pin(connection.user(scope, SESSIONS, values![after, *limit]).all(session))
        })
    }

    fn delete_session<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Vec<String>>> {
        self.engine.transaction(Repeat::Never, (scope.clone(), id.to_owned()), |connection, (scope, id)| {
            Box::pin(async move {
                // The session first: a transaction that takes a step locks it, so once this one has the lock, that step
                // is committed.
                if connection.user(scope, FORGET_SESSION, values![id]).run().await? == 0 {
                    return Ok(None);
                }
                let responses = connection.user(scope, RESPONSES_OF_SESSION, values![id]);
                let responses = responses.all(|row| row.get(0)).await?;
                connection.user(scope, FORGET_STEPS, values![id]).run().await?;
                connection.user(scope, FORGET_MODE_CHANGES, values![id]).run().await?;
                Ok(Some(responses))
            })
        })
    }

    fn agent_turn<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        turn_id: &'a str,
    ) -> Stored<'a, Option<AgentTurn>> {
        let arguments = (scope.clone(), session_id.to_owned(), turn_id.to_owned());
        self.engine.read(arguments, |connection, (scope, session_id, turn_id)| {
            Box::pin(turn(connection, scope, session_id, turn_id))
        })
    }

    fn agent_turns<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Option<Vec<AgentTurn>>> {
        let arguments = (scope.clone(), session_id.to_owned(), before.unwrap_or(u64::MAX), limit);
        self.engine.read(arguments, |connection, (scope, session_id, before, limit)| {
            Box::pin(turns(connection, scope, session_id, *before, *limit))
        })
    }

    fn submitted_session<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        turn_id: &'a str,
    ) -> Stored<'a, Option<SubmittedSession>> {
        let arguments = (scope.clone(), session_id.to_owned(), turn_id.to_owned());
        self.engine.read(arguments, |connection, (scope, session_id, turn_id)| {
            Box::pin(async move {
                let found = connection.user(scope, SESSION, values![session_id]).first(session).await?;
                let Some(session) = found else { return Ok(None) };
                if session.turns == 0 {
                    return Ok(Some(SubmittedSession { session, turn: None, newest: None }));
                }
                let (turn, newest) = tokio::try_join!(
                    turn(connection, scope, session_id, turn_id),
                    turns(connection, scope, session_id, u64::MAX, 1),
                )?;
                Ok(Some(SubmittedSession { session, turn, newest: newest.unwrap_or_default().pop() }))
            })
        })
    }

    fn take_step<'a>(&'a self, scope: &'a Scope, step: NewStep) -> Stored<'a, TakenStep> {
        let (session_id, response_id) = (step.session_id.clone(), step.response_id.clone());
        let guard = self.pending_releases.guard(scope, Reservation::Step { session_id, response_id });
        let begun = Arc::new(AtomicBool::new(false));
        let arguments = (scope.clone(), step, Arc::clone(&begun));
        let taken = self.engine.transaction(Repeat::Reservation, arguments, |connection, (scope, step, begun)| {
            begun.store(true, Ordering::Relaxed);
            Box::pin(take(connection, scope, step))
        });
        Box::pin(async move {
            let taken = taken.await;
            // A call that the engine refused before running it has taken nothing.
            if taken.is_ok() || !begun.load(Ordering::Relaxed) {
                guard.disarm();
            }
            taken
        })
    }

    fn drop_step<'a>(&'a self, scope: &'a Scope, session_id: &'a str, response_id: &'a str) -> Stored<'a, ()> {
        let (session_id, response_id) = (session_id.to_owned(), response_id.to_owned());
        self.release_reservation(scope, Reservation::Step { session_id, response_id })
    }

    fn change_mode<'a>(&'a self, scope: &'a Scope, session_id: &'a str, change: ModeChange) -> Stored<'a, bool> {
        let arguments = (scope.clone(), session_id.to_owned(), change);
        self.engine.transaction(Repeat::Never, arguments, |connection, (scope, session_id, change)| {
            Box::pin(async move {
                let ModeChange { mode, reason, turn_id, at_ms, .. } = change;
                let held = connection.user(scope, connection.sql().hold_session, values![session_id]);
                let Some(previous) = held.first(|row| row.get::<String>(0)).await? else { return Ok(false) };
                connection.user(scope, SET_MODE, values![session_id, mode, *at_ms]).run().await?;
                let values = values![session_id, previous, mode, rows::storable(reason), turn_id, *at_ms];
                connection.user(scope, ADD_MODE_CHANGE, values).run().await?;
                Ok(true)
            })
        })
    }

    fn mode_changes<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        limit: usize,
    ) -> Stored<'a, Option<Vec<ModeChange>>> {
        let arguments = (scope.clone(), session_id.to_owned(), limit);
        self.engine.read(arguments, |connection, (scope, session_id, limit)| {
            Box::pin(async move {
                if !connection.user(scope, SESSION, values![session_id]).exists().await? {
                    return Ok(None);
                }
                let changes = connection.user(scope, MODE_CHANGES, values![session_id, *limit]);
                let mut changes = changes.all(mode_change).await?;
                changes.reverse();
                Ok(Some(changes))
            })
        })
    }
}

async fn turn<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    session_id: &str,
    turn_id: &str,
) -> Result<Option<AgentTurn>, C::Failure> {
    let steps = connection.user(scope, STEPS_OF_TURN, values![session_id, turn_id]).all(step).await?;
    Ok(steps::turns(steps).pop())
}

async fn turns<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    session_id: &str,
    before: u64,
    limit: usize,
) -> Result<Option<Vec<AgentTurn>>, C::Failure> {
    let mut found = Vec::new();
    if let Some(before_last) = limit.checked_sub(1) {
        let first = connection.user(scope, FIRST_OF_PAGE, values![session_id, before, before_last]);
        let first = first.first(|row| row.get::<i64>(0)).await?.unwrap_or_default();
        found = connection.user(scope, STEPS_OF_TURNS, values![session_id, first, before]).all(step).await?;
    }
    // A session that has turns exists.
    if found.is_empty() && !connection.user(scope, SESSION, values![session_id]).exists().await? {
        return Ok(None);
    }
    let mut turns = steps::turns(found);
    turns.reverse();
    Ok(Some(turns))
}

/// Inside a transaction.
async fn take<C: SqlConnection>(connection: &C, scope: &Scope, new: &NewStep) -> Result<TakenStep, C::Failure> {
    let session_id = &new.session_id;
    let held = connection.user(scope, connection.sql().hold_session, values![session_id]);
    let Some(turns) = held.first(|row| row.get::<u64>(1)).await? else { return Ok(TakenStep::Missing) };
    // The other reads would find nothing for a session without turns.
    let (turn, other, ended_well) = match turns {
        0 => (None, None, None),
        _ => session_state(connection, scope, new).await?,
    };
    let session = SessionState { turn, other, is_repeated: connection.is_repeated() };
    let write = match steps::decide(new, session) {
        StepDecision::Answer(answer) => return Ok(answer),
        StepDecision::Take(write) => write,
    };
    if let Some(write) = write {
        let context = new.solution_context.as_deref().map(rows::storable);
        let values = values![session_id, i64::from(write.is_new_turn()), context, new.now_ms];
        let touched = connection.user(scope, TOUCH_SESSION, values).run();
        tokio::try_join!(write_step(connection, scope, new, &write), touched)?;
    }
    Ok(TakenStep::First { parent: new.follows.clone().or(ended_well) })
}

/// The turn of a submission, the newest of the other turns, and the last response that has completed. Independent
/// statements are sent together.
async fn session_state<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    new: &NewStep,
) -> Result<(Option<AgentTurn>, Option<OtherTurn>, Option<String>), C::Failure> {
    let session_id = &new.session_id;
    let other = connection
        .user(scope, LAST_OF_OTHERS, values![session_id, &new.turn_id])
        .first(|row| Ok(OtherTurn { number: row.get(0)?, turn_id: row.get(1)?, state: state(row, 2)? }));
    let ended_well = connection.user(scope, LAST_ENDED_WELL, values![session_id]).first(|row| row.get(0));
    tokio::try_join!(turn(connection, scope, session_id, &new.turn_id), other, ended_well)
}

async fn write_step<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    new: &NewStep,
    write: &StepWrite,
) -> Result<(), C::Failure> {
    let NewStep { session_id, turn_id, response_id, fingerprint, mode, notes, now_ms, .. } = new;
    let process = rows::process_bytes(new.process);
    let query = match *write {
        StepWrite::Add { turn, step } => {
            let values =
                values![session_id, turn, step, turn_id, fingerprint, response_id, mode, notes, process, *now_ms];
            connection.user(scope, ADD_STEP, values)
        }
        StepWrite::Retake { before, turn, step } => {
            let values = values![session_id, before, step, turn, response_id, mode, notes, process, *now_ms];
            connection.user(scope, RETAKE_STEP, values)
        }
    };
    match query.run().await? {
        1 => Ok(()),
        _ => Err(StoreError::Broken("a step that exists cannot be taken".to_owned()).into()),
    }
}

/// Deletes the step of a response that does not exist. Returns whether there was one. Notifies requests that wait for
/// the response. Inside a transaction.
pub(crate) async fn drop_step<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    session_id: &str,
    response_id: &str,
) -> Result<bool, C::Failure> {
    if !connection.user(scope, connection.sql().hold_session, values![session_id]).exists().await? {
        return Ok(false);
    }
    let found = connection.user(scope, FIND_STEP, values![session_id, response_id]);
    let found = found.first(|row| Ok((row.get::<i64>(0)?, row.get::<i64>(1)?))).await?;
    let Some((turn, step)) = found else { return Ok(false) };
    if connection.user(scope, DROP_STEP, values![session_id, turn, step]).run().await? == 0 {
        return Ok(false);
    }
    if step == 1 {
        let values = values![session_id, -1_i64, None::<&str>, 0_u64];
        connection.user(scope, TOUCH_SESSION, values).run().await?;
    }
    connection.notify(response_id.to_owned()).await?;
    Ok(true)
}

fn session(row: &dyn SqlRow) -> Result<AgentSession, StoreError> {
    Ok(AgentSession {
        id: row.get(0)?,
        profile: row.optional(1)?,
        mode: row.get(2)?,
        solution_context: row.optional(3)?,
        turns: row.get(4)?,
        created_at_ms: row.get(5)?,
        updated_at_ms: row.get(6)?,
    })
}

/// A step, with the number and the id of its turn.
fn step(row: &dyn SqlRow) -> Result<(u64, String, AgentStep), StoreError> {
    let step = AgentStep {
        fingerprint: row.get(2)?,
        response_id: row.get(3)?,
        mode: row.get(4)?,
        notes: row.get(5)?,
        created_at_ms: row.get(6)?,
        state: state(row, 7)?,
    };
    Ok((row.get(0)?, row.get(1)?, step))
}

/// The state of a step, from this column on.
fn state(row: &dyn SqlRow, column: usize) -> Result<StepState, StoreError> {
    let status = row.optional(column)?.map(rows::status).transpose()?;
    Ok(steps::state(status, row.get(column + 1)?))
}

fn mode_change(row: &dyn SqlRow) -> Result<ModeChange, StoreError> {
    Ok(ModeChange {
        previous: row.get(0)?,
        mode: row.get(1)?,
        reason: row.get(2)?,
        turn_id: row.get(3)?,
        at_ms: row.get(4)?,
    })
}
