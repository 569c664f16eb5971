//! Parses single values: numbers, durations, sizes, addresses, names. An error says what is valid and what was found.

use std::net::IpAddr;
use std::time::Duration;

use amalgam_core::Network;
use amalgam_tools::Allowed;
use toml::de::DeValue;

use super::Value;
use crate::fault::ValueOrigin;
use crate::file;
use crate::layers::{LocatedValue, Raw};
use crate::listen_address::ListenAddress;
use crate::log_filter;
use crate::schema::Shape;
use crate::suggest::did_you_mean;
use crate::units::{duration_from_text, duration_to_text, size_from_text, size_to_text};

pub(super) fn boolean(raw: &Raw) -> Result<Value, String> {
    match raw {
        Raw::Boolean(value) => Ok(Value::Boolean(*value)),
        Raw::Plain(text) if text == "true" || text == "1" => Ok(Value::Boolean(true)),
        Raw::Plain(text) if text == "false" || text == "0" => Ok(Value::Boolean(false)),
        raw => Err(format!("expected true or false, found {}", found(raw))),
    }
}

pub(super) fn integer(raw: &Raw, least: i64, most: i64) -> Result<Value, String> {
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

pub(super) fn decimal(raw: &Raw, most: u32) -> Result<Value, String> {
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

pub(super) fn duration(raw: &Raw, least: u64, most: u64) -> Result<Value, String> {
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

pub(super) fn size(raw: &Raw, least: u64, most: u64) -> Result<Value, String> {
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

pub(super) fn from_text(shape: Shape, text: &str) -> Result<Value, String> {
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
        Shape::LogFilter if log_filter::is_valid(text) => Ok(Value::Text(text.to_owned())),
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

pub(super) fn header_name(name: &str) -> Result<(), String> {
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

pub(super) fn plain_table(text: &str, origin: &ValueOrigin) -> Option<Vec<(String, LocatedValue)>> {
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
pub(super) fn found(raw: &Raw) -> String {
    match raw {
        Raw::Plain(text) | Raw::Text(text) => shortened(text),
        Raw::Integer(number) => format!("the number {number}"),
        Raw::Boolean(value) => value.to_string(),
        raw => kind_of(raw).to_owned(),
    }
}

/// The type of the configured value, for a message that must not repeat it.
pub(super) fn kind_of(raw: &Raw) -> &'static str {
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

pub(super) fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    let start: String = text.chars().take(SHOWN).collect();
    let dots = if start.len() < text.len() { "…" } else { "" };
    format!("'{}{dots}'", start.escape_debug())
}
