//! A connection as the shared code of the store uses it, and the engine that runs its work.

use amalgam_core::{
    BoxFuture, Scope,
    store::{Course, CoursePage, NewUserMessage, Stored, Ticket},
};
use amalgam_store::{
    EngineQueries, IndexSyntax, Question, Repeat, RowReader, SqlConnection, SqlEngine, SqlStatements, SqlValue,
    TenantKey, Work,
    session_queue::{JoinedEntry, NewEntry},
    sql::Sql,
    statements,
};

use super::{
    Postgres,
    connection::{Connection, Param, PostgresFailure},
    courses, knowledge,
    pool::Lease,
    session_queue,
    statements::STATEMENTS,
    values::{PostgresColumn, PostgresRow, PostgresValue},
};

statements! {
    OperatorSql LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    OperatorSql NOTIFY = "SELECT pg_notify('amalgam_changed', changed.id) FROM unnest($1::text[]) AS changed (id)";
}

impl SqlEngine for Postgres {
    type Failure = PostgresFailure;
    type Connection<'c> = Connection;
    const INDEX_SYNTAX: IndexSyntax = IndexSyntax::TsQuery;
    const CHANGES_IN_ORDER: bool = false;

    fn read<'a, A, T>(&'a self, arguments: A, work: Work<Self, A, T>) -> Stored<'a, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.change(Repeat::Safe, arguments, work)
    }

    fn change<'a, A, T>(&'a self, repeat: Repeat, arguments: A, work: Work<Self, A, T>) -> Stored<'a, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        Box::pin(async move {
            let arguments = &arguments;
            let run = move |connection: Lease| async move { work(&connection, arguments).await };
            match repeat {
                Repeat::Safe | Repeat::Reservation => self.pool.repeatably(run).await,
                Repeat::Never => self.pool.once(run).await,
            }
        })
    }

    fn transaction<'a, A, T>(&'a self, repeat: Repeat, arguments: A, work: Work<Self, A, T>) -> Stored<'a, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        Box::pin(async move {
            let arguments = &arguments;
            let run = move |mut connection: Lease| async move {
                let done = connection.in_transaction(|connection| work(connection, arguments)).await;
                let done = connection.end(done).await?;
                Ok((done, connection.take_topics()))
            };
            let (done, topics) = match repeat {
                Repeat::Safe | Repeat::Reservation => self.pool.repeatably(run).await?,
                Repeat::Never => self.pool.once(run).await?,
            };
            self.notifications.notify(topics.iter().map(String::as_str));
            Ok(done)
        })
    }

    fn changed(&self, topic: &str) -> BoxFuture<'static, ()> {
        self.notifications.wait(topic)
    }

    fn ping(&self) -> Stored<'_, ()> {
        Box::pin(self.pool.ping())
    }
}

impl SqlConnection for Connection {
    type Failure = PostgresFailure;

    fn sql(&self) -> &'static SqlStatements {
        &STATEMENTS
    }

    async fn rows<'a>(
        &'a self,
        sql: Sql,
        values: &'a [SqlValue<'a>],
        many: Option<&'a [Vec<SqlValue<'a>>]>,
        read: &'a mut RowReader<'a>,
    ) -> Result<(), PostgresFailure> {
        let Some(bound) = Bound::new(values, many) else { return Ok(()) };
        for row in Connection::rows(self, sql, &bound.params()).await? {
            read(&PostgresRow(&row))?;
        }
        Ok(())
    }

    async fn execute<'a>(
        &'a self,
        sql: Sql,
        values: &'a [SqlValue<'a>],
        many: Option<&'a [Vec<SqlValue<'a>>]>,
    ) -> Result<u64, PostgresFailure> {
        match Bound::new(values, many) {
            Some(bound) => Connection::execute(self, sql, &bound.params()).await,
            None => Ok(0),
        }
    }

    async fn lock(&self, name: String) -> Result<(), PostgresFailure> {
        self.row(LOCK, &[&name]).await.map(drop)
    }

    async fn notify(&self, topic: String) -> Result<(), PostgresFailure> {
        Connection::rows(self, NOTIFY, &[&[topic.as_str()].as_slice()]).await?;
        self.add_topic(topic);
        Ok(())
    }

    fn notify_here(&self, topic: String) {
        self.add_topic(topic);
    }

    fn is_repeated(&self) -> bool {
        Connection::is_repeated(self)
    }

    fn contended(&self, reason: &'static str) -> PostgresFailure {
        PostgresFailure::contended(reason)
    }
}

impl EngineQueries for Connection {
    async fn join_queue<'a>(
        &'a self,
        scope: &'a Scope,
        entry: &'a NewEntry,
        message: Option<&'a NewUserMessage>,
    ) -> Result<JoinedEntry, PostgresFailure> {
        session_queue::join(self, scope, entry, message).await
    }

    async fn append_user_message<'a>(
        &'a self,
        scope: &'a Scope,
        ticket: Ticket,
        message: &'a NewUserMessage,
    ) -> Result<bool, PostgresFailure> {
        session_queue::append_user_message(self, scope, ticket, message).await
    }

    async fn put_courses<'a>(
        &'a self,
        tenant: TenantKey,
        courses: &'a [Course],
        now_ms: u64,
    ) -> Result<(), PostgresFailure> {
        courses::put(self, tenant, courses, now_ms).await
    }

    async fn find_courses<'a>(
        &'a self,
        tenant: TenantKey,
        words: Option<&'a [String]>,
        offset: u64,
        limit: usize,
    ) -> Result<CoursePage, PostgresFailure> {
        courses::find(self, tenant, words, offset, limit).await
    }

    async fn chunks_with_words<'a>(
        &'a self,
        tenant: TenantKey,
        questions: &'a [Question],
    ) -> Result<Vec<Vec<i64>>, PostgresFailure> {
        knowledge::chunks_with_words(self, tenant, questions).await
    }
}

/// The parameters of a statement: values, then columns of several rows.
struct Bound<'a> {
    values: Vec<PostgresValue<'a>>,
    columns: Vec<PostgresColumn<'a>>,
}

impl<'a> Bound<'a> {
    /// Nothing for no rows: the statement need not run.
    fn new(values: &'a [SqlValue<'a>], many: Option<&'a [Vec<SqlValue<'a>>]>) -> Option<Self> {
        let columns = match many {
            None => Vec::new(),
            Some(rows) => (0..rows.first()?.len()).map(|column| PostgresColumn { rows, column }).collect(),
        };
        Some(Self { values: values.iter().map(PostgresValue).collect(), columns })
    }

    fn params(&self) -> Vec<Param<'_>> {
        let values = self.values.iter().map(|value| value as Param<'_>);
        values.chain(self.columns.iter().map(|column| column as Param<'_>)).collect()
    }
}
