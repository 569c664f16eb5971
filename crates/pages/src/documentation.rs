//! The pages of `docs/`, embedded in the binary.

use std::{fmt::Write as _, sync::LazyLock};

use bytes::Bytes;
use http::{HeaderMap, Response};

use crate::cached::{answer, etag};

/// Names and texts, in the order of the names; listed by `build.rs`.
static FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// A page of the documentation.
pub struct DocumentationPage {
    /// The path below `/docs/`.
    pub name: &'static str,
    /// The text in Markdown.
    pub text: &'static str,
    /// The title.
    pub title: &'static str,
    /// The first sentence.
    pub description: String,
    etag: String,
}

/// All pages.
pub static DOCUMENTATION: LazyLock<Vec<DocumentationPage>> =
    LazyLock::new(|| FILES.iter().map(|(name, text)| DocumentationPage::read(name, text)).collect());

impl DocumentationPage {
    fn read(name: &'static str, text: &'static str) -> Self {
        let title = text.lines().next().unwrap_or_default().trim_start_matches("# ");
        let paragraph = text.split("\n\n").nth(1).unwrap_or_default();
        Self { name, text, title, description: first_sentence(paragraph), etag: etag(text.as_bytes()) }
    }

    /// The page as a response to a request with these headers.
    pub fn answer(&self, headers: &HeaderMap, content_type: &'static str) -> Response<Bytes> {
        answer(headers, content_type, &self.etag, self.text)
    }

    /// Whether the page is for users and operators, rather than for developers of the server.
    pub fn is_guide(&self) -> bool {
        const INTERNALS: [&str; 4] = ["ARCHITECTURE.md", "GLOSSARY.md", "performance.md", "requirements.md"];
        !self.name.starts_with("decisions/") && !self.name.starts_with("adding-") && !INTERNALS.contains(&self.name)
    }
}

/// Guides, and pages for developers of the server.
pub(crate) fn guides_and_internals() -> (Vec<&'static DocumentationPage>, Vec<&'static DocumentationPage>) {
    DOCUMENTATION.iter().partition(|page| page.is_guide())
}

/// The list of pages in Markdown, with links that start with `base`.
pub fn documentation_list(version: &str, base: &str) -> String {
    let (guides, internals) = guides_and_internals();
    let (guides, internals) = (links(&guides, base), links(&internals, base));
    format!("# Amalgam {version}: documentation\n\n{guides}\n## Internals\n\n{internals}")
}

/// The documentation as a list for language models, in the format of llmstxt.org. `address` is the URL of the server.
pub fn llms_text(version: &str, summary: &str, address: &str) -> String {
    let base = format!("{address}/docs/");
    let (guides, internals) = guides_and_internals();
    format!(
        "# Amalgam\n\n> {summary}\n\nThis is version {version}, at {address}. Clients of the OpenAI Responses API use the \
         base URL {address}/v1. Requests need `Authorization: Bearer KEY`, unless the server runs on loopback without \
         configured keys.\n\n## Docs\n\n{}\n## API\n\n- [OpenAPI document]({address}/openapi.json): Every route, \
         parameter and schema.\n\n## Optional\n\n{}",
        links(&guides, &base),
        links(&internals, &base),
    )
}

fn links(documents: &[&DocumentationPage], base: &str) -> String {
    documents.iter().fold(String::new(), |mut list, DocumentationPage { name, title, description, .. }| {
        let _ = writeln!(list, "- [{title}]({base}{name}): {description}");
        list
    })
}

/// The first sentence of a paragraph in one line, without links and emphasis.
fn first_sentence(paragraph: &str) -> String {
    let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    // Decisions start with a label, such as `**Decision.**`.
    let label = line.strip_prefix("**").and_then(|rest| rest.split_once(".** "));
    let line = label.map_or(line.as_str(), |(_, rest)| rest).replace("**", "");
    let line = without_targets(&line);
    let sentence = line.split_once(". ").map_or(line.as_str(), |(sentence, _)| sentence);
    format!("{}.", sentence.trim_end_matches(['.', ':']))
}

/// Markdown with the texts of links in place of the links.
fn without_targets(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        plain.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
        if let Some(open) = plain.rfind('[') {
            plain.remove(open);
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_of_a_page_is_its_description() {
        let paragraph = "All **schemas** are in [openapi.json](openapi.json), which\nthe server publishes. More.";
        assert_eq!(first_sentence(paragraph), "All schemas are in openapi.json, which the server publishes.");
        assert_eq!(
            first_sentence("A tool call is run by the client or by the server:"),
            "A tool call is run by the client or by the server."
        );
        assert_eq!(first_sentence("**Decision.** Two crates. Why"), "Two crates.");
        assert_eq!(first_sentence("No end"), "No end.");
    }

    #[test]
    fn every_page_has_a_title_and_a_description() {
        assert!(DOCUMENTATION.len() > 40, "{}", DOCUMENTATION.len());
        for document in DOCUMENTATION.iter() {
            assert!(document.text.starts_with("# "), "{}", document.name);
            assert!(document.description.len() > 20, "{}: {}", document.name, document.description);
            assert!(!document.description.contains(['[', '|', '\n']), "{}: {}", document.name, document.description);
        }
    }
}
