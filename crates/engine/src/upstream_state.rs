//! What an upstream that stores responses itself has stored after a turn.

use amalgam_core::{ConversationDigest, UpstreamMemory};
use amalgam_protocol::Json;

/// A call whose answer the upstream stores.
#[derive(Debug)]
pub(crate) struct UpstreamState {
    /// A digest of the prompt.
    pub(crate) digest: ConversationDigest,
    /// The configured name of the upstream.
    pub(crate) upstream: String,
    /// The model's name at the upstream.
    pub(crate) model: String,
    /// The upstream's id of the answer, once it is known.
    pub(crate) id: Option<String>,
}

impl UpstreamState {
    /// What the upstream has after this call; `None` if the answer has no id or contains items that are not the
    /// upstream's. `answer` holds the call's output.
    pub(crate) fn memory(&self, answer: &[Json]) -> Option<UpstreamMemory> {
        let id = self.id.clone().filter(|id| !id.is_empty())?;
        let digest = self.digest.clone().answered(answer)?;
        Some(digest.memory(self.upstream.clone(), self.model.clone(), id))
    }

    /// The same for a turn of a session, whose history contains only the text of an answer.
    pub(crate) fn memory_of_session(&self, answer: &str) -> Option<UpstreamMemory> {
        let id = self.id.clone().filter(|id| !id.is_empty())?;
        let digest = self.digest.clone().answered_in_thread(answer)?;
        Some(digest.memory(self.upstream.clone(), self.model.clone(), id))
    }
}
