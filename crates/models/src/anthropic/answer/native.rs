//! Which schemas the API's structured output supports: objects that name all their properties, without recursion and
//! without bounds of numbers, texts and lists.

use amalgam_protocol::{Raw, Shape};

/// Supported keywords that contain no schemas, or contain them where [`takes_part`] looks.
const KEYWORDS: [&str; 17] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "allOf",
    "$ref",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "format",
    "$schema",
];

/// Whether the root of a schema and all of its parts are supported.
pub(super) fn takes(schema: Raw<'_>) -> bool {
    let definitions = ["$defs", "definitions"].into_iter().filter_map(|name| schema.get(name));
    // Definitions with references may be recursive, which is not supported.
    let refers = definitions.into_iter().any(|definitions| definitions.text().contains("\"$ref\""));
    super::has_object_root(schema) && !refers && takes_part(schema)
}

fn takes_part(schema: Raw<'_>) -> bool {
    if schema.shape() != Shape::Object {
        return false;
    }
    let is_object = schema.get("properties").is_some()
        || schema.get("type").is_some_and(|kind| match kind.as_str() {
            Some(kind) => kind.is("object"),
            None => kind.elements().any(|kind| kind.as_str().is_some_and(|kind| kind.is("object"))),
        });
    let is_closed = schema.get("additionalProperties").is_some_and(|more| more.text() == "false");
    if is_object && !is_closed {
        return false;
    }
    schema.fields().all(|(key, value)| match &*key.decode() {
        "properties" | "$defs" | "definitions" => value.fields().all(|(_, part)| takes_part(part)),
        "items" => takes_part(value),
        "anyOf" | "allOf" => value.elements().all(takes_part),
        "$ref" => value.as_str().is_some_and(|target| target.decode().starts_with("#/")),
        key => KEYWORDS.contains(&key),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn taken(schema: Value) -> bool {
        takes(Raw::parse(schema.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn closed_objects_are_taken_and_what_the_api_refuses_is_not() {
        let object = |properties: Value| json!({"type": "object", "properties": properties, "required": [], "additionalProperties": false});
        assert!(taken(object(json!({"n": {"type": ["integer", "null"], "description": "d"}}))));
        assert!(taken(object(json!({"list": {"type": "array", "items": object(json!({"e": {"enum": ["a"]}}))}}))));
        let mut with_definitions = object(json!({"a": {"$ref": "#/$defs/a"}}));
        with_definitions["$defs"] = json!({"a": {"type": "string"}});
        assert!(taken(with_definitions.clone()));
        with_definitions["$defs"] = json!({"a": object(json!({"a": {"$ref": "#/$defs/a"}}))});
        assert!(!taken(with_definitions));
        assert!(!taken(json!({"type": "object", "properties": {}})));
        assert!(!taken(json!({"type": "array", "items": {"type": "string"}})));
        assert!(!taken(object(json!({"n": {"type": "integer", "minimum": 1}}))));
        assert!(!taken(object(json!({"o": {"type": "object"}}))));
        assert!(!taken(object(json!({"n": true}))));
    }
}
