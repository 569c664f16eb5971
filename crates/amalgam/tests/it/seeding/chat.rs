//! Talking to an assistant from the command line.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the test does")]

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use amalgam_testkit::{Amalgam, Setup, binary};
use serde_json::{Value, json};

use crate::support::BINARY;

const KEY: &str = "am_bootstrap-key-of-the-tests";

/// Runs the command with these lines on its standard input.
fn chat(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(binary(BINARY));
    command.arg("chat").args(arguments).env("AMALGAM_KEY", KEY);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[tokio::test]
async fn lines_are_answered_with_text_tools_and_courses_until_the_input_ends() {
    let amalgam = Amalgam::start(BINARY, Setup::new().env("AMALGAM_BOOTSTRAP_KEY", KEY)).await;
    let at = ["--url", amalgam.url(), "--agent", "home-assistant", "--user", "ada"];
    let input = "Hello there\n\nCall get_course_recommendation: leadership\n/quit\nNever said\n";

    let output = chat(&at, input);

    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("Hello there") && !shown.contains("Never said"), "{shown}");
    assert!(shown.contains("[get_course_recommendation {"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("id  course")), "{shown}");
    assert!(shown.contains("Leadership Foundations"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "output that is not a terminal is not coloured: {shown}");

    // The session continues, and answers can be printed as data.
    let output = chat(&[&at[..], &["--json"]].concat(), "And again\n");
    let answers: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((answers.len(), &answers[0]["session_id"]), (1, &json!(1)), "{answers:?}");
    assert_eq!(answers[0]["user_message_id"], 5, "{answers:?}");
}

#[tokio::test]
async fn refusals_and_servers_that_are_not_there_are_told_and_make_the_command_fail() {
    let amalgam = Amalgam::start(BINARY, Setup::new().env("AMALGAM_BOOTSTRAP_KEY", KEY)).await;
    let told = |output: Output| (output.status.code(), String::from_utf8(output.stderr).unwrap());
    let long = "x".repeat(5000);

    let (code, error) = told(chat(&["--url", amalgam.url()], &format!("{long}\nHello\n")));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("message: Ensure this field has no more than 4000 characters."), "{error}");
    let (code, error) = told(chat(&["--url", amalgam.url(), "--key", "am_wrong"], "Hello\n"));
    assert!(code == Some(1) && error.contains("401") && !error.contains("am_wrong"), "{error}");
    let (code, error) = told(chat(&["--url", "http://127.0.0.1:1"], "Hello\n"));
    assert!(code == Some(1) && error.contains("connecting to 127.0.0.1:1"), "{error}");
    // right D
    let (code, error) = told(chat(&["--url", amalgam.url(), "--agent", "hme-assistant"], "Hello\n"));
    assert!(code == Some(1) && error.contains("no active agent `hme-assistant`"), "{error}");
    let (code, error) = told(chat(&["--url", amalgam.url(), "--agent", "demo"], "Hello\n"));
    assert!(code == Some(1) && error.contains("no active agent `demo`"), "a model is no agent: {error}");
    let (code, error) = told(chat(&["--url", "gopher://x"], "Hello\n"));
    assert!(code == Some(1) && error.contains("gopher"), "{error}");
}
