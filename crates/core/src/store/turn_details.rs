//! Parts of turns that administrators load one by one: model calls with or without their bodies, events, and the facts of many
//! turns together.

use std::collections::BTreeMap;

use super::{
    Stored,
    responses::EventChunk,
    turn_list::{ListedTurn, TurnsOf},
    turns::Transcript,
};
use crate::{ids::Stem, scope::Admin};

/// Which calls of a turn are loaded, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallBodies {
    /// All calls, with empty bodies.
    None,
    /// All calls with their bodies.
    All,
    /// The call with this number, with its bodies.
    Of(u32),
}

/// A model call as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCall {
    /// The call; its bodies are empty unless they were asked for.
    pub call: Transcript,
    /// The length of the whole request in bytes.
    pub request_bytes: u64,
    /// The length of the stored answer in bytes.
    pub response_bytes: u64,
}

/// Facts of the newest turns of a range.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecentTurns {
    /// How many turns were looked at: all of the range, or as many as were asked for.
    pub looked_at: u64,
    /// Milliseconds from start to end of those that have ended, sorted.
    pub durations_ms: Vec<u64>,
    /// Milliseconds until the first output of those that had some, sorted.
    pub first_tokens_ms: Vec<u64>,
    /// Failed turns by the code of their error.
    pub errors: BTreeMap<String, u64>,
    /// Turns that have not ended, the newest first, as many as were asked for.
    pub running: Vec<ListedTurn>,
    /// The same of failed turns.
    pub failed: Vec<ListedTurn>,
}

/// Reads of parts of turns.
pub trait TurnDetailStore: Send + Sync {
    /// The model calls of a turn, in order.
    fn turn_calls<'a>(
        &'a self,
        admin: Admin<'a>,
        response_id: &'a str,
        bodies: CallBodies,
    ) -> Stored<'a, Vec<StoredCall>>;

    /// The stored events of a turn after a sequence number (all of them for none), at most about `bytes` of them. The first chunk
    /// may begin before the point.
    fn turn_events<'a>(
        &'a self,
        admin: Admin<'a>,
        response_id: &'a str,
        after: Option<u64>,
        bytes: usize,
    ) -> Stored<'a, Vec<EventChunk>>;

    /// The response whose id, and those of whose items, begin with this stem.
    fn response_of_item<'a>(&'a self, admin: Admin<'a>, stem: Stem) -> Stored<'a, Option<String>>;

    /// The response in which the server ran the call with this id, the newest if several.
    fn response_of_call<'a>(&'a self, admin: Admin<'a>, call_id: &'a str) -> Stored<'a, Option<String>>;

    /// Facts of the newest `limit` turns since a time, and up to `listed` running and failed ones of them.
    fn recent_turns<'a>(
        &'a self,
        of: TurnsOf<'a>,
        from_ms: u64,
        limit: usize,
        listed: usize,
    ) -> Stored<'a, RecentTurns>;

    /// Whether there is any turn.
    fn has_turns<'a>(&'a self, of: TurnsOf<'a>) -> Stored<'a, bool>;

    /// The newest turn of a session before a time.
    fn turn_before<'a>(&'a self, admin: Admin<'a>, session_id: &'a str, before_ms: u64) -> Stored<'a, Option<String>>;
}
