//! Whether a value follows a schema, as far as this filler needs to know: no regular expressions, no formats, no
//! references to elsewhere.

use std::cell::Cell;

use serde_json::{Map, Number, Value};

use super::{DEEPEST, Steps, element};

/// Checks values against parts of one schema, within bounded work.
pub(super) struct Checker<'a> {
    root: &'a Value,
    steps: Steps,
}

impl<'a> Checker<'a> {
    pub(super) fn new(root: &'a Value, steps: u32) -> Self {
        Self { root, steps: Steps(Cell::new(steps)) }
    }

    /// Takes one step; false when no work is left.
    pub(super) fn step(&self) -> bool {
        self.steps.take()
    }

    /// What a reference inside the same document points to.
    pub(super) fn target(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        self.root.pointer(&pointer.replace("%25", "%").replace("%24", "$"))
    }

    /// Whether `value` follows `schema`. What cannot be decided any more counts as yes.
    pub(super) fn check(&self, schema: &Value, value: &Value, depth: usize) -> bool {
        match schema {
            Value::Bool(allowed) => *allowed,
            Value::Object(part) => self.check_map(part, value, depth),
            _ => true,
        }
    }

    pub(super) fn check_map(&self, part: &Map<String, Value>, value: &Value, depth: usize) -> bool {
        if depth > 2 * DEEPEST || !self.step() {
            return true;
        }
        let all = |word: &str, each: &dyn Fn(&Value) -> bool| {
            part.get(word).and_then(Value::as_array).is_none_or(|list| list.iter().all(each))
        };
        let count = |word: &str| {
            let list = part.get(word).and_then(Value::as_array)?;
            Some(list.iter().filter(|schema| self.check(schema, value, depth + 1)).count())
        };
        let followed = |schema: Option<&Value>| schema.is_none_or(|schema| self.check(schema, value, depth + 1));
        let condition = match part.get("if") {
            Some(condition) if self.check(condition, value, depth + 1) => followed(part.get("then")),
            Some(_) => followed(part.get("else")),
            None => true,
        };
        part.get("const").is_none_or(|fixed| equal(fixed, value))
            && part
                .get("enum")
                .and_then(Value::as_array)
                .is_none_or(|list| list.iter().any(|option| equal(option, value)))
            && part.get("type").is_none_or(|kind| is_of(kind, value))
            && part.get("$ref").and_then(Value::as_str).is_none_or(|target| followed(self.target(target)))
            && all("allOf", &|schema| self.check(schema, value, depth + 1))
            && count("anyOf").is_none_or(|count| count > 0)
            && count("oneOf").is_none_or(|count| count == 1)
            && part.get("not").is_none_or(|schema| !self.check(schema, value, depth + 1))
            && condition
            && match value {
                Value::Number(number) => number_follows(part, number),
                Value::String(text) => within(part, "minLength", "maxLength", text.chars().count()),
                Value::Array(list) => self.array_follows(part, list, depth),
                Value::Object(object) => self.object_follows(part, object, depth),
                Value::Null | Value::Bool(_) => true,
            }
    }

    fn array_follows(&self, part: &Map<String, Value>, list: &[Value], depth: usize) -> bool {
        let contained = part.get("contains").is_none_or(|schema| {
            let count = list.iter().filter(|value| self.check(schema, value, depth + 1)).count() as u64;
            let least = part.get("minContains").and_then(Value::as_u64).unwrap_or(1);
            let most = part.get("maxContains").and_then(Value::as_u64).unwrap_or(u64::MAX);
            (least..=most).contains(&count)
        });
        let unique = part.get("uniqueItems") != Some(&Value::Bool(true))
            || list.iter().enumerate().all(|(index, value)| !list.iter().take(index).any(|other| equal(other, value)));
        within(part, "minItems", "maxItems", list.len())
            && contained
            && unique
            && list
                .iter()
                .enumerate()
                .all(|(index, value)| element(part, index).is_none_or(|schema| self.check(schema, value, depth + 1)))
    }

    fn object_follows(&self, part: &Map<String, Value>, object: &Map<String, Value>, depth: usize) -> bool {
        let names = |value: &Value| {
            value
                .as_array()
                .is_none_or(|names| names.iter().filter_map(Value::as_str).all(|name| object.contains_key(name)))
        };
        let properties = part.get("properties").and_then(Value::as_object);
        let dependent = part.get("dependentRequired").and_then(Value::as_object);
        // Names that only a regular expression knows are given the benefit of the doubt.
        let patterned = part.contains_key("patternProperties");
        within(part, "minProperties", "maxProperties", object.len())
            && part.get("required").is_none_or(names)
            && dependent
                .is_none_or(|rules| rules.iter().all(|(name, value)| !object.contains_key(name) || names(value)))
            && object.iter().all(|(name, value)| {
                let own = properties.and_then(|properties| properties.get(name));
                let schema = own.or_else(|| part.get("additionalProperties").filter(|_| !patterned));
                schema.is_none_or(|schema| self.check(schema, value, depth + 1))
            })
            && part.get("propertyNames").is_none_or(|schema| {
                object.keys().all(|name| self.check(schema, &Value::String(name.clone()), depth + 1))
            })
    }
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind, value)),
        kind => match (kind.as_str(), value) {
            (Some("object"), Value::Object(_))
            | (Some("array"), Value::Array(_))
            | (Some("string"), Value::String(_))
            | (Some("number"), Value::Number(_))
            | (Some("boolean"), Value::Bool(_))
            | (Some("null"), Value::Null) => true,
            (Some("integer"), Value::Number(number)) => {
                !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            _ => false,
        },
    }
}

/// Equal as JSON Schema means it: 1 and 1.0 are one number.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| equal(value, other)))
        }
        _ => one == other,
    }
}

fn within(part: &Map<String, Value>, least: &str, most: &str, count: usize) -> bool {
    let bound = |word: &str| part.get(word).and_then(Value::as_u64);
    bound(least).is_none_or(|least| count as u64 >= least) && bound(most).is_none_or(|most| count as u64 <= most)
}

fn number_follows(part: &Map<String, Value>, number: &Number) -> bool {
    let Some(number) = number.as_f64() else { return false };
    let bound = |word: &str| part.get(word).and_then(Value::as_f64);
    let multiple = bound("multipleOf").filter(|step| *step > 0.0).is_none_or(|step| {
        let times = number / step;
        (times - times.round()).abs() < 1e-9
    });
    bound("minimum").is_none_or(|least| number >= least)
        && bound("maximum").is_none_or(|most| number <= most)
        && bound("exclusiveMinimum").is_none_or(|least| number > least)
        && bound("exclusiveMaximum").is_none_or(|most| number < most)
        && multiple
}
