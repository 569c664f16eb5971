//! `/admin/modes`

use serde_json::{Value, json};

use super::{
    admin::{LARGE, LATE, UNDECLARED, WRONG, body, named_tenant, path},
    parameter, success, with_failures,
};

const ADMINS: &str = "The key lacks the right `admin`, or another tenant was named without the right `operator`.";
const NO_TENANT: &str = "No such tenant.";
const NO_MODE: &str = "No such mode in the tenant.";
const TAG: &str = "Modes";

/// `GET /admin/modes`
pub(crate) fn list_modes() -> Value {
    json!({
        "operationId": "listModes",
        "tags": [TAG],
        "summary": "List the modes of a tenant",
        "description": "Those that every tenant has are among them, unless the tenant has defined its own in their place.",
        "parameters": [named_tenant(), parameter("Limit"), parameter("After"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("One page, by name.", "ModeList")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_TENANT)],
        ),
    })
}

/// `GET /admin/modes/{name}`
pub(crate) fn get_mode() -> Value {
    json!({
        "operationId": "getMode",
        "tags": [TAG],
        "summary": "Get a mode",
        "parameters": [name(), named_tenant(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The mode.", "Mode")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_MODE)],
        ),
    })
}

/// `PUT /admin/modes/{name}`
pub(crate) fn put_mode() -> Value {
    let example = json!({
        "display_name": "Review",
        "system_prompt": "You review changes to source code.",
        "tools": ["search_knowledge"],
        "rag_scope": [{"key": "language", "operator": "==", "values": ["rust"]}],
    });
    json!({
        "operationId": "putMode",
        "tags": [TAG],
        "summary": "Keep a mode",
        "description": "Replaces the tenant's mode of this name as a whole: what is not said is as it usually is. Under the \
            name of a seeded mode it goes before that one. Sessions in the mode follow it from their next turn on. Tools that no \
            bank has are taken, and told in `unknown_tools`.",
        "parameters": [name(), named_tenant(), parameter("RequestId")],
        "requestBody": body("PutMode", example),
        "responses": with_failures(
            json!({
                "200": success("The mode, in the place of the tenant's before.", "Mode"),
                "201": success("The mode, which is the tenant's first of this name.", "Mode"),
            }),
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

/// `DELETE /admin/modes/{name}`
pub(crate) fn delete_mode() -> Value {
    json!({
        "operationId": "deleteMode",
        "tags": [TAG],
        "summary": "Forget a mode that the tenant has defined",
        "description": "Where it stood in the place of a seeded one, that one is in force again.",
        "parameters": [name(), named_tenant(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("It is gone.", "DeletedMode")}),
            &[
                ("400", WRONG),
                ("403", ADMINS),
                ("404", NO_MODE),
                ("409", "The mode is one that every tenant has, and the tenant has not defined its own."),
            ],
        ),
    })
}

fn name() -> Value {
    path("name", "The mode, by its name, whatever its case.", "string")
}
