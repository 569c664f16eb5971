//! Tools of every kind over every wire: what the upstream is offered, and the items that its calls come out as.

use amalgam_testkit::{Reply, Setup};
use serde_json::{Value, json};

use super::{items, types};
use crate::support::{
    DELIVERIES, Delivery, Said, Script, WIRES, Wire, World, asking, assert_refused, last_response, text_of,
};

fn weather() -> Value {
    json!({
        "type": "function", "name": "get_weather", "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": false,
    })
}

fn clock() -> Value {
    json!({"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}})
}

/// The names of the tools that the upstream was offered.
fn offered(wire: Wire, sent: &Value) -> Vec<String> {
    let path = if wire == Wire::Chat { "/function/name" } else { "/name" };
    let tools = sent["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().filter_map(|tool| tool.pointer(path)?.as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_function_call_keeps_its_arguments_as_the_model_wrote_them() {
    // RAM-28, RAM-36, C-35
    let world = World::start().await;
    let request = json!({"input": "Weather in Köln?", "tools": [weather()]});
    let pieces = ["{\"city\" : ", "\"K\\u00f6ln\", \"n\":1.0e0", "}"];
    let script = Script::new([Said::call("call_up_1", "get_weather", &pieces)]);
    for wire in [Wire::Chat, Wire::Responses] {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &script, &request).await;
            let call = json!({
                "type": "function_call", "status": "completed", "call_id": "call_up_1", "name": "get_weather",
                "arguments": pieces.concat(),
            });
            assert_eq!(items(&response), [call], "{wire:?} {delivery:?}");
            assert_eq!(response["status"], "completed");
            let echoed = &response["tools"][0];
            assert_eq!(echoed, &weather(), "{wire:?}");
        }
    }
    // A whole Messages answer has the arguments as an object; only a stream has the model's own text.
    let streamed = world.response(Wire::Anthropic, Delivery::Stream, &script, &request).await;
    assert_eq!(items(&streamed)[0]["arguments"], pieces.concat());
    let whole = world.response(Wire::Anthropic, Delivery::Whole, &script, &request).await;
    let arguments: Value = serde_json::from_str(items(&whole)[0]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Köln", "n": 1.0}));
}

#[tokio::test]
async fn a_call_streams_its_arguments_and_says_its_name_at_the_end() {
    // RAM-36, RAM-38
    let world = World::start().await;
    let request = json!({"input": "Weather?", "tools": [weather()]});
    let script =
        Script::new([Said::text(&["One moment."]), Said::call("call_1", "get_weather", &["{\"city\":", "\"B\"}"])]);
    for wire in WIRES {
        let events = world.streamed(wire, &script, &request).await;
        let types = types(&events);
        let position =
            |kind: &str| types.iter().rposition(|one| *one == kind).unwrap_or_else(|| panic!("{kind} in {types:?}"));
        assert!(position("response.output_text.done") < position("response.function_call_arguments.delta"), "{wire:?}");
        let done = &events[position("response.function_call_arguments.done")];
        assert_eq!(
            (&done["name"], &done["arguments"]),
            (&json!("get_weather"), &json!("{\"city\":\"B\"}")),
            "{wire:?}"
        );
        assert_eq!(done["output_index"], 1, "{wire:?}");
    }
}

#[tokio::test]
async fn a_call_without_arguments_has_an_empty_object() {
    // RAM-28
    let world = World::start().await;
    let request = json!({"input": "Time?", "tools": [clock()]});
    for delivery in DELIVERIES {
        let script = Script::new([Said::call("call_1", "get_time", &[""])]);
        let response = world.response(Wire::Chat, delivery, &script, &request).await;
        assert_eq!(items(&response)[0]["arguments"], "{}", "{delivery:?}");
    }
}

#[tokio::test]
async fn parallel_calls_are_items_of_their_own_in_order() {
    let world = World::start().await;
    let request = json!({"input": "Both?", "tools": [weather(), clock()]});
    let script = Script::new([
        Said::call("call_1", "get_weather", &["{\"city\":", "\"A\"}"]),
        Said::call("call_2", "get_weather", &["{\"city\":", "\"B\"}"]),
        Said::call("call_3", "get_time", &["{}"]),
    ]);
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &script, &request).await;
            let calls: Vec<(String, String)> = items(&response)
                .iter()
                .map(|item| {
                    (item["call_id"].as_str().unwrap().to_owned(), item["arguments"].as_str().unwrap().to_owned())
                })
                .collect();
            let expected = [("call_1", "{\"city\":\"A\"}"), ("call_2", "{\"city\":\"B\"}"), ("call_3", "{}")];
            assert_eq!(
                calls,
                expected.map(|(id, arguments)| (id.to_owned(), arguments.to_owned())),
                "{wire:?} {delivery:?}"
            );
        }
    }
}

#[tokio::test]
async fn fragments_of_parallel_calls_that_arrive_interleaved_are_sorted_out() {
    let world = World::start().await;
    let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Both?", "tools": [weather()]}));
    let chunk = |calls: Value, finish: Option<&str>| {
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
               "choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": finish}]})
    };
    let head = |index: u64, id: &str| json!({"index": index, "id": id, "type": "function", "function": {"name": "get_weather", "arguments": ""}});
    let more = |index: u64, text: &str| json!({"index": index, "function": {"arguments": text}});
    let chunks = [
        chunk(json!([head(0, "call_a"), head(1, "call_b")]), None),
        chunk(json!([more(1, "{\"city\":")]), None),
        chunk(json!([more(0, "{\"city\":")]), None),
        chunk(json!([more(1, "\"B\"}"), more(0, "\"A\"}")]), None),
        chunk(json!([]), Some("tool_calls")),
    ];
    world.upstream(Wire::Chat).enqueue(Reply::sse_data(chunks));
    let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
    let response = last_response(&crate::support::checked_events(&answer));
    let arguments: Vec<Value> = items(&response).iter().map(|item| item["arguments"].clone()).collect();
    assert_eq!(arguments, ["{\"city\":\"A\"}", "{\"city\":\"B\"}"]);
}

#[tokio::test]
async fn a_tool_round_trip_pairs_call_and_output_on_every_wire() {
    // RAM-15, RAM-16
    let world = World::start().await;
    let request = json!({"tools": [weather()], "input": [
        {"role": "user", "content": "Weather in A?"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "get_weather", "arguments": "{\"city\":\"A\"}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "rain, 7 °C"},
    ]});
    for wire in WIRES {
        let response = world.whole(wire, &Script::text(&["It rains."]), &request).await;
        assert_eq!(text_of(&response), "It rains.");
        let sent = world.sent(wire);
        match wire {
            Wire::Chat => {
                let messages = sent["messages"].as_array().unwrap();
                assert_eq!(messages[1]["tool_calls"][0]["id"], "call_1", "{sent}");
                assert_eq!(messages[1]["tool_calls"][0]["function"]["arguments"], "{\"city\":\"A\"}", "{sent}");
                assert_eq!(messages[2], json!({"role": "tool", "tool_call_id": "call_1", "content": "rain, 7 °C"}));
            }
            Wire::Responses => {
                let input = sent["input"].as_array().unwrap();
                assert_eq!((&input[1]["type"], &input[1]["call_id"]), (&json!("function_call"), &json!("call_1")));
                assert_eq!(input[2]["output"], "rain, 7 °C");
            }
            Wire::Anthropic => {
                let messages = sent["messages"].as_array().unwrap();
                let call = messages[1]["content"].as_array().unwrap().last().unwrap();
                assert_eq!((&call["type"], &call["id"]), (&json!("tool_use"), &json!("call_1")), "{sent}");
                assert_eq!(call["input"], json!({"city": "A"}), "{sent}");
                assert_eq!(messages[2]["content"][0]["tool_use_id"], "call_1", "{sent}");
            }
        }
    }
}

#[tokio::test]
async fn an_output_without_its_call_in_a_full_history_is_told_in_words() {
    let world = World::start().await;
    let request = json!({"input": [
        {"role": "user", "content": "Go on."},
        {"type": "function_call_output", "call_id": "call_lost", "output": "orphan-result"},
    ]});
    for wire in WIRES {
        world.whole(wire, &Script::text(&["ok"]), &request).await;
        let sent = world.sent(wire).to_string();
        assert!(sent.contains("orphan-result"), "{wire:?}: nothing is dropped: {sent}");
        assert!(!sent.contains("tool_call_id") && !sent.contains("tool_use_id"), "{wire:?}: {sent}");
    }
}

#[tokio::test]
async fn custom_tools_take_and_give_free_text() {
    let world = World::start().await;
    let tool = json!({
        "type": "custom", "name": "apply", "description": "Applies a patch.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"*** Begin\" /.+/"},
    });
    let request = json!({"input": "Patch it.", "tools": [tool]});
    let input = "*** Begin Patch\n+\"quoted\" \\ ü\n*** End Patch";
    let script = Script::new([Said::custom("call_c", "apply", input)]);
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &script, &request).await;
            let call = json!({
                "type": "custom_tool_call", "status": "completed", "call_id": "call_c", "name": "apply", "input": input,
            });
            assert_eq!(items(&response), [call], "{wire:?} {delivery:?}");
            assert_eq!(response["tools"], json!([tool]), "echoed as it was written");
        }
        let sent = world.sent(wire).to_string();
        assert!(sent.contains("*** Begin"), "the grammar is kept: {sent}");
        let events = world.streamed(wire, &script, &request).await;
        let types = types(&events);
        for expected in ["response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"] {
            assert!(types.contains(&expected), "{wire:?}: {types:?}");
        }
    }
    // And back again.
    let history = json!({"tools": [tool], "input": [
        {"role": "user", "content": "Patch it."},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_c", "name": "apply", "input": input},
        {"type": "custom_tool_call_output", "call_id": "call_c", "output": "Done!"},
    ]});
    for wire in WIRES {
        world.whole(wire, &Script::text(&["ok"]), &history).await;
        let sent = world.sent(wire).to_string();
        assert!(sent.contains("Done!") && sent.contains("End Patch"), "{wire:?}: {sent}");
    }
}

#[tokio::test]
async fn tools_in_a_namespace_are_offered_by_their_full_name_and_come_back_apart() {
    let world = World::start().await;
    let tool = json!({"type": "namespace", "name": "crm", "description": "Customers.", "tools": [
        {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
    ]});
    let request = json!({"input": "Find Ada.", "tools": [tool]});
    let script = Script::new([Said::namespaced("call_n", "crm", "find", &["{\"q\":", "\"Ada\"}"])]);
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &script, &request).await;
            let call = json!({
                "type": "function_call", "status": "completed", "call_id": "call_n", "name": "find",
                "namespace": "crm", "arguments": "{\"q\":\"Ada\"}",
            });
            assert_eq!(items(&response), [call], "{wire:?} {delivery:?}");
        }
        if wire != Wire::Responses {
            assert_eq!(offered(wire, &world.sent(wire)), ["crm__find"], "{wire:?}");
        }
    }
}

#[tokio::test]
async fn a_local_shell_call_is_an_item_of_its_own() {
    let world = World::start().await;
    let request = json!({"input": "List.", "tools": [{"type": "local_shell"}]});
    let script = Script::new([Said::local_shell("call_s", &["ls", "-l"])]);
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &script, &request).await;
            let action = json!({"type": "exec", "command": ["ls", "-l"], "env": {}});
            let call =
                json!({"type": "local_shell_call", "status": "completed", "call_id": "call_s", "action": action});
            assert_eq!(items(&response), [call], "{wire:?} {delivery:?}");
        }
    }
}

#[tokio::test]
async fn tools_that_arrive_inside_the_history_are_offered() {
    let world = World::start().await;
    let request = json!({"input": [
        {"type": "additional_tools", "tools": [weather()]},
        {"role": "user", "content": "Weather?"},
    ]});
    let script = Script::new([Said::call("call_1", "get_weather", &["{\"city\":\"A\"}"])]);
    for wire in [Wire::Chat, Wire::Anthropic] {
        let response = world.whole(wire, &script, &request).await;
        assert_eq!(items(&response)[0]["name"], "get_weather", "{wire:?}");
        assert_eq!(offered(wire, &world.sent(wire)), ["get_weather"], "{wire:?}");
    }
}

#[tokio::test]
async fn every_form_of_tool_choice_is_understood_and_echoed() {
    // RAM-25, C-04
    let world = World::start().await;
    let named = json!({"type": "function", "name": "get_time"});
    let allowed = json!({"type": "allowed_tools", "mode": "auto", "tools": [named]});
    let must = json!({"type": "allowed_tools", "mode": "required", "tools": [named]});
    // The choice, its echo, what chat and Messages are sent, and the tools that are left.
    let both: &[&str] = &["get_weather", "get_time"];
    let one: &[&str] = &["get_time"];
    let cases = [
        (json!("auto"), json!("auto"), json!("auto"), Value::Null, both),
        (json!("required"), json!("required"), json!("required"), json!({"type": "any"}), both),
        (named.clone(), named.clone(), json!("required"), json!({"type": "tool", "name": "get_time"}), one),
        (
            json!({"type": "tool", "name": "get_time"}),
            named.clone(),
            json!("required"),
            json!({"type": "tool", "name": "get_time"}),
            one,
        ),
        (allowed.clone(), allowed.clone(), json!("auto"), Value::Null, one),
        (must.clone(), must.clone(), json!("required"), json!({"type": "any"}), one),
    ];
    for (choice, echo, chat, messages, left) in cases {
        let request = json!({"input": "Go.", "tools": [weather(), clock()], "tool_choice": choice});
        for wire in WIRES {
            let script = Script::new([Said::call("call_1", "get_time", &["{}"])]);
            let response = world.whole(wire, &script, &request).await;
            assert_eq!(response["tool_choice"], echo, "{wire:?} {choice}");
            let sent = world.sent(wire);
            match wire {
                Wire::Chat => assert_eq!(sent["tool_choice"], chat, "{choice}"),
                Wire::Anthropic => assert_eq!(sent["tool_choice"], messages, "{choice}"),
                Wire::Responses => assert_eq!(sent["tool_choice"], echo, "{choice}"),
            }
            if wire != Wire::Responses {
                assert_eq!(offered(wire, &sent), left, "{wire:?} {choice}");
            }
        }
    }
}

#[tokio::test]
async fn a_tool_choice_of_any_other_kind_is_echoed_as_it_was_sent() {
    let world = World::start().await;
    let tools = json!([weather(), {"type": "custom", "name": "patch"}, {"type": "shell"}, {"type": "apply_patch"}]);
    for choice in [
        json!({"type": "custom", "name": "patch", "own": 1}),
        json!({"type": "shell"}),
        json!({"type": "apply_patch", "own": [null]}),
        json!({"type": "web_search_preview"}),
        json!({"type": "code_interpreter", "container": {"id": "c"}}),
        json!({"type": "acme:tool", "deep": {"er": 1.5}}),
        json!({"type": "mcp", "server_label": "s", "name": "look"}),
        json!({"type": "computer_use_preview"}),
    ] {
        let request = json!({"input": "Go.", "tools": tools, "tool_choice": choice});
        for wire in WIRES {
            // What only an upstream has cannot be chosen where there is none.
            let upstreams_own = choice["type"] == "mcp" || choice["type"] == "computer_use_preview";
            if upstreams_own && wire != Wire::Responses {
                continue;
            }
            let response = world.whole(wire, &Script::text(&["Done."]), &request).await;
            assert_eq!(response["tool_choice"], choice, "{wire:?}");
            if wire == Wire::Responses {
                assert_eq!(world.sent(wire)["tool_choice"], choice);
            }
        }
    }
}

#[tokio::test]
async fn with_tool_choice_none_no_tool_can_be_called() {
    // RAM-25
    let world = World::start().await;
    let request = json!({"input": "Go.", "tools": [weather()], "tool_choice": "none"});
    for wire in WIRES {
        let response = world.whole(wire, &Script::text(&["No tools."]), &request).await;
        assert_eq!(response["tool_choice"], "none", "{wire:?}");
        let sent = world.sent(wire);
        let none = [json!("none"), json!({"type": "none"})];
        assert!(offered(wire, &sent).is_empty() || none.contains(&sent["tool_choice"]), "{wire:?}: {sent}");
    }
}

#[tokio::test]
async fn a_choice_that_no_tool_can_satisfy_is_refused_before_anybody_is_asked() {
    // RAM-25
    let world = World::start().await;
    let cases = [
        (json!([weather()]), json!({"type": "function", "name": "unknown"}), "tool_choice"),
        (json!([]), json!("required"), "tool_choice"),
        (
            json!([weather()]),
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "x"}]}),
            "tool_choice.tools",
        ),
    ];
    for (tools, choice, param) in cases {
        // A Responses upstream gets the choice as it was written, and is the one to refuse it.
        for wire in [Wire::Chat, Wire::Anthropic] {
            let request = json!({"model": wire.model(), "input": "Go.", "tools": tools, "tool_choice": choice});
            let answer = world.refused(&request).await;
            assert_refused(&answer, 400, Some(param), "invalid_value");
        }
    }
}

#[tokio::test]
async fn a_model_that_calls_a_tool_outside_of_the_allowed_ones_does_not_get_through() {
    let world = World::start().await;
    let request = json!({
        "input": "Go.", "tools": [weather(), clock()],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_time"}]},
    });
    for wire in WIRES {
        for delivery in DELIVERIES {
            let rogue = Script::new([Said::text(&["Hm."]), Said::call("call_1", "get_weather", &["{\"city\":\"A\"}"])]);
            world.upstream(wire).enqueue(rogue.reply(wire, delivery));
            let answer = world.amalgam.client().post_json("/v1/responses", &asking(wire, delivery, &request)).await;
            let text = answer.text();
            let calls = ["\"type\":\"function_call\"", "function_call_arguments"];
            assert!(!calls.iter().any(|call| text.contains(call)), "{wire:?} {delivery:?}: {text}");
        }
    }
}

#[tokio::test]
async fn parallel_calls_can_be_forbidden() {
    let world = World::start().await;
    let request = json!({"input": "Go.", "tools": [weather()], "parallel_tool_calls": false});
    for wire in WIRES {
        let response = world.whole(wire, &Script::text(&["ok"]), &request).await;
        assert_eq!(response["parallel_tool_calls"], false);
        let sent = world.sent(wire);
        match wire {
            Wire::Anthropic => assert_eq!(sent["tool_choice"]["disable_parallel_tool_use"], true, "{sent}"),
            _ => assert_eq!(sent["parallel_tool_calls"], false, "{sent}"),
        }
    }
}

#[tokio::test]
async fn the_first_of_two_tools_of_one_name_wins() {
    // RAM-24
    let world = World::start().await;
    let mut second = weather();
    second["description"] = json!("Another one.");
    let request = json!({"input": "Go.", "tools": [null, weather(), second]});
    for wire in [Wire::Chat, Wire::Anthropic] {
        world.whole(wire, &Script::text(&["ok"]), &request).await;
        let sent = world.sent(wire);
        assert_eq!(offered(wire, &sent), ["get_weather"], "{wire:?}");
        assert!(sent.to_string().contains("Weather of a city."), "{sent}");
    }
}

#[tokio::test]
async fn several_calls_of_an_upstream_that_was_asked_for_one_are_handed_on_and_told() {
    let request = json!({"input": "Go.", "tools": [weather(), clock()], "parallel_tool_calls": false});
    let script = Script::new([Said::call("call_1", "get_weather", &["{}"]), Said::call("call_2", "get_time", &["{}"])]);
    for wire in WIRES {
        for delivery in DELIVERIES {
            let world = World::start().await;
            let response = world.response(wire, delivery, &script, &request).await;
            // Without the second one the model's own words would be missing from its history.
            let calls: Vec<Value> = items(&response).iter().map(|item| item["call_id"].clone()).collect();
            assert_eq!(calls, ["call_1", "call_2"], "{wire:?} {delivery:?}");
            assert_eq!(response["parallel_tool_calls"], false);
            let told = "parallel_tool_calls: the upstream made several calls at once all the same";
            world.amalgam.wait_for_stderr(told).await;
        }
    }
}

#[tokio::test]
async fn a_choice_that_several_tools_answer_to_is_refused() {
    // RAM-25
    let world = World::start().await;
    let group = |name: &str| json!({"type": "namespace", "name": name, "tools": [clock()]});
    let choice = json!({"type": "function", "name": "get_time"});
    let request = json!({"input": "Go.", "tools": [group("a"), group("b")], "tool_choice": choice});
    for wire in [Wire::Chat, Wire::Anthropic] {
        let answer = world.refused(&asking(wire, Delivery::Whole, &request)).await;
        assert_refused(&answer, 400, Some("tool_choice"), "invalid_value");
    }
}

#[tokio::test]
async fn a_lost_call_is_recovered_once_and_only_where_that_is_set() {
    // O-48
    let lost = |wire: Wire| {
        let message = match wire {
            Wire::Chat => "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            Wire::Responses => "No tool call found for function call output with call_id c1.",
            Wire::Anthropic => "each `tool_result` block must have a corresponding `tool_use` block",
        };
        let error = json!({"message": message, "type": "invalid_request_error"});
        Reply::json(json!({"type": "error", "error": error})).with_status(400)
    };
    let request = json!({"input": [
        {"role": "user", "content": "Time?"},
        {"type": "function_call", "call_id": "c1", "name": "get_time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "noon"},
    ]});
    let set = World::with(Setup::new(), &[("history_recovery", "true")]).await;
    let unset = World::start().await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            for (world, times) in [(&set, 2), (&unset, 1)] {
                let upstream = world.upstream(wire);
                let before = upstream.requests().len();
                (0..times).for_each(|_| upstream.enqueue(lost(wire)));
                let answer = world.amalgam.client().post_json("/v1/responses", &asking(wire, delivery, &request)).await;
                assert_eq!(answer.status, 400, "{wire:?} {delivery:?}: {}", answer.text());
                let sent = upstream.requests_from(before);
                assert_eq!(sent.len(), times, "{wire:?} {delivery:?}");
                let told: Vec<bool> =
                    sent.iter().map(|sent| sent.json().to_string().contains("[Tool history]")).collect();
                assert_eq!(told, [false, true][..times], "{wire:?} {delivery:?}");
            }
            set.upstream(wire).enqueue(lost(wire));
            let answer = set.ask(wire, delivery, &Script::text(&["Noon."]), &request).await;
            let losses = answer.header("amalgam-losses").unwrap_or_default();
            assert!(losses.contains("the upstream had lost a call"), "{wire:?} {delivery:?}: {losses}");
        }
    }
}
