//! A stored chain can continue on another wire and with another model.

use amalgam_testkit::{Reply, Setup};
use serde_json::{Value, json};

use crate::support::{Delivery, Said, Script, WIRES, Wire, World, stores};

#[tokio::test]
async fn a_chain_begun_on_one_wire_goes_on_on_every_other() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        for from in WIRES {
            let script = Script::new([Said::text(&["Let me look."]), Said::call("call_1", "look", &["{\"a\":1}"])]);
            let tool = json!({"type": "function", "name": "look", "parameters": {"type": "object"}});
            let first = world.whole(from, &script, &json!({"input": "What is there?", "tools": [tool]})).await;
            for to in WIRES {
                let output = json!({"type": "function_call_output", "call_id": "call_1", "output": "a cat"});
                let request = json!({"input": [output], "tools": [tool], "previous_response_id": first["id"]});
                let answer = world.ask(to, Delivery::Whole, &Script::text(&["A cat."]), &request).await;
                let place = format!("{} {from:?} to {to:?}", store.name);
                assert_eq!(answer.header("amalgam-losses"), None, "{place}");
                let sent = world.sent(to).to_string();
                for said in ["What is there?", "Let me look.", "call_1", "a cat"] {
                    assert!(sent.contains(said), "{place}: {said} in {sent}");
                }
                assert!(!sent.contains("_AM-") || to == Wire::Responses, "{place}: {sent}");
            }
        }
    }
}

/// A response of an upstream that reasons and seals its reasoning.
fn thoughtful() -> Reply {
    Reply::json(json!({
        "id": "resp_up", "object": "response", "status": "completed", "model": "m-responses",
        "output": [
            {"type": "reasoning", "id": "rs_up", "summary": [{"type": "summary_text", "text": "Cats purr."}],
                "encrypted_content": "gAAAA-sealed-by-them"},
            {"type": "message", "id": "msg_up", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "A cat.", "annotations": []}]},
        ],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    }))
}

#[tokio::test]
async fn sealed_reasoning_go_back_to_the_model_that_had_them_and_are_told_by_their_summary_elsewhere() {
    for store in stores() {
        let second = "[models.second]\nupstream = \"responses\"\nmodel = \"another\"\n";
        let world = World::with(store.setup(Setup::new()).extra(second), &[]).await;
        world.upstream(Wire::Responses).enqueue(thoughtful());
        let request =
            json!({"model": "m-responses", "input": "What purrs?", "include": ["reasoning.encrypted_content"]});
        let first = world.amalgam.client().post_json("/v1/responses", &request).await.json();
        let sealed = first["output"][0]["encrypted_content"].as_str().expect("it was asked for").to_owned();
        assert!(sealed.starts_with("ams"), "{sealed}");

        let goes_on =
            |model: &str| json!({"model": model, "input": "And what barks?", "previous_response_id": first["id"]});
        for (wire, model) in [
            (Wire::Responses, "m-responses"),
            (Wire::Responses, "second"),
            (Wire::Chat, "m-chat"),
            (Wire::Anthropic, "m-anthropic"),
        ] {
            let place = format!("{} {model}", store.name);
            world.upstream(wire).enqueue(Script::text(&["A dog."]).reply(wire, Delivery::Whole));
            let answer = world.amalgam.client().post_json("/v1/responses", &goes_on(model)).await;
            assert_eq!(answer.status, 200, "{place}: {}", answer.text());
            let losses = answer.header("amalgam-losses").unwrap_or_default();
            let sent = world.sent(wire).to_string();
            assert!(!sent.contains(&sealed), "{place}: {sent}");
            match model {
                "m-responses" => {
                    assert!(sent.contains("gAAAA-sealed-by-them") && sent.contains("rs_up"), "{place}: {sent}");
                    assert_eq!(losses, "", "{place}");
                }
                _ => {
                    assert!(sent.contains("[Summary of earlier reasoning]\\nCats purr."), "{place}: {sent}");
                    assert!(!sent.contains("gAAAA"), "{place}: {sent}");
                    assert!(losses.contains("input.reasoning: reasoning of another upstream"), "{place}: {losses}");
                }
            }
        }
    }
}

#[tokio::test]
async fn reasoning_that_were_asked_for_are_kept_with_what_is_stored() {
    let world = World::start().await;
    let ask = async |mut request: Value| {
        request["model"] = json!("m-responses");
        world.upstream(Wire::Responses).enqueue(thoughtful());
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        (answer.json(), world.sent(Wire::Responses))
    };
    let (first, sent) = ask(json!({"input": "What purrs?", "reasoning": {"effort": "low"}})).await;
    assert_eq!(sent["include"], json!(["reasoning.encrypted_content"]));
    let (_, sent) = ask(json!({"input": "And what barks?", "previous_response_id": first["id"]})).await;
    assert!(sent.to_string().contains("gAAAA-sealed-by-them"), "{sent:#}");
    // A model without reasoning may refuse a request that asks for it.
    assert_eq!(sent.get("include"), None);
    for request in [
        json!({"input": "Quick!", "reasoning": {"effort": "none"}}),
        json!({"input": "Forget it.", "reasoning": {"effort": "low"}, "store": false}),
    ] {
        let (_, sent) = ask(request).await;
        assert_eq!(sent.get("include"), None, "{sent:#}");
    }
}

#[tokio::test]
async fn instructions_do_not_carry_over_and_items_do() {
    let world = World::start().await;
    let first = world
        .whole(Wire::Chat, &Script::text(&["Arr."]), &json!({"input": "Hi", "instructions": "Be a pirate."}))
        .await;
    let request = json!({"input": "Again", "instructions": "Be a poet.", "previous_response_id": first["id"]});
    world.whole(Wire::Anthropic, &Script::text(&["Oh."]), &request).await;
    let sent: Value = world.sent(Wire::Anthropic);
    let text = sent.to_string();
    assert!(text.contains("Be a poet.") && !text.contains("pirate") && text.contains("Arr."), "{sent:#}");
}
