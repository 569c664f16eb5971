//! The queue of a session: how requests join it, append to the session when they are first, and leave it.
//!
//! The entry with the smallest number is next. Engines make sure that numbers become visible in their order. When an
//! entry is removed, the waiting requests of the session are notified.

use amalgam_core::{
    Scope, StoreError,
    store::{MetadataRecord, NewUserMessage, ProcessId, QueueEntry, SessionHistory, Ticket, session_topic},
};
use amalgam_protocol::{ErrorObject, Json, Status, Writer};

use crate::{
    engine::{EngineQueries, SqlConnection},
    rows::{self, json},
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    UserSql POSITION = "
        SELECT head.number, head.response_id,
            (SELECT r.status FROM responses AS r WHERE r.tenant_id = $1 AND r.user_id = $2
                AND r.stem = substr(head.response_id, length(head.response_id) - 23, 16) AND r.id = head.response_id),
            EXISTS (SELECT 1 FROM session_queue AS mine
                WHERE mine.tenant_id = $1 AND mine.user_id = $2 AND mine.session_id = $3 AND mine.number = $4)
        FROM session_queue AS head WHERE head.tenant_id = $1 AND head.user_id = $2 AND head.session_id = $3
        ORDER BY head.number LIMIT 1";
    UserSql HISTORY = "
        SELECT role, content, response_id FROM messages
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND id < $4 ORDER BY id DESC LIMIT $5";
    UserSql REMOVE_ENTRY = "
        DELETE FROM session_queue WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND number = $4
        RETURNING response_id";
    UserSql REMOVE_MARKED_ENTRY = "
        DELETE FROM session_queue WHERE tenant_id = $1 AND user_id = $2 AND mark = $3
        RETURNING session_id, number, response_id";
    /// Removes the entries of a response; their sessions and numbers.
    pub UserSql RELEASE_ENTRY = "
        DELETE FROM session_queue WHERE tenant_id = $1 AND user_id = $2 AND response_id = $3
        RETURNING session_id, number";
    /// Closes the active session with a profile, unless the entry with this mark has joined a session already: then its join is
    /// repeated, and the active session may be its own.
    pub UserSql CLOSE_SESSION = "
        UPDATE sessions SET active = $5 WHERE tenant_id = $1 AND user_id = $2 AND profile = $3 AND active = $6
            AND NOT EXISTS (SELECT 1 FROM session_queue WHERE tenant_id = $1 AND user_id = $2 AND mark = $4)";
    /// Adds to a message a record with a kind and a value.
    pub UserSql ADD_METADATA = "INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value) VALUES ($1, $2, $3, $4, $5)";
}

/// The ids of the user's message and of its answer. They follow from the number of the queue entry, so those of a session are
/// in order, and known before anything is written.
pub fn message_ids(number: i64) -> (i64, i64) {
    (2 * number - 1, 2 * number)
}

/// An entry that is to join a queue.
#[derive(Debug, Clone)]
pub struct NewEntry {
    /// The profile of the session; empty for none.
    pub profile: String,
    /// The process that runs the turn.
    pub process: ProcessId,
    /// Identifies the entry if its join is repeated.
    pub mark: i64,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// An entry that has joined a queue.
#[derive(Debug, Clone, Copy)]
pub struct JoinedEntry {
    /// Its session and its number.
    pub ticket: Ticket,
    /// Whether the user's message was appended with it.
    pub appended: bool,
    /// Whether the session was created for it, and has no history.
    pub is_new_session: bool,
}

/// Joins the queue of a session with the user's message. Returns the history if the message was appended at once.
pub(crate) async fn join<C: EngineQueries>(
    connection: &C,
    scope: &Scope,
    entry: &NewEntry,
    message: Option<&NewUserMessage>,
) -> Result<QueueEntry, C::Failure> {
    let JoinedEntry { ticket, appended, is_new_session } = connection.join_queue(scope, entry, message).await?;
    let history = match message.filter(|_| appended) {
        Some(message) => {
            let before = if is_new_session { Vec::new() } else { history(connection, scope, ticket, message).await? };
            Some(session_history(ticket, before))
        }
        None => None,
    };
    Ok(QueueEntry { ticket, history })
}

fn ticket(row: &dyn SqlRow) -> Result<Ticket, StoreError> {
    Ok(Ticket { session_id: row.get(0)?, number: row.get(1)? })
}

/// The position of an entry in the queue of its session.
#[derive(Debug)]
pub(crate) enum QueuePosition {
    /// The entry was removed.
    Gone,
    First,
    /// Another entry is first.
    Waiting,
    /// The turn of the first entry has ended without releasing it.
    BehindEnded {
        response_id: String,
        status: Status,
    },
}

/// Returns the current position of an entry in its queue.
pub(crate) async fn position<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    ticket: Ticket,
) -> Result<QueuePosition, C::Failure> {
    let Ticket { session_id, number } = ticket;
    let position = connection.user(scope, POSITION, values![session_id, number]).first(|row| {
        let status = row.optional(2)?.map(rows::status).transpose()?;
        Ok(match (row.optional::<String>(1)?, status) {
            _ if row.get::<i64>(0)? == number => QueuePosition::First,
            _ if !row.get::<bool>(3)? => QueuePosition::Gone,
            (Some(response_id), Some(status)) if status.is_final() => {
                QueuePosition::BehindEnded { response_id, status }
            }
            _ => QueuePosition::Waiting,
        })
    });
    Ok(position.await?.unwrap_or(QueuePosition::Gone))
}

/// Appends the user's message, if the entry is first. Returns the history before it.
pub(crate) async fn append<C: EngineQueries>(
    connection: &C,
    scope: &Scope,
    ticket: Ticket,
    message: &NewUserMessage,
) -> Result<Option<SessionHistory>, C::Failure> {
    let appended = connection.append_user_message(scope, ticket, message).await?;
    match appended {
        true => Ok(Some(session_history(ticket, history(connection, scope, ticket, message).await?))),
        false => Ok(None),
    }
}

/// A message of a session: its role, its content, and the response that it belongs to.
type HistoryMessage = (String, String, Option<String>);

/// The messages before the entry's own, the newest first. No other request appends before this entry is removed, so they stay as
/// they are.
async fn history<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    ticket: Ticket,
    message: &NewUserMessage,
) -> Result<Vec<HistoryMessage>, C::Failure> {
    let values = values![ticket.session_id, message_ids(ticket.number).0, message.history_messages];
    connection.user(scope, HISTORY, values).all(|row| Ok((row.get(0)?, row.get(1)?, row.optional(2)?))).await
}

fn session_history(ticket: Ticket, newest_first: Vec<HistoryMessage>) -> SessionHistory {
    let (user_message_id, assistant_message_id) = message_ids(ticket.number);
    let answered_by = newest_first.iter().find(|(role, ..)| role == "assistant").and_then(|(.., id)| id.clone());
    let history = newest_first.into_iter().rev().map(|(role, content, _)| (role, content)).collect();
    SessionHistory { user_message_id, assistant_message_id, history, answered_by }
}

/// Removes an entry; the message that was appended with it gets `error`. Returns whether there was one. Inside a
/// transaction.
pub(crate) async fn leave<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    ticket: Ticket,
    error: Option<&MetadataRecord>,
) -> Result<bool, C::Failure> {
    let removed = connection.user(scope, REMOVE_ENTRY, values![ticket.session_id, ticket.number]);
    let Some(appended) = removed.first(|row| Ok(row.optional::<&str>(0)?.is_some())).await? else { return Ok(false) };
    if let Some(error) = error.filter(|_| appended) {
        add_metadata(connection, scope, message_ids(ticket.number).0, error).await?;
    }
    connection.notify(session_topic(ticket.session_id)).await?;
    Ok(true)
}

/// Removes the entry that may have been made under a mark. Returns whether there was one. Inside a transaction.
pub(crate) async fn leave_marked<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    mark: i64,
) -> Result<bool, C::Failure> {
    let removed = connection
        .user(scope, REMOVE_MARKED_ENTRY, values![mark])
        .first(|row| Ok((ticket(row)?, row.optional::<&str>(2)?.is_some())));
    let Some((ticket, appended)) = removed.await? else { return Ok(false) };
    if appended {
        // The caller disconnected while the entry joined the queue.
        add_metadata(connection, scope, message_ids(ticket.number).0, &cancelled_record()).await?;
    }
    connection.notify(session_topic(ticket.session_id)).await?;
    Ok(true)
}

/// Removes the entry of a turn that has ended or was deleted; the user's message gets `error`. Inside a transaction.
pub async fn release<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    response_id: &str,
    error: Option<&MetadataRecord>,
) -> Result<(), C::Failure> {
    let removed = connection.user(scope, RELEASE_ENTRY, values![response_id]).all(ticket).await?;
    for Ticket { session_id, number } in removed {
        if let Some(error) = error {
            add_metadata(connection, scope, message_ids(number).0, error).await?;
        }
        connection.notify(session_topic(session_id)).await?;
    }
    Ok(())
}

async fn add_metadata<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    message_id: i64,
    record: &MetadataRecord,
) -> Result<(), C::Failure> {
    let values = values![message_id, &record.kind, &record.value];
    connection.user(scope, ADD_METADATA, values).run().await.map(drop)
}

/// The record for a message whose turn failed with this error object.
pub fn failure_record(error: &str) -> MetadataRecord {
    let error = ErrorObject::read(json(error).raw());
    error_record(error.code.as_deref().unwrap_or(Status::Failed.name()), &error.message)
}

/// The record for a message whose turn has ended without adding to its session; `None` if the turn has completed.
pub fn ended_record(status: Status) -> Option<MetadataRecord> {
    let ended_well = matches!(status, Status::Completed | Status::Incomplete);
    (!ended_well).then(|| error_record(status.name(), "The turn did not come to its end."))
}

/// The record for a message whose caller disconnected before its turn began.
fn cancelled_record() -> MetadataRecord {
    error_record(Status::Cancelled.name(), "The caller left before it was answered.")
}

/// The record for a message whose turn was deleted while it ran.
pub fn deleted_record() -> MetadataRecord {
    error_record("deleted", "The response was deleted before it came to its end.")
}

fn error_record(code: &str, message: &str) -> MetadataRecord {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("code").string(code);
        writer.key("message").string(message);
    });
    MetadataRecord { kind: "error".to_owned(), value: Json::from_writer(writer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_turn_is_recorded_with_its_code_and_message() {
        let record = failure_record(r#"{"message":"it \"died\"","type":"server_error","param":null,"code":null}"#);
        let value = json(r#"{"code":"failed","message":"it \"died\""}"#);
        assert_eq!(record, MetadataRecord { kind: "error".into(), value });
        assert_eq!(ended_record(Status::Completed), None);
        assert!(ended_record(Status::Cancelled).is_some_and(|record| record.value.raw().get("code").is_some()));
    }
}
