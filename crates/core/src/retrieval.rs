//! The port for searching a tenant's knowledge, and the port for embeddings.

use std::borrow::Cow;

use amalgam_protocol::Json;
use bytes::Bytes;

use crate::{CallSummary, fault::Fault, model::ModelError, ports::BoxFuture, scope::Scope, store::FoundChunk};

/// A search in a tenant's knowledge.
#[derive(Debug, Clone, Copy)]
pub struct RetrievalQuery<'a> {
    /// The query text, such as a question or an instruction.
    pub text: &'a str,
    /// The collections to search; all of the tenant's if empty.
    pub collections: &'a [String],
    /// Conditions that every document has to meet.
    pub conditions: &'a [Condition<'a>],
    /// The maximum number of chunks, the best first.
    pub limit: usize,
}

/// A condition on documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition<'a> {
    /// A key such as `path`, `language`, `repo`.
    pub key: Cow<'a, str>,
    /// The comparison.
    pub operator: ComparisonOperator,
    /// The values; never empty.
    pub values: Vec<Cow<'a, str>>,
}

impl Condition<'_> {
    /// Whether a document with this value of the key meets the condition; `None` is a document without the key.
    ///
    /// One matching value is enough for `==` and `contains`; no value may match for the other two.
    pub fn admits(&self, value: Option<&str>) -> bool {
        let any =
            |test: fn(&str, &str) -> bool| value.is_some_and(|value| self.values.iter().any(|own| test(value, own)));
        match self.operator {
            ComparisonOperator::Equals => any(|value, own| value == own),
            ComparisonOperator::Differs => !any(|value, own| value == own),
            ComparisonOperator::Contains => any(|value, own| value.contains(own)),
            ComparisonOperator::DoesNotContain => !any(|value, own| value.contains(own)),
        }
    }
}

/// The comparison operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ComparisonOperator {
    /// `==`
    Equals,
    /// `!=`
    Differs,
    /// `contains`
    Contains,
    /// `does_not_contain`
    DoesNotContain,
}

impl ComparisonOperator {
    /// All operators.
    pub const ALL: [Self; 4] = [Self::Equals, Self::Differs, Self::Contains, Self::DoesNotContain];

    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Equals => "==",
            Self::Differs => "!=",
            Self::Contains => "contains",
            Self::DoesNotContain => "does_not_contain",
        }
    }
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RetrievalResult {
    /// The chunks, the best first; without embeddings.
    pub chunks: Vec<FoundChunk>,
    /// Why results may be missing, each as a sentence for the caller.
    pub warnings: Vec<String>,
}

/// Searches a tenant's knowledge.
///
/// Implementers return a fault only if the store is not available; after other failures they return fewer results and a
/// warning.
pub trait Retrieval: Send + Sync {
    /// The best matching chunks of the caller's tenant.
    fn find<'a>(
        &'a self,
        scope: &'a Scope,
        lookup: RetrievalQuery<'a>,
    ) -> BoxFuture<'a, Result<RetrievalResult, Fault>>;
}

/// The embeddings of some texts.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddedTexts {
    /// One vector for each text, in order and with the same number of dimensions.
    pub vectors: Vec<Vec<f32>>,
    /// What they cost, as one model call; its times are not known.
    pub call: Option<CallSummary>,
}

/// Computes embeddings of texts.
pub trait Embedder: Send + Sync {
    /// The embeddings, and what they cost.
    fn embed<'a>(&'a self, model: &'a str, texts: &'a [&'a str]) -> BoxFuture<'a, Result<EmbeddedTexts, Fault>>;
}

/// Texts to embed for a caller.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingRequest {
    /// Each a JSON string, or a JSON array of tokens.
    pub inputs: Vec<Json>,
    /// The number of dimensions; the model's own if it is not given.
    pub dimensions: Option<u64>,
    /// The end user.
    pub user: Option<String>,
}

/// The embeddings of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingResult {
    /// One vector for each input, in order and with the same number of dimensions.
    pub vectors: Vec<Vec<f32>>,
    /// The tokens of the inputs, if the upstream reported them for all.
    pub tokens: Option<u64>,
}

/// Embeds texts on an upstream that the caller's model is on.
pub trait EmbeddingUpstreams: Send + Sync {
    /// Whether the upstream of this name has embeddings.
    fn has_embeddings(&self, upstream: &str) -> bool;

    /// The exact body of a request with all inputs, as the upstream receives it if they fit into one request.
    fn embedding_body(&self, model: &str, request: &EmbeddingRequest) -> Bytes;

    /// Embeds the inputs with a model of the upstream.
    fn embed_on<'a>(
        &'a self,
        upstream: &'a str,
        model: &'a str,
        request: &'a EmbeddingRequest,
    ) -> BoxFuture<'a, Result<EmbeddingResult, ModelError>>;
}
