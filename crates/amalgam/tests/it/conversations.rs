//! The Conversations API: conversations, their items, and responses that add to them.

use amalgam_testkit::{Client, HttpAnswer, Setup};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::{Delivery, Script, TestStore, Wire, World, asking, assert_refused, stores};

async fn worlds() -> Vec<(TestStore, World)> {
    let mut worlds = Vec::new();
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        worlds.push((store, world));
    }
    worlds
}

async fn delete(client: &Client, path: &str) -> HttpAnswer {
    client.request(Method::DELETE, path, &[], Bytes::new()).await
}

async fn begin(client: &Client, body: &Value) -> String {
    let answer = client.post_json("/v1/conversations", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["id"].as_str().expect("a conversation has an id").to_owned()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn texts(list: &Value) -> Vec<&str> {
    let items = list["data"].as_array().expect("a list has data").iter();
    items.map(|item| item["content"][0]["text"].as_str().expect("these are messages")).collect()
}

async fn all_texts(client: &Client, id: &str) -> Vec<String> {
    let list = client.get(&format!("/v1/conversations/{id}/items?order=asc&limit=100")).await.json();
    texts(&list).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_conversation_is_begun_shown_changed_and_forgotten() {
    for (store, world) in worlds().await {
        let client = world.amalgam.client();
        let begun =
            client.post_json("/v1/conversations", &json!({"metadata": {"topic": "a"}, "items": [user("Hi")]})).await;
        assert_eq!(begun.status, 200, "{}", begun.text());
        let conversation = begun.json();
        let id = conversation["id"].as_str().unwrap();
        let created_at = conversation["created_at"].as_u64().unwrap();
        assert!(id.starts_with("conv_AM-") && created_at > 1_700_000_000, "{conversation}");
        let expected = |metadata: Value| json!({"id": id, "object": "conversation", "created_at": created_at, "metadata": metadata});
        assert_eq!(conversation, expected(json!({"topic": "a"})), "{}", store.name);

        let path = format!("/v1/conversations/{id}");
        assert_eq!(client.get(&path).await.json(), conversation);
        for (sent, kept) in [
            (json!({"topic": "b", "x": "y"}), json!({"topic": "b", "x": "y"})),
            (json!(null), json!({})),
            (json!({"z": ""}), json!({"z": ""})),
        ] {
            assert_eq!(
                client.post_json(&path, &json!({"metadata": sent})).await.json(),
                expected(kept.clone()),
                "{}",
                store.name
            );
            assert_eq!(client.get(&path).await.json(), expected(kept));
        }
        assert_eq!(
            delete(&client, &path).await.json(),
            json!({"id": id, "object": "conversation.deleted", "deleted": true})
        );
        let items = json!({"items": [user("x")]});
        for answer in [
            client.get(&path).await,
            client.post_json(&path, &json!({"metadata": {}})).await,
            delete(&client, &path).await,
            client.get(&format!("{path}/items")).await,
            client.post_json(&format!("{path}/items"), &items).await,
            client.get(&format!("{path}/items/msg_1")).await,
            delete(&client, &format!("{path}/items/msg_1")).await,
        ] {
            assert_refused(&answer, 404, None, "not_found");
            assert_eq!(answer.json()["error"]["message"], format!("Conversation with id '{id}' not found."));
        }
    }
}

#[tokio::test]
async fn items_are_added_in_order_listed_in_pages_shown_and_forgotten() {
    for (store, world) in worlds().await {
        let client = world.amalgam.client();
        let id = begin(&client, &json!({"items": [user("m0")]})).await;
        let path = format!("/v1/conversations/{id}/items");
        let more: Vec<Value> = (1..21).map(|n| user(&format!("m{n}"))).collect();
        let added = client.post_json(&path, &json!({"items": more})).await.json();
        let names: Vec<String> = (1..21).map(|n| format!("m{n}")).collect();
        assert_eq!(texts(&added), names, "{}", store.name);
        assert_eq!((&added["object"], &added["has_more"]), (&json!("list"), &json!(false)));
        assert_eq!((&added["first_id"], &added["last_id"]), (&added["data"][0]["id"], &added["data"][19]["id"]));
        let item = &added["data"][4];
        let item_id = item["id"].as_str().unwrap();
        assert_eq!(
            *item,
            json!({
                "id": item_id, "type": "message", "status": "completed", "role": "user",
                "content": [{"type": "input_text", "text": "m5"}],
            })
        );
        assert_eq!(client.get(&format!("{path}/{item_id}")).await.json(), *item);

        let newest = client.get(&path).await.json();
        assert_eq!(
            (texts(&newest).len(), texts(&newest)[0], &newest["has_more"]),
            (20, "m20", &json!(true)),
            "{}",
            store.name
        );
        let last = client.get(&format!("{path}?after={}", newest["last_id"].as_str().unwrap())).await.json();
        assert_eq!((texts(&last), &last["has_more"]), (vec!["m0"], &json!(false)));
        let page = client.get(&format!("{path}?order=asc&limit=3&after={item_id}")).await.json();
        assert_eq!((texts(&page), &page["has_more"]), (vec!["m6", "m7", "m8"], &json!(true)), "{}", store.name);
        assert_refused(&client.get(&format!("{path}?after=msg_unknown")).await, 400, Some("after"), "invalid_value");

        let shown = client.get(&format!("/v1/conversations/{id}")).await.json();
        assert_eq!(delete(&client, &format!("{path}/{item_id}")).await.json(), shown, "the conversation is told");
        for answer in
            [client.get(&format!("{path}/{item_id}")).await, delete(&client, &format!("{path}/{item_id}")).await]
        {
            assert_refused(&answer, 404, None, "not_found");
            assert_eq!(answer.json()["error"]["message"], format!("Item with id '{item_id}' not found."));
        }
        let left: Vec<String> = (0..21).filter(|n| *n != 5).map(|n| format!("m{n}")).collect();
        assert_eq!(all_texts(&client, &id).await, left, "{}", store.name);
    }
}

#[tokio::test]
async fn items_are_added_all_or_none() {
    for (store, world) in worlds().await {
        let client = world.amalgam.client();
        let id = begin(&client, &json!({"items": [{"id": "mine", "role": "user", "content": "a"}]})).await;
        let path = format!("/v1/conversations/{id}/items");
        for (items, param, code) in [
            (json!([user("b"), {"id": "mine", "role": "user", "content": "c"}]), "items[1].id", "item_already_exists"),
            (json!([user("b"), {"type": "item_reference", "id": "msg_unknown"}]), "items[1]", "item_not_found"),
            (json!([user("b"), {"role": "user"}]), "items[1].content", "missing_required_parameter"),
            (json!(vec![user("b"); 21]), "items", "array_above_max_length"),
        ] {
            assert_refused(&client.post_json(&path, &json!({"items": items})).await, 400, Some(param), code);
            assert_eq!(all_texts(&client, &id).await, ["a"], "{}", store.name);
        }
        // The same id may be in another conversation.
        let other = begin(&client, &json!({"items": [{"id": "mine", "role": "user", "content": "z"}]})).await;
        assert_eq!(
            client.get(&format!("/v1/conversations/{other}/items/mine")).await.json()["content"][0]["text"],
            "z"
        );
        assert_eq!(client.get(&format!("/v1/conversations/{id}/items/mine")).await.json()["content"][0]["text"], "a");
    }
}

#[tokio::test]
async fn what_is_not_known_is_kept_byte_for_byte() {
    for (store, world) in worlds().await {
        let client = world.amalgam.client();
        let thing = r#"{"type":"acme:thing","id":"thing_1","n":1.50,"deep":{"é":[ 1 ,2]},"zero":"\u0000"}"#;
        let answer = client.post_raw("/v1/conversations", "application/json", format!("{{\"items\":[{thing}]}}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        let kept = client.get(&format!("/v1/conversations/{id}/items/thing_1")).await;
        assert_eq!(kept.text(), thing, "{}", store.name);
        assert!(client.get(&format!("/v1/conversations/{id}/items")).await.text().contains(thing));
    }
}

#[tokio::test]
async fn responses_go_on_in_a_conversation_and_add_to_it() {
    for (store, world) in worlds().await {
        let client = world.amalgam.client();
        let id = begin(&client, &json!({"items": [user("a")]})).await;
        let say = |text: &'static str| Script::text(&[text]);
        let first = world.whole(Wire::Chat, &say("c"), &json!({"input": "b", "conversation": id})).await;
        world.whole(Wire::Chat, &say("e"), &json!({"input": "d", "conversation": {"id": id}})).await;
        let sent = world.sent(Wire::Chat);
        let said: Vec<&str> =
            sent["messages"].as_array().unwrap().iter().filter_map(|one| one["content"].as_str()).collect();
        assert_eq!(said, ["a", "b", "c", "d"], "{}", store.name);
        assert_eq!(all_texts(&client, &id).await, ["a", "b", "c", "d", "e"], "{}", store.name);

        // The answer is the very item of its response, and can be referred to from another conversation.
        let item_id = first["output"][0]["id"].as_str().unwrap();
        assert_eq!(client.get(&format!("/v1/conversations/{id}/items/{item_id}")).await.status, 200);
        let other = begin(&client, &json!({"items": [{"type": "item_reference", "id": item_id}]})).await;
        assert_eq!(all_texts(&client, &other).await, ["c"], "{}", store.name);

        let both = json!({"input": "x", "conversation": id, "previous_response_id": first["id"]});
        let answer = client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &both)).await;
        assert_refused(&answer, 400, Some("conversation"), "mutually_exclusive_parameters");
        let unknown = json!({"input": "x", "conversation": "conv_AM-aaaaaaaaaaaaaaaaaaaaaaaa"});
        let answer = client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &unknown)).await;
        assert_refused(&answer, 404, Some("conversation"), "conversation_not_found");
    }
}

#[tokio::test]
async fn a_conversation_under_a_key_is_begun_once() {
    // S1
    for (store, world) in worlds().await {
        let client = world.amalgam.client().with_header("idempotency-key", "k-1");
        let body = json!({"items": [user("a")]});
        let first = client.post_json("/v1/conversations", &body).await;
        assert_eq!(first.status, 200, "{} {}", store.name, first.text());
        assert_eq!(client.post_json("/v1/conversations", &body).await.text(), first.text(), "{}", store.name);
        let other = client.post_json("/v1/conversations", &json!({})).await;
        assert_refused(&other, 422, None, "idempotency_mismatch");
        let another = client.with_header("idempotency-key", "k-2").post_json("/v1/conversations", &body).await;
        assert_ne!(another.json()["id"], first.json()["id"], "{}", store.name);
        // What was refused was not done: the key is free again.
        let client = world.amalgam.client().with_header("idempotency-key", "k-3");
        assert_eq!(client.post_json("/v1/conversations", &json!({"items": 1})).await.status, 400);
        assert_eq!(client.post_json("/v1/conversations", &body).await.status, 200, "{}", store.name);
    }
}

#[tokio::test]
async fn a_stateless_tenant_has_no_conversations() {
    // C-17
    let world = World::with(Setup::new().stateless(), &[]).await;
    let client = world.amalgam.client();
    let answer = client.post_json("/v1/conversations", &json!({})).await;
    assert_refused(&answer, 400, Some("conversation"), "unsupported_parameter");
    assert_refused(&client.get("/v1/conversations/conv_1").await, 400, Some("conversation"), "unsupported_parameter");
}
