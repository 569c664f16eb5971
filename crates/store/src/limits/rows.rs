//! How limits are stored in columns.

use amalgam_core::{
    Budget, BudgetPeriod, BudgetUnit, HoldShare, LimitCounters, LimitKind, LimitRecord, LimitRules, LimitSubject,
    StoreError,
};

use crate::{
    rows::unknown,
    values::{SqlRow, SqlValue, values},
};

/// The order in which rows are locked: that of the primary key.
pub(super) fn lock_order(subject: &LimitSubject) -> (&'static str, i64, &str) {
    (subject.kind.name(), subject.tenant_id, &subject.id)
}

fn kind(name: &str) -> Result<LimitKind, StoreError> {
    LimitKind::named(name).ok_or_else(|| unknown("kind of a limit", name))
}

/// Names, one on each line. An empty list differs from no list.
fn lines(names: &[String]) -> String {
    names.join("\n")
}

fn names(lines: &str) -> Vec<String> {
    lines.split('\n').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The key, the generation, the time and the rules.
pub(super) fn rule_values(record: &LimitRecord) -> [SqlValue<'_>; 13] {
    let LimitRules { requests_per_minute, tokens_per_minute, in_flight, budget, models, tools } = &record.rules;
    values![
        record.subject.kind.name(),
        record.subject.tenant_id,
        &record.subject.id,
        record.generation,
        record.updated_at_ms,
        *requests_per_minute,
        *tokens_per_minute,
        *in_flight,
        budget.map(|budget| budget.amount),
        budget.map(|budget| budget.unit.name()),
        budget.map(|budget| budget.period.name()),
        models.as_deref().map(lines),
        tools.as_deref().map(lines),
    ]
}

/// The key and the counters.
pub(super) fn counter_values(record: &LimitRecord) -> [SqlValue<'_>; 13] {
    let counters = &record.counters;
    values![
        record.subject.kind.name(),
        record.subject.tenant_id,
        &record.subject.id,
        counters.minute,
        counters.requests,
        counters.tokens,
        counters.tokens_reserved,
        counters.in_flight,
        counters.period,
        counters.epoch,
        counters.spent,
        counters.spent_reserved,
        counters.alerted,
    ]
}

pub(super) fn limit(row: &dyn SqlRow) -> Result<LimitRecord, StoreError> {
    let amount: Option<u64> = row.optional(8)?;
    let budget = match amount {
        None => None,
        Some(amount) => {
            let (unit, period): (&str, &str) = (row.get(9)?, row.get(10)?);
            Some(Budget {
                amount,
                unit: BudgetUnit::named(unit).ok_or_else(|| unknown("unit of a budget", unit))?,
                period: BudgetPeriod::named(period).ok_or_else(|| unknown("period of a budget", period))?,
            })
        }
    };
    let list = |column| Ok::<_, StoreError>(row.optional::<&str>(column)?.map(names));
    Ok(LimitRecord {
        subject: LimitSubject { kind: kind(row.get(0)?)?, tenant_id: row.get(1)?, id: row.get(2)? },
        rules: LimitRules {
            requests_per_minute: row.optional(5)?,
            tokens_per_minute: row.optional(6)?,
            in_flight: row.optional(7)?,
            budget,
            models: list(11)?,
            tools: list(12)?,
        },
        counters: LimitCounters {
            minute: row.get(13)?,
            requests: row.get(14)?,
            tokens: row.get(15)?,
            tokens_reserved: row.get(16)?,
            in_flight: row.get(17)?,
            period: row.get(18)?,
            epoch: row.get(19)?,
            spent: row.get(20)?,
            spent_reserved: row.get(21)?,
            alerted: row.get(22)?,
        },
        generation: row.get(3)?,
        updated_at_ms: row.get(4)?,
    })
}

/// A share with the hold that it belongs to.
pub(super) fn share(row: &dyn SqlRow) -> Result<(String, HoldShare), StoreError> {
    let share = HoldShare {
        subject: LimitSubject { kind: kind(row.get(1)?)?, tenant_id: row.get(2)?, id: row.get(3)? },
        generation: row.get(4)?,
        turn: row.get(5)?,
        call: row.get(6)?,
        minute: row.get(7)?,
        tokens: row.get(8)?,
        period: row.get(9)?,
        epoch: row.get(10)?,
        amount: row.get(11)?,
    };
    Ok((row.get(0)?, share))
}
