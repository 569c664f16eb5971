//! Keys from the command line to the wire: issued, used, bound to a user, expired, revoked, and sealed again.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use amalgam_testkit::{Amalgam, Client, Polling, Setup};
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, error_of, stores};

/// How long a test waits for a change from elsewhere to be in force.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a key may be good after its end, with some room for a machine that does other things besides.
const REFUSED_WITHIN: Duration = Duration::from_secs(5 + 3);

const KEY: &str = "am_configured-0123456789";

/// Asks until the status is this one, with an end to the patience.
async fn becomes(client: &Client, path: &str, status: u16) -> Duration {
    let (polling, started) = (Polling::new(), Instant::now());
    loop {
        let answer = polling.attempt(client.get(path)).await;
        if answer.status == status {
            return started.elapsed();
        }
        assert!(started.elapsed() < PATIENCE, "{path} still answers {}: {}", answer.status, answer.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn key_of(created: &Value) -> &str {
    created["key"].as_str().expect("a new key is shown")
}

#[tokio::test]
async fn a_key_from_the_command_line_opens_the_door_at_once_and_is_refused_within_five_seconds_of_its_end() {
    // S12
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key(KEY))).await;
        let cli = Cli::beside(&amalgam, &store);
        let created = cli.json(&["keys", "create", "--tenant", "1", "--label", "a phone"]);
        let client = Client::new(amalgam.url()).with_key(key_of(&created));
        assert_eq!(client.get("/v1/models").await.status, 200, "{}", store.name);

        let listed = cli.json(&["keys", "list", "--tenant", "1"]);
        let [listed] = listed["data"].as_array().unwrap().as_slice() else { panic!("{listed}") };
        assert_eq!(
            [&listed["id"], &listed["label"], &listed["scopes"], &listed["revoked_at"]],
            [&created["id"], &json!("a phone"), &json!(["use"]), &Value::Null]
        );
        assert_eq!(listed.get("key"), None, "a key is shown once");
        assert!(key_of(&created).starts_with(listed["prefix"].as_str().unwrap()));

        cli.text(&["keys", "revoke", created["id"].as_str().unwrap()]);
        let refused = becomes(&client, "/v1/models", 401).await;
        assert!(refused < REFUSED_WITHIN, "{}: {refused:?}", store.name);

        let expiring = cli.json(&["keys", "create", "--tenant", "1", "--expires", "3s"]);
        let client = Client::new(amalgam.url()).with_key(key_of(&expiring));
        assert_eq!(client.get("/v1/models").await.status, 200);
        becomes(&client, "/v1/models", 401).await;
        assert!(cli.failure(&["keys", "revoke", "key_unknown"]).contains("there is no key"));
        assert!(cli.failure(&["keys", "create", "--tenant", "99"]).contains("there is no tenant 99"));
    }
}

#[tokio::test]
async fn a_plain_create_prints_the_key_alone_on_standard_output() {
    let amalgam = Amalgam::start(BINARY, Setup::new().tenant_key(KEY)).await;
    let cli = Cli::beside(&amalgam, &stores()[0]);
    let key = cli.text(&["keys", "create", "--tenant", "1", "--scope", "use", "--scope", "admin"]);
    assert!(key.starts_with("am_") && key.trim_end().len() == 46, "{key:?}");
    let client = Client::new(amalgam.url()).with_key(key.trim_end());
    assert_eq!(client.get("/admin/keys").await.status, 200);
    let table = cli.text(&["keys", "list"]);
    assert!(table.contains("use,admin") && !table.contains(key.trim_end()), "{table}");
}

#[tokio::test]
async fn the_first_start_hands_over_an_admin_key_once_and_never_again() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("kept.db").display());
    let setup = || {
        let key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
        Setup::new().env("AMALGAM_STORE_URL", &url).env("AMALGAM_SECRET_KEY", key)
    };
    let first = Amalgam::start(BINARY, setup()).await;
    let key = first.first_key();
    let file = first.folder().join("data/admin.key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "only this user reads it");
    let said = format!("admin key written to {}", file.display());
    assert!(first.stdout().lines().any(|line| line == said), "{}", first.stdout());
    let client = |amalgam: &Amalgam| Client::new(amalgam.url()).with_key(&key);
    let tenants = client(&first).get("/admin/tenants").await.json();
    assert_eq!((&tenants["data"][0]["id"], &tenants["data"][0]["name"]), (&json!(1), &json!("demo")));
    let exit = first.terminate().await;
    assert!(!exit.stderr.contains(&key) && !exit.stdout.contains(&key), "neither log nor output contains it");

    let second = Amalgam::start(BINARY, setup()).await;
    assert!(!second.stdout().contains("admin key"), "{}", second.stdout());
    assert_eq!(client(&second).get("/admin/keys").await.status, 200);
}

#[test]
fn the_first_start_prints_the_admin_key_to_a_terminal_and_writes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    // `script` runs a command on a terminal of its own; the server stops when it listens. The file also has the command, which
    // the pattern does not match.
    let serve = format!("{} serve --listen 127.0.0.1:0 --data data", amalgam_testkit::binary(BINARY).display());
    let command = format!(
        "{serve} & server=$!; while ! grep -q 'amalgam [l]istening on' typed; do sleep 0.05; done; kill $server; wait"
    );
    let run = std::process::Command::new("script")
        .args(["--quiet", "--flush", "--command", &command, "typed"])
        .current_dir(folder.path())
        .env_remove("AMALGAM_TEST_POSTGRES")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let shown = std::fs::read_to_string(folder.path().join("typed")).unwrap();
    let key = shown.lines().find_map(|line| line.trim().strip_prefix("admin key (shown once): "));
    assert!(key.is_some_and(|key| key.starts_with("am_")), "{shown}\n{run:?}");
    assert!(!folder.path().join("data/admin.key").exists());
}

#[tokio::test]
async fn a_bootstrap_key_takes_the_place_of_the_printed_one_and_has_every_right() {
    for store in stores() {
        let setup = Setup::new().env("AMALGAM_BOOTSTRAP_KEY", "boot-0123456789");
        let amalgam = Amalgam::start(BINARY, store.setup(setup)).await;
        assert!(!amalgam.stdout().contains("admin key"));
        let client = Client::new(amalgam.url()).with_key("boot-0123456789");
        for path in ["/v1/models", "/admin/keys", "/admin/tenants"] {
            assert_eq!(client.get(path).await.status, 200, "{path}");
        }
        assert_eq!(Client::new(amalgam.url()).get("/v1/models").await.status, 401);
    }
}

#[tokio::test]
async fn rights_are_asked_for_by_route() {
    let amalgam = Amalgam::start(BINARY, Setup::new().tenant_key(KEY)).await;
    let cli = Cli::beside(&amalgam, &stores()[0]);
    let client = |right: &str| {
        let created = cli.json(&["keys", "create", "--tenant", "1", "--scope", right]);
        Client::new(amalgam.url()).with_key(key_of(&created))
    };
    for (right, models, keys, tenants) in
        [("use", 200, 403, 403), ("admin", 403, 200, 403), ("operator", 403, 200, 200)]
    {
        let client = client(right);
        for (path, status) in [("/v1/models", models), ("/admin/keys", keys), ("/admin/tenants", tenants)] {
            let answer = client.get(path).await;
            assert_eq!(answer.status, status, "{right} {path}");
            if status == 403 {
                assert_eq!(error_of(&answer)["code"], "insufficient_permissions");
            }
        }
    }
}

#[tokio::test]
async fn a_service_key_names_its_user_and_a_users_key_names_no_other_user() {
    let amalgam = Amalgam::start(BINARY, Setup::new().tenant_key(KEY)).await;
    let cli = Cli::beside(&amalgam, &stores()[0]);
    let service = amalgam.client();
    let bound = cli.json(&["keys", "create", "--tenant", "1", "--user", "ada"]);
    let bound = Client::new(amalgam.url()).with_key(key_of(&bound));

    let conversation = bound.post_json("/v1/conversations", &json!({})).await.json();
    let path = format!("/v1/conversations/{}", conversation["id"].as_str().unwrap());
    for (client, user, status) in [
        (&bound, None, 200),
        (&bound, Some("ada"), 200),
        (&bound, Some("bob"), 403),
        (&service, Some("ada"), 200),
        (&service, Some("bob"), 404),
        (&service, None, 404),
        (&service, Some("a b"), 400),
        (&service, Some(""), 400),
    ] {
        let client = match user {
            Some(user) => client.clone().with_header("x-amalgam-user", user),
            None => client.clone(),
        };
        assert_eq!(client.get(&path).await.status, status, "{user:?}");
    }
}

#[tokio::test]
async fn a_new_master_key_changes_nothing_for_callers_now_or_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let cli = Cli::within(folder.path());
    cli.json(&["tenants", "create", "--name", "acme", "--id", "1"]);
    let created = cli.json(&["keys", "create", "--tenant", "1"]);
    let key_file = data.join("secret.key");
    let before = std::fs::read_to_string(&key_file).unwrap();
    let settings = json!({"method": "GET", "url": "http://127.0.0.1:1/", "headers": {"x-api-key": {"secret": "hush"}}});
    let tool = json!({"name": "sealed", "kind": "http", "description": "x", "settings": settings});
    std::fs::write(folder.path().join("tool.json"), tool.to_string()).unwrap();
    for bank in [&["--company-id", "1"][..], &["--common"]] {
        cli.text(&[&["tools", "put", "tool.json"], bank].concat());
    }

    let rotated = cli.json(&["keys", "rotate-master"]);

    assert_eq!((&rotated["sealed_anew"], &rotated["tools"]), (&json!(["api_key_pepper"]), &json!(2)));
    let after = std::fs::read_to_string(&key_file).unwrap();
    assert!(after.ends_with(&before) && after.lines().count() == 2, "the new key stands in front of the old one");
    assert_eq!(std::fs::metadata(&key_file).unwrap().permissions().mode() & 0o777, 0o600);
    // The newest key alone opens what the store holds; the old one alone does not.
    let (newest, oldest) = after.split_once('\n').unwrap();
    let with = |key: &str| Cli::within(folder.path()).env("AMALGAM_SECRET_KEY", key.trim());
    with(newest).json(&["keys", "create", "--tenant", "1"]);
    let failure = with(oldest).failure(&["keys", "create", "--tenant", "1"]);
    assert!(failure.contains("another master key"), "{failure}");
    for bank in [&["--company-id", "1"][..], &["--common"]] {
        let tried = |cli: Cli| cli.failure(&[&["tools", "try", "sealed"], bank].concat());
        let unopened = "settings.headers.x-api-key";
        assert!(!tried(with(newest)).contains(unopened), "it is opened, and the server is not there");
        assert!(tried(with(oldest)).contains(unopened), "no key opens what it needs");
    }
    let doctor = with(oldest).run(&["doctor", "--listen", "127.0.0.1:0", "--json"]);
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let found =
        report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "master key").unwrap().clone();
    assert_eq!(found["status"], "fail", "{found}");
    // In the environment the operator puts the new key in front; the command seals with it.
    let both = format!("{},{}", "5".repeat(62) + "10", newest);
    assert_eq!(with(&both).json(&["keys", "rotate-master"])["place"], "AMALGAM_SECRET_KEY");
    assert!(with(newest).failure(&["keys", "create", "--tenant", "1"]).contains("another master key"));

    let url = format!("sqlite:{}", data.join("amalgam.db").display());
    let setup = Setup::new().env("AMALGAM_STORE_URL", &url).env("AMALGAM_SECRET_KEY", &both);
    let amalgam = Amalgam::start(BINARY, setup).await;
    let client = Client::new(amalgam.url()).with_key(key_of(&created));
    assert_eq!(client.get("/v1/models").await.status, 200, "keys outlive master keys");
}

#[tokio::test]
async fn the_last_use_of_a_key_is_written_down() {
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key(KEY))).await;
        let cli = Cli::beside(&amalgam, &store);
        let created = cli.json(&["keys", "create", "--tenant", "1"]);
        assert_eq!(created["last_used_at"], Value::Null);
        let client = Client::new(amalgam.url()).with_key(key_of(&created));
        assert_eq!(client.get("/v1/models").await.status, 200);
        let started = Instant::now();
        while cli.json(&["keys", "list"])["data"][0]["last_used_at"].is_null() {
            assert!(started.elapsed() < Duration::from_secs(20), "{}", store.name);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
