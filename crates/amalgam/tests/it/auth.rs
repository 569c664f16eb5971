//! Who gets in: every route without a key, with a wrong one, and with the right one.

use std::process::Command;

use amalgam_server::ROUTES;
use amalgam_testkit::{Amalgam, Client, Setup, binary, check};
use bytes::Bytes;
use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{BINARY, Delivery, Script, Wire, World, error_of};

const KEY: &str = "am_right-key-0123456789";

/// Routes that need nothing to be there before, and whether they are public.
const SIMPLE: [(&str, &str, bool); 6] = [
    ("GET", "/healthz", true),
    ("GET", "/readyz", true),
    ("GET", "/openapi.json", true),
    ("POST", "/v1/responses", false),
    ("GET", "/v1/models", false),
    ("GET", "/v1/models/demo", false),
];

async fn locked() -> Amalgam {
    Amalgam::start(BINARY, Setup::new().tenant_key(KEY)).await
}

async fn ask(client: &Client, method: &str, path: &str) -> amalgam_testkit::HttpAnswer {
    let method = Method::from_bytes(method.as_bytes()).expect("the list holds methods");
    let body = match method {
        Method::POST => json!({"model": "demo", "input": "Hi"}).to_string().into(),
        _ => Bytes::new(),
    };
    client.request(method, path, &[("content-type", "application/json")], body).await
}

#[tokio::test]
async fn every_route_that_is_not_public_needs_a_key() {
    // S19
    let amalgam = locked().await;
    // Programs on this machine read metrics without a key; what a proxy forwards does not come from one.
    let anonymous = Client::new(amalgam.url()).with_header("x-forwarded-for", "203.0.113.7");
    let routes = ROUTES.iter().map(|route| {
        let path =
            route.published_path().replace("{id}", "demo").replace("{page}", "clients.md").replace(['{', '}'], "");
        (route.method.to_string(), path, route.public)
    });
    let mut routes: Vec<(String, String, bool)> = routes.collect();
    let published = anonymous.get("/openapi.json").await.json();
    let paths = published["paths"].as_object().expect("the document lists the routes");
    let listed: usize = paths.values().map(|methods| methods.as_object().map_or(0, serde_json::Map::len)).sum();
    assert_eq!(listed, routes.len(), "the published list is the table of routes");
    // Paths and methods that do not exist are not distinguished from those that do.
    for path in ["//", "/v1", "/v1/nothing", "/admin", "/admin/tenants", "/metrics", "/docs.md", "/v1/responses/resp_1"]
    {
        routes.extend(["GET", "POST", "DELETE"].map(|method| (method.to_owned(), path.to_owned(), false)));
    }
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"] {
        routes.push((method.to_owned(), "/v1/responses".to_owned(), false));
    }
    for (method, path, public) in &routes {
        let answer = ask(&anonymous, method, path).await;
        // A one-time link is a credential of its own; without one the request is malformed.
        if path == "/admin/console/link" {
            assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text());
            continue;
        }
        // No provider is configured here.
        if path.starts_with("/admin/console/oidc/") {
            assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text());
            continue;
        }
        if *public {
            assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
            continue;
        }
        assert_eq!(answer.status, 401, "{method} {path}: {}", answer.text());
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{method} {path}");
        if path.starts_with("/api/agent/") {
            // This door answers everything with the envelope of a turn. R004-28
            let envelope = answer.json();
            let told = (&envelope["Kind"], &envelope["ErrorCode"]);
            assert_eq!(told, (&json!("error"), &json!("invalid_api_key")), "{method} {path}: {envelope}");
        } else if path.starts_with("/api/v2/") {
            // This door has errors of its own shape. RNCC-02
            assert!(answer.json()["detail"].is_string(), "{method} {path}: {}", answer.text());
        } else if path.starts_with("/v1/messages") {
            // Clients of Anthropic's API read errors of their own shape.
            assert_eq!(answer.json()["error"]["type"], "authentication_error", "{method} {path}: {}", answer.text());
        } else if method != "HEAD" {
            let error = error_of(&answer);
            assert_eq!(
                (&error["type"], &error["code"]),
                (&json!("invalid_request_error"), &json!("invalid_api_key")),
                "{method} {path}"
            );
        }
        let wrong = ask(&anonymous.clone().with_key("am_wrong-key-0123456789"), method, path).await;
        assert_eq!(wrong.status, 401, "{method} {path} with a wrong key");
    }
}

#[tokio::test]
async fn the_right_key_opens_every_route() {
    let amalgam = locked().await;
    for (method, path, _) in SIMPLE {
        let answer = ask(&amalgam.client(), method, path).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
    }
}

#[tokio::test]
async fn nothing_that_only_resembles_the_key_gets_in() {
    // S12, S18
    let amalgam = locked().await;
    let client = Client::new(amalgam.url());
    let wrong = [
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Basic {KEY}"),
        KEY.to_owned(),
        format!("Bearer {KEY}x"),
        format!("Bearer {}", KEY.get(..20).unwrap()),
        format!("Bearer {}", KEY.to_uppercase()),
        format!("Bearer {KEY}, Bearer {KEY}"),
        format!("Bearer \"{KEY}\""),
        format!("Bearer{KEY}"),
        "Bearer ' OR '1'='1".to_owned(),
        "Bearer null".to_owned(),
        format!("Bearer {}", "x".repeat(10_000)),
    ];
    for value in wrong {
        let answer = client.clone().with_header("authorization", &value).get("/v1/models").await;
        assert_eq!(answer.status, 401, "{value:.60}");
        assert!(!answer.text().contains(KEY), "{}", answer.text());
    }
    for header in ["x-api-key", "api-key", "x-amalgam-key", "proxy-authorization", "cookie"] {
        let answer = client.clone().with_header(header, &format!("Bearer {KEY}")).get("/v1/models").await;
        assert_eq!(answer.status, 401, "one way in: not {header}");
    }
    let answer = client.get(&format!("/v1/models?api_key={KEY}")).await;
    assert_eq!(answer.status, 401);
    let answer = client.with_header("authorization", &format!("bEaReR {KEY}")).get("/v1/models").await;
    assert_eq!(answer.status, 200, "the scheme has no case");
}

#[tokio::test]
async fn two_authorization_headers_are_refused_also_when_both_are_right() {
    // S18
    let amalgam = locked().await;
    for (first, second) in [(KEY, KEY), (KEY, "am_wrong"), ("am_wrong", KEY)] {
        let mut socket = amalgam.client().connect().await;
        let request = format!(
            "GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {first}\r\nauthorization: Bearer {second}\r\nconnection: close\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
        assert_eq!(check::error(&serde_json::from_str(body).unwrap()), Vec::<String>::new());
    }
}

#[tokio::test]
async fn each_tenant_has_keys_and_rules_of_its_own() {
    let tenants = "[tenants.one]\nid = 1\nkeys = [\"am_one\", \"env:SECOND_KEY\"]\n\n[tenants.two]\nid = 2\nstate = \"stateless\"\nkeys = [\"am_two\"]\n";
    let setup = Setup::new().env("SECOND_KEY", "am_one-b").env("AMALGAM_BOOTSTRAP_KEY", "am_boot").extra(tenants);
    let world = World::with(setup, &[]).await;
    let client = Client::new(world.amalgam.url());
    let request = json!({"model": Wire::Chat.model(), "input": "Hi", "previous_response_id": "resp_1"});
    for (key, code) in [
        ("am_one", "previous_response_not_found"),
        ("am_one-b", "previous_response_not_found"),
        ("am_boot", "previous_response_not_found"),
        ("am_two", "unsupported_parameter"),
    ] {
        let answer = client.clone().with_key(key).post_json("/v1/responses", &request).await;
        assert_eq!((answer.status.as_u16(), error_of(&answer)["code"].as_str()), (400, Some(code)), "{key}");
        world.upstream(Wire::Chat).enqueue(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Whole));
        let good = json!({"model": Wire::Chat.model(), "input": "Hi"});
        assert_eq!(client.clone().with_key(key).post_json("/v1/responses", &good).await.status, 200, "{key}");
    }
    assert_eq!(client.with_key("am_three").get("/v1/models").await.status, 401);
}

#[tokio::test]
async fn without_any_key_loopback_is_open() {
    let amalgam = Amalgam::start(BINARY, Setup::new()).await;
    let client = Client::new(amalgam.url());
    for (method, path, _) in SIMPLE {
        for client in [client.clone(), client.clone().with_key("anything")] {
            let answer = ask(&client, method, path).await;
            assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn an_open_server_refuses_wrong_keys_of_ours_and_administers_nothing() {
    let amalgam = Amalgam::start(BINARY, Setup::new()).await;
    let client = Client::new(amalgam.url());
    assert_eq!(client.clone().with_key("am_unknown").get("/v1/models").await.status, 401);
    for client in [client.clone(), client.clone().with_key("anything")] {
        for path in ["/admin/tenants", "/admin/keys", "/admin", "/admin/turns/resp_1"] {
            assert_eq!(client.get(path).await.status, 401, "{path}");
        }
    }
    // S20: a page that makes a browser take its own name for this address gets nothing.
    let rebound = client.with_header("host", "evil.example").get("/v1/models").await;
    assert_eq!((rebound.status.as_u16(), error_of(&rebound)["code"].as_str()), (403, Some("insufficient_permissions")));
}

#[tokio::test]
async fn an_address_that_tries_many_keys_is_slowed_down_and_a_good_key_is_not() {
    let amalgam = locked().await;
    let client = Client::new(amalgam.url());
    let mut refused = None;
    for number in 0..60 {
        let answer = client.clone().with_key(&format!("am_guess-{number}")).get("/v1/models").await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
        assert_eq!(answer.status, 401, "{number}");
    }
    let refused = refused.expect("sixty unknown keys in a moment are too many");
    assert_eq!(error_of(&refused)["code"], "too_many_failed_attempts");
    assert!(refused.header("retry-after").is_some_and(|wait| wait.parse::<u64>().is_ok_and(|wait| wait >= 1)));
    assert_eq!(amalgam.client().get("/v1/models").await.status, 200);
}

#[test]
fn other_machines_are_not_served_without_a_key() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("amalgam.toml"), "").unwrap();
    for (listen, arguments) in [
        ("0.0.0.0:0", &["--config", "amalgam.toml"][..]),
        ("[::]:0", &["--config", "amalgam.toml"]),
        ("192.0.2.1:0", &["--config", "amalgam.toml"]),
        ("0.0.0.0:0", &[]),
    ] {
        let output = Command::new(binary(BINARY))
            .args(["serve", "--listen", listen])
            .args(arguments)
            .current_dir(folder.path())
            .env_clear()
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{listen}: {stderr}");
        assert!(stderr.contains("key"), "it says what is missing: {stderr}");
        assert!(output.stdout.is_empty(), "{listen}: it never listened");
    }
}

#[tokio::test]
async fn a_callers_key_shows_up_nowhere() {
    // P12
    let setup = Setup::new().tenant_key(KEY).env("AMALGAM_LOG", "trace");
    let world = World::with(setup, &[]).await;
    let client = world.amalgam.client();
    world.upstream(Wire::Chat).enqueue(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Stream));
    let request = json!({"model": Wire::Chat.model(), "input": "Hi", "stream": true});
    let mut answers = vec![client.post_json("/v1/responses", &request).await];
    answers.push(client.post_json("/v1/responses", &json!({"model": "unknown"})).await);
    answers.push(client.get("/nowhere").await);
    answers.push(client.clone().with_key("am_other-wrong-key").get("/v1/models").await);
    for answer in &answers {
        let shown = format!("{:?} {}", answer.headers, answer.text());
        assert!(!shown.contains(KEY) && !shown.contains("am_other-wrong-key"), "{shown}");
    }
    let stderr = world.amalgam.terminate().await.stderr;
    assert!(stderr.contains("TRACE") || stderr.contains("DEBUG"), "the log says everything that it ever says");
    assert!(!stderr.contains(KEY) && !stderr.contains("am_other-wrong-key"), "{stderr}");
}
