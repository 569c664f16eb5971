//! Deletes collections of a tenant's knowledge, in batches.

use amalgam_core::{
    Store, StoreError,
    store::{DocumentListing, DocumentRecord, Within},
};

/// The number of documents per batch. Other writes run between batches.
const BATCH_SIZE: usize = 100;

/// Deletes a collection, or the documents of one of its sources, in batches.
pub struct DocumentDeletion<'a> {
    collection: &'a str,
    source: Option<&'a str>,
    /// The last document that was deleted.
    last: Option<(String, String)>,
    finished: bool,
}

impl<'a> DocumentDeletion<'a> {
    /// Deletes the whole collection, or only the documents of `source`.
    pub fn of(collection: &'a str, source: Option<&'a str>) -> Self {
        Self { collection, source, last: None, finished: false }
    }

    /// Deletes one batch of documents, and the collection itself after the last batch. Returns their number, or none
    /// when nothing is left.
    pub async fn delete_batch(
        &mut self,
        store: &dyn Store,
        within: Within<'_>,
        now_ms: u64,
    ) -> Result<Option<u64>, StoreError> {
        if self.finished {
            return Ok(None);
        }
        let after = self.last.as_ref().map(|(source, path)| (source.as_str(), path.as_str()));
        let listing = DocumentListing { source: self.source, after, limit: BATCH_SIZE };
        let page = store.documents_within(within, self.collection, listing).await?;
        let mut deleted = 0;
        for documents in page.chunk_by(|left, right| left.source == right.source) {
            let paths: Vec<String> = documents.iter().map(|document| document.path.clone()).collect();
            let Some(first) = documents.first() else { continue };
            deleted += store.delete_documents(within, self.collection, &first.source, &paths, now_ms).await?;
        }
        if page.len() < BATCH_SIZE {
            self.finished = true;
            if self.source.is_none() {
                store.delete_collection(within, self.collection).await?;
            }
        }
        self.last = page.into_iter().next_back().map(|document| (document.source, document.path));
        Ok(Some(deleted))
    }
}

/// The id of a document in lists. No source has a colon in its name.
pub fn document_id(document: &DocumentRecord) -> String {
    format!("{}:{}", document.source, document.path)
}
