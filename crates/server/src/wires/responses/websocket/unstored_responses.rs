//! Responses that are not stored but remembered by a connection, so that they can be continued on this connection only.
//!
//! Turns that continue one another form one chain: another turn costs only its own items. Two turns that continue the
//! same response are independent.

use std::collections::VecDeque;

use amalgam_core::{no_items, store::ItemsOf};
use amalgam_protocol::Json;

use crate::request_memory::{RequestMemory, Reservation};
use amalgam_app::turns::{ConnectionMemory, UnstoredInput};

/// The maximum number of chains; the least recently used one is dropped first.
const MAX_CHAINS: usize = 8;

/// The unstored responses of a connection.
#[derive(Debug)]
pub(super) struct UnstoredResponses {
    /// The most recently used one is last.
    chains: VecDeque<Chain>,
    max_bytes: usize,
    /// The memory reserved for them.
    reservation: Reservation,
}

/// Turns that continue one another.
#[derive(Debug, Default)]
struct Chain {
    turns: Vec<Turn>,
    bytes: usize,
}

#[derive(Debug)]
struct Turn {
    /// The id by which it is continued; none if it cannot be continued itself but later turns build on it.
    id: Option<String>,
    items: ItemsOf,
}

impl UnstoredResponses {
    /// An empty memory, limited to this many bytes of items and by the budget.
    pub(super) fn new(max_bytes: usize, budget: &RequestMemory) -> Self {
        Self { chains: VecDeque::new(), max_bytes, reservation: budget.reservation() }
    }

    /// Remembers a completed response.
    pub(super) fn add(&mut self, id: String, previous: Option<&str>, unstored: UnstoredInput, output: Json) {
        let position = previous.and_then(|previous| self.find(previous));
        let mut chain = match position.and_then(|(chain, turn)| Some((self.chains.remove(chain)?, turn))) {
            None => Chain::default(),
            Some((chain, last)) if last + 1 == chain.turns.len() => chain,
            Some((chain, shared)) => {
                let fork = chain.fork(shared);
                self.chains.push_back(chain);
                fork
            }
        };
        for input in unstored.before {
            chain.push(None, ItemsOf { input, output: no_items() });
        }
        chain.push(Some(id), ItemsOf { input: unstored.input, output });
        self.chains.push_back(chain);
        while self.chains.len() > MAX_CHAINS || self.bytes() > self.max_bytes || !self.reserve() {
            self.chains.pop_front();
        }
    }

    /// Reserves memory for everything that is remembered; false if there is not enough.
    fn reserve(&mut self) -> bool {
        let bytes = self.bytes();
        self.reservation.resize(bytes)
    }

    /// Makes a response unavailable for continuation.
    pub(super) fn forget(&mut self, id: &str) {
        let Some((chain, turn)) = self.find(id) else { return };
        let Some(chain) = self.chains.get_mut(chain) else { return };
        if let Some(turn) = chain.turns.get_mut(turn) {
            turn.id = None;
        }
        // Removes turns at the end that no other turn builds on.
        while chain.turns.last().is_some_and(|turn| turn.id.is_none()) {
            if let Some(turn) = chain.turns.pop() {
                chain.bytes -= turn.bytes();
            }
        }
        self.chains.retain(|chain| !chain.turns.is_empty());
        self.reserve();
    }

    fn find(&self, id: &str) -> Option<(usize, usize)> {
        let chains = self.chains.iter().enumerate().rev();
        chains
            .filter_map(|(index, chain)| {
                let turn = chain.turns.iter().rposition(|turn| turn.id.as_deref() == Some(id))?;
                Some((index, turn))
            })
            .next()
    }

    fn bytes(&self) -> usize {
        self.chains.iter().map(|chain| chain.bytes).sum()
    }
}

impl ConnectionMemory for UnstoredResponses {
    fn recall(&self, response_id: &str) -> Option<Vec<ItemsOf>> {
        let (chain, turn) = self.find(response_id)?;
        let turns = self.chains.get(chain)?.turns.get(..=turn)?;
        Some(turns.iter().map(|turn| turn.items.clone()).collect())
    }
}

impl Chain {
    fn push(&mut self, id: Option<String>, items: ItemsOf) {
        let turn = Turn { id, items };
        self.bytes += turn.bytes();
        self.turns.push(turn);
    }

    /// A copy of the turns up to this one, to be continued differently. Their items are shared, but counted twice.
    fn fork(&self, last: usize) -> Self {
        let mut fork = Self::default();
        for turn in self.turns.iter().take(last + 1) {
            fork.push(None, turn.items.clone());
        }
        fork
    }
}

impl Turn {
    fn bytes(&self) -> usize {
        self.items.input.bytes().len() + self.items.output.bytes().len() + self.id.as_ref().map_or(0, String::len)
    }
}

#[cfg(test)]
mod tests {
    use amalgam_protocol::Raw;

    use super::*;

    fn responses(max_bytes: usize) -> UnstoredResponses {
        UnstoredResponses::new(max_bytes, &RequestMemory::new(usize::MAX))
    }

    fn json(text: &str) -> Json {
        Json::from(Raw::parse(text.as_bytes()).unwrap())
    }

    fn says(text: &str) -> UnstoredInput {
        UnstoredInput { before: Vec::new(), input: json(&format!("[\"{text}\"]")) }
    }

    /// The recalled items, as one text.
    fn recalled(memory: &UnstoredResponses, id: &str) -> Option<String> {
        let turns = memory.recall(id)?;
        let texts = turns.iter().flat_map(|turn| [&turn.input, &turn.output]);
        Some(texts.map(|json| json.raw().text().to_owned()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_response_brings_everything_that_it_builds_on() {
        let mut memory = responses(1000);
        memory.add("a".into(), None, says("1"), json("[\"2\"]"));
        memory.add("b".into(), Some("a"), says("3"), json("[\"4\"]"));
        assert_eq!(recalled(&memory, "a").unwrap(), r#"["1"] ["2"]"#);
        assert_eq!(recalled(&memory, "b").unwrap(), r#"["1"] ["2"] ["3"] ["4"]"#);
        assert_eq!(recalled(&memory, "c"), None);
    }

    #[test]
    fn two_turns_that_continue_one_response_do_not_see_each_other() {
        let mut memory = responses(1000);
        memory.add("a".into(), None, says("1"), json("[]"));
        memory.add("b".into(), Some("a"), says("2"), json("[]"));
        memory.add("c".into(), Some("a"), says("3"), json("[]"));
        memory.add("d".into(), Some("b"), says("4"), json("[]"));
        assert_eq!(recalled(&memory, "c").unwrap(), r#"["1"] [] ["3"] []"#);
        assert_eq!(recalled(&memory, "d").unwrap(), r#"["1"] [] ["2"] [] ["4"] []"#);
    }

    #[test]
    fn stored_history_is_kept_in_front_of_the_turn_that_continues_it() {
        let mut memory = responses(1000);
        let unstored = UnstoredInput { before: vec![json("[\"kept\"]")], input: json("[\"1\"]") };
        memory.add("b".into(), Some("stored"), unstored, json("[]"));
        assert_eq!(recalled(&memory, "b").unwrap(), r#"["kept"] [] ["1"] []"#);
        assert_eq!(recalled(&memory, "stored"), None);
    }

    #[test]
    fn a_forgotten_response_is_gone_and_later_ones_stay() {
        let mut memory = responses(1000);
        memory.add("a".into(), None, says("1"), json("[]"));
        memory.add("b".into(), Some("a"), says("2"), json("[]"));
        memory.forget("a");
        assert_eq!(recalled(&memory, "a"), None);
        assert_eq!(recalled(&memory, "b").unwrap(), r#"["1"] [] ["2"] []"#);
        memory.forget("b");
        memory.forget("never");
        assert_eq!((memory.chains.len(), memory.bytes()), (0, 0));
    }

    #[test]
    fn the_least_recently_used_chain_is_dropped_first() {
        let mut memory = responses(100_000);
        for name in 0..MAX_CHAINS {
            memory.add(format!("first-{name}"), None, says("x"), json("[]"));
        }
        memory.add("more".into(), Some("first-0"), says("x"), json("[]"));
        memory.add("new".into(), None, says("x"), json("[]"));
        assert_eq!(recalled(&memory, "first-1"), None);
        for id in ["first-0", "more", "first-2", "new"] {
            assert!(recalled(&memory, id).is_some(), "{id}");
        }
    }

    #[test]
    fn no_more_bytes_are_kept_than_the_limit() {
        let mut memory = responses(1000);
        for name in 0..5 {
            memory.add(name.to_string(), None, says(&"x".repeat(400)), json("[]"));
        }
        assert_eq!((recalled(&memory, "2"), memory.chains.len()), (None, 2));
        memory.add("long".into(), Some("4"), says(&"x".repeat(900)), json("[]"));
        assert_eq!((recalled(&memory, "long"), memory.bytes()), (None, 0));
    }

    #[test]
    fn all_connections_together_keep_no_more_than_the_budget() {
        let budget = RequestMemory::new(1000);
        let free = || budget.free();
        let mut first = UnstoredResponses::new(10_000, &budget);
        let mut second = UnstoredResponses::new(10_000, &budget);
        first.add("a".into(), None, says(&"x".repeat(400)), json("[]"));
        second.add("b".into(), None, says(&"x".repeat(400)), json("[]"));
        // A connection drops its own chains for a new response, not those of other connections.
        second.add("c".into(), None, says(&"x".repeat(300)), json("[]"));
        assert!(
            recalled(&first, "a").is_some() && recalled(&second, "b").is_none() && recalled(&second, "c").is_some()
        );
        assert_eq!(free(), 1000 - first.bytes() - second.bytes());
        // A chain that does not fit is not remembered.
        second.add("d".into(), Some("c"), says(&"x".repeat(500)), json("[]"));
        assert!(recalled(&second, "c").is_none() && recalled(&second, "d").is_none());
        assert_eq!(free(), 1000 - first.bytes());
        first.forget("a");
        assert_eq!(free(), 1000);
        second.add("e".into(), None, says("x"), json("[]"));
        assert!(free() < 1000);
        drop(second);
        assert_eq!(free(), 1000, "a connection that ends gives everything back");
    }
}
