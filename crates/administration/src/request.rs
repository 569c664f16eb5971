//! The body of an administrative request: one JSON object, read into a serde type.
//!
//! The types deny unknown fields: a client that sends one expects it to have an effect. Faults name the field.

mod deserializer;

use std::borrow::Cow;

use amalgam_core::{Fault, FaultKind};
use amalgam_protocol::{Raw, Shape};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

pub(super) use deserializer::VERBATIM;

/// Reads an object into `T`. A field that is null counts as absent; of several fields of one name the last counts.
pub(super) fn parse<'de, T: Deserialize<'de>>(body: &'de Bytes) -> Result<T, Fault> {
    Ok(deserializer::read(object(body)?)?)
}

/// Checks that a body is one JSON object.
pub(super) fn object(body: &Bytes) -> Result<Raw<'_>, Fault> {
    let unreadable =
        || Fault::new(FaultKind::Invalid, "We could not parse the JSON body of your request.").code("invalid_json");
    let raw = Raw::parse(body).map_err(|_| unreadable())?;
    // Rejects what the JSON views accept: unpaired surrogates and numbers out of range.
    serde_json::from_slice::<Value>(body).map_err(|_| unreadable())?;
    match raw.shape() {
        Shape::Object => Ok(raw),
        _ => Err(mistyped("body", "an object")),
    }
}

pub(super) fn missing(name: &'static str) -> Fault {
    Fault::invalid(name, format!("Missing required parameter: '{name}'.")).code("missing_required_parameter")
}

pub(super) fn unknown(name: &str, known: &[&str]) -> Fault {
    let shown: String = name.chars().take(64).collect();
    let message = format!("Unknown parameter: '{shown}'. Known are: {}.", known.join(", "));
    Fault::invalid(shown, message).code("unknown_parameter")
}

pub(super) fn wrong(name: impl Into<Cow<'static, str>>, why: &str) -> Fault {
    let name = name.into();
    let message = format!("Invalid value for '{name}': {why}.");
    Fault::invalid(name, message).code("invalid_value")
}

pub(super) fn mistyped(name: impl Into<Cow<'static, str>>, expected: &str) -> Fault {
    let name = name.into();
    let message = format!("Invalid type for '{name}': expected {expected}.");
    Fault::invalid(name, message).code("invalid_type")
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
