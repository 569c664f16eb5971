//! Backups: one file with everything that a store holds, and what is needed to check it.
//!
//! A backup is a tar archive (docs/decisions/0034). The data come first: the database file of SQLite, or one file for each table
//! of PostgreSQL. Then `manifest.json` says what the data are, and `SHA256SUMS`, the last file, has the digests of all others:
//! `tar xf` and `sha256sum -c SHA256SUMS` check a backup without this program. How data leave and enter a database is the
//! engine's.

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

/// What a backup is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupManifest {
    /// Always `amalgam-backup`.
    pub format: String,
    /// The version of the format.
    pub format_version: u32,
    /// The version of the program that made it.
    pub amalgam: String,
    /// When it was begun, by RFC 3339: everything that was acknowledged before is inside.
    pub created_at: String,
    /// The engine.
    pub store: StoreKind,
    /// The last migration of the database.
    pub schema_version: u32,
    /// Every migration of the database.
    pub migrations: Vec<Applied>,
    /// Its tables.
    pub tables: Vec<BackupTable>,
    /// Numbers that are drawn from sequences, which never repeat one.
    #[serde(default)]
    pub sequences: Vec<BackupSequence>,
    /// Whether the master key is inside.
    pub includes_secret_key: bool,
}

/// A storage engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// One file.
    Sqlite,
    /// A server.
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

/// What an engine says about the data that it has put into a backup.
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
    /// There is a file of this name.
    #[error("`{}` exists; --force replaces it", path.display())]
    Exists {
        /// Which file.
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
        /// What was tried: a verb.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is something else.
    #[error("`{}` is no backup of amalgam: {reason}", path.display())]
    NotABackup {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// What is inside is not what was put inside.
    #[error("`{}` is damaged: {reason}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
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

/// The path with something behind its name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
