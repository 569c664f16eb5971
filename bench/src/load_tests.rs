//! The three roles together, in one process: clients, pass-through, mock.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::http::uri::Authority;
use tokio::net::TcpListener;

use super::*;
use crate::answers::{self, TOKENS};
use crate::mock::{self, Mock};
use crate::{raw, serve};

async fn free_port() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A mock behind a pass-through.
async fn proxied_mock() -> SocketAddr {
    let (mock_listener, mock_address) = free_port().await;
    let mock = Arc::new(Mock::new());
    tokio::spawn(serve::accept(mock_listener, move |request| mock::answer(Arc::clone(&mock), request)));
    let (raw_listener, raw_address) = free_port().await;
    let upstream: Authority = mock_address.to_string().parse().unwrap();
    let client = raw::client();
    tokio::spawn(serve::accept(raw_listener, move |request| raw::pass_on(client.clone(), upstream.clone(), request)));
    raw_address
}

/// A server that gives the same answer to every request.
async fn server_that_says(status: u16, body: &'static [u8]) -> SocketAddr {
    let (listener, address) = free_port().await;
    tokio::spawn(serve::accept(listener, move |_| async move {
        Response::builder().status(status).body(Full::new(Bytes::from_static(body))).unwrap()
    }));
    address
}

#[tokio::test]
async fn closed_loop_reads_whole_answers_through_the_pass_through() {
    let address = proxied_mock().await;
    for (scenario, deltas) in [(Scenario::Plain, 0), (Scenario::Large, 0), (Scenario::Burst, TOKENS as u64)] {
        let job = Job::new(address, "", scenario);
        let mut clients = Clients::open(&job, 4).await.unwrap();

        let tally = clients.closed_loop(&job, Until::Requests(3), Duration::ZERO).await.checked().unwrap();

        assert_eq!((tally.requests, tally.deltas), (12, 12 * deltas), "{scenario:?}");
        assert_eq!(tally.latencies_ms.len(), 12);
    }
}

#[tokio::test]
async fn paced_stream_takes_the_time_of_its_tokens() {
    let job = Job::new(proxied_mock().await, "", Scenario::Paced);
    let mut clients = Clients::open(&job, 2).await.unwrap();

    let tally = clients.closed_loop(&job, Until::Requests(1), Duration::from_millis(20)).await.checked().unwrap();

    assert_eq!(tally.deltas, 2 * TOKENS as u64);
    // 100 tokens at 50 a second have 99 gaps of 20 ms; a busy machine only makes it longer.
    assert!(tally.latencies_ms.iter().all(|took| *took >= 1980.0), "{:?}", tally.latencies_ms);
    assert!(tally.first_deltas_ms.iter().zip(&tally.latencies_ms).all(|(first, whole)| first < whole));
}

#[tokio::test]
async fn open_loop_sends_as_many_requests_as_the_rate_says() {
    let job = Job::new(proxied_mock().await, "", Scenario::Plain);

    let tally = open_loop(&job, 100, Duration::from_millis(300), Vec::new()).await.checked().unwrap();

    assert_eq!(tally.requests, 30);
}

#[tokio::test]
async fn refusals_empty_answers_and_cut_streams_are_errors() {
    let refused = Job::new(server_that_says(429, b"later").await, "", Scenario::Plain);
    let empty = Job::new(server_that_says(200, b"").await, "", Scenario::Plain);
    let script = answers::response_script();
    let first_frame: &'static [u8] = script.frame(0).unwrap().to_vec().leak();
    let cut = Job::new(server_that_says(200, first_frame).await, "", Scenario::Burst);

    for (job, complaint) in [(refused, "answered 429"), (empty, "is empty"), (cut, "0 of 100 deltas")] {
        let mut clients = Clients::open(&job, 1).await.unwrap();
        let tally = clients.closed_loop(&job, Until::Requests(1), Duration::ZERO).await;

        assert_eq!((tally.requests, tally.errors), (0, 1));
        let error = tally.checked().err().unwrap().to_string();
        assert!(error.contains(complaint), "{error}");
    }
}
