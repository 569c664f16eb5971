//! The scripted upstream, seen through a plain client.

use std::time::Duration;

use amalgam_testkit::{Client, Gate, Reply, ReplyEnding, Upstream, sse};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn client(upstream: &Upstream) -> Client {
    Client::new(&upstream.url())
}

#[tokio::test]
async fn replies_are_played_in_order_and_an_empty_script_answers_500() {
    let upstream = Upstream::scripted([
        Reply::json(json!({"n": 1})),
        Reply::status(429).header("retry-after", "1").with_json(json!({"error": "slow down"})),
    ]);
    assert_eq!(upstream.replies_left(), 2);
    let client = client(&upstream).with_key("sk-1");

    let first = client.post_json("/v1/responses", &json!({"q": "ü"})).await;
    let second = client.get("/v1/else?a=b").await;
    let third = client.get("/v1/else").await;

    assert_eq!((first.status.as_u16(), first.json()), (200, json!({"n": 1})));
    assert_eq!((second.status.as_u16(), second.header("retry-after")), (429, Some("1")));
    assert_eq!((third.status.as_u16(), third.text().as_str()), (500, "script is empty"));
    assert_eq!(upstream.unscripted(), ["GET /v1/else"]);
    assert_eq!(upstream.requests().len(), 3);
    let request = upstream.request(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/responses"));
    assert_eq!(request.header("authorization"), Some("Bearer sk-1"));
    assert_eq!(request.json(), json!({"q": "ü"}));
    assert_eq!(upstream.request(1).path, "/v1/else?a=b");
    assert_eq!((upstream.replies_left(), upstream.connections(), upstream.malformed()), (0, 3, vec![]));
}

#[tokio::test]
async fn a_path_with_replies_of_its_own_leaves_the_queue_alone() {
    let upstream = Upstream::always(Reply::json(json!("always")));
    upstream.enqueue(Reply::json(json!("queued")));
    upstream.enqueue_for("/chat/completions", Reply::json(json!("own")));
    upstream.always_for("/echo", Reply::json(json!("echo")));
    let client = client(&upstream);

    assert_eq!(client.get("/v1/models").await.status, 500, "a model list never takes from the queue");
    assert_eq!(client.get("/v1/chat/completions?x").await.json(), "own");
    assert_eq!(client.get("/v1/chat/completions").await.status, 500);
    assert_eq!(client.get("/v1/echo").await.json(), "echo");
    assert_eq!(client.get("/v1/echo").await.json(), "echo");
    assert_eq!(client.get("/v1/other").await.json(), "queued");
    assert_eq!(client.get("/v1/other").await.json(), "always");
    assert_eq!(client.get("/v1/other").await.json(), "always");
}

#[tokio::test]
async fn two_requests_share_a_connection_that_is_kept_alive() {
    let upstream = Upstream::scripted([Reply::json(json!(1)).chunked(), Reply::json(json!(2)).until_close()]);
    let mut socket = client(&upstream).connect().await;
    let request = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    socket.write_all(request.repeat(2).as_bytes()).await.unwrap();

    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();

    assert_eq!(
        answer,
        "HTTP/1.1 200 Scripted\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n\
         HTTP/1.1 200 Scripted\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n2"
    );
    assert_eq!(upstream.connections(), 1);
    assert_eq!([&upstream.request(0).body[..], &upstream.request(1).body[..]], [b"abcde", b"abcde"]);
}

#[tokio::test]
async fn event_streams_carry_names_data_and_the_closing_done() {
    let upstream = Upstream::scripted([
        Reply::sse([("a", json!({"x": 1})), ("b", json!(2))]),
        Reply::sse_typed([json!({"type": "a", "x": 1})]).done(),
        Reply::sse_data([json!({"x": 1})]),
    ]);
    let client = client(&upstream);

    assert_eq!(client.get("/").await.text(), "event: a\ndata: {\"x\":1}\n\nevent: b\ndata: 2\n\n");
    assert_eq!(client.get("/").await.json_events(), [json!({"type": "a", "x": 1})]);
    assert_eq!(client.get("/").await.text(), "data: {\"x\":1}\n\ndata: [DONE]\n\n");
}

#[tokio::test]
async fn line_ends_are_crlf_or_missing_when_asked() {
    let upstream = Upstream::scripted([
        Reply::sse_data([json!(1)]).crlf(),
        Reply::sse_data([json!(1)]).without_final_newline(),
        Reply::stream().frame("a", "1\n2").comment("ping"),
    ]);
    let client = client(&upstream);

    assert_eq!(client.get("/").await.text(), "data: 1\r\n\r\ndata: [DONE]\r\n\r\n");
    assert_eq!(client.get("/").await.text(), "data: 1\n\ndata: [DONE]");
    assert_eq!(client.get("/").await.text(), "event: a\ndata: 1\ndata: 2\n\n: ping\n\n");
}

#[tokio::test]
async fn a_split_reply_arrives_in_pieces_of_that_size_also_inside_a_character() {
    let upstream = Upstream::scripted([Reply::sse_data([json!("ü")]).split(8)]);

    let chunks = client(&upstream).post_chunks("/", &json!({})).await;

    assert_eq!(chunks[0], &b"data: \"\xc3"[..]);
    assert!(chunks[..chunks.len() - 1].iter().all(|chunk| chunk.len() <= 8));
    assert_eq!(chunks.concat(), "data: \"ü\"\n\ndata: [DONE]\n\n".as_bytes());
    assert!(sse::check_writes(&chunks).is_err());
}

#[tokio::test]
async fn an_unsplit_frame_is_one_chunk() {
    let upstream = Upstream::scripted([Reply::sse_data([json!(1), json!(2)])]);
    let chunks = client(&upstream).post_chunks("/", &json!({})).await;
    assert_eq!(chunks, ["data: 1\n\n", "data: 2\n\n", "data: [DONE]\n\n"]);
    assert_eq!(sse::check_writes(&chunks), Ok(()));
}

#[tokio::test]
async fn a_gate_holds_the_script_until_it_is_opened() {
    let gate = Gate::new();
    let upstream = Upstream::scripted([Reply::sse_data([json!(1), json!(2)]).hold_after(1, &gate)]);

    let mut stream = client(&upstream).post_stream("/", &json!({})).await;
    assert_eq!(stream.next_event().await.unwrap().data, "1");
    let early = tokio::time::timeout(Duration::from_millis(50), stream.next_event()).await;
    assert!(early.is_err(), "the second frame came through a closed gate");
    gate.open();

    let rest: Vec<String> = stream.rest().await.into_iter().map(|event| event.data).collect();
    assert_eq!(rest, ["2", "[DONE]"]);
    assert_eq!(upstream.wait_for_end(0).await, ReplyEnding::Finished);
}

#[tokio::test]
async fn a_dropped_stream_is_seen_as_a_disconnect() {
    let upstream = Upstream::scripted([Reply::sse_data([json!(1), json!(2)]).hang_after(1)]);

    let mut stream = client(&upstream).post_stream("/", &json!({})).await;
    stream.next_event().await.unwrap();
    drop(stream);

    upstream.wait_for_disconnect(0).await;
    upstream.wait_for_idle().await;
}

#[tokio::test]
async fn a_peer_that_leaves_before_the_head_is_seen_as_a_disconnect() {
    let upstream = Upstream::scripted([Reply::json(json!(1)).after(Duration::from_secs(3600)), Reply::hang()]);
    for index in 0..2 {
        let mut socket = client(&upstream).connect().await;
        socket.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        upstream.wait_for_requests(index + 1).await;
        drop(socket);
        upstream.wait_for_disconnect(index).await;
    }
}

#[tokio::test]
#[should_panic(expected = "ended before the peer left")]
async fn a_finished_reply_is_no_disconnect() {
    let upstream = Upstream::scripted([Reply::json(json!(1))]);
    client(&upstream).get("/").await;
    upstream.wait_for_disconnect(0).await;
}

async fn raw_answer(upstream: &Upstream) -> Result<String, std::io::ErrorKind> {
    let mut socket = client(upstream).connect().await;
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("a fresh socket takes a request");
    let mut answer = Vec::new();
    let read = socket.read_to_end(&mut answer).await.map_err(|error| error.kind());
    read.map(|_| String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn cut_and_reset_replies_stop_in_the_middle() {
    let upstream = Upstream::scripted([
        Reply::sse_data([json!(1), json!(2)]).cut_after(1),
        Reply::json(json!("whole")).cut_after(0),
        Reply::close(),
        Reply::raw("SSH-2.0-OpenSSH\r\n"),
        Reply::reset(),
    ]);

    let head = "HTTP/1.1 200 Scripted\r\ncontent-type: ";
    let chunked = format!("{head}text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n");
    assert_eq!(raw_answer(&upstream).await, Ok(chunked));
    assert_eq!(raw_answer(&upstream).await, Ok(format!("{head}application/json\r\ncontent-length: 7\r\n\r\n")));
    assert_eq!(raw_answer(&upstream).await, Ok(String::new()));
    assert_eq!(raw_answer(&upstream).await, Ok("SSH-2.0-OpenSSH\r\n".to_owned()));
    assert_eq!(raw_answer(&upstream).await, Err(std::io::ErrorKind::ConnectionReset));
    assert_eq!(upstream.wait_for_end(0).await, ReplyEnding::Cut);
}

#[tokio::test]
async fn hostile_replies_have_the_size_and_shape_that_was_asked_for() {
    let upstream = Upstream::scripted([
        Reply::json(json!(1)).huge_header(100_000),
        Reply::huge_line(1_000_000),
        Reply::html(502, "Bad Gateway"),
        Reply::invalid_utf8(),
    ]);
    let client = client(&upstream);

    assert_eq!(client.get("/").await.header("x-padding").unwrap().len(), 100_000);
    assert_eq!(client.get("/").await.body.len(), 1_000_000);
    let page = client.get("/").await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (502, Some("text/html")));
    assert!(std::str::from_utf8(&client.get("/").await.body).is_err());
}

#[tokio::test]
async fn a_dropped_upstream_refuses_connections() {
    let upstream = Upstream::start();
    let address = upstream.address();
    drop(upstream);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert!(tokio::net::TcpStream::connect(Upstream::unused_address()).await.is_err());
}

#[test]
fn an_upstream_needs_no_runtime_of_the_test() {
    let upstream = Upstream::always(Reply::json(json!(1)));
    let mut socket = std::net::TcpStream::connect(upstream.address()).unwrap();
    std::io::Write::write_all(&mut socket, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut first = [0; 12];
    std::io::Read::read_exact(&mut socket, &mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
}
