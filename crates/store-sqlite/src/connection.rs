//! A connection as the shared code uses it: every statement runs at once, on the thread that owns the connection.

use amalgam_core::{
    Scope, StoreError,
    store::{Course, CoursePage, NewUserMessage, Ticket},
};
use amalgam_protocol::{Json, Writer};
use amalgam_store::{
    EngineQueries, Question, RowReader, SqlConnection, SqlRow, SqlStatements, SqlValue, TenantKey,
    session_queue::{JoinedEntry, NewEntry},
    sql::Sql,
};
use rusqlite::{
    Row,
    types::{ToSql, ToSqlOutput, Value, ValueRef},
};

use super::{courses, failure::SqliteFailure, job::JobConnection, knowledge, session_queue, statements::STATEMENTS};

impl SqlConnection for JobConnection<'_> {
    type Failure = SqliteFailure;

    fn sql(&self) -> &'static SqlStatements {
        &STATEMENTS
    }

    async fn rows<'a>(
        &'a self,
        sql: Sql,
        values: &'a [SqlValue<'a>],
        many: Option<&'a [Vec<SqlValue<'a>>]>,
        read: &'a mut RowReader<'a>,
    ) -> Result<(), SqliteFailure> {
        self.with(|transaction| {
            for_each(many, |behind| {
                transaction.database.bind_values(sql, values, behind)?.each(|row| Ok(read(&SqliteRow(row))?))
            })
        })
    }

    async fn execute<'a>(
        &'a self,
        sql: Sql,
        values: &'a [SqlValue<'a>],
        many: Option<&'a [Vec<SqlValue<'a>>]>,
    ) -> Result<u64, SqliteFailure> {
        self.with(|transaction| {
            let mut changed = 0;
            for_each(many, |behind| {
                changed += transaction.database.bind_values(sql, values, behind)?.run()?;
                Ok(())
            })?;
            Ok(changed)
        })
    }

    // Writing transactions run one at a time.
    async fn lock(&self, _: String) -> Result<(), SqliteFailure> {
        Ok(())
    }

    async fn notify(&self, topic: String) -> Result<(), SqliteFailure> {
        self.with(|transaction| {
            transaction.notify(topic);
            Ok(())
        })
    }

    fn notify_here(&self, topic: String) {
        self.with(|transaction| transaction.notify(topic));
    }

    // A group that failed was rolled back.
    fn is_repeated(&self) -> bool {
        false
    }

    fn contended(&self, reason: &'static str) -> SqliteFailure {
        SqliteFailure::QueueError(reason)
    }
}

impl EngineQueries for JobConnection<'_> {
    async fn join_queue<'a>(
        &'a self,
        scope: &'a Scope,
        entry: &'a NewEntry,
        message: Option<&'a NewUserMessage>,
    ) -> Result<JoinedEntry, SqliteFailure> {
        self.with(|transaction| session_queue::join(transaction.database, scope, entry, message))
    }

    async fn append_user_message<'a>(
        &'a self,
        scope: &'a Scope,
        ticket: Ticket,
        message: &'a NewUserMessage,
    ) -> Result<bool, SqliteFailure> {
        self.with(|transaction| session_queue::append_user_message(transaction.database, scope, ticket, message))
    }

    async fn put_courses<'a>(
        &'a self,
        tenant: TenantKey,
        courses: &'a [Course],
        now_ms: u64,
    ) -> Result<(), SqliteFailure> {
        self.with(|transaction| courses::put(transaction.database, tenant, courses, now_ms))
    }

    async fn find_courses<'a>(
        &'a self,
        tenant: TenantKey,
        words: Option<&'a [String]>,
        offset: u64,
        limit: usize,
    ) -> Result<CoursePage, SqliteFailure> {
        self.with(|transaction| courses::find(transaction.database, tenant, words, offset, limit))
    }

    async fn chunks_with_words<'a>(
        &'a self,
        tenant: TenantKey,
        questions: &'a [Question],
    ) -> Result<Vec<Vec<i64>>, SqliteFailure> {
        self.with(|transaction| knowledge::chunks_with_words(transaction.database, tenant, questions))
    }
}

/// Runs a statement once, or for each of several rows of values.
fn for_each<'a>(
    many: Option<&'a [Vec<SqlValue<'a>>]>,
    mut run: impl FnMut(&'a [SqlValue<'a>]) -> Result<(), SqliteFailure>,
) -> Result<(), SqliteFailure> {
    match many {
        None => run(&[]),
        Some(rows) => rows.iter().try_for_each(|row| run(row)),
    }
}

/// A value in the form of SQLite.
pub(super) struct SqliteValue<'a>(pub(super) &'a SqlValue<'a>);

impl ToSql for SqliteValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            SqlValue::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            SqlValue::Bool(value) => ToSqlOutput::Owned(Value::Integer((*value).into())),
            SqlValue::Int(value) => ToSqlOutput::Owned(Value::Integer(*value)),
            SqlValue::Text(value) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
            SqlValue::Bytes(value) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
            // Arrays are JSON texts, which statements read with `json_each`.
            SqlValue::Ints(values) => {
                let values: Vec<String> = values.iter().map(i64::to_string).collect();
                ToSqlOutput::Owned(Value::Text(["[", &values.join(","), "]"].concat()))
            }
            SqlValue::Texts(values) => {
                let mut writer = Writer::default();
                writer.array(|writer| values.iter().for_each(|value| writer.string(value)));
                ToSqlOutput::Owned(Value::Text(Json::from_writer(writer).raw().text().to_owned()))
            }
        })
    }
}

/// A row as the shared code reads it.
pub(super) struct SqliteRow<'r>(pub(super) &'r Row<'r>);

impl SqlRow for SqliteRow<'_> {
    fn int(&self, column: usize) -> Result<Option<i64>, StoreError> {
        self.0.get_ref(column).map_err(broken)?.as_i64_or_null().map_err(broken)
    }

    fn boolean(&self, column: usize) -> Result<Option<bool>, StoreError> {
        Ok(SqlRow::int(self, column)?.map(|value| value != 0))
    }

    fn text(&self, column: usize) -> Result<Option<&str>, StoreError> {
        self.0.get_ref(column).map_err(broken)?.as_str_or_null().map_err(broken)
    }

    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, StoreError> {
        self.0.get_ref(column).map_err(broken)?.as_bytes_or_null().map_err(broken)
    }
}

fn broken(error: impl std::fmt::Display) -> StoreError {
    StoreError::Broken(error.to_string())
}
