//! `/v1/responses` and what is kept behind it.

use serde_json::{Value, json};

use super::{
    super::{examples, schemas::reference},
    failure, header, parameter, success, with_failures,
};

/// `POST /v1/responses`
pub(crate) fn create_response() -> Value {
    let mut responses = json!({
        "200": {
            "description": "The response; with `stream: true` its events. Each event is one frame: a line `event:` with \
                the name, a line `data:` with the JSON object, an empty line. The last frame is `data: [DONE]`. \
                A stream begins a second after its request at the latest, whether or not a model has accepted by then. \
                A failure after the first byte is told by the events `error` and `response.failed`.",
            "headers": {
                "x-request-id": header("RequestId"),
                "amalgam-response-id": header("ResponseId"),
                "amalgam-model": header("Model"),
                "amalgam-losses": header("Losses"),
            },
            "content": {
                "application/json": {"schema": reference("Response"), "examples": examples::responses()},
                "text/event-stream": {"schema": reference("StreamEvent"), "examples": examples::stream()},
            },
        },
    });
    for (status, description) in FAILURES {
        responses[status] = failure(status, description);
    }
    json!({
        "operationId": "createResponse",
        "tags": ["Responses"],
        "summary": "Ask a model",
        "parameters": [parameter("Strict"), parameter("IdempotencyKey"), parameter("RequestId")],
        "requestBody": {
            "required": true,
            "content": {"application/json": {"schema": reference("CreateResponse"), "examples": examples::requests()}},
        },
        "responses": responses,
    })
}

/// `POST /v1/responses/compact`
pub(crate) fn compact_response() -> Value {
    let mut responses = json!({
        "200": {
            "description": "What to go on from: instructions and the user's latest messages as they were sent, and behind \
                them one item that holds a sealed summary. Send all of it as the `input` of the next request, to any model.",
            "headers": {
                "x-request-id": header("RequestId"),
                "amalgam-response-id": header("ResponseId"),
                "amalgam-losses": header("Losses"),
            },
            "content": {"application/json": {"schema": reference("CompactedResponse")}},
        },
    });
    for (status, description) in FAILURES {
        responses[status] = failure(status, description);
    }
    json!({
        "operationId": "compactResponse",
        "tags": ["Responses"],
        "summary": "Sum a conversation up",
        "description": "The model is asked once, without tools, for a summary that it or another one can go on from. \
            Nothing is kept.",
        "parameters": [parameter("Strict"), parameter("IdempotencyKey"), parameter("RequestId")],
        "requestBody": {
            "required": true,
            "content": {"application/json": {
                "schema": reference("CompactResponse"),
                "example": {"model": "demo", "input": [
                    {"role": "user", "content": "Plan a party."},
                    {"role": "assistant", "content": "For how many people?"},
                    {"role": "user", "content": "Twelve, in the garden."},
                ]},
            }},
        },
        "responses": responses,
    })
}

/// `POST /v1/responses/input_tokens`
pub(crate) fn count_input_tokens() -> Value {
    json!({
        "operationId": "countInputTokens",
        "tags": ["Responses"],
        "summary": "Count what a request would say",
        "description": "Takes what creating a response takes. The count is made here, of what the upstream would be sent; \
            upstreams count in ways of their own, so that theirs may differ a little. No model is asked.",
        "parameters": [parameter("RequestId")],
        "requestBody": {
            "required": true,
            "content": {"application/json": {
                "schema": reference("CountInputTokens"),
                "example": {"model": "demo", "input": "How long is this?"},
            }},
        },
        "responses": with_failures(
            json!({"200": success("The count.", "InputTokens")}),
            &[
                ("400", "The request is wrong. `param` names the field."),
                ("404", "No such model."),
                ("408", "The body did not arrive in time."),
                ("413", "The body, or its images and files, are too large."),
                ("415", "The body is not declared as JSON."),
        ("422", "The idempotency key was used with another body."),
                ("429", "The server is busy."),
            ],
        ),
    })
}

/// `GET /v1/responses`
pub(crate) fn open_socket() -> Value {
    json!({
        "operationId": "openSocket",
        "tags": ["Responses"],
        "summary": "Open a WebSocket",
        "description": "Takes text messages `{\"type\": \"response.create\", …}` with the fields of `POST /v1/responses`; \
            `stream` and `stream_options` are ignored. Each event of the response is one text message. One response \
            runs at a time. With `generate: false` no model is asked, and the response can be continued. Responses \
            that are not stored can be continued on the same connection. A refused message is answered \
            `{\"type\": \"error\", \"status\": …, \"error\": {…}}`.",
        "parameters": [parameter("Strict"), parameter("RequestId")],
        "responses": {
            "101": {
                "description": "The connection is a WebSocket from here on.",
                "headers": {"x-request-id": header("RequestId")},
            },
            "400": failure("400", "The handshake is wrong."),
            "401": failure("401", "No key, or an unknown one."),
            "403": failure("403", "A page of another origin asks, without a key."),
            "426": failure("426", "No WebSocket was asked for, or not version 13."),
        },
    })
}

/// `GET /v1/responses/{id}`
pub(crate) fn get_response() -> Value {
    let query = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "query", "description": description, "schema": schema});
    json!({
        "operationId": "getResponse",
        "tags": ["Responses"],
        "summary": "Get a response that was kept",
        "parameters": [
            parameter("ResponseId"),
            query(
                "stream",
                "Whether its events are sent, those that were told before and those that come. They are kept for a while \
                    where the response was created with `stream: true`.",
                json!({"type": "boolean", "default": false}),
            ),
            query(
                "starting_after",
                "With `stream`: begin behind the event of this `sequence_number`.",
                json!({"type": "integer", "minimum": 0}),
            ),
            parameter("Include"),
            parameter("RequestId"),
        ],
        "responses": with_failures(
            json!({
                "200": {
                    "description": "The response as it was answered, or as it stands now; with `stream` its events.",
                    "headers": {"x-request-id": header("RequestId")},
                    "content": {
                        "application/json": {"schema": reference("Response")},
                        "text/event-stream": {"schema": reference("StreamEvent")},
                    },
                },
            }),
            &[("400", "The query is wrong, or no events are kept."), ("404", NONE)],
        ),
    })
}

/// `DELETE /v1/responses/{id}`
pub(crate) fn delete_response() -> Value {
    json!({
        "operationId": "deleteResponse",
        "tags": ["Responses"],
        "summary": "Forget a response",
        "parameters": [parameter("ResponseId"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("It is gone, and cannot be continued any more.", "DeletedResponse")}),
            &[("404", NONE)],
        ),
    })
}

/// `POST /v1/responses/{id}/cancel`
pub(crate) fn cancel_response() -> Value {
    json!({
        "operationId": "cancelResponse",
        "tags": ["Responses"],
        "summary": "Stop a background response",
        "description": "One that has ended stays as it is: asking twice is no mistake.",
        "parameters": [parameter("ResponseId"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The response as it stands now.", "Response")}),
            &[("400", "It does not run in the background."), ("404", NONE)],
        ),
    })
}

/// `GET /v1/responses/{id}/input_items`
pub(crate) fn list_input_items() -> Value {
    let before = json!({
        "name": "before",
        "in": "query",
        "description": "End before the item of this id.",
        "schema": {"type": "string"},
    });
    json!({
        "operationId": "listInputItems",
        "tags": ["Responses"],
        "summary": "List what the model was given",
        "description": "Items of the responses that it continues, then its own input. Every item has a type and an id, \
            and the content of a message is a list of parts.",
        "parameters": [
            parameter("ResponseId"),
            parameter("Limit"),
            parameter("Order"),
            parameter("After"),
            before,
            parameter("Include"),
            parameter("RequestId"),
        ],
        "responses": with_failures(
            json!({"200": success("One page.", "ItemList")}),
            &[("400", "The query is wrong, or `after` or `before` is not in the list."), ("404", NONE)],
        ),
    })
}

const NONE: &str = "No such response, or not one of the caller's.";

/// How asking a model goes wrong.
const FAILURES: [(&str, &str); 11] = [
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
];
