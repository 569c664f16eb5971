//! Documents in pieces, and how they are found.

use amalgam_core::{
    Scope,
    store::{Collection, FoundChunk, Imported, KnowledgeQuery, KnowledgeStore, NewDocument, Stored, Within},
};

use super::Sqlite;

impl KnowledgeStore for Sqlite {
    fn collections<'a>(&'a self, _scope: &'a Scope) -> Stored<'a, Vec<Collection>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn collections_within<'a>(&'a self, _within: Within<'a>) -> Stored<'a, Vec<Collection>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn documents_within<'a>(
        &'a self,
        _within: Within<'a>,
        _collection: &'a str,
        _after: Option<&'a str>,
        _limit: usize,
    ) -> Stored<'a, Vec<(String, [u8; 32])>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn put_documents<'a>(
        &'a self,
        _within: Within<'a>,
        _collection: &'a str,
        _embedding_model: Option<&'a str>,
        _documents: Vec<NewDocument>,
        _now_ms: u64,
    ) -> Stored<'a, Option<Imported>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn delete_documents<'a>(
        &'a self,
        _within: Within<'a>,
        _collection: &'a str,
        _paths: &'a [String],
        _now_ms: u64,
    ) -> Stored<'a, u64> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn delete_collection<'a>(&'a self, _within: Within<'a>, _collection: &'a str) -> Stored<'a, bool> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn search_knowledge<'a>(&'a self, _scope: &'a Scope, _x: KnowledgeQuery<'a>) -> Stored<'a, Vec<FoundChunk>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }
}
