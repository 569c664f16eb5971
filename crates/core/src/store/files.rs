//! Files that callers have uploaded.

use bytes::Bytes;

use super::Stored;
use crate::{scope::Scope, store::Order};

/// What is known about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    /// `file_…`; later ones sort behind.
    pub id: String,
    /// What its owner calls it.
    pub filename: String,
    /// What it is for, in the caller's words.
    pub purpose: String,
    /// What kind of file it is.
    pub media_type: String,
    /// How long it is.
    pub bytes: u64,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// When it goes by itself, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// Which files are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileListing<'a> {
    /// Those for this alone.
    pub purpose: Option<&'a str>,
    /// Those behind this one.
    pub after: Option<&'a str>,
    /// By when they were made.
    pub order: Order,
    /// So many.
    pub limit: usize,
}

/// Files. One that has expired is not there.
pub trait FileStore: Send + Sync {
    /// Keeps a file, unless the caller's tenant had more than `most_bytes` with it; whether it is kept.
    fn put_file<'a>(&'a self, scope: &'a Scope, file: FileRecord, content: Bytes, most_bytes: u64) -> Stored<'a, bool>;

    /// What is known about one of the caller's files.
    fn file<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<FileRecord>>;

    /// One of the caller's files with what is in it.
    fn file_content<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<(FileRecord, Bytes)>>;

    /// The caller's files.
    fn files<'a>(&'a self, scope: &'a Scope, listing: FileListing<'a>, now_ms: u64) -> Stored<'a, Vec<FileRecord>>;

    /// Forgets a file; whether there was one.
    fn delete_file<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool>;
}
