//! Reads fields of JSON objects, with errors that name their paths. Null counts as absent.

use amalgam_protocol::{JsonStr, Raw, Shape, ShapeError};

/// A field that is there and not null.
pub(crate) fn present<'a>(object: Raw<'a>, name: &str) -> Option<Raw<'a>> {
    object.get(name).filter(|value| !value.is_null())
}

/// A string.
pub(crate) fn text_of<'a>(value: Raw<'a>, path: &str) -> Result<JsonStr<'a>, ShapeError> {
    value.as_str().ok_or_else(|| ShapeError::expected(path, "a string", value))
}

/// An optional string field.
pub(crate) fn text<'a>(object: Raw<'a>, name: &str) -> Result<Option<JsonStr<'a>>, ShapeError> {
    present(object, name).map(|value| text_of(value, name)).transpose()
}

/// A required string field.
pub(crate) fn required_text<'a>(object: Raw<'a>, name: &str) -> Result<JsonStr<'a>, ShapeError> {
    text(object, name)?.ok_or_else(|| ShapeError::missing(name))
}

/// A required field that is an object.
pub(crate) fn required_object<'a>(object: Raw<'a>, name: &str) -> Result<Raw<'a>, ShapeError> {
    let value = present(object, name).ok_or_else(|| ShapeError::missing(name))?;
    expect_object(value).map_err(|error| error.under(name))?;
    Ok(value)
}

/// A boolean.
pub(crate) fn flag(value: Raw<'_>, path: &str) -> Result<bool, ShapeError> {
    value.as_bool().ok_or_else(|| ShapeError::expected(path, "a boolean", value))
}

pub(crate) fn expect_object(value: Raw<'_>) -> Result<(), ShapeError> {
    match value.shape() {
        Shape::Object => Ok(()),
        _ => Err(ShapeError::expected("", "an object", value)),
    }
}

pub(crate) fn expect_array(value: Raw<'_>, expected: &'static str) -> Result<(), ShapeError> {
    match value.shape() {
        Shape::Array => Ok(()),
        _ => Err(ShapeError::expected("", expected, value)),
    }
}
