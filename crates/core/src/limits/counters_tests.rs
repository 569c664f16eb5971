use proptest::prelude::*;

use super::*;
use crate::{BudgetPeriod, BudgetUnit};

const DAY_MS: u64 = 86_400_000;

fn limit(rules: LimitRules) -> LimitRecord {
    LimitRecord::new(LimitSubject::key(1, "key_1"), rules, 7, 0)
}

fn budget(amount: u64, unit: BudgetUnit, period: BudgetPeriod) -> LimitRules {
    LimitRules { budget: Some(Budget { amount, unit, period }), ..LimitRules::default() }
}

const TURN: LimitDemand = LimitDemand { request: true, turn: true, tokens: 0, cost: None, call: false };

fn call(tokens: u64) -> LimitDemand {
    LimitDemand { request: false, turn: false, tokens, cost: Some(Cost::from_nano_usd(tokens * 10)), call: true }
}

fn used(tokens: u64) -> Option<UsedAmounts> {
    Some(UsedAmounts { tokens, cost: Some(Cost::from_nano_usd(tokens * 10)) })
}

/// Asks at a time, and reserves what is allowed.
fn ask(record: &mut LimitRecord, demand: LimitDemand, now_ms: u64) -> Result<HoldShare, LimitReason> {
    record.roll(now_ms);
    record.check(&demand, now_ms).map_err(|refusal| refusal.reason)?;
    Ok(record.reserve(&demand))
}

#[test]
fn requests_are_counted_by_the_minute_and_tell_when_it_ends() {
    let mut record = limit(LimitRules { requests_per_minute: Some(2), ..LimitRules::default() });
    for now_ms in [60_000, 61_000] {
        assert!(ask(&mut record, TURN, now_ms).is_ok());
    }
    let window = RateWindow { limit: 2, remaining: 0, resets_at_ms: 120_000 };
    assert_eq!(record.rate_limits(), RateLimits { requests: Some(window), tokens: None });
    record.roll(110_000);
    let refused = record.check(&TURN, 110_000).unwrap_err();
    assert_eq!((refused.reason, refused.retry_after_ms), (LimitReason::Requests { limit: 2 }, Some(10_000)));
    assert_eq!(refused.to_fault().message, "Rate limit reached for key key_1: requests_per_minute is 2.");
    assert!(ask(&mut record, TURN, 120_000).is_ok());
    // A process whose clock is slow counts in the window that has begun.
    assert!(ask(&mut record, TURN, 119_000).is_ok());
    assert!(ask(&mut record, TURN, 119_000).is_err());
}

#[test]
fn turns_are_in_flight_until_they_are_settled() {
    let mut record = limit(LimitRules { in_flight: Some(1), ..LimitRules::default() });
    let share = ask(&mut record, TURN, 0).unwrap();
    assert_eq!(ask(&mut record, TURN, DAY_MS), Err(LimitReason::InFlight { limit: 1 }));
    record.settle(&share, None);
    assert!(ask(&mut record, TURN, DAY_MS).is_ok());
    // A hold of an earlier row changes nothing.
    let mut anew = LimitRecord { generation: 8, ..record.clone() };
    anew.settle(&share, None);
    assert_eq!(anew.counters, record.counters);
}

#[test]
fn tokens_are_reserved_and_then_counted_by_fact() {
    let mut record = limit(LimitRules { tokens_per_minute: Some(100), ..LimitRules::default() });
    let share = ask(&mut record, call(90), 0).unwrap();
    assert_eq!(ask(&mut record, call(11), 0), Err(LimitReason::Tokens { limit: 100, taken: 90, needed: 11 }));
    record.settle(&share, used(30));
    assert!(ask(&mut record, call(70), 0).is_ok());
    // A call that never fits gets no time to wait.
    record.roll(60_000);
    assert_eq!(record.check(&call(101), 60_000).unwrap_err().retry_after_ms, None);
    // A call that ends in a later minute counts in the minute of its reservation.
    record.settle(&share, used(30));
    assert_eq!((record.counters.tokens, record.counters.tokens_reserved), (0, 0));
}

#[test]
fn a_spent_budget_is_told_from_one_that_running_calls_have_reserved() {
    let mut record = limit(budget(1_000, BudgetUnit::Usd, BudgetPeriod::Day));
    let share = ask(&mut record, call(60), 0).unwrap();
    assert!(matches!(ask(&mut record, call(60), 0), Err(LimitReason::BudgetReserved { reserved: 600, .. })));
    record.settle(&share, None);
    let refused = record.check(&call(60), DAY_MS / 2).unwrap_err();
    assert!(matches!(refused.reason, LimitReason::BudgetSpent { spent: 600, needed: 600, .. }), "booked as reserved");
    assert_eq!(refused.retry_after_ms, Some(DAY_MS / 2));
    assert_eq!(
        refused.to_fault().message,
        "The budget of key key_1 is spent: it is 0.000001 USD per day, 0.0000006 USD are used, and this call may use \
         0.0000006 USD."
    );
    assert!(ask(&mut record, call(60), DAY_MS).is_ok(), "another day");
    let unpriced = LimitDemand { cost: None, ..call(1) };
    assert_eq!(ask(&mut record, unpriced, DAY_MS), Err(LimitReason::NotPriced));
}

#[test]
fn a_budget_begins_anew_when_it_counts_something_else() {
    let mut record = limit(budget(100, BudgetUnit::Tokens, BudgetPeriod::Total));
    let share = ask(&mut record, call(80), 0).unwrap();
    record.change(budget(200, BudgetUnit::Tokens, BudgetPeriod::Total), 1);
    assert_eq!(record.counters.spent_reserved, 80, "another amount goes on");
    record.change(budget(200, BudgetUnit::Tokens, BudgetPeriod::Day), 2);
    assert_eq!((record.counters.spent, record.counters.spent_reserved), (0, 0));
    record.settle(&share, used(80));
    assert_eq!((record.counters.spent, record.counters.spent_reserved), (0, 0), "the hold is of the budget before");
}

#[test]
fn each_threshold_is_announced_once_in_a_period() {
    let mut record = limit(budget(100, BudgetUnit::Tokens, BudgetPeriod::Day));
    let spend = |record: &mut LimitRecord, tokens, now_ms| {
        let share = ask(record, call(tokens), now_ms).unwrap();
        record.settle(&share, used(tokens));
        record.take_alert(false)
    };
    assert_eq!(spend(&mut record, 79, 0), None);
    assert_eq!(spend(&mut record, 1, 0), Some(80));
    assert_eq!(spend(&mut record, 10, 0), None);
    assert_eq!((record.take_alert(true), record.take_alert(true)), (Some(100), None));
    assert_eq!(spend(&mut record, 100, DAY_MS), Some(100));
}

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Turn,
    Call(u64),
    /// The hold at this place ends: with a share of what it has reserved, in per cent, or unknown.
    End(prop::sample::Index, Option<u64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => (0u64..70_000).prop_map(Step::Wait),
        1 => (0u64..2 * DAY_MS).prop_map(Step::Wait),
        4 => Just(Step::Turn),
        8 => (1u64..400).prop_map(Step::Call),
        8 => (any::<prop::sample::Index>(), prop::option::of(0u64..=100)).prop_map(|(at, used)| Step::End(at, used)),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn nothing_exceeds_its_limit_and_in_the_end_the_facts_are_counted(
        steps in steps(),
        unit in prop::sample::select(BudgetUnit::ALL.to_vec()),
        period in prop::sample::select(BudgetPeriod::ALL.to_vec()),
    ) {
        let amount = if unit == BudgetUnit::Usd { 10_000 } else { 1_000 };
        let mut record = limit(LimitRules {
            requests_per_minute: Some(5),
            tokens_per_minute: Some(500),
            in_flight: Some(3),
            ..budget(amount, unit, period)
        });
        let mut now_ms = 0;
        let (mut holds, mut ended) = (Vec::<HoldShare>::new(), Vec::<(HoldShare, u64)>::new());
        for step in steps {
            match step {
                Step::Wait(ms) => now_ms += ms,
                Step::Turn => holds.extend(ask(&mut record, TURN, now_ms)),
                Step::Call(tokens) => holds.extend(ask(&mut record, call(tokens), now_ms)),
                Step::End(at, share) if !holds.is_empty() => {
                    let hold = holds.remove(at.index(holds.len()));
                    let tokens = share.map_or(hold.tokens, |percent| hold.tokens * percent / 100);
                    record.settle(&hold, share.map(|_| used(tokens).unwrap()));
                    ended.push((hold, tokens));
                }
                Step::End(..) => {}
            }
            let counters = record.counters;
            prop_assert!(counters.requests <= 5 && counters.in_flight <= 3);
            prop_assert!(counters.tokens + counters.tokens_reserved <= 500);
            prop_assert!(counters.spent + counters.spent_reserved <= amount);
            prop_assert_eq!(counters.in_flight, holds.iter().filter(|hold| hold.turn).count() as u64);
        }
        for hold in holds {
            record.settle(&hold, used(hold.tokens));
            ended.push((hold.clone(), hold.tokens));
        }
        let counters = record.counters;
        let of_minute = |(hold, _): &&(HoldShare, u64)| hold.call && hold.minute == counters.minute;
        let of_period = |(hold, _): &&(HoldShare, u64)| hold.call && hold.period == counters.period;
        let rate = if unit == BudgetUnit::Usd { 10 } else { 1 };
        let spent: u64 = ended.iter().filter(of_period).map(|(_, tokens)| tokens * rate).sum();
        prop_assert_eq!(counters.tokens, ended.iter().filter(of_minute).map(|(_, tokens)| *tokens).sum::<u64>());
        prop_assert_eq!(counters.spent, spent);
        prop_assert_eq!((counters.in_flight, counters.tokens_reserved, counters.spent_reserved), (0, 0, 0));
    }
}
