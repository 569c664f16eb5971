//! Limits the cost of a schema before it is compiled.
//!
//! References are resolved as a validator resolves them. A few kilobytes of nested references can cause exponential
//! work; so can a schema that is recursive in several ways, whose cost doubles with every level of the arguments. The
//! first kind is refused, the second kind accepts only flat arguments.

use std::collections::BTreeSet;

use amalgam_protocol::{Raw, Shape};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// The maximum number of objects in a schema, each of which may be a schema.
const MAX_NODES: usize = 2_000;
/// The same with every reference replaced by its target.
const MAX_EXPANDED: usize = 10_000;
/// The maximum nesting with references resolved: validation uses the stack.
const MAX_CHAIN: usize = 200;
const MAX_BYTES: usize = 256 * 1024;
/// The maximum number of patterns, each of which takes memory.
const MAX_PATTERNS: usize = 64;
/// The maximum number of recursions that are distinguished; above it all count as overlapping.
const MAX_RETURNS: usize = 64;
/// The maximum number of visits to the arguments of a recursive schema.
const MAX_WORK: u64 = 100_000;

/// Keywords whose value is a schema for the same value.
const HERE: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords whose value is a list of schemas for the same value.
const HERE_MANY: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords whose value is a map of schemas for the same value.
const HERE_NAMED: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords whose value is a schema, or a list of them, for nested values.
const INSIDE: [&str; 9] = [
    "additionalProperties",
    "additionalItems",
    "items",
    "prefixItems",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
/// A step to any nested value.
const ANY: &str = "*";

/// The cost of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    /// In how many ways the schema may recurse at one position.
    ways: u64,
    /// The number of patterns, which take most of the memory.
    pub(super) patterns: usize,
}

impl Cost {
    /// Whether one position of the arguments may be visited in several ways.
    pub(super) fn is_recursive(self) -> bool {
        self.ways > 1
    }

    pub(super) fn allows(self, arguments: &Value) -> Result<(), String> {
        if !self.is_recursive() {
            return Ok(());
        }
        let deepest = MAX_WORK.ilog(self.ways);
        match depth(arguments) > deepest {
            true => Err(format!("the arguments nest deeper than the {deepest} levels that the schema allows")),
            false => Ok(()),
        }
    }
}

/// Parses a schema within the size limit.
pub(super) fn read(schema: Raw<'_>) -> Result<Value, String> {
    if schema.text().len() > MAX_BYTES {
        return Err(format!("the schema has more than {MAX_BYTES} bytes"));
    }
    debug_assert_eq!(schema.shape(), Shape::Object, "the caller has looked");
    serde_json::from_str(schema.text()).map_err(|error| format!("the schema cannot be read: {error}"))
}

/// Refuses a schema that could take too long, and returns the cost of others.
pub(super) fn check(schema: &Value) -> Result<Cost, String> {
    // Their `id` is the `$id` of later drafts.
    let drafts = ["draft-03", "draft-04"];
    if schema.get("$schema").and_then(Value::as_str).is_some_and(|name| drafts.iter().any(|old| name.contains(old))) {
        return Err("the schema is written for a draft before 6".to_owned());
    }
    let mut size = Size::default();
    size.count(schema, true)?;
    let mut walk = Walk { root: schema, expanded: 0, under_way: Vec::new(), returns: Vec::new() };
    walk.schema(schema, &mut Vec::new())?;
    Ok(Cost { ways: ways(&walk.returns), patterns: size.patterns })
}

#[derive(Default)]
struct Size {
    nodes: usize,
    patterns: usize,
}

impl Size {
    fn count(&mut self, value: &Value, at_root: bool) -> Result<(), String> {
        match value {
            Value::Object(fields) => {
                self.nodes += 1;
                if self.nodes > MAX_NODES {
                    return Err(format!("the schema has more than {MAX_NODES} parts"));
                }
                self.patterns += usize::from(fields.get("pattern").is_some_and(Value::is_string));
                self.patterns += fields.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
                if self.patterns > MAX_PATTERNS {
                    return Err(format!("the schema has more than {MAX_PATTERNS} patterns"));
                }
                // A part with its own `$id` changes the meaning of references inside it.
                if !at_root && fields.get("$id").is_some_and(Value::is_string) {
                    return Err("only the whole schema may have an `$id`".to_owned());
                }
                fields.values().try_for_each(|value| self.count(value, false))
            }
            Value::Array(values) => values.iter().try_for_each(|value| self.count(value, false)),
            _ => Ok(()),
        }
    }
}

struct Walk<'a> {
    root: &'a Value,
    expanded: usize,
    /// The targets of resolved references, with the length of the path at that point.
    under_way: Vec<(&'a Value, usize)>,
    /// The paths on which the schema recurses.
    returns: Vec<Vec<&'a str>>,
}

impl<'a> Walk<'a> {
    /// `path` leads from the arguments to the value that `schema` applies to.
    fn schema(&mut self, schema: &'a Value, path: &mut Vec<&'a str>) -> Result<(), String> {
        let Value::Object(fields) = schema else { return Ok(()) };
        self.expanded += 1;
        if self.expanded > MAX_EXPANDED {
            return Err(format!("the schema has more than {MAX_EXPANDED} parts once its references are followed"));
        }
        if let Some((_, since)) = self.under_way.iter().find(|(other, _)| std::ptr::eq(*other, schema)) {
            let way = path.get(*since..).unwrap_or_default().to_vec();
            if way.is_empty() {
                return Err("the schema refers to itself without end".to_owned());
            }
            self.returns.push(way);
            return Ok(());
        }
        if self.under_way.len() == MAX_CHAIN {
            return Err(format!("the schema nests deeper than {MAX_CHAIN} levels once its references are followed"));
        }
        self.under_way.push((schema, path.len()));
        // These keywords evaluate everything else a second time.
        let leftovers = fields.contains_key("unevaluatedProperties") || fields.contains_key("unevaluatedItems");
        for _ in 0..=usize::from(leftovers) {
            self.here(fields, path)?;
            self.inside(fields, path)?;
        }
        self.under_way.pop();
        Ok(())
    }

    fn here(&mut self, fields: &'a Map<String, Value>, path: &mut Vec<&'a str>) -> Result<(), String> {
        for keyword in ["$dynamicRef", "$recursiveRef"] {
            if fields.get(keyword).is_some_and(Value::is_string) {
                return Err(format!("`{keyword}` is not supported"));
            }
        }
        if let Some(Value::String(reference)) = fields.get("$ref") {
            let target = resolve(self.root, reference)?;
            self.schema(target, path)?;
        }
        for keyword in HERE {
            if let Some(schema) = fields.get(keyword) {
                self.schema(schema, path)?;
            }
        }
        for keyword in HERE_MANY {
            for schema in fields.get(keyword).and_then(Value::as_array).into_iter().flatten() {
                self.schema(schema, path)?;
            }
        }
        for keyword in HERE_NAMED {
            for schema in fields.get(keyword).and_then(Value::as_object).into_iter().flat_map(Map::values) {
                self.schema(schema, path)?;
            }
        }
        Ok(())
    }

    fn inside(&mut self, fields: &'a Map<String, Value>, path: &mut Vec<&'a str>) -> Result<(), String> {
        for (name, schema) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.step(name, schema, path)?;
        }
        for schema in fields.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::values) {
            self.step(ANY, schema, path)?;
        }
        for keyword in INSIDE {
            match fields.get(keyword) {
                Some(Value::Array(schemas)) => schemas.iter().try_for_each(|schema| self.step(ANY, schema, path))?,
                Some(schema) => self.step(ANY, schema, path)?,
                None => {}
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &'a str, schema: &'a Value, path: &mut Vec<&'a str>) -> Result<(), String> {
        path.push(step);
        let walked = self.schema(schema, path);
        path.pop();
        walked
    }
}

/// Resolves a reference inside the schema. Any other reference is refused: nothing is fetched.
fn resolve<'a>(root: &'a Value, reference: &str) -> Result<&'a Value, String> {
    let shown = || crate::text::printable(reference, 100);
    let pointer = match reference.strip_prefix('#') {
        Some(pointer) if pointer.is_empty() || pointer.starts_with('/') => pointer,
        _ => return Err(format!("the reference `{}` leads outside; use `#/$defs/NAME`", shown())),
    };
    let pointer = percent_decode_str(pointer).decode_utf8().map_err(|_| format!("`{}` is no reference", shown()))?;
    root.pointer(&pointer).ok_or_else(|| format!("the reference `{}` leads nowhere", shown()))
}

/// The maximum number of ways to one position. Ways of different lengths count together, because repeated recursion
/// makes them meet.
fn ways(returns: &[Vec<&str>]) -> u64 {
    let distinct: BTreeSet<_> = returns.iter().collect();
    if distinct.len() > MAX_RETURNS {
        return returns.len() as u64;
    }
    let meet = |one: &[&str], other: &[&str]| {
        one.iter().zip(other).all(|(one, other)| one == other || *one == ANY || *other == ANY)
    };
    distinct.iter().map(|way| returns.iter().filter(|other| meet(way, other)).count() as u64).max().unwrap_or_default()
}

fn depth(value: &Value) -> u32 {
    let inside = match value {
        Value::Object(fields) => fields.values().map(depth).max(),
        Value::Array(values) => values.iter().map(depth).max(),
        _ => return 0,
    };
    inside.unwrap_or_default() + 1
}
