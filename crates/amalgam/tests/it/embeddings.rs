//! `POST /v1/embeddings`: vectors of texts, limited and counted like turns.

use amalgam_testkit::{Client, HttpAnswer, Reply};
use serde_json::{Value, json};

use crate::{
    limits::{key, set},
    support::{FINAL, WIRES, Wire, World, assert_refused, error_of, eventually, setup, stores},
};

const PATH: &str = "/v1/embeddings";

/// The upstream answers every request with `[1, length]` for each text.
fn embeds(world: &World, wire: Wire) {
    world.upstream(wire).answer_for(PATH, |request| {
        let inputs = request.json()["input"].as_array().cloned().unwrap_or_default();
        let length = |input: &Value| input.as_str().map_or(0, str::len) as f64 / 4.0;
        let data: Vec<Value> = inputs
            .iter()
            .enumerate()
            .map(|(index, input)| json!({"object": "embedding", "index": index, "embedding": [1.0, length(input)]}))
            .collect();
        let usage = json!({"prompt_tokens": inputs.len(), "total_tokens": inputs.len()});
        Reply::json(json!({"object": "list", "data": data, "model": "m", "usage": usage}))
    });
}

async fn embed(client: &Client, wire: Wire, fields: Value) -> HttpAnswer {
    let mut request = json!({"model": wire.model()});
    fields.as_object().expect("fields are an object").iter().for_each(|(name, value)| request[name] = value.clone());
    client.post_json(PATH, &request).await
}

#[tokio::test]
async fn texts_and_tokens_are_embedded_as_numbers_or_base64() {
    let world = World::start().await;
    let client = world.amalgam.client();
    for wire in [Wire::Chat, Wire::Responses] {
        embeds(&world, wire);
        let answer = embed(&client, wire, json!({"input": ["four", "x"], "dimensions": 2, "user": "u"})).await;
        let entry =
            |index: u64, embedding: Value| json!({"object": "embedding", "index": index, "embedding": embedding});
        let expected = json!({
            "object": "list", "data": [entry(0, json!([1, 1])), entry(1, json!([1, 0.25]))], "model": wire.model(),
            "usage": {"prompt_tokens": 2, "total_tokens": 2},
        });
        assert_eq!(answer.json(), expected, "{wire:?}");
        assert_eq!(answer.header("amalgam-model"), Some(&*format!("{}/{}", wire.kind(), wire.model())));
        let sent = json!({"model": wire.model(), "input": ["four", "x"], "encoding_format": "float", "dimensions": 2, "user": "u"});
        assert_eq!(world.sent(wire), sent);
        let base64 = embed(&client, wire, json!({"input": "xy", "encoding_format": "base64"})).await.json();
        // 1.0 and 0.5, the lowest byte first.
        assert_eq!(base64["data"][0]["embedding"], "AACAPwAAAD8=", "{wire:?}");
        let tokens = embed(&client, wire, json!({"input": [[1, 2], [3]]})).await.json();
        assert_eq!(tokens["data"].as_array().map(Vec::len), Some(2));
        assert_eq!(world.sent(wire)["input"], json!([[1, 2], [3]]));
    }
}

#[tokio::test]
async fn what_cannot_be_embedded_is_refused() {
    let world = World::start().await;
    let client = world.amalgam.client();
    let anthropic = embed(&client, Wire::Anthropic, json!({"input": "x"})).await;
    assert_refused(&anthropic, 400, Some("model"), "model_not_supported");
    let unknown = client.post_json(PATH, &json!({"model": "nowhere/m", "input": "x"})).await;
    assert_refused(&unknown, 404, Some("model"), "model_not_found");
    for (fields, param) in
        [(json!({}), "input"), (json!({"input": []}), "input"), (json!({"input": "x", "dimensions": 0}), "dimensions")]
    {
        let answer = embed(&client, Wire::Chat, fields).await;
        assert_eq!((answer.status.as_u16(), error_of(&answer)["param"].as_str()), (400, Some(param)));
    }
    for wire in WIRES {
        assert_eq!(world.upstream(wire).requests().len(), 0, "{wire:?} was asked");
    }
    world
        .upstream(Wire::Chat)
        .enqueue_for(PATH, Reply::status(400).with_json(json!({"error": {"message": "too long"}})));
    assert_eq!(embed(&client, Wire::Chat, json!({"input": "x"})).await.status, 400);
}

#[tokio::test]
async fn embeddings_are_limited_listed_and_counted_like_turns() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        embeds(&world, Wire::Chat);
        let (id, caller) = key(&world, &store, &["use"]);
        let client = world.amalgam.client();
        assert_eq!(embed(&caller, Wire::Chat, json!({"input": ["a", "b", "c"]})).await.status, 200);
        let turns = eventually("the turn in the list", FINAL, async || {
            let turns = client.get("/admin/turns?door=embeddings").await.json();
            (turns["data"][0]["status"] == "completed").then_some(turns)
        })
        .await;
        let turn = &turns["data"][0];
        assert_eq!((&turn["input_tokens"], &turn["output_tokens"]), (&json!(3), &json!(0)), "{}: {turn}", store.name);
        set(&client, &format!("keys/{id}"), &json!({"requests_per_minute": 0})).await;
        let refused = eventually("the limit in force", FINAL, async || {
            let answer = embed(&caller, Wire::Chat, json!({"input": "a"})).await;
            (answer.status != 200).then_some(answer)
        })
        .await;
        assert_eq!(error_of(&refused)["code"], "rate_limit_exceeded", "{}: {}", store.name, refused.text());
    }
}

#[tokio::test]
async fn a_retry_with_the_same_key_asks_no_upstream() {
    let world = World::start().await;
    embeds(&world, Wire::Chat);
    let client = world.amalgam.client().with_header("idempotency-key", "k");
    let first = embed(&client, Wire::Chat, json!({"input": "a"})).await;
    let second = embed(&client, Wire::Chat, json!({"input": "a"})).await;
    assert_eq!((second.json(), second.header("idempotent-replayed")), (first.json(), Some("true")));
    assert_eq!(world.upstream(Wire::Chat).requests().len(), 1);
    assert_eq!(embed(&client, Wire::Chat, json!({"input": "b"})).await.status, 422);
}
