//! A tenant's assistants, as administrators see them.

use amalgam_core::assistant::settings::Settings;
use serde_json::{Map, Value, json};

use super::{Schemas, admin::list, kept::deleted, list_of, object, text, text_or_null};

pub(super) fn schemas() -> Schemas {
    vec![
        ("AgentConfig", config()),
        ("ChangeConfig", change_config()),
        ("Profile", profile()),
        ("ProfileList", list("Profile", "string", "Profiles by slug.")),
        ("ProfileVersionList", list("Profile", "integer", "Versions of a profile, the newest first.")),
        ("PutProfile", put_profile()),
        ("DeletedProfile", deleted("profile.deleted")),
        ("ProfileDiff", diff()),
        ("SessionHead", session(&[], Map::new())),
        ("SessionList", list("SessionHead", "integer", "Threads, the newest first.")),
        ("Session", session_with_messages()),
        ("SessionMessage", message()),
        ("Diagnosis", diagnosis()),
    ]
}

/// What every setting is, by its name.
fn setting(name: &str) -> Value {
    let number = |kind: &str, least: u64, most: u64, what: &str| json!({"type": [kind, "null"], "minimum": least, "maximum": most, "description": what});
    match name {
        "model" => text_or_null("The model that is asked."),
        "upstream" => text_or_null("The operator's name of the upstream that it is asked from."),
        "system_prompt" => text_or_null("What the assistant is told before everything else."),
        "prompt_version" => text_or_null("What is shown as the version of the prompt."),
        "temperature" => number("number", 0, 2, "How freely the model speaks."),
        "top_p" => number("number", 0, 1, "The share of likely words that the model chooses from."),
        "max_output_tokens" => number("integer", 1, 1_000_000, "How long an answer may be."),
        "truncation" => json!({
            "enum": ["auto", "disabled", null],
            "description": "Whether a history that is too long loses its oldest part, or the turn fails.",
        }),
        "request_timeout" => number("number", 1, 3_600, "Seconds that one call of the model may take."),
        "parallel_tool_calls" => {
            json!({"type": ["boolean", "null"], "description": "Whether the model may call several tools at once."})
        }
        "max_tool_iterations" => number("integer", 1, 100, "How often tools run and the model is asked again."),
        "max_input_chars" => number("integer", 1, 1_000_000, "The longest message of a user, in characters."),
        "history_max_messages" => number("integer", 0, 10_000, "How many earlier messages the model is reminded of."),
        "history_max_chars" => number("integer", 0, 10_000_000, "How many characters these may have altogether."),
        "expose_raw_responses" => {
            json!({"type": ["boolean", "null"], "description": "Whether answers of `/api/agent/execute` show the response itself as `RawResponseJson`."})
        }
        "metadata_max_bytes" => number("integer", 2, 1_048_576, "The largest metadata of a request, in bytes."),
        "safety_salt" => text_or_null("What users are hashed with before an upstream hears of them; shown as `***`."),
        other => text_or_null(other),
    }
}

fn settings() -> Map<String, Value> {
    Settings::KEYS.iter().map(|(name, _)| ((*name).to_owned(), setting(name))).collect()
}

fn config() -> Value {
    let mut properties = settings();
    let sourced = object(
        "A value, and whose word it is.",
        &["value", "origin"],
        json!({
            "value": {"description": "What counts; secrets as `***`."},
            "origin": {"enum": ["default", "settings", "config", "profile"]},
        }),
    );
    let named = ["api_key"].into_iter().chain(Settings::KEYS.iter().map(|(name, _)| *name));
    let resolved: Map<String, Value> = named.map(|name| (name.to_owned(), sourced.clone())).collect();
    let names: Vec<&str> = resolved.keys().map(String::as_str).collect();
    let resolved = object("What counts for a turn without a profile.", &names, json!(resolved));
    for (name, shape) in [
        ("tenant_id", json!({"type": "integer", "minimum": 1})),
        ("object", json!({"const": "agent_config"})),
        (
            "has_api_key",
            json!({"type": "boolean", "description": "Whether the tenant has a key of its own for its upstream."}),
        ),
        (
            "revision",
            json!({"type": "integer", "minimum": 0, "description": "Grows with every change; 0 where nothing was ever set."}),
        ),
        ("updated_at", json!({"type": ["integer", "null"], "description": "Seconds since 1970."})),
        ("resolved", resolved),
    ] {
        properties.insert(name.to_owned(), shape);
    }
    let required: Vec<&str> = properties.keys().map(String::as_str).collect();
    object("What a tenant has set about its assistant.", &required, json!(properties))
}

fn change_config() -> Value {
    let mut properties = settings();
    properties.insert(
        "api_key".to_owned(),
        text_or_null("The tenant's own key for its upstream. Kept sealed, and never shown."),
    );
    // What comes from forms is text: numbers and truths are read from it too.
    for shape in properties.values_mut() {
        let kinds = shape.get_mut("type").and_then(Value::as_array_mut);
        if let Some(kinds) = kinds.filter(|kinds| !kinds.contains(&json!("string"))) {
            kinds.push(json!("string"));
        }
    }
    let mut schema = object("Settings to be set; null unsets.", &[], json!(properties));
    schema["additionalProperties"] = json!(false);
    schema
}

fn profile() -> Value {
    object(
        "Who an assistant is for one purpose.",
        &[
            "slug",
            "object",
            "prompt",
            "tools",
            "model",
            "tool_choice",
            "active",
            "version",
            "prompt_hash",
            "unknown_tools",
            "created_at",
            "updated_at",
        ],
        json!({
            "slug": text("What callers ask for; unique in its tenant."),
            "object": {"const": "profile"},
            "prompt": text("What it is told to be, after the tenant's own words."),
            "tools": {"type": "array", "items": {"type": "string"}, "description": "The names of its tools."},
            "model": text_or_null("The model that it wants, instead of the tenant's."),
            "tool_choice": text_or_null("The tool that the model has to call first in each turn."),
            "active": {"type": "boolean", "description": "Whether it may be asked for."},
            "version": {"type": "integer", "minimum": 1, "description": "Grows with every change."},
            "prompt_hash": text("SHA-256 of the whole prompt, with the tenant's own words as they are now; what answers show as `prompt.hash`."),
            "unknown_tools": {"type": "array", "items": {"type": "string"}, "description": "Tools that no bank has; they are left out of turns."},
            "created_at": {"type": "integer", "description": "Seconds since 1970."},
            "updated_at": {"type": "integer", "description": "Seconds since 1970."},
        }),
    )
}

fn put_profile() -> Value {
    let ignored = || json!({"description": "Changes nothing."});
    let mut schema = object(
        "A profile to be kept. Null counts as not said.",
        &[],
        json!({
            "slug": text_or_null("The slug in the path, if it is said again."),
            "prompt": {"type": ["string", "null"], "maxLength": 100_000, "description": "What it is told to be."},
            "tools": {"type": ["array", "null"], "maxItems": 128, "items": {"type": "string"}, "description": "The names of its tools, in order."},
            "tool_choice": {"type": ["string", "null"], "maxLength": 64, "description": "The tool that the model has to call first in each turn that offers it."},
            "model": {"type": ["string", "null"], "maxLength": 200, "description": "The model that it wants, instead of the tenant's."},
            "active": {"type": ["boolean", "null"], "default": true, "description": "Whether it may be asked for."},
            "object": ignored(),
            "version": ignored(),
            "prompt_hash": ignored(),
            "unknown_tools": ignored(),
            "created_at": ignored(),
            "updated_at": ignored(),
        }),
    );
    schema["additionalProperties"] = json!(false);
    schema
}

fn diff() -> Value {
    let names = |what: &str| json!({"type": "array", "items": {"type": "string"}, "description": what});
    object(
        "What a version of a profile changed.",
        &[
            "object",
            "slug",
            "version",
            "against",
            "prompt",
            "tools_added",
            "tools_removed",
            "model",
            "tool_choice",
            "active",
        ],
        json!({
            "object": {"const": "profile.diff"},
            "slug": text("The profile."),
            "version": {"type": "integer"},
            "against": {"type": ["integer", "null"], "description": "The version that it is compared with; null before the first."},
            "prompt": {
                "type": "array",
                "description": "The lines of both prompts.",
                "items": object("A line.", &["change", "line"], json!({
                    "change": {"enum": ["same", "removed", "added"]},
                    "line": text("Its text."),
                })),
            },
            "tools_added": names("Tools that only this version has."),
            "tools_removed": names("Tools that only the other one has."),
            "tool_choice": object("The tool that has to be called first.", &["before", "after"], json!({
                "before": text_or_null("In the version before."),
                "after": text_or_null("In this version."),
            })),
            "model": object("The model.", &["before", "after"], json!({
                "before": text_or_null("In the other one."),
                "after": text_or_null("In this one."),
            })),
            "active": object("Whether it may be asked for.", &["before", "after"], json!({
                "before": {"type": ["boolean", "null"]},
                "after": {"type": "boolean"},
            })),
        }),
    )
}

fn session(more_required: &[&str], more: Map<String, Value>) -> Value {
    let required = ["id", "object", "user", "profile", "status", "message_count", "created_at", "updated_at"];
    let mut schema = object(
        "A thread of one user with one profile.",
        &[&required, more_required].concat(),
        json!({
            "id": {"type": "integer", "minimum": 1},
            "object": {"const": "session"},
            "user": text("Whose it is."),
            "profile": text_or_null("The profile; null where none was found."),
            "status": {"enum": ["active", "closed"]},
            "message_count": {"type": "integer", "minimum": 0},
            "created_at": {"type": "integer", "description": "Seconds since 1970."},
            "updated_at": {"type": "integer", "description": "Seconds since 1970."},
        }),
    );
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.extend(more);
    }
    schema
}

fn session_with_messages() -> Value {
    let id = || json!({"type": ["integer", "null"]});
    let more = [
        ("messages", list_of("SessionMessage")),
        ("first_id", id()),
        ("last_id", id()),
        ("has_more", json!({"type": "boolean", "description": "Whether there are older messages."})),
    ];
    let names = more.each_ref().map(|(name, _)| *name);
    session(&names, more.into_iter().map(|(name, shape)| (name.to_owned(), shape)).collect())
}

fn message() -> Value {
    object(
        "Something said in a thread.",
        &["id", "object", "role", "content", "response_id", "created_at", "metadata"],
        json!({
            "id": {"type": "integer", "minimum": 1},
            "object": {"const": "session.message"},
            "role": {"enum": ["user", "assistant", "system"]},
            "content": text("What was said."),
            "response_id": text_or_null("The turn that it belongs to."),
            "created_at": {"type": "integer", "description": "Seconds since 1970."},
            "metadata": {
                "type": "array",
                "items": object("Something known about a message.", &["kind", "value"], json!({
                    "kind": {"enum": ["system_prompt", "context", "model_usage", "tool_call", "error"]},
                    "value": {"type": "object"},
                })),
            },
        }),
    )
}

fn diagnosis() -> Value {
    let truth = |what: &str| json!({"type": "boolean", "description": what});
    let or_null = |mut schema: Value| {
        schema["type"] = json!(["object", "null"]);
        schema
    };
    let agent = object(
        "The profile; null where none was named.",
        &["slug", "exists", "active"],
        json!({"slug": text("Its slug."), "exists": truth("Whether the tenant has it."), "active": truth("Whether it may be asked for.")}),
    );
    let tool = object(
        "The tool; null where none was named.",
        &["name", "in_bank", "active", "assigned", "handler_registered"],
        json!({
            "name": text("Its name."),
            "in_bank": truth("Whether the tenant's bank or the common one has it."),
            "active": truth("Whether it may be used."),
            "assigned": {"type": ["boolean", "null"], "description": "Whether the profile has it; null without a profile."},
            "handler_registered": truth("Whether something here can run it."),
        }),
    );
    object(
        "What was found.",
        &["object", "agent", "tool", "key", "model", "feature_enabled", "verdict"],
        json!({
            "object": {"const": "diagnosis"},
            "agent": or_null(agent),
            "tool": or_null(tool),
            "key": object("The key for the upstream.", &["configured", "origin"], json!({
                "configured": truth("Whether there is one that can be used."),
                "origin": {"enum": ["config", "settings", "upstream", null], "description": "The tenant's, the installation's, or the one that the upstream is configured with."},
            })),
            "model": object("The model that would be asked.", &["name", "known"], json!({
                "name": text("Its name."),
                "known": truth("Whether an upstream answers to it."),
            })),
            "feature_enabled": truth("Whether the tenant has an assistant at all."),
            "verdict": {"type": "array", "minItems": 1, "items": {"type": "string"}, "description": "What is wrong, and what to do about it."},
        }),
    )
}
