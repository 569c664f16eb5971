//! The parts of a session's queue that are specific to PostgreSQL: the user's message, the end of a turn, a dead
//! process.
//!
//! A request that joins locks the session's row while its number is drawn, so that numbers become visible in their
//! order: a smaller one cannot appear later.

use amalgam_core::{
    Scope,
    store::{MetadataRecord, NewUserMessage, SessionEnd, Ticket, session_topic},
};
use amalgam_store::{
    rows,
    session_queue::{CLOSE_SESSION, JoinedEntry, NewEntry, failure_record, message_ids},
    sql::Sql,
    statements,
};
use tokio_postgres::{Client, Error, Row, Statement};

use super::{
    batch::columns::{Key, column, text_of},
    connection::{Connection, Param, PostgresFailure},
    job::{Job, signed},
    journal,
};

statements! {
    UserSql JOIN = "
        WITH session AS (
            SELECT id FROM sessions WHERE tenant_id = $1 AND user_id = $2 AND profile = $3 AND active
            FOR NO KEY UPDATE
        )
        INSERT INTO session_queue (session_id, tenant_id, user_id, process, mark) SELECT id, $1, $2, $4, $5 FROM session
        ON CONFLICT (mark) DO UPDATE SET mark = excluded.mark
        RETURNING session_id, number";
    UserSql ADD_SESSION = "
        INSERT INTO sessions (tenant_id, user_id, profile, active, messages, created_at, updated_at)
        VALUES ($1, $2, $3, true, 0, $4, $4)
        ON CONFLICT DO NOTHING";
    /// If the entry is first, adds the message, its metadata, the count, and the turn that answers.
    UserSql APPEND = "
        WITH entry AS (
            UPDATE session_queue SET response_id = $5
            WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND number = $4 AND response_id IS NULL
                AND NOT EXISTS (SELECT FROM session_queue before
                    WHERE before.tenant_id = $1 AND before.session_id = $3 AND before.number < $4)
            RETURNING session_id
        ), appended AS (
            INSERT INTO messages (id, tenant_id, user_id, session_id, role, content, response_id, created_at)
            SELECT $6, $1, $2, session_id, 'user', $7, $5, $8 FROM entry
        ), counted AS (
            UPDATE sessions SET messages = messages + 1, updated_at = GREATEST(updated_at, $8)
            FROM entry WHERE sessions.tenant_id = $1 AND sessions.user_id = $2 AND sessions.id = entry.session_id
        ), known AS (
            INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value)
            SELECT $1, $2, $6, known.kind, known.value
            FROM entry, unnest($9::text[], $10::text[]) WITH ORDINALITY AS known (kind, value, number)
            ORDER BY known.number
        )
        SELECT 1 FROM entry";
    /// Whether this turn has appended its message before.
    UserSql APPENDED = "
        SELECT 1 FROM session_queue
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND number = $4 AND response_id = $5";
    /// The end of a turn, if the write's mark is there: only the turn that appended the user's message adds to the
    /// session.
    UserSql END = "
        WITH entry AS (
            DELETE FROM session_queue
            WHERE tenant_id = $1 AND user_id = $2 AND session_id = $6 AND number = $7 AND response_id = $4
                AND EXISTS (SELECT FROM responses
                    WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND mark = $5)
            RETURNING session_id
        ), appended AS (
            INSERT INTO messages (id, tenant_id, user_id, session_id, role, content, response_id, created_at)
            SELECT answer.id, $1, $2, session_id, 'assistant', answer.content, $4, $8
            FROM entry, unnest($9::bigint[], $10::text[]) AS answer (id, content)
        ), counted AS (
            UPDATE sessions SET messages = messages + cardinality($9), updated_at = GREATEST(updated_at, $8)
            FROM entry WHERE sessions.tenant_id = $1 AND sessions.user_id = $2 AND sessions.id = entry.session_id
        )
        INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value)
        SELECT $1, $2, known.message_id, known.kind, known.value
        FROM entry, unnest($11::bigint[], $12::text[], $13::text[]) WITH ORDINALITY
            AS known (message_id, kind, value, number)
        ORDER BY known.number";
    OperatorSql ENTRIES_HELD = "
        DELETE FROM session_queue WHERE process = $1 RETURNING session_id, number, tenant_id, user_id, response_id";
    OperatorSql ADD_ERRORS = "
        INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value)
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::text[])";
}

/// Joins the queue of the active session with a profile, and appends the user's message if the entry is first.
pub(super) async fn join(
    connection: &Connection,
    scope: &Scope,
    entry: &NewEntry,
    message: Option<&NewUserMessage>,
) -> Result<JoinedEntry, PostgresFailure> {
    let NewEntry { profile, process, mark, now_ms } = entry;
    let (tenant_id, user, process) = (scope.tenant_id(), scope.user(), rows::process_bytes(*process));
    let process = &process[..];
    if message.is_some_and(|message| message.starts_session) {
        let params: [Param<'_>; 6] = [&tenant_id, &user, profile, mark, &false, &true];
        connection.execute(CLOSE_SESSION, &params).await?;
    }
    let params: [Param<'_>; 5] = [&tenant_id, &user, profile, &process, mark];
    let (row, is_new_session) = match connection.row(JOIN, &params).await? {
        Some(row) => (row, false),
        None => {
            // Prepared before, so that both statements are sent at once and in this order.
            connection.prepared(ADD_SESSION).await?;
            let now_ms = signed(*now_ms);
            let session: [Param<'_>; 4] = [&tenant_id, &user, profile, &now_ms];
            let (added, row) =
                tokio::try_join!(connection.execute(ADD_SESSION, &session), connection.row(JOIN, &params))?;
            let row = row.ok_or_else(|| PostgresFailure::contended("another request deleted the session at once"))?;
            (row, added == 1)
        }
    };
    let ticket = Ticket { session_id: row.try_get(0)?, number: row.try_get(1)? };
    let appended = match message {
        Some(message) => append_user_message(connection, scope, ticket, message).await?,
        None => false,
    };
    Ok(JoinedEntry { ticket, appended, is_new_session })
}

/// Appends the user's message, if the entry is first. Returns whether it was appended now or by this turn before.
pub(super) async fn append_user_message(
    connection: &Connection,
    scope: &Scope,
    ticket: Ticket,
    message: &NewUserMessage,
) -> Result<bool, PostgresFailure> {
    let (tenant_id, user, Ticket { session_id, number }) = (scope.tenant_id(), scope.user(), ticket);
    let (message_id, _) = message_ids(number);
    let (kinds, values) = columns_of(&message.metadata);
    let params: [Param<'_>; 10] = [
        &tenant_id,
        &user,
        &session_id,
        &number,
        &message.response_id,
        &message_id,
        &rows::storable(&message.content),
        &signed(message.now_ms),
        &kinds,
        &values,
    ];
    if connection.row(APPEND, &params).await?.is_some() {
        return Ok(true);
    }
    // Appended before, and the result was lost.
    let params: [Param<'_>; 5] = [&tenant_id, &user, &session_id, &number, &message.response_id];
    Ok(connection.row(APPENDED, &params).await?.is_some())
}

/// The statement that a write needs for its session.
pub(super) fn needed(job: &Job) -> Option<Sql> {
    job.write.session.is_some().then(|| END.into())
}

/// Writes the end of a turn to its session, as part of its last write.
pub(super) async fn end(
    client: &Client,
    statement: &Statement,
    job: &Job,
    end: &SessionEnd,
) -> Result<Vec<Row>, Error> {
    let Key { tenant_id, user, stem, id } = Key::of(job);
    let Ticket { session_id, number } = end.ticket;
    let (user_message_id, assistant_message_id) = message_ids(number);
    let answer = end.answer.as_ref().filter(|(id, _)| *id == assistant_message_id);
    let (answer_ids, answers): (Vec<i64>, Vec<_>) =
        answer.map(|(id, content)| (*id, rows::storable(content))).into_iter().unzip();
    let is_said = |id: i64| id == user_message_id || id == assistant_message_id && answer.is_some();
    let known: Vec<_> = end.metadata.iter().filter(|(id, _)| is_said(*id)).collect();
    let params: [Param<'_>; 13] = [
        &tenant_id,
        &user,
        &stem,
        &id,
        &job.mark,
        &session_id,
        &number,
        &signed(end.now_ms),
        &answer_ids,
        &answers,
        &column(&known, |(id, _)| *id),
        &column(&known, |(_, record)| record.kind.as_str()),
        &column(&known, |(_, record)| text_of(&record.value)),
    ];
    client.query(statement, &params).await
}

/// Removes every entry of a dead process; messages that were appended with them get `error`. Returns the topics to
/// notify.
pub(super) async fn release_all_of(
    connection: &Connection,
    dead: &[u8],
    error: fn(&[String]) -> String,
) -> Result<Vec<String>, PostgresFailure> {
    let entries = connection.rows(ENTRIES_HELD, &[&dead]).await?;
    let topics = entries.iter().map(|row| row.try_get(0).map(session_topic)).collect::<Result<Vec<_>, _>>()?;
    let mut appended: Vec<(i64, &str, i64, &str)> = Vec::new();
    for row in &entries {
        if let Some(response_id) = row.try_get(4)? {
            let (user_message_id, _) = message_ids(row.try_get(1)?);
            appended.push((row.try_get(2)?, row.try_get(3)?, user_message_id, response_id));
        }
    }
    if appended.is_empty() {
        return Ok(topics);
    }
    let keys: Vec<(i64, &str)> = column(&appended, |(tenant_id, _, _, response_id)| (*tenant_id, *response_id));
    let unknown = journal::unknown(connection, &keys).await?;
    let records = column(&keys, |(tenant_id, id)| {
        let tools = unknown.get(&(*tenant_id, (*id).to_owned())).map(Vec::as_slice).unwrap_or_default();
        failure_record(&error(tools))
    });
    let (kinds, values) = columns_of(&records);
    let params: [Param<'_>; 5] = [
        &column(&appended, |(tenant_id, ..)| *tenant_id),
        &column(&appended, |(_, user, ..)| *user),
        &column(&appended, |(_, _, message_id, _)| *message_id),
        &kinds,
        &values,
    ];
    connection.execute(ADD_ERRORS, &params).await?;
    Ok(topics)
}

/// The kinds and the values of records.
fn columns_of<'a>(records: impl IntoIterator<Item = &'a MetadataRecord>) -> (Vec<&'a str>, Vec<&'a str>) {
    records.into_iter().map(|record| (record.kind.as_str(), text_of(&record.value))).unzip()
}
