//! Knowledge of a tenant: collections of documents in chunks, which are found by their words.

use super::{ImportCounts, Stored, Within};
use crate::{
    TurnSummary,
    retrieval::Condition,
    scope::{Operator, Scope},
};

/// A named set of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    /// Unique in its tenant.
    pub name: String,
    /// The number of documents.
    pub documents: u64,
    /// The number of chunks in all documents.
    pub chunks: u64,
    /// The model of the chunks' embeddings; `None` if they have none.
    pub embedding_model: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// A document to import. It replaces the document with the same path and source.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDocument {
    /// The path; unique in its source.
    pub path: String,
    /// A digest of the content and of the way it was split into chunks.
    pub digest: [u8; 32],
    /// Its language.
    pub language: String,
    /// Further attributes, such as `repo`, as names and values. Conditions can name them, besides `path`, `language`
    /// and `collection`.
    pub attributes: Vec<(String, String)>,
    /// The chunks in order.
    pub chunks: Vec<NewChunk>,
}

/// The facts about a document, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentRecord {
    /// The source of the import, such as a folder. Documents of different sources may have the same path.
    pub source: String,
    /// The path; unique in its source.
    pub path: String,
    /// A digest of the content and of the way it was split into chunks.
    pub digest: [u8; 32],
    /// Its language.
    pub language: String,
    /// Further attributes, as names and values.
    pub attributes: Vec<(String, String)>,
    /// The number of chunks.
    pub chunks: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// Which documents of a collection are listed. The list is sorted by source and then by path, both compared as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentListing<'a> {
    /// Only documents of this source; `None` for all.
    pub source: Option<&'a str>,
    /// The source and the path of the document before the page; `None` for the first page.
    pub after: Option<(&'a str, &'a str)>,
    /// The number of documents, at most.
    pub limit: usize,
}

/// A chunk of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct NewChunk {
    /// What the chunk defines, such as the name of a function.
    pub symbol: Option<String>,
    /// The first line, from 1.
    pub start_line: u64,
    /// The last line.
    pub end_line: u64,
    /// The text.
    pub content: String,
    /// The words of the search index, repeated as often as the chunk has them.
    pub words: Vec<String>,
    /// The embedding, by the collection's embedding model.
    pub embedding: Option<Vec<f32>>,
}

/// A search for chunks.
#[derive(Debug, Clone, Copy)]
pub struct KnowledgeQuery<'a> {
    /// The names of the collections; an empty list selects all collections of the tenant.
    pub collections: &'a [String],
    /// The words, without duplicates. A chunk matches if it has at least one of them.
    pub words: &'a [String],
    /// The conditions that the chunk's document must satisfy, all of them.
    pub conditions: &'a [Condition<'a>],
    /// The number of chunks, at most.
    pub limit: usize,
    /// Whether to return the embeddings.
    pub embeddings: bool,
}

/// A chunk that a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundChunk {
    /// The id of the chunk. It changes when the document is imported again.
    pub id: String,
    /// The name of the collection.
    pub collection: String,
    /// The path of the document.
    pub path: String,
    /// The language of the document.
    pub language: String,
    /// The further attributes of the document.
    pub attributes: Vec<(String, String)>,
    /// What the chunk defines, such as the name of a function.
    pub symbol: Option<String>,
    /// The first line, from 1.
    pub start_line: u64,
    /// The last line.
    pub end_line: u64,
    /// The text.
    pub content: String,
    /// The relevance; higher is better.
    pub score: f64,
    /// What the score is made of.
    pub ranking: ChunkRanking,
    /// Its place in the space of the collection's embedding model.
    pub embedding: Option<Vec<f32>>,
}

/// What the score of a piece is made of.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ChunkRanking {
    /// By its words alone, as the store ranks it.
    pub word_score: f64,
    /// How close its embedding is to the question's, from 0 to 1; none where one of them has no embedding.
    pub similarity: Option<f64>,
}

/// Knowledge. It belongs to a tenant, and all of its users may look things up.
pub trait KnowledgeStore: Send + Sync {
    /// Adds model calls that belong to no turn, such as embeddings, to the usage of the summary's tenant, key and user.
    fn count_calls(&self, operator: Operator, summary: TurnSummary) -> Stored<'_, ()>;

    /// The collections of the caller's tenant by name.
    fn collections<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<Collection>>;

    /// Returns the collections of a tenant, sorted by name.
    fn collections_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Vec<Collection>>;

    /// Returns a page of the documents of a collection; an empty one if the collection does not exist.
    fn documents_within<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        listing: DocumentListing<'a>,
    ) -> Stored<'a, Vec<DocumentRecord>>;

    /// Imports documents of one source in one transaction, and creates the collection if it does not exist.
    /// `embedding_model` is the model of their embeddings. If it differs from the collection's (also if it is `None`
    /// and the collection has one), it replaces the collection's model, and all embeddings of the collection are
    /// deleted. `None` if the tenant does not exist.
    fn put_documents<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        source: &'a str,
        embedding_model: Option<&'a str>,
        documents: Vec<NewDocument>,
        now_ms: u64,
    ) -> Stored<'a, Option<ImportCounts>>;

    /// Deletes documents of one source by their paths. Returns how many of them existed.
    fn delete_documents<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        source: &'a str,
        paths: &'a [String],
        now_ms: u64,
    ) -> Stored<'a, u64>;

    /// Deletes a collection and its documents. Returns whether it existed.
    fn delete_collection<'a>(&'a self, within: Within<'a>, collection: &'a str) -> Stored<'a, bool>;

    /// Returns the best chunks for a query, best first; none if no chunk matches.
    fn search_knowledge<'a>(&'a self, scope: &'a Scope, query: KnowledgeQuery<'a>) -> Stored<'a, Vec<FoundChunk>>;
}
