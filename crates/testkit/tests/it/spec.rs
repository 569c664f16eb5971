//! The shapes of the specification: what they must let pass and what they must find.

use amalgam_testkit::spec;
use serde_json::{Value, json};

fn assert_valid(schema_name: &str, value: Value) {
    assert_eq!(spec::violations(schema_name, &value), [""; 0], "{value}");
}

fn assert_invalid(schema_name: &str, value: Value) {
    assert_ne!(spec::violations(schema_name, &value), [""; 0], "{value}");
}

#[test]
fn what_published_clients_send_and_need_is_valid() {
    let format = |schema: Value| json!({"type": "json_schema", "name": "n", "description": null, "schema": schema, "strict": true});
    assert_valid("JsonSchemaResponseFormat", format(json!({"type": "object"})));
    assert_valid("JsonSchemaResponseFormat", format(Value::Null));
    assert_invalid("JsonSchemaResponseFormat", format(json!("text")));

    assert_valid("CreateResponseBody", json!({"model": "m", "input": "hi", "max_output_tokens": 1}));
    assert_invalid("CreateResponseBody", json!({"model": "m", "input": "hi", "max_output_tokens": 0}));
    assert_valid("CreateResponseBody", json!({"model": "m", "input": [{"role": "user", "content": "hi"}]}));
    assert_valid("ReasoningItemParam", json!({"type": "reasoning", "summary": [], "content": []}));

    assert_valid("ItemField", json!({"type": "mcp_call", "id": "mcp_1", "status": "completed"}));
    assert_valid("Tool", json!({"type": "custom", "name": "patch"}));
}

#[test]
fn items_and_tools_that_the_specification_lists_are_checked() {
    let call = json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"});
    assert_valid("ItemField", call.clone());
    let mut broken = call;
    broken["arguments"] = json!({});
    assert_invalid("ItemField", broken.clone());
    assert_eq!(spec::violations("ItemField", &broken), ["ItemField: /arguments: {} is not of type \"string\""]);
    assert_invalid("ItemField", json!({"type": "mcp_call"}));
    assert_invalid("Tool", json!({"type": "function", "name": "f"}));
}

#[test]
fn events_are_checked_by_their_type_and_extensions_by_their_two_fields() {
    let check = |event: Value| spec::stream_violations(&[event]).len();
    assert_eq!(check(json!({"type": "keepalive", "sequence_number": 3})), 0);
    assert_eq!(check(json!({"type": "keepalive"})), 1);
    assert_ne!(check(json!({"type": "response.output_text.delta", "sequence_number": 3})), 0);
}

#[test]
fn the_fixture_has_the_events_and_the_required_fields_of_the_specification() {
    assert_eq!(spec::event_schemas().len(), 24);
    assert_eq!(spec::violations("ResponseResource", &json!({})).len(), 31, "one for each required field");
}
