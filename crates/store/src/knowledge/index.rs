//! The words that the full-text index has for a chunk, and the counts that are stored beside it.
//!
//! The index has the words of a chunk, and the values that conditions may test. It also has the weights of the words: a
//! word with more weight is in the index again, once for each step of [`STEPS`]. So a query finds the chunks in which a
//! frequent word has most weight without reading all chunks that have it. One of [`SAMPLED`] chunks is indexed a second
//! time under words of its own, which show how frequent a word is.
//!
//! Every word begins with [`TENANT`], which the engine replaces by the number of the tenant.

use std::{collections::BTreeMap, fmt::Write as _};

use amalgam_core::store::{NewChunk, NewDocument};
use amalgam_knowledge::Facts;

use super::question::IndexSyntax;

/// The placeholder for the number of the tenant. No word contains it.
pub(super) const TENANT: char = '#';

/// The index has a word once more for each of these weights that it reaches in a chunk.
pub(super) const STEPS: [f64; 3] = [1.2, 1.5, 1.75];
/// The estimated weight of a word that the index has once, twice, and so on: about the middle of each step.
pub(super) const WORTH: [f64; 4] = [0.95, 1.35, 1.62, 1.85];
/// One chunk of this many is a sample.
pub(super) const SAMPLED: u64 = 1024;

/// The longest word in the index, in bytes: the longest one that chunking produces, in the widest characters.
const LONGEST: usize = 256;
/// The words of a chunk in the index have at most this many bytes. PostgreSQL accepts 1 MB.
const MOST_BYTES: usize = 1 << 18;

/// The parameters k1 and b of BM25, with their usual values: repetition adds less and less weight, and long chunks have
/// all words more often.
const SATURATION: f64 = 1.2;
const LENGTH_COUNTS: f64 = 0.75;
/// The number of words in a chunk of medium length. Fixed, so that new documents do not change the weight of a chunk.
const MIDDLING: f64 = 200.0;

/// The weight of a word that occurs `count` times in a chunk of `length` words.
pub(super) fn impact(count: u32, length: u32) -> f64 {
    let (count, length) = (f64::from(count), f64::from(length));
    let norm = SATURATION * (1.0 - LENGTH_COUNTS + LENGTH_COUNTS * length / MIDDLING);
    count * (SATURATION + 1.0) / (count + norm)
}

/// The numbers of a document's first chunk and of the last one that it could have.
pub(super) fn numbers_of(document: i64) -> (i64, i64) {
    (document << 16, (document << 16) | 0xffff)
}

/// The document of a chunk.
pub(super) fn document_of(chunk: i64) -> i64 {
    chunk >> 16
}

/// The id of a chunk for callers.
pub(super) fn id_of(chunk: i64) -> String {
    format!("{}-{}", document_of(chunk), chunk & 0xffff)
}

/// Whether a word can be in the index.
pub(super) fn is_word(word: &str) -> bool {
    !word.is_empty() && word.len() <= LONGEST && word.chars().all(char::is_alphanumeric)
}

/// A chunk as the index stores it.
pub(super) struct IndexedChunk {
    /// The words of the index, with spaces between.
    pub(super) words: String,
    /// How often the chunk has each word: [`Terms`].
    pub(super) terms: Vec<u8>,
}

impl IndexedChunk {
    /// `collection` is the number of the collection, and `place` that of the chunk in its document.
    pub(super) fn of(
        collection: i64,
        document: &NewDocument,
        place: usize,
        chunk: &NewChunk,
        syntax: IndexSyntax,
    ) -> Self {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        let mut length = 0_u32;
        for word in chunk.words.iter().filter(|word| is_word(word)) {
            *counts.entry(word).or_default() += 1;
            length = length.saturating_add(1);
        }
        let mut list = WordList { words: String::with_capacity(16 * counts.len()), syntax };
        list.add(|words| write!(words, "{}", belongs_to(collection)));
        attribute_words(document).for_each(|word| list.add(|words| words.write_str(&word)));
        let sampled = is_sample(&document.path, place);
        if sampled {
            list.add(|words| words.write_str(&sample("", 0)));
        }
        for (word, count) in &counts {
            if list.words.len() > MOST_BYTES {
                break;
            }
            for step in 0..=steps(*count, length) {
                list.add(|words| write_word(words, word, step));
                if sampled {
                    list.add(|words| words.write_str(&sample(word, step)));
                }
            }
        }
        Self { words: list.words, terms: Terms::write(&counts, length) }
    }
}

/// Words with spaces between.
struct WordList {
    words: String,
    syntax: IndexSyntax,
}

impl WordList {
    fn add(&mut self, write: impl FnOnce(&mut String) -> std::fmt::Result) {
        let quote = if self.syntax == IndexSyntax::TsQuery { "'" } else { "" };
        if !self.words.is_empty() {
            self.words.push(' ');
        }
        self.words.push_str(quote);
        write(&mut self.words).expect("a String takes all text");
        self.words.push_str(quote);
    }
}

/// How many more times the index has a word.
fn steps(count: u32, length: u32) -> usize {
    let impact = impact(count, length);
    STEPS.iter().take_while(|step| impact >= **step).count()
}

fn write_word(words: &mut String, word: &str, step: usize) -> std::fmt::Result {
    match step {
        0 => write!(words, "{TENANT}:{word}"),
        step => write!(words, "{TENANT}:{word}:{step}"),
    }
}

/// A word in the index.
pub(super) fn indexed(word: &str, step: usize) -> String {
    let mut words = String::new();
    write_word(&mut words, word, step).expect("a String takes all text");
    words
}

/// A word of a sample; the empty one is that of all samples.
pub(super) fn sample(word: &str, step: usize) -> String {
    match step {
        0 => format!("{TENANT}?{word}"),
        step => format!("{TENANT}?{word}:{step}"),
    }
}

/// The word of all chunks of a collection.
pub(super) fn belongs_to(collection: i64) -> String {
    format!("{TENANT}=c{collection}")
}

/// The index word for all documents that have this value under this key, in any case of the key: as [`Facts::value`]
/// returns it.
pub(super) fn has(key: &str, value: &str) -> String {
    let hash = hash(hash(hash(SEED, key.to_ascii_lowercase().as_bytes()), &[0]), value.as_bytes());
    format!("{TENANT}={hash:016x}")
}

/// The index words for conditions: for each key the value that conditions are compared with.
fn attribute_words(document: &NewDocument) -> impl Iterator<Item = String> {
    // The collection of a document has an index word of its own.
    let facts =
        Facts { collection: "", path: &document.path, language: &document.language, attributes: &document.attributes };
    let mut keys = vec!["path", "language"];
    for (key, _) in &document.attributes {
        if !keys.iter().any(|known| known.eq_ignore_ascii_case(key)) {
            keys.push(key);
        }
    }
    keys.into_iter().filter_map(move |key| Some(has(key, facts.value(key)?)))
}

/// A hash of what never changes about a chunk decides, so that the same documents have the same samples.
fn is_sample(path: &str, place: usize) -> bool {
    let hash = hash(hash(SEED, path.as_bytes()), &place.to_le_bytes());
    (hash ^ (hash >> 32)).is_multiple_of(SAMPLED)
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a. Its values are stored in databases, so it must not change.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// How often a chunk has each word, as stored: the number of its words, and for each word four bytes of its hash and
/// one of its count, sorted by hash. If two words of a chunk have the same hash, a search counts both as one of them;
/// that is rare and costs only rank.
pub(super) struct Terms<'a>(&'a [u8]);

impl<'a> Terms<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn write(counts: &BTreeMap<&str, u32>, length: u32) -> Vec<u8> {
        let count = |count: &u32| u8::try_from(*count).unwrap_or(u8::MAX);
        let mut terms: Vec<(u32, u8)> = counts.iter().map(|(word, many)| (short(word), count(many))).collect();
        terms.sort_unstable();
        let mut bytes = Vec::with_capacity(4 + 5 * terms.len());
        bytes.extend_from_slice(&length.to_le_bytes());
        for (hash, count) in terms {
            bytes.extend_from_slice(&hash.to_le_bytes());
            bytes.push(count);
        }
        bytes
    }

    /// The weight of a word in the chunk; `None` if the chunk does not have it.
    pub(super) fn impact_of(&self, hash: u32) -> Option<f64> {
        let (length, terms) = self.0.split_first_chunk::<4>()?;
        let (terms, _) = terms.as_chunks::<5>();
        let at = terms.binary_search_by_key(&hash, |[a, b, c, d, _]| u32::from_le_bytes([*a, *b, *c, *d])).ok()?;
        let count = terms.get(at).map(|[.., count]| *count)?;
        Some(impact(u32::from(count), u32::from_le_bytes(*length)))
    }
}

/// The hash of a word in [`Terms`].
#[expect(clippy::cast_possible_truncation, reason = "half of a hash")]
pub(super) fn short(word: &str) -> u32 {
    let hash = hash(SEED, word.as_bytes());
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(attributes: &[(&str, &str)]) -> NewDocument {
        NewDocument {
            path: "src/a.rs".into(),
            digest: [0; 32],
            language: "rust".into(),
            attributes: attributes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            chunks: Vec::new(),
        }
    }

    fn chunk(words: &[&str]) -> NewChunk {
        NewChunk {
            symbol: None,
            start_line: 1,
            end_line: 2,
            content: "text".into(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            embedding: None,
        }
    }

    #[test]
    fn the_index_has_a_word_the_more_often_the_more_weight_it_has() {
        let mut words = vec!["once"; 1];
        words.extend(["often"; 20]);
        words.extend(["filler"; 100]);
        words.extend(["it's", "", "a b", "\"", "#"]);
        let indexed = IndexedChunk::of(7, &document(&[("repo", "x")]), 0, &chunk(&words), IndexSyntax::Fts5);
        let all: Vec<&str> = indexed.words.split(' ').collect();
        assert!(all.contains(&"#:once") && !all.contains(&"#:once:1"), "{all:?}");
        assert!(["#:often", "#:often:1", "#:often:2", "#:often:3"].iter().all(|word| all.contains(word)), "{all:?}");
        assert!(all.contains(&"#=c7") && all.contains(&has("REPO", "x").as_str()));
        assert!(all.contains(&has("language", "rust").as_str()) && all.contains(&has("path", "src/a.rs").as_str()));
        let terms = Terms::new(&indexed.terms);
        assert_eq!(terms.impact_of(short("often")), Some(impact(20, 121)), "what is no word does not count");
        assert_eq!(terms.impact_of(short("never")), None);
        assert_eq!(Terms::new(&[]).impact_of(0), None);
    }

    #[test]
    fn about_one_piece_of_the_stated_number_is_a_sample() {
        let count = (0..400_000).filter(|number| is_sample(&format!("src/{}.rs", number / 10), number % 10)).count();
        let expected = 400_000 / SAMPLED as usize;
        assert!((expected * 8 / 10..expected * 12 / 10).contains(&count), "{count}");
    }

    #[test]
    fn steps_follow_one_another_and_the_worth_of_each_lies_between_them() {
        assert!(STEPS.is_sorted() && WORTH.is_sorted());
        for (step, worth) in STEPS.iter().zip(WORTH) {
            assert!(worth < *step);
        }
        for (step, worth) in STEPS.iter().zip(WORTH.iter().skip(1)) {
            assert!(worth > step);
        }
    }

    #[test]
    fn a_piece_without_end_has_a_bounded_index() {
        let many: Vec<String> = (0..50_000).map(|number| format!("word{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let indexed = IndexedChunk::of(7, &document(&[]), 0, &chunk(&many), IndexSyntax::TsQuery);
        assert!(indexed.words.len() < MOST_BYTES + 4096);
    }
}
