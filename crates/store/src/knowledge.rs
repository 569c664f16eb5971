//! How knowledge is indexed and looked up: the same for every engine.
//!
//! An engine keeps rows and an index of words, and answers a few small questions about them; which words stand in the index,
//! what is asked, and what is best is decided here. So all engines find the same.

mod index;
mod question;
mod search;

use std::{borrow::Cow, collections::BTreeMap};

use amalgam_core::{
    StoreError,
    execute::request::Condition,
    store::{Imported, KnowledgeQuery, NewDocument},
};
use amalgam_protocol::{Json, Writer};

pub(crate) use self::{
    index::{Indexed, Quotes, numbers_of},
    question::{Dialect, Question},
    search::{Candidate, DocumentFacts, Picked, Search, SearchedCollection},
};
use crate::rows::json;

/// A document has less pieces: its number and their places share a number.
const MOST_PIECES: usize = 1 << 16;
/// An index takes no more of a name or of a path with its source.
const MOST_NAME_BYTES: usize = 2000;

/// Refuses what no engine can keep.
pub(crate) fn check(collection: &str, source: &str, documents: &[NewDocument]) -> Result<(), StoreError> {
    let broken = |what: &str| Err(StoreError::Broken(what.to_owned()));
    let odd = |text: &str| text.contains('\0') || text.len() > MOST_NAME_BYTES;
    if odd(collection) || odd(source) {
        return broken("the name of a collection or a source is too long or no text");
    }
    for document in documents {
        if odd(&document.path) || document.path.len() + source.len() > MOST_NAME_BYTES {
            return broken("the path of a document is too long or no text");
        }
        if document.chunks.len() > MOST_PIECES {
            return broken("a document has too many pieces");
        }
    }
    Ok(())
}

/// A document that is there, as far as it matters for one that is to take its place.
#[derive(Debug, Clone)]
pub(crate) struct KnownDocument {
    pub(crate) number: i64,
    pub(crate) digest: Vec<u8>,
    pub(crate) language: String,
    pub(crate) attributes: String,
    pub(crate) chunks: u64,
}

impl KnownDocument {
    /// Whether a document is the same in every way. One with embeddings is not: it is not known which ones are there.
    pub(crate) fn is(&self, document: &NewDocument) -> bool {
        self.digest == document.digest
            && self.language == document.language
            && self.attributes == attributes_json(&document.attributes).raw().text()
            && document.chunks.iter().all(|chunk| chunk.embedding.is_none())
    }
}

/// What an import comes to.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) imported: Imported,
    /// How many more documents and pieces there are.
    pub(crate) documents: i64,
    pub(crate) chunks: i64,
}

impl Tally {
    /// Counts a document; whether it has to be written.
    pub(crate) fn takes(&mut self, known: Option<&KnownDocument>, document: &NewDocument) -> bool {
        let pieces = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        match known {
            Some(known) if known.is(document) => {
                self.imported.unchanged += 1;
                return false;
            }
            Some(known) => {
                self.imported.updated += 1;
                self.chunks -= pieces(known.chunks);
            }
            None => {
                self.imported.created += 1;
                self.documents += 1;
            }
        }
        self.chunks += pieces(document.chunks.len() as u64);
        true
    }
}

/// Of documents with the same path the last one, in the order of paths.
pub(crate) fn last_of_each(documents: &[NewDocument]) -> Vec<&NewDocument> {
    let mut last: BTreeMap<&str, &NewDocument> = BTreeMap::new();
    for document in documents {
        last.insert(&document.path, document);
    }
    last.into_values().collect()
}

/// A query that owns its parts.
pub(crate) struct OwnedQuery {
    collections: Vec<String>,
    words: Vec<String>,
    conditions: Vec<Condition<'static>>,
    limit: usize,
    embeddings: bool,
}

impl OwnedQuery {
    pub(crate) fn of(query: &KnowledgeQuery<'_>) -> Self {
        let owned = |condition: &Condition<'_>| Condition {
            key: Cow::Owned(condition.key.clone().into_owned()),
            operator: condition.operator,
            values: condition.values.iter().map(|value| Cow::Owned(value.clone().into_owned())).collect(),
        };
        Self {
            collections: query.collections.to_vec(),
            words: query.words.to_vec(),
            conditions: query.conditions.iter().map(owned).collect(),
            limit: query.limit,
            embeddings: query.embeddings,
        }
    }

    pub(crate) fn borrowed(&self) -> KnowledgeQuery<'_> {
        KnowledgeQuery {
            collections: &self.collections,
            words: &self.words,
            conditions: &self.conditions,
            limit: self.limit,
            embeddings: self.embeddings,
        }
    }
}

/// Names and values, one after the other, as an array.
pub(crate) fn attributes_json(attributes: &[(String, String)]) -> Json {
    let mut writer = Writer::default();
    writer.array(|writer| {
        for (name, value) in attributes {
            writer.string(name);
            writer.string(value);
        }
    });
    Json::from_writer(writer)
}

/// Names and values from their array.
pub(crate) fn attributes(text: &str) -> Vec<(String, String)> {
    let array = json(text);
    let mut strings = array.raw().elements().filter_map(|string| Some(string.as_str()?.decode().into_owned()));
    let mut attributes = Vec::new();
    while let (Some(name), Some(value)) = (strings.next(), strings.next()) {
        attributes.push((name, value));
    }
    attributes
}

/// An embedding as it is kept.
pub(crate) fn embedding_bytes(embedding: &[f32]) -> Vec<u8> {
    embedding.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// An embedding from its column.
pub(crate) fn embedding(bytes: &[u8]) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_columns_comes_out_again() {
        let known = [("repo", "amalgam"), ("it's", "\"quoted\"\n"), ("", "")];
        let known: Vec<_> = known.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(attributes(attributes_json(&known).raw().text()), known);
        let numbers = [0.0, -1.5, f32::MAX, f32::MIN_POSITIVE];
        assert_eq!(embedding(&embedding_bytes(&numbers)), numbers);
    }

    #[test]
    fn what_no_engine_can_keep_is_refused() {
        let document = |path: &str| NewDocument {
            path: path.to_owned(),
            digest: [0; 32],
            language: "rust".into(),
            attributes: Vec::new(),
            chunks: Vec::new(),
        };
        assert!(check("code", "here", &[document("a/b.rs")]).is_ok());
        let long = "x".repeat(MOST_NAME_BYTES);
        assert!(check("code", "here", &[document(&long)]).is_err());
        assert!(check("code", "he\0re", &[]).is_err());
        assert!(check("code", "here", &[document("a\0b")]).is_err());
        assert!(check(&[long.as_str(), "x"].concat(), "here", &[]).is_err());
    }
}
