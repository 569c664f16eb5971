//! Searches a tenant's knowledge: by words, and by embeddings if the collection has them.
//!
//! The word search selects the candidates, and embeddings rerank them. If embeddings are unavailable (the upstream
//! fails, or the model is no longer configured), the order of the word search stays and the result has a warning. No
//! turn fails for it.

mod attributes;
mod collections;
mod embedding_usage;
mod import;
mod upload;
mod write_throttle;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use amalgam_core::{
    BoxFuture, Clock, EmbeddedTexts, Embedder, Fault, Retrieval, RetrievalQuery, RetrievalResult, Scope,
    store::{Collection, FoundChunk, KnowledgeQuery, KnowledgeStore},
};
use amalgam_knowledge::{question, rank_by_embeddings, words};
use futures_util::future::join_all;

pub use attributes::{InvalidAttribute, check_attribute, check_attributes, check_name, check_value};
pub use collections::{DocumentDeletion, document_id};
pub use import::{
    IgnoreRules, ImportError, ImportObserver, ImportSource, ImportTotals, KnowledgeImport, gather_sources,
};
pub use upload::{DOCUMENT_BYTES, DocumentUpload, PATH_BYTES, UploadOutcome};
pub use write_throttle::WriteThrottle;

/// The number of candidates for reranking.
const CANDIDATES: usize = 200;
/// The timeout for embedding a question.
const EMBED_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of a question.
const QUESTION_BYTES: usize = 32 * 1024;
/// The part of a text that is embedded: models take a few thousand tokens.
const EMBEDDED_BYTES: usize = 8 * 1024;

/// Searches the knowledge in a store. The embedder turns questions into vectors.
pub struct Knowledge {
    store: Arc<dyn KnowledgeStore>,
    embedder: Arc<dyn Embedder>,
    clock: Arc<dyn Clock>,
}

impl Knowledge {
    /// A search over this store with this embedder.
    pub fn new(store: Arc<dyn KnowledgeStore>, embedder: Arc<dyn Embedder>, clock: Arc<dyn Clock>) -> Self {
        Self { store, embedder, clock }
    }

    async fn search(&self, scope: &Scope, lookup: RetrievalQuery<'_>) -> Result<RetrievalResult, Fault> {
        let collections = self.store.collections(scope).await?;
        let mut warnings: Vec<String> =
            unknown_collections(&collections, lookup.collections).map(no_such_collection).collect();
        // Most tenants have no collections; finding the words of a question takes longer than everything else here.
        if lookup.limit == 0 || collections.is_empty() {
            return Ok(RetrievalResult { chunks: Vec::new(), warnings });
        }
        let words = question(truncated(lookup.text, QUESTION_BYTES));
        if words.is_empty() {
            return Ok(RetrievalResult { chunks: Vec::new(), warnings });
        }
        let requested =
            |collection: &&Collection| lookup.collections.is_empty() || lookup.collections.contains(&collection.name);
        let models: BTreeMap<&str, &str> = collections
            .iter()
            .filter(requested)
            .filter_map(|collection| Some((collection.name.as_str(), collection.embedding_model.as_deref()?)))
            .collect();
        let query = KnowledgeQuery {
            collections: lookup.collections,
            words: &words,
            conditions: lookup.conditions,
            limit: if models.is_empty() { lookup.limit } else { lookup.limit.max(CANDIDATES) },
            embeddings: !models.is_empty(),
        };
        let (found, embeddings) =
            tokio::join!(self.store.search_knowledge(scope, query), self.embeddings(scope, &models, lookup.text));
        let mut chunks: Vec<FoundChunk> = found?;
        let mut known: BTreeMap<&str, Vec<f32>> = BTreeMap::new();
        for (model, embed) in embeddings {
            match embed {
                Ok(embed) => drop(known.insert(model, embed)),
                Err(warning) => warnings.push(warning),
            }
        }
        let embedding_for = |collection: &str| known.get(models.get(collection)?).map(Vec::as_slice);
        rank_by_embeddings(&mut chunks, embedding_for);
        chunks.truncate(lookup.limit);
        chunks.iter_mut().for_each(|chunk| chunk.embedding = None);
        Ok(RetrievalResult { chunks, warnings })
    }

    /// The question's embedding by each model, or the error.
    async fn embeddings<'m>(
        &self,
        scope: &Scope,
        models: &BTreeMap<&str, &'m str>,
        text: &str,
    ) -> Vec<(&'m str, Result<Vec<f32>, String>)> {
        let mut names: Vec<&'m str> = models.values().copied().collect();
        names.sort_unstable();
        names.dedup();
        let texts = [truncated(text, EMBEDDED_BYTES)];
        let embed = async |model: &'m str| (model, self.embed(scope, model, &texts).await);
        join_all(names.into_iter().map(embed)).await
    }

    async fn embed(&self, scope: &Scope, model: &str, texts: &[&str]) -> Result<Vec<f32>, String> {
        let detail = match tokio::time::timeout(EMBED_TIMEOUT, self.embedder.embed(model, texts)).await {
            Ok(Ok(EmbeddedTexts { mut vectors, call })) => {
                if let Some(call) = call {
                    embedding_usage::count_search(&*self.store, scope, call, self.clock.now_ms()).await;
                }
                match vectors.len() {
                    1 => return Ok(vectors.swap_remove(0)),
                    number => format!("{number} places for one question"),
                }
            }
            Ok(Err(fault)) => fault.into_detail(),
            Err(_elapsed) => format!("no answer within {EMBED_TIMEOUT:?}"),
        };
        tracing::warn!(model.name = model, "the embedding model {model} cannot be used: {detail}");
        Err(format!("The embedding model '{model}' could not be used; knowledge was searched by its words alone."))
    }
}

impl Retrieval for Knowledge {
    fn find<'a>(
        &'a self,
        scope: &'a Scope,
        lookup: RetrievalQuery<'a>,
    ) -> BoxFuture<'a, Result<RetrievalResult, Fault>> {
        Box::pin(self.search(scope, lookup))
    }
}

/// The requested names that no collection has.
fn unknown_collections<'a>(collections: &'a [Collection], requested: &'a [String]) -> impl Iterator<Item = &'a str> {
    let is_known = |name: &str| collections.iter().any(|collection| collection.name == name);
    requested.iter().map(String::as_str).filter(move |name| !is_known(name))
}

fn no_such_collection(name: &str) -> String {
    let shown: String = name.chars().take(64).collect();
    format!("There is no knowledge collection '{shown}'.")
}

/// The words of a question that a chunk is found by, as the index has them.
pub fn matched_words(text: &str, chunk: &FoundChunk) -> Vec<String> {
    let file = chunk.path.rsplit(['/', '\\']).next().unwrap_or(&chunk.path);
    let indexed = [chunk.content.as_str(), chunk.symbol.as_deref().unwrap_or_default(), file];
    let own: HashSet<String> = indexed.into_iter().flat_map(words).collect();
    let mut asked = question(truncated(text, QUESTION_BYTES));
    asked.retain(|word| own.contains(word));
    asked
}

fn truncated(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

#[cfg(test)]
#[path = "knowledge_tests.rs"]
mod tests;
