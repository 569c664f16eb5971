//! Files that callers have uploaded.

use bytes::Bytes;

use super::Stored;
use crate::{scope::Scope, store::Order};

/// The facts about a file, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    /// `file_…`; ids sort by creation.
    pub id: String,
    /// The file's name.
    pub filename: String,
    /// The purpose that the caller gave.
    pub purpose: String,
    /// The media type.
    pub media_type: String,
    /// The size of the content.
    pub bytes: u64,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// The expiry time, in milliseconds since 1970; `None` for a file that does not expire.
    pub expires_at_ms: Option<u64>,
}

/// Which files are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileListing<'a> {
    /// Only files with this purpose; `None` for all.
    pub purpose: Option<&'a str>,
    /// The id of the file before the page; `None` for the first page.
    pub after: Option<&'a str>,
    /// The order by creation.
    pub order: Order,
    /// The number of files, at most.
    pub limit: usize,
}

/// Uploaded files. Methods treat an expired file as missing.
pub trait FileStore: Send + Sync {
    /// Stores a file. Returns `false`, and stores nothing, if the tenant's files would exceed `most_bytes` with it.
    fn put_file<'a>(&'a self, scope: &'a Scope, file: FileRecord, content: Bytes, most_bytes: u64) -> Stored<'a, bool>;

    /// Returns the facts about one of the caller's files; `None` if there is no such file.
    fn file<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<FileRecord>>;

    /// Returns one of the caller's files with its content; `None` if there is no such file.
    fn file_content<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<(FileRecord, Bytes)>>;

    /// Returns a page of the caller's files.
    fn files<'a>(&'a self, scope: &'a Scope, listing: FileListing<'a>, now_ms: u64) -> Stored<'a, Vec<FileRecord>>;

    /// Deletes a file, expired or not. Returns whether it existed.
    fn delete_file<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool>;
}
