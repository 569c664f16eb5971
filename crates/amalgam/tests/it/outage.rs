//! A store that is unreachable for a while: nothing is acknowledged meanwhile, and nothing acknowledged is lost. S16

use std::{
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use amalgam_testkit::{Amalgam, Client, Gate, HttpAnswer, Setup, check};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::support::{
    DELIVERIES, Delivery, SOON, Script, Wire, World, asking, assert_calm, beside, ended, error_of, eventually, id_of,
    retrieved, say,
};

/// A PostgreSQL server of a test's own, which can be stopped and started.
struct Server {
    folder: PathBuf,
    url: String,
    _parent: TempDir,
}

impl Server {
    /// Only where tests with PostgreSQL run at all, and its programs are here.
    #[expect(clippy::disallowed_methods, reason = "the environment of the test run names the server")]
    fn start() -> Option<Self> {
        if std::env::var_os("AMALGAM_TEST_POSTGRES").is_none_or(|server| server.is_empty()) || !script(&["find"]).1 {
            say("skipped: AMALGAM_TEST_POSTGRES names no server, or none can be started");
            return None;
        }
        let parent = tempfile::tempdir().expect("a temporary folder can be made");
        // The server has a user of its own, who has to get through.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(parent.path(), mode).expect("a folder of ours");
        let folder = parent.path().join("server");
        let (url, started) = script(&["start", &folder.to_string_lossy()]);
        assert!(started, "a server starts: {url}");
        Some(Self { folder, url, _parent: parent })
    }

    fn tell(&self, what: &str) {
        let (said, done) = script(&[what, &self.folder.to_string_lossy()]);
        assert!(done, "the server cannot be told `{what}`: {said}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        script(&["stop", &self.folder.to_string_lossy()]);
    }
}

fn script(arguments: &[&str]) -> (String, bool) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres.sh");
    let output = Command::new(script).args(arguments).output().expect("the script can be started");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    (said.join("\n").trim().to_owned(), output.status.success())
}

fn resident_kib(amalgam: &Amalgam) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", amalgam.pid())).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux tells it");
    line.trim().trim_end_matches(" kB").trim().parse().expect("it is a number")
}

async fn post(client: &Client, delivery: Delivery, request: &Value) -> HttpAnswer {
    client.post_json("/v1/responses", &asking(wire(delivery), delivery, request)).await
}

/// Whole answers come from one upstream and streams from the other.
fn wire(delivery: Delivery) -> Wire {
    match delivery {
        Delivery::Whole => Wire::Chat,
        Delivery::Stream => Wire::Responses,
    }
}

/// Expects a refusal with `Retry-After`.
fn assert_away(answer: &HttpAnswer) {
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(error_of(answer)["code"], "store_unavailable", "{}", answer.text());
    let wait: u64 = answer.header("retry-after").expect("it says when").parse().expect("it is a number");
    assert!((1..=60).contains(&wait), "{wait}");
}

async fn prepared(setup: Setup) -> World {
    let world = World::with(setup, &[]).await;
    for delivery in DELIVERIES {
        let script = Script::text(&["All ", "is well."]);
        world.upstream(wire(delivery)).from_now_on(script.reply(wire(delivery), delivery));
    }
    world
}

/// Callers that send requests all the time, also after errors; every response that was acknowledged.
async fn under_load(client: Client, delivery: Delivery, stop: watch::Receiver<bool>) -> Vec<Value> {
    let mut acknowledged = Vec::new();
    let mut refused = 0;
    while !*stop.borrow() {
        let request = asking(wire(delivery), delivery, &json!({"input": "Hi"}));
        let headers = [("content-type", "application/json")];
        let answer = client.request(Method::POST, "/v1/responses", &headers, request.to_string().into()).await;
        if answer.status != 200 {
            assert_away(&answer);
            refused += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        }
        let response = match delivery {
            Delivery::Whole => answer.json(),
            Delivery::Stream => {
                // P5: in any case a stream ends in a terminal event.
                assert_eq!(check::body(&answer.body), Vec::<String>::new(), "{}", answer.text());
                answer.json_events().last().expect("a stream has events")["response"].clone()
            }
        };
        acknowledged.push(response);
    }
    assert!(refused > 0, "no request was refused while the store was away");
    acknowledged
}

#[tokio::test]
async fn a_database_that_restarts_is_waited_for_and_nothing_is_lost() {
    // Fault table: database down, restart, failover
    let Some(server) = Server::start() else { return };
    let world = prepared(Setup::new().env("AMALGAM_STORE_URL", &server.url)).await;
    let client = world.amalgam.client();
    let kept = post(&client, Delivery::Whole, &json!({"input": "Hi"})).await.json();
    let (stopping, stop) = watch::channel(false);
    let callers: Vec<_> = DELIVERIES
        .into_iter()
        .cycle()
        .take(6)
        .map(|delivery| beside(under_load(world.amalgam.client(), delivery, stop.clone())))
        .collect();
    let mut acknowledged = vec![kept.clone()];
    for round in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        // Two streams are in the middle of their text when the database becomes unavailable. The caller of one
        // disconnects while its end cannot be written.
        let gate = Gate::new();
        let mut streams = Vec::new();
        for _ in 0..2 {
            let words = Script::text(&["a", "b"]).reply(Wire::Anthropic, Delivery::Stream).hold_after(3, &gate);
            world.upstream(Wire::Anthropic).enqueue(words);
            let request = asking(Wire::Anthropic, Delivery::Stream, &json!({"input": "Hi"}));
            let mut stream = client.post_stream("/v1/responses", &request).await;
            let created = stream.next_of_type("response.created").await["response"].clone();
            stream.next_of_type("response.output_text.delta").await;
            streams.push((created, stream));
        }
        let (interrupted, stream) = streams.pop().expect("there are two");
        let (left, mut leaving) = streams.pop().expect("there are two");
        let before = resident_kib(&world.amalgam);
        server.tell("down");
        gate.open();
        leaving.next_of_type("response.output_item.done").await;
        drop(leaving);

        assert_away(&post(&client, Delivery::Whole, &json!({"input": "Hi"})).await);
        assert_away(&post(&client, Delivery::Stream, &json!({"input": "Hi"})).await);
        assert_away(&post(&client, Delivery::Whole, &json!({"input": "Hi", "background": true})).await);
        assert_away(&client.get(&format!("/v1/responses/{}", id_of(&kept))).await);
        let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
        let idempotency_key = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"})).to_string();
        assert_away(&client.request(Method::POST, "/v1/responses", &headers, idempotency_key.into()).await);
        assert_eq!(client.get("/healthz").await.status, 200);
        let ready = client.get("/readyz").await;
        assert_eq!((ready.status.as_u16(), &ready.json()["status"]), (503, &json!("store_unavailable")));
        // What needs no store is served all the same.
        let unkept = post(&client, Delivery::Whole, &json!({"input": "Hi", "store": false})).await;
        assert_eq!(unkept.status, 200, "{}", unkept.text());
        // S16: refused, not gathered.
        let flood: Vec<_> = (0..200)
            .map(|_| {
                let client = client.clone();
                beside(async move { post(&client, Delivery::Whole, &json!({"input": "x".repeat(50_000)})).await })
            })
            .collect();
        for refused in flood {
            assert_away(&refused.end().await);
        }
        let grown = resident_kib(&world.amalgam).saturating_sub(before);
        assert!(grown < 64 * 1024, "{grown} KiB more while the store was away");

        server.tell("up");
        let back = Instant::now();
        let answer = eventually("the server to answer again", SOON, async || {
            let answer = post(&client, Delivery::Whole, &json!({"input": "Hi"})).await;
            (answer.status == 200).then_some(answer)
        })
        .await;
        assert!(back.elapsed() < SOON, "{:?}", back.elapsed());
        acknowledged.push(answer.json());
        assert_eq!(client.get("/readyz").await.status, 200);
        // P3, P5: the one that was interrupted has ended, and its caller received the error.
        let told = stream.rest().await;
        assert!(told.last().is_some_and(amalgam_testkit::sse::SseEvent::is_done), "round {round}: {told:?}");
        let last = told[told.len() - 2].json()["response"].clone();
        let stored = ended(&client, id_of(&interrupted)).await;
        assert_eq!(stored["status"], last["status"], "round {round}");
        ended(&client, id_of(&left)).await;
    }
    stopping.send_replace(true);
    for caller in callers {
        acknowledged.extend(caller.end().await);
    }
    let mut completed = 0;
    for response in &acknowledged {
        match response["status"].as_str() {
            Some("completed") => {
                completed += 1;
                assert_eq!(&retrieved(&client, id_of(response)).await, response);
            }
            // Reported as failed because its end could not be written: it has ended in the store as well.
            _ => assert_eq!(ended(&client, id_of(response)).await["status"], "failed", "{response}"),
        }
    }
    assert!(completed > 20, "there was hardly any load: {completed}");
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn a_database_that_only_restarts_costs_no_caller_more_than_a_retry() {
    let Some(server) = Server::start() else { return };
    let world = prepared(Setup::new().env("AMALGAM_STORE_URL", &server.url)).await;
    let client = world.amalgam.client();
    // A turn in the background, whose model answers after the restart.
    let gate = Gate::new();
    let words = Script::text(&["a"]).reply(Wire::Anthropic, Delivery::Whole).behind(&gate);
    world.upstream(Wire::Anthropic).enqueue(words);
    let request = asking(Wire::Anthropic, Delivery::Whole, &json!({"input": "Hi", "background": true}));
    let background = client.post_json("/v1/responses", &request).await.json();
    world.upstream(Wire::Anthropic).wait_for_requests(1).await;
    server.tell("down");
    server.tell("up");
    gate.open();
    let response = ended(&client, id_of(&background)).await;
    assert_eq!(response["status"], "completed", "{response}");
    // Queued turns are found again, too.
    let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "background": true}));
    let queued = eventually("a turn to be queued", SOON, async || {
        let answer = client.post_json("/v1/responses", &request).await;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    assert_eq!(ended(&client, id_of(&queued)).await["status"], "completed");
}

/// Requests with idempotency keys that began before the store became unavailable, and could not be written.
async fn claimed_before(world: &World, away: impl FnOnce(), back: impl FnOnce()) {
    let client = world.amalgam.client();
    let asked = |key: &str, kept: bool| {
        let (client, key) = (client.clone(), key.to_owned());
        let request = asking(Wire::Anthropic, Delivery::Whole, &json!({"input": "Hi", "store": kept})).to_string();
        beside(async move {
            let headers = [("content-type", "application/json"), ("idempotency-key", key.as_str())];
            client.request(Method::POST, "/v1/responses", &headers, request.into()).await
        })
    };
    let gate = Gate::new();
    for _ in 0..2 {
        let words = Script::text(&["a"]).reply(Wire::Anthropic, Delivery::Whole).behind(&gate);
        world.upstream(Wire::Anthropic).enqueue(words);
    }
    let (kept, unkept) = (asked("kept", true), asked("unkept", false));
    world.upstream(Wire::Anthropic).wait_for_requests(2).await;
    away();
    gate.open();
    assert_away(&kept.end().await);
    // What is not stored is answered; only that it was cannot be remembered.
    let unkept = unkept.end().await;
    assert_eq!(unkept.status, 200, "{}", unkept.text());
    back();
    eventually("the server to write again", SOON, async || {
        (post(&client, Delivery::Whole, &json!({"input": "Hi"})).await.status == 200).then_some(())
    })
    .await;
    world.upstream(Wire::Anthropic).from_now_on(Script::text(&["b"]).reply(Wire::Anthropic, Delivery::Whole));
    for (key, keeps) in [("kept", true), ("unkept", false)] {
        let again = tokio::time::timeout(SOON, asked(key, keeps).end()).await.expect("no other process works on it");
        assert_eq!(again.status, 200, "{key}: {}", again.text());
    }
}

#[tokio::test]
async fn what_was_claimed_before_a_database_went_away_can_be_asked_again() {
    let Some(server) = Server::start() else { return };
    let world = prepared(Setup::new().env("AMALGAM_STORE_URL", &server.url)).await;
    claimed_before(&world, || server.tell("down"), || server.tell("up")).await;
}

#[tokio::test]
async fn what_was_claimed_before_a_disk_was_full_can_be_asked_again() {
    let world = prepared(Setup::new().deaf_to("XFSZ")).await;
    let (full, room) = (|| world.amalgam.limit_files(Some(0)), || world.amalgam.limit_files(None));
    claimed_before(&world, full, room).await;
}

/// Asks until the store refuses; what was acknowledged by then.
async fn until_refused(client: &Client) -> Vec<Value> {
    let mut acknowledged = Vec::new();
    eventually("the store to refuse", SOON, async || {
        let answer = post(client, Delivery::Whole, &json!({"input": "Hi"})).await;
        match answer.status.as_u16() {
            200 => acknowledged.push(answer.json()),
            _ => {
                assert_away(&answer);
                return Some(());
            }
        }
        None
    })
    .await;
    acknowledged
}

#[tokio::test]
async fn a_full_disk_refuses_what_must_be_written_and_nothing_else() {
    // Fault table: disk full
    let world = prepared(Setup::new().deaf_to("XFSZ")).await;
    let client = world.amalgam.client();
    let mut acknowledged = Vec::new();
    for round in 0..2 {
        for delivery in DELIVERIES {
            let answer = post(&client, delivery, &json!({"input": "Hi"})).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            acknowledged.push(match delivery {
                Delivery::Whole => answer.json(),
                Delivery::Stream => answer.json_events().last().unwrap()["response"].clone(),
            });
        }
        // A stream that has begun, and whose end will find no room.
        let gate = Gate::new();
        let words = Script::text(&["a", "b"]).reply(Wire::Anthropic, Delivery::Stream).hold_after(3, &gate);
        world.upstream(Wire::Anthropic).enqueue(words);
        let request = asking(Wire::Anthropic, Delivery::Stream, &json!({"input": "Hi"}));
        let mut stream = client.post_stream("/v1/responses", &request).await;
        let interrupted = stream.next_of_type("response.created").await["response"].clone();
        stream.next_of_type("response.output_text.delta").await;

        world.amalgam.limit_files(Some(0));
        acknowledged.extend(until_refused(&client).await);
        assert_away(&post(&client, Delivery::Stream, &json!({"input": "Hi"})).await);
        assert_away(&post(&client, Delivery::Whole, &json!({"input": "Hi", "background": true})).await);
        // Reads work, and so do turns that are not stored.
        for response in &acknowledged {
            assert_eq!(&retrieved(&client, id_of(response)).await, response, "round {round}");
        }
        let unkept = post(&client, Delivery::Whole, &json!({"input": "Hi", "store": false})).await;
        assert_eq!(unkept.status, 200, "{}", unkept.text());
        assert_eq!(client.get("/healthz").await.status, 200);
        gate.open();
        let told = stream.rest().await;
        assert!(told.iter().any(|event| event.event.as_deref() == Some("response.failed")), "{told:?}");

        world.amalgam.limit_files(None);
        let answer = eventually("the server to write again", SOON, async || {
            let answer = post(&client, Delivery::Whole, &json!({"input": "Hi"})).await;
            (answer.status == 200).then_some(answer)
        })
        .await;
        acknowledged.push(answer.json());
        let stored = ended(&client, id_of(&interrupted)).await;
        assert_eq!(stored["status"], "failed", "{stored}");
    }
    // After a restart it is all still there.
    let mut world = world;
    world.amalgam.kill();
    world.start_again().await;
    for response in &acknowledged {
        assert_eq!(&retrieved(&world.amalgam.client(), id_of(response)).await, response);
    }
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn what_was_acknowledged_until_the_disk_was_full_is_there_after_a_crash() {
    // P1: the write-ahead log can grow a little further, and not beyond that.
    let mut world = prepared(Setup::new().deaf_to("XFSZ")).await;
    let client = world.amalgam.client();
    let mut acknowledged = Vec::new();
    for _ in 0..5 {
        let answer = post(&client, Delivery::Whole, &json!({"input": "x".repeat(20_000)})).await;
        acknowledged.push(answer.json());
    }
    let gone = acknowledged.pop().expect("there are five");
    let deleted = client.request(Method::DELETE, &format!("/v1/responses/{}", id_of(&gone)), &[], "".into()).await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());

    world.amalgam.limit_files(Some(4 * 1024 * 1024));
    let last = until_refused(&client).await;
    assert!(!last.is_empty(), "the log was full before");
    acknowledged.extend(last);
    world.amalgam.kill();
    world.start_again().await;
    let client = world.amalgam.client();
    for response in &acknowledged {
        assert_eq!(&retrieved(&client, id_of(response)).await, response);
    }
    assert_eq!(client.get(&format!("/v1/responses/{}", id_of(&gone))).await.status, 404);
    assert_calm(&world.amalgam);
}
