//! Brings one file into a tenant's knowledge, as an import does with the files of a folder.

use std::sync::Arc;

use amalgam_core::{
    Clock, Embedder, Fault, FaultKind, Store,
    store::{DocumentRecord, Within},
};
use amalgam_knowledge::{DocumentText, FileContent, ImportSettings};

use super::{ImportError, ImportTotals, KnowledgeImport, WriteThrottle};

/// The maximum size of a file that is uploaded, and by default of one that is imported. Larger ones are rarely written by hand.
pub const DOCUMENT_BYTES: u64 = 2 * 1024 * 1024;

/// The maximum length of a document's path, in bytes.
pub const PATH_BYTES: usize = 440;

/// A file for a collection.
#[derive(Debug)]
pub struct DocumentUpload {
    /// The collection; created if there is none.
    pub collection: String,
    /// The source that the document belongs to.
    pub source: String,
    /// Its path in the source; a document of this path is replaced.
    pub path: String,
    /// Its attributes, ordered by name.
    pub attributes: Vec<(String, String)>,
    /// The file.
    pub content: Vec<u8>,
}

/// What became of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadOutcome {
    /// There was none of its source and path.
    Created,
    /// It has taken the place of the one before.
    Updated,
    /// It was there like this.
    Unchanged,
}

impl DocumentUpload {
    /// Writes the document with its chunks and, if the collection has an embedding model, their embeddings.
    pub async fn write(
        self,
        store: &dyn Store,
        embedder: &dyn Embedder,
        clock: &dyn Clock,
        within: Within<'_>,
    ) -> Result<(DocumentRecord, UploadOutcome), Fault> {
        let collections = store.collections_within(within).await?;
        let model = collections.into_iter().find(|one| one.name == self.collection).and_then(|one| one.embedding_model);
        let settings = Arc::new(ImportSettings { attributes: self.attributes, model, max_bytes: DOCUMENT_BYTES });
        let (source, path, content, chunked_by) = (self.source, self.path, self.content, Arc::clone(&settings));
        // Chunking a large file takes longer than a task may hold its thread.
        let chunking = tokio::task::spawn_blocking(move || {
            let text = text_of(content)?;
            let file = DocumentText { path: &path, source: &source, text: &text };
            let document = file.document(&chunked_by, file.digest(&chunked_by));
            Ok::<_, Fault>((source, document))
        });
        let (source, document) = chunking.await.map_err(|_| Fault::internal("a document could not be chunked"))??;
        let record = DocumentRecord {
            source: source.clone(),
            path: document.path.clone(),
            digest: document.digest,
            language: document.language.clone(),
            attributes: document.attributes.clone(),
            chunks: document.chunks.len() as u64,
            updated_at_ms: clock.now_ms(),
        };
        let mut totals = ImportTotals::default();
        let mut import = KnowledgeImport {
            store,
            within,
            collection: &self.collection,
            embedder,
            settings,
            throttle: WriteThrottle::none(),
            clock,
        };
        import.write(&source, vec![document], &mut totals).await.map_err(fault)?;
        let outcome = match totals {
            ImportTotals { created: 1, .. } => UploadOutcome::Created,
            ImportTotals { updated: 1, .. } => UploadOutcome::Updated,
            _ => UploadOutcome::Unchanged,
        };
        Ok((record, outcome))
    }
}

fn text_of(content: Vec<u8>) -> Result<String, Fault> {
    let invalid = |why: &str| Fault::invalid("file", format!("The file {why}.")).code("invalid_value");
    match FileContent::of(content, DOCUMENT_BYTES) {
        FileContent::Text(text) => Ok(text),
        FileContent::Binary => Err(invalid("is not text in UTF-8")),
        FileContent::Empty => Err(invalid("has no text")),
        FileContent::Large => {
            let message = format!("The file is larger than {DOCUMENT_BYTES} bytes.");
            Err(Fault::new(FaultKind::TooLarge, message).param("file"))
        }
    }
}

fn fault(error: ImportError) -> Fault {
    let message = "The embedding model of the collection could not be used; the document was not stored.";
    match error {
        ImportError::Store(error) => error.into(),
        ImportError::NoTenant => Fault::new(FaultKind::NotFound, "The tenant was deleted."),
        ImportError::NoEmbeddings { .. } | ImportError::Miscounted { .. } => {
            Fault::new(FaultKind::UpstreamDown, message).detail(error.to_string())
        }
        ImportError::Unreadable(..) | ImportError::Ambiguous { .. } | ImportError::Reader(_) => {
            Fault::internal("a document could not be imported").detail(error.to_string())
        }
    }
}
