//! What differs between two configurations, and which of it a running server can take over.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use amalgam_administration::reload::{ReloadReport, SettingDifference};
use secrecy::ExposeSecret as _;

use super::reader::Setting;
use super::schema::Section;
use super::secret::Secret;
use super::value::Value;

/// Sizes of memory that is divided at the start.
const FIXED_LIMITS: [&str; 2] = ["limits.request_bytes_total", "limits.remembered_bytes"];

/// Whether a reload puts a new value of this key into force.
fn is_reloadable(setting: &Setting) -> bool {
    match setting.section {
        Some(Section::Upstreams | Section::Models | Section::Tenants | Section::Telemetry | Section::Log) => true,
        Some(Section::Limits) => !FIXED_LIMITS.contains(&setting.key.as_str()),
        Some(Section::Assistant) => setting.key == "assistant.model",
        _ => false,
    }
}

/// The differences, by key; a new or removed entry is named once.
pub fn changes(before: &[Setting], after: &[Setting]) -> ReloadReport {
    let [old, new] = [before, after].map(|settings| settings.iter().map(|one| (one.key.as_str(), one)).collect());
    let (old, new): (BTreeMap<&str, &Setting>, BTreeMap<&str, &Setting>) = (old, new);
    let [old_entries, new_entries] = [before, after].map(entries);
    let mut report = ReloadReport {
        added: new_entries.difference(&old_entries).map(|entry| (*entry).to_owned()).collect(),
        removed: old_entries.difference(&new_entries).map(|entry| (*entry).to_owned()).collect(),
        ..ReloadReport::default()
    };
    let in_both = |setting: &Setting| match &setting.entry {
        Some(entry) => old_entries.contains(entry.as_str()) && new_entries.contains(entry.as_str()),
        None => true,
    };
    let keys: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    for key in keys {
        let (before, after) = (old.get(key), new.get(key));
        if before.map(|one| one.fingerprint) != after.map(|one| one.fingerprint) {
            let shown = |setting: Option<&&Setting>| setting.map(|one| one.value.to_json()).unwrap_or_default();
            let difference = SettingDifference { key: key.to_owned(), before: shown(before), after: shown(after) };
            // Neither an unset key of a new entry nor one of a removed entry is a difference.
            if !(difference.before.is_null() && difference.after.is_null()) {
                report.differences.push(difference);
            }
        }
        let Some(setting) = after.or(before).filter(|setting| in_both(setting)) else { continue };
        if before.map(|one| one.fingerprint) != after.map(|one| one.fingerprint) {
            let list = if is_reloadable(setting) { &mut report.changed } else { &mut report.restart_required };
            list.push(key.to_owned());
        }
    }
    // Entries of sections that only a start reads.
    for list in [&mut report.added, &mut report.removed] {
        let fixed = list.extract_if(.., |entry| entry.starts_with("mcp."));
        report.restart_required.extend(fixed);
    }
    report
}

fn entries(settings: &[Setting]) -> BTreeSet<&str> {
    settings.iter().filter_map(|setting| setting.entry.as_deref()).collect()
}

/// A number that differs if the value differs, also where a displayed value hides it. Kept in memory only.
pub(super) fn fingerprint(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    add(value, &mut hasher);
    hasher.finish()
}

fn add(value: &Value, hasher: &mut DefaultHasher) {
    value.shown().to_string().hash(hasher);
    match value {
        Value::Secret(secret) => add_secret(secret, hasher),
        Value::StoreUrl(url) => url.fingerprint(hasher),
        Value::Headers(headers) => headers.values().for_each(|secret| add_secret(secret, hasher)),
        Value::List(items) => items.iter().for_each(|item| add(item, hasher)),
        _ => {}
    }
}

fn add_secret(secret: &Secret, hasher: &mut DefaultHasher) {
    secret.value().map(|value| value.expose_secret()).hash(hasher);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::sources::{Flags, SourceFile, Sources};
    use super::super::{Config, LoadedConfig};
    use super::*;

    fn loaded(text: &str) -> LoadedConfig {
        let file = SourceFile { path: "a.toml".into(), text: text.to_owned() };
        let env = [("OTHER", "another-secret")].into_iter().collect();
        Config::load(&Sources { flags: Flags::default(), env, file: Some(file) })
            .unwrap_or_else(|faults| panic!("{faults}"))
    }

    #[test]
    fn changes_are_named_by_key_entries_once_and_what_needs_a_restart_apart() {
        let upstream = |name: &str, key: &str| {
            format!("[upstreams.{name}]\nkind = \"chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key = \"{key}\"\n")
        };
        let before = upstream("a", "secret-one")
            + &upstream("gone", "x")
            + "[limits]\ntools = 3\n[mcp.m]\nurl = \"http://127.0.0.1/\"\n";
        let after = upstream("a", "secret-two")
            + &upstream("new", "x")
            + "[limits]\ntools = 4\nremembered_bytes = \"1MiB\"\n[log]\nlevel = \"debug\"\nformat = \"json\"\n[server]\nlisten = \"127.0.0.1:1\"\n";
        let report = changes(&loaded(&before).settings, &loaded(&after).settings);
        assert_eq!(
            report,
            ReloadReport {
                added: vec!["upstreams.new".to_owned()],
                removed: vec!["upstreams.gone".to_owned()],
                changed: ["limits.tools", "log.format", "log.level", "upstreams.a.api_key"].map(str::to_owned).to_vec(),
                restart_required: ["limits.remembered_bytes", "server.listen", "mcp.m"].map(str::to_owned).to_vec(),
                differences: report.differences.clone(),
                ..ReloadReport::default()
            }
        );
        let differences: Vec<(&str, Value, Value)> = report
            .differences
            .iter()
            .map(|one| (one.key.as_str(), one.before.clone(), one.after.clone()))
            .filter(|(key, _, _)| ["limits.tools", "upstreams.a.api_key", "upstreams.new.kind"].contains(key))
            .collect();
        let expected = [
            ("limits.tools", json!(3), json!(4)),
            ("upstreams.a.api_key", json!("[redacted]"), json!("[redacted]")),
            ("upstreams.new.kind", Value::Null, json!("chat")),
        ];
        assert_eq!(differences, expected);
        assert_eq!(changes(&loaded(&after).settings, &loaded(&after).settings), ReloadReport::default());
    }
}
