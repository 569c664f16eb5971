//! The published description of the API: an OpenAPI 3.1 document, written by hand and held to the code by tests.
//!
//! Operations come from the route table, event names from the protocol; the shapes are told in `schemas`, a file a
//! subject. Why it is not derived: `docs/decisions/0002-openapi-by-hand.md`.

mod examples;
pub(crate) mod operations;
mod schemas;

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Map, Value, json};

use crate::wires::ROUTES;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", build()));

/// The OpenAPI document as JSON text, put together once.
pub fn document() -> &'static str {
    &DOCUMENT
}

fn build() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Amalgam",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A Responses API over any model.",
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "Responses", "description": "Ask a model."},
            {"name": "Conversations", "description": "Keep items that several responses add to."},
            {"name": "Files", "description": "Upload what is named in requests."},
            {"name": "Models", "description": "What can be asked."},
            {"name": "Administration", "description": "Tenants and keys; on a listener of its own where other machines reach the server."},
            {"name": "Tools", "description": "The tool bank and what waits for an approval; where the administration is."},
            {"name": "Modes", "description": "What a tenant's agents can be for a while; where the administration is."},
            {"name": "Knowledge", "description": "What a tenant's agents can look up; where the administration is."},
            {"name": "Operations", "description": "For load balancers and tools; without a key."},
        ],
        "security": [{"bearer": []}],
        "paths": paths(),
        "components": {
            "securitySchemes": {"bearer": {
                "type": "http",
                "scheme": "bearer",
                "description": "A key of a tenant. A server on loopback without any configured key asks for none.",
            }},
            "parameters": operations::parameters(),
            "headers": operations::headers(),
            "schemas": schemas::all(),
        },
    })
}

const INTRODUCTION: &str = "\
Speaks the OpenAI Responses protocol, whatever the model behind it speaks. Fields, items, tools and events that this \
version does not know are kept and passed along. What an upstream cannot be told is listed in the header \
`amalgam-losses`. Every error has the shape of `ErrorEnvelope`.";

/// The operations of the route table, by path and method.
fn paths() -> Value {
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in ROUTES {
        let mut operation = (route.describe)();
        if route.public {
            operation["security"] = json!([]);
        }
        let method = route.method.as_str().to_ascii_lowercase();
        paths.entry(route.published_path()).or_default().insert(method, operation);
    }
    json!(paths)
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
