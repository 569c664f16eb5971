//! The configured values with their origins; a stronger layer overrides a weaker one.
//!
//! In ascending strength: defaults, file, environment, flags. Nothing here knows what a value means.

use std::collections::BTreeMap;
use std::fmt;

use super::fault::ValueOrigin;
use super::schema::Section;

/// The location of keys: a section, or one entry of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyPath {
    pub(crate) section: Section,
    pub(crate) entry: Option<String>,
}

impl KeyPath {
    pub(crate) fn section(section: Section) -> Self {
        Self { section, entry: None }
    }

    pub(crate) fn entry(section: Section, name: &str) -> Self {
        Self { section, entry: Some(name.to_owned()) }
    }

    /// The name of the entry with its section: `upstreams.openai`.
    pub(crate) fn entry_path(&self) -> Option<String> {
        self.entry.as_ref().map(|entry| format!("{}.{}", self.section.name(), quoted(entry)))
    }

    /// The full name of a key, as `check` prints it: `upstreams.openai.base_url`.
    pub(crate) fn path(&self, key: &str) -> String {
        match (self.section, &self.entry) {
            (Section::Process, _) => key.to_owned(),
            (section, None) => format!("{}.{key}", section.name()),
            (section, Some(entry)) => format!("{}.{}.{key}", section.name(), quoted(entry)),
        }
    }
}

/// The heading of the table in the file: `[upstreams.openai]`.
impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            None => write!(f, "[{}]", self.section.name()),
            Some(entry) => write!(f, "[{}.{}]", self.section.name(), quoted(entry)),
        }
    }
}

fn quoted(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if bare { name.to_owned() } else { format!("\"{}\"", name.escape_debug()) }
}

/// An unparsed value. Without `Debug`: it may be a secret.
#[derive(Clone)]
pub(crate) enum Raw {
    /// Text of a flag, a variable or a default, which has no type yet.
    Plain(String),
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    List(Vec<LocatedValue>),
    Table(Vec<(String, LocatedValue)>),
    /// A type of value that no key accepts, by its name.
    Other(&'static str),
}

#[derive(Clone)]
pub(crate) struct LocatedValue {
    pub(crate) raw: Raw,
    pub(crate) origin: ValueOrigin,
}

impl LocatedValue {
    pub(crate) fn plain(text: impl Into<String>, origin: ValueOrigin) -> Self {
        Self { raw: Raw::Plain(text.into()), origin }
    }

    /// The origin of the item with this index: its own line if it has one.
    pub(crate) fn item_origin(&self, index: usize) -> ValueOrigin {
        match &self.raw {
            Raw::List(items) => items.get(index).map_or_else(|| self.origin.clone(), |item| item.origin.clone()),
            _ => self.origin.clone(),
        }
    }
}

/// All values that were set, and the entries that exist.
#[derive(Default)]
pub(crate) struct Layers {
    values: BTreeMap<KeyPath, BTreeMap<&'static str, LocatedValue>>,
    /// In file order, which decides the precedence of upstreams.
    entries: Vec<KeyPath>,
    declared: BTreeMap<KeyPath, ValueOrigin>,
}

impl Layers {
    /// Sets a value, overriding weaker layers.
    pub(crate) fn put(&mut self, at: &KeyPath, key: &'static str, located: LocatedValue) {
        self.values.entry(at.clone()).or_default().insert(key, located);
    }

    pub(crate) fn get(&self, at: &KeyPath, key: &str) -> Option<&LocatedValue> {
        self.values.get(at)?.get(key)
    }

    pub(crate) fn keys(&self, at: &KeyPath) -> impl Iterator<Item = (&'static str, &LocatedValue)> {
        self.values.get(at).into_iter().flatten().map(|(key, located)| (*key, located))
    }

    /// Records that an entry exists; the first mention is its origin.
    pub(crate) fn declare(&mut self, at: &KeyPath, origin: ValueOrigin) {
        if !self.declared.contains_key(at) {
            self.entries.push(at.clone());
            self.declared.insert(at.clone(), origin);
        }
    }

    pub(crate) fn entry_origin(&self, at: &KeyPath) -> Option<&ValueOrigin> {
        self.declared.get(at)
    }

    /// The names in a section, in order of declaration.
    pub(crate) fn names(&self, section: Section) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(move |at| at.section == section).filter_map(|at| at.entry.as_deref())
    }
}
