//! Reads the files of a source on a thread of its own, and sends the changed documents in batches.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use amalgam_core::store::NewDocument;
use amalgam_knowledge::{DocumentText, FileContent, ImportSettings};
use tokio::sync::mpsc;

use super::{ImportTotals, REPORTED, sources::ImportSource};

/// The text of one batch: a server on the same database file waits while a batch is written.
const BATCH_BYTES: usize = 128 * 1024;
/// The documents of one write or deletion.
pub(super) const BATCH_DOCUMENTS: usize = 200;
/// The files between two reports of progress.
const BATCH_FILES: usize = 1_000;

/// Changed documents.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) documents: Vec<NewDocument>,
    /// How many files were read for it.
    pub(super) files: usize,
    /// Files that cannot be read, each with its reason; the first ones of a source.
    pub(super) unreadable: Vec<String>,
    bytes: usize,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.documents.len() >= BATCH_DOCUMENTS || self.files >= BATCH_FILES
    }
}

/// The result of reading a source, besides its changed documents.
pub(super) struct SourceState {
    pub(super) totals: ImportTotals,
    /// Documents without a file.
    pub(super) removed: Vec<String>,
}

/// Reads all files of a source. `known` are the digests of its documents by path.
pub(super) fn read_source(
    source: &ImportSource,
    mut known: HashMap<String, [u8; 32]>,
    settings: &ImportSettings,
    sender: &mpsc::Sender<Batch>,
) -> SourceState {
    let mut totals = ImportTotals::default();
    let mut batch = Batch::default();
    for (path, folder) in &source.files {
        batch.files += 1;
        match read(&folder.join(path), settings.max_bytes) {
            Ok(FileContent::Text(text)) => {
                let file = DocumentText { path, source: &source.name, text: &text };
                let digest = file.digest(settings);
                if known.remove(path) == Some(digest) {
                    totals.unchanged += 1;
                } else {
                    batch.documents.push(file.document(settings, digest));
                    batch.bytes += text.len();
                }
            }
            // A document that such a file had is removed.
            Ok(FileContent::Binary) => totals.binary += 1,
            Ok(FileContent::Large) => totals.large += 1,
            Ok(FileContent::Empty) => totals.empty += 1,
            Err(error) => {
                // The file may be readable again: its document stays.
                known.remove(path);
                totals.unreadable += 1;
                if totals.unreadable <= REPORTED {
                    batch.unreadable.push(format!("{path}: {error}"));
                }
            }
        }
        if batch.is_full() && sender.blocking_send(std::mem::take(&mut batch)).is_err() {
            // The writing task has failed, and reports its own error.
            return SourceState { totals, removed: Vec::new() };
        }
    }
    let _ = sender.blocking_send(batch);
    let mut removed: Vec<String> = known.into_keys().collect();
    removed.sort_unstable();
    SourceState { totals, removed }
}

/// Reads a file up to the bound.
fn read(path: &Path, max_bytes: u64) -> io::Result<FileContent> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(FileContent::of(bytes, max_bytes))
}
