//! SIGHUP and `POST /admin/reload`: what a new configuration file changes in a running server, and what it leaves.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use std::time::Duration;

use amalgam_testkit::{Amalgam, Client, HttpAnswer, Polling, Setup};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::socket::Socket;
use crate::support::{BINARY, TestStore, error_of, stores};

const OPERATOR: &str = "am_key-of-the-operator";
const PATH: &str = "/admin/reload";

/// How long a test waits for a signal to have its effect.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server whose configuration file a test changes.
struct Reloaded {
    amalgam: Amalgam,
}

impl Reloaded {
    async fn start(store: &TestStore, toml: &str) -> Self {
        let setup = Setup::new().extra(toml).env("AMALGAM_BOOTSTRAP_KEY", OPERATOR).env("AMALGAM_SEED_DEMO", "false");
        Self { amalgam: Amalgam::start(BINARY, store.setup(setup)).await }
    }

    fn client(&self, key: &str) -> Client {
        Client::new(self.amalgam.url()).with_key(key)
    }

    fn write(&self, toml: &str) {
        let file = self.amalgam.folder().join("amalgam.toml");
        let temporary = file.with_extension("new");
        std::fs::write(&temporary, toml).unwrap();
        std::fs::rename(temporary, file).unwrap();
    }

    /// Writes a configuration and asks the server to take it.
    async fn reload(&self, toml: &str) -> HttpAnswer {
        self.write(toml);
        self.client(OPERATOR).request(Method::POST, PATH, &[], Bytes::new()).await
    }

    async fn ask(&self, request: &Value) -> HttpAnswer {
        self.client(OPERATOR).post_json("/v1/responses", request).await
    }

    /// The upstream that answers the model `m`.
    async fn upstream(&self) -> String {
        let answer = self.ask(&json!({"model": "m", "input": "hello"})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        upstream_of(&answer.json())
    }
}

fn upstream_of(response: &Value) -> String {
    let model = response["amalgam"]["model"].as_str().unwrap_or_else(|| panic!("{response}"));
    model.split('/').next().unwrap_or_default().to_owned()
}

/// The model `m` on an upstream of this name, with a pause between two words of a stream.
fn model_on(name: &str, pace: &str) -> String {
    format!(
        "[upstreams.{name}]\nkind = \"demo\"\npace = \"{pace}\"\n[models.m]\nupstream = \"{name}\"\nmodel = \"demo\"\n"
    )
}

fn with_tools(number: usize) -> Value {
    let tool = |index| json!({"type": "function", "name": format!("f{index}"), "parameters": {"type": "object"}});
    json!({"model": "m", "input": "hello", "tools": (0..number).map(tool).collect::<Vec<_>>()})
}

#[tokio::test]
async fn a_reload_puts_upstreams_models_limits_and_tenants_into_force_and_names_what_changed() {
    for store in stores() {
        let tenants = |key: &str| format!("[tenants.acme]\nid = 7\nkeys = [\"{key}\"]\n");
        let [first, second] = ["am_first-key-of-acme", "am_second-key-of-acme"];
        let before = model_on("old", "2ms") + &tenants(first) + "[limits]\ntools = 2\n";
        let server = Reloaded::start(&store, &before).await;
        assert_eq!(server.upstream().await, "old");
        assert_eq!(server.ask(&with_tools(3)).await.status, 400);
        assert_eq!(server.client(first).get("/v1/models").await.status, 200);

        let other = "[tenants.other]\nid = 8\nkeys = [\"am_key-of-the-other\"]\n";
        let after = model_on("new", "2ms") + &tenants(second) + other + "[limits]\ntools = 3\n";
        let answer = server.reload(&after).await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()),
            (
                200,
                json!({
                    "object": "configuration.reload",
                    "added": ["tenants.other", "upstreams.new"],
                    "removed": ["upstreams.old"],
                    "changed": ["limits.tools", "models.m.upstream", "tenants.acme.keys"],
                    "restart_required": [],
                    "warnings": [],
                    "dry_run": false,
                    "differences": [
                        {"key": "limits.tools", "before": 2, "after": 3},
                        {"key": "models.m.upstream", "before": "old", "after": "new"},
                        {"key": "tenants.acme.keys", "before": ["[redacted]"], "after": ["[redacted]"]},
                        {"key": "tenants.other.id", "before": null, "after": 8},
                        {"key": "tenants.other.keys", "before": null, "after": ["[redacted]"]},
                        {"key": "upstreams.new.kind", "before": null, "after": "demo"},
                        {"key": "upstreams.new.pace", "before": null, "after": "2ms"},
                        {"key": "upstreams.old.kind", "before": "demo", "after": null},
                        {"key": "upstreams.old.pace", "before": "2ms", "after": null},
                    ],
                })
            ),
            "{}",
            store.name
        );
        assert_eq!(server.upstream().await, "new");
        assert_eq!(server.ask(&with_tools(3)).await.status, 200);
        assert_eq!(server.client(first).get("/v1/models").await.status, 401, "a removed key is refused at once");
        for key in [second, "am_key-of-the-other", OPERATOR] {
            assert_eq!(server.client(key).get("/v1/models").await.status, 200, "{key}");
        }
        let tenants = server.client(OPERATOR).get("/admin/tenants").await.json();
        assert!(tenants["data"].as_array().unwrap().iter().any(|tenant| tenant["id"] == 8), "{tenants}");
        // Nothing has changed since.
        let again = server.reload(&after).await.json();
        assert_eq!((&again["changed"], &again["added"]), (&json!([]), &json!([])), "{again}");
    }
}

#[tokio::test]
async fn an_invalid_file_leaves_the_old_configuration_in_force_and_every_error_is_reported() {
    for store in stores() {
        let server = Reloaded::start(&store, &model_on("old", "2ms")).await;
        let invalid = model_on("new", "never") + "[limits]\ntools = -1\n[serve]\nlisten = 1\n";
        let answer = server.reload(&invalid).await;
        let (error, log) = (error_of(&answer), server.amalgam.wait_for_stderr("the old one stays in force").await);
        assert_eq!((answer.status.as_u16(), &error["code"]), (400, &json!("invalid_configuration")), "{error}");
        for expected in ["pace in [upstreams.new]", "tools in [limits]", "unknown section [serve]"] {
            assert!(error["message"].as_str().unwrap().contains(expected) && log.contains(expected), "{error}\n{log}");
        }
        assert_eq!(server.upstream().await, "old");

        server.write("this is not TOML");
        server.amalgam.signal("HUP");
        server.amalgam.wait_for_stderr("not valid TOML").await;
        assert_eq!(server.upstream().await, "old");
        std::fs::remove_file(server.amalgam.folder().join("amalgam.toml")).unwrap();
        let missing = server.client(OPERATOR).request(Method::POST, PATH, &[], Bytes::new()).await;
        assert!(missing.status == 400 && missing.text().contains("cannot read"), "{}", missing.text());

        server.write(&model_on("new", "2ms"));
        server.amalgam.signal("HUP");
        server.amalgam.wait_for_stderr("the configuration was reloaded").await;
        assert_eq!(server.upstream().await, "new", "{}", store.name);
    }
}

#[tokio::test]
async fn keys_that_need_a_restart_are_named_each_time_and_not_applied() {
    let store = &stores()[0];
    let server = Reloaded::start(store, &model_on("a", "2ms")).await;
    let after = model_on("a", "3ms") + "[server]\ndrain_timeout = \"1s\"\n[retention]\nevents = \"2h\"\n";
    for changed in [json!(["upstreams.a.pace"]), json!([])] {
        let report = server.reload(&after).await.json();
        let expected = json!(["retention.events", "server.drain_timeout"]);
        assert_eq!((&report["restart_required"], &report["changed"]), (&expected, &changed), "{report}");
    }
    server.amalgam.wait_for_stderr("these changes take effect at the next start: retention.events").await;
}

#[tokio::test]
async fn a_server_that_other_machines_can_reach_never_loses_its_last_key() {
    let key = "am_key-of-the-tenant";
    let tenant = format!("[tenants.demo]\nid = 1\nkeys = [\"{key}\"]\n");
    let setup = Setup::new().extra(&format!("{tenant}[server]\nadmin_listen = \"127.0.0.1:0\"")).listen("0.0.0.0:0");
    let amalgam = Amalgam::start(BINARY, setup).await;
    // Valid as a file: it listens on loopback. The running server still listens everywhere.
    let arguments = amalgam.folder().join("amalgam.toml");
    std::fs::write(arguments, "[tenants.demo]\nid = 1\n").unwrap();
    amalgam.signal("HUP");
    amalgam.wait_for_stderr("the configuration is invalid, the old one stays in force").await;
    let url = amalgam.url().replace("0.0.0.0", "127.0.0.1");
    assert_eq!(Client::new(&url).get("/v1/models").await.status, 401);
    assert_eq!(Client::new(&url).with_key(key).get("/v1/models").await.status, 200);
}

#[tokio::test]
async fn running_turns_keep_their_upstream_and_new_turns_get_the_new_one() {
    for store in stores() {
        let server = Reloaded::start(&store, &model_on("old", "100ms")).await;
        let stream = json!({"model": "m", "input": "hello", "stream": true});
        let mut running = server.client(OPERATOR).post_stream("/v1/responses", &stream).await;
        running.next_of_type("response.output_text.delta").await;
        assert_eq!(server.reload(&model_on("new", "2ms")).await.status, 200);
        assert_eq!(server.upstream().await, "new");
        let ended = running.next_of_type("response.completed").await;
        assert_eq!(upstream_of(&ended["response"]), "old", "{}", store.name);

        // A background turn, which a task of the server runs.
        let background = json!({"model": "m", "input": "hello", "background": true});
        let id = server.ask(&background).await.json()["id"].as_str().unwrap().to_owned();
        let polling = Polling::new();
        let finished = tokio::time::timeout(PATIENCE, async {
            loop {
                let path = format!("/v1/responses/{id}");
                let response = polling.attempt(server.client(OPERATOR).get(&path)).await.json();
                if response["status"] == "completed" {
                    return response;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert_eq!(upstream_of(&finished.await.expect("the background turn ends")), "new");
    }
}

#[tokio::test]
async fn an_open_websocket_uses_the_new_configuration_for_its_next_turn() {
    let server = Reloaded::start(&stores()[0], &model_on("old", "2ms")).await;
    let bearer = format!("Bearer {OPERATOR}");
    let mut socket = Socket::open_with(&server.amalgam, &[("authorization", &bearer)]).await.expect("a socket");
    let mut ask = async || {
        socket.say(&json!({"type": "response.create", "model": "m", "input": "hello"})).await;
        loop {
            let event = socket.next().await.expect("the socket stays open");
            if event["type"] == "response.completed" {
                return upstream_of(&event["response"]);
            }
        }
    };
    assert_eq!(ask().await, "old");
    assert_eq!(server.reload(&model_on("new", "2ms")).await.status, 200);
    assert_eq!(ask().await, "new");
}

#[tokio::test]
async fn turns_that_race_with_reloads_all_succeed_on_one_configuration_or_the_other() {
    for store in stores() {
        let limits = |tools: usize| format!("[limits]\ntools = {tools}\nmax_in_flight = {}\n", 100 + tools);
        // Each version admits its own number of tools, and the tools tell which version checked the request.
        let versions = [model_on("one", "1ms") + &limits(1), model_on("two", "1ms") + &limits(2)];
        let server = Reloaded::start(&store, &versions[0]).await;
        let asking = async {
            let mut seen = [0, 0];
            for _ in 0..40 {
                let answer = server.ask(&with_tools(2)).await;
                match answer.status.as_u16() {
                    // Refused by the limit of the first version.
                    400 => seen[0] += 1,
                    200 => {
                        assert_eq!(upstream_of(&answer.json()), "two", "limits and upstream belong together");
                        seen[1] += 1;
                    }
                    _ => panic!("{}", answer.text()),
                }
            }
            seen
        };
        let reloading = async {
            for version in versions.iter().cycle().skip(1).take(20) {
                let answer = server.reload(version).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
        };
        let (first, second, ()) = tokio::join!(asking, async { server.upstream().await }, reloading);
        assert!(["one", "two"].contains(&second.as_str()), "{second}");
        assert_eq!(first.iter().sum::<i32>(), 40, "{}", store.name);
    }
}

#[tokio::test]
async fn concurrent_reloads_are_serialised_and_each_caller_gets_an_answer() {
    let server = Reloaded::start(&stores()[0], &model_on("a", "2ms")).await;
    server.write(&(model_on("a", "2ms") + "[limits]\ntools = 9\n"));
    let client = server.client(OPERATOR);
    let reload = || client.request(Method::POST, PATH, &[], Bytes::new());
    let answers = futures_util::future::join_all((0..20).map(|_| reload())).await;
    let changed = answers.iter().filter(|answer| answer.json()["changed"] == json!(["limits.tools"])).count();
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(changed, 1, "one of them finds the change");
}

#[tokio::test]
async fn only_an_operator_may_reload() {
    let tenant = "[tenants.demo]\nid = 1\nkeys = [\"am_key-of-the-tenant\"]\n";
    let server = Reloaded::start(&stores()[0], tenant).await;
    let post = async |client: Client| client.request(Method::POST, PATH, &[], Bytes::new()).await.status.as_u16();
    assert_eq!(post(server.client("am_key-of-the-tenant")).await, 403);
    assert_eq!(post(Client::new(server.amalgam.url())).await, 401);
    assert_eq!(post(server.client(OPERATOR)).await, 200);
}

#[tokio::test]
async fn the_log_level_and_the_number_of_turns_at_once_change_in_a_running_server() {
    let server = Reloaded::start(&stores()[0], &model_on("a", "100ms")).await;
    let slow = json!({"model": "m", "input": "hello", "stream": true});
    let mut running = server.client(OPERATOR).post_stream("/v1/responses", &slow).await;
    running.next_of_type("response.output_text.delta").await;
    let one = model_on("a", "100ms") + "[limits]\nmax_in_flight = 1\n[log]\nlevel = \"debug\"\n";
    assert_eq!(server.reload(&one).await.status, 200);
    assert_eq!(server.ask(&json!({"model": "m", "input": "hello"})).await.status, 429, "one turn runs");
    // A request that is none leaves a line at this level only.
    let mut garbage = server.amalgam.client().connect().await;
    garbage.write_all(b"none\r\n\r\n").await.unwrap();
    server.amalgam.wait_for_stderr("DEBUG").await;
    drop(running);
    let two = model_on("a", "2ms") + "[limits]\nmax_in_flight = 2\n[log]\nlevel = \"info\"\n";
    assert_eq!(server.reload(&two).await.status, 200);
    assert_eq!(server.ask(&json!({"model": "m", "input": "hello"})).await.status, 200);
}

#[tokio::test]
async fn the_format_the_sample_and_the_doors_of_the_log_change_in_a_running_server() {
    let server = Reloaded::start(&stores()[0], &model_on("a", "1ms")).await;
    let lines = |what: &str| {
        let log = server.amalgam.stderr();
        log.lines().filter(|line| line.contains(what)).map(str::to_owned).collect::<Vec<_>>()
    };
    let asked = async |path: &str, id: &str| {
        server.client(OPERATOR).with_header("x-request-id", id).get(path).await;
    };
    asked("/v1/models", "as-text").await;
    server.amalgam.wait_for_stderr("as-text").await;
    let log = "[log]\nformat = \"json\"\nsample = 0.0\ndoors = { files = \"error\" }\n";
    let report = server.reload(&(model_on("a", "1ms") + log)).await.json();
    assert_eq!(report["restart_required"], json!([]), "{report}");
    asked("/v1/models", "not-sampled").await;
    asked("/v1/files/file_none", "not-of-this-door").await;
    asked("/v1/nothing", "as-json").await;
    server.amalgam.wait_for_stderr("as-json").await;
    assert_eq!((lines("not-sampled").len(), lines("not-of-this-door").len()), (0, 0));
    let line: Value = serde_json::from_str(&lines("as-json")[0]).expect("the line is JSON");
    assert_eq!(line["fields"]["status"], 404, "{line}");
    assert!(serde_json::from_str::<Value>(&lines("as-text")[0]).is_err());
    assert_eq!(server.reload(&model_on("a", "1ms")).await.status, 200);
    asked("/v1/models", "text-again").await;
    server.amalgam.wait_for_stderr("text-again").await;
    assert!(serde_json::from_str::<Value>(&lines("text-again")[0]).is_err());
}

#[tokio::test]
async fn a_new_price_counts_from_the_next_turn_and_a_removed_upstream_leaves_the_metrics() {
    for store in stores() {
        let priced = |upstream: &str, input: u64| {
            format!("{}[models.m.price]\ninput = {input}\noutput = {input}\n", model_on(upstream, "1ms"))
        };
        let server = Reloaded::start(&store, &priced("old", 1)).await;
        let cost = async || {
            let answer = server.ask(&json!({"model": "m", "input": "hello"})).await.json();
            let row = server.client(OPERATOR).get(&format!("/admin/turns/{}", answer["id"].as_str().unwrap())).await;
            row.json()["summary"]["cost_usd"].as_f64().unwrap_or_else(|| panic!("{}", row.text()))
        };
        let before = cost().await;
        let breakers = async || {
            let metrics = server.client(OPERATOR).get("/metrics").await.text();
            let lines = metrics.lines().filter(|line| line.starts_with("amalgam_upstream_breaker_open{"));
            lines.map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert!(breakers().await.contains("\"old\""));
        let report = server.reload(&priced("new", 10)).await.json();
        assert_eq!(report["restart_required"], json!([]), "{report}");
        assert!((cost().await - before * 10.0).abs() < 1e-12, "{}", store.name);
        let breakers = breakers().await;
        assert!(breakers.contains("\"new\"") && !breakers.contains("\"old\""), "{}: {breakers}", store.name);
    }
}

#[tokio::test]
async fn a_reload_by_a_signal_is_in_the_audit_as_a_change_of_the_server() {
    for store in stores() {
        let server = Reloaded::start(&store, &model_on("a", "1ms")).await;
        server.write(&(model_on("a", "1ms") + "[limits]\ntools = 7\n"));
        server.amalgam.signal("HUP");
        server.amalgam.wait_for_stderr("the configuration was reloaded").await;
        let client = server.client(OPERATOR);
        let entry = crate::support::eventually("the entry", PATIENCE, async || {
            let entries = client.get("/admin/audit?object=configuration&limit=1").await.json();
            entries["data"].get(0).cloned()
        })
        .await;
        assert_eq!(
            (&entry["action"], &entry["actor"]["type"], &entry["after"]["changed"]),
            (&json!("configuration.reload"), &json!("server"), &json!(["limits.tools"])),
            "{}: {entry}",
            store.name
        );
    }
}
