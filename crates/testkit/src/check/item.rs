//! Rules for one output item and its parts.

use serde_json::Value;

use super::text;

/// The violations of an output item; `place` says where it was found.
pub(super) fn item(place: &str, item: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    let mut complain = |what: &str| violations.push(format!("{place}: {what}"));
    for key in ["id", "type"] {
        if text(item, key).is_empty() {
            complain(&format!("`{key}` is missing or empty"));
        }
    }
    let kind = text(item, "type");
    if let Some(status) = item.get("status")
        && !["in_progress", "completed", "incomplete"].contains(&status.as_str().unwrap_or_default())
        // Calls of hosted tools have states of their own.
        && !kind.ends_with("_call")
    {
        complain(&format!("status {status} is not one of an item"));
    }
    let status_needed = matches!(kind, "message" | "function_call" | "custom_tool_call" | "function_call_output");
    if status_needed && item.get("status").is_none() {
        complain("`status` is missing");
    }
    match kind {
        "message" => {
            if text(item, "role") != "assistant" {
                complain("the role of an output message is not assistant");
            }
            if item.get("phase").is_some_and(Value::is_null) {
                complain("`phase` is null instead of absent");
            }
            match item.get("content").and_then(Value::as_array) {
                Some(parts) => {
                    for part in parts {
                        for problem in part_problems(part) {
                            complain(&problem);
                        }
                    }
                }
                None => complain("`content` is not a list"),
            }
        }
        "function_call" | "custom_tool_call" => {
            let payload = if kind == "function_call" { "arguments" } else { "input" };
            if !item.get(payload).is_some_and(Value::is_string) {
                complain(&format!("`{payload}` is not a string"));
            }
            for key in ["call_id", "name"] {
                if text(item, key).is_empty() {
                    complain(&format!("`{key}` is missing or empty"));
                }
            }
            if text(item, "call_id") == text(item, "id") {
                complain("`call_id` and `id` are the same");
            }
        }
        "reasoning" => {
            match item.get("summary").and_then(Value::as_array) {
                Some(parts)
                    if parts.iter().all(|part| text(part, "type") == "summary_text" && part["text"].is_string()) => {}
                Some(_) => complain("a part of `summary` is not a summary_text"),
                None => complain("`summary` is not a list"),
            }
            for key in ["content", "encrypted_content", "status"] {
                if item.get(key).is_some_and(Value::is_null) {
                    complain(&format!("`{key}` is null instead of absent"));
                }
            }
        }
        _ => {}
    }
    violations
}

/// The violations of a content part of an output message.
pub(super) fn part_problems(part: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    match text(part, "type") {
        "output_text" => {
            if !part["text"].is_string() {
                problems.push("an output_text part has no text".to_owned());
            }
            if !part["annotations"].is_array() {
                problems.push("an output_text part has no list of annotations".to_owned());
            }
        }
        "refusal" if part["refusal"].is_string() => {}
        "refusal" => problems.push("a refusal part has no refusal".to_owned()),
        "reasoning_text" if part["text"].is_string() => {}
        other => problems.push(format!("a content part has the type {other:?}")),
    }
    problems
}
