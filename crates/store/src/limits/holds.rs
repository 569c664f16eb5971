//! Reservations and settlements, each in one transaction.

use std::collections::BTreeMap;

use amalgam_core::{
    Budget, Cost, HoldShare, LimitKind, LimitReason, LimitRecord, LimitSubject, Operator, RateLimits, UsedAmounts, hex,
    store::{HoldSettlement, LimitReservation, ReserveOutcome},
};
use amalgam_protocol::Json;
use sha2::{Digest as _, Sha256};

use super::rows::{self, counter_values, lock_order};
use crate::{
    engine::{SqlConnection, TenantKey},
    notifications,
    rows::process_bytes,
    sql::shared_statements,
    values::values,
    webhooks,
};

shared_statements! {
    OperatorSql WRITE_COUNTERS = "
        UPDATE limits SET minute = $4, requests = $5, tokens = $6, tokens_reserved = $7, in_flight = $8, period = $9,
            epoch = $10, spent = $11, spent_reserved = $12, alerted = $13
        WHERE kind = $1 AND tenant_id = $2 AND id = $3";
    OperatorSql ADD_HOLD = "
        INSERT INTO limit_holds (hold_id, kind, tenant_id, id, generation, process, turn, call, minute, tokens, period, epoch,
            amount, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    pub(super) OperatorSql HOLDS = "SELECT DISTINCT hold_id FROM limit_holds WHERE process = $1";
    OperatorSql HAS_HOLD = "SELECT 1 FROM limit_holds WHERE hold_id = $1 LIMIT 1";
    OperatorSql TAKE_HOLD = "
        DELETE FROM limit_holds WHERE hold_id = $1
        RETURNING hold_id, kind, tenant_id, id, generation, turn, call, minute, tokens, period, epoch, amount";
    OperatorSql OPERATOR_TENANTS = "
        SELECT DISTINCT tenant_id FROM api_keys
        WHERE ' ' || rights || ' ' LIKE '% operator %' AND revoked_at IS NULL
            AND (expires_at IS NULL OR expires_at > $1)
        ORDER BY tenant_id LIMIT 100";
    pub(super) OperatorSql DEAD_HOLDS = "
        SELECT DISTINCT hold_id FROM limit_holds
        WHERE NOT EXISTS (SELECT 1 FROM processes WHERE processes.id = limit_holds.process) ORDER BY hold_id LIMIT 100";
}

/// The tenant that every installation has.
const FIRST_TENANT: i64 = 1;

/// The row of a limit, locked until the transaction ends.
pub(super) async fn locked<C: SqlConnection>(
    connection: &C,
    subject: &LimitSubject,
) -> Result<Option<LimitRecord>, C::Failure> {
    let values = values![subject.kind.name(), subject.tenant_id, &subject.id];
    connection.operator(Operator::of_this_process(), connection.sql().hold_limit, values).first(rows::limit).await
}

pub(super) async fn write_counters<C: SqlConnection>(connection: &C, record: &LimitRecord) -> Result<(), C::Failure> {
    let operator = Operator::of_this_process();
    connection.operator(operator, WRITE_COUNTERS, counter_values(record)).run().await.map(drop)
}

/// Checks all limits and reserves of all, or of none. The subjects are in the order of locks.
pub(super) async fn reserve<C: SqlConnection>(
    connection: &C,
    reservation: &LimitReservation,
) -> Result<ReserveOutcome, C::Failure> {
    let operator = Operator::of_this_process();
    let LimitReservation { hold_id, process, subjects, demand, now_ms } = reservation;
    let mut records = Vec::with_capacity(subjects.len());
    for subject in subjects {
        if let Some(mut record) = locked(connection, subject).await? {
            record.roll(*now_ms);
            records.push(record);
        }
    }
    // After the locks are taken: the first run of a repeated transaction may have committed while this one waited for
    // them.
    if connection.is_repeated() && connection.operator(operator, HAS_HOLD, values![hold_id]).exists().await? {
        return Ok(ReserveOutcome::Granted { held: true, rate_limits: rate_limits(&records) });
    }
    let refusal = records.iter().find_map(|record| record.check(demand, *now_ms).err());
    if let Some(refusal) = refusal {
        if matches!(refusal.reason, LimitReason::BudgetSpent { .. })
            && let Some(record) = records.iter_mut().find(|record| record.subject == refusal.subject)
        {
            announce(connection, record, true, *now_ms).await?;
        }
        return Ok(ReserveOutcome::Refused { refusal, rate_limits: rate_limits(&records) });
    }
    // A request that is only counted reserves nothing.
    let held = (demand.turn || demand.call) && !records.is_empty();
    for record in &mut records {
        let share = record.reserve(demand);
        write_counters(connection, record).await?;
        if !held {
            continue;
        }
        let values = values![
            hold_id,
            share.subject.kind.name(),
            share.subject.tenant_id,
            &share.subject.id,
            share.generation,
            process_bytes(*process),
            share.turn,
            share.call,
            share.minute,
            share.tokens,
            share.period,
            share.epoch,
            share.amount,
            *now_ms,
        ];
        connection.operator(operator, ADD_HOLD, values).run().await?;
    }
    Ok(ReserveOutcome::Granted { held, rate_limits: rate_limits(&records) })
}

fn rate_limits(records: &[LimitRecord]) -> RateLimits {
    records.iter().fold(RateLimits::default(), |tightest, record| tightest.tightest(record.rate_limits()))
}

/// Settles holds inside a transaction. A missing hold was settled before, and changes nothing.
pub async fn settle<C: SqlConnection>(connection: &C, settlements: &[HoldSettlement]) -> Result<(), C::Failure> {
    let operator = Operator::of_this_process();
    let mut settlements: Vec<&HoldSettlement> = settlements.iter().collect();
    settlements.sort_by(|one, other| one.hold_id.cmp(&other.hold_id));
    let mut shares: BTreeMap<(&'static str, i64, String), SubjectShares> = BTreeMap::new();
    let mut now_ms = 0;
    for settlement in settlements {
        now_ms = now_ms.max(settlement.now_ms);
        let taken = connection.operator(operator, TAKE_HOLD, values![&settlement.hold_id]).all(rows::share).await?;
        for (_, share) in taken {
            let (kind, tenant_id, id) = lock_order(&share.subject);
            shares.entry((kind, tenant_id, id.to_owned())).or_default().push((share, settlement.used));
        }
    }
    for of_subject in shares.into_values() {
        let Some((first, _)) = of_subject.first() else { continue };
        let Some(mut record) = locked(connection, &first.subject).await? else { continue };
        let ends_turn = of_subject.iter().any(|(share, _)| share.turn);
        for (share, used) in &of_subject {
            record.settle(share, *used);
        }
        if !announce(connection, &mut record, false, now_ms).await? {
            write_counters(connection, &record).await?;
        }
        if ends_turn && record.rules.in_flight.is_some() {
            connection.notify(record.subject.topic()).await?;
        }
    }
    Ok(())
}

/// The shares of one limit, each with what its hold has used.
type SubjectShares = Vec<(HoldShare, Option<UsedAmounts>)>;

/// Announces a threshold that a budget has reached, and then writes the counters. Returns whether it did.
async fn announce<C: SqlConnection>(
    connection: &C,
    record: &mut LimitRecord,
    refused: bool,
    now_ms: u64,
) -> Result<bool, C::Failure> {
    let Some(budget) = record.rules.budget else { return Ok(false) };
    let Some(percent) = record.take_alert(refused) else { return Ok(false) };
    write_counters(connection, record).await?;
    connection.notify_here(notifications::budget_reached(&record.subject, percent));
    let (id, data) = (event_id(record, percent), event_data(record, budget, percent));
    for tenant_id in informed_tenants(connection, &record.subject, now_ms).await? {
        let tenant = TenantKey::of_row(Operator::of_this_process(), tenant_id);
        webhooks::enqueue_budget_event(connection, tenant, &id, &data, now_ms).await?;
    }
    Ok(true)
}

/// The tenants whose webhook endpoints are told about a budget: its own. The budget of a model is the operator's, so the tenants
/// with an operator's key are told, or the first tenant if no key in the store is one.
async fn informed_tenants<C: SqlConnection>(
    connection: &C,
    subject: &LimitSubject,
    now_ms: u64,
) -> Result<Vec<i64>, C::Failure> {
    if subject.kind != LimitKind::Model {
        return Ok(vec![subject.tenant_id]);
    }
    let operators = connection.operator(Operator::of_this_process(), OPERATOR_TENANTS, values![now_ms]);
    let tenants = operators.all(|row| row.get(0)).await?;
    Ok(if tenants.is_empty() { vec![FIRST_TENANT] } else { tenants })
}

/// The same threshold of the same period is the same event.
fn event_id(record: &LimitRecord, percent: u64) -> String {
    let (subject, counters) = (&record.subject, &record.counters);
    let name = format!(
        "{} {} {} {} {} {percent} {}",
        subject.kind.name(),
        subject.tenant_id,
        record.generation,
        counters.epoch,
        counters.period,
        subject.id
    );
    let digest = hex(&Sha256::digest(name));
    format!("evt_{}", digest.get(..24).unwrap_or(&digest))
}

fn event_data(record: &LimitRecord, budget: Budget, percent: u64) -> String {
    let amount = |amount: u64| match budget.unit {
        amalgam_core::BudgetUnit::Tokens => amount.to_string(),
        amalgam_core::BudgetUnit::Usd => Cost::from_nano_usd(amount).usd().to_string(),
    };
    let subject = &record.subject;
    format!(
        r#"{{"id":{},"tenant_id":{},"threshold":{percent},"amount":{},"used":{},"unit":"{}","period":"{}","resets_at":{}}}"#,
        Json::string(&format!("{}/{}", subject.kind.name(), subject.id)).raw().text(),
        subject.tenant_id,
        amount(budget.amount),
        amount(record.counters.spent),
        budget.unit.name(),
        budget.period.name(),
        record.period_ends_at_ms().map_or("null".to_owned(), |at| (at / 1000).to_string()),
    )
}
