//! Stored responses, and turns that continue them.

use amalgam_testkit::{Gate, Reply, Setup};
use http::Method;
use serde_json::{Value, json};

use crate::support::{
    DELIVERIES, Delivery, Said, Script, TestStore, WIRES, Wire, World, asking, assert_refused, beside, ended, id_of,
    items, retrieved, stores,
};

async fn worlds() -> Vec<(World, TestStore)> {
    let mut worlds = Vec::new();
    for store in stores() {
        worlds.push((World::with(store.setup(Setup::new()), &[]).await, store));
    }
    worlds
}

/// Asks for a whole answer over Chat Completions.
async fn said(world: &World, text: &str, request: Value) -> Value {
    world.whole(Wire::Chat, &Script::text(&[text]), &request).await
}

/// Role and text of every message of the last request to the Chat upstream.
fn messages(world: &World) -> Vec<(String, String)> {
    let sent = world.sent(Wire::Chat);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let messages = sent["messages"].as_array().expect("a chat has messages").iter();
    messages.map(|message| (text(&message["role"]), text(&message["content"]))).collect()
}

fn talk(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn a_response_is_kept_unless_its_caller_says_otherwise() {
    // C-17, C-18
    for (world, store) in worlds().await {
        for delivery in DELIVERIES {
            for (request, kept) in [
                (json!({"input": "Hi"}), true),
                (json!({"input": "Hi", "store": null}), true),
                (json!({"input": "Hi", "store": true}), true),
                (json!({"input": "Hi", "store": false}), false),
            ] {
                let response = world.response(Wire::Chat, delivery, &Script::text(&["Hello."]), &request).await;
                assert_eq!(response["store"], kept, "{} {request}", store.name);
                let path = format!("/v1/responses/{}", id_of(&response));
                let again = world.amalgam.client().get(&path).await;
                match kept {
                    true => assert_eq!((again.status.as_u16(), again.json()), (200, response), "{}", store.name),
                    false => assert_refused(&again, 404, None, "not_found"),
                }
                let stream = world.amalgam.client().get(&format!("{path}?stream=true")).await;
                match (kept, delivery) {
                    (true, Delivery::Stream) => assert_eq!(stream.status, 200),
                    (true, Delivery::Whole) => assert_refused(&stream, 400, Some("stream"), "stream_not_available"),
                    (false, _) => assert_refused(&stream, 404, None, "not_found"),
                }
            }
        }
    }
}

#[tokio::test]
async fn an_id_resolves_the_moment_that_a_client_has_seen_it() {
    // P2
    for (world, store) in worlds().await {
        for wire in WIRES {
            let gate = Gate::new();
            world.upstream(wire).enqueue(Script::text(&["a", "b"]).reply(wire, Delivery::Stream).hold_after(1, &gate));
            let request = asking(wire, Delivery::Stream, &json!({"input": "Hi"}));
            let mut stream = world.amalgam.client().post_stream("/v1/responses", &request).await;
            let mut created = stream.next_of_type("response.created").await["response"].clone();
            let mut response = retrieved(&world.amalgam.client(), id_of(&created)).await;
            assert_eq!(response["status"], "in_progress", "{} {wire:?}", store.name);
            // The answering model is stored with the end.
            let unknown = json!({"model": null, "losses": []});
            assert_eq!(std::mem::take(&mut response["amalgam"]), unknown);
            created["amalgam"].take();
            assert_eq!(response, created);
            gate.open();
            let completed = stream.next_of_type("response.completed").await["response"].clone();
            assert_eq!(retrieved(&world.amalgam.client(), id_of(&created)).await, completed);
        }
    }
}

#[tokio::test]
async fn a_chain_carries_items_over_and_instructions_not() {
    for (world, store) in worlds().await {
        let mut previous = Value::Null;
        let mut expected = Vec::new();
        for turn in 1..=5 {
            let (question, answer, manner) = (format!("q{turn}"), format!("a{turn}"), format!("manner {turn}"));
            let mut request = json!({"input": question, "previous_response_id": previous});
            // Every second turn has instructions; each of them is for its own turn alone.
            if turn % 2 == 1 {
                request["instructions"] = json!(manner);
            }
            let response = said(&world, &answer, request).await;
            let mut sent = talk(&[("user", &question)]);
            sent.splice(0..0, expected.iter().cloned());
            if turn % 2 == 1 {
                sent.insert(0, ("system".to_owned(), manner));
            }
            assert_eq!(messages(&world), sent, "{} turn {turn}", store.name);
            assert_eq!(response["previous_response_id"], previous);
            expected.extend(talk(&[("user", &question), ("assistant", &answer)]));
            previous = response["id"].clone();
        }
    }
}

#[tokio::test]
async fn two_children_of_one_parent_never_see_each_other() {
    for (world, store) in worlds().await {
        let root = said(&world, "root answer", json!({"input": "root"})).await;
        let child = |text: &str, parent: &Value| json!({"input": text, "previous_response_id": id_of(parent)});
        let left = said(&world, "left answer", child("left", &root)).await;
        let right = said(&world, "right answer", child("right", &root)).await;
        assert_eq!(
            messages(&world),
            talk(&[("user", "root"), ("assistant", "root answer"), ("user", "right")]),
            "{}",
            store.name
        );
        for (parent, side) in [(&left, "left"), (&right, "right")] {
            let deeper = said(&world, "deeper answer", child("deeper", parent)).await;
            let mut line = talk(&[("user", "root"), ("assistant", "root answer"), ("user", side)]);
            line.extend(talk(&[("assistant", &format!("{side} answer")), ("user", "deeper")]));
            assert_eq!(messages(&world), line, "{}", store.name);
            // A fork of a fork, and of something in the middle of a line.
            for again in [parent, &deeper, parent] {
                said(&world, "x", child("fork", again)).await;
                let mut forked = line.clone();
                match again == parent {
                    true => drop(forked.pop()),
                    false => forked.extend(talk(&[("assistant", "deeper answer")])),
                }
                forked.extend(talk(&[("user", "fork")]));
                assert_eq!(messages(&world), forked, "{}", store.name);
            }
        }
    }
}

#[tokio::test]
async fn many_children_at_once_all_build_on_their_parent_alone() {
    for (world, store) in worlds().await {
        let root = said(&world, "root answer", json!({"input": "root"})).await;
        world.upstream(Wire::Chat).from_now_on(Script::text(&["same"]).reply(Wire::Chat, Delivery::Whole));
        let children = (0..24).map(|number| {
            let client = world.amalgam.client();
            let request = json!({"input": format!("child {number}"), "previous_response_id": id_of(&root)});
            let request = asking(Wire::Chat, Delivery::Whole, &request);
            beside(async move { (number, client.post_json("/v1/responses", &request).await) })
        });
        for child in children.collect::<Vec<_>>() {
            let (number, answer) = child.end().await;
            assert_eq!(answer.status, 200, "{} {}", store.name, answer.text());
            let path = format!("/v1/responses/{}/input_items?order=asc", id_of(&answer.json()));
            let list = world.amalgam.client().get(&path).await.json();
            let texts: Vec<&str> = list["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["content"][0]["text"].as_str().unwrap())
                .collect();
            assert_eq!(texts, ["root", "root answer", &format!("child {number}")], "{}", store.name);
        }
    }
}

#[tokio::test]
async fn a_reference_stands_for_the_item_that_it_names() {
    // C-11
    for (world, store) in worlds().await {
        let first = said(&world, "answer", json!({"input": "question"})).await;
        let answer = first["output"][0]["id"].clone();
        let list = world.amalgam.client().get(&format!("/v1/responses/{}/input_items", id_of(&first))).await.json();
        let question = list["data"][0]["id"].clone();
        let reference = |id: &Value| json!({"type": "item_reference", "id": id});
        // Out of order and without a chain; a reference without a type is one too.
        let input = json!([reference(&question), {"id": answer}, {"role": "user", "content": "more"}]);
        said(&world, "x", json!({"input": input})).await;
        let line = talk(&[("user", "question"), ("assistant", "answer"), ("user", "more")]);
        assert_eq!(messages(&world), line, "{}", store.name);

        let asked = world.upstream(Wire::Chat).requests().len();
        let stranger = world.amalgam.client().with_header("x-amalgam-user", "stranger");
        let unknown = json!("msg_AM-aaaaaaaaaaaaaaaaaaaaaaaa");
        let mine = world.amalgam.client();
        for (client, id) in [(&mine, &unknown), (&stranger, &answer)] {
            let request = json!({"input": [{"role": "user", "content": "a"}, reference(id)]});
            let request = asking(Wire::Chat, Delivery::Whole, &request);
            let refused = client.post_json("/v1/responses", &request).await;
            assert_refused(&refused, 400, Some("input[1]"), "item_not_found");
        }
        assert_eq!(world.upstream(Wire::Chat).requests().len(), asked, "no model is asked in vain");
    }
}

#[tokio::test]
async fn what_cannot_be_continued_is_told_before_anybody_is_asked() {
    // C-18, S10: missing, foreign, not stored and unknown ids get the same answer.
    for (world, store) in worlds().await {
        let owned = said(&world, "x", json!({"input": "Hi"})).await;
        let unkept = said(&world, "x", json!({"input": "Hi", "store": false})).await;
        let mine = world.amalgam.client();
        let stranger = world.amalgam.client().with_header("x-amalgam-user", "stranger");
        let before = world.upstream(Wire::Chat).requests().len();
        let going_on = |id: &str| json!({"input": "more", "previous_response_id": id});
        for delivery in DELIVERIES {
            for (client, id) in [
                (&stranger, id_of(&owned)),
                (&mine, id_of(&unkept)),
                (&mine, "resp_AM-1760000000000-aaaaaaaaaaaaaaaaaaaaaaaa"),
                (&mine, "resp_1"),
                (&mine, "\u{0}'; DROP TABLE responses"),
            ] {
                for background in [false, true] {
                    let mut request = asking(Wire::Chat, delivery, &going_on(id));
                    request["background"] = json!(background);
                    let refused = client.post_json("/v1/responses", &request).await;
                    assert_refused(&refused, 400, Some("previous_response_id"), "previous_response_not_found");
                }
            }
        }
        assert_eq!(world.upstream(Wire::Chat).requests().len(), before, "{}", store.name);

        // One that runs, and one that failed.
        let gate = Gate::new();
        let held = Script::text(&["a", "b"]).reply(Wire::Chat, Delivery::Stream).hold_after(1, &gate);
        world.upstream(Wire::Chat).enqueue(held.cut_after(2));
        let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
        let mut stream = mine.post_stream("/v1/responses", &request).await;
        let running = stream.next_of_type("response.created").await["response"].clone();
        let refused =
            mine.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &going_on(id_of(&running)))).await;
        assert_refused(&refused, 400, Some("previous_response_id"), "previous_response_in_progress");
        gate.open();
        stream.next_of_type("response.failed").await;
        let refused =
            mine.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &going_on(id_of(&running)))).await;
        assert_refused(&refused, 400, Some("previous_response_id"), "previous_response_failed");
        assert_eq!(world.upstream(Wire::Chat).requests().len(), before + 1, "{}", store.name);
    }
}

#[tokio::test]
async fn an_output_without_its_call_is_refused_on_a_chain() {
    let tool = json!({"type": "function", "name": "f", "parameters": {"type": "object"}});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "1"});
    for (world, store) in worlds().await {
        let call = Script::new([Said::call("call_1", "f", &["{}"])]);
        let request = json!({"input": "Hi", "tools": [tool]});
        let first = world.whole(Wire::Chat, &call, &request).await;
        let going_on = |input: Value| json!({"input": input, "previous_response_id": id_of(&first), "tools": [tool]});
        let orphan = asking(Wire::Chat, Delivery::Whole, &going_on(json!([output("call_1"), output("call_2")])));
        let refused = world.amalgam.client().post_json("/v1/responses", &orphan).await;
        assert_refused(&refused, 400, Some("input[1]"), "tool_call_not_found");
        assert_eq!(world.upstream(Wire::Chat).requests().len(), 1, "{}", store.name);

        let second = said(&world, "done", going_on(json!([output("call_1")]))).await;
        let sent = world.sent(Wire::Chat);
        assert_eq!(sent["messages"][1]["tool_calls"][0]["id"], "call_1", "{}", store.name);
        assert_eq!(sent["messages"][2], json!({"role": "tool", "tool_call_id": "call_1", "content": "1"}));
        assert_eq!(items(&second)[0]["content"][0]["text"], "done");
    }
}

#[tokio::test]
async fn a_chain_goes_on_over_another_upstream() {
    // C-24, invariant 5
    for (world, store) in worlds().await {
        let thinking = Script::new([Said::reasoning(&["Hm."]), Said::text(&["first"])]);
        let mut previous = Value::Null;
        for (index, wire) in [Wire::Anthropic, Wire::Chat, Wire::Responses, Wire::Anthropic].into_iter().enumerate() {
            let request = json!({"input": format!("q{index}"), "previous_response_id": previous});
            previous = world.whole(wire, &thinking, &request).await["id"].clone();
            let sent = world.sent(wire).to_string();
            for earlier in 0..=index {
                assert!(sent.contains(&format!("q{earlier}")), "{} {wire:?}: {sent}", store.name);
            }
            assert_eq!(sent.matches("first").count(), index, "{} {wire:?}: {sent}", store.name);
        }
    }
}

#[tokio::test]
async fn a_caller_that_leaves_a_stream_leaves_a_response_that_was_cancelled() {
    // Fault table: client leaves, foreground
    for (world, store) in worlds().await {
        let gate = Gate::new();
        world
            .upstream(Wire::Chat)
            .enqueue(Script::text(&["a", "b"]).reply(Wire::Chat, Delivery::Stream).hold_after(2, &gate));
        let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
        let mut stream = world.amalgam.client().post_stream("/v1/responses", &request).await;
        let created = stream.next_of_type("response.created").await["response"].clone();
        stream.next_of_type("response.output_text.delta").await;
        drop(stream);
        world.upstream(Wire::Chat).wait_for_disconnect(0).await;
        let response = ended(&world.amalgam.client(), id_of(&created)).await;
        assert_eq!(response["status"], "cancelled", "{}", store.name);

        // A client that leaves before the whole answer is there has a response too, whose id it does not know.
        world.upstream(Wire::Chat).enqueue(Reply::hang());
        let whole = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}));
        let client = world.amalgam.client();
        let leaving = beside(async move {
            let headers = [("content-type", "application/json")];
            client.request(Method::POST, "/v1/responses", &headers, whole.to_string().into()).await
        });
        world.upstream(Wire::Chat).wait_for_requests(2).await;
        leaving.leave().await;
        world.upstream(Wire::Chat).wait_for_disconnect(1).await;
    }
}

#[tokio::test]
async fn a_chain_costs_what_is_new_in_each_turn() {
    // Invariant 6: linear storage, transcripts included.
    for store in stores().into_iter().filter(|store| store.name == "sqlite") {
        let mut world = World::with(store.setup(Setup::new()), &[]).await;
        let answer = "a".repeat(200);
        world.upstream(Wire::Chat).from_now_on(Script::text(&[&answer]).reply(Wire::Chat, Delivery::Whole));
        let mut previous = Value::Null;
        let mut sizes = Vec::new();
        for turn in 0..200 {
            let input = format!("{turn} {}", "x".repeat(2048));
            let request = json!({"input": input, "previous_response_id": previous});
            let request = asking(Wire::Chat, Delivery::Whole, &request);
            let response = world.amalgam.client().post_json("/v1/responses", &request).await;
            assert_eq!(response.status, 200, "{}", response.text());
            previous = response.json()["id"].clone();
            if turn % 100 == 99 {
                // What is still in the log belongs to the file; a process that ends in order puts it there.
                world.amalgam.stop().await;
                sizes.push(bytes_below(&world.amalgam.folder().join("data")));
                world.start_again().await;
            }
        }
        assert_eq!(world.sent(Wire::Chat)["messages"].as_array().unwrap().len(), 399);
        let (half, whole) = (sizes[0], sizes[1]);
        assert!(whole * 10 <= half * 23, "{half} bytes for 100 turns, {whole} for 200");
    }
}

fn bytes_below(folder: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("the data folder is there");
    files.map(|file| file.and_then(|file| file.metadata()).expect("a file of ours").len()).sum()
}
