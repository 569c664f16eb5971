//! A tenant's collections and documents. Documents are imported on the command line.

use std::collections::BTreeMap;

use amalgam_app::{
    Application, is_id,
    knowledge::{DocumentDeletion, DocumentUpload, UploadOutcome, check_name, document_id, matched_words},
    no_such_cursor, not_found,
};
use amalgam_core::{
    AuditAction, Fault, Operator, Retrieval, RetrievalQuery, RetrievalResult, Scope,
    store::{Collection, DocumentListing, DocumentRecord, FoundChunk, Page},
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use super::{
    Administration,
    access::within,
    audit::snapshot,
    fields::{Prose, Texts, UnixSeconds},
    list::List,
    request::{self, wrong},
};

/// The collection in not-found errors.
const COLLECTION: &str = "Knowledge collection";
/// The source in not-found errors.
const SOURCE: &str = "Knowledge source";

/// The document in not-found errors.
const DOCUMENT: &str = "Knowledge document";

const DELETE: AuditAction = AuditAction::new("knowledge.delete");

/// Files are about to be imported into a collection.
pub const IMPORT: AuditAction = AuditAction::new("knowledge.import");

/// The results of a search, as agents get them by default and at most.
const DEFAULT_RESULTS: usize = 8;
const MOST_RESULTS: usize = 50;
/// The collections that a search names at most.
const MOST_COLLECTIONS: usize = 100;

/// A set of documents.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeCollection")]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct CollectionView {
    /// The name of the collection; unique within its tenant.
    pub name: String,
    #[schemars(extend("const" = "knowledge.collection"))]
    object: &'static str,
    /// The number of documents.
    pub documents: u64,
    /// The number of chunks.
    pub chunks: u64,
    /// The model that computed the embeddings; null if the collection is searched by words only.
    pub embedding_model: Option<String>,
    created_at: UnixSeconds,
    pub updated_at: UnixSeconds,
}

/// An imported file.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeDocument")]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct DocumentView {
    /// Source and path, separated by a colon.
    id: String,
    #[schemars(extend("const" = "knowledge.document"))]
    object: &'static str,
    /// The source of the import, such as a folder.
    pub source: String,
    /// The path within the source.
    pub path: String,
    /// Derived from the file extension.
    pub language: String,
    /// Further attributes, such as `repo`; search conditions can use them.
    #[serde(serialize_with = "as_object")]
    #[schemars(with = "BTreeMap<String, String>")]
    attributes: Vec<(String, String)>,
    /// The number of chunks.
    pub chunks: u64,
    pub updated_at: UnixSeconds,
}

/// A search of the tenant's knowledge.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchKnowledge {
    /// What is looked for.
    query: Prose<1000>,
    /// The only collections to search; all by default.
    #[schemars(with = "Option<Vec<String>>")]
    collections: Option<Texts>,
    /// The maximum number of chunks, from 1 to 50; 8 by default.
    limit: Option<usize>,
}

/// What a search has found.
#[derive(Serialize, JsonSchema)]
pub struct KnowledgeSearchResult {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    /// The chunks, the best first.
    pub data: Vec<FoundChunkView>,
    /// Why results may be missing.
    pub warnings: Vec<String>,
}

/// A part of a document that was found, and why.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FoundChunk")]
pub struct FoundChunkView {
    /// The id of the chunk; another one after its document was imported anew.
    id: String,
    #[schemars(extend("const" = "knowledge.chunk"))]
    object: &'static str,
    /// The collection.
    pub collection: String,
    /// The path of the document.
    pub path: String,
    /// The language of the document.
    language: String,
    /// Further attributes of the document.
    #[serde(serialize_with = "as_object")]
    #[schemars(with = "BTreeMap<String, String>")]
    attributes: Vec<(String, String)>,
    /// What the chunk is, such as the name of a function.
    pub symbol: Option<String>,
    /// The first line, from 1.
    pub start_line: u64,
    /// The last line.
    pub end_line: u64,
    /// The text.
    pub content: String,
    /// How well it fits; more is better.
    pub score: f64,
    /// The words of the question that the chunk has, as stems.
    pub matched_words: Vec<String>,
    /// How well its words fit; rare words count more.
    pub word_score: f64,
    /// How close its meaning is to the question's, from 0 to 1; null without embeddings.
    pub similarity: Option<f64>,
}

impl FoundChunkView {
    fn of(chunk: FoundChunk, text: &str) -> Self {
        Self {
            object: "knowledge.chunk",
            matched_words: matched_words(text, &chunk),
            word_score: chunk.ranking.word_score,
            similarity: chunk.ranking.similarity,
            id: chunk.id,
            collection: chunk.collection,
            path: chunk.path,
            language: chunk.language,
            attributes: chunk.attributes,
            symbol: chunk.symbol,
            start_line: chunk.start_line,
            end_line: chunk.end_line,
            content: chunk.content,
            score: chunk.score,
        }
    }
}

impl From<Collection> for CollectionView {
    fn from(collection: Collection) -> Self {
        Self {
            name: collection.name,
            object: "knowledge.collection",
            documents: collection.documents,
            chunks: collection.chunks,
            embedding_model: collection.embedding_model,
            created_at: UnixSeconds::from_ms(collection.created_at_ms),
            updated_at: UnixSeconds::from_ms(collection.updated_at_ms),
        }
    }
}

impl From<DocumentRecord> for DocumentView {
    fn from(document: DocumentRecord) -> Self {
        Self {
            id: document_id(&document),
            object: "knowledge.document",
            source: document.source,
            path: document.path,
            language: document.language,
            attributes: document.attributes,
            chunks: document.chunks,
            updated_at: UnixSeconds::from_ms(document.updated_at_ms),
        }
    }
}

/// Pairs as an object, in their order.
fn as_object<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

impl Administration<'_> {
    /// Collections ordered by name.
    pub async fn collections(&self, scope: &Scope, page: &Page) -> Result<List<CollectionView, String>, Fault> {
        let mut collections = self.store.collections_within(within(scope)?).await?;
        if let Some(after) = &page.after {
            collections.retain(|collection| collection.name > *after);
        }
        let views = collections.into_iter().map(CollectionView::from).collect();
        Ok(List::new(views, page.limit, |collection| collection.name.clone()))
    }

    /// One collection.
    pub async fn collection(&self, scope: &Scope, name: &str) -> Result<CollectionView, Fault> {
        let collections = self.store.collections_within(within(scope)?).await?;
        let found = collections.into_iter().find(|collection| collection.name == name);
        Ok(found.ok_or_else(|| not_found(COLLECTION, name))?.into())
    }

    /// Deletes a collection with all its documents; with `source` only the documents of that source.
    pub async fn delete_collection(&self, scope: &Scope, name: &str, source: Option<&str>) -> Result<(), Fault> {
        let collection = self.collection(scope, name).await?;
        let source_known = known_source(source)?;
        self.announce_deletion(scope.tenant_id(), &collection, source_known).await?;
        let mut deletion = DocumentDeletion::of(name, source_known);
        let mut deleted = 0;
        while let Some(more) = deletion.delete_batch(self.store, within(scope)?, self.now_ms).await? {
            deleted += more;
        }
        match source {
            Some(source) if deleted == 0 => Err(not_found(SOURCE, source)),
            _ => Ok(()),
        }
    }

    /// Records in the audit that a collection, or the documents of one source, are about to be deleted.
    pub async fn announce_deletion(
        &self,
        tenant_id: i64,
        collection: &CollectionView,
        source: Option<&str>,
    ) -> Result<(), Fault> {
        let after = source.map(|source| json!({"source": source, "deleted": true}));
        let draft = self.change(tenant_id, DELETE, collection.name.as_str()).before(snapshot(collection));
        let draft = draft.after(after.and_then(|after| snapshot(&after)));
        Ok(self.store.append_audit(Operator::of_this_process(), draft).await?)
    }

    /// Stores one file as a document of a collection, which is created if there is none; true if the document is new.
    pub async fn upload_document(
        &self,
        scope: &Scope,
        app: &Application,
        upload: DocumentUpload,
    ) -> Result<(DocumentView, bool), Fault> {
        let within = within(scope)?;
        let details = json!({"sources": [upload.source], "path": upload.path, "bytes": upload.content.len()});
        self.announce(scope.tenant_id(), IMPORT, &upload.collection, &details).await?;
        let (record, outcome) = upload.write(self.store, &*app.embedder, &*app.clock, within).await?;
        Ok((record.into(), outcome == UploadOutcome::Created))
    }

    /// Deletes one document, by the id that lists show.
    pub async fn delete_document(&self, scope: &Scope, name: &str, id: &str) -> Result<(), Fault> {
        let within = within(scope)?;
        let missing = || not_found(DOCUMENT, id);
        let (source, path) = id.split_once(':').filter(|(source, _)| check_name(source).is_ok()).ok_or_else(missing)?;
        let collection = self.collection(scope, name).await?;
        let before = json!({"collection": collection.name, "document": id});
        let draft = self.change(scope.tenant_id(), DELETE, name).before(snapshot(&before));
        let paths = [path.to_owned()];
        match path.contains('\0') {
            true => Err(missing()),
            false => match self.store.delete_documents(within, name, source, &paths, self.now_ms).await? {
                0 => Err(missing()),
                _ => Ok(self.store.append_audit(Operator::of_this_process(), draft).await?),
            },
        }
    }

    /// Searches as an agent does, and says why each chunk was found.
    pub async fn search_knowledge(
        &self,
        scope: &Scope,
        retrieval: &dyn Retrieval,
        query: RetrievalQuery<'_>,
    ) -> Result<KnowledgeSearchResult, Fault> {
        within(scope)?;
        let text = query.text;
        let RetrievalResult { chunks, warnings } = retrieval.find(scope, query).await?;
        let data = chunks.into_iter().map(|chunk| FoundChunkView::of(chunk, text)).collect();
        Ok(KnowledgeSearchResult { object: "list", data, warnings })
    }

    /// The same for the body of a request.
    pub async fn search_knowledge_from(
        &self,
        scope: &Scope,
        retrieval: &dyn Retrieval,
        body: &Bytes,
    ) -> Result<KnowledgeSearchResult, Fault> {
        let SearchKnowledge { query, collections, limit } = request::parse(body)?;
        let limit = match limit.unwrap_or(DEFAULT_RESULTS) {
            limit @ 1..=MOST_RESULTS => limit,
            _ => return Err(wrong("limit", &format!("must be a whole number from 1 to {MOST_RESULTS}"))),
        };
        let collections = collections.map_or_else(Vec::new, |collections| collections.0);
        if collections.len() > MOST_COLLECTIONS {
            return Err(wrong("collections", &format!("at most {MOST_COLLECTIONS} are allowed")));
        }
        let query = RetrievalQuery { text: &query.0, collections: &collections, conditions: &[], limit };
        self.search_knowledge(scope, retrieval, query).await
    }

    /// Documents of a collection ordered by source and path; with `source` only those of that source.
    pub async fn documents(
        &self,
        scope: &Scope,
        name: &str,
        source: Option<&str>,
        page: &Page,
    ) -> Result<List<DocumentView, String>, Fault> {
        let after = page.after.as_deref();
        let after =
            after.map(|after| after.split_once(':').ok_or_else(|| no_such_cursor("after", after))).transpose()?;
        self.collection(scope, name).await?;
        let listing = DocumentListing { source: known_source(source)?, after, limit: page.limit + 1 };
        let documents = self.store.documents_within(within(scope)?, name, listing).await?;
        let views = documents.into_iter().map(DocumentView::from).collect();
        Ok(List::new(views, page.limit, |document| document.id.clone()))
    }
}

/// A source that can exist. Any other is reported as not found, like an unknown one.
fn known_source(source: Option<&str>) -> Result<Option<&str>, Fault> {
    match source {
        Some(source) if !is_id(source) => Err(not_found(SOURCE, source)),
        source => Ok(source),
    }
}
