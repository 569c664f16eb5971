//! How a server treats the store that it finds at its start.

use amalgam_testkit::{Amalgam, Client, Home, HttpAnswer, Setup};
use serde_json::{Value, json};

use crate::support::{BINARY, SOON, error_of, eventually, id_of, retrieved, shared_store};

const KEY: &str = "sk-tenant-of-the-file";

fn setup() -> Setup {
    Setup::new().tenant_key(KEY)
}

async fn ask(client: &Client, more: Value) -> HttpAnswer {
    let mut request = json!({"model": "demo", "input": "Hi"});
    for (name, value) in more.as_object().into_iter().flatten() {
        request[name] = value.clone();
    }
    client.post_json("/v1/responses", &request).await
}

async fn kept(client: &Client) -> Value {
    let answer = ask(client, json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Reads are served, writes are refused, and the readiness check says so.
async fn assert_read_only(amalgam: &Amalgam, known: &[Value]) {
    let client = amalgam.client();
    assert_eq!(client.get("/healthz").await.status, 200);
    let ready = client.get("/readyz").await;
    assert_eq!((ready.status.as_u16(), ready.text()), (503, r#"{"status":"store_unavailable"}"#.to_owned()));
    for response in known {
        assert_eq!(&retrieved(&client, id_of(response)).await, response);
    }
    assert_eq!(client.get("/v1/models").await.status, 200);
    assert_eq!(ask(&client, json!({"store": false})).await.status, 200, "what is not kept needs no room");
    for delivery in [json!({}), json!({"stream": true}), json!({"background": true})] {
        let refused = ask(&client, delivery).await;
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(error_of(&refused)["code"], "store_unavailable", "{}", refused.text());
    }
}

/// Writes are taken again, without a restart.
async fn assert_recovers(amalgam: &Amalgam, known: &mut Vec<Value>) {
    let client = amalgam.client();
    eventually("the server to be ready", SOON, async || (client.get("/readyz").await.status == 200).then_some(()))
        .await;
    known.push(kept(&client).await);
    for response in known {
        assert_eq!(&retrieved(&client, id_of(response)).await, response);
    }
}

async fn start_without_room(home: &Home) -> Amalgam {
    Amalgam::start(BINARY, setup().home(home).full_disk()).await
}

#[tokio::test]
async fn a_server_starts_on_a_full_disk_and_serves_reads_until_there_is_room() {
    // right E6: after a clean stop SQLite has no index of its log, and cannot make one.
    let mut amalgam = Amalgam::start(BINARY, setup()).await;
    let mut known = vec![kept(&amalgam.client()).await];
    amalgam.stop().await;
    let amalgam = start_without_room(&amalgam.home()).await;
    assert!(amalgam.stderr().contains("the disk has no room"), "{}", amalgam.stderr());
    assert_read_only(&amalgam, &known).await;
    amalgam.limit_files(None);
    assert_recovers(&amalgam, &mut known).await;

    let mut amalgam = amalgam;
    amalgam.stop().await;
    let amalgam = Amalgam::start(BINARY, setup().home(&amalgam.home())).await;
    assert_recovers(&amalgam, &mut known).await;
}

#[tokio::test]
async fn what_only_the_write_ahead_log_has_is_read_after_a_start_on_a_full_disk() {
    // right E6
    let mut amalgam = Amalgam::start(BINARY, setup().deaf_to("XFSZ")).await;
    let client = amalgam.client();
    let mut known = Vec::new();
    for _ in 0..5 {
        known.push(ask(&client, json!({"input": "x".repeat(20_000)})).await.json());
    }
    let gone = known.pop().unwrap();
    let path = format!("/v1/responses/{}", id_of(&gone));
    assert_eq!(client.request(http::Method::DELETE, &path, &[], "".into()).await.status, 200);

    for _ in 0..2 {
        amalgam.kill();
        amalgam = start_without_room(&amalgam.home()).await;
        assert_read_only(&amalgam, &known).await;
        let gone = amalgam.client().get(&format!("/v1/responses/{}", id_of(&gone))).await;
        assert_eq!(gone.status, 404);
    }
    amalgam.limit_files(None);
    assert_recovers(&amalgam, &mut known).await;
    amalgam.kill();
    let amalgam = Amalgam::start(BINARY, setup().home(&amalgam.home())).await;
    assert_recovers(&amalgam, &mut known).await;
}

#[tokio::test]
async fn a_change_of_the_configuration_does_not_keep_a_server_from_starting_on_a_full_disk() {
    // right E6
    let mut amalgam = Amalgam::start(BINARY, setup()).await;
    let known = [kept(&amalgam.client()).await];
    amalgam.stop().await;
    let more = "[tenants.second]\nid = 2\nkeys = [\"sk-of-the-second\"]\n";
    let changed = || setup().stateless().extra(more).home(&amalgam.home());
    let without_room = Amalgam::start(BINARY, changed().full_disk()).await;
    let client = without_room.client();
    assert_eq!(&retrieved(&client, id_of(&known[0])).await, &known[0]);
    assert_eq!(client.get("/readyz").await.status, 503);
    let second = Client::new(without_room.url()).with_key("sk-of-the-second");
    assert_eq!(ask(&second, json!({})).await.status, 401);
    without_room.terminate().await;
    let amalgam = Amalgam::start(BINARY, changed()).await;
    let second = Client::new(amalgam.url()).with_key("sk-of-the-second");
    kept(&second).await;
}

#[tokio::test]
async fn a_server_starts_while_the_disk_of_postgresql_is_full_and_serves_reads() {
    // right E6
    let Some(store) = shared_store() else { return };
    let mut amalgam = Amalgam::start(BINARY, store.setup(setup())).await;
    let mut known = vec![kept(&amalgam.client()).await];
    amalgam.stop().await;
    store.disk_is_full(true);
    let amalgam = Amalgam::start(BINARY, store.setup(setup()).home(&amalgam.home())).await;
    assert_read_only(&amalgam, &known).await;
    store.disk_is_full(false);
    assert_recovers(&amalgam, &mut known).await;
}

#[tokio::test]
async fn a_database_behind_a_symbolic_link_opens_and_keeps_what_it_is_told() {
    // right E5
    let place = tempfile::tempdir().unwrap();
    let (database, link) = (place.path().join("disk/real.db"), place.path().join("link.db"));
    std::fs::create_dir(place.path().join("disk")).unwrap();
    std::os::unix::fs::symlink(&database, &link).unwrap();
    let url = |path: &std::path::Path| format!("sqlite://{}", path.display());
    let setup = |path| Setup::new().env("AMALGAM_STORE_URL", &url(path));

    let mut amalgam = Amalgam::start(BINARY, setup(&link)).await;
    let answer = amalgam.client().post_json("/v1/responses", &json!({"model": "demo", "input": "Hi"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // Both names are one database, which one server has at a time.
    let refused = Amalgam::try_start(BINARY, setup(&database)).await.expect_err("the database is in use");
    assert!(refused.stderr.contains("another server"), "{}", refused.stderr);
    // The write-ahead log is beside the database, wherever it is opened from.
    amalgam.kill();
    let amalgam = Amalgam::start(BINARY, setup(&database).home(&amalgam.home())).await;
    assert_eq!(retrieved(&amalgam.client(), id_of(&answer.json())).await, answer.json());
    assert!(place.path().read_dir().unwrap().count() == 2, "nothing is beside the link");
}

#[tokio::test]
async fn a_redo_log_of_an_older_server_is_applied_at_the_next_start_and_a_damaged_one_is_refused() {
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures/redo_log");
    let folder = tempfile::tempdir().unwrap();
    let (database, log) = (folder.path().join("amalgam.db"), folder.path().join("amalgam.db-redo"));
    std::fs::copy(fixture.join("amalgam.db"), &database).unwrap();
    let mut damaged = std::fs::read(fixture.join("amalgam.db-redo")).unwrap();
    damaged[1000] ^= 1;
    std::fs::write(&log, &damaged).unwrap();
    let setup = || Setup::new().env("AMALGAM_STORE_URL", &format!("sqlite://{}", database.display()));

    let refused = Amalgam::try_start(BINARY, setup()).await.expect_err("acknowledged turns would be lost");
    for part in ["amalgam.db-redo", "is damaged", "restore the file from a copy, or move it away"] {
        assert!(refused.stderr.contains(part), "{part} is not in {}", refused.stderr);
    }
    assert_eq!(std::fs::read(&log).unwrap(), damaged, "the log was changed");

    std::fs::copy(fixture.join("amalgam.db-redo"), &log).unwrap();
    let amalgam = Amalgam::start(BINARY, setup()).await;
    assert!(amalgam.stderr().contains("applied the redo log"), "{}", amalgam.stderr());
    assert!(!log.exists());
    assert_eq!(ask(&amalgam.client(), json!({})).await.status, 200);
}
