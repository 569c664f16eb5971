//! What came in goes out again, byte for byte, known or not.

use std::collections::BTreeMap;

use amalgam_protocol::{
    ClientTool, DEFAULT_DEPTH, Event, EventKind, HostedItem, Input, Item, ItemKind, Json, Raw, ResponseParameters,
    Tool, ToolKind,
};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

/// One item of every kind that has a shape of its own.
fn known_items() -> Vec<Value> {
    let mut items = vec![
        json!({"role": "user", "content": "hi"}),
        json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": "final_answer",
            "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}, {"type": "refusal", "refusal": "no"}]}),
        json!({"type": "message", "role": "user", "content": [{"type": "text", "text": "seed"}, {"type": "input_text", "text": null},
            {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
            {"type": "input_file", "file_data": "AA==", "filename": "a.txt"}, {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
            {"type": "acme:part", "more": [1, 2.50, {"x": null}]}]}),
        json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{ \"a\" : 1 }", "status": "completed"}),
        json!({"type": "function_call", "call_id": "c", "name": "f", "namespace": "ns", "arguments": "not json"}),
        json!({"type": "function_call_output", "call_id": "c", "output": "r"}),
        json!({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "data:,"}]}),
        json!({"type": "function_call_output", "call_id": "c", "output": {"any": "value"}}),
        json!({"type": "function_call_output", "call_id": "c", "output": [1, 2]}),
        json!({"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "*** Begin Patch\n"}),
        json!({"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}),
        json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}], "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": "x"}),
        json!({"type": "reasoning", "summary": [], "content": null, "encrypted_content": null}),
        json!({"type": "local_shell_call", "id": "l", "call_id": "c", "action": {"type": "exec", "command": ["ls"], "env": {}}, "status": "completed"}),
        json!({"type": "local_shell_call_output", "id": "c", "output": "{}"}),
        json!({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}),
        json!({"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}),
        json!({"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}, "status": "completed"}),
        json!({"type": "apply_patch_call_output", "call_id": "c", "status": "completed", "output": "ok"}),
        json!({"type": "tool_search_call", "id": "ts_1", "execution": "client", "call_id": "c", "arguments": {"query": "x"}}),
        json!({"type": "tool_search_output", "call_id": "c", "tools": [{"type": "function", "name": "f"}]}),
        json!({"type": "computer_call", "call_id": "c", "action": {"type": "click"}}),
        json!({"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "data:,"}}),
        json!({"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "p"}]}),
        json!({"type": "item_reference", "id": "msg_1"}),
        json!({"id": "msg_1"}),
        json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}),
        json!({"type": "agent_message", "role": "assistant", "content": "hello", "author": "a"}),
        json!({"type": "acme:unknown", "id": "x", "status": "completed", "deep": {"er": [true]}}),
    ];
    items.extend(
        HostedItem::ALL
            .iter()
            .map(|(name, _)| json!({"type": name, "id": "h_1", "status": "completed", "result": [1]})),
    );
    items
}

#[test]
fn every_item_kind_is_known_by_name_and_kept_byte_for_byte() {
    for value in known_items() {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let item =
                Item::read(Raw::parse(text.as_bytes()).unwrap()).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(item.raw.text(), text);
            assert_eq!(item.to_json().bytes(), text.as_bytes());
            let other = matches!(item.kind, ItemKind::Other(_));
            assert_eq!(other, text.contains("acme:unknown"), "{text}");
        }
    }
}

#[test]
fn the_tools_that_clients_run_have_calls_and_outputs_of_their_own() {
    let kinds = |value: Value| {
        let text = value.to_string();
        let item = Item::read(Raw::parse(text.as_bytes()).unwrap()).unwrap();
        match item.kind {
            ItemKind::ClientCall(tool, call) => (tool, call.call_id.into_owned()),
            ItemKind::ClientCallOutput(tool, output) => (tool, output.call_id.into_owned()),
            kind => panic!("{kind:?}"),
        }
    };
    let output = json!({"type": "local_shell_call_output", "id": "c1", "output": "{}"});
    assert_eq!(kinds(output), (ClientTool::LocalShell, "c1".to_owned()));
    for tool in [
        ClientTool::Shell,
        ClientTool::LocalShell,
        ClientTool::ApplyPatch,
        ClientTool::ToolSearch,
        ClientTool::Computer,
    ] {
        assert_eq!(kinds(json!({"type": tool.call_type(), "call_id": "c", tool.payload_field(): {}})).0, tool);
    }
}

#[test]
fn every_tool_kind_is_known_by_name() {
    // The sixteen of the published description, and an unknown one.
    for (kind, known) in [
        ("function", true),
        ("file_search", true),
        ("computer", true),
        ("computer_use_preview", true),
        ("web_search", true),
        ("web_search_preview", true),
        ("mcp", true),
        ("code_interpreter", true),
        ("programmatic_tool_calling", true),
        ("image_generation", true),
        ("local_shell", true),
        ("shell", true),
        ("custom", true),
        ("namespace", true),
        ("tool_search", true),
        ("apply_patch", true),
        ("acme:tool", false),
    ] {
        let text = json!({"type": kind, "name": "n", "tools": [], "kept": {"as": "is"}}).to_string();
        let tool = Tool::read(Raw::parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!((tool.raw.text(), matches!(tool.kind, ToolKind::Other(_))), (&*text, !known));
    }
}

fn json_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The same value with more fields, in a place and a layout of its own.
fn grown(mut value: Value, more: BTreeMap<String, Value>, spread: bool) -> String {
    value.as_object_mut().unwrap().extend(more);
    if spread { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() }
}

fn more_fields() -> impl Strategy<Value = BTreeMap<String, Value>> {
    prop::collection::btree_map("x_[a-z_é\"]{0,8}", json_values(), 0..5)
}

proptest! {
    #[test]
    fn known_items_with_unknown_fields_are_kept_byte_for_byte(pick in any::<prop::sample::Index>(), more in more_fields(), spread in any::<bool>()) {
        let known = known_items();
        let value = known[pick.index(known.len())].clone();
        let is_other = value["type"] == "acme:unknown";
        let text = grown(value, more, spread);
        // Read in its place, and written by itself.
        let body = Bytes::from(format!("{{\"input\": [ {text} ]}}"));
        let parameters = ResponseParameters::parse(&body, DEFAULT_DEPTH).unwrap();
        let request = parameters.view().unwrap();
        let Some(Input::Items(items)) = &request.input else { panic!("{:?}", request.input) };
        let written = items[0].to_json();
        prop_assert_eq!(written.bytes(), text.as_bytes());
        prop_assert_eq!(matches!(items[0].kind, ItemKind::Other(_)), is_other);
        // What was written reads as what it was.
        prop_assert_eq!(&Item::read(written.raw()).unwrap(), &items[0]);
    }

    #[test]
    fn items_of_any_other_kind_are_kept_byte_for_byte(more in more_fields(), kind in "[a-z]{1,8}:[a-z_]{1,8}", spread in any::<bool>()) {
        let text = grown(json!({"type": kind}), more, spread);
        let item = Item::read(Raw::parse(text.as_bytes()).unwrap()).unwrap();
        let written = item.to_json();
        prop_assert_eq!(written.bytes(), text.as_bytes());
        prop_assert!(matches!(item.kind, ItemKind::Other(_)));
    }

    #[test]
    fn events_of_every_kind_give_what_they_hold_byte_for_byte(
        item in more_fields(), part in more_fields(), response in more_fields(), more in more_fields(), delta in any::<String>(),
        places in any::<(u32, u32)>(), known in any::<prop::sample::Index>(), use_known in any::<bool>(), other in "[a-z]{1,6}[.:][a-z_]{1,20}", spread in any::<bool>(),
    ) {
        let name = if use_known { EventKind::ALL[known.index(EventKind::ALL.len())].name().to_owned() } else { other };
        let event = json!({"type": name, "output_index": places.0, "content_index": places.1, "item_id": "i", "delta": delta, "item": item, "part": part, "response": response});
        let text = Bytes::from(grown(event.clone(), more, spread));
        let json = Json::parse(&text).unwrap();
        let read = Event::read(json.raw(), None);
        prop_assert_eq!(json.bytes(), &text);
        prop_assert_eq!((&*read.name, read.kind), (&*name, EventKind::named(&name)));
        prop_assert_eq!((read.output_index, read.part_index), (Some(places.0.into()), Some(places.1.into())));
        prop_assert_eq!(read.delta.unwrap().decode(), delta);
        for (field, view) in [("item", read.item), ("part", read.part), ("response", read.response)] {
            let view = view.unwrap().text();
            prop_assert!(std::str::from_utf8(&text).unwrap().contains(view));
            prop_assert_eq!(&serde_json::from_str::<Value>(view).unwrap(), &event[field]);
        }
    }
}
