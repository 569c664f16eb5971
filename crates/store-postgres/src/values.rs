//! Values and rows of the shared code in the form of the driver.

use std::error::Error;

use amalgam_core::StoreError;
use amalgam_store::{SqlRow, SqlValue};
use bytes::BytesMut;
use tokio_postgres::{
    Row,
    types::{IsNull, ToSql, Type, to_sql_checked},
};

/// A value for a parameter.
#[derive(Debug)]
pub(super) struct PostgresValue<'a>(pub(super) &'a SqlValue<'a>);

impl ToSql for PostgresValue<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self.0 {
            SqlValue::Null => Ok(IsNull::Yes),
            SqlValue::Bool(value) => value.to_sql_checked(kind, out),
            SqlValue::Int(value) => value.to_sql_checked(kind, out),
            SqlValue::Text(value) => value.as_ref().to_sql_checked(kind, out),
            SqlValue::Bytes(value) => value.as_ref().to_sql_checked(kind, out),
            SqlValue::Ints(values) => values.to_sql_checked(kind, out),
            SqlValue::Texts(values) => values.to_sql_checked(kind, out),
        }
    }

    // Each value checks for itself.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// One column of several rows of values, as an array.
#[derive(Debug)]
pub(super) struct PostgresColumn<'a> {
    pub(super) rows: &'a [Vec<SqlValue<'a>>],
    pub(super) column: usize,
}

impl ToSql for PostgresColumn<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let values: Vec<PostgresValue<'_>> =
            self.rows.iter().filter_map(|row| row.get(self.column)).map(PostgresValue).collect();
        values.to_sql(kind, out)
    }

    fn accepts(kind: &Type) -> bool {
        <Vec<PostgresValue<'_>> as ToSql>::accepts(kind)
    }

    to_sql_checked!();
}

/// A row as the shared code reads it.
pub(super) struct PostgresRow<'r>(pub(super) &'r Row);

impl SqlRow for PostgresRow<'_> {
    fn int(&self, column: usize) -> Result<Option<i64>, StoreError> {
        self.0.try_get(column).map_err(broken)
    }

    fn boolean(&self, column: usize) -> Result<Option<bool>, StoreError> {
        self.0.try_get(column).map_err(broken)
    }

    fn text(&self, column: usize) -> Result<Option<&str>, StoreError> {
        self.0.try_get(column).map_err(broken)
    }

    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, StoreError> {
        self.0.try_get(column).map_err(broken)
    }
}

fn broken(error: tokio_postgres::Error) -> StoreError {
    StoreError::Broken(error.to_string())
}
