//! `amalgam doctor`: the port, the machine, proxies and certificates.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use amalgam_testkit::{Amalgam, Certificates, Front, Setup, Upstream};
use serde_json::Value;

use crate::support::{BINARY, Cli, stores};

/// What `doctor` finds out: status, detail and hint of a check.
fn finding(cli: &Cli, arguments: &[&str], check: &str) -> (String, String, String) {
    let output = cli.run(&[&["doctor", "--json"], arguments].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = report["checks"].as_array().unwrap().iter().find(|one| one["check"] == check);
    let found = found.unwrap_or_else(|| panic!("{check} is not in {report}"));
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("detail"), text("hint"))
}

#[tokio::test]
async fn doctor_says_who_has_the_port() {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path());
    let amalgam = Amalgam::start(BINARY, Setup::new()).await;
    let address = amalgam.url().trim_start_matches("http://");
    let check = format!("port {}", address.rsplit_once(':').unwrap().1);
    let (status, detail, hint) = finding(&cli, &["--listen", address], &check);
    assert!(status == "warn" && detail.contains("another amalgam"), "{status}: {detail}");
    assert!(hint.contains("--listen"), "{hint}");

    let other = Upstream::start();
    let address = other.address().to_string();
    let check = format!("port {}", other.address().port());
    let (status, detail, _) = finding(&cli, &["--listen", &address], &check);
    assert!(status == "fail" && detail.contains("another program"), "{status}: {detail}");
}

#[test]
fn doctor_looks_at_the_address_of_metrics_and_at_the_servers_own_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let other = Upstream::start();
    let (first, second) = (Certificates::for_names("IP:127.0.0.1"), Certificates::for_names("IP:127.0.0.1"));
    let write = |certificate: &std::path::Path, key: &std::path::Path| {
        let toml = format!(
            "[metrics]\nlisten = \"{}\"\n[server.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n",
            other.address()
        );
        std::fs::write(folder.path().join("amalgam.toml"), toml).unwrap();
    };
    let (cli, listen) = (Cli::within(folder.path()), ["--listen", "127.0.0.1:0"]);
    const TLS: &str = "certificate of [server.tls]";
    write(&first.certificate(), &first.key());
    let check = format!("port {}", other.address().port());
    let (status, detail, _) = finding(&cli, &listen, &check);
    assert!(status == "fail" && detail.contains("another program"), "{status}: {detail}");
    // Those of tests are valid for two days.
    let (status, detail, hint) = finding(&cli, &listen, TLS);
    assert!(status == "warn" && detail.contains("valid until 20") && hint.contains("renew"), "{status}: {detail}");
    write(&first.certificate(), &second.key());
    let (status, detail, _) = finding(&cli, &listen, TLS);
    assert!(status == "fail" && detail.contains("does not belong to the certificate"), "{status}: {detail}");
    write(&folder.path().join("none.crt"), &first.key());
    let (status, detail, _) = finding(&cli, &listen, TLS);
    assert!(status == "fail" && detail.contains("none.crt"), "{status}: {detail}");
}

#[tokio::test]
async fn doctor_checks_the_clock_open_files_and_disk_space() {
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new())).await;
        let cli = Cli::beside(&amalgam, &store);
        let (status, detail, _) = finding(&cli, &[], "clock");
        assert_eq!(status, "ok", "{}: {detail}", store.name);
        assert_eq!(detail.contains("PostgreSQL's clock"), store.name == "postgres", "{detail}");
        let (_, detail, _) = finding(&cli, &[], "disk space");
        assert!(detail.contains("MiB are free at"), "{detail}");
        let (_, detail, _) = finding(&cli, &[], "open files");
        assert!(!detail.is_empty());
    }
}

#[test]
fn doctor_warns_of_a_database_from_the_future() {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path());
    cli.text(&["migrate"]);
    let later = std::time::UNIX_EPOCH + std::time::Duration::from_secs(4_000_000_000);
    std::fs::File::open(folder.path().join("data/amalgam.db")).unwrap().set_modified(later).unwrap();
    let (status, detail, hint) = finding(&cli, &["--listen", "127.0.0.1:0"], "clock");
    assert!(status == "warn" && detail.contains("written later"), "{status}: {detail}");
    assert!(hint.contains("synchronise"), "{hint}");
}

#[test]
fn doctor_says_which_upstreams_are_reached_through_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start();
    let toml = format!("[upstreams.near]\nkind = \"chat\"\nbase_url = \"{}\"\n", upstream.base_url());
    std::fs::write(folder.path().join("amalgam.toml"), toml).unwrap();
    let listen = ["--listen", "127.0.0.1:0"];
    let (status, detail, _) = finding(&Cli::within(folder.path()), &listen, "proxies");
    assert!(status == "ok" && detail.contains("not set"), "{detail}");
    let proxy = format!("http://user:hush@{}", upstream.address());
    let through = || Cli::within(folder.path()).env("HTTP_PROXY", &proxy);
    let (status, detail, hint) = finding(&through(), &listen, "proxies");
    assert!(status == "warn" && detail.contains("through a proxy: near"), "{status}: {detail}");
    assert!(hint.contains("NO_PROXY") && !detail.contains("hush"), "{hint} {detail}");
    let (status, detail, _) = finding(&through().env("NO_PROXY", "127.0.0.1"), &listen, "proxies");
    assert!(status == "ok" && detail.contains("directly: near"), "{status}: {detail}");
}

#[test]
fn doctor_says_when_the_certificate_of_an_upstream_expires() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::for_names("IP:127.0.0.1");
    let upstream = Upstream::start();
    let front = Front::before(upstream.address(), &certificates);
    let toml = format!("[upstreams.far]\nkind = \"chat\"\nbase_url = \"{}\"\n", front.base_url());
    std::fs::write(folder.path().join("amalgam.toml"), toml).unwrap();
    let cli = Cli::within(folder.path()).env("SSL_CERT_FILE", certificates.authority().to_str().unwrap());
    // Those of tests are valid for two days.
    let (status, detail, hint) = finding(&cli, &["--listen", "127.0.0.1:0"], "certificate of far");
    assert!(status == "warn" && detail.contains("valid until 20"), "{status}: {detail}");
    assert!(hint.contains("renewed"), "{hint}");
}
