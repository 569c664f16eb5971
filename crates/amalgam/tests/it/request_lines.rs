//! The log: one line for each request with the facts of its turn, and lines for what fails out of sight.

use amalgam_testkit::{Amalgam, Gate, Reply, Setup, Upstream};
use serde_json::{Value, json};

use crate::socket::Socket;
use crate::support::{
    BINARY, DELIVERIES, Delivery, SOON, Script, Wire, Workshop, World, asking, calls, eventually, named, says, setup,
    stores,
};

const KEY: &str = "am_configured-0123456789";

/// Waits until a request has this many lines, and returns them.
async fn lines_of(amalgam: &Amalgam, request_id: &str, count: usize) -> Vec<Value> {
    eventually("the lines of a request", SOON, async || {
        let lines = with_request(amalgam, request_id);
        (lines.len() >= count).then_some(lines)
    })
    .await
}

fn with_request(amalgam: &Amalgam, request_id: &str) -> Vec<Value> {
    let log = amalgam.stderr();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["fields"]["request.id"] == request_id).collect()
}

fn json_log(setup: Setup) -> Setup {
    setup.env("AMALGAM_LOG_FORMAT", "json")
}

fn levels(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["level"].as_str()).collect()
}

#[tokio::test]
async fn a_request_has_one_line_with_the_facts_of_its_turn() {
    for store in stores() {
        let world = World::with(json_log(store.setup(Setup::new().tenant_key(KEY))), &[]).await;
        for delivery in DELIVERIES {
            let id = format!("req-{delivery:?}");
            world.upstream(Wire::Chat).enqueue(Script::text(&["Hel", "lo"]).reply(Wire::Chat, delivery));
            let client = world.amalgam.client().with_header("x-request-id", &id).with_header("x-amalgam-user", "anna");
            let request = asking(Wire::Chat, delivery, &json!({"input": "a secret prompt"}));
            let answer = client.post_json("/v1/responses", &request).await;
            assert_eq!(answer.status, 200, "{}", answer.text());

            let lines = lines_of(&world.amalgam, &id, 1).await;
            let [line] = lines.as_slice() else { panic!("{lines:?}") };
            assert_eq!((&line["level"], &line["target"]), (&json!("INFO"), &json!("amalgam_request")));
            let fields = &line["fields"];
            let facts =
                ["method", "path", "door", "tenant", "user", "status", "turn", "model", "upstream", "upstream_model"];
            assert_eq!(
                facts.map(|name| fields[name].clone()),
                [
                    json!("POST"),
                    json!("/v1/responses"),
                    json!("responses"),
                    json!(1),
                    json!("anna"),
                    json!(200),
                    json!("completed"),
                    json!("m-chat"),
                    json!("chat"),
                    json!("m-chat"),
                ],
                "{} {delivery:?}",
                store.name
            );
            assert_eq!(fields["response.id"], answer.header("amalgam-response-id").unwrap(), "{fields}");
            for number in
                ["duration_ms", "input_tokens", "output_tokens", "first_token_ms", "retries", "losses", "calls"]
            {
                assert!(fields[number].is_number(), "{number}: {fields}");
            }
            assert!(fields["input_tokens"].as_u64().unwrap() > 0, "{fields}");
        }
        assert!(!world.amalgam.stderr().contains("a secret prompt"), "prompts are not logged");
    }
}

#[tokio::test]
async fn refusals_and_failures_have_one_line_with_their_cause_and_without_the_words_of_the_upstream() {
    let world = World::with(json_log(Setup::new().tenant_key(KEY)), &[("retries", "0")]).await;
    let client = |id: &str| world.amalgam.client().with_header("x-request-id", id);
    let refused = json!({"error": {"message": "words of the upstream", "code": "invalid_api_key"}});
    for (id, reply) in [("down", Reply::status(500)), ("key", Reply::status(401).with_json(refused))] {
        world.upstream(Wire::Chat).enqueue(reply);
        client(id).post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}))).await;
    }
    client("unauthenticated").with_key("am_wrong").get("/v1/models").await;
    client("unknown").get("/v1/nothing").await;
    client("invalid").post_json("/v1/responses", &json!({"model": 7})).await;
    for (id, level, status, class) in [
        ("down", "WARN", 502, "upstream_down"),
        ("key", "WARN", 502, "upstream_credential"),
        ("unauthenticated", "WARN", 401, "unauthenticated"),
        ("unknown", "INFO", 404, "not_found"),
        ("invalid", "INFO", 400, "invalid"),
    ] {
        let lines = lines_of(&world.amalgam, id, 1).await;
        let [line] = lines.as_slice() else { panic!("{id}: {lines:?}") };
        let fields = &line["fields"];
        let found = (line["level"].as_str(), fields["status"].as_u64(), fields["class"].as_str());
        assert_eq!(found, (Some(level), Some(status), Some(class)), "{id}: {line}");
    }
    assert!(!world.amalgam.stderr().contains("words of the upstream"));
}

#[tokio::test]
async fn the_words_of_an_upstream_are_in_the_log_at_debug() {
    let world = World::with(json_log(Setup::new().env("AMALGAM_LOG", "debug")), &[("retries", "0")]).await;
    let refused = json!({"error": {"message": "words of the upstream", "code": "weird"}});
    world.upstream(Wire::Chat).enqueue(Reply::status(500).with_json(refused));
    let client = world.amalgam.client().with_header("x-request-id", "debugged");
    client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}))).await;
    world.amalgam.wait_for_stderr("words of the upstream").await;
}

#[tokio::test]
async fn a_stream_that_fails_has_one_warning_and_a_caller_that_leaves_is_no_failure() {
    let world = World::with(json_log(Setup::new()), &[("retries", "0")]).await;
    let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
    let client = |id: &str| world.amalgam.client().with_header("x-request-id", id);
    let cut = Script::text(&["a", "b", "c"]).reply(Wire::Chat, Delivery::Stream).cut_after(2);
    world.upstream(Wire::Chat).enqueue(cut);
    client("cut").post_json("/v1/responses", &request).await;
    let lines = lines_of(&world.amalgam, "cut", 1).await;
    assert_eq!(levels(&lines), ["WARN"], "{lines:?}");
    assert_eq!((&lines[0]["fields"]["status"], &lines[0]["fields"]["turn"]), (&json!(200), &json!("failed")));

    let gate = Gate::new();
    let held = Script::text(&["a", "b", "c"]).reply(Wire::Chat, Delivery::Stream).hold_after(2, &gate);
    world.upstream(Wire::Chat).enqueue(held);
    let mut stream = client("left").post_stream("/v1/responses", &request).await;
    stream.next_of_type("response.output_text.delta").await;
    drop(stream);
    let lines = lines_of(&world.amalgam, "left", 2).await;
    gate.open();
    assert_eq!(levels(&lines), ["INFO", "INFO"], "{lines:?}");
    let (request, turn) = (&lines[0]["fields"], &lines[1]["fields"]);
    assert_eq!((&request["disconnected"], &turn["message"]), (&json!(true), &json!("turn")), "{lines:?}");
    assert_eq!(turn["turn"], "cancelled", "{lines:?}");
}

#[tokio::test]
async fn a_background_turn_that_cannot_start_has_a_line_and_its_end_in_the_list() {
    for store in stores() {
        let (upstream, gate) = (Upstream::start(), Gate::new());
        let toml = |models: &str| {
            let setup = json_log(Setup::new()).tenant_key(KEY).upstream("u", "chat", &upstream.base_url());
            setup.option("models", "[\"m\"]").extra(&format!("[limits]\nmax_in_flight = 1\n{models}"))
        };
        let setup =
            toml("[models.gone]\nupstream = \"u\"\nmodel = \"m\"\n").env("AMALGAM_BOOTSTRAP_KEY", "am_operator-key");
        let amalgam = Amalgam::start(BINARY, store.setup(setup)).await;
        let client = |id: &str| amalgam.client().with_header("x-request-id", id);
        upstream.enqueue(Script::text(&["one"]).reply(Wire::Chat, Delivery::Whole).behind(&gate));
        let queue = async |id: &str, model: &str| {
            let request = json!({"model": model, "input": "Hi", "background": true});
            client(id).post_json("/v1/responses", &request).await.json()["id"].as_str().unwrap().to_owned()
        };
        queue("runs", "m").await;
        upstream.wait_for_requests(1).await;
        let id = queue("cannot", "gone").await;
        std::fs::write(amalgam.folder().join("amalgam.toml"), store.setup(toml("")).toml()).unwrap();
        let operator = amalgam.client().with_key("am_operator-key");
        let answer = operator.request(http::Method::POST, "/admin/reload", &[], bytes::Bytes::new()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        gate.open();
        let lines = lines_of(&amalgam, "cannot", 2).await;
        let line = lines.iter().find(|line| line["fields"]["message"] == "turn").unwrap_or_else(|| panic!("{lines:?}"));
        let fields = &line["fields"];
        assert_eq!(
            (&line["level"], &fields["turn"], &fields["code"], &fields["model"], &fields["response.id"]),
            (&json!("WARN"), &json!("failed"), &json!("model_not_found"), &json!("gone"), &json!(id)),
            "{}: {line}",
            store.name
        );
        let turn = client("read").get(&format!("/admin/turns/{id}")).await.json();
        let facts = ["status", "error", "requested_model", "request_id"].map(|name| turn["summary"][name].clone());
        assert_eq!(facts, ["failed", "model_not_found", "gone", "cannot"].map(Value::from), "{}: {turn}", store.name);
    }
}

#[tokio::test]
async fn a_failed_background_turn_has_a_line_of_its_own_with_the_request() {
    for store in stores() {
        let world = World::with(json_log(store.setup(Setup::new())), &[("retries", "0")]).await;
        let gate = Gate::new();
        world.upstream(Wire::Chat).enqueue(Reply::status(500).behind(&gate));
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "background": true}));
        let client = world.amalgam.client().with_header("x-request-id", "background");
        let response = client.post_json("/v1/responses", &request).await.json();
        lines_of(&world.amalgam, "background", 1).await;
        gate.open();
        let lines = lines_of(&world.amalgam, "background", 2).await;
        assert_eq!(levels(&lines), ["INFO", "WARN"], "{}: {lines:?}", store.name);
        let turn = &lines[1]["fields"];
        assert_eq!((&turn["message"], &turn["turn"]), (&json!("turn"), &json!("failed")), "{}", store.name);
        assert_eq!(turn["response.id"], response["id"], "{}", store.name);
    }
}

#[tokio::test]
async fn a_fallback_and_a_failed_tool_have_a_warning_each() {
    let (first, second) = (Upstream::start(), Upstream::start());
    let fallback = Setup::new().upstream("first", "chat", &first.base_url()).option("retries", "0");
    let fallback = fallback.upstream("second", "chat", &second.base_url());
    let model = "[models.m]\nupstream = \"first\"\nmodel = \"m1\"\nfallback = [\"second/m2\"]";
    let amalgam = Amalgam::start(BINARY, json_log(fallback.extra(model))).await;
    first.enqueue(Reply::status(500));
    second.enqueue(Script::text(&["me"]).reply(Wire::Chat, Delivery::Whole));
    let client = amalgam.client().with_header("x-request-id", "fallback");
    client.post_json("/v1/responses", &json!({"model": "m", "input": "Hi"})).await;
    let lines = lines_of(&amalgam, "fallback", 2).await;
    assert_eq!(levels(&lines), ["WARN", "INFO"], "{lines:?}");
    assert_eq!((&lines[0]["fields"]["upstream"], &lines[1]["fields"]["upstream"]), (&json!("first"), &json!("second")));

    for store in stores() {
        let workshop = Workshop::with(&store, json_log(setup())).await;
        workshop.put("weather", json!({})).await;
        workshop.service.enqueue(Reply::status(500));
        workshop.service.enqueue(Reply::status(500));
        let scripts = [calls("c1", "weather", "Bonn"), Script::text(&["done"])];
        workshop
            .turn(Wire::Chat, Delivery::Whole, &scripts, &json!({"input": "Hi", "tools": [named("weather")]}))
            .await;
        let log = workshop.world.amalgam.wait_for_stderr("a tool call failed").await;
        let failed: Vec<&str> = log.lines().filter(|line| line.contains("a tool call failed")).collect();
        assert_eq!(failed.len(), 1, "{}: {log}", store.name);
        assert!(failed[0].contains("weather"), "{failed:?}");
    }
}

#[tokio::test]
async fn lines_of_successful_requests_can_be_sampled_and_those_of_a_door_left_out() {
    let quiet = "[log]\nsample = 0.0\ndoors = { models = \"off\" }";
    let amalgam = Amalgam::start(BINARY, json_log(Setup::new().extra(quiet))).await;
    let client = |id: &str| amalgam.client().with_header("x-request-id", id);
    assert_eq!(client("good").post_json("/v1/responses", &json!({"model": "demo", "input": "Hi"})).await.status, 200);
    assert_eq!(client("off").get("/v1/models/none").await.status, 404);
    assert_eq!(client("bad").post_json("/v1/responses", &json!({"model": "none", "input": "Hi"})).await.status, 404);
    lines_of(&amalgam, "bad", 1).await;
    assert_eq!(with_request(&amalgam, "good"), Vec::<Value>::new(), "a success that is not sampled");
    assert_eq!(with_request(&amalgam, "off"), Vec::<Value>::new(), "a door that is off");
}

#[tokio::test]
async fn health_checks_and_metrics_are_logged_at_debug() {
    for (level, count) in [("info", 0), ("debug", 1)] {
        let amalgam = Amalgam::start(BINARY, json_log(Setup::new().env("AMALGAM_LOG", level))).await;
        for path in ["/healthz", "/metrics"] {
            assert_eq!(amalgam.client().with_header("x-request-id", path).get(path).await.status, 200);
        }
        amalgam.client().with_header("x-request-id", "last").get("/v1/models").await;
        lines_of(&amalgam, "last", 1).await;
        for path in ["/healthz", "/metrics"] {
            assert_eq!(with_request(&amalgam, path).len(), count, "{level} {path}");
        }
    }
}

#[tokio::test]
async fn the_trace_of_a_caller_reaches_upstreams_and_tools() {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for store in stores() {
        let workshop = Workshop::with(&store, setup()).await;
        workshop.put("weather", json!({})).await;
        workshop.service.enqueue(says(json!({"sun": true})));
        workshop.script(Wire::Chat, Delivery::Whole, &[calls("c1", "weather", "Bonn"), Script::text(&["done"])]);
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "tools": [named("weather")]}));
        let client =
            workshop.client().with_header("traceparent", TRACE).with_header("tracestate", "vendor=a:1,other=2");
        let answer = client.post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        for asked in workshop.world.upstream(Wire::Chat).requests().iter().chain(&workshop.service.requests()) {
            assert_eq!(asked.header("traceparent"), Some(TRACE), "{}: {}", store.name, asked.path);
            assert_eq!(asked.header("tracestate"), Some("vendor=a:1,other=2"), "{}: {}", store.name, asked.path);
        }
        // An invalid one is not passed on.
        workshop.script(Wire::Chat, Delivery::Whole, &[Script::text(&["done"])]);
        let client =
            workshop.client().with_header("traceparent", "00-nonsense").with_header("tracestate", "vendor=a:1");
        client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}))).await;
        assert_eq!(workshop.world.upstream(Wire::Chat).requests().last().unwrap().header("traceparent"), None);
        assert_eq!(workshop.world.upstream(Wire::Chat).requests().last().unwrap().header("tracestate"), None);
    }
}

#[tokio::test]
async fn a_refused_message_of_a_websocket_has_a_line_with_the_request_the_tenant_and_the_key() {
    let world = World::with(json_log(Setup::new().tenant_key(KEY)), &[]).await;
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", &*bearer), ("x-request-id", "the-socket")];
    let mut socket = Socket::open_with(&world.amalgam, &headers).await.expect("a socket");
    socket.say(&json!({"type": "response.create", "model": "no-such-model", "input": "Hi"})).await;
    assert_eq!(socket.next().await.expect("an event")["type"], "error");
    world.upstream(Wire::Chat).enqueue(Script::text(&["done"]).reply(Wire::Chat, Delivery::Stream));
    socket.say(&json!({"type": "response.create", "model": Wire::Chat.model(), "input": "Hi"})).await;
    while socket.next().await.expect("an event")["type"] != "response.completed" {}

    let lines = lines_of(&world.amalgam, "the-socket", 3).await;
    let line = |message: &str| {
        let found = lines.iter().find(|line| line["fields"]["message"] == message);
        found.unwrap_or_else(|| panic!("{message}: {lines:?}"))["fields"].clone()
    };
    let refused = line("message refused");
    assert_eq!(
        (&refused["status"], &refused["class"], &refused["tenant"], &refused["door"]),
        (&json!(404), &json!("not_found"), &json!(1), &json!("responses")),
        "{refused}"
    );
    let key = refused["key"].as_str().unwrap_or_default();
    assert!(key.starts_with("key_config-1-"), "{refused}");
    assert_eq!((&line("turn")["key"], &line("turn")["turn"]), (&json!(key), &json!("completed")));
    let text = world.amalgam.client().with_key(KEY).get("/metrics").await.text();
    assert!(text.contains(r#"amalgam_errors_total{door="responses",class="not_found"} 1"#), "{text}");
}

#[tokio::test]
async fn a_retry_of_an_upstream_has_a_warning_with_the_request() {
    let world = World::with(json_log(Setup::new().tenant_key(KEY)), &[]).await;
    for background in [false, true] {
        world.upstream(Wire::Chat).enqueue(Reply::status(503));
        world.upstream(Wire::Chat).enqueue(Script::text(&["done"]).reply(Wire::Chat, Delivery::Whole));
        let id = format!("retried-{background}");
        let client = world.amalgam.client().with_header("x-request-id", &id);
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "background": background}));
        assert_eq!(client.post_json("/v1/responses", &request).await.status, 200);
        eventually("the warning", SOON, async || {
            let lines = with_request(&world.amalgam, &id);
            let is_it =
                |line: &Value| line["fields"]["message"].as_str().is_some_and(|text| text.contains("is retried"));
            lines.iter().any(|line| is_it(line) && line["level"] == "WARN").then_some(())
        })
        .await;
    }
}
