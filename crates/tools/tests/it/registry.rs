//! Tools of the bank: what a turn gets, what is refused before it is stored, and who sees what.

use std::{sync::atomic::Ordering, time::Duration};

use amalgam_core::{
    BankFault, Policy, ResolvedTool, ToolError, ToolProvider as _, ToolRequest, store::BankKind, store::BankTool,
};
use amalgam_testkit::{Reply, Upstream};
use serde_json::{Value, json};

use crate::bank::{House, run, tool};
use crate::calls::{json_of, scope_of, value_of};

const SECRET: &str = "sk-a-very-secret-value";

fn named(name: &str) -> ToolRequest {
    ToolRequest::Named(name.to_owned())
}

fn reaching(service: &Upstream) -> House {
    House::reaching(&[service.address().to_string()])
}

fn weather(service: &Upstream) -> BankTool {
    let url = format!("{}/weather?city={{city}}", service.url());
    let headers = json!({"x-api-key": {"secret": SECRET}, "x-plain": "1"});
    tool("weather", BankKind::Http, json!({"method": "GET", "url": url, "headers": headers}))
}

#[tokio::test]
async fn a_built_in_tool_runs_as_the_bank_describes_it() {
    let house = House::reaching(&[]);
    house.clock.pass(Duration::from_secs(1));
    house.keep(1, tool("clock", BankKind::Builtin, json!({"function": "current_time"}))).await;
    house.keep(1, tool("current_time", BankKind::Builtin, json!({}))).await;
    for name in ["clock", "current_time"] {
        let tool = house.tool(1, name).await.unwrap();
        assert_eq!((tool.name.as_str(), tool.label.as_str(), tool.own_name.as_str()), (name, "bank", name));
        assert_eq!(tool.description.as_deref(), Some("What it is for."));
        assert_eq!(tool.policy, house_policy());
        assert!(tool.check.check(json_of(r#"{"city": 1}"#).raw()).is_err(), "the bank's schema");
        assert_eq!(run(&tool, 1, "{}").await.unwrap()["unix_seconds"], 1);
    }
}

fn house_policy() -> Policy {
    tool("x", BankKind::Client, json!({})).policy
}

// P12
#[tokio::test]
async fn an_http_tool_sends_its_secret_and_never_returns_it() {
    let service = Upstream::always(Reply::json(json!({"key": SECRET, "weather": "sunny"})));
    let house = reaching(&service);
    house.keep(1, weather(&service)).await;
    let tool = house.tool(1, "weather").await.unwrap();
    assert_eq!(run(&tool, 1, r#"{"city": "Bonn"}"#).await.unwrap(), json!({"key": "[redacted]", "weather": "sunny"}));
    let request = service.request(0);
    assert_eq!((request.path.as_str(), request.header("x-api-key")), ("/weather?city=Bonn", Some(SECRET)));
    assert_eq!(request.header("x-plain"), Some("1"));

    let (_, stored) = house.bank.tools.lock().unwrap()[0].clone();
    assert!(!format!("{stored:?} {tool:?} {:?}", house.registry).contains(SECRET));
    let shown = value_of(&house.registry.show_settings(&stored));
    assert_eq!(shown["headers"], json!({"x-api-key": {"secret": "***"}, "x-plain": "1"}));
}

#[tokio::test]
async fn a_tool_that_the_client_runs_is_described_and_not_run() {
    let house = House::reaching(&[]);
    house.keep(1, tool("open_file", BankKind::Client, json!({}))).await;
    let ResolvedTool::Client { description, parameters, .. } = house.equip(1, named("open_file")).await.unwrap() else {
        panic!("not the client's")
    };
    assert_eq!(description.as_deref(), Some("What it is for."));
    assert_eq!(value_of(&parameters)["type"], "object");
    let row = house.bank.tools.lock().unwrap()[0].1.clone();
    assert!(house.registry.prepare(&scope_of(1), &row).await.unwrap().is_none());
}

// RNCC-30
#[tokio::test]
async fn tools_that_the_server_cannot_run_stay_the_clients() {
    let house = House::reaching(&[]);
    house.keep(1, BankTool { active: false, ..tool("current_time", BankKind::Builtin, json!({})) }).await;
    // A row of a program that had more.
    house.bank.put(1, tool("gone", BankKind::Builtin, json!({})));
    let unreadable = json_of(r#"{"type": 1}"#);
    house
        .bank
        .put(1, BankTool { parameters: unreadable, ..tool("odd", BankKind::Builtin, json!({"function": "refuse"})) });
    for name in ["current_time", "gone", "odd", "never_there", "CURRENT_TIME", ""] {
        assert!(house.tool(1, name).await.is_none(), "{name}");
    }
    // Who tries a tool out may do so before it is active.
    let row = house.bank.tools.lock().unwrap()[0].1.clone();
    assert!(house.registry.prepare(&scope_of(1), &row).await.unwrap().is_some());
}

// P10
#[tokio::test]
async fn a_tool_of_one_tenant_never_equips_for_another_and_a_common_one_does() {
    let service = Upstream::always(Reply::json(json!("sunny")));
    let house = reaching(&service);
    house.keep(1, weather(&service)).await;
    house.keep(0, BankTool { common: true, ..tool("refuse", BankKind::Builtin, json!({})) }).await;
    assert!(house.tool(1, "weather").await.is_some());
    assert!(house.tool(2, "weather").await.is_none());
    for tenant_id in [1, 2] {
        let common = house.tool(tenant_id, "refuse").await.unwrap();
        assert_eq!(run(&common, tenant_id, "{}").await, Err(ToolError::Refused("no".into())));
    }
    // A tenant's own tool takes precedence, for that tenant alone.
    house.keep(2, tool("refuse", BankKind::Builtin, json!({"function": "current_time"}))).await;
    assert!(run(&house.tool(2, "refuse").await.unwrap(), 2, "{}").await.is_ok());
    assert!(run(&house.tool(1, "refuse").await.unwrap(), 1, "{}").await.is_err());
}

// P10, S14
#[tokio::test]
async fn a_secret_that_was_moved_to_another_tenant_opens_nothing() {
    let service = Upstream::always(Reply::json(json!("sunny")));
    let house = reaching(&service);
    house.keep(1, weather(&service)).await;
    let stolen = house.bank.tools.lock().unwrap()[0].1.clone();
    house.bank.put(2, stolen.clone());
    house.bank.put(0, BankTool { common: true, name: "common".into(), ..stolen });
    for name in ["weather", "common"] {
        let tool = house.tool(2, name).await.unwrap();
        let ran = run(&tool, 2, r#"{"city": "Bonn"}"#).await;
        assert!(matches!(&ran, Err(ToolError::Broken { detail }) if detail.contains("x-api-key")), "{ran:?}");
    }
    assert_eq!(service.connections(), 0);
}

#[tokio::test]
async fn the_bank_is_asked_once_for_all_tools_of_a_turn_and_not_at_all_without_any() {
    let house = House::reaching(&[]);
    house.keep(1, tool("current_time", BankKind::Builtin, json!({}))).await;
    let asked = vec![named("current_time"), named("unknown"), named("current_time")];
    let equipped = house.registry.equip(&scope_of(1), asked).await.unwrap();
    let [ResolvedTool::Server(one), ResolvedTool::Unknown, ResolvedTool::Server(other)] = equipped.as_slice() else {
        panic!("{equipped:?}")
    };
    assert!(std::sync::Arc::ptr_eq(&one.handler, &other.handler), "made once");
    assert_eq!(house.bank.asked.load(Ordering::Relaxed), 1);
    house.registry.equip(&scope_of(1), Vec::new()).await.unwrap();
    assert_eq!(house.bank.asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_tool_that_has_changed_is_made_anew() {
    let (before, after) = (Upstream::always(Reply::json(json!(1))), Upstream::always(Reply::json(json!(2))));
    let house = House::reaching(&[before.address().to_string(), after.address().to_string()]);
    for (service, told) in [(&before, 1), (&after, 2)] {
        // Both in the same millisecond.
        house.keep(1, weather(service)).await;
        let tool = house.tool(1, "weather").await.unwrap();
        assert_eq!(run(&tool, 1, "{}").await, Ok(json!(told)));
    }
}

#[tokio::test]
async fn a_tool_is_checked_before_it_is_kept_and_the_field_is_named() {
    let house = House::reaching(&[]);
    let http = |settings: Value| tool("t", BankKind::Http, settings);
    let good = json!({"method": "GET", "url": "https://a.example/{city}"});
    let with = |key: &str, value: Value| {
        let mut settings = good.clone();
        settings[key] = value;
        http(settings)
    };
    let parameters = |text: &str| BankTool { parameters: json_of(text), ..http(good.clone()) };
    let timeout = |timeout| BankTool { policy: Policy { timeout, ..Policy::default() }, ..http(good.clone()) };
    let mcp = |settings: Value| tool("t", BankKind::Mcp, settings);
    for (tool, field) in [
        (BankTool { name: "a b".into(), ..http(good.clone()) }, "name"),
        (BankTool { name: "x".repeat(65), ..http(good.clone()) }, "name"),
        (BankTool { description: " \n".into(), ..http(good.clone()) }, "description"),
        (parameters("{}"), "parameters"),
        (parameters(r#"{"type": "array"}"#), "parameters"),
        (parameters(r#"{"type": "object", "properties": {"a": {"$ref": "https://b.example/"}}}"#), "parameters"),
        (timeout(Duration::from_millis(99)), "timeout"),
        (timeout(Duration::from_secs(601)), "timeout"),
        (http(json!({"url": "https://a.example"})), "settings.method"),
        (with("method", json!("TRACE")), "settings.method"),
        (with("url", json!("https://{city}.example/")), "settings.url"),
        (with("url", json!("https://2130706433/")), "settings.url"),
        (with("body", json!({})), "settings.body"),
        (with("result_path", json!("a..b")), "settings.result_path"),
        (with("headers", json!({"Host": "b.example"})), "settings.headers"),
        (with("timeout", json!(1)), "settings.timeout"),
        (tool("t", BankKind::Builtin, json!({})), "settings.function"),
        (tool("refuse", BankKind::Builtin, json!({"function": "system"})), "settings.function"),
        (tool("t", BankKind::Client, json!({"url": "https://a.example"})), "settings.url"),
        (mcp(json!({})), "settings.server"),
        (mcp(json!({"server": "unknown"})), "settings.server"),
        (mcp(json!({"server": "https://a.example:0/"})), "settings.server"),
        (mcp(json!({"server": "https://a.example/", "headers": {"Mcp-Session-Id": "1"}})), "settings.headers"),
        (mcp(json!({"server": "https://a.example/", "authorization": "a\nb"})), "settings.authorization"),
        // S15: no settings name a program.
        (mcp(json!({"command": "sh"})), "settings.command"),
    ] {
        let scope = scope_of(1);
        let settings = house.registry.seal_settings(&scope, &tool, None).unwrap();
        let tool = BankTool { settings, ..tool };
        let BankFault { field: told, reason } = house.registry.check(&scope, &tool).await.unwrap_err();
        assert_eq!(told, field, "{reason}: {:?}", tool.settings);
    }
    house.keep(1, http(good.clone())).await;
    house.keep(1, timeout(Duration::from_millis(100))).await;
    house.keep(1, timeout(Duration::from_secs(600))).await;
}

#[tokio::test]
async fn a_built_in_tool_describes_itself() {
    let house = House::reaching(&[]);
    let words = house.registry.builtin("current_time").unwrap();
    assert!(!words.description.is_empty() && words.guidance.is_some());
    assert_eq!(value_of(&words.parameters)["type"], "object");
    assert_eq!(house.registry.builtin("system"), None);
}

// S17, P11
#[tokio::test]
async fn a_tool_of_the_bank_reaches_nothing_private() {
    let canary = Upstream::always(Reply::json(json!("reached")));
    let house = House::reaching(&[]);
    let port = canary.address().port();
    for (n, host) in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"].into_iter().enumerate() {
        let url = format!("https://{host}:{port}/");
        let (http, mcp) = (format!("http{n}"), format!("mcp{n}"));
        house.keep(1, tool(&http, BankKind::Http, json!({"method": "GET", "url": url}))).await;
        house.keep(1, tool(&mcp, BankKind::Mcp, json!({"server": url}))).await;
        for name in [http, mcp] {
            let ran = run(&house.tool(1, &name).await.unwrap(), 1, "{}").await;
            assert!(matches!(ran, Err(ToolError::Broken { .. })), "{host}: {ran:?}");
        }
    }
    assert_eq!(canary.connections(), 0);
}
