//! The part of a conversation that a stateful upstream has stored, and whether that matches the history.
//!
//! The two may differ for any reason: truncation, a call without an output, a fork, a server-run tool. The history up
//! to an answer is digested together with the answer. A later request continues that answer only if its history begins
//! with exactly the same entries; otherwise the whole history is sent.

use amalgam_protocol::{Content, HostedItem, ItemKind, Json, PartKind, Raw, Role, Writer};
use sha2::{Digest as _, Sha256};

use super::{
    Entry, History,
    normalise::{call_of, is_server_item},
};
use crate::{hex::hex, items::read_items, model::UpstreamRetention};

/// An answer that an upstream stores, and the history that it has stored with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamMemory {
    /// The operator's name of the upstream.
    pub upstream: String,
    /// The upstream's name of the model.
    pub model: String,
    /// The upstream's own id of the answer.
    pub id: String,
    /// The number of history entries up to and including the answer.
    entries: usize,
    /// Their digest, in hexadecimal digits.
    digest: String,
}

impl UpstreamMemory {
    /// How many entries of a history the upstream has stored; none if it has stored another history, or there is
    /// nothing new.
    pub fn known(&self, history: &History<'_>, retention: UpstreamRetention) -> Option<usize> {
        let (known, new) = history.entries.split_at_checked(self.entries)?;
        if new.is_empty() {
            return None;
        }
        let conversation = ConversationDigest::begin(history, retention)?.and(known);
        (conversation.digest() == self.digest).then_some(self.entries)
    }

    /// The stored form: a JSON object.
    pub fn to_json(&self) -> Json {
        let mut writer = Writer::with_capacity(256);
        writer.object(|writer| {
            writer.key("upstream").string(&self.upstream);
            writer.key("model").string(&self.model);
            writer.key("id").string(&self.id);
            writer.key("entries").number(self.entries as u64);
            writer.key("digest").string(&self.digest);
        });
        Json::from_writer(writer)
    }

    /// Parses the stored form; none if it is something else.
    pub fn read(stored: Raw<'_>) -> Option<Self> {
        let text = |name: &str| stored.get_str(name).map(std::borrow::Cow::into_owned);
        Some(Self {
            upstream: text("upstream")?,
            model: text("model")?,
            id: text("id")?,
            entries: usize::try_from(stored.get("entries")?.as_u64()?).ok()?,
            digest: text("digest")?,
        })
    }
}

/// A digest of the history that is sent to an upstream, and then of its answer.
#[derive(Debug, Clone)]
pub struct ConversationDigest {
    entries: usize,
    hash: Sha256,
    /// The digest up to the user's last message.
    up_to_user: Option<(usize, Sha256)>,
}

impl ConversationDigest {
    /// All of a history; none for an upstream that retains nothing, or only a part of it.
    pub fn of(history: &History<'_>, retention: UpstreamRetention) -> Option<Self> {
        Some(Self::begin(history, retention)?.and(&history.entries))
    }

    /// Adds the upstream's answer; none if a part of it is not the upstream's, such as a call that this server ran.
    #[must_use]
    pub fn answered(self, items: &[Json]) -> Option<Self> {
        let items = read_items(items.iter().map(Json::raw)).ok()?;
        let mut entries = Vec::with_capacity(items.len());
        for item in &items {
            entries.push(match (&item.kind, call_of(item)) {
                (_, Some(call)) => Entry::Call(call),
                // Emitted before the model answers, and never sent to it.
                (ItemKind::Hosted(kind @ HostedItem::McpListTools), _) if is_server_item(*kind, item) => continue,
                (ItemKind::Hosted(kind), _) if is_server_item(*kind, item) => return None,
                (ItemKind::Message(message), _) => {
                    Entry::Message { role: message.role, content: message.content.clone(), item: Some(item.raw) }
                }
                (ItemKind::Reasoning(_), _) => Entry::Reasoning(item.clone()),
                _ => Entry::Opaque(item.clone()),
            });
        }
        Some(self.and(&entries))
    }

    /// Adds the answer in the form in which a session shows it later: as one text directly after the user's message,
    /// without the rounds in between. `None` without a user message.
    #[must_use]
    pub fn answered_in_thread(self, text: &str) -> Option<Self> {
        let (entries, hash) = self.up_to_user?;
        let mut conversation = Self { entries: entries + 1, hash, up_to_user: None };
        conversation.texts(["message", Role::Assistant.name()]);
        conversation.number(1);
        conversation.texts(["text", text]);
        Some(conversation)
    }

    /// The memory of an answer with this id.
    pub fn memory(self, upstream: String, model: String, id: String) -> UpstreamMemory {
        UpstreamMemory { upstream, model, id, entries: self.entries, digest: self.digest() }
    }

    fn begin(history: &History<'_>, retention: UpstreamRetention) -> Option<Self> {
        let mut conversation = Self { entries: 0, hash: Sha256::new(), up_to_user: None };
        match (retention, history.instructions.as_slice()) {
            (UpstreamRetention::Nothing, _) => return None,
            (UpstreamRetention::Everything, instructions) => {
                conversation.number(instructions.len());
                instructions.iter().for_each(|entry| conversation.entry(entry));
            }
            // A text prompt is sent with every call, and is not part of the stored state.
            (UpstreamRetention::Items, [] | [Entry::Message { role: Role::System, item: None, .. }]) => {}
            // Other instructions are among the items, where they would be repeated.
            (UpstreamRetention::Items, _) => return None,
        }
        Some(conversation)
    }

    fn and(mut self, entries: &[Entry<'_>]) -> Self {
        for entry in entries {
            self.entries += 1;
            self.entry(entry);
            if matches!(entry, Entry::Message { role: Role::User, .. }) {
                self.up_to_user = Some((self.entries, self.hash.clone()));
            }
        }
        self
    }

    /// Digests the content of an entry, independent of its format: ids and statuses do not matter.
    fn entry(&mut self, entry: &Entry<'_>) {
        match entry {
            Entry::Message { role, content, .. } => {
                self.text("message");
                self.text(role.name());
                self.content(content);
            }
            Entry::Note(text) => self.texts(["note", text]),
            Entry::Summary(text) => self.texts(["summary", text]),
            Entry::Call(call) => {
                self.texts(["call", &format!("{:?}", call.kind), &call.call_id, &call.name]);
                self.text(call.namespace.as_deref().unwrap_or_default());
                self.text(&call.payload.text());
            }
            Entry::Output(output) => {
                self.texts(["output", &format!("{:?}", output.kind), &output.call_id]);
                self.content(&output.content);
            }
            Entry::Reasoning(item) | Entry::Opaque(item) => {
                self.text("item");
                for (key, value) in item.raw.fields().filter(|(key, _)| !key.is("id") && !key.is("status")) {
                    self.texts([&key.decode(), value.text()]);
                }
            }
        }
    }

    /// A text is equal to a single text part.
    fn content(&mut self, content: &Content<'_>) {
        match content {
            Content::Text(text) => {
                self.number(1);
                self.texts(["text", &text.decode()]);
            }
            Content::Value(value) => self.texts(["value", value.text()]),
            Content::Parts(parts) => {
                self.number(parts.len());
                for part in parts {
                    match &part.kind {
                        PartKind::Text { text, .. } => self.texts(["text", &text.decode()]),
                        _ => self.texts(["part", part.raw.text()]),
                    }
                }
            }
        }
    }

    fn texts<const N: usize>(&mut self, texts: [&str; N]) {
        texts.into_iter().for_each(|text| self.text(text));
    }

    /// Prefixed by its length, so that different lists of texts have different bytes.
    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.hash.update(text.as_bytes());
    }

    fn number(&mut self, number: usize) {
        self.hash.update((number as u64).to_le_bytes());
    }

    fn digest(&self) -> String {
        hex(&self.hash.clone().finalize())
    }
}

#[cfg(test)]
#[path = "upstream_memory_tests.rs"]
mod tests;
