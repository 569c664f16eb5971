//! A store on a SQL engine. The shared part of each trait is in the file of its subject; the writes and reads of turns,
//! and processes, are passed on to the engine.

use std::{ops::Deref, sync::Arc};

use amalgam_core::{
    Admin, BoxFuture, Operator, RawAnswer, Scope, Store, TurnSummary,
    store::{
        Answer, CancelOutcome, Claim, EventTail, IdempotencyKey, Lineage, ProcessId, ProcessStore, PruneCounts,
        QueuedTurn, RecoveryCounts, Reset, ResponseStore, Retention, Stored, StoredResponse, TurnRecord, TurnStore,
        TurnWrite, WriteOutcome,
    },
};
use amalgam_protocol::Json;

use crate::{
    engine::{SqlConnection as _, SqlEngine},
    pending_release::PendingReleases,
    tenant_cache::TenantCache,
};

/// A store on a SQL engine.
#[derive(Debug)]
pub struct SqlStore<E> {
    pub(crate) engine: E,
    pub(crate) pending_releases: PendingReleases,
    pub(crate) tenant_cache: TenantCache,
}

impl<E> SqlStore<E> {
    /// The store on an engine that was opened.
    pub fn new(engine: E) -> Self {
        Self { engine, pending_releases: PendingReleases::default(), tenant_cache: TenantCache::default() }
    }
}

impl<E> Deref for SqlStore<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.engine
    }
}

impl<E: SqlEngine> Store for SqlStore<E> {
    fn changed(&self, response_id: &str) -> BoxFuture<'static, ()> {
        self.engine.changed(response_id)
    }

    fn ping(&self) -> Stored<'_, ()> {
        self.engine.ping()
    }

    fn size(&self, operator: Operator) -> Stored<'_, u64> {
        self.engine.read(operator, |connection, operator| {
            Box::pin(async move {
                let size = connection.operator(*operator, connection.sql().size, []).first(|row| row.get(0)).await?;
                Ok(size.unwrap_or_default())
            })
        })
    }
}

impl<E: SqlEngine> TurnStore for SqlStore<E> {
    fn write<'a>(&'a self, scope: &'a Scope, write: Arc<TurnWrite>) -> Stored<'a, WriteOutcome> {
        self.engine.write(scope, write)
    }

    fn add_unfinished<'a>(&'a self, scope: &'a Scope, lost: Arc<TurnWrite>) -> Stored<'a, ()> {
        self.engine.add_unfinished(scope, lost)
    }

    fn add_summaries(&self, summaries: Vec<TurnSummary>) -> Stored<'_, ()> {
        self.engine.add_summaries(summaries)
    }

    fn claim<'a>(
        &'a self,
        scope: &'a Scope,
        idempotency_key: &'a IdempotencyKey,
        body_hash: [u8; 32],
        response_id: &'a str,
        process: ProcessId,
        now_ms: u64,
    ) -> Stored<'a, Claim> {
        self.engine.claim(scope, idempotency_key, body_hash, response_id, process, now_ms)
    }

    fn settle<'a>(
        &'a self,
        scope: &'a Scope,
        idempotency_key: &'a IdempotencyKey,
        response_id: &'a str,
        answer: Option<Answer>,
    ) -> Stored<'a, ()> {
        self.engine.settle(scope, idempotency_key, response_id, answer)
    }

    fn turn<'a>(&'a self, admin: Admin<'a>, response_id: &'a str) -> Stored<'a, Option<TurnRecord>> {
        self.engine.turn(admin, response_id)
    }
}

impl<E: SqlEngine> ResponseStore for SqlStore<E> {
    fn response<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<StoredResponse>> {
        self.engine.response(scope, id)
    }

    fn lineage<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Lineage>> {
        self.engine.lineage(scope, id)
    }

    fn raw_answer<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<RawAnswer>> {
        self.engine.raw_answer(scope, id)
    }

    fn items<'a>(&'a self, scope: &'a Scope, ids: &'a [String]) -> Stored<'a, Vec<Option<Json>>> {
        self.engine.items(scope, ids)
    }

    fn delete_response<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool> {
        self.engine.delete_response(scope, id)
    }

    fn cancel_response<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<CancelOutcome>> {
        self.engine.cancel_response(scope, id, now_ms)
    }

    fn end_response<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<StoredResponse>> {
        self.engine.end_response(scope, id, now_ms)
    }

    fn events<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        after: Option<u64>,
        bytes: usize,
    ) -> Stored<'a, Option<EventTail>> {
        self.engine.events(scope, id, after, bytes)
    }
}

impl<E: SqlEngine> ProcessStore for SqlStore<E> {
    fn beat(&self, operator: Operator, process: ProcessId, beat: u64) -> Stored<'_, ()> {
        let beaten = self.engine.beat(operator, process, beat);
        Box::pin(async move {
            beaten.await?;
            // The process is alive even if this fails; the next heartbeat retries it.
            let _ = self.retry_releases().await;
            Ok(())
        })
    }

    fn processes(&self, operator: Operator) -> Stored<'_, Vec<(ProcessId, u64)>> {
        self.engine.processes(operator)
    }

    fn end_dead_process<'a>(
        &'a self,
        operator: Operator,
        process: ProcessId,
        beat: u64,
        error: fn(&[String]) -> String,
        now_ms: u64,
    ) -> Stored<'a, Option<RecoveryCounts>> {
        self.engine.end_dead_process(operator, process, beat, error, now_ms)
    }

    fn take_queued(&self, operator: Operator, process: ProcessId, limit: usize) -> Stored<'_, Vec<QueuedTurn>> {
        self.engine.take_queued(operator, process, limit)
    }

    fn count_queued(&self, operator: Operator, tenant_id: i64) -> Stored<'_, (u64, u64)> {
        self.engine.count_queued(operator, tenant_id)
    }

    fn give_back<'a>(&'a self, operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()> {
        self.engine.give_back(operator, process, ids)
    }

    fn held(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<(String, Scope)>> {
        self.engine.held(operator, process)
    }

    fn claims(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<String>> {
        self.engine.claims(operator, process)
    }

    fn release<'a>(&'a self, operator: Operator, process: ProcessId, ids: &'a [String]) -> Stored<'a, ()> {
        self.engine.release(operator, process, ids)
    }

    fn prune(&self, operator: Operator, retention: Retention) -> Stored<'_, PruneCounts> {
        self.engine.prune(operator, retention)
    }

    fn reset(&self, operator: Operator, what: Reset) -> Stored<'_, ()> {
        self.tenant_cache.changing(self.engine.reset(operator, what))
    }
}
