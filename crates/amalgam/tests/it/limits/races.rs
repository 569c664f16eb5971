//! A hundred clients at once: nothing is spent above a budget, in one process or in two.

use amalgam_testkit::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{TOKENS, answers, created, limit, set, turn};
use crate::support::{FINAL, World, eventually, setup, shared_store, stores};

/// What the clients race for.
#[derive(Clone, Copy)]
struct Stake {
    model: &'static str,
    unit: &'static str,
    budget: f64,
    /// What a turn uses of it.
    each: f64,
}

const OF_TOKENS: Stake = Stake { model: "m-chat", unit: "tokens", budget: 700.0, each: TOKENS as f64 };

/// 8 × 2 + 3 × 1 + 7 × 10 micro-USD.
const OF_MONEY: Stake = Stake { model: "priced", unit: "usd", budget: 0.004, each: 0.000_089 };

/// The model that costs something.
const PRICED: &str = "[models.priced]\nupstream = \"chat\"\nmodel = \"m-chat\"\n\
                      [models.priced.price]\ninput = 2\ncached_input = 1\noutput = 10\n";

/// Sums of numbers with a fraction differ by less.
const NOTHING: f64 = 1e-9;

/// Races a hundred clients over these servers for a budget that some of them fit into.
async fn race(world: &World, urls: &[String], key: &str, path: &str, stake: Stake) {
    let client = world.amalgam.client();
    let amount = if stake.unit == "tokens" { json!(stake.budget as u64) } else { json!(stake.budget) };
    let rules = json!({
        "in_flight": 50, "requests_per_minute": 100_000, "tokens_per_minute": 1_000_000,
        "budget": {"amount": amount, "unit": stake.unit, "period": "total"},
    });
    set(&client, path, &rules).await;
    // In force in every process.
    for url in urls {
        let caller = Client::new(url).with_key(key);
        eventually("the limit is in force", FINAL, async || {
            let answer = caller
                .post_json("/v1/responses", &json!({"model": stake.model, "input": "Hi", "max_output_tokens": 5_000}))
                .await;
            (answer.status == 429).then_some(())
        })
        .await;
    }
    let spent_before = limit(&client, path).await["usage"]["budget"]["used"].as_f64().unwrap_or_default();
    let mut clients = JoinSet::new();
    for number in 0..100_usize {
        let caller = Client::new(&urls[number % urls.len()]).with_key(key);
        clients.spawn(async move {
            let mut request = turn();
            request["store"] = json!(number % 3 == 0);
            request["model"] = json!(stake.model);
            let mut answered = 0;
            for _ in 0..3 {
                let answer = caller.post_json("/v1/responses", &request).await;
                assert!(matches!(answer.status.as_u16(), 200 | 429), "{}: {}", answer.status, answer.text());
                answered += u64::from(answer.status == 200);
            }
            answered
        });
    }
    let mut answered = 0;
    while let Some(ended) = clients.join_next().await {
        answered += ended.expect("no client panicked");
        let budget = limit(&client, path).await["usage"]["budget"].clone();
        let taken = number(&budget, "used") + number(&budget, "reserved");
        assert!(taken <= stake.budget + NOTHING, "{budget}");
    }
    let usage = eventually("everything is settled", FINAL, async || {
        let usage = limit(&client, path).await["usage"].clone();
        (number(&usage["budget"], "reserved") < NOTHING && usage["in_flight"] == 0).then_some(usage)
    })
    .await;
    let used = number(&usage["budget"], "used");
    assert!((used - spent_before - answered as f64 * stake.each).abs() < NOTHING, "{answered} {usage}");
    assert!(answered > 5 && used <= stake.budget + NOTHING, "{answered} {usage}");
}

fn number(object: &Value, field: &str) -> f64 {
    object[field].as_f64().unwrap_or(f64::MAX)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_of_one_process_never_overspend() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        answers(&world);
        let (id, secret) = created(&world, &store, "1", &["use"]);
        race(&world, &[world.amalgam.url().to_owned()], &secret, &format!("keys/{id}"), OF_TOKENS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_of_two_processes_never_overspend_tokens_or_money() {
    for stake in [OF_TOKENS, OF_MONEY] {
        let Some(store) = shared_store() else { return };
        let world = World::with(store.setup(setup().extra(PRICED)), &[]).await;
        let second = world.another().await;
        answers(&world);
        let (id, secret) = created(&world, &store, "1", &["use"]);
        let urls = [world.amalgam.url().to_owned(), second.url().to_owned()];
        race(&world, &urls, &secret, &format!("keys/{id}"), stake).await;
    }
}
