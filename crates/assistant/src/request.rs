//! The request of the assistant API. All fields are checked, so that one answer reports every fault.
//!
//! Clients of this wire know the texts of the faults.

use std::borrow::Cow;

use amalgam_protocol::{Json, Raw, Shape, Writer};

/// The maximum length of an agent's slug, in characters.
pub const AGENT_CHARS: usize = 100;

pub(crate) const REQUIRED: &str = "This field is required.";
pub(crate) const NULL: &str = "This field may not be null.";
pub(crate) const BLANK: &str = "This field may not be blank.";
pub(crate) const NO_STRING: &str = "Not a valid string.";
const NULL_CHARACTERS: &str = "Null characters are not allowed.";
const COURSE_ID: &str = "course_id must be a positive integer.";

/// The key of faults that belong to no field.
pub(crate) const NO_FIELD: &str = "non_field_errors";

/// The tenant's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RespondLimits {
    /// The maximum length of a message, in characters.
    pub max_input_chars: u64,
    /// The maximum size of the metadata, in bytes of UTF-8.
    pub metadata_max_bytes: u64,
}

/// A valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespondRequest {
    /// The requested profile, whether or not it exists.
    pub agent: Option<String>,
    /// The user's message, trimmed.
    pub message: String,
    /// The course that the user is viewing.
    pub course_id: Option<i64>,
    /// Whether the message begins a new session.
    pub new_session: bool,
}

impl RespondRequest {
    /// The metadata to store: `{"course_id": 28}`, or `{}`.
    pub fn metadata(&self) -> Json {
        let mut writer = Writer::default();
        writer.object(|writer| {
            if let Some(course_id) = self.course_id {
                writer.key("course_id").valid(course_id.to_string().as_bytes());
            }
        });
        Json::from_writer(writer)
    }
}

/// The faults of a request by field, in the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldFaults(Vec<(&'static str, Vec<String>)>);

impl FieldFaults {
    /// One fault of one field.
    pub fn of(field: &'static str, fault: impl Into<String>) -> Self {
        Self(vec![(field, vec![fault.into()])])
    }

    /// Every field with its faults.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        self.0.iter().map(|(field, faults)| (*field, faults.as_slice()))
    }

    /// The body of the answer: `{"message": ["This field is required."]}`.
    pub fn write(&self, writer: &mut Writer) {
        writer.object(|writer| {
            for (field, faults) in self.fields() {
                writer.key(field).array(|writer| faults.iter().for_each(|fault| writer.string(fault)));
            }
        });
    }

    /// Unwraps the result of reading a field, or records its faults.
    pub(crate) fn unwrap_or_record<T>(&mut self, field: &'static str, read: Result<T, Vec<String>>) -> Option<T> {
        read.map_err(|faults| self.0.push((field, faults))).ok()
    }
}

/// Reads a request. Unknown fields are ignored; unknown keys of `metadata` are faults.
pub fn read(body: Raw<'_>, limits: RespondLimits) -> Result<RespondRequest, FieldFaults> {
    match body.shape() {
        Shape::Object => {}
        Shape::Null => return Err(FieldFaults::of(NO_FIELD, "No data provided")),
        _ => {
            let fault = format!("Invalid data. Expected a dictionary, but got {}.", type_name(body));
            return Err(FieldFaults::of(NO_FIELD, fault));
        }
    }
    let mut faults = FieldFaults::default();
    let agent = faults.unwrap_or_record("agent", read_agent(body.get("agent")));
    let message = faults.unwrap_or_record("message", read_message(body.get("message"), limits.max_input_chars));
    let course_id = faults.unwrap_or_record("metadata", read_metadata(body.get("metadata"), limits.metadata_max_bytes));
    let new_session = faults.unwrap_or_record("new_session", read_flag(body.get("new_session")));
    match (agent, message, course_id, new_session) {
        (Some(agent), Some(message), Some(course_id), Some(new_session)) => {
            Ok(RespondRequest { agent, message, course_id, new_session })
        }
        _ => Err(faults),
    }
}

/// Null counts as absent.
fn read_flag(value: Option<Raw<'_>>) -> Result<bool, Vec<String>> {
    match value.map(Raw::text) {
        None | Some("null" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(vec!["Must be a valid boolean.".to_owned()]),
    }
}

/// Null and blank count as absent.
fn read_agent(value: Option<Raw<'_>>) -> Result<Option<String>, Vec<String>> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let text = value.as_str().ok_or_else(|| vec![NO_STRING.to_owned()])?.decode();
    let agent = text.trim();
    let faults = text_faults(agent, AGENT_CHARS as u64);
    match faults.is_empty() {
        true => Ok((!agent.is_empty()).then(|| agent.to_owned())),
        false => Err(faults),
    }
}

fn read_message(value: Option<Raw<'_>>, max_input_chars: u64) -> Result<String, Vec<String>> {
    let one = |fault: &str| vec![fault.to_owned()];
    let value = value.ok_or_else(|| one(REQUIRED))?;
    if value.is_null() {
        return Err(one(NULL));
    }
    let text = value.as_str().ok_or_else(|| one(NO_STRING))?.decode();
    let message = text.trim();
    if message.is_empty() {
        return Err(one(BLANK));
    }
    let faults = text_faults(message, max_input_chars);
    if faults.is_empty() { Ok(message.to_owned()) } else { Err(faults) }
}

pub(crate) fn text_faults(text: &str, most: u64) -> Vec<String> {
    let mut faults = Vec::new();
    if usize::try_from(most).is_ok_and(|most| text.chars().nth(most).is_some()) {
        faults.push(format!("Ensure this field has no more than {most} characters."));
    }
    if text.contains('\0') {
        faults.push(NULL_CHARACTERS.to_owned());
    }
    faults
}

/// The course that the metadata names, if it names one.
fn read_metadata(value: Option<Raw<'_>>, max_bytes: u64) -> Result<Option<i64>, Vec<String>> {
    let Some(value) = value else { return Ok(None) };
    match value.shape() {
        Shape::Object => {}
        Shape::Null => return Err(vec![NULL.to_owned()]),
        _ => return Err(vec![format!("Expected a dictionary of items but got type \"{}\".", type_name(value))]),
    }
    if usize::try_from(max_bytes).is_ok_and(|most| compact_len(value) > most) {
        // Reported alone: the answer does not repeat metadata that is too large.
        return Err(vec![format!("Metadata is too large: it may have at most {max_bytes} bytes.")]);
    }
    let mut faults = Vec::new();
    let keys = value.fields().map(|(key, _)| key.decode());
    let mut unknown: Vec<Cow<'_, str>> = keys.filter(|key| key != "course_id").collect();
    unknown.sort_unstable();
    unknown.dedup();
    if !unknown.is_empty() {
        faults.push(format!("Unknown metadata keys: {}.", unknown.join(", ")));
    }
    let course_id = value.get("course_id").map(course_id);
    if course_id == Some(None) {
        faults.push(COURSE_ID.to_owned());
    }
    if faults.is_empty() { Ok(course_id.flatten()) } else { Err(faults) }
}

/// A course id: a positive integer, or a string of digits.
pub fn course_id(value: Raw<'_>) -> Option<i64> {
    let text = match value.shape() {
        Shape::Number => Cow::Borrowed(value.text()),
        Shape::String => value.as_str()?.decode(),
        _ => return None,
    };
    let digits = text.trim();
    let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<i64>().ok())?;
    number.filter(|number| *number > 0)
}

/// The size of a value without white space.
fn compact_len(value: Raw<'_>) -> usize {
    let text = |text: &str| {
        let mut writer = Writer::with_capacity(text.len() + 2);
        writer.string(text);
        writer.bytes().len()
    };
    match value.shape() {
        Shape::Object => {
            let fields: Vec<usize> =
                value.fields().map(|(key, value)| text(&key.decode()) + 1 + compact_len(value)).collect();
            2 + fields.iter().sum::<usize>() + fields.len().saturating_sub(1)
        }
        Shape::Array => {
            let elements: Vec<usize> = value.elements().map(compact_len).collect();
            2 + elements.iter().sum::<usize>() + elements.len().saturating_sub(1)
        }
        Shape::String => value.as_str().map_or(0, |string| text(&string.decode())),
        Shape::Number | Shape::Bool | Shape::Null => value.text().len(),
    }
}

/// The name of a value's type that clients of this wire know.
pub(crate) fn type_name(value: Raw<'_>) -> &'static str {
    match value.shape() {
        Shape::Object => "dict",
        Shape::Array => "list",
        Shape::String => "str",
        Shape::Number if value.text().contains(['.', 'e', 'E']) => "float",
        Shape::Number => "int",
        Shape::Bool => "bool",
        Shape::Null => "NoneType",
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
