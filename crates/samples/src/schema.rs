//! Generates an instance of a JSON Schema, filled from a message where possible.
//!
//! Candidates are generated from all parts of a schema together and then checked against it. So the result is valid,
//! unless the schema has no instance or uses a regular expression. Work is bounded: a schema that would cost too much
//! gets the simplest value.

mod check;

use std::{cell::Cell, ptr};

use serde_json::{Map, Value, json};

use self::check::Checker;
use crate::hints::SampleHints;

/// The maximum depth of generated values.
const DEEPEST: usize = 24;
/// From this depth on, the alternative that ends soonest is preferred.
const DEEP: usize = 3;
/// The maximum number of steps for one schema.
const STEPS: u32 = 50_000;
/// The maximum length of a generated list, even if its minimum is larger.
const LONGEST: u64 = 1_000;

/// Generates a value for `schema`.
pub fn instance(schema: &Value, hints: &SampleHints) -> Value {
    let filler = Filler { checker: Checker::new(schema), steps: Steps(Cell::new(STEPS)), hints };
    filler.fill(&[schema], Place { field: "", depth: 0, salt: 0 }).unwrap_or_else(|| match schema.get("type") {
        Some(Value::String(kind)) if kind != "object" => Value::Null,
        _ => json!({}),
    })
}

struct Filler<'a> {
    checker: Checker<'a>,
    steps: Steps,
    hints: &'a SampleHints,
}

/// The position of a value; `salt` makes neighbours differ.
#[derive(Clone, Copy)]
struct Place<'p> {
    field: &'p str,
    depth: usize,
    salt: u64,
}

impl<'a> Filler<'a> {
    /// A value that satisfies all of `parts`.
    fn fill(&self, parts: &[&'a Value], place: Place<'_>) -> Option<Value> {
        if place.depth > DEEPEST || !self.steps.take() {
            return None;
        }
        self.choose(parts, &[], place)
    }

    /// Resolves references and alternatives one after the other. `settled` holds the alternatives that were chosen.
    fn choose(&self, parts: &[&'a Value], settled: &[*const Value], place: Place<'_>) -> Option<Value> {
        let all = self.together(parts)?;
        let open = all
            .iter()
            .flat_map(|part| ["anyOf", "oneOf", "if"].iter().filter_map(|word| Some((*part, *word, part.get(*word)?))));
        let next = open.into_iter().find(|(_, _, value)| !settled.iter().any(|known| ptr::eq(*known, *value)));
        let Some((part, word, value)) = next else { return self.value(&all, place) };
        let mut settled = settled.to_vec();
        settled.push(value);
        for way in self.ways(part, word, value, place) {
            if !self.steps.take() {
                return None;
            }
            let used = self.hints.used();
            let mut parts: Vec<&Value> = parts.to_vec();
            parts.extend(way);
            if let Some(filled) = self.choose(&parts, &settled, place).filter(|filled| self.holds(&parts, filled)) {
                return Some(filled);
            }
            self.hints.restore(used);
        }
        None
    }

    /// The alternatives of one keyword, each as further parts; at depth those first that are likely to end soon.
    fn ways(
        &self,
        part: &'a Map<String, Value>,
        word: &str,
        value: &'a Value,
        place: Place<'_>,
    ) -> Vec<Vec<&'a Value>> {
        if word == "if" {
            let then = [Some(value), part.get("then")].into_iter().flatten().collect();
            return vec![then, part.get("else").into_iter().collect()];
        }
        let mut ways: Vec<&Value> = value.as_array().into_iter().flatten().collect();
        if place.depth >= DEEP {
            ways.sort_by_key(|way| way.get("$ref").is_some() || way.get("properties").is_some());
        } else {
            // A value is better than null.
            ways.sort_by_key(|way| way.get("type").is_some_and(|kind| kind == "null"));
        }
        let turn = (place.salt as usize) % ways.len().max(1);
        ways.rotate_left(turn);
        ways.into_iter().map(|way| vec![way]).collect()
    }

    /// The objects that apply together, with references resolved and `allOf` expanded. `None` if one of them is
    /// `false`.
    fn together(&self, parts: &[&'a Value]) -> Option<Vec<&'a Map<String, Value>>> {
        let mut queue: Vec<&'a Value> = parts.iter().rev().copied().collect();
        let mut all: Vec<&'a Map<String, Value>> = Vec::new();
        while let Some(part) = queue.pop() {
            if !self.steps.take() {
                return None;
            }
            let part = match part {
                Value::Bool(true) => continue,
                Value::Object(part) => part,
                _ => return None,
            };
            if all.iter().any(|known| ptr::eq(*known, part)) {
                continue;
            }
            all.push(part);
            if let Some(target) = part.get("$ref").and_then(Value::as_str) {
                queue.push(self.checker.target(target)?);
            }
            queue.extend(part.get("allOf").and_then(Value::as_array).into_iter().flatten());
        }
        Some(all)
    }

    /// Generates a value, once all alternatives are chosen.
    fn value(&self, all: &[&'a Map<String, Value>], place: Place<'_>) -> Option<Value> {
        let fits = |value: &Value| all.iter().all(|part| self.checker.check_map(part, value));
        if let Some(fixed) = all.iter().find_map(|part| part.get("const")) {
            return fits(fixed).then(|| fixed.clone());
        }
        if let Some(options) = all.iter().find_map(|part| part.get("enum")).and_then(Value::as_array) {
            let mut options: Vec<&Value> = options.iter().filter(|option| fits(option)).collect();
            let mentioned = |option: &&Value| option.as_str().is_some_and(|word| self.hints.says(word));
            options.sort_by_key(|option| !mentioned(option));
            let turn = (place.salt as usize) % options.len().max(1);
            return options.get(turn).map(|option| (*option).clone());
        }
        let given = all.iter().find_map(|part| part.get("default")).filter(|value| fits(value));
        if let Some(given) = given.filter(|_| place.salt == 0 && self.hints.named(place.field).is_none()) {
            return Some(given.clone());
        }
        self.kinds(all).into_iter().find_map(|kind| {
            let used = self.hints.used();
            let value = match kind {
                "object" => self.object(all, place),
                "array" => self.array(all, place),
                "string" => Some(self.string(all, place)),
                "integer" | "number" => self.number(all, kind, place, &fits),
                "boolean" => {
                    let hint = self.hints.boolean(place.field);
                    Some(Value::Bool(hint.filter(|_| place.salt == 0).unwrap_or(place.salt.is_multiple_of(2))))
                }
                _ => Some(Value::Null),
            };
            let value = value.filter(&fits);
            if value.is_none() {
                self.hints.restore(used);
            }
            value
        })
    }

    /// The types that all parts allow, in the order to try them.
    fn kinds(&self, all: &[&'a Map<String, Value>]) -> Vec<&'a str> {
        const KINDS: [&str; 7] = ["string", "object", "array", "integer", "number", "boolean", "null"];
        let mut declared = all.iter().filter_map(|part| part.get("type")).map(|kind| match kind {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>(),
            kind => kind.as_str().into_iter().collect(),
        });
        let Some(mut kinds) = declared.next() else {
            // Without `type`, the other keywords imply it.
            let speaks_of = |words: &[&str]| all.iter().any(|part| words.iter().any(|word| part.contains_key(*word)));
            let mut kinds = KINDS.to_vec();
            kinds.sort_by_key(|kind| match *kind {
                "object" => !speaks_of(&["properties", "required", "additionalProperties", "minProperties"]),
                "array" => !speaks_of(&["items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems"]),
                "number" => !speaks_of(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
                "string" => !speaks_of(&["minLength", "maxLength", "pattern", "format"]),
                _ => true,
            });
            return kinds;
        };
        for others in declared {
            let allows = |kind: &str| others.contains(&kind) || (kind == "integer" && others.contains(&"number"));
            let narrowed: Vec<&str> = kinds
                .iter()
                .flat_map(|kind| if *kind == "number" { vec!["number", "integer"] } else { vec![*kind] })
                .filter(|kind| allows(kind))
                .collect();
            kinds = narrowed;
        }
        kinds.sort_by_key(|kind| *kind == "null");
        kinds
    }

    fn object(&self, all: &[&'a Map<String, Value>], place: Place<'_>) -> Option<Value> {
        let mut object = Map::new();
        let words = |part: &&'a Map<String, Value>, word: &str| {
            part.get(word).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>()
        };
        let required: Vec<&str> = all.iter().flat_map(|part| words(part, "required")).collect();
        let known: Vec<&str> = all
            .iter()
            .filter_map(|part| part.get("properties").and_then(Value::as_object))
            .flat_map(|properties| properties.keys().map(String::as_str))
            .collect();
        for name in &required {
            self.property(all, name, place, &mut object)?;
        }
        // A tool without required properties is still called with some.
        let generous = required.is_empty() && place.depth == 0;
        // A value for a regular expression is a guess, so it is generated only if it is required.
        let guessed = |name: &str| {
            let own = all.iter().filter_map(|part| part.get("properties")?.get(name)?.get("pattern"));
            own.count() > 0
        };
        for name in known.iter().filter(|name| (generous && !guessed(name)) || self.hints.named(name).is_some()) {
            let _ = self.property(all, name, place, &mut object);
        }
        let mut dependent = true;
        while std::mem::take(&mut dependent) {
            let names: Vec<&str> = all
                .iter()
                .filter_map(|part| part.get("dependentRequired").and_then(Value::as_object))
                .flat_map(|rules| rules.iter().filter(|(name, _)| object.contains_key(*name)))
                .flat_map(|(_, names)| names.as_array().into_iter().flatten().filter_map(Value::as_str))
                .filter(|name| !object.contains_key(*name))
                .collect();
            for name in names {
                dependent = true;
                self.property(all, name, place, &mut object)?;
            }
        }
        let least = all.iter().filter_map(|part| part.get("minProperties")?.as_u64()).max().unwrap_or(0).min(LONGEST);
        let extra: Vec<String> = (1..=least).map(|number| format!("field_{number}")).collect();
        for name in known.iter().copied().chain(extra.iter().map(String::as_str)) {
            if object.len() as u64 >= least {
                break;
            }
            let _ = self.property(all, name, place, &mut object);
        }
        Some(Value::Object(object))
    }

    /// Generates one property from all parts that mention it; `None` if it is forbidden.
    fn property(
        &self,
        all: &[&'a Map<String, Value>],
        name: &str,
        place: Place<'_>,
        object: &mut Map<String, Value>,
    ) -> Option<()> {
        if object.contains_key(name) {
            return Some(());
        }
        let mut parts: Vec<&'a Value> = Vec::new();
        for part in all {
            let own = part.get("properties").and_then(|properties| properties.get(name));
            parts.extend(own.or_else(|| part.get("additionalProperties")));
        }
        let place = Place { field: name, depth: place.depth + 1, salt: place.salt };
        let value = self.fill(&parts, place)?;
        object.insert(name.to_owned(), value);
        Some(())
    }

    fn array(&self, all: &[&'a Map<String, Value>], place: Place<'_>) -> Option<Value> {
        let bound = |word: &'static str| all.iter().filter_map(move |part| part.get(word)?.as_u64());
        let contained: Vec<&'a Value> = all.iter().filter_map(|part| part.get("contains")).collect();
        let matches = match contained.is_empty() {
            true => 0,
            false => bound("minContains").max().unwrap_or(1),
        };
        let least = bound("minItems").max().unwrap_or(0).max(matches).min(LONGEST);
        let most = bound("maxItems").min().unwrap_or(u64::MAX);
        // One element is better than none, unless the list is recursive.
        let wanted = if place.depth < DEEP { least.max(1) } else { least }.min(most);
        let unique = all.iter().any(|part| part.get("uniqueItems") == Some(&Value::Bool(true)));
        let mut list: Vec<Value> = Vec::new();
        for index in 0..wanted {
            let mut parts: Vec<&'a Value> = all.iter().filter_map(|part| element(part, index as usize)).collect();
            if index < matches {
                parts.extend(&contained);
            }
            // A hint may equal a counted value; the next number is another attempt.
            let tries = (0..=if unique { index } else { 0 }).map(|more| place.salt + index + more);
            let filled =
                tries.map(|salt| self.fill(&parts, Place { field: place.field, depth: place.depth + 1, salt }));
            match filled.flatten().find(|value| !unique || !list.contains(value)) {
                Some(value) => list.push(value),
                None if index >= least => break,
                None => return None,
            }
        }
        let list = Value::Array(list);
        let fits = all.iter().all(|part| self.checker.check_map(part, &list));
        match fits || least > 0 {
            true => Some(list),
            false => Some(json!([])),
        }
    }

    fn string(&self, all: &[&'a Map<String, Value>], place: Place<'_>) -> Value {
        let bound = |word: &'static str| all.iter().filter_map(move |part| part.get(word)?.as_u64());
        let least = bound("minLength").max().unwrap_or(0).min(100 * LONGEST) as usize;
        let most = bound("maxLength").min().unwrap_or(u64::MAX) as usize;
        let format = all.iter().find_map(|part| part.get("format").and_then(Value::as_str)).and_then(sample);
        let mut text = match (format, self.hints.string(place.field)) {
            (Some(sample), _) => sample.to_owned(),
            (None, Some(hint)) if (least..=most).contains(&hint.chars().count()) => hint,
            (None, _) => "demo".to_owned(),
        };
        if place.salt > 0 {
            text.push_str(&format!(" {}", place.salt + 1));
        }
        let length = text.chars().count();
        if length > most {
            // Neighbours differ at the end of the text.
            text = text.chars().skip(length - most).collect();
        }
        if length < least {
            text = "x".repeat(least - length) + &text;
        }
        Value::String(text)
    }

    fn number(
        &self,
        all: &[&'a Map<String, Value>],
        kind: &str,
        place: Place<'_>,
        fits: &impl Fn(&Value) -> bool,
    ) -> Option<Value> {
        let value = |number: f64| -> Option<Value> {
            let whole = number.fract() == 0.0 && number.abs() < 9.0e15;
            match (kind, whole) {
                (_, true) => Some(json!(number as i64)),
                ("integer", false) => None,
                (_, false) => Some(json!(number)),
            }
        };
        let fitting = |number: f64| value(number).filter(fits);
        if place.salt == 0
            && let Some(hint) = self.hints.number(place.field, |number| fitting(number).is_some())
        {
            return fitting(hint);
        }
        let bound = |words: [&'static str; 2]| {
            all.iter().flat_map(move |part| words.into_iter().filter_map(|word| part.get(word)?.as_f64()))
        };
        let low = bound(["minimum", "exclusiveMinimum"]).reduce(f64::max);
        let high = bound(["maximum", "exclusiveMaximum"]).reduce(f64::min);
        let step = bound(["multipleOf", "multipleOf"]).reduce(f64::max).filter(|step| *step > 0.0);
        let mut candidates = Vec::new();
        if let Some(step) = step {
            let start = low.map_or(0.0, |low| (low / step).ceil());
            candidates.extend((0..64).map(|count| (start + f64::from(count)) * step));
            candidates.extend(high.map(|high| (high / step).floor() * step));
        }
        candidates.extend((1..=64).map(f64::from));
        candidates.push(0.0);
        match (low, high) {
            (Some(low), Some(high)) => candidates.extend([(low + high) / 2.0, low + (high - low) / 3.0]),
            (None, Some(high)) => candidates.extend((0..64).map(|count| high.floor() - f64::from(count))),
            _ => {}
        }
        if let Some(low) = low {
            candidates.push(low);
            candidates.extend((0..64).map(|count| low.ceil() + f64::from(count)));
        }
        candidates.extend(high);
        let mut valid: Vec<Value> = Vec::new();
        for candidate in candidates.into_iter().filter_map(fitting) {
            if !valid.contains(&candidate) {
                valid.push(candidate);
            }
            if valid.len() as u64 > place.salt {
                break;
            }
        }
        valid.pop()
    }

    fn holds(&self, parts: &[&'a Value], value: &Value) -> bool {
        parts.iter().all(|part| self.checker.check(part, value))
    }
}

/// The schema of an array's element `index`.
fn element(part: &Map<String, Value>, index: usize) -> Option<&Value> {
    // Older drafts have a list under `items`, with `additionalItems` for the rest.
    let (tuple, rest) = match part.get("items") {
        Some(Value::Array(tuple)) => (Some(tuple), part.get("additionalItems")),
        rest => (part.get("prefixItems").and_then(Value::as_array), rest),
    };
    tuple.and_then(|tuple| tuple.get(index)).or(rest)
}

fn sample(format: &str) -> Option<&'static str> {
    Some(match format {
        "date-time" => "2026-01-01T12:00:00Z",
        "date" => "2026-01-01",
        "time" => "12:00:00Z",
        "duration" => "PT1H",
        "email" | "idn-email" => "demo@example.com",
        "hostname" | "idn-hostname" => "example.com",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uri" | "iri" | "uri-reference" | "iri-reference" => "https://example.com/",
        "uuid" => "00000000-0000-4000-8000-000000000000",
        "json-pointer" => "/demo",
        "regex" => "demo",
        _ => return None,
    })
}

/// The remaining steps.
#[derive(Debug)]
struct Steps(Cell<u32>);

impl Steps {
    /// Uses one step; `false` if none is left.
    fn take(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
