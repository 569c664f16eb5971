//! The only way to run a statement: with a scope that fits it.
//!
//! A statement about rows of callers takes the tenant as `?1` and the user as `?2` from the scope itself; the caller
//! supplies the other values. So no such statement runs without a scope, and no text is assembled at run time.
use amalgam_core::{Operator, Scope};
use amalgam_store::{
    SqlValue, TenantKey,
    sql::{OperatorSql, Sql, TenantSql, UserSql},
};
use rusqlite::{CachedStatement, Connection, Row, ToSql, types::ValueRef};

use super::{connection::SqliteValue, failure::SqliteFailure};

/// The values that are bound after the scope.
pub(super) type Params<'a> = &'a [&'a dyn ToSql];

/// A database that statements run on.
#[derive(Clone, Copy)]
pub(super) struct Database<'c> {
    connection: &'c Connection,
}

impl<'c> Database<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection }
    }

    /// The number of the row that was added last.
    pub(super) fn last_number(self) -> i64 {
        self.connection.last_insert_rowid()
    }

    /// A statement about one user's rows; `params` begin at `?3`.
    pub(super) fn user(self, scope: &Scope, sql: UserSql, params: Params<'_>) -> Result<Bound<'c>, SqliteFailure> {
        self.bind(sql, &[&scope.tenant_id(), &scope.user()], params)
    }

    /// A statement about a whole tenant; `params` begin at `?2`.
    pub(super) fn tenant(
        self,
        tenant: TenantKey,
        sql: TenantSql,
        params: Params<'_>,
    ) -> Result<Bound<'c>, SqliteFailure> {
        self.bind(sql, &[&tenant.number()], params)
    }

    /// A statement of the installation itself; `params` begin at `?1`.
    pub(super) fn operator(
        self,
        _: Operator,
        sql: OperatorSql,
        params: Params<'_>,
    ) -> Result<Bound<'c>, SqliteFailure> {
        self.bind(sql, &[], params)
    }

    fn bind(self, sql: impl Into<Sql>, scope: Params<'_>, params: Params<'_>) -> Result<Bound<'c>, SqliteFailure> {
        let mut statement = self.connection.prepare_cached(sql.into().sqlite)?;
        for (index, param) in scope.iter().chain(params).enumerate() {
            statement.raw_bind_parameter(index + 1, param)?;
        }
        Ok(Bound { statement })
    }

    /// A statement of the shared code, with all its values.
    pub(super) fn bind_values(
        self,
        sql: Sql,
        values: &[SqlValue<'_>],
        behind: &[SqlValue<'_>],
    ) -> Result<Bound<'c>, SqliteFailure> {
        let mut statement = self.connection.prepare_cached(sql.sqlite)?;
        for (index, value) in values.iter().chain(behind).enumerate() {
            statement.raw_bind_parameter(index + 1, SqliteValue(value))?;
        }
        Ok(Bound { statement })
    }

    /// Begins a transaction that reads.
    pub(super) fn begin_to_read(self) -> Result<(), SqliteFailure> {
        self.connection.prepare_cached("BEGIN")?.execute([])?;
        Ok(())
    }

    /// Begins a transaction that writes.
    pub(super) fn begin(self) -> Result<(), SqliteFailure> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(())
    }

    /// Commits a transaction.
    pub(super) fn commit(self) -> Result<(), SqliteFailure> {
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

/// A prepared statement with all its values.
pub(super) struct Bound<'c> {
    statement: CachedStatement<'c>,
}

impl Bound<'_> {
    /// Runs the statement. Returns the number of changed rows.
    pub(super) fn run(mut self) -> Result<u64, SqliteFailure> {
        Ok(self.statement.raw_execute()? as u64)
    }

    /// Returns the first row; `None` if there is none.
    pub(super) fn first<T>(
        mut self,
        mut read: impl FnMut(&Row<'_>) -> Result<T, SqliteFailure>,
    ) -> Result<Option<T>, SqliteFailure> {
        let mut rows = self.statement.raw_query();
        rows.next()?.map(&mut read).transpose()
    }

    /// Whether there is a row.
    pub(super) fn exists(self) -> Result<bool, SqliteFailure> {
        Ok(self.first(|_| Ok(()))?.is_some())
    }

    /// All rows.
    pub(super) fn all<T>(
        self,
        mut read: impl FnMut(&Row<'_>) -> Result<T, SqliteFailure>,
    ) -> Result<Vec<T>, SqliteFailure> {
        let mut all = Vec::new();
        self.each(|row| {
            all.push(read(row)?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Reads all rows.
    pub(super) fn each(self, mut read: impl FnMut(&Row<'_>) -> Result<(), SqliteFailure>) -> Result<(), SqliteFailure> {
        self.until(|row| read(row).map(|()| true))
    }

    /// Reads rows until `read` returns `false`.
    pub(super) fn until(
        mut self,
        mut read: impl FnMut(&Row<'_>) -> Result<bool, SqliteFailure>,
    ) -> Result<(), SqliteFailure> {
        let mut rows = self.statement.raw_query();
        while let Some(row) = rows.next()? {
            if !read(row)? {
                break;
            }
        }
        Ok(())
    }
}

/// A count or a time in the form of SQLite.
pub(super) fn int(number: u64) -> Result<i64, SqliteFailure> {
    i64::try_from(number).map_err(|_| SqliteFailure::Broken(format!("{number} is more than a column holds")))
}

/// The same for an optional number.
pub(super) fn optional_int(number: Option<u64>) -> Result<Option<i64>, SqliteFailure> {
    number.map(int).transpose()
}

/// The maximum number of rows in the form of SQLite.
pub(super) fn most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A count or a time.
pub(super) fn uint(row: &Row<'_>, column: usize) -> Result<u64, SqliteFailure> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| SqliteFailure::Broken(format!("a stored count is negative: {number}")))
}

/// The same for a nullable column.
pub(super) fn optional_uint(row: &Row<'_>, column: usize) -> Result<Option<u64>, SqliteFailure> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        _ => uint(row, column).map(Some),
    }
}

/// Text or bytes, without a copy.
pub(super) fn bytes<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r [u8], SqliteFailure> {
    row.get_ref(column)?.as_bytes().map_err(|error| SqliteFailure::Broken(error.to_string()))
}

/// Text, without a copy.
pub(super) fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r str, SqliteFailure> {
    row.get_ref(column)?.as_str().map_err(|error| SqliteFailure::Broken(error.to_string()))
}

/// The same for a nullable column.
pub(super) fn optional_text<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r str>, SqliteFailure> {
    row.get_ref(column)?.as_str_or_null().map_err(|error| SqliteFailure::Broken(error.to_string()))
}
