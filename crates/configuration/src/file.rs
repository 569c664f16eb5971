//! Reads the configuration file: parses TOML with line numbers, and reports unknown keys.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{ConfigFault, ValueOrigin};
use super::keys::KEYS;
use super::layers::{KeyPath, Layers, LocatedValue, Raw};
use super::schema::{Key, Section};
use super::sources::SourceFile;
use super::suggest::did_you_mean;

/// Adds all values of the file to `layers`; unknown keys and tables are added to `faults`.
///
/// Invalid TOML is a separate error: what the parser recovers from it would cause misleading faults.
pub(crate) fn read(
    file: &SourceFile,
    layers: &mut Layers,
    faults: &mut Vec<ConfigFault>,
) -> Result<(), Vec<ConfigFault>> {
    let lines = Lines::of(file);
    let (root, errors) = DeTable::parse_recoverable(&file.text);
    if !errors.is_empty() {
        // Only the parser's message: its `Display` shows the line itself, which may contain a secret.
        let fault = |error: &toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            ConfigFault::new(lines.origin(start), format!("not valid TOML: {}", error.message()))
        };
        return Err(errors.iter().map(fault).collect());
    }
    let mut reader = FileReader { lines, layers, faults };
    for (name, origin, value) in in_file_order(&reader.lines, root.get_ref()) {
        match Section::named(name) {
            Some(section) => reader.section(section, origin, value),
            None if Section::is_group(name) && value.is_table() => reader.group(name, value),
            None => reader.faults.push(unknown_at_the_top(name, origin, value)),
        }
    }
    Ok(())
}

struct FileReader<'a> {
    lines: Lines<'a>,
    layers: &'a mut Layers,
    faults: &'a mut Vec<ConfigFault>,
}

impl FileReader<'_> {
    fn section(&mut self, section: Section, origin: ValueOrigin, value: &DeValue<'_>) {
        let Some(table) = self.table(value, &KeyPath::section(section), &origin) else { return };
        if !section.has_entries() {
            self.keys(&KeyPath::section(section), table);
            return;
        }
        for (entry, origin, value) in in_file_order(&self.lines, table) {
            let at = KeyPath::entry(section, entry);
            if !value.is_table() && section.key(entry).is_some() {
                let message = format!("'{entry}' belongs to an entry, as in [{}.NAME]", section.name());
                self.faults.push(ConfigFault::new(origin, message));
                continue;
            }
            let Some(table) = self.table(value, &at, &origin) else { continue };
            self.layers.declare(&at, origin);
            self.keys(&at, table);
        }
    }

    /// A table that has no keys of its own, only sections.
    fn group(&mut self, group: &str, value: &DeValue<'_>) {
        let Some(table) = value.as_table() else { return };
        for (name, origin, value) in in_file_order(&self.lines, table) {
            let full_name = format!("{group}.{name}");
            match Section::named(&full_name) {
                Some(section) => self.section(section, origin, value),
                None => self.faults.push(unknown_at_the_top(&full_name, origin, value)),
            }
        }
    }

    fn keys(&mut self, at: &KeyPath, table: &DeTable<'_>) {
        for (name, origin, value) in in_file_order(&self.lines, table) {
            if let Some(inner) = Section::named(&format!("{}.{name}", at.section.name())) {
                self.section(inner, origin, value);
                continue;
            }
            match (at.section.key(name), value) {
                (Some(key), _) => self.put(at, key, origin, value),
                // A table of the entry: its keys are named `TABLE.KEY`.
                (None, DeValue::Table(inner)) if at.section.has_table(name) => {
                    for (inner_name, origin, value) in in_file_order(&self.lines, inner) {
                        let full_name = format!("{name}.{inner_name}");
                        match at.section.key(&full_name) {
                            Some(key) => self.put(at, key, origin, value),
                            None => self.faults.push(unknown_key(&full_name, at, origin)),
                        }
                    }
                }
                (None, _) => self.faults.push(unknown_key(name, at, origin)),
            }
        }
    }

    fn put(&mut self, at: &KeyPath, key: &'static Key, origin: ValueOrigin, value: &DeValue<'_>) {
        let raw = raw(&|offset| self.lines.origin(offset), value);
        self.layers.put(at, key.name, LocatedValue { raw, origin });
    }

    fn table<'v, 'i>(&mut self, value: &'v DeValue<'i>, at: &KeyPath, origin: &ValueOrigin) -> Option<&'v DeTable<'i>> {
        let table = value.as_table();
        if table.is_none() {
            let message = format!("{at} is a table, found {}", with_article(value.type_str()));
            self.faults.push(ConfigFault::new(origin.clone(), message));
        }
        table
    }
}

fn unknown_key(name: &str, at: &KeyPath, origin: ValueOrigin) -> ConfigFault {
    let shown = name.escape_debug();
    let hint = match Section::FILE_SECTIONS.iter().find(|section| section.key(name).is_some()) {
        Some(home) => format!("; it belongs in {}", heading(*home)),
        None => did_you_mean(name, at.section.keys().map(|key| key.name)),
    };
    ConfigFault::new(origin, format!("unknown key '{shown}' in {at}{hint}"))
}

fn unknown_at_the_top(name: &str, origin: ValueOrigin, value: &DeValue<'_>) -> ConfigFault {
    let shown = name.escape_debug();
    if value.is_table() {
        let hint = did_you_mean(name, Section::FILE_SECTIONS.iter().map(|section| section.name()));
        return ConfigFault::new(origin, format!("unknown section [{shown}]{hint}"));
    }
    let hint = match KEYS.iter().find(|key| key.name == name) {
        Some(key) if key.section == Section::Process => {
            format!("; it is not set in the file but with {}", key.variables(None).join(" or "))
        }
        Some(key) => format!("; it belongs in {}", heading(key.section)),
        None => did_you_mean(name, KEYS.iter().filter(|key| key.section != Section::Process).map(|key| key.name)),
    };
    ConfigFault::new(origin, format!("unknown key '{shown}' outside of any section{hint}"))
}

fn heading(section: Section) -> String {
    if section.has_entries() { format!("[{}.NAME]", section.name()) } else { format!("[{}]", section.name()) }
}

fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {noun}")
}

/// A value with the origins of its parts.
pub(crate) fn raw(origin_of: &dyn Fn(usize) -> ValueOrigin, value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Boolean(value) => Raw::Boolean(*value),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(value) => Raw::Integer(value),
            Err(_) => Raw::Other("a number that is too large"),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => Raw::Float(number),
            Err(_) => Raw::Other("a number with a fraction"),
        },
        DeValue::Datetime(_) => Raw::Other("a date or time"),
        DeValue::Array(items) => Raw::List(
            items
                .iter()
                .map(|item| LocatedValue { raw: raw(origin_of, item.get_ref()), origin: origin_of(item.span().start) })
                .collect(),
        ),
        DeValue::Table(table) => Raw::Table(
            table
                .iter()
                .map(|(name, value)| {
                    let origin = origin_of(name.span().start);
                    (name.get_ref().to_string(), LocatedValue { raw: raw(origin_of, value.get_ref()), origin })
                })
                .collect(),
        ),
    }
}

/// The pairs of a table in file order, each with the line of its key.
fn in_file_order<'t, 'i>(lines: &Lines<'_>, table: &'t DeTable<'i>) -> Vec<(&'t str, ValueOrigin, &'t DeValue<'i>)> {
    let mut pairs: Vec<_> = table.iter().collect();
    pairs.sort_by_key(|(key, _)| key.span().start);
    pairs
        .into_iter()
        .map(|(key, value): (&Spanned<_>, &Spanned<_>)| {
            (key.get_ref().as_ref(), lines.origin(key.span().start), value.get_ref())
        })
        .collect()
}

/// Converts offsets to line numbers.
struct Lines<'a> {
    file: &'a SourceFile,
    ends: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(file: &'a SourceFile) -> Self {
        Self { file, ends: newlines(&file.text) }
    }

    fn origin(&self, offset: usize) -> ValueOrigin {
        let line = 1 + self.ends.partition_point(|end| *end < offset);
        ValueOrigin::File { path: self.file.path.clone(), line }
    }
}

fn newlines(text: &str) -> Vec<usize> {
    text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(offset, _)| offset).collect()
}
