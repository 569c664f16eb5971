//! Parses values: one function per shape, with an error that says what is valid.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use amalgam_core::{Door, Network};
use amalgam_tools::Allowed;
use serde_json::json;
use toml::de::DeValue;
use tracing::level_filters::LevelFilter;

use super::fault::{Fault, Origin};
use super::file;
use super::layers::{KeyPath, LocatedValue, Raw};
use super::listen_address::ListenAddress;
use super::schema::{Key, Shape};
use super::secret::Secret;
use super::sources::Environment;
use super::store_url::StoreUrl;
use super::suggest::did_you_mean;
use super::units::{duration_from_text, duration_to_text, size_from_text, size_to_text};
use crate::logs;

/// A valid value.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Boolean(bool),
    Integer(i64),
    Decimal(f64),
    Levels(DoorLevels),
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
) -> Result<Value, Vec<Fault>> {
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
        shape => parser.scalar(shape, located).map_err(|fault| vec![fault]),
    }
}

struct Parser<'a> {
    key: &'a Key,
    at: &'a KeyPath,
    environment: &'a Environment,
}

impl Parser<'_> {
    fn fault(&self, origin: &Origin, problem: String) -> Fault {
        let message = match origin {
            Origin::File { .. } => format!("{} in {}: {problem}", self.key.name, self.at),
            // A variable or a flag names its key already.
            _ => problem,
        };
        Fault::new(origin.clone(), message)
    }

    fn scalar(&self, shape: Shape, located: &LocatedValue) -> Result<Value, Fault> {
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

    fn list(&self, located: &LocatedValue, of: Shape) -> Result<Value, Vec<Fault>> {
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
    fn plain_list(&self, text: &str, origin: &Origin) -> Result<Vec<LocatedValue>, Vec<Fault>> {
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

    fn headers(&self, located: &LocatedValue) -> Result<Value, Vec<Fault>> {
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

    fn variables(&self, located: &LocatedValue) -> Result<Value, Vec<Fault>> {
        let pairs = match &located.raw {
            Raw::Table(pairs) => pairs.clone(),
            // The default; no variable sets it.
            Raw::Plain(text) if text.is_empty() => Vec::new(),
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

    fn door_levels(&self, located: &LocatedValue) -> Result<Value, Vec<Fault>> {
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

    fn header_value(&self, located: &LocatedValue) -> Result<Secret, Fault> {
        match &located.raw {
            Raw::Text(text) | Raw::Plain(text) => {
                self.resolve(text, &located.origin).map_err(|problem| self.fault(&located.origin, problem))
            }
            raw => Err(self.fault(&located.origin, format!("expected a string, found {}", kind_of(raw)))),
        }
    }

    fn secret(&self, text: &str, origin: &Origin) -> Result<Value, String> {
        let secret = self.resolve(text, origin)?;
        if secret.has_space() {
            return Err("the secret has a space in it".to_owned());
        }
        Ok(Value::Secret(secret))
    }

    fn store_url(&self, text: &str, origin: &Origin) -> Result<Value, String> {
        let secret = self.resolve(text, origin)?;
        match (secret.value(), secret.missing()) {
            (Some(url), _) => StoreUrl::read(url).map(Value::StoreUrl),
            (None, name) => Err(format!("the variable {} is not set", name.unwrap_or_default())),
        }
    }

    fn resolve(&self, text: &str, origin: &Origin) -> Result<Secret, String> {
        let folder = match origin {
            Origin::File { path, .. } => path.parent().unwrap_or(Path::new("")),
            _ => Path::new(""),
        };
        Secret::resolve(text, folder, self.environment)
    }
}

fn boolean(raw: &Raw) -> Result<Value, String> {
    match raw {
        Raw::Boolean(value) => Ok(Value::Boolean(*value)),
        Raw::Plain(text) if text == "true" || text == "1" => Ok(Value::Boolean(true)),
        Raw::Plain(text) if text == "false" || text == "0" => Ok(Value::Boolean(false)),
        raw => Err(format!("expected true or false, found {}", found(raw))),
    }
}

fn integer(raw: &Raw, least: i64, most: i64) -> Result<Value, String> {
    let number = match raw {
        Raw::Integer(number) => Some(*number),
        Raw::Plain(text) => text.trim().parse().ok(),
        _ => None,
    };
    match number {
        Some(number) if (least..=most).contains(&number) => Ok(Value::Integer(number)),
        _ if most == i64::MAX => Err(format!("expected a whole number from {least}, found {}", found(raw))),
        _ => Err(format!("expected a whole number from {least} to {most}, found {}", found(raw))),
    }
}

fn decimal(raw: &Raw, most: u32) -> Result<Value, String> {
    let number = match raw {
        Raw::Float(number) => Some(*number),
        Raw::Integer(number) => u32::try_from(*number).ok().map(f64::from),
        Raw::Plain(text) => text.trim().parse().ok(),
        _ => None,
    };
    match number {
        Some(number) if (0.0..=f64::from(most)).contains(&number) => Ok(Value::Decimal(number)),
        _ => Err(format!("expected a number from 0 to {most} such as 2.5, found {}", found(raw))),
    }
}

fn duration(raw: &Raw, least: u64, most: u64) -> Result<Value, String> {
    let duration = match raw {
        Raw::Text(text) | Raw::Plain(text) => duration_from_text(text),
        Raw::Integer(0) => Some(Duration::ZERO),
        _ => None,
    };
    let [shortest, longest] = [least, most].map(Duration::from_millis);
    match duration {
        Some(duration) if (shortest..=longest).contains(&duration) => Ok(Value::Duration(duration)),
        Some(_) => Err(format!(
            "expected a duration from {} to {}, found {}",
            duration_to_text(shortest),
            duration_to_text(longest),
            found(raw)
        )),
        None => Err(format!("expected a duration such as \"10s\", \"10m\" or \"250ms\", found {}", found(raw))),
    }
}

fn size(raw: &Raw, least: u64, most: u64) -> Result<Value, String> {
    let bytes = match raw {
        Raw::Integer(bytes) => u64::try_from(*bytes).ok(),
        Raw::Text(text) | Raw::Plain(text) => size_from_text(text),
        _ => None,
    };
    match bytes {
        Some(bytes) if (least..=most).contains(&bytes) => Ok(Value::Size(bytes)),
        Some(_) => {
            Err(format!("expected a size from {} to {}, found {}", size_to_text(least), size_to_text(most), found(raw)))
        }
        None => Err(format!("expected a size such as \"2MiB\" or \"500KB\", found {}", found(raw))),
    }
}

fn from_text(shape: Shape, text: &str) -> Result<Value, String> {
    match shape {
        Shape::Choice(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
        Shape::Choice(words) => {
            let hint = did_you_mean(text, words.iter().copied());
            Err(format!("{} is none of {}{hint}", shortened(text), words.join(", ")))
        }
        Shape::Listen => address(text),
        Shape::Target => match text.parse::<Allowed>() {
            Ok(_) => Ok(Value::Text(text.to_owned())),
            Err(error) => Err(error.to_string()),
        },
        Shape::BaseUrl => base_url(text),
        Shape::Network => match text.parse::<Network>() {
            Ok(_) => Ok(Value::Text(text.to_owned())),
            Err(error) => Err(format!("{error}, found {}", shortened(text))),
        },
        Shape::Origin => origin(text),
        Shape::Url => server_url(text),
        Shape::Argument if text.contains('\0') => Err("expected a text, found one with a NUL in it".to_owned()),
        Shape::Argument => Ok(Value::Text(text.to_owned())),
        Shape::PathOrUrl if text.contains("://") => key_set_url(text),
        Shape::PathOrUrl => from_text(Shape::Path, text),
        Shape::LogFilter if logs::can_read(text) => Ok(Value::Text(text.to_owned())),
        Shape::LogFilter => {
            Err(format!("expected a level or directives such as info,amalgam=debug, found {}", shortened(text)))
        }
        Shape::Path if text.is_empty() => Err("expected a path, found nothing".to_owned()),
        Shape::Path => Ok(Value::Text(text.to_owned())),
        _ if text.trim().is_empty() => Err("expected a name, found nothing".to_owned()),
        _ if text.contains(|c: char| c.is_control() || c.is_whitespace()) => {
            Err(format!("expected a name without spaces, found {}", shortened(text)))
        }
        _ => Ok(Value::Text(text.to_owned())),
    }
}

fn address(text: &str) -> Result<Value, String> {
    ListenAddress::read(text).map(Value::Listen).ok_or_else(|| {
        format!("expected an address with port such as 127.0.0.1:8080, or unix:PATH, found {}", shortened(text))
    })
}

/// The URL of an upstream, without its trailing slash. Messages do not repeat it: it may contain a password.
fn base_url(text: &str) -> Result<Value, String> {
    let uri = text.parse::<http::Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    let (Some(uri), false) = (uri, text.contains('#')) else {
        return Err("expected an address such as https://api.openai.com/v1".to_owned());
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("the address has a user or password in it; use api_key or headers".to_owned());
    }
    if uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err("expected scheme, host and path only, such as https://api.openai.com/v1".to_owned());
    }
    Ok(Value::Text(text.trim_end_matches('/').to_owned()))
}

/// The origin of a web page, as browsers send it. `null` is refused: every sandboxed frame of every site has it.
fn origin(text: &str) -> Result<Value, String> {
    let expected = || format!("expected an origin such as https://app.example.com, found {}", shortened(text));
    let (scheme, authority) = text.split_once("://").ok_or_else(expected)?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let is_authority =
        !authority.is_empty() && authority.chars().all(|c| c.is_ascii_graphic() && !"/?#@*\\".contains(c));
    match is_scheme && is_authority {
        true => Ok(Value::Text(text.to_owned())),
        false => Err(expected()),
    }
}

/// The URL of a server. Messages do not repeat it: it may contain a password.
fn server_url(text: &str) -> Result<Value, String> {
    let uri = text.parse::<http::Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    let uri = uri.filter(|uri| uri.host().is_some_and(|host| !host.is_empty()) && !text.contains('#'));
    let Some(uri) = uri else { return Err("expected an address such as https://mcp.example.com/mcp".to_owned()) };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("the address has a user or password in it; use authorization".to_owned());
    }
    Ok(Value::Text(text.to_owned()))
}

/// The URL of a key set: HTTPS only, since an attacker who changes the keys in transit could sign in as any user.
fn key_set_url(text: &str) -> Result<Value, String> {
    let uri = text.parse::<http::Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    let Some(uri) = uri else { return Err("expected a path or an address such as https://issuer/keys".to_owned()) };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("the address has a user or password in it".to_owned());
    }
    let host = uri.host().unwrap_or_default();
    let own = host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match uri.scheme_str() {
        Some("https") => Ok(Value::Text(text.to_owned())),
        Some("http") if own => Ok(Value::Text(text.to_owned())),
        _ => Err("expected a path or an https address".to_owned()),
    }
}

fn header_name(name: &str) -> Result<(), String> {
    const OURS: &[&str] = &[
        "connection",
        "content-length",
        "content-type",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        return Err(format!("{} is not the name of a header", shortened(name)));
    }
    if OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
        return Err(format!("the header {name} is set by the connection itself"));
    }
    Ok(())
}

fn plain_table(text: &str, origin: &Origin) -> Option<Vec<(String, LocatedValue)>> {
    if text.trim_start().starts_with('{') {
        let value = DeValue::parse(text.trim()).ok()?;
        return match file::raw(&|_| origin.clone(), value.get_ref()) {
            Raw::Table(pairs) => Some(pairs),
            _ => None,
        };
    }
    text.split(',')
        .filter(|pair| !pair.trim().is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name.trim().to_owned(), LocatedValue::plain(value.trim(), origin.clone())))
        })
        .collect()
}

/// The configured value, for a message about a value that is not a secret.
fn found(raw: &Raw) -> String {
    match raw {
        Raw::Plain(text) | Raw::Text(text) => shortened(text),
        Raw::Integer(number) => format!("the number {number}"),
        Raw::Boolean(value) => value.to_string(),
        raw => kind_of(raw).to_owned(),
    }
}

/// The type of the configured value, for a message that must not repeat it.
fn kind_of(raw: &Raw) -> &'static str {
    match raw {
        Raw::Plain(_) | Raw::Text(_) => "a string",
        Raw::Integer(_) => "a number",
        Raw::Float(_) => "a number with a fraction",
        Raw::Boolean(_) => "true or false",
        Raw::List(_) => "a list",
        Raw::Table(_) => "a table",
        Raw::Other(kind) => kind,
    }
}

fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    let start: String = text.chars().take(SHOWN).collect();
    let dots = if start.len() < text.len() { "…" } else { "" };
    format!("'{}{dots}'", start.escape_debug())
}
