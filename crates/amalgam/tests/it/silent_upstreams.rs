//! Streams whose upstream is silent: they begin all the same, live on, and name at their end the model that answered.

use amalgam_testkit::{Amalgam, Client, EventStream, Gate, Reply, Setup, Upstream, check, sse};
use serde_json::{Value, json};

use crate::support::{
    BINARY, Delivery, Script, WIRES, Wire, World, asking, checked_events, error_of, id_of, last_response, retrieved,
    stores, text_of, types,
};

/// Signs of life come often enough for a test.
const LIVELY: &str = "[limits]\nkeepalive = \"150ms\"";

async fn open(client: &Client, wire: Wire) -> EventStream {
    client.post_stream("/v1/responses", &asking(wire, Delivery::Stream, &json!({"input": "Hi"}))).await
}

async fn next(stream: &mut EventStream) -> Value {
    stream.next_event().await.expect("the stream goes on").json()
}

/// The first two events of a stream whose model has not said anything, and a sign of life.
async fn begun(stream: &mut EventStream) -> Value {
    assert_eq!(stream.status, 200);
    let created = next(stream).await;
    assert_eq!((&created["type"], &created["sequence_number"]), (&json!("response.created"), &json!(0)));
    assert_eq!(created["response"]["amalgam"], json!({"model": null, "losses": []}), "no model has answered yet");
    assert_eq!(stream.headers["amalgam-response-id"], created["response"]["id"].as_str().unwrap_or_default());
    assert!(!stream.headers.contains_key("amalgam-model"));
    assert_eq!(next(stream).await["type"], "response.in_progress");
    assert_eq!(next(stream).await["type"], "keepalive");
    created["response"].clone()
}

#[tokio::test]
async fn a_stream_begins_and_lives_while_its_upstream_sends_no_head() {
    // right A2
    for store in stores() {
        let world = World::with(store.setup(Setup::new().extra(LIVELY)), &[]).await;
        let client = world.amalgam.client();
        for wire in WIRES {
            let gate = Gate::new();
            world.upstream(wire).enqueue(Script::text(&["a", "b"]).reply(wire, Delivery::Stream).behind(&gate));
            let mut stream = open(&client, wire).await;
            let id = id_of(&begun(&mut stream).await).to_owned();
            assert_eq!(retrieved(&client, &id).await["status"], "in_progress", "{} {wire:?}", store.name);
            gate.open();
            let completed = stream.next_of_type("response.completed").await["response"].clone();
            assert!(stream.rest().await.last().is_some_and(sse::SseEvent::is_done));
            assert_eq!(text_of(&completed), "ab");
            let model = format!("{}/{}", wire.kind(), wire.model());
            assert_eq!(completed["amalgam"], json!({"model": model, "losses": []}));
            assert_eq!(retrieved(&client, &id).await, completed, "{} {wire:?}", store.name);
            // Another connection gets the same events from the first one on.
            let again = client.get(&format!("/v1/responses/{id}?stream=true")).await;
            let events = checked_events(&again);
            assert_eq!(types(&events)[..3], ["response.created", "response.in_progress", "keepalive"]);
            assert_eq!(last_response(&events), completed);
        }
    }
}

#[tokio::test]
async fn what_fails_behind_the_head_is_told_by_events_and_stored() {
    // right A2
    for store in stores() {
        let world = World::with(store.setup(Setup::new().extra(LIVELY)), &[("retries", "0")]).await;
        let client = world.amalgam.client();
        for wire in WIRES {
            let gate = Gate::new();
            world.upstream(wire).enqueue(Reply::status(500).behind(&gate));
            let mut stream = open(&client, wire).await;
            let id = id_of(&begun(&mut stream).await).to_owned();
            gate.open();
            let error = stream.next_of_type("error").await;
            let failed = stream.next_of_type("response.failed").await["response"].clone();
            assert!(stream.rest().await.last().is_some_and(sse::SseEvent::is_done));
            assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &error["code"]));
            assert_eq!(retrieved(&client, &id).await, failed, "{} {wire:?}", store.name);
        }
        // What comes at once is a plain error, as ever.
        world.upstream(Wire::Chat).enqueue(Reply::status(401));
        let refused = open(&client, Wire::Chat).await.into_answer().await;
        assert_eq!((refused.status.as_u16(), &error_of(&refused)["code"]), (502, &json!("upstream_credential")));
    }
}

#[tokio::test]
async fn a_caller_that_leaves_a_silent_stream_ends_the_upstreams_work() {
    // right A2
    for store in stores() {
        let world = World::with(store.setup(Setup::new().extra(LIVELY)), &[]).await;
        let client = world.amalgam.client();
        world.upstream(Wire::Chat).enqueue(Reply::hang());
        let mut stream = open(&client, Wire::Chat).await;
        let id = id_of(&begun(&mut stream).await).to_owned();
        drop(stream);
        world.upstream(Wire::Chat).wait_for_disconnect(0).await;
        crate::support::standing(&client, &id, "cancelled").await;
    }
}

#[tokio::test]
async fn a_stream_under_a_key_lives_too_and_is_told_again() {
    // right A2: the turn has a task of its own, stored or not
    for store in stores() {
        let world = World::with(store.setup(Setup::new().extra(LIVELY)), &[]).await;
        for kept in [true, false] {
            let gate = Gate::new();
            world
                .upstream(Wire::Chat)
                .enqueue(Script::text(&["a", "b"]).reply(Wire::Chat, Delivery::Stream).behind(&gate));
            let client = world.amalgam.client().with_header("idempotency-key", &format!("silent-{kept}"));
            let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi", "store": kept}));
            let mut stream = client.post_stream("/v1/responses", &request).await;
            let created = stream.next_of_type("response.created").await["response"].clone();
            assert_eq!(stream.headers["amalgam-response-id"], id_of(&created));
            stream.next_of_type("response.in_progress").await;
            stream.next_of_type("keepalive").await;
            gate.open();
            let completed = stream.next_of_type("response.completed").await["response"].clone();
            assert_eq!(text_of(&completed), "ab", "{} {kept}", store.name);
            assert!(stream.rest().await.last().is_some_and(sse::SseEvent::is_done));
            let again = client.post_json("/v1/responses", &request).await;
            assert_eq!(again.header("idempotent-replayed"), Some("true"));
            assert_eq!(again.header("amalgam-response-id"), Some(id_of(&created)));
            assert_eq!(last_response(&again.json_events()), completed);
            assert_eq!(world.upstream(Wire::Chat).requests().len(), if kept { 1 } else { 2 });
        }
    }
}

/// A server whose model `m` is asked of one upstream and then of another.
async fn with_fallback(first: (&str, &Upstream), second: &Upstream, options: &[(&str, &str)]) -> Amalgam {
    let setup = Setup::new().upstream("first", first.0, &first.1.base_url());
    let setup = options.iter().fold(setup, |setup, (key, value)| setup.option(key, value));
    let setup = setup.option("retries", "0").upstream("second", "chat", &second.base_url());
    let models = "[models.m]\nupstream = \"first\"\nmodel = \"m1\"\nfallback = [\"second/m2\"]";
    Amalgam::start(BINARY, setup.extra(&format!("{LIVELY}\n{models}"))).await
}

#[tokio::test]
async fn another_upstream_is_asked_until_the_first_word_of_a_stream() {
    // right A2: also when the first one has accepted
    let failed = json!({"type": "response.failed", "response": {"id": "r", "status": "failed", "output": [], "error": {"code": "server_error", "message": "no"}}});
    let created = json!({"type": "response.created", "response": {"id": "r", "object": "response", "status": "in_progress", "output": []}});
    let start = json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}});
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let cases = [
        ("chat", Reply::stream().cut_after(0)),
        ("chat", Reply::stream().hang_after(0)),
        ("chat", Reply::hang()),
        ("responses", Reply::sse_typed([created.clone()])),
        ("responses", Reply::sse_typed([created.clone()]).hang_after(1)),
        ("responses", Reply::sse_typed([created, failed])),
        ("anthropic", Reply::sse_typed([start.clone()]).cut_after(1)),
        ("anthropic", Reply::sse_typed([start, error])),
    ];
    let patience = [("first_byte_timeout", "\"2s\""), ("idle_timeout", "\"2s\"")];
    for (kind, reply) in cases {
        let (first, second) = (Upstream::start(), Upstream::start());
        let amalgam = with_fallback((kind, &first), &second, &patience).await;
        let what = format!("{kind} {reply:?}");
        first.enqueue(reply);
        second.enqueue(Script::text(&["It is ", "me."]).reply(Wire::Chat, Delivery::Stream));
        let request = json!({"model": "m", "input": "Hi", "stream": true});
        let answer = amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        let response = last_response(&checked_events(&answer));
        assert_eq!(text_of(&response), "It is me.", "{what}");
        assert_eq!(response["amalgam"]["model"], "second/m2", "{what}");
        assert_eq!((first.requests().len(), second.requests().len()), (1, 1), "{what}");
    }
}

#[tokio::test]
async fn a_failure_after_the_first_word_is_not_asked_of_another_upstream() {
    // right A2
    let (first, second) = (Upstream::start(), Upstream::start());
    let amalgam = with_fallback(("chat", &first), &second, &[]).await;
    first.enqueue(Script::text(&["a", "b"]).reply(Wire::Chat, Delivery::Stream).cut_after(2));
    let request = json!({"model": "m", "input": "Hi", "stream": true});
    let answer = amalgam.client().post_json("/v1/responses", &request).await;
    let events = checked_events(&answer);
    assert!(types(&events).ends_with(&["error", "response.failed"]), "{:?}", types(&events));
    assert_eq!(last_response(&events)["amalgam"]["model"], "first/m1");
    assert!(second.requests().is_empty());
}

#[tokio::test]
async fn strict_streams_are_refused_before_any_head_and_fail_for_what_shows_up_later() {
    // right A2
    let world = World::with(Setup::new().extra(LIVELY), &[]).await;
    let strict = world.amalgam.client().with_header("amalgam-strict", "true");
    let lossy = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi", "tools": [{"type": "web_search"}]}));
    let refused = strict.post_json("/v1/responses", &lossy).await;
    assert_eq!((refused.status.as_u16(), &error_of(&refused)["code"]), (400, &json!("unsupported_parameter")));
    // Without losses a silent upstream makes no difference.
    let gate = Gate::new();
    world.upstream(Wire::Chat).enqueue(Script::text(&["a"]).reply(Wire::Chat, Delivery::Stream).behind(&gate));
    let mut stream = open(&strict, Wire::Chat).await;
    begun(&mut stream).await;
    gate.open();
    stream.next_of_type("response.completed").await;
    // The upstream does what it was asked not to do.
    let call = |id: &str| crate::support::Said::call(id, "f", &["{}"]);
    let tools = json!([{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]);
    let request = json!({"input": "Hi", "tools": tools, "parallel_tool_calls": false});
    let script = Script::new([call("c1"), call("c2")]);
    for (client, status) in [(&strict, "failed"), (&world.amalgam.client(), "completed")] {
        world.upstream(Wire::Chat).enqueue(script.reply(Wire::Chat, Delivery::Stream));
        let answer = client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Stream, &request)).await;
        let response = last_response(&checked_events(&answer));
        assert_eq!(response["status"], status, "{response}");
        if status == "completed" {
            let losses = response["amalgam"]["losses"].as_array().expect("a list");
            assert!(
                losses.iter().any(|loss| loss.as_str().is_some_and(|loss| loss.starts_with("parallel_tool_calls")))
            );
        }
    }
}

#[tokio::test]
async fn every_response_tells_who_answered_and_what_was_lost() {
    // right A2, right C10
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client();
        for wire in WIRES {
            for delivery in [Delivery::Whole, Delivery::Stream] {
                let request = json!({"input": "Hi", "tools": [{"type": "acme:thing"}]});
                let answer = world.ask(wire, delivery, &Script::text(&["ok"]), &request).await;
                let response = match delivery {
                    Delivery::Whole => answer.json(),
                    Delivery::Stream => last_response(&checked_events(&answer)),
                };
                let model = format!("{}/{}", wire.kind(), wire.model());
                assert_eq!(response["amalgam"]["model"], model.as_str());
                assert_eq!(answer.header("amalgam-model"), Some(model.as_str()));
                assert_eq!(answer.header("amalgam-response-id"), Some(id_of(&response)));
                let losses: Vec<&str> = response["amalgam"]["losses"]
                    .as_array()
                    .expect("a list")
                    .iter()
                    .filter_map(Value::as_str)
                    .collect();
                assert_eq!(answer.header("amalgam-losses").unwrap_or_default(), losses.join("; "));
                assert_eq!(retrieved(&client, id_of(&response)).await, response, "{} {wire:?}", store.name);
                assert_eq!(check::response(&response), Vec::<String>::new());
            }
        }
    }
}

#[tokio::test]
async fn the_last_event_of_an_upstream_counts_without_the_empty_line_behind_it() {
    // right A2
    let world = World::start().await;
    for wire in WIRES {
        let script = Script::text(&["All ", "is well."]);
        let frames = |reply: Reply| [reply.clone().until_close(), reply.chunked()].map(Reply::without_final_newline);
        let mut replies = Vec::from(frames(script.reply(wire, Delivery::Stream)));
        // The connection is closed where the body has no end yet.
        let mut events: Vec<String> = script
            .frames(wire)
            .iter()
            .map(|frame| match frame["type"].as_str() {
                Some(name) => format!("event: {name}\ndata: {frame}"),
                None => format!("data: {frame}"),
            })
            .collect();
        if wire == Wire::Chat {
            events.push("data: [DONE]".to_owned());
        }
        let body = events.join("\n\n");
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        replies.push(Reply::raw(format!("{head}{:x}\r\n{body}\r\n", body.len())));
        for reply in replies {
            let what = format!("{wire:?} {reply:?}");
            world.upstream(wire).enqueue(reply);
            let request = asking(wire, Delivery::Stream, &json!({"input": "Hi"}));
            let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
            let response = last_response(&checked_events(&answer));
            assert_eq!(
                (&response["status"], text_of(&response).as_str()),
                (&json!("completed"), "All is well."),
                "{what}"
            );
        }
    }
}

#[tokio::test]
async fn an_upstream_whose_final_text_contradicts_its_deltas_fails() {
    // right E5
    let world = World::start().await;
    let delta = |text: &str| json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": text});
    let message = |text: &str| json!({"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]});
    let done = |text: &str| json!({"type": "response.output_item.done", "output_index": 0, "item": message(text)});
    let completed = |text: &str| json!({"type": "response.completed", "response": {"id": "r", "object": "response", "status": "completed", "output": [message(text)]}});
    let cases = [
        (vec![delta("Yes, do it."), completed("No, never.")], None),
        (vec![delta("Yes, do it."), done("No, never."), completed("No, never.")], None),
        (vec![delta("Yes, do it."), done("Yes, do it."), completed("No, never.")], None),
        (vec![delta("Yes, do it."), done("Yes, do it."), completed("Yes, do it.")], Some("Yes, do it.")),
        (vec![delta("Yes, "), completed("Yes, do it.")], Some("Yes, do it.")),
        // Trimmed, and not contradicted.
        (vec![delta(" Yes.\n"), done("Yes."), completed("Yes.")], Some(" Yes.\n")),
        (
            vec![
                delta("Yes."),
                done("Yes."),
                json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}),
            ],
            Some("Yes."),
        ),
    ];
    for (events, expected) in cases {
        let what = json!(events);
        world.upstream(Wire::Responses).enqueue(Reply::sse_typed(events));
        let request = asking(Wire::Responses, Delivery::Stream, &json!({"input": "Hi"}));
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        let response = last_response(&checked_events(&answer));
        match expected {
            Some(text) => assert_eq!(text_of(&response), text, "{what}"),
            None => assert_eq!(
                (&response["status"], &response["error"]["code"]),
                (&json!("failed"), &json!("server_error")),
                "{what}"
            ),
        }
    }
}
