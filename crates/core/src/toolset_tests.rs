//! Every tool kind as a function and back, and what the choice leaves of them.

use amalgam_protocol::ResponseParameters;
use serde_json::{Value, json};

use super::*;
use crate::history::normalise;

/// Looks at the toolset of a request.
fn with<T>(body: Value, look: impl FnOnce(Result<Toolset<'_>, Fault>) -> T) -> T {
    let text = body.to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let request = parameters.view().unwrap();
    let history = normalise(None, request.input.as_ref());
    look(Toolset::plain(&request, &history))
}

fn names(toolset: &Toolset<'_>) -> Vec<String> {
    toolset.offers.iter().map(|offer| offer.name.clone()).collect()
}

fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": {"type": "object"}})
}

#[test]
fn hosted_and_unknown_tools_are_left_out_and_reported() {
    // RAM-23, C-32
    with(
        json!({"tools": [function("f"), {"type": "web_search"}, {"type": "file_search"}, {"type": "acme:x"}]}),
        |toolset| {
            let toolset = toolset.unwrap();
            assert_eq!(names(&toolset), ["f"]);
            let fields: Vec<_> = toolset.losses.iter().map(|loss| &*loss.field).collect();
            assert_eq!(fields, ["tools[1]", "tools[2]", "tools[3]"]);
        },
    );
}

#[test]
fn the_first_of_two_tools_of_one_name_wins() {
    // RAM-24
    with(json!({"tools": [function("f"), {"type": "custom", "name": "f"}]}), |toolset| {
        let toolset = toolset.unwrap();
        assert_eq!((names(&toolset), toolset.losses.len()), (vec!["f".to_owned()], 1));
        assert_eq!(toolset.call_map().target("f").kind, CallKind::Function);
    });
}

#[test]
fn a_custom_tool_becomes_a_function_with_its_grammar_in_words() {
    let tool = json!({"type": "custom", "name": "patch", "description": "Edits.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}});
    with(json!({"tools": [tool]}), |toolset| {
        let toolset = toolset.unwrap();
        let Some(Description::Own(description)) = &toolset.offers[0].description else { panic!() };
        assert_eq!(description, "Edits.\n\nThe input must follow this lark grammar:\nstart: X");
        assert_eq!(toolset.call_map().target("patch").kind, CallKind::Custom);
    });
    assert_eq!(unwrap_custom(r#"{"input":"a\nb"}"#), "a\nb");
    assert_eq!(unwrap_custom("*** Begin Patch"), "*** Begin Patch");
    assert_eq!(unwrap_custom("\"quoted\""), "quoted");
}

#[test]
fn a_namespace_is_flattened_and_a_call_finds_its_way_back() {
    // O-51
    with(
        json!({"tools": [{"type": "namespace", "name": "mail", "tools": [function("send"), function("list")]}]}),
        |toolset| {
            let toolset = toolset.unwrap();
            assert_eq!(names(&toolset), ["mail__send", "mail__list"]);
            let target = toolset.call_map().target("mail__list");
            assert_eq!((target.name.as_str(), target.namespace.as_deref()), ("list", Some("mail")));
        },
    );
}

#[test]
fn a_name_that_upstreams_refuse_is_shortened_the_same_way_every_time() {
    let long = "x".repeat(80);
    let (one, other) = (wire_name(Some("räksmörgås"), &long), wire_name(Some("raksmorgas"), &long));
    assert_eq!((one.len(), one.clone()), (64, wire_name(Some("räksmörgås"), &long)));
    assert!(one.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') && one != other);
}

#[test]
fn tools_that_the_client_runs_are_offered_under_their_own_names() {
    with(
        json!({"tools": [{"type": "shell"}, {"type": "local_shell"}, {"type": "apply_patch"}, {"type": "tool_search", "execution": "client", "description": "find", "parameters": {"type": "object"}}]}),
        |toolset| {
            let toolset = toolset.unwrap();
            assert_eq!(names(&toolset), ["shell", "local_shell", "apply_patch", "tool_search"]);
            assert_eq!(toolset.call_map().target("shell").kind, CallKind::Client(ClientTool::Shell));
        },
    );
}

#[test]
fn deferred_tools_wait_for_a_search_of_the_client_and_only_for_that() {
    let deferred = json!({"type": "function", "name": "rare", "defer_loading": true});
    let search = json!({"type": "tool_search", "execution": "client"});
    with(json!({"tools": [deferred, search]}), |toolset| assert_eq!(names(&toolset.unwrap()), ["tool_search"]));
    with(json!({"tools": [deferred, {"type": "tool_search"}]}), |toolset| {
        let toolset = toolset.unwrap();
        assert_eq!((names(&toolset), toolset.losses.len()), (vec!["rare".to_owned()], 1));
    });
    let found = json!([{"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {}},
        {"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": [{"type": "function", "name": "rare"}]}]);
    with(json!({"tools": [deferred, search], "input": found}), |toolset| {
        assert_eq!(names(&toolset.unwrap()), ["tool_search", "rare"]);
    });
}

#[test]
fn additional_tools_in_the_history_count() {
    // O-51
    with(
        json!({"input": [{"type": "additional_tools", "role": "developer", "tools": [function("late")]}, {"role": "user", "content": "x"}]}),
        |toolset| {
            assert_eq!(names(&toolset.unwrap()), ["late"]);
        },
    );
}

#[test]
fn a_choice_narrows_what_is_offered() {
    // RAM-25, C-04
    let tools = json!([function("f"), function("g"), {"type": "custom", "name": "p"}]);
    for (choice, offered, expected) in [
        (json!("none"), vec!["f", "g", "p"], Choice::None),
        (json!("auto"), vec!["f", "g", "p"], Choice::Auto),
        (json!("required"), vec!["f", "g", "p"], Choice::Required),
        (json!({"type": "function", "name": "g"}), vec!["g"], Choice::Named("g".into())),
        (json!({"type": "tool", "name": "g"}), vec!["g"], Choice::Named("g".into())),
        (json!({"type": "custom", "name": "p"}), vec!["p"], Choice::Named("p".into())),
        (
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}),
            vec!["f"],
            Choice::Auto,
        ),
        (
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "p"}]}),
            vec!["f", "p"],
            Choice::Required,
        ),
    ] {
        with(json!({"tools": tools, "tool_choice": choice}), |toolset| {
            let toolset = toolset.unwrap();
            assert_eq!(
                (names(&toolset), &toolset.choice),
                (offered.iter().map(|s| (*s).to_owned()).collect(), &expected),
                "{choice}"
            );
        });
    }
}

#[test]
fn a_choice_of_a_tool_that_is_not_there_is_the_callers_mistake() {
    // RAM-25
    for (body, param) in [
        (json!({"tools": [function("f")], "tool_choice": {"type": "function", "name": "nope"}}), "tool_choice"),
        (json!({"tools": [], "tool_choice": "required"}), "tool_choice"),
        (
            json!({"tools": [function("f")], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "nope"}]}}),
            "tool_choice.tools",
        ),
    ] {
        with(body, |toolset| assert_eq!(toolset.unwrap_err().param.as_deref(), Some(param)));
    }
}

#[test]
fn a_choice_that_several_tools_answer_to_is_the_callers_mistake() {
    // RAM-25
    let group = |name: &str| json!({"type": "namespace", "name": name, "tools": [function("find")]});
    let choose = |name: &str| json!({"type": "function", "name": name});
    with(json!({"tools": [group("a"), group("b")], "tool_choice": choose("find")}), |toolset| {
        let fault = toolset.unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("tool_choice"));
        assert!(fault.message.contains("`a__find` and `b__find`"), "{}", fault.message);
    });
    for (tools, name, chosen) in [
        (json!([group("a"), group("b")]), "b__find", "b__find"),
        (json!([group("a"), group("a")]), "find", "a__find"),
        (json!([group("a"), function("find")]), "find", "find"),
    ] {
        with(json!({"tools": tools, "tool_choice": choose(name)}), |toolset| {
            let toolset = toolset.unwrap();
            assert_eq!((names(&toolset), toolset.choice), (vec![chosen.to_owned()], Choice::Named(chosen.to_owned())));
        });
    }
}

#[test]
fn a_list_of_found_tools_that_cannot_be_read_is_a_loss() {
    let found = json!([{"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {}},
        {"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": [{"type": "function"}]}]);
    with(json!({"tools": [function("f")], "input": found}), |toolset| {
        let toolset = toolset.unwrap();
        let told: Vec<String> = toolset.losses.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["input.tool_search_output: its list of tools cannot be read"]);
    });
}

#[test]
fn a_call_in_the_history_is_written_as_the_function_it_was_offered_as() {
    let body = json!({"input": [
        {"type": "custom_tool_call", "call_id": "a", "name": "p", "input": "x\ny"}, {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"},
        {"type": "function_call", "call_id": "b", "name": "send", "namespace": "mail", "arguments": "{\"to\":1}"}, {"type": "function_call_output", "call_id": "b", "output": "ok"},
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}, {"type": "shell_call_output", "call_id": "c", "output": []},
    ]})
    .to_string();
    let parameters = body.parse::<ResponseParameters>().unwrap();
    let request = parameters.view().unwrap();
    let history = normalise(None, request.input.as_ref());
    let calls: Vec<_> = history
        .entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Call(call) => Some((call.wire_name(), call.wire_arguments().decode())),
            _ => None,
        })
        .collect();
    assert_eq!(
        calls,
        [
            ("p".to_owned(), r#"{"input":"x\ny"}"#.to_owned()),
            ("mail__send".to_owned(), r#"{"to":1}"#.to_owned()),
            ("shell".to_owned(), r#"{"commands":["ls"]}"#.to_owned()),
        ]
    );
}
