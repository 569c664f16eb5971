//! What the model's server sent, as the envelope shows it: the raw response, the model, usage and errors.

use amalgam_testkit::{Reply, Setup};
use serde_json::{Value, json};

use super::desk::{Desk, KEY, OTHER, execute_with, open, standing, taken, turn};
use crate::support::{Said, Script, WIRES, Wire, stores};

/// An answer as a server of this wire might write it: odd spaces, and unknown fields.
fn odd(wire: Wire) -> &'static str {
    match wire {
        Wire::Responses => {
            "{ \"id\" : \"resp_up\",\n\t\"object\":\"response\", \"x_unknown\" : {\"a\":[1 , 2]}, \"model\":\"real-1\", \
             \"status\":\"completed\", \"output\":[{\"type\":\"message\",\"id\":\"m\",\"role\":\"assistant\",\
             \"status\":\"completed\",\"x\":1,\"content\":[{\"type\":\"output_text\",\"text\":\"Caf\\u00e9\",\"annotations\":[]}]}],\
             \"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4} } \n"
        }
        Wire::Chat => {
            "{ \"id\" : \"chatcmpl-1\", \"object\":\"chat.completion\", \"x_unknown\" : 1, \"model\":\"real-1\",\n \
             \"choices\":[{\"index\":0,\"finish_reason\":\"stop\",\"message\":{\"role\":\"assistant\",\"content\":\"Caf\\u00e9\"}}],\
             \"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7} }"
        }
        Wire::Anthropic => {
            "{ \"id\" : \"msg_1\", \"type\":\"message\", \"role\":\"assistant\", \"x_unknown\" : 1, \"model\":\"real-1\",\n \
             \"content\":[{\"type\":\"text\",\"text\":\"Caf\\u00e9\"}], \"stop_reason\":\"end_turn\",\
             \"usage\":{\"input_tokens\":3,\"output_tokens\":4} }"
        }
    }
}

// right C2, right C3
#[tokio::test]
async fn the_raw_response_is_what_the_models_server_sent_and_names_its_model() {
    // R004-06, R004-09, R004-26
    for store in stores() {
        // The result does not depend on whether transcripts are stored.
        for retention in ["", "[retention]\nkeep_transcripts = \"none\"\n"] {
            let desk = Desk::with(&store, Setup::new().extra(retention)).await;
            let ana = desk.user("ana");
            for wire in WIRES {
                let id = open(&ana, wire).await;
                desk.replies(wire, Reply::bytes("application/json", odd(wire)));
                let body = turn(&id, "t1", "Hello");
                let envelope = taken(&ana, &body).await;
                assert_eq!(envelope["RawResponseJson"], odd(wire), "{} {wire:?}", store.name);
                let told = (&envelope["Text"], &envelope["ModelId"], &envelope["Kind"]);
                assert_eq!(told, (&json!("Café"), &json!("real-1"), &json!("ok")), "{envelope}");
                let usage = json!({"PromptTokens": 3, "CompletionTokens": 4, "TotalTokens": 7});
                assert_eq!(envelope["Usage"], usage, "{wire:?}");
                // What is stored is returned again.
                assert_eq!(taken(&ana, &body).await, envelope, "{wire:?}");
                assert_eq!(standing(&ana, &id, "t1").await["Result"], envelope, "{wire:?}");
            }
        }
    }
}

// right C9
#[tokio::test]
async fn a_turn_is_found_by_the_id_of_the_models_server() {
    let ids = [(Wire::Responses, "resp_up"), (Wire::Chat, "chatcmpl-1"), (Wire::Anthropic, "msg_1")];
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for (wire, provider_id) in ids {
            let id = open(&ana, wire).await;
            desk.replies(wire, Reply::bytes("application/json", odd(wire)));
            let envelope = taken(&ana, &turn(&id, "t1", "Hello")).await;
            let path = format!("/admin/turns/{provider_id}");
            let found = desk.admin(KEY).get(&path).await;
            assert_eq!(found.status, 200, "{} {wire:?}: {}", store.name, found.text());
            assert_eq!(found.json()["id"], envelope["ResponseContinuationId"], "{} {wire:?}", store.name);
            assert_eq!(desk.admin(OTHER).get(&path).await.status, 404, "{} {wire:?}", store.name);
        }
    }
}

// right C2
#[tokio::test]
async fn of_a_stream_the_raw_response_is_the_final_object_as_it_came() {
    let completed = "{\"type\":\"response.completed\",\"sequence_number\":9, \"response\": { \"id\":\"resp_up\" , \
        \"x\":1,\"object\":\"response\",\"model\":\"real-1\",\"status\":\"completed\",\"output\":[{\"type\":\"message\",\
        \"id\":\"m\",\"role\":\"assistant\",\"status\":\"completed\",\"content\":[{\"type\":\"output_text\",\"text\":\"Hi\",\
        \"annotations\":[]}]}],\"usage\":{\"input_tokens\":3,\"output_tokens\":4,\"total_tokens\":7}}}";
    let object = completed.split_once("\"response\": ").expect("it holds a response").1;
    let object = object.strip_suffix('}').expect("it closes");
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        desk.replies(Wire::Responses, Reply::stream().frame("response.completed", completed).done());
        let mut body = turn(&id, "t1", "Hello");
        body["Streaming"] = json!(true);
        let answer = execute_with(&ana, ("accept", "application/x-ndjson"), &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text();
        let last: Value = serde_json::from_str(text.lines().last().expect("there are lines")).expect("a line is JSON");
        assert_eq!(last["Result"]["RawResponseJson"], object, "{}", store.name);
        assert_eq!((&last["Result"]["Text"], &last["Result"]["ModelId"]), (&json!("Hi"), &json!("real-1")));
        // A stream without a final object is shown as it arrived.
        let id = open(&ana, Wire::Chat).await;
        desk.says(Wire::Chat, [Script::text(&["Hello"])]);
        let mut body = turn(&id, "t1", "Hello");
        body["Streaming"] = json!(true);
        execute_with(&ana, ("accept", "application/x-ndjson"), &body).await;
        let raw = standing(&ana, &id, "t1").await["Result"]["RawResponseJson"].clone();
        let raw = raw.as_str().expect("the stream is shown");
        assert!(raw.starts_with("data: {") && raw.contains("upstream-name"), "{raw}");
    }
}

// right C2
#[tokio::test]
async fn of_several_rounds_it_is_the_last_and_the_servers_calls_stand_with_the_turn() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let wire = Wire::Responses;
        let id = open(&ana, wire).await;
        desk.says(wire, [Script::new([Said::call("call_1", "clock", &["{}"])])]);
        desk.replies(wire, Reply::bytes("application/json", odd(wire)));
        let envelope = taken(&ana, &turn(&id, "t1", "What time is it?")).await;
        assert_eq!((&envelope["RawResponseJson"], &envelope["ToolCalls"]), (&json!(odd(wire)), &json!([])));
        let shown = standing(&ana, &id, "t1").await;
        let [call] = shown["ServerToolCalls"].as_array().expect("calls are a list").as_slice() else {
            unreachable!("one call was run: {shown}")
        };
        assert_eq!((&call["Name"], &call["ArgumentsJson"]), (&json!("clock"), &json!("{}")), "{shown}");
        assert!(call["ResultJson"].is_string() && call["ErrorMessage"].is_null(), "{shown}");
    }
}

// right C2, right C4
#[tokio::test]
async fn a_failure_is_told_as_the_models_server_told_it() {
    // R004-28, R004-29
    let refused = |status: u16, body: &str| Reply::bytes("application/json", body.to_owned()).with_status(status);
    let cases: Vec<(Reply, &str, Option<&str>, Value)> = vec![
        (
            refused(429, r#"{ "error": {"message":"Slow down","type":"requests","code":"rate_limit_exceeded","x":1}}"#),
            "rate_limit_exceeded",
            Some("Slow down"),
            json!(r#"{ "error": {"message":"Slow down","type":"requests","code":"rate_limit_exceeded","x":1}}"#),
        ),
        (
            refused(400, r#"{"error":{"message":"maximum context length is 9","type":"invalid_request_error"}}"#),
            "context_length_exceeded",
            Some("maximum context length is 9"),
            json!(r#"{"error":{"message":"maximum context length is 9","type":"invalid_request_error"}}"#),
        ),
        (
            refused(400, r#"{"error":{"message":"Filtered","code":"content_filter"}}"#),
            "content_filter",
            Some("Filtered"),
            json!(r#"{"error":{"message":"Filtered","code":"content_filter"}}"#),
        ),
        (
            refused(500, r#"{"error":{"message":"Broken","type":"kaputt_error"}}"#),
            "kaputt_error",
            Some("Broken"),
            json!(r#"{"error":{"message":"Broken","type":"kaputt_error"}}"#),
        ),
        (refused(502, "{\"error\": "), "json-parse-failure", None, json!("{\"error\": ")),
        (
            Reply::html(502, "Bad gateway"),
            "json-parse-failure",
            None,
            json!("<!DOCTYPE html><html><body><h1>Bad gateway</h1></body></html>"),
        ),
        (
            Reply::html(200, "Hello"),
            "json-parse-failure",
            None,
            json!("<!DOCTYPE html><html><body><h1>Hello</h1></body></html>"),
        ),
        (Reply::bytes("application/json", ""), "empty-json", None, Value::Null),
        (Reply::bytes("application/json", "{\"id\":\"r\"}"), "missing-output", None, json!("{\"id\":\"r\"}")),
        (Reply::close(), "server_error", None, Value::Null),
    ];
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        for (number, (reply, code, message, raw)) in cases.iter().enumerate() {
            desk.replies(Wire::Responses, reply.clone());
            let envelope = taken(&ana, &turn(&id, &format!("t{number}"), "Hello")).await;
            assert_eq!(envelope["Kind"], "error", "{envelope}");
            assert_eq!(
                (&envelope["ErrorCode"], &envelope["RawResponseJson"]),
                (&json!(code), raw),
                "{} {envelope}",
                store.name
            );
            if let Some(message) = message {
                assert_eq!(envelope["ErrorMessage"], *message, "{envelope}");
            }
        }
    }
}

// right C2
#[tokio::test]
async fn our_own_key_is_struck_out_of_the_raw_response() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        let key = "sk-responses";
        let body = format!("{{\"error\":{{\"message\":\"wrong key {key}\",\"code\":\"invalid_api_key\"}}}}");
        desk.replies(Wire::Responses, Reply::bytes("application/json", body).with_status(401));
        let envelope = taken(&ana, &turn(&id, "t1", "Hello")).await;
        assert!(!envelope.to_string().contains(key), "{envelope}");
        assert_eq!(
            (&envelope["ErrorCode"], &envelope["ErrorMessage"]),
            (&json!("invalid_api_key"), &json!("wrong key [redacted]"))
        );
    }
}

// right C3
#[tokio::test]
async fn usage_is_zero_where_the_upstream_reports_none_unless_estimates_are_wanted() {
    let silent = json!({"id": "r", "object": "response", "model": "m", "status": "completed", "output": [
        {"type": "message", "id": "m", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "Hello there", "annotations": []}]}]});
    for store in stores() {
        for (setting, estimated) in [("", false), ("[execute]\nestimate_usage = true\n", true)] {
            let desk = Desk::with(&store, Setup::new().extra(setting)).await;
            let ana = desk.user("ana");
            let id = open(&ana, Wire::Responses).await;
            desk.replies(Wire::Responses, Reply::json(silent.clone()));
            let envelope = taken(&ana, &turn(&id, "t1", "Hello")).await;
            let total = envelope["Usage"]["TotalTokens"].as_u64().expect("usage has a total");
            let warned = envelope["Warnings"].to_string().contains("estimated");
            assert_eq!((total > 0, warned), (estimated, estimated), "{} {envelope}", store.name);
        }
    }
}

// right C3
#[tokio::test]
async fn usage_is_the_sum_of_the_calls_that_are_reported_and_the_others_are_estimated_where_that_is_wanted() {
    let silent = |output: Value| {
        Reply::json(json!({"id": "r", "object": "response", "model": "m", "status": "completed", "output": [output]}))
    };
    let call = json!({"type": "function_call", "id": "f", "call_id": "call_1", "name": "clock", "arguments": "{}"});
    let message = json!({"type": "message", "id": "m", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Noon.", "annotations": []}]});
    let wire = Wire::Responses;
    // What the scripted model reports of each call.
    let reported = json!({"PromptTokens": 11, "CompletionTokens": 7, "TotalTokens": 18});
    for store in stores() {
        for (setting, estimated) in [("", false), ("[execute]\nestimate_usage = true\n", true)] {
            let desk = Desk::with(&store, Setup::new().extra(setting)).await;
            let ana = desk.user("ana");
            for last_reports in [true, false] {
                let id = open(&ana, wire).await;
                match last_reports {
                    true => {
                        desk.replies(wire, silent(call.clone()));
                        desk.says(wire, [Script::text(&["Noon."])]);
                    }
                    false => {
                        desk.says(wire, [Script::new([Said::call("call_1", "clock", &["{}"])])]);
                        desk.replies(wire, silent(message.clone()));
                    }
                }
                let body = turn(&id, "t1", "What time is it?");
                let envelope = taken(&ana, &body).await;
                assert_eq!(envelope["Text"], "Noon.", "{envelope}");
                let warned = envelope["Warnings"].to_string().contains("estimated in part");
                assert_eq!(warned, estimated, "{} {envelope}", store.name);
                match estimated {
                    false => assert_eq!(envelope["Usage"], reported, "{} {envelope}", store.name),
                    true => {
                        let tokens = |name: &str| envelope["Usage"][name].as_u64().unwrap_or_default();
                        assert!(tokens("PromptTokens") > 11, "{} {envelope}", store.name);
                        assert!(tokens("CompletionTokens") > 7, "{} {envelope}", store.name);
                        let sum = tokens("PromptTokens") + tokens("CompletionTokens");
                        assert_eq!(tokens("TotalTokens"), sum, "{} {envelope}", store.name);
                    }
                }
                assert_eq!(taken(&ana, &body).await, envelope, "{}: told again", store.name);
            }
        }
    }
}

// right C4
#[tokio::test]
async fn an_output_that_is_one_object_and_a_reason_to_stop_are_read_as_they_came() {
    // R004-13, R004-29
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        let body = json!({"id": "r", "model": "real-2", "output": {"type": "message", "role": "assistant",
            "finish_reason": "rested", "content": [{"type": "output_text", "text": "One."}]}});
        desk.replies(Wire::Responses, Reply::json(body));
        let envelope = taken(&ana, &turn(&id, "t1", "Hello")).await;
        let told = ["Kind", "Text", "FinishReason", "ModelId"].map(|name| envelope[name].clone());
        assert_eq!(told, [json!("ok"), json!("One."), json!("rested"), json!("real-2")], "{} {envelope}", store.name);
    }
}
