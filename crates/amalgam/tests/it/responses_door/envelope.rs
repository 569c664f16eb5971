//! What travels around an answer: ids of requests, echoes, losses, credentials, and unknown fields.

use amalgam_testkit::{Client, Setup};
use serde_json::{Value, json};

use super::{GREETING, greeting, hello, is_id};
use crate::support::{DELIVERIES, Delivery, WIRES, Wire, World, asking, assert_refused, text_of};

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
async fn unknown_fields_are_accepted() {
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
        assert_eq!(world.upstream(wire).requests().len(), before, "no upstream is asked");
        world.upstream(wire).enqueue(greeting().reply(wire, Delivery::Whole));
        let fine = strict.post_json("/v1/responses", &asking(wire, Delivery::Whole, &hello())).await;
        assert_eq!(fine.status, 200, "{}", fine.text());
    }
}

#[tokio::test]
async fn what_cannot_be_carried_over_is_in_the_log_for_every_delivery() {
    for delivery in DELIVERIES {
        let world = World::start().await;
        world.ask(Wire::Chat, delivery, &greeting(), &json!({"input": "Hi", "tools": [{"type": "web_search"}]})).await;
        let log = world.amalgam.wait_for_stderr("not everything was carried over").await;
        let line = log.lines().find(|line| line.contains("not everything was carried over")).unwrap();
        assert!(line.contains("tools[0]: `web_search` has no implementation here"), "{delivery:?}: {line}");
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
    // What is checked and what is sent must be the same thing, for every spelling of a key (S17 in spirit).
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
