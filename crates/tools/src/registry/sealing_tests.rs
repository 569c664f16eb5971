use amalgam_core::Policy;
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "hush-hush-hush";

/// Binds a text to its context, and hides nothing: what is tested is where it is used.
struct Visible;

impl Seal for Visible {
    fn seal(&self, context: &str, plain: &[u8]) -> String {
        format!("ams2.{context}.{}", String::from_utf8_lossy(plain).replace("hush", "HUSH"))
    }

    fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let inner = sealed.strip_prefix("ams2.")?.strip_prefix(context)?.strip_prefix('.')?;
        Some(inner.replace("HUSH", "hush").into_bytes())
    }
}

fn tool(kind: BankKind, settings: &Value) -> BankTool {
    BankTool {
        name: "tool".to_owned(),
        common: false,
        description: "d".to_owned(),
        parameters: Json::from(Raw::EMPTY_OBJECT),
        kind,
        settings: Json::parse(&settings.to_string().into()).unwrap(),
        guidance: None,
        policy: Policy::default(),
        active: true,
        created_at_ms: 1,
        updated_at_ms: 1,
    }
}

fn sealed_after(tool: &BankTool, before: Option<&BankTool>) -> Result<Value, BankFault> {
    let settings = seal(&Visible, "tenant:3 tool", tool, before)?;
    Ok(serde_json::from_slice(settings.bytes()).unwrap())
}

fn kept(kind: BankKind, settings: &Value) -> BankTool {
    tool(kind, &sealed_after(&tool(kind, settings), None).unwrap())
}

fn field(result: Result<Value, BankFault>) -> (String, String) {
    let fault = result.unwrap_err();
    assert!(!fault.reason.contains("hush"), "{}", fault.reason);
    (fault.field, fault.reason)
}

fn http(url: &str, headers: Value) -> Value {
    json!({"method": "GET", "url": url, "headers": headers})
}

// P12, RNCC-30
#[test]
fn secrets_are_sealed_and_everything_else_stays_as_it_was_written() {
    let text = r#"{"url":"https://a.example/","body":{"n":1.50,"headers":{"x-api-key":"hush"}},
        "headers":{"x-plain":"1","x-custom":{"secret":"hush-1"},"X-API-Key":"hush-2"},"method":"POST"}"#;
    let mut http = tool(BankKind::Http, &json!({}));
    http.settings = Json::parse(&text.into()).unwrap();
    let settings = seal(&Visible, "tenant:3 tool", &http, None).unwrap();
    let expected = concat!(
        r#"{"url":"https://a.example/","body":{"n":1.50,"headers":{"x-api-key":"hush"}},"headers":{"x-plain":"1","#,
        r#""x-custom":{"sealed":"ams2.tenant:3 tool.HUSH-1"},"X-API-Key":{"sealed":"ams2.tenant:3 tool.HUSH-2"}},"#,
        r#""method":"POST"}"#
    );
    assert_eq!(settings.raw().text(), expected);

    for authorization in [json!("hush"), json!({"secret": "hush"})] {
        let mcp = tool(BankKind::Mcp, &json!({"server": "https://a.example", "authorization": authorization}));
        let sealed = json!({"sealed": "ams2.tenant:3 tool.HUSH"});
        assert_eq!(sealed_after(&mcp, None).unwrap(), json!({"server": "https://a.example", "authorization": sealed}));
    }
}

// P12
#[test]
fn no_secret_is_shown() {
    let settings = http("https://a.example", json!({"x": {"secret": SECRET}, "cookie": SECRET, "y": "1"}));
    let hidden = json!({"secret": "***"});
    let expected = http("https://a.example", json!({"x": hidden, "cookie": hidden, "y": "1"}));
    // Whether the settings are plain, sealed or damaged, none of their secrets is returned.
    for tool in [tool(BankKind::Http, &settings), kept(BankKind::Http, &settings)] {
        let shown = show(&tool);
        assert_eq!(serde_json::from_slice::<Value>(shown.bytes()).unwrap(), expected);
    }
    let odd = tool(BankKind::Mcp, &json!({"authorization": {"secret": SECRET, "more": 1}, "headers": [SECRET]}));
    assert_eq!(show(&odd).raw().text(), "{}");
}

#[test]
fn a_secret_that_is_not_given_again_stays() {
    let before = kept(BankKind::Http, &http("https://a.example/x", json!({"X-Token": {"secret": SECRET}, "y": "1"})));
    let hidden = json!({"secret": "***"});
    let changed = tool(BankKind::Http, &http("https://a.example/y?z", json!({"x-token": hidden, "y": "2"})));
    let expected =
        http("https://a.example/y?z", json!({"x-token": {"sealed": "ams2.tenant:3 tool.HUSH-HUSH-HUSH"}, "y": "2"}));
    assert_eq!(sealed_after(&changed, Some(&before)).unwrap(), expected);

    let mcp = json!({"server": "https://a.example", "authorization": SECRET});
    let again = json!({"server": "https://a.example", "authorization": hidden, "tool": "t"});
    let kept_one = sealed_after(&tool(BankKind::Mcp, &again), Some(&kept(BankKind::Mcp, &mcp))).unwrap();
    assert_eq!(kept_one["authorization"]["sealed"], "ams2.tenant:3 tool.HUSH-HUSH-HUSH");
}

#[test]
fn a_secret_that_was_never_there_cannot_be_kept() {
    let hidden = || http("https://a.example", json!({"x-token": {"secret": "***"}}));
    let again = tool(BankKind::Http, &hidden());
    let plain = kept(BankKind::Http, &http("https://a.example", json!({"y": "1"})));
    let common = BankTool {
        common: true,
        ..kept(BankKind::Http, &http("https://a.example", json!({"x-token": {"secret": SECRET}})))
    };
    for before in [None, Some(&plain), Some(&common)] {
        let told = field(sealed_after(&again, before));
        assert_eq!(told, ("settings.headers.x-token".into(), "there is no secret that could be kept".into()));
    }
}

// S14: a caller that may write a tool must not be able to read its secret by sending it elsewhere.
#[test]
fn a_secret_does_not_follow_its_tool_to_another_host() {
    let before = kept(BankKind::Http, &http("https://a.example/x", json!({"x-token": {"secret": SECRET}})));
    for url in [
        "https://b.example/x",
        "http://a.example/x",
        "https://a.example:8443/x",
        "https://a.example.b.example/x",
        "https://b.example?https://a.example/x",
        "https://b.example#@a.example/x",
        "https://b.example\\a.example/",
    ] {
        let moved = tool(BankKind::Http, &http(url, json!({"x-token": {"secret": "***"}})));
        let (path, reason) = field(sealed_after(&moved, Some(&before)));
        assert_eq!((path.as_str(), reason.contains("another host")), ("settings.headers.x-token", true), "{url}");
    }
    let mcp = kept(BankKind::Mcp, &json!({"server": "https://a.example", "authorization": SECRET}));
    let moved = json!({"server": "https://b.example", "authorization": {"secret": "***"}});
    assert_eq!(field(sealed_after(&tool(BankKind::Mcp, &moved), Some(&mcp))).0, "settings.authorization");
}

// S14
#[test]
fn texts_sealed_for_another_tenant_are_refused() {
    let foreign = json!({"sealed": "ams2.tenant:3 tool.HUSH"});
    let told = field(sealed_after(&tool(BankKind::Http, &http("https://a.example", json!({"x": foreign}))), None));
    assert_eq!(told.0, "settings.headers.x");
    let mcp = tool(BankKind::Mcp, &json!({"server": "https://a.example", "authorization": foreign}));
    assert_eq!(field(sealed_after(&mcp, None)).0, "settings.authorization");
}

#[test]
fn settings_whose_secrets_cannot_be_found_are_refused() {
    for (kind, settings, path) in [
        (BankKind::Http, json!([SECRET]), "settings"),
        (BankKind::Client, json!(SECRET), "settings"),
        (BankKind::Http, http("https://a.example", json!([{"x-token": SECRET}])), "settings.headers"),
        (BankKind::Http, http("https://a.example", json!({"x": {"secret": SECRET, "y": 1}})), "settings.headers.x"),
        (BankKind::Http, http("https://a.example", json!({"x": 7})), "settings.headers.x"),
        (BankKind::Mcp, json!({"authorization": {"token": SECRET}}), "settings.authorization"),
    ] {
        assert_eq!(field(sealed_after(&tool(kind, &settings), None)).0, path);
    }
}

#[test]
fn secrets_are_resealed_only_if_all_of_them_can_be_opened() {
    struct Newer;

    impl Seal for Newer {
        fn seal(&self, context: &str, plain: &[u8]) -> String {
            format!("ams3.{}", Visible.seal(context, plain))
        }

        fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
            Visible.open(context, sealed.strip_prefix("ams3.").unwrap_or(sealed))
        }
    }

    let written = http("https://a.example/", json!({"x-api-key": {"secret": SECRET}, "x-version": "2"}));
    let before = kept(BankKind::Http, &written);
    let after = reseal(&Newer, "tenant:3 tool", &before).unwrap();
    let sealed = |settings: &Json| settings.raw().get("headers").unwrap().get("x-api-key").unwrap().text().to_owned();
    assert!(sealed(&after).contains("ams3."), "{after:?}");
    assert_eq!(after.raw().text().replace("ams3.", ""), before.settings.raw().text(), "nothing else has changed");
    assert_eq!(reseal(&Visible, "tenant:4 tool", &before), None);
    let client = tool(BankKind::Client, &json!({}));
    assert_eq!(reseal(&Visible, "tenant:4 tool", &client), Some(client.settings));
}
