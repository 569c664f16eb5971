//! Backups: one file with the contents of a store, and what is needed to check it.
//!
//! A backup is a tar archive (docs/decisions/0034). The data come first: the database file of SQLite, or one file for
//! each table of PostgreSQL. Then `manifest.json` describes the data, and `SHA256SUMS`, the last file, has the digests
//! of all others: `tar xf` and `sha256sum -c SHA256SUMS` check a backup without this program. Each engine reads and
//! writes the data itself.

mod reader;
mod writer;

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

pub use self::{
    reader::{BackupReader, DataReader},
    writer::{BackupEntry, BackupWriter, Replace},
};
use crate::migrate::Applied;

/// The name of the description of a backup.
pub const MANIFEST: &str = "manifest.json";
/// The name of the list of digests.
pub const DIGESTS: &str = "SHA256SUMS";
/// The name of the database of SQLite.
pub const DATABASE: &str = "amalgam.db";
/// The name of the master key, if it is inside.
pub const SECRET_KEY: &str = "secret.key";

const FORMAT: &str = "amalgam-backup";
const FORMAT_VERSION: u32 = 1;

/// The description of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupManifest {
    /// Always `amalgam-backup`.
    pub format: String,
    /// The version of the format.
    pub format_version: u32,
    /// The version of the program that made it.
    pub amalgam: String,
    /// When it was begun, by RFC 3339: it contains everything that was acknowledged before.
    pub created_at: String,
    /// The engine.
    pub store: StoreKind,
    /// The last migration of the database.
    pub schema_version: u32,
    /// Every migration of the database.
    pub migrations: Vec<Applied>,
    /// Its tables.
    pub tables: Vec<BackupTable>,
    /// The state of sequences, which never return a number twice.
    #[serde(default)]
    pub sequences: Vec<BackupSequence>,
    /// Whether the master key is inside.
    pub includes_secret_key: bool,
}

/// A storage engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// SQLite: one file.
    Sqlite,
    /// PostgreSQL: a server.
    Postgres,
}

/// A table of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupTable {
    /// Its name.
    pub name: String,
    /// How many rows it has.
    pub rows: u64,
    /// The columns in the order of its file; empty if the table is inside of a database file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
}

/// The state of a sequence that numbers the rows of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupSequence {
    /// The table.
    pub table: String,
    /// The column.
    pub column: String,
    /// The last number that was drawn, or the first that will be.
    pub last_value: i64,
    /// Whether it was drawn.
    pub is_called: bool,
}

/// An engine's description of the data that it has written to a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupContents {
    /// The engine.
    pub store: StoreKind,
    /// The migrations of the database.
    pub migrations: Vec<Applied>,
    /// The tables.
    pub tables: Vec<BackupTable>,
    /// The sequences.
    pub sequences: Vec<BackupSequence>,
}

impl BackupManifest {
    /// The description of these contents.
    pub fn new(contents: BackupContents, created_at: String, includes_secret_key: bool) -> Self {
        let BackupContents { store, migrations, tables, sequences } = contents;
        Self {
            format: FORMAT.to_owned(),
            format_version: FORMAT_VERSION,
            amalgam: env!("CARGO_PKG_VERSION").to_owned(),
            created_at,
            store,
            schema_version: migrations.last().map_or(0, |last| last.version),
            migrations,
            tables,
            sequences,
            includes_secret_key,
        }
    }

    /// How many rows all tables have.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }
}

impl BackupTable {
    /// The name of its file.
    pub fn file(&self) -> String {
        table_file(&self.name)
    }
}

/// The name of the file of a table.
pub fn table_file(table: &str) -> String {
    format!("tables/{table}.copy")
}

/// Why a backup cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file with this name exists.
    #[error("`{}` exists; --force replaces it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another process writes the same backup.
    #[error("another process is writing `{}`", path.display())]
    InUse {
        /// The file that it writes.
        path: PathBuf,
    },
    /// A file cannot be written or read.
    #[error("could not {doing} `{}`", path.display())]
    File {
        /// The attempted operation, as a verb.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// The file is not a backup.
    #[error("`{}` is no backup of amalgam: {reason}", path.display())]
    NotABackup {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The contents do not match their digests or counts.
    #[error("`{}` is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The difference.
        reason: String,
    },
}

impl BackupError {
    fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { doing, path, source }
    }
}

/// The bytes that a user may still write on the disk of `folder`.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// The folder that a file is in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path with a suffix appended to its file name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
