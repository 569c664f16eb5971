//! Requests that are too large, too deep or too many, each at the bound and one past it.

use std::time::Instant;

use amalgam_testkit::Setup;
use serde_json::{Map, Value, json};

use super::{MODEL, assert_serves};
use crate::support::{
    DELIVERIES, Delivery, SOON, Script, Wire, World, asking, assert_calm, assert_refusal, assert_refused, error_of,
};

async fn limited(limits: &str) -> World {
    World::with(Setup::new().extra(&format!("[limits]\n{limits}")), &[]).await
}

fn with(key: &str, value: Value) -> Value {
    json!({"model": MODEL, "input": "Hi", key: value})
}

fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}})
}

fn searched(call_id: &str) -> Value {
    json!({"type": "tool_search_call", "call_id": call_id, "execution": "client", "arguments": {}})
}

fn found(call_id: &str, tools: Value) -> Value {
    json!({"type": "tool_search_output", "call_id": call_id, "execution": "client", "tools": tools})
}

#[tokio::test]
async fn a_body_past_the_limit_is_too_large_and_images_count_apart() {
    let world = limited("body_bytes = \"8KiB\"\nmedia_bytes = \"16KiB\"").await;
    let image = |bytes: usize| {
        let url = format!("data:image/png;base64,{}", "A".repeat(bytes));
        let content = json!([{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": url}]);
        json!({"model": MODEL, "input": [{"role": "user", "content": content}]})
    };
    assert_serves(&world, &with("input", json!("x".repeat(7 * 1024)))).await;
    assert_serves(&world, &image(15 * 1024)).await;
    let asked = world.upstream(Wire::Chat).requests().len();
    for request in
        [with("input", json!("x".repeat(9 * 1024))), image(17 * 1024), with("input", json!("x".repeat(40 * 1024)))]
    {
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_refused(&answer, 413, None, "request_too_large");
    }
    assert_eq!(world.upstream(Wire::Chat).requests().len(), asked);
}

#[tokio::test]
async fn an_announced_length_past_the_limit_is_refused_before_it_is_sent() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = World::start().await;
    let mut socket = world.amalgam.client().connect().await;
    let head = "POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 999999999999\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 2048];
    let read = tokio::time::timeout(SOON, socket.read(&mut answer)).await.expect("an answer comes at once").unwrap();
    let answer = String::from_utf8_lossy(answer.get(..read).unwrap()).into_owned();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("request_too_large"), "{answer}");
}

#[tokio::test]
async fn depth_is_bounded() {
    // P9
    let world = limited("json_depth = 16").await;
    let nested = |levels: usize| {
        // The body itself is the first level.
        let value = format!("{}1{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        format!("{{\"model\":\"{MODEL}\",\"input\":\"Hi\",\"x\":{value}}}")
    };
    let post = async |body: String| world.amalgam.client().post_raw("/v1/responses", "application/json", body).await;
    assert_serves(&world, &serde_json::from_str(&nested(16)).unwrap()).await;
    let answer = post(nested(17)).await;
    assert_refused(&answer, 400, None, "invalid_json");
    assert!(error_of(&answer)["message"].as_str().unwrap().contains("deep"), "{}", answer.text());
}

#[tokio::test]
async fn items_are_counted() {
    let world = limited("input_items = 5").await;
    let items = |count: usize| json!(vec![json!({"role": "user", "content": "Hi"}); count]);
    assert_serves(&world, &with("input", items(5))).await;
    let answer = world.amalgam.client().post_json("/v1/responses", &with("input", items(6))).await;
    assert_refused(&answer, 400, Some("input"), "array_above_max_length");
    let answer = world.amalgam.client().post_json("/v1/responses", &with("instructions", items(6))).await;
    assert_refused(&answer, 400, Some("instructions"), "array_above_max_length");
}

#[tokio::test]
async fn tools_are_counted_wherever_they_come_in() {
    let world = limited("tools = 4").await;
    let tools = |count: usize| (0..count).map(|n| function(&format!("f{n}"))).collect::<Vec<_>>();
    let namespace = |count: usize| json!([{"type": "namespace", "name": "ns", "tools": tools(count)}]);
    assert_serves(&world, &with("tools", json!(tools(4)))).await;
    assert_serves(&world, &with("tools", namespace(3))).await;
    for request in [with("tools", json!(tools(5))), with("tools", namespace(5))] {
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_refused(&answer, 400, Some("tools"), "array_above_max_length");
    }
    // Tools inside the history are tools too.
    let inside =
        |count: usize| json!([{"type": "additional_tools", "tools": tools(count)}, {"role": "user", "content": "Hi"}]);
    let search = |count: usize| json!([searched("s"), found("s", json!(tools(count)))]);
    for make in [&inside as &dyn Fn(usize) -> Value, &search] {
        assert_serves(&world, &with("input", make(4))).await;
        let answer = world.amalgam.client().post_json("/v1/responses", &with("input", make(5))).await;
        assert_refused(&answer, 400, Some("tools"), "array_above_max_length");
    }
    // All of them count together, and one that is found twice is one.
    let twice = |own: usize| {
        let [first, second] = ["a", "b"].map(|id| (searched(id), found(id, json!(tools(3)))));
        let mut request = with("input", json!([inside(2)[0], first.0, first.1, second.0, second.1]));
        request["tools"] = json!((0..own).map(|n| function(&format!("own{n}"))).collect::<Vec<_>>());
        request
    };
    assert_serves(&world, &twice(1)).await;
    let answer = world.amalgam.client().post_json("/v1/responses", &twice(2)).await;
    assert_refused(&answer, 400, Some("tools"), "array_above_max_length");
    let allowed: Vec<Value> = (0..5).map(|n| json!({"type": "function", "name": format!("f{n}")})).collect();
    let mut choice = with("tools", json!(tools(4)));
    choice["tool_choice"] = json!({"type": "allowed_tools", "mode": "auto", "tools": allowed});
    let answer = world.amalgam.client().post_json("/v1/responses", &choice).await;
    assert_refused(&answer, 400, Some("tool_choice.tools"), "array_above_max_length");
}

#[tokio::test]
async fn a_list_of_found_tools_that_cannot_be_read_is_refused_by_its_place() {
    let world = World::start().await;
    for (tools, param, code) in [
        (json!("f"), "input[1].tools", "invalid_type"),
        (json!([{"name": "f"}]), "input[1].tools[0].type", "missing_required_parameter"),
        (json!([{"type": "function"}]), "input[1].tools[0].name", "missing_required_parameter"),
        (json!([{"type": "function", "name": "f", "parameters": 5}]), "input[1].tools[0].parameters", "invalid_type"),
    ] {
        let request = with("input", json!([searched("s"), found("s", tools)]));
        assert_refused(&world.refused(&request).await, 400, Some(param), code);
    }
    for tools in [json!([]), Value::Null] {
        assert_serves(&world, &with("input", json!([searched("s"), found("s", tools)]))).await;
    }
}

#[tokio::test]
async fn unknown_fields_are_counted() {
    let world = World::start().await;
    let fields = |count: usize| (0..count).map(|n| (format!("x_{n:03}"), json!(n))).collect::<Map<_, _>>();
    let unknown = |count: usize| {
        let mut request = with("input", json!("Hi"));
        request.as_object_mut().unwrap().extend(fields(count));
        request
    };
    assert_serves(&world, &unknown(256)).await;
    assert_eq!(world.sent(Wire::Chat)["x_255"], 255);
    assert_serves(&world, &with("reasoning", json!(fields(32)))).await;
    let asked = world.upstream(Wire::Chat).requests().len();
    let post = async |request: Value| world.amalgam.client().post_json("/v1/responses", &request).await;
    assert_refused(&post(unknown(257)).await, 400, Some("x_256"), "object_above_max_properties");
    let answer = post(with("reasoning", json!(fields(33)))).await;
    assert_refused(&answer, 400, Some("reasoning"), "object_above_max_properties");
    assert_eq!(world.upstream(Wire::Chat).requests().len(), asked);
}

#[tokio::test]
async fn losses_are_told_up_to_a_number_and_then_that_there_are_more() {
    let world = World::start().await;
    let parts: Vec<Value> = (0..200).map(|n| json!({"type": format!("acme:{n}"), "n": n})).collect();
    let request = json!({"input": [{"role": "user", "content": parts}]});
    for wire in [Wire::Chat, Wire::Anthropic] {
        let answer = world.ask(wire, Delivery::Whole, &Script::text(&["fine"]), &request).await;
        let sent = world.sent(wire).to_string();
        assert!(sent.contains("acme:0") && sent.contains("acme:199"), "{wire:?}: the model is told everything");
        // The header ends before the list does; the log has all of it.
        assert!(answer.header("amalgam-losses").unwrap().contains("input.acme:40: "), "{wire:?}");
    }
    let strict = world.amalgam.client().with_header("amalgam-strict", "true");
    let answer = strict.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &request)).await;
    assert_refused(&answer, 400, Some("input.acme:0"), "unsupported_parameter");
    let message = error_of(&answer)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("input.acme:63: ") && !message.contains("acme:64"), "{message}");
    assert!(message.ends_with("more was lost than is listed."), "{message}");
}

#[tokio::test]
async fn parts_of_contents_are_counted_together() {
    let world = limited("content_parts = 6").await;
    let part = |kind: &str| json!({"type": kind, "text": "Hi"});
    let input = |said: usize, thought: usize, told: usize| {
        with(
            "input",
            json!([
                {"role": "user", "content": vec![part("input_text"); said]},
                {"type": "reasoning", "id": "rs_1", "summary": vec![part("summary_text"); thought]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": vec![part("input_text"); told]},
            ]),
        )
    };
    assert_serves(&world, &input(6, 0, 0)).await;
    assert_serves(&world, &input(2, 2, 2)).await;
    for (request, param) in [(input(7, 0, 0), "input[0]"), (input(4, 3, 0), "input[1]"), (input(2, 2, 3), "input[3]")] {
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_refused(&answer, 400, Some(param), "array_above_max_length");
    }
}

#[tokio::test]
async fn schemas_are_counted_by_their_values() {
    let world = limited("schema_nodes = 50").await;
    // The object, its type, its properties, and one value a property.
    let schema = |properties: usize| {
        let properties: Map<String, Value> = (0..properties).map(|n| (format!("p{n}"), json!(true))).collect();
        json!({"type": "object", "properties": properties})
    };
    let tool = |schema: Value| with("tools", json!([{"type": "function", "name": "f", "parameters": schema}]));
    let format =
        |schema: Value| with("text", json!({"format": {"type": "json_schema", "name": "x", "schema": schema}}));
    let inside = |schema: Value| {
        let tools = json!([{"type": "function", "name": "f", "parameters": schema}]);
        with("input", json!([{"type": "additional_tools", "tools": tools}, {"role": "user", "content": "Hi"}]))
    };
    let search =
        |schema: Value| with("tools", json!([{"type": "tool_search", "execution": "client", "parameters": schema}]));
    let found = |schema: Value| {
        let tools = json!([{"type": "function", "name": "f", "parameters": schema}]);
        with("input", json!([searched("s"), found("s", tools)]))
    };
    for make in [&tool as &dyn Fn(Value) -> Value, &format, &inside, &search, &found] {
        assert_serves(&world, &make(schema(47))).await;
        let request = make(schema(48));
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 400, "{request}: {}", answer.text());
        assert_refusal(&answer);
    }
    let answer = world.amalgam.client().post_json("/v1/responses", &tool(schema(48))).await;
    assert_eq!(error_of(&answer)["param"], "tools[0].parameters");
    let answer = world.amalgam.client().post_json("/v1/responses", &format(schema(48))).await;
    assert_eq!(error_of(&answer)["param"], "text.format.schema");
}

#[tokio::test]
async fn texts_are_bounded_wherever_they_stand() {
    let world = limited("string_bytes = \"1KiB\"").await;
    let at = |bytes: usize| {
        let text = "x".repeat(bytes);
        [
            with("input", json!(text)),
            with("instructions", json!(text)),
            with("input", json!([{"role": "user", "content": text}])),
            with("input", json!([{"role": "user", "content": [{"type": "input_text", "text": text}]}])),
            with("input", json!([{"type": "function_call", "call_id": "c", "name": "f", "arguments": text}])),
            with("input", json!([{"type": "function_call_output", "call_id": "c", "output": text}])),
        ]
    };
    for request in at(1024) {
        assert_serves(&world, &request).await;
    }
    for request in at(1025) {
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        let shown: String = request.to_string().chars().take(120).collect();
        assert_eq!(answer.status, 400, "{shown}: {}", answer.text());
        assert_eq!(error_of(&answer)["code"], "string_above_max_length", "{shown}");
    }
}

#[tokio::test]
async fn a_schema_that_explodes_when_it_is_followed_costs_nothing() {
    // A few kilobytes of references, each of which means the one before it twice.
    let mut definitions = json!({"d0": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}});
    for level in 1..40 {
        let reference = json!({"$ref": format!("#/$defs/d{}", level - 1)});
        let both = json!({"type": "object", "properties": {"l": reference, "r": reference}, "required": ["l", "r"]});
        let twice = json!({"allOf": [reference, reference]});
        definitions[format!("d{level}")] = if level % 2 == 0 { both } else { twice };
    }
    let bomb = json!({"$defs": definitions, "$ref": "#/$defs/d39"});
    let object = json!({"$defs": bomb["$defs"], "type": "object", "properties": {"v": {"$ref": "#/$defs/d39"}}, "required": ["v"]});
    let circle = json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"});
    let foreign = json!({"$ref": "http://127.0.0.1:9/schema.json"});
    let slow = json!({"type": "string", "pattern": "^(a+)+$", "minLength": 1_000_000_000_u64});
    let wide = json!({"type": "array", "minItems": 1_000_000_000_u64, "items": {"type": "string"}});
    let world = World::with(Setup::new().extra("[upstreams.demo]\nkind = \"demo\"\npace = \"0ms\""), &[]).await;
    for schema in [bomb, object, circle, foreign, slow, wide] {
        let tool =
            json!({"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"v": schema}}});
        let requests = [
            json!({"input": "Hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": true}}}),
            json!({"input": "Call f.", "tools": [tool], "tool_choice": "required"}),
        ];
        for request in requests {
            for delivery in DELIVERIES {
                let mut request = asking(Wire::Chat, delivery, &request);
                request["model"] = json!("demo");
                let started = Instant::now();
                let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
                assert!(started.elapsed() < SOON, "{:?} for {schema}", started.elapsed());
                assert!(!answer.status.is_server_error(), "{schema}: {}", answer.text());
                assert!(answer.body.len() < 4 * 1024 * 1024, "{} bytes for {schema}", answer.body.len());
            }
        }
    }
    assert_calm(&world.amalgam);
}
