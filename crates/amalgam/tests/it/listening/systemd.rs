//! The protocol with systemd: the listening sockets that it passes, and messages about the state of the service.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the test does")]

use std::net::TcpListener;
use std::time::Duration;

use amalgam_testkit::{Amalgam, Client, Setup};
use tempfile::TempDir;
use tokio::net::UnixDatagram;

use crate::support::BINARY;

/// How long a test waits for a message.
const PATIENCE: Duration = Duration::from_secs(60);

/// The socket on which systemd receives messages.
struct Manager {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { socket: UnixDatagram::bind(folder.path().join("notify")).unwrap(), folder }
    }

    fn setup(&self) -> Setup {
        Setup::new().env("NOTIFY_SOCKET", &self.folder.path().join("notify").display().to_string())
    }

    /// The next message, without those of the watchdog.
    async fn next(&self) -> String {
        loop {
            let message = self.message().await;
            if message != "WATCHDOG=1\n" {
                return message;
            }
        }
    }

    async fn message(&self) -> String {
        let mut buffer = [0; 256];
        let received = tokio::time::timeout(PATIENCE, self.socket.recv(&mut buffer)).await;
        let length = received.expect("a message arrives in time").unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }
}

#[tokio::test]
async fn systemd_is_told_when_the_service_is_ready_reloads_and_stops() {
    let manager = Manager::new();
    let amalgam = Amalgam::start(BINARY, manager.setup()).await;
    assert_eq!(manager.next().await, "READY=1\n");
    amalgam.signal("HUP");
    let reloading = manager.next().await;
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{reloading}"));
    assert!(since.trim().parse::<u64>().is_ok(), "{reloading}");
    assert_eq!(manager.next().await, "READY=1\n");
    let exit = amalgam.terminate().await;
    assert_eq!(exit.status.code(), Some(0));
    assert_eq!(manager.next().await, "STOPPING=1\n");
}

#[tokio::test]
async fn the_watchdog_gets_signs_of_life_if_systemd_asks_for_them() {
    let manager = Manager::new();
    let _amalgam = Amalgam::start(BINARY, manager.setup().env("WATCHDOG_USEC", "200000")).await;
    let mut signs = 0;
    while signs < 3 {
        signs += usize::from(manager.message().await == "WATCHDOG=1\n");
    }
}

#[tokio::test]
async fn a_socket_that_systemd_passes_is_used_instead_of_the_configured_address() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let amalgam = Amalgam::start(BINARY, Setup::new().pass_socket(socket)).await;
    assert_eq!(amalgam.url(), format!("http://{address}"));
    assert_eq!(Client::new(amalgam.url()).get("/v1/models").await.status, 200);
}

#[tokio::test]
async fn a_passed_socket_that_other_machines_can_reach_needs_a_configuration_that_says_so() {
    let socket = || TcpListener::bind("0.0.0.0:0").unwrap();
    let exit = Amalgam::try_start(BINARY, Setup::new().pass_socket(socket())).await.unwrap_err();
    assert!(exit.stderr.contains("set `listen` to the address of the socket"), "{}", exit.stderr);

    let setup = Setup::new().tenant_key("am_key-of-the-tenant").extra("[server]\nadmin_listen = \"127.0.0.1:0\"");
    let amalgam = Amalgam::start(BINARY, setup.listen("0.0.0.0:0").pass_socket(socket())).await;
    let url = amalgam.url().replace("0.0.0.0", "127.0.0.1");
    assert_eq!(Client::new(&url).get("/v1/models").await.status, 401, "callers need the key");
}
