//! Validation against the published Open Responses document, where it lies beside the project.
//!
//! The document is not ours to ship: without it every function returns `None` and says so once on standard error.
//! Its known defects are repaired in the loaded schemas, never in the data: see `repair`.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, Once, OnceLock};

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};

/// Where the document is, seen from the workspace.
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/spec/openresponses-openapi.json");

/// What is wrong with a value according to a schema of the document (`ResponseResource`, `ErrorPayload` …).
pub fn violations(schema_name: &str, value: &Value) -> Option<Vec<String>> {
    static VALIDATORS: OnceLock<Mutex<HashMap<String, &'static Validator>>> = OnceLock::new();
    let components = components()?;
    let mut validators = VALIDATORS.get_or_init(Mutex::default).lock().expect("compiling a schema does not panic");
    let validator: &'static Validator = match validators.get(schema_name) {
        Some(validator) => validator,
        None => {
            let validator: &'static Validator = Box::leak(Box::new(compile(components, schema_name)));
            validators.insert(schema_name.to_owned(), validator);
            validator
        }
    };
    drop(validators);
    let problems = validator.iter_errors(value).map(|error| match error.instance_path().as_str() {
        "" => format!("{schema_name}: {error}"),
        path => format!("{schema_name}: {path}: {error}"),
    });
    Some(problems.collect())
}

/// What is wrong with a whole answer to `POST /responses`.
pub fn response_violations(response: &Value) -> Option<Vec<String>> {
    violations("ResponseResource", response)
}

/// What is wrong with the events of a stream, each against the schema for its type.
pub fn stream_violations(events: &[Value]) -> Option<Vec<String>> {
    let schemas = event_schemas()?;
    let mut all = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let kind = event["type"].as_str().unwrap_or_default();
        // Events outside of the list are extensions, which need these two fields alone.
        let found = match schemas.get(kind) {
            Some(schema_name) => violations(schema_name, event)?,
            None if kind.is_empty() || !event["sequence_number"].is_u64() => {
                vec!["an event needs `type` and `sequence_number`".to_owned()]
            }
            None => Vec::new(),
        };
        all.extend(found.into_iter().map(|violation| format!("event {index} ({kind}): {violation}")));
    }
    Some(all)
}

fn compile(components: &Value, schema_name: &str) -> Validator {
    assert!(components["schemas"].get(schema_name).is_some(), "the document has no schema `{schema_name}`");
    let schema = json!({"$ref": format!("#/components/schemas/{schema_name}"), "components": components});
    match jsonschema::options().with_draft(Draft::Draft202012).offline().build(&schema) {
        Ok(validator) => validator,
        Err(error) => panic!("the schema `{schema_name}` does not compile: {error}"),
    }
}

/// The repaired `components` of the document, or `None` when there is no document.
fn components() -> Option<&'static Value> {
    static COMPONENTS: OnceLock<Option<Value>> = OnceLock::new();
    let components = COMPONENTS.get_or_init(|| {
        let text = std::fs::read(Path::new(DOCUMENT)).ok()?;
        let mut document: Value = serde_json::from_slice(&text).expect("the document is JSON");
        let mut components = document["components"].take();
        let schemas = components["schemas"].as_object_mut().expect("the document has schemas");
        repair(schemas);
        Some(components)
    });
    if components.is_none() {
        announce_absence();
    }
    components.as_ref()
}

/// Past the capturing of tests, which would swallow it: a check that is left out must be seen.
fn announce_absence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let said = writeln!(std::io::stderr(), "SKIPPED: {DOCUMENT} is absent: nothing is validated against it");
        said.expect("a test can write to its standard error");
    });
}

/// How many schemas the document has, and how many events; `None` without it.
pub fn size() -> Option<(usize, usize)> {
    Some((components()?["schemas"].as_object().map_or(0, Map::len), event_schemas()?.len()))
}

/// From the type of an event to the name of its schema.
fn event_schemas() -> Option<HashMap<&'static str, &'static str>> {
    let schemas = components()?["schemas"].as_object().expect("the document has schemas");
    let events = schemas.iter().filter(|(name, _)| name.ends_with("StreamingEvent"));
    let typed =
        events.filter_map(|(name, schema)| Some((schema["properties"]["type"]["enum"][0].as_str()?, name.as_str())));
    Some(typed.collect())
}

/// Repairs what the document gets wrong about itself or about every published client.
fn repair(schemas: &mut Map<String, Value>) {
    let mut set = |schema_name: &str, pointer: &str, value: Value| match schemas
        .get_mut(schema_name)
        .and_then(|schema| schema.pointer_mut(pointer))
    {
        Some(place) => *place = value,
        None => panic!("the document has no `{schema_name}{pointer}` to repair"),
    };
    // An echoed schema is typed as null alone, and so is the content of a reasoning item that is sent back.
    set("JsonSchemaResponseFormat", "/properties/schema", json!({"type": ["object", "null"]}));
    set("ReasoningItemParam", "/properties/content", json!({"type": ["array", "null"]}));
    // Clients ask for fewer tokens than the documented minimum.
    set("CreateResponseBody", "/properties/max_output_tokens/anyOf/0/minimum", json!(1));
    // Most clients leave out the type of an input message.
    for role in ["User", "System", "Developer", "Assistant"] {
        set(&format!("{role}MessageItemParam"), "/required", json!(["role", "content"]));
    }
    // The prose allows tool and item types of one's own; the unions have no slot for them. Choosing by type
    // instead of trying each member also makes the messages name the field that is wrong.
    for (union, fields) in [("ItemField", json!(["type", "id"])), ("Tool", json!(["type"]))] {
        let members = schemas.get(union).and_then(|schema| schema["oneOf"].as_array()).cloned();
        let members = members.expect("the document has the union");
        let chosen: Vec<Value> = members.iter().map(|member| by_type(schemas, member)).collect();
        schemas.insert(union.to_owned(), json!({"type": "object", "required": fields, "allOf": chosen}));
    }
    // It knows citations of pages alone; those of files are as every published client reads them.
    let file_citation = json!({
        "type": "object",
        "required": ["type", "index", "file_id", "filename"],
        "additionalProperties": false,
        "properties": {
            "type": {"enum": ["file_citation"]}, "index": {"type": "integer", "minimum": 0},
            "file_id": {"type": "string"}, "filename": {"type": "string"},
        },
    });
    let place = schemas.get_mut("Annotation").and_then(|schema| schema.pointer_mut("/oneOf"));
    place.and_then(Value::as_array_mut).expect("the document lists the annotations").push(file_citation);
    let own_choice = json!({
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string", "not": {"enum": ["function", "allowed_tools"]}}},
    });
    let places =
        [("ResponseResource", "/properties/tool_choice/oneOf"), ("AllowedToolChoice", "/properties/tools/items/oneOf")];
    for (schema_name, pointer) in places {
        let place = schemas.get_mut(schema_name).and_then(|schema| schema.pointer_mut(pointer));
        let choices = place.and_then(Value::as_array_mut).expect("the document lists the tool choices");
        choices.push(own_choice.clone());
    }
}

/// `if` the type is the member's, `then` the member.
fn by_type(schemas: &Map<String, Value>, member: &Value) -> Value {
    let name = member["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
    let schema = name.and_then(|name| schemas.get(name)).expect("a union is made of references");
    json!({"if": {"properties": {"type": schema["properties"]["type"]}}, "then": member})
}
