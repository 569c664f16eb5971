//! The Responses adapter against a scripted server.

use std::{collections::HashMap, sync::Arc, time::Duration};

use amalgam_core::{Delivery, Finish, Model, ModelError, ModelEvent, ModelRequest, PreparedRequest, Seal, normalise};
use amalgam_models::{Dialect, Key, Responses, UpstreamKind, UpstreamSettings};
use amalgam_protocol::ResponseParameters;
use amalgam_testkit::{Reply, Upstream};
use futures_util::StreamExt;
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

fn settings(base_url: String) -> UpstreamSettings {
    UpstreamSettings {
        name: "openai".to_owned(),
        kind: UpstreamKind::Responses { dialect: Dialect::Standard, keeps_state: false },
        base_url,
        proxy: None,
        key: Key::Given("sk-openai".into()),
        headers: Vec::new(),
        models: Vec::new(),
        connect_timeout: Duration::from_secs(5),
        first_byte_timeout: Duration::from_secs(5),
        total_timeout: None,
        idle_timeout: Duration::from_secs(2),
        retries: 2,
        fetch_images: false,
        history_recovery: true,
    }
}

fn model(upstream: &Upstream) -> Responses {
    Responses::new(settings(upstream.base_url()), Arc::new(NoSeal)).unwrap()
}

fn with_request<T>(request: &Value, delivery: Delivery, act: impl FnOnce(&ModelRequest<'_>) -> T) -> T {
    let text = request.to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let history = normalise(settings.instructions.as_ref(), settings.input.as_ref());
    let images = HashMap::new();
    act(&ModelRequest {
        model: "gpt",
        settings: &settings,
        history: &history,
        delivery,
        chain: Default::default(),
        seal_context: "tenant 1",
        images: &images,
    })
}

fn prepare(model: &Responses, delivery: Delivery) -> PreparedRequest {
    with_request(&json!({"input": "Hi"}), delivery, |request| model.prepare(request).unwrap())
}

/// The text that came, how it finished, and the error, if any.
async fn outcome(model: &Responses, delivery: Delivery) -> (String, Option<Finish>, Option<ModelError>) {
    let prepared = prepare(model, delivery);
    let mut stream = match model.ask(&prepared).await {
        Ok(stream) => stream,
        Err(error) => return (String::new(), None, Some(error)),
    };
    let (mut text, mut finish) = (String::new(), None);
    while let Some(batch) = stream.next().await {
        match batch {
            Err(error) => return (text, finish, Some(error)),
            Ok(events) => events.into_iter().for_each(|event| match event {
                ModelEvent::Text { delta, .. } => text.push_str(&delta.decode()),
                ModelEvent::Finish(said) => finish = Some(said),
                _ => {}
            }),
        }
    }
    (text, finish, None)
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn events() -> Vec<Value> {
    vec![
        json!({"type": "response.created", "response": {"id": "resp_1", "model": "gpt-real"}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "msg_1", "role": "assistant", "content": []}}),
        json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Grüße "}),
        json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "😀 €"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": message("Grüße 😀 €")}),
        json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [message("Grüße 😀 €")], "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}}),
    ]
}

#[tokio::test]
async fn streams_and_whole_answers_are_asked_for_and_read() {
    let upstream = Upstream::scripted([
        Reply::sse_typed(events()).done(),
        Reply::json(json!({"object": "response", "status": "completed", "output": [message("Grüße 😀 €")]})),
    ]);
    let model = model(&upstream);
    for (delivery, index) in [(Delivery::Stream, 0), (Delivery::Whole, 1)] {
        let (text, finish, error) = outcome(&model, delivery).await;
        assert_eq!((text.as_str(), finish), ("Grüße 😀 €", Some(Finish::Stop)), "{error:?}");
        let request = upstream.request(index);
        assert_eq!(
            (request.path.as_str(), request.header("authorization")),
            ("/v1/responses", Some("Bearer sk-openai"))
        );
        let expected =
            json!({"model": "gpt", "input": [{"type": "message", "role": "user", "content": "Hi"}], "store": false});
        let mut body = request.json();
        let stream = body.as_object_mut().unwrap().remove("stream");
        assert_eq!((body, stream), (expected, (delivery == Delivery::Stream).then_some(json!(true))));
    }
}

#[tokio::test]
async fn any_split_line_end_and_comment_gives_the_same_text() {
    let upstream = Upstream::scripted([
        Reply::sse_typed(events()).split(1),
        Reply::sse_typed(events()).split(5).crlf(),
        Reply::sse(events().into_iter().map(|event| (None, event))).without_final_newline(),
        Reply::stream().comment("ping").send(format!("data: {}\n\n", events().last().unwrap())),
        Reply::sse_typed(events()).until_close(),
    ]);
    let model = model(&upstream);
    for case in 0..5 {
        let (text, finish, error) = outcome(&model, Delivery::Stream).await;
        assert_eq!((text.as_str(), finish), ("Grüße 😀 €", Some(Finish::Stop)), "case {case}: {error:?}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_never_finishes() {
    // P5
    let full = || Reply::sse_typed(events());
    let broken = json!({"type": "response.output_text.delta", "delta": "Hi"});
    type Expected = fn(&ModelError) -> bool;
    let cases: [(Reply, Expected); 8] = [
        (full().cut_after(3), |error| matches!(error, ModelError::CutShort)),
        (full().reset_after(3), |error| matches!(error, ModelError::CutShort)),
        (full().hang_after(3), |error| matches!(error, ModelError::Silent(_))),
        (Reply::sse_typed([broken.clone()]).done(), |error| matches!(error, ModelError::CutShort)),
        (Reply::sse_typed([broken]).send(&b"data: {\"type\": \"resp\xff"[..]), |error| {
            matches!(error, ModelError::Unreadable(_))
        }),
        (Reply::invalid_utf8(), |error| matches!(error, ModelError::Unreadable(_))),
        (Reply::huge_line(5 << 20), |error| matches!(error, ModelError::TooLarge(_))),
        (Reply::html(200, "Sign in"), |error| matches!(error, ModelError::Unreadable(_))),
    ];
    for (case, (reply, expected)) in cases.into_iter().enumerate() {
        let upstream = Upstream::scripted([reply]);
        let (_, finish, error) = outcome(&model(&upstream), Delivery::Stream).await;
        assert!(finish.is_none() && error.as_ref().is_some_and(expected), "case {case}: {finish:?} {error:?}");
        assert_eq!(upstream.requests().len(), 1, "case {case}: not asked twice");
    }
}

#[tokio::test]
async fn a_failure_inside_the_stream_is_told_with_its_code() {
    let error = json!({"code": "rate_limit_exceeded", "message": "Please try again in 2s."});
    let upstream =
        Upstream::scripted([Reply::sse_typed([json!({"type": "response.failed", "response": {"error": error}})])]);
    let (_, finish, _) = outcome(&model(&upstream), Delivery::Stream).await;
    let Some(Finish::Failed(fault)) = finish else { panic!("{finish:?}") };
    assert_eq!((fault.code.as_deref(), fault.retry_after), (Some("rate_limit_exceeded"), Some(Duration::from_secs(2))));
}

#[tokio::test]
async fn a_lost_call_is_mended_once_with_the_history_as_text() {
    // O-48
    let refusal = json!({"error": {"message": "No tool call found for function call output with call_id c1.", "type": "invalid_request_error", "param": "input", "code": null}});
    let upstream = Upstream::scripted([Reply::json(refusal).with_status(400), Reply::sse_typed(events())]);
    let model = model(&upstream);
    let request = json!({"input": [
        {"role": "user", "content": "Look"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "seen"},
    ]});
    let first = with_request(&request, Delivery::Stream, |request| model.prepare(request).unwrap());
    let Err(error) = model.ask(&first).await else { panic!("refused") };
    let again = with_request(&request, Delivery::Stream, |request| model.recover(request, &error)).unwrap().unwrap();
    assert!(again.losses.iter().any(|loss| loss.reason.contains("text")));
    let mut stream = model.ask(&again).await.unwrap();
    while let Some(batch) = stream.next().await {
        batch.unwrap();
    }
    let sent = upstream.request(1).json();
    let kinds: Vec<&str> =
        sent["input"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "message", "message"]);

    let cautious = UpstreamSettings { history_recovery: false, ..settings(upstream.base_url()) };
    let cautious = Responses::new(cautious, Arc::new(NoSeal)).unwrap();
    assert!(with_request(&request, Delivery::Stream, |request| cautious.recover(request, &error)).is_none());
    let unrelated = with_request(&request, Delivery::Stream, |request| model.recover(request, &ModelError::CutShort));
    assert!(unrelated.is_none());
}

#[tokio::test]
async fn the_literal_dialect_is_sent_as_written_down() {
    let upstream = Upstream::scripted([Reply::sse_typed(events())]);
    let kind = UpstreamKind::Responses { dialect: Dialect::Agn003, keeps_state: false };
    let model = Responses::new(UpstreamSettings { kind, ..settings(upstream.base_url()) }, Arc::new(NoSeal)).unwrap();
    let (text, finish, _) = outcome(&model, Delivery::Stream).await;
    assert_eq!((text.as_str(), finish), ("Grüße 😀 €", Some(Finish::Stop)));
    let body = String::from_utf8(upstream.request(0).body.to_vec()).unwrap();
    let expected = r#"{"model":"gpt","stream":true,"input":[{"role":"system","content":[{"type":"text","text":""}]},{"role":"user","content":[{"type":"text","text":"[MODE: general]\n\n[INSTRUCTION]\nHi"}]}]}"#;
    assert_eq!(body, expected);
}

#[tokio::test]
async fn an_answer_without_usage_is_counted_for() {
    let whole = json!({"object": "response", "status": "completed", "output": [message("hello world")], "usage": null});
    let ended = json!({"type": "response.completed", "response": whole});
    let cut = json!({"object": "response", "status": "incomplete", "output": [], "usage": null});
    let upstream = Upstream::scripted([Reply::json(whole), Reply::sse_typed([ended]), Reply::json(cut)]);
    let model = model(&upstream);
    let usage = async |delivery| {
        let prepared = prepare(&model, delivery);
        let batches: Vec<_> = model.ask(&prepared).await.unwrap().collect().await;
        let events = batches.into_iter().flat_map(Result::unwrap);
        let mut usages = events.filter_map(|event| match event {
            ModelEvent::Usage(usage) => Some((usage.input_tokens > 0, usage.output_tokens, usage.estimated)),
            _ => None,
        });
        (usages.next(), usages.next())
    };
    assert_eq!(usage(Delivery::Whole).await, (Some((true, 2, true)), None));
    assert_eq!(usage(Delivery::Stream).await, (Some((true, 2, true)), None));
    assert_eq!(usage(Delivery::Whole).await, (None, None), "nothing was said");
}
