//! The body of an administrative request: one JSON object, read into a serde type.
//!
//! The types deny unknown fields: a client that sends one expects it to have an effect. Faults name the field.

mod deserializer;

use std::borrow::Cow;

use amalgam_core::{Fault, FaultKind};
use amalgam_protocol::{Raw, Shape};
use axum::extract::Request;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    app::App,
    body::{BodyLimits, read_json},
};

pub(super) use deserializer::VERBATIM;

/// The largest body of an administrative request, unless its handler says otherwise.
const LARGEST: usize = 64 * 1024;

/// Reads the body of a request into `T`.
pub(super) async fn read<T: for<'de> Deserialize<'de>>(app: &App, request: Request) -> Result<T, Fault> {
    parse(&body(app, request, LARGEST).await?)
}

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

/// The body of a request, at most this large.
pub(super) async fn body(app: &App, request: Request, largest: usize) -> Result<Bytes, Fault> {
    let limits = BodyLimits { bytes: largest.min(app.limits.body_bytes), ..app.text_body() };
    Ok(read_json(request, limits, &app.memory).await?.1)
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
