//! Tools: the client's, in both forms, and those that the server runs.

use serde_json::{Value, json};

use super::{PATH, ask, asking, choice, chunks, question};
use crate::support::{DELIVERIES, Delivery, Said, Script, WIRES, Wire, Workshop, World, stores};

fn look() -> Value {
    json!([{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}])
}

#[tokio::test]
async fn a_call_of_the_clients_tool_ends_the_turn_and_its_result_is_paired_by_id() {
    let world = World::start().await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            let script = Script::new([Said::call("call_abc", "look", &["{\"a\"", ":1}"])]);
            let request = asking(wire, delivery, "tools", look());
            let (first, _) = choice(&ask(&world, wire, delivery, &script, &request).await, delivery);
            let call =
                json!({"id": "call_abc", "type": "function", "function": {"name": "look", "arguments": "{\"a\":1}"}});
            assert_eq!(first["finish_reason"], "tool_calls", "{wire:?} {delivery:?}");
            assert_eq!(first["message"]["tool_calls"], json!([call]), "{wire:?} {delivery:?}: the model's own id");
            let messages = json!([
                {"role": "user", "content": "Say hello."},
                first["message"],
                {"role": "tool", "tool_call_id": "call_abc", "content": "seen"},
            ]);
            let mut request = asking(wire, delivery, "messages", messages);
            request["tools"] = look();
            let (second, _) =
                choice(&ask(&world, wire, delivery, &Script::text(&["Hello."]), &request).await, delivery);
            assert_eq!((&second["finish_reason"], &second["message"]["content"]), (&json!("stop"), &json!("Hello.")));
            let sent = world.sent(wire).to_string();
            assert_eq!(sent.matches("call_abc").count(), 2, "{wire:?}: {sent}");
        }
    }
}

#[tokio::test]
async fn the_older_form_of_functions_is_answered_in_its_own_form() {
    let world = World::start().await;
    for delivery in DELIVERIES {
        let script = Script::new([Said::call("call_1", "look", &["{\"a\"", ":1}"])]);
        let functions = json!([{"name": "look", "parameters": {"type": "object", "properties": {}}}]);
        let request = asking(Wire::Chat, delivery, "functions", functions);
        let answer = ask(&world, Wire::Chat, delivery, &script, &request).await;
        let (call, reason) = match delivery {
            Delivery::Whole => {
                let choice = &answer.json()["choices"][0];
                (choice["message"]["function_call"].clone(), choice["finish_reason"].clone())
            }
            Delivery::Stream => {
                let chunks = chunks(&answer);
                let pieces = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["function_call"]);
                let arguments: String = pieces.clone().filter_map(|piece| piece["arguments"].as_str()).collect();
                let name = pieces.clone().find_map(|piece| piece["name"].as_str());
                let reason = chunks.iter().find_map(|chunk| chunk["choices"][0]["finish_reason"].as_str());
                (json!({"name": name, "arguments": arguments}), json!(reason))
            }
        };
        assert_eq!(call, json!({"name": "look", "arguments": "{\"a\":1}"}), "{delivery:?}");
        assert_eq!(reason, "function_call", "{delivery:?}");
        assert_eq!(world.sent(Wire::Chat)["parallel_tool_calls"], json!(false));
    }
}

#[tokio::test]
async fn a_custom_tool_is_called_with_its_text() {
    let world = World::start().await;
    let tools = json!([{"type": "custom", "custom": {"name": "run", "description": "Runs."}}]);
    for wire in WIRES {
        let script = Script::new([Said::custom("call_1", "run", "ls -l \"a\"")]);
        let request = asking(wire, Delivery::Whole, "tools", tools.clone());
        let answer = ask(&world, wire, Delivery::Whole, &script, &request).await;
        let call = json!({"id": "call_1", "type": "custom", "custom": {"name": "run", "input": "ls -l \"a\""}});
        assert_eq!(answer.json()["choices"][0]["message"]["tool_calls"], json!([call]), "{wire:?}");
        let messages = json!([
            {"role": "user", "content": "Run."},
            answer.json()["choices"][0]["message"],
            {"role": "tool", "tool_call_id": "call_1", "content": "done"},
        ]);
        let mut next = asking(wire, Delivery::Whole, "messages", messages);
        next["tools"] = tools.clone();
        let answer = ask(&world, wire, Delivery::Whole, &Script::text(&["Ran."]), &next).await;
        assert_eq!(answer.header("amalgam-losses"), None, "{wire:?}");
    }
}

#[tokio::test]
async fn calls_that_the_server_runs_are_in_the_record_of_the_turn_but_not_in_the_answer() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        for wire in WIRES {
            for delivery in DELIVERIES {
                workshop.service.enqueue(amalgam_testkit::Reply::json(json!({"degrees": 31})));
                let script = Script::new([
                    Said::text(&["I look it up."]),
                    Said::call("call_1", "weather", &["{\"city\":\"Rome\"}"]),
                ]);
                workshop.script(wire, delivery, &[script, Script::text(&["31 degrees."])]);
                let mut request = question(wire, delivery);
                request["tools"] = json!([{"type": "function", "function": {"name": "weather"}}]);
                request["store"] = json!(true);
                let answer = workshop.client().post_json(PATH, &request).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                let (choice, usage) = choice(&answer, delivery);
                assert_eq!(choice["message"]["content"], "I look it up.\n\n31 degrees.", "{wire:?} {delivery:?}");
                assert_eq!((choice["message"].get("tool_calls"), &choice["finish_reason"]), (None, &json!("stop")));
                assert_eq!(usage["total_tokens"], 36, "both calls count");
                let id = answer.header("amalgam-response-id").expect("the turn is named").to_owned();
                let record = workshop.turn_record(&id).await.to_string();
                assert!(record.contains("mcp_call") && record.contains("degrees"), "{}: {record}", store.name);
            }
        }
    }
}
