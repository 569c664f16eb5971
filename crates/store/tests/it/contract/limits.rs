//! Limits: reservations are all or nothing, holds are settled once, and no interleaving exceeds a limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use amalgam_core::{
    Budget, BudgetPeriod, BudgetUnit, Cost, IdKind, Ids, LimitDemand, LimitReason, LimitRecord, LimitRules,
    LimitSubject, Price, RateLimits, RateWindow, UsedAmounts, WebhookEndpoint,
    store::{
        HoldSettlement, LimitReservation, PriceRecord, ProcessId, ReserveOutcome, TurnWrite, Within, WriteOutcome,
    },
};
use tokio::task::JoinSet;

use crate::given::*;

const TURN: LimitDemand = LimitDemand { request: true, turn: true, tokens: 0, cost: None, call: false };

fn call(tokens: u64) -> LimitDemand {
    LimitDemand { request: false, turn: false, tokens, cost: Some(Cost::from_nano_usd(tokens * 1_000)), call: true }
}

fn used(tokens: u64) -> Option<UsedAmounts> {
    Some(UsedAmounts { tokens, cost: Some(Cost::from_nano_usd(tokens * 1_000)) })
}

fn tokens(amount: u64) -> LimitRules {
    let budget = Budget { amount, unit: BudgetUnit::Tokens, period: BudgetPeriod::Total };
    LimitRules { budget: Some(budget), ..LimitRules::default() }
}

async fn put(store: &Engine, subject: &LimitSubject, rules: LimitRules) -> LimitRecord {
    store.put_limit(operator(), subject.clone(), rules, NOW, audit()).await.unwrap()
}

async fn read(store: &Engine, subject: &LimitSubject) -> LimitRecord {
    store.limit(operator(), subject).await.unwrap().unwrap()
}

fn reservation(subjects: &[LimitSubject], demand: LimitDemand, process: ProcessId) -> LimitReservation {
    let hold_id = Ids::Unguessable.make(IdKind::LimitHold);
    LimitReservation { hold_id, process, subjects: subjects.to_vec(), demand, now_ms: NOW }
}

/// The hold, if it is granted.
async fn reserve(
    store: &Engine,
    subjects: &[LimitSubject],
    demand: LimitDemand,
    process: ProcessId,
) -> Result<String, LimitReason> {
    let asked = reservation(subjects, demand, process);
    let hold_id = asked.hold_id.clone();
    match store.reserve(operator(), asked).await.unwrap() {
        ReserveOutcome::Granted { held, .. } => {
            assert!(held);
            Ok(hold_id)
        }
        ReserveOutcome::Refused { refusal, .. } => Err(refusal.reason),
    }
}

fn settlement(hold_id: &str, used: Option<UsedAmounts>) -> HoldSettlement {
    HoldSettlement { hold_id: hold_id.to_owned(), used, now_ms: NOW }
}

pub(crate) async fn a_limit_is_read_back_changed_listed_and_deleted(store: Engine) {
    let rules = LimitRules {
        requests_per_minute: Some(60),
        tokens_per_minute: Some(10_000),
        in_flight: Some(2),
        budget: Some(Budget { amount: 5_000_000_000, unit: BudgetUnit::Usd, period: BudgetPeriod::Month }),
        models: Some(vec!["gpt, 4".to_owned(), "demo".to_owned()]),
        tools: Some(Vec::new()),
    };
    let subject = LimitSubject::user(1, "anna");
    let before = store.limits_version(operator()).await.unwrap();
    let made = put(&store, &subject, rules.clone()).await;
    assert_eq!((&made.rules, &made.subject), (&rules, &subject));
    assert_eq!(read(&store, &subject).await, made);
    let changed = put(&store, &subject, tokens(7)).await;
    assert_eq!((&changed.rules, changed.generation), (&tokens(7), made.generation));
    assert!(store.limits_version(operator()).await.unwrap() >= before + 2);

    let others = [LimitSubject::key(1, "key_1"), LimitSubject::model("demo"), LimitSubject::tenant(2)];
    for other in &others {
        put(&store, other, tokens(1)).await;
    }
    let list = async |tenant_id, after: Option<&LimitSubject>, limit| {
        let found = store.limits(operator(), tenant_id, after, limit).await.unwrap();
        found.into_iter().map(|record| record.subject).collect::<Vec<_>>()
    };
    let all = list(None, None, 10).await;
    assert_eq!(all, [others[0].clone(), others[1].clone(), others[2].clone(), subject.clone()]);
    assert_eq!(list(None, Some(&all[1]), 1).await, all[2..3]);
    assert_eq!(list(Some(1), None, 10).await, [others[0].clone(), subject.clone()]);
    assert!(store.delete_limit(operator(), subject.clone(), audit()).await.unwrap());
    assert!(!store.delete_limit(operator(), subject.clone(), audit()).await.unwrap());
    assert_eq!(store.limit(operator(), &subject).await.unwrap(), None);
}

pub(crate) async fn a_reservation_takes_from_all_limits_or_from_none(store: Engine) {
    let (key, tenant, none) = (LimitSubject::key(1, "key_1"), LimitSubject::tenant(1), LimitSubject::user(1, "anna"));
    put(&store, &key, LimitRules { tokens_per_minute: Some(1_000), requests_per_minute: Some(9), ..tokens(50_000) })
        .await;
    put(&store, &tenant, tokens(100)).await;
    let subjects = [tenant.clone(), none.clone(), key.clone()];
    let asked = reservation(&subjects, call(60), HERE);
    let outcome = store.reserve(operator(), asked.clone()).await.unwrap();
    let window = |limit, remaining| Some(RateWindow { limit, remaining, resets_at_ms: 1_700_000_040_000 });
    let rate_limits = RateLimits { requests: window(9, 9), tokens: window(1_000, 940) };
    assert_eq!(outcome, ReserveOutcome::Granted { held: true, rate_limits });
    let counters = async || (read(&store, &key).await.counters, read(&store, &tenant).await.counters);
    let before = counters().await;
    assert_eq!((before.0.tokens_reserved, before.0.spent_reserved, before.1.spent_reserved), (60, 60, 60));
    let refused = reserve(&store, &subjects, call(60), HERE).await.unwrap_err();
    assert!(matches!(refused, LimitReason::BudgetReserved { .. }), "{refused:?}");
    assert_eq!(counters().await, before);
    // No limit applies: nothing is held.
    let free = reservation(&[none], call(1), HERE);
    let outcome = store.reserve(operator(), free).await.unwrap();
    assert_eq!(outcome, ReserveOutcome::Granted { held: false, rate_limits: RateLimits::default() });
}

pub(crate) async fn a_hold_is_settled_once_and_by_fact(store: Engine) {
    let key = LimitSubject::key(1, "key_1");
    put(&store, &key, LimitRules { in_flight: Some(2), ..tokens(100) }).await;
    let turn = reserve(&store, std::slice::from_ref(&key), TURN, HERE).await.unwrap();
    let hold = reserve(&store, std::slice::from_ref(&key), call(60), HERE).await.unwrap();
    for _ in 0..2 {
        store.settle_holds(operator(), vec![settlement(&hold, used(25))]).await.unwrap();
    }
    let counters = read(&store, &key).await.counters;
    assert_eq!((counters.spent, counters.spent_reserved, counters.in_flight), (25, 0, 1));
    store.settle_holds(operator(), vec![settlement(&turn, None), settlement(&turn, None)]).await.unwrap();
    assert_eq!(read(&store, &key).await.counters.in_flight, 0);
}

pub(crate) async fn the_write_that_ends_a_turn_settles_its_holds(store: Engine) {
    let (key, tenant) = (LimitSubject::key(1, "key_1"), LimitSubject::tenant(1));
    put(&store, &key, tokens(100)).await;
    put(&store, &tenant, tokens(100)).await;
    let both = [key.clone(), tenant.clone()];
    let (anna, turn) = (anna(), Turn::new("hi"));
    let (first, second) =
        (reserve(&store, &both, call(30), HERE).await.unwrap(), reserve(&store, &both, call(30), HERE).await.unwrap());
    assert_eq!(store.write(&anna, turn.beginning(turn.begin()).into()).await.unwrap(), WriteOutcome::Kept);
    let ending =
        TurnWrite { settlements: vec![settlement(&second, used(5)), settlement(&first, None)], ..turn.ending() };
    let ending = Arc::new(ending);
    assert_eq!(store.write(&anna, Arc::clone(&ending)).await.unwrap(), WriteOutcome::Kept);
    for subject in [&key, &tenant] {
        let counters = read(&store, subject).await.counters;
        assert_eq!((counters.spent, counters.spent_reserved), (35, 0));
    }
    // The same write again changes nothing, and a whole turn in one write settles too.
    assert_eq!(store.write(&anna, ending).await.unwrap(), WriteOutcome::Lost);
    let (whole, third) = (Turn::new("all"), reserve(&store, &both, call(30), HERE).await.unwrap());
    let write = TurnWrite { settlements: vec![settlement(&third, used(7))], ..whole.whole(None) };
    assert_eq!(store.write(&anna, write.into()).await.unwrap(), WriteOutcome::Kept);
    assert_eq!(read(&store, &key).await.counters.spent, 42);
}

pub(crate) async fn a_lost_write_settles_no_hold(store: Engine) {
    let key = LimitSubject::key(1, "key_1");
    put(&store, &key, tokens(100)).await;
    let hold = reserve(&store, std::slice::from_ref(&key), call(30), HERE).await.unwrap();
    let turn = Turn::new("gone");
    let write = TurnWrite { settlements: vec![settlement(&hold, used(5))], ..turn.ending() };
    assert_eq!(store.write(&anna(), write.into()).await.unwrap(), WriteOutcome::Lost);
    let counters = read(&store, &key).await.counters;
    assert_eq!((counters.spent, counters.spent_reserved), (0, 30));
}

pub(crate) async fn holds_of_a_dead_process_count_as_they_were_reserved(store: Engine) {
    let key = LimitSubject::key(1, "key_1");
    put(&store, &key, LimitRules { in_flight: Some(1), requests_per_minute: Some(5), ..tokens(100) }).await;
    store.beat(operator(), HERE, 1).await.unwrap();
    store.beat(operator(), THERE, 1).await.unwrap();
    reserve(&store, std::slice::from_ref(&key), TURN, THERE).await.unwrap();
    let dead = reserve(&store, std::slice::from_ref(&key), call(40), THERE).await.unwrap();
    let alive = reserve(&store, std::slice::from_ref(&key), call(30), HERE).await.unwrap();
    assert_eq!(store.settle_dead_holds(operator(), NOW).await.unwrap(), 0);
    store.end_dead_process(operator(), THERE, 1, |_| String::new(), NOW).await.unwrap();
    // The end of the process has settled them, or this does.
    store.settle_dead_holds(operator(), NOW).await.unwrap();
    let counters = read(&store, &key).await.counters;
    assert_eq!((counters.spent, counters.spent_reserved, counters.in_flight, counters.requests), (40, 30, 0, 1));
    // A process that lives after all settles too late.
    store.settle_holds(operator(), vec![settlement(&dead, used(1))]).await.unwrap();
    store.settle_holds(operator(), vec![settlement(&alive, used(10))]).await.unwrap();
    let counters = read(&store, &key).await.counters;
    assert_eq!((counters.spent, counters.spent_reserved), (50, 0));
}

pub(crate) async fn a_hold_of_a_deleted_limit_does_not_change_the_next_one(store: Engine) {
    let key = LimitSubject::key(1, "key_1");
    put(&store, &key, LimitRules { in_flight: Some(3), ..tokens(100) }).await;
    let (turn, hold) = (
        reserve(&store, std::slice::from_ref(&key), TURN, HERE).await.unwrap(),
        reserve(&store, std::slice::from_ref(&key), call(30), HERE).await.unwrap(),
    );
    store.delete_limit(operator(), key.clone(), audit()).await.unwrap();
    put(&store, &key, LimitRules { in_flight: Some(3), ..tokens(100) }).await;
    reserve(&store, std::slice::from_ref(&key), TURN, HERE).await.unwrap();
    store.settle_holds(operator(), vec![settlement(&turn, None), settlement(&hold, None)]).await.unwrap();
    let counters = read(&store, &key).await.counters;
    assert_eq!((counters.spent, counters.spent_reserved, counters.in_flight), (0, 0, 1));
}

pub(crate) async fn a_budget_is_announced_at_each_threshold_once(store: Engine) {
    let anna = anna();
    let within = Within::Own(anna.admin().unwrap());
    let endpoint = WebhookEndpoint {
        id: "we_1".to_owned(),
        url: "https://example.com/".to_owned(),
        event_types: vec!["amalgam.budget.reached".to_owned()],
        secret: "sealed".to_owned(),
        created_at_ms: NOW,
        updated_at_ms: NOW,
    };
    store.put_endpoint(within, endpoint, audit()).await.unwrap();
    let user = LimitSubject::user(1, "anna \"quoted\"");
    put(&store, &user, tokens(100)).await;
    for (reserved, used_tokens) in [(79, 79), (15, 11)] {
        let hold = reserve(&store, std::slice::from_ref(&user), call(reserved), HERE).await.unwrap();
        store.settle_holds(operator(), vec![settlement(&hold, used(used_tokens))]).await.unwrap();
    }
    for _ in 0..3 {
        let refused = reserve(&store, std::slice::from_ref(&user), call(20), HERE).await.unwrap_err();
        assert!(matches!(refused, LimitReason::BudgetSpent { spent: 90, .. }));
    }
    let mut events = store.deliveries(within, "we_1", None, 10).await.unwrap();
    events.reverse();
    let data: Vec<serde_json::Value> =
        events.iter().map(|delivery| serde_json::from_str(&delivery.event.data).unwrap()).collect();
    let expected = |threshold: u64| {
        serde_json::json!({"id": "users/anna \"quoted\"", "tenant_id": 1, "threshold": threshold, "amount": 100, "used": 90,
            "unit": "tokens", "period": "total", "resets_at": null})
    };
    assert_eq!(data, [expected(80), expected(100)]);
}

pub(crate) async fn racing_calls_never_exceed_a_limit_and_in_the_end_the_facts_are_counted(store: Engine) {
    race(&[store]).await;
}

/// A hundred clients at once, over several handles of the same store: each reserves and settles at random, by itself or with
/// the write of a turn, or dies.
pub(crate) async fn race(stores: &[Engine]) {
    const BUDGET: u64 = 40_000;
    let (key, tenant) = (LimitSubject::key(1, "key_1"), LimitSubject::tenant(1));
    let rules = LimitRules { in_flight: Some(30), requests_per_minute: Some(90), ..tokens(BUDGET) };
    put(&stores[0], &key, rules).await;
    put(&stores[0], &tenant, LimitRules { tokens_per_minute: Some(BUDGET / 2), ..tokens(2 * BUDGET) }).await;
    let subjects = [key.clone(), tenant.clone()];
    let dead = ProcessId(99);
    for store in stores {
        store.beat(operator(), HERE, 1).await.unwrap();
    }
    let (facts, granted_turns) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    for client in 0..100_u64 {
        let (store, subjects) = (Arc::clone(&stores[client as usize % stores.len()]), subjects.clone());
        let (facts, granted_turns) = (Arc::clone(&facts), Arc::clone(&granted_turns));
        clients.spawn(async move {
            let dies = client % 10 == 3;
            let process = if dies { dead } else { HERE };
            let turn = loop {
                match reserve(&store, &subjects, TURN, process).await {
                    Ok(hold) => break hold,
                    Err(LimitReason::InFlight { .. }) => tokio::time::sleep(Duration::from_millis(1)).await,
                    Err(LimitReason::Requests { .. }) => return,
                    Err(other) => panic!("{other:?}"),
                }
            };
            granted_turns.fetch_add(1, Ordering::Relaxed);
            let mut rounds = 0;
            for round in 0..6 {
                let amount = 40 + (client * 7 + round * 13) % 400;
                let Ok(hold) = reserve(&store, &subjects, call(amount), process).await else { continue };
                rounds += 1;
                if dies && round == 2 {
                    facts.fetch_add(amount, Ordering::Relaxed);
                    break;
                }
                let fact = amount * (client % 5) / 4;
                let known = client % 4 != 1;
                facts.fetch_add(if known { fact.min(amount) } else { amount }, Ordering::Relaxed);
                let settled = settlement(&hold, if known { used(fact.min(amount)) } else { None });
                if round % 2 == 0 {
                    let written = Turn::new("hi");
                    let write = TurnWrite { settlements: vec![settled], ..written.whole(None) };
                    assert_eq!(store.write(&anna(), write.into()).await.unwrap(), WriteOutcome::Kept);
                } else {
                    store.settle_holds(operator(), vec![settled.clone()]).await.unwrap();
                    store.settle_holds(operator(), vec![settled]).await.unwrap();
                }
            }
            assert!(rounds <= 6);
            if !dies {
                store.settle_holds(operator(), vec![settlement(&turn, None)]).await.unwrap();
            }
        });
    }
    let mut looks = 0;
    while !clients.is_empty() {
        tokio::select! {
            ended = clients.join_next() => { ended.unwrap().unwrap(); }
            () = tokio::time::sleep(Duration::from_millis(2)) => {}
        }
        let (key, tenant) = (read(&stores[0], &key).await.counters, read(&stores[0], &tenant).await.counters);
        assert!(key.spent + key.spent_reserved <= BUDGET, "{key:?}");
        assert!(key.in_flight <= 30 && key.requests <= 90, "{key:?}");
        assert!(tenant.tokens + tenant.tokens_reserved <= BUDGET / 2, "{tenant:?}");
        looks += 1;
        // The turns of a dead process end when another one notices.
        if looks % 20 == 0 {
            stores[stores.len() - 1].settle_dead_holds(operator(), NOW).await.unwrap();
        }
    }
    stores[0].settle_dead_holds(operator(), NOW).await.unwrap();
    let facts = facts.load(Ordering::Relaxed);
    let (key, tenant) = (read(&stores[0], &key).await.counters, read(&stores[0], &tenant).await.counters);
    assert_eq!((key.spent, key.spent_reserved, key.in_flight), (facts, 0, 0));
    assert_eq!((tenant.tokens, tenant.spent, tenant.spent_reserved), (facts, facts, 0));
    assert_eq!(key.requests, granted_turns.load(Ordering::Relaxed));
    assert!(facts > BUDGET / 3, "{facts}: the limits were reached");
}

pub(crate) async fn a_turn_that_waits_is_notified_when_another_one_ends(store: Engine) {
    let key = LimitSubject::key(1, "key_1");
    put(&store, &key, LimitRules { in_flight: Some(1), ..LimitRules::default() }).await;
    let hold = reserve(&store, std::slice::from_ref(&key), TURN, HERE).await.unwrap();
    let changed = store.changed(&key.topic());
    let turn = Turn::new("hi");
    let write = TurnWrite { settlements: vec![settlement(&hold, None)], ..turn.whole(None) };
    store.write(&anna(), write.into()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), changed).await.expect("the waiting turn is notified");
    let limits_changed = store.changed("limits");
    put(&store, &key, tokens(1)).await;
    tokio::time::timeout(Duration::from_secs(60), limits_changed).await.expect("a change of limits is notified");
}

pub(crate) async fn imported_prices_are_read_back_exactly(store: Engine) {
    let record = |model: &str, input| PriceRecord {
        model: model.to_owned(),
        price: Price { input, cached_input: Some(0.075), cache_write: None, output: 0.6, reasoning: Some(1e-7) },
        imported_at_ms: NOW,
    };
    let before = store.limits_version(operator()).await.unwrap();
    let prices = vec![record("a", 0.15), record("b/c", 2.5)];
    store.put_prices(operator(), prices.clone(), audit()).await.unwrap();
    store.put_prices(operator(), vec![record("a", 0.1 + 0.2)], audit()).await.unwrap();
    let expected = [record("a", 0.1 + 0.2), record("b/c", 2.5)];
    assert_eq!(store.prices(operator(), None, 10).await.unwrap(), expected);
    assert_eq!(store.prices(operator(), Some("a"), 10).await.unwrap(), expected[1..]);
    assert!(store.limits_version(operator()).await.unwrap() > before);
}
