//! `amalgam health`: what it reports, and with which code it exits.

#![expect(clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;

use amalgam_testkit::{Amalgam, Certificates, Front, Reply, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, stores};

/// The exit code of `amalgam health --json`, and what it prints.
fn health(cli: &Cli, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = cli.run(&[&["health", "--json"], arguments].concat());
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

#[tokio::test]
async fn a_server_that_accepts_work_is_healthy_on_either_store() {
    for store in stores() {
        // A key, because health needs none.
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key("am_one"))).await;
        let cli = Cli::beside(&amalgam, &store);
        let (code, report) = health(&cli, &["--url", amalgam.url()]);
        let expected = json!({
            "healthy": true, "status": "ready", "url": amalgam.url(),
            "turns_in_flight": 0, "turns_waiting": 0, "error": null,
        });
        assert_eq!((code, report), (Some(0), expected), "{}", store.name);
        let text = cli.text(&["health", "--url", amalgam.url()]);
        assert_eq!(text, format!("ready: {} (0 turns running, 0 waiting)\n", amalgam.url()));
    }
}

#[tokio::test]
async fn the_server_is_found_by_the_configuration_alone() {
    let amalgam = Amalgam::start(BINARY, Setup::new()).await;
    let address = amalgam.url().strip_prefix("http://").unwrap();
    let folder = tempfile::tempdir().unwrap();
    // As the server's environment, its file or a flag says it.
    let by_environment = Cli::within(folder.path()).env("AMALGAM_LISTEN", address);
    assert_eq!(health(&by_environment, &[]).0, Some(0));
    assert_eq!(health(&Cli::within(folder.path()), &["--listen", address]).0, Some(0));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "health creates nothing");
    let everywhere = address.replace("127.0.0.1", "0.0.0.0");
    std::fs::write(
        folder.path().join("amalgam.toml"),
        format!("[server]\nlisten = \"{everywhere}\"\n[tenants.one]\nid = 1\nkeys = [\"am_one-0123456789\"]\n"),
    )
    .unwrap();
    let (code, report) = health(&Cli::within(folder.path()), &[]);
    assert_eq!((code, &report["url"]), (Some(0), &json!(amalgam.url())));
}

#[tokio::test]
async fn a_server_that_accepts_no_work_is_unhealthy_with_its_own_reason() {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path());
    for reason in ["draining", "store_unavailable"] {
        let server = Upstream::start();
        server.enqueue(Reply::json(json!({"status": reason})).with_status(503));
        let (code, report) = health(&cli, &["--url", &server.url()]);
        assert_eq!((code, &report["status"], &report["healthy"]), (Some(1), &json!(reason), &json!(false)));
        assert_eq!(server.requests()[0].path, "/readyz");
    }
}

#[tokio::test]
async fn what_is_not_a_server_is_unreachable_and_never_another_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path());
    let closed = format!("http://{}", Upstream::unused_address());
    let other = Upstream::start();
    other.enqueue(Reply::json(json!({"hello": "there"})));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let cases: [(&[&str], &str); 6] = [
        (&["--url", &closed], "connecting to"),
        (&["--url", &other.url()], "not one of an Amalgam server"),
        (&["--url", &silent, "--timeout", "300ms"], "no answer within 300ms"),
        (&["--url", "nonsense"], "not an address"),
        (&["--listen", "127.0.0.1:0"], "--url"),
        (&["--config", "/no/such/file.toml"], "/no/such/file.toml"),
    ];
    for (arguments, why) in cases {
        let (code, report) = health(&cli, arguments);
        assert_eq!((code, &report["status"]), (Some(1), &json!("unreachable")), "{arguments:?}: {report}");
        assert!(report["error"].as_str().unwrap().contains(why), "{arguments:?}: {report}");
    }
}

#[tokio::test]
async fn a_server_behind_tls_is_asked_if_its_certificate_is_trusted() {
    let amalgam = Amalgam::start(BINARY, Setup::new()).await;
    let [certificates, others] = [(); 2].map(|()| Certificates::for_names("DNS:localhost"));
    let behind = amalgam.url().strip_prefix("http://").unwrap().parse().unwrap();
    let front = Front::before(behind, &certificates);
    let folder = tempfile::tempdir().unwrap();
    let trusting = |authority: &Certificates| {
        Cli::within(folder.path()).env("SSL_CERT_FILE", authority.authority().to_str().unwrap())
    };
    let url = format!("https://localhost:{}", front.address().port());
    assert_eq!(health(&trusting(&certificates), &["--url", &url]).0, Some(0));
    let (code, report) = health(&trusting(&others), &["--url", &url]);
    assert_eq!((code, &report["status"]), (Some(1), &json!("unreachable")), "{report}");
    // By its own certificate, the server is known under any name and without an authority.
    let url = format!("https://{}", front.address());
    for (shown, expected) in [(&certificates, 0), (&others, 1)] {
        let file = shown.certificate();
        let arguments = ["--url", &url, "--certificate", file.to_str().unwrap()];
        assert_eq!(health(&trusting(&others), &arguments).0, Some(expected));
    }
}

#[test]
fn a_server_on_a_unix_socket_is_asked_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("amalgam.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        let body = r#"{"status":"ready","turns_in_flight":3,"turns_waiting":1}"#;
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        String::from_utf8(request).unwrap()
    });
    let url = format!("unix:{}", path.display());
    let text = Cli::within(folder.path()).text(&["health", "--url", &url]);
    assert_eq!(text, format!("ready: {url} (3 turns running, 1 waiting)\n"));
    assert!(server.join().unwrap().starts_with("GET /readyz HTTP/1.1\r\n"));
}
