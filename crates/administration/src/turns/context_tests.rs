//! Tests of what prompts consist of.

use serde_json::json;

use super::*;

fn chat(messages: &serde_json::Value) -> Vec<u8> {
    json!({"messages": messages, "tools": [{"type": "function", "function": {"name": "find"}}]}).to_string().into()
}

fn parts(request: &[u8], first: Option<&[u8]>, is_assistant: bool) -> Vec<(ContextPartKind, Option<String>, u64)> {
    let prompt = CallPrompt {
        request: Bytes::copy_from_slice(request),
        first_request: first.map(Bytes::copy_from_slice),
        is_assistant,
    };
    let (parts, _) = look_at(&prompt, None);
    assert!(parts.iter().all(|part| part.tokens > 0));
    parts.into_iter().map(|part| (part.kind, part.tool, part.count)).collect()
}

#[test]
fn what_follows_the_last_answer_is_the_input_and_what_later_calls_add_is_of_the_turn() {
    use ContextPartKind::{History, Input, Instructions, ToolResults, Tools, Turn};
    let mut messages = vec![
        json!({"role": "system", "content": "Be kind."}),
        json!({"role": "user", "content": "Hi"}),
        json!({"role": "assistant", "content": "Hello"}),
        json!({"role": "user", "content": "Find it"}),
    ];
    let first = chat(&json!(messages));
    let find = Some("find".to_owned());
    let before = vec![(Tools, find.clone(), 1), (Instructions, None, 1), (History, None, 2), (Input, None, 1)];
    assert_eq!(parts(&first, None, false), before);
    messages.push(
        json!({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "find", "arguments": "{}"}}]}),
    );
    messages.push(json!({"role": "tool", "tool_call_id": "c", "content": "Found."}));
    let second = chat(&json!(messages));
    let own = [(ToolResults, find, 1), (Turn, None, 1)];
    assert_eq!(parts(&second, Some(&first), false), before.into_iter().chain(own).collect::<Vec<_>>());
}

#[test]
fn the_composed_prompt_of_an_assistant_is_shown_by_its_origins() {
    use ContextPartKind::{Input, ProfilePrompt, TenantPrompt, Tools};
    let composed = prompt::compose("We are Acme.", Some("You recommend courses."), None).text;
    let request = chat(&json!([{"role": "system", "content": composed}, {"role": "user", "content": "Hi"}]));
    let expected =
        [(Tools, Some("find".to_owned()), 1), (TenantPrompt, None, 1), (ProfilePrompt, None, 1), (Input, None, 1)];
    assert_eq!(parts(&request, None, true), expected);
}

#[test]
fn the_place_where_a_prompt_differs_from_the_one_before_is_shown_with_its_text() {
    let request = |system: &str, more: &[&str]| {
        let mut messages = vec![json!({"role": "system", "content": system}), json!({"role": "user", "content": "Hi"})];
        messages.extend(more.iter().map(|text| json!({"role": "user", "content": text})));
        chat(&json!(messages))
    };
    let compared = |earlier: &[u8], now: &[u8]| {
        let prompt = CallPrompt { request: Bytes::copy_from_slice(now), first_request: None, is_assistant: false };
        look_at(&prompt, Some(earlier)).1.expect("there is an earlier prompt")
    };
    let (same, difference) = compared(&request("It is 9:00.", &[]), &request("It is 9:00.", &["And?"]));
    assert!(same > 0 && difference.is_none(), "the earlier prompt is the beginning of this one");
    let (same, difference) = compared(&request("It is 9:00.", &[]), &request("It is 9:01.", &["And?"]));
    let difference = difference.expect("the prompts differ");
    assert!(same > 0, "the tools are the same");
    assert_eq!(difference.kind, ContextPartKind::Instructions);
    assert!(difference.earlier.is_some_and(|text| text.contains("9:00")));
    assert!(difference.now.is_some_and(|text| text.contains("9:01")));
    let (_, difference) = compared(&request("Same.", &["And?"]), &request("Same.", &[]));
    assert_eq!(difference.map(|difference| difference.now), Some(None), "this prompt ends before");
}

#[test]
fn a_mark_for_the_cache_is_no_difference() {
    let marked = r#"{"role":"user","content":[{"type":"text","text":"Hi","cache_control":{"type":"ephemeral"}}]}"#;
    let plain = r#"{"role":"user","content":[{"type":"text","text":"Hi"}]}"#;
    assert_eq!(unmarked(marked), plain);
    assert_eq!(unmarked(plain), plain);
}
