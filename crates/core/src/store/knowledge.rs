//! What a tenant's agents can look up: collections of documents in pieces, found by their words.

use super::{ImportCounts, Stored, Within};
use crate::{
    TurnSummary,
    retrieval::Condition,
    scope::{Operator, Scope},
};

/// Documents that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    /// Unique in its tenant.
    pub name: String,
    /// How many documents it has.
    pub documents: u64,
    /// How many pieces they have.
    pub chunks: u64,
    /// The model that its pieces were embedded with.
    pub embedding_model: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// A document as it is brought in: it takes the place of the one of its path from the same source.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDocument {
    /// Where it is; unique in its source.
    pub path: String,
    /// A digest of what is in it and of how it was cut.
    pub digest: [u8; 32],
    /// Its language.
    pub language: String,
    /// What else is known about it, such as `repo`: names and values. Conditions ask for these, and for `path`, `language`
    /// and `collection`.
    pub attributes: Vec<(String, String)>,
    /// Its pieces in order.
    pub chunks: Vec<NewChunk>,
}

/// What is known about a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentRecord {
    /// Where it was brought in from, such as one folder; documents of several sources may have the same path.
    pub source: String,
    /// Where it is; unique in its source.
    pub path: String,
    /// A digest of what is in it and of how it was cut.
    pub digest: [u8; 32],
    /// Its language.
    pub language: String,
    /// What else is known about it.
    pub attributes: Vec<(String, String)>,
    /// How many pieces it has.
    pub chunks: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// Which documents of a collection are listed, by source and then by path, both by their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentListing<'a> {
    /// Those of this source alone.
    pub source: Option<&'a str>,
    /// Those behind the one of this source and path.
    pub after: Option<(&'a str, &'a str)>,
    /// So many.
    pub limit: usize,
}

/// A piece of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct NewChunk {
    /// What it is in its document, such as the name of a function.
    pub symbol: Option<String>,
    /// Its first line, from 1.
    pub start_line: u64,
    /// Its last line.
    pub end_line: u64,
    /// What is in it.
    pub content: String,
    /// The words that it is found by, as often as they are in it.
    pub words: Vec<String>,
    /// Its place in the space of the collection's embedding model.
    pub embedding: Option<Vec<f32>>,
}

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub struct KnowledgeQuery<'a> {
    /// In these collections; in all of the tenant's when there are none.
    pub collections: &'a [String],
    /// Pieces with any of these words, each of them once.
    pub words: &'a [String],
    /// Of documents of which all of these hold.
    pub conditions: &'a [Condition<'a>],
    /// So many, the best first.
    pub limit: usize,
    /// Whether embeddings are wanted too.
    pub embeddings: bool,
}

/// A piece that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundChunk {
    /// What it is known by; another one after its document was brought in anew.
    pub id: String,
    /// The collection.
    pub collection: String,
    /// The document.
    pub path: String,
    /// Its language.
    pub language: String,
    /// What else is known about the document.
    pub attributes: Vec<(String, String)>,
    /// What it is in its document.
    pub symbol: Option<String>,
    /// Its first line, from 1.
    pub start_line: u64,
    /// Its last line.
    pub end_line: u64,
    /// What is in it.
    pub content: String,
    /// How well it fits; more is better.
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

    /// The collections of a tenant by name.
    fn collections_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Vec<Collection>>;

    /// The documents of a collection; none when there is no such collection.
    fn documents_within<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        listing: DocumentListing<'a>,
    ) -> Stored<'a, Vec<DocumentRecord>>;

    /// Brings documents of one source in, all of them or none; the collection is made if there is none. `embedding_model` is
    /// the model of their embeddings; one that is not the collection's (also none where it has one) takes its place and
    /// removes all embeddings that the collection has. Nothing when there is no such tenant.
    fn put_documents<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        source: &'a str,
        embedding_model: Option<&'a str>,
        documents: Vec<NewDocument>,
        now_ms: u64,
    ) -> Stored<'a, Option<ImportCounts>>;

    /// Forgets documents of one source; how many there were.
    fn delete_documents<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        source: &'a str,
        paths: &'a [String],
        now_ms: u64,
    ) -> Stored<'a, u64>;

    /// Forgets a collection with whatever documents it still has; whether there was one.
    fn delete_collection<'a>(&'a self, within: Within<'a>, collection: &'a str) -> Stored<'a, bool>;

    /// Looks things up.
    fn search_knowledge<'a>(&'a self, scope: &'a Scope, query: KnowledgeQuery<'a>) -> Stored<'a, Vec<FoundChunk>>;
}
