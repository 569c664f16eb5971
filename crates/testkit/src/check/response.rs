//! Rules for the response object.

use std::collections::HashSet;

use serde_json::Value;

use super::item::item;
use super::text;

/// Keys that every response object has and that are never null.
const NEVER_NULL: [&str; 20] = [
    "id",
    "object",
    "created_at",
    "status",
    "model",
    "output",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "store",
    "background",
    "service_tier",
    "metadata",
];

/// Keys that every response object has and that may be null.
const NULLABLE: [&str; 11] = [
    "completed_at",
    "incomplete_details",
    "previous_response_id",
    "instructions",
    "error",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "safety_identifier",
    "prompt_cache_key",
];

const STATUSES: [&str; 6] = ["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"];

/// The violations of a response object, alone or inside an event.
pub fn response(response: &Value) -> Vec<String> {
    let Some(object) = response.as_object() else { return vec![format!("the response is not an object: {response}")] };
    let mut violations = Vec::new();
    for key in NEVER_NULL {
        match object.get(key) {
            None => violations.push(format!("`{key}` is missing")),
            Some(Value::Null) => violations.push(format!("`{key}` is null")),
            Some(_) => {}
        }
    }
    for key in NULLABLE {
        if !object.contains_key(key) {
            violations.push(format!("`{key}` is missing"));
        }
    }
    // The rules below check values; a missing key was reported above.
    if !violations.is_empty() {
        return violations;
    }
    types(response, &mut violations);
    status(response, &mut violations);
    settings(response, &mut violations);
    usage(&response["usage"], &mut violations);
    output(response, &mut violations);
    violations
}

fn types(response: &Value, violations: &mut Vec<String>) {
    let mut expect = |key: &str, what: &str, holds: fn(&Value) -> bool| {
        if !holds(&response[key]) {
            violations.push(format!("`{key}` is {} and not {what}", response[key]));
        }
    };
    for key in ["id", "model", "service_tier"] {
        expect(key, "a text", |value| value.as_str().is_some_and(|text| !text.is_empty()));
    }
    expect("object", "\"response\"", |value| value == "response");
    expect("truncation", "auto or disabled", |value| value == "auto" || value == "disabled");
    for key in ["created_at", "top_logprobs"] {
        expect(key, "an integer", Value::is_u64);
    }
    for key in ["completed_at", "max_output_tokens", "max_tool_calls"] {
        expect(key, "an integer or null", |value| value.is_null() || value.is_u64());
    }
    for key in ["temperature", "top_p", "presence_penalty", "frequency_penalty"] {
        expect(key, "a number", Value::is_number);
    }
    for key in ["parallel_tool_calls", "store", "background"] {
        expect(key, "a boolean", Value::is_boolean);
    }
    for key in ["output", "tools"] {
        expect(key, "a list", Value::is_array);
    }
    expect("metadata", "an object", Value::is_object);
    for key in ["previous_response_id", "safety_identifier", "prompt_cache_key"] {
        expect(key, "a text or null", |value| value.is_null() || value.is_string());
    }
}

fn status(response: &Value, violations: &mut Vec<String>) {
    let status = text(response, "status");
    if !STATUSES.contains(&status) {
        violations.push(format!("`status` is {status:?}"));
    }
    for (key, owner) in [("error", "failed"), ("incomplete_details", "incomplete"), ("completed_at", "completed")] {
        if response[key].is_null() == (status == owner) {
            violations.push(format!("`{key}` is {} although the status is {status}", response[key]));
        }
    }
    if let Some(error) = response["error"].as_object() {
        for (key, nullable) in [("type", false), ("code", false), ("message", false), ("param", true)] {
            match error.get(key) {
                Some(Value::String(text)) if !text.is_empty() => {}
                Some(Value::Null) if nullable => {}
                _ => violations.push(format!("`error.{key}` is missing or empty")),
            }
        }
    }
    if status == "incomplete" && text(&response["incomplete_details"], "reason").is_empty() {
        violations.push("`incomplete_details.reason` is missing".to_owned());
    }
    if let (Some(created_at), Some(completed_at)) = (response["created_at"].as_u64(), response["completed_at"].as_u64())
        && completed_at < created_at
    {
        violations.push("`completed_at` is before `created_at`".to_owned());
    }
}

fn settings(response: &Value, violations: &mut Vec<String>) {
    let mut need = |place: &str, value: &Value, keys: &[&str]| {
        for key in keys.iter().filter(|key| value.get(**key).is_none()) {
            violations.push(format!("`{place}.{key}` is missing"));
        }
    };
    need("text", &response["text"], &["format"]);
    need("text.format", &response["text"]["format"], &["type"]);
    if text(&response["text"]["format"], "type") == "json_schema" {
        need("text.format", &response["text"]["format"], &["name", "description", "schema", "strict"]);
    }
    if !response["reasoning"].is_null() {
        need("reasoning", &response["reasoning"], &["effort", "summary"]);
    }
    for (index, tool) in response["tools"].as_array().into_iter().flatten().enumerate() {
        let place = format!("tools[{index}]");
        need(&place, tool, &["type"]);
        if text(tool, "type") == "function" {
            need(&place, tool, &["name", "description", "parameters", "strict"]);
        }
    }
}

fn usage(usage: &Value, violations: &mut Vec<String>) {
    if usage.is_null() {
        return;
    }
    for path in [
        "/input_tokens",
        "/input_tokens_details/cached_tokens",
        "/input_tokens_details/cache_write_tokens",
        "/output_tokens",
        "/output_tokens_details/reasoning_tokens",
        "/total_tokens",
    ] {
        if !usage.pointer(path).is_some_and(Value::is_u64) {
            violations.push(format!("`usage{path}` is missing or not an integer"));
        }
    }
    let count = |key: &str| usage[key].as_u64().unwrap_or_default();
    if count("input_tokens") + count("output_tokens") != count("total_tokens") {
        violations.push("`usage.total_tokens` is not the sum of input and output".to_owned());
    }
}

fn output(response: &Value, violations: &mut Vec<String>) {
    let items = response["output"].as_array().map(Vec::as_slice).unwrap_or_default();
    let status = text(response, "status");
    let mut ids = HashSet::new();
    let mut call_ids = HashSet::new();
    for (index, value) in items.iter().enumerate() {
        let place = format!("output[{index}]");
        violations.extend(item(&place, value));
        if !ids.insert(text(value, "id")) {
            violations.push(format!("{place}: the id {} occurs twice", value["id"]));
        }
        let is_call = ["function_call", "custom_tool_call"].contains(&text(value, "type"));
        if is_call && !call_ids.insert(text(value, "call_id")) {
            violations.push(format!("{place}: the call_id {} occurs twice", value["call_id"]));
        }
        match text(value, "status") {
            "in_progress" if !["queued", "in_progress"].contains(&status) => {
                violations.push(format!("{place}: in progress although the response is {status}"));
            }
            "incomplete" if index + 1 < items.len() => {
                violations.push(format!("{place}: an incomplete item is not the last one"));
            }
            "incomplete" if status == "completed" => {
                violations.push(format!("{place}: incomplete although the response is completed"));
            }
            _ => {}
        }
    }
}
