use amalgam_protocol::ResponseParameters;
use serde_json::{Value, json};

use super::*;
use crate::history::normalise;

/// The result of `act` for the history of a request.
fn with<T>(request: &Value, act: impl FnOnce(&History<'_>) -> T) -> T {
    let text = request.to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let request = parameters.view().unwrap();
    act(&normalise(request.instructions.as_ref(), request.input.as_ref()))
}

fn items(items: Value) -> Vec<Json> {
    items.as_array().unwrap().iter().map(|item| Json::parse(&item.to_string().into()).unwrap()).collect()
}

/// The memory of an upstream that received this request and returned this answer.
fn memory(request: &Value, answer: Value) -> Option<UpstreamMemory> {
    let said = with(request, |history| ConversationDigest::of(history, UpstreamRetention::Items))?;
    Some(said.answered(&items(answer))?.memory("up".to_owned(), "model".to_owned(), "resp_up".to_owned()))
}

fn known(memory: &UpstreamMemory, request: &Value) -> Option<usize> {
    with(request, |history| memory.known(history, UpstreamRetention::Items))
}

fn message(text: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn user(text: &str) -> Value {
    json!({"id": "msg_9", "type": "message", "role": "user", "content": text})
}

fn call(id: &str) -> Value {
    json!({"id": "fc_1", "type": "function_call", "call_id": id, "name": "look", "arguments": "{\"a\": 1}"})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "seen"})
}

#[test]
fn a_history_that_goes_on_is_known_up_to_its_answer() {
    let thoughts = json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "x"});
    let memory = memory(&json!({"input": "Hi"}), json!([thoughts, message("Hello")])).unwrap();
    // Stored items have ids and all fields; their content is the same.
    let input = json!([user("Hi"), thoughts, message("Hello"), user("And?")]);
    assert_eq!(known(&memory, &json!({"input": input})), Some(3));
    assert_eq!(known(&memory, &json!({"input": input, "instructions": "Be brief."})), Some(3), "told with every call");
    assert_eq!(UpstreamMemory::read(memory.to_json().raw()), Some(memory));
}

#[test]
fn calls_are_known_once_they_all_have_their_outputs() {
    let memory = memory(&json!({"input": "Hi"}), json!([call("c1"), call("c2")])).unwrap();
    let with_outputs = |outputs: &[Value]| {
        let said = [&[user("Hi"), call("c1"), call("c2")], outputs].concat();
        json!({"input": said})
    };
    assert_eq!(known(&memory, &with_outputs(&[output("c2"), output("c1")])), Some(3));
    assert_eq!(known(&memory, &with_outputs(&[output("c1")])), None, "the upstream waits for both");
    assert_eq!(known(&memory, &with_outputs(&[user("Never mind.")])), None);
}

#[test]
fn whatever_differs_is_told_anew() {
    let memory = memory(&json!({"input": "Hi"}), json!([message("Hello")])).unwrap();
    for (input, why) in [
        (json!([user("Hi"), message("Hello")]), "nothing is new"),
        (json!([user("Hi")]), "less was said"),
        (json!([user("Ho"), message("Hello"), user("And?")]), "something else was said"),
        (json!([user("Hi"), message("Hullo"), user("And?")]), "something else was answered"),
        (json!([message("Hello"), user("And?")]), "the beginning is gone"),
        (json!([{"role": "system", "content": "Hi"}, message("Hello"), user("And?")]), "another role said it"),
    ] {
        assert_eq!(known(&memory, &json!({"input": input})), None, "{why}");
    }
    let instructions = json!([{"role": "developer", "content": "Be brief."}]);
    let input = json!([user("Hi"), message("Hello"), user("And?")]);
    assert_eq!(known(&memory, &json!({"input": input, "instructions": instructions})), None, "they are items");
}

#[test]
fn a_call_whose_id_is_used_again_is_told_anew() {
    let before = json!([user("Hi"), call("c1"), output("c1"), message("Hello"), user("Again")]);
    let memory = memory(&json!({"input": before}), json!([call("c1")])).unwrap();
    let mut input = before.as_array().unwrap().clone();
    input.extend([call("c1"), output("c1")]);
    assert_eq!(known(&memory, &json!({"input": input})), None, "we call it by another id than the upstream");
}

#[test]
fn an_answer_with_calls_that_ran_here_is_not_the_upstreams() {
    let ran = json!({"id": "mcp_AM-aaaaaaaaaaaaaaaaaaaaaaaa", "type": "mcp_call", "server_label": "bank", "name": "look",
        "arguments": "{}", "output": "seen"});
    let listed =
        json!({"id": "mcpl_AM-aaaaaaaaaaaaaaaaaaaaaaaa", "type": "mcp_list_tools", "server_label": "x", "tools": []});
    assert_eq!(memory(&json!({"input": "Hi"}), json!([ran.clone(), message("Hello")])), None);
    let memory = memory(&json!({"input": "Hi"}), json!([listed.clone(), message("Hello")])).unwrap();
    assert_eq!(known(&memory, &json!({"input": [user("Hi"), listed, message("Hello"), user("And?")]})), Some(2));
    // Earlier in the turn it is a part of the history.
    let later = self::memory(&json!({"input": [user("Hi"), ran]}), json!([message("Hello")])).unwrap();
    assert_eq!(known(&later, &json!({"input": [user("Hi"), ran, message("Hello"), user("And?")]})), Some(4));
}

#[test]
fn an_upstream_that_keeps_instructions_too_is_told_anew_when_they_change() {
    let ask = |instructions: &str| json!({"input": "Hi", "instructions": instructions});
    let said =
        with(&ask("Be brief."), |history| ConversationDigest::of(history, UpstreamRetention::Everything)).unwrap();
    let answered = said.answered(&items(json!([message("Hello")]))).unwrap();
    let memory = answered.memory("up".to_owned(), "model".to_owned(), "resp_up".to_owned());
    for (instructions, expected) in [("Be brief.", Some(2)), ("Be long.", None)] {
        let request = json!({"input": [user("Hi"), message("Hello"), user("And?")], "instructions": instructions});
        assert_eq!(with(&request, |history| memory.known(history, UpstreamRetention::Everything)), expected);
    }
    assert!(with(&ask(""), |history| ConversationDigest::of(history, UpstreamRetention::Nothing)).is_none());
}
