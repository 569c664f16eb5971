//! What a connection remembers of responses that are not kept, so that they can be continued on it and nowhere else.
//!
//! A line of turns is remembered as one: going on costs no more than what is new. Two turns that go on from the same one
//! never see each other.

use std::collections::VecDeque;

use amalgam_core::{no_items, store::ItemsOf};
use amalgam_protocol::Json;

use crate::request_memory::{RequestMemory, Reservation};
use amalgam_app::turns::{ConnectionMemory, UnstoredInput};

/// Lines of turns that are remembered at once; the one that was used least recently goes first.
const MOST_LINES: usize = 8;

/// The responses that a connection remembers.
#[derive(Debug)]
pub(super) struct Remembered {
    /// The one used last is last.
    lines: VecDeque<Line>,
    most_bytes: usize,
    /// What was taken from the budget.
    reservation: Reservation,
}

/// Turns that go on from one another.
#[derive(Debug, Default)]
struct Line {
    turns: Vec<Turn>,
    bytes: usize,
}

#[derive(Debug)]
struct Turn {
    /// By what it is continued; none where it cannot be, and others build on it.
    id: Option<String>,
    items: ItemsOf,
}

impl Remembered {
    /// Remembers nothing yet, and never more than so many bytes of items, or than the budget has left.
    pub(super) fn new(most_bytes: usize, budget: &RequestMemory) -> Self {
        Self { lines: VecDeque::new(), most_bytes, reservation: budget.reservation() }
    }

    /// Remembers a response that has ended well.
    pub(super) fn remember(&mut self, id: String, previous: Option<&str>, unstored: UnstoredInput, output: Json) {
        let place = previous.and_then(|previous| self.find(previous));
        let mut line = match place.and_then(|(line, turn)| Some((self.lines.remove(line)?, turn))) {
            None => Line::default(),
            Some((line, last)) if last + 1 == line.turns.len() => line,
            Some((line, shared)) => {
                let fork = line.fork(shared);
                self.lines.push_back(line);
                fork
            }
        };
        for said in unstored.before {
            line.push(None, ItemsOf { input: said, output: no_items() });
        }
        line.push(Some(id), ItemsOf { input: unstored.input, output });
        self.lines.push_back(line);
        while self.lines.len() > MOST_LINES || self.bytes() > self.most_bytes || !self.pay() {
            self.lines.pop_front();
        }
    }

    /// Takes from the budget what is remembered; whether there was enough.
    fn pay(&mut self) -> bool {
        let bytes = self.bytes();
        self.reservation.resize(bytes)
    }

    /// Makes a response one that cannot be continued.
    pub(super) fn forget(&mut self, id: &str) {
        let Some((line, turn)) = self.find(id) else { return };
        let Some(line) = self.lines.get_mut(line) else { return };
        if let Some(turn) = line.turns.get_mut(turn) {
            turn.id = None;
        }
        // Nothing builds on what stands behind the last one that can be continued.
        while line.turns.last().is_some_and(|turn| turn.id.is_none()) {
            if let Some(turn) = line.turns.pop() {
                line.bytes -= turn.bytes();
            }
        }
        self.lines.retain(|line| !line.turns.is_empty());
        self.pay();
    }

    fn find(&self, id: &str) -> Option<(usize, usize)> {
        let lines = self.lines.iter().enumerate().rev();
        lines
            .filter_map(|(index, line)| {
                let turn = line.turns.iter().rposition(|turn| turn.id.as_deref() == Some(id))?;
                Some((index, turn))
            })
            .next()
    }

    fn bytes(&self) -> usize {
        self.lines.iter().map(|line| line.bytes).sum()
    }
}

impl ConnectionMemory for Remembered {
    fn recall(&self, response_id: &str) -> Option<Vec<ItemsOf>> {
        let (line, turn) = self.find(response_id)?;
        let turns = self.lines.get(line)?.turns.get(..=turn)?;
        Some(turns.iter().map(|turn| turn.items.clone()).collect())
    }
}

impl Line {
    fn push(&mut self, id: Option<String>, items: ItemsOf) {
        let turn = Turn { id, items };
        self.bytes += turn.bytes();
        self.turns.push(turn);
    }

    /// The same turns up to this one, for another one to go on from. They are shared, yet counted twice.
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

    fn remembered(most_bytes: usize) -> Remembered {
        Remembered::new(most_bytes, &RequestMemory::new(usize::MAX))
    }

    fn json(text: &str) -> Json {
        Json::from(Raw::parse(text.as_bytes()).unwrap())
    }

    fn says(text: &str) -> UnstoredInput {
        UnstoredInput { before: Vec::new(), input: json(&format!("[\"{text}\"]")) }
    }

    /// What is recalled, as one text.
    fn told(memory: &Remembered, id: &str) -> Option<String> {
        let turns = memory.recall(id)?;
        let texts = turns.iter().flat_map(|turn| [&turn.input, &turn.output]);
        Some(texts.map(|json| json.raw().text().to_owned()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_response_brings_everything_that_it_builds_on() {
        let mut memory = remembered(1000);
        memory.remember("a".into(), None, says("1"), json("[\"2\"]"));
        memory.remember("b".into(), Some("a"), says("3"), json("[\"4\"]"));
        assert_eq!(told(&memory, "a").unwrap(), r#"["1"] ["2"]"#);
        assert_eq!(told(&memory, "b").unwrap(), r#"["1"] ["2"] ["3"] ["4"]"#);
        assert_eq!(told(&memory, "c"), None);
    }

    #[test]
    fn two_that_go_on_from_one_do_not_see_each_other() {
        let mut memory = remembered(1000);
        memory.remember("a".into(), None, says("1"), json("[]"));
        memory.remember("b".into(), Some("a"), says("2"), json("[]"));
        memory.remember("c".into(), Some("a"), says("3"), json("[]"));
        memory.remember("d".into(), Some("b"), says("4"), json("[]"));
        assert_eq!(told(&memory, "c").unwrap(), r#"["1"] [] ["3"] []"#);
        assert_eq!(told(&memory, "d").unwrap(), r#"["1"] [] ["2"] [] ["4"] []"#);
    }

    #[test]
    fn what_the_store_has_is_remembered_in_front_of_what_goes_on_from_it() {
        let mut memory = remembered(1000);
        let unstored = UnstoredInput { before: vec![json("[\"kept\"]")], input: json("[\"1\"]") };
        memory.remember("b".into(), Some("stored"), unstored, json("[]"));
        assert_eq!(told(&memory, "b").unwrap(), r#"["kept"] [] ["1"] []"#);
        assert_eq!(told(&memory, "stored"), None);
    }

    #[test]
    fn one_that_was_forgotten_is_gone_and_those_behind_it_stay() {
        let mut memory = remembered(1000);
        memory.remember("a".into(), None, says("1"), json("[]"));
        memory.remember("b".into(), Some("a"), says("2"), json("[]"));
        memory.forget("a");
        assert_eq!(told(&memory, "a"), None);
        assert_eq!(told(&memory, "b").unwrap(), r#"["1"] [] ["2"] []"#);
        memory.forget("b");
        memory.forget("never");
        assert_eq!((memory.lines.len(), memory.bytes()), (0, 0));
    }

    #[test]
    fn the_line_that_was_used_least_recently_goes_first() {
        let mut memory = remembered(100_000);
        for name in 0..MOST_LINES {
            memory.remember(format!("first-{name}"), None, says("x"), json("[]"));
        }
        memory.remember("more".into(), Some("first-0"), says("x"), json("[]"));
        memory.remember("new".into(), None, says("x"), json("[]"));
        assert_eq!(told(&memory, "first-1"), None);
        for id in ["first-0", "more", "first-2", "new"] {
            assert!(told(&memory, id).is_some(), "{id}");
        }
    }

    #[test]
    fn no_more_bytes_are_remembered_than_the_bound() {
        let mut memory = remembered(1000);
        for name in 0..5 {
            memory.remember(name.to_string(), None, says(&"x".repeat(400)), json("[]"));
        }
        assert_eq!((told(&memory, "2"), memory.lines.len()), (None, 2));
        memory.remember("long".into(), Some("4"), says(&"x".repeat(900)), json("[]"));
        assert_eq!((told(&memory, "long"), memory.bytes()), (None, 0));
    }

    #[test]
    fn all_connections_together_remember_no_more_than_the_budget() {
        let budget = RequestMemory::new(1000);
        let free = || budget.free();
        let mut first = Remembered::new(10_000, &budget);
        let mut second = Remembered::new(10_000, &budget);
        first.remember("a".into(), None, says(&"x".repeat(400)), json("[]"));
        second.remember("b".into(), None, says(&"x".repeat(400)), json("[]"));
        // A connection makes room for what is new by what it has itself, and takes nothing from others.
        second.remember("c".into(), None, says(&"x".repeat(300)), json("[]"));
        assert!(told(&first, "a").is_some() && told(&second, "b").is_none() && told(&second, "c").is_some());
        assert_eq!(free(), 1000 - first.bytes() - second.bytes());
        // What does not fit at all is not remembered, nor is what it goes on from.
        second.remember("d".into(), Some("c"), says(&"x".repeat(500)), json("[]"));
        assert!(told(&second, "c").is_none() && told(&second, "d").is_none());
        assert_eq!(free(), 1000 - first.bytes());
        first.forget("a");
        assert_eq!(free(), 1000);
        second.remember("e".into(), None, says("x"), json("[]"));
        assert!(free() < 1000);
        drop(second);
        assert_eq!(free(), 1000, "a connection that ends gives everything back");
    }
}
