//! Opens the connections of a store: all of them, or on a full disk only the one that can still read.
//!
//! A database cannot be opened in the usual way on a full disk, because SQLite creates an index of the write-ahead log
//! beside it. A server that starts then reads through the writer's connection, which has the index in memory, and
//! refuses writes. After the first commit that succeeds the store works as usual (`writer.rs`).
use std::{io, path::Path, sync::atomic::Ordering};

use rusqlite::{Connection, ErrorCode};
use tracing::warn;

use super::{
    FullDisk, SqliteOpenError, SqliteOptions,
    failure::SqliteFailure,
    file, legacy_redo_log, schema,
    writer::{Writer, WriterConnection},
};

/// The connections of a store's threads. A missing connection is opened when it is needed.
pub(super) struct StoreConnections {
    pub(super) writer: WriterConnection,
    pub(super) readers: Vec<Option<Connection>>,
    pub(super) checkpointer: Option<Connection>,
}

/// Opens the connections of a store on the database of `writer`.
pub(super) fn open(writer: &Writer, options: &SqliteOptions) -> Result<StoreConnections, SqliteOpenError> {
    match fully(writer, options) {
        Err(error) if options.full_disk == FullDisk::Read && may_mean_no_room(&error) => {
            let Ok(opened) = to_read(writer, options) else { return Err(error) };
            warn!("the disk has no room: the store can be read, and writes are refused until there is some ({error})");
            Ok(opened)
        }
        opened => opened,
    }
}

fn fully(writer: &Writer, options: &SqliteOptions) -> Result<StoreConnections, SqliteOpenError> {
    let path = &writer.path;
    legacy_redo_log::apply(path)
        .map_err(|source| SqliteOpenError::RedoLog { path: legacy_redo_log::path(path), source })?;
    schema::prepare(path, options.migrations, options.migration_backup)?;
    let database = |source| SqliteOpenError::Database { path: path.clone(), source };
    let checkpointer = file::open_checkpointer(path).map_err(database)?;
    let reader = |_| file::open_reader(path).map(Some);
    let readers = (0..options.readers.max(1)).map(reader).collect::<Result<_, _>>().map_err(database)?;
    let writer = writer.open().map_err(|failure| SqliteOpenError::of(path, failure))?;
    Ok(StoreConnections { writer, readers, checkpointer: Some(checkpointer) })
}

fn to_read(writer: &Writer, options: &SqliteOptions) -> Result<StoreConnections, SqliteOpenError> {
    let path = &writer.path;
    let opened = writer.open_to_read().map_err(|failure| SqliteOpenError::of(path, failure))?;
    schema::require(path, &opened.lock())?;
    writer.read_only.store(true, Ordering::Release);
    let readers = (0..options.readers.max(1)).map(|_| None).collect();
    Ok(StoreConnections { writer: opened, readers, checkpointer: None })
}

impl SqliteOpenError {
    /// Whether the file is damaged, or not a SQLite database.
    pub fn is_corrupt(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let Self::Database { source, .. } = self else { return false };
        matches!(source.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
    }

    /// Why the database at `path` could not be used.
    fn of(path: &Path, failure: SqliteFailure) -> Self {
        let path = path.to_path_buf();
        match failure {
            SqliteFailure::Sqlite(source) => Self::Database { path, source },
            other => Self::File { path, source: io::Error::other(other.to_error()) },
        }
    }
}

/// Whether a full disk, a quota or a limit of the process may be the reason. SQLite has one error code for most errors
/// of a file system; if the reason is another one, the database cannot be read either.
fn may_mean_no_room(error: &SqliteOpenError) -> bool {
    match error {
        SqliteOpenError::File { source, .. } => matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ),
        SqliteOpenError::Database { source, .. } => matches!(
            source.sqlite_error_code(),
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen)
        ),
        // Without the redo log's changes, or with an old schema, the database cannot be read.
        SqliteOpenError::RedoLog { .. } | SqliteOpenError::Schema { .. } | SqliteOpenError::MigrationBackup { .. } => {
            false
        }
    }
}
