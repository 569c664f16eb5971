//! R004-08 concerns who stores and chains; R004-33 asks that a streamed end is mapped by the same function, which is
//! given its `response` object. R004-34 is this file.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn identity() -> ExecuteIdentity {
    ExecuteIdentity {
        conversation_id: "session-1".to_owned(),
        turn_id: Some("turn-1".to_owned()),
        agent_context_id: Some("agent-1".to_owned()),
        conversation_context_id: Some("context-1".to_owned()),
        mode: "CODE_EDIT".to_owned(),
    }
}

fn mapped(response: &Value) -> AgentExecuteResponse {
    mapped_text(&response.to_string())
}

fn mapped_text(response: &str) -> AgentExecuteResponse {
    AgentExecuteResponse::from_response(identity(), Raw::parse(response.as_bytes()).unwrap())
}

fn written(envelope: &AgentExecuteResponse, casing: Casing, raw: RawResponses) -> Value {
    let mut writer = Writer::default();
    envelope.write(&mut writer, casing, raw);
    serde_json::from_slice(writer.bytes()).unwrap()
}

/// A response with these items, in the shape of a real one.
fn real(output: Value) -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "error": null,
        "incomplete_details": null, "model": "gpt-test", "output": output,
        "usage": {"input_tokens": 36, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 87,
                  "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 123},
        "something_new": {"kept": true},
    })
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn message(content: Value) -> Value {
    json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content})
}

fn said(text: &str) -> Value {
    message(json!([{"type": "output_text", "text": text, "annotations": []}]))
}

fn call(id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "look", "arguments": arguments, "status": "completed"})
}

fn calls(envelope: &AgentExecuteResponse) -> Vec<(String, String, Option<String>)> {
    let told = |call: &AgentToolCall| {
        (call.call_id.clone(), call.name.clone(), call.arguments_json.as_ref().map(Literal::decode))
    };
    envelope.tool_calls.iter().map(told).collect()
}

fn look(id: &str, arguments: &str) -> (String, String, Option<String>) {
    (id.to_owned(), "look".to_owned(), Some(arguments.to_owned()))
}

#[test]
fn an_envelope_has_every_field() {
    // R004-01, R004-02, R004-03, R004-04, R004-05, R004-06, R004-26, R004-27
    let response = real(json!([said("Hello."), call("call_1", "{\"a\": 1}")]));
    let mut envelope = mapped(&response);
    let expected = json!({
        "Kind": "ok",
        "ConversationId": "session-1",
        "TurnId": "turn-1",
        "AgentContextId": "agent-1",
        "ConversationContextId": "context-1",
        "ResponseContinuationId": "resp_1",
        "Mode": "CODE_EDIT",
        "ModelId": "gpt-test",
        "Text": "Hello.",
        "FinishReason": "tool_use",
        "Usage": {"PromptTokens": 36, "CompletionTokens": 87, "TotalTokens": 123},
        "Sources": [],
        "FileBundle": null,
        "Warnings": [],
        "ErrorCode": null,
        "ErrorMessage": null,
        "RawResponseJson": response.to_string(),
        "ToolCalls": [{"CallId": "call_1", "Name": "look", "ArgumentsJson": "{\"a\": 1}"}],
    });
    assert_eq!(written(&envelope, Casing::Pascal, RawResponses::Exposed), expected);

    envelope.sources = vec![SourceRef {
        id: "chunk-1".to_owned(),
        path: "a.rs".to_owned(),
        start_line: 3,
        end_line: 9,
        language: "rust".to_owned(),
    }];
    envelope.warnings = vec!["context was truncated".to_owned()];
    envelope.file_bundle = Some(Json::from(Raw::parse(br#"{"Files":[]}"#).unwrap()));
    let body = written(&envelope, Casing::Pascal, RawResponses::Hidden);
    let source = json!({"Id": "chunk-1", "Path": "a.rs", "StartLine": 3, "EndLine": 9, "Language": "rust"});
    assert_eq!(
        (&body["Sources"], &body["Warnings"], &body["FileBundle"], &body["RawResponseJson"]),
        (&json!([source]), &json!(["context was truncated"]), &json!({"Files": []}), &Value::Null)
    );
}

#[test]
fn names_may_be_in_camel_case() {
    let envelope = mapped(&real(json!([call("call_1", "{}")])));
    let body = written(&envelope, Casing::Camel, RawResponses::Hidden);
    let expected = json!({
        "kind": "tool-only", "conversationId": "session-1", "turnId": "turn-1", "agentContextId": "agent-1",
        "conversationContextId": "context-1", "responseContinuationId": "resp_1", "mode": "CODE_EDIT",
        "modelId": "gpt-test", "text": null, "finishReason": "tool_use",
        "usage": {"promptTokens": 36, "completionTokens": 87, "totalTokens": 123},
        "sources": [], "fileBundle": null, "warnings": [], "errorCode": null, "errorMessage": null,
        "rawResponseJson": null,
        "toolCalls": [{"callId": "call_1", "name": "look", "argumentsJson": "{}"}],
    });
    assert_eq!(body, expected);
}

#[test]
fn a_turn_without_a_name_has_the_responses_id() {
    // R004-05
    let unnamed = ExecuteIdentity { turn_id: None, ..identity() };
    let body = real(json!([said("x")])).to_string();
    let envelope = AgentExecuteResponse::from_response(unnamed, Raw::parse(body.as_bytes()).unwrap());
    assert_eq!(written(&envelope, Casing::Pascal, RawResponses::Hidden)["TurnId"], "resp_1");
}

#[test]
fn usage_is_read_in_both_vocabularies() {
    // R004-09, R004-10, R004-11, R004-12, C-08
    let cases = [
        (json!({"prompt_tokens": 210, "completion_tokens": 310, "total_tokens": 520}), (210, 310, 520)),
        (json!({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}), (1, 2, 3)),
        (json!({"prompt_tokens": 5, "input_tokens": 9, "completion_tokens": 6, "output_tokens": 9}), (5, 6, 11)),
        (json!({"input_tokens": 4, "output_tokens": 5}), (4, 5, 9)),
        (json!({"input_tokens": 4, "output_tokens": 5, "total_tokens": 0}), (4, 5, 0)),
        (json!({"input_tokens": 4}), (4, 0, 4)),
        (json!({"prompt_tokens": null, "input_tokens": 4, "output_tokens": "7", "total_tokens": -1}), (4, 0, 4)),
        (json!({}), (0, 0, 0)),
        (json!(null), (0, 0, 0)),
        (json!([1]), (0, 0, 0)),
    ];
    for (usage, (prompt_tokens, completion_tokens, total_tokens)) in cases {
        let expected = LlmUsage { prompt_tokens, completion_tokens, total_tokens };
        let envelope = mapped(&with(real(json!([said("x")])), json!({"usage": usage})));
        assert_eq!((envelope.usage, envelope.failure), (expected, None), "{usage}");
    }
    let mut without = real(json!([said("x")]));
    without.as_object_mut().unwrap().remove("usage");
    assert_eq!(mapped(&without).usage, LlmUsage::default());
}

#[test]
fn an_explicit_finish_reason_wins_and_the_last_of_several() {
    // R004-13, R004-14
    let cases = [
        (
            json!([{"type": "output_text", "text": "a", "finish_reason": "stop"},
                {"type": "tool_call", "tool_call": {"id": "c", "name": "f", "finish_reason": "tool_use"}}]),
            "tool_use",
        ),
        (json!([{"type": "function_call", "call_id": "c", "name": "f", "finish_reason": "other"}]), "other"),
        (
            json!([{"type": "message", "finish_reason": "length", "content": [
            {"type": "output_text", "text": "a", "finish_reason": "stop"}]}]),
            "length",
        ),
        (
            json!([{"type": "output_text", "text": "a", "finish_reason": "stop"}, {"type": "reasoning", "finish_reason": "odd"}]),
            "odd",
        ),
        (
            json!([{"type": "output_text", "text": "a", "finish_reason": "stop"}, {"type": "x", "finish_reason": " "}]),
            "stop",
        ),
        (
            json!([{"type": "output_text", "text": "a", "finish_reason": "stop"}, {"type": "x", "finish_reason": null}]),
            "stop",
        ),
    ];
    for (output, expected) in cases {
        assert_eq!(mapped(&real(output.clone())).finish_reason.as_deref(), Some(expected), "{output}");
    }
}

#[test]
fn a_finish_reason_is_derived_where_the_wire_has_none() {
    // R004-15, C-09
    let incomplete = |reason: Value| json!({"status": "incomplete", "incomplete_details": reason});
    let cases = [
        (json!([said("x")]), json!({}), "stop"),
        (json!([said("x")]), json!({"status": null}), "stop"),
        (json!([]), json!({}), "stop"),
        (json!([said("x"), call("c", "{}")]), json!({}), "tool_use"),
        (json!([said("x")]), incomplete(json!({"reason": "max_output_tokens"})), "length"),
        (json!([said("x")]), incomplete(json!({"reason": "content_filter"})), "content_filter"),
        (json!([said("x")]), incomplete(json!({"reason": "max_tool_iterations"})), "tool_iterations"),
        (json!([said("x")]), incomplete(json!({"reason": "max_tool_calls"})), "tool_iterations"),
        (json!([said("x")]), incomplete(json!({"reason": "max_turn_tokens"})), "length"),
        (json!([said("x")]), incomplete(json!(null)), "length"),
        (json!([said("x")]), json!({"status": "failed", "error": {"code": "server_error", "message": "m"}}), "error"),
    ];
    for (output, more, expected) in cases {
        let envelope = mapped(&with(real(output), more.clone()));
        assert_eq!(envelope.finish_reason.as_deref(), Some(expected), "{more}");
    }
}

#[test]
fn text_is_everything_said_joined_by_blank_lines() {
    // R004-16, R004-17, R004-18, R004-19, C-21
    let cases = [
        (json!([said("one"), said("two")]), Some("one\n\ntwo")),
        (json!([{"type": "output_text", "text": "top"}, said("in")]), Some("top\n\nin")),
        (
            json!([message(json!([{"type": "OUTPUT_TEXT", "text": "a"}, {"type": "text", "text": "b"}]))]),
            Some("a\n\nb"),
        ),
        (json!([message(json!("plain"))]), Some("plain")),
        // Blank ones leave no doubled separator, and nothing is trimmed.
        (json!([said(" a\n"), said(" \n"), said(""), said("b")]), Some(" a\n\n\nb")),
        (json!([said("before"), call("c", "{}"), said("after")]), Some("before\n\nafter")),
        (json!([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "content": []}]), None),
        (json!([call("c", "{}")]), None),
        (json!([said("  ")]), None),
        (json!([{"type": "message", "role": "user", "content": "not the model"}]), None),
        (json!([message(json!(null)), {"type": "message"}, 5, null, "x", {"type": 7}, {}]), None),
        // One item may come without a list around it.
        (said("alone"), Some("alone")),
    ];
    for (output, expected) in cases {
        assert_eq!(mapped(&real(output.clone())).text.as_deref(), expected, "{output}");
    }
}

#[test]
fn a_refusal_is_text_and_a_warning() {
    // R004-20
    let envelope = mapped(&real(json!([message(json!([
        {"type": "output_text", "text": "Well."}, {"type": "refusal", "refusal": "I cannot."}]))])));
    assert_eq!(envelope.text.as_deref(), Some("Well.\n\nI cannot."));
    assert_eq!(
        (envelope.kind(), envelope.warnings),
        (Kind::Ok, vec!["the model refused: the text holds its refusal".to_owned()])
    );
    let alone = mapped(&real(json!([message(json!([{"type": "refusal", "refusal": "No."}]))])));
    assert_eq!((alone.kind(), alone.text.as_deref()), (Kind::Ok, Some("No.")));
}

#[test]
fn calls_are_found_where_upstreams_put_them() {
    // R004-21, R004-22, R004-23, R004-25
    let output = json!([
        call("call_1", "{}"),
        {"type": "tool_call", "id": "item", "tool_call": {"id": "call_2", "name": "look", "arguments": "{\"b\":2}"}},
        message(json!([{"type": "tool_call", "tool_call": {"id": "call_3", "name": "look", "arguments": "[]"}}])),
        {"type": "tool_call", "id": "nothing inside"},
        {"type": "tool_call", "tool_call": "text"},
        {"type": "reasoning", "id": "rs_1"},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "custom_tool_call", "call_id": "ct_1", "name": "x", "input": "y"},
        {"type": "mcp_call", "id": "mcp_1", "name": "x", "arguments": "{}"},
    ]);
    let envelope = mapped(&real(output));
    assert_eq!(calls(&envelope), [look("call_1", "{}"), look("call_2", "{\"b\":2}"), look("call_3", "[]")]);
    assert_eq!((envelope.kind(), envelope.warnings), (Kind::ToolOnly, Vec::new()));
}

#[test]
fn a_call_that_the_server_answered_is_not_the_clients() {
    // R034-26
    let output = json!([
        call("mine", "{}"),
        call("yours", "{}"),
        {"type": "function_call_output", "call_id": "mine", "output": "done"},
    ]);
    assert_eq!(calls(&mapped(&real(output))), [look("yours", "{}")]);
}

#[test]
fn arguments_are_exactly_what_the_model_sent() {
    // R004-22, R004-24, C-35
    let texts = ["{ \"a\" :  1.0,\n\"a\": 2 }", "not json {", "", "\"x\"", "{\"é\":\"\\u00e9\\n\"}"];
    for text in texts {
        assert_eq!(calls(&mapped(&real(json!([call("c", text)])))), [look("c", text)]);
    }
    // Also escapes that stand for no character, and only when the upstream gave an object is anything written anew.
    let body = |arguments: &str| {
        format!(
            r#"{{"id":"r","output":[{{"type":"function_call","call_id":"c","name":"look","arguments":{arguments}}}]}}"#
        )
    };
    let exact = mapped_text(&body(r#""\ud800 \/ A""#));
    let mut writer = Writer::default();
    exact.write(&mut writer, Casing::Pascal, RawResponses::Hidden);
    let text = String::from_utf8(writer.into_bytes()).unwrap();
    assert!(text.contains(r#""ArgumentsJson":"\ud800 \/ A"}"#), "{text}");
    let object = mapped_text(&body("{ \"b\" : [1, {\"c\": \"x y\"} ], \"a\": 1e2 }"));
    assert_eq!(calls(&object), [look("c", r#"{"b":[1,{"c":"x y"}],"a":1e2}"#)]);
    for missing in ["null", "null ,\"x\":1"] {
        let envelope = mapped_text(&body(missing));
        assert_eq!(calls(&envelope), [("c".to_owned(), "look".to_owned(), None)]);
    }
}

#[test]
fn calls_that_cannot_be_run_as_they_are_come_with_a_warning() {
    // R004-23, R004-27
    let nameless = mapped(&real(json!([{"type": "function_call", "id": "fc_1", "name": "f", "arguments": "{}"}])));
    assert_eq!(calls(&nameless), [(String::new(), "f".to_owned(), Some("{}".to_owned()))]);
    assert_eq!(nameless.warnings, ["a tool call has no id, so that no result can name it"]);
    let cut = mapped(&with(
        real(
            json!([{"type": "function_call", "call_id": "c", "name": "look", "arguments": "{\"a", "status": "incomplete"}]),
        ),
        json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
    ));
    assert_eq!(
        (calls(&cut), cut.warnings),
        (vec![look("c", "{\"a")], vec!["a tool call was cut short: its arguments are not whole".to_owned()])
    );
}

#[test]
fn exactly_one_kind_applies() {
    // R004-31, R004-32, R034-27
    let failed = json!({"status": "failed", "error": {"message": "m"}});
    let cases = [
        (json!([said("x")]), json!({}), Kind::Ok),
        (json!([said("x"), call("c", "{}")]), json!({}), Kind::Ok),
        (json!([call("c", "{}")]), json!({}), Kind::ToolOnly),
        (json!([said(" \n"), call("c", "{}")]), json!({}), Kind::ToolOnly),
        (json!([]), json!({}), Kind::Empty),
        (json!([said(" ")]), json!({}), Kind::Empty),
        (json!([{"type": "reasoning"}]), json!({}), Kind::Empty),
        (json!([]), json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}), Kind::Ok),
        (json!([said("x"), call("c", "{}")]), failed.clone(), Kind::Error),
        (json!([]), failed, Kind::Error),
        // The model's own trouble, told in its own words.
        (json!([said("ERROR: context is missing")]), json!({}), Kind::Ok),
        (json!([said("x")]), json!({"error": {"message": "logical"}}), Kind::Ok),
    ];
    for (output, more, kind) in cases {
        assert_eq!(mapped(&with(real(output.clone()), more)).kind(), kind, "{output}");
    }
    let names = [Kind::Ok, Kind::ToolOnly, Kind::Error, Kind::Empty].map(Kind::name);
    assert_eq!(names, ["ok", "tool-only", "error", "empty"]);
}

#[test]
fn a_failed_response_is_an_error_that_keeps_what_is_known() {
    // R004-03, R004-28
    let response = with(
        real(json!([said("partly"), call("c", "{}")])),
        json!({"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "Slow down."}}),
    );
    let body = written(&mapped(&response), Casing::Pascal, RawResponses::Hidden);
    let expected = json!({
        "Kind": "error", "ConversationId": "session-1", "TurnId": "turn-1", "AgentContextId": "agent-1",
        "ConversationContextId": "context-1", "ResponseContinuationId": "resp_1", "Mode": "CODE_EDIT",
        "ModelId": "gpt-test", "Text": "partly", "FinishReason": "error",
        "Usage": {"PromptTokens": 36, "CompletionTokens": 87, "TotalTokens": 123},
        "Sources": [], "FileBundle": null, "Warnings": [],
        "ErrorCode": "rate_limit_exceeded", "ErrorMessage": "Slow down.", "RawResponseJson": null,
        // The client must not run the calls of a failed turn.
        "ToolCalls": [],
    });
    assert_eq!(body, expected);
}

#[test]
fn failures_have_a_code_and_a_message_and_the_identity() {
    // R004-03, R004-07, R004-28, R004-29
    let api = json!({"error": {"message": "Bad key", "type": "auth_error", "param": null, "code": "k"}});
    let failed = json!({"id": "r", "status": "failed", "error": null, "output": []});
    let cancelled = json!({"id": "r", "status": "cancelled", "output": []});
    let cases = [
        ("[]".to_owned(), "json-parse-failure", "the response must be an object, not an array"),
        (json!({"id": "r"}).to_string(), "missing-output", "the response has no output"),
        (json!({"id": "r", "output": null}).to_string(), "missing-output", "the response has no output"),
        (json!({"id": "r", "output": "x"}).to_string(), "missing-output", "the response has no output"),
        (json!({"output": []}).to_string(), "missing-id", "the response has no id"),
        (api.to_string(), "k", "Bad key"),
        (json!({"error": "just words"}).to_string(), "error", "just words"),
        (failed.to_string(), "failed", "the response failed"),
        (cancelled.to_string(), "cancelled", "the response was cancelled"),
    ];
    for (body, code, message) in cases {
        let envelope = mapped_text(&body);
        let failure = Failure { code: code.to_owned(), message: message.to_owned() };
        assert_eq!((envelope.kind(), envelope.failure), (Kind::Error, Some(failure)), "{body}");
        assert_eq!((envelope.identity, envelope.finish_reason.as_deref()), (identity(), Some("error")), "{body}");
    }
    // What is known stays, also where the output is missing.
    let known = mapped_text(r#"{"id":"r","model":"m","usage":{"input_tokens":3}}"#);
    let told = (known.response_continuation_id.as_deref(), known.model_id.as_deref(), known.usage.prompt_tokens);
    assert_eq!(told, (Some("r"), Some("m"), 3));
}

proptest! {
    #[test]
    fn anything_at_all_is_mapped_to_exactly_one_kind(
        kinds in prop::collection::vec(0_usize..12, 0..5), status in 0_usize..5, id in any::<bool>(),
    ) {
        let items = [
            said("x"), said(" "), call("c", "{}"), json!({"type": "tool_call"}), json!(null), json!([[]]), json!("x"),
            message(json!({"type": "output_text", "text": "y"})), message(json!([5, "z", null])),
            json!({"type": "function_call"}), json!({"type": "function_call", "arguments": {}}), json!({"output": 1}),
        ];
        let status = [json!("completed"), json!("failed"), json!("incomplete"), json!(7), json!(null)][status].clone();
        let output: Vec<&Value> = kinds.iter().map(|kind| &items[*kind]).collect();
        let envelope = mapped(&json!({"id": if id { json!("r") } else { json!(null) }, "status": status, "output": output}));
        let body = written(&envelope, Casing::Pascal, RawResponses::Exposed);
        let (text, calls) = (!body["Text"].is_null(), !body["ToolCalls"].as_array().unwrap().is_empty());
        let expected = match (status == "failed" || !id, text, calls) {
            (true, _, _) => "error",
            (false, true, _) => "ok",
            (false, false, true) => "tool-only",
            (false, false, false) if status == "incomplete" => "ok",
            (false, false, false) => "empty",
        };
        prop_assert_eq!(&body["Kind"], expected);
        prop_assert_eq!(body["ErrorCode"].is_null(), expected != "error");
        prop_assert_eq!(&body["ConversationId"], "session-1");
    }
}
