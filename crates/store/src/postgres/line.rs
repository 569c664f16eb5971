//! The line of those who want to speak in a thread: how a place in it is taken, used and given up.
//!
//! Whoever gets in line holds the thread's row while its number is drawn, so that numbers become visible in their order, and
//! whoever has the smallest one speaks: no smaller one can appear any more. Whenever a place goes, those behind it are told,
//! in every process.

use amalgam_core::{
    Scope,
    store::{Heard, MetadataRecord, ProcessId, SessionEnd, Ticket, UserWords, session_bell},
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
    assistant::{self, Standing},
    rows,
};

statements! {
    /// Behind those who are there, in a thread that is there. Nothing when there is none.
    Caller LINE_UP = "
        WITH session AS (
            SELECT id FROM sessions WHERE tenant_id = $1 AND user_id = $2 AND profile = $3 AND active
            FOR NO KEY UPDATE
        )
        INSERT INTO session_line (session_id, tenant_id, user_id, process, mark) SELECT id, $1, $2, $4, $5 FROM session
        ON CONFLICT (mark) DO UPDATE SET mark = excluded.mark
        RETURNING session_id, number";
    /// The same in a new thread; whoever comes second waits for the first, and gets in line behind it.
    Caller LINE_UP_ANEW = "
        WITH session AS (
            INSERT INTO sessions (tenant_id, user_id, profile, active, messages, created_at, updated_at)
            VALUES ($1, $2, $3, true, 0, $6, $6)
            ON CONFLICT (tenant_id, user_id, profile) WHERE active DO UPDATE SET active = true
            RETURNING id
        )
        INSERT INTO session_line (session_id, tenant_id, user_id, process, mark) SELECT id, $1, $2, $4, $5 FROM session
        ON CONFLICT (mark) DO UPDATE SET mark = excluded.mark
        RETURNING session_id, number";
    /// Who is first, and how the turn of that one stands; and whether this place is there.
    Caller STANDING = "
        SELECT head.number, head.response_id,
            (SELECT r.status FROM responses r WHERE r.tenant_id = $1 AND r.user_id = $2
                AND r.stem = left(right(head.response_id, 24), 16) AND r.id = head.response_id),
            EXISTS (SELECT FROM session_line mine
                WHERE mine.tenant_id = $1 AND mine.user_id = $2 AND mine.session_id = $3 AND mine.number = $4)
        FROM session_line head WHERE head.tenant_id = $1 AND head.user_id = $2 AND head.session_id = $3
        ORDER BY head.number LIMIT 1";
    /// The message, what is known about it, the count, and the turn that answers, if it is this place's time.
    Caller SPEAK = "
        WITH place AS (
            UPDATE session_line SET response_id = $5
            WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND number = $4 AND response_id IS NULL
                AND NOT EXISTS (SELECT FROM session_line before
                    WHERE before.tenant_id = $1 AND before.session_id = $3 AND before.number < $4)
            RETURNING session_id
        ), said AS (
            INSERT INTO messages (id, tenant_id, user_id, session_id, role, content, response_id, created_at)
            SELECT $6, $1, $2, session_id, 'user', $7, $5, $8 FROM place
        ), counted AS (
            UPDATE sessions SET messages = messages + 1, updated_at = GREATEST(updated_at, $8)
            FROM place WHERE sessions.tenant_id = $1 AND sessions.user_id = $2 AND sessions.id = place.session_id
        ), known AS (
            INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value)
            SELECT $1, $2, $6, known.kind, known.value
            FROM place, unnest($9::text[], $10::text[]) WITH ORDINALITY AS known (kind, value, number)
            ORDER BY known.number
        )
        SELECT 1 FROM place";
    /// Whether this very turn has spoken here.
    Caller SPOKEN = "
        SELECT 1 FROM session_line
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND number = $4 AND response_id = $5";
    Caller HISTORY = "
        SELECT role, content, response_id FROM messages
        WHERE tenant_id = $1 AND user_id = $2 AND session_id = $3 AND id < $4 ORDER BY id DESC LIMIT $5";
    /// The end of a turn, where its mark is: only the turn that has spoken at a place says anything more in the thread.
    Caller END = "
        WITH place AS (
            DELETE FROM session_line
            WHERE tenant_id = $1 AND user_id = $2 AND session_id = $6 AND number = $7 AND response_id = $4
                AND EXISTS (SELECT FROM responses
                    WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4 AND mark = $5)
            RETURNING session_id
        ), said AS (
            INSERT INTO messages (id, tenant_id, user_id, session_id, role, content, response_id, created_at)
            SELECT answer.id, $1, $2, session_id, 'assistant', answer.content, $4, $8
            FROM place, unnest($9::bigint[], $10::text[]) AS answer (id, content)
        ), counted AS (
            UPDATE sessions SET messages = messages + cardinality($9), updated_at = GREATEST(updated_at, $8)
            FROM place WHERE sessions.tenant_id = $1 AND sessions.user_id = $2 AND sessions.id = place.session_id
        )
        INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value)
        SELECT $1, $2, known.message_id, known.kind, known.value
        FROM place, unnest($11::bigint[], $12::text[], $13::text[]) WITH ORDINALITY
            AS known (message_id, kind, value, number)
        ORDER BY known.number";
    /// Given up; what was said there is marked with a reason.
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
    Caller LEAVE_MARKED = "
        DELETE FROM session_line WHERE tenant_id = $1 AND user_id = $2 AND mark = $3 RETURNING session_id";
    /// The place of a turn that has ended or is gone; what was said there is marked with a reason. The user's message has the
    /// number that the place says.
    Caller FREE = "
        WITH gone AS (
            DELETE FROM session_line WHERE tenant_id = $1 AND user_id = $2 AND response_id = $3
            RETURNING session_id, number
        ), known AS (
            INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value)
            SELECT $1, $2, 2 * gone.number - 1, known.kind, known.value
            FROM gone, unnest($4::text[], $5::text[]) AS known (kind, value)
        )
        SELECT session_id FROM gone";
    Operator PLACES_HELD = "
        DELETE FROM session_line WHERE process = $1 RETURNING session_id, number, tenant_id, user_id, response_id";
    Operator TELL_SPEAKERS = "
        INSERT INTO message_metadata (tenant_id, user_id, message_id, kind, value)
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::text[])";
    Operator NOTIFY = "SELECT pg_notify('amalgam_changed', changed.id) FROM unnest($1::text[]) AS changed (id)";
}

/// Gets in line in the active thread with a profile, which is made if there is none. The same mark is the same place.
pub(super) async fn up(
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
    let row = match connection.row(&LINE_UP, &params).await? {
        Some(row) => row,
        None => {
            params.push(&now);
            let row = connection.row(&LINE_UP_ANEW, &params).await?;
            row.ok_or_else(|| Failure::again("the thread is gone again"))?
        }
    };
    Ok(Ticket { session_id: row.try_get(0)?, number: row.try_get(1)? })
}

/// How a place stands now.
pub(super) async fn standing(connection: &Connection, scope: &Scope, ticket: Ticket) -> Result<Standing, Failure> {
    let Ticket { session_id, number } = ticket;
    let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &session_id, &number];
    let Some(row) = connection.row(&STANDING, &params).await? else { return Ok(Standing::Gone) };
    if row.try_get::<_, i64>(0)? == number {
        return Ok(Standing::First);
    }
    if !row.try_get::<_, bool>(3)? {
        return Ok(Standing::Gone);
    }
    let status = row.try_get::<_, Option<&str>>(2)?.map(rows::status).transpose()?;
    Ok(match (row.try_get::<_, Option<String>>(1)?, status) {
        (Some(response_id), Some(status)) if status.is_final() => Standing::BehindEnded { response_id, status },
        _ => Standing::Behind,
    })
}

/// Writes what the user says, if it is the place's time.
pub(super) async fn speak(
    connection: &Connection,
    scope: &Scope,
    ticket: Ticket,
    words: &UserWords,
) -> Result<Option<Heard>, Failure> {
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
    if connection.row(&SPEAK, &params).await?.is_none() {
        let params: [Param<'_>; 5] = [&tenant_id, &user, &session_id, &number, &words.response_id];
        // Said before, and the answer got lost.
        if connection.row(&SPOKEN, &params).await?.is_none() {
            return Ok(None);
        }
    }
    // Nobody else speaks before this place is given up: what was said before stays what it is.
    let most = i64::try_from(words.history_messages).unwrap_or(i64::MAX);
    let params: [Param<'_>; 5] = [&tenant_id, &user, &session_id, &user_message_id, &most];
    let said = connection.rows(&HISTORY, &params).await?;
    let said = said.iter().map(|row| {
        Ok(assistant::Said { role: row.try_get(0)?, content: row.try_get(1)?, response_id: row.try_get(2)? })
    });
    let (history, answered_by) = assistant::history(said.collect::<Result<_, Error>>()?);
    Ok(Some(Heard { user_message_id, assistant_message_id, history, answered_by }))
}

/// The statement that a write takes for its thread.
pub(super) fn needed(job: &Job) -> Option<&'static Sql> {
    job.write.session.is_some().then_some(&END)
}

/// The end of a turn in its thread; part of its last write.
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

/// Gives a place up; what was said there is marked with `error`. Whether there was one.
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
        &session_bell(ticket.session_id),
    ];
    Ok(connection.row(&LEAVE, &params).await?.is_some())
}

/// Gives the place up that was perhaps taken under a mark; its thread.
pub(super) async fn leave_marked(connection: &Connection, scope: &Scope, mark: i64) -> Result<Option<i64>, Failure> {
    let left = connection.row(&LEAVE_MARKED, &[&scope.tenant_id(), &scope.user(), &mark]).await?;
    let Some(row) = left else { return Ok(None) };
    let session_id = row.try_get(0)?;
    connection.rows(&NOTIFY, &[&[session_bell(session_id)].as_slice()]).await?;
    Ok(Some(session_id))
}

/// Frees the place of a turn that has ended or is gone; what the user said there is marked with `error`.
pub(super) async fn free(
    connection: &Connection,
    tenant_id: i64,
    user: &str,
    response_id: &str,
    error: Option<&MetadataRecord>,
) -> Result<(), Failure> {
    let (kinds, values) = columns_of(error);
    let freed = connection.rows(&FREE, &[&tenant_id, &user, &response_id, &kinds, &values]).await?;
    if freed.is_empty() {
        return Ok(());
    }
    let bells = freed.iter().map(|row| row.try_get(0).map(session_bell)).collect::<Result<Vec<_>, _>>()?;
    connection.rows(&NOTIFY, &[&bells]).await.map(drop)
}

/// Frees every place of a dead process; what was said there is marked with `error`. The bells of those who wait.
pub(super) async fn bury(
    connection: &Connection,
    dead: &[u8],
    error: fn(&[String]) -> String,
) -> Result<Vec<String>, Failure> {
    let places = connection.rows(&PLACES_HELD, &[&dead]).await?;
    let bells = places.iter().map(|row| row.try_get(0).map(session_bell)).collect::<Result<Vec<_>, _>>()?;
    let mut spoken: Vec<(i64, &str, i64, &str)> = Vec::new();
    for row in &places {
        if let Some(response_id) = row.try_get(4)? {
            let (user_message_id, _) = assistant::message_ids(row.try_get(1)?);
            spoken.push((row.try_get(2)?, row.try_get(3)?, user_message_id, response_id));
        }
    }
    if spoken.is_empty() {
        return Ok(bells);
    }
    let keys: Vec<(i64, &str)> = column(&spoken, |(tenant_id, _, _, response_id)| (*tenant_id, *response_id));
    let unknown = journal::unknown(connection, &keys).await?;
    let told = column(&keys, |(tenant_id, id)| {
        let tools = unknown.get(&(*tenant_id, (*id).to_owned())).map(Vec::as_slice).unwrap_or_default();
        assistant::failure(&error(tools))
    });
    let (kinds, values) = columns_of(&told);
    let params: [Param<'_>; 5] = [
        &column(&spoken, |(tenant_id, ..)| *tenant_id),
        &column(&spoken, |(_, user, ..)| *user),
        &column(&spoken, |(_, _, message_id, _)| *message_id),
        &kinds,
        &values,
    ];
    connection.execute(&TELL_SPEAKERS, &params).await?;
    Ok(bells)
}

/// Kinds and values of what is known.
fn columns_of<'a>(records: impl IntoIterator<Item = &'a MetadataRecord>) -> (Vec<&'a str>, Vec<&'a str>) {
    records.into_iter().map(|record| (record.kind.as_str(), text_of(&record.value))).unzip()
}
