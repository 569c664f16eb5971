use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn counted(body: &Value) -> (u64, u64) {
    let TokenCount { text, media } = count_prompt(body.to_string().as_bytes());
    (text, media / TokenCount::PER_MEDIA)
}

#[test]
fn the_same_conversation_counts_about_the_same_on_every_wire() {
    let chat = json!({"model": "m", "messages": [
        {"role": "system", "content": "hello world"},
        {"role": "user", "content": [{"type": "text", "text": "hello world"},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1234567890", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_1234567890", "content": "hello world"},
    ]});
    let responses = json!({"model": "m", "instructions": "hello world", "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello world"},
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1234567890", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1234567890", "output": "hello world"},
    ]});
    let anthropic = json!({"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "hello world"}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hello world"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1234567890", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1234567890", "content": "hello world"}]},
    ]});
    // Three times two words, the name, the empty arguments; four messages.
    let said = 3 * 2 + 1 + 1 + 4 * TokenCount::PER_MESSAGE;
    for body in [chat, responses, anthropic] {
        assert_eq!(counted(&body), (said, 1), "{body}");
    }
}

#[test]
fn tools_and_schemas_count_and_what_no_model_sees_does_not() {
    let tools = json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}]);
    let count = count_text(&tools.to_string());
    assert!(count > 5);
    assert_eq!(counted(&json!({"messages": [], "tools": tools})), (count, 0));
    assert_eq!(counted(&json!({"input": [], "text": tools})), (count, 0));
    let sealed = json!({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "gAAAAAB".repeat(99)}],
        "metadata": {"key": "a long value"}, "user": "somebody"});
    assert_eq!(counted(&sealed), (TokenCount::PER_MESSAGE, 0));
}

#[test]
fn a_document_of_text_is_text_and_any_other_is_one_medium() {
    let document =
        |source: Value| json!({"messages": [{"role": "user", "content": [{"type": "document", "source": source}]}]});
    let text = document(json!({"type": "text", "media_type": "text/plain", "data": "hello world"}));
    let (tokens, media) = counted(&text);
    assert!(tokens >= 2 + TokenCount::PER_MESSAGE && media == 0, "{tokens} {media}");
    let pdf = document(json!({"type": "base64", "media_type": "application/pdf", "data": "AAAA"}));
    assert_eq!(counted(&pdf), (TokenCount::PER_MESSAGE, 1));
}

#[test]
fn a_text_that_looks_like_data_is_text() {
    let (tokens, media) = counted(&json!({"messages": [{"role": "user", "content": "data: hello world"}]}));
    assert!(tokens > 2 + TokenCount::PER_MESSAGE && media == 0);
}

#[test]
fn a_long_text_is_counted_by_its_beginning() {
    let words = COUNTED_BYTES / 6 * 3;
    let counted = count_text(&"hello ".repeat(words));
    assert!(counted.abs_diff(words as u64) < words as u64 / 100, "{counted} for {words}");
}

/// Texts with the counts that `bpe-openai` 0.3.2 gave for o200k_base.
fn recorded_counts() -> Vec<Value> {
    serde_json::from_str(include_str!("../tests/fixtures/token_counts.json")).expect("the fixture is JSON")
}

#[test]
fn recorded_texts_have_the_counts_that_were_recorded() {
    let mut wrong = Vec::new();
    for case in recorded_counts() {
        let repeat = case["repeat"].as_u64().unwrap_or(1) as usize;
        let counted = count_text(&case["text"].as_str().expect("a text").repeat(repeat));
        if case["tokens"] != counted {
            wrong.push(format!("{}: {counted} instead of {}", case["name"], case["tokens"]));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_token_has_at_least_one_byte(text in ".{0,200}") {
        prop_assert!(count_text(&text) <= text.len() as u64);
    }
}
