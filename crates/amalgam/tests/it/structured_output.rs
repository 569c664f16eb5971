//! Answers by a format: requested in the best way that an upstream supports, checked at the end, and never broken
//! silently.

use amalgam_testkit::{Amalgam, HttpAnswer, Upstream};
use serde_json::{Value, json};

use crate::support::{BINARY, DELIVERIES, Delivery, Said, Script, WIRES, Wire, World, asking, last_response, setup};

fn schema() -> Value {
    json!({
        "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false,
    })
}

fn by_schema() -> Value {
    json!({"format": {"type": "json_schema", "name": "number", "strict": true, "schema": schema()}})
}

/// The response of an answer, delivered either way.
fn response_of(answer: &HttpAnswer, delivery: Delivery) -> Value {
    match delivery {
        Delivery::Whole => answer.json(),
        Delivery::Stream => last_response(&answer.json_events()),
    }
}

/// The losses of a response's turn, as they are stored.
async fn losses_of(amalgam: &Amalgam, response: &Value) -> Vec<String> {
    let id = response["id"].as_str().expect("a response has an id");
    let turn = amalgam.client().get(&format!("/admin/turns/{id}")).await;
    assert_eq!(turn.status, 200, "{}", turn.text());
    let calls = turn.json()["calls"].as_array().cloned().unwrap_or_default();
    let losses = calls.iter().flat_map(|call| call["losses"].as_array().into_iter().flatten());
    losses.filter_map(|loss| loss.as_str().map(ToOwned::to_owned)).collect()
}

async fn ask(world: &World, wire: Wire, delivery: Delivery, text: &str, request: &Value, strict: bool) -> HttpAnswer {
    world.upstream(wire).enqueue(Script::text(&[text]).reply(wire, delivery));
    let client = world.amalgam.client();
    let client = if strict { client.with_header("amalgam-strict", "true") } else { client };
    client.post_json("/v1/responses", &asking(wire, delivery, request)).await
}

// right A7
#[tokio::test]
async fn an_answer_that_breaks_its_format_is_told_as_a_loss_on_every_upstream() {
    let world = World::with(setup(), &[]).await;
    let object = json!({"format": {"type": "json_object"}});
    for wire in WIRES {
        for delivery in DELIVERIES {
            for (text, format, loss) in [
                (r#"{"n": "four"}"#, by_schema(), Some("text.format: the answer does not follow the schema: /n")),
                ("Four.", by_schema(), Some("text.format: the answer does not follow the schema: it is not JSON")),
                (r#"{"n": 4}"#, by_schema(), None),
                ("Four.", object.clone(), Some("text.format: the answer is not a JSON object")),
                (r#"{"four": 4}"#, object.clone(), None),
            ] {
                for reasoning in [json!(null), json!({"effort": "medium"})] {
                    let request = json!({"input": "Hi", "text": format, "reasoning": reasoning});
                    let place = format!("{wire:?} {delivery:?} {text} {reasoning}");
                    let answer = ask(&world, wire, delivery, text, &request, false).await;
                    assert_eq!(answer.status, 200, "{place}: {}", answer.text());
                    let response = response_of(&answer, delivery);
                    assert_eq!(response["status"], "completed", "{place}: {response:#}");
                    let told = losses_of(&world.amalgam, &response).await;
                    let found = told.iter().find(|told| told.starts_with("text.format"));
                    match loss {
                        Some(loss) => assert!(found.is_some_and(|found| found.starts_with(loss)), "{place}: {told:?}"),
                        None => assert_eq!(found, None, "{place}"),
                    }
                }
            }
        }
    }
}

// right A7
#[tokio::test]
async fn in_strict_mode_an_answer_that_breaks_its_format_is_an_error() {
    let world = World::with(setup(), &[]).await;
    let request = json!({"input": "Hi", "text": by_schema()});
    for wire in WIRES {
        let kept = ask(&world, wire, Delivery::Whole, r#"{"n": 4}"#, &request, true).await;
        assert_eq!(kept.status, 200, "{wire:?}: {}", kept.text());
        let broken = ask(&world, wire, Delivery::Whole, "Four.", &request, true).await;
        assert!(!broken.status.is_success(), "{wire:?}: {}", broken.text());
        assert!(broken.text().contains("text.format"), "{wire:?}: {}", broken.text());
        let streamed = ask(&world, wire, Delivery::Stream, "Four.", &request, true).await;
        let response = last_response(&streamed.json_events());
        assert_eq!(response["status"], "failed", "{wire:?}: {response:#}");
    }
}

// right A7
#[tokio::test]
async fn a_messages_model_with_structured_output_is_asked_for_it_and_another_by_a_tool() {
    let upstream = Upstream::start();
    let models = json!(["claude-sonnet-4-5", "claude-opus-4-6", "claude-sonnet-4-20250514"]).to_string();
    let setup = setup().upstream("claude", "anthropic", &upstream.base_url()).option("models", &models);
    let amalgam = Amalgam::start(BINARY, setup).await;
    let ask = async |model: &str, schema: Value, reasoning: Value, script: Script| {
        upstream.enqueue(script.reply(Wire::Anthropic, Delivery::Whole));
        let format = json!({"format": {"type": "json_schema", "name": "number", "strict": true, "schema": schema}});
        let request = json!({"model": model, "input": "Hi", "text": format, "reasoning": reasoning});
        let answer = amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        (upstream.requests().last().expect("it was asked").json(), answer.json())
    };
    let said = || Script::text(&[r#"{"n":4}"#]);
    let native = json!({"type": "json_schema", "schema": schema()});
    for (model, reasoning) in [
        ("claude-sonnet-4-5", json!(null)),
        ("claude-sonnet-4-5", json!({"effort": "low"})),
        ("claude-opus-4-6", json!({"effort": "low"})),
    ] {
        let (sent, response) = ask(model, schema(), reasoning.clone(), said()).await;
        assert_eq!(sent["output_config"]["format"], native, "{model}: {sent:#}");
        assert_eq!((sent.get("tools"), sent.get("tool_choice")), (None, None), "{model}: {sent:#}");
        assert_eq!(sent.get("thinking").is_some(), !reasoning.is_null(), "{model}: {sent:#}");
        assert_eq!(response["output"][0]["content"][0]["text"], r#"{"n":4}"#);
    }
    // What the API does not take, and a model without it, go by a tool that is forced.
    let mut bounded = schema();
    bounded["properties"]["n"]["minimum"] = json!(1);
    for (model, schema) in [("claude-sonnet-4-5", bounded), ("claude-sonnet-4-20250514", schema())] {
        let tool = Script::new([Said::call("toolu_1", "amalgam_json", &[r#"{"n":4}"#])]);
        let (sent, response) = ask(model, schema, json!(null), tool).await;
        assert_eq!(sent["tool_choice"], json!({"type": "tool", "name": "amalgam_json"}), "{model}: {sent:#}");
        assert_eq!(sent.get("output_config"), None, "{model}: {sent:#}");
        assert_eq!(response["output"][0]["content"][0]["text"], r#"{"n":4}"#);
        assert_eq!(losses_of(&amalgam, &response).await, Vec::<String>::new());
    }
}
