//! `amalgam copy`: a store moves from SQLite to PostgreSQL with everything that callers can see.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use amalgam_testkit::{Amalgam, Client, Database, Setup, binary};
use serde_json::{Value, json};

use super::{KEY, ask, text};
use crate::support::{BINARY, Cli, id_of, retrieved, say};

/// A server on a fresh database of PostgreSQL, if there is one for tests.
fn target() -> Option<Database> {
    let database = Database::fresh();
    if database.is_none() {
        say("skipped: AMALGAM_TEST_POSTGRES names no server");
    }
    database
}

fn setup() -> Setup {
    Setup::new().tenant_key(KEY).seeded()
}

fn on(database: &Database) -> Setup {
    setup().env("AMALGAM_STORE_URL", database.url()).env("AMALGAM_STORE_TIMEOUT", "50s")
}

async fn continued(client: &Client, id: &str, input: &str) -> Value {
    let request = json!({"model": "demo", "input": input, "previous_response_id": id});
    let answer = client.post_json("/v1/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn upload(client: &Client, content: &[u8]) -> Value {
    let mut form = b"--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n--b\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\r\n"
        .to_vec();
    form.extend_from_slice(content);
    form.extend_from_slice(b"\r\n--b--\r\n");
    let answer = client.post_raw("/v1/files", "multipart/form-data; boundary=b", form).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// The contents of a store as a caller and an operator see them, on either engine.
async fn seen(client: &Client, cli: &Cli, paths: &[String]) -> Vec<Value> {
    let mut seen = Vec::new();
    for path in paths {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        seen.push(answer.json());
    }
    for command in [
        &["tenants", "list"][..],
        &["keys", "list"],
        &["tools", "list", "--tenant", "1"],
        &["courses", "list", "--tenant", "1"],
        &["knowledge", "list", "--tenant", "1"],
        &["knowledge", "search", "crustacean", "--tenant", "1"],
        &["knowledge", "search", "put documents", "--tenant", "1"],
    ] {
        seen.push(cli.json(command));
    }
    seen
}

/// Fills a store by every door; the paths to compare afterwards.
async fn fill(amalgam: &Amalgam, cli: &Cli) -> (Vec<String>, Value) {
    let client = amalgam.client();
    let first = ask(&client, "first\ttab \\ back\u{8}slash\nline \u{1f980} \u{1}").await;
    let second = continued(&client, id_of(&first), "second").await;
    let fork = continued(&client, id_of(&first), "a fork").await;
    let third = continued(&client, id_of(&second), "third").await;
    let gone = continued(&client, id_of(&third), "gone").await;
    let delete = format!("/v1/responses/{}", id_of(&gone));
    assert_eq!(client.request(http::Method::DELETE, &delete, &[], "".into()).await.status, 200);
    let mut paths: Vec<String> =
        [&first, &second, &fork, &third].map(|response| format!("/v1/responses/{}", id_of(response))).to_vec();
    paths.push(format!("/v1/responses/{}/input_items", id_of(&third)));
    let conversation = client.post_json("/v1/conversations", &json!({})).await.json();
    let said = json!({"model": "demo", "input": "in a conversation", "conversation": id_of(&conversation)});
    assert_eq!(client.post_json("/v1/responses", &said).await.status, 200);
    paths.push(format!("/v1/conversations/{}/items", id_of(&conversation)));
    let spoken = json!({"message": "Which courses are there?", "agent": "home-assistant"});
    let spoken = client.post_json("/api/v2/ai-agent/respond/", &spoken).await;
    assert_eq!(spoken.status, 200, "{}", spoken.text());
    paths.extend(["/v1/files".to_owned(), "/admin/profiles".to_owned()]);
    // Each is more than a batch.
    for _ in 0..6 {
        upload(&client, &[7; 2_200_000]).await;
    }
    let shelf = amalgam.folder().join("shelf");
    std::fs::create_dir(&shelf).unwrap();
    std::fs::write(shelf.join("a.rs"), "/// A crustacean.\nfn put_documents() {\n    let crab = 1;\n}\n").unwrap();
    std::fs::write(shelf.join("b.md"), "# Crustaceans\n\nÜber crabs and lobsters.\n").unwrap();
    cli.json(&["knowledge", "import", text(&shelf), "--tenant", "1", "--collection", "code"]);
    (paths, third)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_killed_is_resumed_and_callers_find_everything_on_the_new_store() {
    let Some(database) = target() else { return };
    let mut amalgam = Amalgam::start(BINARY, setup()).await;
    let embedded = Cli::within(amalgam.folder());
    let (paths, last) = fill(&amalgam, &embedded).await;
    let before = seen(&amalgam.client(), &embedded, &paths).await;
    let source = format!("sqlite:{}", amalgam.folder().join("data/amalgam.db").display());
    let arguments = ["copy", "--from", &source, "--to", database.url()];
    let refused = embedded.failure(&arguments);
    assert!(refused.contains("stop it first"), "{refused}");
    amalgam.stop().await;

    // Killed as soon as the target has some of the files.
    let begun = "SELECT count(*) FROM pg_class WHERE relname = 'amalgam_copy'";
    let some = "SELECT COALESCE(sum(rows), 0) FROM amalgam_copy WHERE name = 'file_contents'";
    let mut child = Command::new(binary(BINARY));
    child.args(arguments).current_dir(amalgam.folder()).env_clear().stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    let started = Instant::now();
    while database.ask(begun) != "1" || database.ask(some) == "0" {
        assert!(child.try_wait().unwrap().is_none(), "the copy was over before it could be killed");
        assert!(started.elapsed() < Duration::from_secs(60), "the copy does not get on");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(database.ask(begun), "1", "the copy was killed in the middle");
    let refused = Amalgam::try_start(BINARY, on(&database).home(&amalgam.home())).await.unwrap_err();
    assert!(refused.stderr.contains("amalgam copy"), "{}", refused.stderr);
    let other = tempfile::tempdir().unwrap();
    Cli::within(other.path()).text(&["migrate"]);
    let another = format!("sqlite:{}", other.path().join("data/amalgam.db").display());
    let refused = embedded.failure(&["copy", "--from", &another, "--to", database.url()]);
    assert!(refused.contains("is not finished"), "{refused}");

    let copied = embedded.json(&arguments);
    assert!(copied["rows_copied_before"].as_u64().unwrap() > 0, "{copied}");
    assert_eq!(copied["tables"]["file_contents"]["rows"], 6, "{copied}");
    let refused = embedded.failure(&arguments);
    assert!(refused.contains("is not empty"), "{refused}");

    let moved = Amalgam::start(BINARY, on(&database).home(&amalgam.home())).await;
    let cli = Cli::within(moved.folder()).env("AMALGAM_STORE_URL", database.url());
    let after = seen(&moved.client(), &cli, &paths).await;
    for (number, (before, after)) in before.iter().zip(&after).enumerate() {
        assert_eq!(before, after, "{number}");
    }
    let entries = cli.json(&["audit", "list", "--object", "store"]);
    assert_eq!(entries["data"][0]["action"], "store.copy", "{entries}");
    assert_eq!(cli.json(&["audit", "verify"])["valid"], true);
    // Chains go on, threads go on, and new rows get numbers of their own.
    let next = continued(&moved.client(), id_of(&last), "and on").await;
    assert_eq!(retrieved(&moved.client(), id_of(&next)).await, next);
    for _ in 0..2 {
        let spoken = json!({"message": "Python courses?", "agent": "home-assistant"});
        assert_eq!(moved.client().post_json("/api/v2/ai-agent/respond/", &spoken).await.status, 200);
    }
}

#[test]
fn stores_are_copied_from_sqlite_to_postgresql_only_and_nothing_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path());
    let refused = cli.failure(&["copy", "--from", "postgres://hush:hush@h/d", "--to", "sqlite:a.db"]);
    assert!(refused.contains("from SQLite to PostgreSQL") && !refused.contains("hush"), "{refused}");
    let refused = cli.failure(&["copy", "--from", "sqlite:a.db", "--to", "postgres://127.0.0.1:1/d"]);
    assert!(refused.contains("no database at sqlite:a.db"), "{refused}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
