//! HTTP tools against a scripted service on loopback that the configuration allows, or does not.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use amalgam_core::{BankFault, Handler as _, ToolError, ToolOutput};
use amalgam_protocol::Json;
use amalgam_testkit::{Reply, Upstream};
use amalgam_tools::{Egress, EgressConfig, HeaderText, HttpSettings, HttpTool};
use serde_json::{Value, json};

use crate::calls::{Script, call, config, json_of, value_of};

const TIMEOUT: Duration = Duration::from_secs(5);
const SECRET: &str = "sk-a-very-secret-value";

fn settings(method: &str, url: String) -> HttpSettings {
    HttpSettings { method: method.to_owned(), url, headers: Vec::new(), body: None, result_path: None }
}

/// A client that may reach exactly this service.
fn reaching(service: &Upstream) -> Arc<Egress> {
    Arc::new(Egress::new(config(&[service.address().to_string()])))
}

fn tool(settings: &HttpSettings, service: &Upstream) -> HttpTool {
    HttpTool::new(settings, reaching(service), TIMEOUT).unwrap()
}

async fn answered(reply: Reply, result_path: Option<&str>) -> Result<Value, ToolError> {
    let service = Upstream::always(reply);
    let mut settings = settings("GET", service.url());
    settings.result_path = result_path.map(str::to_owned);
    run(&tool(&settings, &service), "{}").await
}

async fn run(tool: &HttpTool, arguments: &str) -> Result<Value, ToolError> {
    let arguments = json_of(arguments);
    call(&arguments, async |call| tool.run(call).await).await.map(|ToolOutput { output }| value_of(&output))
}

fn reason(result: Result<Value, ToolError>) -> String {
    match result {
        Err(ToolError::Refused(reason)) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn arguments_headers_body_and_key_arrive_and_the_result_is_taken_from_its_path() {
    let service = Upstream::always(Reply::json(json!({"data": {"items": [{"id": 1}, {"id": 2}]}})));
    let mut settings = settings("post", format!("{}/courses/{{id}}?lang={{lang}}&page={{page}}", service.url()));
    settings.headers = vec![
        ("authorization".into(), HeaderText::Secret(format!("Bearer {SECRET}").into())),
        ("x-version".into(), HeaderText::Plain("2".into())),
    ];
    settings.body = Some(json_of(r#"{"title": "{title}", "note": "{note}", "fixed": true}"#));
    settings.result_path = Some("data.items.1".into());
    let tool = tool(&settings, &service);
    let output = run(&tool, r#"{"id": "a b", "lang": "de", "title": ["x"]}"#).await.unwrap();

    assert_eq!(output, json!({"id": 2}));
    let request = service.request(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/courses/a%20b?lang=de"));
    assert_eq!(request.json(), json!({"title": ["x"], "fixed": true}));
    assert_eq!(request.header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
    assert_eq!((request.header("x-version"), request.header("content-type")), (Some("2"), Some("application/json")));
    assert_eq!(request.header("idempotency-key"), Some("key-1"));
    assert!(!format!("{settings:?} {tool:?}").contains(SECRET), "P12");
}

#[tokio::test]
async fn all_arguments_may_be_the_body_and_a_get_has_neither_body_nor_key() {
    let service = Upstream::always(Reply::json(json!(1)));
    let mut put = settings("PUT", service.url());
    put.body = Some(json_of(r#""arguments""#));
    put.result_path = None;
    assert_eq!(run(&tool(&put, &service), r#"{"a": [1]}"#).await.unwrap(), json!(1));
    run(&tool(&settings("GET", service.url()), &service), r#"{"a": 1}"#).await.unwrap();

    assert_eq!(service.request(0).json(), json!({"a": [1]}));
    let get = service.request(1);
    assert_eq!((get.header("idempotency-key"), get.header("content-type"), get.body.len()), (None, None, 0));
}

#[tokio::test]
async fn answers_become_json_or_text() {
    let yes = |reply, path| async move { answered(reply, path).await.unwrap() };
    assert_eq!(yes(Reply::json(json!({"a": {"b/c": [7]}})), Some("/a/b~1c/0")).await, json!(7));
    assert_eq!(yes(Reply::bytes("application/problem+json; charset=utf-8", "[1]"), None).await, json!([1]));
    assert_eq!(yes(Reply::bytes("text/plain", "sunny\n\"21\""), None).await, json!("sunny\n\"21\""));
    assert_eq!(yes(Reply::bytes("text/plain", "12"), None).await, json!("12"));
    assert_eq!(yes(Reply::bytes("text/plain", &b"gr\xfcn"[..]), None).await, json!("gr\u{fffd}n"));
    assert_eq!(yes(Reply::status(204), None).await, json!({"status": 204}));
}

#[tokio::test]
async fn answers_that_are_no_result_are_refused_in_words() {
    let no = |reply, path| async move { reason(answered(reply, path).await) };
    assert!(no(Reply::bytes("application/json", "{\"a\": "), None).await.contains("invalid"));
    assert!(no(Reply::bytes("application/json", &b"\"\xff\xfe\""[..]), None).await.contains("neither JSON nor text"));
    assert!(no(Reply::bytes("image/png", &b"\x89PNG\xff"[..]), None).await.contains("neither JSON nor text"));
    assert!(
        no(Reply::bytes("application/json", format!("{}{}", "[".repeat(100), "]".repeat(100))), None)
            .await
            .contains("deep")
    );
    assert!(no(Reply::json(json!({"a": 1})), Some("a.b")).await.contains("`a.b`"));
    assert!(no(Reply::json(json!([1])), Some("1")).await.contains("nothing at"));
    assert!(no(Reply::json(json!(1)).header("content-encoding", "gzip"), None).await.contains("compressed"));
}

#[tokio::test]
async fn a_refusal_carries_status_and_the_beginning_of_its_reason() {
    let page = format!("no\u{1b}[2J such\r\ncourse {}", "x".repeat(1000));
    let told = reason(answered(Reply::bytes("text/plain", page).with_status(404), None).await);
    assert!(told.starts_with("the service answered with status 404: no [2J such course xxx"), "{told}");
    assert!(told.chars().count() < 300, "{}", told.len());
    assert_eq!(reason(answered(Reply::status(500), None).await), "the service answered with status 500");
}

// P12
#[tokio::test]
async fn a_service_that_repeats_our_secret_does_not_hand_it_to_the_model() {
    for reply in [
        Reply::json(json!({"headers": {"authorization": format!("Bearer {SECRET}")}, "token": SECRET})),
        Reply::bytes("text/plain", SECRET),
        Reply::bytes("text/plain", format!("bad key {SECRET}")).with_status(401),
    ] {
        let service = Upstream::always(reply);
        let mut settings = settings("GET", service.url());
        settings.headers = vec![("Authorization".into(), HeaderText::Secret(format!("Bearer {SECRET}").into()))];
        let told = format!("{:?}", run(&tool(&settings, &service), "{}").await);
        assert!(!told.contains(SECRET) && told.contains("[redacted]"), "{told}");
    }
}

// S17
#[tokio::test]
async fn a_redirect_is_refused_and_its_target_is_never_asked() {
    let canary = Upstream::always(Reply::json(json!(1)));
    let service = Upstream::always(Reply::status(307).header("location", canary.url()));
    let egress = Arc::new(Egress::new(config(&["127.0.0.1".into()])));
    let tool = HttpTool::new(&settings("POST", service.url()), egress, TIMEOUT).unwrap();
    assert!(reason(run(&tool, "{}").await).contains("307"));
    assert_eq!(canary.connections(), 0);
}

// S17, P11
#[tokio::test]
async fn nothing_on_loopback_is_reached_without_permission_whatever_its_notation() {
    let canary = Upstream::always(Reply::json(json!(1)));
    let port = canary.address().port();
    for host in
        ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "0.0.0.0"]
    {
        for scheme in ["http", "https"] {
            let settings = settings("GET", format!("{scheme}://{host}:{port}/"));
            let tool = HttpTool::new(&settings, Arc::new(Egress::new(EgressConfig::default())), TIMEOUT).unwrap();
            let result = run(&tool, "{}").await;
            let Err(error @ ToolError::Broken { .. }) = result else { panic!("{host}: {result:?}") };
            assert_eq!(error.to_string(), "the tool could not be run", "the model hears no address");
        }
    }
    for host in ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "user@127.0.0.1"] {
        let settings = settings("GET", format!("https://{host}:{port}/"));
        assert!(HttpTool::new(&settings, reaching(&canary), TIMEOUT).is_err(), "{host}");
    }
    assert_eq!(canary.connections(), 0);
}

// S17
#[tokio::test]
async fn a_name_that_changes_its_address_is_checked_each_time() {
    let service = Upstream::always(Reply::json(json!(1)));
    let port = service.address().port();
    let resolver = Script::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let egress = Egress::with_resolver(config(&[service.address().to_string()]), resolver.clone());
    let tool = HttpTool::new(&settings("GET", format!("http://rebind.example:{port}/")), Arc::new(egress), TIMEOUT);
    let tool = tool.unwrap();
    assert_eq!(run(&tool, "{}").await, Ok(json!(1)));
    assert!(matches!(run(&tool, "{}").await, Err(ToolError::Broken { .. })));
    assert_eq!((service.connections(), resolver.asked().len()), (1, 2));
}

#[tokio::test]
async fn a_service_that_never_returns_ends_at_the_tools_time_limit() {
    for reply in [Reply::hang(), Reply::bytes("text/plain", "half").chunked().hang_after(1)] {
        let service = Upstream::always(reply);
        let settings = settings("GET", service.url());
        let tool = HttpTool::new(&settings, reaching(&service), Duration::from_millis(200)).unwrap();
        let started = Instant::now();
        assert_eq!(run(&tool, "{}").await, Err(ToolError::TimedOut));
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        service.wait_for_disconnect(0).await;
    }
}

#[tokio::test]
async fn a_tool_may_take_longer_than_a_fetch() {
    let service = Upstream::always(Reply::json(json!(1)).after(Duration::from_millis(300)));
    let allow_private = vec![service.address().into()];
    let egress = Egress::new(EgressConfig { allow_private, timeout: Duration::from_millis(50) });
    let tool = HttpTool::new(&settings("GET", service.url()), Arc::new(egress), TIMEOUT).unwrap();
    assert_eq!(run(&tool, "{}").await, Ok(json!(1)));
}

#[tokio::test]
async fn an_answer_without_measure_is_given_up() {
    let large = vec![b'x'; 100_000_000];
    for reply in [Reply::bytes("text/plain", large.clone()), Reply::bytes("text/plain", large).chunked()] {
        assert_eq!(answered(reply, None).await, Err(ToolError::TooLarge));
    }
}

#[tokio::test]
async fn a_service_that_breaks_off_is_broken() {
    let half = Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf");
    for reply in [half, Reply::close(), Reply::reset(), Reply::raw("not http\r\n\r\n")] {
        let result = answered(reply, None).await;
        assert!(matches!(result, Err(ToolError::Broken { .. })), "{result:?}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_with_the_field_and_the_reason() {
    let good = || settings("POST", "https://a.example/{id}".to_owned());
    let told = |settings: HttpSettings| {
        let egress = Arc::new(Egress::new(EgressConfig::default()));
        let BankFault { field, reason } = HttpTool::new(&settings, egress, TIMEOUT).unwrap_err();
        format!("{field}: {reason}")
    };
    let header = |name: &str, value: &str| HttpSettings {
        headers: vec![(name.to_owned(), HeaderText::Secret(value.to_owned().into()))],
        ..good()
    };
    let body = Some(Json::parse(&"{}".into()).unwrap());
    for (settings, reason) in [
        (HttpSettings { method: "TRACE".into(), ..good() }, "method: "),
        (HttpSettings { method: "GET".into(), body, ..good() }, "body: "),
        (HttpSettings { url: "https://{id}.example/".into(), ..good() }, "url: arguments may fill"),
        (HttpSettings { result_path: Some("a..b".into()), ..good() }, "result_path: "),
        (header("Host", "b.example"), "headers: `Host` belongs"),
        (header("transfer-encoding", "chunked"), "headers: `transfer-encoding` belongs"),
        (header("a b", "c"), "headers: `a b` is no name"),
        (header("x", "secret\r\nhost: evil"), "headers: the value of `x`"),
    ] {
        let told = told(settings);
        assert!(told.starts_with(reason) && !told.contains("secret"), "{told}");
    }
    let twice = HttpSettings { headers: [header("a", "b").headers, header("A", "c").headers].concat(), ..good() };
    assert_eq!(told(twice), "headers: `A` is there twice");
}
