//! What each route takes and gives.

use serde_json::{Value, json};

use super::{examples, schemas::reference};

/// `POST /v1/responses`
pub(crate) fn create_response() -> Value {
    let mut responses = json!({
        "200": {
            "description": "The response; with `stream: true` its events. Each event is one frame: a line `event:` with \
                the name, a line `data:` with the JSON object, an empty line. The last frame is `data: [DONE]`. \
                A failure after the first byte is told by the events `error` and `response.failed`.",
            "headers": {
                "x-request-id": header("RequestId"),
                "amalgam-losses": header("Losses"),
            },
            "content": {
                "application/json": {"schema": reference("Response"), "examples": examples::responses()},
                "text/event-stream": {"schema": reference("StreamEvent"), "examples": examples::stream()},
            },
        },
    });
    for (status, description) in [
        ("400", "The request is wrong, the upstream refused it, or strict mode met a loss. `param` names the field."),
        ("401", "No key, or an unknown one."),
        ("404", "No such model."),
        ("408", "The body did not arrive in time."),
        ("413", "The body, or its images and files, are too large."),
        ("415", "The body is not declared as JSON."),
        ("429", "The server or the upstream is busy, or the upstream's quota is used up."),
        ("500", "A fault of this server."),
        ("502", "The upstream failed, cannot be reached, or refuses the operator's key."),
        ("503", "The server is stopping, or the upstream says when to come back."),
        ("504", "The upstream was silent for too long, or the turn took longer than allowed."),
    ] {
        responses[status] = failure(status, description);
    }
    json!({
        "operationId": "createResponse",
        "tags": ["Responses"],
        "summary": "Ask a model",
        "parameters": [parameter("Strict"), parameter("RequestId")],
        "requestBody": {
            "required": true,
            "content": {"application/json": {"schema": reference("CreateResponse"), "examples": examples::requests()}},
        },
        "responses": responses,
    })
}

/// `GET /v1/models`
pub(crate) fn list_models() -> Value {
    json!({
        "operationId": "listModels",
        "tags": ["Models"],
        "summary": "List what can be asked",
        "parameters": [parameter("RequestId")],
        "responses": {
            "200": success("Configured names first, then what the upstreams list.", "ModelList"),
            "401": failure("401", "No key, or an unknown one."),
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
                "description": "A configured name, `UPSTREAM/model`, or a name that an upstream lists. May hold slashes.",
                "schema": {"type": "string"},
                "example": "demo",
            },
            parameter("RequestId"),
        ],
        "responses": {
            "200": success("The model.", "Model"),
            "401": failure("401", "No key, or an unknown one."),
            "404": failure("404", "No such model."),
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
        "RequestId": {
            "name": "x-request-id",
            "in": "header",
            "description": "The caller's id for the request, up to 128 plain characters; comes back in the answer.",
            "schema": {"type": "string", "maxLength": 128},
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
