//! Byte-pair encoding of one piece of a text, in time that is linear in its length.
//!
//! Merging the pair of the lowest rank again and again, as the encoding is defined, is quadratic in a long piece. Its
//! result is the only sequence of tokens in which no two neighbours would have been merged in another way, so that it can be
//! searched from the front: take the longest token that gets along with the one before it, and go back where there is none. A
//! position that was left once is never entered again, which bounds the search by the positions.

use super::table::Token;

/// Counts the tokens of pieces. Its memory is used again for the next piece.
#[derive(Default)]
pub(super) struct Encoder {
    tokens: Vec<Token>,
    /// One bit for each position of the piece: no encoding of all of it has a token that begins there.
    left: Vec<u64>,
    /// Tokens that were tried and merges that were undone, over all pieces: what the time is in proportion to.
    steps: u64,
}

impl Encoder {
    pub(super) fn count(&mut self, piece: &[u8]) -> u64 {
        let Some(first) = Token::longest_at_start_of(piece) else { return 0 };
        self.steps += 1;
        // Most pieces are words that are tokens.
        if first.len() == piece.len() {
            return 1;
        }
        self.tokens.clear();
        self.left.clear();
        self.left.resize(piece.len() / 64 + 1, 0);
        let mut at = 0;
        let mut candidate = Some(first);
        while let Some(token) = candidate {
            let before = self.tokens.last().copied();
            match self.fitting(before, token, at) {
                Some(token) => {
                    self.tokens.push(token);
                    at += token.len();
                    candidate = piece.get(at..).and_then(Token::longest_at_start_of);
                }
                None => {
                    self.left[at / 64] |= 1 << (at % 64);
                    self.tokens.pop();
                    at -= before.map_or(0, Token::len);
                    candidate = before;
                }
            }
        }
        self.tokens.len() as u64
    }

    /// The first of a token and the shorter ones in it that may stand at a position, behind the token before it.
    fn fitting(&mut self, before: Option<Token>, longest: Token, at: usize) -> Option<Token> {
        let mut candidate = Some(longest);
        while let Some(token) = candidate {
            self.steps += 1;
            let end = at + token.len();
            let is_left = self.left[end / 64] & (1 << (end % 64)) != 0;
            if !is_left && before.is_none_or(|before| self.stay_apart(before, token)) {
                return Some(token);
            }
            candidate = token.prefix();
        }
        None
    }

    /// Whether the encoding of two tokens' bytes is these two tokens: undoes their merges, the latest first, and looks
    /// whether one across the border would have come before it.
    fn stay_apart(&mut self, mut left: Token, mut right: Token) -> bool {
        let mut limit = u32::MAX;
        loop {
            self.steps += 1;
            if Token::merged(left, right).is_some_and(|merged| merged.rank() < limit) {
                return false;
            }
            match (left.rank() > right.rank(), left.parts(), right.parts()) {
                (true, Some((_, part)), _) | (false, Some((_, part)), None) => {
                    limit = left.rank();
                    left = part;
                }
                // Of two merges of the same rank the left one is made first, which is the one across the border.
                (_, _, Some((part, _))) => {
                    limit = right.rank() + 1;
                    right = part;
                }
                (_, None, None) => return true,
            }
        }
    }
}

#[cfg(test)]
#[path = "encoding_tests.rs"]
mod tests;
