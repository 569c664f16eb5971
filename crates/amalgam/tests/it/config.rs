//! The commands that need no server, run as people run them: `check`, `doctor`, `version`, `completion`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use serde_json::{Value, json};

/// The binary in a folder of its own, with nothing of our environment.
fn amalgam(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_amalgam"))
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn folder_with(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("amalgam.toml"), text).unwrap();
    folder
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

const GOOD: &str = "\
[tenants.acme]
id = 1
keys = [\"hush-tenant\"]

[upstreams.openai]
kind = \"responses\"
base_url = \"https://api.openai.com/v1\"
api_key = \"env:OPENAI_API_KEY\"
";

#[test]
fn check_shows_every_value_with_its_origin_and_no_secret() {
    let folder = folder_with(GOOD);
    let arguments = ["check", "--config", "amalgam.toml", "--listen", "127.0.0.1:9", "--json"];
    let environment = [("OPENAI_API_KEY", "hush-openai"), ("AMALGAM_LIMITS_TOOLS", "7"), ("AMALGAM_LOGG", "x")];

    let output = amalgam(folder.path(), &arguments, &environment);

    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = json_of(&output);
    let setting = |key: &str| {
        let settings = report["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["key"] == key).cloned().unwrap_or_else(|| panic!("{key}: {report}"))
    };
    assert_eq!(
        setting("server.listen"),
        json!({"key": "server.listen", "value": "127.0.0.1:9", "origin": "flag", "flag": "--listen"})
    );
    assert_eq!(
        setting("limits.tools"),
        json!({"key": "limits.tools", "value": 7, "origin": "environment", "variable": "AMALGAM_LIMITS_TOOLS"})
    );
    assert_eq!(
        setting("tenants.acme.keys"),
        json!({"key": "tenants.acme.keys", "value": ["[redacted]"], "origin": "file", "file": "amalgam.toml", "line": 3})
    );
    assert_eq!(setting("upstreams.openai.api_key")["value"], "env:OPENAI_API_KEY [redacted]");
    assert_eq!(setting("limits.body_bytes"), json!({"key": "limits.body_bytes", "value": "2MiB", "origin": "default"}));
    assert_eq!(report["warnings"], json!(["the variable AMALGAM_LOGG means nothing here; did you mean AMALGAM_LOG?"]));

    let text = amalgam(folder.path(), &arguments[..5], &environment);
    assert_eq!(text.status.code(), Some(0));
    assert!(out(&text).starts_with("amalgam.toml is valid\n"), "{text:?}");
    let listen = out(&text).lines().find(|line| line.starts_with("server.listen ")).map(str::to_owned);
    let words: Vec<String> = listen.unwrap().split_whitespace().map(str::to_owned).collect();
    assert_eq!(words, ["server.listen", "127.0.0.1:9", "--listen"]);
    assert!(err(&text).contains("warning: the variable AMALGAM_LOGG"), "{text:?}");
    // P12
    for output in [output, text] {
        assert!(!format!("{}{}", out(&output), err(&output)).contains("hush"), "{output:?}");
    }
}

#[test]
fn a_bad_file_ends_every_command_that_reads_it_with_all_faults_and_code_two() {
    let folder =
        folder_with("[server]\nlisten = 8080\n\n[upstreams.openai]\nkind = \"chat\"\nbase_ulr = \"https://x/v1\"\n");
    let expected = "\
amalgam: the configuration cannot be used; 3 things are wrong
  amalgam.toml:2: listen in [server]: expected a string, found the number 8080
  amalgam.toml:4: [upstreams.openai] needs 'base_url'
  amalgam.toml:6: unknown key 'base_ulr' in [upstreams.openai]; did you mean 'base_url'?
";
    for command in ["check", "serve"] {
        let output = amalgam(folder.path(), &[command, "--config", "amalgam.toml"], &[]);
        assert_eq!((output.status.code(), err(&output).as_str(), out(&output).as_str()), (Some(2), expected, ""));
    }
    let output = amalgam(folder.path(), &["check", "--json"], &[("AMALGAM_CONFIG", "amalgam.toml")]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(json_of(&output)["faults"][0]["line"], 2);
    assert_eq!(json_of(&output)["valid"], false);
}

#[test]
fn a_file_that_cannot_be_read_is_told_by_the_flag_or_variable_that_named_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bytes.toml"), b"# fine\n\xff\xfe").unwrap();
    for (arguments, environment, expected) in [
        (vec!["check", "--config", "no.toml"], vec![], "--config: cannot read no.toml: "),
        (vec!["check"], vec![("AMALGAM_CONFIG", "no.toml")], "AMALGAM_CONFIG: cannot read no.toml: "),
        (vec!["check", "--config", "."], vec![], "--config: cannot read .: "),
        (vec!["check", "--config", "bytes.toml"], vec![], "bytes.toml:2: the file is not UTF-8 text"),
    ] {
        let output = amalgam(folder.path(), &arguments, &environment);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains(expected), "{output:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_told_by_name() {
    use std::os::unix::ffi::OsStrExt as _;
    let output = Command::new(env!("CARGO_BIN_EXE_amalgam"))
        .arg("check")
        .env_clear()
        .env("AMALGAM_LISTEN", std::ffi::OsStr::from_bytes(b"\xff"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("AMALGAM_LISTEN: the value is not readable text"), "{output:?}");
}

// S19
#[test]
fn serving_other_machines_without_a_key_is_refused_before_anything_listens() {
    let folder = folder_with("");
    for arguments in
        [vec!["serve", "--listen", "0.0.0.0:0"], vec!["serve", "--listen", "[::]:0", "--config", "amalgam.toml"]]
    {
        let output = amalgam(folder.path(), &arguments, &[]);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
        assert!(err(&output).contains("--listen: refusing to listen on"), "{output:?}");
    }
}

#[test]
fn wrong_usage_ends_with_code_two_and_help_with_zero() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, code) in
        [(vec![], 2), (vec!["serv"], 2), (vec!["check", "--nonsense"], 2), (vec!["--help"], 0), (vec!["--version"], 0)]
    {
        let output = amalgam(folder.path(), &arguments, &[]);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn version_is_printed_for_people_and_programs() {
    let folder = tempfile::tempdir().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let text = amalgam(folder.path(), &["version"], &[]);
    assert!(out(&text).starts_with(&format!("amalgam {version}")), "{text:?}");
    let report = json_of(&amalgam(folder.path(), &["version", "--json"], &[]));
    assert_eq!((&report["name"], &report["version"]), (&json!("amalgam"), &json!(version)));
    assert!(report.get("commit").is_some(), "{report}");
}

#[test]
fn completion_knows_the_commands_for_every_shell() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = amalgam(folder.path(), &["completion", shell], &[]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        for word in ["serve", "check", "doctor", "version", "tenants", "keys", "migrate", "reset"] {
            assert!(out(&output).contains(word), "{shell} {word}");
        }
    }
    assert_eq!(amalgam(folder.path(), &["completion", "tcsh"], &[]).status.code(), Some(2));
}

fn findings(output: &Output) -> Vec<(String, String)> {
    let report = json_of(output);
    let checks = report["checks"].as_array().unwrap();
    let text = |check: &Value, field: &str| check[field].as_str().unwrap().to_owned();
    checks.iter().map(|check| (text(check, "check"), text(check, "status"))).collect()
}

fn found<'a>(check: &'a str, status: &'a str) -> (String, String) {
    (check.to_owned(), status.to_owned())
}

/// As many as every machine that tests lets a process have.
const FEW_CONNECTIONS: (&str, &str) = ("AMALGAM_SERVER_MAX_CONNECTIONS", "100");

#[test]
fn doctor_finds_a_sound_machine_sound_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["doctor", "--listen", "127.0.0.1:0", "--data", "new/data", "--json"];
    let output = amalgam(folder.path(), &arguments, &[FEW_CONNECTIONS]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        findings(&output),
        [
            found("configuration", "ok"),
            found("port 0", "ok"),
            found("open files", "ok"),
            found("data folder", "ok"),
            found("disk space", "ok"),
            found("store", "ok"),
            found("master key", "ok"),
            found("proxies", "ok"),
            found("upstream demo", "ok"),
            found("assistant door", "ok"),
            found("execute door", "ok"),
            found("clock", "ok"),
        ]
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn doctor_tells_a_taken_port_a_bad_folder_and_an_upstream_that_is_away() {
    // A listener that answers but is not Amalgam; and one whose port is free again.
    let neighbour = Neighbour::answering("HTTP/1.0 200 OK\r\n\r\n{\"info\":{\"title\":\"Something\"}}");
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = folder_with(&format!(
        "[upstreams.away]\nkind = \"chat\"\nbase_url = \"http://{away}/v1\"\n\
         [upstreams.there]\nkind = \"chat\"\nbase_url = \"http://{0}/v1\"\napi_key = \"env:NOT_THERE\"\n",
        neighbour.address
    ));
    let port = neighbour.address.port();

    let listen = neighbour.address.to_string();
    let arguments = ["doctor", "--config", "amalgam.toml", "--listen", &listen, "--data", "amalgam.toml/data"];
    let output = amalgam(folder.path(), &[&arguments[..], &["--json"]].concat(), &[FEW_CONNECTIONS]);

    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(
        findings(&output),
        [
            found("configuration", "ok"),
            found("configuration", "warn"),
            found(&format!("port {port}"), "fail"),
            found("open files", "ok"),
            found("data folder", "fail"),
            found("disk space", "ok"),
            found("store", "ok"),
            found("master key", "ok"),
            found("proxies", "ok"),
            found("upstream away", "fail"),
            found("upstream there", "warn"),
            found("assistant door", "warn"),
            found("execute door", "warn"),
            found("clock", "ok"),
        ]
    );
    let text = amalgam(folder.path(), &arguments, &[]);
    assert_eq!(text.status.code(), Some(1));
    assert!(out(&text).contains(&format!("fail  port {port}: {listen} is taken by another program\n")), "{text:?}");
    assert!(out(&text).contains("\n      set NOT_THERE"), "{text:?}");
}

#[test]
fn doctor_says_that_another_amalgam_holds_the_port_and_serve_would_fail() {
    // right D
    let neighbour =
        Neighbour::answering("HTTP/1.0 200 OK\r\n\r\n{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"Amalgam\"}}");
    let folder = tempfile::tempdir().unwrap();
    let output = amalgam(folder.path(), &["doctor", "--listen", &neighbour.address.to_string()], &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told =
        format!("another amalgam serves on {}: 'amalgam serve' with this configuration fails", neighbour.address);
    assert!(out(&output).contains(&told), "{output:?}");
}

#[test]
fn doctor_reports_a_bad_configuration_as_a_failed_check() {
    let folder = folder_with("[sever]\n");
    let output = amalgam(folder.path(), &["doctor", "--config", "amalgam.toml"], &[]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "fail  configuration: amalgam.toml:1: unknown section [sever]; did you mean 'server'?";
    assert!(out(&output).contains(expected), "{output:?}");
}

/// A server on a port that gives every caller the same answer, for as long as the test process lives.
struct Neighbour {
    address: std::net::SocketAddr,
}

impl Neighbour {
    fn answering(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                // The head first: closing a socket with unread bytes would reset the connection.
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { address }
    }
}
