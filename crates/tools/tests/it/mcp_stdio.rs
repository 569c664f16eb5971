//! The MCP client against servers in processes: scripts of the shell, which every machine has.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use amalgam_core::{ToolError, ToolOutput};
use amalgam_tools::{McpProcess, McpServer};
use serde_json::{Value, json};

use crate::calls::{call, json_of, scope_of, value_of};

/// Reads messages for ever; `on_call` is what it does when a tool is called.
pub(crate) fn script(on_call: &str) -> String {
    format!(
        r#"
        say() {{ printf '{{"jsonrpc":"2.0","id":%s,"result":%s}}\n' "$id" "$1"; }}
        text() {{ say "{{\"content\":[{{\"type\":\"text\",\"text\":\"$1\"}}]}}"; }}
        echo 'welcome to the server'
        while IFS= read -r line; do
            id=${{line#*'"id":'}}; id=${{id%%,*}}
            case "$line" in
                *'"method":"initialize"'*) say '{{"protocolVersion":"2025-11-25","capabilities":{{}}}}' ;;
                *'"method":"tools/list"'*) say '{{"tools":[{{"name":"weather"}}]}}' ;;
                *'"method":"tools/call"'*) {on_call} ;;
                *'"method":"notifications/cancelled"'*) cancelled=${{line#*'"requestId":'}}; cancelled=${{cancelled%%,*}} ;;
            esac
        done
        "#
    )
}

pub(crate) fn process(script: String) -> McpProcess {
    McpProcess {
        label: "shell".into(),
        command: "sh".into(),
        args: vec!["-c".into(), script],
        env: BTreeMap::from([("GREETING".to_owned(), "hello from the operator".into())]),
        timeout: Duration::from_secs(10),
    }
}

fn started(on_call: &str) -> McpServer {
    McpServer::start(process(script(on_call)))
}

async fn run(server: &McpServer) -> Result<Value, ToolError> {
    let (handler, arguments) = (server.handler("weather"), json_of("{}"));
    call(&arguments, async |call| handler.run(call).await).await.map(|ToolOutput { output }| value_of(&output))
}

/// Whether the process is there and not only waiting to be recovered.
fn is_alive(pid: &Value) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_str().unwrap())).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

pub(crate) async fn wait_until_dead(pid: &Value) {
    let started = Instant::now();
    while is_alive(pid) {
        assert!(started.elapsed() < Duration::from_secs(60), "process {pid} lives on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn tools_of_a_process_are_listed_and_called_and_it_is_started_once() {
    let server = started("text $$");
    let tools = server.tools(&scope_of(1)).await.unwrap();
    assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["weather"]);
    let first = run(&server).await.unwrap();
    assert_eq!(run(&server).await.unwrap(), first);
}

// S15, P12
#[tokio::test]
async fn a_process_sees_its_own_environment_and_nothing_of_ours() {
    let server =
        started(r#"text "$(env | sort | grep -v -e '^PWD=' -e '^_=' -e '^SHLVL=' -e '^OLDPWD=' | tr '\n' ';')""#);
    assert_eq!(
        run(&server).await.unwrap(),
        json!("GREETING=hello from the operator;PATH=/usr/local/bin:/usr/bin:/bin;")
    );
    assert!(!format!("{:?}", process(String::new())).contains("hello"), "its environment may hold secrets");
}

#[tokio::test]
async fn a_process_ends_with_its_owner() {
    let server = started("text $$");
    let pid = run(&server).await.unwrap();
    assert!(is_alive(&pid));
    let other = server.clone();
    drop(server);
    assert_eq!(run(&other).await.unwrap(), pid);
    drop(other);
    wait_until_dead(&pid).await;
}

#[tokio::test]
async fn a_process_that_dies_in_a_call_fails_it_and_is_started_again_with_patience() {
    let server = started(r#"if [ -n "$id" ]; then exit 3; fi"#);
    assert!(matches!(run(&server).await, Err(ToolError::Broken { .. })));
    // Too early.
    let Err(ToolError::Broken { detail }) = run(&server).await else { panic!("it was started at once") };
    assert!(detail.contains("not started again yet"), "{detail}");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let Err(ToolError::Broken { detail }) = run(&server).await else { panic!("it cannot have answered") };
    assert!(detail.contains("has ended"), "{detail}");
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_and_the_next_one_is_answered() {
    // The first call is not answered; the next one returns which was cancelled in between. `initialize` had id 1.
    let server = started(r#"if [ -n "$waited" ]; then text "cancelled $cancelled"; else waited=1; fi"#);
    server.tools(&scope_of(1)).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(500), run(&server)).await.is_err());
    assert_eq!(run(&server).await, Ok(json!("cancelled 3")));
}

#[tokio::test]
async fn a_line_without_end_ends_the_process_and_the_call() {
    let server = started("echo $$ >&2; while :; do printf '%01000d' 0; done");
    assert!(matches!(run(&server).await, Err(ToolError::Broken { .. })));
}

#[tokio::test]
async fn complaints_without_end_do_not_stop_a_process() {
    let server = started("i=0; while [ $i -lt 3000 ]; do printf '%0100d\\n' 0 >&2; i=$((i+1)); done; text done");
    assert_eq!(run(&server).await, Ok(json!("done")));
}

#[tokio::test]
async fn a_process_that_says_nothing_ends_at_the_time_limit_and_is_not_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let note = directory.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", note.display());
    let silent = McpProcess { timeout: Duration::from_secs(2), ..process(script) };
    let server = McpServer::start(silent);
    assert_eq!(run(&server).await, Err(ToolError::TimedOut));
    let pid = std::fs::read_to_string(note).expect("two seconds are enough to begin");
    wait_until_dead(&json!(pid.trim())).await;
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_broken() {
    let absent = McpProcess { command: "/nonexistent/program".into(), ..process(String::new()) };
    assert!(matches!(run(&McpServer::start(absent)).await, Err(ToolError::Broken { .. })));
}
