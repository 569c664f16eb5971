//! Stored completions, conversations of the server, and retries.

use amalgam_testkit::{Client, Setup};
use http::Method;
use serde_json::{Value, json};

use super::{PATH, ask, asking, choice, chunks, question};
use crate::support::{DELIVERIES, Delivery, Script, Wire, World, assert_refused, stores};

async fn request(client: &Client, method: Method, path: &str, body: &Value) -> amalgam_testkit::HttpAnswer {
    client.request(method, path, &[("content-type", "application/json")], body.to_string().into()).await
}

/// A stored completion with this metadata.
async fn stored(world: &World, text: &str, metadata: Value) -> String {
    let mut request = asking(Wire::Chat, Delivery::Whole, "metadata", metadata);
    request["store"] = json!(true);
    let answer = ask(world, Wire::Chat, Delivery::Whole, &Script::text(&[text]), &request).await;
    answer.json()["id"].as_str().expect("a completion has an id").to_owned()
}

#[tokio::test]
async fn a_stored_completion_is_read_changed_and_deleted() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client();
        let mut question = asking(Wire::Chat, Delivery::Whole, "metadata", json!({"topic": "a"}));
        question["store"] = json!(true);
        let created = ask(&world, Wire::Chat, Delivery::Whole, &Script::text(&["Hello."]), &question).await.json();
        let id = created["id"].as_str().expect("a completion has an id");
        let path = format!("{PATH}/{id}");
        assert_eq!(client.get(&path).await.json(), created, "{}", store.name);
        let changed = request(&client, Method::POST, &path, &json!({"metadata": {"topic": "b"}})).await;
        assert_eq!((changed.status.as_u16(), &changed.json()["metadata"]), (200, &json!({"topic": "b"})));
        let mut expected = created.clone();
        expected["metadata"] = json!({"topic": "b"});
        assert_eq!(client.get(&path).await.json(), expected, "{}", store.name);
        let invalid = request(&client, Method::POST, &path, &json!({"metadata": {"topic": 1}})).await;
        assert_refused(&invalid, 400, Some("metadata.topic"), "invalid_type");
        let empty = request(&client, Method::POST, &path, &json!({})).await;
        assert_refused(&empty, 400, Some("metadata"), "missing_required_parameter");
        // The response behind it can be continued in the other language.
        let response = id.replace("chatcmpl-", "resp_");
        world.upstream(Wire::Chat).enqueue(Script::text(&["Again."]).reply(Wire::Chat, Delivery::Whole));
        let next = json!({"model": Wire::Chat.model(), "input": "More.", "previous_response_id": response});
        assert_eq!(client.post_json("/v1/responses", &next).await.status, 200);
        let texts = |messages: &Value| -> Vec<String> {
            let messages = messages.as_array().expect("messages are an array");
            messages.iter().map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(texts(&world.sent(Wire::Chat)["messages"]), ["Say hello.", "Hello.", "More."]);
        let deleted = request(&client, Method::DELETE, &path, &Value::Null).await.json();
        assert_eq!(deleted, json!({"id": id, "object": "chat.completion.deleted", "deleted": true}));
        for (method, path) in
            [(Method::GET, path.clone()), (Method::DELETE, path.clone()), (Method::GET, format!("{path}/messages"))]
        {
            let answer = request(&client, method.clone(), &path, &Value::Null).await;
            assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_completion_is_stored_only_on_request() {
    let world = World::start().await;
    for delivery in DELIVERIES {
        let answer = ask(&world, Wire::Chat, delivery, &Script::text(&["Hi."]), &question(Wire::Chat, delivery)).await;
        let id = match delivery {
            Delivery::Whole => answer.json()["id"].clone(),
            Delivery::Stream => chunks(&answer)[0]["id"].clone(),
        };
        let path = format!("{PATH}/{}", id.as_str().expect("a completion has an id"));
        assert_eq!(world.amalgam.client().get(&path).await.status, 404);
    }
    assert_eq!(world.amalgam.client().get(PATH).await.json()["data"], json!([]));
}

#[tokio::test]
async fn stored_completions_are_listed_in_pages_and_filtered() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client();
        let mut ids = Vec::new();
        for number in 0..5 {
            ids.push(
                stored(&world, "Hi.", json!({"number": number.to_string(), "odd": (number % 2 == 1).to_string()}))
                    .await,
            );
        }
        // Responses of another API are not listed.
        world.upstream(Wire::Chat).enqueue(Script::text(&["Hi."]).reply(Wire::Chat, Delivery::Whole));
        client.post_json("/v1/responses", &json!({"model": Wire::Chat.model(), "input": "Hi"})).await;
        ids.reverse();
        let listed = async |query: &str| {
            let list = client.get(&format!("{PATH}?{query}")).await;
            assert_eq!(list.status, 200, "{}", list.text());
            let list = list.json();
            let found: Vec<String> = list["data"]
                .as_array()
                .expect("a list has data")
                .iter()
                .map(|one| one["id"].as_str().expect("an entry has an id").to_owned())
                .collect();
            (found, list["has_more"].as_bool().unwrap_or_default(), list)
        };
        let (all, more, list) = listed("").await;
        assert_eq!((&all, more), (&ids, false), "{}", store.name);
        assert_eq!((&list["first_id"], &list["last_id"]), (&json!(ids[0]), &json!(ids[4])));
        assert_eq!(list["data"][0]["metadata"], json!({"number": "4", "odd": "false"}));
        assert_eq!(list["data"][0]["usage"]["total_tokens"], 18);
        let (page, more, _) = listed("limit=2").await;
        assert_eq!((page.as_slice(), more), (&ids[..2], true), "{}", store.name);
        let (page, more, _) = listed(&format!("limit=3&after={}", ids[1])).await;
        assert_eq!((page.as_slice(), more), (&ids[2..], false), "{}", store.name);
        let (odd, more, _) = listed("metadata[odd]=true").await;
        assert_eq!((odd, more), (vec![ids[1].clone(), ids[3].clone()], false), "{}", store.name);
        let (first, more, _) = listed("metadata[odd]=true&limit=1").await;
        assert_eq!((first, more), (vec![ids[1].clone()], true), "{}", store.name);
        let (both, ..) = listed("metadata[odd]=true&metadata[number]=1").await;
        assert_eq!(both, [ids[3].clone()], "{}", store.name);
        assert_eq!(listed("model=m-chat").await.0.len(), 5);
        assert_eq!(listed("model=other").await.0, [""; 0]);
        request(&client, Method::DELETE, &format!("{PATH}/{}", ids[0]), &Value::Null).await;
        assert_eq!(listed("").await.0, ids[1..], "{}", store.name);
        assert_refused(&client.get(&format!("{PATH}?order=asc")).await, 400, Some("order"), "invalid_value");
        assert!(client.get(&format!("{PATH}?after=chatcmpl-1")).await.status.is_client_error());
    }
}

#[tokio::test]
async fn the_messages_of_a_stored_completion_are_listed_in_pages() {
    let world = World::start().await;
    let client = world.amalgam.client();
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look."}, image]},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
    ]);
    let mut question = asking(Wire::Chat, Delivery::Whole, "messages", messages);
    question["store"] = json!(true);
    let created = ask(&world, Wire::Chat, Delivery::Whole, &Script::text(&["So."]), &question).await.json();
    let id = created["id"].as_str().expect("a completion has an id");
    let path = format!("{PATH}/{id}/messages");
    let list = client.get(&path).await.json();
    let message = |index: usize, fields: Value| {
        let mut message = json!({"id": format!("{id}-{index}"), "name": null, "content_parts": null});
        fields
            .as_object()
            .expect("fields are an object")
            .iter()
            .for_each(|(name, value)| message[name] = value.clone());
        message
    };
    let expected = [
        message(0, json!({"role": "system", "content": "Be brief."})),
        message(
            1,
            json!({"role": "user", "content": "Look.", "content_parts": [{"type": "text", "text": "Look."}, image]}),
        ),
        message(
            2,
            json!({"role": "assistant", "content": "I look.", "refusal": null, "annotations": [], "tool_calls": [call]}),
        ),
        message(3, json!({"role": "tool", "content": "seen", "tool_call_id": "call_1"})),
    ];
    assert_eq!(list["data"], json!(expected));
    let page = client.get(&format!("{path}?limit=2&after={id}-0")).await.json();
    assert_eq!((&page["data"], &page["has_more"]), (&json!(expected[1..3]), &json!(true)));
    let last = client.get(&format!("{path}?limit=1&order=desc")).await.json();
    assert_eq!((&last["data"], &last["last_id"]), (&json!(expected[3..]), &json!(format!("{id}-3"))));
    assert_eq!(client.get(&format!("{path}?after={id}-9")).await.status, 400);
}

#[tokio::test]
async fn a_conversation_of_the_server_goes_on_and_takes_the_new_messages() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client();
        let conversation = client.post_json("/v1/conversations", &json!({})).await.json();
        let conversation = conversation["id"].as_str().expect("a conversation has an id");
        // It begins in the other language.
        world.upstream(Wire::Chat).enqueue(Script::text(&["Hello, Ada."]).reply(Wire::Chat, Delivery::Whole));
        let first = json!({"model": Wire::Chat.model(), "input": "I am Ada.", "conversation": conversation});
        assert_eq!(client.post_json("/v1/responses", &first).await.status, 200);
        let inside = client.clone().with_header("amalgam-conversation", conversation);
        for delivery in DELIVERIES {
            world.upstream(Wire::Chat).enqueue(Script::text(&["Ada."]).reply(Wire::Chat, delivery));
            let messages =
                json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who am I?"}]);
            let answer = inside.post_json(PATH, &asking(Wire::Chat, delivery, "messages", messages)).await;
            assert_eq!(choice(&answer, delivery).0["message"]["content"], "Ada.", "{}", answer.text());
        }
        let said = |role: &str, content: &str| json!({"role": role, "content": content});
        let (question, answer) = (said("user", "Who am I?"), said("assistant", "Ada."));
        assert_eq!(
            world.sent(Wire::Chat)["messages"],
            json!([
                said("system", "Be brief."),
                said("user", "I am Ada."),
                said("assistant", "Hello, Ada."),
                question,
                answer,
                question,
            ]),
            "{}: the instructions of a turn are not part of the conversation",
            store.name
        );
        let items = client.get(&format!("/v1/conversations/{conversation}/items?order=asc")).await.json();
        assert_eq!(items["data"].as_array().map(Vec::len), Some(6), "{items}");
        let missing = client.clone().with_header("amalgam-conversation", "conv_AM-aaaaaaaaaaaaaaaaaaaaaaaa");
        let answer = missing.post_json(PATH, &question_of()).await;
        assert_refused(&answer, 404, Some("amalgam-conversation"), "conversation_not_found");
        let invalid = client.clone().with_header("amalgam-conversation", &"x".repeat(600));
        assert_eq!(invalid.post_json(PATH, &question_of()).await.status, 400);
    }
}

fn question_of() -> Value {
    question(Wire::Chat, Delivery::Whole)
}

#[tokio::test]
async fn a_retry_with_the_same_key_gets_the_same_completion() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        for (number, (delivery, stored)) in
            DELIVERIES.into_iter().flat_map(|delivery| [(delivery, true), (delivery, false)]).enumerate()
        {
            let client = world.amalgam.client().with_header("idempotency-key", &format!("key-{number}"));
            let request = asking(Wire::Chat, delivery, "store", json!(stored));
            world.upstream(Wire::Chat).enqueue(Script::text(&["Hel", "lo."]).reply(Wire::Chat, delivery));
            let first = client.post_json(PATH, &request).await;
            assert_eq!(first.status, 200, "{}", first.text());
            let second = client.post_json(PATH, &request).await;
            assert_eq!(second.header("idempotent-replayed"), Some("true"), "{}", second.text());
            assert_eq!(choice(&second, delivery), choice(&first, delivery), "{} {delivery:?}", store.name);
            assert_eq!(world.upstream(Wire::Chat).replies_left(), 0);
            let other = client.post_json(PATH, &asking(Wire::Chat, delivery, "seed", json!(1))).await;
            assert_eq!(other.status, 422, "{}", other.text());
        }
    }
}
