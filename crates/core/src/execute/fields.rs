//! Reads objects whose fields have two spellings, and collects all faults instead of only the first.
//!
//! `null` is the same as leaving a field out: clients with typed models write it for whatever they have not set.

use std::{borrow::Cow, fmt};

use amalgam_protocol::{Raw, Shape};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The most faults in one answer, so that an answer is never longer than the request.
pub const MOST_FAULTS: usize = 100;

/// As much of a foreign key as is repeated.
const KEY_CHARS: usize = 64;

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldFault {
    /// Where it is, as the client spells it: `ToolResults[1].ErrorMessage`.
    pub field: String,
    /// Which mistake it is.
    pub kind: FieldFaultKind,
    /// For a person, beginning after the field's name: `must be an array`.
    pub message: String,
}

impl fmt::Display for FieldFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.field, self.message)
    }
}

/// The mistakes that a field can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldFaultKind {
    /// It has to be there.
    Missing,
    /// It is known, and must not be there.
    Forbidden,
    /// The field is unknown.
    Unknown,
    /// It is there more than once.
    Repeated,
    /// Its value is of another JSON type.
    Type,
    /// Its value is of the right type and wrong.
    Value,
    /// There is more of it than is taken.
    TooLarge,
}

impl FieldFaultKind {
    /// The name that programs go by.
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

/// Everything that is wrong with one request; never nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, thiserror::Error)]
pub struct RequestFaults {
    faults: Vec<FieldFault>,
    untold: usize,
}

impl RequestFaults {
    /// The faults in the order in which they were met, [`MOST_FAULTS`] at most.
    pub fn list(&self) -> &[FieldFault] {
        &self.faults
    }

    /// How many more there are.
    pub fn untold(&self) -> usize {
        self.untold
    }

    pub(super) fn add(&mut self, field: impl Into<String>, kind: FieldFaultKind, message: impl Into<String>) {
        match self.faults.len() < MOST_FAULTS {
            true => self.faults.push(FieldFault { field: field.into(), kind, message: message.into() }),
            false => self.untold += 1,
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
        match self.untold {
            0 => Ok(()),
            untold => write!(formatter, "; and {untold} more"),
        }
    }
}

/// What happens to unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownFields {
    /// They are faults.
    #[default]
    Refused,
    /// They are passed over.
    Ignored,
}

/// A field that an object may have: its own name first, then names that mean the same. All in Pascal case.
pub(super) type Known = &'static [&'static str];

/// The same name in camel case.
pub(super) fn camel(name: &str) -> String {
    let mut characters = name.chars();
    characters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(characters).collect()
}

fn is_spelt(written: &str, name: &str) -> bool {
    let (mut one, mut other) = (written.chars(), name.chars());
    match (one.next(), other.next()) {
        (Some(first), Some(capital)) => {
            (first == capital || first == capital.to_ascii_lowercase()) && one.as_str() == other.as_str()
        }
        _ => false,
    }
}

/// An object's fields, found by name.
pub(super) struct Object<'a> {
    path: String,
    found: Vec<(Known, Field<'a>)>,
}

impl<'a> Object<'a> {
    /// Reads the object at `path`. `refuse` may say why a field that is not known must not be there.
    pub(super) fn read(
        path: String,
        raw: Raw<'a>,
        known: &[Known],
        unknown: UnknownFields,
        refuse: impl Fn(&str) -> Option<String>,
        faults: &mut RequestFaults,
    ) -> Option<Self> {
        if raw.shape() != Shape::Object {
            let named = if path.is_empty() { "body" } else { &path };
            faults.add(named, FieldFaultKind::Type, format!("must be an object, not {}", raw.shape().name()));
            return None;
        }
        let mut found: Vec<(Known, Field<'a>)> = Vec::new();
        for (key, raw) in raw.fields() {
            let key = key.decode();
            let at = below(&path, &key);
            match known.iter().find(|names| names.iter().any(|name| is_spelt(&key, name))) {
                Some(names) => match found.iter().find(|(other, _)| other == names) {
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

    /// The field of this name, if it is there and not null.
    pub(super) fn get(&self, name: &str) -> Option<Field<'a>> {
        let field = self.found.iter().find(|(names, _)| names.first() == Some(&name)).map(|(_, field)| field)?;
        (!field.raw.is_null()).then(|| field.clone())
    }

    /// The same, for a field that has to be there.
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

fn unknown_message(key: &str, known: &[Known]) -> String {
    let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
    let wanted = plain(key);
    match known.iter().flat_map(|names| names.iter()).find(|name| plain(name) == wanted) {
        Some(meant) => format!("is not a field of this request; is `{meant}` meant?"),
        None => "is not a field of this request".to_owned(),
    }
}

/// A value and where it is.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) path: String,
    pub(super) raw: Raw<'a>,
}

impl<'a> Field<'a> {
    /// A string of at most so many bytes.
    pub(super) fn text(&self, most: usize, faults: &mut RequestFaults) -> Option<Cow<'a, str>> {
        let Some(text) = self.raw.as_str() else {
            return self.wrong_type("a string", faults);
        };
        let text = text.decode();
        if text.len() > most {
            faults.add(&*self.path, FieldFaultKind::TooLarge, format!("must have at most {most} bytes"));
            return None;
        }
        Some(text)
    }

    /// A string with something in it.
    pub(super) fn filled(&self, most: usize, faults: &mut RequestFaults) -> Option<Cow<'a, str>> {
        let text = self.text(most, faults)?;
        if text.trim().is_empty() {
            return self.wrong("must not be blank", faults);
        }
        Some(text)
    }

    /// A name: a string with something in it, on one line.
    pub(super) fn name(&self, most: usize, faults: &mut RequestFaults) -> Option<Cow<'a, str>> {
        let text = self.filled(most, faults)?;
        if text.chars().any(char::is_control) {
            return self.wrong("must not hold control characters", faults);
        }
        Some(text)
    }

    /// A boolean.
    pub(super) fn flag(&self, faults: &mut RequestFaults) -> Option<bool> {
        self.raw.as_bool().or_else(|| self.wrong_type("a boolean", faults))
    }

    /// The elements of an array of at most so many.
    pub(super) fn list(&self, most: usize, faults: &mut RequestFaults) -> Option<Vec<Field<'a>>> {
        if self.raw.shape() != Shape::Array {
            return self.wrong_type("an array", faults);
        }
        if self.raw.elements().nth(most).is_some() {
            // Alone: what is too much is not looked at one by one.
            faults.add(&*self.path, FieldFaultKind::TooLarge, format!("must hold at most {most} elements"));
            return None;
        }
        let elements = self.raw.elements().enumerate();
        Some(elements.map(|(index, raw)| Field { path: format!("{}[{index}]", self.path), raw }).collect())
    }

    /// Checks that a text of this field is base64 of at most so many bytes, and gives back how many.
    pub(super) fn base64(&self, text: &str, most: usize, faults: &mut RequestFaults) -> Option<usize> {
        if text.len() / 4 > most / 3 + 1 {
            faults.add(&*self.path, FieldFaultKind::TooLarge, format!("must decode to at most {most} bytes"));
            return None;
        }
        match STANDARD.decode(text) {
            Ok(bytes) if bytes.len() <= most => Some(bytes.len()),
            Ok(_) => {
                faults.add(&*self.path, FieldFaultKind::TooLarge, format!("must decode to at most {most} bytes"));
                None
            }
            Err(_) => self.wrong("must be base64", faults),
        }
    }

    /// Files a fault of the value, and stands for there being none.
    pub(super) fn wrong<T>(&self, message: impl Into<String>, faults: &mut RequestFaults) -> Option<T> {
        faults.add(&*self.path, FieldFaultKind::Value, message);
        None
    }

    pub(super) fn wrong_type<T>(&self, expected: &str, faults: &mut RequestFaults) -> Option<T> {
        let message = format!("must be {expected}, not {}", self.raw.shape().name());
        faults.add(&*self.path, FieldFaultKind::Type, message);
        None
    }
}
