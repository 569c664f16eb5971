//! The counters of a limit: what is asked for, reserved, settled and released.
//!
//! Invariants, which the property test checks: what is used and reserved never exceeds the limit, unless a call used more than
//! it had reserved; and when nothing is reserved any more, what is used is the sum of what the calls of the window used.

use amalgam_summary::{minute, minute_end};

use super::refusal::{LimitReason, LimitRefusal};
use crate::{Budget, Cost, LimitRules, LimitSubject, RateLimits, RateWindow};

/// The thresholds of a budget that are announced, in per cent.
const ALERTS: [u64; 2] = [80, 100];

/// A limit with its counters, as a row of the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRecord {
    /// The subject of the limit.
    pub subject: LimitSubject,
    /// The rules.
    pub rules: LimitRules,
    /// The used and reserved amounts.
    pub counters: LimitCounters,
    /// Made with the row. Holds of an earlier row of the same subject do not change this one.
    pub generation: i64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// The used and reserved amounts of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitCounters {
    /// The minute that requests and tokens are counted for.
    pub minute: u64,
    /// Turns that began in the minute.
    pub requests: u64,
    /// Tokens of calls that began in the minute and have ended.
    pub tokens: u64,
    /// Tokens that running calls of the minute have reserved.
    pub tokens_reserved: u64,
    /// Turns that run.
    pub in_flight: u64,
    /// The day or month that the budget is counted for.
    pub period: u64,
    /// Increases when the budget begins to count in another unit or period.
    pub epoch: u64,
    /// The amount that calls of the period have used, in the unit of the budget.
    pub spent: u64,
    /// The amount that running calls of the period have reserved.
    pub spent_reserved: u64,
    /// The highest threshold of the period that was announced, in per cent.
    pub alerted: u64,
}

/// The demand of a turn or a model call on the limits that apply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitDemand {
    /// Whether it is a new request.
    pub request: bool,
    /// Whether a turn begins to run.
    pub turn: bool,
    /// The most tokens that a call is expected to use.
    pub tokens: u64,
    /// The most that it is expected to cost, if its model has a price.
    pub cost: Option<Cost>,
    /// Whether a model is called: only then tokens and cost are checked.
    pub call: bool,
}

/// The amounts that a call has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsedAmounts {
    /// Tokens of the prompt and the answer.
    pub tokens: u64,
    /// The cost; if it is unknown, budgets in money count what was reserved.
    pub cost: Option<Cost>,
}

/// The amounts that a hold has reserved of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldShare {
    /// The limit.
    pub subject: LimitSubject,
    /// The generation of its row.
    pub generation: i64,
    /// Whether the hold counts as a running turn.
    pub turn: bool,
    /// Whether the hold is for a model call.
    pub call: bool,
    /// The minute that tokens are reserved in.
    pub minute: u64,
    /// The reserved tokens.
    pub tokens: u64,
    /// The period that the budget is reserved in.
    pub period: u64,
    /// The epoch of the budget.
    pub epoch: u64,
    /// The reserved amount of the budget.
    pub amount: u64,
}

impl LimitRecord {
    /// A limit of which nothing is used yet.
    pub fn new(subject: LimitSubject, rules: LimitRules, generation: i64, now_ms: u64) -> Self {
        Self { subject, rules, counters: LimitCounters::default(), generation, updated_at_ms: now_ms }
    }

    /// Replaces the rules. The budget restarts at zero if it counts another unit or period; all other counters
    /// continue.
    pub fn change(&mut self, rules: LimitRules, now_ms: u64) {
        let kind = |rules: &LimitRules| rules.budget.map(|budget| (budget.unit, budget.period));
        let budget_changed = kind(&self.rules) != kind(&rules);
        let raised = self.rules.budget.map(|budget| budget.amount) != rules.budget.map(|budget| budget.amount);
        let counters = &mut self.counters;
        if budget_changed {
            let epoch = counters.epoch + 1;
            (counters.period, counters.spent, counters.spent_reserved, counters.epoch) = (0, 0, 0, epoch);
        }
        if budget_changed || raised {
            counters.alerted = 0;
        }
        self.rules = rules;
        self.updated_at_ms = now_ms;
    }

    /// Begins the windows that a time is in. A time before the current window, of a process whose clock is slow, counts
    /// in the current one.
    pub fn roll(&mut self, now_ms: u64) {
        let counters = &mut self.counters;
        let minute = minute(now_ms);
        if minute > counters.minute {
            (counters.minute, counters.requests, counters.tokens, counters.tokens_reserved) = (minute, 0, 0, 0);
        }
        let period = self.rules.budget.map_or(0, |budget| budget.period.number(now_ms));
        if period > counters.period {
            (counters.period, counters.spent, counters.spent_reserved, counters.alerted) = (period, 0, 0, 0);
        }
    }

    /// Whether the limit allows a demand; call [`Self::roll`] before.
    pub fn check(&self, demand: &LimitDemand, now_ms: u64) -> Result<(), LimitRefusal> {
        let (rules, counters) = (&self.rules, &self.counters);
        let until_next_minute = minute_end(counters.minute).saturating_sub(now_ms);
        let requests = rules.requests_per_minute.filter(|limit| demand.request && counters.requests >= *limit);
        if let Some(limit) = requests {
            return Err(self.refuse(LimitReason::Requests { limit }, (limit > 0).then_some(until_next_minute)));
        }
        let in_flight = rules.in_flight.filter(|limit| demand.turn && counters.in_flight >= *limit);
        if let Some(limit) = in_flight {
            return Err(self.refuse(LimitReason::InFlight { limit }, Some(IN_FLIGHT_RETRY_MS)));
        }
        if !demand.call {
            return Ok(());
        }
        if let Some(limit) = rules.tokens_per_minute {
            let taken = counters.tokens.saturating_add(counters.tokens_reserved);
            if taken.saturating_add(demand.tokens) > limit {
                let needed = demand.tokens;
                let retry = (needed <= limit).then_some(until_next_minute);
                return Err(self.refuse(LimitReason::Tokens { limit, taken, needed }, retry));
            }
        }
        let Some(budget) = rules.budget else { return Ok(()) };
        let Some(needed) = budget.share(demand.tokens, demand.cost) else {
            return Err(self.refuse(LimitReason::NotPriced, None));
        };
        let (spent, reserved) = (counters.spent, counters.spent_reserved);
        let left = budget.amount.saturating_sub(spent);
        if needed > left {
            let end = budget.period.end(counters.period).map(|end| end.saturating_sub(now_ms));
            let retry = end.filter(|_| needed <= budget.amount && budget.amount > 0);
            return Err(self.refuse(LimitReason::BudgetSpent { budget, spent, needed }, retry));
        }
        if needed > left.saturating_sub(reserved) {
            return Err(
                self.refuse(LimitReason::BudgetReserved { budget, spent, reserved, needed }, Some(RESERVED_RETRY_MS))
            );
        }
        Ok(())
    }

    /// Reserves what [`Self::check`] has allowed.
    pub fn reserve(&mut self, demand: &LimitDemand) -> HoldShare {
        let counters = &mut self.counters;
        counters.requests = counters.requests.saturating_add(u64::from(demand.request));
        counters.in_flight = counters.in_flight.saturating_add(u64::from(demand.turn));
        let (mut tokens, mut amount) = (0, 0);
        if demand.call {
            if self.rules.tokens_per_minute.is_some() {
                tokens = demand.tokens;
                counters.tokens_reserved = counters.tokens_reserved.saturating_add(tokens);
            }
            if let Some(budget) = self.rules.budget {
                amount = budget.share(demand.tokens, demand.cost).unwrap_or_default();
                counters.spent_reserved = counters.spent_reserved.saturating_add(amount);
            }
        }
        HoldShare {
            subject: self.subject.clone(),
            generation: self.generation,
            turn: demand.turn,
            call: demand.call,
            minute: counters.minute,
            tokens,
            period: counters.period,
            epoch: counters.epoch,
            amount,
        }
    }

    /// Ends a hold: books what was used, or what was reserved if that is not known, and releases the reservation. Has no
    /// effect on windows that are over.
    pub fn settle(&mut self, share: &HoldShare, used: Option<UsedAmounts>) {
        if share.generation != self.generation {
            return;
        }
        let counters = &mut self.counters;
        counters.in_flight = counters.in_flight.saturating_sub(u64::from(share.turn));
        if share.call && share.minute == counters.minute {
            counters.tokens_reserved = counters.tokens_reserved.saturating_sub(share.tokens);
            counters.tokens = counters.tokens.saturating_add(used.map_or(share.tokens, |used| used.tokens));
        }
        let Some(budget) = self.rules.budget else { return };
        if share.call && (share.period, share.epoch) == (counters.period, counters.epoch) {
            counters.spent_reserved = counters.spent_reserved.saturating_sub(share.amount);
            let spent = used.and_then(|used| budget.share(used.tokens, used.cost)).unwrap_or(share.amount);
            counters.spent = counters.spent.saturating_add(spent);
        }
    }

    /// The threshold of the budget in per cent that was reached and not announced yet; it counts as announced from now on.
    /// A refusal because the budget is spent reaches 100 %, although a rest may be left that no call fits into.
    pub fn take_alert(&mut self, refused: bool) -> Option<u64> {
        let budget = self.rules.budget?;
        let spent = u128::from(self.counters.spent) * 100;
        let is_reached = |percent: &u64| spent >= u128::from(*percent) * u128::from(budget.amount);
        let reached = match refused {
            true => Some(100),
            false => ALERTS.into_iter().rev().find(is_reached),
        };
        let reached = reached.filter(|percent| *percent > self.counters.alerted)?;
        self.counters.alerted = reached;
        Some(reached)
    }

    /// The remaining amounts of the current minute, for the headers of answers.
    pub fn rate_limits(&self) -> RateLimits {
        let counters = &self.counters;
        let window = |limit: u64, taken: u64| RateWindow {
            limit,
            remaining: limit.saturating_sub(taken),
            resets_at_ms: minute_end(counters.minute),
        };
        let tokens = counters.tokens.saturating_add(counters.tokens_reserved);
        RateLimits {
            requests: self.rules.requests_per_minute.map(|limit| window(limit, counters.requests)),
            tokens: self.rules.tokens_per_minute.map(|limit| window(limit, tokens)),
        }
    }

    /// When the current minute ends.
    pub fn minute_ends_at_ms(&self) -> u64 {
        minute_end(self.counters.minute)
    }

    /// When the current period of the budget ends; none for a total.
    pub fn period_ends_at_ms(&self) -> Option<u64> {
        self.rules.budget.and_then(|budget: Budget| budget.period.end(self.counters.period))
    }

    fn refuse(&self, reason: LimitReason, retry_after_ms: Option<u64>) -> LimitRefusal {
        LimitRefusal { subject: self.subject.clone(), reason, retry_after_ms }
    }
}

/// A turn that runs may end at any time.
const IN_FLIGHT_RETRY_MS: u64 = 1_000;

/// A call that runs may use less than it has reserved.
const RESERVED_RETRY_MS: u64 = 1_000;

#[cfg(test)]
#[path = "counters_tests.rs"]
mod tests;
