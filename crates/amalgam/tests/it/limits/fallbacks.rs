//! Limits of models that are called because another one failed, and of models under another name.

use amalgam_testkit::{Client, Gate, HttpAnswer, Reply};
use serde_json::{Value, json};

use super::{key, limit, set};
use crate::support::{
    Cli, Delivery, FINAL, Script, TestStore, Wire, World, beside, error_of, eventually, setup, stores,
};

/// `main` is served by a model that always fails, then by `spare`, then by a model without a name of its own.
const MODELS: &str = "
    [models.main]
    upstream = \"chat\"
    model = \"m-chat\"
    fallback = [\"spare\", \"anthropic/m-anthropic\"]

    [models.spare]
    upstream = \"responses\"
    model = \"m-responses\"";

async fn world(store: &TestStore) -> World {
    let world = World::with(store.setup(setup().extra(MODELS)), &[("retries", "0")]).await;
    world.upstream(Wire::Chat).from_now_on(Reply::status(500));
    for wire in [Wire::Responses, Wire::Anthropic] {
        world.upstream(wire).from_now_on(Script::text(&["Hello."]).reply(wire, Delivery::Whole));
    }
    world
}

async fn ask(caller: &Client) -> HttpAnswer {
    caller.post_json("/v1/responses", &json!({"model": "main", "input": "Hi"})).await
}

/// Which model answered.
fn model(answer: &HttpAnswer) -> Option<&str> {
    (answer.status == 200).then(|| answer.header("amalgam-model")).flatten()
}

async fn eventually_answered(caller: &Client, by: Option<&str>) -> HttpAnswer {
    eventually(&format!("an answer by {by:?}"), FINAL, async || {
        let answer = ask(caller).await;
        (model(&answer) == by).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn a_fallback_counts_the_turns_that_it_answers_and_is_skipped_above_its_limits() {
    for store in stores() {
        let world = world(&store).await;
        let (client, cli) = (world.amalgam.client(), Cli::beside(&world.amalgam, &store));
        for (name, limits) in [("spare", "2"), ("anthropic/m-anthropic", "1")] {
            cli.text(&["limits", "set", "models", name, "--requests-per-minute", limits]);
        }
        // The minute may end in between.
        let answers = eventually("all answers in one minute", FINAL * 6, async || {
            let mut answers = Vec::new();
            for _ in 0..6 {
                answers.push(ask(&client).await);
            }
            let refused = answers.iter().filter(|answer| answer.status == 429).count();
            (refused >= 3).then_some(answers)
        })
        .await;
        let of = |name: &str| answers.iter().filter(|answer| model(answer) == Some(name)).count();
        assert!(of("responses/m-responses") <= 2 && of("anthropic/m-anthropic") <= 1, "{}", store.name);
        let refusal = answers.last().expect("there are six");
        let message = error_of(refusal)["message"].as_str().unwrap_or_default().to_owned();
        assert!(
            message.contains("model anthropic/m-anthropic") && message.contains("requests_per_minute"),
            "{message}"
        );
        assert!(refusal.header("retry-after").is_some());
    }
}

#[tokio::test]
async fn a_fallback_answers_no_more_turns_at_once_than_its_limit_allows() {
    for store in stores() {
        let world = world(&store).await;
        let (client, cli) = (world.amalgam.client(), Cli::beside(&world.amalgam, &store));
        cli.text(&["limits", "set", "models", "responses/m-responses", "--in-flight", "1"]);
        eventually("the limit is in force", FINAL, async || {
            let answer = ask(&client).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let shown = cli.json(&["limits", "show", "models", "responses/m-responses"]);
            tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
            (shown["usage"]["in_flight"] == 0).then_some(())
        })
        .await;
        let gate = Gate::new();
        let held = Script::text(&["Hello."]).reply(Wire::Responses, Delivery::Whole).behind(&gate);
        let asked = world.upstream(Wire::Responses).requests().len();
        world.upstream(Wire::Responses).enqueue(held);
        let first = {
            let client = client.clone();
            beside(async move { ask(&client).await })
        };
        world.upstream(Wire::Responses).wait_for_requests(asked + 1).await;
        let second = ask(&client).await;
        assert_eq!(model(&second), Some("anthropic/m-anthropic"), "{} {}", store.name, second.text());
        gate.open();
        assert_eq!(model(&first.end().await), Some("responses/m-responses"), "{}", store.name);
        eventually("the turn has left", FINAL, async || {
            let shown = cli.json(&["limits", "show", "models", "responses/m-responses"]);
            (shown["usage"]["in_flight"] == 0).then_some(())
        })
        .await;
        assert_eq!(model(&ask(&client).await), Some("responses/m-responses"), "{}", store.name);
    }
}

#[tokio::test]
async fn a_fallback_that_the_caller_may_not_use_is_skipped() {
    for store in stores() {
        let world = world(&store).await;
        let operator = world.amalgam.client();
        let (id, caller) = key(&world, &store, &["use"]);
        let path = format!("keys/{id}");
        let calls = |wire| world.upstream(wire).requests().len();
        for (allowed, by) in [
            (json!(["main", "spare"]), Some("responses/m-responses")),
            (json!(["main", "m-anthropic"]), Some("anthropic/m-anthropic")),
            (json!(["chat/m-chat", "responses/m-responses"]), Some("responses/m-responses")),
        ] {
            set(&operator, &path, &json!({"models": allowed})).await;
            eventually_answered(&caller, by).await;
        }
        // None of them is left: what the first one answered is the answer.
        set(&operator, &path, &json!({"models": ["main"]})).await;
        let failed = eventually_answered(&caller, None).await;
        assert!(failed.status.is_server_error(), "{} {}", store.name, failed.text());
        let before = (calls(Wire::Responses), calls(Wire::Anthropic));
        assert!(ask(&caller).await.status.is_server_error(), "{}", store.name);
        assert_eq!((calls(Wire::Responses), calls(Wire::Anthropic)), before, "{}", store.name);
        set(&operator, &path, &json!({"models": ["spare"]})).await;
        let refused = eventually("a refusal", FINAL, async || {
            let answer = ask(&caller).await;
            (answer.status == 403).then_some(answer)
        })
        .await;
        assert_eq!(error_of(&refused)["code"], "model_not_allowed", "{}", store.name);
    }
}

#[tokio::test]
async fn models_and_profiles_are_listed_and_shown_by_all_names_that_allow_them() {
    for store in stores() {
        let world = world(&store).await;
        let operator = world.amalgam.client();
        let profile = json!({"prompt": "Help.", "model": "spare"});
        let headers = [("content-type", "application/json")];
        let put = operator.request(http::Method::PUT, "/admin/profiles/helper", &headers, profile.to_string().into());
        let put = put.await;
        assert!(put.status.is_success(), "{}", put.text());
        let (id, caller) = key(&world, &store, &["use"]);
        let names = async || -> Vec<String> {
            let list: Value = caller.get("/v1/models").await.json();
            let cards = list["data"].as_array().cloned().unwrap_or_default();
            cards.iter().map(|card| card["id"].as_str().unwrap_or_default().to_owned()).collect()
        };
        for (allowed, expected) in [
            ("responses/m-responses", vec!["helper", "m-responses", "spare"]),
            ("m-chat", vec!["m-chat", "main"]),
            ("helper", vec!["helper"]),
        ] {
            set(&operator, &format!("keys/{id}"), &json!({"models": [allowed]})).await;
            eventually(&format!("{expected:?} for {allowed}"), FINAL, async || {
                let mut names = names().await;
                names.sort();
                (names == expected).then_some(())
            })
            .await;
            for name in ["helper", "m-responses", "spare", "m-chat", "main"] {
                let status = caller.get(&format!("/v1/models/{name}")).await.status.as_u16();
                let expected = if expected.contains(&name) { 200 } else { 403 };
                assert_eq!(status, expected, "{} {allowed} {name}", store.name);
            }
        }
        assert!(limit(&operator, &format!("keys/{id}")).await["models"].is_array());
    }
}
