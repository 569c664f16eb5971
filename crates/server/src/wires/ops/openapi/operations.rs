//! What each route takes and gives. Models and operations here, the larger families in files of their own.

mod admin;
mod agents;
mod assistant;
mod bank;
mod conversations;
mod execute;
mod files;
mod knowledge;
mod modes;
mod responses;

use serde_json::{Value, json};

use super::schemas::reference;

pub(crate) use admin::{
    change_tenant, create_key, create_tenant, get_tenant, get_turn, list_keys, list_tenants, revoke_key,
};
pub(crate) use agents::{
    change_config, compare_profile_versions, delete_profile, diagnose, get_config, get_profile, get_session,
    list_profile_versions, list_profiles, list_sessions, put_profile,
};
pub(crate) use assistant::{
    assistant_health, list_thread_messages, list_threads, recommend_courses, respond, resume_answer,
};
pub(crate) use bank::{
    decide_approval, delete_tool, get_approval, get_tool, get_tool_statistics, get_tool_usage, list_approvals,
    list_tools, put_tool, try_tool,
};
pub(crate) use conversations::{
    add_items, create_conversation, delete_conversation, delete_item, get_conversation, get_item, list_items,
    update_conversation,
};
pub(crate) use execute::{
    delete_agent_session, execute_turn, get_agent_session, get_agent_turn, list_agent_sessions, list_agent_turns,
    open_agent_session,
};
pub(crate) use files::{delete_file, get_file, get_file_content, list_files, upload_file};
pub(crate) use knowledge::{delete_knowledge, get_knowledge, list_knowledge, list_knowledge_documents};
pub(crate) use modes::{delete_mode, get_mode, list_modes, put_mode};
pub(crate) use responses::{
    cancel_response, compact_response, count_input_tokens, create_response, delete_response, get_response,
    list_input_items, open_socket,
};

/// `GET /v1/models`
pub(crate) fn list_models() -> Value {
    json!({
        "operationId": "listModels",
        "tags": ["Models"],
        "summary": "List what can be asked",
        "parameters": [parameter("RequestId")],
        "responses": {
            "200": success("Configured names first, then what the upstreams list, then the tenant's profiles.", "ModelList"),
            "401": failure("401", "No key, or an unknown one."),
            "503": failure("503", "The store cannot be used now."),
        },
    })
}

/// `GET /v1/models/{id}`
pub(crate) fn get_model() -> Value {
    json!({
        "operationId": "getModel",
        "tags": ["Models"],
        "summary": "Show one model and what it can do",
        "parameters": [
            {
                "name": "id",
                "in": "path",
                "required": true,
                "description": "A configured name, `UPSTREAM/model`, a name that an upstream lists, or the slug of a profile. May hold slashes.",
                "schema": {"type": "string"},
                "example": "demo",
            },
            parameter("RequestId"),
        ],
        "responses": {
            "200": success("The model.", "Model"),
            "401": failure("401", "No key, or an unknown one."),
            "404": failure("404", "No such model."),
            "503": failure("503", "The store cannot be used now."),
        },
    })
}

/// `GET /healthz`
pub(crate) fn health() -> Value {
    json!({
        "operationId": "health",
        "tags": ["Operations"],
        "summary": "Is the process alive?",
        "responses": {"200": success("It is.", "Health")},
    })
}

/// `GET /readyz`
pub(crate) fn readiness() -> Value {
    json!({
        "operationId": "readiness",
        "tags": ["Operations"],
        "summary": "Should work be sent here?",
        "responses": {
            "200": success("It should.", "Readiness"),
            "503": success("It should not: the process is about to end.", "Readiness"),
        },
    })
}

/// `GET /openapi.json`
pub(crate) fn description() -> Value {
    json!({
        "operationId": "openapi",
        "tags": ["Operations"],
        "summary": "Get this document",
        "responses": {
            "200": {"description": "This document.", "content": {"application/json": {"schema": {"type": "object"}}}},
        },
    })
}

/// Parameters that several operations share.
pub(super) fn parameters() -> Value {
    json!({
        "Strict": {
            "name": "amalgam-strict",
            "in": "header",
            "description": "With `true`, whatever would be listed in `amalgam-losses` is a 400 instead.",
            "schema": {"type": "boolean", "default": false},
        },
        "IdempotencyKey": {
            "name": "idempotency-key",
            "in": "header",
            "description": "The same key with the same body is done once, and answered the same again.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        },
        "RequestId": {
            "name": "x-request-id",
            "in": "header",
            "description": "The caller's id for the request, up to 128 plain characters; comes back in the answer.",
            "schema": {"type": "string", "maxLength": 128},
        },
        "ResponseId": path_id("The response, by the id that it was created with."),
        "FileId": path_id("The file, by the id that it was uploaded as."),
        "ConversationId": path_id("The conversation, by the id that it was created with."),
        "Include": {
            "name": "include[]",
            "in": "query",
            "description": "`file_search_call.results` shows what searches have found. The other known names are accepted, and change nothing: what is kept is always sent.",
            "schema": {"type": "array", "items": {"type": "string"}},
        },
        "Limit": {
            "name": "limit",
            "in": "query",
            "description": "The most items of a page.",
            "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        },
        "Order": {
            "name": "order",
            "in": "query",
            "description": "Newest first, or oldest first.",
            "schema": {"enum": ["desc", "asc"], "default": "desc"},
        },
        "After": {
            "name": "after",
            "in": "query",
            "description": "Begin behind the item of this id: the `last_id` of the page before.",
            "schema": {"type": "string"},
        },
    })
}

/// Headers of answers.
pub(super) fn headers() -> Value {
    json!({
        "RequestId": {
            "description": "The id of the request: the caller's, or one made here.",
            "schema": {"type": "string"},
        },
        "ResponseId": {
            "description": "The server's own id of the response, on every route that runs a turn.",
            "schema": {"type": "string"},
            "example": "resp_AM-1760000000000-k3v9x2m7q1w8e5r4t6y0u2i4",
        },
        "Model": {
            "description": "`upstream/model` of the model that answers. Absent where no model had accepted when the head was \
                sent: the last event tells it in `amalgam.model`.",
            "schema": {"type": "string"},
            "example": "openai/gpt-4o-mini",
        },
        "Losses": {
            "description": "What the upstream does not see as it was sent: `field: reason`, joined with `; `. Absent \
                when everything was carried over.",
            "schema": {"type": "string"},
            "example": "tools[1]: `web_search` has no implementation here; truncation: this upstream does not shorten its input",
        },
        "RetryAfter": {
            "description": "Seconds after which another try makes sense, where that is known.",
            "schema": {"type": "integer", "minimum": 0},
        },
    })
}

/// What every route of a stored thing may answer besides its own.
fn with_failures(mut responses: Value, own: &[(&str, &str)]) -> Value {
    let common = [
        ("401", "No key, or an unknown one."),
        ("500", "A fault of this server."),
        ("503", "The store cannot be used now; nothing was changed."),
    ];
    for (status, description) in own.iter().chain(&common) {
        responses[*status] = failure(status, description);
    }
    responses
}

fn path_id(description: &str) -> Value {
    json!({"name": "id", "in": "path", "required": true, "description": description, "schema": {"type": "string"}})
}

fn success(description: &str, schema: &str) -> Value {
    json!({"description": description, "content": {"application/json": {"schema": reference(schema)}}})
}

fn failure(status: &str, description: &str) -> Value {
    let mut headers = json!({"x-request-id": header("RequestId")});
    if matches!(status, "429" | "502" | "503") {
        headers["retry-after"] = header("RetryAfter");
    }
    json!({
        "description": description,
        "headers": headers,
        "content": {"application/json": {"schema": reference("ErrorEnvelope")}},
    })
}

fn parameter(name: &str) -> Value {
    json!({"$ref": format!("#/components/parameters/{name}")})
}

fn header(name: &str) -> Value {
    json!({"$ref": format!("#/components/headers/{name}")})
}
