//! `/api/agent`: the strict turn contract.

use serde_json::{Value, json};

use super::{super::schemas::reference, parameter};

const EXECUTE: &str = "Strict turns";
const NOT_NOW: &str = "The server has no room, is about to end, or cannot reach its store; send the same again.";
const NO_SESSION: &str = "No such session or turn, or somebody else's.";

/// `POST /api/agent/execute`
pub(crate) fn execute_turn() -> Value {
    json!({
        "operationId": "executeTurn",
        "tags": [EXECUTE],
        "summary": "Send a user turn, or the results of tools",
        "description": "Which of the two it is follows from the fields: with `ToolResults` it goes on with a turn that \
            waits for them. The same submission sent again is answered with the same result, without another call of a model. \
            A turn that was taken and failed is answered with status 200 and `Kind` `error`; it may be sent again under its \
            `TurnId`. With `Streaming` (user turns) or by `Accept` (results) the answer comes as server-sent events, or as \
            lines for `Accept: application/x-ndjson`; the last event is `turn.result`.",
        "parameters": [parameter("RequestId")],
        "requestBody": {
            "required": true,
            "content": {"application/json": {
                "schema": {"anyOf": [reference("AgentUserTurn"), reference("AgentToolContinuation")]},
                "example": {"SessionId": "sess_AM-…", "TurnId": "turn-1", "Instruction": "What does `main` do?"},
            }},
        },
        "responses": failures(
            json!({"200": {
                "description": "The answer.",
                "content": {
                    "application/json": {"schema": reference("AgentExecuteResponse")},
                    "text/event-stream": {"schema": {"type": "string"}},
                    "application/x-ndjson": {"schema": {"type": "string"}},
                },
            }}),
            &[
                ("400", "Fields are wrong; every one of them is told."),
                ("404", NO_SESSION),
                ("408", "The body did not arrive in time."),
                ("409", "The turn was begun with something else, waits for no results or for others, or another turn runs."),
                ("413", "The body is too large."),
                ("415", "The body is not declared as JSON."),
                ("429", "There is no room for this turn now."),
                ("503", NOT_NOW),
                ("504", "The first submission is not done yet."),
            ],
        ),
    })
}

/// `POST /api/agent/sessions`
pub(crate) fn open_agent_session() -> Value {
    json!({
        "operationId": "openAgentSession",
        "tags": [EXECUTE],
        "summary": "Open a session",
        "parameters": [parameter("RequestId")],
        "requestBody": {
            "required": false,
            "content": {"application/json": {"schema": reference("NewAgentSession"), "example": {"Mode": "QA"}}},
        },
        "responses": failures(
            told("The session.", "AgentSession"),
            &[
                ("400", "Fields are wrong; every one of them is told."),
                ("408", "The body did not arrive in time."),
                ("413", "The body is too large."),
                ("415", "The body is not declared as JSON."),
                ("503", NOT_NOW),
            ],
        ),
    })
}

/// `GET /api/agent/sessions`
pub(crate) fn list_agent_sessions() -> Value {
    json!({
        "operationId": "listAgentSessions",
        "tags": [EXECUTE],
        "summary": "List the caller's sessions, the newest first",
        "parameters": [limit(), query("after", "string", "The `SessionId` behind which the page begins."), parameter("RequestId")],
        "responses": failures(told("A page.", "AgentSessionList"), &[("400", "A parameter is wrong."), ("503", NOT_NOW)]),
    })
}

/// `GET /api/agent/sessions/{session_id}`
pub(crate) fn get_agent_session() -> Value {
    json!({
        "operationId": "getAgentSession",
        "tags": [EXECUTE],
        "summary": "Show a session with the history of its mode",
        "parameters": [path("session_id"), parameter("RequestId")],
        "responses": failures(told("The session.", "AgentSession"), &[("404", NO_SESSION), ("503", NOT_NOW)]),
    })
}

/// `DELETE /api/agent/sessions/{session_id}`
pub(crate) fn delete_agent_session() -> Value {
    json!({
        "operationId": "deleteAgentSession",
        "tags": [EXECUTE],
        "summary": "Forget a session and everything that was said in it",
        "parameters": [path("session_id"), parameter("RequestId")],
        "responses": failures(told("It is gone.", "DeletedAgentSession"), &[("404", NO_SESSION), ("503", NOT_NOW)]),
    })
}

/// `GET /api/agent/sessions/{session_id}/turns`
pub(crate) fn list_agent_turns() -> Value {
    json!({
        "operationId": "listAgentTurns",
        "tags": [EXECUTE],
        "summary": "List the turns of a session, the newest first",
        "parameters": [
            path("session_id"),
            limit(),
            query("before", "integer", "The `Number` before which the page begins."),
            parameter("RequestId"),
        ],
        "responses": failures(
            told("A page.", "AgentTurnList"),
            &[("400", "A parameter is wrong."), ("404", NO_SESSION), ("503", NOT_NOW)],
        ),
    })
}

/// `GET /api/agent/sessions/{session_id}/turns/{turn_id}`
pub(crate) fn get_agent_turn() -> Value {
    json!({
        "operationId": "getAgentTurn",
        "tags": [EXECUTE],
        "summary": "Show a turn with its answer",
        "parameters": [path("session_id"), path("turn_id"), parameter("RequestId")],
        "responses": failures(told("The turn.", "AgentTurn"), &[("404", NO_SESSION), ("503", NOT_NOW)]),
    })
}

fn told(description: &str, schema: &str) -> Value {
    json!({"200": {"description": description, "content": {"application/json": {"schema": reference(schema)}}}})
}

fn path(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
}

fn query(name: &str, kind: &str, description: &str) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": {"type": kind}})
}

fn limit() -> Value {
    json!({"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}})
}

/// The answers of a route: what it gives, and every refusal, in the shape of this door.
fn failures(mut responses: Value, others: &[(&str, &str)]) -> Value {
    let all = others.iter().chain(&[
        ("401", "No key, or an unknown one."),
        ("403", "The key may not do this, or acts for one user and names another."),
        ("500", "A mistake of the server's own."),
    ]);
    for (status, description) in all {
        responses[*status] = json!({
            "description": description,
            "content": {"application/json": {"schema": reference("AgentRefusal")}},
        });
    }
    responses
}
