//! The only way to a statement: one of `sql.rs`, with a scope that fits it.
//!
//! A statement about what callers have takes the tenant as `?1` and the user as `?2` from the scope itself; the
//! caller gives the rest. So there is no such statement without a scope, and no text that was put together.

use amalgam_core::{
    Admin, Operator, Rights, Scope,
    store::{BankOf, Within},
};
use rusqlite::{CachedStatement, Connection, Row, ToSql, types::ValueRef};

use super::{
    failure::Failure,
    sql::{OperatorSql, TenantSql, UserSql},
};
use crate::{bank, rows};

/// What is bound behind the scope.
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

    /// A statement about one user's things; `params` begin at `?3`.
    pub(super) fn user(self, scope: &Scope, sql: UserSql, params: Params<'_>) -> Result<Bound<'c>, Failure> {
        self.bind(sql.text(), &[&scope.tenant_id(), &scope.user()], params)
    }

    /// A statement about a whole tenant; `params` begin at `?2`.
    pub(super) fn tenant(self, tenant: Tenant, sql: TenantSql, params: Params<'_>) -> Result<Bound<'c>, Failure> {
        self.bind(sql.text(), &[&tenant.0], params)
    }

    /// A statement of the installation itself; `params` begin at `?1`.
    pub(super) fn operator(self, _: Operator, sql: OperatorSql, params: Params<'_>) -> Result<Bound<'c>, Failure> {
        self.bind(sql.text(), &[], params)
    }

    fn bind(self, text: &'static str, scope: Params<'_>, params: Params<'_>) -> Result<Bound<'c>, Failure> {
        let mut statement = self.connection.prepare_cached(text)?;
        for (index, param) in scope.iter().chain(params).enumerate() {
            statement.raw_bind_parameter(index + 1, param)?;
        }
        Ok(Bound { statement })
    }

    /// Begins a transaction that reads.
    pub(super) fn begin_to_read(self) -> Result<(), Failure> {
        self.connection.prepare_cached("BEGIN")?.execute([])?;
        Ok(())
    }

    /// Begins a transaction that writes.
    pub(super) fn begin(self) -> Result<(), Failure> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(())
    }

    /// Ends it.
    pub(super) fn commit(self) -> Result<(), Failure> {
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

/// A tenant whose things may be seen as a whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tenant(i64);

impl Tenant {
    /// The installation, whose tools all tenants may use.
    pub(super) const COMMON: Self = Self(bank::COMMON);

    /// The administrator's own.
    pub(super) fn of(admin: Admin<'_>) -> Self {
        Self(admin.tenant_id())
    }

    /// The caller's, for what all of its users share.
    pub(super) fn of_caller(scope: &Scope) -> Self {
        Self(scope.tenant_id())
    }

    /// Whose bank it is.
    pub(super) fn of_bank(of: BankOf<'_>) -> Self {
        match of {
            BankOf::Tenant(admin) => Self::of(admin),
            BankOf::Common(_) => Self::COMMON,
        }
    }

    /// The tenant that an administrator or the operator deals with.
    pub(super) fn within(within: Within<'_>) -> Self {
        Self(within.tenant_id())
    }

    /// The owner of a row that the installation itself looks at.
    pub(super) fn of_row(_: Operator, tenant_id: i64) -> Self {
        Self(tenant_id)
    }
}

/// A statement with everything that it needs.
pub(super) struct Bound<'c> {
    statement: CachedStatement<'c>,
}

impl Bound<'_> {
    /// Runs it; how many rows it changed.
    pub(super) fn run(mut self) -> Result<u64, Failure> {
        Ok(self.statement.raw_execute()? as u64)
    }

    /// The first row, if there is one.
    pub(super) fn first<T>(
        mut self,
        mut read: impl FnMut(&Row<'_>) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let mut rows = self.statement.raw_query();
        rows.next()?.map(&mut read).transpose()
    }

    /// Whether there is a row.
    pub(super) fn exists(self) -> Result<bool, Failure> {
        Ok(self.first(|_| Ok(()))?.is_some())
    }

    /// All rows.
    pub(super) fn all<T>(self, mut read: impl FnMut(&Row<'_>) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
        let mut all = Vec::new();
        self.until(|row| {
            all.push(read(row)?);
            Ok(true)
        })?;
        Ok(all)
    }

    /// Rows for as long as `read` wants more.
    pub(super) fn until(mut self, mut read: impl FnMut(&Row<'_>) -> Result<bool, Failure>) -> Result<(), Failure> {
        let mut rows = self.statement.raw_query();
        while let Some(row) = rows.next()? {
            if !read(row)? {
                break;
            }
        }
        Ok(())
    }
}

/// A count or a time, as SQLite holds it.
pub(super) fn int(number: u64) -> Result<i64, Failure> {
    i64::try_from(number).map_err(|_| Failure::Broken(format!("{number} is more than a column holds")))
}

/// The same, where there may be none.
pub(super) fn optional_int(number: Option<u64>) -> Result<Option<i64>, Failure> {
    number.map(int).transpose()
}

/// How many rows are wanted at most.
pub(super) fn most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A count or a time.
pub(super) fn uint(row: &Row<'_>, column: usize) -> Result<u64, Failure> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| Failure::Broken(format!("a stored count is negative: {number}")))
}

/// The same, where there may be none.
pub(super) fn optional_uint(row: &Row<'_>, column: usize) -> Result<Option<u64>, Failure> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        _ => uint(row, column).map(Some),
    }
}

/// Text or bytes, without a copy.
pub(super) fn bytes<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r [u8], Failure> {
    row.get_ref(column)?.as_bytes().map_err(|error| Failure::Broken(error.to_string()))
}

/// Text, without a copy.
pub(super) fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r str, Failure> {
    row.get_ref(column)?.as_str().map_err(|error| Failure::Broken(error.to_string()))
}

/// The same, where there may be none.
pub(super) fn optional_text<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r str>, Failure> {
    row.get_ref(column)?.as_str_or_null().map_err(|error| Failure::Broken(error.to_string()))
}

/// The owner of a row, with the least rights, for work that goes on without a caller.
#[expect(clippy::disallowed_methods, reason = "whose a row is was authenticated when it was written")]
pub(super) fn owner_of(tenant_id: i64, user: String, state: Option<String>) -> Result<Scope, Failure> {
    let state = state.as_deref().map(rows::tenant_state).transpose()?.unwrap_or_default();
    Ok(Scope::authenticated(tenant_id, user, state, Rights::USE))
}
