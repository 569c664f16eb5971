//! The child process, with a small shell script in place of the binary.

use std::fs;

use amalgam_testkit::{Amalgam, Setup};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fake.sh");

#[tokio::test]
async fn a_server_is_started_with_its_file_found_by_its_line_and_ended_by_a_signal() {
    let setup = Setup::new().env("FAKE", "serve").tenant_key("am_test");
    let setup = setup.upstream("chat", "chat", "http://127.0.0.1:1/v1").option("retries", "0");
    let amalgam = Amalgam::start(FAKE, setup.extra("[limits]\ntools = 4")).await;

    assert_eq!(amalgam.url(), "http://127.0.0.1:4321");
    assert!(amalgam.folder().join("amalgam.toml").exists());
    let stderr = amalgam.wait_for_stderr("tools = 4").await;
    let exit = amalgam.terminate().await;

    assert!(exit.status.success());
    assert!(exit.stderr.ends_with("drained\n"), "{}", exit.stderr);
    assert_eq!(exit.stdout, "amalgam listening on http://127.0.0.1:4321\n");
    for expected in [
        "serve --config",
        "--listen 127.0.0.1:0 --data",
        "[tenants.demo]\nid = 1\nkeys = [\"am_test\"]\n",
        "[upstreams.chat]\nkind = \"chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key = \"sk-chat\"\nretries = 0\n",
        "[limits]\ntools = 4\n",
    ] {
        assert!(stderr.contains(expected), "{expected:?} is missing in\n{stderr}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_to_start_hands_over_its_exit() {
    let exit = Amalgam::try_start(FAKE, Setup::new().env("FAKE", "refuse")).await.expect_err("it ends at once");
    assert_eq!((exit.status.code(), exit.stderr.as_str()), (Some(2), "unknown key `tol`\n"));
}

#[tokio::test]
async fn a_dropped_server_is_killed() {
    let amalgam = Amalgam::start(FAKE, Setup::new().env("FAKE", "deaf")).await;
    let process = format!("/proc/{}", amalgam.pid());
    assert!(fs::exists(&process).unwrap());
    drop(amalgam);
    assert!(!fs::exists(&process).unwrap());
}
