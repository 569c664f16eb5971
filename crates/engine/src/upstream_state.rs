//! What an upstream that keeps state itself will know once a turn has ended.

use amalgam_core::{ConversationDigest, UpstreamMemory};
use amalgam_protocol::Json;

/// A call whose answer the upstream keeps.
#[derive(Debug)]
pub(crate) struct UpstreamState {
    /// What it was told.
    pub(crate) said: ConversationDigest,
    /// The operator's name of the upstream.
    pub(crate) upstream: String,
    /// The model that it was asked for.
    pub(crate) model: String,
    /// Its own id of the answer, once it has said that.
    pub(crate) id: Option<String>,
}

impl UpstreamState {
    /// What is known from here on; nothing where the answer has no id, or is not all the upstream's. `answer` is what it has
    /// said in this call.
    pub(crate) fn memory(&self, answer: &[Json]) -> Option<UpstreamMemory> {
        let id = self.id.clone().filter(|id| !id.is_empty())?;
        let said = self.said.clone().answered(answer)?;
        Some(said.memory(self.upstream.clone(), self.model.clone(), id))
    }

    /// The same for a turn of a thread, which tells no more of it later than the text of its answer.
    pub(crate) fn memory_of_thread(&self, answer: &str) -> Option<UpstreamMemory> {
        let id = self.id.clone().filter(|id| !id.is_empty())?;
        let said = self.said.clone().answered_in_thread(answer)?;
        Some(said.memory(self.upstream.clone(), self.model.clone(), id))
    }
}
