//! One connection: opening it, its prepared statements, and the meaning of its errors.
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use amalgam_core::{BoxFuture, StoreError};
use amalgam_store::sql::Sql;
use tokio::{task::JoinSet, time};
use tokio_postgres::{
    Client, Error, Row, Socket, Statement,
    error::SqlState,
    types::{ToSql, Type},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{address::Address, tls::Session};

/// A value for a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// Opens connections; cheap to clone.
#[derive(Clone)]
pub(super) struct Connector {
    address: Arc<Address>,
    tls: MakeRustlsConnect,
    wait: Duration,
    statement_ms: String,
    idle_ms: String,
}

/// The number of attempts to set up a session that the server ends.
const TRIES: usize = 3;

/// The settings of every session. Every statement must use an index: a plan that was made while a table was small must
/// not read all of a large table. The locks rely on READ COMMITTED.
const SETTINGS: &str = "
    SET default_transaction_isolation = 'read committed';
    SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET jit = off;
    SET work_mem = '16MB';
    SET client_min_messages = warning;
    SELECT set_config('default_toast_compression', 'lz4', false) FROM pg_settings
        WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals);";

const DEADLINES: &str = "SELECT set_config('statement_timeout', $1, false),
    set_config('idle_in_transaction_session_timeout', $2, false)";

impl Connector {
    /// `wait` limits the time to connect, `statement` the time of the server for one statement.
    pub(super) fn new(address: Arc<Address>, tls: MakeRustlsConnect, wait: Duration, statement: Duration) -> Self {
        let (statement_ms, idle_ms) = (statement.as_millis().to_string(), (2 * statement.as_millis()).to_string());
        Self { address, tls, wait, statement_ms, idle_ms }
    }

    /// Opens a connection within the time limit. The server may end the session while it is set up.
    pub(super) async fn connect(&self) -> Result<Connection, StoreError> {
        self.within(async {
            let mut tries = 0;
            loop {
                tries += 1;
                match self.set_up().await.map_err(PostgresFailure::from) {
                    Err(failure) if tries < TRIES && failure.kind == FailureKind::Disconnected => {}
                    done => return done,
                }
            }
        })
        .await
        .map_err(|failure| self.unavailable(failure))
    }

    async fn set_up(&self) -> Result<Connection, Error> {
        let (client, driver) = self.address.config.connect(self.tls.clone()).await?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            // Requests that wait for an answer get the same error.
            let _ = driver.await;
        });
        let deadlines: [(Param<'_>, Type); 2] = [(&self.statement_ms, Type::TEXT), (&self.idle_ms, Type::TEXT)];
        tokio::try_join!(client.batch_execute(SETTINGS), client.execute_typed(DEADLINES, &deadlines))?;
        Ok(Connection {
            client,
            prepared: Mutex::default(),
            in_transaction: false,
            repeated: false,
            topics: Mutex::default(),
            cut: AtomicBool::new(false),
            _task: task,
        })
    }

    /// A connection that the caller drives, without these settings. The failure does not contain the address.
    pub(super) async fn open(&self) -> Result<(Client, tokio_postgres::Connection<Socket, Session>), PostgresFailure> {
        self.within(async { Ok(self.address.config.connect(self.tls.clone()).await?) }).await
    }

    /// The failure to connect, with the address.
    pub(super) fn unavailable(&self, failure: PostgresFailure) -> StoreError {
        StoreError::Unavailable(format!("{}: {}", self.address, failure.text))
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, PostgresFailure>>) -> Result<T, PostgresFailure> {
        match time::timeout(self.wait, work).await {
            Ok(done) => done,
            Err(_) => Err(PostgresFailure {
                kind: FailureKind::Disconnected,
                text: format!("does not answer within {:?}", self.wait),
            }),
        }
    }
}

/// A connection, used by one caller at a time.
pub struct Connection {
    client: Client,
    prepared: Mutex<HashMap<u64, Statement>>,
    in_transaction: bool,
    /// Whether the caller's work ran before on another connection, which broke.
    repeated: bool,
    /// The topics to notify after the commit.
    topics: Mutex<Vec<String>>,
    /// Whether the server has ended the session, or is about to.
    cut: AtomicBool,
    /// The task that transfers bytes; ends with the connection.
    _task: JoinSet<()>,
}

impl Connection {
    /// The driver's client.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The prepared statement of this connection; prepared at first use.
    pub(super) async fn prepared(&self, sql: impl Into<Sql>) -> Result<Statement, PostgresFailure> {
        let sql = sql.into();
        if let Some(statement) = self.known(sql) {
            return Ok(statement);
        }
        let statement = self.noted(self.client.prepare(sql.text).await)?;
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).insert(sql.key, statement.clone());
        Ok(statement)
    }

    /// The statement, if it is prepared.
    pub(super) fn known(&self, sql: Sql) -> Option<Statement> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(&sql.key).cloned()
    }

    /// Runs a statement and returns its rows.
    pub(super) async fn rows(&self, sql: impl Into<Sql>, params: &[Param<'_>]) -> Result<Vec<Row>, PostgresFailure> {
        let statement = self.prepared(sql).await?;
        self.noted(self.client.query(&statement, params).await)
    }

    /// Runs a statement and returns its first row; `None` if there is none.
    pub(super) async fn row(&self, sql: impl Into<Sql>, params: &[Param<'_>]) -> Result<Option<Row>, PostgresFailure> {
        let statement = self.prepared(sql).await?;
        self.noted(self.client.query_opt(&statement, params).await)
    }

    /// Runs a statement and returns the number of changed rows.
    pub(super) async fn execute(&self, sql: impl Into<Sql>, params: &[Param<'_>]) -> Result<u64, PostgresFailure> {
        let statement = self.prepared(sql).await?;
        self.noted(self.client.execute(&statement, params).await)
    }
}

impl Connection {
    /// Begins a transaction. Until [`Connection::end`] the connection is not used for other work. If it is dropped
    /// before, it is closed, and the transaction is rolled back.
    pub(super) async fn begin(&mut self) -> Result<(), PostgresFailure> {
        self.in_transaction = true;
        self.noted(self.client.batch_execute("BEGIN").await)
    }

    /// Runs work in a transaction. `BEGIN` is sent together with the first statement.
    pub(super) async fn in_transaction<'c, T>(
        &'c mut self,
        work: impl FnOnce(&'c Self) -> BoxFuture<'c, Result<T, PostgresFailure>>,
    ) -> Result<T, PostgresFailure> {
        self.in_transaction = true;
        let connection = &*self;
        let begin = async { connection.noted(connection.client.batch_execute("BEGIN").await) };
        let (begun, done) = tokio::join!(begin, work(connection));
        begun.and(done)
    }

    /// Ends the transaction: commits it after success, and rolls it back after a failure.
    pub(super) async fn end<T>(&mut self, done: Result<T, PostgresFailure>) -> Result<T, PostgresFailure> {
        match &done {
            Ok(_) => self.noted(self.client.batch_execute("COMMIT").await)?,
            Err(failure) if failure.kind == FailureKind::Disconnected => return done,
            Err(_) => self.noted(self.client.batch_execute("ROLLBACK").await)?,
        }
        self.in_transaction = false;
        done
    }

    /// Prepares the connection for its next caller; `repeated` says that the work may have run before.
    pub(super) fn start(&mut self, repeated: bool) {
        self.repeated = repeated;
        self.take_topics();
    }

    /// Whether the caller's work ran before on another connection, which broke.
    pub(super) fn is_repeated(&self) -> bool {
        self.repeated
    }

    /// Adds a topic to notify tasks of this process about, once the transaction is committed.
    pub(super) fn add_topic(&self, topic: String) {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).push(topic);
    }

    /// Removes and returns the topics that were added.
    pub(super) fn take_topics(&self) -> Vec<String> {
        std::mem::take(&mut *self.topics.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the next caller can use the connection.
    pub(super) fn is_reusable(&self) -> bool {
        !self.in_transaction && !self.is_closed() && !self.cut.load(Ordering::Relaxed)
    }

    fn noted<T>(&self, done: Result<T, Error>) -> Result<T, PostgresFailure> {
        done.map_err(|error| {
            let failure = PostgresFailure::from(error);
            if failure.kind == FailureKind::Disconnected {
                self.cut.store(true, Ordering::Relaxed);
            }
            failure
        })
    }
}

/// The failure of work on a connection.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct PostgresFailure {
    kind: FailureKind,
    text: String,
}

/// What a caller can do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The connection is lost, and the last commit may or may not have happened.
    Disconnected,
    /// The server did nothing because of a concurrent transaction: the same work may succeed now.
    Contended,
    /// The server did nothing, and cannot at present.
    Unavailable,
    /// The row exists already.
    Duplicate,
    /// A bug: the statement or a value is wrong.
    Broken,
}

impl PostgresFailure {
    pub(super) fn kind(&self) -> FailureKind {
        self.kind
    }

    /// No answer arrived in time, so the connection cannot be used any more.
    pub(super) fn timed_out() -> Self {
        Self { kind: FailureKind::Disconnected, text: "the database did not answer in time".to_owned() }
    }

    /// Concurrent requests conflicted with every attempt.
    pub(super) fn contended(text: impl Into<String>) -> Self {
        Self { kind: FailureKind::Contended, text: text.into() }
    }

    /// An invalid value, which this program cannot have written.
    pub(super) fn broken(text: impl Into<String>) -> Self {
        Self { kind: FailureKind::Broken, text: text.into() }
    }
}

impl From<PostgresFailure> for StoreError {
    fn from(failure: PostgresFailure) -> Self {
        match failure.kind {
            FailureKind::Disconnected | FailureKind::Contended | FailureKind::Unavailable => {
                Self::Unavailable(failure.text)
            }
            FailureKind::Duplicate | FailureKind::Broken => Self::Broken(failure.text),
        }
    }
}

/// Errors of the shared readers of columns.
impl From<StoreError> for PostgresFailure {
    fn from(error: StoreError) -> Self {
        Self::broken(error.to_string())
    }
}

impl From<Error> for PostgresFailure {
    fn from(error: Error) -> Self {
        let Some(reported) = error.as_db_error() else {
            // Errors of the driver about values are bugs of this program; all other errors are the connection's.
            let text = full_text(&error);
            let ours = ["parameter", "column", "rows", "encoding"].iter().any(|word| error.to_string().contains(word));
            return Self { kind: if ours { FailureKind::Broken } else { FailureKind::Disconnected }, text };
        };
        // Only the message: details contain stored values.
        let text = format!("{} ({})", reported.message(), reported.code().code());
        Self { kind: kind_of(reported.code()), text }
    }
}

/// The messages of an error and of its causes, because each prints only its own level.
fn full_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn kind_of(code: &SqlState) -> FailureKind {
    match code.code() {
        // Shutdown, crash, "starting up", a terminated session; statements that were prepared for other tables, or are
        // missing: a new session solves it.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "0A000" | "26000" => FailureKind::Disconnected,
        // Serialisation, deadlock.
        "40001" | "40P01" => FailureKind::Contended,
        "23505" => FailureKind::Duplicate,
        // A statement time-out, a lock time-out, a server that accepts no writes.
        "57014" | "55P03" | "25006" => FailureKind::Unavailable,
        code => match code.get(..2) {
            Some("08") => FailureKind::Disconnected,
            // Resources (disk, memory, connections), the system itself, a password that is no longer valid.
            Some("53" | "58" | "28") => FailureKind::Unavailable,
            _ => FailureKind::Broken,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_done_about_an_error_is_told_by_its_code() {
        for (codes, kind) in [
            (&["57P01", "57P03", "08006", "26000"][..], FailureKind::Disconnected),
            (&["40001", "40P01"], FailureKind::Contended),
            (&["53100", "53300", "57014", "25006", "28P01", "58030"], FailureKind::Unavailable),
            (&["23505"], FailureKind::Duplicate),
            (&["42P01", "22021", "XX000", "?"], FailureKind::Broken),
        ] {
            for code in codes {
                assert_eq!(kind_of(&SqlState::from_code(code)), kind, "{code}");
            }
        }
    }
}
