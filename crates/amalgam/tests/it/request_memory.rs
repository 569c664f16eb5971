//! What requests may hold in memory, all together and each by itself, and how slowly they may come.

use std::time::Duration;

use amalgam_testkit::{Amalgam, Client, RawConnection, Setup, Upstream};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::support::{BINARY, error_of, eventually};

/// Generous: the machine may have other things to do.
const PATIENCE: Duration = Duration::from_secs(90);

/// Every route that takes a body of this size, with the part of a JSON object that may contain its text.
const DOORS: [&str; 8] = [
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/v1/conversations",
    "/v1/conversations/conv_1/items",
    "/api/v2/ai-agent/respond/",
    "/api/agent/execute",
    "/api/agent/sessions",
];

/// The beginning of a request whose body has this declared length.
async fn begin(client: &Client, path: &str, kind: &str, length: usize) -> RawConnection {
    let mut socket = client.connect().await;
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.expect("the server takes a head");
    socket
}

/// Sends as much of `bytes` as the server takes.
async fn send(socket: &mut RawConnection, bytes: &[u8]) {
    // A server that has refused the rest may have closed its side.
    let _ = timeout(PATIENCE, socket.write_all(bytes)).await.expect("the server reads, or hangs up");
}

/// The head of an answer that came before the request was whole.
async fn early_answer(socket: &mut RawConnection) -> String {
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !answer.windows(4).any(|window| window == b"\r\n\r\n") {
        match timeout(PATIENCE, socket.read(&mut piece)).await.expect("the server answers") {
            Ok(0) | Err(_) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Bytes of memory that the server uses.
fn resident(amalgam: &Amalgam) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", amalgam.pid())).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the system tells it");
    line.trim().trim_end_matches("kB").trim().parse::<usize>().expect("a number") * 1024
}

/// A WebSocket that has begun a message: frames that are not the last one, with these bytes in all.
async fn begin_message(client: &Client, bytes: &[u8]) -> RawConnection {
    let mut socket = client.connect().await;
    let handshake = "GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                     sec-websocket-extensions: permessage-deflate\r\n\r\n";
    socket.write_all(handshake.as_bytes()).await.expect("the server takes a handshake");
    let answer = early_answer(&mut socket).await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    assert!(!answer.to_ascii_lowercase().contains("permessage-deflate"), "compression is declined: {answer}");
    // Text, not the last frame, masked with zeros.
    let mut head = vec![0x01, 0xff];
    head.extend_from_slice(&(bytes.len() as u64 + 1000).to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    send(&mut socket, &head).await;
    send(&mut socket, bytes).await;
    socket
}

// right E2
#[tokio::test]
async fn text_is_bounded_while_it_arrives_on_every_door() {
    let amalgam = Amalgam::start(BINARY, Setup::new().extra("[limits]\nbody_bytes = \"64KiB\"")).await;
    let client = amalgam.client();
    let words = "many words ".repeat(40_000);
    for path in DOORS {
        // Most of it is never sent: the answer cannot wait for it.
        let mut socket = begin(&client, path, "application/json", 30 << 20).await;
        send(&mut socket, format!("{{\"input\": \"{words}").as_bytes()).await;
        let answer = early_answer(&mut socket).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{path}: {answer}");
    }
    let mut socket = begin_message(&client, format!("{{\"input\": \"{words}").as_bytes()).await;
    let mut told = Vec::new();
    let read = timeout(PATIENCE, socket.read_to_end(&mut told)).await.expect("the server ends the socket");
    assert!(read.is_ok() && String::from_utf8_lossy(&told).contains("413"), "{}", String::from_utf8_lossy(&told));
    // An image may be larger than text.
    let image = format!("data:image/png;base64,{}", "A".repeat(200 << 10));
    let content = json!([{"type": "input_image", "image_url": image}]);
    let request = json!({"model": "demo", "input": [{"role": "user", "content": content}]});
    let answer = client.post_json("/v1/responses", &request).await;
    assert_ne!(answer.status, 413, "{}", answer.text());
}

// right E2
#[tokio::test]
async fn beyond_the_budget_callers_get_503_and_what_is_given_back_is_there_again() {
    let limits = "[limits]\nrequest_bytes_total = \"4MiB\"\n[server]\nbody_timeout = \"60s\"";
    let amalgam = Amalgam::start(BINARY, Setup::new().extra(limits)).await;
    let client = amalgam.client();
    let half = format!("{{\"input\": \"{}", "word ".repeat(300_000));
    let plain = json!({"model": "demo", "input": "x".repeat(300_000)});
    let form = format!("--b\r\ncontent-disposition: form-data; name=file; filename=a\r\n\r\n{half}");
    // Bodies of several doors, an upload and a message, none of them whole.
    let mut held = Vec::new();
    let mut refused = String::new();
    for (path, kind, bytes) in [
        ("/v1/responses", "application/json", &half),
        ("/api/agent/execute", "application/json", &half),
        ("/v1/files", "multipart/form-data; boundary=b", &form),
        ("/v1/responses", "application/json", &half),
        ("/v1/files", "multipart/form-data; boundary=b", &form),
    ] {
        let mut socket = begin(&client, path, kind, 2_000_000).await;
        send(&mut socket, bytes.as_bytes()).await;
        // Whether there was room is known once the server has either answered or taken everything.
        let mut first = [0; 1];
        match timeout(Duration::from_secs(3), socket.peek(&mut first)).await {
            Ok(_) => refused = early_answer(&mut socket).await,
            Err(_) => held.push(socket),
        }
    }
    assert!((1..5).contains(&held.len()), "{} fit into four MiB", held.len());
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.to_ascii_lowercase().contains("\r\nretry-after: "), "{refused}");
    let message = begin_message(&client, half.as_bytes()).await;
    let mut told = Vec::new();
    let mut message = message;
    timeout(PATIENCE, message.read_to_end(&mut told)).await.expect("the server ends the socket").expect("in order");
    assert!(String::from_utf8_lossy(&told).contains("\"status\":503"), "{}", String::from_utf8_lossy(&told));
    // A small request still fits; a larger one fits once the others have ended.
    assert_eq!(client.post_json("/v1/responses", &json!({"model": "demo", "input": "Hi"})).await.status, 200);
    drop(held);
    eventually("room for a request", PATIENCE, async || {
        let answer = client.post_json("/v1/responses", &plain).await;
        if answer.status == 503 {
            assert_eq!(error_of(&answer)["code"], "server_is_overloaded");
            return None;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        Some(())
    })
    .await;
}

// right E2
#[tokio::test]
async fn unfinished_messages_and_slow_posts_grow_the_process_by_no_more_than_the_budget() {
    const BUDGET: usize = 32 << 20;
    // What connections and the allocator need besides: buffers of up to 128 KiB for each of 90 connections.
    const BESIDES: usize = 64 << 20;
    let setup = Setup::new().extra("[limits]\nrequest_bytes_total = \"32MiB\"\n[server]\nbody_timeout = \"60s\"");
    let amalgam = Amalgam::start(BINARY, setup).await;
    let client = amalgam.client();
    assert_eq!(client.post_json("/v1/responses", &json!({"model": "demo", "input": "Hi"})).await.status, 200);
    let before = resident(&amalgam);
    // It could be an image, so that it may be large.
    let image = format!("{{\"input\": \"data:image/png;base64,{}", "A".repeat(4 << 20));
    let (mut sockets, mut most) = (Vec::new(), before);
    for number in 0..90 {
        let socket = match number < 60 {
            true => begin_message(&client, image.as_bytes()).await,
            false => {
                let mut socket = begin(&client, "/v1/responses", "application/json", 34 << 20).await;
                send(&mut socket, image.as_bytes()).await;
                socket
            }
        };
        sockets.push(socket);
        most = most.max(resident(&amalgam));
    }
    let grown = most - before;
    assert!(grown < BUDGET + BESIDES, "{} MiB for {} MiB that were sent", grown >> 20, (90 * image.len()) >> 20);
    assert!(grown > BUDGET / 4, "the messages were held at all: {} MiB", grown >> 20);
}

// right E2
#[tokio::test]
async fn a_body_that_comes_too_slowly_is_let_go_whatever_came_early() {
    let amalgam = Amalgam::start(BINARY, Setup::new().extra("[server]\nbody_timeout = \"2s\"")).await;
    let mut socket = begin(&amalgam.client(), "/v1/responses", "application/json", 30 << 20).await;
    send(&mut socket, format!("{{\"input\": \"data:image/png;base64,{}", "A".repeat(4 << 20)).as_bytes()).await;
    // At the required average rate, the early four MiB would have been enough for an hour.
    let drip = async {
        loop {
            if socket.write_all(b"AAAAAAAA").await.is_err() {
                break;
            }
            let mut answer = [0; 4096];
            if let Ok(Ok(read)) = timeout(Duration::from_millis(200), socket.read(&mut answer)).await {
                return String::from_utf8_lossy(&answer[..read]).into_owned();
            }
        }
        String::new()
    };
    let answer = timeout(PATIENCE, drip).await.expect("the server lets it go");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

// right B5
#[tokio::test]
async fn the_first_token_count_takes_little_memory() {
    let setup = Setup::new().upstream("away", "chat", &format!("http://{}/v1", Upstream::unused_address()));
    let amalgam = Amalgam::start(BINARY, setup).await;
    let client = Client::new(amalgam.url());
    let text = "Counting tokens, hitung token, トークン: 12 345. ".repeat(2_000);
    let before = resident(&amalgam);
    let request = json!({"model": "away/m", "input": text});
    let answer = client.post_json("/v1/responses/input_tokens", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.json()["input_tokens"].as_u64().is_some_and(|tokens| tokens > 10_000), "{}", answer.text());
    let grown = resident(&amalgam).saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes more");
}
