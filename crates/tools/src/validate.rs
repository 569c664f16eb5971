//! JSON Schemas of tools: compiled once, within a budget, and checked before a tool runs.
//!
//! Schemas come from tenants and MCP servers. Their cost is computed before they are compiled (`budget`), patterns use
//! an engine without backtracking, and references to other documents are never fetched.

mod budget;
mod cache;

use amalgam_core::{AnswerCheck, ArgumentCheck};
use amalgam_protocol::{Raw, Shape};
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use self::budget::Cost;
use crate::text;

pub use self::cache::Schemas;

/// The maximum length of a tool's name.
const MAX_NAME_BYTES: usize = 64;
/// The maximum memory of a compiled pattern, and while it runs.
const MAX_PATTERN_BYTES: usize = 256 * 1024;
const MAX_RUNNING_BYTES: usize = 128 * 1024;
/// The maximum number of reported errors: a model corrects these first and tries again.
const MAX_FAULTS: usize = 5;
const MAX_FAULT_CHARS: usize = 300;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    cost: Cost,
}

impl Schema {
    /// Compiles a schema, or returns what is wrong with it. This may take milliseconds: see [`Schemas::get`].
    pub fn compile(schema: Raw<'_>) -> Result<Self, String> {
        if schema.shape() != Shape::Object {
            return Err(format!("a schema is an object, not {}", schema.shape().name()));
        }
        let value = budget::read(schema)?;
        let cost = budget::check(&value)?;
        let validator = jsonschema::options()
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(
                PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_RUNNING_BYTES),
            )
            .build(&value)
            .map_err(|error| text::printable(&located(error.instance_path().as_str(), &error), MAX_FAULT_CHARS))?;
        Ok(Self { validator, cost })
    }
}

impl ArgumentCheck for Schema {
    fn check(&self, arguments: Raw<'_>) -> Result<(), String> {
        if arguments.shape() != Shape::Object {
            return Err(format!("the arguments are {}; they have to be an object", arguments.shape().name()));
        }
        let value: Value =
            serde_json::from_str(arguments.text()).map_err(|error| format!("the arguments cannot be read: {error}"))?;
        self.faults(&value)
    }
}

impl AnswerCheck for Schema {
    fn check_text(&self, text: &str) -> Result<(), String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        self.faults(&value)
    }
}

impl Schema {
    /// Reports why a value does not follow the schema.
    fn faults(&self, value: &Value) -> Result<(), String> {
        self.cost.allows(value)?;
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let message = |fault: &jsonschema::ValidationError<'_>| {
            let reason = fault.masked_with("the value");
            text::printable(&located(fault.instance_path().as_str(), &reason), MAX_FAULT_CHARS)
        };
        // Collecting all errors evaluates each part repeatedly, which a recursive schema multiplies.
        let faults: Vec<String> = match self.cost.is_recursive() {
            true => self.validator.validate(value).err().iter().map(message).collect(),
            false => self.validator.iter_errors(value).take(MAX_FAULTS).map(|fault| message(&fault)).collect(),
        };
        match faults.is_empty() {
            true => Ok(()),
            false => Err(faults.join("; ")),
        }
    }
}

/// Checks a tool's name: only names that every upstream accepts.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match name.len() {
        0 => Err("a tool has a name".to_owned()),
        length if length > MAX_NAME_BYTES => Err(format!("the name of a tool has at most {MAX_NAME_BYTES} characters")),
        _ if !name.bytes().all(plain) => Err("the name of a tool is made of a-z, A-Z, 0-9, _ and -".to_owned()),
        _ => Ok(()),
    }
}

fn located(path: &str, reason: &impl ToString) -> String {
    match path {
        "" => reason.to_string(),
        path => format!("{path}: {}", reason.to_string()),
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
