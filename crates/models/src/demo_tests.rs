use std::{collections::HashMap, time::Instant};

use amalgam_core::{CallHead, CallKind, Finish, normalise};
use amalgam_protocol::{ClientTool, ResponseParameters, Usage};
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::*;
use crate::{settings::Key, testing::PlainSeal};

fn demo(pace: Duration) -> Demo {
    let second = Duration::from_secs(1);
    let settings = UpstreamSettings {
        name: "demo".to_owned(),
        kind: UpstreamKind::Demo { pace },
        base_url: String::new(),
        proxy: None,
        key: Key::None,
        headers: Vec::new(),
        models: Vec::new(),
        connect_timeout: second,
        first_byte_timeout: second,
        total_timeout: None,
        idle_timeout: second,
        retries: 0,
        fetch_images: false,
        history_recovery: false,
    };
    Demo::new(settings, Arc::new(PlainSeal)).unwrap()
}

fn prepare(demo: &Demo, request: &Value, delivery: Delivery) -> PreparedRequest {
    let text = request.to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let history = normalise(settings.instructions.as_ref(), settings.input.as_ref());
    let request = ModelRequest {
        model: "demo",
        settings: &settings,
        history: &history,
        delivery,
        chain: Default::default(),
        seal_context: "",
        images: &HashMap::new(),
    };
    demo.prepare(&request).unwrap()
}

async fn batches(demo: &Demo, request: &Value, delivery: Delivery) -> Vec<Vec<ModelEvent>> {
    let prepared = prepare(demo, request, delivery);
    let stream = demo.ask(&prepared).await.unwrap();
    stream.map(Result::unwrap).collect().await
}

async fn ask(request: Value) -> Vec<ModelEvent> {
    batches(&demo(Duration::ZERO), &request, Delivery::Whole).await.concat()
}

fn spoken(events: &[ModelEvent]) -> String {
    let text = |event: &ModelEvent| match event {
        ModelEvent::Text { delta, .. } => Some(delta.decode()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

fn finish(events: &[ModelEvent]) -> &Finish {
    match events.last() {
        Some(ModelEvent::Finish(finish)) => finish,
        other => panic!("{other:?}"),
    }
}

/// The calls with their arguments.
fn calls(events: &[ModelEvent]) -> Vec<(CallHead, String)> {
    let mut calls: Vec<(CallHead, String)> = Vec::new();
    for event in events {
        match event {
            ModelEvent::CallStart { call, .. } => calls.push((call.clone(), String::new())),
            ModelEvent::CallDelta { key, delta } => calls[*key as usize].1.push_str(&delta.decode()),
            _ => {}
        }
    }
    calls
}

fn named(events: &[ModelEvent]) -> Vec<(String, Value)> {
    calls(events).into_iter().map(|(call, arguments)| (call.name, serde_json::from_str(&arguments).unwrap())).collect()
}

fn weather() -> Value {
    json!({"type": "function", "name": "get_weather", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false}})
}

fn clock() -> Value {
    json!({"type": "function", "name": "get_time", "parameters": {"type": "object",
        "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}}, "required": ["zone"]}})
}

#[tokio::test]
async fn it_says_that_it_is_a_demo_and_what_it_received() {
    let events = ask(json!({
        "instructions": "Be kind.",
        "input": [{"role": "user", "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}
        ]}]
    }))
    .await;
    let text = spoken(&events);
    for part in ["demo model", "“What is this?”", "image/png", "application/pdf (a.pdf)", "instructions of 2 words"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(finish(&events), &Finish::Stop);
}

#[tokio::test]
async fn a_named_tool_is_called_with_arguments_from_the_message() {
    for message in ["use get_weather for Oslo", "What's the weather in Oslo?", "Please call getWeather: city=Oslo"] {
        let mut tool = weather();
        if message.contains("getWeather") {
            tool["name"] = json!("getWeather");
        }
        let events = ask(json!({"input": message, "tools": [tool, clock()]})).await;
        assert_eq!(
            named(&events),
            vec![(tool["name"].as_str().unwrap().to_owned(), json!({"city": "Oslo"}))],
            "{message}"
        );
        assert_eq!(spoken(&events), "");
    }
}

#[tokio::test]
async fn a_message_that_asks_for_nothing_calls_nothing() {
    let events = ask(json!({"input": "Hello there", "tools": [weather(), clock()]})).await;
    assert_eq!(calls(&events), vec![]);
    assert!(spoken(&events).contains("get_weather, get_time"));
    let forbidden = ask(json!({"input": "use get_weather", "tools": [weather()], "tool_choice": "none"})).await;
    assert_eq!(calls(&forbidden), vec![]);
}

#[tokio::test]
async fn two_named_tools_are_called_together_or_one_after_the_other() {
    let mut request = json!({"input": [{"role": "user", "content": "use get_weather for Oslo and get_time in CET"}], "tools": [weather(), clock()]});
    let both =
        vec![("get_weather".to_owned(), json!({"city": "Oslo"})), ("get_time".to_owned(), json!({"zone": "CET"}))];
    assert_eq!(named(&ask(request.clone()).await), both);

    request["parallel_tool_calls"] = json!(false);
    assert_eq!(named(&ask(request.clone()).await), both[..1]);
    let turn = |id: &str, name: &str, output: &str| {
        [
            json!({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": id, "output": output}),
        ]
    };
    request["input"].as_array_mut().unwrap().extend(turn("a", "get_weather", "rain, 7 degrees"));
    assert_eq!(named(&ask(request.clone()).await), both[1..]);
    request["input"].as_array_mut().unwrap().extend(turn("b", "get_time", "12:00"));
    let events = ask(request).await;
    assert_eq!(calls(&events), vec![]);
    let text = spoken(&events);
    assert!(
        text.contains("get_weather answered: rain, 7 degrees") && text.contains("get_time answered: 12:00"),
        "{text}"
    );
}

#[tokio::test]
async fn a_demanded_tool_is_called_whatever_the_message_says() {
    let required = ask(json!({"input": "Hi", "tools": [clock(), weather()], "tool_choice": "required"})).await;
    assert_eq!(named(&required), vec![("get_time".to_owned(), json!({"zone": "UTC"}))]);
    let choice = json!({"type": "function", "name": "get_weather"});
    let chosen = ask(json!({"input": "Hi", "tools": [clock(), weather()], "tool_choice": choice})).await;
    assert_eq!(named(&chosen), vec![("get_weather".to_owned(), json!({"city": "demo"}))]);
}

#[tokio::test]
async fn custom_namespaced_and_client_tools_come_out_as_what_they_are() {
    let tools = json!([
        {"type": "custom", "name": "apply_diff"},
        {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "lookup_customer"}]},
        {"type": "shell"}
    ]);
    let calls =
        calls(&ask(json!({"input": "apply_diff `*** Begin`, lookup_customer, then the shell", "tools": tools})).await);
    let heads: Vec<(CallKind, &str, Option<&str>)> =
        calls.iter().map(|(call, _)| (call.kind, call.name.as_str(), call.namespace.as_deref())).collect();
    assert_eq!(
        heads,
        vec![
            (CallKind::Custom, "apply_diff", None),
            (CallKind::Function, "lookup_customer", Some("crm")),
            (CallKind::Client(ClientTool::Shell), "shell", None)
        ]
    );
    assert_eq!(calls[0].1, "*** Begin");
    assert_eq!(serde_json::from_str::<Value>(&calls[2].1).unwrap(), json!({"commands": ["*** Begin"]}));
}

#[tokio::test]
async fn a_schema_is_filled_and_an_object_is_an_object() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"], "additionalProperties": false});
    let format = json!({"format": {"type": "json_schema", "name": "trip", "schema": schema, "strict": true}});
    let filled = spoken(&ask(json!({"input": "A trip to Oslo for 3 days", "text": format})).await);
    assert_eq!(serde_json::from_str::<Value>(&filled).unwrap(), json!({"city": "Oslo", "days": 3}));
    let object = spoken(&ask(json!({"input": "JSON please", "text": {"format": {"type": "json_object"}}})).await);
    assert!(serde_json::from_str::<Value>(&object).unwrap().is_object());
}

#[tokio::test]
async fn the_most_tokens_are_respected_and_counted() {
    let whole = ask(json!({"input": "Hello"})).await;
    let cut = ask(json!({"input": "Hello", "max_output_tokens": 4})).await;
    assert_eq!(finish(&cut), &Finish::Length);
    assert!(spoken(&whole).starts_with(&spoken(&cut)));
    let usage = |events: &[ModelEvent]| match &events[events.len() - 2] {
        ModelEvent::Usage(usage) => *usage,
        other => panic!("{other:?}"),
    };
    assert_eq!(usage(&cut), Usage { input_tokens: 1, output_tokens: 4, ..Usage::default() });
    assert!(usage(&whole).output_tokens > 4);
}

#[tokio::test]
async fn reasoning_are_shown_when_a_summary_is_asked_for() {
    let events = ask(json!({"input": "Hello", "reasoning": {"summary": "auto"}})).await;
    let thoughts = events.iter().filter(|event| matches!(event, ModelEvent::ReasoningSummary(_))).count();
    let end = events.iter().position(|event| matches!(event, ModelEvent::ReasoningEnd { .. })).unwrap();
    let first_text = events.iter().position(|event| matches!(event, ModelEvent::Text { .. })).unwrap();
    assert!(thoughts > 3 && end < first_text);
    let quiet = ask(json!({"input": "Hello"})).await;
    assert!(!quiet.iter().any(|event| matches!(event, ModelEvent::ReasoningSummary(_))));
}

#[tokio::test]
async fn a_stream_says_word_by_word_what_the_whole_answer_says() {
    let request = json!({"input": "use get_weather for Oslo", "tools": [weather()], "reasoning": {"effort": "low"}});
    let demo = demo(Duration::ZERO);
    let streamed = batches(&demo, &request, Delivery::Stream).await;
    let whole = batches(&demo, &request, Delivery::Whole).await;
    assert_eq!(whole.len(), 1);
    assert!(streamed.len() > 8);
    assert_eq!(streamed.concat(), whole.concat());
}

#[tokio::test]
async fn a_stream_keeps_its_pace_and_a_whole_answer_does_not_wait() {
    let request = json!({"input": "Hello", "max_output_tokens": 5});
    let demo = demo(Duration::from_millis(10));
    let begun = Instant::now();
    batches(&demo, &request, Delivery::Stream).await;
    assert!(begun.elapsed() >= Duration::from_millis(50));
    let slow = self::demo(Duration::from_secs(3600));
    let whole = tokio::time::timeout(Duration::from_secs(60), batches(&slow, &request, Delivery::Whole)).await;
    assert_eq!(whole.unwrap().len(), 1);
}

#[tokio::test]
async fn settings_without_effect_are_losses() {
    let request = json!({"input": "Hi", "temperature": 0.2, "top_logprobs": 2, "tools": [{"type": "web_search"}]});
    let losses = prepare(&demo(Duration::ZERO), &request, Delivery::Whole).losses;
    let fields: Vec<&str> = losses.iter().map(|loss| &*loss.field).collect();
    assert_eq!(fields, vec!["tools[0]", "temperature", "top_logprobs"]);
}

#[tokio::test]
async fn the_demo_counts_before_it_answers_as_it_does_afterwards() {
    let request = json!({"input": "How many tokens are these?", "instructions": "Count."});
    let demo = demo(Duration::ZERO);
    let counted = demo.count(&prepare(&demo, &request, Delivery::Whole));
    let events = ask(request).await;
    let usage = events.iter().find_map(|event| match event {
        ModelEvent::Usage(usage) => Some(usage.input_tokens),
        _ => None,
    });
    assert_eq!(usage, Some(counted.total()));
    assert_eq!(demo.count_text("demo", "How many"), 2);
}

#[test]
fn what_the_demo_does_not_read_is_a_loss_told_once() {
    let sealed = json!({"type": "reasoning", "summary": [], "encrypted_content": "x"});
    let foreign = json!({"type": "compaction", "encrypted_content": "theirs"});
    let request = json!({"input": [sealed, sealed, foreign, {"type": "reasoning", "summary": []}, {"role": "user", "content": "Hi"}]});
    let losses = prepare(&demo(Duration::ZERO), &request, Delivery::Whole).losses;
    let fields: Vec<&str> = losses.iter().map(|loss| &*loss.field).collect();
    assert_eq!(fields, ["input.reasoning", "input.compaction"]);
}
