//! Checks values against a part of a schema, with `jsonschema`. Regular expressions always match, because values for
//! them are guesses.
//!
//! Work is bounded: a few nested references can cause exponential work, so the cost of a part is computed before it is
//! compiled, and every check is counted.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    ptr,
    rc::Rc,
};

use jsonschema::{Keyword, PatternOptions, Registry, ValidationError, Validator};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value, json};

/// The address of the whole schema for `jsonschema`. Nothing is fetched from it.
const ROOT: &str = "urn:amalgam:schema";
/// Characters to encode in a JSON Pointer inside an address.
const POINTER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'~');
/// The maximum number of objects in a schema with its references resolved; a larger one is not checked.
const MOST_PARTS: usize = 2_000;
/// The maximum number of checks of one value against one part, in all checks together.
const MOST_LOOKS: usize = 2_000_000;
/// The maximum number of paths on which a recursive schema may check one value.
const MOST_WAYS: usize = 100_000;
/// The maximum number of regular expressions that determine additional properties, and the maximum size of each.
const MOST_PATTERNS: usize = 64;
const PATTERN_BYTES: usize = 64 * 1024;

/// Keywords whose schemas apply to the same value.
const SAME_VALUE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];
/// Keywords that hold values, or schemas that only a reference applies.
const NOT_ASKED: [&str; 6] = ["enum", "const", "default", "examples", "$defs", "definitions"];

/// An object of the schema, by its memory address.
type Address = *const Map<String, Value>;

/// Checks values against parts of one schema, within bounded work.
pub(super) struct Checker<'a> {
    root: &'a Value,
    /// `None` if the schema is invalid.
    registry: Option<Registry<'a>>,
    /// The JSON Pointer of each object of the schema.
    pointers: HashMap<Address, String>,
    parts: RefCell<HashMap<Address, Option<Rc<Part>>>>,
    looks: Cell<usize>,
}

/// A part of the schema that can be checked.
struct Part {
    validator: Validator,
    cost: Cost,
}

impl<'a> Checker<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let mut pointers = HashMap::new();
        note_pointers(root, String::new(), &mut pointers);
        let registry = Registry::new().add(ROOT, root).ok().and_then(|registry| registry.prepare().ok());
        Self { root, registry, pointers, parts: RefCell::default(), looks: Cell::new(MOST_LOOKS) }
    }

    /// The target of a reference inside the document.
    pub(super) fn target(&self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(&percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?)
    }

    /// Whether `value` follows `schema`. If that cannot be decided, it counts as valid.
    pub(super) fn check(&self, schema: &Value, value: &Value) -> bool {
        match schema {
            Value::Bool(allowed) => *allowed,
            Value::Object(part) => self.check_map(part, value),
            _ => true,
        }
    }

    pub(super) fn check_map(&self, part: &Map<String, Value>, value: &Value) -> bool {
        let Some(part) = self.part(part) else { return true };
        let looks = part.cost.parts.saturating_mul(size(value));
        if looks > self.looks.get() || !part.cost.allows(value) {
            return true;
        }
        self.looks.set(self.looks.get() - looks);
        part.validator.is_valid(value)
    }

    fn part(&self, part: &Map<String, Value>) -> Option<Rc<Part>> {
        if let Some(known) = self.parts.borrow().get(&ptr::from_ref(part)) {
            return known.clone();
        }
        let made = self.compile(part).map(Rc::new);
        self.parts.borrow_mut().insert(ptr::from_ref(part), made.clone());
        made
    }

    fn compile(&self, part: &Map<String, Value>) -> Option<Part> {
        let (registry, pointer) = (self.registry.as_ref()?, self.pointers.get(&ptr::from_ref(part))?);
        let mut walk = Walk { checker: self, under_way: Vec::new(), cost: Cost::default() };
        walk.map(part, 0)?;
        let reference = format!("{ROOT}#{}", utf8_percent_encode(pointer, POINTER));
        let validator = jsonschema::options()
            .offline()
            .with_registry(registry)
            .should_validate_formats(false)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES))
            .with_keyword("pattern", |_, _, _| Ok(Box::new(Matched)))
            .with_keyword("patternProperties", |_, _, _| Ok(Box::new(Matched)))
            .build(&json!({"$ref": reference}))
            .ok()?;
        Some(Part { validator, cost: walk.cost })
    }
}

/// Records the JSON Pointer of every object.
fn note_pointers(value: &Value, at: String, pointers: &mut HashMap<Address, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                note_pointers(value, format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), pointers);
            }
            pointers.insert(ptr::from_ref(fields), at);
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                note_pointers(value, format!("{at}/{index}"), pointers);
            }
        }
        _ => {}
    }
}

/// The cost of one check of a part.
#[derive(Default)]
struct Cost {
    /// The number of its objects, with references resolved until a recursion.
    parts: usize,
    /// The number of recursions.
    returns: usize,
    patterns: usize,
}

impl Cost {
    /// Whether a value is flat enough for a recursive schema, whose paths multiply with every level.
    fn allows(&self, value: &Value) -> bool {
        self.returns < 2 || depth(value) <= MOST_WAYS.ilog(self.returns)
    }
}

/// Visits a part in the order of a validator.
struct Walk<'c, 'a> {
    checker: &'c Checker<'a>,
    /// The objects that lead to the current one, with the level of the value that each applies to.
    under_way: Vec<(Address, usize)>,
    cost: Cost,
}

impl Walk<'_, '_> {
    fn value(&mut self, value: &Value, level: usize) -> Option<()> {
        match value {
            Value::Object(part) => self.map(part, level),
            Value::Array(list) => list.iter().try_for_each(|value| self.value(value, level)),
            _ => Some(()),
        }
    }

    /// `None` for a part that costs too much, or that refers to itself without end.
    fn map(&mut self, part: &Map<String, Value>, level: usize) -> Option<()> {
        self.cost.parts += 1;
        if self.cost.parts > MOST_PARTS {
            return None;
        }
        if let Some((_, since)) = self.under_way.iter().find(|(known, _)| ptr::eq(*known, part)) {
            self.cost.returns += 1;
            return (*since < level).then_some(());
        }
        self.cost.patterns += part.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        if self.cost.patterns > MOST_PATTERNS {
            return None;
        }
        self.under_way.push((part, level));
        for (keyword, value) in part.iter().filter(|(keyword, _)| !NOT_ASKED.contains(&keyword.as_str())) {
            match value {
                Value::String(reference) if keyword == "$ref" => {
                    self.value(self.checker.target(reference)?, level)?;
                }
                value => self.value(value, level + usize::from(!SAME_VALUE.contains(&keyword.as_str())))?,
            }
        }
        self.under_way.pop();
        Some(())
    }
}

/// Replaces keywords with regular expressions.
struct Matched;

impl<'i> Keyword<'i> for Matched {
    fn validate(&self, _instance: &'i Value) -> Result<(), ValidationError<'i>> {
        Ok(())
    }

    fn is_valid(&self, _instance: &'i Value) -> bool {
        true
    }
}

/// The number of values in a value, including itself.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Object(fields) => fields.values().map(size).sum(),
        Value::Array(list) => list.iter().map(size).sum(),
        _ => 0,
    }
}

fn depth(value: &Value) -> u32 {
    let inside = match value {
        Value::Object(fields) => fields.values().map(depth).max(),
        Value::Array(list) => list.iter().map(depth).max(),
        _ => return 0,
    };
    inside.unwrap_or_default() + 1
}
