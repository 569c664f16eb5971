//! Tools for chat models that have none: the JSON form of their calls is never shown to a user.

use amalgam_testkit::{Amalgam, Reply, Upstream};
use serde_json::{Value, json};

use crate::support::{BINARY, DELIVERIES, Delivery, checked_events, last_response, put_tool, says, setup, text_of};

/// A server over one chat upstream without tools of its own, and a service for a tool that the server runs.
struct World {
    amalgam: Amalgam,
    upstream: Upstream,
    service: Upstream,
}

impl World {
    async fn start() -> Self {
        let (upstream, service) = (Upstream::start(), Upstream::start());
        let limits = format!("[limits]\ntool_iterations = 1\n\n[egress]\nallow_private = [\"{}\"]", service.address());
        let setup = setup()
            .upstream("small", "chat", &upstream.base_url())
            .option("models", r#"["m"]"#)
            .option("tool_calls", r#""constrained""#)
            .extra(&limits);
        Self { amalgam: Amalgam::start(BINARY, setup).await, upstream, service }
    }

    async fn ask(&self, delivery: Delivery, replies: Vec<Reply>, mut request: Value) -> Value {
        replies.into_iter().for_each(|reply| self.upstream.enqueue(reply));
        request["model"] = json!("m");
        request["stream"] = json!(delivery == Delivery::Stream);
        let answer = self.amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        match delivery {
            Delivery::Whole => answer.json(),
            Delivery::Stream => last_response(&checked_events(&answer)),
        }
    }

    fn sent(&self) -> Value {
        self.upstream.requests().last().expect("it was asked").json()
    }
}

fn said(delivery: Delivery, text: &str, finish: &str) -> Reply {
    let usage = json!({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18});
    match delivery {
        Delivery::Whole => {
            let choice =
                json!({"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish});
            Reply::json(json!({"id": "c", "model": "m", "choices": [choice], "usage": usage}))
        }
        Delivery::Stream => {
            let chunk = |delta: Value, finish: Value| json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
            let characters: Vec<char> = text.chars().collect();
            let pieces = characters.chunks(3).map(|piece| json!({"content": piece.iter().collect::<String>()}));
            let frames = pieces.map(|piece| chunk(piece, Value::Null));
            let last = [chunk(json!({}), json!(finish)), json!({"choices": [], "usage": usage})];
            Reply::sse_data(frames.chain(last)).done()
        }
    }
}

// right B1
#[tokio::test]
async fn a_call_that_the_limit_cuts_ends_the_turn_as_incomplete_and_is_not_shown() {
    let world = World::start().await;
    let request =
        || json!({"input": "Hi", "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]});
    for delivery in DELIVERIES {
        for (text, finish) in [
            (r#"{"calls": [{"tool": "weather", "arguments": {"city": "Os"#, "length"),
            (r#"{"calls": [{"tool": "weather", "argu"#, "stop"),
            (r#"{"ca"#, "length"),
            ("```json\n{\"tool\": \"weather\", \"arguments\": {", "length"),
        ] {
            let response = world.ask(delivery, vec![said(delivery, text, finish)], request()).await;
            let told = (&response["status"], &response["incomplete_details"]["reason"]);
            assert_eq!(told, (&json!("incomplete"), &json!("max_output_tokens")), "{text}: {response:#}");
            assert_eq!(text_of(&response), "", "{text}");
        }
        let prose = said(delivery, "I would rather not.", "stop");
        let response = world.ask(delivery, vec![prose], request()).await;
        assert_eq!((&response["status"], text_of(&response)), (&json!("completed"), "I would rather not.".to_owned()));
    }
}

// right B1
#[tokio::test]
async fn after_the_last_round_calls_are_told_in_words_and_an_answer_in_their_form_is_not_shown() {
    let world = World::start().await;
    world.service.always_for("/weather", says(json!("grey")));
    let tool = json!({
        "description": "Asks for the weather.", "kind": "http",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "settings": {"method": "POST", "url": format!("{}/weather", world.service.url()), "body": "arguments"},
    });
    let answer = put_tool(&world.amalgam.client(), "weather", &tool).await;
    assert!(answer.status.is_success(), "{}", answer.text());
    let request = || json!({"input": "Hi", "tools": [{"type": "function", "name": "weather"}]});
    let call = r#"{"calls": [{"tool": "weather", "arguments": {"city": "Oslo"}}]}"#;
    for delivery in DELIVERIES {
        for (last, shown) in [
            ("It is grey.", "It is grey."),
            (r#"{"answer": "It is grey."}"#, "It is grey."),
            (call, ""),
            (r#"{"tool": "weather", "arguments": {}}"#, ""),
        ] {
            let replies = vec![said(delivery, call, "stop"), said(delivery, last, "stop")];
            let response = world.ask(delivery, replies, request()).await;
            assert_eq!(text_of(&response), shown, "{last}: {response:#}");
            assert_eq!(response["incomplete_details"]["reason"], "max_tool_iterations", "{response:#}");
            let sent = world.sent();
            assert_eq!(sent.get("response_format"), None, "{sent:#}");
            let told: Vec<&str> =
                sent["messages"].as_array().into_iter().flatten().filter_map(|one| one["content"].as_str()).collect();
            assert!(told.iter().all(|text| !text.contains("\"calls\"")), "{told:?}");
            assert!(told.iter().any(|text| text.contains("weather") && text.contains("Oslo")), "{told:?}");
            assert!(told.iter().any(|text| text.contains("grey")), "{told:?}");
        }
    }
}
