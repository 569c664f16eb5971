//! `/admin` over HTTP: what operators and administrators can do, what they cannot, and where it is served.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the helpers of a test fail by panicking, as the test does"
)]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use amalgam_testkit::{Amalgam, Client, HttpAnswer, Setup, binary};
use http::Method;
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, assert_refused, error_of, stores};

const BOOT: &str = "boot-0123456789";

async fn send(client: &Client, method: Method, path: &str, body: &Value) -> HttpAnswer {
    let headers = [("content-type", "application/json")];
    client.request(method, path, &headers, body.to_string().into()).await
}

#[tokio::test]
async fn the_operator_makes_changes_and_lists_tenants() {
    for store in stores() {
        let setup = Setup::new().env("AMALGAM_BOOTSTRAP_KEY", BOOT);
        let amalgam = Amalgam::start(BINARY, store.setup(setup)).await;
        let operator = Client::new(amalgam.url()).with_key(BOOT);
        let made =
            operator.post_json("/admin/tenants", &json!({"name": "acme", "id": 5, "state": "stateless"})).await.json();
        assert_eq!(
            made,
            json!({"id": 5, "object": "tenant", "name": "acme", "state": "stateless", "ai_agent_enabled": true, "created_at": made["created_at"]})
        );
        assert_eq!(operator.get("/admin/tenants/5").await.json(), made);
        let taken = operator.post_json("/admin/tenants", &json!({"name": "other", "id": 5})).await;
        assert_refused(&taken, 409, Some("id"), "conflict");
        let change = json!({"state": "stored", "ai_agent_enabled": false});
        let changed = send(&operator, Method::PATCH, "/admin/tenants/5", &change).await.json();
        assert_eq!(
            [&changed["state"], &changed["ai_agent_enabled"], &changed["name"]],
            [&json!("stored"), &json!(false), &json!("acme")]
        );
        for name in ["six", "seven"] {
            operator.post_json("/admin/tenants", &json!({"name": name})).await;
        }

        let first = operator.get("/admin/tenants?limit=2").await.json();
        let ids = |page: &Value| -> Vec<i64> {
            page["data"].as_array().unwrap().iter().map(|tenant| tenant["id"].as_i64().unwrap()).collect()
        };
        assert_eq!((ids(&first), &first["has_more"], &first["last_id"]), (vec![1, 5], &json!(true), &json!(5)));
        let rest = operator.get("/admin/tenants?limit=2&after=5").await.json();
        assert_eq!((ids(&rest), &rest["has_more"], &rest["first_id"]), (vec![6, 7], &json!(false), &json!(6)));
        let nothing = operator.get("/admin/tenants?after=7").await.json();
        assert_eq!(
            nothing,
            json!({"object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false})
        );

        for (method, path, body, status, param) in [
            (Method::POST, "/admin/tenants", json!({}), 400, Some("name")),
            (Method::POST, "/admin/tenants", json!({"name": ""}), 400, Some("name")),
            (Method::POST, "/admin/tenants", json!({"name": "x", "id": -1}), 400, Some("id")),
            (Method::POST, "/admin/tenants", json!({"name": "x", "owner": 1}), 400, Some("owner")),
            (Method::PATCH, "/admin/tenants/5", json!({"state": "gone"}), 400, Some("state")),
            (Method::PATCH, "/admin/tenants/5", json!({"id": 6}), 400, Some("id")),
            (Method::PATCH, "/admin/tenants/99", json!({"name": "x"}), 404, None),
            (Method::GET, "/admin/tenants/99", json!({}), 404, None),
            (Method::GET, "/admin/tenants/five", json!({}), 404, None),
            (Method::GET, "/admin/tenants?after=x", json!({}), 400, Some("after")),
            (Method::GET, "/admin/tenants?limit=0", json!({}), 400, Some("limit")),
        ] {
            let answer = send(&operator, method.clone(), path, &body).await;
            let error = error_of(&answer);
            assert_eq!((answer.status.as_u16(), error["param"].as_str()), (status, param), "{method} {path} {body}");
        }
    }
}

#[tokio::test]
async fn an_administrator_keeps_the_keys_of_its_own_tenant_and_reaches_no_other() {
    // P10
    for store in stores() {
        let tenants =
            "[tenants.a]\nid = 2\nkeys = [\"am_a-0123456789\"]\n\n[tenants.b]\nid = 3\nkeys = [\"am_b-0123456789\"]\n";
        let setup = Setup::new().env("AMALGAM_BOOTSTRAP_KEY", BOOT).extra(tenants);
        let amalgam = Amalgam::start(BINARY, store.setup(setup)).await;
        let client = |key: &str| Client::new(amalgam.url()).with_key(key);
        let (a, b, operator) = (client("am_a-0123456789"), client("am_b-0123456789"), client(BOOT));

        let order =
            json!({"label": "backend", "scopes": ["use", "admin"], "user": "ada", "expires_at": 4_102_444_800_u64});
        let created = a.post_json("/admin/keys", &order).await;
        assert_eq!(created.header("cache-control"), Some("no-store"));
        let created = created.json();
        let shown: Vec<&str> = created.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = vec![
            "id",
            "object",
            "key",
            "tenant_id",
            "prefix",
            "label",
            "scopes",
            "user",
            "created_at",
            "expires_at",
            "revoked_at",
            "last_used_at",
        ];
        expected.sort_unstable();
        assert_eq!(shown, expected, "every field is there on purpose");
        assert_eq!(
            [&created["tenant_id"], &created["scopes"], &created["user"]],
            [&json!(2), &json!(["use", "admin"]), &json!("ada")]
        );
        let path = format!("/admin/keys/{}", created["id"].as_str().unwrap());
        let own = client(created["key"].as_str().unwrap());
        assert_eq!(own.get("/v1/models").await.status, 200);

        // The other tenant sees nothing of it, and gets the same answer as for an id that never existed.
        assert_eq!(b.get("/admin/keys").await.json()["data"], json!([]));
        for (path, status) in [(path.as_str(), 404), ("/admin/keys/key_AM-unknown", 404)] {
            assert_eq!(send(&b, Method::DELETE, path, &json!({})).await.status, status);
        }
        for tenant in [2, 99] {
            let listed = b.get(&format!("/admin/keys?tenant_id={tenant}")).await;
            let made = b.post_json("/admin/keys", &json!({"tenant_id": tenant})).await;
            for answer in [listed, made] {
                assert_refused(&answer, 403, None, "insufficient_permissions");
                assert!(!answer.text().contains(&tenant.to_string()), "{}", answer.text());
            }
        }
        assert_refused(
            &b.post_json("/admin/keys", &json!({"scopes": ["operator"]})).await,
            403,
            Some("scopes"),
            "insufficient_permissions",
        );
        assert_refused(&b.get("/admin/tenants").await, 403, None, "insufficient_permissions");
        assert_eq!(own.get("/v1/models").await.status, 200, "nothing of this changed anything");

        // The operator reaches all of them.
        let listed = operator.get("/admin/keys?tenant_id=2").await.json();
        assert_eq!(listed["data"][0]["id"], created["id"]);
        assert_eq!(listed["data"][0].get("key"), None);
        assert_eq!(operator.post_json("/admin/keys", &json!({"tenant_id": 99})).await.status, 404);
        let revoked = send(&a, Method::DELETE, &path, &json!({})).await.json();
        assert!(revoked["revoked_at"].is_u64(), "{revoked}");
        assert_eq!(own.get("/v1/models").await.status, 401, "at once, in the process that was told");
        let again = send(&a, Method::DELETE, &path, &json!({})).await.json();
        assert_eq!(again["revoked_at"], revoked["revoked_at"], "once more changes nothing");

        for (body, param) in [
            (json!({"scopes": []}), "scopes"),
            (json!({"scopes": ["root"]}), "scopes"),
            (json!({"scopes": "use"}), "scopes"),
            (json!({"user": "a b"}), "user"),
            (json!({"expires_at": 1}), "expires_at"),
            (json!({"label": "x".repeat(201)}), "label"),
            (json!({"hash": "x"}), "hash"),
            (json!({"key": "am_mine"}), "key"),
        ] {
            let answer = a.post_json("/admin/keys", &body).await;
            assert_eq!((answer.status.as_u16(), error_of(&answer)["param"].as_str()), (400, Some(param)), "{body}");
        }
        assert_eq!(a.post_raw("/admin/keys", "application/json", "{").await.status, 400);
        assert_eq!(a.post_raw("/admin/keys", "text/plain", "{}").await.status, 415);
        assert_eq!(a.post_raw("/admin/keys", "application/json", "x".repeat(70_000)).await.status, 413);
    }
}

#[tokio::test]
async fn lists_of_keys_are_paged_without_gaps() {
    let amalgam = Amalgam::start(BINARY, Setup::new().tenant_key("am_one-0123456789")).await;
    let client = amalgam.client();
    let mut made: Vec<String> = Vec::new();
    for number in 0..7 {
        let key = client.post_json("/admin/keys", &json!({"label": format!("{number}")})).await.json();
        made.push(key["id"].as_str().unwrap().to_owned());
    }
    made.sort();
    let mut seen: Vec<String> = Vec::new();
    let mut after = String::new();
    loop {
        let page = client.get(&format!("/admin/keys?limit=3&after={after}")).await.json();
        seen.extend(page["data"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap().to_owned()));
        if page["has_more"] == json!(false) {
            break;
        }
        after = page["last_id"].as_str().unwrap().to_owned();
    }
    assert_eq!(seen, made);
}

/// A server that other machines could reach, stopped with its handle.
struct Exposed {
    child: Child,
    main: String,
    admin: String,
    _folder: tempfile::TempDir,
}

impl Exposed {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config =
            "[server]\nadmin_listen = \"127.0.0.1:0\"\n\n[tenants.one]\nid = 1\nkeys = [\"am_one-0123456789\"]\n";
        std::fs::write(folder.path().join("amalgam.toml"), config).unwrap();
        let mut child = Command::new(binary(BINARY))
            .args(["serve", "--config", "amalgam.toml", "--listen", "0.0.0.0:0", "--data", "data"])
            .current_dir(folder.path())
            .env_clear()
            .env("AMALGAM_BOOTSTRAP_KEY", BOOT)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut line = |start: &str| {
            let found = lines.find_map(|line| line.strip_prefix(start).map(str::to_owned));
            found.expect("it says where it listens").replace("0.0.0.0", "127.0.0.1")
        };
        let admin = line("amalgam administration on ");
        let main = line("amalgam listening on ");
        Self { child, main, admin, _folder: folder }
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_server_that_other_machines_reach_has_a_door_of_its_own_for_administration() {
    // S15
    let server = Exposed::start();
    let (main, admin) = (Client::new(&server.main).with_key(BOOT), Client::new(&server.admin).with_key(BOOT));
    for path in ["/admin/tenants", "/admin/keys", "/admin/turns/resp_1"] {
        assert_refused(&main.get(path).await, 404, None, "unknown_url");
        assert_eq!(Client::new(&server.main).get(path).await.status, 401, "{path}");
        assert_eq!(Client::new(&server.admin).get(path).await.status, 401, "{path}");
    }
    assert_eq!(admin.get("/admin/tenants").await.status, 200);
    assert_eq!(admin.get("/healthz").await.status, 200);
    // The console is where the administration is, and calls all wires from there.
    assert_eq!(admin.get("/console/").await.status, 200);
    assert_refused(&main.get("/console/").await, 404, None, "unknown_url");
    assert_eq!(admin.get("/v1/models").await.status, 200);
    assert_eq!(Client::new(&server.admin).get("/v1/models").await.status, 401);
    assert_eq!(main.get("/v1/models").await.status, 200);
    assert_eq!(Client::new(&server.main).get("/v1/models").await.status, 401, "never open to others");
}

#[tokio::test]
async fn a_turn_is_shown_to_administrators_of_its_tenant_alone() {
    let tenants =
        "[tenants.a]\nid = 2\nkeys = [\"am_a-0123456789\"]\n\n[tenants.b]\nid = 3\nkeys = [\"am_b-0123456789\"]\n";
    let amalgam = Amalgam::start(BINARY, Setup::new().extra(tenants)).await;
    let client = |key: &str| Client::new(amalgam.url()).with_key(key);
    let ada = client("am_a-0123456789").with_header("x-amalgam-user", "ada");
    let response = ada.post_json("/v1/responses", &json!({"model": "demo", "input": "Hello!"})).await.json();
    let path = format!("/admin/turns/{}", response["id"].as_str().unwrap());
    let turn = client("am_a-0123456789").get(&path).await.json();
    assert_eq!([&turn["id"], &turn["object"], &turn["user"]], [&response["id"], &json!("turn"), &json!("ada")]);
    assert_eq!(turn["response"], response);
    let call = &turn["calls"][0];
    assert_eq!(
        [&call["number"], &call["upstream"], &call["error"]],
        [&json!(0), &json!("demo"), &Value::Null],
        "{turn}"
    );
    assert_eq!(client("am_b-0123456789").get(&path).await.status, 404);
    let cli = Cli::beside(&amalgam, &stores()[0]);
    let user = cli.json(&["keys", "create", "--tenant", "2"]);
    assert_eq!(client(user["key"].as_str().unwrap()).get(&path).await.status, 403);
}
