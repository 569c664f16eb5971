//! Copies of a database that is in use: making, checking and restoring them.
//!
//! A copy is made by SQLite's online backup, a few pages at a time, inside one read transaction: it is the database as
//! it was when the copy began. The writer does not wait for it; only the write-ahead log cannot be restarted before the
//! copy is done. A copy is one file that needs no log beside it.
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use amalgam_store::{
    backup::{BackupContents, BackupTable, StoreKind, folder_of, free_bytes},
    migrate,
};
use rusqlite::{
    Connection, OpenFlags, OptionalExtension as _,
    backup::{Backup, StepResult},
};

use super::{
    LockError, Sqlite, SqliteOpenError, file, legacy_redo_log,
    schema::{self, MIGRATIONS},
};

/// Pages that are copied at once: 8 MiB.
const PAGES: i32 = 1_024;
/// The tables that have rows in every database, also in an empty one.
const OWN_TABLES: [&str; 2] = ["migrations", "redo"];
/// The number of lines of a damage report that are shown.
const MOST_LINES: usize = 5;

/// `shadow` and `virtual` tables are full-text indexes, which belong to other tables.
const TABLES: &str = "
    SELECT name FROM pragma_table_list
    WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name";
const SIZE: &str = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
const CHECK: &str = "PRAGMA integrity_check(10)";
const CHECKPOINT: &str = "PRAGMA wal_checkpoint(TRUNCATE)";
/// The name of a table of the schema follows.
const COUNT: &str = "SELECT COUNT(*) FROM ";
const ANY: &str = "SELECT 1 FROM ";

/// Why a database could not be copied, checked or replaced.
#[derive(Debug, thiserror::Error)]
pub enum SqliteCopyError {
    /// The database cannot be read, or does not fit this binary.
    #[error(transparent)]
    Open(#[from] SqliteOpenError),
    /// The database has a redo log of an older server that was not applied.
    #[error("`{}` has turns that the database lacks: run `amalgam migrate` first", path.display())]
    RedoLog {
        /// The redo log.
        path: PathBuf,
    },
    /// The disk has too little space.
    #[error("{needed} bytes are needed at `{}`, and {free} are free", folder.display())]
    NoRoom {
        /// The folder of the copy.
        folder: PathBuf,
        /// The required bytes.
        needed: u64,
        /// The available bytes.
        free: u64,
    },
    /// SQLite reports errors in the file.
    #[error("`{}` is damaged: {report}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The report of SQLite.
        report: String,
    },
    /// A server uses the database.
    #[error("a server uses the database; stop it first")]
    Serving(#[source] LockError),
}

impl SqliteCopyError {
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Open(SqliteOpenError::File { path, source })
    }

    pub(super) fn database(path: &Path) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Open(SqliteOpenError::Database { path, source })
    }
}

impl Sqlite {
    /// The size of a copy of the database at `path`, in bytes.
    pub fn size(path: &Path) -> Result<u64, SqliteCopyError> {
        let connection = open_source(path)?;
        let bytes: i64 = connection.query_row(SIZE, [], |row| row.get(0)).map_err(SqliteCopyError::database(path))?;
        Ok(bytes.unsigned_abs())
    }

    /// Copies the database at `path`, which may be in use, to `target`, which is created or overwritten, readable only
    /// by its owner, and flushed. Calls `progress` with the number of copied pages and of all pages. Removes a copy
    /// that fails.
    pub fn copy(
        path: &Path,
        target: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BackupContents, SqliteCopyError> {
        let redo = legacy_redo_log::path(path);
        if fs::metadata(&redo).is_ok_and(|log| log.len() > 0) {
            return Err(SqliteCopyError::RedoLog { path: redo });
        }
        let copied = copy_pages(path, target, progress).and_then(|()| contents(target));
        if copied.is_err() {
            let _ = fs::remove_file(target);
        }
        copied
    }

    /// Checks every page and row of a copy. Its schema may be older than this binary, but not newer.
    pub fn check_copy(path: &Path) -> Result<BackupContents, SqliteCopyError> {
        let contents = contents(path)?;
        let schema = |source| SqliteOpenError::Schema { path: path.to_path_buf(), source };
        migrate::pending(MIGRATIONS, &contents.migrations).map_err(schema)?;
        let connection = open_source(path)?;
        let database = || SqliteCopyError::database(path);
        let mut check = connection.prepare(CHECK).map_err(database())?;
        let report: Vec<String> = check
            .query_map([], |row| row.get(0))
            .and_then(|rows| rows.take(MOST_LINES).collect())
            .map_err(database())?;
        match report.as_slice() {
            [fine] if fine == "ok" => Ok(contents),
            faults => Err(SqliteCopyError::Damaged { path: path.to_path_buf(), report: faults.join("; ") }),
        }
    }

    /// Whether there is no database at `path`, or one without a row.
    pub fn is_empty(path: &Path) -> Result<bool, SqliteCopyError> {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(SqliteCopyError::file(path)(error)),
            Ok(file) if file.len() == 0 => return Ok(true),
            Ok(_) => {}
        }
        let connection = open_source(path)?;
        let empty = has_rows(&connection).map_err(SqliteCopyError::database(path))?;
        Ok(!empty)
    }

    /// Takes the lock of a server for as long as the returned file is open, so that no server starts meanwhile.
    pub fn lock_against_servers(path: &Path) -> Result<File, SqliteCopyError> {
        let folder = folder_of(path);
        let mut make = fs::DirBuilder::new();
        make.recursive(true).mode(0o700).create(folder).map_err(SqliteCopyError::file(folder))?;
        file::lock_for_serving(&resolved(path)).map_err(SqliteCopyError::Serving)
    }

    /// Replaces the database at `path` by the checked copy `with`, which is on the same disk. After a crash there is
    /// either the old database or the new one. Requires the lock of [`Sqlite::lock_against_servers`].
    pub fn replace(path: &Path, with: &Path) -> Result<(), SqliteCopyError> {
        let path = resolved(path);
        if path.exists() {
            // Changes that are only in the log belong to the old database, which must be complete until the new one
            // replaces it. A damaged database may fail to settle its log.
            let _ = settle(&path);
        }
        for suffix in ["-wal", "-shm", "-journal", "-redo"] {
            let beside = file::beside(&path, suffix);
            match fs::remove_file(&beside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(SqliteCopyError::file(&beside)(error));
                }
                _ => {}
            }
        }
        fs::rename(with, &path).and_then(|()| file::flush_folder(&path)).map_err(SqliteCopyError::file(&path))
    }
}

/// The target of symbolic links, if there is a file.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// Copies the contents of the write-ahead log into the database.
fn settle(path: &Path) -> rusqlite::Result<()> {
    let connection = file::open_checkpointer(path)?;
    connection.query_row(CHECKPOINT, [], |_| Ok(()))
}

/// A read-only connection with the usual lock time-outs. It creates no database.
pub(super) fn open_source(path: &Path) -> Result<Connection, SqliteCopyError> {
    let database = || SqliteCopyError::database(path);
    fs::metadata(path).map_err(SqliteCopyError::file(path))?;
    let mut connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(database())?;
    file::wait_for_locks(&mut connection).map_err(database())?;
    connection.pragma_update(None, "trusted_schema", false).map_err(database())?;
    Ok(connection)
}

fn copy_pages(path: &Path, target: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<(), SqliteCopyError> {
    let source = open_source(path)?;
    let (from, to) = (|| SqliteCopyError::database(path), || SqliteCopyError::database(target));
    // One read transaction around all steps: without it each write of the server would restart the copy.
    source.execute_batch("BEGIN").map_err(from())?;
    let needed: i64 = source.query_row(SIZE, [], |row| row.get(0)).map_err(from())?;
    make_room(target, needed.unsigned_abs())?;
    let mut copy = Connection::open_with_flags(target, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(to())?;
    copy.pragma_update(None, "synchronous", "OFF").map_err(to())?;
    copy.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(())).map_err(to())?;
    {
        let backup = Backup::new(&source, &mut copy).map_err(from())?;
        loop {
            let step = backup.step(PAGES).map_err(from())?;
            let now = backup.progress();
            let (all, left) = (now.pagecount.unsigned_abs().into(), u64::from(now.remaining.unsigned_abs()));
            progress(u64::saturating_sub(all, left), all);
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                // Only until a checkpoint has finished.
                _ => std::thread::sleep(file::LOCK_PAUSE),
            }
        }
    }
    // Without write-ahead logging the copy is a single file.
    copy.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(())).map_err(to())?;
    drop(copy);
    File::open(target).and_then(|file| file.sync_all()).map_err(SqliteCopyError::file(target))
}

/// Creates the empty file of a copy, if the disk has space for it.
fn make_room(target: &Path, needed: u64) -> Result<(), SqliteCopyError> {
    let folder = folder_of(target);
    match fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(SqliteCopyError::file(target)(error)),
        _ => {}
    }
    let free = free_bytes(folder).map_err(SqliteCopyError::file(folder))?;
    if free < needed {
        return Err(SqliteCopyError::NoRoom { folder: folder.to_path_buf(), needed, free });
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(target);
    made.map(drop).map_err(SqliteCopyError::file(target))
}

/// The description of a copy.
fn contents(path: &Path) -> Result<BackupContents, SqliteCopyError> {
    let connection = open_source(path)?;
    let database = || SqliteCopyError::database(path);
    let migrations = schema::applied(&connection).map_err(database())?;
    let count = |name: String| {
        let rows: i64 = connection.query_row(&[COUNT, &identifier(&name)].concat(), [], |row| row.get(0))?;
        Ok(BackupTable { name, rows: rows.unsigned_abs(), columns: Vec::new() })
    };
    let tables = tables(&connection).and_then(|names| names.into_iter().map(count).collect::<rusqlite::Result<_>>());
    Ok(BackupContents {
        store: StoreKind::Sqlite,
        migrations,
        tables: tables.map_err(database())?,
        sequences: Vec::new(),
    })
}

/// Whether any table has a row that was not written when the schema was created.
pub(super) fn has_rows(connection: &Connection) -> rusqlite::Result<bool> {
    for name in tables(connection)?.iter().filter(|name| !OWN_TABLES.contains(&name.as_str())) {
        let any = connection.query_row(&[ANY, &identifier(name)].concat(), [], |_| Ok(()));
        if any.optional()?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The tables of a database, without full-text indexes.
pub(super) fn tables(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    connection.prepare(TABLES)?.query_map([], |row| row.get(0))?.collect()
}

/// Quotes a name of the schema for a statement.
pub(super) fn identifier(name: &str) -> String {
    ["\"", &name.replace('"', "\"\""), "\""].concat()
}
