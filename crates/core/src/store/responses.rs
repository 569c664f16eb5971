//! Responses as they are read: one, its lineage, its events.

use amalgam_protocol::{ErrorObject, Json, Provenance, Status, Usage};
use bytes::Bytes;

use super::{Stored, turns::ChainPosition};
use crate::{history::UpstreamMemory, raw_answer::RawAnswer, scope::Scope};

/// A response as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredResponse {
    /// `resp_…`
    pub id: String,
    /// Where it is in its life, and how that went.
    pub status: ResponseState,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// What the object repeats of its request: the inside of a JSON object, as [`amalgam_protocol::ResponseSettings`] wrote it.
    pub settings: Bytes,
    /// Its own input items, a JSON array; every item has an id.
    pub input: Json,
    /// Its output items, a JSON array; empty until the end.
    pub output: Json,
    /// Whether it runs without its caller.
    pub background: bool,
    /// Whether its events are kept.
    pub streamed: bool,
    /// The conversation that it belongs to.
    pub conversation: Option<String>,
    /// Where its items are.
    pub place: ChainPosition,
}

/// How a response stands.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseState {
    /// Where it is in its life.
    pub status: Status,
    /// Milliseconds since 1970, once it has ended well.
    pub completed_at_ms: Option<u64>,
    /// Why it failed.
    pub error: Option<ErrorObject>,
    /// Why it is incomplete.
    pub incomplete_reason: Option<String>,
    /// What it cost.
    pub usage: Option<Usage>,
    /// Who answered.
    pub provenance: Provenance,
}

/// Everything that a response builds on, itself included, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Lineage {
    /// How the response itself stands.
    pub status: Status,
    /// Where the response itself is: what a child is appended to.
    pub place: ChainPosition,
    /// What an upstream that keeps state knows up to the response.
    pub upstream: Option<UpstreamMemory>,
    /// Items, response by response.
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

/// Frames of a stream, whole ones, contiguous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventChunk {
    /// The sequence number of the first.
    pub first: u64,
    /// The sequence number of the last.
    pub last: u64,
    /// The frames as they were sent.
    pub frames: Bytes,
}

/// What a stream has said after a point.
#[derive(Debug, Clone, PartialEq)]
pub struct EventTail {
    /// The response, so that its end can be told.
    pub response: StoredResponse,
    /// Chunks in order; the first one may begin before the point.
    pub chunks: Vec<EventChunk>,
    /// The number of the last event that is kept, wherever the point is; none when none is.
    pub last: Option<u64>,
}

/// What came of asking for an end.
#[derive(Debug, Clone, PartialEq)]
pub enum CancelOutcome {
    /// It has ended, now or before: this is how it stands.
    Ended(Box<StoredResponse>),
    /// It runs in the foreground, where its caller ends it by leaving.
    Foreground,
}

/// Reads of responses.
pub trait ResponseStore: Send + Sync {
    /// One response.
    fn response<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<StoredResponse>>;

    /// What a response builds on, in one query.
    fn lineage<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Lineage>>;

    /// What the model's server sent last for a response; nothing where that is not kept.
    fn raw_answer<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<RawAnswer>>;

    /// Items by their ids, of responses and of conversations; nothing where there is none. The same order.
    fn items<'a>(&'a self, scope: &'a Scope, ids: &'a [String]) -> Stored<'a, Vec<Option<Json>>>;

    /// Forgets a response; whether there was one. It cannot be read or continued any more. Its items go as soon as no
    /// other response builds on them.
    fn delete_response<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool>;

    /// Ends a background response that has not ended, without output. The process that runs it finds out through
    /// [`super::Store::changed`] or because it cannot write any more.
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
