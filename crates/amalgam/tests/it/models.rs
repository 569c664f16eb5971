//! `GET /v1/models` and how a name finds its upstream.

use amalgam_testkit::{Amalgam, Reply, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{BINARY, Delivery, Script, Wire, assert_refused, text_of};

fn list_of(names: &[&str]) -> Reply {
    let data: Vec<Value> = names.iter().map(|name| json!({"id": name, "object": "model"})).collect();
    Reply::json(json!({"object": "list", "data": data}))
}

/// The names of the models of a list, without the profiles at its end.
fn ids(list: &Value) -> Vec<&str> {
    named(list, |card| card["owned_by"] != "assistant")
}

fn named(list: &Value, wanted: impl Fn(&Value) -> bool) -> Vec<&str> {
    let cards = list["data"].as_array().expect("a list has data").iter();
    cards.filter(|card| wanted(card)).map(|card| card["id"].as_str().expect("a model has an id")).collect()
}

async fn ask(amalgam: &Amalgam, model: &str) -> amalgam_testkit::HttpAnswer {
    amalgam.client().post_json("/v1/responses", &json!({"model": model, "input": "Hi"})).await
}

#[tokio::test]
async fn without_a_configuration_there_is_the_demo_with_the_profiles_of_its_tenant_and_nothing_else() {
    let amalgam = Amalgam::start(BINARY, Setup::new()).await;
    let list = amalgam.client().get("/v1/models").await;
    assert_eq!(list.status, 200);
    let list = list.json();
    assert_eq!((&list["object"], ids(&list)), (&json!("list"), vec!["demo"]));
    assert_eq!(named(&list, |_| true), ["demo", "course-assistant", "home-assistant"]);
    let card = &list["data"][0];
    assert_eq!((&card["object"], &card["owned_by"]), (&json!("model"), &json!("demo")), "{card}");
    assert!(card["created"].is_u64(), "{card}");
}

#[tokio::test]
async fn with_an_upstream_of_ones_own_the_demo_is_gone() {
    let upstream = Upstream::start();
    let setup = Setup::new().upstream("own", "chat", &upstream.base_url()).option("models", "[\"m\"]");
    let amalgam = Amalgam::start(BINARY, setup).await;
    assert_eq!(ids(&amalgam.client().get("/v1/models").await.json()), ["m"]);
    assert_refused(&ask(&amalgam, "demo").await, 404, Some("model"), "model_not_found");
}

#[tokio::test]
async fn a_configured_model_shows_what_it_can_do() {
    let upstream = Upstream::start();
    let models = "[models.fast]\nupstream = \"own\"\nmodel = \"llama\"\nfallback = [\"slow\"]\ncontext_window = 128000\n\
                  max_output_tokens = 4096\nmodalities = [\"text\"]\ntools = false\nstructured_output = false\n\n\
                  [models.slow]\nupstream = \"own\"\n";
    let setup = Setup::new().upstream("own", "chat", &upstream.base_url()).option("models", "[\"m\"]").extra(models);
    let amalgam = Amalgam::start(BINARY, setup).await;

    let card = amalgam.client().get("/v1/models/fast").await.json();
    assert_eq!((&card["id"], &card["object"], &card["owned_by"]), (&json!("fast"), &json!("model"), &json!("own")));
    assert_eq!(
        card["capabilities"],
        json!({
            "wire": "chat", "context_window": 128_000, "max_output_tokens": 4096, "modalities": ["text"],
            "streaming": true, "tools": false, "structured_output": false, "fallback": ["slow"],
        })
    );
    let card = amalgam.client().get("/v1/models/slow").await.json();
    assert_eq!(
        card["capabilities"],
        json!({
            "wire": "chat", "context_window": null, "max_output_tokens": null, "modalities": ["text", "image"],
            "streaming": true, "tools": true, "structured_output": true, "fallback": [],
        })
    );
    let mut listed: Vec<String> =
        ids(&amalgam.client().get("/v1/models").await.json()).into_iter().map(str::to_owned).collect();
    listed.sort();
    assert_eq!(listed, ["fast", "m", "slow"]);
    assert_eq!(upstream.requests().len(), 0, "a list that is configured is not asked for");
}

#[tokio::test]
async fn a_name_is_translated_for_the_upstream_and_stays_the_callers_in_the_answer() {
    // RAM-31
    let upstream = Upstream::start();
    let models = "[models.fast]\nupstream = \"own\"\nmodel = \"llama-3\"\n";
    let setup = Setup::new().upstream("own", "chat", &upstream.base_url()).option("models", "[\"m\"]").extra(models);
    let amalgam = Amalgam::start(BINARY, setup).await;
    // If the upstream's name for a model contains slashes, the part after the first slash of the request is its name.
    for (asked, sent) in [("fast", "llama-3"), ("own/any", "any"), ("own/org/model", "org/model"), ("m", "m")] {
        upstream.enqueue(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Whole));
        let answer = ask(&amalgam, asked).await;
        assert_eq!(answer.status, 200, "{asked}: {}", answer.text());
        let response = answer.json();
        assert_eq!((&response["model"], text_of(&response).as_str()), (&json!(asked), "fine"));
        assert_eq!(upstream.requests().last().unwrap().json()["model"], sent);
        let card = amalgam.client().get(&format!("/v1/models/{asked}")).await;
        assert_eq!((card.status.as_u16(), &card.json()["id"]), (200, &json!(asked)));
    }
}

#[tokio::test]
async fn an_upstream_is_asked_for_its_list_once_and_remembered() {
    for (kind, wire) in [("chat", Wire::Chat), ("responses", Wire::Responses), ("anthropic", Wire::Anthropic)] {
        let upstream = Upstream::start();
        upstream.always_for("/models", list_of(&["alpha", "beta"]));
        let amalgam = Amalgam::start(BINARY, Setup::new().upstream("own", kind, &upstream.base_url())).await;
        for _ in 0..3 {
            assert_eq!(ids(&amalgam.client().get("/v1/models").await.json()), ["alpha", "beta"], "{kind}");
        }
        assert_eq!(amalgam.client().get("/v1/models/beta").await.status, 200);
        upstream.enqueue(Script::text(&["fine"]).reply(wire, Delivery::Whole));
        assert_eq!(ask(&amalgam, "beta").await.status, 200);
        assert_refused(&ask(&amalgam, "gamma").await, 404, Some("model"), "model_not_found");

        let requests = upstream.requests();
        let asked: Vec<_> = requests.iter().filter(|request| request.path.ends_with("/models")).collect();
        assert_eq!(asked.len(), 1, "{kind}: the list is remembered");
        assert_eq!((asked[0].method.as_str(), asked[0].path.as_str()), ("GET", "/v1/models"));
        let key = match kind {
            "anthropic" => asked[0].header("x-api-key").map(str::to_owned),
            _ => asked[0].header("authorization").and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned),
        };
        assert_eq!(key.as_deref(), Some("sk-own"), "{kind}");
    }
}

#[tokio::test]
async fn callers_who_come_together_share_one_question() {
    let upstream = Upstream::start();
    let gate = amalgam_testkit::Gate::new();
    upstream.always_for("/models", list_of(&["alpha"]).hold_after(0, &gate));
    let amalgam = Amalgam::start(BINARY, Setup::new().upstream("own", "chat", &upstream.base_url())).await;
    let client = amalgam.client();
    let all = futures_util::future::join_all((0..8).map(|_| client.get("/v1/models")));
    let opened = async {
        upstream.wait_for_requests(1).await;
        gate.open();
    };
    let (answers, ()) = futures_util::future::join(all, opened).await;
    assert!(answers.iter().all(|answer| ids(&answer.json()) == ["alpha"]));
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn an_upstream_without_a_list_does_not_hide_the_others() {
    let good = Upstream::start();
    let refusing = Upstream::start();
    refusing.always_for("/models", Reply::status(404).with_json(json!({"error": {"message": "no such path"}})));
    let html = Upstream::start();
    html.always_for("/models", Reply::html(200, "Welcome"));
    good.always_for("/models", list_of(&["alpha"]));
    let setup = Setup::new()
        .upstream("unknown", "chat", &format!("http://{}/v1", Upstream::unused_address()))
        .upstream("refusing", "chat", &refusing.base_url())
        .upstream("html", "chat", &html.base_url())
        .upstream("good", "chat", &good.base_url());
    let amalgam = Amalgam::start(BINARY, setup).await;
    assert_eq!(ids(&amalgam.client().get("/v1/models").await.json()), ["alpha"]);
    good.enqueue(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Whole));
    assert_eq!(ask(&amalgam, "alpha").await.status, 200);
    refusing.enqueue(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Whole));
    assert_eq!(ask(&amalgam, "refusing/any").await.status, 200, "by its own name it can be asked all the same");
}

#[tokio::test]
async fn a_model_that_no_upstream_has_is_not_found() {
    // RAM-08
    let amalgam = Amalgam::start(BINARY, Setup::new()).await;
    for id in ["unknown", "demo2", "unknown/demo", "demo/", "%F0%9F%A6%80", "%FF", "a%2Fb", &"x".repeat(3000)] {
        let answer = amalgam.client().get(&format!("/v1/models/{id}")).await;
        assert_refused(&answer, 404, Some("model"), "model_not_found");
        assert!(answer.body.len() < 1000, "a long name is not repeated in full");
    }
    assert_eq!(amalgam.client().get("/v1/models/").await.status, 404);
}

#[tokio::test]
async fn the_first_upstream_that_lists_a_name_serves_it() {
    let first = Upstream::start();
    let second = Upstream::start();
    let setup = Setup::new()
        .upstream("first", "chat", &first.base_url())
        .option("models", "[\"one\", \"both\"]")
        .upstream("second", "chat", &second.base_url())
        .option("models", "[\"two\", \"both\"]");
    let amalgam = Amalgam::start(BINARY, setup).await;
    assert_eq!(ids(&amalgam.client().get("/v1/models").await.json()), ["one", "both", "two"], "no name twice");
    for (model, upstream) in [("one", &first), ("both", &first), ("two", &second), ("second/both", &second)] {
        let before = upstream.requests().len();
        upstream.enqueue(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Whole));
        assert_eq!(ask(&amalgam, model).await.status, 200, "{model}");
        assert_eq!(upstream.requests().len(), before + 1, "{model}");
    }
}
