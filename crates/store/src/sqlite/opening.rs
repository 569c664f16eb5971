//! Opens the connections of a store: all of them, or on a disk without room the one that can still read.
//!
//! A database cannot be opened in the usual way on a full disk: SQLite makes an index of the log beside it, and what only
//! the redo log has is put into the database. A server that starts then reads through the writer's connection, which keeps
//! both in memory, and refuses writes. With the first commit that succeeds the store is as usual (`writer.rs`).

use std::{io, path::Path, sync::atomic::Ordering};

use rusqlite::{Connection, ErrorCode};
use tracing::warn;

use super::{
    Acknowledge, OpenError, Options,
    failure::Failure,
    file,
    redo::{self, RedoFile},
    schema,
    writer::{Start, Writer},
};

/// What the threads of a store begin with. A connection that is missing is made when it is needed.
pub(super) struct Opened {
    pub(super) writer: Start,
    pub(super) readers: Vec<Option<Connection>>,
    pub(super) checkpointer: Option<Connection>,
}

/// Opens what `writer` works on. A store that is served from opens without room on the disk too, to be read.
pub(super) fn open(writer: &Writer, options: &Options) -> Result<Opened, OpenError> {
    match fully(writer, options) {
        Err(error) if options.acknowledge == Acknowledge::Ahead && may_mean_no_room(&error) => {
            let Ok(opened) = to_read(writer, options) else { return Err(error) };
            warn!("the disk has no room: the store can be read, and writes are refused until there is some ({error})");
            Ok(opened)
        }
        opened => opened,
    }
}

fn fully(writer: &Writer, options: &Options) -> Result<Opened, OpenError> {
    let path = &writer.path;
    let redo = redo_file(path, options.acknowledge)?;
    schema::prepare(path, options.migrations)?;
    let database = |source| OpenError::Database { path: path.clone(), source };
    let checkpointer = file::open_checkpointer(path).map_err(database)?;
    let reader = |_| file::open_reader(path).map(Some);
    let readers = (0..options.readers.max(1)).map(reader).collect::<Result<_, _>>().map_err(database)?;
    let writer = writer.start(redo).map_err(|failure| OpenError::of(path, failure))?;
    Ok(Opened { writer, readers, checkpointer: Some(checkpointer) })
}

fn to_read(writer: &Writer, options: &Options) -> Result<Opened, OpenError> {
    let path = &writer.path;
    let file_error = |source| OpenError::File { path: redo::path(path), source };
    let redo = match redo::path(path).try_exists().map_err(file_error)? {
        false => None,
        true => match RedoFile::take(path).map_err(file_error)? {
            None => return Err(file_error(io::ErrorKind::WouldBlock.into())),
            taken => taken,
        },
    };
    let start = writer.start_to_read(redo).map_err(|failure| OpenError::of(path, failure))?;
    schema::require(path, start.connection())?;
    writer.read_only.store(true, Ordering::Release);
    let readers = (0..options.readers.max(1)).map(|_| None).collect();
    Ok(Opened { writer: start, readers, checkpointer: None })
}

/// The redo log of the database at `path`, once the database has everything that is in it; nothing where there is none, or
/// where it belongs to another owner.
fn redo_file(path: &Path, acknowledge: Acknowledge) -> Result<Option<RedoFile>, OpenError> {
    let found = match acknowledge {
        Acknowledge::Settled => RedoFile::find(path),
        Acknowledge::Ahead => RedoFile::take(path),
    };
    let found = found.map_err(|source| OpenError::File { path: redo::path(path), source })?;
    if let Some(file) = &found {
        redo::recover(path, file).map_err(|failure| OpenError::of(path, failure))?;
    }
    match acknowledge {
        Acknowledge::Settled => Ok(None),
        Acknowledge::Ahead => {
            if found.is_none() {
                warn!("another process has the store's redo log, so that every write waits for the database");
            }
            Ok(found)
        }
    }
}

impl OpenError {
    /// Whether the file is damaged, or is no SQLite database at all.
    pub fn is_corrupt(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let Self::Database { source, .. } = self else { return false };
        matches!(source.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
    }

    /// Why the database at `path` could not be used.
    fn of(path: &Path, failure: Failure) -> Self {
        match failure {
            Failure::Sqlite(source) => Self::Database { path: path.to_path_buf(), source },
            Failure::File(source) => Self::File { path: path.to_path_buf(), source },
            other => Self::Redo { path: redo::path(path), source: other.to_error() },
        }
    }
}

/// Whether a full disk, a quota or a limit of the process may be the reason. SQLite has one word for most of what a file
/// system says; if the reason is another one, the database cannot be read either.
fn may_mean_no_room(error: &OpenError) -> bool {
    match error {
        OpenError::File { source, .. } => matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        ),
        OpenError::Database { source, .. } => matches!(
            source.sqlite_error_code(),
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen)
        ),
        OpenError::Redo { .. } | OpenError::Schema { .. } => false,
    }
}
