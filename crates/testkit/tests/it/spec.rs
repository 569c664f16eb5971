//! The published document with its repairs: what it must let pass and what it must still find.

use amalgam_testkit::spec;
use serde_json::{Value, json};

/// Whether the value is valid; `None` without the document, which the kit announces.
fn valid(schema_name: &str, value: Value) -> Option<bool> {
    spec::violations(schema_name, &value).map(|violations| violations.is_empty())
}

fn assert_valid(schema_name: &str, value: Value) {
    assert_ne!(valid(schema_name, value.clone()), Some(false), "{schema_name} refuses {value}");
}

fn assert_invalid(schema_name: &str, value: Value) {
    assert_ne!(valid(schema_name, value.clone()), Some(true), "{schema_name} takes {value}");
}

#[test]
fn known_defects_of_the_document_are_repaired() {
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
fn items_and_tools_that_the_document_knows_are_still_checked() {
    let call = json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"});
    assert_valid("ItemField", call.clone());
    let mut broken = call;
    broken["arguments"] = json!({});
    assert_invalid("ItemField", broken.clone());
    if let Some(violations) = spec::violations("ItemField", &broken) {
        assert_eq!(violations, ["ItemField: /arguments: {} is not of type \"string\""]);
    }
    assert_invalid("ItemField", json!({"type": "mcp_call"}));
    assert_invalid("Tool", json!({"type": "function", "name": "f"}));
}

#[test]
fn events_are_checked_by_their_type_and_extensions_by_their_two_fields() {
    let check = |event: Value| spec::stream_violations(&[event]).map(|violations| violations.len());
    assert_ne!(check(json!({"type": "keepalive", "sequence_number": 3})), Some(1));
    assert_ne!(check(json!({"type": "keepalive"})), Some(0));
    assert_ne!(check(json!({"type": "response.output_text.delta", "sequence_number": 3})), Some(0));
}

/// Of the checks by the document this is the one that is always seen: `.config/nextest.toml` shows what it says.
#[test]
fn the_published_document_has_schemas_or_its_absence_is_said() {
    if let Some((schemas, events)) = spec::size() {
        assert!(schemas > 50 && events > 20, "{schemas} schemas, {events} of them events");
        assert_eq!(valid("ResponseResource", json!({})), Some(false), "an empty response is not one");
    }
}
