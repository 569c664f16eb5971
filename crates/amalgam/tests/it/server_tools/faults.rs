//! Services that never answer, answer too much, answer nonsense or break off: the turn continues, and so do all
//! others.

use amalgam_testkit::Gate;
use bytes::Bytes;

use super::*;
use crate::support::{beside, response_of};

/// What one call of a tool came to: the error in the record, and the output that the model received.
async fn outcome(workshop: &Workshop, reply: Reply, extra: Value) -> (Option<String>, String, String) {
    workshop.put("weather", extra).await;
    workshop.service.always_for("/weather", reply);
    let scripts = [calls("call_1", "weather", "Oslo"), Script::text(&["Done."])];
    let response = workshop.turn(Wire::Chat, Delivery::Stream, &scripts, &question()).await;
    assert_eq!((&response["status"], text_of(&response).as_str()), (&json!("completed"), "Done."));
    let record = workshop.turn_record(id_of(&response)).await;
    let call = &record["tool_calls"][0];
    let told = workshop.told(Wire::Chat)[2].1.clone();
    let status = response["output"][0]["status"].as_str().expect("a call has a status").to_owned();
    assert_eq!(response["output"][0]["output"], json!(told));
    (call["error"].as_str().map(str::to_owned), status, told)
}

#[tokio::test]
async fn a_service_that_misbehaves_is_a_result_like_any_other() {
    let megabyte = Bytes::from(vec![b'x'; 1 << 20]);
    let hundred =
        (0..100).fold(Reply::status(200).header("content-type", "text/plain"), |reply, _| reply.send(megabyte.clone()));
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let cases = [
        ("hangs", Reply::hang(), "timed_out"),
        ("hangs in its body", Reply::status(200).chunked().send("{").hang_after(1), "timed_out"),
        ("100 MB that it announces", hundred.clone(), "too_large"),
        ("100 MB that it does not announce", hundred.chunked(), "too_large"),
        ("more than is kept", Reply::json(json!("x".repeat(300 * 1024))), "too_large"),
        ("closes", Reply::close(), "broken"),
        ("resets", Reply::reset(), "broken"),
        ("breaks off", Reply::json(json!("grey")).cut_after(0), "broken"),
        ("no HTTP", Reply::raw("hello\r\n\r\n"), "broken"),
        ("no UTF-8", Reply::bytes("application/json", &b"{\"a\":\"\xff\xfe\"}"[..]), "refused"),
        ("no JSON", Reply::bytes("application/json", "{\"a\":"), "refused"),
        ("deep", Reply::bytes("application/json", deep), "refused"),
        ("a redirect", Reply::status(302).header("location", "http://127.0.0.1:9/"), "refused"),
        ("says no", Reply::status(404).with_json(json!({"error": "no such city"})), "refused"),
    ];
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        for (name, reply, expected) in &cases {
            let (error, status, told) = outcome(&workshop, reply.clone(), json!({"timeout": "400ms"})).await;
            let place = format!("{} {name}: {told}", store.name);
            assert_eq!((error.as_deref(), status.as_str()), (Some(*expected), "failed"), "{place}");
            let told: Value = serde_json::from_str(&told).unwrap();
            let told = told["error"].as_str().unwrap();
            assert!(!told.is_empty() && told.len() < 500 && !told.contains("127.0.0.1"), "{place}");
        }
        // Text is lenient.
        let latin = Reply::bytes("text/plain", &b"gr\xfcn"[..]);
        assert_eq!(
            outcome(&workshop, latin, json!({})).await,
            (None, "completed".to_owned(), "gr\u{fffd}n".to_owned())
        );
        assert_calm(&workshop.world.amalgam);
        // The part beyond the limit was not held in memory either.
        let status = std::fs::read_to_string(format!("/proc/{}/status", workshop.world.amalgam.pid())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kilobytes < 200 * 1024, "{} took {kilobytes} kB", store.name);
    }
}

#[tokio::test]
async fn only_what_may_run_twice_is_tried_again() {
    // S3
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        for (extra, tries) in [(json!({}), 1), (json!({"idempotent": true}), 2)] {
            let before = workshop.service.requests().len();
            let (error, ..) = outcome(&workshop, Reply::close(), extra).await;
            assert_eq!(error.as_deref(), Some("broken"));
            let requests = workshop.service.requests_from(before);
            assert_eq!(requests.len(), tries);
            // It is one call, for any number of attempts.
            let keys: std::collections::HashSet<_> = requests.iter().map(|one| one.header("idempotency-key")).collect();
            assert_eq!(keys.len(), 1, "{keys:?}");
        }
    }
}

#[tokio::test]
async fn a_tool_that_hangs_holds_up_no_other_turn() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.put("traffic", json!({})).await;
        let gate = Gate::new();
        workshop.service.always_for("/weather", says(json!("grey")).behind(&gate));
        workshop.service.always_for("/traffic", says(json!("jam")));
        workshop.script(Wire::Chat, Delivery::Whole, &[calls("call_1", "weather", "Oslo"), Script::text(&["Late."])]);
        let (client, request) = (workshop.client(), asking(Wire::Chat, Delivery::Whole, &question()));
        let stuck = beside(async move { client.post_json("/v1/responses", &request).await });
        workshop.service.wait_for_requests(1).await;
        for wire in [Wire::Responses, Wire::Anthropic] {
            for delivery in DELIVERIES {
                let scripts = [calls("call_1", "traffic", "Oslo"), Script::text(&["Jam."])];
                let request = json!({"input": "Hi", "tools": [named("traffic")]});
                let response = workshop.turn(wire, delivery, &scripts, &request).await;
                assert_eq!(text_of(&response), "Jam.");
            }
        }
        assert_eq!(workshop.world.upstream(Wire::Chat).replies_left(), 1, "the first one still waits");
        gate.open();
        assert_eq!(text_of(&response_of(Delivery::Whole, &stuck.end().await)), "Late.");
    }
}

#[tokio::test]
async fn a_model_that_fails_after_a_tool_ran_fails_the_turn_after_the_call_was_shown() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.service.always_for("/weather", says(json!("grey")));
        for wire in WIRES {
            workshop.script(wire, Delivery::Stream, &[calls("call_1", "weather", "Oslo")]);
            let refusal = json!({"error": {"message": "no more", "type": "invalid_request_error"}});
            workshop.world.upstream(wire).enqueue(Reply::status(400).with_json(refusal));
            let answer =
                workshop.client().post_json("/v1/responses", &asking(wire, Delivery::Stream, &question())).await;
            let events = checked_events(&answer);
            let response = last_response(&events);
            assert_eq!(response["status"], "failed", "{} {wire:?}", store.name);
            assert_eq!(done(&events), [("weather".to_owned(), "completed".to_owned())]);
            let record = workshop.turn_record(id_of(&response)).await;
            assert_eq!(record["tool_calls"][0]["output"], "grey", "{record}");
        }
    }
}
