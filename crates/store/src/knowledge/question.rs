//! Queries of the full-text index in an engine's syntax: a word, and the conditions on the chunks that have it.

use amalgam_core::{ComparisonOperator, Condition};

use super::index::{belongs_to, has};

/// A condition with more values is not part of the query.
const MOST_VALUES: usize = 64;

/// A query of the full-text index: the chunks that have a word.
#[derive(Debug, Clone)]
pub struct Question {
    /// The query in the engine's syntax.
    pub text: String,
    /// The number of chunks, at most.
    pub most: u64,
}

/// The query syntax of an engine's full-text index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexSyntax {
    /// SQLite.
    Fts5,
    /// PostgreSQL.
    TsQuery,
}

impl IndexSyntax {
    /// Chunks that have a word.
    pub(super) fn quoted(self, word: &str) -> String {
        // A word contains no character that would end the quotes.
        match self {
            Self::Fts5 => format!("\"{word}\""),
            Self::TsQuery => format!("'{word}'"),
        }
    }

    /// Chunks that have a word and pass the filter.
    pub(super) fn filtered(self, word: &str, filter: &Filter) -> String {
        let (and, or, not) = match self {
            Self::Fts5 => (" AND ", " OR ", " NOT "),
            Self::TsQuery => (" & ", " | ", " & !"),
        };
        let any = |words: &[String]| {
            let words: Vec<String> = words.iter().map(|word| self.quoted(word)).collect();
            format!("({})", words.join(or))
        };
        let mut question = self.quoted(word);
        for group in &filter.any_of {
            question = format!("({question}{and}{})", any(group));
        }
        if !filter.none_of.is_empty() {
            question = format!("({question}{not}{})", any(&filter.none_of));
        }
        question
    }
}

/// The conditions of a query of the index, besides the word.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// A chunk must have at least one word of each group.
    any_of: Vec<Vec<String>>,
    none_of: Vec<String>,
}

impl Filter {
    /// Returns the filter, and whether it covers all conditions. `collections` are the numbers of the searched
    /// collections; `None` for all of them.
    pub(super) fn new(collections: Option<&[i64]>, conditions: &[&Condition<'_>]) -> (Self, bool) {
        let (mut filter, mut known) = (Self::default(), true);
        match collections {
            Some(numbers) if numbers.len() <= MOST_VALUES => {
                filter.any_of.push(numbers.iter().map(|number| belongs_to(*number)).collect());
            }
            Some(_) => known = false,
            None => {}
        }
        for condition in conditions {
            let values = condition.values.iter().map(|value| has(&condition.key, value));
            match condition.operator {
                ComparisonOperator::Equals if condition.values.len() <= MOST_VALUES => {
                    filter.any_of.push(values.collect())
                }
                ComparisonOperator::Differs if filter.none_of.len() + condition.values.len() <= MOST_VALUES => {
                    filter.none_of.extend(values);
                }
                _ => known = false,
            }
        }
        // The longest group last: the index tests it only on the chunks that pass the others.
        filter.any_of.sort_by_key(Vec::len);
        (filter, known)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.any_of.is_empty() && self.none_of.is_empty()
    }
}
