//! Puts the content of uploaded files into the prompt, before every model call of a turn that names files.

use std::collections::HashMap;

use amalgam_core::{
    Fault, FaultKind, FetchedFile, History, Scope, Stem,
    uploads::{self, ExpandedItems, Upload},
};

use crate::{context_window::run_blocking, engine::Engine};

/// The maximum number of different files of one turn.
pub const FILES_PER_TURN: usize = 256;

/// Files up to this size are encoded on the serving thread, larger ones on the blocking pool.
const INLINE_ENCODING_BYTES: usize = 64 * 1024;

impl Engine {
    /// Reads the caller's uploaded files that a history names; `None` if it names none. A deleted file becomes a note
    /// to the model, because the history that names it is still valid.
    pub async fn expand(&self, scope: &Scope, history: &History<'_>) -> Result<Option<ExpandedItems>, Fault> {
        let mut times: HashMap<&str, usize> = HashMap::new();
        uploads::named(history).for_each(|id| *times.entry(id).or_default() += 1);
        if times.is_empty() {
            return Ok(None);
        }
        if times.len() > FILES_PER_TURN {
            return Err(Fault::invalid(
                "input",
                format!("At most {FILES_PER_TURN} uploaded files can be in one turn."),
            ));
        }
        let mut left = self.settings.upload_bytes;
        let mut contents = HashMap::new();
        for (id, times) in times {
            // An id with another format cannot exist, so the store is not asked.
            if Stem::of(id).is_none() {
                continue;
            }
            let found = self.running.store.file_content(scope, id, self.clock.now_ms()).await?;
            let Some((file, bytes)) = found else { continue };
            // A file that is named twice is sent twice.
            left = bytes.len().checked_mul(times).and_then(|bytes| left.checked_sub(bytes)).ok_or_else(|| {
                let most = self.settings.upload_bytes;
                Fault::new(FaultKind::TooLarge, format!("The uploaded files of one turn have more than {most} bytes."))
                    .param("input")
            })?;
            let (filename, media_type) = (file.filename, file.media_type);
            let fetched = FetchedFile { media_type: media_type.clone(), bytes };
            let data_uri = match fetched.bytes.len() <= INLINE_ENCODING_BYTES {
                true => fetched.data_uri(),
                false => run_blocking(move || fetched.data_uri()).await?,
            };
            contents.insert(id.to_owned(), Upload { filename, media_type, data_uri });
        }
        Ok(Some(ExpandedItems::new(history, &contents)))
    }
}
