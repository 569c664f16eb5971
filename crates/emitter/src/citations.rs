//! Citations: markers of search results become annotations and are removed from the text.
//!
//! A marker may arrive in several deltas. Text that may be the beginning of one is held back until that is decided, so
//! that a stream never contains half a marker.

use std::collections::HashMap;

use amalgam_protocol::{Json, Literal, Raw, Writer};

use super::{Emitter, Open, items::OpenPart};
use amalgam_core::{file_search::CitationMarker, file_search::CitationSource};

/// The sources that may be cited, and text that may become a citation.
#[derive(Debug, Default)]
pub(super) struct Citations {
    /// By the id in the marker.
    sources: HashMap<String, CitationSource>,
    held: String,
    /// The log probabilities of the held text.
    logprobs: Vec<Json>,
}

enum Piece {
    Text(String),
    Citation(CitationSource),
}

impl Citations {
    /// Adds text, and returns the pieces that are decided.
    fn take(&mut self, text: &str) -> Vec<Piece> {
        self.held.push_str(text);
        let held = std::mem::take(&mut self.held);
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), held.as_str());
        while let Some(start) = rest.find('[') {
            let (before, bracket) = rest.split_at(start);
            plain.push_str(before);
            match CitationMarker::at(bracket) {
                CitationMarker::Partial => {
                    self.held = bracket.to_owned();
                    rest = "";
                    break;
                }
                CitationMarker::Whole(id, length) if let Some(source) = self.sources.get(id) => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Citation(source.clone()));
                    rest = bracket.split_at(length).1;
                }
                // An id that no search returned stays text.
                CitationMarker::Whole(..) | CitationMarker::No => {
                    plain.push('[');
                    rest = bracket.split_at(1).1;
                }
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        pieces
    }
}

impl Emitter {
    /// Allows citations of the results of a search from now on.
    pub(super) fn may_cite(&mut self, output: Raw<'_>) {
        let sources = CitationSource::all(output);
        if !sources.is_empty() {
            let citations = self.citations.get_or_insert_default();
            citations.sources.extend(sources.into_iter().map(|source| (source.id.clone(), source)));
        }
    }

    /// Text of a model, with its citations.
    pub(super) fn text(&mut self, delta: &Literal, logprobs: Option<&Json>) {
        let Some(citations) = &mut self.citations else { return self.say(delta, logprobs) };
        let text = delta.decode();
        if citations.held.is_empty() && !text.contains('[') {
            return self.say(delta, logprobs);
        }
        citations.logprobs.extend(logprobs.into_iter().flat_map(|list| list.raw().elements()).map(Json::from));
        let pieces = citations.take(&text);
        // Moved out: emitting text opens and closes parts, and closing a part releases the held text.
        let held = std::mem::take(&mut citations.held);
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.say_late(&text),
                Piece::Citation(source) => self.cite(&source),
            }
        }
        if let Some(citations) = &mut self.citations {
            citations.held = held;
        }
    }

    /// Emits the held text: it is not a marker.
    pub(super) fn release(&mut self) {
        if let Some(citations) = &mut self.citations
            && !citations.held.is_empty()
        {
            let held = std::mem::take(&mut citations.held);
            self.say_late(&held);
        }
    }

    /// Emits text whose log probabilities arrived earlier.
    fn say_late(&mut self, text: &str) {
        let logprobs =
            self.citations.as_mut().map(|citations| std::mem::take(&mut citations.logprobs)).unwrap_or_default();
        let list = (!logprobs.is_empty()).then(|| {
            let mut writer = Writer::default();
            writer.array(|writer| logprobs.iter().for_each(|one| writer.valid(one.bytes())));
            Json::from_writer(writer)
        });
        self.say(&Literal::from_text(text), list.as_ref());
    }

    fn cite(&mut self, source: &CitationSource) {
        self.ensure_part(OpenPart::text);
        let index = match &self.open {
            Some(Open::Message(message)) => message.chars(),
            _ => 0,
        };
        self.annotation(source.annotation(index));
    }
}

#[cfg(test)]
#[path = "citations_tests.rs"]
mod tests;
