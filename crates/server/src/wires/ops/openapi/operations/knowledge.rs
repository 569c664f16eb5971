//! `/admin/knowledge`

use serde_json::{Value, json};

use super::{
    admin::{WRONG, named_tenant, path},
    parameter, success, with_failures,
};

const ADMINS: &str = "The key lacks the right `admin`, or another tenant was named without the right `operator`.";
const NO_TENANT: &str = "No such tenant.";
const NO_COLLECTION: &str = "No such collection in the tenant.";
const NO_SOURCE: &str = "No such collection in the tenant, or no such source in it.";
const TAG: &str = "Knowledge";

/// `GET /admin/knowledge`
pub(crate) fn list_knowledge() -> Value {
    json!({
        "operationId": "listKnowledge",
        "tags": [TAG],
        "summary": "List the collections of a tenant",
        "description": "What is in them is brought in with `amalgam knowledge import`.",
        "parameters": [named_tenant(), parameter("Limit"), parameter("After"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("One page, by name.", "KnowledgeCollectionList")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_TENANT)],
        ),
    })
}

/// `GET /admin/knowledge/{collection}`
pub(crate) fn get_knowledge() -> Value {
    json!({
        "operationId": "getKnowledge",
        "tags": [TAG],
        "summary": "Get a collection",
        "parameters": [collection(), named_tenant(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The collection.", "KnowledgeCollection")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_COLLECTION)],
        ),
    })
}

/// `DELETE /admin/knowledge/{collection}`
pub(crate) fn delete_knowledge() -> Value {
    json!({
        "operationId": "deleteKnowledge",
        "tags": [TAG],
        "summary": "Forget a collection, or what one source has brought into it",
        "description": "Goes on document by document; asked again after a broken connection, it goes on from there.",
        "parameters": [collection(), source(), named_tenant(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("It is gone.", "DeletedKnowledge")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_SOURCE)],
        ),
    })
}

/// `GET /admin/knowledge/{collection}/documents`
pub(crate) fn list_knowledge_documents() -> Value {
    json!({
        "operationId": "listKnowledgeDocuments",
        "tags": [TAG],
        "summary": "List the documents of a collection",
        "parameters": [
            collection(),
            source(),
            named_tenant(),
            parameter("Limit"),
            parameter("After"),
            parameter("RequestId"),
        ],
        "responses": with_failures(
            json!({"200": success("One page, by source and path.", "KnowledgeDocumentList")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_COLLECTION)],
        ),
    })
}

fn source() -> Value {
    json!({
        "name": "source",
        "in": "query",
        "description": "Only the documents of this source.",
        "schema": {"type": "string"},
    })
}

fn collection() -> Value {
    path("collection", "The collection, by its name.", "string")
}
