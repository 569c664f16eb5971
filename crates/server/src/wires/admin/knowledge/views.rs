//! Collections and documents as administrators see them.

use std::collections::BTreeMap;

use amalgam_app::knowledge::document_id;
use amalgam_core::store::{Collection, DocumentRecord};
use amalgam_protocol::Json;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::wires::admin::{
    fields::{CollectionKind, DocumentKind, UnixSeconds},
    json,
};

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
