//! Cuts a text into the pieces that o200k_base encodes each on its own: words, numbers of three digits, signs, white space.

use std::sync::LazyLock;

use regex_automata::{Anchored, Input, meta::Regex};

/// The patterns of the encoding, the first one that fits wins. The second is its negative look-ahead `\s+(?!\S)`, written as
/// a match whose last character is given back.
const PATTERNS: [&str; 3] = [
    concat!(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
        r"\p{N}{1,3}|",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*|",
        r"\s*[\r\n]+|",
        r"\s+$",
    ),
    r"\s+\s",
    r"\s+",
];
const GIVES_BACK: usize = 1;

static PATTERN: LazyLock<Regex> = LazyLock::new(|| Regex::new_many(&PATTERNS).expect("the patterns are well formed"));

/// The pieces of a text, in order; together they are the text.
pub(super) fn of(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let found = PATTERN.find(Input::new(rest).anchored(Anchored::Yes))?;
        let matched = rest.get(..found.end())?;
        let end = match found.pattern().as_usize() == GIVES_BACK {
            true => matched.char_indices().next_back()?.0,
            false => found.end(),
        };
        let (piece, others) = rest.split_at_checked(end)?;
        rest = others;
        Some(piece)
    })
}
