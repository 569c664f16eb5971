//! Reads values by key, and records faults and the values that `check` prints.

use std::collections::BTreeSet;

use amalgam_administration::reload::SettingView;

use super::changes;
use super::fault::{ConfigFault, ValueOrigin};
use super::layers::{KeyPath, Layers, LocatedValue};
use super::schema::{DefaultValue, Section};
use super::sources::Environment;
use super::suggest::did_you_mean;
use super::value::{self, FromValue, Value};

/// One effective value, as `check` prints it.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The full name: `upstreams.openai.base_url`.
    pub key: String,
    /// The value.
    pub value: DisplayedValue,
    /// Where it was set.
    pub origin: ValueOrigin,
    /// None for variables that are no keys.
    pub(crate) section: Option<Section>,
    /// The entry that it belongs to: `upstreams.openai`.
    pub entry: Option<String>,
    /// Differs if the value differs, also if the displayed value hides it.
    pub fingerprint: u64,
}

impl Setting {
    fn of(at: &KeyPath, name: &str, value: DisplayedValue, origin: ValueOrigin, fingerprint: u64) -> Self {
        Self { key: at.path(name), value, origin, section: Some(at.section), entry: at.entry_path(), fingerprint }
    }
}

/// How `check` prints a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisplayedValue {
    /// The value in configuration syntax; secrets are hidden.
    Value(serde_json::Value),
    /// Unset; the text says what that means.
    Unset(&'static str),
}

impl DisplayedValue {
    /// The value as JSON; null if it is unset.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Unset(_) => serde_json::Value::Null,
        }
    }
}

impl Setting {
    /// The value and its origin, as `check --json` and the API show them.
    pub fn view(&self) -> SettingView {
        let mut view = SettingView {
            key: self.key.clone(),
            value: self.value.to_json(),
            origin: "default",
            file: None,
            line: None,
            variable: None,
            flag: None,
        };
        match &self.origin {
            ValueOrigin::File { path, line } => {
                (view.origin, view.file, view.line) = ("file", Some(path.display().to_string()), Some(*line));
            }
            ValueOrigin::Variable(name) => (view.origin, view.variable) = ("environment", Some(name.clone())),
            ValueOrigin::Flag(name) => (view.origin, view.flag) = ("flag", Some(*name)),
            ValueOrigin::Default => {}
        }
        view
    }
}

pub(crate) struct Reader<'a> {
    pub(crate) layers: &'a Layers,
    environment: &'a Environment,
    pub(crate) faults: Vec<ConfigFault>,
    pub(crate) warnings: Vec<String>,
    pub(crate) settings: Vec<Setting>,
    /// The variables that settings point to with `env:`.
    pub(crate) pointed_to: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(layers: &'a Layers, environment: &'a Environment, faults: Vec<ConfigFault>) -> Self {
        Self { layers, environment, faults, warnings: Vec::new(), settings: Vec::new(), pointed_to: BTreeSet::new() }
    }

    /// The value of a key that always has one; a placeholder if it was refused with a fault.
    pub(crate) fn value<T: FromValue>(&mut self, at: &KeyPath, name: &str) -> T {
        self.optional(at, name).unwrap_or_else(T::placeholder)
    }

    /// The value of a key, if it is set and valid.
    pub(crate) fn optional<T: FromValue>(&mut self, at: &KeyPath, name: &str) -> Option<T> {
        let key = at.section.key(name).expect("every key that is read stands in the schema");
        let preset;
        let located = match (self.layers.get(at, name), key.preset) {
            (Some(located), _) => located,
            (None, DefaultValue::Value(text)) => {
                preset = LocatedValue::plain(text, ValueOrigin::Default);
                &preset
            }
            (None, DefaultValue::Unset(meaning)) => {
                let value = DisplayedValue::Unset(meaning);
                self.settings.push(Setting::of(at, name, value, ValueOrigin::Default, 0));
                return None;
            }
            (None, DefaultValue::Required) => {
                self.lacks(at, name);
                return None;
            }
        };
        match value::parse(key, at, located, self.environment) {
            Ok(value) => {
                self.note_variables(&value);
                let shown = DisplayedValue::Value(value.shown());
                let fingerprint = changes::fingerprint(&value);
                self.settings.push(Setting::of(at, name, shown, located.origin.clone(), fingerprint));
                Some(T::from_value(value).expect("the schema gives a key the shape that its field has"))
            }
            Err(faults) => {
                self.faults.extend(faults);
                None
            }
        }
    }

    /// The origin of a key; of its entry if the key is unset.
    pub(crate) fn origin(&self, at: &KeyPath, name: &str) -> ValueOrigin {
        let set = self.layers.get(at, name).map(|located| &located.origin);
        set.or_else(|| self.layers.entry_origin(at)).cloned().unwrap_or(ValueOrigin::Default)
    }

    /// The origin of an item in a list.
    pub(crate) fn item_origin(&self, at: &KeyPath, name: &str, index: usize) -> ValueOrigin {
        self.layers.get(at, name).map_or(ValueOrigin::Default, |located| located.item_origin(index))
    }

    pub(crate) fn fault(&mut self, origin: ValueOrigin, message: impl Into<String>) {
        self.faults.push(ConfigFault::new(origin, message));
    }

    pub(crate) fn warn(&mut self, origin: &ValueOrigin, message: impl Into<String>) {
        self.warnings.push(ConfigFault::new(origin.clone(), message).to_string());
    }

    fn lacks(&mut self, at: &KeyPath, name: &str) {
        let origin = self.layers.entry_origin(at).cloned().unwrap_or(ValueOrigin::Default);
        // An entry that only a variable names is most likely a misspelt one.
        let hint = match (&origin, &at.entry) {
            (ValueOrigin::Variable(_), Some(entry)) => {
                did_you_mean(entry, self.layers.names(at.section).filter(|other| other != entry))
            }
            _ => String::new(),
        };
        self.fault(origin, format!("{at} needs '{name}'{hint}"));
    }

    fn note_variables(&mut self, value: &Value) {
        match value {
            Value::Secret(secret) => self.pointed_to.extend(secret.variable().map(str::to_owned)),
            Value::Headers(headers) => {
                self.pointed_to.extend(headers.values().filter_map(|secret| secret.variable()).map(str::to_owned));
            }
            Value::List(items) => items.iter().for_each(|item| self.note_variables(item)),
            _ => {}
        }
    }
}
