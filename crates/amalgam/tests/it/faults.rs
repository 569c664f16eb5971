//! Upstreams that fail, each in its own way: what the caller sees, how soon, and how often the upstream was asked.

mod lifetimes;
mod streams;

use std::time::Instant;

use amalgam_testkit::{Amalgam, HttpAnswer, Reply, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{
    BINARY, DELIVERIES, Delivery, SOON, Script, WIRES, Wire, World, asking, assert_calm, checked_events, error_of,
    last_response, text_of,
};

fn hello() -> Value {
    json!({"input": "Say hello."})
}

fn fine() -> Script {
    Script::text(&["All ", "is ", "well."])
}

fn refusal(status: u16, error: Value) -> Reply {
    Reply::status(status).with_json(json!({"error": error}))
}

async fn ask(world: &World, wire: Wire, delivery: Delivery) -> HttpAnswer {
    world.amalgam.client().post_json("/v1/responses", &asking(wire, delivery, &hello())).await
}

/// Status and code of an answer that is an error.
fn told(answer: &HttpAnswer) -> (u16, String) {
    let error = error_of(answer);
    (answer.status.as_u16(), error["code"].as_str().unwrap_or_default().to_owned())
}

async fn assert_healthy(amalgam: &Amalgam) {
    assert_eq!(amalgam.client().get("/healthz").await.status, 200);
    assert_calm(amalgam);
}

#[tokio::test]
async fn one_failure_is_mended_by_one_further_try() {
    // S9; fault table: upstream 429/5xx once
    let world = World::start().await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            for status in [429, 500, 502, 503, 529] {
                let before = world.upstream(wire).requests().len();
                world.upstream(wire).enqueue(refusal(status, json!({"message": "later"})));
                world.upstream(wire).enqueue(fine().reply(wire, delivery));
                let answer = ask(&world, wire, delivery).await;
                assert_eq!(answer.status, 200, "{wire:?} {status}: {}", answer.text());
                let response = match delivery {
                    Delivery::Whole => answer.json(),
                    Delivery::Stream => last_response(&checked_events(&answer)),
                };
                assert_eq!(text_of(&response), "All is well.", "no text twice");
                let requests = world.upstream(wire).requests();
                assert_eq!(requests.len(), before + 2, "{wire:?} {status}");
                assert_eq!(requests[before].body, requests[before + 1].body, "the same request again");
            }
        }
    }
    assert_healthy(&world.amalgam).await;
}

#[tokio::test]
async fn a_connection_that_breaks_before_an_answer_is_tried_again() {
    let world = World::start().await;
    for broken in [Reply::close(), Reply::reset()] {
        world.upstream(Wire::Chat).enqueue(broken);
        world.upstream(Wire::Chat).enqueue(fine().reply(Wire::Chat, Delivery::Stream));
        let answer = ask(&world, Wire::Chat, Delivery::Stream).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(text_of(&last_response(&checked_events(&answer))), "All is well.");
    }
}

#[tokio::test]
async fn a_rate_limit_for_good_is_passed_on_with_its_time() {
    let world = World::start().await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            let before = world.upstream(wire).requests().len();
            let error = json!({"message": "Rate limit reached. Try again in 30s.", "type": "requests", "code": "rate_limit_exceeded"});
            world.upstream(wire).enqueue(refusal(429, error).header("retry-after", "30"));
            let answer = ask(&world, wire, delivery).await;
            assert_eq!(told(&answer), (429, "rate_limit_exceeded".to_owned()), "{wire:?} {delivery:?}");
            assert_eq!(answer.header("retry-after"), Some("30"));
            assert!(answer.text().contains("Try again in 30s"), "clients read the delay: {}", answer.text());
            assert_eq!(world.upstream(wire).requests().len(), before + 1, "a long wait is the caller's to decide");
        }
    }
    // Without a time three tries are made, and the answer is the same.
    let before = world.upstream(Wire::Chat).requests().len();
    for _ in 0..3 {
        world.upstream(Wire::Chat).enqueue(refusal(429, json!({"message": "slow down"})));
    }
    let answer = ask(&world, Wire::Chat, Delivery::Whole).await;
    assert_eq!(answer.status, 429);
    assert!(answer.header("retry-after").is_some(), "fault table: 429 has Retry-After");
    assert_eq!(world.upstream(Wire::Chat).requests().len(), before + 3);
    assert_eq!(world.upstream(Wire::Chat).unscripted(), Vec::<String>::new());
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_not_tried_again() {
    let world = World::start().await;
    let error = json!({"message": "You exceeded your current quota.", "type": "insufficient_quota", "code": "insufficient_quota"});
    world.upstream(Wire::Chat).enqueue(refusal(429, error));
    let answer = ask(&world, Wire::Chat, Delivery::Whole).await;
    assert_eq!(told(&answer), (429, "insufficient_quota".to_owned()));
    assert_eq!(world.upstream(Wire::Chat).requests().len(), 1);
}

#[tokio::test]
async fn an_upstream_that_fails_for_good_is_a_bad_gateway() {
    let world = World::start().await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            let before = world.upstream(wire).requests().len();
            for _ in 0..3 {
                world.upstream(wire).enqueue(refusal(500, json!({"message": "secret stack trace of theirs"})));
            }
            let answer = ask(&world, wire, delivery).await;
            assert_eq!(told(&answer), (502, "upstream_unavailable".to_owned()), "{wire:?} {delivery:?}");
            assert!(!answer.text().contains("stack trace"), "{}", answer.text());
            assert_eq!(world.upstream(wire).requests().len(), before + 3, "S9: two further tries at most");
            // The run of failures ends here, so that no upstream is left to rest.
            world.upstream(wire).enqueue(fine().reply(wire, Delivery::Whole));
            assert_eq!(ask(&world, wire, Delivery::Whole).await.status, 200);
        }
    }
    assert_healthy(&world.amalgam).await;
}

#[tokio::test]
async fn an_upstream_that_says_when_to_come_back_is_unavailable_until_then() {
    let world = World::start().await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            world.upstream(wire).enqueue(refusal(503, json!({"message": "maintenance"})).header("retry-after", "77"));
            let answer = ask(&world, wire, delivery).await;
            assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, Some("77")), "{}", answer.text());
            error_of(&answer);
        }
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_a_bad_gateway() {
    let address = Upstream::unused_address();
    let setup = Setup::new().upstream("gone", "chat", &format!("http://{address}/v1")).option("models", "[\"m\"]");
    let amalgam = Amalgam::start(BINARY, setup).await;
    for stream in [false, true] {
        let request = json!({"model": "m", "input": "Hi", "stream": stream});
        let answer = amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(told(&answer), (502, "upstream_unavailable".to_owned()));
        assert!(!answer.text().contains(&address.to_string()), "an address inside is not told: {}", answer.text());
    }
    assert_healthy(&amalgam).await;
}

#[tokio::test]
async fn our_credential_is_our_fault_and_shows_up_nowhere() {
    // P12; fault table: upstream 401. Upstreams quote what they were sent, in every place that they have.
    let world = World::with(Setup::new().env("AMALGAM_LOG", "trace"), &[]).await;
    let mut leaks = Vec::new();
    for wire in WIRES {
        let key = format!("sk-{}", wire.kind());
        let text = format!("Incorrect API key provided: {key}.");
        let echo = json!({"message": text, "type": "invalid_request_error", "code": key, "param": key});
        let inside = match wire {
            Wire::Chat => (None, json!({"error": echo})),
            Wire::Responses => (Some("error"), json!({"type": "error", "code": key, "message": text, "param": key})),
            Wire::Anthropic => (Some("error"), json!({"type": "error", "error": echo})),
        };
        let failed = json!({"type": "response.failed", "response": {"id": "r", "object": "response", "status": "failed", "output": [], "error": {"code": key, "message": text}}});
        let said = [
            ("401", refusal(401, echo.clone()), Some(502)),
            ("403", refusal(403, echo.clone()), Some(502)),
            ("400", refusal(400, echo.clone()), Some(400)),
            ("404", refusal(404, echo.clone()), Some(400)),
            ("429", refusal(429, echo.clone()).header("retry-after", "60"), Some(429)),
            ("500", refusal(500, echo.clone()).header("retry-after", "60"), Some(503)),
            ("plain text", Reply::bytes("text/plain", text.clone()).with_status(401), Some(502)),
            ("an error with status 200", Reply::json(json!({"error": echo})), None),
            ("half an object", Reply::bytes("application/json", format!("{{\"{key}")), None),
            ("an error as the first frame", Reply::stream().frame(inside.0, &inside.1.to_string()), None),
            ("an error after text", streams::begun_then(wire, inside.0, &inside.1), None),
            ("a failed response", Reply::sse_typed([failed]), None),
            ("not JSON", Reply::stream().frame(None, &text), None),
            ("not an event", Reply::stream().frame(Some(key.as_str()), "{}"), None),
        ];
        for (what, reply, status) in said {
            for delivery in DELIVERIES {
                world.upstream(wire).enqueue(reply.clone());
                let answer = ask(&world, wire, delivery).await;
                let shown = format!("{:?} {}", answer.headers, answer.text());
                if shown.contains(&key) {
                    leaks.push(format!("{wire:?} {delivery:?}, {what}: {}", answer.text()));
                }
                match status {
                    Some(status) => assert_eq!(answer.status, status, "{wire:?} {what}: {shown}"),
                    None => assert!(!shown.contains("\"status\":\"completed\""), "{wire:?} {what}: {shown}"),
                }
            }
        }
        assert_eq!(world.upstream(wire).unscripted(), Vec::<String>::new(), "none of these is tried again");
    }
    let stderr = world.amalgam.terminate().await.stderr;
    assert!(stderr.contains("upstream answered 401"), "the operator can find out: {stderr}");
    let keys = WIRES.map(|wire| format!("sk-{}", wire.kind()));
    let logged = stderr.lines().filter(|line| keys.iter().any(|key| line.contains(key)));
    leaks.extend(logged.map(|line| format!("log: {line}")));
    assert!(leaks.is_empty(), "{} leaks:\n{}", leaks.len(), leaks.join("\n"));
}

#[tokio::test]
async fn a_request_that_the_upstream_refuses_is_told_in_its_words() {
    let world = World::start().await;
    let error = json!({"message": "Unsupported value: 'temperature'.", "type": "invalid_request_error", "param": "temperature", "code": "unsupported_value"});
    for wire in WIRES {
        for delivery in DELIVERIES {
            let before = world.upstream(wire).requests().len();
            world.upstream(wire).enqueue(refusal(400, error.clone()));
            let answer = ask(&world, wire, delivery).await;
            assert_eq!(answer.status, 400, "RAM-41 {wire:?} {delivery:?}");
            let told = error_of(&answer);
            assert_eq!((&told["message"], &told["param"]), (&error["message"], &error["param"]), "{wire:?}");
            assert_eq!(world.upstream(wire).requests().len(), before + 1, "no further try");
        }
    }
}

#[tokio::test]
async fn a_prompt_that_is_too_long_has_the_code_that_clients_look_for() {
    let world = World::start().await;
    let errors = [
        (
            Wire::Chat,
            json!({"message": "This model's maximum context length is 8192 tokens.", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}),
        ),
        (
            Wire::Chat,
            json!({"message": "the request exceeds the available context window", "type": "exceed_context_size_error", "code": 400}),
        ),
        (
            Wire::Responses,
            json!({"message": "Your input exceeds the context window of this model.", "type": "invalid_request_error", "param": "input", "code": "context_length_exceeded"}),
        ),
        (
            Wire::Anthropic,
            json!({"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}),
        ),
    ];
    for (wire, error) in errors {
        for delivery in DELIVERIES {
            world.upstream(wire).enqueue(refusal(400, error.clone()));
            let answer = ask(&world, wire, delivery).await;
            assert_eq!(told(&answer), (400, "context_length_exceeded".to_owned()), "{error}");
        }
    }
    // The same inside a stream that has begun.
    let failed = json!({"id": "resp_up", "object": "response", "status": "failed", "output": [],
        "error": {"code": "context_length_exceeded", "message": "Too long."}});
    let created = json!({"type": "response.created", "response": {"id": "resp_up", "object": "response", "status": "in_progress", "output": []}});
    let reply = Reply::sse_typed([created, json!({"type": "response.failed", "response": failed})]);
    world.upstream(Wire::Responses).enqueue(reply);
    let answer = ask(&world, Wire::Responses, Delivery::Stream).await;
    let response = last_response(&checked_events(&answer));
    assert_eq!(
        (&response["status"], &response["error"]["code"]),
        (&json!("failed"), &json!("context_length_exceeded"))
    );
}

#[tokio::test]
async fn silence_before_the_first_byte_is_a_timeout() {
    let world = World::with(Setup::new(), &[("first_byte_timeout", "\"300ms\""), ("total_timeout", "\"300ms\"")]).await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            let before = world.upstream(wire).requests().len();
            world.upstream(wire).enqueue(Reply::hang());
            let started = Instant::now();
            let answer = ask(&world, wire, delivery).await;
            assert_eq!(told(&answer), (504, "upstream_timeout".to_owned()), "RAM-44 {wire:?} {delivery:?}");
            assert_eq!(error_of(&answer)["type"], "timeout_error");
            assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
            assert_eq!(world.upstream(wire).requests().len(), before + 1);
            world.upstream(wire).wait_for_disconnect(before).await;
        }
    }
    assert_healthy(&world.amalgam).await;
}

#[tokio::test]
async fn a_whole_answer_that_cannot_be_read_is_a_bad_gateway() {
    // Fault table: cut, early end, bad JSON, HTML, invalid UTF-8, huge header
    let world = World::with(Setup::new(), &[("idle_timeout", "\"300ms\""), ("retries", "0")]).await;
    let replies = [
        ("bad JSON", Reply::bytes("application/json", "{\"choices\":[{]")),
        ("another shape", Reply::json(json!({"hello": "world"}))),
        ("nothing", Reply::bytes("application/json", "")),
        ("a list", Reply::json(json!([]))),
        ("null", Reply::json(Value::Null)),
        ("HTML", Reply::html(200, "Welcome")),
        ("HTML as JSON", Reply::bytes("application/json", "<html>")),
        ("invalid UTF-8", Reply::bytes("application/json", &b"{\"choices\":\"\xff\"}"[..])),
        ("deep", Reply::bytes("application/json", "[".repeat(100_000))),
        ("cut", Reply::bytes("application/json", "{\"choices\":[").chunked().cut_after(1)),
        ("reset", Reply::bytes("application/json", "{\"choices\":[").chunked().reset_after(1)),
        ("not HTTP", Reply::raw("SSH-2.0-OpenSSH_9.2\r\n")),
        ("a huge header", Reply::json(json!({})).huge_header(600_000)),
        ("compressed", Reply::json(json!({})).header("content-encoding", "gzip")),
        ("a redirect", Reply::status(302).header("location", "http://127.0.0.1:9/")),
    ];
    for wire in WIRES {
        for (what, reply) in &replies {
            world.upstream(wire).enqueue(reply.clone());
            let started = Instant::now();
            let answer = ask(&world, wire, Delivery::Whole).await;
            assert_eq!(answer.status, 502, "{wire:?} {what}: {}", answer.text());
            error_of(&answer);
            assert!(started.elapsed() < SOON, "{what}: {:?}", started.elapsed());
            world.upstream(wire).enqueue(fine().reply(wire, Delivery::Whole));
            assert_eq!(ask(&world, wire, Delivery::Whole).await.status, 200, "{wire:?} after {what}");
        }
        // A stall inside the body is a timeout rather than a mistake.
        world.upstream(wire).enqueue(Reply::bytes("application/json", "{").chunked().hang_after(1));
        assert_eq!(ask(&world, wire, Delivery::Whole).await.status, 504, "{wire:?}");
    }
    assert_healthy(&world.amalgam).await;
}
