//! Conversations, storage and repeated requests, on every store.

use amalgam_testkit::{Client, Setup};
use serde_json::{Value, json};

use super::{error_of, message, post, request};
use crate::support::{DELIVERIES, Delivery, Script, Wire, World, stores};

fn says(world: &World, delivery: Delivery, text: &str) {
    world.upstream(Wire::Chat).enqueue(Script::text(&[text]).reply(Wire::Chat, delivery));
}

#[tokio::test]
async fn a_message_is_not_stored_unless_the_caller_wants_it() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client();
        for (headers, status) in [(&[][..], 404), (&[("amalgam-store", "true")][..], 200)] {
            says(&world, Delivery::Whole, "Yes");
            let answer = post(&client, headers, &request(Wire::Chat, Delivery::Whole, &json!({}))).await;
            let id = answer.header("amalgam-response-id").expect("an answer names its response").to_owned();
            let stored = client.get(&format!("/v1/responses/{id}")).await;
            assert_eq!(stored.status.as_u16(), status, "{}: {}", store.name, stored.text());
        }
    }
}

#[tokio::test]
async fn a_conversation_goes_on_in_another_language() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client();
        let conversation = client.post_json("/v1/conversations", &json!({})).await.json();
        let id = conversation["id"].as_str().expect("a conversation has an id").to_owned();
        says(&world, Delivery::Whole, "Hello Ann");
        let first = json!({"model": "m-chat", "conversation": id, "input": "I am Ann"});
        assert_eq!(client.post_json("/v1/responses", &first).await.status, 200);
        for delivery in DELIVERIES {
            says(&world, delivery, "You are Ann");
            let fields = json!({"messages": [{"role": "user", "content": "Who am I?"}]});
            let headers = [("amalgam-conversation", id.as_str())];
            let answer = post(&client, &headers, &request(Wire::Chat, delivery, &fields)).await;
            assert_eq!(message(delivery, &answer)["content"][0]["text"], "You are Ann", "{}", answer.text());
        }
        let told = world.sent(Wire::Chat)["messages"].clone();
        let expected = json!([
            {"role": "user", "content": "I am Ann"},
            {"role": "assistant", "content": "Hello Ann"},
            {"role": "user", "content": "Who am I?"},
            {"role": "assistant", "content": "You are Ann"},
            {"role": "user", "content": "Who am I?"},
        ]);
        assert_eq!(told, expected, "{}", store.name);
        let absent = [("amalgam-conversation", "conv_AM-aaaaaaaaaaaaaaaaaaaaaaaa")];
        let refused = post(&client, &absent, &request(Wire::Chat, Delivery::Whole, &json!({}))).await;
        assert_eq!(error_of(&refused).0, 404);
        let asked = world.upstream(Wire::Chat).requests().len();
        let malformed = [("amalgam-conversation", "")];
        let refused = post(&client, &malformed, &request(Wire::Chat, Delivery::Whole, &json!({}))).await;
        assert_eq!(error_of(&refused).0, 404);
        assert_eq!(world.upstream(Wire::Chat).requests().len(), asked);
    }
}

#[tokio::test]
async fn the_conversation_of_another_user_looks_like_a_missing_one() {
    const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";
    for store in stores() {
        let world = World::with(store.setup(Setup::new().extra(TENANTS)), &[]).await;
        let caller =
            |key: &str, user: &str| Client::new(world.amalgam.url()).with_key(key).with_header("x-amalgam-user", user);
        let conversation = caller("am_a", "ann").post_json("/v1/conversations", &json!({})).await.json();
        let id = conversation["id"].as_str().expect("a conversation has an id").to_owned();
        let absent = "conv_AM-aaaaaaaaaaaaaaaaaaaaaaaa";
        for (key, user) in [("am_a", "bob"), ("am_b", "ann")] {
            let mut told = Vec::new();
            for id in [id.as_str(), absent] {
                let headers = [("amalgam-conversation", id)];
                let body = request(Wire::Chat, Delivery::Whole, &json!({}));
                let (status, kind, message) = error_of(&post(&caller(key, user), &headers, &body).await);
                told.push((status, kind, message.replace(id, "ID")));
            }
            assert_eq!(told[0], told[1], "{} {key} {user}", store.name);
            assert_eq!(told[0].0, 404);
        }
    }
}

#[tokio::test]
async fn a_repeated_request_gets_the_same_message_from_one_call() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client();
        for (number, delivery) in DELIVERIES.into_iter().enumerate() {
            for kept in ["true", "false"] {
                says(&world, delivery, "Once");
                let key = format!("{delivery:?} {kept}");
                let headers = [("idempotency-key", key.as_str()), ("amalgam-store", kept)];
                let body = request(Wire::Chat, delivery, &json!({}));
                let first = post(&client, &headers, &body).await;
                let again = post(&client, &headers, &body).await;
                assert_eq!(again.header("idempotent-replayed"), Some("true"), "{} {key}", store.name);
                let (first, again) = (message(delivery, &first), message(delivery, &again));
                assert_eq!(first, again, "{} {key}", store.name);
                assert_eq!(first["content"][0]["text"], "Once");
            }
            assert_eq!(world.upstream(Wire::Chat).requests().len(), 2 * (number + 1), "{}", store.name);
        }
        let body = request(Wire::Chat, Delivery::Whole, &json!({"max_tokens": 5}));
        let key = format!("{:?} true", Delivery::Whole);
        let other = post(&client, &[("idempotency-key", key.as_str())], &body).await;
        assert_eq!(error_of(&other).0, 400, "another body");
    }
}

#[tokio::test]
async fn a_stored_turn_is_listed_with_its_wire_and_its_transcript() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new().tenant_key("am_key")), &[]).await;
        let client = world.amalgam.client();
        says(&world, Delivery::Stream, "Yes");
        let body = request(Wire::Chat, Delivery::Stream, &json!({"stop_sequences": ["END"]}));
        let answer = post(&client, &[("amalgam-store", "true")], &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let list = client.get("/admin/turns?door=messages").await.json();
        let turns: &Vec<Value> = list["data"].as_array().expect("a list has data");
        assert_eq!(turns.len(), 1, "{list}");
        let id = answer.header("amalgam-response-id").expect("an answer names its response");
        let turn = client.get(&format!("/admin/turns/{id}")).await;
        assert_eq!(turn.status, 200, "{}", turn.text());
        assert!(turn.text().contains("END"), "the transcript has the request: {}", turn.text());
    }
}
