use std::{sync::Arc, time::Duration};

use amalgam_core::{FaultKind, Seal};
use amalgam_testkit::{Reply, Upstream as Scripted};
use serde_json::{Value, json};

use super::*;
use crate::{
    registry::UpstreamRegistry,
    settings::{Dialect, Key},
};

struct NoSeal;

impl Seal for NoSeal {
    fn seal(&self, _: &str, _: &[u8]) -> String {
        String::new()
    }

    fn open(&self, _: &str, _: &str) -> Option<Vec<u8>> {
        None
    }
}

fn settings(kind: UpstreamKind, base_url: String) -> UpstreamSettings {
    let second = Duration::from_secs(30);
    UpstreamSettings {
        name: "u".to_owned(),
        kind,
        base_url,
        proxy: None,
        key: Key::Given("sk-1".into()),
        headers: Vec::new(),
        models: Vec::new(),
        connect_timeout: second,
        first_byte_timeout: second,
        total_timeout: None,
        idle_timeout: second,
        retries: 2,
        fetch_images: false,
        history_recovery: false,
    }
}

fn responses(upstream: &Scripted) -> Embeddings {
    Embeddings::new(settings(
        UpstreamKind::Responses { dialect: Dialect::Standard, keeps_state: false },
        upstream.base_url(),
    ))
}

fn answer(vectors: &[(usize, Value)]) -> Reply {
    let data: Vec<Value> = vectors
        .iter()
        .map(|(index, embedding)| json!({"object": "embedding", "index": index, "embedding": embedding}))
        .collect();
    Reply::json(json!({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}))
}

#[tokio::test]
async fn texts_are_placed_in_their_order_whatever_order_the_upstream_has() {
    let upstream = Scripted::start();
    // 1.0 and -2.0, the lowest byte first.
    let encoded = json!("AACAPwAAAMA=");
    upstream.enqueue_for("/embeddings", answer(&[(1, json!([0.5, 0.25])), (0, encoded)]));
    let vectors = responses(&upstream).of("m", &["one", "two"]).await.unwrap().vectors;
    assert_eq!(vectors, [vec![1.0, -2.0], vec![0.5, 0.25]]);
    let request = upstream.request(0);
    assert_eq!(request.json(), json!({"model": "m", "input": ["one", "two"], "encoding_format": "float"}));
    assert_eq!(request.header("authorization"), Some("Bearer sk-1"));
}

#[tokio::test]
async fn a_callers_request_keeps_its_tokens_and_dimensions_and_learns_what_they_cost() {
    let upstream = Scripted::start();
    upstream.enqueue_for("/embeddings", answer(&[(0, json!([1.0])), (1, json!([2.0]))]));
    let inputs =
        vec![Json::string("one"), Json::array(|writer| [7, 8].into_iter().for_each(|token| writer.number(token)))];
    let request = EmbeddingRequest { inputs, dimensions: Some(1), user: Some("u".to_owned()) };
    let result = responses(&upstream).embed("m", &request).await.unwrap();
    assert_eq!(result, EmbeddingResult { vectors: vec![vec![1.0], vec![2.0]], tokens: Some(1) });
    let sent =
        json!({"model": "m", "input": ["one", [7, 8]], "encoding_format": "float", "dimensions": 1, "user": "u"});
    assert_eq!(upstream.request(0).json(), sent);
}

#[tokio::test]
async fn many_texts_are_sent_in_parts() {
    let upstream = Scripted::start();
    let texts: Vec<String> = (0..150).map(|number| format!("text {number}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for part in texts.chunks(TEXTS_AT_ONCE) {
        let vectors: Vec<(usize, Value)> = (0..part.len()).map(|index| (index, json!([index]))).collect();
        upstream.enqueue_for("/embeddings", answer(&vectors));
    }
    let vectors = responses(&upstream).of("m", &texts).await.unwrap().vectors;
    assert_eq!(vectors.len(), 150);
    let sent: Vec<String> = upstream
        .requests()
        .iter()
        .flat_map(|request| request.json()["input"].as_array().unwrap().clone())
        .map(|text| text.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(sent, texts);
}

#[test]
fn parts_are_bounded_by_bytes_and_lose_nothing() {
    let (long, short) = ("x".repeat(BYTES_AT_ONCE + 1), "y".to_owned());
    // With its quotes.
    let half = "z".repeat(BYTES_AT_ONCE / 2 - 2);
    let texts = [&long, &short, &half, &half, &short].map(String::as_str);
    let inputs: Vec<Json> = texts.iter().map(|text| Json::string(text)).collect();
    let sizes: Vec<usize> = parts(&inputs).map(<[Json]>::len).collect();
    assert_eq!(sizes, [1, 2, 2]);
    assert_eq!(parts(&[]).count(), 0);
}

#[tokio::test]
async fn an_upstream_that_is_busy_is_asked_again() {
    let upstream = Scripted::start();
    upstream.enqueue_for("/embeddings", Reply::status(503));
    upstream.enqueue_for("/embeddings", answer(&[(0, json!([1.0]))]));
    assert_eq!(
        responses(&upstream).of("m", &["one"]).await.unwrap(),
        EmbeddingResult { vectors: vec![vec![1.0]], tokens: Some(1) }
    );
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn what_is_no_list_of_embeddings_is_refused() {
    for (reply, texts) in [
        (Reply::json(json!({"object": "list"})), 1),
        (answer(&[]), 1),
        (answer(&[(0, json!([1.0])), (1, json!([1.0]))]), 1),
        (answer(&[(0, json!([1.0])), (0, json!([1.0]))]), 2),
        (answer(&[(0, json!([1.0])), (7, json!([1.0]))]), 2),
        (answer(&[(0, json!([1.0])), (1, json!([1.0, 2.0]))]), 2),
        (answer(&[(0, json!([]))]), 1),
        (answer(&[(0, json!([1e300]))]), 1),
        (answer(&[(0, json!("not base64"))]), 1),
        (answer(&[(0, json!("AAA="))]), 1),
        (answer(&[(0, json!(vec![0.5; MAX_DIMENSIONS + 1]))]), 1),
    ] {
        let upstream = Scripted::start();
        upstream.enqueue_for("/embeddings", reply);
        let fault = responses(&upstream).of("m", &vec!["text"; texts]).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::UpstreamBroken, "{fault:?}");
    }
}

#[tokio::test]
async fn upstreams_without_embeddings_say_so() {
    let anthropic = UpstreamKind::Anthropic {
        version: "2023-06-01".to_owned(),
        max_output_tokens: 10,
        structured_output: Default::default(),
    };
    for kind in [anthropic, UpstreamKind::Demo { pace: Duration::ZERO }] {
        let registry =
            UpstreamRegistry::build(vec![settings(kind, "http://127.0.0.1:1/v1".to_owned())], Arc::new(NoSeal))
                .unwrap();
        let fault = registry.embed("u", "m", &["text"]).await.unwrap_err();
        assert_eq!(fault.message, "The upstream 'u' has no embeddings.");
    }
}
