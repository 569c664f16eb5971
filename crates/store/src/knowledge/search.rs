//! One search, step by step. It returns the queries of the index and takes their results; it does no I/O.
//!
//! A word that is in hundreds of thousands of chunks must not cost more than one that is in ten. Therefore samples
//! first give an estimate of how frequent the words are. Of rare words all chunks are read; of frequent words only the
//! chunks in which they have most weight; of a word that is in most chunks only if the search has no other words. The
//! best of the chunks that were read are then ranked exactly, by all words, with BM25. All numbers are those of the
//! tenant: chunks, frequencies, samples.

use std::collections::{HashMap, HashSet};

use amalgam_core::store::{ChunkRanking, FoundChunk, KnowledgeQuery};
use amalgam_knowledge::{Facts, MAX_QUESTION_WORDS};

use super::{
    index::{SAMPLED, STEPS, Terms, WORTH, document_of, id_of, indexed, is_word, sample, short},
    question::{Filter, IndexSyntax, Question},
};

/// The number of words that are searched, at most: the rarest of the query.
const MOST_WORDS: usize = 24;
/// The approximate number of index entries that are read for words of which all chunks are read.
const READ: u64 = 6144;
/// The number of chunks that are read for all frequent words together, those with most weight; and the number of
/// frequent words that are read.
const CHAMPIONS: u64 = 6144;
const MOST_CHAMPIONS: usize = 8;
/// An engine may have to read all entries of a word to return a few. No word with more entries than this is read, and
/// frequent words have no more together: of words with more entries only samples are read.
const WALKED: u64 = 65_536;
/// The number of samples that are counted; fewer for a search with many words, of which only the rarest matter.
const MOST_SAMPLES: u64 = 2048;
const FEW_SAMPLES: u64 = 64;
/// The number of chunks that are counted for a word that no sample has, and the estimate for a word that is not
/// counted.
const COUNTED: u64 = 1024;
const SOME: f64 = 256.0;
/// With more words than this, fewer entries are read for each word.
const FEW_WORDS: usize = 16;
/// The number of chunks that are ranked exactly, and so the limit of the results.
const RANKED: usize = 384;
/// The number of documents that are checked for conditions that the index does not cover, in all and at once.
const CHECKED: usize = 4096;
const CHECKED_AT_ONCE: usize = 512;

/// A collection of the tenant.
#[derive(Debug, Clone)]
pub(super) struct SearchedCollection {
    pub(super) number: i64,
    pub(super) name: String,
    pub(super) chunks: u64,
}

/// The facts about a document.
#[derive(Debug, Clone)]
pub(super) struct DocumentFacts {
    pub(super) number: i64,
    pub(super) collection: i64,
    pub(super) path: String,
    pub(super) language: String,
    pub(super) attributes: Vec<(String, String)>,
}

/// A chunk that is ranked.
#[derive(Debug)]
pub(super) struct RankedChunk {
    pub(super) number: i64,
    pub(super) start_line: u64,
    pub(super) terms: Vec<u8>,
    pub(super) document: DocumentFacts,
}

/// The content of a chunk that was picked.
#[derive(Debug)]
pub(super) struct ChunkContent {
    pub(super) number: i64,
    pub(super) symbol: Option<String>,
    pub(super) end_line: u64,
    pub(super) content: String,
    pub(super) embedding: Option<Vec<f32>>,
}

/// A search.
pub(super) struct Search<'a> {
    syntax: IndexSyntax,
    query: &'a KnowledgeQuery<'a>,
    /// The searched collections, by number.
    collections: HashMap<i64, &'a str>,
    filter: Filter,
    /// Whether documents have to be checked, because the index does not cover all conditions.
    looks: bool,
    /// The number of the tenant's chunks.
    total: f64,
    /// The estimated number of chunks that pass the filter.
    passing: u64,
    words: Vec<Word<'a>>,
    /// Whether the search has many words.
    many: bool,
    reads: Vec<Read>,
    scores: HashMap<i64, f64>,
    /// Chunks that were not checked against the conditions yet. The best one is last and checked first.
    unchecked: Vec<i64>,
    admitted: Vec<i64>,
    checked: HashMap<i64, bool>,
}

struct Word<'a> {
    text: &'a str,
    /// The number of samples that have the word, and the number that have it with the weight of each step.
    samples: u64,
    strong: [u64; STEPS.len()],
    /// The number of chunks that have the word, as far as it was counted or estimated.
    frequency: f64,
}

impl Word<'_> {
    fn estimate(&self) -> u64 {
        self.samples * SAMPLED
    }

    /// Whether the word may be too frequent to read all its chunks.
    fn is_frequent(&self) -> bool {
        self.estimate() > READ / 4
    }
}

/// A word with a step, read from the index.
struct Read {
    word: usize,
    step: usize,
    /// The lowest step of the word that is read.
    base: usize,
    /// Whether only samples are read.
    sampled: bool,
    most: u64,
}

impl<'a> Search<'a> {
    /// `None` if the search cannot find anything. `collections` are all collections of the tenant.
    pub(super) fn new(
        syntax: IndexSyntax,
        query: &'a KnowledgeQuery<'a>,
        collections: &'a [SearchedCollection],
    ) -> Option<Self> {
        let mut seen = HashSet::new();
        let words = query.words.iter().filter(|word| is_word(word) && seen.insert(word.as_str()));
        let words = words.take(MAX_QUESTION_WORDS);
        let words: Vec<Word<'_>> =
            words.map(|word| Word { text: word, samples: 0, strong: [0; STEPS.len()], frequency: 0.0 }).collect();
        let named = |collection: &&SearchedCollection| {
            query.collections.is_empty() || query.collections.contains(&collection.name)
        };
        // The collection of a chunk has its own index word.
        let (of_collection, others): (Vec<_>, Vec<_>) =
            query.conditions.iter().partition(|condition| condition.key.eq_ignore_ascii_case("collection"));
        let admitted = |collection: &&SearchedCollection| {
            of_collection.iter().all(|condition| condition.admits(Some(&collection.name)))
        };
        let chosen: Vec<&SearchedCollection> =
            collections.iter().filter(named).filter(admitted).filter(|collection| collection.chunks > 0).collect();
        if words.is_empty() || chosen.is_empty() || query.limit == 0 {
            return None;
        }
        let sum = |collections: &mut dyn Iterator<Item = u64>| collections.fold(0_u64, u64::saturating_add);
        let total = sum(&mut collections.iter().map(|collection| collection.chunks));
        let within = sum(&mut chosen.iter().map(|collection| collection.chunks));
        let numbers: Vec<i64> = chosen.iter().map(|collection| collection.number).collect();
        let (filter, known) = Filter::new((within < total).then_some(&*numbers), &others);
        Some(Self {
            syntax,
            query,
            collections: chosen.iter().map(|collection| (collection.number, collection.name.as_str())).collect(),
            looks: !known,
            filter,
            total: total as f64,
            passing: within,
            many: words.len() > FEW_WORDS,
            words,
            reads: Vec::new(),
            scores: HashMap::new(),
            unchecked: Vec::new(),
            admitted: Vec::new(),
            checked: HashMap::new(),
        })
    }

    /// First step: returns queries for the number of samples that have each word, and that pass the filter.
    pub(super) fn samples(&self) -> Vec<Question> {
        let most = if self.many { FEW_SAMPLES } else { MOST_SAMPLES };
        let ask = |text: String| Question { text, most };
        let words = self.words.iter().map(|word| ask(self.syntax.quoted(&sample(word.text, 0))));
        let passing = (!self.filter.is_empty()).then(|| ask(self.syntax.filtered(&sample("", 0), &self.filter)));
        words.chain(passing).collect()
    }

    /// Takes the counts. Second step: returns queries for the weights of frequent words in samples, and for the number
    /// of chunks that have rare words.
    pub(super) fn strengths(&mut self, counts: &[u64]) -> Vec<Question> {
        for (word, samples) in self.words.iter_mut().zip(counts) {
            word.samples = *samples;
            word.frequency = if *samples == 0 { SOME } else { word.estimate() as f64 };
        }
        if let Some(samples) = counts.get(self.words.len()) {
            // One is added because a filter that no sample passes may let hundreds of chunks pass.
            self.passing = self.passing.min((samples + 1) * SAMPLED);
        }
        self.words.sort_by_key(|word| word.samples);
        self.words.truncate(MOST_WORDS);
        self.asked_strengths().map(|(_, question)| question).collect()
    }

    /// The queries of the second step, each with its word.
    fn asked_strengths(&self) -> impl Iterator<Item = (usize, Question)> {
        // Without a filter, reading the chunks shows how many there are.
        let counts = !self.filter.is_empty() && !self.many;
        self.words.iter().enumerate().flat_map(move |(number, word)| {
            let mut asked = Vec::new();
            if word.is_frequent() {
                for step in 1..=STEPS.len() {
                    asked.push(Question { text: self.syntax.quoted(&sample(word.text, step)), most: MOST_SAMPLES });
                }
            } else if counts && word.samples == 0 {
                asked.push(Question { text: self.syntax.quoted(&indexed(word.text, 0)), most: COUNTED });
            }
            asked.into_iter().map(move |question| (number, question))
        })
    }

    /// Takes the counts. Third step: returns queries for the chunks that have the words.
    pub(super) fn reads(&mut self, counts: &[u64]) -> Vec<Question> {
        let words: Vec<usize> = self.asked_strengths().map(|(word, _)| word).collect();
        let mut steps = vec![0; self.words.len()];
        for (number, count) in words.into_iter().zip(counts) {
            let (Some(word), Some(step)) = (self.words.get_mut(number), steps.get_mut(number)) else { continue };
            match word.is_frequent() {
                true => {
                    if let Some(strong) = word.strong.get_mut(*step) {
                        *strong = *count;
                    }
                }
                false => word.frequency = *count as f64,
            }
            *step += 1;
        }
        self.plan();
        self.questions()
    }

    fn plan(&mut self) {
        let is_common = |word: &Word<'_>| word.estimate() as f64 > self.total / 2.0;
        let only_common = self.words.iter().all(is_common);
        let (mut room, mut champions) = (READ, Vec::new());
        let (steps, most) = match self.many {
            true => (0, READ / MOST_WORDS as u64),
            false => (STEPS.len(), READ),
        };
        for (number, word) in self.words.iter().enumerate() {
            let estimate = word.estimate().min(self.passing);
            if estimate <= room {
                room -= estimate;
                let read = |step| Read { word: number, step, base: 0, sampled: false, most };
                self.reads.extend((0..=steps).map(read));
            } else if champions.len() < MOST_CHAMPIONS && (only_common || !is_common(word)) {
                champions.push(number);
            }
        }
        let share = champions.len().max(1) as u64;
        let (most, walked) = (CHAMPIONS / share, WALKED / share);
        for number in champions {
            // The lowest step that leaves few enough chunks.
            let few = |samples: &u64| samples * SAMPLED <= most;
            let strong = self.words.get(number).map(|word| word.strong).unwrap_or_default();
            let base = strong.iter().position(few).map_or(STEPS.len(), |at| at + 1);
            let sampled = strong.last().is_some_and(|samples| samples * SAMPLED > walked);
            let read = |step| Read { word: number, step, base, sampled, most };
            self.reads.extend((base..=STEPS.len()).map(read));
        }
    }

    fn questions(&self) -> Vec<Question> {
        let word = |read: &Read| self.words.get(read.word).map_or("", |word| word.text);
        let entry = |read: &Read| match read.sampled {
            true => sample(word(read), read.step),
            false => indexed(word(read), read.step),
        };
        let ask = |read: &Read| Question { text: self.syntax.filtered(&entry(read), &self.filter), most: read.most };
        self.reads.iter().map(ask).collect()
    }

    /// Takes the chunks. If they are too few, returns a query for any chunks of the rarest word of which not all chunks
    /// were read.
    pub(super) fn more(&mut self, lists: &[Vec<i64>]) -> Vec<Question> {
        self.take(lists);
        self.reads.clear();
        if self.scores.len() >= self.query.limit {
            return Vec::new();
        }
        let estimate = |word: &Word<'_>| word.estimate().min(self.passing);
        let not_whole = self.words.iter().enumerate().find(|(_, word)| estimate(word) > READ);
        let Some((number, word)) = not_whole else { return Vec::new() };
        let sampled = estimate(word) > WALKED;
        self.reads.push(Read { word: number, step: 0, base: 0, sampled, most: CHAMPIONS });
        self.questions()
    }

    /// Takes the results of the last query.
    pub(super) fn take(&mut self, lists: &[Vec<i64>]) {
        let filtered = !self.filter.is_empty();
        for (read, list) in self.reads.iter().zip(lists) {
            let Some(word) = self.words.get_mut(read.word) else { continue };
            let whole = (list.len() as u64) < read.most;
            if read.step == 0 && whole && !filtered && !read.sampled {
                word.frequency = list.len() as f64;
            }
            let idf = rarity(word.frequency, self.total);
            let worth = |step: usize| WORTH.get(step).copied().unwrap_or_default();
            let below = if read.step == read.base { 0.0 } else { worth(read.step - 1) };
            for number in list {
                *self.scores.entry(*number).or_default() += idf * (worth(read.step) - below);
            }
        }
    }

    /// Sorts the chunks that were read. Then the caller looks up documents as long as [`Search::next_documents`]
    /// returns some.
    pub(super) fn order(&mut self) {
        let mut all: Vec<(f64, i64)> = self.scores.drain().map(|(number, score)| (score, number)).collect();
        let best_first = |one: &(f64, i64), other: &(f64, i64)| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1));
        // If no documents have to be checked, only the chunks that will be ranked have to be sorted.
        if !self.looks && all.len() > RANKED {
            all.select_nth_unstable_by(RANKED, best_first);
            all.truncate(RANKED);
        }
        all.sort_unstable_by(best_first);
        let numbers = all.into_iter().map(|(_, number)| number);
        match self.looks {
            true => self.unchecked = numbers.rev().collect(),
            false => self.admitted = numbers.collect(),
        }
    }

    /// The documents that have to be checked next; empty if enough chunks were admitted.
    pub(super) fn next_documents(&mut self) -> Vec<i64> {
        let mut documents = Vec::new();
        while self.admitted.len() < RANKED && self.checked.len() + documents.len() < CHECKED {
            let Some(number) = self.unchecked.last().copied() else { break };
            let document = document_of(number);
            match self.checked.get(&document) {
                Some(true) => self.admitted.push(number),
                Some(false) => {}
                // Consecutive chunks may be of the same document.
                None if documents.len() == CHECKED_AT_ONCE => break,
                None => {
                    if documents.last() != Some(&document) {
                        documents.push(document);
                    }
                    self.admitted.push(number);
                }
            }
            self.unchecked.pop();
        }
        documents
    }

    /// Records which documents satisfy the conditions. A missing document was deleted meanwhile; its chunks are not
    /// admitted.
    pub(super) fn judge(&mut self, asked: &[i64], documents: &[DocumentFacts]) {
        self.checked.extend(asked.iter().map(|document| (*document, false)));
        for document in documents {
            self.checked.insert(document.number, self.admits(document));
        }
        let checked = &self.checked;
        self.admitted.retain(|number| checked.get(&document_of(*number)) == Some(&true));
    }

    /// The chunks that are ranked.
    pub(super) fn candidates(&self) -> &[i64] {
        self.admitted.get(..RANKED).unwrap_or(&self.admitted)
    }

    /// Returns the best of the candidates, sorted by score, path and line.
    pub(super) fn pick(&self, candidates: Vec<RankedChunk>) -> Vec<(f64, RankedChunk)> {
        let words: Vec<(u32, f64)> =
            self.words.iter().map(|word| (short(word.text), rarity(word.frequency, self.total))).collect();
        let mut ranked: Vec<(f64, RankedChunk)> = Vec::with_capacity(candidates.len());
        for candidate in candidates.into_iter().filter(|candidate| self.admits(&candidate.document)) {
            let terms = Terms::new(&candidate.terms);
            let score: f64 = words.iter().filter_map(|(word, idf)| Some(idf * terms.impact_of(*word)?)).sum();
            ranked.push((score, candidate));
        }
        ranked.sort_by(|(one, first), (other, second)| {
            let place = |candidate: &RankedChunk| (candidate.start_line, candidate.number);
            other
                .total_cmp(one)
                .then_with(|| first.document.path.cmp(&second.document.path))
                .then_with(|| place(first).cmp(&place(second)))
        });
        ranked.truncate(self.query.limit);
        ranked
    }

    /// The results, from the picked chunks and their contents.
    pub(super) fn found(&self, picked: Vec<(f64, RankedChunk)>, made_of: Vec<ChunkContent>) -> Vec<FoundChunk> {
        let mut made_of: HashMap<i64, ChunkContent> = made_of.into_iter().map(|one| (one.number, one)).collect();
        let found = picked.into_iter().filter_map(|(score, candidate)| {
            // A document may have been replaced meanwhile.
            let made_of = made_of.remove(&candidate.number)?;
            let RankedChunk { number, start_line, document, .. } = candidate;
            Some(FoundChunk {
                id: id_of(number),
                collection: (*self.collections.get(&document.collection)?).to_owned(),
                path: document.path,
                language: document.language,
                attributes: document.attributes,
                symbol: made_of.symbol,
                start_line,
                end_line: made_of.end_line,
                content: made_of.content,
                score,
                ranking: ChunkRanking { word_score: score, similarity: None },
                embedding: made_of.embedding,
            })
        });
        found.collect()
    }

    fn admits(&self, document: &DocumentFacts) -> bool {
        let Some(collection) = self.collections.get(&document.collection) else { return false };
        let DocumentFacts { path, language, attributes, .. } = document;
        Facts { collection, path, language, attributes }.fit(self.query.conditions)
    }
}

/// The inverse document frequency (idf) of a word.
fn rarity(frequency: f64, total: f64) -> f64 {
    let frequency = frequency.clamp(1.0, total.max(1.0));
    (1.0 + (total - frequency + 0.5).max(0.0) / (frequency + 0.5)).ln()
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
