//! The port for searching a tenant's knowledge, and the port for embeddings.

use crate::{execute::request::Condition, fault::Fault, ports::BoxFuture, scope::Scope, store::FoundChunk};

/// A search in a tenant's knowledge.
#[derive(Debug, Clone, Copy)]
pub struct RetrievalQuery<'a> {
    /// The query text, such as a question or an instruction.
    pub text: &'a str,
    /// In these collections; in all of the tenant's when there are none.
    pub collections: &'a [String],
    /// Of documents of which all of these hold.
    pub conditions: &'a [Condition<'a>],
    /// So many pieces, the best first.
    pub limit: usize,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RetrievalResult {
    /// The best first; without their embeddings.
    pub chunks: Vec<FoundChunk>,
    /// What made it less than it could be, each in a sentence that a caller may read.
    pub warnings: Vec<String>,
}

/// Searches a tenant's knowledge.
///
/// An implementer promises that only a store which cannot be used is a fault; everything else that goes wrong finds less, and
/// is reported as a warning.
pub trait Retrieval: Send + Sync {
    /// The pieces of the caller's tenant that fit best.
    fn find<'a>(
        &'a self,
        scope: &'a Scope,
        lookup: RetrievalQuery<'a>,
    ) -> BoxFuture<'a, Result<RetrievalResult, Fault>>;
}

/// Computes embeddings of texts.
pub trait Embedder: Send + Sync {
    /// One place for each text, in their order and with the same number of coordinates.
    fn embed<'a>(&'a self, model: &'a str, texts: &'a [&'a str]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, Fault>>;
}
