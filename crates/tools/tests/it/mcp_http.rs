//! The MCP client against a scripted server on loopback.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use amalgam_core::{ToolError, ToolOutput};
use amalgam_testkit::{Gate, Reply, Upstream};
use amalgam_tools::{Egress, EgressConfig, McpServer, McpSettings};
use serde_json::{Value, json};

use crate::calls::{Script, call, call_of, config, json_of, scope_of, value_of};

const CREDENTIAL: &str = "Bearer mcp-secret-credential";

fn settings(server: &Upstream) -> McpSettings {
    McpSettings {
        label: "scripted".into(),
        url: format!("{}/mcp", server.url()),
        authorization: Some(CREDENTIAL.into()),
        headers: Vec::new(),
        tenant_id: None,
        timeout: Duration::from_secs(5),
    }
}

fn connected(server: &Upstream) -> McpServer {
    let egress = Egress::new(config(&[server.address().to_string()]));
    McpServer::connect(settings(server), Arc::new(egress)).unwrap()
}

pub(crate) fn result(id: u64, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

pub(crate) fn hello(id: u64, session: &str) -> [Reply; 2] {
    let introduction = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {}});
    [Reply::json(result(id, introduction)).header("mcp-session-id", session), Reply::status(202)]
}

/// A server that has greeted us, and then gives these replies; the first request after the greeting has id 2.
fn greeted(replies: impl IntoIterator<Item = Reply>) -> Upstream {
    Upstream::scripted(hello(1, "session-1").into_iter().chain(replies))
}

pub(crate) fn text(words: &str) -> Value {
    json!({"content": [{"type": "text", "text": words}]})
}

async fn run(server: &McpServer, arguments: &str) -> Result<Value, ToolError> {
    let handler = server.handler("weather");
    let arguments = json_of(arguments);
    call(&arguments, async |call| handler.run(call).await).await.map(|ToolOutput { output }| value_of(&output))
}

async fn names(server: &McpServer) -> Result<Vec<String>, ToolError> {
    let tools = server.tools(&scope_of(1)).await?;
    Ok(tools.into_iter().map(|tool| tool.name).collect())
}

#[tokio::test]
async fn a_session_is_opened_once_and_every_message_carries_it() {
    let scripted = greeted([Reply::json(result(2, text("sunny"))), Reply::json(result(3, text("rainy")))]);
    let server = connected(&scripted);
    assert_eq!(run(&server, r#"{"city": "Berlin"}"#).await, Ok(json!("sunny")));
    assert_eq!(run(&server, "{}").await, Ok(json!("rainy")));

    let requests = scripted.requests();
    let methods: Vec<_> =
        requests.iter().map(|request| request.json()["method"].as_str().unwrap().to_owned()).collect();
    assert_eq!(methods, ["initialize", "notifications/initialized", "tools/call", "tools/call"]);
    assert_eq!(requests[0].json()["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(requests[0].header("mcp-session-id"), None);
    for request in &requests[1..] {
        assert_eq!(request.header("mcp-session-id"), Some("session-1"));
        assert_eq!(request.header("mcp-protocol-version"), Some("2025-06-18"));
    }
    for request in &requests {
        assert_eq!(request.header("accept"), Some("application/json, text/event-stream"));
        assert_eq!(request.header("authorization"), Some(CREDENTIAL), "the server's own credential, and no other");
    }
    let expected = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "weather", "arguments": {"city": "Berlin"}}});
    assert_eq!(requests[2].json(), expected);
    assert!(requests[1].json().get("id").is_none());
}

#[tokio::test]
async fn an_answer_may_come_as_events_in_any_pieces_with_other_things_before_it() {
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}});
    let ping = json!({"jsonrpc": "2.0", "id": "p-1", "method": "ping"});
    let sampling = json!({"jsonrpc": "2.0", "id": 9, "method": "sampling/createMessage", "params": {}});
    let foreign = result(99, text("not this"));
    let stream = Reply::stream()
        .send("id: 1\ndata:\n\n")
        .frame("message", &progress.to_string())
        .frame("message", &ping.to_string())
        .frame("message", &sampling.to_string())
        .frame("message", &foreign.to_string())
        .frame("message", &result(2, json!({"content": [], "structuredContent": {"grad": "21 °C"}})).to_string())
        .split(3);
    let scripted = greeted([stream, Reply::status(202), Reply::status(202)]);
    assert_eq!(run(&connected(&scripted), "{}").await, Ok(json!({"grad": "21 °C"})));

    assert_eq!(scripted.request(3).json(), json!({"jsonrpc": "2.0", "id": "p-1", "result": {}}));
    assert_eq!(scripted.request(4).json()["error"]["code"], -32601);
}

#[tokio::test]
async fn a_session_that_the_server_has_forgotten_is_opened_anew() {
    let scripted = greeted([Reply::status(404)]);
    for reply in hello(3, "session-2").into_iter().chain([Reply::json(result(4, text("back")))]) {
        scripted.enqueue(reply);
    }
    assert_eq!(run(&connected(&scripted), "{}").await, Ok(json!("back")));
    assert_eq!(scripted.request(3).header("mcp-session-id"), None);
    assert_eq!(scripted.request(5).header("mcp-session-id"), Some("session-2"));
}

#[tokio::test]
async fn a_server_that_forgets_every_session_is_given_up() {
    let scripted = greeted([Reply::status(404)]);
    for reply in hello(3, "session-2").into_iter().chain([Reply::status(404)]) {
        scripted.enqueue(reply);
    }
    assert!(matches!(run(&connected(&scripted), "{}").await, Err(ToolError::Broken { .. })));
    assert_eq!((scripted.requests().len(), scripted.unscripted().len()), (6, 0));
}

#[tokio::test]
async fn tools_are_listed_by_pages_and_kept_until_the_server_says_that_they_have_changed() {
    let page = |name: &str, next: Option<&str>| json!({"tools": [{"name": name}], "nextCursor": next});
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let scripted = greeted([
        Reply::json(result(2, page("a", Some("next")))),
        Reply::json(result(3, page("b", None))),
        Reply::stream().frame(None, &changed.to_string()).frame(None, &result(4, text("x")).to_string()),
        Reply::json(result(5, page("c", None))),
    ]);
    let server = connected(&scripted);
    assert_eq!(names(&server).await.unwrap(), ["a", "b"]);
    assert_eq!(names(&server).await.unwrap(), ["a", "b"]);
    assert_eq!(scripted.request(3).json()["params"], json!({"cursor": "next"}));
    assert_eq!(scripted.requests().len(), 4, "the second list was not asked for");
    run(&server, "{}").await.unwrap();
    assert_eq!(names(&server).await.unwrap(), ["c"]);
}

#[tokio::test]
async fn what_the_server_says_no_to_is_told_in_its_words() {
    let failed = json!({"isError": true, "content": [{"type": "text", "text": "no such city"}]});
    let error = json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -32602, "message": "Unknown\u{1b} tool"}});
    let scripted = greeted([Reply::json(result(2, failed)), Reply::json(error)]);
    let server = connected(&scripted);
    assert_eq!(run(&server, "{}").await, Err(ToolError::Refused("no such city".into())));
    let told = "the MCP server answered with error -32602: Unknown tool";
    assert_eq!(run(&server, "{}").await, Err(ToolError::Refused(told.into())));
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    let gate = Gate::new();
    let scripted = greeted([Reply::stream().comment("working").hold(&gate), Reply::status(202)]);
    let server = connected(&scripted);
    let mut running = Box::pin(run(&server, "{}"));
    tokio::select! {
        _ = &mut running => panic!("the server has not answered"),
        _ = scripted.wait_for_requests(3) => {}
    }
    drop(running);
    let requests = scripted.wait_for_requests(4).await;
    assert_eq!(requests[3].json()["method"], "notifications/cancelled");
    assert_eq!(requests[3].json()["params"]["requestId"], 2);
    assert_eq!(requests[3].header("mcp-session-id"), Some("session-1"));
    scripted.wait_for_disconnect(2).await;
}

#[tokio::test]
async fn a_server_that_never_answers_ends_at_the_time_limit_and_is_told() {
    let scripted = greeted([Reply::hang(), Reply::status(202)]);
    let egress = Arc::new(Egress::new(config(&[scripted.address().to_string()])));
    let settings = McpSettings { timeout: Duration::from_millis(500), ..settings(&scripted) };
    let server = McpServer::connect(settings, egress).unwrap();
    let started = Instant::now();
    assert_eq!(run(&server, "{}").await, Err(ToolError::TimedOut));
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(scripted.wait_for_requests(4).await[3].json()["method"], "notifications/cancelled");
}

#[tokio::test]
async fn answers_without_measure_are_given_up() {
    let large = "x".repeat(1_100_000);
    for reply in [
        Reply::json(result(2, text(&large))),
        Reply::bytes("application/json", vec![b' '; 100_000_000]).chunked(),
        Reply::stream().frame(None, &result(2, text(&large)).to_string()),
        Reply::huge_line(3_000_000),
        (0..3_000).fold(Reply::stream(), |stream, _| stream.comment(&"x".repeat(1_000))),
    ] {
        let scripted = greeted([reply]);
        assert_eq!(run(&connected(&scripted), "{}").await, Err(ToolError::TooLarge));
    }
}

#[tokio::test]
async fn answers_that_are_none_are_broken() {
    for reply in [
        Reply::bytes("application/json", &b"{\"id\": 2, \"result\": \"\xff\"}"[..]),
        Reply::bytes("application/json", "{\"id\": 2,"),
        Reply::bytes("text/html", "<p>"),
        Reply::json(json!({"jsonrpc": "2.0", "id": 7, "result": {}})),
        Reply::json(json!({"jsonrpc": "2.0", "id": 2, "result": {}})),
        Reply::status(202),
        Reply::status(500),
        Reply::status(401),
        Reply::status(307).header("location", "http://127.0.0.1:1/"),
        Reply::stream().comment("nothing"),
        Reply::invalid_utf8(),
        Reply::stream().comment("then").cut_after(1),
        Reply::close(),
        Reply::reset(),
    ] {
        let scripted = greeted([reply]);
        let answered = run(&connected(&scripted), "{}").await;
        assert!(matches!(answered, Err(ToolError::Broken { .. })), "{answered:?}");
    }
}

#[tokio::test]
async fn a_protocol_that_we_do_not_speak_is_not_spoken() {
    let scripted = Upstream::scripted([Reply::json(result(1, json!({"protocolVersion": "1999-01-01"})))]);
    assert!(matches!(run(&connected(&scripted), "{}").await, Err(ToolError::Broken { .. })));
    assert_eq!(scripted.requests().len(), 1);
}

// P12
#[tokio::test]
async fn a_server_that_repeats_our_credential_does_not_hand_it_to_the_model() {
    let scripted = greeted([Reply::json(result(2, text(CREDENTIAL)))]);
    let server = connected(&scripted);
    assert_eq!(run(&server, "{}").await, Ok(json!("[redacted]")));
    assert!(!format!("{server:?} {:?}", settings(&scripted)).contains("mcp-secret"));
}

// P10
#[tokio::test]
async fn a_tenants_server_serves_no_other_tenant() {
    let scripted = Upstream::start();
    let egress = Arc::new(Egress::new(config(&[scripted.address().to_string()])));
    let settings = McpSettings { tenant_id: Some(2), ..settings(&scripted) };
    let server = McpServer::connect(settings, egress).unwrap();
    assert!(matches!(server.tools(&scope_of(1)).await, Err(ToolError::Broken { .. })));
    assert!(matches!(run(&server, "{}").await, Err(ToolError::Broken { .. })));
    assert_eq!(scripted.connections(), 0);
    // The owner gets through: here to a server without a script.
    let arguments = json_of("{}");
    let handler = server.handler("weather");
    let _ = call_of(2, &arguments, async |call| handler.run(call).await).await;
    assert_eq!(scripted.connections(), 1);
}

// S17, P11
#[tokio::test]
async fn a_server_on_loopback_is_not_reached_without_permission() {
    let canary = Upstream::start();
    let port = canary.address().port();
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "rebind.example"] {
        let egress = Egress::with_resolver(EgressConfig::default(), Script::new(&[&["127.0.0.1"]]));
        let url = format!("https://{host}:{port}/mcp");
        let server = McpServer::connect(McpSettings { url, ..settings(&canary) }, Arc::new(egress)).unwrap();
        assert!(matches!(run(&server, "{}").await, Err(ToolError::Broken { .. })), "{host}");
    }
    for url in ["https://2130706433/", "file:///etc/passwd", "https://a@b.example/", ""] {
        let settings = McpSettings { url: url.to_owned(), ..settings(&canary) };
        assert!(McpServer::connect(settings, Arc::new(Egress::new(EgressConfig::default()))).is_err(), "{url}");
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn a_closed_session_is_ended_at_the_server() {
    let scripted = greeted([Reply::json(result(2, text("x"))), Reply::status(200)]);
    let server = connected(&scripted);
    run(&server, "{}").await.unwrap();
    server.close().await;
    let last = scripted.request(3);
    assert_eq!((last.method.as_str(), last.header("mcp-session-id")), ("DELETE", Some("session-1")));
}

#[tokio::test]
async fn a_server_on_the_legacy_transport_is_refused_by_the_name_of_that_transport() {
    // right A9
    for status in [404, 405, 400] {
        let stream = Reply::stream().frame("endpoint", "/messages?session_id=1").hang_after(1);
        let scripted = Upstream::scripted([Reply::status(status), stream]);
        let refused = names(&connected(&scripted)).await.unwrap_err();
        assert!(matches!(refused, ToolError::Unsupported(_)), "{refused:?}");
        assert!(refused.to_string().contains("legacy HTTP+SSE transport"), "{refused}");
        let methods: Vec<String> = scripted.requests().iter().map(|request| request.method.clone()).collect();
        assert_eq!(methods, ["POST", "GET"]);
    }
    // Any other refusal is reported as before.
    let others = [
        Reply::status(404),
        Reply::stream().frame("message", "{}"),
        Reply::json(json!({})),
        Reply::status(405),
        Reply::html(200, "<html>"),
    ];
    for other in others {
        let scripted = Upstream::scripted([Reply::status(405), other]);
        let refused = names(&connected(&scripted)).await.unwrap_err();
        assert!(matches!(refused, ToolError::Broken { .. }), "{refused:?}");
    }
}
