//! Reads typed views from [`Raw`], with errors that name the JSON path.

use std::{borrow::Cow, fmt};

use crate::json::{JsonStr, Raw, Shape};

/// What is wrong with a value, and at which path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct ShapeError {
    /// Such as `content[0].text`; empty for the value itself.
    pub path: String,
    /// What is wrong.
    pub fault: ShapeFault,
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeFault {
    /// A required field is missing.
    Missing,
    /// The value has another JSON type.
    Type {
        /// The expected type, with its article.
        expected: &'static str,
        /// The actual type.
        got: Shape,
    },
    /// The type is right, but the value is not.
    Value(Cow<'static, str>),
}

impl ShapeError {
    /// A required field is missing.
    pub fn missing(path: &str) -> Self {
        Self { path: path.to_owned(), fault: ShapeFault::Missing }
    }

    /// The value at `path` has another type.
    pub fn expected(path: &str, expected: &'static str, value: Raw<'_>) -> Self {
        Self { path: path.to_owned(), fault: ShapeFault::Type { expected, got: value.shape() } }
    }

    /// The value at `path` has the right type, but is invalid.
    pub fn value(path: &str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { path: path.to_owned(), fault: ShapeFault::Value(message.into()) }
    }

    /// The error of the parent object, in which this value is the field `name`.
    #[must_use]
    pub fn under(mut self, name: &str) -> Self {
        self.path = match self.path.as_str() {
            "" => name.to_owned(),
            path if path.starts_with('[') => format!("{name}{path}"),
            path => format!("{name}.{path}"),
        };
        self
    }

    /// The error of the parent array, in which this value is element `index`.
    #[must_use]
    pub fn at(self, index: usize) -> Self {
        self.under(&format!("[{index}]"))
    }
}

impl fmt::Display for ShapeFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => formatter.write_str("is required"),
            Self::Type { expected, got } => write!(formatter, "expected {expected}, but got {} instead", got.name()),
            Self::Value(message) => formatter.write_str(message),
        }
    }
}

/// Reads the elements of an array; an error names the element's index.
pub(crate) fn list<'a, T>(
    raw: Raw<'a>,
    expected: &'static str,
    read: impl Fn(Raw<'a>) -> Result<T, ShapeError>,
) -> Result<Vec<T>, ShapeError> {
    if raw.shape() != Shape::Array {
        return Err(ShapeError::expected("", expected, raw));
    }
    raw.elements().enumerate().map(|(index, element)| read(element).map_err(|error| error.at(index))).collect()
}

/// The elements of an array that are not null.
pub(crate) struct Present<T> {
    pub(crate) list: Vec<T>,
    pub(crate) nulls: Option<Nulls>,
}

/// Null elements of an array, which are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nulls {
    /// The index of the first one.
    pub first: usize,
    /// How many there are.
    pub count: usize,
}

/// Reads the elements of an array that are not null. An error names the element's index, counting null ones.
pub(crate) fn list_of_present<'a, T>(
    raw: Raw<'a>,
    expected: &'static str,
    read: impl Fn(Raw<'a>) -> Result<T, ShapeError>,
) -> Result<Present<T>, ShapeError> {
    if raw.shape() != Shape::Array {
        return Err(ShapeError::expected("", expected, raw));
    }
    let mut present = Present { list: Vec::new(), nulls: None };
    for (index, element) in raw.elements().enumerate() {
        match element.is_null() {
            false => present.list.push(read(element).map_err(|error| error.at(index))?),
            true => present.nulls.get_or_insert(Nulls { first: index, count: 0 }).count += 1,
        }
    }
    Ok(present)
}

/// Checks that `raw` is an object before its fields are read.
pub(crate) fn object<'a>(raw: Raw<'a>) -> Result<crate::json::Fields<'a>, ShapeError> {
    match raw.shape() {
        Shape::Object => Ok(raw.fields()),
        _ => Err(ShapeError::expected("", "an object", raw)),
    }
}

/// A type that is read from the value of a field.
pub(crate) trait Field<'a>: Sized {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError>;

    fn field(name: &str, raw: Raw<'a>) -> Result<Self, ShapeError> {
        Self::read(raw).map_err(|error| error.under(name))
    }
}

impl<'a> Field<'a> for JsonStr<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        raw.as_str().ok_or_else(|| ShapeError::expected("", "a string", raw))
    }
}

impl<'a> Field<'a> for Cow<'a, str> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        JsonStr::read(raw).map(JsonStr::decode)
    }
}

impl<'a> Field<'a> for bool {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        raw.as_bool().ok_or_else(|| ShapeError::expected("", "a boolean", raw))
    }
}

impl<'a> Field<'a> for u64 {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        raw.as_u64().ok_or_else(|| match raw.shape() {
            Shape::Number => ShapeError::value("", "must be a whole number of at least 0"),
            _ => ShapeError::expected("", "an integer", raw),
        })
    }
}

impl<'a> Field<'a> for f64 {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        raw.as_f64().ok_or_else(|| ShapeError::expected("", "a number", raw))
    }
}

impl<'a> Field<'a> for Raw<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        Ok(raw)
    }
}

/// `null` counts as absent.
impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        match raw.is_null() {
            true => Ok(None),
            false => T::read(raw).map(Some),
        }
    }
}

/// Declares a view of a JSON object: a struct whose fields are read by name, and its reader.
///
/// A field of type `Option`, or with `= default`, may be absent or null; any other field is required. Undeclared fields
/// are skipped; they remain in the [`Raw`] that the view was read from.
macro_rules! view {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident<$life:lifetime> {
            $( $(#[$field_meta:meta])* $field:ident $(as $wire:literal)? : $kind:ty $(= $default:expr)? ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $name<$life> {
            $( $(#[$field_meta])* pub $field: $kind, )*
        }

        impl<$life> $crate::shape::Field<$life> for $name<$life> {
            fn read(raw: $crate::json::Raw<$life>) -> Result<Self, $crate::shape::ShapeError> {
                $( let mut $field: Option<$kind> = None; )*
                for (key, value) in $crate::shape::object(raw)? {
                    match &*key.decode() {
                        $( shape_name!($field $($wire)?) => {
                            let name = shape_name!($field $($wire)?);
                            shape_keep!($field, name, value, $kind $(, $default)?);
                        } )*
                        _ => {}
                    }
                }
                Ok(Self { $( $field: shape_take!($field, shape_name!($field $($wire)?), $kind $(, $default)?), )* })
            }
        }
    };
}

macro_rules! shape_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $wire:literal) => {
        $wire
    };
}

macro_rules! shape_keep {
    ($field:ident, $name:expr, $value:expr, $kind:ty) => {
        $field = Some(<$kind>::field($name, $value)?);
    };
    ($field:ident, $name:expr, $value:expr, $kind:ty, $default:expr) => {
        if !$value.is_null() {
            $field = Some(<$kind>::field($name, $value)?);
        }
    };
}

macro_rules! shape_take {
    ($field:ident, $name:expr, $kind:ty) => {
        match $field {
            Some(value) => value,
            // An `Option` reads `null` as absent, so that both are one case.
            None => <$kind>::read($crate::json::Raw::NULL).map_err(|_| $crate::shape::ShapeError::missing($name))?,
        }
    };
    ($field:ident, $name:expr, $kind:ty, $default:expr) => {
        $field.unwrap_or_else(|| $default)
    };
}

pub(crate) use {shape_keep, shape_name, shape_take, view};
