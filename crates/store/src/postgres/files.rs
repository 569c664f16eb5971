//! Files that callers have uploaded.

use amalgam_core::{
    Scope,
    store::{FileListing, FileRecord, FileStore, Stored},
};
use bytes::Bytes;

use super::Postgres;

impl FileStore for Postgres {
    fn put_file<'a>(
        &'a self,
        _scope: &'a Scope,
        _file: FileRecord,
        _content: Bytes,
        _most_bytes: u64,
    ) -> Stored<'a, bool> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn file<'a>(&'a self, _scope: &'a Scope, _id: &'a str, _now_ms: u64) -> Stored<'a, Option<FileRecord>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn file_content<'a>(
        &'a self,
        _scope: &'a Scope,
        _id: &'a str,
        _now_ms: u64,
    ) -> Stored<'a, Option<(FileRecord, Bytes)>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn files<'a>(&'a self, _scope: &'a Scope, _listing: FileListing<'a>, _now_ms: u64) -> Stored<'a, Vec<FileRecord>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn delete_file<'a>(&'a self, _scope: &'a Scope, _x: &'a str) -> Stored<'a, bool> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }
}
