//! Reads, cancellation and deletion of responses.
use std::collections::HashMap;

use amalgam_core::{
    RawAnswer, Scope, Stem, StoreError,
    store::{
        CancelOutcome, ChainPosition, EventChunk, EventTail, ItemsOf, Lineage, ResponseStore, Stored, StoredResponse,
    },
};
use amalgam_protocol::Json;
use amalgam_store::{
    rows,
    session_queue::{ended_record, release},
    statements,
    turn_list::COUNT_ENDED,
};
use bytes::Bytes;
use tokio_postgres::Row;

use super::{
    Postgres,
    chains::{self, DeletedResponse},
    connection::{Connection, Param, PostgresFailure},
    job::{signed, unsigned},
    pool::Lease,
    turn_list::CANCEL_QUEUED_TURN,
};

statements! {
    UserSql RAW_ANSWER = "
        SELECT raw_answer FROM responses WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4";
    UserSql RESPONSE = "
        SELECT r.id, r.status, r.completed_at, r.error, r.incomplete_reason, r.usage, r.created_at, r.settings,
            r.background, r.streamed, r.conversation_id, r.chain, r.position, i.input, i.output, r.provenance
        FROM responses r JOIN items i ON i.chain = r.chain AND i.position = r.position AND i.tenant_id = r.tenant_id
        WHERE r.tenant_id = $1 AND r.user_id = $2 AND r.stem = $3 AND r.id = $4";
    /// The runs that the response continues, each up to the position where the next one forks; then all their rows. The
    /// recursion ends at a run without a parent.
    UserSql LINEAGE = "
        WITH RECURSIVE head AS (
            SELECT chain, position, status, upstream FROM responses
            WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4
        ), path (chain, last, depth) AS (
            SELECT chain, position, 0 FROM head
            UNION ALL
            SELECT fork.parent_chain, fork.parent_position, path.depth + 1
            FROM path JOIN items fork ON fork.chain = path.chain AND fork.position = 0
            WHERE fork.tenant_id = $1 AND fork.user_id = $2
        )
        SELECT items.input, items.output, items.chain, items.position, (SELECT status FROM head),
            CASE WHEN path.depth = 0 AND items.position = path.last THEN (SELECT upstream FROM head) END
        FROM path JOIN items ON items.chain = path.chain AND items.position <= path.last
        WHERE items.tenant_id = $1 AND items.user_id = $2
        ORDER BY path.depth DESC, items.position";
    UserSql ITEMS_BY_STEM = "
        SELECT r.stem, i.input, i.output
        FROM responses r JOIN items i ON i.chain = r.chain AND i.position = r.position AND i.tenant_id = r.tenant_id
        WHERE r.tenant_id = $1 AND r.user_id = $2 AND r.stem = ANY ($3)";
    UserSql ITEMS_OF_CONVERSATIONS = "
        SELECT id, item FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND id = ANY ($3) ORDER BY id, conversation_id";
    /// Removes the mark: a cancelled response must not make a write of its process look committed.
    UserSql CANCEL = "
        WITH cancelled AS (
            UPDATE responses SET status = 'cancelled', ended_at = $5, process = NULL, request = NULL, mark = 0
            WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4
                AND (background OR $6) AND status IN ('queued', 'in_progress')
            RETURNING id
        )
        SELECT pg_notify('amalgam_changed', id) FROM cancelled";
    /// Chunks in order until their size is sufficient; the size of a value is read without the value.
    UserSql TAIL = "
        SELECT first, last, frames FROM (
            SELECT first, last, frames, sum(octet_length(frames)) OVER (ORDER BY last) - octet_length(frames) AS before
            FROM (
                SELECT first, last, frames FROM stream_events
                WHERE tenant_id = $1 AND user_id = $2 AND response_id = $3 AND last > $4
                ORDER BY last LIMIT 1000
            ) AS next
        ) AS tail
        WHERE before < $5 ORDER BY last";
    UserSql LAST_EVENT = "
        SELECT last FROM stream_events WHERE tenant_id = $1 AND user_id = $2 AND response_id = $3
        ORDER BY last DESC LIMIT 1";
}

impl ResponseStore for Postgres {
    fn response<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<StoredResponse>> {
        Box::pin(async move {
            let Some(stem) = Stem::of(id) else { return Ok(None) };
            let found = self.pool.repeatably(move |connection: Lease| async move {
                let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &stem.as_str(), &id];
                connection.row(RESPONSE, &params).await?.as_ref().map(response_from).transpose()
            });
            found.await
        })
    }

    fn lineage<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Lineage>> {
        Box::pin(async move {
            let Some(stem) = Stem::of(id) else { return Ok(None) };
            let found = self.pool.repeatably(move |connection: Lease| async move {
                let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &stem.as_str(), &id];
                lineage_from(&connection.rows(LINEAGE, &params).await?)
            });
            found.await
        })
    }

    fn raw_answer<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<RawAnswer>> {
        Box::pin(async move {
            let Some(stem) = Stem::of(id) else { return Ok(None) };
            let found = self.pool.repeatably(move |connection: Lease| async move {
                let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &stem.as_str(), &id];
                let Some(row) = connection.row(RAW_ANSWER, &params).await? else { return Ok(None) };
                Ok(row.try_get::<_, Option<&str>>(0)?.map(rows::raw_answer))
            });
            found.await
        })
    }

    fn items<'a>(&'a self, scope: &'a Scope, ids: &'a [String]) -> Stored<'a, Vec<Option<Json>>> {
        Box::pin(async move {
            if ids.is_empty() {
                return Ok(Vec::new());
            }
            let stems: Vec<Option<Stem>> = ids.iter().map(|id| Stem::of(id)).collect();
            let stems = &stems;
            let found = self.pool.repeatably(move |connection: Lease| async move {
                let (tenant_id, user) = (scope.tenant_id(), scope.user());
                let mut wanted: Vec<&str> = stems.iter().flatten().map(Stem::as_str).collect();
                wanted.sort_unstable();
                wanted.dedup();
                let of_responses = connection.rows(ITEMS_BY_STEM, &[&tenant_id, &user, &wanted]).await?;
                let of_conversations = connection.rows(ITEMS_OF_CONVERSATIONS, &[&tenant_id, &user, &ids]).await?;
                let mut arrays: HashMap<&str, Vec<&str>> = HashMap::new();
                for row in &of_responses {
                    let of_stem = arrays.entry(row.try_get(0)?).or_default();
                    of_stem.push(row.try_get(1)?);
                    of_stem.extend(row.try_get::<_, Option<&str>>(2)?);
                }
                let mut items: HashMap<&str, &str> = HashMap::new();
                for row in &of_conversations {
                    items.entry(row.try_get(0)?).or_insert(row.try_get(1)?);
                }
                let item = |(id, stem): (&String, &Option<Stem>)| {
                    let arrays = stem.as_ref().and_then(|stem| arrays.get(stem.as_str()));
                    let within = arrays.and_then(|arrays| arrays.iter().find_map(|array| rows::item_in(array, id)));
                    within.or_else(|| items.get(id.as_str()).map(|text| rows::json(text)))
                };
                Ok(ids.iter().zip(stems).map(item).collect())
            });
            found.await
        })
    }

    fn delete_response<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool> {
        Box::pin(async move {
            let Some(stem) = Stem::of(id) else { return Ok(false) };
            let response = DeletedResponse { scope, stem: stem.as_str(), id };
            let deleted = chains::delete(&self.pool, response).await?;
            if deleted {
                self.notifications.notify([id]);
            }
            Ok(deleted)
        })
    }

    fn cancel_response<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<CancelOutcome>> {
        Box::pin(async move {
            let Some(response) = self.cancel(scope, id, now_ms, Cancellable::Background).await? else {
                return Ok(None);
            };
            if !response.background {
                return Ok(Some(CancelOutcome::Foreground));
            }
            self.notifications.notify([id]);
            Ok(Some(CancelOutcome::Ended(Box::new(response))))
        })
    }

    fn end_response<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<StoredResponse>> {
        Box::pin(async move {
            let ended = self.cancel(scope, id, now_ms, Cancellable::All).await?;
            self.notifications.notify([id]);
            Ok(ended)
        })
    }

    fn events<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        after: Option<u64>,
        bytes: usize,
    ) -> Stored<'a, Option<EventTail>> {
        Box::pin(async move {
            let Some(stem) = Stem::of(id) else { return Ok(None) };
            let found = self.pool.repeatably(move |connection: Lease| async move {
                let (tenant_id, user, stem) = (scope.tenant_id(), scope.user(), stem.as_str());
                let after = after.map_or(-1, signed);
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX).max(1);
                // The response first: if it has ended, all its events were written before.
                let Some(row) = connection.row(RESPONSE, &[&tenant_id, &user, &stem, &id]).await? else {
                    return Ok(None);
                };
                let chunks = connection.rows(TAIL, &[&tenant_id, &user, &id, &after, &bytes]).await?;
                let last = connection.row(LAST_EVENT, &[&tenant_id, &user, &id]).await?;
                let last = last.map(|row| row.try_get(0).map(unsigned)).transpose()?;
                let chunks = chunks.iter().map(chunk_from).collect::<Result<_, _>>()?;
                Ok(Some(EventTail { response: response_from(&row)?, last, chunks }))
            });
            found.await
        })
    }
}

/// The responses that a cancellation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cancellable {
    Background,
    All,
}

impl Postgres {
    async fn cancel(
        &self,
        scope: &Scope,
        id: &str,
        now_ms: u64,
        which: Cancellable,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let Some(stem) = Stem::of(id) else { return Ok(None) };
        let cancelled = self.pool.repeatably(move |mut connection: Lease| async move {
            connection.begin().await?;
            let cancelled = cancel(&connection, scope, stem, id, now_ms, which).await;
            connection.end(cancelled).await
        });
        cancelled.await
    }
}

/// Ends a response that has not ended; the response. Inside a transaction.
async fn cancel(
    connection: &Connection,
    scope: &Scope,
    stem: Stem,
    id: &str,
    now_ms: u64,
    which: Cancellable,
) -> Result<Option<StoredResponse>, PostgresFailure> {
    let (tenant_id, user, stem) = (scope.tenant_id(), scope.user(), stem.as_str());
    let all = which == Cancellable::All;
    connection.rows(CANCEL, &[&tenant_id, &user, &stem, &id, &signed(now_ms), &all]).await?;
    let row = connection.row(RESPONSE, &[&tenant_id, &user, &stem, &id]).await?;
    let response = row.as_ref().map(response_from).transpose()?;
    if let Some(cancelled) =
        response.as_ref().filter(|response| response.status.status == amalgam_protocol::Status::Cancelled)
    {
        let created_at = signed(cancelled.created_at_ms);
        let params: [Param<'_>; 5] = [&tenant_id, &user, &created_at, &id, &signed(now_ms)];
        if connection.execute(CANCEL_QUEUED_TURN, &params).await? == 1 {
            connection.execute(COUNT_ENDED, &[&tenant_id, &created_at, &id]).await?;
        }
    }
    if let Some(ended) = response.as_ref().filter(|response| response.background || all) {
        let error = ended_record(ended.status.status);
        release(connection, scope, id, error.as_ref()).await?;
    }
    Ok(response)
}

/// Reads a response from the columns of `RESPONSE`.
pub(super) fn response_from(row: &Row) -> Result<StoredResponse, PostgresFailure> {
    let status = rows::status(row.try_get(1)?)?;
    let state = rows::response_state(
        status,
        row.try_get::<_, Option<i64>>(2)?.map(unsigned),
        row.try_get(3)?,
        row.try_get(4)?,
        row.try_get(5)?,
        row.try_get(15)?,
    );
    Ok(StoredResponse {
        id: row.try_get(0)?,
        status: state,
        created_at_ms: unsigned(row.try_get(6)?),
        settings: Bytes::copy_from_slice(row.try_get(7)?),
        input: rows::json(row.try_get(13)?),
        output: rows::json(row.try_get::<_, Option<&str>>(14)?.unwrap_or(rows::NO_ITEMS)),
        background: row.try_get(8)?,
        streamed: row.try_get(9)?,
        conversation: row.try_get(10)?,
        place: ChainPosition { chain: row.try_get(11)?, position: unsigned(row.try_get(12)?) },
    })
}

fn lineage_from(turns: &[Row]) -> Result<Option<Lineage>, PostgresFailure> {
    let Some(own) = turns.last() else { return Ok(None) };
    let items = |row: &Row| {
        let output: Option<&str> = row.try_get(1)?;
        Ok(ItemsOf { input: rows::json(row.try_get(0)?), output: rows::json(output.unwrap_or(rows::NO_ITEMS)) })
    };
    Ok(Some(Lineage {
        status: rows::status(own.try_get(4)?)?,
        place: ChainPosition { chain: own.try_get(2)?, position: unsigned(own.try_get(3)?) },
        upstream: own.try_get::<_, Option<&str>>(5)?.and_then(rows::upstream),
        turns: turns.iter().map(items).collect::<Result<_, PostgresFailure>>()?,
    }))
}

fn chunk_from(row: &Row) -> Result<EventChunk, PostgresFailure> {
    Ok(EventChunk {
        first: unsigned(row.try_get(0)?),
        last: unsigned(row.try_get(1)?),
        frames: Bytes::copy_from_slice(row.try_get(2)?),
    })
}
