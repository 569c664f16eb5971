//! The built-in demo: every feature without a key, a file or a network.

use amalgam_testkit::{Amalgam, HttpAnswer, Setup, check, spec};
use serde_json::{Value, json};

use crate::support::{
    BINARY, DELIVERIES, Delivery, assert_calm, assert_fine, assert_refused, checked_events, items, last_response,
    text_of, types,
};

async fn demo() -> Amalgam {
    let setup = Setup::new().extra("[upstreams.demo]\nkind = \"demo\"\npace = \"0ms\"");
    Amalgam::start(BINARY, setup).await
}

async fn ask(amalgam: &Amalgam, delivery: Delivery, request: &Value) -> HttpAnswer {
    let mut request = request.clone();
    request["model"] = json!("demo");
    request["stream"] = json!(delivery == Delivery::Stream);
    amalgam.client().post_json("/v1/responses", &request).await
}

async fn response(amalgam: &Amalgam, delivery: Delivery, request: &Value) -> Value {
    let answer = ask(amalgam, delivery, request).await;
    assert_eq!(answer.status, 200, "{request}: {}", answer.text());
    match delivery {
        Delivery::Stream => last_response(&checked_events(&answer)),
        Delivery::Whole => {
            let response = answer.json();
            assert_fine(check::response(&response), &answer);
            assert_fine(spec::response_violations(&response), &answer);
            response
        }
    }
}

fn weather() -> Value {
    json!({
        "type": "function", "name": "get_weather", "description": "Weather of a city.", "strict": true,
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
            },
            "required": ["city", "unit", "days"], "additionalProperties": false,
        },
    })
}

fn calls(response: &Value) -> Vec<Value> {
    items(response).into_iter().filter(|item| item["type"] == "function_call").collect()
}

fn assert_follows(schema: &Value, text: &str) {
    let value: Value = serde_json::from_str(text).expect("the text is JSON");
    let validator = jsonschema::options().build(schema).expect("the schema is sound");
    let problems: Vec<String> = validator.iter_errors(&value).map(|problem| problem.to_string()).collect();
    assert!(problems.is_empty(), "{value} does not follow {schema}: {problems:?}");
}

#[tokio::test]
async fn it_answers_says_that_it_is_a_demo_and_always_says_the_same() {
    let amalgam = demo().await;
    let request = json!({"input": "What can you do?"});
    let first = response(&amalgam, Delivery::Whole, &request).await;
    assert!(text_of(&first).to_lowercase().contains("demo"), "{}", text_of(&first));
    assert!(first["usage"]["total_tokens"].as_u64().is_some_and(|total| total > 0), "{}", first["usage"]);
    for delivery in DELIVERIES {
        let again = response(&amalgam, delivery, &request).await;
        assert_eq!(items(&again), items(&first), "{delivery:?}");
        assert_eq!(again["usage"], first["usage"], "{delivery:?}");
    }
}

#[tokio::test]
async fn it_streams_word_by_word() {
    let amalgam = demo().await;
    let answer = ask(&amalgam, Delivery::Stream, &json!({"input": "Tell me about yourself."})).await;
    let events = checked_events(&answer);
    let deltas = types(&events).iter().filter(|kind| **kind == "response.output_text.delta").count();
    assert!(deltas >= 5, "{deltas} deltas");
}

#[tokio::test]
async fn its_default_pace_can_be_read_along() {
    let amalgam = Amalgam::start(BINARY, Setup::new()).await;
    let request = json!({"model": "demo", "input": "Hello", "stream": true});
    let mut stream = amalgam.client().post_stream("/v1/responses", &request).await;
    stream.next_of_type("response.output_text.delta").await;
    let first = std::time::Instant::now();
    stream.next_of_type("response.completed").await;
    let took = first.elapsed();
    assert!(took.as_millis() >= 20 && took.as_secs() < 10, "{took:?}");
}

#[tokio::test]
async fn it_calls_a_tool_when_the_message_asks_for_it() {
    let amalgam = demo().await;
    let request = json!({"input": "Please use get_weather for Oslo.", "tools": [weather()]});
    for delivery in DELIVERIES {
        let response = response(&amalgam, delivery, &request).await;
        let calls = calls(&response);
        assert_eq!(calls.len(), 1, "{response}");
        assert_eq!(calls[0]["name"], "get_weather");
        let arguments = calls[0]["arguments"].as_str().unwrap();
        assert_follows(&weather()["parameters"], arguments);
        assert!(arguments.contains("Oslo"), "{arguments}");
    }
}

#[tokio::test]
async fn it_goes_on_with_what_the_tool_gave() {
    let amalgam = demo().await;
    let asked = json!({"role": "user", "content": "Please use get_weather for Oslo."});
    let first = response(&amalgam, Delivery::Whole, &json!({"input": [asked], "tools": [weather()]})).await;
    let call = first["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap();
    let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "snow, -3 °C"});
    let request = json!({"input": [asked, call, output], "tools": [weather()]});
    for delivery in DELIVERIES {
        let next = response(&amalgam, delivery, &request).await;
        assert_eq!(calls(&next), Vec::<Value>::new(), "no endless loop");
        assert!(text_of(&next).contains("snow, -3 °C"), "{}", text_of(&next));
    }
}

#[tokio::test]
async fn it_calls_what_it_is_forced_to_and_nothing_when_it_must_not() {
    let amalgam = demo().await;
    let clock = json!({"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}});
    let named = json!({"type": "function", "name": "get_time"});
    let allowed = json!({"type": "allowed_tools", "mode": "required", "tools": [named]});
    for delivery in DELIVERIES {
        for (choice, expected) in [(named.clone(), "get_time"), (allowed.clone(), "get_time")] {
            let request = json!({"input": "Hello", "tools": [weather(), clock], "tool_choice": choice});
            let response = response(&amalgam, delivery, &request).await;
            let names: Vec<Value> = calls(&response).iter().map(|call| call["name"].clone()).collect();
            assert_eq!(names, [expected], "{choice}");
        }
        let request = json!({"input": "Hello", "tools": [weather()], "tool_choice": "required"});
        let required = response(&amalgam, delivery, &request).await;
        assert_eq!(calls(&required).len(), 1, "{required}");
        assert_follows(&weather()["parameters"], calls(&required)[0]["arguments"].as_str().unwrap());
        let request = json!({"input": "Please use get_weather for Oslo.", "tools": [weather()], "tool_choice": "none"});
        let none = response(&amalgam, delivery, &request).await;
        assert_eq!(calls(&none), Vec::<Value>::new());
        assert!(!text_of(&none).is_empty());
    }
}

#[tokio::test]
async fn it_calls_custom_and_client_run_tools() {
    let amalgam = demo().await;
    let cases = [
        (json!({"type": "custom", "name": "note"}), "custom_tool_call"),
        (json!({"type": "local_shell"}), "local_shell_call"),
        (json!({"type": "shell"}), "shell_call"),
        (json!({"type": "apply_patch"}), "apply_patch_call"),
    ];
    for (tool, expected) in cases {
        for delivery in DELIVERIES {
            let request = json!({"input": "Do something.", "tools": [tool], "tool_choice": "required"});
            let response = response(&amalgam, delivery, &request).await;
            let kinds: Vec<Value> = items(&response).iter().map(|item| item["type"].clone()).collect();
            assert!(kinds.contains(&json!(expected)), "{tool}: {response}");
        }
    }
}

#[tokio::test]
async fn it_fills_a_schema_with_a_valid_instance() {
    let amalgam = demo().await;
    let schemas = [
        json!({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 18}}, "required": ["name", "age"], "additionalProperties": false}),
        json!({"type": "object", "properties": {"list": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}}, "required": ["list"]}),
        json!({"type": "object", "properties": {"when": {"type": "string", "format": "date"}, "score": {"type": "number", "exclusiveMinimum": 0, "maximum": 1}}, "required": ["when", "score"]}),
        json!({"$defs": {"leaf": {"type": "object", "properties": {"v": {"const": 7}}, "required": ["v"]}}, "type": "object", "properties": {"leaf": {"$ref": "#/$defs/leaf"}}, "required": ["leaf"]}),
        json!({"type": "object", "properties": {"x": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}}, "required": ["x"]}),
    ];
    for schema in schemas {
        let format = json!({"type": "json_schema", "name": "thing", "schema": schema, "strict": true});
        for delivery in DELIVERIES {
            let response =
                response(&amalgam, delivery, &json!({"input": "Fill it.", "text": {"format": format}})).await;
            assert_follows(&schema, &text_of(&response));
        }
    }
    let request = json!({"input": "Any JSON.", "text": {"format": {"type": "json_object"}}});
    let text = text_of(&response(&amalgam, Delivery::Whole, &request).await);
    assert!(serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_object()), "{text}");
}

#[tokio::test]
async fn it_shows_reasoning_when_asked_and_ends_early_when_told() {
    let amalgam = demo().await;
    let request = json!({"input": "Think first.", "reasoning": {"effort": "medium", "summary": "auto"}});
    for delivery in DELIVERIES {
        let thinking = response(&amalgam, delivery, &request).await;
        assert_eq!(thinking["output"][0]["type"], "reasoning", "{thinking}");
        let summary = &thinking["output"][0]["summary"][0]["text"];
        assert_eq!(summary, "The last message has 2 words. The message asks for no tool, so I describe what arrived.");
        let short = response(&amalgam, delivery, &json!({"input": "Tell me a lot.", "max_output_tokens": 3})).await;
        assert_eq!(short["status"], "incomplete", "{short}");
        assert_eq!(short["incomplete_details"], json!({"reason": "max_output_tokens"}));
    }
}

#[tokio::test]
async fn what_it_leaves_out_is_told_once() {
    let amalgam = demo().await;
    let request = json!({"input": "Hi", "temperature": 0.2, "tools": [{"type": "web_search"}]});
    let answer = ask(&amalgam, Delivery::Whole, &request).await;
    let losses = answer.header("amalgam-losses").expect("two things are left out").to_owned();
    for field in ["temperature", "tools[0]"] {
        assert_eq!(losses.matches(field).count(), 1, "{field} in {losses}");
    }
}

#[tokio::test]
async fn an_image_address_is_not_fetched() {
    // P11: offline means offline, also when a message names an address
    let canary = amalgam_testkit::Upstream::start();
    let amalgam = demo().await;
    let content = json!([{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": format!("{}/x.png", canary.url())}]);
    for delivery in DELIVERIES {
        let request = json!({"input": [{"role": "user", "content": content}]});
        assert!(!text_of(&response(&amalgam, delivery, &request).await).is_empty());
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn its_refusals_are_those_of_every_model() {
    let amalgam = demo().await;
    let request = json!({"input": "Hi", "tools": [weather()], "tool_choice": {"type": "function", "name": "unknown"}});
    assert_refused(&ask(&amalgam, Delivery::Stream, &request).await, 400, Some("tool_choice"), "invalid_value");
    assert_calm(&amalgam);
}
