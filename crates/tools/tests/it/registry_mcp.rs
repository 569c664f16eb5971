//! MCP servers that requests and the bank name: listed, filtered, isolated, evicted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use amalgam_core::{
    AllowedNames, ApprovalRule, Decider, Fault, FaultKind, McpServerRequest, Policy, SecretText, ServerTool,
    store::BankKind, store::BankTool,
};
use amalgam_testkit::{Reply, Upstream};
use amalgam_tools::{Egress, EgressConfig, McpServer, McpSettings, OperatorServer};
use serde_json::{Value, json};

use crate::bank::{House, asked, authorized, run, tool};
use crate::calls::{Script, config, scope_of};
use crate::mcp_http::{hello, result, text};
use crate::mcp_stdio::{process, script, wait_until_dead};

/// A server that answers `initialize`, and then lists its tools.
fn offering(tools: Value) -> Upstream {
    let server = Upstream::start();
    greet(&server, "session-1", tools);
    server
}

/// What a server answers to a new client.
fn greet(server: &Upstream, session: &str, tools: Value) {
    hello(1, session).into_iter().for_each(|reply| server.enqueue(reply));
    server.enqueue(Reply::json(result(2, json!({"tools": tools}))));
}

fn mixed() -> Value {
    json!([
        {"name": "find.city", "description": "Finds.", "annotations": {"readOnlyHint": true, "title": "Find"},
         "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}},
        {"name": "rename", "annotations": {"idempotentHint": true}, "inputSchema": {"type": "object"}},
        {"name": "drop", "inputSchema": {"type": "object"}},
        {"name": "broken", "inputSchema": {"type": "no such type"}},
    ])
}

fn reaching(server: &Upstream) -> House {
    House::reaching(&[server.address().to_string()])
}

fn at(server: &Upstream) -> McpServerRequest {
    asked("maps", Some(format!("{}/mcp", server.url())))
}

fn names(tools: &[ServerTool]) -> Vec<&str> {
    tools.iter().map(|tool| tool.own_name.as_str()).collect()
}

fn greetings(server: &Upstream) -> Vec<Option<String>> {
    let requests = server.requests();
    let first =
        |request: &&amalgam_testkit::Request| request.method == "POST" && request.json()["method"] == "initialize";
    requests.iter().filter(first).map(|request| request.header("authorization").map(str::to_owned)).collect()
}

#[tokio::test]
async fn the_tools_of_a_server_are_shown_and_called_and_a_schema_that_is_none_leaves_its_tool_out() {
    let server = offering(mixed());
    let house = reaching(&server);
    let (shown, tools) = house.listed(1, authorized(at(&server), "token-of-the-server")).await.unwrap();
    let object = json!({"type": "object"});
    let expected = json!([
        {"name": "find.city", "description": "Finds.",
         "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
         "annotations": {"readOnlyHint": true, "title": "Find"}},
        {"name": "rename", "input_schema": object, "annotations": {"idempotentHint": true}},
        {"name": "drop", "input_schema": object},
    ]);
    assert_eq!(shown, expected);
    let [find, rename, drop] = tools.as_slice() else { panic!("{tools:?}") };
    assert_eq!((find.label.as_str(), find.own_name.as_str()), ("maps", "find.city"));
    assert!(find.name.starts_with("maps__find_city") && !find.name.contains('.'), "{}", find.name);
    assert_eq!(rename.name, "maps__rename");
    let policy = |idempotent| Policy {
        timeout: Duration::from_secs(30),
        idempotent,
        requires_approval: Some(Decider::Caller),
        ..Policy::default()
    };
    assert_eq!([find, rename, drop].map(|tool| tool.policy.clone()), [policy(true), policy(true), policy(false)]);
    assert!(find.check.check(crate::calls::json_of("{}").raw()).is_err());

    server.enqueue(Reply::json(result(3, text("Bonn"))));
    assert_eq!(run(find, 1, r#"{"q": "b"}"#).await, Ok(json!("Bonn")));
    let call = server.request(3);
    assert_eq!(call.json()["params"], json!({"name": "find.city", "arguments": {"q": "b"}}));
    assert_eq!(call.header("authorization"), Some("Bearer token-of-the-server"));
}

#[tokio::test]
async fn a_server_is_asked_once_and_then_known() {
    let server = offering(mixed());
    let house = reaching(&server);
    for _ in 0..3 {
        assert_eq!(house.listed(1, at(&server)).await.unwrap().1.len(), 3);
    }
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn only_what_the_request_allows_is_offered_and_approval_is_asked_for_where_it_says_so() {
    let server = offering(mixed());
    let house = reaching(&server);
    let some = |names: &[&str], read_only| {
        Some(AllowedNames { names: names.iter().map(|name| (*name).to_owned()).collect(), read_only })
    };
    for (allowed, expected) in [
        (None, &["find.city", "rename", "drop"][..]),
        (some(&["drop", "absent", "broken"], false), &["drop"]),
        (some(&[], true), &["find.city"]),
        (some(&["rename"], true), &[]),
    ] {
        let (shown, tools) = house.listed(1, McpServerRequest { allowed, ..at(&server) }).await.unwrap();
        assert_eq!(names(&tools), expected);
        assert_eq!(shown.as_array().unwrap().len(), expected.len(), "what may not be used is not shown");
    }
    let never = ApprovalRule::Some { always: None, never: some(&["rename"], false) };
    let always = ApprovalRule::Some { always: some(&["drop"], false), never: some(&[], false) };
    for (approval, expected) in [
        (ApprovalRule::Always, &["find.city", "rename", "drop"][..]),
        (ApprovalRule::Never, &[]),
        (never, &["find.city", "drop"]),
        (always, &["drop"]),
    ] {
        let (_, tools) = house.listed(1, McpServerRequest { approval, ..at(&server) }).await.unwrap();
        let due: Vec<_> = tools.into_iter().filter(|tool| tool.policy.requires_approval.is_some()).collect();
        assert_eq!(names(&due), expected);
    }
}

// P10
#[tokio::test]
async fn a_session_is_shared_neither_between_tenants_nor_between_credentials() {
    let server = Upstream::start();
    for session in ["s-1", "s-2", "s-3", "s-4"] {
        greet(&server, session, mixed());
    }
    let house = reaching(&server);
    let with_header = |value: &str| McpServerRequest {
        headers: vec![("x-user".to_owned(), SecretText(value.to_owned()))],
        ..authorized(at(&server), "one")
    };
    let callers = [
        (1, authorized(at(&server), "one")),
        (2, authorized(at(&server), "one")),
        (1, authorized(at(&server), "two")),
        (1, with_header("a")),
    ];
    for _ in 0..2 {
        for (tenant_id, asked) in &callers {
            house.listed(*tenant_id, asked.clone()).await.unwrap();
        }
    }
    let bearer = |token: &str| Some(format!("Bearer {token}"));
    assert_eq!(greetings(&server), [bearer("one"), bearer("one"), bearer("two"), bearer("one")]);
    assert_eq!(server.requests().len(), 4 * 3);
    // And a tool that was listed for one tenant runs for no other.
    let (_, tools) = house.listed(1, authorized(at(&server), "one")).await.unwrap();
    assert!(run(&tools[2], 2, "{}").await.is_err());
    assert_eq!(server.requests().len(), 4 * 3);
}

fn refused(result: Result<(Value, Vec<ServerTool>), Fault>, port: u16) -> (FaultKind, String) {
    let fault = result.unwrap_err();
    assert_eq!(fault.param.as_deref(), Some("tools"));
    for hidden in ["127.0.0.1", "localhost", "hush", &port.to_string()] {
        assert!(!fault.message.contains(hidden), "{}", fault.message);
    }
    (fault.kind, fault.into_parts().message.into_owned())
}

#[tokio::test]
async fn a_server_that_cannot_be_asked_is_named_and_nothing_of_the_way_to_it() {
    let told = (FaultKind::ToolServer, "The MCP server 'maps' could not be asked for its tools.".to_owned());
    let redirect = Upstream::always(Reply::status(307).header("location", "http://127.0.0.1:1/"));
    let refusing = Upstream::always(Reply::status(401));
    let error = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "hush 127.0.0.1"}});
    let wordy = Upstream::always(Reply::json(error));
    for server in [&redirect, &refusing, &wordy] {
        let asked = authorized(at(server), "hush-hush-hush");
        assert_eq!(refused(reaching(server).listed(1, asked).await, server.address().port()), told);
    }
    let unused = Upstream::unused_address();
    let asked = asked("maps", Some(format!("http://{unused}/")));
    assert_eq!(refused(House::reaching(&[unused.to_string()]).listed(1, asked).await, unused.port()), told);
}

// S17, P11: the canary
#[tokio::test]
async fn a_server_that_a_request_names_is_not_reached_on_a_private_address() {
    let canary = offering(mixed());
    let port = canary.address().port();
    let resolver = Script::new(&[&["127.0.0.1"], &["::1"]]);
    let house = House::with(Egress::with_resolver(EgressConfig::default(), resolver), BTreeMap::new());
    for host in ["rebind.example", "rebind.example", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]"]
    {
        let asked = asked("maps", Some(format!("https://{host}:{port}/mcp")));
        assert_eq!(refused(house.listed(1, asked).await, port).0, FaultKind::ToolServer, "{host}");
    }
    for host in ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "hush:hush@127.0.0.1"] {
        let asked = asked("maps", Some(format!("https://{host}:{port}/mcp")));
        assert_eq!(refused(house.listed(1, asked).await, port).0, FaultKind::Invalid, "{host}");
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn headers_that_belong_to_others_are_refused_before_anything_is_sent() {
    let canary = Upstream::start();
    let house = reaching(&canary);
    for name in ["Host", "Mcp-Session-Id", "Content-Type", "Transfer-Encoding", "a b", ""] {
        let headers = vec![(name.to_owned(), SecretText("hush".to_owned()))];
        let asked = McpServerRequest { headers, ..at(&canary) };
        assert_eq!(refused(house.listed(1, asked).await, canary.address().port()).0, FaultKind::Invalid, "{name}");
    }
    assert_eq!(canary.connections(), 0);
}

/// A setup whose operator has configured this server under the name `maps`.
fn operated(server: &Upstream, tenants: Option<Vec<i64>>) -> House {
    let settings = McpSettings {
        label: "maps".into(),
        url: server.url(),
        authorization: Some("the-operators-token".into()),
        headers: Vec::new(),
        tenant_id: None,
        timeout: Duration::from_secs(7),
    };
    let egress = Arc::new(Egress::new(config(&[server.address().to_string()])));
    let server = Ok(McpServer::connect(settings, egress).unwrap());
    let absent = OperatorServer { server: Err("the variable HUSH is not set".into()), tenants: None };
    let servers = [("maps".to_owned(), OperatorServer { server, tenants }), ("absent".to_owned(), absent)];
    House::with(Egress::new(EgressConfig::default()), servers.into())
}

#[tokio::test]
async fn a_server_of_the_operators_is_named_by_its_label_alone() {
    let server = offering(mixed());
    let house = operated(&server, None);
    let (_, tools) = house.listed(1, asked("maps", None)).await.unwrap();
    assert_eq!(tools[0].policy.timeout, Duration::from_secs(7));
    assert_eq!(house.listed(2, asked("maps", None)).await.unwrap().1.len(), 3, "all tenants share it");
    assert_eq!(greetings(&server), [Some("Bearer the-operators-token".to_owned())]);
}

// S14
#[tokio::test]
async fn the_operators_server_serves_its_tenants_and_takes_and_gives_no_credentials() {
    let (server, foreign) = (offering(mixed()), offering(mixed()));
    let house = operated(&server, Some(vec![1]));
    let port = server.address().port();
    let kind = |result| refused(result, port).0;
    assert_eq!(kind(house.listed(2, asked("maps", None)).await), FaultKind::Invalid);
    assert_eq!(kind(house.listed(1, asked("unknown", None)).await), FaultKind::Invalid);
    let same = refused(house.listed(2, asked("maps", None)).await, port).1;
    assert_eq!(same.replace("maps", "unknown"), refused(house.listed(1, asked("unknown", None)).await, port).1);
    assert_eq!(kind(house.listed(1, authorized(asked("maps", None), "hush")).await), FaultKind::Invalid);
    let headers = vec![("x".to_owned(), SecretText("hush".to_owned()))];
    assert_eq!(kind(house.listed(1, McpServerRequest { headers, ..asked("maps", None) }).await), FaultKind::Invalid);
    assert_eq!(kind(house.listed(1, asked("absent", None)).await), FaultKind::ToolServer);
    // An address under the operator's label is the caller's, without the operator's credential or way out.
    let house = House { registry: operated(&server, None).registry, ..reaching(&foreign) };
    assert_eq!(kind(house.listed(1, at(&foreign)).await), FaultKind::ToolServer);
    assert_eq!((server.connections(), foreign.connections()), (0, 0));
}

#[tokio::test]
async fn a_tool_of_the_bank_may_be_one_of_an_mcp_server() {
    let server = Upstream::scripted(hello(1, "session-1"));
    server.enqueue(Reply::json(result(2, text("own"))));
    let house = reaching(&server);
    let settings = json!({"server": server.url(), "tool": "find.city", "authorization": "token-of-the-tenant"});
    house.keep(1, tool("find", BankKind::Mcp, settings)).await;
    assert_eq!(run(&house.tool(1, "find").await.unwrap(), 1, "{}").await, Ok(json!("own")));
    assert_eq!(server.request(2).json()["params"]["name"], "find.city");
    assert_eq!(server.request(2).header("authorization"), Some("Bearer token-of-the-tenant"));
    assert!(!format!("{:?}", house.bank.tools.lock().unwrap()).contains("token-of"));

    let operators = Upstream::scripted(hello(1, "session-1"));
    operators.enqueue(Reply::json(result(2, text("the operator's"))));
    let house = operated(&operators, Some(vec![1]));
    let common = BankTool { common: true, ..tool("find", BankKind::Mcp, json!({"server": "maps"})) };
    house.keep(0, common).await;
    assert_eq!(run(&house.tool(1, "find").await.unwrap(), 1, "{}").await, Ok(json!("the operator's")));
    // It is common, and still not for all tenants.
    assert!(run(&house.tool(2, "find").await.unwrap(), 2, "{}").await.is_err());
    assert_eq!(operators.requests().len(), 3);
}

#[tokio::test]
async fn an_idle_server_is_told_that_its_session_ends() {
    let (idle, other) = (offering(mixed()), offering(mixed()));
    idle.enqueue(Reply::status(200));
    let house = House::reaching(&[idle.address().to_string(), other.address().to_string()]);
    house.listed(1, at(&idle)).await.unwrap();
    house.clock.pass(Duration::from_secs(601));
    house.listed(1, at(&other)).await.unwrap();
    let last = idle.wait_for_requests(4).await.pop().unwrap();
    assert_eq!((last.method.as_str(), last.header("mcp-session-id")), ("DELETE", Some("session-1")));
}

#[tokio::test]
async fn everything_ends_when_the_registry_is_closed() {
    let server = offering(mixed());
    server.enqueue(Reply::status(200));
    let program = McpServer::start(process(script("text $$")));
    let servers = [("shell".to_owned(), OperatorServer { server: Ok(program), tenants: None })];
    let house = House::with(Egress::new(config(&[server.address().to_string()])), servers.into());
    let (_, tools) = house.listed(1, asked("shell", None)).await.unwrap();
    let pid = run(&tools[0], 1, "{}").await.unwrap();
    house.listed(1, at(&server)).await.unwrap();

    house.registry.close().await;
    wait_until_dead(&pid).await;
    assert_eq!(server.requests().last().unwrap().method, "DELETE");
}

#[tokio::test]
async fn servers_of_one_request_are_asked_together_and_answered_in_their_order() {
    let (one, other) = (offering(mixed()), offering(json!([])));
    let house = House::reaching(&[one.address().to_string(), other.address().to_string()]);
    house.keep(1, tool("current_time", BankKind::Builtin, json!({}))).await;
    let asked = vec![
        amalgam_core::ToolRequest::Mcp(McpServerRequest { label: "one".into(), ..at(&one) }),
        amalgam_core::ToolRequest::Named("current_time".into()),
        amalgam_core::ToolRequest::Mcp(McpServerRequest { label: "other".into(), ..at(&other) }),
    ];
    let equipped = amalgam_core::ToolProvider::equip(&house.registry, &scope_of(1), asked).await.unwrap();
    let shape = format!("{equipped:?}");
    let [amalgam_core::ResolvedTool::Listed { tools, .. }, amalgam_core::ResolvedTool::Server(_), last] =
        equipped.as_slice()
    else {
        panic!("{shape}")
    };
    assert_eq!(tools[0].label, "one");
    assert!(matches!(last, amalgam_core::ResolvedTool::Listed { tools, .. } if tools.is_empty()));
}
