//! `/api/v2`: the tenant's assistant.

use serde_json::{Value, json};

use super::{super::schemas::reference, parameter, success};

const ASSISTANT: &str = "Assistant";
const NOT_NOW: &str = "No key is configured, the model cannot be reached, or the server has no room.";

/// `POST /api/v2/ai-agent/respond/`
pub(crate) fn respond() -> Value {
    json!({
        "operationId": "respond",
        "tags": [ASSISTANT],
        "summary": "Say something to the assistant",
        "description": "Answers in the caller's active thread with the agent that was asked for. With \
            `Accept: text/event-stream` the answer comes as events: `message.delta`, `tool_call`, `tool_result`, and at \
            last `done` with the same body. The header `amalgam-response-id` says where such a stream can be picked up.",
        "parameters": [parameter("IdempotencyKey"), parameter("RequestId")],
        "requestBody": {
            "required": true,
            "content": {"application/json": {
                "schema": reference("Respond"),
                "example": {"agent": "home-assistant", "message": "Which course helps me to lead a team?"},
            }},
        },
        "responses": failures(
            json!({"200": {
                "description": "The answer.",
                "content": {
                    "application/json": {"schema": reference("AssistantAnswer")},
                    "text/event-stream": {"schema": {"type": "string"}},
                },
            }}),
            &[
                ("403", "The assistant is switched off for this tenant."),
                ("408", "The body did not arrive in time."),
                ("413", "The body is too large."),
                ("415", "The body is not declared as JSON."),
                ("422", "The key was used with another body."),
                ("503", NOT_NOW),
            ],
            true,
        ),
    })
}

/// `GET /api/v2/ai-agent/respond/{response_id}/`
pub(crate) fn resume_answer() -> Value {
    let after = json!({
        "name": "starting_after",
        "in": "query",
        "description": "The id of the last event that was seen; the header `last-event-id` says the same.",
        "schema": {"type": "integer", "minimum": 0},
    });
    json!({
        "operationId": "resumeAnswer",
        "tags": [ASSISTANT],
        "summary": "Pick up the stream of an answer",
        "parameters": [path_parameter("response_id", "string"), after, parameter("RequestId")],
        "responses": failures(
            json!({"200": {
                "description": "The events behind that one; of an answer whose events are not kept, `done` alone.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            }}),
            &[("404", "No such answer, or somebody else's."), ("503", NOT_NOW)],
            true,
        ),
    })
}

/// `GET /api/v2/ai-agent/health/`
pub(crate) fn assistant_health() -> Value {
    json!({
        "operationId": "assistantHealth",
        "tags": [ASSISTANT],
        "summary": "Would the assistant answer?",
        "description": "The model is asked for at most every ten seconds.",
        "parameters": [parameter("RequestId")],
        "responses": failures(
            json!({
                "200": success("It would.", "AssistantHealth"),
                "503": success("It would not.", "AssistantHealth"),
            }),
            &[],
            false,
        ),
    })
}

/// `GET /api/v2/ai-agent/sessions/`
pub(crate) fn list_threads() -> Value {
    json!({
        "operationId": "listThreads",
        "tags": [ASSISTANT],
        "summary": "List the caller's own threads",
        "parameters": [parameter("Limit"), after(), parameter("RequestId")],
        "responses": failures(
            json!({"200": success("One page, the newest first.", "ThreadList")}),
            &[("503", NOT_NOW)],
            true,
        ),
    })
}

/// `GET /api/v2/ai-agent/sessions/{session_id}/messages/`
pub(crate) fn list_thread_messages() -> Value {
    json!({
        "operationId": "listThreadMessages",
        "tags": [ASSISTANT],
        "summary": "List the messages of one of the caller's own threads",
        "parameters": [path_parameter("session_id", "integer"), parameter("Limit"), after(), parameter("RequestId")],
        "responses": failures(
            json!({"200": success("One page, the newest first.", "ThreadMessageList")}),
            &[("404", "No such thread, or somebody else's."), ("503", NOT_NOW)],
            true,
        ),
    })
}

/// `GET /api/v2/course-recommendations/`
pub(crate) fn recommend_courses() -> Value {
    let number = |name: &str, description: &str| {
        json!({
            "name": name,
            "in": "query",
            "description": description,
            "schema": {"type": "integer", "minimum": 1},
        })
    };
    json!({
        "operationId": "recommendCourses",
        "tags": [ASSISTANT],
        "summary": "Search the catalogue",
        "parameters": [
            {"name": "q", "in": "query", "description": "What is looked for.", "schema": {"type": "string"}},
            number("page", "From 1."),
            number("page_size", "How many of them."),
            parameter("RequestId"),
        ],
        "responses": failures(
            json!({"200": success("One page, the best first.", "CourseRecommendations")}),
            &[("503", NOT_NOW)],
            true,
        ),
    })
}

fn after() -> Value {
    json!({
        "name": "after",
        "in": "query",
        "description": "The `next` of the page before.",
        "schema": {"type": "integer", "minimum": 0},
    })
}

fn path_parameter(name: &str, kind: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": kind}})
}

/// Errors of this door are maps of fields or have a `detail`.
fn failures(mut responses: Value, own: &[(&str, &str)], bodies: bool) -> Value {
    if bodies {
        responses["400"] = success("What is wrong, by field.", "FieldErrors");
    }
    for (status, description) in own.iter().chain(&[("401", "No key, or an unknown one.")]) {
        responses[*status] = success(description, "Detail");
    }
    responses
}
