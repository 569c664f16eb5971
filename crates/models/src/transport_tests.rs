use std::time::Instant;

use amalgam_core::{AnswerContext, CallMap, Delivery, Finish, ModelEvent};
use amalgam_protocol::{Frame, Literal};
use amalgam_testkit::{Gate, Reply, Upstream};
use futures_util::StreamExt;

use crate::settings::{Dialect, UpstreamKind};

use super::*;

/// Every frame is a text; `[DONE]` is the end.
struct Words;

impl Decode for Words {
    fn frame(&mut self, frame: Frame, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let text = std::str::from_utf8(&frame.data).map_err(|error| ModelError::Unreadable(error.to_string()))?;
        events.push(match text {
            "[DONE]" => ModelEvent::Finish(Finish::Stop),
            text => ModelEvent::Text { delta: Literal::from_text(text), logprobs: None },
        });
        Ok(())
    }

    fn end(&mut self, _events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        Err(ModelError::CutShort)
    }

    fn whole(&mut self, body: Bytes, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let raw = Raw::parse(&body).map_err(|error| ModelError::Unreadable(error.to_string()))?;
        events.push(ModelEvent::Text { delta: Literal::from_text(raw.text()), logprobs: None });
        events.push(ModelEvent::Finish(Finish::Stop));
        Ok(())
    }
}

fn settings(base_url: String) -> UpstreamSettings {
    UpstreamSettings {
        name: "scripted".to_owned(),
        kind: UpstreamKind::Responses { dialect: Dialect::Standard, keeps_state: false },
        base_url,
        proxy: None,
        key: Key::Given("sk-secret-1".into()),
        headers: vec![("x-extra".to_owned(), "1".to_owned())],
        models: Vec::new(),
        connect_timeout: Duration::from_secs(5),
        first_byte_timeout: Duration::from_secs(5),
        total_timeout: None,
        idle_timeout: Duration::from_secs(5),
        retries: 2,
        fetch_images: false,
        history_recovery: false,
    }
}

fn transport(upstream: &Upstream) -> Transport {
    Transport::new(&settings(upstream.base_url())).unwrap()
}

fn prepared(delivery: Delivery) -> PreparedRequest {
    PreparedRequest {
        body: Bytes::from_static(b"{\"a\":1}"),
        losses: Vec::new(),
        delivery,
        calls: CallMap::default(),
        answer_context: AnswerContext::default(),
    }
}

async fn ask(transport: &Transport, delivery: Delivery) -> Result<ModelStream, ModelError> {
    transport.ask("/answer", &[], &prepared(delivery), || Words).await
}

/// The received texts, and how the answer ended.
async fn outcome(transport: &Transport, delivery: Delivery) -> (Vec<String>, Result<(), ModelError>) {
    let mut texts = Vec::new();
    let mut stream = match ask(transport, delivery).await {
        Ok(stream) => stream,
        Err(error) => return (texts, Err(error)),
    };
    let mut finished = false;
    while let Some(batch) = stream.next().await {
        match batch {
            Err(error) => return (texts, Err(error)),
            Ok(events) => {
                for event in events {
                    match event {
                        ModelEvent::Text { delta, .. } => texts.push(delta.decode()),
                        ModelEvent::Finish(_) => finished = true,
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
    }
    assert!(finished, "a stream without an error ends in a finish");
    (texts, Ok(()))
}

fn words() -> Reply {
    Reply::stream().frame(None, "one").frame(None, "zwei €").done()
}

#[tokio::test]
async fn a_request_carries_the_body_the_key_and_the_operators_headers() {
    let upstream = Upstream::scripted([words()]);
    let (texts, ended) = outcome(&transport(&upstream), Delivery::Stream).await;

    assert_eq!((texts, ended.is_ok()), (vec!["one".to_owned(), "zwei €".to_owned()], true));
    let request = upstream.request(0);
    assert_eq!(
        (request.method.as_str(), request.path.as_str(), &request.body[..]),
        ("POST", "/v1/answer", &b"{\"a\":1}"[..])
    );
    let sent = ["authorization", "x-extra", "content-type", "accept"].map(|name| request.header(name).unwrap());
    assert_eq!(sent, ["Bearer sk-secret-1", "1", "application/json", "text/event-stream"]);
}

#[tokio::test]
async fn an_adapter_may_identify_itself_in_its_own_way() {
    let upstream = Upstream::scripted([words()]);
    let own = [(HeaderName::from_static("x-api-key"), HeaderValue::from_static("sk-secret-1"))];
    let _stream = transport(&upstream).ask("/answer", &own, &prepared(Delivery::Stream), || Words).await.unwrap();

    assert_eq!(upstream.request(0).header("x-api-key"), Some("sk-secret-1"));
    assert_eq!(upstream.request(0).header("authorization"), None);
}

#[tokio::test]
async fn a_missing_key_is_told_without_asking() {
    let upstream = Upstream::start();
    let key = Key::Missing { variable: "MY_KEY".to_owned() };
    let transport = Transport::new(&UpstreamSettings { key, ..settings(upstream.base_url()) }).unwrap();

    let (_, ended) = outcome(&transport, Delivery::Stream).await;
    assert!(matches!(ended, Err(ModelError::NoKey { variable, .. }) if variable == "MY_KEY"));
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn connections_are_used_again_after_whole_and_streamed_answers() {
    let upstream = Upstream::always(words());
    let transport = transport(&upstream);
    for index in 0..10 {
        outcome(&transport, Delivery::Stream).await.1.unwrap();
        upstream.wait_for_end(index).await;
        // The tail is read by a task of the pool, which the test cannot await; it needs a moment.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(upstream.connections() < 10, "{} connections for 10 requests", upstream.connections());
}

#[tokio::test]
async fn any_split_gives_the_same_text() {
    for size in [1, 2, 3, 7] {
        let upstream =
            Upstream::scripted([words().split(size), words().split(size).crlf(), words().without_final_newline()]);
        let transport = transport(&upstream);
        for _ in 0..3 {
            let (texts, ended) = outcome(&transport, Delivery::Stream).await;
            assert_eq!((texts.join("|").as_str(), ended.is_ok()), ("one|zwei €", true), "pieces of {size}");
        }
    }
}

#[tokio::test]
async fn silence_before_the_head_ends_in_time() {
    let upstream = Upstream::scripted([Reply::hang()]);
    let limit = Duration::from_millis(100);
    let transport =
        Transport::new(&UpstreamSettings { first_byte_timeout: limit, ..settings(upstream.base_url()) }).unwrap();
    let started = Instant::now();

    let (_, ended) = outcome(&transport, Delivery::Stream).await;
    assert!(matches!(ended, Err(ModelError::Silent(silent)) if silent == limit), "{ended:?}");
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(upstream.requests().len(), 1, "silence is not tried again");
}

#[tokio::test]
async fn silence_inside_a_stream_ends_in_time_and_keeps_what_came() {
    let limit = Duration::from_millis(500);
    let upstream = Upstream::scripted([words().hang_after(1)]);
    let transport = Transport::new(&UpstreamSettings { idle_timeout: limit, ..settings(upstream.base_url()) }).unwrap();

    let (texts, ended) = outcome(&transport, Delivery::Stream).await;
    assert_eq!(texts, ["one"]);
    assert!(matches!(ended, Err(ModelError::Silent(silent)) if silent == limit), "{ended:?}");
    upstream.wait_for_disconnect(0).await;
}

#[tokio::test]
async fn pieces_that_keep_coming_are_not_silence() {
    let limit = Duration::from_secs(1);
    let mut reply = Reply::stream();
    for _ in 0..6 {
        reply = reply.frame(None, "word").stall(limit / 4);
    }
    let upstream = Upstream::scripted([reply.done()]);
    let transport = Transport::new(&UpstreamSettings { idle_timeout: limit, ..settings(upstream.base_url()) }).unwrap();

    let (texts, ended) = outcome(&transport, Delivery::Stream).await;
    assert_eq!((texts.len(), ended.is_ok()), (6, true));
}

#[tokio::test]
async fn a_stream_that_is_cut_or_ends_early_is_cut_short() {
    // P5
    let upstream = Upstream::scripted([
        words().cut_after(1),
        words().reset_after(1),
        Reply::stream().frame(None, "one"),
        Reply::stream().frame(None, "one").until_close(),
    ]);
    let transport = transport(&upstream);
    for case in 0..4 {
        let (texts, ended) = outcome(&transport, Delivery::Stream).await;
        assert!(texts.len() <= 1, "case {case}");
        assert!(matches!(ended, Err(ModelError::CutShort)), "case {case}: {ended:?}");
    }
    let whole = Upstream::scripted([Reply::json(serde_json::json!({"long": "text"})).chunked().cut_after(1)]);
    let (_, ended) = outcome(&self::transport(&whole), Delivery::Whole).await;
    assert!(matches!(ended, Err(ModelError::CutShort)), "{ended:?}");
}

#[tokio::test]
async fn a_page_an_empty_body_and_bytes_that_are_not_text_are_unreadable() {
    let upstream = Upstream::scripted([
        Reply::html(200, "Login"),
        Reply::bytes("text/plain", "<html></html>"),
        Reply::invalid_utf8(),
        Reply::bytes("application/json", ""),
        Reply::bytes("application/json", "{}").header("content-encoding", "gzip"),
    ]);
    let transport = transport(&upstream);
    for case in 0..5 {
        let (texts, ended) = outcome(&transport, Delivery::Stream).await;
        assert!(texts.is_empty() && matches!(ended, Err(ModelError::Unreadable(_))), "case {case}: {ended:?}");
    }
}

#[tokio::test]
async fn a_huge_line_and_a_huge_head_are_refused() {
    let upstream = Upstream::scripted([Reply::huge_line(5 * 1024 * 1024), words().huge_header(600_000)]);
    let transport = transport(&upstream);
    for case in ["line", "head"] {
        let (texts, ended) = outcome(&transport, Delivery::Stream).await;
        assert!(texts.is_empty() && matches!(ended, Err(ModelError::TooLarge(_))), "{case}: {ended:?}");
    }
}

#[tokio::test]
async fn a_whole_answer_past_the_bound_is_refused() {
    let upstream = Upstream::scripted([Reply::bytes("application/json", vec![b' '; 33 * 1024 * 1024])]);
    let (_, ended) = outcome(&transport(&upstream), Delivery::Whole).await;
    assert!(matches!(ended, Err(ModelError::TooLarge(_))), "{ended:?}");
}

#[tokio::test]
async fn an_answer_is_read_as_what_it_is() {
    let whole = || Reply::bytes("application/json", " {\"b\":2} ");
    let mislabelled = || Reply::bytes("application/json", "data: one\n\ndata: [DONE]\n\n");
    let upstream = Upstream::scripted([whole().split(1), whole(), mislabelled(), words()]);
    let transport = transport(&upstream);
    for (delivery, expected) in [
        (Delivery::Stream, "{\"b\":2}"),
        (Delivery::Whole, "{\"b\":2}"),
        (Delivery::Stream, "one"),
        (Delivery::Whole, "one|zwei €"),
    ] {
        let (texts, ended) = outcome(&transport, delivery).await;
        assert_eq!((texts.join("|").as_str(), ended.is_ok()), (expected, true), "{delivery:?}");
    }
}

#[tokio::test]
async fn a_transient_refusal_is_mended_by_one_further_try_with_the_same_body() {
    // S9
    for status in [429, 500, 502, 503, 529] {
        let upstream = Upstream::scripted([Reply::status(status), words()]);
        let (texts, ended) = outcome(&transport(&upstream), Delivery::Stream).await;
        assert_eq!((texts.len(), ended.is_ok()), (2, true), "{status}");
        let bodies: Vec<Bytes> = upstream.requests().into_iter().map(|request| request.body).collect();
        assert_eq!(bodies, ["{\"a\":1}", "{\"a\":1}"]);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_is_tried_again() {
    let upstream = Upstream::scripted([Reply::close(), Reply::reset(), words()]);
    let (texts, ended) = outcome(&transport(&upstream), Delivery::Stream).await;
    assert_eq!((texts.len(), ended.is_ok(), upstream.requests().len()), (2, true, 3));
}

#[tokio::test]
async fn an_address_without_a_listener_is_unreachable() {
    let base_url = format!("http://{}/v1", Upstream::unused_address());
    let transport = Transport::new(&settings(base_url)).unwrap();
    let (_, ended) = outcome(&transport, Delivery::Whole).await;
    assert!(matches!(ended, Err(ModelError::Unreachable(_))), "{ended:?}");
}

#[tokio::test]
async fn a_refusal_for_good_keeps_what_the_upstream_said_after_two_further_tries() {
    let body = serde_json::json!({"error": {"message": "Slow down, sk-secret-1", "type": "requests", "code": "rate_limit_exceeded", "param": null}});
    let upstream = Upstream::always(Reply::json(body).with_status(429).header("retry-after-ms", "20"));
    let (_, ended) = outcome(&transport(&upstream), Delivery::Stream).await;

    let Err(ModelError::Refused { status, retry_after, message, code, param, body }) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!((status, retry_after, param), (429, Some(Duration::from_millis(20)), None));
    assert_eq!((message.as_deref(), code.as_deref()), (Some("Slow down, [redacted]"), Some("rate_limit_exceeded")));
    assert!(body.contains("Slow down") && !body.contains("sk-secret-1"), "P12: {body}");
    assert_eq!(upstream.requests().len(), 3);
}

#[tokio::test]
async fn a_long_wait_is_left_to_the_caller() {
    let upstream = Upstream::always(Reply::status(429).header("retry-after", "60"));
    let (_, ended) = outcome(&transport(&upstream), Delivery::Stream).await;
    assert_eq!(ended.unwrap_err().retry_after(), Some(Duration::from_secs(60)));
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_refusal_that_will_not_change_is_not_tried_again() {
    for status in [301, 400, 401, 403, 404, 422] {
        let upstream = Upstream::always(Reply::status(status));
        let (_, ended) = outcome(&transport(&upstream), Delivery::Stream).await;
        assert!(matches!(ended, Err(ModelError::Refused { status: said, .. }) if said == status), "{ended:?}");
        assert_eq!(upstream.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn an_explanation_that_never_ends_is_not_waited_for() {
    let reply = Reply::status(400).chunked().send("{\"error\":").hang_after(1);
    let upstream = Upstream::scripted([reply]);
    let idle_timeout = Duration::from_millis(100);
    let transport = Transport::new(&UpstreamSettings { idle_timeout, ..settings(upstream.base_url()) }).unwrap();
    let (_, ended) = outcome(&transport, Delivery::Stream).await;
    assert!(matches!(ended, Err(ModelError::Refused { status: 400, .. })), "{ended:?}");
}

#[tokio::test]
async fn an_upstream_that_keeps_failing_is_left_alone_and_comes_back() {
    // S9
    let upstream = Upstream::scripted(std::iter::repeat_n(Reply::status(500), 10));
    let transport = Transport::new(&UpstreamSettings { retries: 0, ..settings(upstream.base_url()) }).unwrap();
    for _ in 0..10 {
        outcome(&transport, Delivery::Stream).await.1.unwrap_err();
    }
    let (_, ended) = outcome(&transport, Delivery::Stream).await;
    let Err(ModelError::Resting(wait)) = ended else { panic!("{ended:?}") };
    assert_eq!(upstream.requests().len(), 10, "a open upstream hears nothing");

    upstream.enqueue(words());
    tokio::time::sleep(wait).await;
    outcome(&transport, Delivery::Stream).await.1.unwrap();
}

#[tokio::test]
async fn a_stream_that_is_dropped_closes_the_connection() {
    let upstream = Upstream::scripted([words().hang_after(1)]);
    let transport = transport(&upstream);
    let mut stream = ask(&transport, Delivery::Stream).await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    upstream.wait_for_disconnect(0).await;
}

#[tokio::test]
async fn a_question_that_is_dropped_closes_the_connection() {
    let upstream = Upstream::scripted([Reply::hang()]);
    let transport = transport(&upstream);
    tokio::select! {
        _ = ask(&transport, Delivery::Stream) => panic!("the upstream does not answer"),
        _ = upstream.wait_for_requests(1) => {}
    }
    upstream.wait_for_disconnect(0).await;
}

#[tokio::test]
async fn what_arrives_is_passed_on_before_the_next_piece() {
    let gate = Gate::new();
    let upstream = Upstream::scripted([words().hold_after(1, &gate)]);
    let transport = transport(&upstream);
    let mut stream = ask(&transport, Delivery::Stream).await.unwrap();

    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first, [ModelEvent::Text { delta: Literal::from_text("one"), logprobs: None }]);
    gate.open();
    while let Some(batch) = stream.next().await {
        batch.unwrap();
    }
}

#[tokio::test]
async fn a_document_is_fetched() {
    let upstream = Upstream::start();
    upstream.enqueue_for("/models", Reply::json(serde_json::json!({"data": []})));
    let body = transport(&upstream).get("/models", &[]).await.unwrap();
    assert_eq!(&body[..], b"{\"data\":[]}");
    assert_eq!(upstream.request(0).header("authorization"), Some("Bearer sk-secret-1"));
}

#[tokio::test]
async fn a_large_body_arrives_whole() {
    let upstream = Upstream::scripted([words()]);
    let body = Bytes::from((0..5 << 20).map(|at: u32| (at % 251) as u8).collect::<Vec<_>>());
    let prepared = PreparedRequest { body: body.clone(), ..prepared(Delivery::Stream) };
    let _stream = transport(&upstream).ask("/answer", &[], &prepared, || Words).await.unwrap();
    assert!(upstream.request(0).body == body);
}
