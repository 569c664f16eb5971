//! Reads of responses: one response, its lineage, its events.

use amalgam_protocol::{ErrorObject, Json, Provenance, Status, Usage};
use bytes::Bytes;

use super::{Stored, turns::ChainPosition};
use crate::{history::UpstreamMemory, raw_answer::RawAnswer, scope::Scope};

/// A response as the store holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredResponse {
    /// `resp_…`
    pub id: String,
    /// The status, and how the response ended.
    pub status: ResponseState,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// The request parameters that the response object repeats: the fields of a JSON object without its braces, as
    /// [`amalgam_protocol::ResponseSettings`] writes them.
    pub settings: Bytes,
    /// The response's own input items, a JSON array; every item has an id.
    pub input: Json,
    /// The output items, a JSON array; empty until the response has ended.
    pub output: Json,
    /// Whether the turn runs in the background.
    pub background: bool,
    /// Whether the events are stored.
    pub streamed: bool,
    /// The conversation that it belongs to.
    pub conversation: Option<String>,
    /// The position of the items, which a child continues.
    pub place: ChainPosition,
}

/// The status of a response, and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseState {
    /// The status.
    pub status: Status,
    /// Milliseconds since 1970; set once the response has completed.
    pub completed_at_ms: Option<u64>,
    /// The error, if the response failed.
    pub error: Option<ErrorObject>,
    /// The reason, if the response is incomplete.
    pub incomplete_reason: Option<String>,
    /// The token counts.
    pub usage: Option<Usage>,
    /// The model that answered, and what was lost.
    pub provenance: Provenance,
}

/// A response and all responses that it continues.
#[derive(Debug, Clone, PartialEq)]
pub struct Lineage {
    /// The status of the response itself.
    pub status: Status,
    /// The position of the response itself, which a child continues.
    pub place: ChainPosition,
    /// What an upstream that stores state has stored up to the response.
    pub upstream: Option<UpstreamMemory>,
    /// The items of each response, oldest first.
    pub turns: Vec<ItemsOf>,
}

/// The items of one response.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemsOf {
    /// A JSON array.
    pub input: Json,
    /// A JSON array.
    pub output: Json,
}

/// Contiguous frames of a stream. A frame is never split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventChunk {
    /// The sequence number of the first event.
    pub first: u64,
    /// The sequence number of the last event.
    pub last: u64,
    /// The frames, exactly as they are sent.
    pub frames: Bytes,
}

/// The stored events of a stream after a sequence number.
#[derive(Debug, Clone, PartialEq)]
pub struct EventTail {
    /// The response, read at the same moment: it says whether the stream has ended.
    pub response: StoredResponse,
    /// The chunks in order. The first one may begin before the requested sequence number.
    pub chunks: Vec<EventChunk>,
    /// The sequence number of the last stored event of the response; `None` if no events are stored.
    pub last: Option<u64>,
}

/// The outcome of a cancellation.
#[derive(Debug, Clone, PartialEq)]
pub enum CancelOutcome {
    /// The response has ended, now or before.
    Ended(Box<StoredResponse>),
    /// Not cancelled: the turn runs in the foreground, and ends when its caller disconnects.
    Foreground,
}

/// Reads and deletions of responses.
pub trait ResponseStore: Send + Sync {
    /// Returns a response; `None` if the caller has none with this id.
    fn response<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<StoredResponse>>;

    /// Returns a response with all responses that it continues, in one query; `None` if the response does not exist.
    fn lineage<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Lineage>>;

    /// Returns the upstream's last answer for a response as received; `None` if it was not stored.
    fn raw_answer<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<RawAnswer>>;

    /// Returns items of responses and conversations by their ids, in the order of `ids`; `None` for an item that does
    /// not exist.
    fn items<'a>(&'a self, scope: &'a Scope, ids: &'a [String]) -> Stored<'a, Vec<Option<Json>>>;

    /// Deletes a response: it can no longer be read or continued. Its items are deleted once no other response
    /// continues it. Returns whether the response existed.
    fn delete_response<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool>;

    /// Cancels a background response; its output stays empty. A response that has ended is returned unchanged. The
    /// process that runs the turn is notified through [`super::Store::changed`], and its further writes have no effect.
    /// `None` if the response does not exist.
    fn cancel_response<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<CancelOutcome>>;

    /// Ends a response that has not ended, in the background or not, without output; none if there is no such response.
    /// The process that runs it finds out in the same way.
    fn end_response<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<StoredResponse>>;

    /// The events after a sequence number (all of them for none), at most about `bytes` of them.
    fn events<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        after: Option<u64>,
        bytes: usize,
    ) -> Stored<'a, Option<EventTail>>;
}

/// The settings of stored responses, which lists show and a caller may change in part.
pub trait ResponseSettingsStore: Send + Sync {
    /// The settings of responses by their ids, without their items; nothing where there is none. The same order.
    fn response_settings<'a>(&'a self, scope: &'a Scope, ids: Vec<String>) -> Stored<'a, Vec<Option<Bytes>>>;

    /// Replaces the settings of a response that has ended; whether there was one.
    fn replace_response_settings<'a>(&'a self, scope: &'a Scope, id: &'a str, settings: Bytes) -> Stored<'a, bool>;
}
