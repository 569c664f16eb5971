//! Imports files into a tenant's knowledge: writes changed files of a source, and deletes the documents of removed files.
//!
//! One thread reads and chunks files while the store writes. Only a few batches are in memory at a time, whatever the
//! number of files; of the others only path and digest.

mod reader;
mod sources;

use std::{collections::HashMap, io, path::PathBuf, sync::Arc, time::Duration};

use amalgam_core::{
    Clock, EmbeddedTexts, Embedder, Fault, FaultKind, Store, StoreError,
    store::{DocumentListing, NewDocument, Within},
};
use amalgam_knowledge::ImportSettings;
use tokio::sync::mpsc;

use super::{EMBEDDED_BYTES, WriteThrottle, embedding_usage::count_import};
use reader::{BATCH_DOCUMENTS, SourceState, read_source};

pub use sources::{IgnoreRules, ImportSource, gather_sources};

/// The documents of one page of the store.
const PAGE: usize = 1_000;
/// How often an overloaded upstream is called for one batch, beyond the retries of each call.
const TRIES: u32 = 5;
/// The longest pause between two of these calls.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How many unreadable files are reported one by one.
const REPORTED: u64 = 20;

/// The counts of an import.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ImportTotals {
    /// New documents.
    pub created: u64,
    /// Documents whose file has changed.
    pub updated: u64,
    /// Documents whose file has not changed.
    pub unchanged: u64,
    /// Documents whose file was removed.
    pub deleted: u64,
    /// Files that are not text in UTF-8.
    pub binary: u64,
    /// Files over the size limit.
    pub large: u64,
    /// Files without text.
    pub empty: u64,
    /// Files whose name is not text, or too long.
    pub misnamed: u64,
    /// Files and folders that could not be read; their documents stay.
    pub unreadable: u64,
}

impl ImportTotals {
    /// Files that were read and not imported.
    pub fn skipped(&self) -> u64 {
        self.binary + self.large + self.empty + self.misnamed
    }
}

/// Why an import stopped. What was written before stays, and the next import continues from there.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A path of the import cannot be read.
    #[error("reading {}", .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    /// Two folders of one source have a file of the same name.
    #[error(
        "{file} is in {} and in {}, which cannot both be the source {name}: give each a --source of its own",
        .folders[0].display(),
        .folders[1].display()
    )]
    Ambiguous {
        /// The path of the file in both folders.
        file: String,
        /// The folders.
        folders: [PathBuf; 2],
        /// The name of the source.
        name: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another process deleted the tenant.
    #[error("the tenant is gone")]
    NoTenant,
    /// The upstream returned no embeddings.
    #[error(
        "requesting embeddings from {model}; imported documents are kept, and the next import continues from there: {reason}"
    )]
    NoEmbeddings {
        /// The embedding model.
        model: String,
        /// The upstream's fault.
        reason: String,
    },
    /// The upstream returned embeddings for other texts than were sent.
    #[error("{model} gave {given} embeddings for {texts} texts")]
    Miscounted {
        /// The embedding model.
        model: String,
        /// How many embeddings it returned.
        given: usize,
        /// How many texts it was sent.
        texts: usize,
    },
    /// The reading thread panicked.
    #[error("reading the files")]
    Reader(#[from] tokio::task::JoinError),
}

/// Receives the progress of an import.
pub trait ImportObserver {
    /// Reports that this many more files are done.
    fn done(&mut self, files: usize);

    /// A file or folder cannot be read: its path and the reason.
    fn unreadable(&mut self, what: &str);
}

/// An import into one collection.
pub struct KnowledgeImport<'a> {
    /// The store that it writes to.
    pub store: &'a dyn Store,
    /// The tenant.
    pub within: Within<'a>,
    /// The collection's name.
    pub collection: &'a str,
    /// Embeds the chunks.
    pub embedder: &'a dyn Embedder,
    /// The settings that all documents share.
    pub settings: Arc<ImportSettings>,
    /// Pauses between writes.
    pub throttle: WriteThrottle,
    /// The time of the writes.
    pub clock: &'a dyn Clock,
}

impl KnowledgeImport<'_> {
    /// Brings the documents of one source up to date.
    pub async fn run(
        &mut self,
        mut source: ImportSource,
        totals: &mut ImportTotals,
        observer: &mut dyn ImportObserver,
    ) -> Result<(), ImportError> {
        let known = self.known(&source.name).await?;
        let (name, whole) = (source.name.clone(), source.whole);
        let complete = source.unreadable.is_empty();
        for what in source.unreadable.drain(..) {
            totals.unreadable += 1;
            if totals.unreadable <= REPORTED {
                observer.unreadable(&what);
            }
        }
        totals.misnamed += source.misnamed;
        // The channel is full while the store writes: then the reader waits.
        let (sender, mut batches) = mpsc::channel(1);
        let settings = Arc::clone(&self.settings);
        let reader = tokio::task::spawn_blocking(move || read_source(&source, known, &settings, &sender));
        while let Some(batch) = batches.recv().await {
            batch.unreadable.iter().for_each(|what| observer.unreadable(what));
            self.write(&name, batch.documents, totals).await?;
            observer.done(batch.files);
        }
        let SourceState { totals: read, removed } = reader.await?;
        totals.unchanged += read.unchanged;
        totals.binary += read.binary;
        totals.large += read.large;
        totals.empty += read.empty;
        totals.unreadable += read.unreadable;
        if whole && complete {
            for paths in removed.chunks(BATCH_DOCUMENTS) {
                let now_ms = self.clock.now_ms();
                let deleted = self.store.delete_documents(self.within, self.collection, &name, paths, now_ms);
                totals.deleted += self.throttle.write(deleted).await?;
            }
        }
        Ok(())
    }

    /// The digests of a source's documents, by their paths.
    async fn known(&self, source: &str) -> Result<HashMap<String, [u8; 32]>, StoreError> {
        let mut known = HashMap::new();
        let mut last: Option<String> = None;
        loop {
            let after = last.as_deref().map(|path| (source, path));
            let listing = DocumentListing { source: Some(source), after, limit: PAGE };
            let page = self.store.documents_within(self.within, self.collection, listing).await?;
            let full = page.len() == PAGE;
            last = page.last().map(|document| document.path.clone());
            known.extend(page.into_iter().map(|document| (document.path, document.digest)));
            if !full {
                return Ok(known);
            }
        }
    }

    pub(super) async fn write(
        &mut self,
        source: &str,
        mut documents: Vec<NewDocument>,
        totals: &mut ImportTotals,
    ) -> Result<(), ImportError> {
        if documents.is_empty() {
            return Ok(());
        }
        let settings = Arc::clone(&self.settings);
        let model = settings.model.as_deref();
        if let Some(model) = model {
            self.embed_chunks(model, &mut documents).await?;
        }
        let now_ms = self.clock.now_ms();
        let put = self.store.put_documents(self.within, self.collection, source, model, documents, now_ms);
        let imported = self.throttle.write(put).await?.ok_or(ImportError::NoTenant)?;
        totals.created += imported.created;
        totals.updated += imported.updated;
        totals.unchanged += imported.unchanged;
        Ok(())
    }

    /// Adds the embedding of every chunk.
    async fn embed_chunks(&self, model: &str, documents: &mut [NewDocument]) -> Result<(), ImportError> {
        let texts: Vec<String> = documents
            .iter()
            .flat_map(|document| document.chunks.iter().map(|chunk| (&document.path, chunk)))
            .map(|(path, chunk)| {
                // A chunk's path often describes its subject better than its text.
                let mut text = format!("{path} {}\n{}", chunk.symbol.as_deref().unwrap_or_default(), chunk.content);
                text.truncate(text.floor_char_boundary(EMBEDDED_BYTES));
                text
            })
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let embeddings = self
            .embed(model, &texts)
            .await
            .map_err(|fault| ImportError::NoEmbeddings { model: model.to_owned(), reason: fault.explained() })?;
        if embeddings.len() != texts.len() {
            let (model, given, texts) = (model.to_owned(), embeddings.len(), texts.len());
            return Err(ImportError::Miscounted { model, given, texts });
        }
        let chunks = documents.iter_mut().flat_map(|document| &mut document.chunks);
        chunks.zip(embeddings).for_each(|(chunk, embedding)| chunk.embedding = Some(embedding));
        Ok(())
    }

    async fn embed(&self, model: &str, texts: &[&str]) -> Result<Vec<Vec<f32>>, Fault> {
        let mut pause = Duration::from_secs(1);
        let mut tries = 1;
        let EmbeddedTexts { vectors, call } = loop {
            match self.embedder.embed(model, texts).await {
                Err(fault) if is_overloaded(&fault) && tries < TRIES => {
                    tokio::time::sleep(fault.retry_after.unwrap_or(pause).min(LONGEST_PAUSE)).await;
                    (pause, tries) = (pause * 2, tries + 1);
                }
                ended => break ended?,
            }
        };
        if let Some(call) = call {
            count_import(self.store, self.within.tenant_id(), call, self.clock.now_ms()).await;
        }
        Ok(vectors)
    }
}

fn is_overloaded(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::UpstreamBusy | FaultKind::UpstreamDown | FaultKind::UpstreamTimeout)
}
