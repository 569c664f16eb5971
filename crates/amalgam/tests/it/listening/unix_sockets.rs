//! `listen = "unix:PATH"`: who may connect, what callers may do, and what happens to the file.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use amalgam_testkit::{Amalgam, Setup};

use crate::support::{BINARY, Cli, stores};

fn socket(folder: &Path) -> (PathBuf, String) {
    let path = folder.join("amalgam.sock");
    let address = format!("unix:{}", path.display());
    (path, address)
}

/// Status and body of a request over the socket, with a real client.
fn curl(socket: &Path, path: &str, arguments: &[&str]) -> (u16, String) {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60", "--write-out", "\n%{http_code}"])
        .arg("--unix-socket")
        .arg(socket)
        .args(arguments)
        .arg(format!("http://localhost{path}"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) =
        text.rsplit_once('\n').unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (status.parse().unwrap(), body.to_owned())
}

const JSON: [&str; 2] = ["-H", "content-type: application/json"];

#[tokio::test]
async fn callers_on_a_unix_socket_are_local_callers() {
    for store in stores() {
        let folder = tempfile::tempdir().unwrap();
        let (path, address) = socket(folder.path());
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().listen(&address))).await;
        assert_eq!(amalgam.url(), address);
        let file = std::fs::symlink_metadata(&path).unwrap();
        assert!(file.file_type().is_socket() && file.permissions().mode() & 0o777 == 0o660, "{file:?}");

        let body = r#"{"model":"demo","input":"hello"}"#;
        let (status, answer) = curl(&path, "/v1/responses", &[JSON[0], JSON[1], "-d", body]);
        assert!(status == 200 && answer.contains("\"completed\""), "{}: {answer}", store.name);
        // As on a loopback address: the administration is here and needs a key, and names of other machines are refused.
        assert_eq!(curl(&path, "/admin/tenants", &[]).0, 401);
        let key = format!("authorization: Bearer {}", amalgam.first_key());
        assert_eq!(curl(&path, "/admin/tenants", &["-H", &key]).0, 200);
        assert_eq!(curl(&path, "/v1/models", &["-H", "host: gateway.example.com"]).0, 403);

        let exit = amalgam.terminate().await;
        assert_eq!(exit.status.code(), Some(0), "{}", exit.stderr);
        assert!(!path.exists(), "the server removes its socket file");
    }
}

#[tokio::test]
async fn a_configured_key_is_needed_on_a_unix_socket_too() {
    let folder = tempfile::tempdir().unwrap();
    let (path, address) = socket(folder.path());
    let _amalgam = Amalgam::start(BINARY, Setup::new().tenant_key("am_key-of-the-tenant").listen(&address)).await;
    assert_eq!(curl(&path, "/v1/models", &[]).0, 401);
    assert_eq!(curl(&path, "/v1/models", &["-H", "authorization: Bearer am_key-of-the-tenant"]).0, 200);
}

#[tokio::test]
async fn forwarded_addresses_are_believed_on_a_unix_socket_only_if_127_0_0_1_is_a_trusted_proxy() {
    for (trusted, expected) in [("", 429), ("[server]\ntrusted_proxies = [\"127.0.0.0/8\"]", 401)] {
        let folder = tempfile::tempdir().unwrap();
        let (path, address) = socket(folder.path());
        let setup = Setup::new().tenant_key("am_key-of-the-tenant").extra(trusted).listen(&address);
        let _amalgam = Amalgam::start(BINARY, setup).await;
        let guess = |number: usize, from: &str| {
            let (key, from) = (format!("authorization: Bearer am_{number}"), format!("x-forwarded-for: {from}"));
            curl(&path, "/v1/models", &["-H", &key, "-H", &from]).0
        };
        let last = (0..200).map(|number| guess(number, "198.51.100.1")).find(|status| *status == 429);
        assert_eq!(last, Some(429), "one address has tried too many keys");
        assert_eq!(guess(1000, "198.51.100.2"), expected, "{trusted}");
    }
}

#[tokio::test]
async fn a_stale_socket_file_is_replaced_and_that_of_a_running_server_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (path, address) = socket(folder.path());
    let mut killed = Amalgam::start(BINARY, Setup::new().listen(&address)).await;
    killed.kill();
    assert!(path.exists(), "a killed server removes nothing");

    let running = Amalgam::start(BINARY, Setup::new().listen(&address)).await;
    assert_eq!(curl(&path, "/healthz", &[]).0, 200);
    let exit = Amalgam::try_start(BINARY, Setup::new().listen(&address)).await.unwrap_err();
    assert!(exit.stderr.contains("another server listens on it"), "{}", exit.stderr);
    assert_eq!(curl(&path, "/healthz", &[]).0, 200, "the first server goes on");
    running.terminate().await;

    std::fs::write(&path, "not a socket").unwrap();
    let exit = Amalgam::try_start(BINARY, Setup::new().listen(&address)).await.unwrap_err();
    assert!(exit.stderr.contains("exists and is not a socket"), "{}", exit.stderr);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "not a socket");
}

#[test]
fn the_doctor_says_whether_the_socket_can_be_created() {
    let folder = tempfile::tempdir().unwrap();
    for (address, expected) in [("unix:amalgam.sock", "ok"), ("unix:/nowhere/amalgam.sock", "fail")] {
        let output = Cli::within(folder.path()).env("AMALGAM_LISTEN", address).run(&["doctor", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let finding = checks.iter().find(|check| check["check"].as_str().unwrap().starts_with("socket ")).unwrap();
        assert_eq!(finding["status"], expected, "{report}");
    }
}
