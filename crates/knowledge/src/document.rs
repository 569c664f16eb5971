//! A file as a document: whether it is text, whether it has changed, and its chunks.

use amalgam_core::store::NewDocument;
use sha2::{Digest as _, Sha256};

use crate::{CHUNKING_VERSION, chunks, language_of};

/// The settings of all documents of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportSettings {
    /// Attributes of each document, besides its source.
    pub attributes: Vec<(String, String)>,
    /// The model that embeds their chunks.
    pub model: Option<String>,
    /// The largest file, in bytes.
    pub max_bytes: u64,
}

/// The content of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum FileContent {
    /// Text in UTF-8, without a byte order mark.
    Text(String),
    /// Not valid UTF-8.
    Binary,
    /// Larger than an import takes.
    Large,
    /// Nothing but white space.
    Empty,
}

impl FileContent {
    /// The content of a file by its bytes, of which one more than `max_bytes` is enough.
    pub fn of(bytes: Vec<u8>, max_bytes: u64) -> Self {
        if bytes.len() as u64 > max_bytes {
            return Self::Large;
        }
        if bytes.contains(&0) {
            return Self::Binary;
        }
        match String::from_utf8(bytes) {
            Err(_) => Self::Binary,
            Ok(text) if text.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n']).is_empty() => Self::Empty,
            Ok(text) => Self::Text(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        }
    }
}

/// A text file of a source.
pub struct DocumentText<'a> {
    /// Its path in the collection.
    pub path: &'a str,
    /// The source that it belongs to.
    pub source: &'a str,
    /// Its text.
    pub text: &'a str,
}

impl DocumentText<'_> {
    /// A digest that differs whenever the document would: by its text, its attributes, or how it is chunked.
    pub fn digest(&self, settings: &ImportSettings) -> [u8; 32] {
        let mut hash = Sha256::new();
        // Each part is prefixed by its length, so that different lists have different digests.
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(&CHUNKING_VERSION.to_le_bytes());
        part(language_of(self.path).as_bytes());
        part(settings.model.as_deref().unwrap_or_default().as_bytes());
        for (name, value) in &settings.attributes {
            part(name.as_bytes());
            part(value.as_bytes());
        }
        part(self.text.as_bytes());
        hash.finalize().into()
    }

    /// The document with its chunks.
    pub fn document(&self, settings: &ImportSettings, digest: [u8; 32]) -> NewDocument {
        let language = language_of(self.path);
        let source = ("source".to_owned(), self.source.to_owned());
        NewDocument {
            path: self.path.to_owned(),
            digest,
            language: language.to_owned(),
            attributes: [source].into_iter().chain(settings.attributes.iter().cloned()).collect(),
            chunks: chunks(self.path, language, self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_of_a_bounded_size_is_taken() {
        let content = |bytes: &[u8]| FileContent::of(bytes.to_vec(), 8);
        assert_eq!(content(b"12345678"), FileContent::Text("12345678".to_owned()));
        assert_eq!(content("\u{feff}text".as_bytes()), FileContent::Text("text".to_owned()));
        assert_eq!(content(b"123456789"), FileContent::Large);
        assert_eq!(content(b"a\0b"), FileContent::Binary);
        assert_eq!(content(b"\xff\xfe"), FileContent::Binary);
        assert_eq!(content(b" \r\n\t"), FileContent::Empty);
        assert_eq!(content(b""), FileContent::Empty);
    }

    #[test]
    fn a_document_is_another_one_when_anything_about_it_is() {
        let settings = |attributes: &[(&str, &str)], model: Option<&str>| ImportSettings {
            attributes: attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            model: model.map(str::to_owned),
            max_bytes: 1,
        };
        let digest = |path: &str, text: &str, settings: &ImportSettings| {
            DocumentText { path, source: "s", text }.digest(settings)
        };
        let plain = settings(&[], None);
        let digests = [
            digest("a.md", "text", &plain),
            digest("a.rs", "text", &plain),
            digest("a.md", "texts", &plain),
            digest("a.md", "text", &settings(&[("team", "a")], None)),
            digest("a.md", "text", &settings(&[("teama", "")], None)),
            digest("a.md", "text", &settings(&[], Some("m"))),
        ];
        let mut apart = digests.to_vec();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), digests.len());
        assert_eq!(digest("b.md", "text", &plain), digests[0], "where it is, is not what it is");
    }
}
