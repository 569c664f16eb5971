//! Reads the `AMALGAM_…` variables: the same keys as in the file, under derived names.
//!
//! `AMALGAM_SERVER_HEADER_TIMEOUT` is `header_timeout` in `[server]`; `AMALGAM_UPSTREAMS_OPENAI_BASE_URL` is `base_url`
//! in `[upstreams.openai]`. An empty variable counts as unset.

use std::collections::BTreeSet;

use super::fault::{ConfigFault, ValueOrigin};
use super::keys::KEYS;
use super::layers::{KeyPath, Layers, LocatedValue};
use super::schema::{Key, Section, Shape};
use super::sources::Environment;
use super::suggest::nearest;

const PREFIX: &str = "AMALGAM_";

/// The variable of commands that call a server.
const CLIENT_VARIABLE: &str = "AMALGAM_KEY";

/// Variables of the OpenTelemetry specification, and the keys of `[telemetry]` that they set.
const STANDARD: [(&str, &str); 4] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "headers"),
    ("OTEL_SERVICE_NAME", "service_name"),
    ("OTEL_RESOURCE_ATTRIBUTES", "attributes"),
];

/// Adds every variable that names a key to `layers` and returns the unknown names.
pub(crate) fn read(environment: &Environment, layers: &mut Layers, faults: &mut Vec<ConfigFault>) -> Vec<String> {
    read_standard(environment, layers, faults);
    let mut unknown = Vec::new();
    let mut seen = BTreeSet::new();
    for name in environment.names(PREFIX).filter(|name| *name != CLIENT_VARIABLE) {
        let origin = ValueOrigin::Variable(name.to_owned());
        let Some((key, entry)) = key_of(name) else {
            unknown.push(name.to_owned());
            continue;
        };
        let text = match environment.get(name) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(_) => {
                faults.push(ConfigFault::new(origin, "the value is not readable text"));
                continue;
            }
        };
        // An empty API key is meant to lock callers out, so it must not count as unset; the same holds for an empty
        // database URL.
        let guards = match key.shape {
            Shape::Secrets => true,
            Shape::Secret => matches!(key.section, Section::Process | Section::Auth | Section::ConsoleOidc),
            Shape::StoreUrl => true,
            _ => false,
        };
        if text.is_empty() {
            if guards {
                faults.push(ConfigFault::new(origin, "the variable is set but empty"));
            }
            continue;
        }
        let at = match entry {
            None => KeyPath::section(key.section),
            Some(capitals) => match entry_named(&capitals, key.section, layers) {
                Ok(name) => KeyPath::entry(key.section, &name),
                Err(problem) => {
                    faults.push(ConfigFault::new(origin, problem));
                    continue;
                }
            },
        };
        if !seen.insert((at.clone(), key.name)) {
            let others = key.variables(None).join(" and ");
            faults.push(ConfigFault::new(origin, format!("{others} set the same key; keep one")));
            continue;
        }
        if at.entry.is_some() {
            layers.declare(&at, origin.clone());
        }
        layers.put(&at, key.name, LocatedValue::plain(text, origin));
    }
    unknown
}

/// Adds the variables of the OpenTelemetry specification. They are often set for all programs of a machine, so the file and the
/// `AMALGAM_…` variables take precedence.
fn read_standard(environment: &Environment, layers: &mut Layers, faults: &mut Vec<ConfigFault>) {
    let at = KeyPath::section(Section::Telemetry);
    for (name, key) in STANDARD {
        let origin = ValueOrigin::Variable(name.to_owned());
        match environment.get(name) {
            Ok(Some(text)) if !text.is_empty() && layers.get(&at, key).is_none() => {
                layers.put(&at, key, LocatedValue::plain(text, origin));
            }
            Ok(_) => {}
            Err(_) => faults.push(ConfigFault::new(origin, "the value is not readable text")),
        }
    }
}

/// The warning about an unknown variable.
pub(crate) fn unknown_warning(name: &str, layers: &Layers) -> String {
    let fixed = KEYS.iter().filter(|key| !key.section.has_entries()).flat_map(|key| key.variables(None));
    let of_entries = Section::FILE_SECTIONS.iter().filter(|section| section.has_entries() && section.has_variables());
    let of_entries = of_entries.flat_map(|section| {
        layers
            .names(*section)
            .flat_map(move |entry| section.keys().flat_map(move |key| key.variables(Some(&capitals(entry)))))
    });
    let known: Vec<String> = fixed.chain(of_entries).collect();
    // The common prefix would make distant names look similar.
    let tail = |name: &'_ str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    let tails: Vec<String> = known.iter().map(|name| tail(name)).collect();
    match nearest(&tail(name), tails.iter().map(String::as_str)) {
        Some(near) => format!("the variable {name} means nothing here; did you mean {PREFIX}{near}?"),
        None => format!("the variable {name} means nothing here"),
    }
}

/// The key of a variable, and the upper-case name of its entry.
fn key_of(variable: &str) -> Option<(&'static Key, Option<String>)> {
    let fixed = KEYS.iter().filter(|key| !key.section.has_entries());
    if let Some(key) = fixed.into_iter().find(|key| key.variables(None).iter().any(|name| name == variable)) {
        return Some((key, None));
    }
    KEYS.iter().filter(|key| key.section.has_entries() && key.section.has_variables()).find_map(|key| {
        let start = format!("{PREFIX}{}_", key.section.name().to_ascii_uppercase());
        let end = format!("_{}", key.name_in_variables());
        let entry = variable.strip_prefix(&start)?.strip_suffix(&end)?;
        (!entry.is_empty()).then(|| (key, Some(entry.to_owned())))
    })
}

/// The entry with this upper-case name: an existing one, or a new one in lower case.
fn entry_named(entry_capitals: &str, section: Section, layers: &Layers) -> Result<String, String> {
    let matching: Vec<&str> = layers.names(section).filter(|name| capitals(name) == entry_capitals).collect();
    match matching.as_slice() {
        [] => Ok(entry_capitals.to_lowercase()),
        [name] => Ok((*name).to_owned()),
        several => Err(format!("the name fits several entries of [{}]: {}", section.name(), several.join(", "))),
    }
}

/// The name of an entry inside a variable.
fn capitals(entry: &str) -> String {
    entry.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}
