//! Processes: who lives, what waits for one of them, what a dead one left behind.

use amalgam_core::{
    Operator, Scope,
    store::{Buried, ProcessId, ProcessStore, Pruned, QueuedTurn, Reset, Retention, Stored},
};
use bytes::Bytes;

use super::{
    Sqlite, claims,
    failure::Failure,
    job::Transaction,
    journal, prune,
    query::{Tenant, bytes, int, owner_of, uint},
    session_queue, sql,
    turns::process_bytes,
};

impl ProcessStore for Sqlite {
    fn beat(&self, operator: Operator, process: ProcessId, beat: u64) -> Stored<'_, ()> {
        let beaten = self.change(move |transaction| {
            let params: [&dyn rusqlite::ToSql; 2] = [&&process_bytes(process)[..], &int(beat)?];
            transaction.database.operator(operator, sql::BEAT, &params)?.run().map(drop)
        });
        Box::pin(async move {
            beaten.await?;
            // It lives in any case; the next time will do.
            let _ = self.retry_releases().await;
            Ok(())
        })
    }

    fn processes(&self, operator: Operator) -> Stored<'_, Vec<(ProcessId, u64)>> {
        self.read(move |transaction| {
            transaction.database.operator(operator, sql::PROCESSES, &[])?.all(|row| {
                let id: [u8; 16] = row.get(0)?;
                Ok((ProcessId(u128::from_be_bytes(id)), uint(row, 1)?))
            })
        })
    }

    fn bury<'a>(
        &'a self,
        operator: Operator,
        process: ProcessId,
        beat: u64,
        error: fn(&[String]) -> String,
        now_ms: u64,
    ) -> Stored<'a, Option<Buried>> {
        self.change(move |transaction| bury(transaction, operator, process, beat, error, now_ms))
    }

    fn take_queued(&self, operator: Operator, process: ProcessId, limit: usize) -> Stored<'_, Vec<QueuedTurn>> {
        self.change(move |transaction| take_queued(transaction, operator, process, limit))
    }

    fn count_queued(&self, operator: Operator, tenant_id: i64) -> Stored<'_, (u64, u64)> {
        self.read(move |transaction| {
            let counted = transaction.database.operator(operator, sql::COUNT_QUEUED, &[&tenant_id])?;
            Ok(counted.first(|row| Ok((uint(row, 0)?, uint(row, 1)?)))?.unwrap_or_default())
        })
    }

    fn give_back<'a>(&'a self, operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()> {
        let ids = ids.to_vec();
        self.change(move |transaction| {
            let process = process_bytes(process);
            for id in &ids {
                let given = transaction.database.operator(operator, sql::GIVE_BACK, &[&&process[..], id])?.run()?;
                if given == 1 {
                    transaction.notify(id);
                    transaction.notify("");
                }
            }
            Ok(())
        })
    }

    fn held(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<(String, Scope)>> {
        self.read(move |transaction| {
            transaction
                .database
                .operator(operator, sql::HELD, &[&&process_bytes(process)[..]])?
                .all(|row| Ok((row.get(0)?, owner_of(row.get(1)?, row.get(2)?, row.get(3)?)?)))
        })
    }

    fn claims(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<String>> {
        self.read(move |transaction| {
            transaction
                .database
                .operator(operator, sql::CLAIMS_HELD, &[&&process_bytes(process)[..]])?
                .all(|row| Ok(row.get(4)?))
        })
    }

    fn release<'a>(&'a self, operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()> {
        let ids = ids.to_vec();
        self.change(move |transaction| claims::release(transaction, operator, process, Some(&ids)))
    }

    fn prune(&self, operator: Operator, retention: Retention) -> Stored<'_, Pruned> {
        self.change(move |transaction| prune::prune(transaction, operator, retention))
    }

    fn reset(&self, operator: Operator, what: Reset) -> Stored<'_, ()> {
        self.change(move |transaction| prune::reset(transaction, operator, &what))
    }
}

fn bury(
    transaction: &Transaction<'_>,
    operator: Operator,
    process: ProcessId,
    beat: u64,
    error: fn(&[String]) -> String,
    now_ms: u64,
) -> Result<Option<Buried>, Failure> {
    let database = transaction.database;
    let dead = process_bytes(process);
    if database.operator(operator, sql::FORGET_PROCESS, &[&&dead[..], &int(beat)?])?.run()? == 0 {
        return Ok(None);
    }
    let queued: Vec<String> =
        database.operator(operator, sql::REQUEUE_WAITING, &[&&dead[..]])?.all(|row| Ok(row.get(0)?))?;
    let failed = database
        .operator(operator, sql::FAIL_HELD, &[&&dead[..], &error(&[]), &int(now_ms)?])?
        .all(|row| Ok((row.get::<_, i64>(0)?, Tenant::of_row(operator, row.get(1)?), row.get::<_, String>(2)?)))?;
    for (number, tenant, id) in &failed {
        let unknown = journal::unknown(database, *tenant, id)?;
        if !unknown.is_empty() {
            database.operator(operator, sql::TELL_ERROR, &[number, &error(&unknown)])?.run()?;
        }
    }
    claims::release(transaction, operator, process, None)?;
    session_queue::release_all_of(transaction, operator, process, error)?;
    let buried = Buried { failed: failed.len() as u64, queued: queued.len() as u64 };
    if buried.queued > 0 {
        transaction.notify("");
    }
    for id in queued.into_iter().chain(failed.into_iter().map(|(_, _, id)| id)) {
        transaction.notify(id);
    }
    Ok(Some(buried))
}

fn take_queued(
    transaction: &Transaction<'_>,
    operator: Operator,
    process: ProcessId,
    limit: usize,
) -> Result<Vec<QueuedTurn>, Failure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut taken = transaction
        .database
        .operator(operator, sql::TAKE_QUEUED, &[&&process_bytes(process)[..], &limit])?
        .all(|row| {
            let number: i64 = row.get(0)?;
            let turn = QueuedTurn {
                scope: owner_of(row.get(1)?, row.get(2)?, row.get(7)?)?,
                response_id: row.get(3)?,
                created_at_ms: uint(row, 4)?,
                request: Bytes::copy_from_slice(bytes(row, 5)?),
                streamed: row.get(6)?,
            };
            Ok((number, turn))
        })?;
    // Rows that an update gives back have no order of their own.
    taken.sort_by_key(|(number, _)| *number);
    Ok(taken.into_iter().map(|(_, turn)| turn).collect())
}
