//! `file_search`: how its calls are sent to a model, returned and stored, and how its results are cited.
//!
//! The model sees a function with queries; its output is the list of results in the format of the published item, each
//! with a marker. A caller sees the queries, and the results if it includes them. The model's output is stored with the
//! item in any case, for later turns.

use std::borrow::Cow;

use amalgam_protocol::{Json, Raw, Shape, Writer};
use sha2::{Digest as _, Sha256};

use crate::{
    hex::hex,
    private_fields::{self, ModelCallId},
    store::FoundChunk,
};

/// The function's name, and the type of the tool.
pub const FILE_SEARCH: &str = "file_search";
/// The `include` value for results.
pub const FILE_SEARCH_RESULTS: &str = "file_search_call.results";

/// The attribute with the source of a document.
const SOURCE: &str = "source";
/// The prefix of markers.
const MARKER: &str = "[kb:";
/// The placeholder for results that the caller did not get and cannot send back.
const NOT_KEPT: &[u8] =
    br#""The results of this search are not part of the conversation any more. Search again to see them.""#;
/// The maximum length of an id in a marker.
const MAX_ID_BYTES: usize = 64;

/// The queries in a call's arguments: `queries`, or a single `query`.
pub fn queries(arguments: Raw<'_>) -> Vec<Cow<'_, str>> {
    let texts = |raw: Raw<'_>| matches!(raw.shape(), Shape::Array | Shape::String);
    let queries = arguments.get("queries").filter(|queries| texts(*queries)).or_else(|| arguments.get("query"));
    let Some(queries) = queries else { return Vec::new() };
    match queries.as_str() {
        Some(query) => vec![query.decode()],
        None => queries.elements().filter_map(Raw::as_str).map(|query| query.decode()).collect(),
    }
}

/// Writes a found chunk as a result, with a score from 0 to 1.
pub fn write_result(writer: &mut Writer, chunk: &FoundChunk, score: f64) {
    let lines = format!("{}-{}", chunk.start_line, chunk.end_line);
    let marker = format!("{MARKER}{}]", chunk.id);
    let ours = [
        ("marker", Some(&marker)),
        ("collection", Some(&chunk.collection)),
        ("lines", Some(&lines)),
        ("language", Some(&chunk.language)),
        ("symbol", chunk.symbol.as_ref()),
    ];
    writer.object(|writer| {
        writer.key("file_id").string(&file_id(chunk));
        writer.key("filename").string(&chunk.path);
        writer.key("score").float(score);
        writer.key("attributes").object(|writer| {
            for (name, value) in ours {
                if let Some(value) = value {
                    writer.key(name).string(value);
                }
            }
            for (name, value) in &chunk.attributes {
                // The source of a document may be a path on the operator's disk.
                if name != SOURCE && !ours.iter().any(|(known, _)| known == name) {
                    writer.key_text(name).string(value);
                }
            }
        });
        writer.key("text").string(&chunk.content);
    });
}

/// The id by which a document is cited: stable as long as its path is, across imports.
fn file_id(chunk: &FoundChunk) -> String {
    let source = chunk.attributes.iter().find(|(name, _)| name == SOURCE).map_or("", |(_, value)| value);
    let mut digest = Sha256::new();
    for part in [chunk.collection.as_str(), source, &chunk.path] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let digest = digest.finalize();
    let (short, _) = digest.split_at(12);
    format!("kb_{}", hex(short))
}

/// A result that can be cited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CitationSource {
    /// The id in its marker.
    pub id: String,
    /// The id of the file.
    pub file_id: String,
    /// The name of the file.
    pub filename: String,
}

impl CitationSource {
    /// All results in a search's output.
    pub fn all(output: Raw<'_>) -> Vec<Self> {
        let source = |result: Raw<'_>| {
            let marker = result.get("attributes")?.get_str("marker")?;
            let CitationMarker::Whole(id, _) = CitationMarker::at(&marker) else { return None };
            Some(Self {
                id: id.to_owned(),
                file_id: result.get_str("file_id")?.into_owned(),
                filename: result.get_str("filename")?.into_owned(),
            })
        };
        match output.shape() {
            Shape::Array => output.elements().filter_map(source).collect(),
            _ => Vec::new(),
        }
    }

    /// The annotation that cites it at an index of the text.
    pub fn annotation(&self, index: usize) -> Json {
        let mut writer = Writer::with_capacity(self.file_id.len() + self.filename.len() + 80);
        writer.object(|writer| {
            writer.key("type").string("file_citation");
            writer.key("index").number(index as u64);
            writer.key("file_id").string(&self.file_id);
            writer.key("filename").string(&self.filename);
        });
        Json::from_writer(writer)
    }
}

/// The result of parsing text that begins with a bracket.
#[derive(Debug, PartialEq, Eq)]
pub enum CitationMarker<'a> {
    /// A marker with this id and this length in bytes.
    Whole(&'a str, usize),
    /// Possibly the beginning of a marker.
    Partial,
    /// Other text.
    No,
}

impl<'a> CitationMarker<'a> {
    /// Parses the start of a text.
    pub fn at(text: &'a str) -> Self {
        let Some(rest) = text.strip_prefix(MARKER) else {
            return if MARKER.starts_with(text) { Self::Partial } else { Self::No };
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let end = rest.find(|c: char| !plain(c)).unwrap_or(rest.len());
        let (id, behind) = rest.split_at(end);
        match behind.chars().next() {
            _ if id.len() > MAX_ID_BYTES => Self::No,
            None => Self::Partial,
            Some(']') if !id.is_empty() => Self::Whole(id, MARKER.len() + id.len() + 1),
            Some(_) => Self::No,
        }
    }
}

/// The content of a search item.
pub struct FileSearchItem<'a> {
    /// The id of the item.
    pub id: &'a str,
    /// The model's id of the call.
    pub call_id: Option<&'a str>,
    /// The status of the item.
    pub status: &'a str,
    /// The searched queries.
    pub queries: &'a [Cow<'a, str>],
    /// The output for the model, once it is known.
    pub output: Option<Raw<'a>>,
    /// Whether its caller sees the results.
    pub results: bool,
}

impl FileSearchItem<'_> {
    /// The item as its caller sees it.
    pub fn shown(&self) -> Json {
        self.item(self.shown_results(), |_| {})
    }

    /// The item as it is stored: with the output for the model and the model's call id.
    pub fn stored(&self, call: ModelCallId<'_>) -> Json {
        let results = self.shown_results();
        let hidden = self.output.filter(|_| results.is_none());
        self.item(results, |writer| {
            if let Some(hidden) = hidden {
                writer.key(private_fields::OUTPUT).raw(hidden);
            }
            call.write_fields(writer);
        })
    }

    fn shown_results(&self) -> Option<Raw<'_>> {
        self.output.filter(|output| self.results && output.shape() == Shape::Array)
    }

    fn item(&self, results: Option<Raw<'_>>, private: impl FnOnce(&mut Writer)) -> Json {
        let mut writer = Writer::with_capacity(self.output.map_or(0, |raw| raw.text().len()) + 320);
        writer.object(|writer| {
            writer.key("type").string("file_search_call");
            writer.key("id").string(self.id);
            writer.key("status").string(self.status);
            if let Some(call_id) = self.call_id {
                writer.key("call_id").string(call_id);
            }
            writer.key("queries").array(|writer| self.queries.iter().for_each(|query| writer.string(query)));
            match results {
                Some(results) => writer.key("results").raw(results),
                None => writer.key("results").null(),
            }
            private(writer);
        });
        Json::from_writer(writer)
    }
}

/// The output for the model of a stored search item.
pub(crate) fn model_output(item: Raw<'_>) -> Raw<'_> {
    let results = || item.get("results").filter(|results| results.shape() == Shape::Array);
    item.get(private_fields::OUTPUT)
        .or_else(results)
        .unwrap_or_else(|| Raw::parse(NOT_KEPT).expect("a quoted sentence is JSON"))
}

/// Whether a later read of an item includes results that its first caller did not ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Results {
    /// As for the first caller.
    Hidden,
    /// All results.
    Shown,
}

/// A stored item as a later read returns it.
pub fn shown(stored: Json, results: Results) -> Json {
    if !has_private_fields(stored.raw()) {
        return stored;
    }
    let mut writer = Writer::with_capacity(stored.bytes().len());
    write_shown(&mut writer, stored.raw(), results);
    Json::from_writer(writer)
}

/// Writes a stored item as a later read returns it.
pub(crate) fn write_shown(writer: &mut Writer, item: Raw<'_>, results: Results) {
    if !has_private_fields(item) {
        return writer.raw(item);
    }
    let stored = item.get(private_fields::OUTPUT);
    let found = stored.filter(|stored| results == Results::Shown && stored.shape() == Shape::Array);
    writer.object(|writer| {
        for (name, value) in item.fields().filter(|(name, _)| !private_fields::is_private(*name)) {
            match (&*name.decode(), found) {
                ("results", Some(found)) => writer.key("results").raw(found),
                (name, _) => writer.key_text(name).raw(value),
            }
        }
    });
}

fn has_private_fields(item: Raw<'_>) -> bool {
    item.fields().any(|(name, _)| private_fields::is_private(name))
}

#[cfg(test)]
#[path = "file_search_tests.rs"]
mod tests;
