//! The vocabulary of o200k_base. The program's file holds what cannot be derived (2.8 MB, laid out by `build.rs`); the rest is
//! made at the first count (4.8 MB, in some milliseconds).

use std::sync::LazyLock;

macro_rules! table {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base/", $name))
    };
}

/// The bytes of all tokens, in their order.
static BYTES: &[u8] = table!("bytes");
/// How many bytes each token has.
static LENGTHS: &[u8] = table!("lengths");
static RANKS: &[u8] = table!("ranks");
/// The second of the two tokens whose merge makes each token; a single byte has itself.
static RIGHTS: &[u8] = table!("rights");

static TABLES: LazyLock<Tables> = LazyLock::new(Tables::new);

/// Stands for "no token".
const NONE: u32 = u32::MAX;

/// Slots of the table of pairs, a power of two. Two and a half for each token keep the chains short.
const SLOTS: usize = 1 << 19;

/// What is derived from the vocabulary.
struct Tables {
    /// Where each token begins in [`BYTES`], and where the last one ends.
    starts: Vec<u32>,
    /// The longest shorter token with which each token begins.
    prefixes: Vec<u32>,
    /// The first of the two tokens whose merge makes each token.
    lefts: Vec<u32>,
    /// A hash table with open addressing: the token that is made of two, at the hash of their numbers.
    pairs: Vec<u32>,
    /// For every two bytes the number of the first token that does not come before them, and one more for the end.
    beginnings: Vec<u32>,
}

impl Tables {
    fn new() -> Self {
        let mut tables = Self {
            starts: vec![0],
            prefixes: Vec::with_capacity(LENGTHS.len()),
            lefts: Vec::with_capacity(LENGTHS.len()),
            pairs: vec![NONE; SLOTS],
            beginnings: Vec::with_capacity(usize::from(u16::MAX) + 2),
        };
        tables.starts.reserve_exact(LENGTHS.len());
        let mut end = 0;
        for length in LENGTHS {
            end += u32::from(*length);
            tables.starts.push(end);
        }
        // Tokens that the next one may begin with, each a beginning of the one behind it.
        let mut open: Vec<u32> = Vec::new();
        for number in 0..LENGTHS.len() as u32 {
            let token = tables.bytes(number);
            while open.last().is_some_and(|last| !token.starts_with(tables.bytes(*last))) {
                open.pop();
            }
            tables.prefixes.push(open.last().copied().unwrap_or(NONE));
            open.push(number);
            tables.add_parts(number);
            let two = usize::from(u16::from_be_bytes([token[0], token.get(1).copied().unwrap_or(0)]));
            let from = if token.len() > 1 { two + 1 } else { two };
            tables.beginnings.resize(tables.beginnings.len().max(from), number);
        }
        tables.beginnings.resize(usize::from(u16::MAX) + 2, LENGTHS.len() as u32);
        tables
    }

    /// Notes the two tokens that make a token. The first of them is one of its prefixes.
    fn add_parts(&mut self, token: u32) {
        let right = number(RIGHTS, token as usize);
        let mut left = token;
        if right != token {
            let length = self.len(token) - self.len(right);
            while self.len(left) > length {
                left = self.prefixes[left as usize];
            }
            let mut slot = pair_slot(left, right);
            while self.pairs[slot] != NONE {
                slot = (slot + 1) % SLOTS;
            }
            self.pairs[slot] = token;
        }
        self.lefts.push(left);
    }

    fn len(&self, token: u32) -> usize {
        usize::from(LENGTHS[token as usize])
    }

    fn bytes(&self, token: u32) -> &'static [u8] {
        let at = token as usize;
        &BYTES[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// A token, by its place among all tokens in the order of their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(u32);

impl Token {
    /// The longest token with which a text begins. Every byte is a token, so that only an empty text has none.
    pub(super) fn longest_at_start_of(text: &[u8]) -> Option<Token> {
        let tables = &*TABLES;
        let (first, second) = (*text.first()?, text.get(1).copied());
        let two = usize::from(u16::from_be_bytes([first, second.unwrap_or(0)]));
        let from = tables.beginnings[two];
        // The token of the first byte alone stands right before all others that begin with it.
        let single = Token(tables.beginnings[usize::from(first) << 8] - 1);
        if second.is_none() {
            return Some(single);
        }
        let (mut low, mut high) = (from, tables.beginnings[two + 1]);
        while low < high {
            let middle = (low + high) / 2;
            match tables.bytes(middle) <= text {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        if low == from {
            return Some(single);
        }
        // What stands between a beginning of the text and the text itself, in the order of bytes, begins with it too.
        let mut token = Token(low - 1);
        while !text.starts_with(tables.bytes(token.0)) {
            token = token.prefix().unwrap_or(single);
        }
        Some(token)
    }

    /// What merging these two gives.
    pub(super) fn merged(left: Token, right: Token) -> Option<Token> {
        let mut slot = pair_slot(left.0, right.0);
        loop {
            let found = TABLES.pairs[slot];
            if found == NONE {
                return None;
            }
            if Token(found).parts() == Some((left, right)) {
                return Some(Token(found));
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// The two tokens whose merge makes this one; none for a single byte.
    pub(super) fn parts(self) -> Option<(Token, Token)> {
        let left = TABLES.lefts[self.0 as usize];
        (left != self.0).then(|| (Token(left), Token(number(RIGHTS, self.0 as usize))))
    }

    /// The longest shorter token with which this one begins.
    pub(super) fn prefix(self) -> Option<Token> {
        let prefix = TABLES.prefixes[self.0 as usize];
        (prefix != NONE).then_some(Token(prefix))
    }

    /// Merges are made in the order of the ranks of what they give, lowest first.
    pub(super) fn rank(self) -> u32 {
        number(RANKS, self.0 as usize)
    }

    pub(super) fn len(self) -> usize {
        usize::from(LENGTHS[self.0 as usize])
    }
}

fn pair_slot(left: u32, right: u32) -> usize {
    let hash = (u64::from(left) << 32 | u64::from(right)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 45) as usize % SLOTS
}

/// A number of three bytes, lowest first.
fn number(table: &[u8], index: usize) -> u32 {
    let at = index * 3;
    u32::from_le_bytes([table[at], table[at + 1], table[at + 2], 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Token {
        fn bytes(self) -> &'static [u8] {
            TABLES.bytes(self.0)
        }
    }

    fn all() -> impl Iterator<Item = Token> {
        (0..LENGTHS.len() as u32).map(Token)
    }

    #[test]
    fn every_token_is_the_longest_at_the_start_of_its_own_bytes() {
        assert_eq!(all().count(), 199_998);
        for token in all() {
            assert_eq!(Token::longest_at_start_of(token.bytes()), Some(token));
        }
    }

    #[test]
    fn every_token_of_several_bytes_is_found_by_the_pair_that_makes_it() {
        for token in all() {
            match token.parts() {
                Some((left, right)) => {
                    assert_eq!([left.bytes(), right.bytes()].concat(), token.bytes());
                    assert!(left.rank() < token.rank() && right.rank() < token.rank());
                    assert_eq!(Token::merged(left, right), Some(token));
                }
                None => assert_eq!(token.len(), 1),
            }
        }
    }

    #[test]
    fn a_prefix_is_the_longest_shorter_token_at_the_start() {
        for token in all() {
            let (_, shorter) = token.bytes().split_last().expect("tokens have bytes");
            assert_eq!(token.prefix(), Token::longest_at_start_of(shorter));
        }
    }
}
