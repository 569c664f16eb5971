use std::sync::Mutex;

use amalgam_core::{
    CallSummary, FaultKind, Operator, StoreError, TurnSummary,
    store::{DocumentListing, DocumentRecord, ImportCounts, NewDocument, Stored, Within},
};
use amalgam_core::{Rights, TenantState};
use amalgam_protocol::Usage;

use super::*;

/// A store that returns the same chunks for every search, and records the searches.
#[derive(Default)]
struct Shelves {
    collections: Vec<Collection>,
    chunks: Vec<FoundChunk>,
    broken: bool,
    asked: Mutex<Vec<(Vec<String>, usize, bool)>>,
    counted: Mutex<Vec<TurnSummary>>,
}

fn unasked<'a, T: Send + 'a>() -> Stored<'a, T> {
    Box::pin(async { Err(StoreError::Broken("not part of this test".to_owned())) })
}

impl KnowledgeStore for Shelves {
    fn count_calls(&self, _: Operator, summary: TurnSummary) -> Stored<'_, ()> {
        self.counted.lock().unwrap().push(summary);
        Box::pin(async { Ok(()) })
    }

    fn collections<'a>(&'a self, _: &'a Scope) -> Stored<'a, Vec<Collection>> {
        Box::pin(async { Ok(self.collections.clone()) })
    }

    fn search_knowledge<'a>(&'a self, _: &'a Scope, query: KnowledgeQuery<'a>) -> Stored<'a, Vec<FoundChunk>> {
        self.asked.lock().unwrap().push((query.words.to_vec(), query.limit, query.embeddings));
        let found = match self.broken {
            true => Err(StoreError::Busy),
            false => Ok(self.chunks.iter().take(query.limit).cloned().collect()),
        };
        Box::pin(async { found })
    }

    fn collections_within<'a>(&'a self, _: Within<'a>) -> Stored<'a, Vec<Collection>> {
        unasked()
    }

    fn documents_within<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: DocumentListing<'a>,
    ) -> Stored<'a, Vec<DocumentRecord>> {
        unasked()
    }

    fn put_documents<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: &'a str,
        _: Option<&'a str>,
        _: Vec<NewDocument>,
        _: u64,
    ) -> Stored<'a, Option<ImportCounts>> {
        unasked()
    }

    fn delete_documents<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: &'a str,
        _: &'a [String],
        _: u64,
    ) -> Stored<'a, u64> {
        unasked()
    }

    fn delete_collection<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, bool> {
        unasked()
    }
}

/// Gives every text the embedding (1, 0); models whose names begin with `bad` fail, and those with `silent` never
/// answer.
#[derive(Default)]
struct East(Mutex<Vec<String>>);

/// What embedding costs.
fn paid(model: &str) -> CallSummary {
    CallSummary {
        upstream: "east".to_owned(),
        model: model.to_owned(),
        asked_at_ms: 0,
        first_token_ms: None,
        duration_ms: 0,
        retries: 0,
        usage: Some(Usage { input_tokens: 5, ..Usage::default() }),
        cost: None,
        failed: false,
    }
}

struct Noon;

impl Clock for Noon {
    fn now_ms(&self) -> u64 {
        43_200_000
    }
}

impl Embedder for East {
    fn embed<'a>(&'a self, model: &'a str, texts: &'a [&'a str]) -> BoxFuture<'a, Result<EmbeddedTexts, Fault>> {
        self.0.lock().unwrap().push(model.to_owned());
        Box::pin(async move {
            match model {
                _ if model.starts_with("bad") => Err(Fault::new(FaultKind::UpstreamDown, "It is down.")),
                _ if model.starts_with("silent") => std::future::pending().await,
                _ => Ok(EmbeddedTexts { vectors: vec![vec![1.0, 0.0]; texts.len()], call: Some(paid(model)) }),
            }
        })
    }
}

fn collection(name: &str, embedding_model: Option<&str>) -> Collection {
    Collection {
        name: name.to_owned(),
        documents: 1,
        chunks: 1,
        embedding_model: embedding_model.map(str::to_owned),
        created_at_ms: 0,
        updated_at_ms: 0,
    }
}

fn chunk(collection: &str, path: &str, score: f64, embedding: Option<[f32; 2]>) -> FoundChunk {
    FoundChunk {
        id: path.to_owned(),
        collection: collection.to_owned(),
        path: path.to_owned(),
        language: "plaintext".to_owned(),
        attributes: Vec::new(),
        symbol: None,
        start_line: 1,
        end_line: 1,
        content: "text".to_owned(),
        score,
        ranking: amalgam_core::store::ChunkRanking::default(),
        embedding: embedding.map(Vec::from),
    }
}

/// Two pieces of which the second has fewer of the words and more of the meaning.
fn shelves(embedding_model: Option<&str>) -> Shelves {
    let chunks = vec![chunk("code", "words", 3.0, Some([0.0, 1.0])), chunk("code", "meaning", 2.0, Some([1.0, 0.0]))];
    Shelves { collections: vec![collection("code", embedding_model)], chunks, ..Shelves::default() }
}

#[expect(clippy::disallowed_methods, reason = "a test needs a caller without authentication")]
fn scope() -> Scope {
    Scope::authenticated(1, "u", TenantState::Stored, Rights::USE)
}

async fn find(shelves: Shelves, text: &str, collections: &[&str], limit: usize) -> (Vec<String>, Vec<String>) {
    find_with(&Arc::new(shelves), &Arc::default(), text, collections, limit).await
}

async fn find_with(
    shelves: &Arc<Shelves>,
    east: &Arc<East>,
    text: &str,
    collections: &[&str],
    limit: usize,
) -> (Vec<String>, Vec<String>) {
    let knowledge = Knowledge::new(
        Arc::clone(shelves) as Arc<dyn KnowledgeStore>,
        Arc::clone(east) as Arc<dyn Embedder>,
        Arc::new(Noon),
    );
    let collections: Vec<String> = collections.iter().map(|name| (*name).to_owned()).collect();
    let lookup = RetrievalQuery { text, collections: &collections, conditions: &[], limit };
    let found = knowledge.find(&scope(), lookup).await.unwrap();
    assert!(found.chunks.iter().all(|chunk| chunk.embedding.is_none()), "embeddings are for us alone");
    (found.chunks.into_iter().map(|chunk| chunk.path).collect(), found.warnings)
}

#[tokio::test]
async fn without_embeddings_words_alone_decide_and_no_upstream_is_asked() {
    let (shelves, east) = (Arc::new(shelves(None)), Arc::new(East::default()));
    let found = find_with(&shelves, &east, "parse requests", &[], 5).await;
    assert_eq!(found, (vec!["words".to_owned(), "meaning".to_owned()], vec![]));
    assert_eq!(*east.0.lock().unwrap(), Vec::<String>::new());
    assert_eq!(*shelves.asked.lock().unwrap(), [(question("parse requests"), 5, false)]);
}

#[tokio::test]
async fn with_embeddings_meaning_orders_what_words_have_found() {
    let (shelves, east) = (Arc::new(shelves(Some("m"))), Arc::new(East::default()));
    let (paths, warnings) = find_with(&shelves, &east, "parse requests", &["code"], 1).await;
    assert_eq!((paths, warnings), (vec!["meaning".to_owned()], vec![]));
    assert_eq!(*east.0.lock().unwrap(), ["m"]);
    assert_eq!(*shelves.asked.lock().unwrap(), [(question("parse requests"), CANDIDATES, true)]);
    let counted = shelves.counted.lock().unwrap();
    let [summary] = counted.as_slice() else { panic!("{counted:?}") };
    assert_eq!((&summary.calls, summary.created_at_ms, summary.stored), (&vec![paid("m")], 43_200_000, false));
}

#[tokio::test]
async fn collections_of_one_model_ask_it_once_and_those_that_are_not_meant_not_at_all() {
    let mut shelves = shelves(Some("m"));
    let more = [collection("docs", Some("m")), collection("plain", None), collection("other", Some("n"))];
    shelves.collections.extend(more);
    let (shelves, east) = (Arc::new(shelves), Arc::new(East::default()));
    find_with(&shelves, &east, "parse", &["code", "docs", "plain"], 5).await;
    assert_eq!(*east.0.lock().unwrap(), ["m"]);
    find_with(&shelves, &east, "parse", &[], 5).await;
    assert_eq!(*east.0.lock().unwrap(), ["m", "m", "n"]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_cannot_be_asked_leaves_the_order_of_the_words_and_a_warning() {
    for model in ["bad/model", "silent/model"] {
        let (paths, warnings) = find(shelves(Some(model)), "parse", &[], 5).await;
        assert_eq!(paths, ["words", "meaning"]);
        let expected =
            format!("The embedding model '{model}' could not be used; knowledge was searched by its words alone.");
        assert_eq!(warnings, [expected]);
    }
}

#[tokio::test]
async fn a_collection_that_is_not_there_is_told_and_the_others_are_searched() {
    let (paths, warnings) = find(shelves(None), "parse", &["code", "none"], 1).await;
    assert_eq!(
        (paths, warnings),
        (vec!["words".to_owned()], vec!["There is no knowledge collection 'none'.".to_owned()])
    );
}

#[tokio::test]
async fn a_question_without_words_finds_nothing_and_calls_no_embedder() {
    for text in ["", " \n", "?!", "the of and"] {
        let (shelves, east) = (Arc::new(shelves(Some("m"))), Arc::new(East::default()));
        assert_eq!(find_with(&shelves, &east, text, &[], 5).await, (vec![], vec![]), "{text}");
        assert_eq!((shelves.asked.lock().unwrap().len(), east.0.lock().unwrap().len()), (0, 0), "{text}");
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_a_fault() {
    let shelves = Arc::new(Shelves { broken: true, ..shelves(None) });
    let knowledge = Knowledge::new(shelves, Arc::new(East::default()), Arc::new(Noon));
    let lookup = RetrievalQuery { text: "parse", collections: &[], conditions: &[], limit: 5 };
    assert_eq!(knowledge.find(&scope(), lookup).await.unwrap_err().kind, FaultKind::StoreDown);
}
