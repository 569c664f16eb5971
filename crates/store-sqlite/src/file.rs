//! The database's files: created for their owner alone, and opened with the settings that durability requires.
use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use amalgam_store::private_files;
use rusqlite::{Connection, OpenFlags, config::DbConfig};

/// How long a connection waits for a lock of another process: a command of the operator, a backup, or the server.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(3);
/// The polling interval meanwhile: a busy server releases its lock for a fraction of a millisecond.
pub(super) const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// The cache has space for all statements.
const STATEMENTS: usize = 320;
/// A turn's items fit on a page with others; with half the size most would need additional pages.
const PAGE_BYTES: i64 = 8 * 1024;
const WRITER_CACHE_KIB: i64 = 8 * 1024;
const READER_CACHE_KIB: i64 = 2 * 1024;
/// A log that has grown beyond this is truncated when it restarts.
const LOG_KEPT_BYTES: i64 = 32 * 1024 * 1024;

/// Creates the folder and the file if they do not exist, readable only by their owner. The files that SQLite creates
/// beside it get the same permissions.
///
/// Returns the path without symbolic links: SQLite creates its log beside the file that a link leads to, and the lock
/// of the server is there too. So a database that is opened by two links is one database.
pub(super) fn create(path: &Path) -> io::Result<PathBuf> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        private_files::create_folder(folder)?;
    }
    private_files::options().create(true).truncate(false).open(path)?;
    path.canonicalize()
}

/// A connection that writes.
pub(super) fn open_writer(path: &Path, max_bytes: Option<u64>) -> rusqlite::Result<Connection> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    // Only has an effect on a new database.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    switch_to_log(&connection)?;
    // A commit is acknowledged when the log is on disk (S6), and nothing less.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", LOG_KEPT_BYTES)?;
    // Checkpoints have a thread of their own.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    if let Some(max_bytes) = max_bytes {
        let page_size: u64 =
            connection.pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0))?.max(1) as u64;
        let pages = i64::try_from(max_bytes / page_size).unwrap_or(i64::MAX).clamp(1, i64::from(u32::MAX) - 1);
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    Ok(connection)
}

/// The path of the database with a suffix appended to its file name.
pub(super) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Flushes the folder: otherwise a power failure can undo that a file was created or removed.
pub(super) fn flush_folder(database: &Path) -> io::Result<()> {
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// A connection that reads.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    Ok(connection)
}

/// A connection that only reads, for a full disk. The index of the write-ahead log is in memory instead of in a file,
/// which SQLite does for the only connection of a database.
pub(super) fn open_to_read(path: &Path) -> rusqlite::Result<Connection> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()))?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))?;
    Ok(connection)
}

/// A connection that checkpoints: it copies the contents of the write-ahead log into the database.
pub(super) fn open_checkpointer(path: &Path) -> rusqlite::Result<Connection> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(connection)
}

fn open(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    // Each connection belongs to one thread, so SQLite need not lock inside it. Nothing creates a file by accident.
    let mut connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    wait_for_locks(&mut connection)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // A statement is planned once, for all values: otherwise SQLite plans it again for each value because of partial
    // indexes.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Every statement has the index that it needs; SQLite would read a whole table to create an automatic one.
    connection.pragma_update(None, "automatic_index", false)?;
    // The functions of a schema that was changed by another program are not run.
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// Makes a connection wait for locks of others.
pub(super) fn wait_for_locks(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(|tries| {
        thread::sleep(LOCK_PAUSE);
        (tries as u128) < LOCK_WAIT.as_millis() / LOCK_PAUSE.as_millis()
    }))
}

fn switch_to_log(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| {
        let mode: String = row.get(0)?;
        match mode.as_str() {
            "wal" => Ok(()),
            _ => Err(rusqlite::Error::InvalidQuery),
        }
    })
}

/// Takes the lock of the process that serves from this database. It is held as long as the file is open; the operating
/// system releases it when the process ends.
pub(super) fn lock_for_serving(database: &Path) -> Result<File, LockError> {
    let path = beside(database, ".lock");
    let io_error = |source| LockError::File { path: path.clone(), source };
    let file = private_files::options().create(true).truncate(false).open(&path).map_err(io_error)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LockError::Taken { path }),
        Err(TryLockError::Error(source)) => Err(LockError::File { path, source }),
    }
}

/// Why this process may not serve.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process serves from the same database.
    #[error("another server uses this database (it holds `{}`); many servers need PostgreSQL", path.display())]
    Taken {
        /// The file that the lock is on.
        path: PathBuf,
    },
    /// The lock file cannot be created.
    #[error("could not lock `{}`", path.display())]
    File {
        /// The lock file.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_commit_is_flushed_before_it_is_acknowledged() {
        // S6: with a write-ahead log, `FULL` flushes it at every commit. A kill cannot show that; the settings can.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("amalgam.db");
        create(&path).unwrap();
        let setting = |connection: &Connection, name: &str| -> String {
            let value: rusqlite::types::Value = connection.pragma_query_value(None, name, |row| row.get(0)).unwrap();
            format!("{value:?}")
        };
        for connection in [open_writer(&path, None).unwrap(), open_checkpointer(&path).unwrap()] {
            let settings = ["journal_mode", "synchronous", "wal_autocheckpoint"].map(|name| setting(&connection, name));
            assert_eq!(settings, [r#"Text("wal")"#, "Integer(2)", "Integer(0)"]);
        }
        let reader = open_reader(&path).unwrap();
        assert!(reader.execute_batch("CREATE TABLE written (by_a_reader)").is_err());
    }
}
