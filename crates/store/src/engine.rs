//! The interface of a storage engine for the shared code: connections that run statements, and a way to run work on
//! one.

use amalgam_core::{
    Admin, BoxFuture, Operator, Scope, StoreError,
    store::{
        BankOf, Course, CoursePage, NewUserMessage, ProcessStore, ResponseStore, Stored, Ticket, TurnStore, Within,
    },
};

use crate::{
    bank,
    knowledge::{IndexSyntax, Question},
    session_queue::{JoinedEntry, NewEntry},
    sql::{OperatorSql, Sql, TenantSql, UserSql},
    statements::SqlStatements,
    tenancy::TENANT,
    values::{SqlRow, SqlValue, values},
};

/// A database that speaks SQL. The engine implements the writes and reads of turns itself, in its fastest way; the rest
/// of the store is [`SqlStore`](crate::SqlStore), with the statements of the engine.
pub trait SqlEngine: TurnStore + ResponseStore + ProcessStore + Sized + 'static {
    /// Why a statement failed.
    type Failure: From<StoreError> + Send + 'static;
    /// The connection that work runs its statements on.
    type Connection<'c>: EngineQueries<Failure = Self::Failure>;
    /// The query syntax of its full-text index.
    const INDEX_SYNTAX: IndexSyntax;
    /// Whether changes happen in the order of the calls. If not, a change whose call was cancelled may still happen
    /// later.
    const CHANGES_IN_ORDER: bool;

    /// Work that changes nothing.
    fn read<'a, A, T>(&'a self, arguments: A, work: Work<Self, A, T>) -> Stored<'a, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static;

    /// Work with one statement that changes something. It needs no transaction.
    fn change<'a, A, T>(&'a self, repeat: Repeat, arguments: A, work: Work<Self, A, T>) -> Stored<'a, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static;

    /// Work in one transaction.
    fn transaction<'a, A, T>(&'a self, repeat: Repeat, arguments: A, work: Work<Self, A, T>) -> Stored<'a, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static;

    /// See `Store::changed`.
    fn changed(&self, topic: &str) -> BoxFuture<'static, ()>;

    /// See `Store::ping`.
    fn ping(&self) -> Stored<'_, ()>;
}

/// Work on a connection. Its arguments are a separate value, because the work may run on another thread, and more than
/// once.
pub type Work<E, A, T> =
    for<'c> fn(&'c <E as SqlEngine>::Connection<'c>, &'c A) -> BoxFuture<'c, Result<T, <E as SqlEngine>::Failure>>;

/// Whether work may run again if the connection broke and its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// A second run would change something else or return another result.
    Never,
    /// A second run has the same outcome as the first one.
    Safe,
    /// As `Safe`, for a reservation: its caller gets no answer before a later change was flushed, and after a power
    /// failure the turn that it was made for does not run. So the reservation itself need not be flushed.
    Reservation,
}

/// Reads a row.
pub type RowReader<'a> = dyn FnMut(&dyn SqlRow) -> Result<(), StoreError> + Send + 'a;

/// A connection, or its open transaction.
pub trait SqlConnection: Send + Sync + Sized {
    /// Why a statement failed.
    type Failure: From<StoreError> + Send;

    /// The statements whose form differs between engines.
    fn sql(&self) -> &'static SqlStatements;

    /// Runs a statement and reads its rows. With `many`, the statement runs for each of these rows of values, appended
    /// to `values`; an engine may pass them all at once, as one array for each column.
    fn rows<'a>(
        &'a self,
        sql: Sql,
        values: &'a [SqlValue<'a>],
        many: Option<&'a [Vec<SqlValue<'a>>]>,
        read: &'a mut RowReader<'a>,
    ) -> impl Future<Output = Result<(), Self::Failure>> + Send;

    /// Runs a statement that returns no rows. Returns the number of changed rows.
    fn execute<'a>(
        &'a self,
        sql: Sql,
        values: &'a [SqlValue<'a>],
        many: Option<&'a [Vec<SqlValue<'a>>]>,
    ) -> impl Future<Output = Result<u64, Self::Failure>> + Send;

    /// Makes other transactions that lock this name wait until this one ends.
    fn lock(&self, name: String) -> impl Future<Output = Result<(), Self::Failure>> + Send;

    /// Notifies the tasks of all processes that wait for this topic, once the transaction is committed.
    fn notify(&self, topic: String) -> impl Future<Output = Result<(), Self::Failure>> + Send;

    /// The same, within this process.
    fn notify_here(&self, topic: String);

    /// Whether the work runs again: the first run may have been committed.
    fn is_repeated(&self) -> bool;

    /// The failure of work that did not succeed because of concurrent requests.
    fn contended(&self, reason: &'static str) -> Self::Failure;

    /// A statement about one user's rows; `values` are bound after the tenant and the user.
    fn user<'a>(
        &'a self,
        scope: &'a Scope,
        sql: UserSql,
        values: impl IntoIterator<Item = SqlValue<'a>>,
    ) -> Query<'a, Self> {
        Query::new(self, sql, values![scope.tenant_id(), scope.user()], values)
    }

    /// A statement about a tenant's rows; `values` are bound after the tenant.
    fn tenant<'a>(
        &'a self,
        tenant: TenantKey,
        sql: TenantSql,
        values: impl IntoIterator<Item = SqlValue<'a>>,
    ) -> Query<'a, Self> {
        Query::new(self, sql, values![tenant.0], values)
    }

    /// A statement of the installation.
    fn operator<'a>(
        &'a self,
        _: Operator,
        sql: OperatorSql,
        values: impl IntoIterator<Item = SqlValue<'a>>,
    ) -> Query<'a, Self> {
        Query::new(self, sql, [], values)
    }
}

/// Queries for which engines use different statements, also in number.
pub trait EngineQueries: SqlConnection {
    /// Joins the queue of the active session with a profile, and creates the session if there is none. If the entry is
    /// first, the user's message is appended as by `append_user_message`.
    fn join_queue<'a>(
        &'a self,
        scope: &'a Scope,
        entry: &'a NewEntry,
        message: Option<&'a NewUserMessage>,
    ) -> impl Future<Output = Result<JoinedEntry, Self::Failure>> + Send;

    /// Appends the user's message with its metadata, and records the turn that answers it, if the entry is first in its
    /// queue. Returns true also if this turn has appended it before.
    fn append_user_message<'a>(
        &'a self,
        scope: &'a Scope,
        ticket: Ticket,
        message: &'a NewUserMessage,
    ) -> impl Future<Output = Result<bool, Self::Failure>> + Send;

    /// Adds or replaces courses and their index words.
    fn put_courses<'a>(
        &'a self,
        tenant: TenantKey,
        courses: &'a [Course],
        now_ms: u64,
    ) -> impl Future<Output = Result<(), Self::Failure>> + Send;

    /// A page of the active courses: sorted by id, or those that have one of the words, best first.
    fn find_courses<'a>(
        &'a self,
        tenant: TenantKey,
        words: Option<&'a [String]>,
        offset: u64,
        limit: usize,
    ) -> impl Future<Output = Result<CoursePage, Self::Failure>> + Send;

    /// For each query, the chunks that the full-text index finds.
    fn chunks_with_words<'a>(
        &'a self,
        tenant: TenantKey,
        questions: &'a [Question],
    ) -> impl Future<Output = Result<Vec<Vec<i64>>, Self::Failure>> + Send;
}

/// A statement with its values.
#[must_use]
pub struct Query<'a, C> {
    connection: &'a C,
    sql: Sql,
    values: Vec<SqlValue<'a>>,
    many: Option<Vec<Vec<SqlValue<'a>>>>,
}

impl<'a, C: SqlConnection> Query<'a, C> {
    fn new<const N: usize>(
        connection: &'a C,
        sql: impl Into<Sql>,
        scope: [SqlValue<'a>; N],
        values: impl IntoIterator<Item = SqlValue<'a>>,
    ) -> Self {
        Self { connection, sql: sql.into(), values: scope.into_iter().chain(values).collect(), many: None }
    }

    /// Runs the statement for each of these rows of values.
    pub fn for_each<const N: usize>(self, rows: impl IntoIterator<Item = [SqlValue<'a>; N]>) -> Self {
        Self { many: Some(rows.into_iter().map(Vec::from).collect()), ..self }
    }

    /// All rows.
    pub async fn all<T: Send>(
        self,
        mut read: impl FnMut(&dyn SqlRow) -> Result<T, StoreError> + Send,
    ) -> Result<Vec<T>, C::Failure> {
        let mut all = Vec::new();
        let Self { connection, sql, values, many } = self;
        let mut add = |row: &dyn SqlRow| {
            all.push(read(row)?);
            Ok(())
        };
        connection.rows(sql, &values, many.as_deref(), &mut add).await?;
        Ok(all)
    }

    /// The first row, if there is one.
    pub async fn first<T: Send>(
        self,
        mut read: impl FnMut(&dyn SqlRow) -> Result<T, StoreError> + Send,
    ) -> Result<Option<T>, C::Failure> {
        let mut first = None;
        let Self { connection, sql, values, many } = self;
        let mut keep = |row: &dyn SqlRow| {
            if first.is_none() {
                first = Some(read(row)?);
            }
            Ok(())
        };
        connection.rows(sql, &values, many.as_deref(), &mut keep).await?;
        Ok(first)
    }

    /// Whether there is a row.
    pub async fn exists(self) -> Result<bool, C::Failure> {
        Ok(self.first(|_| Ok(())).await?.is_some())
    }

    /// Runs the statement. Returns the number of changed rows.
    pub async fn run(self) -> Result<u64, C::Failure> {
        let Self { connection, sql, values, many } = self;
        connection.execute(sql, &values, many.as_deref()).await
    }
}

/// A tenant of which all rows may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantKey(i64);

impl TenantKey {
    /// The installation, whose tools all tenants may use.
    pub const COMMON: Self = Self(bank::COMMON);

    /// The administrator's own tenant.
    pub fn of_admin(admin: Admin<'_>) -> Self {
        Self(admin.tenant_id())
    }

    /// The caller's tenant, for data that all of its users share.
    pub fn of_caller(scope: &Scope) -> Self {
        Self(scope.tenant_id())
    }

    /// The owner of a tool bank.
    pub fn of_bank(of: BankOf<'_>) -> Self {
        match of {
            BankOf::Tenant(admin) => Self::of_admin(admin),
            BankOf::Common(_) => Self::COMMON,
        }
    }

    /// The tenant that an administrator or the operator manages.
    pub fn within(within: Within<'_>) -> Self {
        Self(within.tenant_id())
    }

    /// The owner of a row, for work of the installation itself.
    pub fn of_row(_: Operator, tenant_id: i64) -> Self {
        Self(tenant_id)
    }

    /// The tenant's number.
    pub fn number(self) -> i64 {
        self.0
    }
}

/// A tenant whose data is to be changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangedTenant {
    pub(crate) key: TenantKey,
    /// A tenant that the operator names may not exist.
    named: Option<(Operator, i64)>,
}

impl ChangedTenant {
    pub(crate) fn of(within: Within<'_>) -> Self {
        let named = match within {
            Within::Own(_) => None,
            Within::Named(operator, id) => Some((operator, id)),
        };
        Self { key: TenantKey::within(within), named }
    }

    /// Whether the tenant exists.
    pub(crate) async fn exists<C: SqlConnection>(self, connection: &C) -> Result<bool, C::Failure> {
        match self.named {
            None => Ok(true),
            Some((operator, id)) => connection.operator(operator, TENANT, values![id]).exists().await,
        }
    }
}
