//! What the assistant takes and gives.

use serde_json::{Value, json};

use super::{Schemas, object, reference, text, text_or_null};

pub(super) fn schemas() -> Schemas {
    vec![
        ("Respond", respond()),
        ("AssistantAnswer", answer()),
        ("ToolResult", result()),
        ("AssistantHealth", health()),
        ("ThreadList", page("Thread")),
        ("Thread", thread()),
        ("ThreadMessageList", page("ThreadMessage")),
        ("ThreadMessage", message()),
        ("CourseRecommendations", recommendations()),
        ("RecommendedCourse", course()),
        (
            "FieldErrors",
            json!({
                "type": "object",
                "description": "What is wrong with each field; `detail` where it is no field's fault.",
                "additionalProperties": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]},
            }),
        ),
        ("Detail", object("What went wrong.", &["detail"], json!({"detail": text("For people.")}))),
    ]
}

fn respond() -> Value {
    object(
        "A message to the assistant.",
        &["message"],
        json!({
            "agent": {"type": ["string", "null"], "maxLength": 100, "description": "The profile. One that is not there counts as none."},
            "message": {"type": "string", "minLength": 1},
            "metadata": {
                "type": ["object", "null"],
                "properties": {"course_id": {"type": ["integer", "string"], "description": "The course on the screen."}},
                "additionalProperties": false,
            },
        }),
    )
}

fn prompt() -> Value {
    object(
        "What the assistant was told.",
        &["version", "hash"],
        json!({"version": text("As it is configured."), "hash": text("SHA-256 of what is configured, in hexadecimal.")}),
    )
}

fn prompt_of_an_answer() -> Value {
    let mut prompt = prompt();
    prompt["properties"]["profile_version"] = json!({
        "type": "integer", "minimum": 1, "description": "The version of the profile that answered; absent without a profile.",
    });
    prompt
}

fn answer() -> Value {
    object(
        "What the assistant says.",
        &["session_id", "user_message_id", "assistant_message_id", "message", "model", "response_id", "prompt"],
        json!({
            "session_id": {"type": "integer"},
            "user_message_id": {"type": "integer"},
            "assistant_message_id": {"type": "integer"},
            "incomplete_details": {
                "type": "object",
                "description": "Only where a limit ended the answer: which one, as `reason`.",
                "properties": {"reason": {"type": "string"}},
            },
            "message": text("The answer."),
            "model": text("The model that was asked for."),
            "response_id": text("The provider's id of its last answer."),
            "prompt": prompt_of_an_answer(),
            "tool_results": {
                "type": "array",
                "description": "What tools gave, in order. Absent when none ran.",
                "items": reference("ToolResult"),
            },
        }),
    )
}

fn result() -> Value {
    object(
        "What a tool gave.",
        &["id", "name", "output"],
        json!({
            "id": text("The provider's id of the call."),
            "name": text("The tool."),
            "output": {"type": "object", "description": "With `error` when it went wrong."},
        }),
    )
}

fn health() -> Value {
    object(
        "How the assistant stands.",
        &["ok", "checked", "model", "prompt", "feature_enabled", "model_id"],
        json!({
            "ok": {"type": "boolean"},
            "checked": {"type": "boolean", "description": "Whether the provider was asked."},
            "model": text("The model that is configured."),
            "prompt": prompt(),
            "feature_enabled": {"type": "boolean"},
            "model_id": text_or_null("What the provider calls it."),
            "error": text("What is wrong; absent when nothing is."),
        }),
    )
}

fn page(of: &str) -> Value {
    object(
        "One page.",
        &["next", "results"],
        json!({
            "next": {"type": ["integer", "null"], "description": "What to give as `after` for the next page."},
            "results": {"type": "array", "items": reference(of)},
        }),
    )
}

fn thread() -> Value {
    object(
        "A thread with one agent.",
        &["id", "agent", "status", "message_count", "created_at", "updated_at"],
        json!({
            "id": {"type": "integer"},
            "agent": text_or_null("The profile."),
            "status": {"enum": ["active", "closed"]},
            "message_count": {"type": "integer"},
            "created_at": {"type": "integer"},
            "updated_at": {"type": "integer"},
        }),
    )
}

fn message() -> Value {
    object(
        "Something said.",
        &["id", "role", "message", "created_at"],
        json!({
            "id": {"type": "integer"},
            "role": {"enum": ["user", "assistant", "system"]},
            "message": text("What was said."),
            "created_at": {"type": "integer"},
        }),
    )
}

fn recommendations() -> Value {
    object(
        "One page of what was found.",
        &["count", "next", "previous", "results"],
        json!({
            "count": {"type": "integer"},
            "next": text_or_null("Where the next page is."),
            "previous": text_or_null("Where the page before is."),
            "results": {"type": "array", "items": reference("RecommendedCourse")},
        }),
    )
}

fn course() -> Value {
    object(
        "A course.",
        &["id", "title", "description", "url", "type", "status", "progress", "is_eligible", "in_playlist"],
        json!({
            "id": {"type": "integer"},
            "title": text("Its title."),
            "description": text("What it is about."),
            "url": text_or_null("Where it is."),
            "type": text("Such as `Course`."),
            "status": text_or_null("Where the learner is with it."),
            "progress": {"type": "integer"},
            "is_eligible": {"type": "boolean"},
            "in_playlist": {"type": "boolean"},
        }),
    )
}
