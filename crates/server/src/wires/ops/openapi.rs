//! The published description of the API: an OpenAPI 3.1 document, assembled once from the files in
//! `crates/server/openapi/` and from the types of `/admin`.
//!
//! Operations are in `paths/`, schemas in `schemas/`, a file per subject; `document.json` has the rest. Two
//! abbreviations keep the operations short, see [`expand`]. Tests compare the document with the routes, and with what
//! the server reads and writes. Why it is done like this: `docs/decisions/0002-openapi-document.md`.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

static DOCUMENT: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", build()));

/// The OpenAPI document as JSON text, assembled once.
pub fn document() -> &'static str {
    &DOCUMENT
}

/// Includes files of `crates/server/openapi/`.
macro_rules! data {
    ($($file:literal),* $(,)?) => { [$(($file, include_str!(concat!("../../../openapi/", $file)))),*] };
}

const BASE: [(&str, &str); 1] = data!["document.json"];

const PATHS: [(&str, &str); 23] = data![
    "paths/agents.json",
    "paths/assistant.json",
    "paths/audit.json",
    "paths/chat_completions.json",
    "paths/console.json",
    "paths/conversations.json",
    "paths/embeddings.json",
    "paths/courses.json",
    "paths/execute.json",
    "paths/files.json",
    "paths/knowledge.json",
    "paths/limits.json",
    "paths/messages.json",
    "paths/models.json",
    "paths/modes.json",
    "paths/operations.json",
    "paths/responses.json",
    "paths/system.json",
    "paths/tenants.json",
    "paths/threads.json",
    "paths/tools.json",
    "paths/turns.json",
    "paths/webhooks.json",
];

const SCHEMAS: [(&str, &str); 16] = data![
    "schemas/assistant.json",
    "schemas/chat_completions.json",
    "schemas/content.json",
    "schemas/embeddings.json",
    "schemas/errors.json",
    "schemas/events.json",
    "schemas/execute.json",
    "schemas/files.json",
    "schemas/items.json",
    "schemas/messages.json",
    "schemas/models.json",
    "schemas/request.json",
    "schemas/response.json",
    "schemas/stored.json",
    "schemas/tools.json",
    "schemas/turns.json",
];

fn build() -> Value {
    let mut document = Value::Object(merged(&BASE));
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    let mut paths = merged(&PATHS);
    for operation in paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        expand(operation);
    }
    document["paths"] = Value::Object(paths);
    let mut schemas = merged(&SCHEMAS);
    for (name, schema) in amalgam_administration::schemas() {
        let before = schemas.insert(name, schema);
        debug_assert!(before.is_none(), "a derived shape is written in openapi/schemas too");
    }
    document["components"]["schemas"] = Value::Object(schemas);
    document
}

/// The entries of all these files in one object.
fn merged(files: &[(&str, &str)]) -> Map<String, Value> {
    let mut all = Map::new();
    for (file, text) in files {
        let entries: Map<String, Value> = serde_json::from_str(text)
            .unwrap_or_else(|error| unreachable!("openapi/{file} is read by the tests: {error}"));
        for (name, entry) in entries {
            let before = all.insert(name, entry);
            debug_assert!(before.is_none(), "openapi/{file} repeats an entry of another file");
        }
    }
    all
}

/// Expands the abbreviations of an operation: a string as a parameter names a shared one, and a string as a response is
/// the description of a failure in the error format of most routes.
fn expand(operation: &mut Value) {
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(name) = parameter.as_str() {
            *parameter = json!({"$ref": format!("#/components/parameters/{name}")});
        }
    }
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        if let Some(description) = response.as_str() {
            *response = failure(status, description);
        }
    }
}

fn failure(status: &str, description: &str) -> Value {
    let mut headers = json!({"x-request-id": {"$ref": "#/components/headers/RequestId"}});
    if matches!(status, "429" | "502" | "503") {
        headers["retry-after"] = json!({"$ref": "#/components/headers/RetryAfter"});
    }
    json!({
        "description": description,
        "headers": headers,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}}},
    })
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
