//! What operators see of the installation: processes, the store, the configuration, upstreams.

use amalgam_testkit::{Client, Reply, Setup, Upstream};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::{Cli, World, stores};

const BOOT: &str = "am_bootstrap-key-of-the-tests";
const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[limits]\ntools = 7\n";

async fn post(client: &Client, path: &str) -> amalgam_testkit::HttpAnswer {
    client.request(Method::POST, path, &[], Bytes::new()).await
}

#[tokio::test]
async fn operators_see_processes_the_store_and_the_origin_of_every_value() {
    for store in stores() {
        let setup =
            Setup::new().extra(TENANTS).env("AMALGAM_BOOTSTRAP_KEY", BOOT).env("AMALGAM_LIMITS_TOOL_CALLS", "9");
        let world = World::with(store.setup(setup), &[("retries", "0")]).await;
        let operator = Client::new(world.amalgam.url()).with_key(BOOT);
        let administrator = Client::new(world.amalgam.url()).with_key("am_a");
        let system = operator.get("/admin/system").await.json();
        let own: Vec<&Value> =
            system["processes"].as_array().into_iter().flatten().filter(|one| one["own"] == true).collect();
        assert_eq!(own.len(), 1, "{}: {system}", store.name);
        assert!(system["store_bytes"].as_u64().is_some_and(|bytes| bytes > 10_000), "{}: {system}", store.name);
        assert_eq!(system["queued_turns"], 0, "{}", store.name);

        let shown = operator.get("/admin/configuration").await;
        let text = shown.text();
        assert!(!text.contains("am_a\"") && !text.contains(BOOT), "{}: a secret is shown", store.name);
        let settings = shown.json()["settings"].as_array().cloned().unwrap_or_default();
        let setting = |key: &str| settings.iter().find(|one| one["key"] == key).cloned().unwrap_or_default();
        let tools = setting("limits.tools");
        assert_eq!((&tools["value"], &tools["origin"]), (&json!(7), &json!("file")), "{}: {tools}", store.name);
        assert!(tools["line"].as_u64().is_some() && tools["file"].as_str().is_some(), "{}: {tools}", store.name);
        let calls = setting("limits.tool_calls");
        let expected = json!({"key": "limits.tool_calls", "value": 9, "origin": "environment", "variable": "AMALGAM_LIMITS_TOOL_CALLS"});
        assert_eq!(calls, expected, "{}", store.name);
        assert_eq!(setting("limits.input_items")["origin"], "default", "{}", store.name);
        let checked = Cli::beside(&world.amalgam, &store).json(&["check"]);
        let line = |one: &Value| {
            one["settings"].as_array().into_iter().flatten().find(|one| one["key"] == "limits.tools").cloned()
        };
        assert_eq!(line(&checked), Some(tools), "{}: the command shows the same", store.name);

        for path in ["/admin/system", "/admin/configuration"] {
            assert_eq!(administrator.get(path).await.status, 403, "{}: {path}", store.name);
        }
        assert_eq!(post(&administrator, "/admin/upstreams/chat/check").await.status, 403, "{}", store.name);
    }
}

#[tokio::test]
async fn a_dry_run_of_a_reload_shows_both_values_and_changes_nothing() {
    for store in stores() {
        let setup = Setup::new().extra(TENANTS).env("AMALGAM_BOOTSTRAP_KEY", BOOT);
        let world = World::with(store.setup(setup), &[]).await;
        let operator = Client::new(world.amalgam.url()).with_key(BOOT);
        let file = world.amalgam.folder().join("amalgam.toml");
        let text = std::fs::read_to_string(&file).expect("the server has a configuration file");
        std::fs::write(&file, text.replace("tools = 7", "tools = 8").replace("am_a", "am_new"))
            .expect("it can be written");
        let preview = post(&operator, "/admin/reload?dry_run=true").await.json();
        assert_eq!(
            (&preview["dry_run"], &preview["changed"]),
            (&json!(true), &json!(["limits.tools", "tenants.a.keys"])),
            "{preview}"
        );
        let differences = json!([
            {"key": "limits.tools", "before": 7, "after": 8},
            {"key": "tenants.a.keys", "before": preview["differences"][1]["before"], "after": preview["differences"][1]["after"]},
        ]);
        assert_eq!(preview["differences"], differences, "{}", store.name);
        assert!(!preview.to_string().contains("am_new"), "{}: a secret is shown", store.name);
        let settings = operator.get("/admin/configuration").await.json();
        let in_force =
            settings["settings"].as_array().into_iter().flatten().find(|one| one["key"] == "limits.tools").cloned();
        assert_eq!(in_force.unwrap_or_default()["value"], 7, "{}: nothing changed", store.name);
        let report = post(&operator, "/admin/reload").await.json();
        assert_eq!((&report["dry_run"], &report["differences"]), (&json!(false), &differences), "{}", store.name);
        std::fs::write(&file, "[limits]\ntools = \"x\"\n").expect("it can be written");
        let refused = post(&operator, "/admin/reload?dry_run=true").await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["error"]["code"]),
            (400, &json!("invalid_configuration")),
            "{}",
            store.name
        );
    }
}

#[tokio::test]
async fn an_upstream_is_asked_for_its_models_when_an_operator_checks_it() {
    for store in stores() {
        let upstream = Upstream::start();
        let setup = Setup::new().upstream("up", "chat", &upstream.base_url()).option("retries", "0");
        let setup = setup.extra(TENANTS).env("AMALGAM_BOOTSTRAP_KEY", BOOT);
        let amalgam = amalgam_testkit::Amalgam::start(crate::support::BINARY, store.setup(setup)).await;
        let operator = Client::new(amalgam.url()).with_key(BOOT);
        upstream.answer_for("/models", |_| Reply::json(json!({"data": [{"id": "one"}, {"id": "two"}]})));
        let checked = post(&operator, "/admin/upstreams/up/check").await.json();
        assert_eq!(
            (&checked["ok"], &checked["models"], &checked["problem"]),
            (&json!(true), &json!(2), &Value::Null),
            "{checked}"
        );
        upstream.answer_for("/models", |_| Reply::status(401));
        let checked = post(&operator, "/admin/upstreams/up/check").await.json();
        assert_eq!(
            (&checked["ok"], &checked["problem"]),
            (&json!(false), &json!("upstream answered 401")),
            "{checked}"
        );
        assert_eq!(post(&operator, "/admin/upstreams/no/check").await.status, 404, "{}", store.name);
    }
}
