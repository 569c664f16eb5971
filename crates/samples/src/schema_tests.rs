use std::time::Instant;

use proptest::prelude::*;

use super::*;

fn filled(schema: Value, message: &str) -> Value {
    let value = instance(&schema, &SampleHints::new(message));
    assert!(jsonschema::is_valid(&schema, &value), "{value} is not valid for {schema}");
    value
}

#[test]
fn a_message_fills_the_fields_it_speaks_of() {
    let schema = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 10},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}, "exact": {"type": "boolean"}, "note": {"type": "string"}
    }, "required": ["city", "days", "unit"]});
    assert_eq!(
        filled(schema, "Weather for Oslo for 3 days in Fahrenheit, exact: no"),
        json!({"city": "Oslo", "days": 3, "unit": "fahrenheit", "exact": false})
    );
}

#[test]
fn a_message_that_says_nothing_gives_defaults_within_bounds() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "minLength": 8, "maxLength": 8}, "b": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
        "c": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": true},
        "d": {"const": {"x": [1]}}, "e": {"type": "integer", "multipleOf": 7, "minimum": 10},
        "f": {"type": "string", "format": "date"}, "g": {"type": ["null", "boolean"]}, "h": {"default": 9, "type": "integer"}
    }, "required": ["a", "b", "c", "d", "e", "f", "g", "h"], "additionalProperties": false});
    assert_eq!(
        filled(schema, ""),
        json!({"a": "xxxxdemo", "b": 0.25, "c": [1, 2, 3], "d": {"x": [1]}, "e": 14, "f": "2026-01-01", "g": true, "h": 9})
    );
}

#[test]
fn what_the_message_offers_does_not_repeat_what_counting_gives() {
    let schema =
        json!({"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 3, "uniqueItems": true});
    assert_eq!(filled(schema, "4"), json!([4, 5, 6]));
}

#[test]
fn references_alternatives_and_conjunctions_are_followed() {
    let schema = json!({
        "$defs": {
            "node": {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                "required": ["value", "next"], "additionalProperties": false},
            "short": {"maxLength": 3}
        },
        "type": "object",
        "properties": {
            "list": {"$ref": "#/$defs/node"},
            "both": {"allOf": [{"type": "string", "minLength": 2}, {"$ref": "#/$defs/short"}]},
            "one": {"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]},
            "when": {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}}, "required": ["kind"],
                "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["extra"]}}
        },
        "required": ["list", "both", "one", "when"]
    });
    let value = filled(schema, "");
    assert_eq!(value["both"], "emo");
    assert_eq!(value["when"]["kind"], "a");
}

#[test]
fn schemas_that_nothing_satisfies_and_bombs_end_in_time() {
    for schema in
        [json!(false), json!({"type": "string", "enum": [1]}), json!({"$ref": "#/nowhere"}), json!({"$ref": "#"})]
    {
        instance(&schema, &SampleHints::new("x"));
    }
    let mut defs = Map::new();
    for level in 0..40 {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        defs.insert(format!("l{level}"), json!({"allOf": [next, next], "anyOf": [next, next]}));
    }
    defs.insert("l40".to_owned(), json!({"type": "string"}));
    let begun = Instant::now();
    instance(&json!({"$ref": "#/$defs/l0", "$defs": defs}), &SampleHints::new("x"));
    instance(
        &json!({"type": "array", "minItems": u64::MAX, "items": {"type": "array", "minItems": u64::MAX}}),
        &SampleHints::new("x"),
    );
    assert!(begun.elapsed().as_secs() < 20);
}

/// Schemas that have at least one instance, by construction.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!({})),
        Just(json!({"type": "null"})),
        Just(json!({"type": "boolean"})),
        Just(json!({"$ref": "#/$defs/shared"})),
        (0_u64..6, 0_u64..6).prop_map(|(low, more)| json!({"type": "string", "minLength": low, "maxLength": low + more})),
        (-50_i64..50, 0_i64..20).prop_map(|(low, more)| json!({"type": "integer", "minimum": low, "maximum": low + more})),
        (-5.0_f64..5.0, 0.5_f64..9.0).prop_map(|(low, more)| json!({"type": "number", "exclusiveMinimum": low, "maximum": low + more})),
        (1_i64..9, -50_i64..50).prop_map(|(step, low)| json!({"type": "integer", "multipleOf": step, "minimum": low})),
        (-50_i64..50).prop_map(|high| json!({"type": "number", "exclusiveMaximum": high})),
        prop::collection::vec("[a-z]{1,4}", 1..4).prop_map(|words| json!({"enum": words})),
        "[a-z]{0,4}".prop_map(|word| json!({"const": word})),
        prop::sample::subsequence(vec!["string", "integer", "null", "boolean"], 1..3).prop_map(|kinds| json!({"type": kinds})),
        (0_u64..4).prop_map(|least| json!({"type": "array", "uniqueItems": true, "minItems": least, "items": {"type": "integer", "minimum": 3}})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let array = (inner.clone(), 0_u64..3, 0_u64..3)
            .prop_map(|(items, low, more)| json!({"type": "array", "items": items, "minItems": low, "maxItems": low + more}));
        let tuple = prop::collection::vec(inner.clone(), 1..3)
            .prop_map(|prefix| json!({"type": "array", "minItems": prefix.len(), "prefixItems": prefix, "items": false}));
        let object = (prop::collection::btree_map("[a-d]{1,2}", inner.clone(), 0..4), any::<u8>(), any::<bool>()).prop_map(
            |(properties, mask, closed)| {
                let required: Vec<&String> =
                    properties.keys().enumerate().filter(|(index, _)| mask & (1 << index) != 0).map(|(_, name)| name).collect();
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": !closed,
                    "minProperties": required.len()})
            },
        );
        let any_of = prop::collection::vec(inner.clone(), 1..3).prop_map(|ways| json!({"anyOf": ways}));
        let one_of = (inner.clone(), "[a-z]{9}").prop_map(|(way, word)| {
            json!({"oneOf": [{"type": "array", "minItems": 1, "maxItems": 2, "items": way}, {"const": word}]})
        });
        let all_of = inner.prop_map(|way| json!({"allOf": [way, {}]}));
        prop_oneof![array, tuple, object, any_of, one_of, all_of]
    })
    .prop_map(|schema| match schema {
        Value::Object(mut schema) => {
            schema.insert("$defs".to_owned(), json!({"shared": {"type": "object", "properties": {"id": {"type": "string", "minLength": 1}}, "required": ["id"]}}));
            Value::Object(schema)
        }
        other => json!({"allOf": [other], "$defs": {}}),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn an_instance_is_always_valid(schema in schemas(), message in "[ -~]{0,40}") {
        let value = instance(&schema, &SampleHints::new(&message));
        prop_assert!(jsonschema::is_valid(&schema, &value), "{} is not valid for {}", value, schema);
        prop_assert_eq!(instance(&schema, &SampleHints::new(&message)), value);
    }
}

#[test]
fn a_schema_that_meets_itself_or_leads_elsewhere_is_filled_in_bounded_work() {
    let twice = json!({"anyOf": [
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"], "maxProperties": 1},
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"], "minProperties": 1},
        {"type": "null"},
    ]});
    let mut wide = Map::new();
    (0..5000).for_each(|number| {
        wide.insert(format!("p{number}"), json!({"type": "integer", "minimum": number}));
    });
    for schema in [
        twice,
        json!({"type": "object", "properties": wide, "required": ["p7"]}),
        json!({"$ref": "http://127.0.0.1:1/schema.json"}),
        json!({"$ref": "file:///etc/hosts"}),
        json!({"type": "object", "properties": {"a": {"type": "strnig"}}}),
        json!({"patternProperties": {"(a{1000}){1000}": {}}, "additionalProperties": false, "minProperties": 1}),
    ] {
        instance(&schema, &SampleHints::new("x"));
    }
}

#[test]
fn a_name_with_special_characters_is_checked_like_any_other() {
    let schema = json!({"type": "object", "properties": {"a/b ~%é#": {"type": "integer", "minimum": 5, "maximum": 5}},
        "required": ["a/b ~%é#"]});
    assert_eq!(filled(schema, ""), json!({"a/b ~%é#": 5}));
}

#[test]
fn what_must_match_a_regular_expression_is_left_out_where_it_may_be() {
    let schema = json!({"type": "object", "properties": {
        "offset": {"type": ["string", "null"], "pattern": "^[+-][0-9]{2}$"}, "note": {"type": "string"}
    }});
    assert_eq!(filled(schema, "now"), json!({"note": "demo"}));
}
