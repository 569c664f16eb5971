//! Reads objects whose fields have two spellings, and collects all faults instead of only the first.
//!
//! `null` means the same as a missing field: clients with typed models write it for unset fields.

use std::{borrow::Cow, fmt};

use amalgam_protocol::{Raw, Shape};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The maximum number of faults in an answer, so that it is never longer than the request.
pub const MAX_FAULTS: usize = 100;

/// The maximum length of an unknown key in a message.
const KEY_CHARS: usize = 64;

/// A fault of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldFault {
    /// The path of the field, as the client spells it: `ToolResults[1].ErrorMessage`.
    pub field: String,
    /// The kind of the fault.
    pub kind: FieldFaultKind,
    /// The message for users, without the field's name: `must be an array`.
    pub message: String,
}

impl fmt::Display for FieldFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.field, self.message)
    }
}

/// The kinds of field faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldFaultKind {
    /// The field is required.
    Missing,
    /// The field is known, but not allowed here.
    Forbidden,
    /// The field is unknown.
    Unknown,
    /// The field is there more than once.
    Repeated,
    /// The value has another JSON type.
    Type,
    /// The value has the right type but is invalid.
    Value,
    /// The value exceeds a limit.
    TooLarge,
}

impl FieldFaultKind {
    /// The code for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::Missing => "missing_field",
            Self::Forbidden => "forbidden_field",
            Self::Unknown => "unknown_field",
            Self::Repeated => "repeated_field",
            Self::Type => "wrong_type",
            Self::Value => "invalid_value",
            Self::TooLarge => "too_large",
        }
    }
}

/// The faults of a request; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, thiserror::Error)]
pub struct RequestFaults {
    faults: Vec<FieldFault>,
    omitted: usize,
}

impl RequestFaults {
    /// The faults in order of detection, at most [`MAX_FAULTS`].
    pub fn list(&self) -> &[FieldFault] {
        &self.faults
    }

    /// The number of further faults.
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    pub(super) fn add(&mut self, field: impl Into<String>, kind: FieldFaultKind, message: impl Into<String>) {
        match self.faults.len() < MAX_FAULTS {
            true => self.faults.push(FieldFault { field: field.into(), kind, message: message.into() }),
            false => self.omitted += 1,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }
}

impl fmt::Display for RequestFaults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            write!(formatter, "{}{fault}", if index == 0 { "" } else { "; " })?;
        }
        match self.omitted {
            0 => Ok(()),
            omitted => write!(formatter, "; and {omitted} more"),
        }
    }
}

/// How unknown fields are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownFields {
    /// Unknown fields are faults.
    #[default]
    Refused,
    /// Unknown fields are ignored.
    Ignored,
}

/// A field of an object: its name, then its aliases. All in Pascal case.
pub(super) type FieldNames = &'static [&'static str];

/// The name in camel case.
pub(super) fn camel(name: &str) -> String {
    let mut characters = name.chars();
    characters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(characters).collect()
}

fn is_spelling(written: &str, name: &str) -> bool {
    let (mut written_chars, mut name_chars) = (written.chars(), name.chars());
    match (written_chars.next(), name_chars.next()) {
        (Some(first), Some(capital)) => {
            (first == capital || first == capital.to_ascii_lowercase()) && written_chars.as_str() == name_chars.as_str()
        }
        _ => false,
    }
}

/// An object's fields, found by name.
pub(super) struct Object<'a> {
    path: String,
    found: Vec<(FieldNames, Field<'a>)>,
}

impl<'a> Object<'a> {
    /// Reads the object at `path`. `refuse` may give the reason why an unknown field is not allowed.
    pub(super) fn read(
        path: String,
        raw: Raw<'a>,
        known: &[FieldNames],
        unknown: UnknownFields,
        refuse: impl Fn(&str) -> Option<String>,
        faults: &mut RequestFaults,
    ) -> Option<Self> {
        if raw.shape() != Shape::Object {
            let named = if path.is_empty() { "body" } else { &path };
            faults.add(named, FieldFaultKind::Type, format!("must be an object, not {}", raw.shape().name()));
            return None;
        }
        let mut found: Vec<(FieldNames, Field<'a>)> = Vec::new();
        for (key, raw) in raw.fields() {
            let key = key.decode();
            let at = below(&path, &key);
            match known.iter().find(|names| names.iter().any(|name| is_spelling(&key, name))) {
                Some(names) => match found.iter().find(|(earlier, _)| earlier == names) {
                    Some((_, first)) => {
                        let message = format!("says again what `{}` says", first.path);
                        faults.add(at, FieldFaultKind::Repeated, message);
                    }
                    None => found.push((names, Field { path: at, raw })),
                },
                None => match refuse(&key) {
                    Some(why) => faults.add(at, FieldFaultKind::Forbidden, why),
                    None if unknown == UnknownFields::Refused => {
                        faults.add(at, FieldFaultKind::Unknown, unknown_message(&key, known));
                    }
                    None => {}
                },
            }
        }
        Some(Self { path, found })
    }

    /// The field with this name, if it is there and not null.
    pub(super) fn get(&self, name: &str) -> Option<Field<'a>> {
        let field = self.found.iter().find(|(names, _)| names.first() == Some(&name)).map(|(_, field)| field)?;
        (!field.raw.is_null()).then(|| field.clone())
    }

    /// The field with this name, which is required.
    pub(super) fn require(&self, name: &str, faults: &mut RequestFaults) -> Option<Field<'a>> {
        let field = self.get(name);
        if field.is_none() {
            let written = self.found.iter().find(|(names, _)| names.first() == Some(&name));
            let at = written.map_or_else(|| below(&self.path, name), |(_, field)| field.path.clone());
            faults.add(at, FieldFaultKind::Missing, "is required");
        }
        field
    }
}

fn below(path: &str, key: &str) -> String {
    let mut at = if path.is_empty() { String::new() } else { format!("{path}.") };
    at.extend(key.chars().take(KEY_CHARS));
    at
}

fn unknown_message(key: &str, known: &[FieldNames]) -> String {
    let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
    let normalised = plain(key);
    match known.iter().flat_map(|names| names.iter()).find(|name| plain(name) == normalised) {
        Some(suggestion) => format!("is not a field of this request; is `{suggestion}` meant?"),
        None => "is not a field of this request".to_owned(),
    }
}

/// A value with its path.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) path: String,
    pub(super) raw: Raw<'a>,
}

impl<'a> Field<'a> {
    /// A string of at most `max` bytes.
    pub(super) fn text(&self, max: usize, faults: &mut RequestFaults) -> Option<Cow<'a, str>> {
        let Some(text) = self.raw.as_str() else {
            return self.wrong_type("a string", faults);
        };
        let text = text.decode();
        if text.len() > max {
            faults.add(&*self.path, FieldFaultKind::TooLarge, format!("must have at most {max} bytes"));
            return None;
        }
        Some(text)
    }

    /// A non-blank string.
    pub(super) fn non_blank(&self, max: usize, faults: &mut RequestFaults) -> Option<Cow<'a, str>> {
        let text = self.text(max, faults)?;
        if text.trim().is_empty() {
            return self.invalid("must not be blank", faults);
        }
        Some(text)
    }

    /// A name: a non-blank string on one line.
    pub(super) fn name(&self, max: usize, faults: &mut RequestFaults) -> Option<Cow<'a, str>> {
        let text = self.non_blank(max, faults)?;
        if text.chars().any(char::is_control) {
            return self.invalid("must not hold control characters", faults);
        }
        Some(text)
    }

    /// A boolean.
    pub(super) fn flag(&self, faults: &mut RequestFaults) -> Option<bool> {
        self.raw.as_bool().or_else(|| self.wrong_type("a boolean", faults))
    }

    /// The elements of an array, at most `max`.
    pub(super) fn list(&self, max: usize, faults: &mut RequestFaults) -> Option<Vec<Field<'a>>> {
        if self.raw.shape() != Shape::Array {
            return self.wrong_type("an array", faults);
        }
        if self.raw.elements().nth(max).is_some() {
            // Reported alone: the elements of an array that is too long are not checked.
            faults.add(&*self.path, FieldFaultKind::TooLarge, format!("must hold at most {max} elements"));
            return None;
        }
        let elements = self.raw.elements().enumerate();
        Some(elements.map(|(index, raw)| Field { path: format!("{}[{index}]", self.path), raw }).collect())
    }

    /// Checks that a text of this field is base64 of at most `max` bytes, and returns its decoded length.
    pub(super) fn base64(&self, text: &str, max: usize, faults: &mut RequestFaults) -> Option<usize> {
        if text.len() / 4 > max / 3 + 1 {
            faults.add(&*self.path, FieldFaultKind::TooLarge, format!("must decode to at most {max} bytes"));
            return None;
        }
        match STANDARD.decode(text) {
            Ok(bytes) if bytes.len() <= max => Some(bytes.len()),
            Ok(_) => {
                faults.add(&*self.path, FieldFaultKind::TooLarge, format!("must decode to at most {max} bytes"));
                None
            }
            Err(_) => self.invalid("must be base64", faults),
        }
    }

    /// Records a fault of the value, and returns none.
    pub(super) fn invalid<T>(&self, message: impl Into<String>, faults: &mut RequestFaults) -> Option<T> {
        faults.add(&*self.path, FieldFaultKind::Value, message);
        None
    }

    pub(super) fn wrong_type<T>(&self, expected: &str, faults: &mut RequestFaults) -> Option<T> {
        let message = format!("must be {expected}, not {}", self.raw.shape().name());
        faults.add(&*self.path, FieldFaultKind::Type, message);
        None
    }
}
