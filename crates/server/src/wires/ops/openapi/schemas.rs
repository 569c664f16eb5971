//! The shapes, by name.

mod admin;
mod agents;
mod assistant;
mod bank;
mod content;
mod errors;
mod events;
mod execute;
mod files;
mod items;
mod kept;
mod knowledge;
mod models;
mod modes;
mod request;
mod response;
mod tools;

use serde_json::{Map, Value, json};

#[cfg(test)]
pub(super) use events::shape_of;

/// Every shape of the document.
pub(super) fn all() -> Value {
    let mut all = Map::new();
    for group in [
        request::schemas(),
        content::schemas(),
        items::schemas(),
        tools::schemas(),
        response::schemas(),
        events::schemas(),
        kept::schemas(),
        files::schemas(),
        models::schemas(),
        admin::schemas(),
        bank::schemas(),
        agents::schemas(),
        modes::schemas(),
        knowledge::schemas(),
        assistant::schemas(),
        execute::schemas(),
        errors::schemas(),
    ] {
        for (name, schema) in group {
            let before = all.insert(name.to_owned(), schema);
            debug_assert!(before.is_none(), "two shapes are called {name}");
        }
    }
    Value::Object(all)
}

/// Shapes with their names.
type Schemas = Vec<(&'static str, Value)>;

/// The shape of this name.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// One of the shapes of these names.
fn any_of(names: &[&str]) -> Value {
    json!(names.iter().map(|name| reference(name)).collect::<Vec<_>>())
}

/// An object with these fields; others may be there too.
fn object(description: &str, required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "description": description, "required": required, "properties": properties})
}

/// A list of what has the shape of this name.
fn list_of(name: &str) -> Value {
    json!({"type": "array", "items": reference(name)})
}

/// A text.
fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

/// A text or null.
fn text_or_null(description: &str) -> Value {
    json!({"type": ["string", "null"], "description": description})
}
