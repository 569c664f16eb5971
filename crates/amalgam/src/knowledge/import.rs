//! Writes changed files of a source, and deletes the documents of removed files.
//!
//! One thread reads and chunks files while the store writes. Only a few batches are in memory at a time, whatever the
//! number of files; of the others only path and digest.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use amalgam_core::{
    Embedder, Fault, FaultKind, Store,
    store::{DocumentListing, NewDocument, Within},
};
use anyhow::{Context as _, bail};
use tokio::sync::mpsc;

use super::document::{Contents, Draft, Settings, read};
use super::sources::Source;
use super::{WriteThrottle, explained};
use crate::command_context::now_ms;
use crate::progress::Progress;
use crate::terminal::print_stderr;

/// How much text is written at once: a server beside us waits for as long as that takes.
const BATCH_BYTES: usize = 128 * 1024;
/// How many documents are written or forgotten at once.
const BATCH_DOCUMENTS: usize = 200;
/// How many files are read between two updates of the progress line.
const BATCH_FILES: usize = 1_000;
/// How many documents are asked for at once.
const PAGE: usize = 1_000;
/// How much of a piece is given a place: models take a few thousand tokens.
const PLACED_BYTES: usize = 8 * 1024;
/// How often an upstream that has no room is asked again, beyond what every call does.
const TRIES: u32 = 5;
/// The longest pause before that.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How many files that cannot be read are told one by one.
const TOLD: u64 = 20;

/// What an import did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) created: u64,
    pub(crate) updated: u64,
    pub(crate) unchanged: u64,
    pub(crate) deleted: u64,
    /// Not text in UTF-8.
    pub(crate) binary: u64,
    pub(crate) large: u64,
    pub(crate) empty: u64,
    /// With a name that is not text, or too long.
    pub(crate) misnamed: u64,
    /// What could not be looked into, and may be there all the same.
    pub(crate) unreadable: u64,
}

impl Totals {
    /// Files that were looked at and not taken.
    pub(crate) fn skipped(&self) -> u64 {
        self.binary + self.large + self.empty + self.misnamed
    }

    fn unreadable(&mut self, what: &str) {
        self.unreadable += 1;
        if self.unreadable <= TOLD {
            print_stderr(format_args!("cannot be read: {what}"));
        }
    }
}

/// Where an import goes.
pub(crate) struct Import<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) within: Within<'a>,
    pub(crate) collection: &'a str,
    pub(crate) embedder: &'a dyn Embedder,
    pub(crate) settings: Arc<Settings>,
    pub(crate) throttle: WriteThrottle,
}

/// Some documents that have changed.
struct Batch {
    documents: Vec<NewDocument>,
    /// How many files were looked at for it.
    files: usize,
}

/// What is left when all files of a source were looked at.
struct SourceState {
    totals: Totals,
    /// Documents without a file.
    gone: Vec<String>,
}

impl Import<'_> {
    /// Brings one source up to date.
    pub(crate) async fn bring(
        &mut self,
        mut source: Source,
        totals: &mut Totals,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let known = self.known(&source.name).await?;
        let (name, whole) = (source.name.clone(), source.whole);
        let complete = source.unreadable.is_empty();
        source.unreadable.drain(..).for_each(|what| totals.unreadable(&what));
        totals.misnamed += source.misnamed;
        // Full while the store writes: then the reader waits.
        let (sender, mut batches) = mpsc::channel(1);
        let settings = Arc::clone(&self.settings);
        let reader = tokio::task::spawn_blocking(move || look(&source, known, &settings, &sender));
        while let Some(batch) = batches.recv().await {
            self.write(&name, batch.documents, totals).await?;
            progress.add(batch.files);
        }
        let SourceState { totals: looked, gone } = reader.await.context("reading the files")?;
        totals.unchanged += looked.unchanged;
        totals.binary += looked.binary;
        totals.large += looked.large;
        totals.empty += looked.empty;
        totals.unreadable += looked.unreadable;
        if whole && complete {
            for paths in gone.chunks(BATCH_DOCUMENTS) {
                let deleted = self.store.delete_documents(self.within, self.collection, &name, paths, now_ms());
                totals.deleted += self.throttle.write(deleted).await?;
            }
        }
        Ok(())
    }

    /// The documents of a source that are there, by their paths.
    async fn known(&self, source: &str) -> anyhow::Result<HashMap<String, [u8; 32]>> {
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

    async fn write(
        &mut self,
        source: &str,
        mut documents: Vec<NewDocument>,
        totals: &mut Totals,
    ) -> anyhow::Result<()> {
        if documents.is_empty() {
            return Ok(());
        }
        let settings = Arc::clone(&self.settings);
        let model = settings.model.as_deref();
        if let Some(model) = model {
            self.place(model, &mut documents).await?;
        }
        let put = self.store.put_documents(self.within, self.collection, source, model, documents, now_ms());
        let imported = self.throttle.write(put).await?.context("the tenant is gone")?;
        totals.created += imported.created;
        totals.updated += imported.updated;
        totals.unchanged += imported.unchanged;
        Ok(())
    }

    /// Gives every piece a place. What was written before stays if that fails, and the next import goes on from there.
    async fn place(&self, model: &str, documents: &mut [NewDocument]) -> anyhow::Result<()> {
        let texts: Vec<String> = documents
            .iter()
            .flat_map(|document| document.chunks.iter().map(|chunk| (&document.path, chunk)))
            .map(|(path, chunk)| {
                // Where a piece is from says what it is about, often better than the piece itself.
                let mut text = format!("{path} {}\n{}", chunk.symbol.as_deref().unwrap_or_default(), chunk.content);
                text.truncate(text.floor_char_boundary(PLACED_BYTES));
                text
            })
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let places = self.embed(model, &texts).await?;
        if places.len() != texts.len() {
            bail!("{model} gave {} embeddings for {} texts", places.len(), texts.len());
        }
        let chunks = documents.iter_mut().flat_map(|document| &mut document.chunks);
        chunks.zip(places).for_each(|(chunk, place)| chunk.embedding = Some(place));
        Ok(())
    }

    async fn embed(&self, model: &str, texts: &[&str]) -> anyhow::Result<Vec<Vec<f32>>> {
        let mut pause = Duration::from_secs(1);
        for _ in 1..TRIES {
            match self.embedder.embed(model, texts).await {
                Err(fault) if has_no_room(&fault) => {
                    tokio::time::sleep(fault.retry_after.unwrap_or(pause).min(LONGEST_PAUSE)).await;
                    pause *= 2;
                }
                ended => return ended.map_err(explained).with_context(|| placing(model)),
            }
        }
        self.embedder.embed(model, texts).await.map_err(explained).with_context(|| placing(model))
    }
}

fn has_no_room(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::UpstreamBusy | FaultKind::UpstreamDown | FaultKind::UpstreamTimeout)
}

fn placing(model: &str) -> String {
    format!("requesting embeddings from {model}; imported documents are kept, and the next import continues from there")
}

/// Looks at all files of a source, and hands on what has changed.
fn look(
    source: &Source,
    mut known: HashMap<String, [u8; 32]>,
    settings: &Settings,
    sender: &mpsc::Sender<Batch>,
) -> SourceState {
    let mut totals = Totals::default();
    let (mut batch, mut bytes) = (Batch { documents: Vec::new(), files: 0 }, 0);
    for (path, folder) in &source.files {
        batch.files += 1;
        match changed(source, path, folder, &known, settings, &mut totals) {
            File::Changed(document, length) => {
                known.remove(path);
                batch.documents.push(document);
                bytes += length;
            }
            // A file that cannot be read now is not gone.
            File::Same | File::Unreadable => drop(known.remove(path)),
            File::Skipped => {}
        }
        if bytes >= BATCH_BYTES || batch.documents.len() >= BATCH_DOCUMENTS || batch.files >= BATCH_FILES {
            let full = std::mem::replace(&mut batch, Batch { documents: Vec::new(), files: 0 });
            bytes = 0;
            if sender.blocking_send(full).is_err() {
                // The writing task has failed, and reports its own error.
                return SourceState { totals, gone: Vec::new() };
            }
        }
    }
    let _ = sender.blocking_send(batch);
    let mut gone: Vec<String> = known.into_keys().collect();
    gone.sort_unstable();
    SourceState { totals, gone }
}

/// What a file is to the collection.
enum File {
    /// With how long it is.
    Changed(NewDocument, usize),
    Same,
    Skipped,
    Unreadable,
}

fn changed(
    source: &Source,
    path: &str,
    folder: &Path,
    known: &HashMap<String, [u8; 32]>,
    settings: &Settings,
    totals: &mut Totals,
) -> File {
    let text = match read(&folder.join(path), settings.most_bytes) {
        Ok(Contents::Text(text)) => text,
        Ok(skipped) => {
            match skipped {
                Contents::Binary => totals.binary += 1,
                Contents::Large => totals.large += 1,
                Contents::Empty | Contents::Text(_) => totals.empty += 1,
            }
            return File::Skipped;
        }
        Err(error) => {
            totals.unreadable(&format!("{path}: {error}"));
            return File::Unreadable;
        }
    };
    let draft = Draft { path, source: &source.name, text: &text };
    let digest = draft.digest(settings);
    if known.get(path) == Some(&digest) {
        totals.unchanged += 1;
        return File::Same;
    }
    File::Changed(draft.document(settings, digest), text.len())
}
