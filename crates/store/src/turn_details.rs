//! Parts of turns: model calls with or without bodies, stored events, and the facts of the newest turns.

use amalgam_core::{
    Admin, Stem, StoreError,
    store::{
        CallBodies, EventChunk, ListedTurn, RecentTurns, Stored, StoredCall, Transcript, TurnDetailStore, TurnsOf,
    },
};
use amalgam_protocol::Status;
use bytes::Bytes;

use crate::{
    SqlStore,
    engine::{SqlConnection, SqlEngine, TenantKey},
    rows::{self, RequestParts},
    sql::shared_statements,
    turn_list::{LISTED_TURN, ListedTenants, listed_turn},
    values::{SqlRow, values},
};

shared_statements! {
    TenantSql CALL_HEADS = "
        SELECT number, upstream, model, asked_at, first_token_ms, duration_ms, retries, cut, usage, losses, error,
            CAST(coalesce(base_shared, 0) + length(request) AS bigint), CAST(length(response) AS bigint)
        FROM transcripts WHERE tenant_id = $1 AND response_id = $2 ORDER BY number";
    /// As `rows::transcript` reads them.
    TenantSql CALLS = "
        SELECT number, upstream, model, asked_at, first_token_ms, duration_ms, retries, request, response, cut, usage,
            losses, error, base_response, base_number, base_shared
        FROM transcripts
        WHERE tenant_id = $1 AND response_id = $2 AND (CAST($3 AS bigint) IS NULL OR number = $3) ORDER BY number";
    /// What a call's request builds on, with the distance to it.
    TenantSql CALL_BASES = "
        WITH RECURSIVE path (request, base_response, base_number, base_shared, depth) AS (
            SELECT request, base_response, base_number, base_shared, CAST(0 AS bigint) FROM transcripts
            WHERE tenant_id = $1 AND response_id = $2 AND number = $3
            UNION ALL
            SELECT earlier.request, earlier.base_response, earlier.base_number, earlier.base_shared, path.depth + 1
            FROM path JOIN transcripts earlier ON earlier.tenant_id = $1 AND earlier.response_id = path.base_response
                AND earlier.number = path.base_number
        )
        SELECT request, base_response, base_number, base_shared, depth FROM path";
    TenantSql TURN_EVENTS = "
        SELECT first, last, frames FROM stream_events
        WHERE tenant_id = $1 AND response_id = $2 AND last > $3 ORDER BY first LIMIT $4";
    TenantSql RESPONSE_OF_STEM = "SELECT id FROM responses WHERE tenant_id = $1 AND stem = $2";
    TenantSql RESPONSE_OF_CALL = "
        SELECT response_id FROM tool_runs WHERE tenant_id = $1 AND call_id = $2 ORDER BY started_at DESC LIMIT 1";
    TenantSql RECENT_TURNS = "
        SELECT created_at, response_id, status, error, ended_at, first_token_ms FROM turns
        WHERE tenant_id = $1 AND created_at >= $2 ORDER BY created_at DESC, response_id DESC LIMIT $3";
    TenantSql ANY_TURN = "SELECT 1 FROM turns WHERE tenant_id = $1 LIMIT 1";
    /// A bounded number of turns is looked at.
    TenantSql TURN_BEFORE = "
        SELECT response_id FROM (
            SELECT session_id, response_id FROM turns WHERE tenant_id = $1 AND created_at < $3
            ORDER BY created_at DESC, response_id DESC LIMIT $4
        ) AS looked_at
        WHERE session_id = $2 LIMIT 1";
}

/// Chunks of events that one read returns at most. A chunk has up to about 32 KiB.
const CHUNKS: usize = 64;

/// Turns among which the one before another turn of its session is looked for.
const LOOKED_AT: u64 = 10_000;

impl<E: SqlEngine> TurnDetailStore for SqlStore<E> {
    fn turn_calls<'a>(
        &'a self,
        admin: Admin<'a>,
        response_id: &'a str,
        bodies: CallBodies,
    ) -> Stored<'a, Vec<StoredCall>> {
        let arguments = (TenantKey::of_admin(admin), response_id.to_owned(), bodies);
        self.engine.read(arguments, |connection, (tenant, response_id, bodies)| {
            Box::pin(async move {
                let only = match *bodies {
                    CallBodies::None => {
                        return connection.tenant(*tenant, CALL_HEADS, values![response_id]).all(call_head).await;
                    }
                    CallBodies::All => None,
                    CallBodies::Of(number) => Some(number),
                };
                let stored = connection.tenant(*tenant, CALLS, values![response_id, only]).all(rows::transcript);
                let mut calls = Vec::new();
                for call in stored.await? {
                    calls.push(whole(connection, *tenant, call).await?);
                }
                Ok(calls)
            })
        })
    }

    fn turn_events<'a>(
        &'a self,
        admin: Admin<'a>,
        response_id: &'a str,
        after: Option<u64>,
        bytes: usize,
    ) -> Stored<'a, Vec<EventChunk>> {
        let after = after.map_or(-1, |after| i64::try_from(after).unwrap_or(i64::MAX));
        let arguments = (TenantKey::of_admin(admin), response_id.to_owned(), after, bytes);
        self.engine.read(arguments, |connection, (tenant, response_id, after, bytes)| {
            Box::pin(async move {
                let (mut after, mut size, mut all) = (*after, 0, Vec::new());
                // A few at a time, because the size of a chunk is known only when it was read.
                loop {
                    let values = values![response_id, after, CHUNKS / 8];
                    let chunks = connection.tenant(*tenant, TURN_EVENTS, values).all(event_chunk).await?;
                    let Some(last) = chunks.last().map(|chunk| chunk.last) else { return Ok(all) };
                    for chunk in chunks {
                        size += chunk.frames.len();
                        all.push(chunk);
                        if size >= *bytes || all.len() >= CHUNKS {
                            return Ok(all);
                        }
                    }
                    after = i64::try_from(last).unwrap_or(i64::MAX);
                }
            })
        })
    }

    fn response_of_item<'a>(&'a self, admin: Admin<'a>, stem: Stem) -> Stored<'a, Option<String>> {
        self.engine.read((TenantKey::of_admin(admin), stem), |connection, (tenant, stem)| {
            Box::pin(connection.tenant(*tenant, RESPONSE_OF_STEM, values![stem.as_str()]).first(|row| row.get(0)))
        })
    }

    fn response_of_call<'a>(&'a self, admin: Admin<'a>, call_id: &'a str) -> Stored<'a, Option<String>> {
        let arguments = (TenantKey::of_admin(admin), call_id.to_owned());
        self.engine.read(arguments, |connection, (tenant, call_id)| {
            Box::pin(connection.tenant(*tenant, RESPONSE_OF_CALL, values![call_id]).first(|row| row.get(0)))
        })
    }

    fn recent_turns<'a>(
        &'a self,
        of: TurnsOf<'a>,
        from_ms: u64,
        limit: usize,
        listed: usize,
    ) -> Stored<'a, RecentTurns> {
        let arguments = (ListedTenants::of(of), from_ms, limit, listed);
        self.engine.read(arguments, |connection, (tenants, from_ms, limit, listed)| {
            Box::pin(async move {
                let mut recent = RecentTurns::default();
                for tenant in tenants.list(connection).await? {
                    let turns = connection.tenant(tenant, RECENT_TURNS, values![*from_ms, *limit]).all(turn_facts);
                    let turns = turns.await?;
                    recent.running.extend(rows_of(connection, tenant, &turns, *listed, TurnFacts::runs).await?);
                    recent.failed.extend(rows_of(connection, tenant, &turns, *listed, TurnFacts::failed).await?);
                    turns.into_iter().for_each(|turn| turn.count(&mut recent));
                }
                recent.durations_ms.sort_unstable();
                recent.first_tokens_ms.sort_unstable();
                for rows in [&mut recent.running, &mut recent.failed] {
                    rows.sort_by_key(|row| std::cmp::Reverse(row.created_at_ms));
                    rows.truncate(*listed);
                }
                Ok(recent)
            })
        })
    }

    fn has_turns<'a>(&'a self, of: TurnsOf<'a>) -> Stored<'a, bool> {
        self.engine.read(ListedTenants::of(of), |connection, tenants| {
            Box::pin(async move {
                for tenant in tenants.list(connection).await? {
                    if connection.tenant(tenant, ANY_TURN, []).exists().await? {
                        return Ok(true);
                    }
                }
                Ok(false)
            })
        })
    }

    fn turn_before<'a>(&'a self, admin: Admin<'a>, session_id: &'a str, before_ms: u64) -> Stored<'a, Option<String>> {
        let arguments = (TenantKey::of_admin(admin), session_id.to_owned(), before_ms);
        self.engine.read(arguments, |connection, (tenant, session_id, before_ms)| {
            let values = values![session_id, *before_ms, LOOKED_AT];
            Box::pin(connection.tenant(*tenant, TURN_BEFORE, values).first(|row| row.get(0)))
        })
    }
}

/// Reads what `CALL_HEADS` gives.
fn call_head(row: &dyn SqlRow) -> Result<StoredCall, StoreError> {
    let call = Transcript {
        number: row.get(0)?,
        upstream: row.get(1)?,
        model: row.get(2)?,
        asked_at_ms: row.get(3)?,
        first_token_ms: row.optional(4)?,
        duration_ms: row.get(5)?,
        retries: row.get(6)?,
        base: None,
        request: Bytes::new(),
        response: Bytes::new(),
        cut: row.get(7)?,
        usage: row.optional(8)?,
        losses: row.optional(9)?.map(rows::strings).unwrap_or_default(),
        error: row.optional(10)?,
    };
    Ok(StoredCall { call, request_bytes: row.get(11)?, response_bytes: row.get(12)? })
}

/// A call with its whole request.
async fn whole<C: SqlConnection>(
    connection: &C,
    tenant: TenantKey,
    mut call: Transcript,
) -> Result<StoredCall, C::Failure> {
    let mut parts = RequestParts::of(&mut call);
    if let Some(base) = parts.next() {
        let values = values![&base.response_id, base.number];
        let read = |row: &dyn SqlRow| Ok((row.get::<u64>(4)?, (row.get::<Bytes>(0)?, rows::base(row, 1)?)));
        let mut earlier = connection.tenant(tenant, CALL_BASES, values).all(read).await?;
        earlier.sort_by_key(|(depth, _)| *depth);
        let mut earlier = earlier.into_iter().map(|(_, part)| part);
        while parts.next().is_some() {
            parts.push(earlier.next());
        }
    }
    (call.request, call.base) = parts.whole();
    let (request_bytes, response_bytes) = (call.request.len() as u64, call.response.len() as u64);
    Ok(StoredCall { call, request_bytes, response_bytes })
}

fn event_chunk(row: &dyn SqlRow) -> Result<EventChunk, StoreError> {
    Ok(EventChunk { first: row.get(0)?, last: row.get(1)?, frames: row.get(2)? })
}

/// What `RECENT_TURNS` reads of a turn.
struct TurnFacts {
    created_at_ms: u64,
    response_id: String,
    status: String,
    error: Option<String>,
    ended_at_ms: Option<u64>,
    first_token_ms: Option<u64>,
}

impl TurnFacts {
    fn runs(&self) -> bool {
        self.ended_at_ms.is_none()
    }

    fn failed(&self) -> bool {
        self.status == Status::Failed.name()
    }

    fn count(self, recent: &mut RecentTurns) {
        recent.looked_at += 1;
        recent.durations_ms.extend(self.ended_at_ms.map(|ended| ended.saturating_sub(self.created_at_ms)));
        recent.first_tokens_ms.extend(self.first_token_ms);
        if self.failed() {
            *recent.errors.entry(self.error.unwrap_or_default()).or_default() += 1;
        }
    }
}

fn turn_facts(row: &dyn SqlRow) -> Result<TurnFacts, StoreError> {
    Ok(TurnFacts {
        created_at_ms: row.get(0)?,
        response_id: row.get(1)?,
        status: row.get(2)?,
        error: row.optional(3)?,
        ended_at_ms: row.optional(4)?,
        first_token_ms: row.optional(5)?,
    })
}

/// The rows of the first of the turns that fit.
async fn rows_of<C: SqlConnection>(
    connection: &C,
    tenant: TenantKey,
    turns: &[TurnFacts],
    limit: usize,
    fits: fn(&TurnFacts) -> bool,
) -> Result<Vec<ListedTurn>, C::Failure> {
    let mut rows = Vec::new();
    for turn in turns.iter().filter(|turn| fits(turn)).take(limit) {
        let values = values![turn.created_at_ms, &turn.response_id];
        rows.extend(connection.tenant(tenant, LISTED_TURN, values).first(listed_turn).await?);
    }
    Ok(rows)
}
