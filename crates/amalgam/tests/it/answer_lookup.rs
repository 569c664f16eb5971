//! Answers are found by our id and by the one of the model's server.

use amalgam_testkit::{Amalgam, Client, Reply, Setup, Upstream};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::{BINARY, Script, Wire, stores};

/// What the model's server says, under this id.
fn named(id: &str) -> Reply {
    let mut last = Script::text(&["Hello."]).frames(Wire::Responses).pop().unwrap_or_default();
    last["response"]["id"] = json!(id);
    Reply::json(last["response"].take())
}

#[tokio::test]
async fn an_answer_is_found_by_the_id_that_its_caller_was_told_and_by_ours() {
    // right C9
    for store in stores() {
        let upstream = Upstream::start();
        let setup = Setup::new().upstream("up", "responses", &upstream.base_url()).option("models", "[\"m\"]");
        let setup = setup.extra("[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n");
        let amalgam = Amalgam::start(BINARY, store.setup(setup)).await;
        let user = |key: &str, name: &str| Client::new(amalgam.url()).with_key(key).with_header("x-amalgam-user", name);
        let say = async |client: &Client, message: &str, id: &str| -> Value {
            upstream.enqueue(named(id));
            let answer = client.post_json("/api/v2/ai-agent/respond/", &json!({"message": message})).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.json()
        };
        let (ada, ben, eve) = (user("am_a", "ada"), user("am_a", "ben"), user("am_b", "ada"));
        // The same id twice: an upstream may repeat itself, and the newest counts.
        say(&ada, "one", "resp_twice").await;
        let newest = say(&ada, "two", "resp_twice").await;
        let of_ben = say(&ben, "three", "resp_of_ben").await;
        assert_eq!((&newest["response_id"], &of_ben["response_id"]), (&json!("resp_twice"), &json!("resp_of_ben")));

        let found = ada.get("/api/v2/ai-agent/respond/resp_twice/").await;
        assert_eq!(found.status, 200, "{}: {}", store.name, found.text());
        let text = found.text();
        let done = text.split("event: done").nth(1).unwrap_or_else(|| panic!("no end: {text}"));
        let done = done.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let done: Value = serde_json::from_str(done).unwrap();
        assert_eq!(done["assistant_message_id"], newest["assistant_message_id"], "{}: the newest", store.name);
        for (client, id) in [(&ada, "resp_of_ben"), (&eve, "resp_twice"), (&ada, "resp_unknown")] {
            let answer = client.get(&format!("/api/v2/ai-agent/respond/{id}/")).await;
            assert_eq!(answer.status, 404, "{}: {id}", store.name);
        }

        let turn = user("am_a", "root").get("/admin/turns/resp_of_ben").await;
        assert_eq!(turn.status, 200, "{}: {}", store.name, turn.text());
        let turn = turn.json();
        let ours = turn["id"].as_str().unwrap();
        assert!(turn["user"] == "ben" && ours.starts_with("resp_AM-"), "{turn}");
        assert_eq!(user("am_a", "root").get(&format!("/admin/turns/{ours}")).await.json(), turn, "{}", store.name);
        assert_eq!(ben.get(&format!("/api/v2/ai-agent/respond/{ours}/")).await.status, 200, "{}", store.name);
        assert_eq!(eve.get("/admin/turns/resp_of_ben").await.status, 404, "{}", store.name);
    }
}

#[tokio::test]
async fn a_turn_of_v1_responses_is_found_by_the_id_of_the_models_server() {
    // right C9
    for store in stores() {
        let upstream = Upstream::start();
        let setup = Setup::new().upstream("up", "responses", &upstream.base_url()).option("models", "[\"m\"]");
        let setup = setup.extra("[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n");
        let amalgam = Amalgam::start(BINARY, store.setup(setup)).await;
        let user = |key: &str, name: &str| Client::new(amalgam.url()).with_key(key).with_header("x-amalgam-user", name);
        let say = async |client: &Client, id: &str| -> Value {
            upstream.enqueue(named(id));
            let answer = client.post_json("/v1/responses", &json!({"model": "m", "input": "Hi"})).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(!answer.text().contains(id), "the id of another server is not shown: {}", answer.text());
            answer.json()
        };
        let (ada, eve) = (user("am_a", "ada"), user("am_b", "ada"));
        let older = say(&ada, "resp_up_1").await;
        let newer = say(&ada, "resp_up_1").await;
        let foreign = say(&eve, "resp_up_2").await;
        let found = async |key: &str, id: &str| {
            let answer = user(key, "root").get(&format!("/admin/turns/{id}")).await;
            (answer.status.as_u16(), answer.json()["id"].clone())
        };
        assert_eq!(found("am_a", "resp_up_1").await, (200, newer["id"].clone()), "{}: the newest", store.name);
        assert_eq!(found("am_b", "resp_up_2").await, (200, foreign["id"].clone()), "{}", store.name);
        for (key, id) in [("am_a", "resp_up_2"), ("am_b", "resp_up_1"), ("am_a", "resp_up_3")] {
            assert_eq!(found(key, id).await.0, 404, "{}: {key} {id}", store.name);
        }
        let path = format!("/v1/responses/{}", newer["id"].as_str().unwrap_or_default());
        let gone = ada.request(Method::DELETE, &path, &[], Bytes::new()).await;
        assert_eq!(gone.status, 200, "{}", gone.text());
        assert_eq!(found("am_a", "resp_up_1").await, (200, older["id"].clone()), "{}: what is left", store.name);
    }
}

#[tokio::test]
async fn an_answer_that_is_replayed_names_the_response_of_the_first_one() {
    // right C9
    for store in stores() {
        let upstream = Upstream::start();
        let setup = Setup::new().upstream("up", "responses", &upstream.base_url()).option("models", "[\"m\"]");
        let setup = setup.extra("[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n");
        let amalgam = Amalgam::start(BINARY, store.setup(setup)).await;
        let client = Client::new(amalgam.url()).with_key("am_a").with_header("idempotency-key", "once");
        upstream.enqueue(named("resp_up"));
        let mut ids = Vec::new();
        for replayed in [None, Some("true")] {
            let answer = client.post_json("/api/v2/ai-agent/respond/", &json!({"message": "Hi"})).await;
            assert_eq!(answer.header("idempotent-replayed"), replayed, "{}: {}", store.name, answer.text());
            ids.push(answer.header("amalgam-response-id").unwrap_or_default().to_owned());
        }
        assert_eq!(ids[0], ids[1], "{}", store.name);
        let found = client.get(&format!("/api/v2/ai-agent/respond/{}/", ids[0])).await;
        assert_eq!(found.status, 200, "{}: {}", store.name, found.text());
    }
}
