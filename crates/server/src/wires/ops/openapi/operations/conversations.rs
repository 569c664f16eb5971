//! `/v1/conversations`

use serde_json::{Value, json};

use super::{super::schemas::reference, parameter, success, with_failures};

/// `POST /v1/conversations`
pub(crate) fn create_conversation() -> Value {
    json!({
        "operationId": "createConversation",
        "tags": ["Conversations"],
        "summary": "Begin a conversation",
        "parameters": [parameter("IdempotencyKey"), parameter("RequestId")],
        "requestBody": body(
            "CreateConversation",
            json!({"metadata": {"topic": "demo"}, "items": [{"role": "user", "content": "Hello!"}]}),
            false,
        ),
        "responses": with_failures(
            json!({"200": success("The conversation.", "Conversation")}),
            &[("400", WRONG), ("408", LATE), ("413", LARGE), ("415", UNDECLARED), ("422", TWICE)],
        ),
    })
}

/// `GET /v1/conversations/{id}`
pub(crate) fn get_conversation() -> Value {
    json!({
        "operationId": "getConversation",
        "tags": ["Conversations"],
        "summary": "Get a conversation",
        "parameters": [parameter("ConversationId"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The conversation.", "Conversation")}),
            &[("400", STATELESS), ("404", NONE)],
        ),
    })
}

/// `POST /v1/conversations/{id}`
pub(crate) fn update_conversation() -> Value {
    json!({
        "operationId": "updateConversation",
        "tags": ["Conversations"],
        "summary": "Set a conversation's metadata",
        "parameters": [parameter("ConversationId"), parameter("RequestId")],
        "requestBody": body("UpdateConversation", json!({"metadata": {"topic": "other"}}), true),
        "responses": with_failures(
            json!({"200": success("The conversation.", "Conversation")}),
            &[("400", WRONG), ("404", NONE), ("408", LATE), ("413", LARGE), ("415", UNDECLARED)],
        ),
    })
}

/// `DELETE /v1/conversations/{id}`
pub(crate) fn delete_conversation() -> Value {
    json!({
        "operationId": "deleteConversation",
        "tags": ["Conversations"],
        "summary": "Forget a conversation and its items",
        "parameters": [parameter("ConversationId"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("It is gone.", "DeletedConversation")}),
            &[("400", STATELESS), ("404", NONE)],
        ),
    })
}

/// `GET /v1/conversations/{id}/items`
pub(crate) fn list_items() -> Value {
    json!({
        "operationId": "listConversationItems",
        "tags": ["Conversations"],
        "summary": "List a conversation's items",
        "parameters": [
            parameter("ConversationId"),
            parameter("Limit"),
            parameter("Order"),
            parameter("After"),
            parameter("Include"),
            parameter("RequestId"),
        ],
        "responses": with_failures(
            json!({"200": success("One page.", "ItemList")}),
            &[("400", "The query is wrong, or `after` is not in the list."), ("404", NONE)],
        ),
    })
}

/// `POST /v1/conversations/{id}/items`
pub(crate) fn add_items() -> Value {
    json!({
        "operationId": "addConversationItems",
        "tags": ["Conversations"],
        "summary": "Add items to a conversation",
        "description": "All of them or none.",
        "parameters": [parameter("ConversationId"), parameter("Include"), parameter("RequestId")],
        "requestBody": body("AddItems", json!({"items": [{"role": "user", "content": "And then?"}]}), true),
        "responses": with_failures(
            json!({"200": success("The items that were added.", "ItemList")}),
            &[("400", WRONG), ("404", NONE), ("408", LATE), ("413", LARGE), ("415", UNDECLARED)],
        ),
    })
}

/// `GET /v1/conversations/{id}/items/{item_id}`
pub(crate) fn get_item() -> Value {
    json!({
        "operationId": "getConversationItem",
        "tags": ["Conversations"],
        "summary": "Get one item",
        "parameters": [parameter("ConversationId"), item_id(), parameter("Include"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The item.", "KeptItem")}),
            &[("400", "The query is wrong."), ("404", NO_ITEM)],
        ),
    })
}

/// `DELETE /v1/conversations/{id}/items/{item_id}`
pub(crate) fn delete_item() -> Value {
    json!({
        "operationId": "deleteConversationItem",
        "tags": ["Conversations"],
        "summary": "Forget one item",
        "parameters": [parameter("ConversationId"), item_id(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The conversation without it.", "Conversation")}),
            &[("400", STATELESS), ("404", NO_ITEM)],
        ),
    })
}

fn body(schema: &str, example: Value, required: bool) -> Value {
    json!({
        "required": required,
        "content": {"application/json": {"schema": reference(schema), "example": example}},
    })
}

fn item_id() -> Value {
    json!({
        "name": "item_id",
        "in": "path",
        "required": true,
        "description": "The item.",
        "schema": {"type": "string"},
    })
}

const WRONG: &str = "The request is wrong, or the tenant keeps nothing. `param` names the field.";
const STATELESS: &str = "The tenant keeps nothing.";
const NONE: &str = "No such conversation, or not one of the caller's.";
const NO_ITEM: &str = "No such conversation or item, or not one of the caller's.";
const LATE: &str = "The body did not arrive in time.";
const LARGE: &str = "The body, or its images and files, are too large.";
const TWICE: &str = "The idempotency key was used with another body.";
const UNDECLARED: &str = "The body is not declared as JSON.";
