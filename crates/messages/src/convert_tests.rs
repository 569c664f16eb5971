use serde_json::{Value, json};

use super::*;
use crate::testing::NoSeal;

fn items(messages: &Value) -> Result<Value, ShapeError> {
    let text = messages.to_string();
    let input = input(Raw::parse(text.as_bytes()).unwrap(), &NoSeal)?;
    Ok(serde_json::from_slice(input.bytes()).unwrap())
}

fn of_user(block: Value) -> Value {
    items(&json!([{"role": "user", "content": [block]}])).unwrap()[0]["content"][0].clone()
}

#[test]
fn a_tool_loop_becomes_reasoning_calls_and_outputs_in_order() {
    let messages = json!([
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "ams2.x"},
            {"type": "redacted_thinking", "data": "ams2.y"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "/"}},
            {"type": "tool_use", "id": "t2", "name": "cat", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "b"}], "is_error": true},
            {"type": "tool_result", "tool_use_id": "t1"},
            {"type": "text", "text": "Go on"},
        ]},
        {"role": "system", "content": "Be brief", "output_config": {"effort": "low"}},
    ]);
    let expected = json!([
        {"type": "message", "role": "user", "content": "Look"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "ams2.x"},
        {"type": "reasoning", "summary": [], "encrypted_content": "ams2.y"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "t1", "name": "ls", "arguments": "{\"path\":\"/\"}"},
        {"type": "function_call", "call_id": "t2", "name": "cat", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "t2", "output": [{"type": "input_text", "text": "b"}],
         "anthropic": {"is_error": true}},
        {"type": "function_call_output", "call_id": "t1", "output": ""},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on"}]},
        {"type": "message", "role": "system", "content": "Be brief",
         "anthropic": {"output_config": {"effort": "low"}}},
    ]);
    assert_eq!(items(&messages).unwrap(), expected);
}

#[test]
fn a_signature_of_another_server_is_kept_for_an_upstream_that_knows_it() {
    let block = json!({"type": "thinking", "thinking": "Hm.", "signature": "EqQB"});
    let expected = json!([{
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "anthropic": {"block": block},
    }]);
    assert_eq!(items(&json!([{"role": "assistant", "content": [block]}])).unwrap(), expected);
}

#[test]
fn media_become_images_and_files() {
    let cache = json!({"type": "ephemeral"});
    assert_eq!(
        of_user(json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="},
                       "cache_control": cache})),
        json!({"type": "input_image", "image_url": "data:image/png;base64,QQ==", "anthropic": {"cache_control": cache}})
    );
    assert_eq!(
        of_user(json!({"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}})),
        json!({"type": "input_image", "image_url": "https://a.example/b.png"})
    );
    assert_eq!(
        of_user(json!({"type": "image", "source": {"type": "file", "file_id": "file_1"}})),
        json!({"type": "input_image", "file_id": "file_1"})
    );
    assert_eq!(
        of_user(json!({"type": "document", "title": "a.pdf", "citations": {"enabled": true},
                       "source": {"type": "base64", "media_type": "application/pdf", "data": "QQ=="}})),
        json!({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ==",
               "anthropic": {"citations": {"enabled": true}}})
    );
    let document = json!({"type": "document", "title": "Note",
                          "source": {"type": "text", "media_type": "text/plain", "data": "Hello"}});
    assert_eq!(
        of_user(document.clone()),
        json!({"type": "input_text", "text": "[Note]\nHello", "anthropic": {"block": document}})
    );
}

#[test]
fn blocks_that_only_the_messages_api_has_are_told_as_text_and_kept() {
    let found =
        json!({"type": "search_result", "title": "T", "source": "s", "content": [{"type": "text", "text": "x"}]});
    assert_eq!(
        of_user(found.clone()),
        json!({"type": "input_text", "text": "[T](s)\nx", "anthropic": {"block": found}})
    );
    let ran = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}});
    assert_eq!(
        items(&json!([{"role": "assistant", "content": [ran]}])).unwrap(),
        json!([{"type": "messages_block", "anthropic": {"block": ran}}])
    );
    let addition = json!({"type": "tool_addition", "tool": {
        "type": "tool_definition", "definition": {"name": "f", "input_schema": {"type": "object"}}
    }});
    assert_eq!(
        items(&json!([{"role": "system", "content": [addition]}])).unwrap(),
        json!([{"type": "additional_tools", "role": "developer",
                "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
                "anthropic": {"block": addition, "message": {}}}])
    );
}

#[test]
fn an_error_names_its_place() {
    for (messages, path) in [
        (json!({}), ""),
        (json!([]), ""),
        (json!([{"role": "user", "content": "a"}, 5]), "[1]"),
        (json!([{"content": "a"}]), "[0].role"),
        (json!([{"role": "tool", "content": "a"}]), "[0].role"),
        (json!([{"role": "user"}]), "[0].content"),
        (json!([{"role": "user", "content": [{"type": "text"}]}]), "[0].content[0].text"),
        (json!([{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b"}]}]), "[0].content[0].type"),
        (json!([{"role": "assistant", "content": [{"type": "tool_result"}]}]), "[0].content[0].type"),
        (json!([{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]), "[0].content[0].name"),
        (
            json!([{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": 1}]}]),
            "[0].content[0].input",
        ),
        (
            json!([{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": ""}}]}]),
            "[0].content[0].source.media_type",
        ),
        (
            json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [1]}]}]),
            "[0].content[0].content[0]",
        ),
    ] {
        assert_eq!(items(&messages).unwrap_err().path, path, "{messages}");
    }
}
