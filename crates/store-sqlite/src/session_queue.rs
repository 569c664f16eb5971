//! The parts of a session's queue that are specific to SQLite: the user's message, the end of a turn, a dead process.
//!
//! There is one writer, so numbers are assigned in the order of arrival. When an entry is removed, the waiting requests
//! of the session are notified.

use amalgam_core::{
    Operator, Scope,
    store::{MetadataRecord, NewUserMessage, ProcessId, SessionEnd, Ticket, session_topic},
};
use amalgam_store::{
    TenantKey, rows,
    session_queue::{ADD_METADATA, CLOSE_SESSION, JoinedEntry, NewEntry, RELEASE_ENTRY, failure_record, message_ids},
    statements,
};

use super::{
    failure::SqliteFailure,
    job::Transaction,
    journal,
    query::{Database, int, text},
};

statements! {
    UserSql ACTIVE_SESSION = "
        SELECT id FROM sessions WHERE tenant_id = ?1 AND user_id = ?2 AND profile = ?3 AND active = 1";
    UserSql ADD_SESSION = "
        INSERT INTO sessions (tenant_id, user_id, profile, active, messages, created_at, updated_at)
        VALUES (?1, ?2, ?3, 1, 0, ?4, ?4)";
    UserSql ADD_ENTRY = "
        INSERT INTO session_queue (tenant_id, user_id, session_id, process, mark, response_id)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    UserSql FIRST_ENTRY = "
        SELECT number, response_id FROM session_queue
        WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 ORDER BY number LIMIT 1";
    UserSql START_ENTRY = "
        UPDATE session_queue SET response_id = ?5
        WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 AND number = ?4";
    UserSql END_ENTRY = "
        DELETE FROM session_queue
        WHERE tenant_id = ?1 AND user_id = ?2 AND session_id = ?3 AND number = ?4 AND response_id = ?5";
    UserSql ADD_MESSAGE = "
        INSERT INTO messages (tenant_id, user_id, id, session_id, role, content, response_id, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    UserSql COUNT_MESSAGES = "
        UPDATE sessions SET messages = messages + ?4, updated_at = MAX(updated_at, ?5)
        WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
    OperatorSql ENTRIES_HELD = "
        DELETE FROM session_queue WHERE process = ?1 RETURNING session_id, number, tenant_id, user_id, response_id";
}

/// Joins the queue of the active session with a profile. If the queue was empty, the user's message is appended at
/// once.
pub(super) fn join(
    database: Database<'_>,
    scope: &Scope,
    entry: &NewEntry,
    message: Option<&NewUserMessage>,
) -> Result<JoinedEntry, SqliteFailure> {
    let NewEntry { profile, process, mark, now_ms } = entry;
    if message.is_some_and(|message| message.starts_session) {
        database.user(scope, CLOSE_SESSION, &[profile, mark, &false, &true])?.run()?;
    }
    let active = database.user(scope, ACTIVE_SESSION, &[profile])?.first(|row| Ok(row.get::<_, i64>(0)?))?;
    let (session_id, is_first) = match active {
        Some(id) => (id, !database.user(scope, FIRST_ENTRY, &[&id])?.exists()?),
        None => {
            database.user(scope, ADD_SESSION, &[profile, &int(*now_ms)?])?.run()?;
            (database.last_number(), true)
        }
    };
    let message = message.filter(|_| is_first);
    let response_id = message.map(|message| &message.response_id);
    let process = rows::process_bytes(*process);
    database.user(scope, ADD_ENTRY, &[&session_id, &&process[..], mark, &response_id])?.run()?;
    let ticket = Ticket { session_id, number: database.last_number() };
    if let Some(message) = message {
        add_user_message(database, scope, ticket, message)?;
    }
    Ok(JoinedEntry { ticket, appended: message.is_some(), is_new_session: active.is_none() })
}

/// Appends the user's message, if the entry is first. Returns whether it was appended now or by this turn before.
pub(super) fn append_user_message(
    database: Database<'_>,
    scope: &Scope,
    ticket: Ticket,
    words: &NewUserMessage,
) -> Result<bool, SqliteFailure> {
    let Ticket { session_id, number } = ticket;
    let first: Option<(i64, Option<String>)> =
        database.user(scope, FIRST_ENTRY, &[&session_id])?.first(|row| Ok((row.get(0)?, row.get(1)?)))?;
    match first {
        Some((first, None)) if first == number => {}
        Some((first, by)) => return Ok(first == number && by.as_ref() == Some(&words.response_id)),
        None => return Ok(false),
    }
    database.user(scope, START_ENTRY, &[&session_id, &number, &words.response_id])?.run()?;
    add_user_message(database, scope, ticket, words)?;
    Ok(true)
}

fn add_user_message(
    database: Database<'_>,
    scope: &Scope,
    ticket: Ticket,
    message: &NewUserMessage,
) -> Result<(), SqliteFailure> {
    let (id, _) = message_ids(ticket.number);
    let NewUserMessage { response_id, now_ms, .. } = message;
    let content = &rows::storable(&message.content);
    add(database, scope, ticket.session_id, &Message { id, role: "user", content, response_id, now_ms: *now_ms })?;
    message.metadata.iter().try_for_each(|record| add_metadata(database, scope, id, record))
}

/// Writes the end of a turn. Only the turn that appended the user's message adds to the session.
pub(super) fn end(
    transaction: &Transaction<'_>,
    scope: &Scope,
    response_id: &str,
    end: &SessionEnd,
) -> Result<(), SqliteFailure> {
    let database = transaction.database;
    let Ticket { session_id, number } = end.ticket;
    if database.user(scope, END_ENTRY, &[&session_id, &number, &response_id])?.run()? == 0 {
        return Ok(());
    }
    let (user_message_id, assistant_message_id) = message_ids(number);
    let answer = end.answer.as_ref().filter(|(id, _)| *id == assistant_message_id);
    if let Some((id, content)) = answer {
        let content = &rows::storable(content);
        let answer = Message { id: *id, role: "assistant", content, response_id, now_ms: end.now_ms };
        add(database, scope, session_id, &answer)?;
    }
    for (id, record) in &end.metadata {
        if *id == user_message_id || answer.is_some() && *id == assistant_message_id {
            add_metadata(database, scope, *id, record)?;
        }
    }
    transaction.notify(session_topic(session_id));
    Ok(())
}

/// Removes the entry of a turn that has ended or was deleted; the user's message gets `error`.
pub(super) fn release(
    transaction: &Transaction<'_>,
    scope: &Scope,
    response_id: &str,
    error: Option<&MetadataRecord>,
) -> Result<(), SqliteFailure> {
    let database = transaction.database;
    let freed = database
        .user(scope, RELEASE_ENTRY, &[&response_id])?
        .all(|row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
    for (session_id, number) in freed {
        if let Some(error) = error {
            add_metadata(database, scope, message_ids(number).0, error)?;
        }
        transaction.notify(session_topic(session_id));
    }
    Ok(())
}

/// Removes every entry of a dead process; messages that were appended with them get `error`.
pub(super) fn release_all_of(
    transaction: &Transaction<'_>,
    operator: Operator,
    process: ProcessId,
    error: fn(&[String]) -> String,
) -> Result<(), SqliteFailure> {
    let database = transaction.database;
    let dead = rows::process_bytes(process);
    let entries = database.operator(operator, ENTRIES_HELD, &[&&dead[..]])?.all(|row| {
        let ticket = Ticket { session_id: row.get(0)?, number: row.get(1)? };
        let tenant_id: i64 = row.get(2)?;
        let scope = rows::owner(tenant_id, text(row, 3)?, None)?;
        Ok((ticket, TenantKey::of_row(operator, tenant_id), scope, row.get::<_, Option<String>>(4)?))
    })?;
    for (ticket, tenant, scope, response_id) in entries {
        if let Some(id) = response_id {
            let tools = journal::unknown(database, tenant, &id)?;
            let (user_message_id, _) = message_ids(ticket.number);
            add_metadata(database, &scope, user_message_id, &failure_record(&error(&tools)))?;
        }
        transaction.notify(session_topic(ticket.session_id));
    }
    Ok(())
}

struct Message<'a> {
    id: i64,
    role: &'a str,
    content: &'a str,
    response_id: &'a str,
    now_ms: u64,
}

fn add(database: Database<'_>, scope: &Scope, session_id: i64, message: &Message<'_>) -> Result<(), SqliteFailure> {
    let Message { id, role, content, response_id, now_ms } = message;
    let now = int(*now_ms)?;
    database.user(scope, ADD_MESSAGE, &[id, &session_id, role, content, response_id, &now])?.run()?;
    database.user(scope, COUNT_MESSAGES, &[&session_id, &1, &now])?.run()?;
    Ok(())
}

fn add_metadata(
    database: Database<'_>,
    scope: &Scope,
    message_id: i64,
    record: &MetadataRecord,
) -> Result<(), SqliteFailure> {
    database.user(scope, ADD_METADATA, &[&message_id, &record.kind, &record.value.raw().text()])?.run()?;
    Ok(())
}
