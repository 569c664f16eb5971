//! Tools that the server runs, from outside: one response for all rounds, on every wire and every store.

mod around;
mod doors;
mod ends;
mod faults;
mod reach;
mod rules;
mod secrets;
mod shared;

use amalgam_testkit::Reply;
use serde_json::{Value, json};

use crate::support::{
    DELIVERIES, Delivery, Said, Script, WIRES, Wire, Workshop, asking, asks, assert_calm, calls, checked_events, id_of,
    last_response, named, put_tool, retrieved, says, shown, stores, text_of, told, types,
};

/// A question that names the one tool of the bank.
fn question() -> Value {
    json!({"input": "What about Oslo?", "tools": [named("weather")]})
}

fn pair(who: &str, what: &str) -> (String, String) {
    (who.to_owned(), what.to_owned())
}

/// The item of a successful call.
fn shown_call(item: &Value) -> Value {
    json!({
        "type": item["type"], "status": item["status"], "server_label": item["server_label"], "name": item["name"],
        "arguments": item["arguments"], "output": item["output"], "error": item["error"],
    })
}

/// Name and status of the calls that a stream showed to their end.
fn done(events: &[Value]) -> Vec<(String, String)> {
    let items = events.iter().filter(|event| event["type"] == "response.output_item.done").map(|event| &event["item"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    items.filter(|item| item["type"] == "mcp_call").map(|item| (text(&item["name"]), text(&item["status"]))).collect()
}

#[tokio::test]
async fn a_turn_with_a_tool_of_the_bank_is_one_response_on_every_wire() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.service.always_for("/weather", says(json!({"sky": "grey"})));
        for (count, (wire, delivery)) in
            WIRES.into_iter().flat_map(|wire| DELIVERIES.map(|delivery| (wire, delivery))).enumerate()
        {
            let place = format!("{} {wire:?} {delivery:?}", store.name);
            let first = Script::new([Said::text(&["I ", "look."]), asks("call_up_1", "weather", "Oslo")]);
            let response = workshop.turn(wire, delivery, &[first, Script::text(&["It is grey."])], &question()).await;

            // The items of both rounds, and what both of them cost.
            assert_eq!(response["status"], "completed", "{place}");
            assert_eq!(
                shown(&response),
                ["message", r#"bank/weather({"city":"Oslo"}) completed"#, "message"],
                "{place}"
            );
            assert_eq!(
                shown_call(&response["output"][1]),
                json!({
                    "type": "mcp_call", "status": "completed", "server_label": "bank", "name": "weather",
                    "arguments": r#"{"city":"Oslo"}"#, "output": r#"{"sky":"grey"}"#, "error": null,
                }),
                "{place}"
            );
            let usage = &response["usage"];
            assert_eq!(
                [
                    &usage["input_tokens"],
                    &usage["input_tokens_details"]["cached_tokens"],
                    &usage["output_tokens"],
                    &usage["total_tokens"]
                ],
                [22, 6, 14, 36],
                "{place}"
            );
            // The tool is shown as it was named.
            assert_eq!(response["tools"][0]["name"], "weather", "{place}");

            // The service got the arguments as they were, once.
            assert_eq!(workshop.service.requests().len(), count + 1, "{place}");
            assert_eq!(workshop.service.request(count).json(), json!({"city": "Oslo"}));

            // The model was offered the whole tool, and received its own call and the output.
            let upstream = workshop.world.upstream(wire);
            let sent = upstream.requests().into_iter().rev().take(2).map(|request| request.json()).collect::<Vec<_>>();
            for body in &sent {
                let offered = body["tools"].to_string();
                assert!(offered.contains("Asks for weather.") && offered.contains("\"city\""), "{place}: {offered}");
            }
            assert_eq!(
                told(&sent[0]),
                [
                    pair("user", "What about Oslo?"),
                    pair("assistant", "I look."),
                    pair("call", r#"weather{"city":"Oslo"}"#),
                    pair("output", r#"{"sky":"grey"}"#),
                ],
                "{place}"
            );

            // What is stored is what was sent.
            let client = workshop.client();
            let id = id_of(&response);
            assert_eq!(retrieved(&client, id).await, response, "{place}");
            let items = client.get(&format!("/v1/responses/{id}/input_items")).await.json();
            assert_eq!(items["data"].as_array().map(Vec::len), Some(1), "{place}: {items}");

            // Any other model can continue it, and sees call and output as a pair.
            let other = WIRES[(count + 1) % WIRES.len()];
            let more = json!({"input": "And now?", "previous_response_id": id});
            workshop.turn(other, delivery, &[Script::text(&["Still."])], &more).await;
            assert_eq!(
                workshop.told(other),
                [
                    pair("user", "What about Oslo?"),
                    pair("assistant", "I look."),
                    pair("call", r#"weather{"city":"Oslo"}"#),
                    pair("output", r#"{"sky":"grey"}"#),
                    pair("assistant", "It is grey."),
                    pair("user", "And now?"),
                ],
                "{place} then {other:?}"
            );
        }
        assert_calm(&workshop.world.amalgam);
    }
}

#[tokio::test]
async fn a_streamed_turn_shows_each_call_with_its_own_events_and_ends_once() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.service.always_for("/weather", says(json!("grey")));
        for wire in WIRES {
            let both = [asks("call_1", "weather", "Oslo"), asks("call_2", "weather", "Rome")];
            workshop.script(wire, Delivery::Stream, &[Script::new(both), Script::text(&["Grey."])]);
            let answer =
                workshop.client().post_json("/v1/responses", &asking(wire, Delivery::Stream, &question())).await;
            let events = checked_events(&answer);
            let call = [
                "response.output_item.added",
                "response.mcp_call_arguments.delta",
                "response.mcp_call_arguments.done",
                "response.mcp_call.in_progress",
                "response.mcp_call.completed",
                "response.output_item.done",
            ];
            let message = [
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
            ];
            let expected =
                [&["response.created", "response.in_progress"][..], &call, &call, &message, &["response.completed"]];
            assert_eq!(types(&events), expected.concat(), "{} {wire:?}", store.name);
            let indices: Vec<_> = events.iter().filter_map(|event| event["output_index"].as_u64()).collect();
            assert_eq!(indices, [vec![0; 6], vec![1; 6], vec![2; 6]].concat());

            // The stream can be replayed, byte for byte, from any event on.
            let response = last_response(&events);
            let path = format!("/v1/responses/{}?stream=true", id_of(&response));
            let again = workshop.client().get(&path).await;
            assert_eq!(again.text(), answer.text(), "{} {wire:?}", store.name);
            let tail = workshop.client().get(&format!("{path}&starting_after=9")).await;
            assert!(
                answer.text().ends_with(&tail.text()) && tail.text().contains("mcp_call.completed"),
                "{}",
                tail.text()
            );
        }
    }
}

#[tokio::test]
async fn reasoning_and_rounds_follow_each_other_until_the_model_is_done() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.put("traffic", json!({})).await;
        workshop.service.always_for("/weather", says(json!("grey")));
        workshop.service.always_for("/traffic", Reply::bytes("text/plain", "jam"));
        let request = json!({
            "input": "Oslo?", "instructions": "Be brief.", "tools": [named("weather"), named("traffic")],
            "reasoning": {"summary": "auto"},
        });
        for wire in WIRES {
            for delivery in DELIVERIES {
                let scripts = [
                    Script::new([Said::reasoning(&["First."]), asks("call_1", "weather", "Oslo")]),
                    Script::new([Said::reasoning(&["Then."]), asks("call_2", "traffic", "Oslo")]),
                    Script::text(&["Stay."]),
                ];
                let response = workshop.turn(wire, delivery, &scripts, &request).await;
                let place = format!("{} {wire:?} {delivery:?}", store.name);
                assert_eq!(
                    shown(&response),
                    [
                        "reasoning",
                        r#"bank/weather({"city":"Oslo"}) completed"#,
                        "reasoning",
                        r#"bank/traffic({"city":"Oslo"}) completed"#,
                        "message",
                    ],
                    "{place}"
                );
                assert_eq!(text_of(&response), "Stay.");
                // The upstreams differ in how they take reasoning back.
                let thought = |(who, what): &(String, String)| who == "reasoning" || what.contains("earlier reasoning");
                let said: Vec<_> = workshop.told(wire).into_iter().filter(|line| !thought(line)).collect();
                let who = said.iter().map(|(who, _)| who.as_str()).collect::<Vec<_>>();
                assert_eq!(who, ["system", "user", "call", "output", "call", "output"], "{place}: {said:?}");
                assert_eq!(said[3].1, "grey", "a text is told as it is");
                assert_eq!(said[5].1, "jam");
            }
        }
    }
}

#[tokio::test]
async fn a_name_that_the_bank_does_not_have_stays_the_clients() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        let request = json!({"input": "Hi", "tools": [named("unknown")]});
        let response =
            workshop.turn(Wire::Chat, Delivery::Stream, &[calls("call_1", "unknown", "Oslo")], &request).await;
        assert_eq!(shown(&response), ["function_call"]);

        // Nor does one that is switched off, or one of the client's with a description of its own.
        workshop.put("weather", json!({"active": false})).await;
        let response =
            workshop.turn(Wire::Chat, Delivery::Stream, &[calls("call_1", "weather", "Oslo")], &question()).await;
        assert_eq!(shown(&response), ["function_call"]);
        workshop.put("weather", json!({})).await;
        let own =
            json!({"type": "function", "name": "weather", "description": "mine", "parameters": {"type": "object"}});
        let request = json!({"input": "Hi", "tools": [own]});
        let response =
            workshop.turn(Wire::Chat, Delivery::Whole, &[calls("call_1", "weather", "Oslo")], &request).await;
        assert_eq!(shown(&response), ["function_call"]);
        assert_eq!(workshop.service.requests().len(), 0);
    }
}

#[tokio::test]
async fn the_bank_also_knows_tools_of_the_client_and_what_is_built_in() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        let client = workshop.client();
        let own = json!({
            "kind": "client", "description": "Opens a door.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        });
        assert_eq!(put_tool(&client, "open_door", &own).await.status, 201);
        assert_eq!(put_tool(&client, "current_time", &json!({"kind": "builtin"})).await.status, 201);
        let request = json!({"input": "Hi", "tools": [named("open_door"), named("current_time")]});
        for wire in WIRES {
            for delivery in DELIVERIES {
                // The bank has its own tool, and the client its calls.
                let both =
                    Script::new([Said::call("call_1", "current_time", &["{}"]), asks("call_2", "open_door", "Oslo")]);
                let response = workshop.turn(wire, delivery, &[both], &request).await;
                assert_eq!(
                    shown(&response),
                    ["bank/current_time({}) completed", "function_call"],
                    "{wire:?} {delivery:?}"
                );
                assert!(workshop.world.sent(wire)["tools"].to_string().contains("Opens a door."), "{wire:?}");
                assert!(response["output"][0]["output"].as_str().unwrap().contains("20"), "{response}");
                let call = &response["output"][1];
                assert_eq!((&call["name"], &call["status"]), (&json!("open_door"), &json!("completed")));
            }
        }
    }
}

#[tokio::test]
async fn a_response_that_is_deleted_takes_its_calls_and_questions_with_it() {
    const WORD: &str = "hush-argument-0123456789";
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.put("refund", json!({"requires_approval": true})).await;
        workshop.service.always_for("/weather", says(json!(WORD)));
        let scripts = [calls("call_1", "weather", WORD), calls("call_2", "refund", WORD)];
        let request = json!({"input": "Hi", "tools": [named("weather"), named("refund")]});
        let response = workshop.turn(Wire::Chat, Delivery::Stream, &scripts, &request).await;
        let id = id_of(&response);
        let client = workshop.client();
        let asked = format!("/admin/approvals/{}", response["output"][1]["id"].as_str().unwrap());
        assert_eq!(client.get(&asked).await.status, 200);
        assert_ne!(store.holds(WORD), Some(false));
        let gone = client.request(http::Method::DELETE, &format!("/v1/responses/{id}"), &[], bytes::Bytes::new()).await;
        assert_eq!(gone.status, 200, "{}", gone.text());
        for path in [format!("/v1/responses/{id}"), asked] {
            assert_eq!(client.get(&path).await.status, 404, "{} {path}", store.name);
        }
        let turn = client.get(&format!("/admin/turns/{id}")).await.json();
        let content = (&turn["response"], &turn["calls"], &turn["tool_calls"], &turn["summary"]["stored"]);
        assert_eq!(content, (&json!(null), &json!([]), &json!([]), &json!(false)), "{}: {turn}", store.name);
        assert_ne!(store.holds(WORD), Some(true));
    }
}

#[tokio::test]
async fn everything_about_a_turn_is_written_down() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.service.enqueue_for("/weather", says(json!("grey")));
        workshop.service.enqueue_for("/weather", Reply::status(503).with_json(json!({"why": "closed"})));
        let scripts = [
            calls("call_1", "weather", "Oslo"),
            Script::new([asks("call_2", "weather", "Rome"), Said::call("call_3", "weather", &["{}"])]),
            Script::text(&["Done."]),
        ];
        let response = workshop.turn(Wire::Chat, Delivery::Stream, &scripts, &question()).await;
        let record = workshop.turn_record(id_of(&response)).await;

        let models = record["calls"].as_array().unwrap();
        assert_eq!(models.len(), 3, "{record}");
        for (number, call) in models.iter().enumerate() {
            assert_eq!(call["number"], number);
            let sent = workshop.world.upstream(Wire::Chat).request(number);
            assert_eq!(call["request"].as_str().map(str::as_bytes), Some(&sent.body[..]));
            assert!(call["response"].as_str().unwrap().contains("chat.completion.chunk"));
        }
        let closed = r#"the service answered with status 503: {"why":"closed"}"#;
        let tools: Vec<Value> = record["tool_calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| {
                json!([call["number"], call["call_id"], call["name"], call["output"], call["error"], call["unknown"]])
            })
            .collect();
        assert_eq!(
            tools,
            [
                json!([0, "call_1", "weather", "grey", null, false]),
                json!([1, "call_2", "weather", {"error": closed}, "refused", false]),
                json!([2, "call_3", "weather", record["tool_calls"][2]["output"], "invalid_arguments", false]),
            ],
            "{}",
            store.name
        );
        let told = record["tool_calls"][2]["output"]["error"].as_str().unwrap();
        assert!(told.contains("city"), "the path is named: {told}");
        let ids: Vec<_> = record["tool_calls"].as_array().unwrap().iter().map(|call| &call["item_id"]).collect();
        let items: Vec<_> = (0..3).map(|index| &response["output"][index]["id"]).collect();
        assert_eq!(ids, items);

        let statistics = workshop.client().get("/admin/tools/weather/statistics").await.json();
        assert_eq!([&statistics["calls"], &statistics["failed"], &statistics["unknown"]], [3, 2, 0], "{statistics}");
        assert!(statistics["last_called_at"].as_u64().is_some_and(|at| at > 1_700_000_000), "{statistics}");
    }
}

#[tokio::test]
async fn a_tool_is_refused_changed_tried_and_forgotten() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        let client = workshop.client();
        for (extra, param) in [
            (json!({"parameters": {"type": "object", "properties": {"a": {"type": "colour"}}}}), "parameters"),
            (json!({"parameters": {"$ref": "http://127.0.0.1/schema.json"}}), "parameters"),
            (json!({"settings": {"method": "LOOK", "url": "https://example.com"}}), "settings.method"),
            (json!({"settings": {"method": "GET", "url": "ftp://example.com"}}), "settings.url"),
            (json!({"kind": "shell"}), "kind"),
            (json!({"timeout": "soon"}), "timeout"),
        ] {
            let answer = put_tool(&client, "weather", &workshop.tool("weather", extra.clone())).await;
            let error = crate::support::error_of(&answer);
            assert_eq!((answer.status.as_u16(), error["param"].as_str()), (400, Some(param)), "{extra}: {error}");
        }
        assert_eq!(client.get("/admin/tools/weather").await.status, 404);

        workshop.put("weather", json!({"idempotent": true, "timeout": "2s"})).await;
        let tool = client.get("/admin/tools/weather").await.json();
        assert_eq!([&tool["idempotent"], &tool["timeout"]], [&json!(true), &json!(2)], "{tool}");
        workshop.service.enqueue_for("/weather", says(json!({"sky": "grey"})));
        let tried = client.post_json("/admin/tools/weather/try", &json!({"arguments": {"city": "Oslo"}})).await.json();
        assert_eq!([&tried["output"], &tried["error"]], [&json!({"sky": "grey"}), &Value::Null], "{tried}");
        let tried = client.post_json("/admin/tools/weather/try", &json!({"arguments": {}})).await.json();
        assert_eq!(tried["error"]["code"], "invalid_arguments", "{tried}");
        assert_eq!(workshop.service.requests().len(), 1);

        // A change is in force at once.
        let url = format!("{}/sky/{{city}}", workshop.service.url());
        workshop.put("weather", json!({"settings": {"method": "GET", "url": url, "result_path": "a.b"}})).await;
        workshop.service.always_for("/sky/Oslo", says(json!({"a": {"b": [1, 2]}})));
        let scripts = [calls("call_1", "weather", "Oslo"), Script::text(&["x"])];
        let response = workshop.turn(Wire::Chat, Delivery::Whole, &scripts, &question()).await;
        assert_eq!(response["output"][0]["output"], "[1,2]", "{response}");
        let gone = client.request(http::Method::DELETE, "/admin/tools/weather", &[], bytes::Bytes::new()).await;
        assert_eq!(gone.json()["deleted"], true);
        let scripts = [calls("call_1", "weather", "Oslo")];
        let response = workshop.turn(Wire::Chat, Delivery::Whole, &scripts, &question()).await;
        assert_eq!(shown(&response), ["function_call"]);
    }
}
