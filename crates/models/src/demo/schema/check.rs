//! Whether a value follows a part of a schema, as `jsonschema` sees it. Regular expressions count as matched: what has to
//! match one is a guess here anyway.
//!
//! Work is bounded. A few references to references can stand for more work than there is time, so that a part's cost is
//! measured before it is compiled, and every check is paid for.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    ptr,
    rc::Rc,
};

use jsonschema::{Keyword, PatternOptions, Registry, ValidationError, Validator};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value, json};

/// Where `jsonschema` knows the whole schema. Nothing is fetched from there.
const ROOT: &str = "urn:amalgam:schema";
/// What is encoded in a JSON Pointer that is part of an address.
const POINTER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'~');
/// Objects of a schema with its references followed, beyond which it is not checked.
const MOST_PARTS: usize = 2_000;
/// Looks at one value by one part of a schema, in all checks together.
const MOST_LOOKS: usize = 2_000_000;
/// Ways in which a schema that meets itself may look at one value.
const MOST_WAYS: usize = 100_000;
/// Regular expressions that tell which properties are additional ones, and what each may take.
const MOST_PATTERNS: usize = 64;
const PATTERN_BYTES: usize = 64 * 1024;

/// Keywords whose schemas are about the same value.
const SAME_VALUE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];
/// Keywords that hold values, or schemas that only a reference leads to.
const NOT_ASKED: [&str; 6] = ["enum", "const", "default", "examples", "$defs", "definitions"];

/// An object of the schema, by where it is in memory.
type Address = *const Map<String, Value>;

/// Checks values against parts of one schema, within bounded work.
pub(super) struct Checker<'a> {
    root: &'a Value,
    /// None where the schema cannot be read as one.
    registry: Option<Registry<'a>>,
    /// Where each object of the schema is in it.
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

    /// What a reference inside the same document points to.
    pub(super) fn target(&self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(&percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?)
    }

    /// Whether `value` follows `schema`. What cannot be decided counts as yes.
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

/// Notes where every object is, as a JSON Pointer.
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

/// What one check of a part may take.
#[derive(Default)]
struct Cost {
    /// Its objects, with references followed up to where it meets itself.
    parts: usize,
    /// How often it meets itself.
    returns: usize,
    patterns: usize,
}

impl Cost {
    /// Whether a value is flat enough for a schema whose ways multiply with every level.
    fn allows(&self, value: &Value) -> bool {
        self.returns < 2 || depth(value) <= MOST_WAYS.ilog(self.returns)
    }
}

/// Goes through a part as a validator does.
struct Walk<'c, 'a> {
    checker: &'c Checker<'a>,
    /// The objects that lead here, with the level of the value that each is about.
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

    /// None for a part that takes too much, or that refers to itself without end.
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

/// Takes the place of keywords with regular expressions.
struct Matched;

impl<'i> Keyword<'i> for Matched {
    fn validate(&self, _instance: &'i Value) -> Result<(), ValidationError<'i>> {
        Ok(())
    }

    fn is_valid(&self, _instance: &'i Value) -> bool {
        true
    }
}

/// The values in a value, itself among them.
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
