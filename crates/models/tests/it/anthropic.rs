//! The Messages adapter against a scripted server.
#![expect(clippy::unwrap_used, reason = "what a test sets up itself is known to be right")]

use std::{collections::HashMap, sync::Arc, time::Duration};

use amalgam_core::{Delivery, Finish, Model, ModelError, ModelEvent, ModelRequest, PreparedRequest, Seal, normalise};
use amalgam_models::{Anthropic, Key, UpstreamKind, UpstreamSettings};
use amalgam_protocol::ResponseParameters;
use amalgam_testkit::{Reply, Upstream};
use futures_util::StreamExt;
use secrecy::SecretString;
use serde_json::{Value, json};

struct NoSeal;

impl Seal for NoSeal {
    fn seal(&self, context: &str, plain: &[u8]) -> String {
        format!("{context}:{}", String::from_utf8_lossy(plain))
    }

    fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        sealed.strip_prefix(context)?.strip_prefix(':').map(|plain| plain.as_bytes().to_vec())
    }
}

fn settings(upstream: &Upstream) -> UpstreamSettings {
    UpstreamSettings {
        name: "claude".to_owned(),
        kind: UpstreamKind::Anthropic {
            version: "2023-06-01".to_owned(),
            max_output_tokens: 1000,
            structured_output: Default::default(),
        },
        base_url: upstream.base_url(),
        proxy: None,
        key: Key::Given(SecretString::from("sk-ant-secret")),
        headers: vec![("x-extra".to_owned(), "1".to_owned())],
        models: Vec::new(),
        connect_timeout: Duration::from_secs(5),
        first_byte_timeout: Duration::from_secs(5),
        total_timeout: None,
        idle_timeout: Duration::from_secs(5),
        retries: 1,
        fetch_images: false,
        history_recovery: false,
    }
}

fn model(upstream: &Upstream) -> Anthropic {
    Anthropic::new(settings(upstream), Arc::new(NoSeal)).unwrap()
}

fn prepare(model: &Anthropic, request: &Value, delivery: Delivery) -> PreparedRequest {
    let text = request.to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let history = normalise(settings.instructions.as_ref(), settings.input.as_ref());
    let request = ModelRequest {
        model: "claude-sonnet-4-5",
        settings: &settings,
        history: &history,
        delivery,
        chain: Default::default(),
        seal_context: "tenant-1",
        images: &HashMap::new(),
    };
    model.prepare(&request).unwrap()
}

/// All events until the end, and the error that ended the stream.
async fn ask(model: &Anthropic, request: &Value, delivery: Delivery) -> (Vec<ModelEvent>, Option<ModelError>) {
    let prepared = prepare(model, request, delivery);
    let mut events = Vec::new();
    let mut stream = match model.ask(&prepared).await {
        Ok(stream) => stream,
        Err(error) => return (events, Some(error)),
    };
    while let Some(batch) = stream.next().await {
        match batch {
            Ok(batch) => events.extend(batch),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

fn spoken(events: &[ModelEvent]) -> String {
    let text = |event: &ModelEvent| match event {
        ModelEvent::Text { delta, .. } => Some(delta.decode()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

fn frames() -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude-x", "usage": {"input_tokens": 3, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Grüße \u{1F600}"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ", Welt"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ]
}

fn message() -> Value {
    json!({"id": "msg_1", "type": "message", "model": "claude-x", "content": [{"type": "text", "text": "Grüße \u{1F600}, Welt"}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 5}})
}

fn hello() -> Value {
    json!({"input": "Hello"})
}

#[tokio::test]
async fn the_key_travels_in_its_own_header_and_nowhere_else() {
    let upstream = Upstream::scripted([Reply::sse_typed(frames())]);
    let (events, error) = ask(&model(&upstream), &hello(), Delivery::Stream).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events), "Grüße \u{1F600}, Welt");
    assert_eq!(events.last(), Some(&ModelEvent::Finish(Finish::Stop)));
    let request = upstream.request(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/messages"));
    assert_eq!(request.header("x-api-key"), Some("sk-ant-secret"));
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(request.header("x-extra"), Some("1"));
    assert_eq!(request.header("authorization"), None);
    assert_eq!(
        request.json(),
        json!({"model": "claude-sonnet-4-5", "max_tokens": 1000, "stream": true,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]})
    );
}

#[tokio::test]
async fn a_stream_cut_into_any_pieces_reads_the_same() {
    let upstream = Upstream::scripted([
        Reply::sse_typed(frames()).split(1),
        Reply::sse_typed(frames()).split(7).crlf(),
        Reply::sse_typed(frames()).without_final_newline(),
    ]);
    let model = model(&upstream);
    let first = ask(&model, &hello(), Delivery::Stream).await.0;
    assert_eq!(ask(&model, &hello(), Delivery::Stream).await.0, first);
    assert_eq!(ask(&model, &hello(), Delivery::Stream).await.0, first);
    assert_eq!(first.last(), Some(&ModelEvent::Finish(Finish::Stop)));
}

#[tokio::test]
async fn a_whole_answer_says_what_the_stream_says() {
    let upstream = Upstream::scripted([Reply::json(message()), Reply::json(message())]);
    let model = model(&upstream);
    let (events, error) = ask(&model, &hello(), Delivery::Whole).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events), "Grüße \u{1F600}, Welt");
    assert_eq!(upstream.request(0).json()["stream"], false);
    // A server that ignores `stream` is understood all the same.
    assert_eq!(ask(&model, &hello(), Delivery::Stream).await.0, events);
}

#[tokio::test]
async fn a_stream_cut_in_the_middle_ends_in_an_error_after_what_there_was() {
    let upstream =
        Upstream::scripted([Reply::sse_typed(frames()).cut_after(4), Reply::sse_typed(frames()[..7].to_vec())]);
    let model = model(&upstream);
    for expected in ["Grüße \u{1F600}", "Grüße \u{1F600}, Welt"] {
        let (events, error) = ask(&model, &hello(), Delivery::Stream).await;
        assert_eq!(spoken(&events), expected);
        assert!(matches!(error, Some(ModelError::CutShort)), "{error:?}");
    }
}

#[tokio::test]
async fn a_silent_stream_is_given_up() {
    let upstream = Upstream::scripted([Reply::sse_typed(frames()).hang_after(4)]);
    let mut settings = settings(&upstream);
    settings.idle_timeout = Duration::from_secs(1);
    let model = Anthropic::new(settings, Arc::new(NoSeal)).unwrap();
    let (events, error) = ask(&model, &hello(), Delivery::Stream).await;
    assert_eq!(spoken(&events), "Grüße \u{1F600}");
    assert!(matches!(error, Some(ModelError::Silent(_))), "{error:?}");
}

#[tokio::test]
async fn an_overloaded_server_is_asked_once_more() {
    // S9
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let upstream = Upstream::scripted([
        Reply::status(529).with_json(overloaded).header("retry-after", "0"),
        Reply::sse_typed(frames()),
    ]);
    let (events, error) = ask(&model(&upstream), &hello(), Delivery::Stream).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(spoken(&events), "Grüße \u{1F600}, Welt");
}

#[tokio::test]
async fn an_error_inside_the_stream_is_the_end_of_it() {
    let mut frames = frames()[..4].to_vec();
    frames.push(json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}));
    let upstream = Upstream::scripted([Reply::sse_typed(frames)]);
    let (events, error) = ask(&model(&upstream), &hello(), Delivery::Stream).await;
    assert_eq!(spoken(&events), "Grüße \u{1F600}");
    assert!(matches!(error, Some(ModelError::Refused { status: 529, .. })), "{error:?}");
}

#[tokio::test]
async fn a_refusal_is_told_in_the_upstreams_words() {
    let body =
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}});
    let upstream = Upstream::scripted([Reply::status(400).with_json(body)]);
    let (_, error) = ask(&model(&upstream), &hello(), Delivery::Stream).await;
    let fault = error.unwrap().into_fault();
    assert_eq!(
        (fault.code.as_deref(), &*fault.message),
        (Some("context_length_exceeded"), "prompt is too long: 9 > 8")
    );
}

#[tokio::test]
async fn a_dropped_stream_closes_the_upstream_call() {
    let upstream = Upstream::scripted([Reply::sse_typed(frames()).hang_after(4)]);
    let model = model(&upstream);
    let prepared = prepare(&model, &hello(), Delivery::Stream);
    let mut stream = model.ask(&prepared).await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    upstream.wait_for_disconnect(0).await;
}

#[tokio::test]
async fn a_missing_key_is_named_and_nothing_is_sent() {
    let upstream = Upstream::start();
    let mut settings = settings(&upstream);
    settings.key = Key::Missing { variable: "ANTHROPIC_API_KEY".to_owned() };
    let model = Anthropic::new(settings, Arc::new(NoSeal)).unwrap();
    let (_, error) = ask(&model, &hello(), Delivery::Stream).await;
    assert!(matches!(error, Some(ModelError::NoKey { variable, .. }) if variable == "ANTHROPIC_API_KEY"));
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn reasoning_come_back_through_the_client() {
    let mut first = vec![frames()[0].clone()];
    first.extend([
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "rain?"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}}),
        json!({"type": "content_block_stop", "index": 1}),
    ]);
    first.extend(frames()[6..].to_vec());
    let upstream = Upstream::scripted([Reply::sse_typed(first), Reply::sse_typed(frames())]);
    let model = model(&upstream);
    let mut request = json!({"input": [{"role": "user", "content": "Weather?"}], "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"], "tools": [{"type": "function", "name": "weather"}]});
    let (events, _) = ask(&model, &request, Delivery::Stream).await;
    let sealed = events.iter().find_map(|event| match event {
        ModelEvent::ReasoningEnd { encrypted_content } => encrypted_content.clone(),
        _ => None,
    });
    request["input"].as_array_mut().unwrap().extend([
        json!({"type": "reasoning", "summary": [], "encrypted_content": sealed.unwrap()}),
        json!({"type": "function_call", "call_id": "toolu_1", "name": "weather", "arguments": "{}"}),
        json!({"type": "function_call_output", "call_id": "toolu_1", "output": "rain"}),
    ]);
    let (_, error) = ask(&model, &request, Delivery::Stream).await;
    assert!(error.is_none(), "{error:?}");
    let sent = upstream.request(1).json();
    assert_eq!(
        sent["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": "rain?", "signature": "c2ln"},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
        ])
    );
    assert_eq!(sent["thinking"], json!({"type": "enabled", "budget_tokens": 1024}));
}

#[tokio::test]
async fn a_lost_call_is_mended_only_where_the_operator_allows_it() {
    // O-48
    let upstream = Upstream::start();
    let text = json!({"input": [
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "rain"}
    ]})
    .to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let request_settings = parameters.view().unwrap();
    let history = normalise(None, request_settings.input.as_ref());
    let images = HashMap::new();
    let request = ModelRequest {
        model: "claude-sonnet-4-5",
        settings: &request_settings,
        history: &history,
        delivery: Delivery::Stream,
        chain: Default::default(),
        seal_context: "",
        images: &images,
    };
    let message = "unexpected `tool_use_id` found in `tool_result` blocks: a. Each `tool_result` block must have a \
                   corresponding `tool_use` block in the previous message.";
    let error = ModelError::Refused {
        status: 400,
        retry_after: None,
        message: Some(message.to_owned()),
        code: None,
        param: None,
        body: String::new(),
    };
    assert!(model(&upstream).recover(&request, &error).is_none());
    let mut settings = settings(&upstream);
    settings.history_recovery = true;
    let model = Anthropic::new(settings, Arc::new(NoSeal)).unwrap();
    let mended = String::from_utf8(model.recover(&request, &error).unwrap().unwrap().body.to_vec()).unwrap();
    assert!(mended.contains("rain") && !mended.contains("tool_use") && !mended.contains("tool_result"), "{mended}");
}

#[tokio::test]
async fn an_answer_without_usage_is_counted_for() {
    let mut whole = message();
    whole.as_object_mut().unwrap().remove("usage");
    let mut stream = frames();
    stream[0]["message"].as_object_mut().unwrap().remove("usage");
    stream[6].as_object_mut().unwrap().remove("usage");
    let upstream = Upstream::scripted([Reply::json(whole), Reply::sse_typed(stream)]);
    let model = model(&upstream);
    for delivery in [Delivery::Whole, Delivery::Stream] {
        let (events, error) = ask(&model, &hello(), delivery).await;
        let [.., ModelEvent::Usage(usage), ModelEvent::Finish(Finish::Stop)] = events.as_slice() else {
            panic!("{events:?} {error:?}")
        };
        assert!(usage.estimated && usage.input_tokens > 0 && usage.output_tokens > 0, "{usage:?}");
    }
}
