//! The way out, against servers on loopback that the configuration allows, or does not.
//!
//! No test here names a public address: should a guard fail, the test fails, and nothing leaves the machine.

use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderValue, Method};
use amalgam_core::{Fault, FaultKind, Fetch, FetchedFile};
use amalgam_testkit::{Reply, Upstream};
use amalgam_tools::{Egress, EgressConfig, EgressError, EgressLimits};
use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::calls::{Script, config};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand so on";

/// A client that may reach exactly this server.
fn allowed(upstream: &Upstream) -> Egress {
    Egress::new(config(&[upstream.address().to_string()]))
}

async fn fetch(egress: &Egress, url: &str) -> Result<FetchedFile, Fault> {
    egress.fetch(url, 1000).await
}

fn refused_as(result: Result<FetchedFile, Fault>) -> (FaultKind, String) {
    let fault = result.unwrap_err();
    (fault.kind, fault.into_parts().code.unwrap().into_owned())
}

#[tokio::test]
async fn an_allowed_private_target_is_fetched_and_its_kind_told_by_its_bytes() {
    let upstream = Upstream::always(Reply::bytes("text/plain", PNG));
    let fetched = fetch(&allowed(&upstream), &format!("{}/a.png?b=c", upstream.url())).await.unwrap();
    assert_eq!(fetched, FetchedFile { media_type: "image/png".into(), bytes: PNG.into() });

    let request = upstream.request(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/a.png?b=c"));
    assert_eq!(request.header("host"), Some(upstream.address().to_string().as_str()));
    assert_eq!(request.header("accept-encoding"), Some("identity"));
}

// S17, P11: the canary
#[tokio::test]
async fn nothing_on_loopback_is_connected_to_without_permission() {
    let canary = Upstream::always(Reply::bytes("image/png", PNG));
    let port = canary.address().port();
    let resolver = Script::new(&[&["127.0.0.1"], &["::ffff:127.0.0.1"], &["127.0.0.1", "::1"]]);
    let system = Egress::new(EgressConfig::default());
    let scripted = Egress::with_resolver(EgressConfig::default(), resolver.clone());
    for scheme in ["http", "https"] {
        for host in [
            "127.0.0.1",
            "localhost",
            "LOCALHOST.",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "0",
            "0.0.0.0",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "[64:ff9b::127.0.0.1]",
            "127.0.0.1.",
            "user@127.0.0.1",
        ] {
            let url = format!("{scheme}://{host}:{port}/");
            assert_eq!(refused_as(fetch(&system, &url).await), (FaultKind::Invalid, "invalid_url".into()), "{url}");
        }
    }
    for _ in 0..3 {
        let url = format!("https://rebind.example:{port}/");
        assert_eq!(refused_as(fetch(&scripted, &url).await), (FaultKind::Invalid, "invalid_url".into()));
    }
    assert_eq!(resolver.asked().len(), 3);
    assert_eq!(canary.connections(), 0);
}

// S17
#[tokio::test]
async fn a_name_is_resolved_once_and_the_connection_goes_to_what_was_checked() {
    let upstream = Upstream::always(Reply::bytes("image/png", PNG));
    // The first answer is allowed; a second look-up would be given an address that is not.
    let resolver = Script::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let egress = Egress::with_resolver(config(&[upstream.address().to_string()]), resolver.clone());
    let url = format!("http://Rebind.Example:{}/", upstream.address().port());
    fetch(&egress, &url).await.unwrap();

    assert_eq!(resolver.asked(), ["rebind.example"]);
    assert_eq!(
        upstream.request(0).header("host"),
        Some(format!("rebind.example:{}", upstream.address().port()).as_str())
    );
    // And the next request asks, and checks, again.
    assert_eq!(refused_as(fetch(&egress, &url).await).1, "invalid_url");
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_name_on_the_list_may_resolve_to_a_private_address() {
    let upstream = Upstream::always(Reply::bytes("image/png", PNG));
    let port = upstream.address().port();
    let resolver = Script::new(&[&["127.0.0.1"], &["127.0.0.1"]]);
    let egress = Egress::with_resolver(config(&[format!("files.internal:{port}")]), resolver);
    fetch(&egress, &format!("http://files.internal:{port}/")).await.unwrap();
    assert_eq!(refused_as(fetch(&egress, &format!("http://other.internal:{port}/")).await).1, "invalid_url");
}

#[tokio::test]
async fn the_next_address_is_tried_when_the_first_refuses() {
    let upstream = Upstream::always(Reply::bytes("image/png", PNG));
    let resolver = Script::new(&[&["127.0.0.9", "127.0.0.1"]]);
    let egress = Egress::with_resolver(config(&["127.0.0.0/8".into()]), resolver);
    fetch(&egress, &format!("http://two.internal:{}/", upstream.address().port())).await.unwrap();
}

#[tokio::test]
async fn the_caller_cannot_tell_an_unknown_name_from_a_private_one() {
    let egress = Egress::with_resolver(EgressConfig::default(), Script::new(&[&["127.0.0.1"]]));
    let private = fetch(&egress, "https://db.internal/").await.unwrap_err();
    let unknown = fetch(&egress, "https://db.internal/").await.unwrap_err();
    assert_ne!(private.detail, unknown.detail);
    assert_eq!((private.kind, &private.code, &private.message), (unknown.kind, &unknown.code, &unknown.message));
}

// S17
#[tokio::test]
async fn a_redirect_is_a_fault_and_its_target_is_never_asked() {
    let canary = Upstream::always(Reply::bytes("image/png", PNG));
    for status in [301, 302, 303, 307, 308] {
        let upstream = Upstream::always(Reply::status(status).header("location", canary.url()));
        // Even where the target itself would be allowed.
        let egress = Egress::new(config(&["127.0.0.1".into()]));
        assert_eq!(refused_as(fetch(&egress, &upstream.url()).await).1, "url_unreachable");
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn an_answer_without_content_is_a_fault_that_names_the_status() {
    let upstream = Upstream::always(Reply::status(404));
    let fault = fetch(&allowed(&upstream), &upstream.url()).await.unwrap_err();
    assert!(fault.message.contains("404"), "{fault}");
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_given_up_whether_it_says_so_or_not() {
    let large = vec![b'x'; 1001];
    let stated = Upstream::always(Reply::bytes("text/plain", large.clone()));
    let chunked = Upstream::always(Reply::bytes("text/plain", large).chunked());
    let endless = Upstream::always(Reply::bytes("text/plain", vec![b'x'; 5_000_000]).until_close());
    for upstream in [&stated, &chunked, &endless] {
        let result = fetch(&allowed(upstream), &upstream.url()).await;
        assert_eq!(refused_as(result), (FaultKind::Invalid, "url_content_too_large".into()));
    }
    let exact = Upstream::always(Reply::bytes("text/plain", vec![b'x'; 1000]).chunked());
    assert_eq!(fetch(&allowed(&exact), &exact.url()).await.unwrap().bytes.len(), 1000);
}

#[tokio::test]
async fn silence_ends_at_the_time_limit() {
    let silent = Upstream::always(Reply::hang());
    let stalling = Upstream::always(Reply::bytes("text/plain", "half").chunked().hang_after(1));
    for upstream in [&silent, &stalling] {
        let address = upstream.address().to_string().parse().unwrap();
        let egress = Egress::new(EgressConfig { allow_private: vec![address], timeout: Duration::from_millis(300) });
        let started = Instant::now();
        let fault = fetch(&egress, &upstream.url()).await.unwrap_err();
        assert!(fault.message.contains("no complete answer"), "{fault}");
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        upstream.wait_for_disconnect(0).await;
    }
}

#[tokio::test]
async fn broken_answers_are_faults() {
    let replies = [
        Reply::raw("not http at all\r\n\r\n"),
        Reply::close(),
        Reply::reset(),
        Reply::bytes("text/plain", "x").huge_header(600_000),
        Reply::bytes("text/plain", "half of it").header("content-encoding", "gzip"),
    ];
    for reply in replies {
        let upstream = Upstream::always(reply);
        assert_eq!(refused_as(fetch(&allowed(&upstream), &upstream.url()).await).1, "url_unreachable");
    }
    let nobody = Upstream::unused_address();
    let egress = Egress::new(config(&[nobody.to_string()]));
    assert_eq!(refused_as(fetch(&egress, &format!("http://{nobody}/")).await).1, "url_unreachable");
}

#[tokio::test]
async fn a_request_carries_method_headers_and_body_but_not_the_headers_of_the_connection() {
    let upstream = Upstream::always(Reply::status(418).header("x-answer", "yes"));
    let mut headers = HeaderMap::new();
    headers.insert("x-own", HeaderValue::from_static("1"));
    headers.insert("host", HeaderValue::from_static("evil.example"));
    headers.insert("transfer-encoding", HeaderValue::from_static("chunked"));
    headers.insert("proxy-authorization", HeaderValue::from_static("secret"));
    let limits = EgressLimits { bytes: 1000, timeout: Duration::from_secs(5) };
    let body = Bytes::from_static(b"{}");
    let response = allowed(&upstream).request(Method::POST, &upstream.url(), headers, body, limits).await.unwrap();

    assert_eq!((response.status().as_u16(), &response.headers()["x-answer"]), (418, &HeaderValue::from_static("yes")));
    let request = upstream.request(0);
    assert_eq!((request.method.as_str(), &request.body[..]), ("POST", &b"{}"[..]));
    assert_eq!(request.header("x-own"), Some("1"));
    assert_eq!(request.header("host"), Some(upstream.address().to_string().as_str()));
    assert_eq!((request.header("transfer-encoding"), request.header("proxy-authorization")), (None, None));
}

#[tokio::test]
async fn tls_asks_for_the_name_although_the_address_was_chosen_here_and_refuses_what_is_not_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let egress = Egress::with_resolver(config(&[format!("files.internal:{port}")]), Script::new(&[&["127.0.0.1"]]));
    let url = format!("https://files.internal:{port}/");
    let limits = EgressLimits { bytes: 1000, timeout: Duration::from_secs(5) };
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = vec![0; 4096];
        let read = stream.read(&mut hello).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        hello.truncate(read);
        hello
    };
    let (hello, result) =
        tokio::join!(serving, egress.request(Method::GET, &url, HeaderMap::new(), Bytes::new(), limits));
    assert!(hello.windows(14).any(|window| window == b"files.internal"), "the name is not in the greeting");
    let error = result.unwrap_err();
    assert!(matches!(error, EgressError::Unreachable { .. }), "{error:?}");
}
