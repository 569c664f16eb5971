//! Budgets: what is reserved, what is booked, and what a death leaves.

use amalgam_testkit::{Client, Gate};
use serde_json::{Value, json};

use super::{TOKENS, answers, created, key, limit, put, receiver, refused, set, turn};
use crate::support::{
    Cli, Delivery, FINAL, Script, Wire, World, asking, beside, calls, error_of, eventually, id_of, named, put_tool,
    setup, standing, stores,
};

fn tokens(amount: u64) -> Value {
    json!({"budget": {"amount": amount, "unit": "tokens", "period": "total"}})
}

#[tokio::test]
async fn a_budget_of_tokens_is_booked_by_fact_and_then_refuses() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        answers(&world);
        for stored in [true, false] {
            let (id, caller) = key(&world, &store, &["use"]);
            let path = format!("keys/{id}");
            set(&world.amalgam.client(), &path, &tokens(100)).await;
            let mut request = turn();
            request["store"] = json!(stored);
            let mut answered = 0;
            let refusal = loop {
                let answer = caller.post_json("/v1/responses", &request).await;
                if answer.status != 200 {
                    break answer;
                }
                answered += 1;
                assert!(answered < 20, "{}: nothing is refused", store.name);
                // The next one may ask before a turn that is not stored is settled.
                settled(&world.amalgam.client(), &path, answered * TOKENS).await;
            };
            assert_eq!(refusal.status, 429, "{}", refusal.text());
            let error = error_of(&refusal);
            assert_eq!((&error["code"], &error["type"]), (&json!("insufficient_quota"), &json!("insufficient_quota")));
            let message = error["message"].as_str().unwrap_or_default();
            assert!(
                message.starts_with(&format!("The budget of key {id} is spent: it is 100 tokens in all")),
                "{message}"
            );
            assert_eq!(refusal.header("retry-after"), None, "a total never begins anew");
            assert!((2..=4).contains(&answered), "{answered}");
            let shown = limit(&world.amalgam.client(), &path).await;
            let budget = &shown["usage"]["budget"];
            assert_eq!((&budget["used"], &budget["reserved"]), (&json!(answered * TOKENS), &json!(0)), "{shown}");
        }
    }
}

/// Waits until a budget has this booked and nothing reserved.
async fn settled(client: &Client, path: &str, used: u64) {
    eventually(&format!("{used} tokens are booked"), FINAL, async || {
        let budget = limit(client, path).await["usage"]["budget"].clone();
        (budget["used"] == used && budget["reserved"] == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_budget_in_money_needs_prices_which_can_be_imported() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        answers(&world);
        let (client, cli) = (world.amalgam.client(), Cli::beside(&world.amalgam, &store));
        cli.text(&["limits", "set", "users", "anna", "--tenant", "1", "--budget", "0.001", "--period", "month"]);
        let caller = client.clone().with_header("x-amalgam-user", "anna");
        let refusal = refused(&caller, &turn(), "model_not_priced").await;
        assert_eq!((refusal.status.as_u16(), &error_of(&refusal)["param"]), (403, &json!("model")));

        // 11 tokens in, 3 of them cached, and 7 out: 8 × 2 + 3 × 1 + 7 × 10 micro-USD.
        let list = json!({
            "chat/m-chat": {"input_cost_per_token": 2e-6, "output_cost_per_token": 1e-5,
                "cache_read_input_token_cost": 1e-6, "input_cost_per_token_above_200k_tokens": 4e-6, "mode": "chat"},
            "m-chat": {"input_cost_per_token": 1.0, "output_cost_per_token": 1.0, "mode": "chat"},
            "other": {"mode": "embedding"},
        });
        let file = world.amalgam.folder().join("prices.json");
        std::fs::write(&file, list.to_string()).unwrap();
        let report = cli.json(&["prices", "import", file.to_str().unwrap()]);
        assert_eq!(
            (report["imported"].as_array().map(Vec::len), &report["skipped"][0]["model"]),
            (Some(2), &json!("other"))
        );
        assert_eq!(
            report["tiered"],
            json!([{"model": "chat/m-chat", "rates": ["input_cost_per_token_above_200k_tokens"]}])
        );
        assert_eq!(cli.json(&["prices", "list"])["data"][0]["input"], 2.0);
        let entry = cli.json(&["audit", "list", "--object", "price"])["data"][0].clone();
        assert_eq!(
            (&entry["before"]["prices"], &entry["after"]["changes"], &entry["after"]["changed"][0]["model"]),
            (&json!(0), &json!(2), &json!("chat/m-chat")),
            "{entry}"
        );
        let answer = eventually("the price is known", FINAL, async || {
            let answer = caller.post_json("/v1/responses", &turn()).await;
            (answer.status == 200).then_some(answer)
        })
        .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let shown = limit(&client, "users/anna?tenant=1").await;
        assert_eq!(shown["usage"]["budget"]["used"], 0.000_089, "{shown}");
        assert!(shown["usage"]["budget"]["resets_at"].as_u64() > Some(1_790_000_000), "{shown}");
        let usage = client.get("/admin/usage?group_by=user&user=anna").await.json();
        assert_eq!(usage["data"][0]["cost_usd"], 0.000_089, "{usage}");
        let spent = refused(&caller, &turn(), "insufficient_quota").await;
        assert!(spent.header("retry-after").is_some(), "a month begins anew");
    }
}

#[tokio::test]
async fn a_turn_that_is_refused_between_its_rounds_keeps_what_it_has() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        let client = world.amalgam.client();
        assert!(put_tool(&client, "current_time", &json!({"kind": "builtin"})).await.status.is_success());
        let (id, caller) = key(&world, &store, &["use"]);
        let path = format!("keys/{id}");
        // The first call fits with its tools, and what is left after it is too little for the second one.
        let request = json!({"input": "What time is it?", "tools": [named("current_time")], "max_output_tokens": 20, "background": true});
        let scripts = [calls("call_1", "current_time", "Rome"), Script::text(&["Late."])];
        for script in &scripts {
            world.upstream(Wire::Chat).enqueue(script.reply(Wire::Chat, Delivery::Whole));
        }
        set(&client, &path, &tokens(1_000_000)).await;
        let free = caller.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &request)).await.json();
        standing(&caller, id_of(&free), "completed").await;
        settled(&client, &path, 2 * TOKENS).await;
        // A turn reserves more for its second call than it used for the first.
        let first = limit(&client, &path).await;
        assert_eq!(first["usage"]["budget"]["used"], 2 * TOKENS);
        let reserved = reserved_by_first_call(&world, &client, &path, &caller, &request).await;
        let used = limit(&client, &path).await["usage"]["budget"]["used"].as_u64().unwrap_or_default();
        set(&client, &path, &tokens(used + reserved)).await;
        world.upstream(Wire::Chat).enqueue(scripts[0].reply(Wire::Chat, Delivery::Whole));
        let refused = caller.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &request)).await.json();
        let failed = standing(&caller, id_of(&refused), "failed").await;
        assert_eq!(failed["error"]["code"], "insufficient_quota", "{failed}");
        assert_eq!(failed["output"][0]["type"], "mcp_call", "{failed}");
        settled(&client, &path, used + TOKENS).await;
    }
}

/// What the first call of a request reserves: looked at while the upstream is silent.
async fn reserved_by_first_call(world: &World, client: &Client, path: &str, caller: &Client, request: &Value) -> u64 {
    let gate = Gate::new();
    world.upstream(Wire::Chat).enqueue(Script::text(&["Now."]).reply(Wire::Chat, Delivery::Whole).behind(&gate));
    let started = caller.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, request)).await.json();
    let reserved = eventually("a reservation", FINAL, async || {
        limit(client, path).await["usage"]["budget"]["reserved"].as_u64().filter(|reserved| *reserved > 0)
    })
    .await;
    gate.open();
    standing(caller, id_of(&started), "completed").await;
    eventually("the settlement", FINAL, async || {
        (limit(client, path).await["usage"]["budget"]["reserved"] == 0).then_some(())
    })
    .await;
    reserved
}

#[tokio::test]
async fn after_a_kill_a_call_of_unknown_usage_stays_booked_as_it_was_reserved() {
    for store in stores() {
        let mut world = World::with(store.setup(setup()), &[]).await;
        let gate = Gate::new();
        let hello = Script::text(&["Hello."]).reply(Wire::Chat, Delivery::Whole);
        world.upstream(Wire::Chat).enqueue(hello.clone());
        world.upstream(Wire::Chat).enqueue(hello.behind(&gate));
        let (id, secret) = created(&world, &store, "1", &["use"]);
        let caller = Client::new(world.amalgam.url()).with_key(&secret);
        let path = format!("keys/{id}");
        let rules = json!({"in_flight": 5, "budget": tokens(10_000)["budget"]});
        set(&world.amalgam.client(), &path, &rules).await;
        assert_eq!(caller.post_json("/v1/responses", &turn()).await.status, 200);
        let running = {
            let caller = caller.clone();
            beside(async move {
                caller
                    .try_request(
                        http::Method::POST,
                        "/v1/responses",
                        &[("content-type", "application/json")],
                        turn().to_string().into(),
                    )
                    .await
                    .is_ok()
            })
        };
        world.upstream(Wire::Chat).wait_for_requests(2).await;
        let before = limit(&world.amalgam.client(), &path).await["usage"].clone();
        let reserved = before["budget"]["reserved"].as_u64().unwrap_or_default();
        assert!(before["budget"]["used"] == TOKENS && reserved > 20 && before["in_flight"] == 1, "{before}");
        world.amalgam.kill();
        assert!(!running.end().await, "the caller has lost its answer");
        world.start_again().await;
        let after = eventually("what the dead process left", FINAL, async || {
            let usage = limit(&world.amalgam.client(), &path).await["usage"].clone();
            (usage["in_flight"] == 0).then_some(usage)
        })
        .await;
        let budget = &after["budget"];
        assert_eq!((&budget["used"], &budget["reserved"]), (&json!(TOKENS + reserved), &json!(0)), "{after}");
        gate.open();
        answers(&world);
        let caller = Client::new(world.amalgam.url()).with_key(&secret);
        assert_eq!(caller.post_json("/v1/responses", &turn()).await.status, 200);
        settled(&world.amalgam.client(), &path, 2 * TOKENS + reserved).await;
    }
}

#[tokio::test]
async fn a_budget_is_announced_by_webhook_at_80_and_100_per_cent() {
    for store in stores() {
        let receiver = receiver();
        let egress = format!("[egress]\nallow_private = [\"{}\"]", receiver.address());
        let world = World::with(store.setup(setup().extra(&egress)), &[]).await;
        answers(&world);
        let client = world.amalgam.client();
        let hook = json!({"url": format!("{}/hook", receiver.url()), "event_types": ["amalgam.budget.reached"]});
        assert_eq!(client.post_json("/v1/webhook_endpoints", &hook).await.status, 200);
        let caller = client.clone().with_header("x-amalgam-user", "anna");
        set(&client, "users/anna", &tokens(60)).await;
        refused(&caller, &turn(), "insufficient_quota").await;
        refused(&caller, &turn(), "insufficient_quota").await;
        let events = eventually("the alerts", FINAL, async || {
            let requests = receiver.requests();
            (requests.len() >= 2 || !requests.is_empty() && requests.last()?.json()["data"]["threshold"] == 100)
                .then_some(requests)
        })
        .await;
        let last = events.last().map(|request| request.json()).unwrap_or_default();
        assert_eq!(
            (&last["type"], &last["data"]["threshold"]),
            (&json!("amalgam.budget.reached"), &json!(100)),
            "{last}"
        );
        assert_eq!((&last["data"]["id"], &last["data"]["unit"]), (&json!("users/anna"), &json!("tokens")), "{last}");
        let wrong = put(&client, "users/anna", &json!({})).await;
        assert_eq!(wrong.status, 400);
    }
}

#[tokio::test]
async fn the_budget_of_a_model_is_announced_to_the_operators_in_the_log_and_in_a_metric() {
    for store in stores() {
        let receiver = receiver();
        let egress = format!("[egress]\nallow_private = [\"{}\"]", receiver.address());
        let world = World::with(store.setup(setup().extra(&egress)), &[]).await;
        answers(&world);
        let (client, cli) = (world.amalgam.client(), Cli::beside(&world.amalgam, &store));
        let hook = json!({"url": format!("{}/hook", receiver.url()), "event_types": ["amalgam.budget.reached"]});
        // No key in the store is an operator's, so the first tenant is told; later the tenant of the operator's key is.
        assert_eq!(client.post_json("/v1/webhook_endpoints", &hook).await.status, 200);
        cli.text(&["limits", "set", "models", "m-chat", "--budget", "60", "--unit", "tokens", "--period", "total"]);
        refused(&client, &turn(), "insufficient_quota").await;
        let told = eventually("the alert", FINAL, async || receiver.requests().last().cloned()).await.json();
        assert_eq!(
            (&told["type"], &told["data"]["id"], &told["data"]["tenant_id"]),
            (&json!("amalgam.budget.reached"), &json!("models/m-chat"), &json!(0)),
            "{told}"
        );
        let metrics = client.get("/metrics").await.text();
        let reached = r#"amalgam_budget_reached_total{kind="model",threshold="100"} 1"#;
        assert!(metrics.lines().any(|line| line == reached), "{} {metrics}", store.name);
        let log = world.amalgam.stderr();
        assert!(log.contains("a budget has reached 100 %") && log.contains("m-chat"), "{} {log}", store.name);

        let before = receiver.requests().len();
        cli.json(&["tenants", "create", "--name", "other"]);
        cli.json(&["keys", "create", "--tenant", "2", "--scope", "operator"]);
        cli.text(&["limits", "set", "models", "m-chat", "--budget", "61", "--unit", "tokens", "--period", "total"]);
        eventually("the next alert in the metric", FINAL, async || {
            refused(&client, &turn(), "insufficient_quota").await;
            let metrics = client.get("/metrics").await.text();
            metrics.contains(r#"amalgam_budget_reached_total{kind="model",threshold="100"} 2"#).then_some(())
        })
        .await;
        assert_eq!(receiver.requests().len(), before, "{}: the first tenant is not an operator's", store.name);
    }
}
