//! A library for tests: chunks by tenant, found by their words.

use std::sync::{Arc, Mutex};

use amalgam_core::{
    BoxFuture, Condition, Fault, FaultKind, Operator, Retrieval, RetrievalQuery, RetrievalResult, Scope, TurnSummary,
    store::{
        Collection, DocumentListing, DocumentRecord, FoundChunk, ImportCounts, KnowledgeQuery, KnowledgeStore,
        NewDocument, Stored, Within,
    },
};

use super::KnowledgePorts;

/// Chunks of tenant 1 and of tenant 2.
#[derive(Default)]
pub(crate) struct Library {
    pub(crate) pieces: Vec<(i64, FoundChunk)>,
    pub(crate) broken: bool,
    /// The queries so far.
    pub(crate) asked: Mutex<Vec<String>>,
}

impl Library {
    pub(crate) fn with(pieces: Vec<(i64, FoundChunk)>) -> Self {
        Self { pieces, ..Self::default() }
    }

    pub(crate) fn ports(self) -> KnowledgePorts {
        let library = Arc::new(self);
        KnowledgePorts { store: Arc::clone(&library) as Arc<dyn KnowledgeStore>, retrieval: library }
    }
}

/// A chunk of a Rust file.
pub(crate) fn piece(id: &str, collection: &str, path: &str, content: &str, score: f64) -> FoundChunk {
    FoundChunk {
        id: id.to_owned(),
        collection: collection.to_owned(),
        path: path.to_owned(),
        language: "rust".to_owned(),
        attributes: vec![("repo".to_owned(), "amalgam".to_owned())],
        symbol: None,
        start_line: 3,
        end_line: 9,
        content: content.to_owned(),
        score,
        ranking: amalgam_core::store::ChunkRanking::default(),
        embedding: None,
    }
}

fn holds(condition: &Condition<'_>, chunk: &FoundChunk) -> bool {
    let value = match &*condition.key {
        "path" => Some(chunk.path.as_str()),
        "language" => Some(chunk.language.as_str()),
        key => chunk.attributes.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str()),
    };
    condition.admits(value)
}

impl Retrieval for Library {
    fn find<'a>(
        &'a self,
        scope: &'a Scope,
        lookup: RetrievalQuery<'a>,
    ) -> BoxFuture<'a, Result<RetrievalResult, Fault>> {
        Box::pin(async move {
            if self.broken {
                return Err(Fault::new(FaultKind::Internal, "no").detail("no route to 10.0.0.7"));
            }
            let words: Vec<&str> = lookup.text.split_whitespace().collect();
            self.asked.lock().unwrap().push(format!("{} × {}", lookup.text, lookup.limit));
            let fits = |chunk: &FoundChunk| {
                (lookup.collections.is_empty() || lookup.collections.contains(&chunk.collection))
                    && words.iter().any(|word| chunk.content.contains(word))
                    && lookup.conditions.iter().all(|condition| holds(condition, chunk))
            };
            let mut chunks: Vec<FoundChunk> = self
                .pieces
                .iter()
                .filter(|(tenant, chunk)| *tenant == scope.tenant_id() && fits(chunk))
                .map(|(_, chunk)| chunk.clone())
                .collect();
            chunks.sort_by(|one, other| other.score.total_cmp(&one.score));
            chunks.truncate(lookup.limit);
            Ok(RetrievalResult { chunks, warnings: Vec::new() })
        })
    }
}

impl KnowledgeStore for Library {
    fn count_calls(&self, _: Operator, _: TurnSummary) -> Stored<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn collections<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<Collection>> {
        Box::pin(async move {
            let own = self.pieces.iter().filter(|(tenant, _)| *tenant == scope.tenant_id());
            let mut names: Vec<String> = own.map(|(_, chunk)| chunk.collection.clone()).collect();
            names.sort();
            names.dedup();
            let collection = |name| Collection {
                name,
                documents: 1,
                chunks: 1,
                embedding_model: None,
                created_at_ms: 1,
                updated_at_ms: 1,
            };
            Ok(names.into_iter().map(collection).collect())
        })
    }

    fn search_knowledge<'a>(&'a self, _scope: &'a Scope, _query: KnowledgeQuery<'a>) -> Stored<'a, Vec<FoundChunk>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    // The tests import nothing.

    fn collections_within<'a>(&'a self, _within: Within<'a>) -> Stored<'a, Vec<Collection>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn documents_within<'a>(
        &'a self,
        _within: Within<'a>,
        _collection: &'a str,
        _listing: DocumentListing<'a>,
    ) -> Stored<'a, Vec<DocumentRecord>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn put_documents<'a>(
        &'a self,
        _within: Within<'a>,
        _collection: &'a str,
        _source: &'a str,
        _embedding_model: Option<&'a str>,
        _documents: Vec<NewDocument>,
        _now_ms: u64,
    ) -> Stored<'a, Option<ImportCounts>> {
        Box::pin(async { Ok(None) })
    }

    fn delete_documents<'a>(
        &'a self,
        _within: Within<'a>,
        _collection: &'a str,
        _source: &'a str,
        _paths: &'a [String],
        _now_ms: u64,
    ) -> Stored<'a, u64> {
        Box::pin(async { Ok(0) })
    }

    fn delete_collection<'a>(&'a self, _within: Within<'a>, _collection: &'a str) -> Stored<'a, bool> {
        Box::pin(async { Ok(false) })
    }
}
