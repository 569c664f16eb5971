//! A tenant's collections and documents. Documents are imported on the command line.

use std::collections::BTreeMap;

use amalgam_app::{
    is_id,
    knowledge::{DocumentDeletion, document_id},
    no_such_cursor, not_found,
};
use amalgam_core::{
    AuditAction, Fault, Operator, Scope,
    store::{Collection, DocumentListing, DocumentRecord, Page},
};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::{Administration, access::within, audit::snapshot, fields::UnixSeconds, list::List};

/// The collection in not-found errors.
const COLLECTION: &str = "Knowledge collection";
/// The source in not-found errors.
const SOURCE: &str = "Knowledge source";

const DELETE: AuditAction = AuditAction::new("knowledge.delete");

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
