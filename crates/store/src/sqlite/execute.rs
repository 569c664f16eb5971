//! Sessions of the strict contract, their turns and steps.

use amalgam_core::{
    Scope, StoreError,
    store::{AgentSession, AgentStep, AgentTurn, ExecuteStore, ModeChange, NewStep, StepState, Stored, TakenStep},
};
use rusqlite::Row;

use super::{
    Sqlite,
    failure::Failure,
    job::Transaction,
    query::{Database, bytes, int, most, optional_text, text, uint},
    sql,
    turns::process_bytes,
};
use crate::{
    assistant,
    execute::{self, Known, OtherTurn, Verdict, Write},
    pending_release::Reservation,
    rows,
};

impl ExecuteStore for Sqlite {
    fn open_session<'a>(&'a self, scope: &'a Scope, session: AgentSession) -> Stored<'a, ()> {
        let scope = scope.clone();
        self.change(move |transaction| open(transaction.database, &scope, &session))
    }

    fn agent_session<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<AgentSession>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read(move |transaction| get(transaction.database, &scope, &id))
    }

    fn agent_sessions<'a>(
        &'a self,
        scope: &'a Scope,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentSession>> {
        let (scope, after) = (scope.clone(), after.unwrap_or(rows::BEHIND_ALL).to_owned());
        self.read(move |transaction| {
            transaction.database.user(&scope, sql::AGENT_SESSIONS, &[&after, &most(limit)])?.all(session)
        })
    }

    fn delete_session<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Vec<String>>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.change(move |transaction| {
            let database = transaction.database;
            if database.user(&scope, sql::FORGET_AGENT_SESSION, &[&id])?.run()? == 0 {
                return Ok(None);
            }
            let responses = database.user(&scope, sql::RESPONSES_OF_SESSION, &[&id])?.all(|row| Ok(row.get(0)?))?;
            database.user(&scope, sql::FORGET_STEPS, &[&id])?.run()?;
            database.user(&scope, sql::FORGET_MODE_CHANGES, &[&id])?.run()?;
            Ok(Some(responses))
        })
    }

    fn agent_turn<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        turn_id: &'a str,
    ) -> Stored<'a, Option<AgentTurn>> {
        let (scope, session_id, turn_id) = (scope.clone(), session_id.to_owned(), turn_id.to_owned());
        self.read(move |transaction| {
            let steps = transaction.database.user(&scope, sql::STEPS_OF_TURN, &[&session_id, &turn_id])?.all(step)?;
            Ok(execute::turns(steps).pop())
        })
    }

    fn agent_turns<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Option<Vec<AgentTurn>>> {
        let (scope, session_id) = (scope.clone(), session_id.to_owned());
        self.read(move |transaction| turns(transaction.database, &scope, &session_id, before, limit))
    }

    fn take_step<'a>(&'a self, scope: &'a Scope, step: NewStep) -> Stored<'a, TakenStep> {
        let owner = scope.clone();
        let reservation =
            Reservation::Step { session_id: step.session_id.clone(), response_id: step.response_id.clone() };
        let guard = self.pending_releases.guard(scope, reservation);
        let taken = self.change(move |transaction| take(transaction.database, &owner, &step));
        Box::pin(async move {
            let taken = taken.await;
            // What was refused is not done.
            if matches!(taken, Ok(_) | Err(StoreError::Busy)) {
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
        let (scope, session_id) = (scope.clone(), session_id.to_owned());
        self.change(move |transaction| change_mode(transaction.database, &scope, &session_id, &change))
    }

    fn mode_changes<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        limit: usize,
    ) -> Stored<'a, Option<Vec<ModeChange>>> {
        let (scope, session_id) = (scope.clone(), session_id.to_owned());
        self.read(move |transaction| {
            let database = transaction.database;
            if !exists(database, &scope, &session_id)? {
                return Ok(None);
            }
            let mut changes = database.user(&scope, sql::MODE_CHANGES, &[&session_id, &most(limit)])?.all(change)?;
            changes.reverse();
            Ok(Some(changes))
        })
    }
}

fn open(database: Database<'_>, scope: &Scope, session: &AgentSession) -> Result<(), Failure> {
    let context = session.solution_context.as_deref().map(assistant::content);
    let params: [&dyn rusqlite::ToSql; 7] = [
        &session.id,
        &session.profile,
        &session.mode,
        &context.as_deref(),
        &int(session.turns)?,
        &int(session.created_at_ms)?,
        &int(session.updated_at_ms)?,
    ];
    database.user(scope, sql::ADD_AGENT_SESSION, &params)?.run().map(drop)
}

fn get(database: Database<'_>, scope: &Scope, id: &str) -> Result<Option<AgentSession>, Failure> {
    database.user(scope, sql::AGENT_SESSION, &[&id])?.first(session)
}

fn exists(database: Database<'_>, scope: &Scope, id: &str) -> Result<bool, Failure> {
    database.user(scope, sql::AGENT_SESSION, &[&id])?.exists()
}

fn turns(
    database: Database<'_>,
    scope: &Scope,
    session_id: &str,
    before: Option<u64>,
    limit: usize,
) -> Result<Option<Vec<AgentTurn>>, Failure> {
    if !exists(database, scope, session_id)? {
        return Ok(None);
    }
    let Some(behind_first) = limit.checked_sub(1) else { return Ok(Some(Vec::new())) };
    let before = before.map_or(Ok(i64::MAX), int)?;
    let first = database
        .user(scope, sql::FIRST_OF_PAGE, &[&session_id, &before, &most(behind_first)])?
        .first(|row| Ok(row.get::<_, i64>(0)?))?;
    let params: [&dyn rusqlite::ToSql; 3] = [&session_id, &first.unwrap_or_default(), &before];
    let steps = database.user(scope, sql::STEPS_OF_TURNS, &params)?.all(step)?;
    let mut turns = execute::turns(steps);
    turns.reverse();
    Ok(Some(turns))
}

fn take(database: Database<'_>, scope: &Scope, new: &NewStep) -> Result<TakenStep, Failure> {
    let session_id = &new.session_id;
    if !exists(database, scope, session_id)? {
        return Ok(TakenStep::Missing);
    }
    let steps = database.user(scope, sql::STEPS_OF_TURN, &[session_id, &new.turn_id])?.all(step)?;
    let turn = execute::turns(steps).pop();
    let other = database
        .user(scope, sql::LAST_OF_OTHERS, &[session_id, &new.turn_id])?
        .first(|row| Ok(OtherTurn { number: uint(row, 0)?, turn_id: row.get(1)?, state: state(row, 2)? }))?;
    // The writer thread answers each job once or, if its future was dropped, not at all: nothing is tried twice.
    let write = match execute::decide(new, Known { turn, other, tried: false }) {
        Verdict::Told(told) => return Ok(told),
        Verdict::First(write) => write,
    };
    let parent = match &new.follows {
        Some(follows) => Some(follows.clone()),
        None => database.user(scope, sql::LAST_ENDED_WELL, &[session_id])?.first(|row| Ok(row.get(0)?))?,
    };
    if let Some(write) = write {
        keep(database, scope, new, &write)?;
        let context = new.solution_context.as_deref().map(assistant::content);
        let params: [&dyn rusqlite::ToSql; 4] =
            [session_id, &write.is_new_turn(), &context.as_deref(), &int(new.now_ms)?];
        database.user(scope, sql::TOUCH_AGENT_SESSION, &params)?.run()?;
    }
    Ok(TakenStep::First { parent })
}

fn keep(database: Database<'_>, scope: &Scope, new: &NewStep, write: &Write) -> Result<(), Failure> {
    let NewStep { session_id, turn_id, response_id, mode, .. } = new;
    let (process, notes, now) = (process_bytes(new.process), new.notes.raw().text(), int(new.now_ms)?);
    let process = &process[..];
    let bound = match *write {
        Write::Add { turn, step } => {
            let (turn, step, fingerprint) = (int(turn)?, int(step)?, &new.fingerprint[..]);
            let params: [&dyn rusqlite::ToSql; 10] =
                [session_id, &turn, &step, turn_id, &fingerprint, response_id, mode, &notes, &process, &now];
            database.user(scope, sql::ADD_STEP, &params)?
        }
        Write::Again { before, turn, step } => {
            let (before, turn, step) = (int(before)?, int(turn)?, int(step)?);
            let params: [&dyn rusqlite::ToSql; 9] =
                [session_id, &before, &step, &turn, response_id, mode, &notes, &process, &now];
            database.user(scope, sql::TAKE_AGAIN, &params)?
        }
    };
    match bound.run()? {
        1 => Ok(()),
        _ => Err(Failure::Broken("a step that is there cannot be taken".into())),
    }
}

/// Gives a submission back that has no response; a request that waits for that one looks again.
pub(super) fn drop_step(
    transaction: &Transaction<'_>,
    scope: &Scope,
    session_id: &str,
    response_id: &str,
) -> Result<(), Failure> {
    let database = transaction.database;
    let dropped =
        database.user(scope, sql::DROP_STEP, &[&session_id, &response_id])?.first(|row| Ok(row.get::<_, i64>(0)?))?;
    let Some(step) = dropped else { return Ok(()) };
    if step == 1 {
        let none = None::<&str>;
        database.user(scope, sql::TOUCH_AGENT_SESSION, &[&session_id, &-1_i64, &none, &0_i64])?.run()?;
    }
    transaction.notify(response_id);
    Ok(())
}

/// A response is gone: its step is free again, whichever process took it.
pub(super) fn leave(database: Database<'_>, scope: &Scope, response_id: &str) -> Result<(), Failure> {
    database.user(scope, sql::LEAVE_STEP, &[&response_id])?.run().map(drop)
}

fn change_mode(database: Database<'_>, scope: &Scope, session_id: &str, change: &ModeChange) -> Result<bool, Failure> {
    let Some(AgentSession { mode: previous, .. }) = get(database, scope, session_id)? else { return Ok(false) };
    let (mode, at, reason) = (&change.mode, int(change.at_ms)?, assistant::content(&change.reason));
    database.user(scope, sql::SET_MODE, &[&session_id, mode, &at])?.run()?;
    let params: [&dyn rusqlite::ToSql; 6] = [&session_id, &previous, mode, &&*reason, &change.turn_id, &at];
    database.user(scope, sql::ADD_MODE_CHANGE, &params)?.run()?;
    Ok(true)
}

fn session(row: &Row<'_>) -> Result<AgentSession, Failure> {
    Ok(AgentSession {
        id: row.get(0)?,
        profile: row.get(1)?,
        mode: row.get(2)?,
        solution_context: row.get(3)?,
        turns: uint(row, 4)?,
        created_at_ms: uint(row, 5)?,
        updated_at_ms: uint(row, 6)?,
    })
}

/// A step, with the number and the name of its turn.
fn step(row: &Row<'_>) -> Result<(u64, String, AgentStep), Failure> {
    let step = AgentStep {
        fingerprint: rows::digest(bytes(row, 2)?)?,
        response_id: row.get(3)?,
        mode: row.get(4)?,
        notes: rows::json(text(row, 5)?),
        created_at_ms: uint(row, 6)?,
        state: state(row, 7)?,
    };
    Ok((uint(row, 0)?, row.get(1)?, step))
}

/// How a step stands, from this column on.
fn state(row: &Row<'_>, column: usize) -> Result<StepState, Failure> {
    let status = optional_text(row, column)?.map(rows::status).transpose()?;
    Ok(execute::state(status, row.get(column + 1)?))
}

fn change(row: &Row<'_>) -> Result<ModeChange, Failure> {
    Ok(ModeChange {
        previous: row.get(0)?,
        mode: row.get(1)?,
        reason: row.get(2)?,
        turn_id: row.get(3)?,
        at_ms: uint(row, 4)?,
    })
}
