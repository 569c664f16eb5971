//! Stored responses: read, their input listed, cancelled, deleted.

use amalgam_testkit::{HttpAnswer, Reply, Setup};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::{
    DELIVERIES, Delivery, Said, Script, TestStore, WIRES, Wire, World, asking, assert_refused, last_response, stores,
};

async fn worlds() -> Vec<(TestStore, World)> {
    let mut worlds = Vec::new();
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        worlds.push((store, world));
    }
    worlds
}

async fn delete(world: &World, path: &str) -> HttpAnswer {
    world.amalgam.client().request(Method::DELETE, path, &[], Bytes::new()).await
}

async fn get(world: &World, path: &str) -> HttpAnswer {
    world.amalgam.client().get(path).await
}

fn id_of(response: &Value) -> &str {
    response["id"].as_str().expect("a response has an id")
}

fn ids(list: &Value) -> Vec<&str> {
    let items = list["data"].as_array().expect("a list has data").iter();
    items.map(|item| item["id"].as_str().expect("every item has an id")).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    let items = list["data"].as_array().expect("a list has data").iter();
    items.map(|item| item["content"][0]["text"].as_str().expect("these are messages")).collect()
}

#[tokio::test]
async fn a_response_is_read_back_as_it_was_answered() {
    let script = Script::new([
        Said::reasoning(&["Hm."]),
        Said::text(&["It is ", "31 °C \"there\"."]),
        Said::call("call_1", "f", &["{\"a\": ", "1}"]),
    ]);
    let tool = json!({"type": "function", "name": "f", "parameters": {"type": "object"}});
    let request = json!({
        "input": "Hi \u{0} é",
        "instructions": "Be brief.",
        "tools": [tool],
        "metadata": {"a": "b"},
        "temperature": 0.5,
        "text": {"format": {"type": "json_object"}},
    });
    for (store, world) in worlds().await {
        for wire in WIRES {
            let whole = world.ask(wire, Delivery::Whole, &script, &request).await;
            let again = get(&world, &format!("/v1/responses/{}", id_of(&whole.json()))).await;
            assert_eq!((again.status.as_u16(), again.text()), (200, whole.text()), "{} {wire:?}", store.name);
            assert_eq!((&again.json()["store"], &again.json()["status"]), (&json!(true), &json!("completed")));

            let streamed = last_response(&world.streamed(wire, &script, &request).await);
            let again =
                get(&world, &format!("/v1/responses/{}?include[]=reasoning.encrypted_content", id_of(&streamed))).await;
            assert_eq!(again.json(), streamed, "{} {wire:?}", store.name);
        }
    }
}

#[tokio::test]
async fn a_response_that_ended_early_or_failed_is_read_back_as_it_was_told() {
    for (store, world) in worlds().await {
        let cut = Script::text(&["It is"]).cut_by_length();
        for delivery in DELIVERIES {
            let response = world.response(Wire::Chat, delivery, &cut, &json!({"input": "Hi"})).await;
            assert_eq!(response["status"], "incomplete");
            assert_eq!(
                get(&world, &format!("/v1/responses/{}", id_of(&response))).await.json(),
                response,
                "{}",
                store.name
            );
        }
        world
            .upstream(Wire::Chat)
            .enqueue(Script::text(&["It", " is", " so"]).reply(Wire::Chat, Delivery::Stream).cut_after(2));
        let answer = world
            .amalgam
            .client()
            .post_json("/v1/responses", &asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"})))
            .await;
        let response = last_response(&answer.json_events());
        assert_eq!(response["status"], "failed");
        assert_eq!(
            get(&world, &format!("/v1/responses/{}", id_of(&response))).await.json(),
            response,
            "{}",
            store.name
        );
    }
}

#[tokio::test]
async fn what_was_not_kept_or_never_was_is_not_found() {
    // C-18
    for (store, world) in worlds().await {
        let unkept = world.whole(Wire::Chat, &Script::text(&["fine"]), &json!({"input": "Hi", "store": false})).await;
        assert_eq!(unkept["store"], false);
        for id in [id_of(&unkept), "resp_AM-1760000000000-aaaaaaaaaaaaaaaaaaaaaaaa", "resp_1", "%00", "a%2Fb", "💥"] {
            let id = id.replace('💥', "%F0%9F%92%A5");
            for (method, path) in [
                (Method::GET, format!("/v1/responses/{id}")),
                (Method::GET, format!("/v1/responses/{id}?stream=true")),
                (Method::GET, format!("/v1/responses/{id}/input_items")),
                (Method::DELETE, format!("/v1/responses/{id}")),
                (Method::POST, format!("/v1/responses/{id}/cancel")),
            ] {
                let answer = world.amalgam.client().request(method.clone(), &path, &[], Bytes::new()).await;
                assert_refused(&answer, 404, None, "not_found");
                assert!(
                    answer.text().contains("Response with id '"),
                    "{} {method} {path}: {}",
                    store.name,
                    answer.text()
                );
            }
        }
    }
}

#[tokio::test]
async fn a_response_that_was_deleted_is_gone_and_cannot_be_continued() {
    for (store, world) in worlds().await {
        let fine = Script::text(&["fine"]);
        let first = world.whole(Wire::Chat, &fine, &json!({"input": "one"})).await;
        let path = format!("/v1/responses/{}", id_of(&first));
        let child = json!({"input": "two", "previous_response_id": id_of(&first)});
        let second = world.whole(Wire::Chat, &fine, &child).await;
        let answer = delete(&world, &path).await;
        assert_eq!(
            answer.json(),
            json!({"id": id_of(&first), "object": "response", "deleted": true}),
            "{}",
            store.name
        );
        for again in [get(&world, &path).await, delete(&world, &path).await] {
            assert_refused(&again, 404, None, "not_found");
        }
        let before = world.upstream(Wire::Chat).requests().len();
        let answer =
            world.amalgam.client().post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &child)).await;
        assert_refused(&answer, 400, Some("previous_response_id"), "previous_response_not_found");
        assert_eq!(world.upstream(Wire::Chat).requests().len(), before);

        // Responses that continue it are still there, with their whole input.
        let third = json!({"input": "three", "previous_response_id": id_of(&second)});
        world.whole(Wire::Chat, &fine, &third).await;
        let said: Vec<Value> =
            world.sent(Wire::Chat)["messages"].as_array().unwrap().iter().map(|m| m["content"].clone()).collect();
        assert_eq!(said, ["one", "fine", "two", "fine", "three"], "{}", store.name);
    }
}

#[tokio::test]
async fn only_a_background_response_can_be_cancelled_and_that_as_often_as_one_likes() {
    for (store, world) in worlds().await {
        let foreground = world.whole(Wire::Chat, &Script::text(&["fine"]), &json!({"input": "Hi"})).await;
        let cancel = async |id: &str| {
            let path = format!("/v1/responses/{id}/cancel");
            world.amalgam.client().request(Method::POST, &path, &[], Bytes::new()).await
        };
        assert_refused(&cancel(id_of(&foreground)).await, 400, None, "response_not_cancellable");

        world.upstream(Wire::Chat).enqueue(Reply::hang());
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "background": true}));
        let queued = world.amalgam.client().post_json("/v1/responses", &request).await.json();
        assert_eq!((&queued["status"], &queued["background"]), (&json!("queued"), &json!(true)), "{}", store.name);
        world.upstream(Wire::Chat).wait_for_requests(2).await;
        let cancelled = cancel(id_of(&queued)).await;
        assert_eq!(
            (cancelled.status.as_u16(), &cancelled.json()["status"]),
            (200, &json!("cancelled")),
            "{}",
            store.name
        );
        for answer in [cancel(id_of(&queued)).await, get(&world, &format!("/v1/responses/{}", id_of(&queued))).await] {
            assert_eq!((answer.status.as_u16(), answer.text()), (200, cancelled.text()), "{}", store.name);
        }
    }
}

#[tokio::test]
async fn the_input_is_listed_item_by_item_with_everything_spelled_out() {
    let input = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"type": "message", "id": "msg_mine", "role": "user", "content": [{"type": "input_text", "text": "So?"}]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{ }"},
        {"type": "function_call_output", "call_id": "call_1", "output": "1"},
        {"type": "acme:thing", "id": "thing_1", "deep": {"a": [1, 2.5]}},
    ]);
    for (store, world) in worlds().await {
        let request = json!({"input": input});
        let response = world.whole(Wire::Chat, &Script::text(&["fine"]), &request).await;
        let list = get(&world, &format!("/v1/responses/{}/input_items?order=asc", id_of(&response))).await;
        let list = list.json();
        let listed = ids(&list);
        for (id, prefix) in listed.iter().zip(["msg_AM-", "msg_AM-", "msg_mine", "fc_AM-", "fco_AM-", "thing_1"]) {
            assert!(id.starts_with(prefix), "{} {listed:?}", store.name);
        }
        let output = json!([{"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}]);
        let text = |text: &str| json!([{"type": "input_text", "text": text}]);
        let message = |id: &str, role: &str, content: Value| json!({"id": id, "type": "message", "status": "completed", "role": role, "content": content});
        assert_eq!(
            list,
            json!({
                "object": "list",
                "data": [
                    message(listed[0], "user", text("Hi")),
                    message(listed[1], "assistant", output),
                    message("msg_mine", "user", text("So?")),
                    {"id": listed[3], "type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{ }", "status": "completed"},
                    {"id": listed[4], "type": "function_call_output", "call_id": "call_1", "output": "1", "status": "completed"},
                    {"id": "thing_1", "type": "acme:thing", "deep": {"a": [1, 2.5]}},
                ],
                "first_id": listed[0],
                "last_id": "thing_1",
                "has_more": false,
            }),
            "{}",
            store.name
        );
        let text = world.whole(Wire::Chat, &Script::text(&["fine"]), &json!({"input": "Hi"})).await;
        let list = get(&world, &format!("/v1/responses/{}/input_items", id_of(&text))).await.json();
        assert_eq!(
            list["data"],
            json!([message(ids(&list)[0], "user", json!([{"type": "input_text", "text": "Hi"}]))])
        );
    }
}

#[tokio::test]
async fn the_input_is_listed_in_pages_newest_first_unless_asked_otherwise() {
    let input: Vec<Value> = (0..25).map(|n| json!({"role": "user", "content": format!("m{n}")})).collect();
    let names = |range: std::ops::Range<usize>| range.map(|n| format!("m{n}")).collect::<Vec<_>>();
    for (store, world) in worlds().await {
        let response = world.whole(Wire::Chat, &Script::text(&["fine"]), &json!({"input": input})).await;
        let path = format!("/v1/responses/{}/input_items", id_of(&response));
        let first = get(&world, &path).await.json();
        let mut newest = names(5..25);
        newest.reverse();
        assert_eq!(
            (texts(&first), &first["has_more"]),
            (newest.iter().map(String::as_str).collect(), &json!(true)),
            "{}",
            store.name
        );
        let rest = get(&world, &format!("{path}?after={}", first["last_id"].as_str().unwrap())).await.json();
        assert_eq!((texts(&rest), &rest["has_more"]), (vec!["m4", "m3", "m2", "m1", "m0"], &json!(false)));

        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let page = get(
                &world,
                &format!("{path}?order=asc&limit=10&after={after}&include[]=message.input_image.image_url"),
            )
            .await
            .json();
            all.extend(texts(&page).into_iter().map(str::to_owned));
            if page["has_more"] == false {
                break;
            }
            after = page["last_id"].as_str().unwrap().to_owned();
        }
        assert_eq!(all, names(0..25), "{}", store.name);
        let back = get(&world, &format!("{path}?order=asc&limit=2&before={after}")).await.json();
        assert_eq!(texts(&back), ["m17", "m18"]);
        let none = get(&world, &format!("{path}?after={}", ids(&rest)[4])).await.json();
        assert_eq!(none, json!({"object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false}));
        for (query, param) in [
            ("limit=0", "limit"),
            ("limit=101", "limit"),
            ("limit=x", "limit"),
            ("order=up", "order"),
            ("include[]=nonsense", "include"),
            ("after=msg_unknown", "after"),
            ("before=msg_unknown", "before"),
        ] {
            assert_refused(&get(&world, &format!("{path}?{query}")).await, 400, Some(param), "invalid_value");
        }
    }
}

#[tokio::test]
async fn the_input_of_a_response_that_continues_others_is_everything_that_it_was_given() {
    for (store, world) in worlds().await {
        let say = |text: &'static str| Script::text(&[text]);
        let first = world.whole(Wire::Chat, &say("b"), &json!({"input": "a"})).await;
        let second =
            world.whole(Wire::Chat, &say("d"), &json!({"input": "c", "previous_response_id": id_of(&first)})).await;
        let fork =
            world.whole(Wire::Chat, &say("f"), &json!({"input": "e", "previous_response_id": id_of(&first)})).await;
        for (response, given) in [(&first, vec!["a"]), (&second, vec!["a", "b", "c"]), (&fork, vec!["a", "b", "e"])] {
            let list = get(&world, &format!("/v1/responses/{}/input_items?order=asc", id_of(response))).await.json();
            assert_eq!(texts(&list), given, "{}", store.name);
        }
        // The answer of the first is the very item that it was.
        let list = get(&world, &format!("/v1/responses/{}/input_items?order=asc", id_of(&second))).await.json();
        assert_eq!(list["data"][1]["id"], first["output"][0]["id"]);
    }
}
