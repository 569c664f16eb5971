//! The store on a PostgreSQL server (15 and later), which any number of processes share.
//!
//! A few tasks write for turns, many writes at once (`writer`); everything else borrows one of a few connections
//! (`pool`). The statements of the shared code, and the writes and reads of turns, are in files named for their
//! subjects.

mod address;
mod backup;
mod batch;
mod catalog;
mod chains;
mod connection;
mod copy;
mod courses;
mod execute;
mod job;
mod journal;
mod knowledge;
mod listener;
mod pipeline;
mod pool;
mod processes;
mod prune;
mod responses;
mod schema;
mod session_queue;
mod shared;
#[cfg(test)]
mod sql_tests;
mod statements;
mod tls;
mod turn_list;
mod turns;
mod values;
mod writer;

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use amalgam_core::{StoreError, store::StoreMeter};
use amalgam_store::{
    SqlStore,
    backup::BackupError,
    migrate::{MigrationError, MigrationStatus, Migrations},
    notifications::Notifications,
};
use tokio::task::{JoinSet, spawn_blocking};
use tracing::warn;

pub use self::copy::CopyTarget;
use self::{address::Address, connection::Connector, listener::Listener, pool::Pool, writer::Writers};

/// The settings of a database.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The number of connections for everything but the writes of turns.
    pub connections: usize,
    /// The number of tasks that write for turns; each has a connection of its own.
    pub writers: usize,
    /// The number of writes that may wait; more are refused with `Busy`.
    pub queue: usize,
    /// The approximate size of writes that may wait, in bytes; more are refused with `Busy`.
    pub queue_bytes: usize,
    /// The time that a caller waits for a connection.
    pub wait: Duration,
    /// The time that the server may work on one statement.
    pub statement: Duration,
    /// The time that a call may take once it has its connection.
    pub deadline: Duration,
    /// What to do with migrations that the database lacks.
    pub migrations: Migrations,
    /// Counts commits of turns' writes.
    pub flushes: StoreMeter,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            writers: 2,
            queue: 1024,
            queue_bytes: 64 << 20,
            wait: Duration::from_secs(2),
            statement: Duration::from_secs(5),
            deadline: Duration::from_secs(8),
            migrations: Migrations::Run,
            flushes: StoreMeter::default(),
        }
    }
}

/// Why a database could not be opened. Never contains the password.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// The address cannot be used.
    #[error("the address of the PostgreSQL server cannot be used: {0}")]
    Address(&'static str),
    /// The authorities that certificates are checked against.
    #[error("could not read the certificates of the authorities to trust")]
    Authorities(#[source] io::Error),
    /// The server cannot be reached, or refuses the connection.
    #[error("{}", .0.reason())]
    Database(StoreError),
    /// The server is too old.
    #[error("the PostgreSQL server is version {version}, which is older than 15")]
    TooOld {
        /// As the server reports it.
        version: String,
    },
    /// A migration failed and was rolled back.
    #[error("migration `{name}` failed: {}", reason.reason())]
    Migration {
        /// The migration.
        name: &'static str,
        /// The error.
        reason: StoreError,
    },
    /// A copy into the database is not finished.
    #[error("a copy into the database is not finished: run `amalgam copy` again")]
    UnfinishedCopy,
    /// The schema does not fit.
    #[error(transparent)]
    Schema(MigrationError),
}

/// Why a database could not be dumped or loaded. A failed load is rolled back.
#[derive(Debug, thiserror::Error)]
pub enum PostgresBackupError {
    /// The server cannot be reached or refuses the connection, or the schema does not fit.
    #[error(transparent)]
    Open(#[from] PostgresOpenError),
    /// The file cannot be written or read.
    #[error(transparent)]
    File(#[from] BackupError),
    /// A table of the backup does not have the columns that its schema version has.
    #[error("the table `{name}` of the backup is not that of its schema version")]
    Table {
        /// The table.
        name: String,
    },
    /// The target of a copy is not empty.
    #[error("the database that is copied into is not empty; `amalgam reset everything` empties it")]
    NotEmpty,
    /// The target has an unfinished copy from another source.
    #[error("a copy from {source_name} into this database is not finished; finish it, or make a new database")]
    OtherCopy {
        /// The other source.
        source_name: String,
    },
    /// A column whose values cannot be copied.
    #[error("the column {column} has the type {kind}, which copies do not know")]
    ColumnType {
        /// The table and the column.
        column: String,
        /// Its type.
        kind: String,
    },
    /// The source cannot be read.
    #[error("could not read the source of the copy")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database has another number of rows than the backup.
    #[error("{loaded} rows were loaded into `{table}`, and the backup has {expected}")]
    Rows {
        /// The table.
        table: String,
        /// The number of rows that the server reports.
        loaded: u64,
        /// The number of rows in the backup's manifest.
        expected: u64,
    },
}

/// A store on a PostgreSQL server.
pub struct Postgres {
    pool: Pool,
    writers: Writers,
    notifications: Arc<Notifications>,
    warnings: Vec<String>,
    /// Marks of turns that this process may have taken: `processes.rs`.
    unsettled: Mutex<Vec<i64>>,
    /// The tasks, which end with the store.
    _tasks: JoinSet<()>,
}

impl Postgres {
    /// Connects to `postgres://user:password@host:port/database` and brings its schema up to date.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<SqlStore<Self>, PostgresOpenError> {
        let (address, connector) = connector(url, &options).await?;
        let mut first = MigrationConnection::open(&connector).await?;
        schema::check_version(&first.client).await?;
        if schema::has_unfinished_copy(&first.client).await? {
            return Err(PostgresOpenError::UnfinishedCopy);
        }
        match options.migrations {
            Migrations::Run => schema::migrate(&mut first.client).await?,
            Migrations::Require => schema::require(&first.client).await?,
        }
        let warnings = schema::warnings(&first.client, &address).await?;
        for warning in &warnings {
            warn!("{warning}");
        }

        let notifications = Arc::new(Notifications::counting(options.flushes.clone()));
        let mut tasks = JoinSet::new();
        let writers = Writers::start(&options, &connector, &notifications, &mut tasks);
        let listener =
            Listener::open(connector.clone(), Arc::clone(&notifications)).await.map_err(PostgresOpenError::Database)?;
        tasks.spawn(listener.listen());
        // The limit of callers that wait for a connection is that of waiting writes.
        let pool = Pool::new(connector, options.connections.max(1), options.queue, options.wait, options.deadline);
        Ok(SqlStore::new(Self { pool, writers, notifications, warnings, unsettled: Mutex::default(), _tasks: tasks }))
    }

    /// The state of each migration in the database. Changes nothing.
    pub async fn status(url: &str, options: &PostgresOptions) -> Result<Vec<MigrationStatus>, PostgresOpenError> {
        schema::status(&MigrationConnection::to(url, options).await?.client).await
    }

    /// Reasons why acknowledged writes may be lost or read by others: a server that does not flush, a connection
    /// without encryption. They are also logged.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

async fn connector(url: &str, options: &PostgresOptions) -> Result<(Arc<Address>, Connector), PostgresOpenError> {
    let address = Arc::new(Address::parse(url)?);
    let (trust, roots) = (address.trust, address.roots.clone());
    // Hundreds of files, or one long one: too much work for an async thread.
    let tls = spawn_blocking(move || tls::connector(trust, roots.as_deref())).await;
    let tls = tls.map_err(io::Error::other).flatten().map_err(PostgresOpenError::Authorities)?;
    Ok((Arc::clone(&address), Connector::new(address, tls, options.wait, options.statement)))
}

/// A connection without the time limits of the store, because a migration may take long.
struct MigrationConnection {
    client: tokio_postgres::Client,
    _task: JoinSet<()>,
}

impl MigrationConnection {
    /// A connection to a server that is not too old.
    async fn to(url: &str, options: &PostgresOptions) -> Result<Self, PostgresOpenError> {
        let (_, connector) = connector(url, options).await?;
        let driven = Self::open(&connector).await?;
        schema::check_version(&driven.client).await?;
        Ok(driven)
    }

    async fn open(connector: &Connector) -> Result<Self, PostgresOpenError> {
        let (client, connection) =
            connector.open().await.map_err(|failure| PostgresOpenError::Database(failure.into()))?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { client, _task: task })
    }
}
