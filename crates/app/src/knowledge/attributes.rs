//! Names and attributes of documents, and which of them can be stored.

use amalgam_knowledge::is_name;

/// Names of built-in fields, which attributes may not use.
const TAKEN: [&str; 5] = ["collection", "language", "path", "repo", "source"];
/// The most attributes of a document.
const ATTRIBUTES: usize = 32;
/// The longest value of one, in bytes.
const VALUE_BYTES: usize = 512;

/// Why a name or an attribute cannot be stored: a sentence for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidAttribute(String);

/// The name of a collection or of a source.
pub fn check_name(text: &str) -> Result<String, InvalidAttribute> {
    let why = "a name has 1 to 64 letters, digits, dots, dashes and underscores, and begins with one of the first two";
    if is_name(text) { Ok(text.to_owned()) } else { Err(InvalidAttribute(why.to_owned())) }
}

/// The value of an attribute.
pub fn check_value(text: &str) -> Result<String, InvalidAttribute> {
    match !text.trim().is_empty() && text.len() <= VALUE_BYTES && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(InvalidAttribute(format!("a value has 1 to {VALUE_BYTES} bytes and only printable characters"))),
    }
}

/// An attribute that a caller names itself.
pub fn check_attribute(key: &str, value: &str) -> Result<(String, String), InvalidAttribute> {
    // Searches ask for keys in any case.
    if TAKEN.iter().any(|taken| taken.eq_ignore_ascii_case(key)) {
        return Err(InvalidAttribute(format!("`{key}` is a built-in field of documents")));
    }
    Ok((check_name(key)?, check_value(value)?))
}

/// All attributes of a document, ordered by name.
pub fn check_attributes(mut attributes: Vec<(String, String)>) -> Result<Vec<(String, String)>, InvalidAttribute> {
    attributes.sort_by_key(|(key, _)| key.to_ascii_lowercase());
    if attributes.len() > ATTRIBUTES {
        return Err(InvalidAttribute(format!("at most {ATTRIBUTES} attributes are allowed")));
    }
    let twice =
        attributes.windows(2).find(|pair| matches!(pair, [(one, _), (other, _)] if one.eq_ignore_ascii_case(other)));
    match twice.and_then(<[_]>::first) {
        Some((key, _)) => Err(InvalidAttribute(format!("the attribute {key} is given twice"))),
        None => Ok(attributes),
    }
}
