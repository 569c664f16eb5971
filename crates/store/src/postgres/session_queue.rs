//! The queue of a session: how requests join it, append to the session when they are first, and leave it.
//!
//! A request that joins locks the session's row while its number is drawn, so that numbers become visible in their order, and
//! the entry with the smallest one is next: no smaller one can appear any more. Whenever an entry goes, the requests behind
//! it are notified, in every process.

use amalgam_core::{
    Scope,
    store::{MetadataRecord, NewUserMessage, ProcessId, SessionEnd, SessionHistory, Ticket, session_topic},
};
use tokio_postgres::{Client, Error, Row, Statement};

use super::{
    batch::columns::{Key, column, text_of},
    connection::{Connection, Failure, Param},
    job::{Job, process_bytes, signed},
    journal,
    sql::{Sql, statements},
};
use crate::{
    assistant::{self, QueuePosition},
    rows,
};

statements! {
    /// At the end of the queue of an existing session. Nothing when there is none.
    Caller JOIN = "
        WITH session AS (
            SELECT id FROM sessions WHERE tenant_id = $1 AND user_id = $2 AND profile = $3 AND active
            FOR NO KEY UPDATE
        )
        INSERT INTO session_line (session_id, tenant_id, user_id, process, mark) SELECT id, $1, $2, $4, $5 FROM session
        ON CONFLICT (mark) DO UPDATE SET mark = excluded.mark
        RETURNING session_id, number";
    /// The same in a new session; a second request waits for the first one, and joins behind it.
    Caller JOIN_NEW = "
        WITH session AS (
            INSERT INTO sessions (tenant_id, user_id, profile, active, messages, created_at, updated_at)
            VALUES ($1, $2, $3, true, 0, $6, $6)
            ON CONFLICT (tenant_id, user_id, profile) WHERE active DO UPDATE SET active = true
            RETURNING id
        )
        INSERT INTO session_line (session_id, tenant_id, user_id, process, mark) SELECT id, $1, $2, $4, $5 FROM session
        ON CONFLICT (mark) DO UPDATE SET mark = excluded.mark
        RETURNING session_id, number";
    /// Which entry is first and the status of its turn; and whether this entry is there.
    Caller POSITION = "
        SELECT head.number, head.response_id,
            (SELECT r.status FROM responses r WHERE r.tenant_id = $1 AND r.user_id = $2
                AND r.stem = left(right(head.response_id, 24), 16) AND r.id = head.response_id),
            EXISTS (SELECT FROM session_line mine
                WHERE mine.tenant_id = $1 AND mine.user_id = $2 AND mine.session_id = $3 AND mine.number = $4)
        FROM session_line head WHERE head.tenant_id = $1 AND head.user_id = $2 AND head.session_id = $3
        ORDER BY head.number LIMIT 1";
    /// The message, its metadata, the count, and the turn that answers, if this entry is first.
    Caller APPEND = "
        WITH entry AS (
            UPDATE session_line SET response_id = $5
            WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND number = $4 AND response_id IS NULL
                AND NOT EXISTS (SELECT FROM session_line before
                    WHERE before.tenant_id = $1 AND before.session_id = $3 AND before.number < $4)
            RETURNING session_id
        ), said AS (
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
    /// Whether this very turn has appended its message.
    Caller APPENDED = "
        SELECT 1 FROM session_line
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND number = $4 AND response_id = $5";
    Caller HISTORY = "
        SELECT role, content, response_id FROM messages
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND id < $4 ORDER BY id DESC LIMIT $5";
    /// The end of a turn, where its mark is: only the turn that appended the user's message adds to the session.
    Caller END = "
        WITH entry AS (
            DELETE FROM session_line
            WHERE tenant_id = $1 AND user_id = $2 AND session_id = $6 AND number = $7 AND response_id = $4
                AND EXISTS (SELECT FROM responses
                    WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND mark = $5)
            RETURNING session_id
        ), said AS (
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
    /// Removed; the message that was appended with it gets a reason.
    Caller LEAVE = "
        WITH gone AS (
            DELETE FROM session_line WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND number = $4
            RETURNING response_id
        ), known AS (
            INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value)
            SELECT $1, $2, $5, known.kind, known.value
            FROM gone JOIN unnest($6::text[], $7::text[]) AS known (kind, value) ON gone.response_id IS NOT NULL
        )
        SELECT pg_notify('amalgam_changed', $8)::text FROM gone";
    Caller REMOVE_MARKED_ENTRY = "
        DELETE FROM session_line WHERE tenant_id = $1 AND user_id = $2 AND mark = $3 RETURNING session_id";
    /// The entry of a turn that has ended or is gone; its message gets a reason. The number of the user's message follows from
    /// that of the entry.
    Caller RELEASE = "
        WITH gone AS (
            DELETE FROM session_line WHERE tenant_id = $1 AND user_id = $2 AND response_id = $3
            RETURNING session_id, number
        ), known AS (
            INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value)
            SELECT $1, $2, 2 * gone.number - 1, known.kind, known.value
            FROM gone, unnest($4::text[], $5::text[]) AS known (kind, value)
        )
        SELECT session_id FROM gone";
    Operator ENTRIES_HELD = "
        DELETE FROM session_line WHERE process = $1 RETURNING session_id, number, tenant_id, user_id, response_id";
    Operator ADD_ERRORS = "
        INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value)
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::text[])";
    Operator NOTIFY = "SELECT pg_notify('amalgam_changed', changed.id) FROM unnest($1::text[]) AS changed (id)";
}

/// Joins the queue of the active session with a profile, which is made if there is none. The same mark is the same entry.
pub(super) async fn join(
    connection: &Connection,
    scope: &Scope,
    profile: &str,
    process: ProcessId,
    mark: i64,
    now_ms: u64,
) -> Result<Ticket, Failure> {
    let (tenant_id, user, process, now) = (scope.tenant_id(), scope.user(), process_bytes(process), signed(now_ms));
    let process = process.as_slice();
    let mut params: Vec<Param<'_>> = vec![&tenant_id, &user, &profile, &process, &mark];
    let row = match connection.row(&JOIN, &params).await? {
        Some(row) => row,
        None => {
            params.push(&now);
            let row = connection.row(&JOIN_NEW, &params).await?;
            row.ok_or_else(|| Failure::again("the session is gone again"))?
        }
    };
    Ok(Ticket { session_id: row.try_get(0)?, number: row.try_get(1)? })
}

/// Where an entry is in its queue now.
pub(super) async fn position(connection: &Connection, scope: &Scope, ticket: Ticket) -> Result<QueuePosition, Failure> {
    let Ticket { session_id, number } = ticket;
    let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &session_id, &number];
    let Some(row) = connection.row(&POSITION, &params).await? else { return Ok(QueuePosition::Gone) };
    if row.try_get::<_, i64>(0)? == number {
        return Ok(QueuePosition::First);
    }
    if !row.try_get::<_, bool>(3)? {
        return Ok(QueuePosition::Gone);
    }
    let status = row.try_get::<_, Option<&str>>(2)?.map(rows::status).transpose()?;
    Ok(match (row.try_get::<_, Option<String>>(1)?, status) {
        (Some(response_id), Some(status)) if status.is_final() => QueuePosition::BehindEnded { response_id, status },
        _ => QueuePosition::Waiting,
    })
}

/// Appends the user's message, if the entry is first.
pub(super) async fn append(
    connection: &Connection,
    scope: &Scope,
    ticket: Ticket,
    words: &NewUserMessage,
) -> Result<Option<SessionHistory>, Failure> {
    let (tenant_id, user, Ticket { session_id, number }) = (scope.tenant_id(), scope.user(), ticket);
    let (user_message_id, assistant_message_id) = assistant::message_ids(number);
    let (kinds, values) = columns_of(&words.metadata);
    let params: [Param<'_>; 10] = [
        &tenant_id,
        &user,
        &session_id,
        &number,
        &words.response_id,
        &user_message_id,
        &assistant::content(&words.content),
        &signed(words.now_ms),
        &kinds,
        &values,
    ];
    if connection.row(&APPEND, &params).await?.is_none() {
        let params: [Param<'_>; 5] = [&tenant_id, &user, &session_id, &number, &words.response_id];
        // Appended before, and the answer got lost.
        if connection.row(&APPENDED, &params).await?.is_none() {
            return Ok(None);
        }
    }
    // No other request appends before this entry is removed, so the history stays as it is.
    let most = i64::try_from(words.history_messages).unwrap_or(i64::MAX);
    let params: [Param<'_>; 5] = [&tenant_id, &user, &session_id, &user_message_id, &most];
    let said = connection.rows(&HISTORY, &params).await?;
    let said = said.iter().map(|row| {
        Ok(assistant::Said { role: row.try_get(0)?, content: row.try_get(1)?, response_id: row.try_get(2)? })
    });
    let (history, answered_by) = assistant::history(said.collect::<Result<_, Error>>()?);
    Ok(Some(SessionHistory { user_message_id, assistant_message_id, history, answered_by }))
}

/// The statement that a write needs for its session.
pub(super) fn needed(job: &Job) -> Option<&'static Sql> {
    job.write.session.is_some().then_some(&END)
}

/// The end of a turn in its session; part of its last write.
pub(super) async fn end(
    client: &Client,
    statement: &Statement,
    job: &Job,
    end: &SessionEnd,
) -> Result<Vec<Row>, Error> {
    let Key { tenant_id, user, stem, id } = Key::of(job);
    let Ticket { session_id, number } = end.ticket;
    let (user_message_id, assistant_message_id) = assistant::message_ids(number);
    let answer = end.answer.as_ref().filter(|(id, _)| *id == assistant_message_id);
    let (answer_ids, answers): (Vec<i64>, Vec<_>) =
        answer.map(|(id, content)| (*id, assistant::content(content))).into_iter().unzip();
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

/// Removes an entry; the message that was appended with it gets `error`. Whether there was one.
pub(super) async fn leave(
    connection: &Connection,
    scope: &Scope,
    ticket: Ticket,
    error: Option<&MetadataRecord>,
) -> Result<bool, Failure> {
    let (user_message_id, _) = assistant::message_ids(ticket.number);
    let (kinds, values) = columns_of(error);
    let params: [Param<'_>; 8] = [
        &scope.tenant_id(),
        &scope.user(),
        &ticket.session_id,
        &ticket.number,
        &user_message_id,
        &kinds,
        &values,
        &session_topic(ticket.session_id),
    ];
    Ok(connection.row(&LEAVE, &params).await?.is_some())
}

/// Removes the entry that was perhaps made under a mark; its session.
pub(super) async fn leave_marked(connection: &Connection, scope: &Scope, mark: i64) -> Result<Option<i64>, Failure> {
    let left = connection.row(&REMOVE_MARKED_ENTRY, &[&scope.tenant_id(), &scope.user(), &mark]).await?;
    let Some(row) = left else { return Ok(None) };
    let session_id = row.try_get(0)?;
    connection.rows(&NOTIFY, &[&[session_topic(session_id)].as_slice()]).await?;
    Ok(Some(session_id))
}

/// Removes the entry of a turn that has ended or is gone; the user's message gets `error`.
pub(super) async fn release(
    connection: &Connection,
    tenant_id: i64,
    user: &str,
    response_id: &str,
    error: Option<&MetadataRecord>,
) -> Result<(), Failure> {
    let (kinds, values) = columns_of(error);
    let freed = connection.rows(&RELEASE, &[&tenant_id, &user, &response_id, &kinds, &values]).await?;
    if freed.is_empty() {
        return Ok(());
    }
    let topics = freed.iter().map(|row| row.try_get(0).map(session_topic)).collect::<Result<Vec<_>, _>>()?;
    connection.rows(&NOTIFY, &[&topics]).await.map(drop)
}

/// Removes every entry of a dead process; messages that were appended with them get `error`. The topics to notify.
pub(super) async fn release_all_of(
    connection: &Connection,
    dead: &[u8],
    error: fn(&[String]) -> String,
) -> Result<Vec<String>, Failure> {
    let entries = connection.rows(&ENTRIES_HELD, &[&dead]).await?;
    let topics = entries.iter().map(|row| row.try_get(0).map(session_topic)).collect::<Result<Vec<_>, _>>()?;
    let mut appended: Vec<(i64, &str, i64, &str)> = Vec::new();
    for row in &entries {
        if let Some(response_id) = row.try_get(4)? {
            let (user_message_id, _) = assistant::message_ids(row.try_get(1)?);
            appended.push((row.try_get(2)?, row.try_get(3)?, user_message_id, response_id));
        }
    }
    if appended.is_empty() {
        return Ok(topics);
    }
    let keys: Vec<(i64, &str)> = column(&appended, |(tenant_id, _, _, response_id)| (*tenant_id, *response_id));
    let unknown = journal::unknown(connection, &keys).await?;
    let told = column(&keys, |(tenant_id, id)| {
        let tools = unknown.get(&(*tenant_id, (*id).to_owned())).map(Vec::as_slice).unwrap_or_default();
        assistant::failure(&error(tools))
    });
    let (kinds, values) = columns_of(&told);
    let params: [Param<'_>; 5] = [
        &column(&appended, |(tenant_id, ..)| *tenant_id),
        &column(&appended, |(_, user, ..)| *user),
        &column(&appended, |(_, _, message_id, _)| *message_id),
        &kinds,
        &values,
    ];
    connection.execute(&ADD_ERRORS, &params).await?;
    Ok(topics)
}

/// Kinds and values of what is known.
fn columns_of<'a>(records: impl IntoIterator<Item = &'a MetadataRecord>) -> (Vec<&'a str>, Vec<&'a str>) {
    records.into_iter().map(|record| (record.kind.as_str(), text_of(&record.value))).unzip()
}
