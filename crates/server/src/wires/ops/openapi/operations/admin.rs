//! `/admin`

use serde_json::{Value, json};

use super::{super::schemas::reference, parameter, success, with_failures};

pub(super) const WRONG: &str = "The body or the query is wrong. `param` names the field.";
const OPERATORS: &str = "The key lacks the right `operator`.";
const ADMINS: &str =
    "The key has neither the right `admin` nor `operator`, or another tenant was named without the latter.";
const NO_TENANT: &str = "No such tenant.";
const NO_KEY: &str = "No such key, or another tenant's.";
pub(super) const LATE: &str = "The body did not arrive in time.";
pub(super) const LARGE: &str = "The body is too large.";
pub(super) const UNDECLARED: &str = "The body is not declared as JSON.";

/// `GET /admin/tenants`
pub(crate) fn list_tenants() -> Value {
    json!({
        "operationId": "listTenants",
        "tags": ["Administration"],
        "summary": "List the tenants",
        "parameters": [parameter("Limit"), parameter("After"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("One page, by number.", "TenantList")}),
            &[("400", WRONG), ("403", OPERATORS)],
        ),
    })
}

/// `POST /admin/tenants`
pub(crate) fn create_tenant() -> Value {
    json!({
        "operationId": "createTenant",
        "tags": ["Administration"],
        "summary": "Make a tenant",
        "parameters": [parameter("RequestId")],
        "requestBody": body("CreateTenant", json!({"name": "acme"})),
        "responses": with_failures(
            json!({"200": success("The tenant.", "Tenant")}),
            &[
                ("400", WRONG),
                ("403", OPERATORS),
                ("408", LATE),
                ("409", "There is a tenant with this number."),
                ("413", LARGE),
                ("415", UNDECLARED),
            ],
        ),
    })
}

/// `GET /admin/tenants/{tenant_id}`
pub(crate) fn get_tenant() -> Value {
    json!({
        "operationId": "getTenant",
        "tags": ["Administration"],
        "summary": "Get a tenant",
        "parameters": [tenant_id(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The tenant.", "Tenant")}),
            &[("403", OPERATORS), ("404", NO_TENANT)],
        ),
    })
}

/// `PATCH /admin/tenants/{tenant_id}`
pub(crate) fn change_tenant() -> Value {
    json!({
        "operationId": "changeTenant",
        "tags": ["Administration"],
        "summary": "Change a tenant",
        "description": "What is named is set, everything else stays. In force within five seconds in all processes.",
        "parameters": [tenant_id(), parameter("RequestId")],
        "requestBody": body("ChangeTenant", json!({"state": "stateless"})),
        "responses": with_failures(
            json!({"200": success("The tenant as it is now.", "Tenant")}),
            &[
                ("400", WRONG),
                ("403", OPERATORS),
                ("404", NO_TENANT),
                ("408", LATE),
                ("413", LARGE),
                ("415", UNDECLARED),
            ],
        ),
    })
}

/// `GET /admin/keys`
pub(crate) fn list_keys() -> Value {
    json!({
        "operationId": "listKeys",
        "tags": ["Administration"],
        "summary": "List the keys of a tenant",
        "description": "Keys that were revoked are listed too. No key itself is ever shown again.",
        "parameters": [named_tenant(), parameter("Limit"), parameter("After"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("One page, by id.", "KeyList")}),
            &[("400", WRONG), ("403", ADMINS)],
        ),
    })
}

/// `POST /admin/keys`
pub(crate) fn create_key() -> Value {
    json!({
        "operationId": "createKey",
        "tags": ["Administration"],
        "summary": "Make a key",
        "parameters": [parameter("RequestId")],
        "requestBody": body("CreateKey", json!({"label": "backend", "scopes": ["use"]})),
        "responses": with_failures(
            json!({"200": success("The key: `key` is shown here and never again.", "NewKey")}),
            &[
                ("400", WRONG),
                ("403", ADMINS),
                ("404", NO_TENANT),
                ("408", LATE),
                ("413", LARGE),
                ("415", UNDECLARED),
            ],
        ),
    })
}

/// `DELETE /admin/keys/{key_id}`
pub(crate) fn revoke_key() -> Value {
    json!({
        "operationId": "revokeKey",
        "tags": ["Administration"],
        "summary": "Revoke a key",
        "description": "In force at once in the process that answers and within five seconds in all others.",
        "parameters": [path("key_id", "The key, by its id.", "string"), named_tenant(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The key as it is now.", "Key")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_KEY)],
        ),
    })
}

/// `GET /admin/turns/{response_id}`
pub(crate) fn get_turn() -> Value {
    json!({
        "operationId": "getTurn",
        "tags": ["Administration"],
        "summary": "Get a turn with the calls of its models and tools",
        "parameters": [
            path("response_id", "The response that the turn made, by our id or by the id that the model's server gave its last answer (then the newest).", "string"),
            parameter("RequestId"),
        ],
        "responses": with_failures(
            json!({"200": success("The turn.", "Turn")}),
            &[("403", "The key lacks the right `admin`."), ("404", "No such turn in the caller's tenant.")],
        ),
    })
}

fn tenant_id() -> Value {
    path("tenant_id", "The tenant, by its number.", "integer")
}

pub(super) fn path(name: &str, description: &str, kind: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "description": description, "schema": {"type": kind}})
}

pub(super) fn named_tenant() -> Value {
    json!({
        "name": "tenant_id",
        "in": "query",
        "description": "Another tenant than the caller's own; for operators.",
        "schema": {"type": "integer", "minimum": 1},
    })
}

pub(super) fn body(schema: &str, example: Value) -> Value {
    json!({"required": true, "content": {"application/json": {"schema": reference(schema), "example": example}}})
}
