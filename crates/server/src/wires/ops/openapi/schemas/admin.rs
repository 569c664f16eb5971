//! Tenants, keys and turns, as administrators see them.

use serde_json::{Value, json};

use super::{Schemas, list_of, object, reference, text, text_or_null};

pub(super) fn schemas() -> Schemas {
    vec![
        ("Tenant", tenant()),
        ("TenantList", list("Tenant", "integer", "Tenants by number.")),
        (
            "CreateTenant",
            object(
                "A tenant to be made. Null counts as not said.",
                &["name"],
                json!({
                    "name": text("What people call it."),
                    "id": {"type": ["integer", "null"], "minimum": 1, "description": "Its number; else the next free one."},
                    "state": state_or_null(),
                    "ai_agent_enabled": {"type": ["boolean", "null"], "default": true},
                }),
            ),
        ),
        (
            "ChangeTenant",
            object(
                "What is to be changed. Null counts as not said.",
                &[],
                json!({
                    "name": text_or_null("What people call it."),
                    "state": state_or_null(),
                    "ai_agent_enabled": {"type": ["boolean", "null"]},
                }),
            ),
        ),
        ("Key", key(false)),
        ("NewKey", key(true)),
        ("KeyList", list("Key", "string", "Keys by id.")),
        (
            "CreateKey",
            object(
                "A key to be made. Null counts as not said.",
                &[],
                json!({
                    "tenant_id": {"type": ["integer", "null"], "minimum": 1, "description": "The caller's own tenant unless an operator names another."},
                    "scopes": {"anyOf": [rights(), {"type": "null"}], "description": "`use` where nothing is said."},
                    "user": text_or_null("The only user on whose behalf it acts. Without one it is a service key: `X-Amalgam-User` names the user."),
                    "label": text_or_null("What people call it."),
                    "expires_at": {"type": ["integer", "null"], "description": "Seconds since 1970; for ever where nothing is said."},
                }),
            ),
        ),
        ("Turn", turn()),
        ("ModelCall", model_call()),
    ]
}

fn tenant() -> Value {
    object(
        "Somebody whose things nobody else sees.",
        &["id", "object", "name", "state", "ai_agent_enabled", "created_at"],
        json!({
            "id": {"type": "integer", "minimum": 1},
            "object": {"const": "tenant"},
            "name": text("What people call it."),
            "state": {"enum": ["stored", "stateless"], "description": "Whether its responses are kept."},
            "ai_agent_enabled": {"type": "boolean", "description": "Whether its assistant answers."},
            "created_at": {"type": "integer", "description": "Seconds since 1970."},
        }),
    )
}

fn state_or_null() -> Value {
    json!({"enum": ["stored", "stateless", null], "description": "Whether its responses are kept."})
}

fn rights() -> Value {
    json!({"type": "array", "minItems": 1, "items": {"enum": ["use", "admin", "operator"]}})
}

fn key(with_key: bool) -> Value {
    let moment = |description: &str| json!({"type": ["integer", "null"], "description": description});
    let mut required = vec![
        "id",
        "object",
        "tenant_id",
        "prefix",
        "label",
        "scopes",
        "user",
        "created_at",
        "expires_at",
        "revoked_at",
        "last_used_at",
    ];
    let mut properties = json!({
        "id": text("Names the key; not secret."),
        "object": {"const": "api_key"},
        "tenant_id": {"type": "integer", "minimum": 1},
        "prefix": text("How the key begins."),
        "label": text_or_null("What people call it."),
        "scopes": rights(),
        "user": text_or_null("The only user on whose behalf it acts."),
        "created_at": {"type": "integer", "description": "Seconds since 1970."},
        "expires_at": moment("Seconds since 1970; null for ever."),
        "revoked_at": moment("Seconds since 1970; null while it is good."),
        "last_used_at": moment("Seconds since 1970, a minute more or less; null when never."),
    });
    if with_key {
        required.push("key");
        properties["key"] = text("The key itself. Keep it: nobody can say it again.");
    }
    object(if with_key { "A key that was just made." } else { "A key, without itself." }, &required, properties)
}

pub(super) fn list(name: &str, id: &str, description: &str) -> Value {
    object(
        description,
        &["object", "data", "first_id", "last_id", "has_more"],
        json!({
            "object": {"const": "list"},
            "data": list_of(name),
            "first_id": {"type": [id, "null"]},
            "last_id": {"type": [id, "null"], "description": "`after` of the next page."},
            "has_more": {"type": "boolean"},
        }),
    )
}

fn turn() -> Value {
    object(
        "A turn, whichever user of the tenant it belongs to.",
        &["id", "object", "user", "response", "calls", "tool_calls"],
        json!({
            "id": text("The id of the response."),
            "object": {"const": "turn"},
            "user": text("Whose it is."),
            "response": reference("Response"),
            "calls": list_of("ModelCall"),
            "tool_calls": list_of("ToolRun"),
        }),
    )
}

fn model_call() -> Value {
    let number = |description: &str| json!({"type": "integer", "minimum": 0, "description": description});
    object(
        "One call of a model, exactly.",
        &[
            "number",
            "upstream",
            "model",
            "asked_at_ms",
            "first_token_ms",
            "duration_ms",
            "retries",
            "request",
            "request_incomplete",
            "response",
            "response_cut",
            "usage",
            "losses",
            "error",
        ],
        json!({
            "number": number("From 0, within the turn."),
            "upstream": text("The operator's name of the upstream."),
            "model": text("The model that the upstream was asked for."),
            "asked_at_ms": number("Milliseconds since 1970."),
            "first_token_ms": {"type": ["integer", "null"], "description": "Until the first event, if one came."},
            "duration_ms": number("Until the end."),
            "retries": number("Further tries before the upstream accepted."),
            "request": text("The body that was sent."),
            "request_incomplete": {
                "type": "boolean",
                "description": "Whether the beginning of the request is missing, because the earlier call that had it is not kept any more.",
            },
            "response": text("The body that came back, as far as it came."),
            "response_cut": {"type": "boolean", "description": "Whether more came back than is kept."},
            "usage": {"type": ["object", "null"], "description": "What it cost, in tokens."},
            "losses": {"type": "array", "items": {"type": "string"}, "description": "What was not carried over."},
            "error": text_or_null("Why it failed."),
        }),
    )
}
