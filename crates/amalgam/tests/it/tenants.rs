//! Tenants and the store from the command line, with a server beside it.

use std::time::{Duration, Instant};

use amalgam_testkit::{Amalgam, Client, Polling, Setup};
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, error_of, stores};

#[tokio::test]
async fn a_tenant_that_is_made_and_changed_on_the_command_line_is_so_for_a_running_server() {
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key("am_one-0123456789"))).await;
        let cli = Cli::beside(&amalgam, &store);
        let tenant = cli.json(&["tenants", "create", "--name", "Äcme & Co", "--id", "7"]);
        assert_eq!(
            [&tenant["id"], &tenant["name"], &tenant["state"], &tenant["ai_agent_enabled"]],
            [&json!(7), &json!("Äcme & Co"), &json!("stored"), &json!(true)]
        );
        assert!(cli.failure(&["tenants", "create", "--name", "x", "--id", "7"]).contains("a tenant 7 already"));
        assert_eq!(cli.json(&["tenants", "create", "--name", "next"])["id"], 8);
        let key = cli.json(&["keys", "create", "--tenant", "7"]);
        let client = Client::new(amalgam.url()).with_key(key["key"].as_str().unwrap());
        assert_eq!(client.post_json("/v1/conversations", &json!({})).await.status, 200);

        let set = ["tenants", "set", "7", "state=stateless", "ai_agent_enabled=false", "name=acme"];
        let changed = cli.json(&set);
        assert_eq!(
            [&changed["name"], &changed["state"], &changed["ai_agent_enabled"]],
            [&json!("acme"), &json!("stateless"), &json!(false)]
        );
        let (polling, started) = (Polling::new(), Instant::now());
        while polling.attempt(client.post_json("/v1/conversations", &json!({}))).await.status != 400 {
            assert!(started.elapsed() < Duration::from_secs(30), "{}: not in force", store.name);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let refused = client.post_json("/v1/conversations", &json!({})).await;
        assert_eq!(error_of(&refused)["code"], "unsupported_parameter");

        let listed = cli.json(&["tenants", "list"]);
        let names: Vec<(&Value, &Value)> =
            listed["data"].as_array().unwrap().iter().map(|tenant| (&tenant["id"], &tenant["name"])).collect();
        let expected = [(json!(1), json!("demo")), (json!(7), json!("acme")), (json!(8), json!("next"))];
        assert_eq!(names, expected.each_ref().map(|(id, name)| (id, name)));
        assert!(
            cli.text(&["tenants", "list"]).contains("7   acme  stateless  off"),
            "{}",
            cli.text(&["tenants", "list"])
        );
        for (wrong, told) in [
            (["tenants", "set", "99", "name=x"], "there is no tenant 99"),
            (["tenants", "set", "7", "colour=red"], "cannot be set"),
            (["tenants", "set", "7", "state=maybe"], "stored or stateless"),
            (["tenants", "set", "7", "nonsense"], "is not NAME=VALUE"),
        ] {
            let failure = cli.failure(&wrong);
            assert!(failure.contains(told), "{failure}");
        }
    }
}

#[tokio::test]
async fn tenants_of_the_file_are_in_the_store_and_the_file_wins_only_where_it_speaks() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("kept.db").display());
    let tenants = "[tenants.acme]\nid = 3\nkeys = [\"am_acme\"]\n\n[tenants.quiet]\nid = 4\nstate = \"stateless\"\n";
    let master = "8f3a1c5e7b9d2046a8c0e2f4b6d81357193b5d7f9a1c3e5072946b8dafc1e305";
    let setup = || Setup::new().env("AMALGAM_STORE_URL", &url).env("AMALGAM_SECRET_KEY", master).extra(tenants);
    let cli = Cli::within(folder.path()).env("AMALGAM_STORE_URL", &url);
    let state = |id: i64| {
        let listed = cli.json(&["tenants", "list"]);
        let tenants = listed["data"].as_array().unwrap().clone();
        tenants.into_iter().find(|tenant| tenant["id"] == id).unwrap()["state"].clone()
    };
    drop(Amalgam::start(BINARY, setup()).await.terminate().await);
    assert_eq!((state(3), state(4)), (json!("stored"), json!("stateless")));
    cli.json(&["tenants", "set", "3", "state=stateless"]);
    cli.json(&["tenants", "set", "4", "state=stored", "name=loud"]);
    drop(Amalgam::start(BINARY, setup()).await.terminate().await);
    assert_eq!((state(3), state(4)), (json!("stateless"), json!("stateless")));
}

#[test]
fn the_schema_is_shown_and_brought_up_to_date() {
    for store in stores() {
        let folder = tempfile::tempdir().unwrap();
        let cli =
            store.environment().into_iter().fold(Cli::within(folder.path()), |cli, (name, value)| cli.env(name, value));
        let applied = |report: &Value| -> Vec<bool> {
            report["migrations"].as_array().unwrap().iter().map(|one| one["applied"].as_bool().unwrap()).collect()
        };
        let before = cli.json(&["migrate", "--status"]);
        assert!(!applied(&before).is_empty() && applied(&before).iter().all(|applied| !applied), "{before}");
        assert!(!folder.path().join("data").exists(), "a look makes nothing");
        assert!(cli.text(&["migrate", "--status"]).contains("pending"));
        let report = cli.json(&["migrate"]);
        assert!(applied(&report).iter().all(|applied| *applied), "{report}");
        assert_eq!(report["applied_now"].as_array().unwrap().len(), applied(&report).len());
        assert!(cli.text(&["migrate"]).contains("is up to date"));
        assert!(!cli.text(&["migrate", "--status"]).contains("pending"));
        let check = cli.json(&["check"]);
        assert_eq!(check["store"], "ready", "{}: {check}", store.name);
    }
}

#[tokio::test]
async fn a_second_server_on_the_same_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("one.db").display());
    let first = Amalgam::start(BINARY, Setup::new().env("AMALGAM_STORE_URL", &url)).await;
    let second = Amalgam::try_start(BINARY, Setup::new().env("AMALGAM_STORE_URL", &url)).await;
    let exit = second.expect_err("it does not start");
    assert!(exit.stderr.contains("another server uses this database"), "{}", exit.stderr);
    assert_eq!(Client::new(first.url()).get("/healthz").await.status, 200);
}

#[tokio::test]
async fn reset_asks_first_and_removes_what_it_says() {
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key("am_one-0123456789"))).await;
        let cli = Cli::beside(&amalgam, &store);
        let key = cli.json(&["keys", "create", "--tenant", "1"]);
        let client = Client::new(amalgam.url()).with_key(key["key"].as_str().unwrap());
        let conversation = client.post_json("/v1/conversations", &json!({})).await.json();
        let path = format!("/v1/conversations/{}", conversation["id"].as_str().unwrap());

        let failure = cli.failure(&["reset", "runtime"]);
        assert!(failure.contains("--yes"), "{failure}");
        assert_eq!(client.get(&path).await.status, 200, "nothing is removed without a yes");
        cli.text(&["reset", "runtime", "--yes"]);
        assert_eq!(client.get(&path).await.status, 404);
        assert_eq!(cli.json(&["keys", "list"])["data"].as_array().unwrap().len(), 1, "keys stay");

        cli.json(&["reset", "all", "--yes"]);
        assert_eq!(cli.json(&["keys", "list"])["data"].as_array().unwrap().len(), 1, "keys stay");

        // right C5: everything is deleted only with the name of the store.
        let failure = cli.failure(&["reset", "everything", "--yes"]);
        let (_, name) = failure.split_once("--confirm ").unwrap();
        let name = name.split_whitespace().next().unwrap().to_owned();
        let wrong = cli.failure(&["reset", "everything", "--confirm", "another.db"]);
        assert!(wrong.contains(&name), "{wrong}");
        assert_eq!(cli.json(&["tenants", "list"])["data"].as_array().unwrap().len(), 1, "nothing is removed yet");
        cli.json(&["reset", "everything", "--confirm", &name]);
        assert_eq!(cli.json(&["tenants", "list"])["data"], json!([]));
        // Keys that are made now are known to the server that runs: what their hashes are made with has stayed.
        cli.json(&["tenants", "create", "--name", "again", "--id", "1"]);
        let key = cli.json(&["keys", "create", "--tenant", "1"]);
        let client = Client::new(amalgam.url()).with_key(key["key"].as_str().unwrap());
        assert_eq!(client.get("/v1/models").await.status, 200, "{}", store.name);
    }
}
