//! Reads, cancellation and deletion of responses.
use amalgam_core::{
    RawAnswer, Scope, Stem,
    store::{CancelOutcome, EventChunk, EventTail, ItemsOf, Lineage, ResponseStore, Stored, StoredResponse},
};
use amalgam_protocol::{Json, Status};
use amalgam_store::{
    rows,
    session_queue::{deleted_record, ended_record},
    statements,
};
use bytes::Bytes;
use rusqlite::Row;

use super::{
    Sqlite, execute,
    failure::SqliteFailure,
    item_positions::{self, ItemPosition},
    job::Transaction,
    journal,
    query::{Database, bytes, int, optional_text, optional_uint, text, uint},
    session_queue, transcripts, turn_list, turns,
};

statements! {
    UserSql RESPONSE = "
        SELECT responses.id, status, completed_at, error, incomplete_reason, usage, created_at, settings, background,
            streamed, conversation_id, responses.place, input, output, provenance
        FROM responses CROSS JOIN items ON items.place = responses.place
        WHERE responses.tenant_id = ?1 AND responses.user_id = ?2 AND stem = ?3 AND id = ?4";
    /// From the response's own run to the run that it forked from, and so on; of each run the part up to the fork.
    UserSql LINEAGE = "
        WITH RECURSIVE path (status, depth, first, last, upstream) AS (
            SELECT status, 0, (place >> 20) << 20, place, upstream FROM responses
            WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4
            UNION ALL
            SELECT path.status, depth + 1, (parent >> 20) << 20, parent, NULL
            FROM path CROSS JOIN items ON items.place = path.first
            WHERE tenant_id = ?1 AND user_id = ?2 AND parent IS NOT NULL
        )
        SELECT path.status, depth, place, input, output, path.upstream
        FROM path CROSS JOIN items ON items.place BETWEEN path.first AND path.last
        WHERE tenant_id = ?1 AND user_id = ?2";
    UserSql ITEMS_BY_STEM = "
        SELECT input, output
        FROM responses CROSS JOIN items ON items.place = responses.place
        WHERE responses.tenant_id = ?1 AND responses.user_id = ?2 AND stem = ?3";
    UserSql EVENTS = "
        SELECT first, last, frames FROM stream_events
        WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3 AND last > ?4 ORDER BY first";
    UserSql LAST_EVENT = "
        SELECT last FROM stream_events
        WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3 ORDER BY first DESC LIMIT 1";
    UserSql RAW_ANSWER = "
        SELECT raw_answer FROM responses WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4";
    UserSql FORGET_HEAD = "
        DELETE FROM responses WHERE tenant_id = ?1 AND user_id = ?2 AND stem = ?3 AND id = ?4
        RETURNING place, created_at";
    UserSql FORGET_EVENTS = "DELETE FROM stream_events WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3";
    UserSql ITEM_OF_ANY_CONVERSATION = "
        SELECT item FROM conversation_items WHERE tenant_id = ?1 AND user_id = ?2 AND id = ?3";
    TenantSql STATUS = "SELECT status FROM responses WHERE tenant_id = ?1 AND stem = ?2 AND id = ?3";
}

impl ResponseStore for Sqlite {
    fn response<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<StoredResponse>> {
        let Some(stem) = Stem::of(id) else { return nothing() };
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read_with(move |transaction| response(transaction.database, &scope, stem, &id))
    }

    fn lineage<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Lineage>> {
        let Some(stem) = Stem::of(id) else { return nothing() };
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read_with(move |transaction| lineage(transaction.database, &scope, stem, &id))
    }

    fn raw_answer<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<RawAnswer>> {
        let Some(stem) = Stem::of(id) else { return nothing() };
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read_with(move |transaction| {
            let stored = transaction.database.user(&scope, RAW_ANSWER, &[&stem.as_str(), &id])?;
            let stored = stored.first(|row| Ok(optional_text(row, 0)?.map(rows::raw_answer)))?;
            Ok(stored.flatten())
        })
    }

    fn items<'a>(&'a self, scope: &'a Scope, ids: &'a [String]) -> Stored<'a, Vec<Option<Json>>> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.read_with(move |transaction| ids.iter().map(|id| item(transaction.database, &scope, id)).collect())
    }

    fn delete_response<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool> {
        let Some(stem) = Stem::of(id) else { return Box::pin(async { Ok(false) }) };
        let (scope, id) = (scope.clone(), id.to_owned());
        self.write_with(move |transaction| forget(transaction, &scope, stem, &id))
    }

    fn cancel_response<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<CancelOutcome>> {
        let Some(stem) = Stem::of(id) else { return nothing() };
        let (scope, id) = (scope.clone(), id.to_owned());
        self.write_with(move |transaction| {
            let Some(found) = response(transaction.database, &scope, stem, &id)? else { return Ok(None) };
            if !found.background {
                return Ok(Some(CancelOutcome::Foreground));
            }
            Ok(end(transaction, &scope, stem, found, now_ms)?.map(|ended| CancelOutcome::Ended(Box::new(ended))))
        })
    }

    fn end_response<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<StoredResponse>> {
        let Some(stem) = Stem::of(id) else { return nothing() };
        let (scope, id) = (scope.clone(), id.to_owned());
        self.write_with(move |transaction| {
            let Some(found) = response(transaction.database, &scope, stem, &id)? else { return Ok(None) };
            end(transaction, &scope, stem, found, now_ms)
        })
    }

    fn events<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        after: Option<u64>,
        bytes: usize,
    ) -> Stored<'a, Option<EventTail>> {
        let Some(stem) = Stem::of(id) else { return nothing() };
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read_with(move |transaction| events(transaction.database, &scope, stem, &id, after, bytes))
    }
}

fn nothing<'a, T: Send + 'a>() -> Stored<'a, Option<T>> {
    Box::pin(async { Ok(None) })
}

fn response(
    database: Database<'_>,
    scope: &Scope,
    stem: Stem,
    id: &str,
) -> Result<Option<StoredResponse>, SqliteFailure> {
    database.user(scope, RESPONSE, &[&stem.as_str(), &id])?.first(stored_response)
}

/// Reads a row of `RESPONSE` or `TURN`.
pub(super) fn stored_response(row: &Row<'_>) -> Result<StoredResponse, SqliteFailure> {
    Ok(StoredResponse {
        id: row.get(0)?,
        status: rows::response_state(
            status(row, 1)?,
            optional_uint(row, 2)?,
            optional_text(row, 3)?,
            optional_text(row, 4)?,
            optional_text(row, 5)?,
            optional_text(row, 14)?,
        ),
        created_at_ms: uint(row, 6)?,
        settings: Bytes::copy_from_slice(bytes(row, 7)?),
        background: row.get(8)?,
        streamed: row.get(9)?,
        conversation: row.get(10)?,
        place: ItemPosition(row.get(11)?).in_chain(text(row, 0)?)?,
        input: rows::json(text(row, 12)?),
        output: output(row, 13)?,
    })
}

pub(super) fn status(row: &Row<'_>, column: usize) -> Result<Status, SqliteFailure> {
    rows::status(text(row, column)?).map_err(SqliteFailure::from)
}

fn output(row: &Row<'_>, column: usize) -> Result<Json, SqliteFailure> {
    Ok(rows::json(optional_text(row, column)?.unwrap_or(rows::NO_ITEMS)))
}

fn lineage(database: Database<'_>, scope: &Scope, stem: Stem, id: &str) -> Result<Option<Lineage>, SqliteFailure> {
    let mut own = None;
    let mut turns = Vec::new();
    database.user(scope, LINEAGE, &[&stem.as_str(), &id])?.until(|row| {
        let (depth, place) = (uint(row, 1)?, row.get(2)?);
        if depth == 0 {
            // The last position of the response's own run is its own.
            own = Some((
                status(row, 0)?,
                ItemPosition(place).in_chain(id)?,
                optional_text(row, 5)?.and_then(rows::upstream),
            ));
        }
        let items = ItemsOf { input: rows::json(text(row, 3)?), output: output(row, 4)? };
        turns.push(((std::cmp::Reverse(depth), place), items));
        Ok(true)
    })?;
    // The deepest fork is the oldest. Rows are in order within each run, so sorting them here is cheap; sorting in the
    // database would copy all items once more.
    turns.sort_by_key(|(key, _)| *key);
    let turns = turns.into_iter().map(|(_, items)| items).collect();
    Ok(own.map(|(status, place, upstream)| Lineage { status, place, upstream, turns }))
}

fn item(database: Database<'_>, scope: &Scope, id: &str) -> Result<Option<Json>, SqliteFailure> {
    if let Some(stem) = Stem::of(id) {
        let found = database.user(scope, ITEMS_BY_STEM, &[&stem.as_str()])?.first(|row| {
            let in_input = rows::item_in(text(row, 0)?, id);
            Ok(match in_input {
                None => optional_text(row, 1)?.and_then(|output| rows::item_in(output, id)),
                found => found,
            })
        })?;
        if let Some(item) = found.flatten() {
            return Ok(Some(item));
        }
    }
    database.user(scope, ITEM_OF_ANY_CONVERSATION, &[&id])?.first(|row| Ok(rows::json(text(row, 0)?)))
}

fn events(
    database: Database<'_>,
    scope: &Scope,
    stem: Stem,
    id: &str,
    after: Option<u64>,
    limit: usize,
) -> Result<Option<EventTail>, SqliteFailure> {
    let Some(response) = response(database, scope, stem, id)? else { return Ok(None) };
    let last = database.user(scope, LAST_EVENT, &[&id])?.first(|row| uint(row, 0))?;
    let after = after.map_or(Ok(-1), int)?;
    let (mut chunks, mut size) = (Vec::new(), 0);
    database.user(scope, EVENTS, &[&id, &after])?.until(|row| {
        let frames = Bytes::copy_from_slice(bytes(row, 2)?);
        size += frames.len();
        chunks.push(EventChunk { first: uint(row, 0)?, last: uint(row, 1)?, frames });
        Ok(size < limit)
    })?;
    Ok(Some(EventTail { response, chunks, last }))
}

fn end(
    transaction: &Transaction<'_>,
    scope: &Scope,
    stem: Stem,
    response: StoredResponse,
    now_ms: u64,
) -> Result<Option<StoredResponse>, SqliteFailure> {
    let database = transaction.database;
    if response.status.status.is_final() {
        return Ok(Some(response));
    }
    let id = response.id.as_str();
    let (status, now, none) = (Status::Cancelled.name(), int(now_ms)?, None::<&str>);
    database
        .user(
            scope,
            turns::END_RESPONSE,
            &[&stem.as_str(), &id, &status, &none, &now, &none, &none, &none, &none, &none],
        )?
        .run()?;
    database.user(scope, turns::END_ITEMS, &[&int(response.place.position)?, &rows::NO_ITEMS])?.run()?;
    turn_list::cancel_queued(database, scope, response.created_at_ms, id, now_ms)?;
    session_queue::release(transaction, scope, id, ended_record(Status::Cancelled).as_ref())?;
    transaction.notify(id);
    self::response(database, scope, stem, id)
}

/// Deletes a response: its head at once, its items when no other response continues it.
pub(super) fn forget(
    transaction: &Transaction<'_>,
    scope: &Scope,
    stem: Stem,
    id: &str,
) -> Result<bool, SqliteFailure> {
    let database = transaction.database;
    let place = database
        .user(scope, FORGET_HEAD, &[&stem.as_str(), &id])?
        .first(|row| Ok((ItemPosition(row.get(0)?), row.get(1)?)))?;
    let Some((place, created_at)) = place else { return Ok(false) };
    turn_list::forget_content(database, scope, created_at, id)?;
    database.user(scope, FORGET_EVENTS, &[&id])?.run()?;
    journal::forget(database, scope, id)?;
    session_queue::release(transaction, scope, id, Some(&deleted_record()))?;
    execute::leave(database, scope, id)?;
    transaction.notify(id);

    // The model calls of a response are deleted with its items: a turn that continues it may be about to store only the
    // part of its request that is new.
    let gone = item_positions::forget(database, scope, place)?;
    transcripts::forget(database, scope, &gone)?;
    Ok(true)
}
