//! Streamed answers: read as they arrive, resumed after a disconnect, and requested twice.

use amalgam_testkit::{Gate, Reply, Setup};
use serde_json::{Value, json};

use super::campus::{ALPHA, BETA, Campus, RESPOND, respond_with, said, streamed};
use crate::support::{Event, Events, Said, Script, beside, eventually, stores};

/// Asks for an event stream as Ana of the first tenant.
async fn stream(campus: &Campus<'_>, body: &Value) -> Events {
    stream_with(campus, &[], body).await
}

async fn stream_with(campus: &Campus<'_>, more: &[(&str, &str)], body: &Value) -> Events {
    let mut headers = vec![
        ("authorization", "Bearer am_alpha"),
        ("x-amalgam-user", "ana"),
        ("content-type", "application/json"),
        ("accept", "text/event-stream"),
    ];
    headers.extend(more);
    Events::open(&campus.user(ALPHA, "ana"), "POST", RESPOND, &headers, &body.to_string()).await
}

/// Picks a stream up.
async fn resumed(campus: &Campus<'_>, path: &str, last: Option<u64>) -> Vec<Event> {
    let last = last.map(|last| last.to_string());
    let mut headers = vec![("authorization", "Bearer am_alpha"), ("x-amalgam-user", "ana")];
    headers.extend(last.iter().map(|last| ("last-event-id", last.as_str())));
    let events = Events::open(&campus.user(ALPHA, "ana"), "GET", path, &headers, "").await;
    assert!(events.head.starts_with("HTTP/1.1 200"), "{}", events.head);
    events.rest().await
}

fn scripts() -> [Script; 2] {
    let call = Said::call("call_1", "get_course_detail", &["{\"course_id\":", "28}"]);
    [Script::new([Said::text(&["Let me ", "look."]), call]), Script::text(&["It is ", "about ", "leading."])]
}

fn text(events: &[Event]) -> String {
    events
        .iter()
        .filter(|event| event.name == "message.delta")
        .filter_map(|event| event.data["delta"].as_str())
        .collect()
}

#[tokio::test]
async fn a_stream_lives_while_the_upstream_is_silent() {
    // right A2, right C9
    for store in stores() {
        let campus = Campus::with(&store, Setup::new().extra("[limits]\nkeepalive = \"150ms\"")).await;
        let body = json!({"message": "Are you there?"});
        let gate = Gate::new();
        campus.upstream.enqueue(streamed(&Script::text(&["I ", "am."]), "resp_up_1").behind(&gate));
        let events = stream(&campus, &body).await;
        assert!(events.head.starts_with("HTTP/1.1 200"), "{}", events.head);
        let id = events.header("amalgam-response-id").expect("a stream can be picked up").to_owned();
        gate.open();
        let events = events.rest().await;
        assert_eq!(text(&events), "I am.", "{}", store.name);
        assert_eq!(events.last().map(|event| event.name.as_str()), Some("done"));
        // It is picked up like any other.
        let again = resumed(&campus, &format!("{RESPOND}{id}/"), None).await;
        assert_eq!(again.last().map(|event| &event.data), events.last().map(|event| &event.data));
        // A failure after the head is reported by an event, and the next message is answered.
        let gate = Gate::new();
        campus.upstream.enqueue(Reply::status(400).behind(&gate));
        let events = stream(&campus, &body).await;
        assert!(events.head.starts_with("HTTP/1.1 200"), "{}", events.head);
        gate.open();
        assert_eq!(events.rest().await.last().map(|event| event.name.clone()), Some("error".to_owned()));
        campus.says(&[Script::text(&["Here."])]);
        let whole = respond_with(&campus.user(ALPHA, "ana"), &[], &body).await;
        assert_eq!((whole.status.as_u16(), &whole.json()["message"]), (200, &json!("Here.")), "{}", store.name);
        assert!(whole.header("amalgam-response-id").is_some_and(|id| id.starts_with("resp_AM-")));
        assert!(whole.header("amalgam-model").is_some());
    }
}

#[tokio::test]
async fn a_stream_tells_the_same_as_the_whole_answer() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let body = json!({"agent": "course-assistant", "message": "What is it?"});
        for (number, script) in scripts().iter().enumerate() {
            campus.upstream.enqueue(streamed(script, &format!("resp_up_{}", number + 1)));
        }
        let events = stream(&campus, &body).await;
        assert_eq!(events.header("content-type").map(|value| value.split(';').next()), Some(Some("text/event-stream")));
        let response_id = events.header("amalgam-response-id").expect("a stream can be picked up").to_owned();
        let events = events.rest().await;
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "message.delta",
                "message.delta",
                "tool_call",
                "tool_result",
                "message.delta",
                "message.delta",
                "message.delta",
                "done"
            ]
        );
        assert!(events.windows(2).all(|pair| pair[0].id < pair[1].id), "{events:?}");
        assert_eq!(text(&events), "Let me look.It is about leading.");
        let call = json!({"id": "call_1", "name": "get_course_detail", "arguments": "{\"course_id\":28}"});
        assert_eq!(events[2].data, call);
        let done = &events[7].data;
        assert_eq!(events[3].data, done["tool_results"][0]);
        assert_eq!((&done["message"], &done["response_id"]), (&json!("It is about leading."), &json!("resp_up_2")));

        // Another user asks for the whole answer to the same.
        let whole = {
            campus.says(&scripts());
            campus.told(&campus.user(ALPHA, "ben"), body).await
        };
        for key in ["message", "model", "response_id", "prompt", "tool_results"] {
            assert_eq!(done[key], whole[key], "{key}");
        }
        let fields = |value: &Value| value.as_object().map(|fields| fields.keys().cloned().collect::<Vec<_>>());
        assert_eq!(fields(done), fields(&whole));

        // From the beginning, from the middle in both ways, from the end.
        for end in ["", "/"] {
            let path = format!("/api/v2/ai-agent/respond/{response_id}{end}");
            assert_eq!(resumed(&campus, &path, None).await, events);
            for place in 0..events.len() {
                let last = events[place].id;
                assert_eq!(resumed(&campus, &path, Some(last)).await, events[place + 1..], "after {last}");
                let path = format!("{path}?starting_after={last}");
                assert_eq!(resumed(&campus, &path, None).await, events[place + 1..], "after {last}");
            }
        }
        // For its own user alone; and what is no turn of this door is not found here.
        let path = format!("/api/v2/ai-agent/respond/{response_id}/");
        let missing = campus.user(ALPHA, "ana").get("/api/v2/ai-agent/respond/resp_AM-1-x/").await;
        for client in [campus.user(ALPHA, "ben"), campus.user(BETA, "ana")] {
            let answer = client.get(&path).await;
            assert_eq!((answer.status.as_u16(), answer.body), (404, missing.body.clone()));
        }
    }
}

#[tokio::test]
async fn a_stream_that_was_dropped_is_picked_up_where_it_was_left() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let gate = Gate::new();
        // The caller reads the first words; then the connection is cut, and the model continues.
        campus.upstream.enqueue(streamed(&Script::text(&["One ", "two ", "three."]), "resp_up_1").hold_after(6, &gate));
        let mut events = stream(&campus, &json!({"message": "Count"})).await;
        let id = events.header("amalgam-response-id").expect("a stream can be picked up").to_owned();
        let first = events.next().await.expect("the model speaks");
        let path = format!("/api/v2/ai-agent/respond/{id}/");
        let follower = Events::open(
            &campus.user(ALPHA, "ana"),
            "GET",
            &format!("{path}?starting_after={}", first.id),
            &[("authorization", "Bearer am_alpha"), ("x-amalgam-user", "ana")],
            "",
        )
        .await;
        gate.open();
        let (own, followed) = (events.rest().await, follower.rest().await);
        assert_eq!(followed, own, "two who read the same turn read the same");
        let all: Vec<Event> = [vec![first], own].concat();
        assert_eq!(text(&all), "One two three.");
        assert_eq!(resumed(&campus, &path, None).await, all);
    }
}

#[tokio::test]
async fn a_stream_that_fails_ends_in_an_error_that_says_nothing() {
    // RNCC-18, RNCC-20
    for store in stores() {
        let campus = Campus::on(&store).await;
        campus.upstream.enqueue(streamed(&Script::text(&["Half ", "an"]), "resp_up_1").cut_after(5));
        let events = stream(&campus, &json!({"message": "Hi"})).await;
        let events = events.rest().await;
        let last = events.last().expect("a stream has an end");
        let expected = json!({"detail": "AI service is temporarily unavailable."});
        assert_eq!((last.name.as_str(), &last.data), ("error", &expected), "{events:?}");
        let session =
            campus.user(ALPHA, "ana").get("/api/v2/ai-agent/sessions/").await.json()["results"][0]["id"].clone();
        let thread = campus.thread(ALPHA, &session).await;
        assert_eq!(thread.len(), 1, "{thread:?}");
        assert_eq!(super::campus::kinds(&thread[0]), ["context", "error"]);
        // What was refused before the model spoke is an error like any other.
        let refused = stream(&campus, &json!({"message": ""})).await;
        assert!(refused.head.starts_with("HTTP/1.1 400"), "{}", refused.head);
        for _ in 0..10 {
            campus.upstream.enqueue(Reply::status(500));
        }
        let refused = stream(&campus, &json!({"message": "Hi"})).await;
        assert!(refused.head.starts_with("HTTP/1.1 503"), "{}", refused.head);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_ends_its_turn_and_the_thread_goes_on_from_what_was_said() {
    // right A4
    for store in stores() {
        let campus = Campus::on(&store).await;
        campus.upstream.enqueue(streamed(&Script::text(&["Once upon ", "a time"]), "resp_up_1").hang_after(5));
        let mut events = stream(&campus, &json!({"message": "Hi"})).await;
        while events.next().await.expect("the model speaks").name != "message.delta" {}
        drop(events);
        campus.upstream.wait_for_disconnect(0).await;
        let ana = campus.user(ALPHA, "ana");
        let answer = campus.chat(&ana, json!({"message": "Still there?"}), "Yes.").await;
        let thread = campus.thread(ALPHA, &answer["session_id"]).await;
        let said: Vec<_> = thread.iter().map(|message| [&message["role"], &message["content"]]).collect();
        let expected = [["user", "Hi"], ["assistant", "Once upon"], ["user", "Still there?"], ["assistant", "Yes."]];
        assert_eq!(said, expected, "{}", store.name);
        assert_eq!(super::campus::kinds(&thread[0]), ["context"]);
        let metadata = thread[1]["metadata"].as_array().expect("a message has metadata");
        let usage = metadata.iter().find(|record| record["kind"] == "model_usage").expect("its usage is known");
        assert_eq!(usage["value"]["incomplete_reason"], "cancelled", "{}: {usage}", store.name);
        for name in ["input_tokens", "output_tokens"] {
            assert!(usage["value"][name].as_u64().is_some_and(|tokens| tokens > 0), "{}: {usage}", store.name);
        }
        assert!(campus.last_asked().to_string().contains("Once upon"), "{}: the model is told", store.name);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_before_the_first_word_leaves_no_answer_in_the_thread() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        campus.upstream.enqueue(streamed(&Script::text(&["Never ", "read"]), "resp_up_1").hang_after(2));
        let events = stream(&campus, &json!({"message": "Hi"})).await;
        assert!(events.head.starts_with("HTTP/1.1 200"), "{}", events.head);
        drop(events);
        campus.upstream.wait_for_disconnect(0).await;
        let ana = campus.user(ALPHA, "ana");
        let answer = campus.chat(&ana, json!({"message": "Still there?"}), "Yes.").await;
        let thread = campus.thread(ALPHA, &answer["session_id"]).await;
        let roles: Vec<&str> = thread.iter().filter_map(|message| message["role"].as_str()).collect();
        assert_eq!(roles, ["user", "user", "assistant"], "{}", store.name);
        assert_eq!(super::campus::kinds(&thread[0]), ["context", "error"]);
    }
}

#[tokio::test]
async fn the_same_message_under_one_key_is_said_once() {
    // S1
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        let body = json!({"message": "Hi"});
        let key = [("idempotency-key", "message-1")];
        campus.says(&[Script::text(&["Hello."])]);
        let first = respond_with(&ana, &key, &body).await;
        assert_eq!(first.status, 200, "{}", first.text());
        let again = respond_with(&ana, &key, &body).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(campus.asked().len(), 1);
        assert_eq!(campus.thread(ALPHA, &first.json()["session_id"]).await.len(), 2);
        // The same key with another body is an error, in the shape of this wire.
        let other = respond_with(&ana, &key, &json!({"message": "Bye"})).await;
        assert_eq!(other.status, 422, "{}", other.text());
        assert!(other.json()["detail"].is_string(), "{}", other.text());
        // Another user's key is another key.
        campus.says(&[Script::text(&["Hello, Ben."])]);
        let ben = respond_with(&campus.user(ALPHA, "ben"), &key, &body).await;
        assert_eq!(ben.json()["message"], "Hello, Ben.");
        // A failure is not remembered: the key is free again.
        let key = [("idempotency-key", "message-2")];
        for _ in 0..10 {
            campus.upstream.enqueue(Reply::status(400).with_json(json!({"error": {"message": "no"}})));
        }
        assert_eq!(respond_with(&ana, &key, &body).await.status, 503);
        assert_eq!(respond_with(&ana, &key, &json!({"message": ""})).await.status, 400);
    }
}

#[tokio::test]
async fn a_caller_that_comes_back_with_its_key_finds_the_answer_of_the_turn_that_it_left() {
    // S1
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        let gate = Gate::new();
        campus.upstream.enqueue(super::campus::whole(&Script::text(&["Late."]), "resp_up_1").behind(&gate));
        let client = ana.clone();
        let first = beside(async move {
            respond_with(&client, &[("idempotency-key", "message-1")], &json!({"message": "Hi"})).await
        });
        campus.upstream.wait_for_requests(1).await;
        first.leave().await;
        gate.open();
        let answer = respond_with(&ana, &[("idempotency-key", "message-1")], &json!({"message": "Hi"})).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["message"]), (200, &json!("Late.")));
        assert_eq!(campus.asked().len(), 1);
        let session = answer.json()["session_id"].clone();
        eventually("one turn in the thread", super::campus::QUICK, async || {
            (campus.thread(ALPHA, &session).await.len() == 2).then_some(())
        })
        .await;
        campus.chat(&ana, json!({"message": "Next"}), "Yes.").await;
        assert_eq!(said(&campus.last_asked()).len(), 3);
    }
}

#[tokio::test]
async fn a_stream_under_a_key_comes_to_its_end_without_its_reader_and_can_be_picked_up() {
    // S1, P6
    for store in stores() {
        let campus = Campus::on(&store).await;
        let gate = Gate::new();
        let script = Script::text(&["One ", "two ", "three."]);
        campus.upstream.enqueue(streamed(&script, "resp_up_1").hold_after(6, &gate));
        let (key, body) = ([("idempotency-key", "message-1")], json!({"message": "Count"}));
        let mut events = stream_with(&campus, &key, &body).await;
        let id = events.header("amalgam-response-id").expect("a stream can be picked up").to_owned();
        let first = events.next().await.expect("the model speaks");
        drop(events);
        gate.open();
        let path = format!("/api/v2/ai-agent/respond/{id}/");
        let rest = resumed(&campus, &path, Some(first.id)).await;
        assert_eq!(text(&[vec![first], rest.clone()].concat()), "One two three.");
        let done = rest.last().expect("a stream has an end");
        assert_eq!((done.name.as_str(), &done.data["message"]), ("done", &json!("One two three.")));

        // The same again is the same answer: as a stream its end alone, and whole.
        let again = respond_with(
            &campus.user(ALPHA, "ana"),
            &[("idempotency-key", "message-1"), ("accept", "text/event-stream")],
            &body,
        )
        .await;
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert!(again.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")));
        let told = again.text();
        let told = told.strip_prefix("event: done\ndata: ").and_then(|told| told.strip_suffix("\n\n"));
        assert_eq!(told.map(|told| serde_json::from_str::<Value>(told).unwrap()), Some(done.data.clone()));
        let whole = respond_with(&campus.user(ALPHA, "ana"), &key, &body).await;
        assert_eq!(whole.json(), done.data);
        assert_eq!(campus.asked().len(), 1);

        // One that fails leaves the key free.
        let key = [("idempotency-key", "message-2")];
        campus.upstream.enqueue(streamed(&script, "resp_up_2").cut_after(5));
        let failed = stream_with(&campus, &key, &body).await.rest().await;
        assert_eq!(failed.last().map(|event| event.name.as_str()), Some("error"));
        campus.upstream.enqueue(streamed(&script, "resp_up_3"));
        let done = stream_with(&campus, &key, &body).await.rest().await;
        assert_eq!(done.last().map(|event| &event.data["response_id"]), Some(&json!("resp_up_3")));
    }
}
