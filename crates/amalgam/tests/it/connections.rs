//! Places for connections: how many there are, whose they are, and who gives one up first.

use std::time::Duration;

use amalgam_testkit::{Amalgam, Client, Gate, RawConnection, Setup};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::support::{Delivery, Script, Wire, World, eventually};

const KEY: &str = "am_places-key-0123456789";
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks for this path on a connection of its own that stays open; the beginning of the answer.
async fn ask(client: &Client, path: &str) -> (RawConnection, String) {
    let mut socket = client.connect().await;
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\r\n");
    // A server without a place may have hung up before it has read this.
    let _ = socket.write_all(head.as_bytes()).await;
    let mut answer = vec![0; 4096];
    let read = timeout(PATIENCE, socket.read(&mut answer)).await.expect("the server answers").unwrap_or(0);
    (socket, String::from_utf8_lossy(&answer[..read]).into_owned())
}

/// Whether the server has ended a connection on which nothing is left to read.
async fn has_ended(socket: &mut RawConnection) -> bool {
    let mut byte = [0; 1];
    matches!(timeout(Duration::from_millis(20), socket.read(&mut byte)).await, Ok(Ok(0) | Err(_)))
}

/// A server with this number of slots, all of them taken by turns that wait for their model.
async fn busy(settings: &str, places: usize) -> (World, Gate, Vec<amalgam_testkit::EventStream>) {
    let setup = Setup::new().tenant_key(KEY).extra(&format!("[server]\n{settings}"));
    let world = World::with(setup, &[]).await;
    let gate = Gate::new();
    let mut turns = Vec::new();
    for _ in 0..places {
        let reply = Script::text(&["Done."]).reply(Wire::Chat, Delivery::Stream).hold_after(1, &gate);
        world.upstream(Wire::Chat).enqueue(reply);
        let request = json!({"model": Wire::Chat.model(), "input": "Hi", "stream": true});
        turns.push(world.amalgam.client().post_stream("/v1/responses", &request).await);
    }
    (world, gate, turns)
}

// right E3
#[tokio::test]
async fn health_checks_are_answered_while_every_place_is_taken() {
    let (world, gate, turns) = busy("max_connections = 3", 3).await;
    let client = world.amalgam.client();
    let (_, refused) = ask(&client, "/v1/models").await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("server_is_overloaded"), "{refused}");
    for path in ["/healthz", "/readyz"] {
        let (_, answer) = ask(&client, path).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    // Silent connections in front of the door keep no check away.
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(client.connect().await);
    }
    let (_, answer) = ask(&client, "/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    gate.open();
    for turn in turns {
        let last = turn.rest().await;
        assert!(last.iter().any(|event| event.event.as_deref() == Some("response.completed")), "the turns went on");
    }
}

// right E3
#[tokio::test]
async fn the_connection_that_was_silent_for_longest_makes_room() {
    let (world, gate, turns) = busy("max_connections = 4", 2).await;
    let client = world.amalgam.client();
    // One connection that was kept alive after an answer, and one without any request.
    let (mut kept, answer) = ask(&client, "/v1/models").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut silent = client.connect().await;
    let newest = eventually("a place", PATIENCE, async || {
        let (socket, answer) = ask(&client, "/v1/models").await;
        answer.starts_with("HTTP/1.1 200").then_some(socket)
    })
    .await;
    // The first of them was closed; running requests continued.
    eventually("the end of a silent connection", PATIENCE, async || {
        (has_ended(&mut kept).await || has_ended(&mut silent).await).then_some(())
    })
    .await;
    drop(newest);
    gate.open();
    for turn in turns {
        let last = turn.rest().await;
        assert!(last.iter().any(|event| event.event.as_deref() == Some("response.completed")), "the turns went on");
    }
}

// right E3
#[tokio::test]
async fn one_address_has_so_many_connections_and_a_trusted_proxy_more() {
    let (world, _gate, _turns) = busy("max_connections_per_address = 2", 2).await;
    let (_, refused) = ask(&world.amalgam.client(), "/v1/models").await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("too_many_connections"), "{refused}");
    let (_, answer) = ask(&world.amalgam.client(), "/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let settings = "max_connections_per_address = 2\ntrusted_proxies = [\"127.0.0.1\"]";
    let (world, _gate, _turns) = busy(settings, 3).await;
    let (_, answer) = ask(&world.amalgam.client(), "/v1/models").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

// right E3
#[tokio::test]
async fn one_key_has_so_many_connections_and_other_keys_have_their_own() {
    let (world, gate, turns) =
        busy("max_connections_per_key = 2\n[tenants.other]\nid = 2\nkeys = [\"am_other\"]", 2).await;
    let client = world.amalgam.client();
    let refused = client.get("/v1/models").await;
    assert_eq!((refused.status.as_u16(), &refused.json()["error"]["code"]), (429, &json!("too_many_connections")));
    assert!(refused.header("retry-after").is_some());
    let other = Client::new(world.amalgam.url()).with_key("am_other");
    assert_eq!(other.get("/v1/models").await.status, 200);
    gate.open();
    for turn in turns {
        turn.rest().await;
    }
    eventually("a place of the key", PATIENCE, async || (client.get("/v1/models").await.status == 200).then_some(()))
        .await;
}

// right E3
#[tokio::test]
async fn a_websocket_on_which_nothing_is_asked_is_closed_after_the_configured_time() {
    let setup = Setup::new().extra("[server]\nwebsocket_idle_timeout = \"500ms\"");
    let amalgam = Amalgam::start(crate::support::BINARY, setup).await;
    let mut socket = amalgam.client().connect().await;
    let handshake = "GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.write_all(handshake.as_bytes()).await.expect("the server takes a handshake");
    let mut told = Vec::new();
    timeout(PATIENCE, socket.read_to_end(&mut told)).await.expect("the server ends it").expect("in order");
    let told = String::from_utf8_lossy(&told);
    assert!(told.starts_with("HTTP/1.1 101") && told.ends_with("nothing was asked for too long"), "{told}");
}

// right E5
#[tokio::test]
async fn a_request_without_a_host_with_two_of_them_or_with_bare_line_feeds_is_a_400() {
    let amalgam = Amalgam::start(crate::support::BINARY, Setup::new()).await;
    for (head, status) in [
        ("GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", "200"),
        ("GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n", "400"),
        ("GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n", "400"),
        ("GET /v1/models HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\nconnection: close\r\n\r\n", "400"),
        ("GET /healthz HTTP/1.0\r\n\r\n", "200"),
        ("GET /v1/models HTTP/1.1\nhost: localhost\nconnection: close\n\n", "400"),
        ("GET /v1/models HTTP/1.1\r\nhost: localhost\nconnection: close\r\n\r\n", "400"),
        ("GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\n", "400"),
        // In a body it is a byte like any other.
        (
            "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 34\r\nconnection: close\r\n\r\n{\n\"model\": \"demo\",\n\"input\": \"Hi\"\n}",
            "200",
        ),
    ] {
        let mut socket = amalgam.client().connect().await;
        socket.write_all(head.as_bytes()).await.expect("the server takes a head");
        let mut answer = Vec::new();
        timeout(PATIENCE, socket.read_to_end(&mut answer)).await.expect("the server answers").expect("in order");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.split(' ').nth(1) == Some(status), "{head:?}: {answer}");
        if status == "400" {
            assert!(answer.contains("\"malformed_request\""), "{head:?}: {answer}");
        }
    }
    // Those that never became a request are counted, and the log has one line for all of them.
    let refused = refusals(&amalgam.client(), "bad_head").await;
    assert!(refused >= 3, "{refused}");
    let log = amalgam.wait_for_stderr("bad_head").await;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("a connection was refused")).collect();
    assert!(lines.len() == 1 && lines[0].contains("bad_head") && lines[0].contains("127.0.0.1"), "{log}");
}

/// How many connections were refused for this reason.
async fn refusals(client: &Client, reason: &str) -> u64 {
    let metrics = client.get("/metrics").await.text();
    let series = format!("amalgam_connections_refused_total{{reason=\"{reason}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
    line.and_then(|number| number.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn connections_that_are_refused_or_too_slow_are_counted_and_logged_by_reason() {
    let (world, gate, turns) = busy("max_connections = 2\nheader_timeout = \"1s\"", 2).await;
    for _ in 0..3 {
        let (_, refused) = ask(&world.amalgam.client(), "/v1/models").await;
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    }
    gate.open();
    for turn in turns {
        turn.rest().await;
    }
    let mut slow = world.amalgam.client().connect().await;
    slow.write_all(b"GET /v1/models HTTP/1.1\r\nhost: loc").await.expect("the server takes a head");
    let mut answer = Vec::new();
    timeout(PATIENCE, slow.read_to_end(&mut answer)).await.expect("the server answers").expect("in order");
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 408"));
    let client = world.amalgam.client();
    assert_eq!(refusals(&client, "too_many_connections").await, 3);
    assert_eq!(refusals(&client, "slow_head").await, 1);
    let log = world.amalgam.wait_for_stderr("slow_head").await;
    let lines = |reason: &str| log.lines().filter(|line| line.contains("was refused") && line.contains(reason)).count();
    assert_eq!((lines("too_many_connections"), lines("slow_head")), (1, 1), "{log}");
}
