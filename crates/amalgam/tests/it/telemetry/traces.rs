//! What a trace shows of a turn on each wire, and which trace headers upstreams and tools receive.

use std::time::Duration;

use amalgam_testkit::{Amalgam, Reply, Setup, Upstream};
use http::Method;
use serde_json::{Value, json};

use super::collector::{CLIENT, Collector, INTERNAL, SERVER, SeenSpan, names, resource_of};
use crate::support::{
    BINARY, DELIVERIES, Delivery, Script, Wire, Workshop, World, asking, asks, ended, serve_mcp, setup, stores,
};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn has(span: &SeenSpan, expected: &[(&str, Value)]) {
    for (name, value) in expected {
        assert_eq!(span.attribute(name), *value, "{name} of {span:?}");
    }
}

#[tokio::test]
async fn a_streamed_turn_is_a_trace_of_the_request_its_model_call_and_its_writes() {
    for store in stores() {
        let collector = Collector::start();
        let price = "[models.priced]\nupstream = \"chat\"\nmodel = \"m-chat\"\nprice = { input = 1, output = 2 }\n";
        let setup = collector.setup_with(store.setup(Setup::new().tenant_key("am_k")), "service_name = \"house\"\n");
        let world = World::with(setup.extra(price), &[]).await;
        let client = world.amalgam.client().with_header("x-request-id", "streamed").with_header("traceparent", CALLER);
        let client = client.with_header("x-amalgam-user", "anna");
        world.upstream(Wire::Chat).enqueue(Script::text(&["Hel", "lo"]).reply(Wire::Chat, Delivery::Stream));
        let request = json!({"model": "priced", "input": "a secret prompt", "stream": true});
        let answer = client.post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());

        let (request, children) = collector.request("streamed").await;
        assert_eq!(
            (&*request.trace_id, &*request.parent, &*request.name),
            ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "POST /v1/responses"),
        );
        let response_id = answer.header("amalgam-response-id").unwrap();
        has(
            &request,
            &[
                ("http.request.method", json!("POST")),
                ("http.route", json!("/v1/responses")),
                ("url.path", json!("/v1/responses")),
                ("http.response.status_code", json!(200)),
                ("amalgam.door", json!("responses")),
                ("amalgam.tenant.id", json!(1)),
                ("user.id", json!("anna")),
                ("amalgam.response.id", json!(response_id)),
                ("amalgam.turn.status", json!("completed")),
                ("amalgam.model", json!("priced")),
                ("amalgam.upstream", json!("chat")),
                ("amalgam.upstream_model", json!("m-chat")),
                ("amalgam.retries", json!(0)),
                ("amalgam.losses", json!(0)),
                ("error.type", Value::Null),
            ],
        );
        assert!(request.attribute("amalgam.cost_usd").as_f64().unwrap() > 0.0, "{request:?}");
        assert!(request.attribute("amalgam.first_token_ms").is_number() && !request.failed);
        // The beginning is stored while the model is called.
        let mut sorted = names(&children);
        sorted.sort_unstable();
        assert_eq!(sorted, ["chat m-chat", "prompt", "store begin", "store end"], "{children:?}");
        let call = children.iter().find(|span| span.kind == CLIENT).unwrap();
        has(
            call,
            &[
                ("gen_ai.operation.name", json!("chat")),
                ("gen_ai.provider.name", json!("openai")),
                ("gen_ai.request.model", json!("m-chat")),
                ("gen_ai.response.model", json!("upstream-name")),
                ("amalgam.upstream", json!("chat")),
                ("gen_ai.usage.input_tokens", request.attribute("amalgam.usage.input_tokens")),
                ("gen_ai.usage.output_tokens", request.attribute("amalgam.usage.output_tokens")),
                ("amalgam.cost_usd", request.attribute("amalgam.cost_usd")),
            ],
        );
        assert!(call.attribute("gen_ai.response.time_to_first_chunk").is_f64(), "{call:?}");
        let asked = world.upstream(Wire::Chat).request(0);
        assert_eq!(asked.header("traceparent"), Some(&*call.traceparent()));
        let export = &collector.exports("/v1/traces")[0];
        assert_eq!(resource_of(export)["service.name"], "house");
        let text = format!("{:?}", collector.spans());
        assert!(!text.contains("secret prompt") && !text.contains("am_k"), "{text}");

        // The same spans are stored with the turn, except for the write that stores them.
        let turn = client.with_key("am_k").get(&format!("/admin/turns/{response_id}")).await.json();
        let stored: Vec<&str> =
            turn["spans"].as_array().unwrap().iter().map(|span| span["kind"].as_str().unwrap()).collect();
        assert_eq!(stored.first(), Some(&"prompt"), "{turn}");
        assert!(stored.contains(&"model_call") && stored.contains(&"store") && stored.len() == 3, "{turn}");
        assert_eq!(turn["summary"]["trace_id"], request.trace_id);
    }
}

#[tokio::test]
async fn an_assistant_turn_shows_its_tool_call_between_two_model_calls() {
    for store in stores() {
        let collector = Collector::start();
        let setup = collector.setup_with(store.setup(Setup::new().tenant_key("am_k").seeded()), "content = true\n");
        let amalgam = Amalgam::start(BINARY, setup).await;
        let client = amalgam.client().with_key("am_k").with_header("x-request-id", "assisted");
        let message = json!({"agent": "home-assistant", "message": "I need a course recommendation about \"data\""});
        let answer = client.with_header("x-amalgam-user", "ana").post_json("/api/v2/ai-agent/respond/", &message).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let (request, children) = collector.request("assisted").await;
        assert_eq!(request.name, "POST /api/v2/ai-agent/respond/");
        has(&request, &[("gen_ai.agent.name", json!("home-assistant")), ("amalgam.calls", json!(2))]);
        assert!(request.attribute("gen_ai.conversation.id").is_string(), "{request:?}");
        let steps: Vec<&SeenSpan> = children.iter().filter(|span| !span.name.starts_with("store ")).collect();
        let tool = steps.iter().find(|span| span.name.starts_with("execute_tool ")).expect("the tool has a span");
        let called: Vec<&str> = steps.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(called, ["prompt", "prompt", "chat demo", &*tool.name, "chat demo"], "{children:?}");
        assert_eq!(tool.kind, INTERNAL);
        has(tool, &[("gen_ai.operation.name", json!("execute_tool")), ("gen_ai.tool.type", json!("function"))]);
        assert!(tool.attribute("gen_ai.tool.call.id").is_string(), "{tool:?}");
        assert!(tool.attribute("gen_ai.tool.call.arguments").as_str().unwrap().contains("data"), "{tool:?}");
        assert!(tool.attribute("gen_ai.tool.call.result").as_str().unwrap().contains("results"), "{tool:?}");
        assert!(children.iter().any(|span| span.name == "store tools"), "{children:?}");
    }
}

#[tokio::test]
async fn a_continuation_of_the_strict_contract_is_a_trace_of_its_own() {
    let collector = Collector::start();
    let amalgam = Amalgam::start(BINARY, collector.setup(Setup::new().tenant_key("am_k"))).await;
    let client = amalgam.client().with_key("am_k");
    let tool = json!({"kind": "client", "description": "Reads a file.", "parameters":
        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}});
    client
        .request(
            Method::PUT,
            "/admin/tools/read_file",
            &[("content-type", "application/json")],
            tool.to_string().into(),
        )
        .await;
    let profile = json!({"prompt": "You help.", "tools": ["read_file"]}).to_string();
    client.request(Method::PUT, "/admin/profiles/coder", &[("content-type", "application/json")], profile.into()).await;
    let session =
        client.post_json("/api/agent/sessions", &json!({"AgentContextId": "coder", "Mode": "CODE_EDIT"})).await.json();
    let id = session["SessionId"].as_str().unwrap_or_else(|| panic!("{session}")).to_owned();
    let start = json!({"SessionId": id, "TurnId": "turn-1", "Instruction": "Use read_file with path: README.md"});
    let started =
        client.clone().with_header("x-request-id", "first").post_json("/api/agent/execute", &start).await.json();
    let call_id = &started["ToolCalls"][0]["CallId"];
    let results = json!({"SessionId": id, "TurnId": "turn-1",
        "ToolResults": [{"ToolCallId": call_id, "ExecutionMs": 2, "ResultJson": "{\"text\": \"a secret file\"}"}]});
    let answer = client.with_header("x-request-id", "second").post_json("/api/agent/execute", &results).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (first, of_first) = collector.request("first").await;
    let (second, of_second) = collector.request("second").await;
    assert_ne!(first.trace_id, second.trace_id);
    assert_eq!((&*first.parent, &*second.parent), ("", ""), "new traces have no parent");
    assert!(names(&of_first).contains(&"chat demo"), "{of_first:?}");
    assert!(names(&of_first).contains(&"retrieval"), "{of_first:?}");
    assert!(names(&of_second).contains(&"chat demo") && !names(&of_second).contains(&"retrieval"), "{of_second:?}");
    has(&second, &[("amalgam.door", json!("execute")), ("amalgam.turn.status", json!("completed"))]);
    assert!(!format!("{:?}", collector.spans()).contains("secret file"));
}

#[tokio::test]
async fn a_fallback_shows_the_failed_call_with_its_class_and_its_retries() {
    let (collector, first, second) = (Collector::start(), Upstream::start(), Upstream::start());
    let setup = Setup::new().upstream("first", "responses", &first.base_url()).option("retries", "1");
    let setup = setup.upstream("second", "chat", &second.base_url());
    let model = "[models.m]\nupstream = \"first\"\nmodel = \"m1\"\nfallback = [\"second/m2\"]\n";
    let amalgam = Amalgam::start(BINARY, collector.setup(setup.extra(model))).await;
    for delivery in DELIVERIES {
        first.enqueue(Reply::status(503));
        first.enqueue(Reply::status(503));
        second.enqueue(Script::text(&["me"]).reply(Wire::Chat, delivery));
        let id = format!("fallback-{delivery:?}");
        let request = json!({"model": "m", "input": "Hi", "stream": delivery == Delivery::Stream});
        let client = amalgam.client().with_header("x-request-id", &id);
        assert_eq!(client.post_json("/v1/responses", &request).await.status, 200);
        let (request, children) = collector.request(&id).await;
        let calls: Vec<&SeenSpan> = children.iter().filter(|span| span.kind == CLIENT).collect();
        let [failed, answered] = calls.as_slice() else { panic!("{children:?}") };
        assert_eq!(
            (&*failed.name, failed.failed, &*answered.name, answered.failed),
            ("chat m1", true, "chat m2", false)
        );
        has(failed, &[("error.type", json!("upstream_down")), ("amalgam.retries", json!(1))]);
        has(&request, &[("amalgam.retries", json!(1)), ("amalgam.upstream", json!("second"))]);
        assert!(!request.failed, "the turn succeeded");
    }
    first.from_now_on(Reply::status(500));
    second.from_now_on(Reply::status(500));
    let client = amalgam.client().with_header("x-request-id", "down");
    assert_eq!(client.post_json("/v1/responses", &json!({"model": "m", "input": "Hi"})).await.status, 502);
    let (request, _) = collector.request("down").await;
    assert!(request.failed, "{request:?}");
    has(&request, &[("http.response.status_code", json!(502)), ("error.type", json!("upstream_down"))]);
}

#[tokio::test]
async fn a_background_turn_is_a_child_of_the_request_that_queued_it_and_shows_its_wait() {
    for store in stores() {
        let collector = Collector::start();
        let world = World::with(collector.setup(store.setup(Setup::new().tenant_key("am_k"))), &[]).await;
        let client = world.amalgam.client().with_header("x-request-id", "queued").with_header("traceparent", CALLER);
        world.upstream(Wire::Chat).enqueue(Script::text(&["done"]).reply(Wire::Chat, Delivery::Whole));
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "background": true}));
        let response = client.post_json("/v1/responses", &request).await.json();
        let id = response["id"].as_str().unwrap().to_owned();
        ended(&client, &id).await;
        let (request, _) = collector.request("queued").await;
        let turn = collector.span("the turn", |span| span.name == "turn responses").await;
        assert_eq!((&turn.trace_id, &turn.parent, turn.kind), (&request.trace_id, &request.id, INTERNAL));
        has(
            &turn,
            &[
                ("amalgam.response.id", json!(id)),
                ("amalgam.request.id", json!("queued")),
                ("amalgam.turn.status", json!("completed")),
            ],
        );
        let children = collector.children(&turn);
        assert_eq!(children.first().map(|span| &*span.name), Some("queue background"), "{children:?}");
        let call = children.iter().find(|span| span.kind == CLIENT).unwrap();
        assert_eq!(world.upstream(Wire::Chat).request(0).header("traceparent"), Some(&*call.traceparent()));
        let record = client.with_key("am_k").get(&format!("/admin/turns/{id}")).await.json();
        assert_eq!(record["spans"][0]["name"], "background", "{record}");
    }
}

#[tokio::test]
async fn http_tools_and_mcp_servers_are_told_the_span_of_their_very_call() {
    for store in stores() {
        let collector = Collector::start();
        let workshop = Workshop::with(&store, collector.setup(setup())).await;
        workshop.put("weather", json!({})).await;
        serve_mcp(&workshop.service);
        workshop.service.enqueue_for("/weather", Reply::json(json!("secret sun")));
        let mcp = json!({"type": "mcp", "server_label": "small", "server_url": format!("{}/mcp", workshop.service.url()),
            "require_approval": "never"});
        let request = json!({"input": "Hi", "tools": [{"type": "function", "name": "weather"}, mcp]});
        let both = [
            Script::new([asks("call_1", "weather", "Rome"), asks("call_2", "small__lookup", "Oslo")]),
            Script::text(&["fine"]),
        ];
        workshop.turn(Wire::Chat, Delivery::Whole, &both, &request).await;
        let of_tool = |name: &'static str| {
            let is_it = move |span: &SeenSpan| span.attribute("gen_ai.tool.name") == name;
            collector.span(name, is_it)
        };
        let (weather, lookup) = (of_tool("weather").await, of_tool("lookup").await);
        let sent = |path: &str, method: Option<&str>| {
            let requests = workshop.service.requests().into_iter().filter(|request| request.path == path);
            let mut fitting = requests.filter(|request| method.is_none_or(|method| request.json()["method"] == method));
            fitting.next().and_then(|request| request.header("traceparent").map(ToOwned::to_owned))
        };
        assert_eq!(sent("/weather", None), Some(weather.traceparent()), "{}", store.name);
        assert_eq!(sent("/mcp", Some("tools/call")), Some(lookup.traceparent()), "{}", store.name);
        has(&lookup, &[("amalgam.tool.label", json!("small")), ("gen_ai.tool.call.arguments", Value::Null)]);
        let text = format!("{:?}", collector.spans());
        assert!(!text.contains("Rome") && !text.contains("secret sun"), "no content unless asked for: {text}");
    }
}

#[tokio::test]
async fn the_callers_decision_about_its_trace_is_honoured_and_passed_on() {
    let collector = Collector::start();
    let world = World::with(collector.setup_with(Setup::new(), "sample = 0.0\n"), &[]).await;
    let ask = async |id: &str, traceparent: Option<&str>| {
        world.upstream(Wire::Chat).enqueue(Script::text(&["x"]).reply(Wire::Chat, Delivery::Whole));
        let client = world.amalgam.client().with_header("x-request-id", id);
        let client = traceparent.into_iter().fold(client, |client, value| client.with_header("traceparent", value));
        client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}))).await;
        world.upstream(Wire::Chat).requests().last().unwrap().header("traceparent").unwrap_or_default().to_owned()
    };
    let unsampled = CALLER.replace("-01", "-00");
    let passed = ask("unsampled", Some(&unsampled)).await;
    assert!(passed.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && passed.ends_with("-00"), "{passed}");
    assert!(ask("new", None).await.ends_with("-00"), "a share of 0 records no new trace");
    assert!(ask("sampled", Some(CALLER)).await.ends_with("-01"));
    collector.request("sampled").await;
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.kind != SERVER || span.attribute("amalgam.request.id") == "sampled"));
}

#[tokio::test]
async fn refusals_and_requests_without_a_turn_have_a_span_too() {
    let collector = Collector::start();
    let setup = collector.setup(Setup::new().tenant_key("am_k"));
    let amalgam = Amalgam::start(BINARY, setup).await;
    let client = |id: &str| amalgam.client().with_header("x-request-id", id);
    client("unauthenticated").with_key("am_wrong").get("/v1/models").await;
    client("unknown").with_key("am_k").get("/v1/nothing").await;
    client("one").with_key("am_k").get("/v1/responses/resp_1").await;
    for (id, name, status, class) in [
        ("unauthenticated", "GET /v1/models", 401, "unauthenticated"),
        ("unknown", "GET", 404, "not_found"),
        ("one", "GET /v1/responses/{id}", 404, "not_found"),
    ] {
        let (request, children) = collector.request(id).await;
        assert_eq!((&*request.name, request.failed, children), (name, false, Vec::new()));
        has(&request, &[("http.response.status_code", json!(status)), ("error.type", json!(class))]);
    }
}

#[tokio::test]
async fn a_wait_for_a_slot_is_a_span_of_the_turn_or_of_the_refused_request() {
    let collector = Collector::start();
    let limits = "[limits]\nmax_in_flight = 1\nqueue_wait = \"1s\"\n";
    let world = World::with(collector.setup(Setup::new().extra(limits)), &[]).await;
    let gate = amalgam_testkit::Gate::new();
    let held = Script::text(&["a", "b"]).reply(Wire::Chat, Delivery::Stream).hold_after(1, &gate);
    world.upstream(Wire::Chat).enqueue(held);
    let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
    let mut first = world.amalgam.client().post_stream("/v1/responses", &request).await;
    first.next_of_type("response.created").await;
    let refused = world.amalgam.client().with_header("x-request-id", "refused");
    assert_eq!(refused.post_json("/v1/responses", &request).await.status, 429);
    let (span, children) = collector.request("refused").await;
    assert_eq!(names(&children), ["queue admission"], "{span:?}");
    assert!(
        children[0].failed && children[0].end_ns - children[0].start_ns >= Duration::from_millis(900).as_nanos() as u64
    );
    gate.open();
    first.rest().await;
}
