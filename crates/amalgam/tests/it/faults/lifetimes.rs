//! Clients that leave, too many of them, fallbacks between upstreams, and the end of the process.

use std::time::{Duration, Instant};

use amalgam_testkit::{Amalgam, Client, Gate, Reply, Setup, Upstream, check};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::{ask, assert_healthy, fine, hello, told};
use crate::support::{
    BINARY, DELIVERIES, Delivery, SOON, WIRES, Wire, World, asking, assert_calm, checked_events, error_of,
    last_response, text_of,
};

/// A streamed text that waits at the gate before its first delta.
fn held(wire: Wire, gate: &Gate) -> Reply {
    fine().reply(wire, Delivery::Stream).hold_after(1, gate)
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_frees_the_upstream_at_once() {
    let world = World::start().await;
    for wire in WIRES {
        let gate = Gate::new();
        world.upstream(wire).enqueue(held(wire, &gate));
        let request = asking(wire, Delivery::Stream, &hello());
        let mut stream = world.amalgam.client().post_stream("/v1/responses", &request).await;
        stream.next_of_type("response.in_progress").await;
        let started = Instant::now();
        drop(stream);
        world.upstream(wire).wait_for_disconnect(0).await;
        assert!(started.elapsed() < SOON, "{wire:?}: {:?}", started.elapsed());
    }
    assert_healthy(&world.amalgam).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_its_whole_answer_frees_the_upstream_at_once() {
    let world = World::start().await;
    for wire in WIRES {
        // Before the head of the upstream's answer, and inside its body.
        for (index, reply) in
            [Reply::hang(), Reply::bytes("application/json", "{").chunked().hang_after(1)].into_iter().enumerate()
        {
            world.upstream(wire).enqueue(reply);
            let mut socket = world.amalgam.client().connect().await;
            socket.write_all(post(wire, Delivery::Whole).as_bytes()).await.unwrap();
            world.upstream(wire).wait_for_requests(index + 1).await;
            let started = Instant::now();
            drop(socket);
            world.upstream(wire).wait_for_disconnect(index).await;
            assert!(started.elapsed() < SOON, "{wire:?}: {:?}", started.elapsed());
        }
    }
    assert_healthy(&world.amalgam).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_makes_the_upstream_wait() {
    // P8: a slow reader costs what the send buffer lets through, and the allocator's first large pages, not the answer
    let world = World::start().await;
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {"content": "x".repeat(1000)}, "finish_reason": null}]});
    let piece = bytes::Bytes::from(format!("data: {chunk}\n\n").repeat(50));
    let reply = (0..2000).fold(Reply::stream(), |reply, _| reply.send(piece.clone()));
    // A small window: the server keeps the text of everything that it could send.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(32 * 1024).unwrap();
    let address = world.amalgam.url().trim_start_matches("http://").parse().unwrap();
    let mut socket = socket.connect(address).await.unwrap();
    world.streamed(Wire::Chat, &fine(), &hello()).await;
    let before = resident_kib(&world.amalgam);
    world.upstream(Wire::Chat).enqueue(reply);
    socket.write_all(post(Wire::Chat, Delivery::Stream).as_bytes()).await.unwrap();
    world.upstream(Wire::Chat).wait_for_requests(2).await;
    // Half a second is plenty for the hundred megabytes of the script, if they were read.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let grown = resident_kib(&world.amalgam).saturating_sub(before);
    assert!(grown < 24 * 1024, "{grown} KiB for one client that does not read");
    drop(socket);
    world.upstream(Wire::Chat).wait_for_disconnect(1).await;
}

/// A request by hand, for clients that behave oddly.
fn post(wire: Wire, delivery: Delivery) -> String {
    let body = asking(wire, delivery, &hello()).to_string();
    let head = "POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

fn resident_kib(amalgam: &Amalgam) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", amalgam.pid())).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux tells it");
    line.trim().trim_end_matches(" kB").trim().parse().expect("it is a number")
}

#[tokio::test]
async fn without_a_queue_the_server_refuses_at_once_and_stays_healthy() {
    // P7
    let world = World::with(Setup::new().extra("[limits]\nmax_in_flight = 1\nqueue_wait = \"0s\""), &[]).await;
    let client = world.amalgam.client();
    for wire in WIRES {
        let gate = Gate::new();
        world.upstream(wire).enqueue(held(wire, &gate));
        let request = asking(wire, Delivery::Stream, &hello());
        let mut first = client.post_stream("/v1/responses", &request).await;
        first.next_of_type("response.in_progress").await;

        for delivery in DELIVERIES {
            let started = Instant::now();
            let answer = ask(&world, wire, delivery).await;
            assert_eq!(told(&answer), (429, "server_is_overloaded".to_owned()), "{wire:?} {delivery:?}");
            let wait: u64 = answer.header("retry-after").expect("it says when").parse().unwrap();
            assert!((1..=60).contains(&wait), "{wait}");
            assert!(started.elapsed() < SOON);
        }
        for path in ["/healthz", "/readyz", "/v1/models"] {
            assert_eq!(client.get(path).await.status, 200, "{path} answers all the same");
        }
        assert_eq!(client.get("/readyz").await.json()["turns_in_flight"], 1);
        // A wrong request gets its error, whether there is room or not.
        assert_eq!(client.post_json("/v1/responses", &json!({"model": wire.model()})).await.status, 400);

        gate.open();
        let rest = first.rest().await;
        assert!(rest.last().is_some_and(amalgam_testkit::sse::SseEvent::is_done), "the admitted one is not disturbed");
        world.upstream(wire).enqueue(fine().reply(wire, Delivery::Whole));
        assert_eq!(ask(&world, wire, Delivery::Whole).await.status, 200, "the room is free again");
    }
    // A client that leaves gives its place back, too.
    let gate = Gate::new();
    let index = world.upstream(Wire::Chat).requests().len();
    world.upstream(Wire::Chat).enqueue(held(Wire::Chat, &gate));
    let mut leaving = client.post_stream("/v1/responses", &asking(Wire::Chat, Delivery::Stream, &hello())).await;
    leaving.next_of_type("response.in_progress").await;
    drop(leaving);
    world.upstream(Wire::Chat).wait_for_disconnect(index).await;
    world.upstream(Wire::Chat).enqueue(fine().reply(Wire::Chat, Delivery::Whole));
    assert_eq!(ask(&world, Wire::Chat, Delivery::Whole).await.status, 200);
}

fn two_models(first: &str, second: &str) -> Setup {
    Setup::new()
        .upstream("first", "chat", first)
        .option("models", "[\"m1\"]")
        .option("retries", "0")
        .option("first_byte_timeout", "\"300ms\"")
        .option("total_timeout", "\"300ms\"")
        .upstream("second", "anthropic", second)
        .option("models", "[\"m2\"]")
        .extra("[models.main]\nupstream = \"first\"\nmodel = \"m1\"\nfallback = [\"spare\"]\n\n[models.spare]\nupstream = \"second\"\nmodel = \"m2\"\n")
}

#[tokio::test]
async fn another_model_answers_when_the_first_is_down() {
    let first = Upstream::start();
    let second = Upstream::start();
    let amalgam = Amalgam::start(BINARY, two_models(&first.base_url(), &second.base_url())).await;
    let failures = [
        Reply::status(500),
        Reply::status(429).header("retry-after", "60"),
        Reply::status(503).header("retry-after", "60"),
        Reply::close(),
        Reply::hang(),
    ];
    for failure in failures {
        for delivery in DELIVERIES {
            first.enqueue(failure.clone());
            second.enqueue(fine().reply(Wire::Anthropic, delivery));
            let mut request = asking(Wire::Chat, delivery, &hello());
            request["model"] = json!("main");
            let answer = amalgam.client().post_json("/v1/responses", &request).await;
            assert_eq!(answer.status, 200, "{failure:?}: {}", answer.text());
            let response = match delivery {
                Delivery::Whole => answer.json(),
                Delivery::Stream => last_response(&checked_events(&answer)),
            };
            assert_eq!((text_of(&response).as_str(), &response["model"]), ("All is well.", &json!("main")));
            assert_eq!(second.requests().last().unwrap().json()["model"], "m2");
        }
    }
    // A request that is wrong is wrong everywhere.
    let asked = second.requests().len();
    first.enqueue(Reply::status(400).with_json(json!({"error": {"message": "no", "type": "invalid_request_error"}})));
    let answer = amalgam.client().post_json("/v1/responses", &json!({"model": "main", "input": "Hi"})).await;
    assert_eq!((answer.status.as_u16(), second.requests().len()), (400, asked));
    assert_calm(&amalgam);
}

#[tokio::test]
async fn when_no_upstream_can_answer_the_caller_gets_an_error() {
    let closed = format!("http://{}/v1", Upstream::unused_address());
    let amalgam = Amalgam::start(BINARY, two_models(&closed, &closed)).await;
    for delivery in DELIVERIES {
        let mut request = asking(Wire::Chat, delivery, &hello());
        request["model"] = json!("main");
        let answer = amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(told(&answer), (502, "upstream_unavailable".to_owned()));
    }
}

#[tokio::test]
async fn a_key_that_is_missing_concerns_its_own_upstream_alone() {
    let keyless = Upstream::start();
    let tables = format!(
        "[upstreams.keyless]\nkind = \"chat\"\nbase_url = \"{}\"\napi_key = \"env:NO_SUCH_KEY\"\nmodels = [\"locked\"]\n\n\
         [models.careful]\nupstream = \"keyless\"\nmodel = \"locked\"\nfallback = [\"m-chat\"]\n",
        keyless.base_url()
    );
    let world = World::with(Setup::new().extra(&tables), &[]).await;
    for stream in [false, true] {
        let request = json!({"model": "locked", "input": "Hi", "stream": stream});
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(told(&answer), (502, "upstream_credential".to_owned()));
        assert!(error_of(&answer)["message"].as_str().unwrap().contains("key"), "{}", answer.text());
    }
    assert_eq!(keyless.connections(), 0, "no upstream is asked without the key");
    world.upstream(Wire::Chat).enqueue(fine().reply(Wire::Chat, Delivery::Whole));
    assert_eq!(ask(&world, Wire::Chat, Delivery::Whole).await.status, 200, "the others work");
    world.upstream(Wire::Chat).enqueue(fine().reply(Wire::Chat, Delivery::Whole));
    let answer = world.amalgam.client().post_json("/v1/responses", &json!({"model": "careful", "input": "Hi"})).await;
    assert_eq!(answer.status, 200, "a fallback steps in: {}", answer.text());
    world.amalgam.wait_for_stderr("NO_SUCH_KEY").await;
}

/// Status, headers and body of the answer on a new connection.
async fn fresh(url: &str, request: &str) -> String {
    let mut socket = Client::new(url).connect().await;
    socket.write_all(request.as_bytes()).await.expect("the server takes the request");
    let mut answer = String::new();
    let read = tokio::time::timeout(SOON, socket.read_to_string(&mut answer)).await;
    read.expect("an answer comes").expect("it ends in order");
    answer
}

#[tokio::test]
async fn a_signal_lets_streams_end_and_turns_new_work_away() {
    // Fault table: SIGTERM
    for signal in ["TERM", "INT"] {
        let world = World::start().await;
        let gate = Gate::new();
        world.upstream(Wire::Chat).enqueue(held(Wire::Chat, &gate));
        let request = asking(Wire::Chat, Delivery::Stream, &hello());
        let mut stream = world.amalgam.client().post_stream("/v1/responses", &request).await;
        let mut events = vec![stream.next_of_type("response.created").await];

        world.amalgam.signal(signal);
        world.amalgam.wait_for_stderr("draining").await;
        let post = post(Wire::Chat, Delivery::Whole);
        for request in [post.as_str(), "GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n"] {
            let answer = fresh(world.amalgam.url(), request).await;
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(head.to_ascii_lowercase().contains("retry-after:"), "{head}");
            let envelope: Value = serde_json::from_str(body).unwrap();
            assert_eq!(check::error(&envelope), Vec::<String>::new());
            assert_eq!(envelope["error"]["code"], "server_is_shutting_down");
        }
        assert_eq!(world.upstream(Wire::Chat).requests().len(), 1, "no new work");

        gate.open();
        let rest = stream.rest().await;
        assert!(rest.last().is_some_and(amalgam_testkit::sse::SseEvent::is_done));
        events.extend(rest.iter().filter(|event| !event.is_done()).map(amalgam_testkit::sse::SseEvent::json));
        assert_eq!(check::stream(&events), Vec::<String>::new());
        assert_eq!(text_of(&last_response(&events)), "All is well.");
        let exit = world.amalgam.wait().await;
        assert_eq!(exit.status.code(), Some(0), "{}", exit.stderr);
    }
}

#[tokio::test]
async fn a_turn_that_outlasts_the_drain_is_told_as_failed() {
    // P5, fault table: SIGTERM
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let world = World::with(Setup::new().extra("[server]\ndrain_timeout = \"600ms\""), &[]).await;
        let gate = Gate::new();
        world.upstream(Wire::Chat).enqueue(held(Wire::Chat, &gate));
        let mut socket = world.amalgam.client().connect().await;
        socket.write_all(post(Wire::Chat, delivery).as_bytes()).await.unwrap();
        world.upstream(Wire::Chat).wait_for_requests(1).await;
        let started = Instant::now();
        let exit = world.amalgam.terminate().await;
        assert_eq!(exit.status.code(), Some(0), "{}", exit.stderr);
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(!answer.contains("response.completed"), "{answer}");
        assert!(answer.contains("server_is_shutting_down"), "{answer}");
        match delivery {
            Delivery::Stream => {
                assert!(answer.contains("event: response.failed") && answer.contains("[DONE]"), "{answer}")
            }
            Delivery::Whole => assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}"),
        }
    }
}

#[tokio::test]
async fn an_idle_server_ends_at_once() {
    let world = World::start().await;
    let started = Instant::now();
    let exit = world.amalgam.terminate().await;
    assert_eq!(exit.status.code(), Some(0));
    assert!(started.elapsed() < SOON);
    let told: Vec<&str> = exit.stdout.lines().filter_map(|line| line.rsplit_once(' ')).map(|(what, _)| what).collect();
    assert_eq!(
        told,
        ["admin key written to", "amalgam listening on"],
        "for scripts, and nothing else: {}",
        exit.stdout
    );
}
