//! Limits: their rows, reservations and settlements, and imported prices.
//!
//! A reservation locks the rows of all limits that apply, in the order of their subjects, applies the rules of `core`
//! and writes the counters. A settlement deletes the rows of its hold first: only the transaction that deletes them
//! books the used amounts. It then locks the limits in the same order. All transactions take locks in one order, so
//! they cannot deadlock.

mod holds;
mod prices;
mod rows;

use amalgam_core::{
    AuditDraft, LimitRecord, LimitRules, LimitSubject, Operator,
    store::{HoldSettlement, LimitReservation, LimitStore, PriceRecord, ProcessId, ReserveOutcome, Stored},
};

use crate::{
    SqlStore, audit,
    engine::{Repeat, SqlConnection, SqlEngine},
    rows::process_bytes,
    sql::{Declared, shared_statements},
    values::values,
};

pub use holds::settle;
use rows::{limit, rule_values};

/// The topic for changes of limits and imported prices.
const TOPIC: &str = "limits";

shared_statements! {
    OperatorSql LIMIT = "
        SELECT kind, tenant_id, id, generation, updated_at, requests_per_minute, tokens_per_minute, max_in_flight,
            budget_amount, budget_unit, budget_period, models, tools, minute, requests, tokens, tokens_reserved, in_flight,
            period, epoch, spent, spent_reserved, alerted
        FROM limits WHERE kind = $1 AND tenant_id = $2 AND id = $3";
    /// Limits after a subject.
    OperatorSql LIMITS = "
        SELECT kind, tenant_id, id, generation, updated_at, requests_per_minute, tokens_per_minute, max_in_flight,
            budget_amount, budget_unit, budget_period, models, tools, minute, requests, tokens, tokens_reserved, in_flight,
            period, epoch, spent, spent_reserved, alerted
        FROM limits WHERE (kind, tenant_id, id) > ($1, $2, $3) ORDER BY kind, tenant_id, id LIMIT $4";
    /// Like `LIMITS`, for one tenant.
    OperatorSql LIMITS_OF_TENANT = "
        SELECT kind, tenant_id, id, generation, updated_at, requests_per_minute, tokens_per_minute, max_in_flight,
            budget_amount, budget_unit, budget_period, models, tools, minute, requests, tokens, tokens_reserved, in_flight,
            period, epoch, spent, spent_reserved, alerted
        FROM limits WHERE (kind, tenant_id, id) > ($1, $2, $3) AND tenant_id = $5 ORDER BY kind, tenant_id, id LIMIT $4";
    OperatorSql ADD_LIMIT = "
        INSERT INTO limits (kind, tenant_id, id, generation, updated_at, requests_per_minute, tokens_per_minute,
            max_in_flight, budget_amount, budget_unit, budget_period, models, tools, minute, requests, tokens,
            tokens_reserved, in_flight, period, epoch, spent, spent_reserved, alerted)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        ON CONFLICT (kind, tenant_id, id) DO NOTHING";
    OperatorSql CHANGE_LIMIT = "
        UPDATE limits SET generation = $4, updated_at = $5, requests_per_minute = $6, tokens_per_minute = $7,
            max_in_flight = $8, budget_amount = $9, budget_unit = $10, budget_period = $11, models = $12, tools = $13
        WHERE kind = $1 AND tenant_id = $2 AND id = $3";
    OperatorSql FORGET_LIMIT = "DELETE FROM limits WHERE kind = $1 AND tenant_id = $2 AND id = $3";
    OperatorSql LIMITS_VERSION = "SELECT CAST(text AS bigint) FROM memory WHERE name = 'limits_version'";
    OperatorSql RAISE_LIMITS_VERSION = "
        INSERT INTO memory (name, text) VALUES ('limits_version', '1')
        ON CONFLICT (name) DO UPDATE SET text = CAST(CAST(memory.text AS bigint) + 1 AS text)";
}

/// Every statement of these files.
pub(crate) fn all() -> Vec<Declared> {
    [ALL, holds::ALL, prices::ALL].concat()
}

/// Notifies all processes that limits or prices have changed. Comes last before the audit, since it locks a row.
async fn announce_change<C: SqlConnection>(connection: &C) -> Result<(), C::Failure> {
    connection.operator(Operator::of_this_process(), RAISE_LIMITS_VERSION, []).run().await?;
    connection.notify(TOPIC.to_owned()).await
}

impl<E: SqlEngine> LimitStore for SqlStore<E> {
    fn limits_version(&self, operator: Operator) -> Stored<'_, u64> {
        self.engine.read(operator, |connection, operator| {
            Box::pin(async move {
                let version = connection.operator(*operator, LIMITS_VERSION, []).first(|row| row.get(0)).await?;
                Ok(version.unwrap_or_default())
            })
        })
    }

    fn limits<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        after: Option<&'a LimitSubject>,
        limit: usize,
    ) -> Stored<'a, Vec<LimitRecord>> {
        let arguments = (operator, tenant_id, after.cloned(), limit);
        self.engine.read(arguments, |connection, (operator, tenant_id, after, limit)| {
            Box::pin(async move {
                let (kind, of, id) = match after {
                    Some(after) => (after.kind.name(), after.tenant_id, after.id.as_str()),
                    None => ("", i64::MIN, ""),
                };
                let values = values![kind, of, id, *limit];
                let query = match tenant_id {
                    None => connection.operator(*operator, LIMITS, values),
                    Some(tenant_id) => {
                        connection.operator(*operator, LIMITS_OF_TENANT, values.into_iter().chain(values![*tenant_id]))
                    }
                };
                query.all(rows::limit).await
            })
        })
    }

    fn limit<'a>(&'a self, operator: Operator, subject: &'a LimitSubject) -> Stored<'a, Option<LimitRecord>> {
        self.engine.read((operator, subject.clone()), |connection, (operator, subject)| {
            let values = values![subject.kind.name(), subject.tenant_id, &subject.id];
            Box::pin(connection.operator(*operator, LIMIT, values).first(limit))
        })
    }

    fn put_limit(
        &self,
        operator: Operator,
        subject: LimitSubject,
        rules: LimitRules,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'_, LimitRecord> {
        let new = LimitRecord::new(subject, rules, rand::random::<i64>(), now_ms);
        self.engine.transaction(Repeat::Safe, (operator, new, audit), |connection, (operator, new, audit)| {
            Box::pin(async move {
                let added = connection.operator(*operator, ADD_LIMIT, rule_values(new)).run().await?;
                let mut record = new.clone();
                if added == 0 {
                    // Locked from here on. If the row was deleted in between, the next attempt creates it.
                    let Some(mut known) = holds::locked(connection, &new.subject).await? else {
                        return Err(connection.contended("a limit is changed and deleted at the same time"));
                    };
                    known.change(new.rules.clone(), new.updated_at_ms);
                    connection.operator(*operator, CHANGE_LIMIT, rule_values(&known)).run().await?;
                    holds::write_counters(connection, &known).await?;
                    record = known;
                }
                announce_change(connection).await?;
                audit::append(connection, audit).await?;
                Ok(record)
            })
        })
    }

    fn delete_limit(&self, operator: Operator, subject: LimitSubject, audit: AuditDraft) -> Stored<'_, bool> {
        self.engine.transaction(Repeat::Never, (operator, subject, audit), |connection, (operator, subject, audit)| {
            Box::pin(async move {
                let values = values![subject.kind.name(), subject.tenant_id, &subject.id];
                let deleted = connection.operator(*operator, FORGET_LIMIT, values).run().await? == 1;
                if deleted {
                    announce_change(connection).await?;
                }
                audit::append_if(connection, deleted, audit).await
            })
        })
    }

    fn reserve(&self, _: Operator, reservation: LimitReservation) -> Stored<'_, ReserveOutcome> {
        let mut reservation = reservation;
        // The order of locks.
        reservation.subjects.sort_by(|one, other| rows::lock_order(one).cmp(&rows::lock_order(other)));
        reservation.subjects.dedup();
        self.engine.transaction(Repeat::Safe, reservation, |connection, reservation| {
            Box::pin(holds::reserve(connection, reservation))
        })
    }

    fn settle_holds(&self, _: Operator, settlements: Vec<HoldSettlement>) -> Stored<'_, ()> {
        self.engine.transaction(Repeat::Safe, settlements, |connection, settlements| {
            Box::pin(async move { settle(connection, settlements).await })
        })
    }

    fn settle_dead_holds(&self, operator: Operator, now_ms: u64) -> Stored<'_, u64> {
        Box::pin(async move {
            let mut settled = 0;
            loop {
                // Usually there are none, and a read costs less than a transaction that writes.
                let dead = self.engine.read(operator, |connection, operator| {
                    Box::pin(connection.operator(*operator, holds::DEAD_HOLDS, []).all(|row| row.get::<String>(0)))
                });
                let dead = dead.await?;
                if dead.is_empty() {
                    return Ok(settled);
                }
                settled += dead.len() as u64;
                let settlement = |hold_id| HoldSettlement { hold_id, used: None, now_ms };
                self.settle_holds(operator, dead.into_iter().map(settlement).collect()).await?;
            }
        })
    }

    fn holds(&self, operator: Operator, process: ProcessId) -> Stored<'_, Vec<String>> {
        self.engine.read((operator, process), |connection, (operator, process)| {
            let values = values![process_bytes(*process)];
            Box::pin(connection.operator(*operator, holds::HOLDS, values).all(|row| row.get(0)))
        })
    }

    fn put_prices(&self, operator: Operator, prices: Vec<PriceRecord>, audit: AuditDraft) -> Stored<'_, ()> {
        self.engine.transaction(Repeat::Safe, (operator, prices, audit), |connection, (operator, prices, audit)| {
            Box::pin(async move {
                for price in prices {
                    prices::put(connection, *operator, price).await?;
                }
                announce_change(connection).await?;
                audit::append(connection, audit).await
            })
        })
    }

    fn prices<'a>(&'a self, operator: Operator, after: Option<&'a str>, limit: usize) -> Stored<'a, Vec<PriceRecord>> {
        let arguments = (operator, after.unwrap_or_default().to_owned(), limit);
        self.engine.read(arguments, |connection, (operator, after, limit)| {
            Box::pin(connection.operator(*operator, prices::PRICES, values![after, *limit]).all(prices::price))
        })
    }
}
