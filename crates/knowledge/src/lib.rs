//! Rules of searching documents: the words of texts and queries, the chunks of documents, and the conditions on
//! documents.
//!
//! The stores index and search for the words that this crate produces, so that both storage engines find the same.

mod chunking;
mod declarations;
mod document;
mod file_search;
mod language;
mod rank;
pub mod search;
mod words;

pub use chunking::{CHUNKING_VERSION, chunks};
pub use document::{DocumentText, FileContent, ImportSettings};
pub use file_search::file_search_request;
pub use language::language_of;
pub use rank::rank_by_embeddings;
pub use words::{MAX_QUESTION_WORDS, question, words};

use amalgam_core::Condition;

/// The name of the tool that searches imported documents.
pub const SEARCH_KNOWLEDGE: &str = "search_knowledge";

/// Whether a text may be the name of a collection or of a source.
pub fn is_name(name: &str) -> bool {
    const LONGEST: usize = 64;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=LONGEST).contains(&name.len())
        && name.bytes().all(plain)
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

/// The properties of a document that conditions compare.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The collection of the document.
    pub collection: &'a str,
    /// The path of the document.
    pub path: &'a str,
    /// Its language.
    pub language: &'a str,
    /// Further attributes.
    pub attributes: &'a [(String, String)],
}

impl<'a> Facts<'a> {
    /// The value of a key, regardless of case: clients write keys in the style of their own language. Built-in
    /// properties precede attributes with the same name, and the first of two attributes counts.
    pub fn value(&self, key: &str) -> Option<&'a str> {
        let own = [("collection", self.collection), ("path", self.path), ("language", self.language)];
        let attributes = self.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        own.into_iter().chain(attributes).find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
    }

    /// Whether all conditions hold.
    pub fn fit(&self, conditions: &[Condition<'_>]) -> bool {
        conditions.iter().all(|condition| condition.admits(self.value(&condition.key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amalgam_core::ComparisonOperator;

    #[test]
    fn conditions_ask_for_what_every_document_has_and_for_its_attributes() {
        // R034-11
        let attributes = [("repo", "amalgam"), ("Team", "core"), ("repo", "other"), ("path", "never")];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let facts = Facts { collection: "code", path: "src/a.rs", language: "rust", attributes: &attributes };
        let condition = |key: &'static str, operator, value: &'static str| Condition {
            key: key.into(),
            operator,
            values: vec![value.into()],
        };
        for (key, value) in
            [("collection", "code"), ("Path", "src/a.rs"), ("LANGUAGE", "rust"), ("repo", "amalgam"), ("team", "core")]
        {
            assert!(facts.fit(&[condition(key, ComparisonOperator::Equals, value)]), "{key}");
            assert!(!facts.fit(&[condition(key, ComparisonOperator::Differs, value)]), "{key}");
        }
        let both = [
            condition("path", ComparisonOperator::Contains, "src"),
            condition("repo", ComparisonOperator::Equals, "other"),
        ];
        assert!(facts.fit(&both[..1]) && !facts.fit(&both), "all of them have to hold");
        assert!(facts.fit(&[condition("branch", ComparisonOperator::DoesNotContain, "x")]), "it has no such key");
        assert!(!facts.fit(&[condition("branch", ComparisonOperator::Contains, "")]));
        assert!(facts.fit(&[]));
    }
}
