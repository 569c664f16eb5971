//! Validation against the shapes of the Open Responses specification, version 2026-04-24.
//!
//! `fixtures/open-responses.json` states them as JSON Schema: which fields an object has, which of them are required, and their
//! types. It deviates from the published document where that contradicts itself or every published client: an echoed
//! `text.format.schema` may be an object, reasoning content may be an array, `max_output_tokens` may be as small as 1, an input
//! message may omit its type, items, tools and tool choices may have types of their own, and text may cite files.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use jsonschema::{Draft, Validator};
use serde_json::{Value, json};

/// The schemas by name.
static SCHEMAS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../fixtures/open-responses.json")).expect("the fixture is JSON")
});

/// The violations of a value against a schema of the specification (`ResponseResource`, `CompactResource` …).
pub fn violations(schema_name: &str, value: &Value) -> Vec<String> {
    static VALIDATORS: LazyLock<Mutex<HashMap<String, &'static Validator>>> = LazyLock::new(Mutex::default);
    let mut validators = VALIDATORS.lock().expect("compiling a schema does not panic");
    let validator: &'static Validator = match validators.get(schema_name) {
        Some(validator) => validator,
        None => {
            let validator: &'static Validator = Box::leak(Box::new(compile(schema_name)));
            validators.insert(schema_name.to_owned(), validator);
            validator
        }
    };
    drop(validators);
    let problems = validator.iter_errors(value).map(|error| match error.instance_path().as_str() {
        "" => format!("{schema_name}: {error}"),
        path => format!("{schema_name}: {path}: {error}"),
    });
    problems.collect()
}

/// The violations of a whole answer to `POST /responses`.
pub fn response_violations(response: &Value) -> Vec<String> {
    violations("ResponseResource", response)
}

/// The violations of the events of a stream, each against the schema for its type.
pub fn stream_violations(events: &[Value]) -> Vec<String> {
    let schemas = event_schemas();
    let mut all = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let kind = event["type"].as_str().unwrap_or_default();
        // Events that the specification does not list are extensions; they need these two fields.
        let found = match schemas.get(kind) {
            Some(schema_name) => violations(schema_name, event),
            None if kind.is_empty() || !event["sequence_number"].is_u64() => {
                vec!["an event needs `type` and `sequence_number`".to_owned()]
            }
            None => Vec::new(),
        };
        all.extend(found.into_iter().map(|violation| format!("event {index} ({kind}): {violation}")));
    }
    all
}

fn compile(schema_name: &str) -> Validator {
    assert!(SCHEMAS.get(schema_name).is_some(), "the fixture has no schema `{schema_name}`");
    let schema = json!({"$ref": format!("#/$defs/{schema_name}"), "$defs": *SCHEMAS});
    match jsonschema::options().with_draft(Draft::Draft202012).offline().build(&schema) {
        Ok(validator) => validator,
        Err(error) => panic!("the schema `{schema_name}` does not compile: {error}"),
    }
}

/// The names of the schemas by the type of their event.
pub fn event_schemas() -> HashMap<&'static str, &'static str> {
    let schemas = SCHEMAS.as_object().expect("the fixture is an object");
    let events = schemas.iter().filter(|(name, _)| name.ends_with("StreamingEvent"));
    events
        .filter_map(|(name, schema)| Some((schema["properties"]["type"]["enum"][0].as_str()?, name.as_str())))
        .collect()
}
