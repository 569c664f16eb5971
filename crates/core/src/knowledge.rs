//! What can be looked up, as far as it is a matter of rules: the words of texts and questions, how documents are cut into
//! pieces, and which documents conditions admit.
//!
//! The stores index the words that are made here and look for the words that are made here, so that they find the same.

mod chunking;
mod declarations;
mod language;
mod words;

pub use chunking::{CHUNKING_VERSION, chunks};
pub use language::language_of;
pub use words::{MOST_ASKED, question, words};

use crate::execute::request::Condition;

/// What conditions ask a document about.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The collection that it is in.
    pub collection: &'a str,
    /// Where it is.
    pub path: &'a str,
    /// Its language.
    pub language: &'a str,
    /// What else is known about it.
    pub attributes: &'a [(String, String)],
}

impl<'a> Facts<'a> {
    /// The value under a key, whatever the key's case: clients write keys as the properties of their own language. What
    /// every document has comes before an attribute of the same name, and of two attributes the first counts.
    pub fn value(&self, key: &str) -> Option<&'a str> {
        let own = [("collection", self.collection), ("path", self.path), ("language", self.language)];
        let attributes = self.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        own.into_iter().chain(attributes).find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
    }

    /// Whether all of the conditions hold.
    pub fn fit(&self, conditions: &[Condition<'_>]) -> bool {
        conditions.iter().all(|condition| condition.admits(self.value(&condition.key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::request::ComparisonOperator;

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
