//! How sockets and the turns on them end.

use std::time::Instant;

use amalgam_testkit::{Gate, RawConnection, Reply};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
};

use super::*;

/// A text that waits at the gate before its first delta.
fn held(gate: &Gate) -> Reply {
    says("All is well.").reply(Wire::Chat, Delivery::Stream).hold_after(1, gate)
}

fn hello() -> Value {
    create(Wire::Chat, json!({"input": "Hi", "store": false}))
}

#[tokio::test]
async fn while_a_response_runs_another_one_is_refused_and_the_first_goes_on() {
    let world = World::start().await;
    let mut socket = Socket::open(&world.amalgam).await;
    let gate = Gate::new();
    // In its middle, and before the model has answered at all.
    for (index, reply) in [held(&gate), Reply::hang()].into_iter().enumerate() {
        world.upstream(Wire::Chat).enqueue(reply);
        socket.say(&hello()).await;
        world.upstream(Wire::Chat).wait_for_requests(index + 1).await;
        socket.say(&create(Wire::Chat, json!({"input": "Me too", "stream_id": "other"}))).await;
        let refused = socket.event_of_type("error").await;
        assert_eq!(told(&refused), (409, None, "response_in_progress".to_owned()));
        assert_eq!(refused["stream_id"], "other");
        socket.0.send(Message::text("{")).await.unwrap();
        assert_eq!(told(&socket.event_of_type("error").await).2, "invalid_json");
        assert_eq!(world.upstream(Wire::Chat).requests().len(), index + 1);
        if index == 0 {
            gate.open();
            let last = socket.event_of_type("response.completed").await;
            assert_eq!(text_of(&last["response"]), "All is well.");
        }
    }
    drop(socket);
    world.upstream(Wire::Chat).wait_for_disconnect(1).await;
}

#[tokio::test]
async fn a_client_that_has_the_last_event_may_send_the_next_request_at_once() {
    let world = World::start().await;
    let mut socket = Socket::open(&world.amalgam).await;
    for turn in 0..1000 {
        // No model, so that there is time for many.
        socket.say(&create(Wire::Chat, json!({"input": "Hi", "store": false, "generate": false}))).await;
        let last = loop {
            let event = socket.event().await;
            if event["type"] == "response.completed" || event["type"] == "error" {
                break event;
            }
        };
        assert_eq!(last["type"], "response.completed", "turn {turn}: {last}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_frees_the_upstream_at_once() {
    let world = World::start().await;
    for (index, farewell) in [true, false].into_iter().enumerate() {
        let mut socket = Socket::open(&world.amalgam).await;
        world.upstream(Wire::Chat).enqueue(held(&Gate::new()));
        socket.say(&hello()).await;
        socket.event_of_type("response.in_progress").await;
        let started = Instant::now();
        if farewell {
            socket.0.close(None).await.unwrap();
            assert_eq!(socket.closed().await, Some(1000));
        }
        drop(socket);
        world.upstream(Wire::Chat).wait_for_disconnect(index).await;
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    }
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn a_signal_lets_the_response_end_and_then_closes() {
    // Fault table: SIGTERM
    let world = World::start().await;
    let mut waiting = Socket::open(&world.amalgam).await;
    let mut busy = Socket::open(&world.amalgam).await;
    let gate = Gate::new();
    world.upstream(Wire::Chat).enqueue(held(&gate));
    busy.say(&hello()).await;
    busy.event_of_type("response.in_progress").await;
    world.amalgam.signal("TERM");
    assert_eq!(waiting.closed().await, Some(1001));
    gate.open();
    let last = busy.event_of_type("response.completed").await;
    assert_eq!(text_of(&last["response"]), "All is well.");
    assert_eq!(busy.closed().await, Some(1001));
    let exit = world.amalgam.wait().await;
    assert_eq!(exit.status.code(), Some(0), "{}", exit.stderr);
}

#[tokio::test]
async fn a_response_that_outlasts_the_drain_is_told_as_failed() {
    // P5
    let world = World::with(Setup::new().extra("[server]\ndrain_timeout = \"600ms\""), &[]).await;
    let mut socket = Socket::open(&world.amalgam).await;
    world.upstream(Wire::Chat).enqueue(held(&Gate::new()));
    socket.say(&hello()).await;
    socket.event_of_type("response.in_progress").await;
    world.amalgam.signal("TERM");
    let last = socket.event_of_type("response.failed").await;
    assert_eq!(last["response"]["error"]["code"], "server_is_shutting_down");
    assert_eq!(socket.closed().await, Some(1001));
    assert_eq!(world.amalgam.wait().await.status.code(), Some(0));
}

/// A socket by hand, for clients that behave oddly; with a small window.
async fn by_hand(amalgam: &Amalgam) -> RawConnection {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(32 * 1024).expect("a window");
    let address = amalgam.url().trim_start_matches("http://").parse().expect("an address");
    let mut socket = RawConnection::new(socket.connect(address).await.expect("it listens"));
    let head = "GET /v1/responses HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.write_all(head.as_bytes()).await.expect("the server takes the request");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(socket.read_u8().await.expect("an answer"));
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    socket
}

/// A frame as a client sends it, with a mask of zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..=125 => bytes.push(0x80 | short as u8),
        long => {
            bytes.push(0xfe);
            bytes.extend(u16::try_from(long).expect("no test sends more").to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

#[tokio::test]
async fn a_client_that_does_not_read_makes_the_upstream_wait_and_is_let_go() {
    // P8
    let world = World::start().await;
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {"content": "x".repeat(1000)}, "finish_reason": null}]});
    let piece = bytes::Bytes::from(format!("data: {chunk}\n\n").repeat(50));
    let reply = (0..2000).fold(Reply::stream(), |reply, _| reply.send(piece.clone()));
    world.streamed(Wire::Chat, &says("Fine."), &json!({"input": "Hi"})).await;
    let before = resident_kib(&world.amalgam);
    world.upstream(Wire::Chat).enqueue(reply);
    let mut socket = by_hand(&world.amalgam).await;
    socket.write_all(&frame(0x81, hello().to_string().as_bytes())).await.unwrap();
    world.upstream(Wire::Chat).wait_for_requests(2).await;
    let started = Instant::now();
    // Nothing but the passing of time lets it go: there is nothing to wait for but that.
    while world.amalgam.client().get("/readyz").await.json()["turns_in_flight"] != 0 {
        let grown = resident_kib(&world.amalgam).saturating_sub(before);
        assert!(grown < 24 * 1024, "{grown} KiB for one client that does not read");
        assert!(started.elapsed() < Duration::from_secs(40), "still held after {:?}", started.elapsed());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    world.upstream(Wire::Chat).wait_for_disconnect(1).await;
    drop(socket);
}

fn resident_kib(amalgam: &Amalgam) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", amalgam.pid())).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux tells it");
    line.trim().trim_end_matches(" kB").trim().parse().expect("it is a number")
}

#[tokio::test]
async fn bytes_that_are_no_websocket_disturb_no_other_client() {
    // P9
    let world = World::start().await;
    let create = hello().to_string();
    let cases: Vec<(Vec<u8>, u16)> = vec![
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 1002),
        (vec![0xff; 64], 1002),
        ([0x81, 5].into_iter().chain(*b"hello").collect(), 1002),
        (frame(0xc1, create.as_bytes()), 1002),
        (frame(0x80, b"goes on from nothing"), 1002),
        ([frame(0x01, b"{"), frame(0x81, b"}")].concat(), 1002),
        (frame(0x89, &[0; 200]), 1002),
        (frame(0x88, b"\x00"), 1002),
        (frame(0x82, create.as_bytes()), 1003),
        (frame(0x81, b"{\"\xff\xfe\"}"), 1007),
        ([&[0x81, 0xff][..], &u64::to_be_bytes(1 << 40), &[0; 4]].concat(), 1009),
        ([&[0x81, 0xff][..], &u64::to_be_bytes(1 << 63), &[0; 4]].concat(), 1002),
    ];
    for (bytes, code) in cases {
        let mut socket = by_hand(&world.amalgam).await;
        socket.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(SOON, socket.read_to_end(&mut answer)).await.expect("the server ends it").unwrap();
        let close = answer.windows(4).any(|window| window[0] == 0x88 && window[2..] == u16::to_be_bytes(code));
        assert!(close, "no close with {code} in {:?} after {bytes:?}", String::from_utf8_lossy(&answer));
    }
    // For every seed: half of it is nearly right.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..200 {
        let mut bytes = [frame(0x81, create.as_bytes()), frame(0x01, b"{\"type\":"), frame(0x80, b"1}")].concat();
        for _ in 0..=random() % 4 {
            let at = random() as usize % bytes.len();
            bytes[at] ^= 1 << (random() % 8);
        }
        bytes.truncate(1 + random() as usize % bytes.len());
        let mut socket = by_hand(&world.amalgam).await;
        socket.write_all(&bytes).await.unwrap();
        drop(socket);
    }
    let mut socket = Socket::open(&world.amalgam).await;
    world.upstream(Wire::Chat).enqueue(says("Fine.").reply(Wire::Chat, Delivery::Stream));
    let asked = world.upstream(Wire::Chat).requests().len();
    socket.say(&hello()).await;
    world.upstream(Wire::Chat).wait_for_requests(asked + 1).await;
    assert_eq!(world.amalgam.client().get("/healthz").await.status, 200);
    assert_calm(&world.amalgam);
}
