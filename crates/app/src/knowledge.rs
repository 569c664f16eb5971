//! The one way to look things up in a tenant's knowledge: by words, and by meaning where a collection has embeddings.
//!
//! Words choose the candidates, meaning orders them anew. Whatever keeps the meaning away (an upstream that fails, a model
//! that is no longer configured) leaves the order of the words and is told as a warning: no turn fails for it.

mod collections;
mod rank;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use amalgam_core::{
    BoxFuture, Embedder, Fault, Retrieval, RetrievalQuery, RetrievalResult, Scope, knowledge,
    store::{Collection, FoundChunk, KnowledgeQuery, KnowledgeStore},
};
use futures_util::future::join_all;

pub use collections::{Forgetting, document_id};

/// How many pieces meaning chooses from.
const CANDIDATES: usize = 200;
/// How long a turn waits for the place of its question.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of a question is looked at.
const QUESTION_BYTES: usize = 32 * 1024;
/// How much of it is given a place: models take a few thousand tokens.
const PLACED_BYTES: usize = 8 * 1024;

/// Searches the knowledge in a store; the embedder turns questions into vectors.
pub struct Knowledge {
    store: Arc<dyn KnowledgeStore>,
    embedder: Arc<dyn Embedder>,
}

impl Knowledge {
    /// Over this store and these upstreams.
    pub fn new(store: Arc<dyn KnowledgeStore>, embedder: Arc<dyn Embedder>) -> Self {
        Self { store, embedder }
    }

    async fn look(&self, scope: &Scope, lookup: RetrievalQuery<'_>) -> Result<RetrievalResult, Fault> {
        let collections = self.store.collections(scope).await?;
        let mut warnings: Vec<String> = unknown(&collections, lookup.collections).map(no_such).collect();
        let words = knowledge::question(beginning(lookup.text, QUESTION_BYTES));
        if words.is_empty() || lookup.limit == 0 || collections.is_empty() {
            return Ok(RetrievalResult { chunks: Vec::new(), warnings });
        }
        let asked =
            |collection: &&Collection| lookup.collections.is_empty() || lookup.collections.contains(&collection.name);
        let models: BTreeMap<&str, &str> = collections
            .iter()
            .filter(asked)
            .filter_map(|collection| Some((collection.name.as_str(), collection.embedding_model.as_deref()?)))
            .collect();
        let query = KnowledgeQuery {
            collections: lookup.collections,
            words: &words,
            conditions: lookup.conditions,
            limit: if models.is_empty() { lookup.limit } else { lookup.limit.max(CANDIDATES) },
            embeddings: !models.is_empty(),
        };
        let (found, places) =
            tokio::join!(self.store.search_knowledge(scope, query), self.places(&models, lookup.text));
        let mut chunks: Vec<FoundChunk> = found?;
        let mut known: BTreeMap<&str, Vec<f32>> = BTreeMap::new();
        for (model, place) in places {
            match place {
                Ok(place) => drop(known.insert(model, place)),
                Err(warning) => warnings.push(warning),
            }
        }
        let place_in = |collection: &str| known.get(models.get(collection)?).map(Vec::as_slice);
        rank::by_meaning(&mut chunks, place_in);
        chunks.truncate(lookup.limit);
        chunks.iter_mut().for_each(|chunk| chunk.embedding = None);
        Ok(RetrievalResult { chunks, warnings })
    }

    /// The place of a question in the space of each model, or why it has none.
    async fn places<'m>(
        &self,
        models: &BTreeMap<&str, &'m str>,
        text: &str,
    ) -> Vec<(&'m str, Result<Vec<f32>, String>)> {
        let mut names: Vec<&'m str> = models.values().copied().collect();
        names.sort_unstable();
        names.dedup();
        let texts = [beginning(text, PLACED_BYTES)];
        let place = async |model: &'m str| (model, self.place(model, &texts).await);
        join_all(names.into_iter().map(place)).await
    }

    async fn place(&self, model: &str, texts: &[&str]) -> Result<Vec<f32>, String> {
        let detail = match tokio::time::timeout(PATIENCE, self.embedder.embed(model, texts)).await {
            Ok(Ok(mut places)) if places.len() == 1 => return Ok(places.swap_remove(0)),
            Ok(Ok(places)) => format!("{} places for one question", places.len()),
            Ok(Err(fault)) => fault.into_detail(),
            Err(_elapsed) => format!("no answer within {PATIENCE:?}"),
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
        Box::pin(self.look(scope, lookup))
    }
}

/// The names that no collection has.
fn unknown<'a>(collections: &'a [Collection], asked: &'a [String]) -> impl Iterator<Item = &'a str> {
    let is_known = |name: &str| collections.iter().any(|collection| collection.name == name);
    asked.iter().map(String::as_str).filter(move |name| !is_known(name))
}

fn no_such(name: &str) -> String {
    let shown: String = name.chars().take(64).collect();
    format!("There is no knowledge collection '{shown}'.")
}

fn beginning(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

#[cfg(test)]
#[path = "knowledge_tests.rs"]
mod tests;
