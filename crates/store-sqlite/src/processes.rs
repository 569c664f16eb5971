//! Processes: their heartbeats, queued turns, and the turns and claims of dead processes.
use amalgam_core::{
    Operator, Scope, TraceContext, TurnOrigin, Wire,
    store::{ProcessId, ProcessStore, PruneCounts, QueuedTurn, RecoveryCounts, Reset, Retention, Stored},
};
use amalgam_store::{
    TenantKey,
    rows::{self, process_bytes},
    statements,
};
use bytes::Bytes;

use super::{
    Sqlite, claims,
    failure::SqliteFailure,
    job::Transaction,
    journal, prune,
    query::{Database, bytes, int, optional_text, text, uint},
    session_queue, turn_list,
};

statements! {
    OperatorSql BEAT = "INSERT INTO processes (id, beat) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET beat = excluded.beat";
    OperatorSql PROCESSES = "SELECT id, beat FROM processes ORDER BY id";
    OperatorSql FORGET_PROCESS = "DELETE FROM processes WHERE id = ?1 AND beat = ?2";
    OperatorSql REQUEUE_WAITING = "
        UPDATE responses SET process = NULL WHERE process = ?1 AND status = 'queued' AND request IS NOT NULL
        RETURNING id";
    OperatorSql FAIL_HELD = "
        UPDATE responses SET status = 'failed', error = ?2, ended_at = ?3, process = NULL, request = NULL
        WHERE process = ?1
        RETURNING number, tenant_id, id, created_at";
    OperatorSql SET_ERROR = "UPDATE responses SET error = ?2 WHERE number = ?1";
    OperatorSql TAKE_QUEUED = "
        UPDATE responses SET process = ?1
        WHERE number IN (
            SELECT number FROM responses WHERE status = 'queued' AND process IS NULL ORDER BY number LIMIT ?2
        )
        RETURNING number, tenant_id, user_id, id, created_at, request, streamed,
            (SELECT state FROM tenants WHERE tenants.id = tenant_id)";
    TenantSql ORIGIN = "
        SELECT wire, request_id, key_id, trace FROM turns WHERE tenant_id = ?1 AND created_at = ?2 AND response_id = ?3";
    OperatorSql COUNT_QUEUED = "
        SELECT count(*) FILTER (WHERE tenant_id = ?1), count(*) FROM responses
        WHERE status = 'queued' AND process IS NULL";
    OperatorSql GIVE_BACK = "
        UPDATE responses SET process = NULL, status = 'queued'
        WHERE process = ?1 AND id = ?2 AND background = 1 AND request IS NOT NULL";
    OperatorSql HELD = "
        SELECT responses.id, tenant_id, user_id, tenants.state
        FROM responses LEFT JOIN tenants ON tenants.id = tenant_id
        WHERE process = ?1 ORDER BY number";
}

impl ProcessStore for Sqlite {
    fn beat(&self, operator: Operator, process: ProcessId, beat: u64) -> Stored<'_, ()> {
        self.write_with(move |transaction| {
            let params: [&dyn rusqlite::ToSql; 2] = [&&process_bytes(process)[..], &int(beat)?];
            transaction.database.operator(operator, BEAT, &params)?.run().map(drop)
        })
    }

    fn processes(&self, operator: Operator) -> Stored<'_, Vec<(ProcessId, u64)>> {
        self.read_with(move |transaction| {
            transaction
                .database
                .operator(operator, PROCESSES, &[])?
                .all(|row| Ok((rows::process_id(bytes(row, 0)?)?, uint(row, 1)?)))
        })
    }

    fn end_dead_process<'a>(
        &'a self,
        operator: Operator,
        process: ProcessId,
        beat: u64,
        error: fn(&[String]) -> String,
        now_ms: u64,
    ) -> Stored<'a, Option<RecoveryCounts>> {
        self.write_with(move |transaction| end_dead_process(transaction, operator, process, beat, error, now_ms))
    }

    fn take_queued(&self, operator: Operator, process: ProcessId, limit: usize) -> Stored<'_, Vec<QueuedTurn>> {
        self.write_with(move |transaction| take_queued(transaction, operator, process, limit))
    }

    fn count_queued(&self, operator: Operator, tenant_id: i64) -> Stored<'_, (u64, u64)> {
        self.read_with(move |transaction| {
            let counted = transaction.database.operator(operator, COUNT_QUEUED, &[&tenant_id])?;
            Ok(counted.first(|row| Ok((uint(row, 0)?, uint(row, 1)?)))?.unwrap_or_default())
        })
    }

    fn give_back<'a>(&'a self, operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()> {
        let ids = ids.to_vec();
        self.write_with(move |transaction| {
            let process = process_bytes(process);
            for id in &ids {
                let given = transaction.database.operator(operator, GIVE_BACK, &[&&process[..], id])?.run()?;
                if given == 1 {
                    transaction.notify(id);
                    transaction.notify("");
                }
            }
            Ok(())
        })
    }

    fn held(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<(String, Scope)>> {
        self.read_with(move |transaction| {
            transaction
                .database
                .operator(operator, HELD, &[&&process_bytes(process)[..]])?
                .all(|row| Ok((row.get(0)?, rows::owner(row.get(1)?, text(row, 2)?, optional_text(row, 3)?)?)))
        })
    }

    fn claims(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<String>> {
        self.read_with(move |transaction| {
            transaction
                .database
                .operator(operator, claims::CLAIMS_HELD, &[&&process_bytes(process)[..]])?
                .all(|row| Ok(row.get(4)?))
        })
    }

    fn release<'a>(&'a self, operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()> {
        let ids = ids.to_vec();
        self.write_with(move |transaction| claims::release(transaction, operator, process, Some(&ids)))
    }

    fn prune(&self, operator: Operator, retention: Retention) -> Stored<'_, PruneCounts> {
        self.write_with(move |transaction| prune::prune(transaction, operator, retention))
    }

    fn reset(&self, operator: Operator, what: Reset) -> Stored<'_, ()> {
        self.write_with(move |transaction| prune::reset(transaction, operator, &what))
    }
}

fn end_dead_process(
    transaction: &Transaction<'_>,
    operator: Operator,
    process: ProcessId,
    beat: u64,
    error: fn(&[String]) -> String,
    now_ms: u64,
) -> Result<Option<RecoveryCounts>, SqliteFailure> {
    let database = transaction.database;
    let dead = process_bytes(process);
    if database.operator(operator, FORGET_PROCESS, &[&&dead[..], &int(beat)?])?.run()? == 0 {
        return Ok(None);
    }
    let queued: Vec<String> =
        database.operator(operator, REQUEUE_WAITING, &[&&dead[..]])?.all(|row| Ok(row.get(0)?))?;
    let failed = database.operator(operator, FAIL_HELD, &[&&dead[..], &error(&[]), &int(now_ms)?])?.all(|row| {
        Ok((
            row.get::<_, i64>(0)?,
            TenantKey::of_row(operator, row.get(1)?),
            row.get::<_, String>(2)?,
            row.get::<_, i64>(3)?,
        ))
    })?;
    for (number, tenant, id, created_at) in &failed {
        turn_list::fail(database, *tenant, *created_at, id, now_ms)?;
        let unknown = journal::unknown(database, *tenant, id)?;
        if !unknown.is_empty() {
            database.operator(operator, SET_ERROR, &[number, &error(&unknown)])?.run()?;
        }
    }
    claims::release(transaction, operator, process, None)?;
    session_queue::release_all_of(transaction, operator, process, error)?;
    let recovered = RecoveryCounts { failed: failed.len() as u64, queued: queued.len() as u64 };
    if recovered.queued > 0 {
        transaction.notify("");
    }
    for id in queued.into_iter().chain(failed.into_iter().map(|(_, _, id, _)| id)) {
        transaction.notify(id);
    }
    Ok(Some(recovered))
}

fn take_queued(
    transaction: &Transaction<'_>,
    operator: Operator,
    process: ProcessId,
    limit: usize,
) -> Result<Vec<QueuedTurn>, SqliteFailure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut taken =
        transaction.database.operator(operator, TAKE_QUEUED, &[&&process_bytes(process)[..], &limit])?.all(|row| {
            let number: i64 = row.get(0)?;
            let turn = QueuedTurn {
                scope: rows::owner(row.get(1)?, text(row, 2)?, optional_text(row, 7)?)?,
                response_id: row.get(3)?,
                created_at_ms: uint(row, 4)?,
                request: Bytes::copy_from_slice(bytes(row, 5)?),
                streamed: row.get(6)?,
                origin: TurnOrigin::default(),
            };
            Ok((number, turn))
        })?;
    for (_, turn) in &mut taken {
        turn.origin = origin(transaction.database, turn)?;
    }
    // An `UPDATE` returns rows in no defined order.
    taken.sort_by_key(|(number, _)| *number);
    Ok(taken.into_iter().map(|(_, turn)| turn).collect())
}

/// The origin of a queued turn. A turn that an earlier version queued is not in the list.
fn origin(database: Database<'_>, turn: &QueuedTurn) -> Result<TurnOrigin, SqliteFailure> {
    let created_at = int(turn.created_at_ms)?;
    let found = database.tenant(TenantKey::of_caller(&turn.scope), ORIGIN, &[&created_at, &turn.response_id])?.first(
        |row| {
            Ok(TurnOrigin {
                wire: Wire::named(text(row, 0)?).unwrap_or_default(),
                request_id: optional_text(row, 1)?.map(Into::into),
                key_id: optional_text(row, 2)?.map(Into::into),
                trace: optional_text(row, 3)?.and_then(TraceContext::parse),
                ..TurnOrigin::default()
            })
        },
    )?;
    Ok(found.unwrap_or_default())
}
