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

/// Documents that belong together.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeCollection")]
pub(crate) struct CollectionView<'a> {
    /// What it is asked for by; unique in its tenant.
    name: &'a str,
    object: CollectionKind,
    /// How many documents it has.
    documents: u64,
    /// How many pieces they have.
    chunks: u64,
    /// The model that its pieces were given a place by; null where they are found by words alone.
    embedding_model: Option<&'a str>,
    created_at: UnixSeconds,
    updated_at: UnixSeconds,
}

/// A file that was brought in.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KnowledgeDocument")]
pub(crate) struct DocumentView<'a> {
    /// Source and path, with a colon between them.
    id: String,
    object: DocumentKind,
    /// What it was brought in with, such as one folder.
    source: &'a str,
    /// Where it is in its source.
    path: &'a str,
    /// By the end of its name.
    language: &'a str,
    /// What else is known about it, such as `repo`; conditions of a search ask for these.
    #[serde(serialize_with = "as_object")]
    #[schemars(with = "BTreeMap<String, String>")]
    attributes: &'a [(String, String)],
    /// How many pieces it has.
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
