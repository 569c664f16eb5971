//! Processes that share the database: their heartbeats, queued turns, and the turns and claims of dead processes.
use std::{collections::HashMap, sync::PoisonError};

use amalgam_core::{
    Operator, Scope, StoreError, TraceContext, TurnOrigin, Wire,
    store::{ProcessId, ProcessStore, PruneCounts, QueuedTurn, RecoveryCounts, Reset, Retention, Stored},
};
use amalgam_store::{
    rows::{self, process_bytes},
    statements,
};
use bytes::Bytes;
use tokio_postgres::Row;

use super::{
    Postgres,
    connection::{Connection, FailureKind, PostgresFailure},
    job::{signed, unsigned},
    journal,
    pool::Lease,
    prune, session_queue,
    turn_list::FAIL_TURNS,
};

statements! {
    OperatorSql BEAT = "
        INSERT INTO processes (id, beat) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET beat = excluded.beat";
    OperatorSql PROCESSES = "SELECT id, beat FROM processes ORDER BY id";
    OperatorSql FORGET_PROCESS = "DELETE FROM processes WHERE id = $1 AND beat = $2";
    OperatorSql REQUEUE = "
        UPDATE responses SET process = NULL, mark = 0
        WHERE process = $1 AND status = 'queued' AND request IS NOT NULL
        RETURNING id";
    OperatorSql FAIL = "
        UPDATE responses SET status = 'failed', error = $2, ended_at = $3, process = NULL, request = NULL, mark = 0
        WHERE process = $1
        RETURNING id, tenant_id, stem, created_at";
    OperatorSql SET_ERRORS = "
        UPDATE responses SET error = new.error
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) AS new (tenant_id, stem, id, error)
        WHERE responses.tenant_id = new.tenant_id AND responses.stem = new.stem AND responses.id = new.id";
    /// A response that continues answers its request itself; the other claims are released. A response is looked up by
    /// its stem, which its id ends with.
    OperatorSql ANSWER_CLAIMS = "
        UPDATE idempotency SET process = NULL, status = NULL, content_type = NULL, body = NULL
        WHERE process = $1 AND ($2::text[] IS NULL OR response_id = ANY ($2)) AND EXISTS (SELECT FROM responses r
            WHERE r.tenant_id = idempotency.tenant_id AND r.stem = left(right(idempotency.response_id, 24), 16)
                AND r.id = idempotency.response_id AND r.status <> 'failed')
        RETURNING response_id";
    OperatorSql FREE_CLAIMS = "
        DELETE FROM idempotency WHERE process = $1 AND ($2::text[] IS NULL OR response_id = ANY ($2))
        RETURNING response_id";
    OperatorSql CLAIMS_HELD = "SELECT response_id FROM idempotency WHERE process = $1";
    OperatorSql NOTIFY = "SELECT pg_notify('amalgam_changed', changed.id) FROM unnest($1::text[]) AS changed (id)";
    OperatorSql TAKE_QUEUED = "
        WITH waiting AS (
            SELECT tenant_id, stem, id FROM responses WHERE status = 'queued' AND process IS NULL
            ORDER BY number LIMIT $2 FOR UPDATE SKIP LOCKED
        )
        UPDATE responses SET process = $1, mark = $3 FROM waiting
        WHERE responses.tenant_id = waiting.tenant_id AND responses.stem = waiting.stem AND responses.id = waiting.id";
    /// The turns that were taken under a mark, by any process.
    OperatorSql TAKEN = "
        SELECT r.id, r.tenant_id, r.user_id, t.state, r.created_at, r.request, r.streamed, listed.wire,
            listed.request_id, listed.key_id, listed.trace
        FROM responses r LEFT JOIN tenants t ON t.id = r.tenant_id
            LEFT JOIN turns listed ON listed.tenant_id = r.tenant_id AND listed.created_at = r.created_at
                AND listed.response_id = r.id
        WHERE r.process = $1 AND r.mark = $2 AND r.status = 'queued' ORDER BY r.number";
    OperatorSql COUNT_QUEUED = "
        SELECT count(*) FILTER (WHERE tenant_id = $1), count(*) FROM responses
        WHERE status = 'queued' AND process IS NULL";
    OperatorSql GIVE_BACK = "
        UPDATE responses SET process = NULL, status = 'queued', mark = 0
        WHERE process = $1 AND id = ANY ($2) AND background AND request IS NOT NULL
        RETURNING id";
    OperatorSql HELD = "
        SELECT r.id, r.tenant_id, r.user_id, t.state
        FROM responses r LEFT JOIN tenants t ON t.id = r.tenant_id
        WHERE r.process = $1 ORDER BY r.number";
}

impl ProcessStore for Postgres {
    fn beat(&self, _operator: Operator, process: ProcessId, beat: u64) -> Stored<'_, ()> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            connection.execute(BEAT, &[&process_bytes(process).as_slice(), &signed(beat)]).await.map(drop)
        }))
    }

    fn processes(&self, _operator: Operator) -> Stored<'_, Vec<(ProcessId, u64)>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let known = connection.rows(PROCESSES, &[]).await?;
            known.iter().map(|row| Ok((rows::process_id(row.try_get(0)?)?, unsigned(row.try_get(1)?)))).collect()
        }))
    }

    fn end_dead_process<'a>(
        &'a self,
        _operator: Operator,
        process: ProcessId,
        beat: u64,
        error: fn(&[String]) -> String,
        now_ms: u64,
    ) -> Stored<'a, Option<RecoveryCounts>> {
        Box::pin(async move {
            let recovered = self.pool.once(move |mut connection: Lease| async move {
                connection.begin().await?;
                let recovered = end_dead_process(&connection, process, beat, error, now_ms).await;
                connection.end(recovered).await
            });
            let Some((recovered, changed)) = recovered.await? else { return Ok(None) };
            self.notifications.notify(changed.iter().map(String::as_str));
            Ok(Some(recovered))
        })
    }

    fn take_queued(&self, _operator: Operator, process: ProcessId, limit: usize) -> Stored<'_, Vec<QueuedTurn>> {
        Box::pin(async move {
            let mut turns = self.taken_before(process).await?;
            if turns.len() >= limit {
                return Ok(turns);
            }
            // If the answer is lost, the mark finds the taken turns.
            let mark = rand::random::<i64>();
            let most = i64::try_from(limit - turns.len()).unwrap_or(i64::MAX);
            let take = move |connection: Lease| async move { take(&connection, process, most, mark).await };
            let taken = self.pool.attempt(&take, false);
            let unsettled = || self.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
            match taken.await? {
                Ok(taken) => turns.extend(taken),
                Err(failure) if failure.kind() == FailureKind::Disconnected => {
                    unsettled().push(mark);
                    turns.extend(self.taken_before(process).await?);
                }
                Err(failure) => return Err(failure.into()),
            }
            Ok(turns)
        })
    }

    fn count_queued(&self, _operator: Operator, tenant_id: i64) -> Stored<'_, (u64, u64)> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let counted = connection.row(COUNT_QUEUED, &[&tenant_id]).await?;
            let count = |row: &Row, column| row.try_get(column).map(unsigned);
            Ok(match counted {
                Some(row) => (count(&row, 0)?, count(&row, 1)?),
                None => (0, 0),
            })
        }))
    }

    fn give_back<'a>(&'a self, _operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()> {
        Box::pin(async move {
            let given = self.pool.repeatably(move |mut connection: Lease| async move {
                connection.begin().await?;
                let given = async {
                    let rows = connection.rows(GIVE_BACK, &[&process_bytes(process).as_slice(), &ids]).await?;
                    let mut changed = ids_from(&rows)?;
                    if !changed.is_empty() {
                        changed.push(String::new());
                        connection.rows(NOTIFY, &[&changed]).await?;
                    }
                    Ok(changed)
                };
                let given = given.await;
                connection.end(given).await
            });
            let changed = given.await?;
            self.notifications.notify(changed.iter().map(String::as_str));
            Ok(())
        })
    }

    fn held(&self, _operator: Operator, process: ProcessId) -> Stored<'_, Vec<(String, Scope)>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let held = connection.rows(HELD, &[&process_bytes(process).as_slice()]).await?;
            held.iter().map(|row| Ok((row.try_get(0)?, owner_from(row)?))).collect()
        }))
    }

    fn claims(&self, _operator: Operator, process: ProcessId) -> Stored<'_, Vec<String>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            ids_from(&connection.rows(CLAIMS_HELD, &[&process_bytes(process).as_slice()]).await?)
        }))
    }

    fn release<'a>(&'a self, _operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()> {
        Box::pin(async move {
            let released = self.pool.repeatably(move |mut connection: Lease| async move {
                connection.begin().await?;
                let released = async {
                    let changed = release(&connection, process_bytes(process).as_slice(), Some(ids)).await?;
                    if !changed.is_empty() {
                        connection.rows(NOTIFY, &[&changed]).await?;
                    }
                    Ok(changed)
                };
                let released = released.await;
                connection.end(released).await
            });
            let changed = released.await?;
            self.notifications.notify(changed.iter().map(String::as_str));
            Ok(())
        })
    }

    fn prune(&self, _operator: Operator, retention: Retention) -> Stored<'_, PruneCounts> {
        Box::pin(prune::prune(&self.pool, retention))
    }

    fn reset(&self, _operator: Operator, what: Reset) -> Stored<'_, ()> {
        Box::pin(async move {
            prune::reset(&self.pool, what).await?;
            self.notifications.notify_all();
            Ok(())
        })
    }
}

impl Postgres {
    /// Turns that this process has taken, but whose answer was lost.
    async fn taken_before(&self, process: ProcessId) -> Result<Vec<QueuedTurn>, StoreError> {
        let unsettled = || self.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        let marks: Vec<i64> = unsettled().clone();
        let mut turns = Vec::new();
        for mark in marks {
            let taken =
                self.pool.repeatably(move |connection: Lease| async move { taken(&connection, process, mark).await });
            let taken = taken.await?;
            // Only one of several callers gets the marks.
            let mut unsettled = unsettled();
            let before = unsettled.len();
            unsettled.retain(|known| *known != mark);
            if unsettled.len() < before {
                turns.extend(taken);
            }
        }
        Ok(turns)
    }
}

async fn end_dead_process(
    connection: &Connection,
    dead: ProcessId,
    beat: u64,
    error: fn(&[String]) -> String,
    now_ms: u64,
) -> Result<Option<(RecoveryCounts, Vec<String>)>, PostgresFailure> {
    let dead = process_bytes(dead);
    let dead = dead.as_slice();
    if connection.execute(FORGET_PROCESS, &[&dead, &signed(beat)]).await? == 0 {
        return Ok(None);
    }
    let queued = ids_from(&connection.rows(REQUEUE, &[&dead]).await?)?;
    let failed = connection.rows(FAIL, &[&dead, &error(&[]), &signed(now_ms)]).await?;
    // Read only now: from here on the dead process cannot write, even if it is still running.
    name_tools(connection, &failed, error).await?;
    let tenants: Vec<i64> = failed.iter().map(|row| row.try_get(1)).collect::<Result<_, _>>()?;
    let times: Vec<i64> = failed.iter().map(|row| row.try_get(3)).collect::<Result<_, _>>()?;
    let ids: Vec<&str> = failed.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    connection.execute(FAIL_TURNS, &[&tenants, &times, &ids, &signed(now_ms)]).await?;
    let failed = ids_from(&failed)?;
    let released = release(connection, dead, None).await?;
    let sessions = session_queue::release_all_of(connection, dead, error).await?;
    let recovered = RecoveryCounts { failed: failed.len() as u64, queued: queued.len() as u64 };
    let waits = (!queued.is_empty()).then(String::new);
    let changed: Vec<String> = [queued, failed, released, sessions].into_iter().flatten().chain(waits).collect();
    if !changed.is_empty() {
        connection.rows(NOTIFY, &[&changed]).await?;
    }
    Ok(Some((recovered, changed)))
}

/// Settles the claims of a process, all or those for some responses. Returns the responses.
async fn release(
    connection: &Connection,
    process: &[u8],
    only: Option<&[String]>,
) -> Result<Vec<String>, PostgresFailure> {
    let mut released = ids_from(&connection.rows(ANSWER_CLAIMS, &[&process, &only]).await?)?;
    released.extend(ids_from(&connection.rows(FREE_CLAIMS, &[&process, &only]).await?)?);
    Ok(released)
}

/// Adds to the errors the names of the tools that may have run.
async fn name_tools(
    connection: &Connection,
    failed: &[Row],
    error: fn(&[String]) -> String,
) -> Result<(), PostgresFailure> {
    let (mut keys, mut responses) = (Vec::with_capacity(failed.len()), HashMap::with_capacity(failed.len()));
    for row in failed {
        let key: (i64, &str) = (row.try_get(1)?, row.try_get(0)?);
        keys.push(key);
        responses.insert(key, row.try_get::<_, &str>(2)?);
    }
    let unknown = journal::unknown(connection, &keys).await?;
    if unknown.is_empty() {
        return Ok(());
    }
    let (mut tenants, mut stems, mut ids, mut errors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ((tenant_id, id), tools) in &unknown {
        tenants.push(*tenant_id);
        stems.push(responses.get(&(*tenant_id, id.as_str())).copied().unwrap_or_default());
        ids.push(id);
        errors.push(error(tools));
    }
    connection.execute(SET_ERRORS, &[&tenants, &stems, &ids, &errors]).await.map(drop)
}

async fn take(
    connection: &Connection,
    process: ProcessId,
    most: i64,
    mark: i64,
) -> Result<Vec<QueuedTurn>, PostgresFailure> {
    if connection.execute(TAKE_QUEUED, &[&process_bytes(process).as_slice(), &most, &mark]).await? == 0 {
        return Ok(Vec::new());
    }
    taken(connection, process, mark).await
}

async fn taken(connection: &Connection, process: ProcessId, mark: i64) -> Result<Vec<QueuedTurn>, PostgresFailure> {
    let found = connection.rows(TAKEN, &[&process_bytes(process).as_slice(), &mark]).await?;
    found.iter().map(queued_from).collect()
}

fn queued_from(row: &Row) -> Result<QueuedTurn, PostgresFailure> {
    Ok(QueuedTurn {
        scope: owner_from(row)?,
        response_id: row.try_get(0)?,
        created_at_ms: unsigned(row.try_get(4)?),
        request: row.try_get::<_, Option<&[u8]>>(5)?.map(Bytes::copy_from_slice).unwrap_or_default(),
        streamed: row.try_get(6)?,
        // A turn that an earlier version queued is not in the list.
        origin: TurnOrigin {
            wire: row.try_get::<_, Option<&str>>(7)?.and_then(Wire::named).unwrap_or_default(),
            request_id: row.try_get::<_, Option<&str>>(8)?.map(Into::into),
            key_id: row.try_get::<_, Option<&str>>(9)?.map(Into::into),
            trace: row.try_get::<_, Option<&str>>(10)?.and_then(TraceContext::parse),
            ..TurnOrigin::default()
        },
    })
}

/// The owner of a turn, from the second column on.
fn owner_from(row: &Row) -> Result<Scope, PostgresFailure> {
    Ok(rows::owner(row.try_get(1)?, row.try_get(2)?, row.try_get(3)?)?)
}

fn ids_from(rows: &[Row]) -> Result<Vec<String>, PostgresFailure> {
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}
