//! Prompts and windows: what is left out where the caller allows it, what is refused where not, and counts of tokens.

use amalgam_testkit::{HttpAnswer, Reply, Setup};
use serde_json::{Value, json};

use crate::support::{Delivery, Script, WIRES, Wire, World, asking, assert_refused, stores};

/// One model a wire, under a name of its own, with a window of 400 tokens.
fn narrow() -> Setup {
    let model = |wire: &Wire| {
        format!(
            "[models.narrow-{0}]\nupstream = \"{0}\"\nmodel = \"{1}\"\ncontext_window = 400\n",
            wire.kind(),
            wire.model()
        )
    };
    Setup::new().extra(&WIRES.iter().map(model).collect::<Vec<_>>().join("\n"))
}

/// This number of turns of fifty words: a question, a call with its output, an answer. The last turn is a question
/// alone.
fn turns(count: usize) -> Vec<Value> {
    let mut items = vec![json!({"role": "developer", "content": "Rules that always hold."})];
    for n in 0..count {
        let id = format!("call_{n}");
        items.extend([
            json!({"role": "user", "content": format!("Question {n}: {}", ["word"; 25].join(" "))}),
            json!({"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": id, "output": format!("Found {n}: a word.")}),
            json!({"role": "assistant", "content": format!("Answer {n}: {}", ["word"; 25].join(" "))}),
        ]);
    }
    items.push(json!({"role": "user", "content": "The last question."}));
    items
}

/// The numbers of the turns that an upstream was sent, and whether every call in them has its output.
fn numbers(sent: &Value) -> Vec<usize> {
    let text = sent.to_string();
    let has = |what: &str, n: usize| text.contains(&format!("{what} {n}:"));
    let numbers: Vec<usize> = (0..100).filter(|n| has("Question", *n)).collect();
    for n in 0..100 {
        let whole = numbers.contains(&n);
        let call = text.contains(&format!("\"call_{n}\""));
        assert_eq!((has("Found", n), has("Answer", n), call), (whole, whole, whole), "turn {n} in {sent:#}");
    }
    assert!(text.contains("Rules that always hold.") && text.contains("The last question."), "{sent:#}");
    numbers
}

async fn ask(world: &World, wire: Wire, mut request: Value) -> HttpAnswer {
    request["model"] = json!(format!("narrow-{}", wire.kind()));
    world.amalgam.client().post_json("/v1/responses", &request).await
}

fn too_long(wire: Wire) -> Reply {
    let error = match wire {
        Wire::Anthropic => {
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 5 maximum"}})
        }
        Wire::Chat | Wire::Responses => {
            json!({"error": {"message": "too much", "type": "invalid_request_error", "code": "context_length_exceeded"}})
        }
    };
    Reply::json(error).with_status(400)
}

#[tokio::test]
async fn the_oldest_turns_are_left_out_whole_and_that_is_told() {
    let world = World::with(narrow(), &[]).await;
    for wire in WIRES {
        world.upstream(wire).enqueue(Script::text(&["Well."]).reply(wire, Delivery::Whole));
        let answer = ask(&world, wire, json!({"input": turns(20), "truncation": "auto"})).await;
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        let sent = numbers(&world.sent(wire));
        assert!((2..10).contains(&sent.len()), "{wire:?}: {sent:?}");
        assert_eq!(sent, (20 - sent.len()..20).collect::<Vec<_>>(), "{wire:?}: an end of the history");
        let told = format!(
            "input: the {} oldest turns ({} items) were left out to fit the context window",
            20 - sent.len(),
            4 * (20 - sent.len())
        );
        assert_eq!(answer.header("amalgam-losses"), Some(told.as_str()), "{wire:?}");
        assert_eq!(answer.json()["truncation"], "auto");
    }
}

#[tokio::test]
async fn what_fits_is_left_alone() {
    let world = World::with(narrow(), &[]).await;
    for wire in WIRES {
        world.upstream(wire).enqueue(Script::text(&["Well."]).reply(wire, Delivery::Whole));
        let answer = ask(&world, wire, json!({"input": turns(2), "truncation": "auto"})).await;
        assert_eq!(answer.header("amalgam-losses"), None, "{wire:?}");
        assert_eq!(numbers(&world.sent(wire)), [0, 1], "{wire:?}");
    }
}

#[tokio::test]
async fn without_truncation_a_prompt_that_cannot_fit_is_an_error_and_no_upstream_is_called() {
    let world = World::with(narrow(), &[]).await;
    for wire in WIRES {
        for request in [json!({"input": turns(20)}), json!({"input": turns(20), "truncation": "disabled"})] {
            let answer = ask(&world, wire, request).await;
            assert_refused(&answer, 400, Some("input"), "context_length_exceeded");
        }
        let strict = world.amalgam.client().with_header("amalgam-strict", "true");
        let request = json!({"model": format!("narrow-{}", wire.kind()), "input": turns(20), "truncation": "auto"});
        assert_refused(&strict.post_json("/v1/responses", &request).await, 400, Some("input"), "unsupported_parameter");
        assert_eq!(world.upstream(wire).requests().len(), 0, "{wire:?}");
    }
}

#[tokio::test]
async fn an_unknown_window_is_found_by_halves_and_only_where_the_caller_allows_it() {
    let world = World::start().await;
    for wire in WIRES {
        let upstream = world.upstream(wire);
        upstream.enqueue(too_long(wire));
        let answer = world
            .amalgam
            .client()
            .post_json("/v1/responses", &asking(wire, Delivery::Whole, &json!({"input": turns(8)})))
            .await;
        assert_refused(&answer, 400, None, "context_length_exceeded");
        assert_eq!(upstream.requests().len(), 1, "{wire:?}");

        upstream.enqueue(too_long(wire));
        upstream.enqueue(too_long(wire));
        let request = json!({"input": turns(8), "truncation": "auto"});
        let answer = world.ask(wire, Delivery::Stream, &Script::text(&["Well."]), &request).await;
        let losses = answer.header("amalgam-losses").unwrap_or_default();
        assert!(losses.contains("the 7 oldest turns (28 items) were left out"), "{wire:?}: {losses}");
        // The last question is a turn of its own, so that nine become four and then two.
        let sent: Vec<Vec<usize>> = upstream.requests()[1..].iter().map(|request| numbers(&request.json())).collect();
        assert_eq!(sent, [(0..8).collect(), vec![5, 6, 7], vec![7]], "{wire:?}");
    }
}

#[tokio::test]
async fn a_stored_chain_is_shortened_for_the_model_and_stays_whole_in_the_store() {
    for store in stores() {
        let world = World::with(store.setup(narrow()), &[]).await;
        world.upstream(Wire::Chat).enqueue(Script::text(&["First."]).reply(Wire::Chat, Delivery::Whole));
        let first = ask(&world, Wire::Chat, json!({"input": turns(20), "truncation": "auto"})).await.json();
        world.upstream(Wire::Chat).enqueue(Script::text(&["Second."]).reply(Wire::Chat, Delivery::Whole));
        let request = json!({"input": "The last question.", "previous_response_id": first["id"], "truncation": "auto"});
        let answer = ask(&world, Wire::Chat, request).await;
        assert_eq!(answer.status, 200, "{}: {}", store.name, answer.text());
        assert!(answer.header("amalgam-losses").unwrap_or_default().contains("oldest turns"), "{}", store.name);
        assert!(!numbers(&world.sent(Wire::Chat)).contains(&0), "{}", store.name);

        let path = format!("/v1/responses/{}/input_items?limit=100", answer.json()["id"].as_str().unwrap());
        let kept = world.amalgam.client().get(&path).await;
        assert!(kept.text().contains("Question 0"), "{}: {}", store.name, kept.text());
    }
}

async fn count(world: &World, request: &Value) -> u64 {
    let answer = world.amalgam.client().post_json("/v1/responses/input_tokens", request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let counted = answer.json();
    assert_eq!(counted, json!({"object": "response.input_tokens", "input_tokens": counted["input_tokens"]}));
    counted["input_tokens"].as_u64().expect("a count is a number")
}

#[tokio::test]
async fn tokens_are_counted_without_asking_anybody_and_agree_with_our_estimates() {
    let world = World::start().await;
    let request = json!({
        "model": "m-chat",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "What is in this picture?"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
        ],
        "tools": [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}],
    });
    let counted = count(&world, &request).await;
    assert_eq!(world.upstream(Wire::Chat).requests().len(), 0);
    // An upstream that does not say what an answer cost gets the same estimate.
    let reply = json!({"id": "c", "object": "chat.completion", "model": "m", "created": 1, "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A cat."}}]});
    world.upstream(Wire::Chat).enqueue(Reply::json(reply));
    let answer = world.amalgam.client().post_json("/v1/responses", &request).await.json();
    assert_eq!(answer["usage"]["input_tokens"], json!(counted), "{answer:#}");
    assert_eq!(answer["usage"]["estimated"], json!(true));

    for wire in WIRES {
        let mut request = request.clone();
        request["model"] = json!(wire.model());
        let other = count(&world, &request).await;
        assert!(other.abs_diff(counted) <= 40, "{wire:?}: {other} for {counted}");
        request["tools"] = json!([]);
        assert!(count(&world, &request).await < other, "{wire:?}: tools count");
    }
}

#[tokio::test]
async fn a_count_needs_no_model_and_honours_what_came_before() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let alone = count(&world, &json!({"input": "How long is this?"})).await;
        assert!((5..40).contains(&alone), "{alone}");
        let said = ["word"; 200].join(" ");
        let first = world.whole(Wire::Responses, &Script::text(&["Long."]), &json!({"input": said})).await;
        let request = json!({"model": "m-chat", "input": "How long is this?", "previous_response_id": first["id"]});
        let chained = count(&world, &request).await;
        assert!((alone + 200..alone + 260).contains(&chained), "{}: {chained} after {alone}", store.name);

        let client = world.amalgam.client();
        let conversation =
            client.post_json("/v1/conversations", &json!({"items": [{"role": "user", "content": said}]})).await;
        let request = json!({"model": "m-chat", "input": "How long?", "conversation": conversation.json()["id"]});
        assert!(count(&world, &request).await > 200, "{}", store.name);

        let unknown = json!({"model": "m-chat", "input": "x", "previous_response_id": "resp_no"});
        let answer = client.post_json("/v1/responses/input_tokens", &unknown).await;
        assert_refused(&answer, 400, Some("previous_response_id"), "previous_response_not_found");
        let answer = client.post_json("/v1/responses/input_tokens", &json!({"model": "unknown", "input": "x"})).await;
        assert_refused(&answer, 404, Some("model"), "model_not_found");
    }
}

/// A short answer to a prompt of this number of tokens.
fn reporting(wire: Wire, tokens: u64) -> Reply {
    Reply::json(match wire {
        Wire::Chat => json!({
            "id": "c", "model": "m", "usage": {"prompt_tokens": tokens, "completion_tokens": 1},
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Well."}, "finish_reason": "stop"}],
        }),
        Wire::Responses => json!({
            "id": "r", "object": "response", "status": "completed", "model": "m",
            "usage": {"input_tokens": tokens, "output_tokens": 1},
            "output": [{"type": "message", "id": "msg", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "Well.", "annotations": []}]}],
        }),
        Wire::Anthropic => json!({
            "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "usage": {"input_tokens": tokens, "output_tokens": 1}, "content": [{"type": "text", "text": "Well."}],
        }),
    })
}

// right B4
#[tokio::test]
async fn after_a_models_first_answer_our_count_is_near_its_own_and_one_try_is_enough() {
    let world = World::with(narrow(), &[]).await;
    let words = |count: usize| json!([{"role": "user", "content": "word ".repeat(count)}]);
    for wire in WIRES {
        let count = async |input: Value| {
            let request = json!({"model": format!("narrow-{}", wire.kind()), "input": input});
            let answer = world.amalgam.client().post_json("/v1/responses/input_tokens", &request).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.json()["input_tokens"].as_f64().expect("a count")
        };
        let before = count(words(100)).await;
        // A tokenizer with twice the tokens of this server's count.
        world.upstream(wire).enqueue(reporting(wire, (2.0 * before) as u64));
        let answer = ask(&world, wire, json!({"input": words(100)})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        for (input, theirs) in [(words(100), 2.0 * before), (words(50), before)] {
            let ours = count(input).await;
            assert!((ours - theirs).abs() <= theirs / 10.0, "{wire:?}: {ours} for {theirs}");
        }
        world.upstream(wire).enqueue(Script::text(&["Well."]).reply(wire, Delivery::Whole));
        let asked = world.upstream(wire).requests().len();
        let answer = ask(&world, wire, json!({"input": turns(20), "truncation": "auto"})).await;
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        assert_eq!(world.upstream(wire).requests().len(), asked + 1, "{wire:?}");
    }
}

// right B4
#[tokio::test]
async fn an_overflow_does_not_recommend_what_is_set_already() {
    let world = World::with(narrow(), &[]).await;
    let long = json!([{"role": "user", "content": "word ".repeat(2000)}]);
    let cut = ask(&world, Wire::Chat, json!({"input": long, "truncation": "auto"})).await;
    assert_refused(&cut, 400, Some("input"), "context_length_exceeded");
    assert!(!cut.text().contains("`truncation`"), "{}", cut.text());
    let whole = ask(&world, Wire::Chat, json!({"input": long})).await;
    assert!(whole.text().contains("`truncation` set to `auto`"), "{}", whole.text());
}
