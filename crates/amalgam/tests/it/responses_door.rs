//! `POST /v1/responses` over every wire: the answer itself, its stream, its ids, its echo and its headers.

mod tools;

use std::collections::HashSet;

use amalgam_testkit::{Client, Setup, check, sse};
use serde_json::{Value, json};

use crate::support::{
    DELIVERIES, Delivery, Said, Script, WIRES, Wire, World, asking, assert_fine, assert_refused, checked_events, items,
    last_response, text_of, types,
};

/// The keys of a response object, as published.
const KEYS: [&str; 31] = [
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
async fn every_event_of_a_text_comes_in_the_published_order() {
    // RAM-33 to RAM-39
    let world = World::start().await;
    for wire in WIRES {
        let events = world.streamed(wire, &Script::text(&["one ", "two ", "three"]), &hello()).await;
        // Frames that arrive together may leave together, but no delta is lost or joined.
        assert_eq!(
            types(&events),
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.delta",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                "response.completed",
            ],
            "{wire:?}"
        );
        let deltas: Vec<&Value> = events[4..7].iter().map(|event| &event["delta"]).collect();
        assert_eq!(deltas, ["one ", "two ", "three"], "{wire:?}");
    }
}

#[tokio::test]
async fn streamed_and_whole_give_the_same_items() {
    // C-22
    let world = World::start().await;
    let request = json!({
        "input": "Go.",
        "reasoning": {"summary": "auto"},
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
    });
    let scripts = [
        greeting(),
        Script::new([Said::thoughts(&["I ", "think"]), Said::text(&["so ", "be it"])]),
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
async fn what_the_request_sets_is_echoed_and_the_rest_has_its_default() {
    let world = World::start().await;
    let plain = world.whole(Wire::Chat, &greeting(), &hello()).await;
    let defaults = json!({
        "error": null, "incomplete_details": null, "previous_response_id": null, "instructions": null, "tools": [],
        "tool_choice": "auto", "truncation": "disabled", "parallel_tool_calls": true,
        "text": {"format": {"type": "text"}}, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
        "top_logprobs": 0, "temperature": 1.0, "max_output_tokens": null, "max_tool_calls": null, "background": false,
        "service_tier": "default", "metadata": {}, "safety_identifier": null, "prompt_cache_key": null,
    });
    let close = |one: &Value, other: &Value| match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() < 1e-9,
        _ => one == other,
    };
    for (key, expected) in defaults.as_object().unwrap() {
        assert!(close(&plain[key], expected), "{key}: {} and not {expected}", plain[key]);
    }

    let set = json!({
        "instructions": "Be brief.", "truncation": "disabled", "parallel_tool_calls": false, "top_p": 0.5,
        "presence_penalty": 0.25, "frequency_penalty": -0.5, "temperature": 0.75, "max_output_tokens": 64,
        "max_tool_calls": 3, "metadata": {"case": "4711", "ünïcode": "ß"},
        "safety_identifier": "user-hash", "prompt_cache_key": "cache-1",
        "reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": {"type": "text"}, "verbosity": "low"},
    });
    for delivery in DELIVERIES {
        let mut request = set.clone();
        request["input"] = json!("Hi");
        let response = world.response(Wire::Responses, delivery, &greeting(), &request).await;
        for (key, expected) in set.as_object().unwrap() {
            assert!(close(&response[key], expected), "{key}: {} and not {expected}", response[key]);
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
        Said::thoughts(&["hm"]),
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
            // Messages does not count thoughts apart.
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
    let request = json!({"input": "Why?", "reasoning": {"effort": "low", "summary": "auto"}});
    let script = Script::new([Said::thoughts(&["First ", "this."]), Said::text(&["Because."])]);
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
async fn fields_that_nobody_knows_are_accepted() {
    let world = World::start().await;
    let request = json!({
        "input": "Hi", "client_metadata": {"a": [1, {"b": null}]}, "generate": true, "x-new-field": "später",
        "include": [], "tools": [], "stream_options": {"include_obfuscation": false}, "user": "u-1",
        "service_tier": "auto", "store": false, "background": false, "prompt_cache_retention": "24h",
    });
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &greeting(), &request).await;
            assert_eq!(text_of(&response), GREETING, "{wire:?}");
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
    // Messages has no such setting: whatever stands for it must carry the schema, and its answer must come out as text.
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

#[tokio::test]
async fn a_request_id_is_taken_from_the_caller_or_made() {
    let world = World::start().await;
    let client = world.amalgam.client();
    for delivery in DELIVERIES {
        let request = asking(Wire::Chat, delivery, &hello());
        world.upstream(Wire::Chat).enqueue(greeting().reply(Wire::Chat, delivery));
        let given = client.clone().with_header("x-request-id", "trace-4711").post_json("/v1/responses", &request).await;
        assert_eq!(given.header("x-request-id"), Some("trace-4711"), "{delivery:?}");
        world.upstream(Wire::Chat).enqueue(greeting().reply(Wire::Chat, delivery));
        let made = client.post_json("/v1/responses", &request).await;
        let id = json!(made.header("x-request-id").expect("every answer has one"));
        assert!(is_id(&id, "req_AM-"), "{id}");
    }
    let refused = client.clone().with_header("x-request-id", "trace-2").post_json("/v1/responses", &json!({})).await;
    assert_eq!((refused.status.as_u16(), refused.header("x-request-id")), (400, Some("trace-2")));
    let long = "x".repeat(1000);
    for path in ["/nowhere", "/healthz", "/v1/models"] {
        let answer = client.clone().with_header("x-request-id", &long).get(path).await;
        let id = answer.header("x-request-id").expect("every answer has one");
        assert!(id != long && !id.is_empty(), "{path}: {id}");
    }
}

#[tokio::test]
async fn what_cannot_be_carried_over_is_told_in_a_header_or_refused_in_strict_mode() {
    let world = World::start().await;
    let client = world.amalgam.client();
    let lossy = json!({
        "input": "Hi",
        "tools": [
            {"type": "web_search"},
            {"type": "function", "name": "look", "parameters": {"type": "object"}},
            {"type": "acme:thing"},
        ],
    });
    for wire in [Wire::Chat, Wire::Anthropic] {
        for delivery in DELIVERIES {
            let answer = world.ask(wire, delivery, &greeting(), &lossy).await;
            let losses = answer.header("amalgam-losses").expect("tools were left out");
            assert!(losses.contains("tools[0]") && losses.contains("tools[2]"), "RAM-23: {losses}");
            assert!(!losses.contains("tools[1]"), "{losses}");
            let clean = world.ask(wire, delivery, &greeting(), &hello()).await;
            assert_eq!(clean.header("amalgam-losses"), None, "{wire:?}");
        }
        let before = world.upstream(wire).requests().len();
        let strict = client.clone().with_header("amalgam-strict", "true");
        let refused = strict.post_json("/v1/responses", &asking(wire, Delivery::Stream, &lossy)).await;
        assert_refused(&refused, 400, Some("tools[0]"), "unsupported_parameter");
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("tools[0]") && message.contains("tools[2]"), "each field is named: {message}");
        assert_eq!(world.upstream(wire).requests().len(), before, "nobody is asked");
        world.upstream(wire).enqueue(greeting().reply(wire, Delivery::Whole));
        let fine = strict.post_json("/v1/responses", &asking(wire, Delivery::Whole, &hello())).await;
        assert_eq!(fine.status, 200, "{}", fine.text());
    }
}

#[tokio::test]
async fn every_frame_leaves_in_one_write() {
    let world = World::start().await;
    for wire in WIRES {
        // The upstream splits inside characters and frames; what leaves must not.
        for size in [1, 7, 4096] {
            world.upstream(wire).enqueue(greeting().reply(wire, Delivery::Stream).split(size));
            let request = asking(wire, Delivery::Stream, &hello());
            let writes = world.amalgam.client().post_chunks("/v1/responses", &request).await;
            sse::check_writes(&writes).unwrap_or_else(|problem| panic!("{wire:?}, pieces of {size}: {problem}"));
            let body = writes.concat();
            let problems = check::body(&body);
            assert!(problems.is_empty(), "{wire:?}, pieces of {size}: {problems:?}");
            assert!(body.ends_with(b"data: [DONE]\n\n"));
            let text = String::from_utf8(body).unwrap();
            assert!(!text.lines().any(|line| line.starts_with("id:") || line.starts_with(':')), "{text}");
            assert_eq!(text_of(&last_response(&sse::json_events(text.as_bytes()))), GREETING);
        }
    }
}

#[tokio::test]
async fn a_delta_leaves_before_the_next_one_arrives() {
    let world = World::start().await;
    for wire in WIRES {
        let gate = amalgam_testkit::Gate::new();
        let frames = match wire {
            Wire::Chat => 2,
            Wire::Responses => 5,
            Wire::Anthropic => 3,
        };
        let reply = Script::text(&["first", "second"]).reply(wire, Delivery::Stream).hold_after(frames, &gate);
        world.upstream(wire).enqueue(reply);
        let request = asking(wire, Delivery::Stream, &hello());
        let mut stream = world.amalgam.client().post_stream("/v1/responses", &request).await;
        let delta = stream.next_of_type("response.output_text.delta").await;
        assert_eq!(delta["delta"], "first", "{wire:?}: while the upstream holds back the rest");
        gate.open();
        let rest = stream.rest().await;
        assert!(rest.last().is_some_and(sse::Event::is_done));
    }
}

#[tokio::test]
async fn metadata_is_echoed_up_to_its_limits() {
    // C-28
    let world = World::start().await;
    let pairs = |count: usize| (0..count).map(|n| (format!("key-{n}"), json!("v"))).collect::<serde_json::Map<_, _>>();
    let fine = [
        json!({}),
        Value::Object(pairs(16)),
        json!({"ß".repeat(64): "é".repeat(512)}),
        json!({"a": "", "quoted \" \\ \n": "\u{0}\u{7f}"}),
    ];
    for metadata in fine {
        let response = world.whole(Wire::Chat, &greeting(), &json!({"input": "Hi", "metadata": metadata})).await;
        assert_eq!(response["metadata"], metadata);
    }
    let before = world.upstream(Wire::Chat).requests().len();
    let wrong = [
        (Value::Object(pairs(17)), "metadata"),
        (json!({"k".repeat(65): "v"}), "metadata"),
        (json!({"key": "v".repeat(513)}), "metadata.key"),
        (json!({"key": 1}), "metadata.key"),
        (json!({"key": {"nested": "v"}}), "metadata.key"),
        (json!(["v"]), "metadata"),
        (json!("v"), "metadata"),
    ];
    for (metadata, param) in wrong {
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "metadata": metadata}));
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 400, "{metadata}: {}", answer.text());
        let error = &answer.json()["error"];
        assert_eq!((&error["param"], &error["type"]), (&json!(param), &json!("invalid_request_error")), "{metadata}");
    }
    assert_eq!(world.upstream(Wire::Chat).requests().len(), before);
}

#[tokio::test]
async fn an_upstream_that_answers_whole_to_a_streamed_request_is_still_streamed() {
    let world = World::start().await;
    for wire in WIRES {
        world.upstream(wire).enqueue(greeting().reply(wire, Delivery::Whole));
        let request = asking(wire, Delivery::Stream, &hello());
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(text_of(&last_response(&checked_events(&answer))), GREETING, "{wire:?}");
    }
}

#[tokio::test]
async fn the_upstream_is_sent_its_own_key_and_nothing_of_the_callers() {
    // S14: destination and credential are one pair
    let world = World::with(Setup::new().tenant_key("am_caller-secret"), &[]).await;
    for wire in WIRES {
        let client: Client = world.amalgam.client().with_header("cookie", "session=1").with_header("x-api-key", "mine");
        world.upstream(wire).enqueue(greeting().reply(wire, Delivery::Whole));
        let answer = client.post_json("/v1/responses", &asking(wire, Delivery::Whole, &hello())).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let request = world.upstream(wire).request(0);
        let key = format!("sk-{}", wire.kind());
        match wire {
            Wire::Anthropic => assert_eq!(request.header("x-api-key"), Some(key.as_str())),
            _ => assert_eq!(request.header("authorization"), Some(format!("Bearer {key}").as_str())),
        }
        let headers = format!("{:?}", request.headers);
        assert!(!headers.contains("am_caller-secret") && !headers.contains("session=1"), "{headers}");
        assert!(!headers.contains("\"mine\""), "{headers}");
    }
}

#[tokio::test]
async fn a_field_in_disguise_is_the_field_or_nothing() {
    // What is checked and what is sent must be the same thing, however a key is spelt (S17 in spirit).
    let world = World::start().await;
    for wire in WIRES {
        world.upstream(wire).enqueue(greeting().reply(wire, Delivery::Whole));
        let body = format!(
            r#"{{"model":"{}","input":"Hi","\u006dodel":"smuggled","\u0073tore":true,"previous_response_\u0069d":"smuggled","t\u006fols":"smuggled"}}"#,
            wire.model()
        );
        let answer = world.amalgam.client().post_raw("/v1/responses", "application/json", body).await;
        // Refused, or understood as what it says; never handed on unseen.
        if answer.status == 200 {
            let sent = String::from_utf8(world.upstream(wire).request(0).body.to_vec()).unwrap();
            assert!(!sent.contains("smuggled"), "{wire:?}: {sent}");
            assert!(!sent.contains("\"store\":true"), "{wire:?}: {sent}");
        } else {
            assert_eq!(answer.status.as_u16() / 100, 4, "{wire:?}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn many_streams_at_once_do_not_mix() {
    let world = World::start().await;
    for number in 0..24 {
        let pieces: Vec<String> = (0..20).map(|piece| format!("<{number}:{piece}>")).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        world.upstream(Wire::Chat).enqueue(Script::text(&pieces).reply(Wire::Chat, Delivery::Stream).split(11));
    }
    let client = world.amalgam.client();
    let request = asking(Wire::Chat, Delivery::Stream, &hello());
    let asked = (0..24).map(|_| client.post_json("/v1/responses", &request));
    let answers = futures_util::future::join_all(asked).await;
    let mut texts = HashSet::new();
    for answer in &answers {
        assert_fine(check::body(&answer.body), answer);
        let text = text_of(&last_response(&answer.json_events()));
        let number = text.trim_start_matches('<').split(':').next().unwrap().to_owned();
        let expected: String = (0..20).map(|piece| format!("<{number}:{piece}>")).collect();
        assert_eq!(text, expected);
        texts.insert(text);
    }
    assert_eq!(texts.len(), 24, "every stream is somebody's");
}
