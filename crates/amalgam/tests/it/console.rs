//! Browser sessions: who can open one, which requests its cookie authenticates, and when it ends.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use amalgam_testkit::{Amalgam, Client, HttpAnswer, Setup};
use http::Method;
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, TestStore, World, embedded_store, stores};

const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";
const BOOT: &str = "am_bootstrap-key-of-the-tests";

async fn world(store: &TestStore) -> (World, Cli) {
    let setup = Setup::new().extra(TENANTS).env("AMALGAM_BOOTSTRAP_KEY", BOOT);
    let world = World::with(store.setup(setup), &[]).await;
    let cli = Cli::beside(&world.amalgam, store).env("AMALGAM_BOOTSTRAP_KEY", BOOT);
    (world, cli)
}

/// A browser with the cookie of a session.
struct Browser {
    client: Client,
    cookie: String,
    csrf: String,
    id: String,
}

impl Browser {
    /// The browser that got this answer to its sign-in.
    fn of(client: &Client, answer: &HttpAnswer) -> Self {
        assert_eq!(answer.status, 201, "{}", answer.text());
        let header = answer.header("set-cookie").expect("a session has a cookie");
        assert!(header.contains("; HttpOnly; SameSite=Lax;") && header.contains("Path=/;"), "{header}");
        let cookie = header.split(';').next().unwrap_or_default().to_owned();
        let text = |name: &str| answer.json()[name].as_str().unwrap_or_default().to_owned();
        Self { client: client.clone(), cookie, csrf: text("csrf_token"), id: text("id") }
    }

    async fn send(&self, method: Method, path: &str, more: &[(&str, &str)], body: Value) -> HttpAnswer {
        let mut headers = vec![("cookie", self.cookie.as_str())];
        if !body.is_null() {
            headers.push(("content-type", "application/json"));
        }
        headers.extend_from_slice(more);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.client.request(method, path, &headers, body.into()).await
    }

    /// A request of a page of the server, which knows the token.
    async fn own(&self, method: Method, path: &str, body: Value) -> HttpAnswer {
        self.send(method, path, &[("x-amalgam-csrf", &self.csrf)], body).await
    }

    async fn session(&self) -> Value {
        self.own(Method::GET, "/admin/console", Value::Null).await.json()["session"].clone()
    }
}

async fn sign_in(world: &World, key: &str) -> HttpAnswer {
    let client = Client::new(world.amalgam.url()).with_key(key);
    client.request(Method::POST, "/admin/console/sessions", &[("user-agent", "Tests/1")], "".into()).await
}

async fn signed_in(world: &World, key: &str) -> Browser {
    Browser::of(&Client::new(world.amalgam.url()), &sign_in(world, key).await)
}

#[tokio::test]
async fn a_cookie_authenticates_requests_of_the_servers_own_pages_only() {
    for store in stores() {
        let (world, _) = world(&store).await;
        let browser = signed_in(&world, "am_a").await;
        let request = json!({"model": "demo", "input": "Hi"});
        assert_eq!(browser.own(Method::GET, "/admin/turns", Value::Null).await.status, 200);
        assert_eq!(browser.own(Method::POST, "/v1/conversations", json!({})).await.status, 200);
        assert_eq!(browser.own(Method::GET, "/api/v2/ai-agent/sessions/", Value::Null).await.status, 200);
        let read = browser.send(Method::GET, "/admin/turns", &[("sec-fetch-site", "same-origin")], Value::Null).await;
        assert_eq!(read.status, 200, "{}", read.text());

        let refused: [(&[(&str, &str)], u16); 6] = [
            (&[], 401),
            (&[("sec-fetch-site", "same-origin")], 401),
            (&[("x-amalgam-csrf", "0000")], 401),
            (&[("sec-fetch-site", "cross-site"), ("x-amalgam-csrf", &browser.csrf)], 403),
            (&[("origin", "https://evil.example"), ("x-amalgam-csrf", &browser.csrf)], 403),
            (&[("origin", "null"), ("x-amalgam-csrf", &browser.csrf)], 403),
        ];
        for (headers, status) in refused {
            for path in ["/admin/keys", "/v1/responses", "/api/v2/ai-agent/respond/"] {
                let answer = browser.send(Method::POST, path, headers, request.clone()).await;
                assert_eq!(answer.status, status, "{path} {headers:?} {}", answer.text());
            }
        }
        // The token of a session is no key.
        let token = browser.cookie.split_once('=').map_or("", |(_, token)| token);
        let as_key = Client::new(world.amalgam.url()).with_key(token).get("/admin/turns").await;
        assert_eq!(as_key.status, 401);
    }
}

#[tokio::test]
async fn a_session_has_the_rights_of_its_key_and_ends_with_it() {
    for store in stores() {
        let (world, cli) = world(&store).await;
        let key = cli.json(&["keys", "create", "--tenant", "2", "--scope", "view", "--label", "reader"]);
        let browser = signed_in(&world, key["key"].as_str().unwrap_or_default()).await;
        let session = browser.session().await;
        assert_eq!(
            (&session["rights"], &session["tenant_id"], &session["key_id"]),
            (&json!(["view"]), &json!(2), &key["id"])
        );
        for path in ["/admin/turns", "/admin/keys", "/admin/audit", "/admin/tools", "/admin/profiles", "/admin/usage"] {
            let answer = browser.own(Method::GET, path, Value::Null).await;
            assert_eq!(answer.status, 200, "{path} {}", answer.text());
        }
        let profile = json!({"prompt": "One."});
        assert_eq!(browser.own(Method::PUT, "/admin/profiles/p", profile).await.status, 403);
        assert_eq!(browser.own(Method::POST, "/admin/keys", json!({})).await.status, 403);
        assert_eq!(browser.own(Method::GET, "/admin/tenants", Value::Null).await.status, 403);
        assert_eq!(browser.own(Method::GET, "/admin/turns?tenant=1", Value::Null).await.status, 403);
        assert_eq!(
            browser.own(Method::POST, "/v1/responses", json!({"model": "demo", "input": "x"})).await.status,
            403
        );

        let operator = Client::new(world.amalgam.url()).with_key(BOOT);
        let path = format!("/admin/keys/{}", key["id"].as_str().unwrap_or_default());
        let revoked = operator.request(Method::DELETE, &path, &[], "".into()).await;
        assert_eq!(revoked.status, 200, "{}", revoked.text());
        assert_eq!(browser.own(Method::GET, "/admin/turns", Value::Null).await.status, 401);
        assert_eq!(browser.session().await, Value::Null);
    }
}

#[tokio::test]
async fn a_key_that_may_only_use_the_api_opens_no_session() {
    let store = &stores()[0];
    let (world, cli) = world(store).await;
    let key = cli.json(&["keys", "create", "--tenant", "1"]);
    assert_eq!(sign_in(&world, key["key"].as_str().unwrap_or_default()).await.status, 403);
    assert_eq!(sign_in(&world, "am_unknown").await.status, 401);
    let cookie = signed_in(&world, "am_a").await.own(Method::POST, "/admin/console/sessions", Value::Null).await;
    assert_eq!(cookie.status, 401, "a session opens no other one");
}

#[tokio::test]
async fn sessions_are_listed_within_their_tenant_and_ended_by_an_administrator() {
    for store in stores() {
        let (world, cli) = world(&store).await;
        let (one, two, other) =
            (signed_in(&world, "am_a").await, signed_in(&world, "am_a").await, signed_in(&world, "am_b").await);
        let list = async |browser: &Browser| {
            let answer = browser.own(Method::GET, "/admin/console/sessions", Value::Null).await.json();
            let ids = answer["data"].as_array().into_iter().flatten().filter_map(|one| one["id"].as_str());
            let mut ids: Vec<String> = ids.map(str::to_owned).collect();
            ids.sort();
            ids
        };
        let mut expected = vec![one.id.clone(), two.id.clone()];
        expected.sort();
        assert_eq!(list(&one).await, expected, "{}", store.name);
        assert_eq!(list(&other).await, vec![other.id.clone()]);

        let end = |browser: &Browser| format!("/admin/console/sessions/{}", browser.id);
        assert_eq!(other.own(Method::DELETE, &end(&one), Value::Null).await.status, 404);
        assert_eq!(one.own(Method::DELETE, &end(&two), Value::Null).await.status, 200);
        assert_eq!(two.own(Method::GET, "/admin/turns", Value::Null).await.status, 401);
        let out = one.own(Method::DELETE, "/admin/console/session", Value::Null).await;
        assert_eq!(out.status, 200, "{}", out.text());
        assert!(out.header("set-cookie").is_some_and(|cookie| cookie.contains("Max-Age=0")));
        assert_eq!(one.own(Method::GET, "/admin/turns", Value::Null).await.status, 401);

        let audit = cli.json(&["audit", "list", "--limit", "100"]);
        let actions: Vec<&str> =
            audit["data"].as_array().into_iter().flatten().filter_map(|entry| entry["action"].as_str()).collect();
        let count = |action: &str| actions.iter().filter(|one| **one == action).count();
        assert_eq!((count("console_session.create"), count("console_session.delete")), (3, 2), "{actions:?}");
        assert_eq!(cli.json(&["audit", "verify"])["valid"], true);
    }
}

#[tokio::test]
async fn a_link_of_the_command_opens_one_session() {
    for store in stores() {
        let (world, cli) = world(&store).await;
        let link = cli.json(&["console", "link", "--tenant", "2", "--scope", "admin"]);
        assert_eq!(link["expires_in"], 900);
        let url = link["url"].as_str().unwrap_or_default();
        let (address, token) = url.split_once("/console/#link=").expect("the link is that of the console");
        assert!(address.starts_with("http://"), "{url}");
        let client = Client::new(world.amalgam.url());
        let redeem = async |token: &str| client.post_json("/admin/console/link", &json!({"token": token})).await;
        assert_eq!(redeem("acl_unknown").await.status, 401);
        let browser = Browser::of(&client, &redeem(token).await);
        let session = browser.session().await;
        assert_eq!(
            (&session["tenant_id"], &session["rights"], &session["sign_in"]),
            (&json!(2), &json!(["admin"]), &json!("link"))
        );
        assert_eq!(browser.own(Method::GET, "/admin/turns", Value::Null).await.status, 200);
        assert_eq!(redeem(token).await.status, 401, "a link works once");
        assert_eq!(client.post_json("/admin/console/link", &json!({"token": 1})).await.status, 400);
        let failure = cli.failure(&["console", "link", "--tenant", "9"]);
        assert!(failure.contains("there is no tenant 9"), "{failure}");
    }
}

/// The first start in a terminal, which `script` provides, as a process group that ends with the test.
struct TerminalStart {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    pid: String,
}

impl TerminalStart {
    fn begin(data: &std::path::Path) -> Self {
        let command = format!(
            "echo pid $$; exec env -u AMALGAM_BOOTSTRAP_KEY '{BINARY}' serve --listen 127.0.0.1:0 --data '{}'",
            data.display()
        );
        let mut child = Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("`script` of the package bsdutils starts");
        let lines = BufReader::new(child.stdout.take().expect("the output is a pipe")).lines();
        let mut start = Self { child, lines, pid: String::new() };
        start.pid = start.behind("pid ");
        start
    }

    /// The rest of the next line with this text.
    fn behind(&mut self, text: &str) -> String {
        let found = self.lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once(text)?;
            Some(rest.trim_end().to_owned())
        });
        found.expect(text)
    }
}

impl Drop for TerminalStart {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.pid]).status();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_first_start_in_a_terminal_prints_a_link_that_opens_one_session() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut start = TerminalStart::begin(folder.path());
    let link = start.behind("console (opens once, within 15 minutes): ");
    let (address, token) = link.split_once("/console/#link=").expect("the link is that of the console");
    let client = Client::new(address);
    let redeem = async || client.post_json("/admin/console/link", &json!({"token": token})).await;
    let browser = Browser::of(&client, &redeem().await);
    let session = browser.session().await;
    assert_eq!(
        (&session["tenant_id"], &session["sign_in"], &session["rights"]),
        (&json!(1), &json!("link"), &json!(["use", "admin", "operator"]))
    );
    assert_eq!(redeem().await.status, 401, "the link works once");
    assert!(!folder.path().join("admin.key").exists(), "the key was printed, not stored");
}

#[tokio::test]
async fn a_first_start_without_a_terminal_prints_no_link_and_the_command_makes_one() {
    let amalgam = Amalgam::start(BINARY, Setup::new()).await;
    assert!(!amalgam.stdout().contains("#link="), "{}", amalgam.stdout());
    let link = Cli::beside(&amalgam, &embedded_store()).json(&["console", "link"]);
    let (_, token) = link["url"].as_str().and_then(|url| url.split_once("#link=")).expect("a link");
    let client = Client::new(amalgam.url());
    let opened = client.post_json("/admin/console/link", &json!({"token": token})).await;
    assert_eq!(Browser::of(&client, &opened).session().await["sign_in"], "link");
}
