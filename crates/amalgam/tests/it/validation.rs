//! Requests that are wrong: which error, in which order, and that no upstream is asked because of them.

mod limits;
mod mutations;

use amalgam_testkit::{Amalgam, Reply, Setup};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    BINARY, Delivery, Script, Wire, World, assert_calm, assert_refusal, assert_refused, error_of, text_of,
};

const MODEL: &str = "m-chat";

async fn stored() -> World {
    World::start().await
}

async fn stateless() -> World {
    World::with(Setup::new().stateless(), &[]).await
}

/// Sends a good request and wants an answer, so that a refusal before it was about the request alone.
async fn assert_serves(world: &World, request: &Value) {
    world.upstream(Wire::Chat).enqueue(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Whole));
    let answer = world.amalgam.client().post_json("/v1/responses", request).await;
    assert_eq!(answer.status, 200, "{request}: {}", answer.text());
    assert_eq!(text_of(&answer.json()), "fine");
}

#[tokio::test]
async fn a_stateless_tenant_refuses_a_previous_response() {
    // RAM-03
    let world = stateless().await;
    let request = json!({"model": MODEL, "input": "Hi", "previous_response_id": "resp_AM-1-x"});
    let answer = world.refused(&request).await;
    assert_refused(&answer, 400, Some("previous_response_id"), "unsupported_parameter");
    let message = error_of(&answer)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("`input`"), "it tells to send the whole history: {message}");
}

#[tokio::test]
async fn a_stateless_tenant_refuses_a_conversation() {
    // RAM-04
    let world = stateless().await;
    for conversation in [json!("conv_1"), json!({"id": "conv_1"})] {
        let answer = world.refused(&json!({"model": MODEL, "input": "Hi", "conversation": conversation})).await;
        assert_refused(&answer, 400, Some("conversation"), "unsupported_parameter");
    }
}

#[tokio::test]
async fn state_that_is_empty_null_or_absent_is_fine_for_every_tenant() {
    // RAM-05
    for world in [stored().await, stateless().await] {
        for (previous, conversation) in [(json!(""), json!("")), (Value::Null, Value::Null)] {
            let request = json!({
                "model": MODEL, "input": "Hi", "previous_response_id": previous, "conversation": conversation,
            });
            assert_serves(&world, &request).await;
        }
        assert_serves(&world, &json!({"model": MODEL, "input": "Hi"})).await;
    }
}

#[tokio::test]
async fn faults_are_told_in_the_published_order() {
    // RAM-05: previous_response_id, conversation, model, input
    let world = stateless().await;
    let mut request = json!({"previous_response_id": "resp_1", "conversation": "conv_1", "model": "", "input": ""});
    for (key, code) in [
        ("previous_response_id", "unsupported_parameter"),
        ("conversation", "unsupported_parameter"),
        ("model", "missing_required_parameter"),
        ("input", "missing_required_parameter"),
    ] {
        assert_refused(&world.refused(&request).await, 400, Some(key), code);
        request[key] = match key {
            "model" => json!("no-such-model"),
            "input" => json!("Hi"),
            _ => Value::Null,
        };
    }
    // Only then is the name looked up.
    assert_refused(&world.refused(&request).await, 404, Some("model"), "model_not_found");
}

#[tokio::test]
async fn a_stored_tenant_does_not_find_what_was_never_kept() {
    // C-17
    let world = stored().await;
    let unknown = json!({"model": MODEL, "input": "Hi", "previous_response_id": "resp_AM-1700000000000-abc"});
    let answer = world.refused(&unknown).await;
    assert_refused(&answer, 400, Some("previous_response_id"), "previous_response_not_found");
    let answer = world.refused(&json!({"model": MODEL, "input": "Hi", "conversation": "conv_1"})).await;
    assert_refused(&answer, 404, Some("conversation"), "conversation_not_found");
    let both = json!({"model": MODEL, "input": "Hi", "previous_response_id": "resp_1", "conversation": "conv_1"});
    assert_eq!(world.refused(&both).await.status, 400);
}

#[tokio::test]
async fn a_response_that_was_not_stored_cannot_be_gone_on_from() {
    // C-17: an id that was really given out, with `store` off
    let world = stored().await;
    let script = Script::text(&["one"]);
    let first = world.whole(Wire::Chat, &script, &json!({"input": "Hi", "store": false})).await;
    assert_eq!(first["store"], false);
    let next = json!({"model": MODEL, "input": "And?", "previous_response_id": first["id"]});
    let answer = world.amalgam.client().post_json("/v1/responses", &next).await;
    assert_refused(&answer, 400, Some("previous_response_id"), "previous_response_not_found");
}

#[tokio::test]
async fn a_model_is_required() {
    // RAM-06
    for world in [stored().await, stateless().await] {
        for request in
            [json!({"input": "Hi"}), json!({"model": "", "input": "Hi"}), json!({"model": null, "input": "Hi"})]
        {
            assert_refused(&world.refused(&request).await, 400, Some("model"), "missing_required_parameter");
        }
    }
}

#[tokio::test]
async fn input_or_instructions_are_required_and_an_empty_list_counts_as_input() {
    // RAM-07
    for world in [stored().await, stateless().await] {
        let missing = [
            json!({"model": MODEL}),
            json!({"model": MODEL, "input": ""}),
            json!({"model": MODEL, "input": null, "instructions": ""}),
            json!({"model": MODEL, "input": "", "instructions": null}),
        ];
        for request in missing {
            assert_refused(&world.refused(&request).await, 400, Some("input"), "missing_required_parameter");
        }
        for request in [
            json!({"model": MODEL, "input": []}),
            json!({"model": MODEL, "instructions": "Speak."}),
            json!({"model": MODEL, "input": "", "instructions": "Speak."}),
        ] {
            assert_serves(&world, &request).await;
        }
    }
}

#[tokio::test]
async fn an_unknown_model_is_not_found() {
    // RAM-08, RAM-41
    for world in [stored().await, stateless().await] {
        for model in ["no-such-model", "chat/", "unknown/m", "/", "../m-chat", "M-CHAT", " m-chat"] {
            let request = json!({"model": model, "input": "Hi", "stream": true});
            assert_refused(&world.refused(&request).await, 404, Some("model"), "model_not_found");
        }
        let wrong = json!({"model": "no-such-model", "input": "Hi", "temperature": 9});
        let answer = world.refused(&wrong).await;
        assert_refused(&answer, 400, Some("temperature"), "invalid_value");
    }
}

#[tokio::test]
async fn a_reference_to_an_item_is_refused_by_its_place() {
    // RAM-09, C-24
    let reference = json!({"type": "item_reference", "id": "msg_1"});
    let request = json!({"model": MODEL, "input": [{"role": "user", "content": "Hi"}, reference]});
    let answer = stateless().await.refused(&request).await;
    assert_refused(&answer, 400, Some("input[1]"), "unsupported_parameter");
    let answer = stored().await.refused(&request).await;
    assert_refused(&answer, 400, Some("input[1]"), "item_not_found");
}

#[tokio::test]
async fn a_place_in_the_input_counts_entries_that_are_passed_by() {
    // RAM-17, C-24: the caller counts in what it has sent
    let world = stateless().await;
    let request = json!({"model": MODEL, "input": [null, {"role": "user", "content": "Hi"}, null, {"type": "item_reference", "id": "x"}]});
    assert_refused(&world.refused(&request).await, 400, Some("input[3]"), "unsupported_parameter");
    let request = json!({"model": MODEL, "input": [null, {"role": "user", "content": 5}]});
    assert_refused(&world.refused(&request).await, 400, Some("input[1].content"), "invalid_type");
}

#[tokio::test]
async fn a_body_that_is_not_json_is_refused_without_a_param() {
    // RAM-10, P9
    let world = stored().await;
    let client = world.amalgam.client();
    let nested = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let bodies: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b" \n ".to_vec(),
        b"{".to_vec(),
        b"{\"model\": \"m-chat\", }".to_vec(),
        b"{'model': 'm-chat'}".to_vec(),
        b"{\"model\": NaN}".to_vec(),
        b"{\"model\": \"a\nb\"}".to_vec(),
        b"{\"model\": \"\\x\"}".to_vec(),
        b"{\"model\": \"m-chat\"} {}".to_vec(),
        b"\xef\xbb\xbf{}".to_vec(),
        b"{\"model\": \"\xff\xfe\"}".to_vec(),
        b"{\"model\": \"\xed\xa0\x80\"}".to_vec(),
        b"\x00\x00\x00".to_vec(),
        b"model=m-chat&input=Hi".to_vec(),
        b"{\"temperature\": 01}".to_vec(),
        b"{\"temperature\": .5}".to_vec(),
        b"{\"temperature\": 1e}".to_vec(),
        nested.into_bytes(),
    ];
    for body in bodies {
        let shown = String::from_utf8_lossy(&body).chars().take(40).collect::<String>();
        let answer = client.post_raw("/v1/responses", "application/json", body).await;
        assert_eq!(answer.status, 400, "{shown:?}: {}", answer.text());
        assert_refused(&answer, 400, None, "invalid_json");
    }
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn json_that_is_not_an_object_is_refused() {
    let world = stored().await;
    for body in ["null", "true", "5", "\"Hi\"", "[]", "[{\"model\":\"m-chat\"}]"] {
        let answer = world.amalgam.client().post_raw("/v1/responses", "application/json", body).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        assert_refusal(&answer);
    }
}

#[tokio::test]
async fn a_value_of_the_wrong_type_is_named_by_its_path() {
    let world = stored().await;
    let item = |item: Value| json!({"model": MODEL, "input": [{"role": "user", "content": "Hi"}, item]});
    let with = |key: &str, value: Value| json!({"model": MODEL, "input": "Hi", key: value});
    let cases = [
        (with("model", json!(5)), "model", "invalid_type"),
        (with("input", json!(5)), "input", "invalid_type"),
        (with("input", json!({"role": "user"})), "input", "invalid_type"),
        (with("instructions", json!(true)), "instructions", "invalid_type"),
        (with("previous_response_id", json!(5)), "previous_response_id", "invalid_type"),
        (with("stream", json!("yes")), "stream", "invalid_type"),
        (with("store", json!(1)), "store", "invalid_type"),
        (with("temperature", json!("hot")), "temperature", "invalid_type"),
        (with("temperature", json!(2.5)), "temperature", "invalid_value"),
        (with("top_p", json!(-0.1)), "top_p", "invalid_value"),
        (with("max_output_tokens", json!(0)), "max_output_tokens", "invalid_value"),
        (with("max_output_tokens", json!(-1)), "max_output_tokens", "invalid_value"),
        (with("max_output_tokens", json!(1.5)), "max_output_tokens", "invalid_value"),
        (with("max_output_tokens", json!("16")), "max_output_tokens", "invalid_type"),
        (with("top_logprobs", json!(21)), "top_logprobs", "invalid_value"),
        (with("truncation", json!("maybe")), "truncation", "invalid_value"),
        (with("tool_choice", json!("sometimes")), "tool_choice", "invalid_value"),
        (with("tool_choice", json!({"name": "x"})), "tool_choice.type", "missing_required_parameter"),
        (with("tool_choice", json!({"type": "function"})), "tool_choice.name", "missing_required_parameter"),
        (with("tools", json!({})), "tools", "invalid_type"),
        (with("tools", json!(["x"])), "tools[0]", "invalid_type"),
        (with("tools", json!([{"name": "x"}])), "tools[0].type", "missing_required_parameter"),
        (with("tools", json!([{"type": "function"}])), "tools[0].name", "missing_required_parameter"),
        (with("tools", json!([{"type": "function", "name": 5}])), "tools[0].name", "invalid_type"),
        (
            with("tools", json!([{"type": "function", "name": "f", "parameters": "x"}])),
            "tools[0].parameters",
            "invalid_type",
        ),
        (with("text", json!("json")), "text", "invalid_type"),
        (with("text", json!({"format": {}})), "text.format.type", "missing_required_parameter"),
        (
            with("text", json!({"format": {"type": "json_schema", "name": "x"}})),
            "text.format.schema",
            "missing_required_parameter",
        ),
        (
            with("text", json!({"format": {"type": "json_schema", "schema": {}}})),
            "text.format.name",
            "missing_required_parameter",
        ),
        (with("reasoning", json!("high")), "reasoning", "invalid_type"),
        (with("reasoning", json!({"effort": 5})), "reasoning.effort", "invalid_type"),
        (with("include", json!("usage")), "include", "invalid_type"),
        (with("include", json!([5])), "include[0]", "invalid_type"),
        (with("metadata", json!([])), "metadata", "invalid_type"),
        (item(json!("x")), "input[1]", "invalid_type"),
        (item(json!({"role": 5, "content": "x"})), "input[1].role", "invalid_type"),
        (item(json!({"role": "user", "content": 5})), "input[1].content", "invalid_type"),
        (item(json!({"role": "user", "content": [5]})), "input[1].content[0]", "invalid_type"),
        (
            item(json!({"role": "user", "content": [{"type": "input_text", "text": 5}]})),
            "input[1].content[0].text",
            "invalid_type",
        ),
        (
            item(json!({"type": "function_call", "name": "f", "arguments": "{}"})),
            "input[1].call_id",
            "missing_required_parameter",
        ),
        (
            item(json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}})),
            "input[1].arguments",
            "invalid_type",
        ),
        (
            item(json!({"type": "function_call_output", "output": "x"})),
            "input[1].call_id",
            "missing_required_parameter",
        ),
    ];
    for (request, param, code) in cases {
        let answer = world.refused(&request).await;
        let error = error_of(&answer);
        let found = (answer.status.as_u16(), error["param"].as_str(), error["code"].as_str(), error["type"].as_str());
        assert_eq!(found, (400, Some(param), Some(code), Some("invalid_request_error")), "{request}: {error}");
        assert!(error["message"].as_str().unwrap().contains(param), "the message names it too: {error}");
    }
}

#[tokio::test]
async fn numbers_beyond_every_bound_do_no_harm() {
    let world = stored().await;
    let client = world.amalgam.client();
    let huge = "9".repeat(5000);
    for (field, value, fine) in [
        ("temperature", "1e999", false),
        ("temperature", "-1e999", false),
        ("temperature", "1e-999", true),
        ("max_output_tokens", "99999999999999999999999999", false),
        ("max_output_tokens", "1e400", false),
        ("top_logprobs", huge.as_str(), false),
        ("x_unknown", huge.as_str(), true),
        ("x_unknown", "1e999999999", true),
        ("x_unknown", "-0.0", true),
    ] {
        if fine {
            world.upstream(Wire::Chat).enqueue(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Whole));
        }
        let body = format!("{{\"model\":\"m-chat\",\"input\":\"Hi\",\"{field}\":{value}}}");
        let answer = client.post_raw("/v1/responses", "application/json", body).await;
        let shown: String = value.chars().take(30).collect();
        assert_eq!(answer.status == 200, fine, "{field} {shown}: {}", answer.text());
        if !fine {
            assert_eq!(assert_refusal(&answer)["param"], field);
        }
    }
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn odd_but_valid_json_is_answered() {
    let world = stored().await;
    let bodies = [
        r#"{"model":"unknown","model":"m-chat","input":"a","input":"Hi"}"#,
        r#"{"\u006dodel":"m-chat","\u0069nput":"Hi"}"#,
        r#"{"model":"m-chat","input":"\ud83e\udd80 \u0000 \ud800 \udc00"}"#,
        "\r\n\t {\"model\" : \"m-chat\" ,\r\n \"input\" : \"Hi\"} \n",
        r#"{"model":"m-chat","input":[{"role":"user","role":"assistant","content":"a","content":"b"}]}"#,
        r#"{"":"","model":"m-chat","input":"Hi"}"#,
    ];
    for body in bodies {
        world.upstream(Wire::Chat).enqueue(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Whole));
        let answer = world.amalgam.client().post_raw("/v1/responses", "application/json", body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        let sent = &world.upstream(Wire::Chat).requests().last().unwrap().body.clone();
        assert!(std::str::from_utf8(sent).is_ok_and(|sent| sent.starts_with('{')), "{body}");
    }
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_are_told_in_the_doors_own_shape() {
    let world = stored().await;
    let client = world.amalgam.client();
    for path in [
        "//",
        "/v1",
        "/v1/",
        "/v1/response",
        "/v1/responses/",
        "/v1/responses/x/y/z",
        "/V1/responses",
        "/v2/responses",
        "/%00",
        "//v1/responses",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let answer = client.request(method.clone(), path, &[], Bytes::new()).await;
            assert!([404, 405].contains(&answer.status.as_u16()), "{method} {path}: {}", answer.status);
            assert_refusal(&answer);
        }
    }
    for (method, path) in [
        (Method::PUT, "/v1/responses"),
        (Method::PATCH, "/v1/responses"),
        (Method::POST, "/v1/models"),
        (Method::DELETE, "/v1/models/m-chat"),
        (Method::POST, "/healthz"),
        (Method::POST, "/"),
        (Method::DELETE, "/docs/clients.md"),
        (Method::from_bytes(b"BREW").unwrap(), "/v1/responses"),
    ] {
        let answer = client.request(method.clone(), path, &[], Bytes::new()).await;
        assert_eq!(answer.status, 405, "{method} {path}: {}", answer.text());
        assert_eq!(assert_refusal(&answer)["code"], "method_not_allowed");
        assert!(answer.header("allow").is_some(), "{method} {path}: a 405 lists what is allowed");
    }
}

#[tokio::test]
async fn only_json_is_taken() {
    let world = stored().await;
    let client = world.amalgam.client();
    let body = json!({"model": MODEL, "input": "Hi"}).to_string();
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "",
        "json",
    ] {
        let answer = client.post_raw("/v1/responses", content_type, body.clone()).await;
        assert_refused(&answer, 415, None, "unsupported_media_type");
    }
    let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
    let answer = client.request(Method::POST, "/v1/responses", &headers, body.clone().into()).await;
    assert_refused(&answer, 415, None, "unsupported_media_type");
    for content_type in
        ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.api+json"]
    {
        world.upstream(Wire::Chat).enqueue(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Whole));
        let answer = client.post_raw("/v1/responses", content_type, body.clone()).await;
        assert_eq!(answer.status, 200, "{content_type}: {}", answer.text());
    }
    let answer = client.request(Method::POST, "/v1/responses", &[], body.into()).await;
    assert_refused(&answer, 415, None, "unsupported_media_type");
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_let_go() {
    // P8
    let setup = Setup::new().extra("[server]\nbody_timeout = \"300ms\"");
    let amalgam = Amalgam::start(BINARY, setup).await;
    for sent in ["", "{\"model\":"] {
        let mut socket = amalgam.client().connect().await;
        let head =
            "POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n";
        socket.write_all(format!("{head}{sent}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = tokio::time::timeout(crate::support::SOON, socket.read_to_string(&mut answer)).await;
        read.expect("the server hangs up").unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
        let envelope: Value = serde_json::from_str(body).unwrap();
        assert_eq!(amalgam_testkit::check::error(&envelope), Vec::<String>::new());
        assert_eq!(envelope["error"]["code"], "request_timeout");
    }
}

#[tokio::test]
async fn a_template_prompt_is_refused_rather_than_ignored() {
    let world = stored().await;
    let request = json!({"model": MODEL, "input": "Hi", "prompt": {"id": "pmpt_1"}});
    assert_refused(&world.refused(&request).await, 400, Some("prompt"), "unsupported_parameter");
}

#[tokio::test]
async fn a_refused_request_leaves_the_upstream_free_for_the_next_one() {
    let world = World::with(Setup::new().extra("[limits]\nmax_in_flight = 1"), &[]).await;
    for _ in 0..5 {
        let answer = world.amalgam.client().post_json("/v1/responses", &json!({"model": MODEL})).await;
        assert_eq!(answer.status, 400);
        world.upstream(Wire::Chat).enqueue(Reply::status(400).with_json(json!({"error": {"message": "no"}})));
        let answer = world.amalgam.client().post_json("/v1/responses", &json!({"model": MODEL, "input": "Hi"})).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    assert_serves(&world, &json!({"model": MODEL, "input": "Hi"})).await;
}
