//! Requests that the conversations API accepts and refuses before it reads the store.

use amalgam_core::TenantState;
use http::Method;
use serde_json::{Value, json};

use crate::testing::{KEY, TestAnswer, ask, served};

async fn post(path: &str, body: &str) -> TestAnswer {
    ask(served(TenantState::Stored), &Method::POST, path, Some(KEY), body).await
}

/// Status, `param` and `code` of a refusal.
fn refusal(told: &TestAnswer) -> (u16, Option<&str>, Option<&str>) {
    let error = &told.body["error"];
    (told.status.as_u16(), error["param"].as_str(), error["code"].as_str())
}

fn messages(count: usize) -> Value {
    json!(vec![json!({"role": "user", "content": "x"}); count])
}

#[tokio::test]
async fn a_conversation_begins_with_nothing_or_with_everything() {
    let metadata: serde_json::Map<String, Value> =
        (0..16).map(|n| (format!("{n:>064}"), json!("é".repeat(512)))).collect();
    for body in [String::new(), "{}".to_owned(), json!({"items": null, "metadata": null}).to_string()] {
        let told = post("/v1/conversations", &body).await;
        assert_eq!(told.status, 200, "{}", told.body);
        let id = told.body["id"].as_str().unwrap();
        assert!(id.starts_with("conv_AM-") && id.len() == 32, "{id}");
        let expected = json!({"id": id, "object": "conversation", "created_at": 0, "metadata": {}});
        assert_eq!(told.body, expected);
    }
    let told = post("/v1/conversations", &json!({"items": messages(20), "metadata": {"a": "b"}}).to_string()).await;
    assert_eq!((told.status.as_u16(), &told.body["metadata"]), (200, &json!({"a": "b"})));
    let few: serde_json::Map<String, Value> = metadata.into_iter().take(3).collect();
    let told = post("/v1/conversations", &json!({"metadata": few}).to_string()).await;
    assert_eq!((told.status.as_u16(), &told.body["metadata"]), (200, &json!(few)));
}

#[tokio::test]
async fn what_is_wrong_with_a_conversation_is_named() {
    // C-28
    let many: serde_json::Map<String, Value> = (0..17).map(|n| (n.to_string(), json!("x"))).collect();
    let key = "k".repeat(65);
    let cases = [
        (json!({"items": messages(21)}), Some("items"), "array_above_max_length"),
        (json!({"items": "x"}), Some("items"), "invalid_type"),
        (json!({"items": [{"role": "user"}]}), Some("items[0].content"), "missing_required_parameter"),
        (
            json!({"items": [{"role": "user", "content": "x".repeat(1025)}]}),
            Some("items[0].content"),
            "string_above_max_length",
        ),
        (
            json!({"items": [{"id": "a", "role": "user", "content": "x"}, {"id": "a", "role": "user", "content": "y"}]}),
            Some("items[1].id"),
            "item_already_exists",
        ),
        (json!({"items": [{"id": "a\u{0}b", "role": "user", "content": "x"}]}), Some("items[0].id"), "invalid_value"),
        (json!({"items": [{"type": "item_reference", "id": "msg_1"}]}), Some("items[0]"), "item_not_found"),
        (json!({"items": [{"type": "item_reference", "id": "\u{0}"}]}), Some("items[0]"), "item_not_found"),
        (json!({"metadata": "x"}), Some("metadata"), "invalid_type"),
        (json!({"metadata": many}), Some("metadata"), "array_above_max_length"),
        (json!({"metadata": {key: "x"}}), Some("metadata"), "invalid_value"),
        (json!({"metadata": {"a": 1}}), Some("metadata.a"), "invalid_type"),
        (json!({"metadata": {"a": "é".repeat(513)}}), Some("metadata.a"), "invalid_value"),
        (json!([]), Some("body"), "invalid_type"),
    ];
    for (body, param, code) in cases {
        let told = post("/v1/conversations", &body.to_string()).await;
        assert_eq!(refusal(&told), (400, param, Some(code)), "{body}: {}", told.body);
    }
    let told = post("/v1/conversations", "{").await;
    assert_eq!(refusal(&told), (400, None, Some("invalid_json")));
    let told = post("/v1/conversations", &format!("{{\"x\":\"{}\"}}", "x".repeat(4200))).await;
    assert_eq!(refusal(&told), (413, None, Some("request_too_large")));
}

#[tokio::test]
async fn items_and_metadata_that_must_be_said_are_missed() {
    for (path, param) in [("/v1/conversations/conv_1", "metadata"), ("/v1/conversations/conv_1/items", "items")] {
        for body in ["", "{}"] {
            let told = post(path, body).await;
            assert_eq!(refusal(&told), (400, Some(param), Some("missing_required_parameter")), "{path}");
        }
    }
    let told = post("/v1/conversations/conv_1", r#"{"metadata":null}"#).await;
    assert_eq!(refusal(&told), (404, None, Some("not_found")), "null is a value here");
}

#[tokio::test]
async fn what_is_not_there_is_missing_by_name_also_under_ids_that_nothing_can_have() {
    let server = || served(TenantState::Stored);
    for (shown, id) in [("conv_1", "conv_1"), ("a\u{0}b", "a%00b"), ("", "%FF"), (&"x".repeat(200), &"x".repeat(3000))]
    {
        let told = ask(server(), &Method::GET, &format!("/v1/conversations/{id}"), Some(KEY), "").await;
        assert_eq!(refusal(&told), (404, None, Some("not_found")), "{id}");
        assert_eq!(told.body["error"]["message"], format!("Conversation with id '{shown}' not found."));
        let told = ask(server(), &Method::GET, &format!("/v1/responses/{id}"), Some(KEY), "").await;
        assert_eq!(refusal(&told), (404, None, Some("not_found")), "{id}");
        assert_eq!(told.body["error"]["message"], format!("Response with id '{shown}' not found."));
    }
}

#[tokio::test]
async fn a_tenant_that_keeps_nothing_has_no_conversations() {
    // C-17
    let items = json!({"items": messages(1)}).to_string();
    for (method, path, body) in [
        (Method::POST, "/v1/conversations", "{}"),
        (Method::GET, "/v1/conversations/conv_1", ""),
        (Method::POST, "/v1/conversations/conv_1", r#"{"metadata":{}}"#),
        (Method::DELETE, "/v1/conversations/conv_1", ""),
        (Method::GET, "/v1/conversations/conv_1/items", ""),
        (Method::POST, "/v1/conversations/conv_1/items", &items),
        (Method::GET, "/v1/conversations/conv_1/items/msg_1", ""),
        (Method::DELETE, "/v1/conversations/conv_1/items/msg_1", ""),
    ] {
        let told = ask(served(TenantState::Stateless), &method, path, Some(KEY), body).await;
        assert_eq!(refusal(&told), (400, Some("conversation"), Some("unsupported_parameter")), "{method} {path}");
    }
    let told = ask(served(TenantState::Stateless), &Method::GET, "/v1/responses/resp_1", Some(KEY), "").await;
    assert_eq!(refusal(&told), (404, None, Some("not_found")));
}

#[tokio::test]
async fn a_query_is_checked_before_anything_is_looked_for() {
    for (path, param) in [
        ("/v1/conversations/conv_1/items?limit=0", "limit"),
        ("/v1/conversations/conv_1/items?order=up", "order"),
        ("/v1/conversations/conv_1/items?include[]=nonsense", "include"),
        ("/v1/conversations/conv_1/items/msg_1?include=nonsense", "include"),
        ("/v1/responses/resp_1?include=nonsense", "include"),
        ("/v1/responses/resp_1/input_items?limit=101", "limit"),
        ("/v1/responses/resp_1/input_items?include=nonsense", "include"),
    ] {
        let told = ask(served(TenantState::Stored), &Method::GET, path, Some(KEY), "").await;
        assert_eq!(refusal(&told), (400, Some(param), Some("invalid_value")), "{path}");
    }
}
