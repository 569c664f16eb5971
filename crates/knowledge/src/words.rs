//! Words of source code and of prose.
//!
//! An identifier of several words is found by each of them and as a whole, in any style: `putDocuments`,
//! `put_documents` and `PUT_DOCUMENTS` have the same words. Words are reduced to stems, as in [`crate::search`], and
//! consist of letters and digits.

use std::collections::HashSet;

use crate::search::{family, is_inside, push_plain};

/// The maximum number of words of a question.
pub const MAX_QUESTION_WORDS: usize = 256;

/// The maximum length of a word, in characters.
const MAX_CHARS: usize = 64;
/// An identifier with more parts is probably generated, and is not split.
const MAX_PARTS: usize = 12;

/// Words in nearly every text; sorted, for binary search. Other frequent words may be what a user looks for, and are
/// left to the store.
#[rustfmt::skip]
const STOP_WORDS: &[&str] = &[
    "a", "about", "also", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do", "does",
    "for", "from", "had", "has", "have", "he", "her", "his", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my",
    "of", "on", "or", "our", "please", "she", "should", "so", "such", "than", "that", "the", "their", "them", "then",
    "there", "these", "they", "this", "those", "to", "was", "we", "were", "what", "when", "where", "which", "who", "why",
    "will", "with", "would", "you", "your",
];

/// The words of a text, with duplicates.
pub fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    visit_words(text, |word| {
        found.push(word);
        true
    });
    found
}

/// The words of a question, without duplicates; the first [`MAX_QUESTION_WORDS`] of them.
pub fn question(text: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut question_words = Vec::new();
    visit_words(text, |word| {
        if seen.insert(word.clone()) {
            question_words.push(word);
        }
        question_words.len() < MAX_QUESTION_WORDS
    });
    question_words
}

/// Calls `take` with each word in order, until it returns false.
fn visit_words(text: &str, mut take: impl FnMut(String) -> bool) {
    let mut name = Name::default();
    let mut chars = text.chars().peekable();
    loop {
        let next = chars.next();
        match next {
            Some(c) if c.is_alphanumeric() || c == '_' => {
                name.push(c);
                continue;
            }
            Some(c) if is_inside(c) && !name.is_empty() && chars.peek().is_some_and(|next| next.is_alphanumeric()) => {
                continue;
            }
            _ => {}
        }
        if !name.is_empty() && !name.visit(&mut take) {
            return;
        }
        name.clear();
        if next.is_none() {
            return;
        }
    }
}

/// The kind of a character in an identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Upper,
    Letter,
    Digit,
    /// Of a script without spaces between words.
    Unspaced,
    Underscore,
}

impl Kind {
    fn of(c: char) -> Self {
        match c {
            '_' => Self::Underscore,
            c if c.is_numeric() => Self::Digit,
            c if c.is_uppercase() => Self::Upper,
            // Thai, Lao, Burmese, Khmer; kana, Han.
            '\u{0e00}'..='\u{0eff}'
            | '\u{1000}'..='\u{109f}'
            | '\u{1780}'..='\u{17ff}'
            | '\u{3040}'..='\u{30ff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3ffff}' => Self::Unspaced,
            _ => Self::Letter,
        }
    }
}

/// Letters, digits and underscores in a row.
#[derive(Default)]
struct Name(Vec<char>);

impl Name {
    fn push(&mut self, c: char) {
        self.0.push(c);
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls `take` with the identifier's words; false if it wants no more.
    fn visit(&self, take: &mut impl FnMut(String) -> bool) -> bool {
        let parts = self.parts();
        let spaced = |part: &[char]| part.first().is_some_and(|c| Kind::of(*c) != Kind::Unspaced);
        for (number, part) in parts.iter().enumerate() {
            let more = match spaced(part) {
                true if number >= MAX_PARTS => true,
                true => word_of(part).is_none_or(&mut *take),
                false => pairs(part).all(&mut *take),
            };
            if !more {
                return false;
            }
        }
        if parts.iter().filter(|part| spaced(part)).count() < 2 {
            return true;
        }
        let whole: String = plain(parts.iter().copied().filter(|part| spaced(part)).flatten());
        take(whole)
    }

    /// The parts that underscores, capitals and digits separate.
    fn parts(&self) -> Vec<&[char]> {
        let kind = |at: usize| self.0.get(at).map(|c| Kind::of(*c));
        let mut parts = Vec::new();
        let mut begun = 0;
        for at in 0..=self.0.len() {
            let (before, here) = (at.checked_sub(1).and_then(kind), kind(at));
            let border = match (before, here) {
                (Some(Kind::Upper), Some(Kind::Letter)) => false,
                // The last of several capitals begins the next word (`HTTPServer`), but not before the `s` of a plural.
                (Some(Kind::Upper), Some(Kind::Upper)) => {
                    let plural = self.0.get(at + 1) == Some(&'s') && kind(at + 2) != Some(Kind::Letter);
                    kind(at + 1) == Some(Kind::Letter) && !plural
                }
                (before, here) => before != here,
            };
            if border {
                if let Some(part) = self.0.get(begun..at).filter(|part| part.first().is_some_and(|c| *c != '_')) {
                    parts.push(part);
                }
                begun = at;
            }
        }
        parts
    }
}

/// The word of a part; none for a stop word.
fn word_of(part: &[char]) -> Option<String> {
    let word = plain(part);
    let nothing = word.len() < 2 || STOP_WORDS.binary_search(&word.as_str()).is_ok();
    (!nothing).then(|| family(&word))
}

/// Lower case, without accents, truncated.
fn plain<'a>(part: impl IntoIterator<Item = &'a char>) -> String {
    let mut word = String::new();
    for c in part.into_iter().take(MAX_CHARS) {
        c.to_lowercase().for_each(|c| push_plain(&mut word, c));
    }
    if let Some((end, _)) = word.char_indices().nth(MAX_CHARS) {
        word.truncate(end);
    }
    word
}

/// Pairs of neighbouring characters, which find a word of two or more characters at any position.
fn pairs(part: &[char]) -> impl Iterator<Item = String> {
    part.windows(part.len().clamp(1, 2)).map(|pair| pair.iter().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_words_are_in_order_and_each_is_there_once() {
        assert!(STOP_WORDS.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn a_name_is_found_by_its_parts_and_as_a_whole() {
        for (text, expected) in [
            ("putDocuments", &["put", "docu", "putdocuments"][..]),
            ("put_documents", &["put", "docu", "putdocuments"]),
            ("PUT_DOCUMENTS", &["put", "docu", "putdocuments"]),
            ("__init__", &["init"]),
            ("HTTPServer2Go", &["http", "serv", "go", "httpserver2go"]),
            ("parseJSON", &["pars", "json", "parsejson"]),
            ("userIDs", &["user", "ids", "userids"]),
            ("sha256", &["sha", "256", "sha256"]),
            ("v1", &["v1"]),
            ("x = f(y_1)", &["y1"]),
            ("a_b_c", &["abc"]),
            ("", &[]),
            ("___ . ;", &[]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn prose_is_found_in_any_form_of_its_words() {
        assert_eq!(words("How do I evaluate it? An evaluation."), ["evalu", "evalu"]);
        assert_eq!(words("don't «Café» naïve"), ["dont", "cafe", "naiv"]);
        assert_eq!(question("Evaluating, evaluations & evaluate!"), ["evalu"]);
        assert_eq!(words("pelatihan"), words("melatih"));
    }

    #[test]
    fn scripts_without_spaces_are_found_by_neighbours() {
        assert_eq!(words("東京都"), ["東京", "京都"]);
        assert_eq!(words("語"), ["語"]);
        assert_eq!(words("rust言語x"), ["rust", "言語", "rustx"]);
        assert_eq!(words("привет мир"), ["привет", "мир"]);
    }

    #[test]
    fn words_are_bounded_whatever_the_text() {
        let hostile = ["a".repeat(100_000), "aB1_".repeat(50_000), "İ".repeat(1000), "_".repeat(1000)];
        for text in hostile {
            let found = words(&text);
            assert!(found.len() <= 64 && found.iter().all(|word| word.chars().count() <= MAX_CHARS), "{found:?}");
        }
        let many: String = (0..10_000).map(|number| format!("w{number} ")).collect();
        assert_eq!(question(&many).len(), MAX_QUESTION_WORDS);
    }

    proptest! {
        #[test]
        fn words_are_letters_and_digits_alone(text in ".{0,200}") {
            for word in words(&text) {
                prop_assert!(!word.is_empty() && word.chars().all(char::is_alphanumeric), "{word:?} of {text:?}");
            }
        }

        #[test]
        fn a_text_is_found_by_its_own_words(text in "[a-zA-Z_0-9 ]{0,80}") {
            let known: HashSet<String> = words(&text).into_iter().collect();
            prop_assert!(question(&text).iter().all(|word| known.contains(word)));
        }
    }
}
