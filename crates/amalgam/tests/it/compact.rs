//! Compaction: what it asks of a model, what it leaves, and where that can be taken.

use amalgam_testkit::{Client, HttpAnswer, Reply, Setup, spec};
use serde_json::{Value, json};

use crate::support::{
    Delivery, Said, Script, WIRES, Wire, World, asking, assert_fine, assert_refused, error_of, stores,
};

const SUMMARY: &str = "Wants a cake for \"twelve\".\nHas flour.";

/// A conversation with everything in it that a summary has to replace.
fn conversation() -> Value {
    json!([
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "Bake a cake."},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{\"where\":\"shelf\"}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "flour, eggs"},
        {"role": "assistant", "content": "For how many?"},
        {"role": "user", "id": "msg_own", "content": [{"type": "input_text", "text": "Twelve."}]},
    ])
}

async fn compact(client: &Client, body: &Value) -> HttpAnswer {
    client.post_json("/v1/responses/compact", body).await
}

/// Compacts over this wire and wants an answer that keeps the published shape.
async fn compacted(world: &World, wire: Wire, body: &Value) -> Value {
    world.upstream(wire).enqueue(Script::text(&[SUMMARY]).reply(wire, Delivery::Whole));
    let answer = compact(&world.amalgam.client(), &asking(wire, Delivery::Whole, body)).await;
    assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
    assert_fine(spec::violations("CompactResource", &answer.json()), &answer);
    answer.json()
}

/// The roles and texts of what an upstream was sent, on any wire: instructions first.
fn said_to(wire: Wire, sent: &Value) -> Vec<(String, String)> {
    let (list, instructions) = match wire {
        Wire::Chat => (&sent["messages"], &Value::Null),
        Wire::Responses => (&sent["input"], &sent["instructions"]),
        Wire::Anthropic => (&sent["messages"], &sent["system"]),
    };
    let text = |content: &Value| match content.as_str() {
        Some(text) => text.to_owned(),
        None => content.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect(),
    };
    let before = [("system".to_owned(), text(instructions))].into_iter().filter(|(_, text)| !text.is_empty());
    let messages = list.as_array().expect("a prompt has messages").iter();
    let said =
        messages.map(|message| (message["role"].as_str().unwrap_or("item").to_owned(), text(&message["content"])));
    before.chain(said).collect()
}

#[tokio::test]
async fn every_model_is_asked_once_and_without_tools_and_its_summary_is_sealed() {
    // §2 of the published rules: output ends in a compaction item.
    let world = World::start().await;
    for wire in WIRES {
        let body = json!({
            "input": conversation(),
            "instructions": "You bake.",
            "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
            "tool_choice": "required",
        });
        let compacted = compacted(&world, wire, &body).await;

        let message = |id: &Value, role: &str, text: &str| {
            json!({"id": id, "type": "message", "status": "completed", "role": role,
                "content": [{"type": "input_text", "text": text}]})
        };
        let output = compacted["output"].as_array().unwrap();
        let [rules, cake, twelve, item] = output.as_slice() else { panic!("{wire:?}: {compacted:#}") };
        assert_eq!(*rules, message(&rules["id"], "developer", "Be kind."), "{wire:?}");
        assert_eq!(*cake, message(&cake["id"], "user", "Bake a cake."), "{wire:?}");
        assert_eq!(*twelve, message(&json!("msg_own"), "user", "Twelve."), "{wire:?}");
        assert_eq!(item["type"], "compaction", "{wire:?}");
        assert!(item["id"].as_str().unwrap().starts_with("cmp_AM-"), "{item}");
        assert!(item["encrypted_content"].as_str().unwrap().starts_with("ams"), "{item}");
        let usage = &compacted["usage"];
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(11), &json!(7)), "{wire:?}: {usage}");
        let told = compacted.to_string();
        assert!(
            !told.contains("flour") && !told.contains("For how many"),
            "{wire:?}: the summary stands for it: {told}"
        );

        let sent = world.sent(wire);
        assert_ne!(sent["stream"], json!(true), "{wire:?}");
        // One wire wants the tools of a history beside it; then none of them may be called.
        match wire {
            Wire::Anthropic => assert_eq!(sent["tool_choice"], json!({"type": "none"})),
            Wire::Chat | Wire::Responses => {
                assert_eq!((&sent["tools"], &sent["tool_choice"]), (&Value::Null, &Value::Null))
            }
        }
        let said = said_to(wire, &sent);
        let (role, request) = said.last().unwrap();
        assert!(role == "user" && request.contains("replaced by a summary"), "{wire:?}: {said:?}");
        assert!(sent.to_string().contains("flour, eggs") && said[0].1.contains("You bake."), "{wire:?}: {sent:#}");
        assert_eq!(world.upstream(wire).requests().len(), 1, "{wire:?}");
    }
}

#[tokio::test]
async fn what_one_model_left_can_be_taken_to_any_other() {
    let world = World::start().await;
    for from in WIRES {
        let output = compacted(&world, from, &json!({"input": conversation()})).await["output"].clone();
        let sealed = output[3]["encrypted_content"].as_str().unwrap().to_owned();
        for to in WIRES {
            let mut input = output.as_array().unwrap().clone();
            input.push(json!({"role": "user", "content": "Go on."}));
            let answer = world.ask(to, Delivery::Whole, &Script::text(&["Well."]), &json!({"input": input})).await;
            assert_eq!(answer.header("amalgam-losses"), None, "{from:?} to {to:?}");
            let sent = world.sent(to);
            let said = said_to(to, &sent);
            let summary = said.iter().find(|(_, text)| text.contains(SUMMARY)).expect("the summary is told");
            assert!(summary.0 == "user" && summary.1.contains("[Summary of the conversation so far]"), "{said:?}");
            assert!(said.last().unwrap().1.ends_with("Go on."), "{said:?}");
            assert!(!sent.to_string().contains(&sealed) && !sent.to_string().contains("cmp_AM-"), "{sent:#}");
        }
    }
}

#[tokio::test]
async fn a_compaction_can_be_compacted_again_and_demo_reads_it_too() {
    let world = World::start().await;
    let first = compacted(&world, Wire::Chat, &json!({"input": conversation()})).await["output"].clone();
    let mut input = first.as_array().unwrap().clone();
    input.push(json!({"role": "user", "content": "And candles."}));
    let second = compacted(&world, Wire::Anthropic, &json!({"input": input})).await["output"].clone();
    let kinds: Vec<&str> = second.as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "message", "message", "message", "compaction"], "one summary stands for both");
    assert!(world.sent(Wire::Anthropic).to_string().contains("Has flour."), "the first summary is summed up too");

    let setup = Setup::new().extra("[upstreams.demo]\nkind = \"demo\"");
    let world = World::with(setup, &[]).await;
    let client = world.amalgam.client();
    let answer = compact(&client, &json!({"model": "demo", "input": conversation()})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = client.post_json("/v1/responses", &json!({"model": "demo", "input": answer.json()["output"]})).await;
    assert!(answer.text().contains("a summary of"), "{}", answer.text());
}

#[tokio::test]
async fn a_summary_of_another_tenant_or_a_damaged_one_is_refused_with_its_place() {
    // P10
    let tenants = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";
    let world = World::with(Setup::new().extra(tenants), &[]).await;
    let (ours, theirs) = (world.amalgam.client().with_key("am_a"), world.amalgam.client().with_key("am_b"));
    world.upstream(Wire::Chat).enqueue(Script::text(&[SUMMARY]).reply(Wire::Chat, Delivery::Whole));
    let answer = compact(&ours, &json!({"model": "m-chat", "input": conversation()})).await;
    let item = answer.json()["output"][3].clone();
    let mut damaged = item.clone();
    let text = item["encrypted_content"].as_str().unwrap();
    // Another letter than the present one.
    let (kept, last) = text.split_at(text.len() - 4);
    let other = if last.starts_with('x') { "y" } else { "x" };
    damaged["encrypted_content"] = json!(format!("{kept}{other}{}", last.get(1..).unwrap()));
    let mut older = item.clone();
    older["type"] = json!("compaction_summary");

    let request =
        |item: &Value| json!({"model": "m-chat", "input": [{"role": "user", "content": "Go on."}, null, item]});
    let path = Some("input[2].encrypted_content");
    for (client, item) in [(&theirs, &item), (&ours, &damaged), (&theirs, &older)] {
        for route in ["/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"] {
            let answer = client.post_json(route, &request(item)).await;
            assert_refused(&answer, 400, path, "invalid_encrypted_content");
        }
    }
    assert_eq!(world.upstream(Wire::Chat).requests().len(), 1);
    world.upstream(Wire::Chat).enqueue(Script::text(&["Well."]).reply(Wire::Chat, Delivery::Whole));
    assert_eq!(ours.post_json("/v1/responses", &request(&older)).await.status, 200);
}

#[tokio::test]
async fn an_item_that_others_sealed_passes_to_those_who_may_know_it_and_is_a_loss_elsewhere() {
    let world = World::start().await;
    let item = json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABo"});
    let request = json!({"input": [{"role": "user", "content": "Hi"}, item]});
    for wire in WIRES {
        let answer = world.ask(wire, Delivery::Whole, &Script::text(&["Well."]), &request).await;
        let losses = answer.header("amalgam-losses").unwrap_or_default().to_owned();
        let sent = world.sent(wire).to_string();
        match wire {
            Wire::Responses => assert!(losses.is_empty() && sent.contains(&item.to_string()), "{losses} {sent}"),
            Wire::Chat | Wire::Anthropic => {
                assert!(losses.contains("input.compaction") && !sent.contains("gAAAA"), "{losses} {sent}");
            }
        }
    }
}

#[tokio::test]
async fn a_stored_chain_is_compacted_by_its_id_and_a_new_one_begins_with_what_is_left() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let first = world.whole(Wire::Chat, &Script::text(&["Blue."]), &json!({"input": "What colour?"})).await;
        let goes_on = json!({"input": "And the sea?", "previous_response_id": first["id"]});
        let second = world.whole(Wire::Chat, &Script::text(&["Green."]), &goes_on).await;
        let compacted = compacted(&world, Wire::Responses, &json!({"previous_response_id": second["id"]})).await;
        let said: Vec<String> =
            said_to(Wire::Responses, &world.sent(Wire::Responses)).into_iter().map(|(_, text)| text).collect();
        assert_eq!(said[..4], ["What colour?", "Blue.", "And the sea?", "Green."], "{}", store.name);

        let mut input = compacted["output"].as_array().unwrap().clone();
        let texts: Vec<&str> = input.iter().filter_map(|item| item["content"][0]["text"].as_str()).collect();
        assert_eq!(texts, ["What colour?", "And the sea?"], "{}", store.name);
        input.push(json!({"role": "user", "content": "And the sky at night?"}));
        let third = world.whole(Wire::Chat, &Script::text(&["Black."]), &json!({"input": input})).await;
        // The item is stored as it was sent and opened again for every turn after it.
        let goes_on = json!({"input": "And in June?", "previous_response_id": third["id"]});
        world.whole(Wire::Anthropic, &Script::text(&["Less so."]), &goes_on).await;
        assert!(world.sent(Wire::Anthropic).to_string().contains("Has flour."), "{}", store.name);
    }
}

#[tokio::test]
async fn a_compaction_without_model_or_without_anything_to_compact_is_refused() {
    let world = World::start().await;
    let client = world.amalgam.client();
    for (body, param, code) in [
        (json!({"input": "Hi"}), "model", "missing_required_parameter"),
        (json!({"model": "", "input": "Hi"}), "model", "missing_required_parameter"),
        (json!({"model": "m-chat"}), "input", "missing_required_parameter"),
        (json!({"model": "m-chat", "input": []}), "input", "missing_required_parameter"),
        (json!({"model": "m-chat", "input": 3}), "input", "invalid_type"),
        (
            json!({"model": "m-chat", "previous_response_id": "resp_no"}),
            "previous_response_id",
            "previous_response_not_found",
        ),
    ] {
        assert_refused(&compact(&client, &body).await, 400, Some(param), code);
    }
    let answer = compact(&client, &json!({"model": "unknown", "input": "Hi"})).await;
    assert_eq!((answer.status.as_u16(), error_of(&answer)["code"].as_str()), (404, Some("model_not_found")));
    WIRES.iter().for_each(|wire| assert_eq!(world.upstream(*wire).requests().len(), 0));
}

#[tokio::test]
async fn a_model_that_writes_no_summary_is_told_as_a_failure_and_a_cut_one_as_a_loss() {
    // P5
    let world = World::start().await;
    let client = world.amalgam.client();
    let body = json!({"model": "m-chat", "input": "Hi"});
    let chat = world.upstream(Wire::Chat);
    chat.enqueue(Script::new([Said::call("call_1", "look", &["{}"])]).reply(Wire::Chat, Delivery::Whole));
    let answer = compact(&client, &body).await;
    assert_eq!((answer.status.as_u16(), error_of(&answer)["code"].as_str()), (502, Some("upstream_error")));

    chat.enqueue(Script::text(&["Half of"]).cut_by_length().reply(Wire::Chat, Delivery::Whole));
    let answer = compact(&client, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("amalgam-losses").unwrap_or_default().contains("the summary was cut"));

    chat.enqueue(Reply::status(401));
    assert_eq!(compact(&client, &body).await.status, 502);
}

#[tokio::test]
async fn a_conversation_that_is_too_long_to_be_summed_up_loses_its_oldest_turns() {
    let world = World::start().await;
    let chat = world.upstream(Wire::Chat);
    let refusal =
        json!({"error": {"message": "too much", "type": "invalid_request_error", "code": "context_length_exceeded"}});
    chat.enqueue(Reply::json(refusal).with_status(400));
    chat.enqueue(Script::text(&[SUMMARY]).reply(Wire::Chat, Delivery::Whole));
    let turns: Vec<Value> = (0..4).map(|n| json!({"role": "user", "content": format!("turn {n}")})).collect();
    let answer = compact(&world.amalgam.client(), &json!({"model": "m-chat", "input": turns})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("amalgam-losses").unwrap_or_default().contains("the 2 oldest turns (2 items) were left out"));
    assert_eq!(answer.json()["output"].as_array().unwrap().len(), 5, "the user's own words stay all the same");
}

#[tokio::test]
async fn the_same_compaction_under_one_key_is_done_once() {
    // S1, P4
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client().with_header("idempotency-key", "k-1");
        let body = json!({"model": "m-chat", "input": conversation()});
        world.upstream(Wire::Chat).enqueue(Script::text(&[SUMMARY]).reply(Wire::Chat, Delivery::Whole));
        let first = compact(&client, &body).await;
        let second = compact(&client, &body).await;
        assert_eq!((first.status.as_u16(), second.text()), (200, first.text()), "{}", store.name);
        assert_eq!(world.upstream(Wire::Chat).requests().len(), 1, "{}", store.name);
        let other = compact(&client, &json!({"model": "m-chat", "input": "Another."})).await;
        assert_eq!(other.status, 422, "{}: {}", store.name, other.text());
    }
}
