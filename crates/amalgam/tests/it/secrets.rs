//! P12: secrets are planted everywhere that one can be, every output is searched, and none of them is found.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the test does")]

use std::path::Path;

use amalgam_testkit::{Amalgam, Client, Setup};
use base64::Engine as _;
use serde_json::json;

use crate::support::{BINARY, Cli, Delivery, Script, TestStore, Wire, World, stores};

const PROVIDER: &str = "hush-provider-key-0123456789";
const CALLER: &str = "am_hush-caller-key-0123456789";
const BOOT: &str = "hush-bootstrap-key-0123456789";
const TOKENS: &str = "hush-jwt-secret-0123456789-0123456789";
const HEADER: &str = "hush-header-value-0123456789";
const MASTER: &str = "8f3a1c5e7b9d2046a8c0e2f4b6d81357193b5d7f9a1c3e5072946b8dafc1e305";
const TOOL: &str = "hush-tool-key-0123456789";
const TENANT: &str = "hush-tenant-key-0123456789";
const PASSWORD: &str = "hush-database-password";

/// Everything that the process has written down anywhere, one text a place.
fn places(folder: &Path, places: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => self::places(&path, places),
            false => places.push((path.display().to_string(), std::fs::read(&path).unwrap())),
        }
    }
}

fn assert_absent(secrets: &[String], places: &[(String, Vec<u8>)]) {
    for (place, bytes) in places {
        for secret in secrets {
            let forms =
                [secret.clone().into_bytes(), base64::engine::general_purpose::STANDARD.encode(secret).into_bytes()];
            for form in forms {
                let found = bytes.windows(form.len()).any(|window| window == form);
                assert!(!found, "{place} holds {secret}: {}", String::from_utf8_lossy(bytes));
            }
        }
    }
}

#[tokio::test]
async fn no_secret_comes_out_in_answers_logs_reports_or_the_database() {
    for store in stores() {
        let secrets = everything_speaks(&store).await;
        for secret in secrets {
            let encoded = base64::engine::general_purpose::STANDARD.encode(&secret);
            for form in [&secret, &encoded] {
                assert_ne!(store.holds(form), Some(true), "{} holds {form}", store.name);
            }
        }
    }
}

/// Uses every route and command on a store, and finds no secret in their output and files; the secrets.
async fn everything_speaks(store: &TestStore) -> Vec<String> {
    let tenants = format!("[tenants.one]\nid = 1\nkeys = [\"{CALLER}\"]\n");
    let setup = Setup::new()
        .extra(&tenants)
        .env("AMALGAM_BOOTSTRAP_KEY", BOOT)
        .env("AMALGAM_SECRET_KEY", MASTER)
        .env("AMALGAM_AUTH_JWT_SECRET", TOKENS)
        .env("AMALGAM_AUTH_JWT_ISSUER", "us")
        .env("AMALGAM_AUTH_JWT_AUDIENCE", "amalgam")
        .env("AMALGAM_LOG", "trace");
    let headers = json!({"x-extra": HEADER}).to_string().replace(':', "=");
    let options = [("headers", headers.as_str())];
    // The provider's key is the upstream's own; each wire is sent it in its own way.
    let setup = ["CHAT", "RESPONSES", "ANTHROPIC"]
        .iter()
        .fold(setup, |setup, wire| setup.env(&format!("AMALGAM_UPSTREAMS_{wire}_API_KEY"), PROVIDER));
    let world = World::with(store.setup(setup), &options).await;
    let operator = Client::new(world.amalgam.url()).with_key(BOOT);
    let cli = Cli::beside(&world.amalgam, store)
        .env("AMALGAM_SECRET_KEY", MASTER)
        .env("AMALGAM_BOOTSTRAP_KEY", BOOT)
        .env("AMALGAM_AUTH_JWT_SECRET", TOKENS)
        .env("AMALGAM_AUTH_JWT_ISSUER", "us")
        .env("AMALGAM_AUTH_JWT_AUDIENCE", "amalgam");
    let mut said: Vec<(String, Vec<u8>)> = Vec::new();

    // Keys are made in both ways; the answer to that is the one place where a key may appear.
    let made = operator.post_json("/admin/keys", &json!({"scopes": ["use", "admin"]})).await.json();
    let over_http = made["key"].as_str().unwrap().to_owned();
    let at_home = cli.json(&["keys", "create", "--tenant", "1"])["key"].as_str().unwrap().to_owned();
    let client = Client::new(world.amalgam.url()).with_key(&over_http);

    // A tool that has a secret of its own, and cannot reach what it is for.
    let settings = json!({"method": "GET", "url": "http://127.0.0.1:1/", "headers": {"x-api-key": {"secret": TOOL}}});
    let tool = json!({"kind": "http", "description": "x", "settings": settings}).to_string();
    let json = [("content-type", "application/json")];
    let put = client.request(http::Method::PUT, "/admin/tools/hush", &json, tool.into()).await;
    assert_eq!(put.status, 201, "{}", put.text());
    said.push(("a tool that was put".to_owned(), put.body.to_vec()));
    let tried = client.post_json("/admin/tools/hush/try", &json!({})).await;
    said.push(("a tool that was tried".to_owned(), tried.body.to_vec()));

    // A tenant with a key of its own for its upstream.
    let config = json!({"model": Wire::Chat.model(), "upstream": "chat", "api_key": TENANT}).to_string();
    let patched = client.request(http::Method::PATCH, "/admin/configs/1", &json, config.into()).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    said.push(("settings that were changed".to_owned(), patched.body.to_vec()));
    world.upstream(Wire::Chat).enqueue(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Whole));
    let answer = client.post_json("/api/v2/ai-agent/respond/", &json!({"message": "Hi"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = world.upstream(Wire::Chat).request(0).header("authorization").map(str::to_owned);
    assert_eq!(told, Some(format!("Bearer {TENANT}")), "its upstream is shown it");

    // Turns of every kind, good and bad: an upstream that repeats what it was sent is the worst of them.
    for wire in [Wire::Chat, Wire::Responses, Wire::Anthropic] {
        for delivery in [Delivery::Whole, Delivery::Stream] {
            world.upstream(wire).enqueue(Script::text(&["fine"]).reply(wire, delivery));
            let request = json!({"model": wire.model(), "input": "Hi", "stream": delivery == Delivery::Stream});
            let answer = client.post_json("/v1/responses", &request).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            said.push((format!("{wire:?} {delivery:?}"), answer.body.to_vec()));
            let id = match delivery {
                Delivery::Whole => answer.json()["id"].clone(),
                Delivery::Stream => answer.json_events().last().unwrap()["response"]["id"].clone(),
            };
            let turn = client.get(&format!("/admin/turns/{}", id.as_str().unwrap())).await;
            said.push((format!("turn of {wire:?} {delivery:?}"), turn.body.to_vec()));
        }
    }
    assert!(world.upstream(Wire::Chat).requests_from(1).iter().all(|request| {
        request.headers.values().any(|value| value.to_str().is_ok_and(|value| value.contains(PROVIDER)))
    }));
    for (path, key) in [
        ("/v1/models", over_http.as_str()),
        ("/v1/models", &at_home),
        ("/v1/models", "am_hush-wrong-key-0123456789"),
        ("/v1/nowhere", CALLER),
        ("/admin/keys", BOOT),
        ("/admin/keys?limit=0", BOOT),
        ("/admin/tools", &over_http),
        ("/admin/tools/hush", &over_http),
        ("/admin/configs/1", &over_http),
        ("/admin/sessions/1", &over_http),
        ("/admin/diagnose", &over_http),
        ("/admin/tenants", BOOT),
        ("/admin/tenants", &at_home),
        ("/openapi.json", ""),
        ("/readyz", ""),
    ] {
        let answer = Client::new(world.amalgam.url()).with_key(key).get(path).await;
        said.push((
            format!("{path} {}", answer.status),
            format!("{:?} {}", answer.headers, answer.text()).into_bytes(),
        ));
    }
    let refused = client.post_json("/v1/responses", &json!({"model": "unknown", "input": over_http.len()})).await;
    said.push(("a refusal".to_owned(), refused.body.to_vec()));

    for command in [
        &["check"][..],
        &["check", "--json"],
        &["doctor", "--listen", "127.0.0.1:0"],
        &["doctor", "--listen", "127.0.0.1:0", "--json"],
        &["keys", "list", "--json"],
        &["tenants", "list"],
        &["migrate", "--status"],
        &["tools", "list", "--company-id", "1", "--json"],
        &["tools", "show", "hush", "--company-id", "1"],
        &["tools", "try", "hush", "--company-id", "1"],
        &["check", "--tenant", "1"],
        &["check", "--tenant", "1", "--json"],
        &["seed", "configs", "--company-id", "1", "--overwrite"],
        &["keys", "rotate-master"],
    ] {
        let output = cli.run(command);
        said.push((format!("{command:?}"), [output.stdout, output.stderr].concat()));
    }
    // Neither the error of an unreachable database nor that of an invalid address contains its password.
    for url in [format!("postgres://me:{PASSWORD}@127.0.0.1:1/db"), format!("mysql://me:{PASSWORD}@127.0.0.1/db")] {
        for command in [&["check"][..], &["doctor"], &["migrate"], &["tenants", "list"], &["serve"]] {
            let folder = tempfile::tempdir().unwrap();
            let cli = Cli::within(folder.path()).env("AMALGAM_STORE_URL", &url).env("AMALGAM_LOG", "trace");
            let output = cli.run(command);
            said.push((format!("{command:?} without its database"), [output.stdout, output.stderr].concat()));
        }
    }

    // The files as they are while the server runs, with what SQLite has not moved yet.
    let data = world.amalgam.folder().join("data");
    if data.is_dir() {
        places(&data, &mut said);
    }
    let is_there = said.iter().any(|(place, _)| place.ends_with("amalgam.db"));
    assert_eq!(is_there, store.holds("").is_none(), "the database is among the places, or can be looked into");
    let exit = world.amalgam.terminate().await;
    assert!(
        exit.stderr.contains("TRACE") || exit.stderr.contains("DEBUG"),
        "the log says everything that it ever says"
    );
    said.push(("standard error".to_owned(), exit.stderr.into_bytes()));
    said.push(("standard output".to_owned(), exit.stdout.into_bytes()));

    let secrets =
        [PROVIDER, CALLER, BOOT, TOKENS, HEADER, MASTER, TOOL, TENANT, PASSWORD, "am_hush-wrong", &over_http, &at_home];
    let secrets = secrets.map(str::to_owned).to_vec();
    assert_absent(&secrets, &said);
    secrets
}

#[tokio::test]
async fn the_key_of_the_first_start_is_in_its_own_file_and_nowhere_else() {
    let amalgam = Amalgam::start(BINARY, Setup::new()).await;
    let key = amalgam.first_key();
    let mut files = Vec::new();
    places(amalgam.folder(), &mut files);
    files.retain(|(name, _)| !name.ends_with("admin.key"));
    files.push(("standard error".to_owned(), amalgam.stderr().into_bytes()));
    files.push(("standard output".to_owned(), amalgam.stdout().into_bytes()));
    assert_absent(&[key], &files);
}
