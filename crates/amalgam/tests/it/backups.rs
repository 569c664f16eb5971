//! Backups of a store that is in use, and the way back: what was acknowledged before is inside, and nothing half is left.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the test does")]

mod copies;
mod migrations;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use amalgam_testkit::{Amalgam, Client, Setup, binary};
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, SOON, TestStore, beside, eventually, id_of, retrieved, stores};

const KEY: &str = "am_backup";

async fn server(store: &TestStore) -> Amalgam {
    Amalgam::start(BINARY, store.setup(Setup::new().tenant_key(KEY))).await
}

async fn ask(client: &Client, input: &str) -> Value {
    let answer = client.post_json("/v1/responses", &json!({"model": "demo", "input": input})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A command on the store of this server, while it runs.
fn spawned(amalgam: &Amalgam, store: &TestStore, arguments: &[&str]) -> Child {
    let mut command = Command::new(binary(BINARY));
    command.args(arguments).arg("--data").arg(amalgam.folder().join("data"));
    command.arg("--config").arg(amalgam.folder().join("amalgam.toml")).env_clear();
    command.envs(store.environment()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Turns without end, until the flag is set.
async fn load(client: Client, done: Arc<AtomicBool>) -> Vec<Value> {
    let mut answers = Vec::new();
    while !done.load(Ordering::Relaxed) {
        answers.push(ask(&client, &format!("{} {}", answers.len(), "x".repeat(2_000))).await);
    }
    answers
}

/// Backs up while turns run; the turns that were acknowledged before, and all of them.
async fn backed_up_under_load(amalgam: &Amalgam, cli: &Cli, file: &Path) -> (Vec<Value>, Vec<Value>) {
    let mut before = Vec::new();
    for number in 0..20 {
        before.push(ask(&amalgam.client(), &format!("before {number}\n\t\\ \u{1f980}")).await);
    }
    let done = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..3).map(|_| beside(load(amalgam.client(), Arc::clone(&done)))).collect();
    for _ in 0..3 {
        let report = cli.json(&["backup", text(file), "--force"]);
        assert_eq!(report["includes_secret_key"], false, "{report}");
    }
    done.store(true, Ordering::Relaxed);
    let mut during = Vec::new();
    for caller in callers {
        during.extend(caller.end().await);
    }
    (before, during)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_has_every_turn_that_was_acknowledged_before_it_began() {
    for store in stores() {
        let mut amalgam = server(&store).await;
        let cli = Cli::beside(&amalgam, &store);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.tar");
        let (before, during) = backed_up_under_load(&amalgam, &cli, &file).await;
        assert!(during.len() > 3, "{}: there was hardly any load", store.name);
        for response in &during {
            assert_eq!(&retrieved(&amalgam.client(), id_of(response)).await, response, "{}", store.name);
        }
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing temporary is left");
        let verified = cli.json(&["backup", "verify", text(&file)]);
        assert_eq!((&verified["ok"], &verified["store"]), (&json!(true), &json!(store.name)), "{verified}");
        assert!(verified["tables"]["responses"].as_u64().unwrap() >= 20, "{verified}");
        let held = cli.failure(&["backup", text(&file)]);
        assert!(held.contains("--force"), "{held}");

        // A server that runs, and then data that are there, are in the way.
        let refused = cli.failure(&["restore", text(&file)]);
        assert!(refused.contains("stop the server") || refused.contains("not empty"), "{}: {refused}", store.name);
        let refused = cli.failure(&["restore", text(&file), "--force"]);
        assert!(refused.contains("stop"), "{}: {refused}", store.name);
        let later = ask(&amalgam.client(), "after the backup").await;
        amalgam.stop().await;
        let refused = cli.failure(&["restore", text(&file)]);
        assert!(refused.contains("is not empty") && refused.contains("--force"), "{}: {refused}", store.name);
        cli.json(&["restore", text(&file), "--force"]);

        let again = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key(KEY)).home(&amalgam.home())).await;
        for response in &before {
            assert_eq!(&retrieved(&again.client(), id_of(response)).await, response, "{}", store.name);
        }
        let gone = again.client().get(&format!("/v1/responses/{}", id_of(&later))).await;
        assert_eq!(gone.status, 404, "{}: what came after the backup is gone", store.name);
        // New rows get numbers that no restored one has.
        let next = ask(&again.client(), "again").await;
        assert_eq!(retrieved(&again.client(), id_of(&next)).await, next);
        let on = json!({"model": "demo", "input": "on", "previous_response_id": id_of(&before[3])});
        assert_eq!(again.client().post_json("/v1/responses", &on).await.status, 200, "{}", store.name);
    }
}

#[tokio::test]
async fn a_backup_that_is_killed_leaves_no_file_under_its_name_and_the_server_goes_on() {
    for store in stores() {
        let amalgam = server(&store).await;
        for number in 0..30 {
            ask(&amalgam.client(), &format!("{number} {}", "y".repeat(40_000))).await;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.tar");
        let partials = || -> Vec<PathBuf> {
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        let mut was_killed = false;
        for _ in 0..20 {
            let mut child = spawned(&amalgam, &store, &["backup", text(&file)]);
            // As soon as it writes.
            while partials().is_empty() && child.try_wait().unwrap().is_none() {
                std::thread::yield_now();
            }
            child.kill().unwrap();
            let killed = child.wait().unwrap().code().is_none();
            if killed {
                was_killed = true;
                assert!(!file.exists(), "{}: a backup that was cut off has its name", store.name);
            } else {
                std::fs::remove_file(&file).unwrap();
            }
        }
        assert!(was_killed, "{}: no backup was killed in the middle", store.name);
        let next = ask(&amalgam.client(), "still there").await;
        assert_eq!(retrieved(&amalgam.client(), id_of(&next)).await, next);
        // What was left is overwritten.
        let cli = Cli::beside(&amalgam, &store);
        cli.json(&["backup", text(&file)]);
        assert_eq!(partials(), std::slice::from_ref(&file), "{}", store.name);
        cli.json(&["backup", "verify", text(&file)]);
    }
}

/// Deaths of `amalgam restore`, spread over the time that it takes.
const RESTORES: u32 = 12;

#[tokio::test]
async fn a_restore_that_is_killed_has_replaced_everything_or_nothing() {
    for store in stores() {
        let mut amalgam = server(&store).await;
        let mut before = Vec::new();
        for number in 0..30 {
            before.push(ask(&amalgam.client(), &format!("{number} {}", "z".repeat(40_000))).await);
        }
        let file = amalgam.folder().join("backup.tar");
        Cli::beside(&amalgam, &store).json(&["backup", text(&file)]);
        amalgam.stop().await;
        let restore = ["restore", text(&file), "--force"];
        let started = Instant::now();
        assert!(spawned(&amalgam, &store, &restore).wait().unwrap().success(), "{}", store.name);
        let whole = started.elapsed();

        let (mut killed, mut later) = (0, Vec::<Value>::new());
        for death in 0..RESTORES {
            let mut again =
                Amalgam::start(BINARY, store.setup(Setup::new().tenant_key(KEY)).home(&amalgam.home())).await;
            let client = again.client();
            let listed = client.get("/admin/turns?limit=200").await.json()["data"].as_array().map(Vec::len);
            let replaced = match later.last() {
                Some(last) => client.get(&format!("/v1/responses/{}", id_of(last))).await.status == 404,
                None => true,
            };
            if replaced {
                later.clear();
            }
            let expected = before.len() + later.len();
            assert_eq!(listed, Some(expected), "{}: death {death} left something half", store.name);
            for response in before.iter().chain(&later) {
                assert_eq!(&retrieved(&client, id_of(response)).await, response, "{}", store.name);
            }
            later.push(ask(&client, "after the backup").await);
            again.stop().await;
            let mut child = spawned(&amalgam, &store, &restore);
            tokio::time::sleep(whole * (death + 1) / (RESTORES + 1)).await;
            child.kill().unwrap();
            killed += u32::from(child.wait().unwrap().code().is_none());
        }
        assert!(killed > 0, "{}: no restore was killed in the middle", store.name);
        // The remains are no obstacle. PostgreSQL notices a moment later that a client has disconnected.
        eventually("a restore after all deaths", SOON, async || {
            spawned(&amalgam, &store, &restore).wait().unwrap().success().then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_damaged_backup_is_refused_and_changes_nothing() {
    for store in stores() {
        let mut amalgam = server(&store).await;
        let kept = ask(&amalgam.client(), "to be damaged MARK").await;
        let cli = Cli::beside(&amalgam, &store);
        let file = amalgam.folder().join("backup.tar");
        cli.json(&["backup", text(&file)]);
        amalgam.stop().await;
        let mut bytes = std::fs::read(&file).unwrap();
        let place = bytes.windows(4).position(|some| some == b"MARK").unwrap();
        bytes[place] = b'L';
        std::fs::write(&file, &bytes).unwrap();
        for command in [&["backup", "verify", text(&file)][..], &["restore", text(&file), "--force"]] {
            let refused = cli.failure(command);
            assert!(refused.contains("is damaged") && refused.contains("SHA256SUMS"), "{}: {refused}", store.name);
        }
        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        let refused = cli.failure(&["restore", text(&file), "--force"]);
        assert!(refused.contains("is no backup"), "{}: {refused}", store.name);
        let again = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key(KEY)).home(&amalgam.home())).await;
        assert_eq!(retrieved(&again.client(), id_of(&kept)).await, kept, "{}", store.name);
    }
}

#[tokio::test]
async fn the_master_key_is_inside_only_on_request_and_comes_back() {
    for store in stores() {
        let mut amalgam = server(&store).await;
        let cli = Cli::beside(&amalgam, &store);
        let key = cli.json(&["keys", "create", "--tenant", "1"])["key"].as_str().unwrap().to_owned();
        let (plain, whole) = (amalgam.folder().join("plain.tar"), amalgam.folder().join("whole.tar"));
        let told = cli.text(&["backup", text(&plain)]);
        assert!(told.contains("master key is not inside"), "{told}");
        let told = cli.text(&["backup", text(&whole), "--include-secret"]);
        assert!(told.contains("master key is inside"), "{told}");
        amalgam.stop().await;
        let secret = amalgam.folder().join("data/secret.key");
        let original = std::fs::read(&secret).unwrap();
        let holds = |file: &Path| {
            let bytes = std::fs::read(file).unwrap();
            bytes.windows(original.len()).any(|some| some == original)
        };
        assert_eq!((holds(&plain), holds(&whole)), (false, true), "{}", store.name);

        std::fs::remove_file(&secret).unwrap();
        let told = cli.text(&["restore", text(&plain), "--force"]);
        assert!(told.contains("has no master key") && !secret.exists(), "{told}");
        std::fs::write(&secret, "another").unwrap();
        let refused = cli.failure(&["restore", text(&whole)]);
        assert!(refused.contains("--force"), "{refused}");
        cli.text(&["restore", text(&whole), "--force"]);
        assert_eq!(std::fs::read(&secret).unwrap(), original);
        assert_eq!(std::fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key(KEY)).home(&amalgam.home())).await;
        let entries = cli.json(&["audit", "list", "--object", "store"]);
        let restores: Vec<&Value> = entries["data"].as_array().unwrap().iter().collect();
        assert_eq!(restores.len(), 1, "{}: each restore replaces the store: {entries}", store.name);
        assert_eq!(
            (&restores[0]["action"], &restores[0]["actor"]["type"]),
            (&json!("store.restore"), &json!("command"))
        );
        assert!(restores[0]["after"]["file"].as_str().unwrap().ends_with("whole.tar"), "{entries}");
        assert_eq!(cli.json(&["audit", "verify"])["valid"], true);
        let models = Client::new(again.url()).with_key(&key).get("/v1/models").await;
        assert_eq!(models.status, 200, "{}: a stored key works again", store.name);
    }
}

#[test]
fn a_backup_of_a_store_that_does_not_exist_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path());
    let file = folder.path().join("backup.tar");
    let refused = cli.failure(&["backup", text(&file)]);
    assert!(refused.contains("there is no database at sqlite:"), "{refused}");
    let refused = cli.failure(&["restore", text(&file)]);
    assert!(refused.contains("backup.tar") && refused.contains("amalgam.db"), "{refused}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
