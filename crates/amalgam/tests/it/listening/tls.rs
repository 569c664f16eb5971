//! `[server.tls]`: HTTPS on the listeners, certificates that are replaced while connections are open, and errors at the start.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the test does")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use amalgam_testkit::{Amalgam, Certificates, Client, SecureConnection, Setup, TlsVersion};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::support::{BINARY, Cli, stores};

/// How long a test waits for the server to see changed files.
const PATIENCE: Duration = Duration::from_secs(60);

fn here() -> Certificates {
    Certificates::for_names("IP:127.0.0.1")
}

/// Copies a pair to where the server looks for it. Each file is replaced at once, as tools for certificates do.
fn install(certificates: &Certificates, folder: &Path) {
    replace(&certificates.certificate(), &folder.join("server.crt"));
    replace(&certificates.key(), &folder.join("server.key"));
}

fn replace(from: &Path, to: &Path) {
    let temporary = to.with_extension("new");
    std::fs::copy(from, &temporary).unwrap();
    std::fs::rename(temporary, to).unwrap();
}

fn setup(folder: &Path) -> Setup {
    let file = |name: &str| format!("{}/{name}", folder.display());
    let (certificate, key) = (file("server.crt"), file("server.key"));
    Setup::new().extra(&format!("[server.tls]\ncertificate = {certificate:?}\nkey = {key:?}"))
}

fn address(amalgam: &Amalgam) -> SocketAddr {
    amalgam.url().strip_prefix("https://").expect("the server listens with TLS").parse().unwrap()
}

#[tokio::test]
async fn requests_are_served_over_tls_1_2_and_1_3_as_http_1_1_and_not_without_tls() {
    for store in stores() {
        let (certificates, folder) = (here(), tempfile::tempdir().unwrap());
        install(&certificates, folder.path());
        let amalgam = Amalgam::start(BINARY, store.setup(setup(folder.path()))).await;
        for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
            let mut connection = SecureConnection::open(address(&amalgam), &certificates, version).await.unwrap();
            assert_eq!(connection.protocol().as_deref(), Some(&b"http/1.1"[..]), "{version:?}");
            assert_eq!(connection.get("/readyz").await.0, 200, "{version:?}");
            let (status, models) = connection.get("/v1/models").await;
            assert!(status == 200 && models.contains("\"demo\""), "{version:?} {models}");
        }
        let plain = Client::new(&amalgam.url().replace("https:", "http:"));
        let refused = plain.try_request(http::Method::GET, "/healthz", &[], bytes::Bytes::new()).await;
        assert!(refused.is_err(), "{refused:?}");
        let exit = amalgam.terminate().await;
        assert_eq!(exit.status.code(), Some(0));
        assert!(
            exit.stderr.contains("the certificate of [server.tls] expires on"),
            "two days are few: {}",
            exit.stderr
        );
    }
}

#[tokio::test]
async fn a_streamed_turn_over_tls_arrives_whole() {
    let (certificates, folder) = (here(), tempfile::tempdir().unwrap());
    install(&certificates, folder.path());
    let amalgam = Amalgam::start(BINARY, setup(folder.path())).await;
    let output = std::process::Command::new("curl")
        .args(["--silent", "--show-error", "--no-buffer", "--noproxy", "*", "--cacert"])
        .arg(certificates.authority())
        .args(["-H", "content-type: application/json", "-d", r#"{"model":"demo","input":"hello","stream":true}"#])
        .arg(format!("{}/v1/responses", amalgam.url()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("event: response.completed") && text.ends_with("data: [DONE]\n\n"), "{output:?}");
}

#[tokio::test]
async fn a_new_certificate_is_used_for_new_connections_and_open_ones_stay() {
    for by_signal in [false, true] {
        let (first, second, folder) = (here(), here(), tempfile::tempdir().unwrap());
        install(&first, folder.path());
        let amalgam = Amalgam::start(BINARY, setup(folder.path())).await;
        let mut open = SecureConnection::open(address(&amalgam), &first, TlsVersion::V1_3).await.unwrap();
        assert_eq!(open.get("/healthz").await.0, 200);

        install(&second, folder.path());
        if by_signal {
            amalgam.signal("HUP");
        }
        amalgam.wait_for_stderr("the certificate has changed; new connections use it").await;
        let new = SecureConnection::open(address(&amalgam), &second, TlsVersion::V1_3).await.unwrap();
        assert_ne!(new.certificate(), open.certificate());
        assert_eq!(open.get("/healthz").await.0, 200, "the open connection goes on");
    }
}

#[tokio::test]
async fn a_broken_pair_leaves_the_old_certificate_in_force_with_one_warning_until_it_is_repaired() {
    let (first, second, folder) = (here(), here(), tempfile::tempdir().unwrap());
    install(&first, folder.path());
    let amalgam = Amalgam::start(BINARY, setup(folder.path())).await;
    // The certificate of one pair with the key of the other.
    replace(&second.certificate(), &folder.path().join("server.crt"));
    let warning = "the new certificate cannot be used, the old one stays in force";
    let log = amalgam.wait_for_stderr(warning).await;
    assert!(log.contains("does not belong to the certificate"), "{log}");
    amalgam.signal("HUP");
    let mut old = SecureConnection::open(address(&amalgam), &first, TlsVersion::V1_3).await.unwrap();
    assert_eq!(old.get("/healthz").await.0, 200);

    replace(&second.key(), &folder.path().join("server.key"));
    let log = amalgam.wait_for_stderr("the certificate has changed").await;
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    assert!(SecureConnection::open(address(&amalgam), &second, TlsVersion::V1_3).await.is_ok());
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_handshake_is_disconnected() {
    let (certificates, folder) = (here(), tempfile::tempdir().unwrap());
    install(&certificates, folder.path());
    let amalgam = Amalgam::start(BINARY, setup(folder.path()).extra("[server]\nheader_timeout = \"2s\"")).await;
    let mut silent = TcpStream::connect(address(&amalgam)).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, silent.read(&mut [0; 16])).await;
    assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    let mut secure = SecureConnection::open(address(&amalgam), &certificates, TlsVersion::V1_3).await.unwrap();
    let (_, metrics) = secure.get("/metrics").await;
    let value = |series: &str| -> Option<f64> {
        metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    };
    assert_eq!(value(r#"amalgam_connections_refused_total{reason="tls"}"#), Some(1.0), "{metrics}");
    // The certificates of tests are valid for two days.
    assert!(value("amalgam_certificate_expiry_seconds") > Some(1_767_225_600.0), "{metrics}");
}

#[tokio::test]
async fn health_checks_are_answered_beyond_the_connection_limit_and_other_requests_refused() {
    let (certificates, folder) = (here(), tempfile::tempdir().unwrap());
    install(&certificates, folder.path());
    let file = |name: &str| format!("{}/{name}", folder.path().display());
    let setup = Setup::new().extra(&format!(
        "[upstreams.demo]\nkind = \"demo\"\npace = \"1m\"\n[server]\nmax_connections = 1\n[server.tls]\ncertificate = {:?}\nkey = {:?}",
        file("server.crt"),
        file("server.key")
    ));
    let amalgam = Amalgam::start(BINARY, setup).await;
    let open = || SecureConnection::open(address(&amalgam), &certificates, TlsVersion::V1_3);
    // The demo pauses for a minute between two words.
    let body = r#"{"model":"demo","input":"hello","stream":true}"#;
    let mut busy = open().await.unwrap();
    let streaming = busy.begin_post("/v1/responses", body).await;
    assert!(streaming.starts_with("HTTP/1.1 200"), "{streaming}");
    assert_eq!(open().await.unwrap().get("/healthz").await.0, 200);
    assert_eq!(open().await.unwrap().get("/v1/models").await.0, 503);
}

#[tokio::test]
async fn the_administration_has_tls_where_it_has_a_listener_of_its_own() {
    let (certificates, folder) = (here(), tempfile::tempdir().unwrap());
    install(&certificates, folder.path());
    let setup = setup(folder.path())
        .extra("[server]\nadmin_listen = \"127.0.0.1:0\"")
        .tenant_key("am_key-of-the-tenant")
        .listen("0.0.0.0:0");
    let amalgam = Amalgam::start(BINARY, setup).await;
    let line =
        amalgam.stdout().lines().find_map(|line| line.strip_prefix("amalgam administration on ").map(str::to_owned));
    let admin = line.expect("the address of the administration is printed");
    let admin: SocketAddr = admin.strip_prefix("https://").expect("it has TLS").parse().unwrap();
    let mut connection = SecureConnection::open(admin, &certificates, TlsVersion::V1_3).await.unwrap();
    assert_eq!(connection.get("/admin/keys").await.0, 401);
}

#[tokio::test]
async fn wrong_files_are_errors_at_the_start_and_an_expired_certificate_a_warning() {
    let (one, other) = (here(), here());
    let text = |certificate: &Path, key: &Path| format!("[server.tls]\ncertificate = {certificate:?}\nkey = {key:?}");
    let missing = Path::new("/nowhere/server.crt");
    for (toml, expected) in [
        (text(missing, &one.key()), "cannot read /nowhere/server.crt"),
        (text(&one.key(), &one.key()), "does not contain a certificate in PEM"),
        (text(&one.certificate(), &one.certificate()), "does not contain a private key in PEM"),
        (text(&one.certificate(), &other.key()), "does not belong to the certificate in"),
        (
            format!("[server.tls]\nkey = {:?}", one.key()),
            "[server.tls] has a 'key' and no 'certificate'; it needs both",
        ),
    ] {
        let exit = Amalgam::try_start(BINARY, Setup::new().extra(&toml)).await.unwrap_err();
        assert!(!exit.status.success() && exit.stderr.contains(expected), "{toml}: {}", exit.stderr);
    }
    let expired = Certificates::expired("IP:127.0.0.1");
    let amalgam = Amalgam::start(BINARY, Setup::new().extra(&text(&expired.certificate(), &expired.key()))).await;
    amalgam.wait_for_stderr("the certificate of [server.tls] has expired on").await;
}

#[test]
fn variables_and_paths_beside_the_file_name_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("amalgam.toml"), "[server.tls]\ncertificate = \"a.crt\"\nunknown = 1").unwrap();
    let cli = Cli::within(folder.path()).env("AMALGAM_SERVER_TLS_KEY", "a.key");
    let told = cli.failure(&["check"]);
    assert!(told.contains("unknown key 'unknown' in [server.tls]") && !told.contains("needs both"), "{told}");
}
