//! One search, step by step. It returns what to ask the index and takes the answers; it never waits.
//!
//! A word that is in hundreds of thousands of chunks must not cost more than one that is in ten. So it is first estimated how
//! frequent the words are, from samples. Of rare words all chunks are read; of frequent words only the chunks in which they
//! have most weight; of a word that is in most chunks only if nothing else is asked. The best of what was read are then ranked
//! exactly, by all words, with BM25. What a tenant has is all that counts: numbers of chunks, frequencies, samples.

use std::collections::{HashMap, HashSet};

use amalgam_core::store::{ChunkRanking, FoundChunk, KnowledgeQuery};
use amalgam_knowledge::{Facts, MAX_QUESTION_WORDS};

use super::{
    index::{SAMPLED, STEPS, Terms, WORTH, document_of, id_of, indexed, is_word, sample, short},
    question::{Filter, IndexSyntax, Question},
};

/// So many words are looked for: the rarest of those that are asked.
const MOST_WORDS: usize = 24;
/// About so many entries of the index are read for words that are read whole.
const READ: u64 = 6144;
/// Of frequent words so many chunks are read together, those with most weight, and of so many frequent words.
const CHAMPIONS: u64 = 6144;
const MOST_CHAMPIONS: usize = 8;
/// An engine may have to walk through all entries of a word to hand out a few. No word with more entries is asked for, and
/// frequent words together have no more: of more frequent ones samples are read.
const WALKED: u64 = 65_536;
/// So many samples are counted; fewer of many words, of which only the rarest matter.
const MOST_SAMPLES: u64 = 2048;
const FEW_SAMPLES: u64 = 64;
/// Of a word that no sample has so many chunks are counted; it is taken to be in so many where they are not.
const COUNTED: u64 = 1024;
const SOME: f64 = 256.0;
/// With more words than these, each is looked up in less detail.
const FEW_WORDS: usize = 16;
/// So many chunks are ranked exactly; also the most that can be found.
const RANKED: usize = 384;
/// Of so many documents is looked up whether conditions hold that the index does not know about, so many at a time.
const CHECKED: usize = 4096;
const CHECKED_AT_ONCE: usize = 512;

/// A collection of the tenant that searches.
#[derive(Debug, Clone)]
pub(super) struct SearchedCollection {
    pub(super) number: i64,
    pub(super) name: String,
    pub(super) chunks: u64,
}

/// What is known about a document.
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
    /// Those that are searched in, by number.
    collections: HashMap<i64, &'a str>,
    filter: Filter,
    /// Whether documents have to be looked at, because the index does not know all of what is asked.
    looks: bool,
    /// Chunks of the tenant.
    total: f64,
    /// About so many chunks pass the filter.
    passing: u64,
    words: Vec<Word<'a>>,
    /// Whether there are many of them.
    many: bool,
    reads: Vec<Read>,
    scores: HashMap<i64, f64>,
    /// Chunks, the best first, of which it is not known whether they are admitted; those behind are looked at first.
    unchecked: Vec<i64>,
    admitted: Vec<i64>,
    checked: HashMap<i64, bool>,
}

struct Word<'a> {
    text: &'a str,
    /// How many samples have it; for each step how many it says so much about.
    samples: u64,
    strong: [u64; STEPS.len()],
    /// In how many chunks it is, as far as is known.
    frequency: f64,
}

impl Word<'_> {
    fn estimate(&self) -> u64 {
        self.samples * SAMPLED
    }

    /// Whether it may be that not all of its chunks can be read.
    fn is_frequent(&self) -> bool {
        self.estimate() > READ / 4
    }
}

/// A word with a step, read from the index.
struct Read {
    word: usize,
    step: usize,
    /// The lowest step that is read of the word.
    base: usize,
    /// Whether only samples are read.
    sampled: bool,
    most: u64,
}

impl<'a> Search<'a> {
    /// Nothing where nothing can be found. `collections` are all of the tenant's.
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
        // Which collection a chunk is in is known without the index.
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

    /// First: how frequent each word is among the samples, and how many samples pass the filter.
    pub(super) fn samples(&self) -> Vec<Question> {
        let most = if self.many { FEW_SAMPLES } else { MOST_SAMPLES };
        let ask = |text: String| Question { text, most };
        let words = self.words.iter().map(|word| ask(self.syntax.quoted(&sample(word.text, 0))));
        let passing = (!self.filter.is_empty()).then(|| ask(self.syntax.filtered(&sample("", 0), &self.filter)));
        words.chain(passing).collect()
    }

    /// Takes the counts, and asks second: how much frequent words say about samples, and in how many chunks rare ones are.
    pub(super) fn strengths(&mut self, counts: &[u64]) -> Vec<Question> {
        for (word, samples) in self.words.iter_mut().zip(counts) {
            word.samples = *samples;
            word.frequency = if *samples == 0 { SOME } else { word.estimate() as f64 };
        }
        if let Some(samples) = counts.get(self.words.len()) {
            // One more: a filter that no sample passes may let hundreds of chunks pass.
            self.passing = self.passing.min((samples + 1) * SAMPLED);
        }
        self.words.sort_by_key(|word| word.samples);
        self.words.truncate(MOST_WORDS);
        self.asked_strengths().map(|(_, question)| question).collect()
    }

    /// The word and what is asked about it.
    fn asked_strengths(&self) -> impl Iterator<Item = (usize, Question)> {
        // Without a filter reading tells how many there are.
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

    /// Takes the counts, and asks third: the chunks that have the words.
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
            // The lowest step of which not too many are left.
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

    /// Takes the chunks. Where that is not enough, the rarest of the words of which not all chunks were read is asked for
    /// once more: any of its chunks, as long as there are some.
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

    /// Takes what was asked for once more.
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

    /// Puts what was read in its order. Behind this, documents are looked at for as long as [`Search::next_documents`] names some.
    pub(super) fn order(&mut self) {
        let mut all: Vec<(f64, i64)> = self.scores.drain().map(|(number, score)| (score, number)).collect();
        let best_first = |one: &(f64, i64), other: &(f64, i64)| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1));
        // Of documents that need not be looked at, no more than those that are ranked have to be in order.
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

    /// Documents that have to be looked at next; none when it is known enough.
    pub(super) fn next_documents(&mut self) -> Vec<i64> {
        let mut documents = Vec::new();
        while self.admitted.len() < RANKED && self.checked.len() + documents.len() < CHECKED {
            let Some(number) = self.unchecked.last().copied() else { break };
            let document = document_of(number);
            match self.checked.get(&document) {
                Some(true) => self.admitted.push(number),
                Some(false) => {}
                // The same document may be named twice, a chunk after the other.
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

    /// Takes what is known about documents; one that is gone is not admitted.
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

    /// The best of them, in their order: by score, path and line.
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

    /// What was found, from the chunks that were picked and what they are made of.
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

/// How much it says that a chunk has a word that is in so many of all (idf).
fn rarity(frequency: f64, total: f64) -> f64 {
    let frequency = frequency.clamp(1.0, total.max(1.0));
    (1.0 + (total - frequency + 0.5).max(0.0) / (frequency + 0.5)).ln()
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
