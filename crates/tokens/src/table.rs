//! The vocabulary of o200k_base, searched in place: `build.rs` lays it out, and the program's file holds it.
//!
//! Nothing is unpacked or copied: memory holds the pages that searches touch, and the system can drop them again.

macro_rules! table {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base/", $name))
    };
}

static BYTES: &[u8] = table!("bytes");
static STARTS: &[u8] = table!("starts");
static RANKS: &[u8] = table!("ranks");
static PREFIXES: &[u8] = table!("prefixes");
static PARTS: &[u8] = table!("parts");
static PAIRS: &[u8] = table!("pairs");
static BEGINNINGS: &[u8] = table!("beginnings");

/// Stands for "no token".
const NONE: u32 = 0xff_ffff;

const SLOTS: usize = PAIRS.len() / 3;

/// A token, by its place among all tokens in the order of their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(u32);

impl Token {
    /// The longest token with which a text begins. Every byte is a token, so that only an empty text has none.
    pub(super) fn longest_at_start_of(text: &[u8]) -> Option<Token> {
        let (first, second) = (*text.first()?, text.get(1).copied());
        let two = usize::from(u16::from_be_bytes([first, second.unwrap_or(0)]));
        let from = number(BEGINNINGS, two);
        // The token of the first byte alone stands right before all others that begin with it.
        let single = Token(number(BEGINNINGS, usize::from(first) << 8) - 1);
        if second.is_none() {
            return Some(single);
        }
        let (mut low, mut high) = (from, number(BEGINNINGS, two + 1));
        while low < high {
            let middle = (low + high) / 2;
            match Token(middle).bytes() <= text {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        if low == from {
            return Some(single);
        }
        // What stands between a beginning of the text and the text itself, in the order of bytes, begins with it too.
        let mut token = Token(low - 1);
        while !text.starts_with(token.bytes()) {
            token = token.prefix().unwrap_or(single);
        }
        Some(token)
    }

    /// What merging these two gives.
    pub(super) fn merged(left: Token, right: Token) -> Option<Token> {
        let mut slot = pair_slot(left.0, right.0);
        loop {
            let found = number(PAIRS, slot);
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
        let at = self.0 as usize * 2;
        let left = number(PARTS, at);
        (left != self.0).then(|| (Token(left), Token(number(PARTS, at + 1))))
    }

    /// The longest shorter token with which this one begins.
    pub(super) fn prefix(self) -> Option<Token> {
        let prefix = number(PREFIXES, self.0 as usize);
        (prefix != NONE).then_some(Token(prefix))
    }

    /// Merges are made in the order of the ranks of what they give, lowest first.
    pub(super) fn rank(self) -> u32 {
        number(RANKS, self.0 as usize)
    }

    pub(super) fn len(self) -> usize {
        let at = self.0 as usize;
        (number(STARTS, at + 1) - number(STARTS, at)) as usize
    }

    fn bytes(self) -> &'static [u8] {
        let at = self.0 as usize;
        &BYTES[number(STARTS, at) as usize..number(STARTS, at + 1) as usize]
    }
}

/// The same function as in `build.rs`.
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

    fn all() -> impl Iterator<Item = Token> {
        (0..(STARTS.len() / 3 - 1) as u32).map(Token)
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
