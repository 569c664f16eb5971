//! Values of the configuration: their types, and how tables and lists of them are parsed. `scalars.rs` parses single values.

mod scalars;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use amalgam_core::{Door, Network, Rights};
use amalgam_tools::Allowed;
use serde_json::json;
use toml::de::DeValue;
use tracing::level_filters::LevelFilter;

use super::fault::{ConfigFault, ValueOrigin};
use super::file;
use super::layers::{KeyPath, LocatedValue, Raw};
use super::listen_address::ListenAddress;
use super::schema::{Key, Shape};
use super::secret::Secret;
use super::sources::Environment;
use super::store_url::StoreUrl;
use super::suggest::did_you_mean;
use super::units::{duration_to_text, size_to_text};
use scalars::{
    boolean, decimal, duration, found, from_text, header_name, integer, kind_of, plain_table, shortened, size,
};

/// A valid value.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Boolean(bool),
    Integer(i64),
    Decimal(f64),
    Levels(DoorLevels),
    Roles(RoleScopes),
    Duration(Duration),
    Size(u64),
    Listen(ListenAddress),
    Secret(Secret),
    StoreUrl(StoreUrl),
    Headers(BTreeMap<String, Secret>),
    List(Vec<Value>),
}

impl Value {
    /// The value for `check`, in configuration syntax; secrets are hidden.
    pub(crate) fn shown(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Boolean(value) => json!(value),
            Self::Integer(value) => json!(value),
            Self::Decimal(value) => json!(value),
            Self::Levels(DoorLevels(levels)) => {
                levels.iter().map(|(door, level)| (door.name().to_owned(), json!(level.to_string()))).collect()
            }
            Self::Roles(RoleScopes(roles)) => {
                roles.iter().map(|(role, rights)| (role.clone(), json!(rights.names().collect::<Vec<_>>()))).collect()
            }
            Self::Duration(duration) => json!(duration_to_text(*duration)),
            Self::Size(bytes) => json!(size_to_text(*bytes)),
            Self::Listen(address) => json!(address.to_string()),
            Self::Secret(secret) => json!(secret.to_string()),
            Self::StoreUrl(url) => json!(url.to_string()),
            Self::Headers(headers) => {
                headers.iter().map(|(name, value)| (name.clone(), json!(value.to_string()))).collect()
            }
            Self::List(items) => items.iter().map(Self::shown).collect(),
        }
    }
}

/// The lowest level of the log lines of each door.
#[derive(Debug, Clone, Default)]
pub(crate) struct DoorLevels(pub(crate) Vec<(Door, LevelFilter)>);

/// The scopes that users of the console can have.
pub(crate) const CONSOLE_SCOPES: &[&str] = &["use", "view", "admin", "operator"];

/// The scopes of each role.
#[derive(Debug, Clone, Default)]
pub(crate) struct RoleScopes(pub(crate) BTreeMap<String, Rights>);

/// The field type of a key's value.
pub(crate) trait FromValue: Sized {
    /// `None` if the schema gives the key another shape, which is a bug.
    fn from_value(value: Value) -> Option<Self>;

    /// A placeholder for a refused value, so that the rest can be checked. It is never used: loading fails.
    fn placeholder() -> Self;
}

macro_rules! from_value {
    ($($type:ty: $pattern:pat => $result:expr, else $placeholder:expr;)+) => {$(
        impl FromValue for $type {
            fn from_value(value: Value) -> Option<Self> {
                match value { $pattern => $result, _ => None }
            }

            fn placeholder() -> Self {
                $placeholder
            }
        }
    )+};
}

from_value! {
    String: Value::Text(text) => Some(text), else String::new();
    PathBuf: Value::Text(text) => Some(text.into()), else PathBuf::new();
    bool: Value::Boolean(value) => Some(value), else false;
    i64: Value::Integer(value) => Some(value), else 0;
    f64: Value::Decimal(value) => Some(value), else 0.0;
    DoorLevels: Value::Levels(levels) => Some(levels), else DoorLevels::default();
    RoleScopes: Value::Roles(roles) => Some(roles), else RoleScopes::default();
    u32: Value::Integer(value) => value.try_into().ok(), else 0;
    u64: Value::Size(bytes) => Some(bytes), else 0;
    usize: Value::Integer(value) => value.try_into().ok(), else 0;
    Duration: Value::Duration(duration) => Some(duration), else Duration::ZERO;
    ListenAddress: Value::Listen(address) => Some(address), else ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    Allowed: Value::Text(text) => text.parse().ok(), else Allowed::from(SocketAddr::from(([127, 0, 0, 1], 1)));
    Network: Value::Text(text) => text.parse().ok(), else Network::any();
    Secret: Value::Secret(secret) => Some(secret), else Secret::Missing { name: String::new() };
    StoreUrl: Value::StoreUrl(url) => Some(url), else StoreUrl::Sqlite(PathBuf::new());
    BTreeMap<String, Secret>: Value::Headers(headers) => Some(headers), else BTreeMap::new();
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::List(items) => items.into_iter().map(T::from_value).collect(),
            _ => None,
        }
    }

    fn placeholder() -> Self {
        Self::new()
    }
}

/// Parses the value of `key`; reports all faults of a list.
pub(crate) fn parse(
    key: &Key,
    at: &KeyPath,
    located: &LocatedValue,
    environment: &Environment,
) -> Result<Value, Vec<ConfigFault>> {
    let parser = Parser { key, at, environment };
    match key.shape {
        Shape::Secrets => parser.list(located, Shape::Secret),
        Shape::Networks => parser.list(located, Shape::Network),
        Shape::Origins => parser.list(located, Shape::Origin),
        Shape::Targets => parser.list(located, Shape::Target),
        Shape::Names => parser.list(located, Shape::Text),
        Shape::Arguments => parser.list(located, Shape::Argument),
        Shape::Ids => parser.list(located, Shape::Integer { least: 1, most: i64::MAX }),
        Shape::Choices(words) => parser.list(located, Shape::Choice(words)),
        Shape::Headers => parser.headers(located),
        Shape::Variables => parser.variables(located),
        Shape::DoorLevels => parser.door_levels(located),
        Shape::Roles => parser.roles(located),
        shape => parser.scalar(shape, located).map_err(|fault| vec![fault]),
    }
}

struct Parser<'a> {
    key: &'a Key,
    at: &'a KeyPath,
    environment: &'a Environment,
}

impl Parser<'_> {
    fn fault(&self, origin: &ValueOrigin, problem: String) -> ConfigFault {
        let message = match origin {
            ValueOrigin::File { .. } => format!("{} in {}: {problem}", self.key.name, self.at),
            // A variable or a flag names its key already.
            _ => problem,
        };
        ConfigFault::new(origin.clone(), message)
    }

    fn scalar(&self, shape: Shape, located: &LocatedValue) -> Result<Value, ConfigFault> {
        let value = match (shape, &located.raw) {
            (Shape::Boolean, raw) => boolean(raw),
            (Shape::Integer { least, most }, raw) => integer(raw, least, most),
            (Shape::Decimal { most }, raw) => decimal(raw, most),
            (Shape::Duration { least, most }, raw) => duration(raw, least, most),
            (Shape::Size { least, most }, raw) => size(raw, least, most),
            (Shape::Secret, Raw::Text(text) | Raw::Plain(text)) => self.secret(text, &located.origin),
            (Shape::StoreUrl, Raw::Text(text) | Raw::Plain(text)) => self.store_url(text, &located.origin),
            (Shape::Credential, Raw::Text(text) | Raw::Plain(text)) => {
                self.resolve(text, &located.origin).map(Value::Secret)
            }
            (Shape::Secret | Shape::Credential | Shape::StoreUrl, raw) => {
                Err(format!("expected a string, found {}", kind_of(raw)))
            }
            (_, Raw::Text(text) | Raw::Plain(text)) => from_text(shape, text),
            (_, raw) => Err(format!("expected a string, found {}", found(raw))),
        };
        value.map_err(|problem| self.fault(&located.origin, problem))
    }

    fn list(&self, located: &LocatedValue, of: Shape) -> Result<Value, Vec<ConfigFault>> {
        let items = match &located.raw {
            Raw::List(items) => items.clone(),
            Raw::Plain(text) => self.plain_list(text, &located.origin)?,
            raw => {
                let problem = format!("expected a list such as [\"…\"], found {}", kind_of(raw));
                return Err(vec![self.fault(&located.origin, problem)]);
            }
        };
        let (mut values, mut faults) = (Vec::new(), Vec::new());
        for item in &items {
            match self.scalar(of, item) {
                Ok(value) => values.push(value),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(Value::List(values)) } else { Err(faults) }
    }

    /// A list in a variable: `a,b`, or `["a", "b"]` if an item has a comma.
    fn plain_list(&self, text: &str, origin: &ValueOrigin) -> Result<Vec<LocatedValue>, Vec<ConfigFault>> {
        if text.trim_start().starts_with('[') {
            if let Ok(value) = DeValue::parse(text.trim())
                && let Raw::List(items) = file::raw(&|_| origin.clone(), value.get_ref())
            {
                return Ok(items);
            }
            return Err(vec![self.fault(origin, "expected a list such as [\"a\", \"b\"] or a,b".to_owned())]);
        }
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        Ok(items.map(|item| LocatedValue::plain(item, origin.clone())).collect())
    }

    fn headers(&self, located: &LocatedValue) -> Result<Value, Vec<ConfigFault>> {
        let pairs = match &located.raw {
            Raw::Table(pairs) => pairs.clone(),
            Raw::Plain(text) => plain_table(text, &located.origin).ok_or_else(|| {
                vec![self.fault(&located.origin, "expected headers such as name=value,other=value".to_owned())]
            })?,
            raw => {
                let problem = format!("expected a table such as {{ \"x-name\" = \"value\" }}, found {}", kind_of(raw));
                return Err(vec![self.fault(&located.origin, problem)]);
            }
        };
        let (mut headers, mut faults) = (BTreeMap::new(), Vec::new());
        for (name, located) in pairs {
            let name_fault = header_name(&name).err().map(|problem| self.fault(&located.origin, problem));
            match (name_fault, self.header_value(&located)) {
                (None, Ok(value)) => {
                    headers.insert(name.to_ascii_lowercase(), value);
                }
                (name_fault, value) => faults.extend(name_fault.into_iter().chain(value.err())),
            }
        }
        if faults.is_empty() { Ok(Value::Headers(headers)) } else { Err(faults) }
    }

    fn variables(&self, located: &LocatedValue) -> Result<Value, Vec<ConfigFault>> {
        let pairs = match &located.raw {
            Raw::Table(pairs) => pairs.clone(),
            Raw::Plain(text) => plain_table(text, &located.origin).ok_or_else(|| {
                vec![self.fault(&located.origin, "expected values such as name=value,other=value".to_owned())]
            })?,
            raw => {
                let problem = format!("expected a table such as {{ NAME = \"value\" }}, found {}", kind_of(raw));
                return Err(vec![self.fault(&located.origin, problem)]);
            }
        };
        let (mut variables, mut faults) = (BTreeMap::new(), Vec::new());
        for (name, located) in pairs {
            if name.is_empty() || name.contains(['=', '\0']) {
                let problem = format!("{} is not the name of a variable", shortened(&name));
                faults.push(self.fault(&located.origin, problem));
            }
            match self.header_value(&located) {
                Ok(value) => {
                    variables.insert(name, value);
                }
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(Value::Headers(variables)) } else { Err(faults) }
    }

    fn door_levels(&self, located: &LocatedValue) -> Result<Value, Vec<ConfigFault>> {
        let pairs = match &located.raw {
            Raw::Table(pairs) => pairs.clone(),
            Raw::Plain(text) => plain_table(text, &located.origin).ok_or_else(|| {
                vec![self.fault(&located.origin, "expected levels such as execute=warn,admin=off".to_owned())]
            })?,
            raw => {
                let problem = format!("expected a table such as {{ execute = \"warn\" }}, found {}", kind_of(raw));
                return Err(vec![self.fault(&located.origin, problem)]);
            }
        };
        let (mut levels, mut faults) = (Vec::new(), Vec::new());
        for (name, located) in pairs {
            let level = match &located.raw {
                Raw::Text(text) | Raw::Plain(text) => text.parse::<LevelFilter>().ok(),
                _ => None,
            };
            match (Door::named(&name), level) {
                (Some(door), Some(level)) => levels.push((door, level)),
                (None, _) => {
                    let hint = did_you_mean(&name, Door::NAMES);
                    faults.push(self.fault(&located.origin, format!("{} is not a door{hint}", shortened(&name))));
                }
                (Some(_), None) => {
                    let problem = "expected a level: off, error, warn, info, debug or trace".to_owned();
                    faults.push(self.fault(&located.origin, problem));
                }
            }
        }
        if faults.is_empty() { Ok(Value::Levels(DoorLevels(levels))) } else { Err(faults) }
    }

    fn roles(&self, located: &LocatedValue) -> Result<Value, Vec<ConfigFault>> {
        let pairs = match &located.raw {
            Raw::Table(pairs) => pairs.clone(),
            Raw::Plain(text) => plain_table(text, &located.origin).ok_or_else(|| {
                vec![self.fault(&located.origin, "expected roles such as support=view,engineers=use admin".to_owned())]
            })?,
            raw => {
                let problem = format!("expected a table such as {{ support = [\"view\"] }}, found {}", kind_of(raw));
                return Err(vec![self.fault(&located.origin, problem)]);
            }
        };
        let (mut roles, mut faults) = (BTreeMap::new(), Vec::new());
        for (role, located) in pairs {
            match self.role_scopes(&located) {
                Ok(rights) => {
                    roles.insert(role, rights);
                }
                Err(problem) => faults.push(self.fault(&located.origin, format!("{}: {problem}", shortened(&role)))),
            }
        }
        if faults.is_empty() { Ok(Value::Roles(RoleScopes(roles))) } else { Err(faults) }
    }

    fn role_scopes(&self, located: &LocatedValue) -> Result<Rights, String> {
        let names: Vec<String> = match &located.raw {
            Raw::Text(text) | Raw::Plain(text) => text.split_whitespace().map(str::to_owned).collect(),
            Raw::List(items) => {
                let name = |item: &'_ LocatedValue| match &item.raw {
                    Raw::Text(name) => Some(name.clone()),
                    _ => None,
                };
                items.iter().map(name).collect::<Option<Vec<String>>>().unwrap_or_default()
            }
            _ => Vec::new(),
        };
        if names.is_empty() {
            return Err(format!(
                "expected scopes such as \"view\" or [\"use\", \"admin\"], found {}",
                found(&located.raw)
            ));
        }
        names.iter().map(String::as_str).try_fold(Rights::NONE, |all, name| {
            let right = CONSOLE_SCOPES.contains(&name).then(|| Rights::named(name)).flatten();
            right.map(|right| all.and(right)).ok_or_else(|| {
                format!(
                    "{} is not a scope of the console{}",
                    shortened(name),
                    did_you_mean(name, CONSOLE_SCOPES.iter().copied())
                )
            })
        })
    }

    fn header_value(&self, located: &LocatedValue) -> Result<Secret, ConfigFault> {
        match &located.raw {
            Raw::Text(text) | Raw::Plain(text) => {
                self.resolve(text, &located.origin).map_err(|problem| self.fault(&located.origin, problem))
            }
            raw => Err(self.fault(&located.origin, format!("expected a string, found {}", kind_of(raw)))),
        }
    }

    fn secret(&self, text: &str, origin: &ValueOrigin) -> Result<Value, String> {
        let secret = self.resolve(text, origin)?;
        if secret.has_space() {
            return Err("the secret has a space in it".to_owned());
        }
        Ok(Value::Secret(secret))
    }

    fn store_url(&self, text: &str, origin: &ValueOrigin) -> Result<Value, String> {
        let secret = self.resolve(text, origin)?;
        match (secret.value(), secret.missing()) {
            (Some(url), _) => StoreUrl::read(url).map(Value::StoreUrl),
            (None, name) => Err(format!("the variable {} is not set", name.unwrap_or_default())),
        }
    }

    fn resolve(&self, text: &str, origin: &ValueOrigin) -> Result<Secret, String> {
        let folder = match origin {
            ValueOrigin::File { path, .. } => path.parent().unwrap_or(Path::new("")),
            _ => Path::new(""),
        };
        Secret::resolve(text, folder, self.environment)
    }
}
