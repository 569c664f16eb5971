//! What a client can do to the listener, and what it gets for it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use amalgam_server::{BodyLimits, DrainReport, ListenerConfig, Peer, RequestMemory, read_body, serve};
use axum::{
    Extension, Router,
    body::Body,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, Semaphore, oneshot},
    task::JoinSet,
    time::{Instant, timeout},
};

/// Long enough that only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Short times, so that a test that waits for one is quick.
fn quick() -> ListenerConfig {
    ListenerConfig {
        header_timeout: Duration::from_millis(300),
        write_timeout: Duration::from_millis(300),
        drain_timeout: Duration::from_secs(10),
        ..ListenerConfig::default()
    }
}

/// Times that no test reaches.
fn patient() -> ListenerConfig {
    ListenerConfig { header_timeout: PATIENCE * 2, write_timeout: PATIENCE * 2, ..quick() }
}

struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinSet<DrainReport>,
    /// One permit lets one piece of `/stream` go.
    pieces: Arc<Semaphore>,
    /// Notified when a response body of `/stream` or `/endless` was dropped.
    dropped: Arc<Notify>,
}

impl Server {
    async fn start(config: ListenerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let pieces = Arc::new(Semaphore::new(0));
        let dropped = Arc::new(Notify::new());
        let router = router(&pieces, &dropped);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, router, config, async {
            let _ = stopped.await;
        }));
        Self { address, stop: Some(stop), serving, pieces, dropped }
    }

    async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    async fn report(mut self) -> DrainReport {
        timeout(PATIENCE, self.serving.join_next()).await.unwrap().unwrap().unwrap()
    }
}

struct TellOnDrop(Arc<Notify>);

impl Drop for TellOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn router(pieces: &Arc<Semaphore>, dropped: &Arc<Notify>) -> Router {
    let (pieces, streams, endless) = (Arc::clone(pieces), Arc::clone(dropped), Arc::clone(dropped));
    Router::new()
        .route("/", get(|| async { "here" }))
        .route("/peer", get(|Extension(peer): Extension<Peer>| async move { peer.address.ip().to_string() }))
        .route("/panic", get(|| async { panic!("on purpose") as StatusCode }))
        .route(
            "/echo",
            post(|body: Body| async {
                let limits = BodyLimits { bytes: 100_000, text_bytes: 100_000, pause: Duration::from_millis(300) };
                match read_body(body, limits, &RequestMemory::new(1 << 20)).await {
                    Ok(bytes) => bytes.into_response(),
                    Err(fault) => (StatusCode::IM_A_TEAPOT, format!("{:?}", fault.kind)).into_response(),
                }
            }),
        )
        .route(
            "/stream",
            get(move || async move {
                let guard = TellOnDrop(streams);
                let body = stream::iter(0..3).then(move |number| {
                    let (pieces, _guard) = (Arc::clone(&pieces), &guard);
                    async move {
                        pieces.acquire().await.unwrap().forget();
                        Ok::<_, std::convert::Infallible>(Bytes::from(format!("piece {number}\n")))
                    }
                });
                Response::new(Body::from_stream(body))
            }),
        )
        .route(
            "/endless",
            get(move || async move {
                let guard = TellOnDrop(endless);
                let body = stream::repeat(Bytes::from_static(&[b'x'; 16 * 1024])).map(move |piece| {
                    let _guard = &guard;
                    Ok::<_, std::convert::Infallible>(piece)
                });
                Response::new(Body::from_stream(body))
            }),
        )
}

struct Client(TcpStream);

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Everything until the server hangs up, which has to be an orderly end.
    async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        timeout(PATIENCE, self.0.read_to_end(&mut bytes)).await.expect("the server does not let go").unwrap();
        String::from_utf8(bytes).unwrap()
    }

    async fn read_until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            let byte = timeout(PATIENCE, self.0.read_u8()).await.expect("nothing more came").unwrap();
            bytes.push(byte);
        }
        String::from_utf8(bytes).unwrap()
    }
}

/// Status and error code of an answer that has to be an error object.
fn error_of(answer: &str) -> (u16, String) {
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    assert!(head.contains("content-type: application/json"), "{answer}");
    let json: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    assert!(json["error"]["message"].is_string() && json["error"]["type"].is_string(), "{json}");
    (status, json["error"]["code"].as_str().unwrap().to_owned())
}

// P8
#[tokio::test]
async fn a_silent_connection_is_let_go_without_a_word() {
    let server = Server::start(quick()).await;
    assert_eq!(server.connect().await.rest().await, "");
}

// P8
#[tokio::test]
async fn a_connection_that_falls_silent_after_a_request_is_let_go() {
    let server = Server::start(quick()).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nhere"), "{answer}");
}

// P8, P9
#[tokio::test]
async fn a_half_sent_head_is_answered_408_and_let_go() {
    let server = Server::start(quick()).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: half").await;
    assert_eq!(error_of(&client.rest().await), (408, "request_timeout".into()));
}

// P8
#[tokio::test]
async fn a_head_that_drips_is_let_go_like_one_that_stops() {
    let server = Server::start(quick()).await;
    let (mut read, mut write) = server.connect().await.0.into_split();
    let dripping = async {
        // Ends with an error once the server has closed; the reader below decides.
        while write.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut answer = String::new();
    tokio::select! {
        read = timeout(PATIENCE, read.read_to_string(&mut answer)) => { read.expect("held").unwrap(); }
        () = dripping => {}
    }
    assert_eq!(error_of(&answer).0, 408);
}

// P8
#[tokio::test]
async fn a_half_sent_body_is_a_request_timeout_and_let_go() {
    let server = Server::start(patient()).await;
    let mut client = server.connect().await;
    client.send("POST /echo HTTP/1.1\r\ncontent-length: 100\r\n\r\nhalf").await;
    let answer = client.rest().await;
    assert!(answer.ends_with("RequestTimeout"), "{answer}");
}

// P8
#[tokio::test]
async fn a_client_that_does_not_read_is_let_go_and_its_response_dropped() {
    let server = Server::start(quick()).await;
    let mut client = server.connect().await;
    client.send("GET /endless HTTP/1.1\r\n\r\n").await;
    timeout(PATIENCE, server.dropped.notified()).await.expect("the response is still held");
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_response() {
    let server = Server::start(patient()).await;
    let mut client = server.connect().await;
    client.send("GET /stream HTTP/1.1\r\n\r\n").await;
    client.read_until("\r\n\r\n").await;
    drop(client);
    timeout(PATIENCE, server.dropped.notified()).await.expect("the response is still held");
}

#[tokio::test]
async fn a_slow_but_steady_client_is_served_to_the_end() {
    let server = Server::start(patient()).await;
    let mut client = server.connect().await;
    let request = "POST /echo HTTP/1.1\r\nconnection: close\r\ncontent-length: 20\r\n\r\n01234567890123456789";
    for piece in request.as_bytes().chunks(7) {
        client.send(piece).await;
        client.0.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answer = client.rest().await;
    assert!(answer.ends_with("\r\n\r\n01234567890123456789"), "{answer}");
}

#[tokio::test]
async fn requests_reuse_a_connection_one_by_one_and_pipelined() {
    let server = Server::start(patient()).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.read_until("here").await;
    client
        .send("GET / HTTP/1.1\r\n\r\nGET /peer HTTP/1.1\r\n\r\nGET /none HTTP/1.1\r\nconnection: close\r\n\r\n")
        .await;
    let answers = client.rest().await;
    let order: Vec<_> = ["here", "127.0.0.1", "HTTP/1.1 404"].map(|part| answers.find(part).unwrap()).into();
    assert!(order.is_sorted(), "{answers}");
}

#[tokio::test]
async fn an_old_client_without_a_host_is_served() {
    let server = Server::start(patient()).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with("here"), "{answer}");
}

// P9
#[tokio::test]
async fn what_is_not_http_is_answered_with_an_error_object() {
    let server = Server::start(patient()).await;
    let cases: [(&[u8], (u16, &str)); 7] = [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", (400, "malformed_request")),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, "malformed_request")),
        (b"GET / HTTP/3.7\r\n\r\n", (400, "malformed_request")),
        (b"G\xffT / HTTP/1.1\r\n\r\n", (400, "malformed_request")),
        (b"GET / HTTP/1.1\r\nno colon here\r\n\r\n", (400, "malformed_request")),
        (b"POST /echo HTTP/1.1\r\ncontent-length: many\r\n\r\n", (400, "malformed_request")),
        (b"GET / HTTP/1.1\r\nx: \x00\r\n\r\n", (400, "malformed_request")),
    ];
    for (bytes, (status, code)) in cases {
        let mut client = server.connect().await;
        client.send(bytes).await;
        assert_eq!(error_of(&client.rest().await), (status, code.into()), "{}", String::from_utf8_lossy(bytes));
    }
}

// P9
#[tokio::test]
async fn garbage_after_a_good_request_is_told_apart_from_its_answer() {
    let server = Server::start(patient()).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    client.read_until("here").await;
    client.send("garbage\r\n\r\n").await;
    assert_eq!(error_of(&client.rest().await), (400, "malformed_request".into()));
}

#[tokio::test]
async fn a_head_cut_off_by_its_sender_is_answered_400() {
    let server = Server::start(patient()).await;
    let mut client = server.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: ha").await;
    client.0.shutdown().await.unwrap();
    assert_eq!(error_of(&client.rest().await), (400, "malformed_request".into()));
}

/// Sends all of it like a client that reads only afterwards, and returns what came back.
async fn send_then_read(server: &Server, head: &str, more: usize) -> String {
    let mut client = server.connect().await;
    client.send(head).await;
    let sent = timeout(PATIENCE, client.0.write_all(&vec![b'x'; more])).await.expect("the server does not read on");
    sent.expect("many clients that cannot send never look at the answer");
    client.rest().await
}

// P9
#[tokio::test]
async fn a_huge_header_is_answered_431_also_to_a_client_that_sends_all_of_it_first() {
    let server = Server::start(patient()).await;
    let answer = send_then_read(&server, "GET / HTTP/1.1\r\nx-huge: ", 6_000_000).await;
    assert_eq!(error_of(&answer), (431, "headers_too_large".into()));
}

#[tokio::test]
async fn more_headers_than_taken_are_answered_431() {
    let server = Server::start(patient()).await;
    let mut client = server.connect().await;
    client.send(format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(101))).await;
    assert_eq!(error_of(&client.rest().await), (431, "headers_too_large".into()));
}

#[tokio::test]
async fn a_refused_body_may_be_sent_to_its_end_before_the_answer_is_read() {
    let server = Server::start(patient()).await;
    let head = "POST /echo HTTP/1.1\r\ncontent-length: 6000000\r\n\r\n";
    let answer = send_then_read(&server, head, 6_000_000).await;
    assert!(answer.ends_with("TooLarge"), "{answer}");
}

#[tokio::test]
async fn a_panic_takes_its_own_connection_and_nothing_else() {
    let server = Server::start(patient()).await;
    let mut other = server.connect().await;
    other.send("GET / HTTP/1.1\r\n").await;
    let mut client = server.connect().await;
    client.send("GET /panic HTTP/1.1\r\n\r\n").await;
    assert_eq!(client.rest().await, "");
    other.send("connection: close\r\n\r\n").await;
    assert!(other.rest().await.ends_with("here"));
}

// P7
#[tokio::test]
async fn a_connection_beyond_the_cap_is_answered_503_and_the_next_one_fits_again() {
    let server = Server::start(ListenerConfig { max_connections: 2, ..patient() }).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.send("GET /stream HTTP/1.1\r\n\r\n").await;
        client.read_until("\r\n\r\n").await;
        held.push(client);
    }

    let mut third = server.connect().await;
    third.send("GET / HTTP/1.1\r\n\r\n").await;
    let answer = third.rest().await;
    assert_eq!(error_of(&answer), (503, "server_is_overloaded".into()));
    assert!(answer.contains("retry-after: 1"), "{answer}");

    drop(held);
    let started = Instant::now();
    loop {
        let mut client = server.connect().await;
        client.send("GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await;
        if client.rest().await.ends_with("here") {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "the slots were not given back");
    }
}

#[tokio::test]
async fn draining_finishes_a_running_stream_ends_idle_connections_and_refuses_new_ones() {
    let mut server = Server::start(patient()).await;
    let mut idle = server.connect().await;
    idle.send("GET / HTTP/1.1\r\n\r\n").await;
    idle.read_until("here").await;
    let mut streaming = server.connect().await;
    streaming.send("GET /stream HTTP/1.1\r\n\r\n").await;
    server.pieces.add_permits(1);
    streaming.read_until("piece 0\n\r\n").await;

    server.stop();
    assert_eq!(idle.rest().await, "");
    let mut late = server.connect().await;
    assert_eq!(error_of(&late.rest().await), (503, "server_is_shutting_down".into()));
    server.pieces.add_permits(2);
    let rest = streaming.rest().await;
    assert!(rest.contains("piece 1\n") && rest.contains("piece 2\n") && rest.ends_with("0\r\n\r\n"), "{rest}");

    let report = server.report().await;
    assert_eq!((report.finished, report.dropped), (2, 0));
}

#[tokio::test]
async fn a_stream_that_outlasts_the_drain_is_cut() {
    let mut server = Server::start(ListenerConfig { drain_timeout: Duration::from_millis(200), ..patient() }).await;
    let mut streaming = server.connect().await;
    streaming.send("GET /stream HTTP/1.1\r\n\r\n").await;
    streaming.read_until("\r\n\r\n").await;

    server.stop();
    let dropped = Arc::clone(&server.dropped);
    let report = server.report().await;
    assert_eq!((report.finished, report.dropped), (0, 1));
    assert!(report.took >= Duration::from_millis(200) && report.took < PATIENCE, "{report:?}");
    timeout(PATIENCE, dropped.notified()).await.expect("the response is still held");
    // The chunked body is not ended: the client can tell that it was cut.
    assert!(!streaming.rest().await.ends_with("0\r\n\r\n"));
}

#[tokio::test]
async fn draining_without_connections_ends_at_once() {
    let mut server = Server::start(patient()).await;
    server.stop();
    let report = server.report().await;
    assert_eq!((report.finished, report.dropped), (0, 0));
    assert!(report.took < Duration::from_secs(5), "{report:?}");
}
