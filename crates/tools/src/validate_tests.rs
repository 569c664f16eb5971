use std::{sync::Arc, time::Duration, time::Instant};

use amalgam_protocol::Json;
use serde_json::json;

use super::*;

fn compile(schema: &Value) -> Result<Schema, String> {
    let text = schema.to_string();
    Schema::compile(Raw::parse_within(text.as_bytes(), 500).unwrap())
}

fn check(schema: &Value, arguments: &Value) -> Result<(), String> {
    let text = arguments.to_string();
    compile(schema).unwrap().check(Raw::parse_within(text.as_bytes(), 500).unwrap())
}

fn doubling(levels: usize) -> Value {
    let mut definitions = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        definitions.insert(format!("l{level}"), json!({"allOf": [next, next]}));
    }
    definitions.insert(format!("l{levels}"), json!({"type": "object"}));
    json!({"$defs": definitions, "$ref": "#/$defs/l0"})
}

#[test]
fn faults_name_their_path_and_reason_and_are_few() {
    let schema = json!({
        "type": "object",
        "properties": {"course_id": {"type": "integer", "minimum": 1}, "tags": {"items": {"type": "string"}}},
        "required": ["course_id"],
        "additionalProperties": false,
    });
    assert_eq!(check(&schema, &json!({"course_id": 7})), Ok(()));
    let told = |arguments: &Value| check(&schema, arguments).unwrap_err();
    assert_eq!(told(&json!({"course_id": "seven"})), r#"/course_id: the value is not of type "integer""#);
    assert_eq!(told(&json!({"course_id": 0})), "/course_id: the value is less than the minimum of 1");
    assert!(told(&json!({})).contains("course_id"));
    assert!(told(&json!({"course_id": 1, "other": 1})).contains("other"));
    let many = told(&json!({"course_id": 1, "tags": vec![1; 100]}));
    assert_eq!(many.matches("/tags/").count(), MAX_FAULTS);
    let long = told(&json!({"course_id": 1, "x".repeat(10_000): 1}));
    assert!(long.chars().count() <= MAX_FAULT_CHARS + 1, "{}", long.len());
}

#[test]
fn arguments_that_are_no_object_are_a_fault() {
    for arguments in [json!([]), json!("a"), json!(null), json!(1)] {
        assert!(check(&json!({}), &arguments).unwrap_err().contains("object"));
    }
}

#[test]
fn a_bad_schema_is_refused_with_a_reason() {
    for (schema, reason) in [
        (json!([]), "a schema is an object"),
        (json!({"type": "objekt"}), "/type"),
        (json!({"properties": {"a": {"pattern": "("}}}), "/properties/a/pattern"),
        (json!({"properties": {"a": {"pattern": "(?=x)x"}}}), "/properties/a/pattern"),
        (json!({"properties": {"a": {"pattern": "([a-z]{500}){500}"}}}), "/properties/a/pattern"),
        (json!({"$ref": "#/$defs/absent"}), "leads nowhere"),
        (json!({"$ref": "#"}), "without end"),
        (
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            "without end",
        ),
        (json!({"properties": {"a": {"$id": "https://b.example/", "$ref": "#/x"}}}), "`$id`"),
        (json!({"$schema": "http://json-schema.org/draft-04/schema#"}), "draft"),
        (json!({"properties": {"a": {"$dynamicRef": "#x"}}}), "`$dynamicRef`"),
    ] {
        let told = compile(&schema).unwrap_err();
        assert!(told.contains(reason), "{schema}: {told}");
    }
}

// S17, P11
#[test]
fn nothing_is_fetched_to_complete_a_schema() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let remote = format!("http://127.0.0.1:{port}/schema.json");
    for schema in [
        json!({"$ref": remote}),
        json!({"properties": {"a": {"$ref": remote}}}),
        json!({"$defs": {"a": {"$ref": remote}}}),
        json!({"$schema": remote}),
        json!({"$id": format!("http://127.0.0.1:{port}/"), "$ref": "schema.json"}),
        json!({"$ref": "file:///etc/hostname"}),
        json!({"$ref": "other.json"}),
    ] {
        assert!(compile(&schema).is_err(), "{schema}");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_schema_that_stands_for_more_than_there_is_time_for_is_refused_at_once() {
    let started = Instant::now();
    assert!(compile(&doubling(5)).is_ok());
    for levels in [14, 26, 40] {
        assert!(compile(&doubling(levels)).unwrap_err().contains("references are followed"), "{levels}");
    }
    let chain: serde_json::Map<_, _> =
        (0..1000).map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)}))).collect();
    assert!(compile(&json!({"$defs": chain, "$ref": "#/$defs/d0"})).unwrap_err().contains("nests deeper"));
    let leftovers = (0..30).fold(json!({}), |inner, _| json!({"allOf": [inner], "unevaluatedProperties": false}));
    assert!(compile(&leftovers).unwrap_err().contains("parts"));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn a_schema_that_is_too_large_is_refused() {
    let properties = |n| -> serde_json::Map<_, _> { (0..n).map(|n| (format!("p{n}"), json!({}))).collect() };
    assert!(compile(&json!({"properties": properties(1_900)})).is_ok());
    assert!(compile(&json!({"properties": properties(2_001)})).unwrap_err().contains("2000 parts"));
    let patterns: Vec<_> = (0..65).map(|_| json!({"pattern": "a"})).collect();
    assert!(compile(&json!({"allOf": patterns})).unwrap_err().contains("patterns"));
    assert!(compile(&json!({"description": "x".repeat(300_000)})).unwrap_err().contains("bytes"));
}

#[test]
fn an_ordinary_tree_may_be_deep() {
    let schema = json!({
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "children": {"items": {"$ref": "#"}}},
        "type": "object",
    });
    let deep = (0..30).fold(json!({}), |inner, _| json!({"left": inner, "right": {}}));
    assert_eq!(check(&schema, &deep), Ok(()));
    let wrong = (0..30).fold(json!(1), |inner, _| json!({"left": inner}));
    assert!(check(&schema, &wrong).is_err());
}

#[test]
fn a_schema_that_meets_itself_takes_flat_arguments_only() {
    let again = json!({"properties": {"x": {"$ref": "#"}}});
    for schema in [
        json!({"allOf": [again, again]}),
        json!({"properties": {"x": {"$ref": "#"}}, "additionalProperties": true, "patternProperties": {".": {"$ref": "#"}}}),
        json!({"allOf": [again, {"properties": {"x": {"properties": {"x": {"$ref": "#"}}}}}]}),
    ] {
        let nested = |levels| (0..levels).fold(json!({}), |inner, _| json!({"x": inner}));
        assert_eq!(check(&schema, &nested(10)), Ok(()));
        let started = Instant::now();
        assert!(check(&schema, &nested(60)).unwrap_err().contains("deeper"), "{schema}");
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
}

// O-33
#[test]
fn a_name_is_short_and_plain() {
    for name in ["a", "find_course-2", "A", &"x".repeat(64)] {
        assert_eq!(check_name(name), Ok(()));
    }
    for name in ["", "a b", "a.b", "é", "a/b", "a\n", &"x".repeat(65)] {
        assert!(check_name(name).is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_schema_is_compiled_once_and_the_one_used_longest_ago_is_forgotten() {
    let schemas = Schemas::new(2);
    let json = |text: &'static str| Json::parse(&text.into()).unwrap();
    let (one, two, bad) = (json(r#"{"type":"object"}"#), json("{}"), json(r#"{"type":1}"#));
    let first = schemas.get(&one).await.unwrap();
    assert!(Arc::ptr_eq(&first, &schemas.get(&one).await.unwrap()));
    let second = schemas.get(&two).await.unwrap();
    assert!(Arc::ptr_eq(&first, &schemas.get(&one).await.unwrap()));
    assert_eq!(schemas.get(&bad).await.unwrap_err(), schemas.get(&bad).await.unwrap_err());
    assert_eq!(schemas.len(), 2);
    // The first was used after the second, so the second had to go.
    assert!(Arc::ptr_eq(&first, &schemas.get(&one).await.unwrap()));
    assert!(!Arc::ptr_eq(&second, &schemas.get(&two).await.unwrap()));
}

#[tokio::test]
async fn schemas_with_patterns_take_more_room() {
    let schemas = Schemas::new(6);
    let json = |value: Value| Json::parse(&value.to_string().into()).unwrap();
    for n in 0..10 {
        schemas.get(&json(json!({"description": n.to_string()}))).await.unwrap();
    }
    assert_eq!(schemas.len(), 6);
    for n in 0..10 {
        let part = json!({"pattern": "a"});
        schemas.get(&json(json!({"description": n.to_string(), "properties": {"a": part}}))).await.unwrap();
    }
    assert_eq!(schemas.len(), 2);
}

// S16
#[tokio::test]
async fn long_schemas_take_more_room() {
    let schemas = Schemas::new(6);
    for n in 0..10 {
        let schema = json!({"description": format!("{n}{}", "x".repeat(8 * 1024))});
        schemas.get(&Json::parse(&schema.to_string().into()).unwrap()).await.unwrap();
    }
    assert_eq!(schemas.len(), 2);
}
