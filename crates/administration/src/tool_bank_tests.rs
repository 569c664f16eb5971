//! Reads, shows and tries tools, with a scripted toolbox.

use std::{borrow::Cow, sync::Arc, time::Duration};

use amalgam_core::{
    ArgumentCheck, BoxFuture, BuiltinDescription, CallDisplay, Decider, FaultKind, Handler, OnError, Policy,
    ResolvedTool, Rights, ServerTool, TenantState, ToolCall, ToolError, ToolOutput, ToolRequest, store::BankKind,
};
use amalgam_protocol::Raw;
use serde_json::{Value, json};

use super::*;

fn json_of(text: &str) -> Json {
    Json::parse(&text.to_owned().into()).unwrap()
}

/// What a tool does when it is run.
#[derive(Clone)]
enum StubOutcome {
    Gives(&'static str),
    Fails(ToolError),
    Panics,
    Sleeps,
}

/// A tool provider whose tools all have the same outcome; `echo` is built in.
#[derive(Clone)]
struct StubRegistry(Option<StubOutcome>);

impl ToolProvider for StubRegistry {
    fn equip<'a>(&'a self, _: &'a Scope, _: Vec<ToolRequest>) -> BoxFuture<'a, Result<Vec<ResolvedTool>, Fault>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn answer_check<'a>(&'a self, _: &'a Json) -> BoxFuture<'a, Result<Arc<dyn amalgam_core::AnswerCheck>, String>> {
        Box::pin(async { Err("no schema is checked here".to_owned()) })
    }

    fn prepare<'a>(&'a self, _: &'a Scope, tool: &'a BankTool) -> BoxFuture<'a, Result<Option<ServerTool>, Fault>> {
        let ready = self.0.clone().map(|doing| ServerTool {
            name: tool.name.clone(),
            label: "bank".to_owned(),
            own_name: tool.name.clone(),
            description: None,
            parameters: tool.parameters.clone(),
            guidance: None,
            policy: tool.policy.clone(),
            shown: CallDisplay::McpCall,
            check: Arc::new(WantsX),
            handler: Arc::new(doing),
        });
        Box::pin(async { Ok(ready) })
    }

    fn seal_settings(&self, _: &Scope, tool: &BankTool, _: Option<&BankTool>) -> Result<Json, BankFault> {
        Ok(tool.settings.clone())
    }

    fn show_settings(&self, tool: &BankTool) -> Json {
        tool.settings.clone()
    }

    fn builtin(&self, name: &str) -> Option<BuiltinDescription> {
        (name == "echo").then(|| BuiltinDescription {
            description: "Says it again.".to_owned(),
            parameters: json_of(r#"{"type":"object"}"#),
            guidance: Some("Use it twice.".to_owned()),
        })
    }

    fn check<'a>(&'a self, _: &'a Scope, _: &'a BankTool) -> BoxFuture<'a, Result<(), BankFault>> {
        Box::pin(async { Ok(()) })
    }
}

struct WantsX;

impl ArgumentCheck for WantsX {
    fn check(&self, arguments: Raw<'_>) -> Result<(), String> {
        arguments.get("x").map(|_| ()).ok_or_else(|| "/x: is missing".to_owned())
    }
}

impl Handler for StubOutcome {
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        assert!(call.call_id.starts_with("try_") && call.key == call.call_id, "{}", call.call_id);
        Box::pin(async move {
            match self {
                Self::Gives(text) => Ok(ToolOutput { output: json_of(text) }),
                Self::Fails(error) => Err(error.clone()),
                Self::Panics => panic!("as it was told to"),
                Self::Sleeps => std::future::pending().await,
            }
        })
    }
}

fn read(body: &Value, bank_scope: BankScope) -> Result<BankTool, Fault> {
    put_tool::read(&body.to_string().into(), Some("lookup"), bank_scope, &StubRegistry(None))
}

fn tool(name: &str, common: bool) -> BankTool {
    BankTool {
        name: name.to_owned(),
        common,
        description: "Looks it up.".to_owned(),
        parameters: json_of(r#"{"type":"object","properties":{"z":{},"a":{}}}"#),
        kind: BankKind::Http,
        settings: json_of(r#"{"url":"https://example.com"}"#),
        guidance: Some("When asked.\nNot else.".to_owned()),
        policy: Policy {
            timeout: Duration::from_millis(1500),
            idempotent: true,
            on_error: OnError::FailTurn,
            after_call_instruction: Some("Say thanks.".to_owned()),
            requires_approval: Some(Decider::Admin),
        },
        active: false,
        created_at_ms: 0,
        updated_at_ms: 0,
    }
}

#[test]
fn what_is_not_said_is_as_it_usually_is() {
    let read = read(&json!({"kind": "client", "description": "Does it."}), BankScope::Common).unwrap();
    let expected = BankTool {
        name: "lookup".to_owned(),
        common: true,
        description: "Does it.".to_owned(),
        parameters: json_of(r#"{"type":"object","properties":{},"additionalProperties":false}"#),
        kind: BankKind::Client,
        settings: json_of("{}"),
        guidance: None,
        policy: Policy::default(),
        active: true,
        created_at_ms: 0,
        updated_at_ms: 0,
    };
    assert_eq!(read, expected);
}

#[test]
fn what_is_shown_of_a_tool_can_be_sent_back_and_means_the_same() {
    for tool in [tool("lookup", false), tool("lookup", true)] {
        let bank_scope = if tool.common { BankScope::Common } else { BankScope::Own };
        let settings = tool.settings.clone();
        let shown = json_of(&serde_json::to_string(&ToolView::of(tool.clone(), settings)).unwrap());
        let again = put_tool::read(shown.bytes(), Some("lookup"), bank_scope, &StubRegistry(None)).unwrap();
        assert_eq!(again, tool, "{shown:?}");
        assert!(
            shown.raw().text().contains(r#""properties":{"z":{},"a":{}}"#),
            "fields stay in their order: {shown:?}"
        );
        assert_eq!(shown.raw().get("timeout").unwrap().text(), "1.5");
    }
}

#[test]
fn a_builtin_tool_brings_its_own_words_unless_others_are_said() {
    let plain = read(&json!({"kind": "builtin", "settings": {"function": "echo"}}), BankScope::Own).unwrap();
    assert_eq!((plain.description.as_str(), plain.guidance.as_deref()), ("Says it again.", Some("Use it twice.")));
    assert_eq!(plain.parameters, json_of(r#"{"type":"object"}"#));
    let body =
        json!({"kind": "builtin", "settings": {"function": "echo"}, "description": "Mine.", "guidance": "Ours."});
    let own = read(&body, BankScope::Own).unwrap();
    assert_eq!((own.description.as_str(), own.guidance.as_deref()), ("Mine.", Some("Ours.")));
}

#[test]
fn a_field_that_is_wrong_is_named() {
    let cases = [
        (json!({"description": "x"}), "kind"),
        (json!({"kind": "shell", "description": "x"}), "kind"),
        (json!({"kind": "http"}), "description"),
        (json!({"kind": "http", "description": " "}), "description"),
        (json!({"kind": "http", "description": "x\u{0}"}), "description"),
        (json!({"kind": "builtin"}), "settings.function"),
        (json!({"kind": "http", "description": "x", "parameters": []}), "parameters"),
        (json!({"kind": "http", "description": "x", "settings": "x"}), "settings"),
        (json!({"kind": "http", "description": "x", "timeout": "10"}), "timeout"),
        (json!({"kind": "http", "description": "x", "timeout": -1}), "timeout"),
        (json!({"kind": "http", "description": "x", "timeout": 1e300}), "timeout"),
        (json!({"kind": "http", "description": "x", "timeout": []}), "timeout"),
        (json!({"kind": "http", "description": "x", "on_error": "stop"}), "on_error"),
        (json!({"kind": "http", "description": "x", "idempotent": "yes"}), "idempotent"),
        (json!({"kind": "http", "description": "x", "requires_approval": "bob"}), "requires_approval"),
        (json!({"kind": "http", "description": "x", "requires_approval": 1}), "requires_approval"),
        (json!({"kind": "http", "description": "x", "active": 1}), "active"),
        (json!({"kind": "http", "description": "x", "common": true}), "common"),
        (json!({"kind": "http", "description": "x", "name": "other"}), "name"),
        (json!({"kind": "http", "description": "x", "tenant_id": 2}), "tenant_id"),
    ];
    for (body, param) in cases {
        let fault = read(&body, BankScope::Own).unwrap_err();
        assert_eq!((fault.kind, fault.param.as_deref()), (FaultKind::Invalid, Some(param)), "{body}");
    }
    let body = json!({"kind": "client", "description": "x"}).to_string().into();
    for name in [None, Some("usage"), Some("Usage")] {
        let fault = put_tool::read(&body, name, BankScope::Own, &StubRegistry(None)).unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("name"), "{name:?}");
    }
}

#[test]
fn times_and_deciders_have_several_ways_to_be_said() {
    let policy = |field: &str, value: Value| {
        let mut body = json!({"kind": "client", "description": "x"});
        body[field] = value;
        read(&body, BankScope::Own).unwrap().policy
    };
    for (said, milliseconds) in [
        (json!(30), 30_000),
        (json!(0.25), 250),
        (json!("30s"), 30_000),
        (json!("1m30s"), 90_000),
        (json!(null), 30_000),
    ] {
        assert_eq!(policy("timeout", said.clone()).timeout, Duration::from_millis(milliseconds), "{said}");
    }
    for (said, decider) in [
        (json!(false), None),
        (json!(null), None),
        (json!(true), Some(Decider::Caller)),
        (json!("caller"), Some(Decider::Caller)),
        (json!("admin"), Some(Decider::Admin)),
    ] {
        assert_eq!(policy("requires_approval", said.clone()).requires_approval, decider, "{said}");
    }
}

#[test]
fn an_own_tool_hides_the_common_one_of_its_name_whatever_its_case() {
    let own = ["B", "d"].map(|name| tool(name, false)).to_vec();
    let common = ["a", "b", "C", "e"].map(|name| tool(name, true)).to_vec();
    let names = |limit: usize| -> Vec<(String, bool)> {
        merged(own.clone(), common.clone(), limit).into_iter().map(|tool| (tool.name, tool.common)).collect()
    };
    let all = [("a", true), ("B", false), ("C", true), ("d", false), ("e", true)];
    let all: Vec<(String, bool)> = all.map(|(name, common)| (name.to_owned(), common)).to_vec();
    assert_eq!(names(10), all);
    assert_eq!(names(3), all[..3]);
}

#[expect(clippy::disallowed_methods, reason = "a test makes its own caller")]
fn scope() -> Scope {
    Scope::authenticated(1, "ada", TenantState::Stored, Rights::ADMIN)
}

async fn tried(doing: Option<StubOutcome>, arguments: &str) -> Value {
    let mut tried = tool("lookup", false);
    tried.policy.timeout = Duration::from_secs(600);
    let trial = trial::run(&StubRegistry(doing), &scope(), &tried, &json_of(arguments)).await.unwrap();
    serde_json::to_value(trial).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_trial_tells_what_came_out_and_what_went_wrong() {
    let good = r#"{"x":1}"#;
    let broken = ToolError::Broken { detail: "no route".to_owned() };
    for (doing, arguments, output, code, detail) in [
        (Some(StubOutcome::Gives(r#"{"n":[1]}"#)), good, json!({"n": [1]}), None, None),
        (Some(StubOutcome::Gives("null")), good, Value::Null, None, None),
        (Some(StubOutcome::Gives("1")), "{}", Value::Null, Some("invalid_arguments"), None),
        (
            Some(StubOutcome::Fails(ToolError::Refused("not today".to_owned()))),
            good,
            Value::Null,
            Some("refused"),
            None,
        ),
        (Some(StubOutcome::Fails(broken)), good, Value::Null, Some("broken"), Some("no route")),
        (Some(StubOutcome::Fails(ToolError::TooLarge)), good, Value::Null, Some("too_large"), None),
        (Some(StubOutcome::Panics), good, Value::Null, Some("broken"), Some("it panicked")),
        (Some(StubOutcome::Sleeps), good, Value::Null, Some("timed_out"), None),
        (None, good, Value::Null, Some("unknown_tool"), None),
    ] {
        let told = tried(doing, arguments).await;
        assert_eq!(
            (&told["output"], told["error"]["code"].as_str(), told["error"]["detail"].as_str()),
            (&output, code, detail),
            "{told}"
        );
        assert_eq!(told["error"].is_null(), code.is_none(), "{told}");
        assert_eq!(told["duration_ms"].as_u64() >= Some(600_000), code == Some("timed_out"), "{told}");
    }
}

#[tokio::test]
async fn what_the_client_runs_cannot_be_tried() {
    let mut client = tool("lookup", false);
    client.kind = BankKind::Client;
    let fault =
        trial::run(&StubRegistry(Some(StubOutcome::Gives("1"))), &scope(), &client, &json_of("{}")).await.unwrap_err();
    assert_eq!(
        (fault.kind, fault.into_parts().message),
        (FaultKind::Invalid, Cow::from("This tool is run by the client: it cannot be tried here."))
    );
}
