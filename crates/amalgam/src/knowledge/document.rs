//! Turns a file into a document: detects text, detects changes, and splits it into chunks.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use amalgam_core::{knowledge, store::NewDocument};
use sha2::{Digest as _, Sha256};

/// What is the same for all documents of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// What is known about each of them, besides its source.
    pub(crate) attributes: Vec<(String, String)>,
    /// The model that gives their pieces a place.
    pub(crate) model: Option<String>,
    /// The most bytes of a file.
    pub(crate) most_bytes: u64,
}

/// What is in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Contents {
    Text(String),
    /// Not text in UTF-8.
    Binary,
    Large,
    Empty,
}

/// Reads a file, and no more of it than is taken.
pub(super) fn read(path: &Path, most_bytes: u64) -> io::Result<Contents> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        return Ok(Contents::Large);
    }
    if bytes.contains(&0) {
        return Ok(Contents::Binary);
    }
    Ok(match String::from_utf8(bytes) {
        Err(_) => Contents::Binary,
        Ok(text) if text.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n']).is_empty() => Contents::Empty,
        // The mark that some programs put before a text is no part of it.
        Ok(text) => Contents::Text(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
    })
}

/// A file that is text.
pub(super) struct Draft<'a> {
    pub(super) path: &'a str,
    pub(super) source: &'a str,
    pub(super) text: &'a str,
}

impl Draft<'_> {
    /// What tells whether the document would be another one: its text, all that is known about it, and how it is cut.
    pub(super) fn digest(&self, settings: &Settings) -> [u8; 32] {
        let mut hash = Sha256::new();
        // Each part is behind its length, so that no two lists of parts are alike.
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(&knowledge::CHUNKING_VERSION.to_le_bytes());
        part(knowledge::language_of(self.path).as_bytes());
        part(settings.model.as_deref().unwrap_or_default().as_bytes());
        for (name, value) in &settings.attributes {
            part(name.as_bytes());
            part(value.as_bytes());
        }
        part(self.text.as_bytes());
        hash.finalize().into()
    }

    /// The document with its pieces.
    pub(super) fn document(&self, settings: &Settings, digest: [u8; 32]) -> NewDocument {
        let language = knowledge::language_of(self.path);
        let source = ("source".to_owned(), self.source.to_owned());
        NewDocument {
            path: self.path.to_owned(),
            digest,
            language: language.to_owned(),
            attributes: [source].into_iter().chain(settings.attributes.iter().cloned()).collect(),
            chunks: knowledge::chunks(self.path, language, self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_of_a_bounded_size_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let contents = |bytes: &[u8]| {
            let path = folder.path().join("file");
            std::fs::write(&path, bytes).unwrap();
            read(&path, 8).unwrap()
        };
        assert_eq!(contents(b"12345678"), Contents::Text("12345678".to_owned()));
        assert_eq!(contents("\u{feff}text".as_bytes()), Contents::Text("text".to_owned()));
        assert_eq!(contents(b"123456789"), Contents::Large);
        assert_eq!(contents(b"a\0b"), Contents::Binary);
        assert_eq!(contents(b"\xff\xfe"), Contents::Binary);
        assert_eq!(contents(b" \r\n\t"), Contents::Empty);
        assert_eq!(contents(b""), Contents::Empty);
        assert!(read(&folder.path().join("none"), 8).is_err());
    }

    #[test]
    fn a_document_is_another_one_when_anything_about_it_is() {
        let settings = |attributes: &[(&str, &str)], model: Option<&str>| Settings {
            attributes: attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            model: model.map(str::to_owned),
            most_bytes: 1,
        };
        let digest = |path: &str, text: &str, settings: &Settings| Draft { path, source: "s", text }.digest(settings);
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
