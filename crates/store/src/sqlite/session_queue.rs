//! The queue of a session: how requests join it, append to the session when they are first, and leave it.
//!
//! There is one writer, so numbers are drawn in the order of arrival, and the entry with the smallest one is next. Whenever
//! an entry goes, the requests behind it are notified.

use amalgam_core::{
    Operator, Scope, Stem,
    store::{MetadataRecord, NewUserMessage, ProcessId, SessionEnd, SessionHistory, Ticket, session_topic},
};

use super::{
    failure::Failure,
    job::Transaction,
    journal,
    query::{Database, Tenant, int, most, owner_of, text},
    sql,
    turns::process_bytes,
};
use crate::{
    assistant::{self, QueuePosition},
    rows,
};

/// Joins the queue of the active session with a profile, which is made if there is none.
pub(super) fn join(
    database: Database<'_>,
    scope: &Scope,
    profile: &str,
    process: ProcessId,
    mark: i64,
    now_ms: u64,
) -> Result<Ticket, Failure> {
    let found = database.user(scope, sql::ACTIVE_SESSION, &[&profile])?.first(|row| Ok(row.get(0)?))?;
    let session_id: i64 = match found {
        Some(id) => id,
        None => {
            made(database.user(scope, sql::ADD_SESSION, &[&profile, &int(now_ms)?])?.first(|row| Ok(row.get(0)?))?)?
        }
    };
    let process = process_bytes(process);
    let number =
        database.user(scope, sql::ADD_ENTRY, &[&session_id, &&process[..], &mark])?.first(|row| Ok(row.get(0)?))?;
    Ok(Ticket { session_id, number: made(number)? })
}

fn made(number: Option<i64>) -> Result<i64, Failure> {
    number.ok_or_else(|| Failure::Broken("a row was added and has no number".into()))
}

/// Where an entry is in its queue now.
pub(super) fn position(database: Database<'_>, scope: &Scope, ticket: Ticket) -> Result<QueuePosition, Failure> {
    let Ticket { session_id, number } = ticket;
    let Some((first, response_id)) = first(database, scope, session_id)? else { return Ok(QueuePosition::Gone) };
    if first == number {
        return Ok(QueuePosition::First);
    }
    if !database.user(scope, sql::ENTRY, &[&session_id, &number])?.exists()? {
        return Ok(QueuePosition::Gone);
    }
    let Some((response_id, stem)) = response_id.and_then(|id| Stem::of(&id).map(|stem| (id, stem))) else {
        return Ok(QueuePosition::Waiting);
    };
    let status = database
        .tenant(Tenant::of_caller(scope), sql::STATUS, &[&stem.as_str(), &response_id])?
        .first(|row| Ok(rows::status(text(row, 0)?)?))?;
    Ok(match status.filter(|status| status.is_final()) {
        Some(status) => QueuePosition::BehindEnded { response_id, status },
        None => QueuePosition::Waiting,
    })
}

fn first(database: Database<'_>, scope: &Scope, session_id: i64) -> Result<Option<(i64, Option<String>)>, Failure> {
    database.user(scope, sql::FIRST_ENTRY, &[&session_id])?.first(|row| Ok((row.get(0)?, row.get(1)?)))
}

/// Appends the user's message, if the entry is first.
pub(super) fn append(
    database: Database<'_>,
    scope: &Scope,
    ticket: Ticket,
    words: &NewUserMessage,
) -> Result<Option<SessionHistory>, Failure> {
    let Ticket { session_id, number } = ticket;
    let (user_message_id, assistant_message_id) = assistant::message_ids(number);
    match first(database, scope, session_id)? {
        Some((first, None)) if first == number => {
            database.user(scope, sql::START_ENTRY, &[&session_id, &number, &words.response_id])?.run()?;
            let message = Message {
                id: user_message_id,
                role: "user",
                content: &assistant::content(&words.content),
                response_id: &words.response_id,
                now_ms: words.now_ms,
            };
            add(database, scope, session_id, &message)?;
            for record in &words.metadata {
                add_metadata(database, scope, user_message_id, record)?;
            }
        }
        // Appended before: the request was sent again.
        Some((first, Some(by))) if first == number && by == words.response_id => {}
        _ => return Ok(None),
    }
    let said = database
        .user(scope, sql::HISTORY, &[&session_id, &user_message_id, &most(words.history_messages)])?
        .all(|row| Ok(assistant::Said { role: row.get(0)?, content: row.get(1)?, response_id: row.get(2)? }))?;
    let (history, answered_by) = assistant::history(said);
    Ok(Some(SessionHistory { user_message_id, assistant_message_id, history, answered_by }))
}

/// The end of a turn. Only the turn that appended the user's message adds to the session.
pub(super) fn end(
    transaction: &Transaction<'_>,
    scope: &Scope,
    response_id: &str,
    end: &SessionEnd,
) -> Result<(), Failure> {
    let database = transaction.database;
    let Ticket { session_id, number } = end.ticket;
    if database.user(scope, sql::END_ENTRY, &[&session_id, &number, &response_id])?.run()? == 0 {
        return Ok(());
    }
    let (user_message_id, assistant_message_id) = assistant::message_ids(number);
    let answer = end.answer.as_ref().filter(|(id, _)| *id == assistant_message_id);
    if let Some((id, content)) = answer {
        let content = &assistant::content(content);
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

/// Removes an entry; the message that was appended with it gets `error`.
pub(super) fn leave(
    transaction: &Transaction<'_>,
    scope: &Scope,
    ticket: Ticket,
    error: Option<&MetadataRecord>,
) -> Result<(), Failure> {
    let Ticket { session_id, number } = ticket;
    let database = transaction.database;
    let left = database
        .user(scope, sql::REMOVE_ENTRY, &[&session_id, &number])?
        .first(|row| Ok(row.get::<_, Option<String>>(0)?))?;
    let Some(said) = left else { return Ok(()) };
    if let (Some(_), Some(error)) = (said, error) {
        add_metadata(database, scope, assistant::message_ids(number).0, error)?;
    }
    transaction.notify(session_topic(session_id));
    Ok(())
}

/// Removes the entry that was perhaps made under a mark.
pub(super) fn leave_marked(transaction: &Transaction<'_>, scope: &Scope, mark: i64) -> Result<(), Failure> {
    let left = transaction.database.user(scope, sql::REMOVE_MARKED_ENTRY, &[&mark])?.first(|row| Ok(row.get(0)?))?;
    if let Some(session_id) = left {
        transaction.notify(session_topic(session_id));
    }
    Ok(())
}

/// Removes the entry of a turn that has ended or is gone; the user's message gets `error`.
pub(super) fn release(
    transaction: &Transaction<'_>,
    scope: &Scope,
    response_id: &str,
    error: Option<&MetadataRecord>,
) -> Result<(), Failure> {
    let database = transaction.database;
    let freed = database
        .user(scope, sql::RELEASE_ENTRY, &[&response_id])?
        .all(|row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
    for (session_id, number) in freed {
        if let Some(error) = error {
            add_metadata(database, scope, assistant::message_ids(number).0, error)?;
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
) -> Result<(), Failure> {
    let database = transaction.database;
    let dead = process_bytes(process);
    let entries = database.operator(operator, sql::ENTRIES_HELD, &[&&dead[..]])?.all(|row| {
        let ticket = Ticket { session_id: row.get(0)?, number: row.get(1)? };
        let tenant_id: i64 = row.get(2)?;
        let scope = owner_of(tenant_id, row.get(3)?, None)?;
        Ok((ticket, Tenant::of_row(operator, tenant_id), scope, row.get::<_, Option<String>>(4)?))
    })?;
    for (ticket, tenant, scope, response_id) in entries {
        if let Some(id) = response_id {
            let tools = journal::unknown(database, tenant, &id)?;
            let (user_message_id, _) = assistant::message_ids(ticket.number);
            add_metadata(database, &scope, user_message_id, &assistant::failure(&error(&tools)))?;
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

fn add(database: Database<'_>, scope: &Scope, session_id: i64, message: &Message<'_>) -> Result<(), Failure> {
    let Message { id, role, content, response_id, now_ms } = message;
    let now = int(*now_ms)?;
    database.user(scope, sql::ADD_MESSAGE, &[id, &session_id, role, content, response_id, &now])?.run()?;
    database.user(scope, sql::COUNT_MESSAGES, &[&session_id, &1, &now])?.run()?;
    Ok(())
}

fn add_metadata(
    database: Database<'_>,
    scope: &Scope,
    message_id: i64,
    record: &MetadataRecord,
) -> Result<(), Failure> {
    database.user(scope, sql::ADD_METADATA, &[&message_id, &record.kind, &record.value.raw().text()])?.run()?;
    Ok(())
}
