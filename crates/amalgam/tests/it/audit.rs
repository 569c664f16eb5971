//! Every change of the administration leaves an entry in the audit, and a change of the audit itself is found.

use amalgam_server::{ROUTES, RouteInfo};
use amalgam_testkit::{Amalgam, Client, HttpAnswer, Setup};
use http::Method;
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, Delivery, Said, Script, TestStore, Wire, World, asking, shared_store, stores};

const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";
const BOOT: &str = "am_bootstrap-key-of-the-tests";
const SECRET: &str = "sk-a-secret-of-the-tests";

async fn world(store: &TestStore) -> (World, Cli) {
    let setup = Setup::new().extra(TENANTS).env("AMALGAM_BOOTSTRAP_KEY", BOOT);
    let world = World::with(store.setup(setup), &[]).await;
    let cli = Cli::beside(&world.amalgam, store).env("AMALGAM_BOOTSTRAP_KEY", BOOT);
    (world, cli)
}

fn caller(amalgam: &Amalgam, key: &str) -> Client {
    Client::new(amalgam.url()).with_key(key)
}

async fn send(client: &Client, method: &Method, path: &str, body: &Value) -> HttpAnswer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = client.request(method.clone(), path, &[("content-type", "application/json")], body.into()).await;
    assert!(answer.status.is_success(), "{method} {path}: {}", answer.text());
    answer
}

/// Uploads a document.
async fn upload(client: &Client, path: &str) {
    let form = "--b\r\nContent-Disposition: form-data; name=file; filename=a.md\r\n\r\nwords\r\n--b--\r\n";
    let answer = client.post_raw(path, "multipart/form-data; boundary=b", form).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

async fn entries(client: &Client, query: &str) -> Vec<Value> {
    let answer = client.get(&format!("/admin/audit?limit=100{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["data"].as_array().cloned().unwrap_or_default()
}

fn actions(entries: &[Value]) -> Vec<&str> {
    entries.iter().filter_map(|entry| entry["action"].as_str()).collect()
}

/// A tool call that waits for an approval.
async fn approval(world: &World, client: &Client) -> String {
    let tool = json!({"kind": "builtin", "settings": {"function": "current_time"}, "requires_approval": true});
    send(client, &Method::PUT, "/admin/tools/clock", &tool).await;
    let script = Script::new([Said::call("call_1", "clock", &["{}"])]);
    world.upstream(Wire::Chat).enqueue(script.reply(Wire::Chat, Delivery::Whole));
    let request = json!({"input": "Hi", "tools": [{"type": "function", "name": "clock"}]});
    let response = client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &request)).await.json();
    let asks = response["output"].as_array().into_iter().flatten().find(|item| item["type"] == "mcp_approval_request");
    asks.and_then(|item| item["id"].as_str()).expect("the call waits for an approval").to_owned()
}

/// What each route that changes something is called with, in this order; none for a route that this test does not know.
fn change_of(method: &Method, route: &str, ids: &Ids) -> Option<(String, Value, &'static str)> {
    let path = |path: &str| path.to_owned();
    Some(match (method.as_str(), route) {
        ("POST", "/admin/tenants") => (path(route), json!({"name": "new"}), "tenant.create"),
        ("PATCH", "/admin/tenants/{tenant_id}") => {
            (path("/admin/tenants/2"), json!({"name": "renamed"}), "tenant.change")
        }
        ("POST", "/admin/keys") => (path(route), json!({"label": "new"}), "key.create"),
        ("DELETE", "/admin/keys/{key_id}") => (format!("/admin/keys/{}", ids.key), Value::Null, "key.revoke"),
        ("PUT", "/admin/limits/tenants/{id}") => (path("/admin/limits/tenants/2"), in_flight(), "limit.put"),
        ("DELETE", "/admin/limits/tenants/{id}") => (path("/admin/limits/tenants/2"), Value::Null, "limit.delete"),
        ("PUT", "/admin/limits/keys/{id}") => (format!("/admin/limits/keys/{}", ids.key), in_flight(), "limit.put"),
        ("DELETE", "/admin/limits/keys/{id}") => {
            (format!("/admin/limits/keys/{}", ids.key), Value::Null, "limit.delete")
        }
        ("PUT", "/admin/limits/users/{id}") => (path("/admin/limits/users/ada"), in_flight(), "limit.put"),
        ("DELETE", "/admin/limits/users/{id}") => (path("/admin/limits/users/ada"), Value::Null, "limit.delete"),
        ("PUT", "/admin/limits/models/{*id}") => (path("/admin/limits/models/a/b"), in_flight(), "limit.put"),
        ("DELETE", "/admin/limits/models/{*id}") => (path("/admin/limits/models/a/b"), Value::Null, "limit.delete"),
        ("PUT", "/admin/tools/{name}") => {
            let headers = json!({"x-key": {"secret": SECRET}});
            let settings = json!({"url": "https://example.com/", "method": "GET", "headers": headers});
            let tool = json!({"kind": "http", "description": "Looks.", "settings": settings});
            (path("/admin/tools/looker"), tool, "tool.put")
        }
        ("DELETE", "/admin/tools/{name}") => (path("/admin/tools/looker"), Value::Null, "tool.delete"),
        ("POST", "/admin/tools/{name}/try") => (path("/admin/tools/clock/try"), json!({}), "tool.try"),
        ("POST", "/admin/reload") => (path(route), json!({}), "configuration.reload"),
        ("POST", "/admin/approvals/{id}") => {
            (format!("/admin/approvals/{}", ids.approval), json!({"decision": "deny"}), "approval.decide")
        }
        ("PATCH", "/admin/configs/{tenant_id}") => {
            (path("/admin/configs/1"), json!({"api_key": SECRET, "safety_salt": SECRET}), "config.change")
        }
        ("PUT", "/admin/profiles/{slug}") => (path("/admin/profiles/p"), json!({"prompt": "One."}), "profile.put"),
        ("DELETE", "/admin/profiles/{slug}") => (path("/admin/profiles/p"), Value::Null, "profile.delete"),
        ("PUT", "/admin/modes/{name}") => (path("/admin/modes/m"), json!({"system_prompt": "Two."}), "mode.put"),
        ("DELETE", "/admin/modes/{name}") => (path("/admin/modes/m"), Value::Null, "mode.delete"),
        ("POST", "/admin/knowledge/{collection}/documents") => {
            (path("/admin/knowledge/books/documents"), Value::Null, "knowledge.import")
        }
        ("DELETE", "/admin/knowledge/{collection}/documents/{*document_id}") => {
            (path("/admin/knowledge/books/documents/upload:a.md"), Value::Null, "knowledge.delete")
        }
        ("POST", "/admin/courses/bulk") => {
            (path(route), json!({"upsert": [{"id": 5, "title": "E"}]}), "courses.change")
        }
        ("PUT", "/admin/courses/{id}") => (path("/admin/courses/6"), json!({"title": "F"}), "course.put"),
        ("DELETE", "/admin/courses/{id}") => (path("/admin/courses/6"), Value::Null, "course.delete"),
        ("POST", "/admin/courses/users") => {
            (path(route), json!({"upsert": [{"user": "ada", "course_id": 5}]}), "learner_courses.change")
        }
        ("PUT", "/admin/courses/users/{user}/{id}") => {
            (path("/admin/courses/users/bert/5"), json!({"progress": 5}), "learner_course.put")
        }
        ("DELETE", "/admin/courses/users/{user}/{id}") => {
            (path("/admin/courses/users/bert/5"), Value::Null, "learner_course.delete")
        }
        ("DELETE", "/admin/courses/users/{user}") => (path("/admin/courses/users/ada"), Value::Null, "learner.delete"),
        ("POST", "/admin/sessions/{session_id}/close") => {
            (format!("/admin/sessions/{}/close", ids.session), Value::Null, "session.close")
        }
        ("DELETE", "/admin/sessions/{session_id}") => {
            (format!("/admin/sessions/{}", ids.session), Value::Null, "session.delete")
        }
        ("DELETE", "/admin/agent-sessions/{session_id}") => {
            (format!("/admin/agent-sessions/{}", ids.agent_session), Value::Null, "agent_session.delete")
        }
        ("DELETE", "/admin/conversations/{conversation_id}") => {
            (format!("/admin/conversations/{}", ids.conversation), Value::Null, "conversation.delete")
        }
        ("DELETE", "/admin/knowledge/{collection}") => {
            (path("/admin/knowledge/books"), Value::Null, "knowledge.delete")
        }
        _ => return None,
    })
}

fn in_flight() -> Value {
    json!({"in_flight": 100})
}

struct Ids {
    key: String,
    approval: String,
    session: String,
    agent_session: String,
    conversation: String,
}

/// Routes that change nothing although they are no reads.
const READING: [&str; 2] = ["/admin/knowledge/_search", "/admin/upstreams/{name}/check"];

#[tokio::test]
async fn every_route_of_the_administration_that_changes_something_leaves_an_entry() {
    for store in stores() {
        let (world, cli) = world(&store).await;
        let (operator, admin) = (caller(&world.amalgam, BOOT), caller(&world.amalgam, "am_a"));
        let key = send(&admin, &Method::POST, "/admin/keys", &json!({})).await.json();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let approval = approval(&world, &admin).await;
        send(&admin, &Method::PUT, "/admin/profiles/talker", &json!({"prompt": "Hi."})).await;
        world.upstream(Wire::Chat).enqueue(Script::text(&["Yes."]).reply(Wire::Chat, Delivery::Whole));
        let said = json!({"agent": "talker", "message": "Well?"});
        let said = send(&admin, &Method::POST, "/api/v2/ai-agent/respond/", &said).await.json();
        let opened = send(&admin, &Method::POST, "/api/agent/sessions", &json!({"Mode": "QA"})).await.json();
        let conversation = send(&admin, &Method::POST, "/v1/conversations", &json!({})).await.json();
        let ids = Ids {
            key: text(&key["id"]),
            approval,
            session: text(&said["session_id"]),
            agent_session: text(&opened["SessionId"]),
            conversation: text(&conversation["id"]),
        };
        let file = world.amalgam.folder().join("book.md");
        std::fs::write(&file, "words\n").expect("a file can be written");
        let file = file.to_str().expect("the folder's name is text");
        cli.text(&["knowledge", "import", file, "--tenant", "1", "--collection", "books"]);

        let mut changed = 0;
        // Sessions of the console need a browser: `console.rs` has their entries.
        let is_change = |route: &&RouteInfo| {
            let path = route.path;
            path.starts_with("/admin") && !path.starts_with("/admin/console") && route.method != Method::GET
        };
        for route in ROUTES.iter().filter(is_change).filter(|route| !READING.contains(&route.path)) {
            let change = change_of(&route.method, route.path, &ids);
            let (path, body, action) =
                change.unwrap_or_else(|| panic!("{} {} is not known to this test", route.method, route.path));
            let before = entries(&operator, "&limit=1").await[0]["number"].clone();
            match action {
                "knowledge.import" => upload(&operator, &path).await,
                _ => drop(send(&operator, &route.method, &path, &body).await),
            }
            let last = entries(&operator, "&limit=1").await.remove(0);
            // A reload also renames the tenant as the file has it, which is an entry before its own.
            let added = if action == "configuration.reload" { 2 } else { 1 };
            assert_eq!(last["number"].as_u64(), before.as_u64().map(|number| number + added), "{path}: {last}");
            assert_eq!(last["action"], action, "{path}: {last}");
            let key_id = last["actor"]["key_id"].as_str().unwrap_or_default();
            assert!(key_id.starts_with("key_config-1-"), "{path}: {last}");
            let actor = json!({"type": "key", "key_id": key_id, "user": "key:config", "origin": "127.0.0.1"});
            assert_eq!(last["actor"], actor, "{path}");
            let one_side = match (&route.method, action) {
                (&Method::DELETE, "key.revoke") => !last["after"].is_null(),
                (&Method::DELETE, _) => !last["before"].is_null() && last["after"].is_null(),
                (_, "tool.try") => true,
                _ => !last["after"].is_null(),
            };
            assert!(one_side, "{path}: {last}");
            changed += 1;
        }
        assert!(changed >= 14, "{changed}");

        let all = cli.text(&["audit", "list", "--limit", "1000", "--json"]);
        assert!(all.contains("***") && !all.contains(SECRET), "{}: {all}", store.name);
        assert_eq!(cli.json(&["audit", "verify"])["valid"], true, "{}", store.name);
    }
}

#[tokio::test]
async fn an_entry_tells_who_changed_what_and_shows_both_states() {
    for store in stores() {
        let (world, cli) = world(&store).await;
        let admin = caller(&world.amalgam, "am_a");
        let made = cli.json(&["keys", "create", "--tenant", "1", "--scope", "admin", "--scope", "use"]);
        let of_key =
            caller(&world.amalgam, made["key"].as_str().unwrap_or_default()).with_header("x-amalgam-user", "ada");
        send(&admin, &Method::PUT, "/admin/profiles/p", &json!({"prompt": "One."})).await;
        send(&of_key, &Method::PUT, "/admin/profiles/p", &json!({"prompt": "Two."})).await;
        // A change without effect is none.
        send(&of_key, &Method::PUT, "/admin/profiles/p", &json!({"prompt": "Two."})).await;

        let found = entries(&admin, "&object=profile/p").await;
        assert_eq!(actions(&found), ["profile.put", "profile.put"], "{}", store.name);
        assert_eq!((&found[0]["before"]["prompt"], &found[0]["after"]["prompt"]), (&json!("One."), &json!("Two.")));
        assert_eq!(found[1]["before"], Value::Null);
        let actor = json!({"type": "key", "key_id": made["id"], "user": "ada", "origin": "127.0.0.1"});
        assert_eq!((&found[0]["actor"], &found[0]["number"]), (&actor, &Value::Null));

        let by_key = entries(&admin, &format!("&actor={}", made["id"].as_str().unwrap_or_default())).await;
        assert_eq!(actions(&by_key), ["profile.put"]);
        assert_eq!(actions(&entries(&admin, "&actor=ada").await), ["profile.put"]);
        let command = entries(&admin, "&actor=command").await;
        assert_eq!(actions(&command), ["key.create"]);
        assert!(command[0]["actor"]["origin"].is_string(), "{}", command[0]);
        assert_eq!(command[0]["after"]["prefix"], made["prefix"]);
        assert_eq!(entries(&admin, "&from=2100-01-01T00:00:00Z").await, [] as [Value; 0]);
        assert_eq!(entries(&admin, "&to=2000-01-01T00:00:00%2B01:00").await, [] as [Value; 0]);
        assert_eq!(entries(&admin, "&from=2000-01-01T00:00:00Z").await.len(), entries(&admin, "").await.len());
        for (query, param) in [("from=yesterday", "from"), ("to=1", "to"), ("after=audit_none", "after")] {
            let answer = admin.get(&format!("/admin/audit?{query}")).await;
            assert_eq!((answer.status.as_u16(), &answer.json()["error"]["param"]), (400, &json!(param)), "{query}");
        }
        let first = admin.get("/admin/audit?limit=2").await.json();
        let after = first["last_id"].as_str().unwrap_or_default();
        let rest = admin.get(&format!("/admin/audit?limit=100&after={after}")).await.json();
        let pages = [first["data"].as_array().cloned(), rest["data"].as_array().cloned()];
        assert_eq!(pages.into_iter().flatten().flatten().collect::<Vec<_>>(), entries(&admin, "").await);
    }
}

#[tokio::test]
async fn administrators_see_the_entries_of_their_own_tenant_and_operators_all() {
    for store in stores() {
        let (world, cli) = world(&store).await;
        let [a, b, operator] = ["am_a", "am_b", BOOT].map(|key| caller(&world.amalgam, key));
        send(&a, &Method::PUT, "/admin/modes/of_a", &json!({"system_prompt": "A."})).await;
        send(&b, &Method::PUT, "/admin/modes/of_b", &json!({"system_prompt": "B."})).await;
        let objects =
            |found: Vec<Value>| -> Vec<Value> { found.iter().map(|entry| entry["target"]["id"].clone()).collect() };
        assert_eq!(objects(entries(&a, "&object=mode").await), ["of_a"]);
        assert_eq!(objects(entries(&b, "&object=mode").await), ["of_b"]);
        assert_eq!(objects(entries(&operator, "&object=mode").await), ["of_b", "of_a"]);
        assert_eq!(objects(entries(&operator, "&object=mode&tenant_id=1").await), ["of_a"]);
        assert_eq!(a.get("/admin/audit?tenant_id=2").await.status, 403);
        let user = cli.json(&["keys", "create", "--tenant", "1"]);
        let user = caller(&world.amalgam, user["key"].as_str().unwrap_or_default());
        assert_eq!(user.get("/admin/audit").await.status, 403, "{}", store.name);
        // An entry of another tenant is no place to continue from.
        let foreign = entries(&b, "&object=mode").await[0]["id"].as_str().unwrap_or_default().to_owned();
        assert_eq!(a.get(&format!("/admin/audit?after={foreign}")).await.status, 400);
        let list = cli.text(&["audit", "list", "--tenant", "2", "--object", "mode"]);
        assert!(list.contains("of_b") && !list.contains("of_a"), "{list}");
    }
}

#[tokio::test]
async fn commands_leave_entries_and_the_audit_outlives_a_reset() {
    for store in stores() {
        let (world, cli) = world(&store).await;
        let file = world.amalgam.folder().join("mode.json");
        std::fs::write(&file, r#"{"name": "m", "system_prompt": "One."}"#).expect("a file can be written");
        let file = file.to_str().expect("the folder's name is text").to_owned();
        let courses = world.amalgam.folder().join("courses.json");
        std::fs::write(&courses, "[]").expect("a file can be written");
        let courses = courses.to_str().expect("the folder's name is text").to_owned();
        let commands: [(&[&str], &str); 10] = [
            (&["tenants", "create", "--name", "new"], "tenant.create"),
            (&["tenants", "set", "2", "name=other"], "tenant.change"),
            (&["keys", "create", "--tenant", "2"], "key.create"),
            (&["modes", "put", &file, "--tenant", "1"], "mode.put"),
            (&["modes", "delete", "m", "--tenant", "1"], "mode.delete"),
            (&["seed", "tools"], "tool.put"),
            (&["seed", "configs", "--tenant", "1"], "config.change"),
            (&["courses", "import", &courses, "--tenant", "1"], "courses.import"),
            (&["keys", "rotate-master"], "master_key.rotate"),
            (&["reset", "runtime", "--yes"], "store.reset"),
        ];
        for (command, action) in commands {
            let before = cli.json(&["audit", "verify"])["rows"].as_u64().unwrap_or_default();
            cli.text(command);
            let rows = cli.json(&["audit", "verify"])["rows"].as_u64().unwrap_or_default();
            let new = cli.json(&["audit", "list", "--limit", &(rows - before).max(1).to_string()]);
            let found = new["data"].as_array().into_iter().flatten();
            let found = found.filter(|entry| entry["actor"]["type"] == "command" && entry["action"] == action).count();
            assert!(rows > before && found > 0, "{}: {command:?}: {new}", store.name);
        }
        let before = cli.json(&["audit", "verify"])["rows"].as_u64();
        let name = if store.name == "sqlite" { "amalgam.db".to_owned() } else { store_name(&store) };
        cli.text(&["reset", "everything", "--confirm", &name]);
        let after = cli.json(&["audit", "verify"]);
        assert_eq!((after["rows"].as_u64(), &after["valid"]), (before.map(|rows| rows + 1), &json!(true)));
    }
}

fn store_name(store: &TestStore) -> String {
    let url = store.environment().into_iter().find(|(name, _)| *name == "AMALGAM_STORE_URL");
    let url = url.map(|(_, url)| url.to_owned()).unwrap_or_default();
    url.split('?').next().and_then(|url| url.rsplit('/').next()).unwrap_or_default().to_owned()
}

/// Lets a person with a database shell change the past.
fn disarm(store: &TestStore, amalgam: &Amalgam) {
    store.run(
        amalgam,
        match store.name {
            "sqlite" => "DROP TRIGGER audit_is_not_updated; DROP TRIGGER audit_is_not_deleted",
            _ => "DROP TRIGGER audit_is_append_only ON audit",
        },
    );
}

#[tokio::test]
async fn a_row_that_was_changed_removed_or_reordered_is_named() {
    for store in stores() {
        let (world, cli) = world(&store).await;
        let admin = caller(&world.amalgam, "am_a");
        for number in 0..6 {
            let path = format!("/admin/modes/m{number}");
            send(&admin, &Method::PUT, &path, &json!({"system_prompt": "x"})).await;
        }
        let intact = cli.json(&["audit", "verify"]);
        assert_eq!((&intact["valid"], &intact["breaks"]), (&json!(true), &json!([])));
        let last = intact["last_number"].as_u64().unwrap_or_default();
        let expect = format!("{last}:{}", intact["last_hash"].as_str().unwrap_or_default());
        assert!(cli.text(&["audit", "verify", "--expect", &expect]).contains(&expect));
        let other = format!("{last}:{}", "0".repeat(64));
        assert!(cli.failure(&["audit", "verify", "--expect", &other]).contains(&format!("row {last} ")));

        disarm(&store, &world.amalgam);
        let verify = |statement: String| {
            store.run(&world.amalgam, &statement);
            let output = cli.run(&["audit", "verify", "--json"]);
            assert!(!output.status.success(), "{}: {statement}", store.name);
            let found: Value = serde_json::from_slice(&output.stdout).expect("the answer is JSON");
            let breaks = found["breaks"].as_array().cloned().unwrap_or_default();
            breaks
                .iter()
                .map(|found| {
                    (
                        found["number"].as_u64().unwrap_or_default(),
                        found["problem"].as_str().unwrap_or_default().to_owned(),
                    )
                })
                .collect::<Vec<_>>()
        };
        let one = |number: u64, problem: &str| (number, problem.to_owned());
        let (first, second, third) = (last - 4, last - 3, last - 2);
        assert_eq!(
            verify(format!("UPDATE audit SET after_change = '{{\"forged\":1}}' WHERE number = {first}")),
            [one(first, "changed")]
        );
        let found = verify(format!(
            "UPDATE audit SET number = -1 WHERE number = {second}; UPDATE audit SET number = {second} WHERE number = {third}; \
             UPDATE audit SET number = {third} WHERE number = -1"
        ));
        assert!(found.contains(&one(second, "changed")) && found.contains(&one(third, "changed")), "{found:?}");
        let found = verify(format!("DELETE FROM audit WHERE number = {third}"));
        assert!(found.contains(&one(third, "missing")), "{found:?}");
        let found = verify(format!("DELETE FROM audit WHERE number = {last}"));
        assert!(found.contains(&one(last, "missing")), "{found:?}");
        let told = cli.failure(&["audit", "verify"]);
        assert!(told.contains(&format!("row {last} is missing")) && told.contains("was changed"), "{told}");
    }
}

#[tokio::test]
async fn the_database_itself_refuses_to_change_the_past() {
    for store in stores() {
        let (world, cli) = world(&store).await;
        send(&caller(&world.amalgam, "am_a"), &Method::PUT, "/admin/modes/m", &json!({"system_prompt": "x"})).await;
        for statement in ["UPDATE audit SET action = 'x'", "DELETE FROM audit"] {
            let refused =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.run(&world.amalgam, statement)));
            assert!(refused.is_err(), "{}: {statement}", store.name);
        }
        assert_eq!(cli.json(&["audit", "verify"])["valid"], true);
    }
}

#[tokio::test]
async fn two_processes_that_change_at_once_make_one_chain() {
    let Some(store) = shared_store() else { return };
    let setup = || store.setup(Setup::new().extra(TENANTS).env("AMALGAM_BOOTSTRAP_KEY", BOOT));
    let servers = [Amalgam::start(BINARY, setup()).await, Amalgam::start(BINARY, setup()).await];
    let cli = Cli::beside(&servers[0], &store).env("AMALGAM_BOOTSTRAP_KEY", BOOT);
    let before = cli.json(&["audit", "verify"])["rows"].as_u64().unwrap_or_default();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40_usize {
        let client = caller(&servers[number % 2], if number % 4 < 2 { "am_a" } else { "am_b" });
        tasks.spawn(async move {
            send(&client, &Method::PUT, &format!("/admin/modes/m{number}"), &json!({"system_prompt": "x"})).await;
        });
    }
    tasks.join_all().await;
    let found = cli.json(&["audit", "verify"]);
    assert_eq!((&found["valid"], found["rows"].as_u64()), (&json!(true), Some(before + 40)), "{found}");
}
