//! What administrators see of a tenant's knowledge, and how it is forgotten.

use std::collections::BTreeMap;

use amalgam_core::{
    Store, StoreError,
    store::{Collection, DocumentListing, DocumentRecord, Within},
};
use amalgam_protocol::Json;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::wires::{CollectionKind, DocumentKind, UnixSeconds, json};

/// How many documents are forgotten at once: others write in between.
const AT_ONCE: usize = 100;

/// Forgets a collection, or the documents of one source of it, bit by bit.
pub struct Forgetting<'a> {
    collection: &'a str,
    source: Option<&'a str>,
    /// The last document that is gone.
    last: Option<(String, String)>,
    over: bool,
}

impl<'a> Forgetting<'a> {
    /// All of the collection, or with a source what that has brought into it.
    pub fn of(collection: &'a str, source: Option<&'a str>) -> Self {
        Self { collection, source, last: None, over: false }
    }

    /// Forgets some documents, and behind the last of them the collection itself; how many, or nothing once all are gone.
    pub async fn go_on(
        &mut self,
        store: &dyn Store,
        within: Within<'_>,
        now_ms: u64,
    ) -> Result<Option<u64>, StoreError> {
        if self.over {
            return Ok(None);
        }
        let after = self.last.as_ref().map(|(source, path)| (source.as_str(), path.as_str()));
        let listing = DocumentListing { source: self.source, after, limit: AT_ONCE };
        let page = store.documents_within(within, self.collection, listing).await?;
        let mut gone = 0;
        for documents in page.chunk_by(|one, other| one.source == other.source) {
            let paths: Vec<String> = documents.iter().map(|document| document.path.clone()).collect();
            let Some(first) = documents.first() else { continue };
            gone += store.delete_documents(within, self.collection, &first.source, &paths, now_ms).await?;
        }
        if page.len() < AT_ONCE {
            self.over = true;
            if self.source.is_none() {
                store.delete_collection(within, self.collection).await?;
            }
        }
        self.last = page.into_iter().next_back().map(|document| (document.source, document.path));
        Ok(Some(gone))
    }
}

/// A set of documents.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeCollection")]
pub(crate) struct CollectionView<'a> {
    /// The name of the collection; unique within its tenant.
    name: &'a str,
    object: CollectionKind,
    /// The number of documents.
    documents: u64,
    /// The number of chunks.
    chunks: u64,
    /// The model that computed the embeddings; null if the collection is searched by words only.
    embedding_model: Option<&'a str>,
    created_at: UnixSeconds,
    updated_at: UnixSeconds,
}

/// An imported file.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeDocument")]
pub(crate) struct DocumentView<'a> {
    /// Source and path, separated by a colon.
    id: String,
    object: DocumentKind,
    /// The source of the import, such as a folder.
    source: &'a str,
    /// The path within the source.
    path: &'a str,
    /// Derived from the file extension.
    language: &'a str,
    /// Further attributes, such as `repo`; search conditions can use them.
    #[serde(serialize_with = "as_object")]
    #[schemars(with = "BTreeMap<String, String>")]
    attributes: &'a [(String, String)],
    /// The number of chunks.
    chunks: u64,
    updated_at: UnixSeconds,
}

impl<'a> From<&'a Collection> for CollectionView<'a> {
    fn from(collection: &'a Collection) -> Self {
        Self {
            name: &collection.name,
            object: CollectionKind,
            documents: collection.documents,
            chunks: collection.chunks,
            embedding_model: collection.embedding_model.as_deref(),
            created_at: UnixSeconds::from_ms(collection.created_at_ms),
            updated_at: UnixSeconds::from_ms(collection.updated_at_ms),
        }
    }
}

impl<'a> From<&'a DocumentRecord> for DocumentView<'a> {
    fn from(document: &'a DocumentRecord) -> Self {
        Self {
            id: document_id(document),
            object: DocumentKind,
            source: &document.source,
            path: &document.path,
            language: &document.language,
            attributes: &document.attributes,
            chunks: document.chunks,
            updated_at: UnixSeconds::from_ms(document.updated_at_ms),
        }
    }
}

/// Pairs as an object, in their order.
fn as_object<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// A collection as administrators see it: a JSON object.
pub fn show_collection(collection: &Collection) -> Json {
    json(&CollectionView::from(collection))
}

/// A document as administrators see it: a JSON object.
pub fn show_document(document: &DocumentRecord) -> Json {
    json(&DocumentView::from(document))
}

/// What a document is known by in lists. No source has a colon in its name.
pub(crate) fn document_id(document: &DocumentRecord) -> String {
    format!("{}:{}", document.source, document.path)
}
