//! The Chat Completions adapter against a scripted server.

use std::{collections::HashMap, sync::Arc, time::Duration};

use amalgam_core::{
    Delivery, FaultKind, Finish, Ids, Model, ModelError, ModelEvent, ModelRequest, PreparedRequest, Seal, normalise,
};
use amalgam_emitter::{Emitter, ResponseStart};
use amalgam_models::{Chat, Key, SystemRole, ToolCalls, UpstreamKind, UpstreamSettings};
use amalgam_protocol::{CreateResponse, Effective, ResponseParameters, ResponseSettings};
use amalgam_testkit::{Gate, Reply, Upstream};
use futures_util::StreamExt;
use secrecy::SecretString;
use serde_json::{Value, json};

struct NoSeal;

impl Seal for NoSeal {
    fn seal(&self, context: &str, plain: &[u8]) -> String {
        format!("ams1.{context}.{}", plain.len())
    }

    fn open(&self, _context: &str, _sealed: &str) -> Option<Vec<u8>> {
        None
    }
}

fn settings(base_url: String, tool_calls: ToolCalls) -> UpstreamSettings {
    UpstreamSettings {
        name: "local".to_owned(),
        kind: UpstreamKind::Chat {
            tool_calls,
            system_role: SystemRole::System,
            stream_usage: true,
            replay_reasoning: Default::default(),
        },
        base_url,
        proxy: None,
        key: Key::Given(SecretString::from("sk-local")),
        headers: vec![("x-extra".to_owned(), "1".to_owned())],
        models: Vec::new(),
        connect_timeout: Duration::from_secs(5),
        first_byte_timeout: Duration::from_secs(5),
        total_timeout: None,
        idle_timeout: Duration::from_secs(5),
        retries: 0,
        fetch_images: true,
        history_recovery: true,
    }
}

fn model(upstream: &Upstream) -> Chat {
    Chat::new(settings(upstream.base_url(), ToolCalls::Native), Arc::new(NoSeal)).unwrap()
}

fn with_request<T>(request: &Value, delivery: Delivery, act: impl FnOnce(&ModelRequest<'_>) -> T) -> T {
    let text = request.to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let history = normalise(settings.instructions.as_ref(), settings.input.as_ref());
    act(&ModelRequest {
        model: "llama",
        settings: &settings,
        history: &history,
        delivery,
        chain: Default::default(),
        seal_context: "tenant-1",
        images: &HashMap::new(),
    })
}

fn prepare(model: &Chat, request: &Value, delivery: Delivery) -> PreparedRequest {
    with_request(request, delivery, |request| model.prepare(request).unwrap())
}

/// All events until the end or an error.
async fn ask(model: &Chat, request: &Value, delivery: Delivery) -> (Vec<ModelEvent>, Option<ModelError>) {
    let prepared = prepare(model, request, delivery);
    let mut stream = match model.ask(&prepared).await {
        Ok(stream) => stream,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut events = Vec::new();
    while let Some(batch) = stream.next().await {
        match batch {
            Ok(batch) => events.extend(batch),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

/// The response that the events add up to, without ids.
fn response(events: Vec<ModelEvent>) -> Value {
    let settings =
        ResponseSettings::new(&CreateResponse::default(), Effective { model: "m", stored: false, background: false });
    let delivery = Delivery::Whole;
    let mut emitter = Emitter::new(ResponseStart {
        response_id: "resp_1".to_owned(),
        created_at: 0,
        settings,
        delivery,
        ids: Ids::Unguessable,
        call_ids: false,
    });
    for event in events {
        emitter.on(event).expect("no event fails");
    }
    emitter.conclude(0);
    let mut response: Value = serde_json::from_slice(&emitter.response()).unwrap();
    for item in response["output"].as_array_mut().unwrap() {
        item.as_object_mut().unwrap().remove("id");
    }
    json!({"status": response["status"], "output": response["output"], "usage": response["usage"]})
}

fn delta(delta: Value) -> Value {
    json!({"id": "chatcmpl-1", "model": "llama", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

/// Holds usage too, so that no test but the one about counting has counts of our own.
fn end(reason: &str) -> Value {
    json!({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage()})
}

fn usage() -> Value {
    json!({"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14})
}

fn tools() -> Value {
    json!([{"type": "function", "name": "weather"}, {"type": "custom", "name": "patch"}])
}

#[tokio::test]
async fn one_answer_is_the_same_streamed_in_any_pieces_and_whole() {
    // C-22, P8
    let frames = [
        delta(json!({"role": "assistant", "content": null, "reasoning_content": "hm 🤔"})),
        delta(json!({"content": "Schöne "})),
        delta(json!({"content": "Grüße 😀 ☂"})),
        delta(
            json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "weather", "arguments": "{\"ort\":"}}]}),
        ),
        delta(json!({"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "patch", "arguments": ""}}]})),
        delta(json!({"tool_calls": [{"index": 1, "function": {"arguments": "{\"input\":\"é"}}]})),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "\"Köln\"}"}}]})),
        delta(json!({"tool_calls": [{"index": 1, "function": {"arguments": "\\n\"}"}}]})),
        end("tool_calls"),
        json!({"choices": [], "usage": usage()}),
    ];
    let body = json!({"id": "chatcmpl-1", "model": "llama", "usage": usage(), "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
    "role": "assistant", "content": "Schöne Grüße 😀 ☂", "reasoning_content": "hm 🤔", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"ort\":\"Köln\"}"}},
        {"id": "c2", "type": "function", "function": {"name": "patch", "arguments": "{\"input\":\"é\\n\"}"}}
    ]}}]});
    let expected = json!({
        "status": "completed",
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm 🤔"}]},
            {"type": "message", "status": "completed", "role": "assistant",
             "content": [{"type": "output_text", "text": "Schöne Grüße 😀 ☂", "annotations": [], "logprobs": []}]},
            {"type": "function_call", "status": "completed", "call_id": "c1", "name": "weather", "arguments": "{\"ort\":\"Köln\"}"},
            {"type": "custom_tool_call", "status": "completed", "call_id": "c2", "name": "patch", "input": "é\n"}
        ],
        "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                  "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 14}
    });
    let request = json!({"input": "Wetter?", "tools": tools()});
    for size in [1, 2, 3, 7, 64, 100_000] {
        let upstream = Upstream::scripted([Reply::sse_data(frames.clone()).split(size)]);
        let (events, error) = ask(&model(&upstream), &request, Delivery::Stream).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(response(events), expected, "in pieces of {size}");
    }
    for delivery in [Delivery::Whole, Delivery::Stream] {
        // A server that does not stream although it was asked to.
        let upstream = Upstream::scripted([Reply::json(body.clone())]);
        let (events, error) = ask(&model(&upstream), &request, delivery).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(response(events), expected, "{delivery:?}");
    }
}

#[tokio::test]
async fn the_request_goes_to_the_right_place_with_key_and_headers() {
    let upstream = Upstream::scripted([Reply::sse_data([delta(json!({"content": "a"})), end("stop")])]);
    let model = model(&upstream);
    assert!(model.wants_image_bytes());
    ask(&model, &json!({"input": "hi", "max_output_tokens": 5}), Delivery::Stream).await;

    let request = upstream.request(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(request.header("authorization"), Some("Bearer sk-local"));
    assert_eq!((request.header("x-extra"), request.header("content-type")), (Some("1"), Some("application/json")));
    assert_eq!(
        request.json(),
        json!({"model": "llama", "messages": [{"role": "user", "content": "hi"}], "stream": true,
               "stream_options": {"include_usage": true}, "max_tokens": 5})
    );
}

#[tokio::test]
async fn a_server_that_never_counts_is_counted_for() {
    // RAM-32
    let last = json!({"choices": [{"index": 0, "delta": {"content": "hello world"}, "finish_reason": "stop"}]});
    let upstream = Upstream::scripted([Reply::sse_data([last])]);
    let (events, _) = ask(&model(&upstream), &json!({"input": "hello"}), Delivery::Stream).await;
    let [.., ModelEvent::Usage(usage), ModelEvent::Finish(Finish::Stop)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((usage.output_tokens, usage.estimated), (2, true));
    assert!((1..20).contains(&usage.input_tokens), "{usage:?}");
}

#[tokio::test]
async fn text_is_passed_on_before_the_answer_is_over() {
    let gate = Gate::new();
    let upstream = Upstream::scripted([Reply::sse_data([
        delta(json!({"content": "first"})),
        delta(json!({"content": "second"})),
        end("stop"),
    ])
    .hold_after(1, &gate)]);
    let model = model(&upstream);
    let prepared = prepare(&model, &json!({"input": "hi"}), Delivery::Stream);
    let mut stream = model.ask(&prepared).await.unwrap();
    let mut events = stream.next().await.unwrap().unwrap();
    assert!(matches!(events.last(), Some(ModelEvent::Text { delta, .. }) if delta.decode() == "first"), "{events:?}");
    gate.open();
    while let Some(batch) = stream.next().await {
        events.extend(batch.unwrap());
    }
    assert_eq!(response(events)["output"][0]["content"][0]["text"], "firstsecond");
}

#[tokio::test]
async fn a_stream_that_is_cut_or_falls_silent_is_an_error_after_what_was_said() {
    let frames = || Reply::sse_data([delta(json!({"content": "a"})), delta(json!({"content": "b"})), end("stop")]);
    for (reply, silent) in
        [(frames().cut_after(2), false), (frames().reset_after(2), false), (frames().hang_after(2), true)]
    {
        let upstream = Upstream::scripted([reply]);
        let mut settings = settings(upstream.base_url(), ToolCalls::Native);
        settings.idle_timeout = Duration::from_millis(300);
        let (events, error) =
            ask(&Chat::new(settings, Arc::new(NoSeal)).unwrap(), &json!({"input": "hi"}), Delivery::Stream).await;
        let said: String = events
            .iter()
            .filter_map(|event| match event {
                ModelEvent::Text { delta, .. } => Some(delta.decode()),
                _ => None,
            })
            .collect();
        assert_eq!(said, "ab");
        match error {
            Some(ModelError::Silent(_)) => assert!(silent),
            Some(ModelError::CutShort) => assert!(!silent),
            other => panic!("{other:?} after {events:?}"),
        }
    }
}

#[tokio::test]
async fn a_missing_done_is_forgiven_once_the_server_said_why_it_ended() {
    let upstream = Upstream::scripted([
        Reply::stream()
            .frame(None, &delta(json!({"content": "a"})).to_string())
            .frame(None, &end("length").to_string())
            .without_final_newline(),
        Reply::stream().frame(None, &delta(json!({"content": "a"})).to_string()),
    ]);
    let model = model(&upstream);
    let (events, error) = ask(&model, &json!({"input": "hi"}), Delivery::Stream).await;
    assert!(error.is_none());
    assert_eq!(events.last(), Some(&ModelEvent::Finish(Finish::Length)));
    let (_, error) = ask(&model, &json!({"input": "hi"}), Delivery::Stream).await;
    assert!(matches!(error, Some(ModelError::CutShort)), "{error:?}");
}

#[tokio::test]
async fn errors_inside_a_200_are_errors() {
    let error = json!({"error": {"message": "try later", "type": "overloaded_error"}});
    let upstream = Upstream::scripted([
        Reply::sse_data([error.clone()]),
        Reply::json(error.clone()),
        Reply::sse_data([delta(json!({"content": "a"})), error]),
    ]);
    let model = model(&upstream);
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let (events, error) = ask(&model, &json!({"input": "hi"}), delivery).await;
        assert_eq!(events, []);
        assert!(matches!(error, Some(ModelError::Refused { status: 503, .. })), "{error:?}");
    }
    let (events, error) = ask(&model, &json!({"input": "hi"}), Delivery::Stream).await;
    assert!(error.is_none());
    assert!(
        matches!(events.last(), Some(ModelEvent::Finish(Finish::Failed(fault))) if fault.kind == FaultKind::UpstreamDown)
    );
}

#[tokio::test]
async fn leaving_closes_the_upstream_call() {
    let upstream = Upstream::scripted([Reply::sse_data([delta(json!({"content": "a"}))]).hang_after(1)]);
    let model = model(&upstream);
    let prepared = prepare(&model, &json!({"input": "hi"}), Delivery::Stream);
    let mut stream = model.ask(&prepared).await.unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    drop(stream);
    upstream.wait_for_disconnect(0).await;
}

#[tokio::test]
async fn a_lost_call_is_mended_once_by_telling_the_history() {
    // O-48
    let message =
        "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.";
    let upstream = Upstream::scripted([
        Reply::status(400).with_json(json!({"error": {"message": message, "type": "invalid_request_error"}}))
    ]);
    let model = model(&upstream);
    let history = json!({"input": [
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "x"}
    ]});
    let (_, error) = ask(&model, &history, Delivery::Whole).await;
    let error = error.expect("the upstream refused");
    let recovered = with_request(&history, Delivery::Whole, |request| model.recover(request, &error)).unwrap().unwrap();
    let body: Value = serde_json::from_slice(&recovered.body).unwrap();
    let roles: Vec<&Value> = body["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "user"], "the history is told, not called: {body}");
    let other = ModelError::CutShort;
    assert!(with_request(&history, Delivery::Whole, |request| model.recover(request, &other)).is_none());
    assert!(with_request(&json!({"input": "a"}), Delivery::Whole, |request| model.recover(request, &error)).is_none());
}

#[tokio::test]
async fn a_model_without_tools_calls_them_by_schema() {
    let pieces = |text: &str| -> Vec<Value> {
        let characters: Vec<char> = text.chars().collect();
        let deltas = characters.chunks(4).map(|piece| delta(json!({"content": piece.iter().collect::<String>()})));
        deltas.chain([end("stop"), json!({"choices": [], "usage": usage()})]).collect()
    };
    let calls =
        r#"{"calls":[{"tool":"weather","arguments":{"ort":"Köln"}},{"tool":"patch","arguments":{"input":"*** é\n"}}]}"#;
    let answer = r#"{"answer":"Grüße 😀"}"#;
    let called = json!([
        {"type": "function_call", "status": "completed", "name": "weather", "arguments": "{\"ort\":\"Köln\"}"},
        {"type": "custom_tool_call", "status": "completed", "name": "patch", "input": "*** é\n"}
    ]);
    let said = |text: &str| {
        json!([{"type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]}])
    };
    for (text, expected) in [(calls, called), (answer, said("Grüße 😀")), ("Just prose.", said("Just prose."))] {
        let whole = json!({"choices": [{"finish_reason": "stop", "message": {"content": text}}], "usage": usage()});
        let upstream = Upstream::scripted([Reply::sse_data(pieces(text)).split(5), Reply::json(whole)]);
        let model = Chat::new(settings(upstream.base_url(), ToolCalls::Constrained), Arc::new(NoSeal)).unwrap();
        for delivery in [Delivery::Stream, Delivery::Whole] {
            let (events, error) = ask(&model, &json!({"input": "hi", "tools": tools()}), delivery).await;
            assert!(error.is_none(), "{error:?}");
            let mut output = response(events)["output"].take();
            for item in output.as_array_mut().unwrap() {
                item.as_object_mut().unwrap().remove("call_id");
            }
            assert_eq!(output, expected, "{text} {delivery:?}");
        }
        assert_eq!(upstream.request(0).json().get("tools"), None);
        assert_eq!(upstream.request(0).json()["response_format"]["type"], "json_schema");
    }
}

#[test]
fn hosts_decide_the_name_of_the_token_limit_and_whether_reasoning_go_back() {
    let request = json!({"max_output_tokens": 3, "input": [
        {"role": "user", "content": "a"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "x"}
    ]});
    for (base_url, limit, thoughts) in [
        ("https://api.openai.com/v1", "max_completion_tokens", None),
        ("https://x.openai.azure.com/openai/v1", "max_completion_tokens", None),
        ("https://api.groq.com/openai/v1", "max_tokens", None),
        ("https://notopenai.com/v1", "max_tokens", Some("hm")),
        ("http://127.0.0.1:11434/v1", "max_tokens", Some("hm")),
    ] {
        let model = Chat::new(settings(base_url.to_owned(), ToolCalls::Native), Arc::new(NoSeal)).unwrap();
        let body: Value = serde_json::from_slice(&prepare(&model, &request, Delivery::Whole).body).unwrap();
        assert_eq!(body[limit], 3, "{base_url}");
        assert_eq!(body["messages"][1]["reasoning_content"].as_str(), thoughts, "{base_url}");
    }
}
