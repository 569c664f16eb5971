//! The values and the rows of statements, for every engine.

use std::borrow::Cow;

use amalgam_core::StoreError;
use amalgam_protocol::Json;
use bytes::Bytes;

use crate::rows;

/// A value for a parameter of a statement.
#[derive(Debug, Clone)]
pub enum SqlValue<'a> {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number, a count or a time.
    Int(i64),
    /// A text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
    /// Several numbers in one parameter.
    Ints(Vec<i64>),
    /// Several texts in one parameter.
    Texts(Vec<&'a str>),
}

/// An array of [`SqlValue`]s.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::values::SqlValue::from($value)),*] };
}
pub(crate) use values;

macro_rules! conversions {
    ($($from:ty: $value:ident => $to:expr;)+) => {
        $(
            impl<'a> From<$from> for SqlValue<'a> {
                fn from($value: $from) -> Self {
                    $to
                }
            }
        )+
    };
}

conversions! {
    bool: value => Self::Bool(value);
    i64: value => Self::Int(value);
    u32: value => Self::Int(value.into());
    // What does not fit is as large as can be: no column holds such a count or time.
    u64: value => Self::Int(i64::try_from(value).unwrap_or(i64::MAX));
    usize: value => Self::Int(i64::try_from(value).unwrap_or(i64::MAX));
    &'a str: value => Self::Text(Cow::Borrowed(value));
    &'a String: value => Self::Text(Cow::Borrowed(value));
    String: value => Self::Text(Cow::Owned(value));
    Cow<'a, str>: value => Self::Text(value);
    &'a Json: value => Self::Text(Cow::Borrowed(value.raw().text()));
    Json: value => Self::Text(Cow::Owned(value.raw().text().to_owned()));
    &'a [u8]: value => Self::Bytes(Cow::Borrowed(value));
    &'a [u8; 32]: value => Self::Bytes(Cow::Borrowed(value));
    [u8; 16]: value => Self::Bytes(Cow::Owned(value.to_vec()));
    Vec<u8>: value => Self::Bytes(Cow::Owned(value));
    Vec<i64>: value => Self::Ints(value);
    Vec<&'a str>: value => Self::Texts(value);
    &'a Option<String>: value => value.as_deref().into();
}

impl<'a, T: Into<SqlValue<'a>>> From<Option<T>> for SqlValue<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row that a statement returned. Columns are counted from 0.
pub trait SqlRow {
    /// A number; `None` for NULL.
    fn int(&self, column: usize) -> Result<Option<i64>, StoreError>;
    /// A truth value; `None` for NULL.
    fn boolean(&self, column: usize) -> Result<Option<bool>, StoreError>;
    /// A text; `None` for NULL.
    fn text(&self, column: usize) -> Result<Option<&str>, StoreError>;
    /// Bytes; `None` for NULL.
    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, StoreError>;
}

impl dyn SqlRow + '_ {
    /// The value of a column that is never NULL.
    pub fn get<'r, T: FromColumn<'r>>(&'r self, column: usize) -> Result<T, StoreError> {
        self.optional(column)?.ok_or_else(|| StoreError::Broken(format!("column {column} of a row is NULL")))
    }

    /// The value of a column, `None` for NULL.
    pub fn optional<'r, T: FromColumn<'r>>(&'r self, column: usize) -> Result<Option<T>, StoreError> {
        T::from_column(self, column)
    }
}

/// A type that a column can be read as.
pub trait FromColumn<'r>: Sized {
    /// The value, `None` for NULL.
    fn from_column(row: &'r (dyn SqlRow + 'r), column: usize) -> Result<Option<Self>, StoreError>;
}

macro_rules! columns {
    ($($to:ty: $read:ident => |$value:ident| $convert:expr;)+) => {
        $(
            impl<'r> FromColumn<'r> for $to {
                fn from_column(row: &'r (dyn SqlRow + 'r), column: usize) -> Result<Option<Self>, StoreError> {
                    row.$read(column)?.map(|$value| $convert).transpose()
                }
            }
        )+
    };
}

columns! {
    i64: int => |value| Ok(value);
    u64: int => |value| count(value);
    u32: int => |value| count(value);
    u16: int => |value| count(value);
    bool: boolean => |value| Ok(value);
    &'r str: text => |value| Ok(value);
    String: text => |value| Ok(value.to_owned());
    // JSON that the server has written itself.
    Json: text => |value| Ok(rows::json(value));
    &'r [u8]: bytes => |value| Ok(value);
    Vec<u8>: bytes => |value| Ok(value.to_vec());
    Bytes: bytes => |value| Ok(Bytes::copy_from_slice(value));
    [u8; 32]: bytes => |value| rows::digest(value);
}

fn count<T: TryFrom<i64>>(value: i64) -> Result<T, StoreError> {
    T::try_from(value).map_err(|_| StoreError::Broken(format!("a stored count is out of range: {value}")))
}
