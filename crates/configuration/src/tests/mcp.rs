//! `[mcp.NAME]`: the operator's programs and servers.

use super::super::{McpConfig, McpTransport};
use super::*;

fn servers(text: &str, env: &[(&str, &str)]) -> (Vec<McpConfig>, Vec<String>) {
    let loaded = load(text, env).unwrap();
    (loaded.config.mcp, loaded.warnings)
}

#[test]
fn a_program_and_a_server_are_read_with_all_that_they_have() {
    let text = "
        [mcp.files]\ncommand = '/opt/my server/run'\nargs = ['--root', '/srv/a b', '']
        env = { Token = 'env:FILES_TOKEN', LANG = 'C' }\ntimeout = '2m'\ntenants = [1, 7]
        [mcp.tickets]\nurl = 'https://mcp.example.com/mcp/?v=1'\nauthorization = 'Basic abc'";
    let (servers, warnings) = servers(text, &[("FILES_TOKEN", "hush-hush")]);
    assert_eq!(warnings, NO_FAULTS);
    let [files, tickets] = servers.as_slice() else { panic!("{servers:?}") };
    assert_eq!(
        (files.name.as_str(), files.timeout, files.tenants.clone()),
        ("files", Duration::from_secs(120), Some(vec![1, 7]))
    );
    let McpTransport::Process { command, args, env } = &files.reached else { panic!("{files:?}") };
    assert_eq!(
        (command.as_str(), args.as_slice()),
        ("/opt/my server/run", ["--root", "/srv/a b", ""].map(str::to_owned).as_slice())
    );
    let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.value().unwrap().expose_secret())).collect();
    assert_eq!(env, [("LANG", "C"), ("Token", "hush-hush")]);

    assert_eq!((tickets.timeout, tickets.tenants.clone()), (Duration::from_secs(30), None));
    let McpTransport::Http { url, authorization } = &tickets.reached else { panic!("{tickets:?}") };
    assert_eq!(url, "https://mcp.example.com/mcp/?v=1", "its slashes and its query belong to it");
    assert_eq!(authorization.as_ref().unwrap().value().unwrap().expose_secret(), "Basic abc");
}

#[test]
fn what_is_wrong_with_a_server_is_told_with_its_line() {
    let text = "\
[mcp.neither]
timeout = \"5s\"

[mcp.both]
command = \"a\"
url = \"https://a.example\"

[mcp.program]
command = \"a\"
authorization = \"hush\"

[mcp.server]
url = \"https://a.example\"
args = [\"-v\"]
env = { A = \"b\" }

[mcp.odd]
comand = \"a\"
url = \"https://user:hush@a.example/\"
tenants = [\"one\", 0]
timeout = \"11m\"

[mcp.types]
command = \"a\"
args = \"-v\"
env = [\"A=hush\"]

[mcp.names]
command = \"a\"
env = { \"A=B\" = \"hush\", \"\" = \"x\" }
";
    let expected = [
        "amalgam.toml:1: [mcp.neither] has a 'command' or a 'url', and has neither",
        "amalgam.toml:6: [mcp.both] has a 'command' or a 'url', not both",
        "amalgam.toml:10: 'authorization' of [mcp.program] goes with 'url'",
        "amalgam.toml:14: 'args' of [mcp.server] goes with 'command'",
        "amalgam.toml:15: 'env' of [mcp.server] goes with 'command'",
        "amalgam.toml:18: unknown key 'comand' in [mcp.odd]; did you mean 'command'?",
        "amalgam.toml:19: url in [mcp.odd]: the address has a user or password in it; use authorization",
        "amalgam.toml:20: tenants in [mcp.odd]: expected a whole number from 1, found 'one'",
        "amalgam.toml:20: tenants in [mcp.odd]: expected a whole number from 1, found the number 0",
        "amalgam.toml:21: timeout in [mcp.odd]: expected a duration from 100ms to 10m, found '11m'",
        "amalgam.toml:25: args in [mcp.types]: expected a list such as [\"…\"], found a string",
        "amalgam.toml:26: env in [mcp.types]: expected a table such as { NAME = \"value\" }, found a list",
        "amalgam.toml:30: env in [mcp.names]: '' is not the name of a variable",
        "amalgam.toml:30: env in [mcp.names]: 'A=B' is not the name of a variable",
    ];
    let mut told = faults(text);
    told.sort_by_key(|fault| fault.split(':').nth(1).and_then(|line| line.parse::<usize>().ok()));
    assert_eq!(told, expected);
}

// S15
#[test]
fn no_variable_names_a_program() {
    let env = [("AMALGAM_MCP_FILES_COMMAND", "/bin/sh"), ("AMALGAM_MCP_FILES_ARGS", "-c,true")];
    let loaded = load("", &env).unwrap();
    assert!(loaded.config.mcp.is_empty());
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
    // Nor can it change one of the file.
    let (servers, _) = servers("[mcp.files]\ncommand = 'true'", &env);
    assert!(
        matches!(&servers[0].reached, McpTransport::Process { command, args, .. } if command == "true" && args.is_empty())
    );
}

// P12
#[test]
fn a_secret_that_is_missing_is_a_warning_and_none_is_shown() {
    let text = "
        [mcp.files]\ncommand = 'a'\nenv = { T = 'env:ABSENT' }
        [mcp.tickets]\nurl = 'http://a.example'\nauthorization = 'hush-hush'";
    let loaded = load(text, &[]).unwrap();
    assert_eq!(loaded.config.mcp[0].missing(), Some("ABSENT"));
    assert_eq!(loaded.config.mcp[1].missing(), None);
    let [absent, open] = loaded.warnings.as_slice() else { panic!("{:?}", loaded.warnings) };
    assert!(absent.contains("ABSENT") && absent.contains("'files'"), "{absent}");
    assert!(open.contains("without encryption"), "{open}");
    assert!(!format!("{loaded:?}").contains("hush"));
}

#[test]
fn limits_of_tools_have_their_defaults_and_can_be_set() {
    let limits = load("", &[]).unwrap().config.limits;
    assert_eq!((limits.tool_iterations, limits.tool_calls, limits.tool_calls_at_once), (8, 64, 32));
    assert_eq!((limits.parallel_tools, limits.tool_output_bytes, limits.turn_tokens), (8, 256 << 10, None));
    assert_eq!(limits.approval_deadline, Duration::from_secs(24 * 3600));
    let text = "[limits]\ntool_iterations = 3\nturn_tokens = 1000\napproval_deadline = '5m'";
    let limits = load(text, &[("AMALGAM_LIMITS_TOOL_CALLS", "9")]).unwrap().config.limits;
    assert_eq!((limits.tool_iterations, limits.tool_calls, limits.turn_tokens), (3, 9, Some(1000)));
    assert_eq!(limits.approval_deadline, Duration::from_secs(300));
    assert_eq!(faults("[limits]\ntool_iterations = 0").len(), 1);
}
