//! Deletes collections of a tenant's knowledge, bit by bit.

use amalgam_core::{
    Store, StoreError,
    store::{DocumentListing, DocumentRecord, Within},
};

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

/// What a document is known by in lists. No source has a colon in its name.
pub fn document_id(document: &DocumentRecord) -> String {
    format!("{}:{}", document.source, document.path)
}
