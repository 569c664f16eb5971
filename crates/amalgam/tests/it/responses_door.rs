//! `POST /v1/responses` over every wire: the answer itself, its stream, its ids, its echo and its headers.

mod delivery;
mod envelope;
mod tools;

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::{DELIVERIES, Said, Script, WIRES, Wire, World, items, last_response, text_of, types};

/// The keys of a response object, as published.
const KEYS: [&str; 32] = [
    "amalgam",
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
];

fn hello() -> Value {
    json!({"input": "Say hello."})
}

/// Text with everything that an escape or a split can break.
fn greeting() -> Script {
    Script::text(&["Grü", "ße, \"Welt\"\n", "🦀\u{1f468}\u{200d}\u{1f469}", " \\ </done>"])
}

const GREETING: &str = "Grüße, \"Welt\"\n🦀\u{1f468}\u{200d}\u{1f469} \\ </done>";

fn is_id(id: &Value, prefix: &str) -> bool {
    let random = id.as_str().and_then(|id| id.strip_prefix(prefix)).unwrap_or_default();
    random.len() == 24 && random.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn is_response_id(id: &Value) -> bool {
    let Some((stamp, random)) = id.as_str().and_then(|id| id.strip_prefix("resp_AM-")?.split_once('-')) else {
        return false;
    };
    stamp.len() == 13 && stamp.bytes().all(|byte| byte.is_ascii_digit()) && is_id(&json!(format!("x{random}")), "x")
}

#[tokio::test]
async fn a_text_comes_back_as_one_message_whole_and_streamed() {
    // RAM-01, RAM-27
    let world = World::start().await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &greeting(), &hello()).await;
            let part = json!({"type": "output_text", "text": GREETING, "annotations": [], "logprobs": []});
            let message = json!({"type": "message", "status": "completed", "role": "assistant", "content": [part]});
            assert_eq!(items(&response), [message], "{wire:?} {delivery:?}");
            assert_eq!(response["status"], "completed");
            assert_eq!(response["model"], wire.model(), "RAM-31: the requested name");
            assert_eq!(world.upstream(wire).malformed(), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn streamed_and_whole_give_the_same_items() {
    // C-22
    let world = World::start().await;
    // Stored reasoning is sealed, each time into another text.
    let request = json!({
        "input": "Go.",
        "store": false,
        "reasoning": {"summary": "auto"},
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
    });
    let scripts = [
        greeting(),
        Script::new([Said::reasoning(&["I ", "think"]), Said::text(&["so ", "be it"])]),
        Script::new([Said::text(&["Let me look."]), Said::call("call_1", "look", &["{\"a\"", ":1}"])]),
        Script::new([Said::call("call_1", "look", &["{}"]), Said::call("call_2", "look", &["{\"b\"", ":[2]}"])]),
        Script::text(&["cut ", "off"]).cut_by_length(),
    ];
    for wire in WIRES {
        for script in &scripts {
            let whole = world.whole(wire, script, &request).await;
            let streamed = last_response(&world.streamed(wire, script, &request).await);
            assert_eq!(items(&whole), items(&streamed), "{wire:?} {script:?}");
            for key in KEYS.iter().filter(|key| !["id", "output", "created_at", "completed_at"].contains(*key)) {
                assert_eq!(whole[*key], streamed[*key], "{wire:?} {key}");
            }
        }
    }
}

#[tokio::test]
async fn every_response_object_has_exactly_the_published_keys() {
    let world = World::start().await;
    let expected: HashSet<&str> = KEYS.into_iter().collect();
    let keys = |response: &Value| -> HashSet<String> { response.as_object().unwrap().keys().cloned().collect() };
    for wire in WIRES {
        let whole = world.whole(wire, &greeting(), &hello()).await;
        assert_eq!(keys(&whole).iter().map(String::as_str).collect::<HashSet<_>>(), expected, "{wire:?}");
        let events = world.streamed(wire, &greeting(), &hello()).await;
        for event in events.iter().filter(|event| event.get("response").is_some()) {
            let found = keys(&event["response"]);
            assert_eq!(found.iter().map(String::as_str).collect::<HashSet<_>>(), expected, "{}", event["type"]);
        }
    }
}

#[tokio::test]
async fn ids_have_the_published_form_stay_the_same_in_a_stream_and_never_repeat() {
    // RAM-45, RAM-46
    let world = World::start().await;
    let request = json!({
        "input": "Go.", "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
    });
    let script = Script::new([
        Said::reasoning(&["hm"]),
        Said::text(&["Looking."]),
        Said::call("call_of_upstream", "look", &["{}"]),
    ]);
    let mut seen = HashSet::new();
    for wire in WIRES {
        for _ in 0..5 {
            let events = world.streamed(wire, &script, &request).await;
            let response = last_response(&events);
            assert!(is_response_id(&response["id"]), "{}", response["id"]);
            assert!(seen.insert(response["id"].to_string()));
            for event in events.iter().filter(|event| event.get("response").is_some()) {
                assert_eq!(event["response"]["id"], response["id"], "{}", event["type"]);
            }
            for item in response["output"].as_array().unwrap() {
                let prefix = match item["type"].as_str().unwrap() {
                    "message" => "msg_AM-",
                    "function_call" => "fc_AM-",
                    _ => "rs_AM-",
                };
                assert!(is_id(&item["id"], prefix), "{wire:?}: {item}");
                assert!(seen.insert(item["id"].to_string()), "{item}");
            }
        }
    }
}

#[tokio::test]
async fn a_call_without_an_id_gets_one_of_ours() {
    // RAM-45: call_AM- only where the upstream gives none
    let world = World::start().await;
    let request = json!({
        "input": "Go.", "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
    });
    for delivery in DELIVERIES {
        let script = Script::new([Said::call("", "look", &["{}"])]);
        let response = world.response(Wire::Chat, delivery, &script, &request).await;
        let call = &response["output"][0];
        assert!(is_id(&call["call_id"], "call_AM-"), "{call}");
    }
}

#[tokio::test]
async fn usage_is_the_upstreams_with_every_detail() {
    // RAM-32
    let world = World::start().await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &greeting(), &hello()).await;
            // Messages does not count reasoning separately.
            let thoughts = if wire == Wire::Anthropic { 0 } else { 2 };
            let expected = json!({
                "input_tokens": 11, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
                "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": thoughts}, "total_tokens": 18,
            });
            assert_eq!(response["usage"], expected, "{wire:?} {delivery:?}");
        }
    }
}

#[tokio::test]
async fn instructions_go_before_the_input_in_the_system_role() {
    // RAM-11, RAM-12, C-19
    let world = World::start().await;
    let request = json!({"instructions": "Be brief.", "input": "Hi"});
    for wire in WIRES {
        world.whole(wire, &greeting(), &request).await;
        let sent = world.sent(wire);
        match wire {
            Wire::Chat => assert_eq!(
                sent["messages"],
                json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
            ),
            Wire::Responses => {
                assert_eq!(sent["instructions"], "Be brief.");
                assert_eq!(sent["input"].as_array().map(Vec::len), Some(1), "{sent}");
            }
            Wire::Anthropic => {
                assert!(sent["system"].to_string().contains("Be brief."), "{sent}");
                assert_eq!(sent["messages"].as_array().map(Vec::len), Some(1), "{sent}");
            }
        }
        assert!(sent.to_string().contains("Hi"), "{sent}");
    }
}

#[tokio::test]
async fn messages_in_every_accepted_spelling_reach_the_upstream() {
    // RAM-14, RAM-17, RAM-19, C-03
    let world = World::start().await;
    let request = json!({"input": [
        {"role": "user", "content": "alpha"},
        null,
        {"type": "message", "role": "assistant", "id": "msg_client-made", "content": [{"type": "output_text", "text": "bravo"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "charlie"}, {"type": "text", "text": "delta"}]},
        {"role": "developer", "content": "echo"},
        {"type": "something_new", "payload": {"x": 1}},
        {"role": "user", "content": "foxtrot"},
    ]});
    for wire in WIRES {
        world.whole(wire, &greeting(), &request).await;
        let sent = world.sent(wire).to_string();
        let mut from = 0;
        // Developer text may move to the system prompt of a wire that has one.
        for word in ["alpha", "bravo", "charlie", "delta", "foxtrot"] {
            let at = sent.get(from..).unwrap().find(word).unwrap_or_else(|| panic!("{wire:?}: {word} in {sent}"));
            from += at;
        }
        assert!(sent.contains("echo"), "{wire:?}: {sent}");
    }
}

#[tokio::test]
async fn reasoning_comes_as_summary_events() {
    let world = World::start().await;
    let request = json!({"input": "Why?", "store": false, "reasoning": {"effort": "low", "summary": "auto"}});
    let script = Script::new([Said::reasoning(&["First ", "this."]), Said::text(&["Because."])]);
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &script, &request).await;
            let output = items(&response);
            assert_eq!(
                output[0],
                json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "First this."}]}),
                "{wire:?} {delivery:?}: encrypted content only where it was asked for"
            );
            assert_eq!(text_of(&response), "Because.", "{wire:?} {delivery:?}");
        }
        let events = world.streamed(wire, &script, &request).await;
        let types = types(&events);
        for expected in [
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
        ] {
            assert!(types.contains(&expected), "{wire:?}: {types:?}");
        }
        assert!(!types.iter().any(|kind| kind.starts_with("response.reasoning.")), "{types:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_a_refusal_part_where_the_upstream_has_one() {
    let world = World::start().await;
    let script = Script::new([Said::refusal(&["I can", "not."])]);
    for wire in [Wire::Chat, Wire::Responses] {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &script, &hello()).await;
            let part = json!({"type": "refusal", "refusal": "I cannot."});
            assert_eq!(items(&response)[0]["content"], json!([part]), "{wire:?} {delivery:?}");
        }
    }
    // Messages refuses by its stop reason: the response must not look like a plain success.
    for delivery in DELIVERIES {
        let response = world.response(Wire::Anthropic, delivery, &script, &hello()).await;
        assert_eq!(response["status"], "incomplete", "{delivery:?}");
        assert_eq!(response["incomplete_details"], json!({"reason": "content_filter"}), "{delivery:?}");
    }
}

#[tokio::test]
async fn an_answer_cut_by_the_token_limit_is_incomplete() {
    let world = World::start().await;
    let request = json!({"input": "Tell me everything.", "max_output_tokens": 16});
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &greeting().cut_by_length(), &request).await;
            assert_eq!(response["status"], "incomplete", "{wire:?} {delivery:?}");
            assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
            assert_eq!(response["output"][0]["status"], "incomplete", "{wire:?} {delivery:?}");
            assert_eq!(text_of(&response), GREETING);
        }
    }
}

#[tokio::test]
async fn structured_output_reaches_every_upstream_and_is_echoed_with_its_schema() {
    let world = World::start().await;
    let schema = json!({
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "name": "place", "schema": schema, "strict": true});
    let request = json!({"input": "Where?", "text": {"format": format}});
    for wire in [Wire::Chat, Wire::Responses] {
        for delivery in DELIVERIES {
            let script = Script::text(&["{\"city\":", "\"Köln\"}"]);
            let response = world.response(wire, delivery, &script, &request).await;
            assert_eq!(text_of(&response), "{\"city\":\"Köln\"}");
            assert_eq!(response["text"]["format"]["schema"], schema);
            assert_eq!(response["text"]["format"]["strict"], true);
            let sent = world.sent(wire);
            let path = if wire == Wire::Chat { "/response_format/json_schema/schema" } else { "/text/format/schema" };
            assert_eq!(sent.pointer(path), Some(&schema), "{sent}");
        }
    }
    // Messages has no such setting: its replacement must carry the schema, and its answer must come out as text.
    for delivery in DELIVERIES {
        world.response(Wire::Anthropic, delivery, &Script::text(&["{}"]), &request).await;
        let sent = world.sent(Wire::Anthropic);
        let tool = sent["tools"][0]["name"].as_str().expect("the schema travels as a tool");
        assert_eq!(sent["tools"][0]["input_schema"]["properties"], schema["properties"], "{sent}");
        let script = Script::new([Said::call("toolu_1", tool, &["{\"city\":", "\"Köln\"}"])]);
        let response = world.response(Wire::Anthropic, delivery, &script, &request).await;
        let answer: Value = serde_json::from_str(&text_of(&response)).unwrap();
        assert_eq!(answer, json!({"city": "Köln"}), "{delivery:?}: {response}");
        assert_eq!(response["output"].as_array().map(Vec::len), Some(1), "{response}");
    }
}

#[tokio::test]
async fn a_json_object_is_asked_for_without_a_schema() {
    let world = World::start().await;
    let request = json!({"input": "JSON, please.", "text": {"format": {"type": "json_object"}}});
    for wire in WIRES {
        let response = world.whole(wire, &Script::text(&["{}"]), &request).await;
        assert_eq!(response["text"]["format"], json!({"type": "json_object"}), "{wire:?}");
        assert!(world.sent(wire).to_string().to_lowercase().contains("json"), "{wire:?}: {}", world.sent(wire));
    }
    assert_eq!(world.sent(Wire::Chat)["response_format"], json!({"type": "json_object"}));
}
