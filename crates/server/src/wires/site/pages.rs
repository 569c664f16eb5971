//! The pages of `docs/`, embedded in the binary.

use std::sync::LazyLock;

/// Names and texts, in the order of the names; listed by `build.rs`.
static FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// A page of the documentation.
pub(super) struct Document {
    /// The path below `/docs/`.
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    pub(super) title: &'static str,
    /// The first sentence.
    pub(super) description: String,
    pub(super) etag: String,
}

/// All pages.
pub(super) static DOCUMENTS: LazyLock<Vec<Document>> =
    LazyLock::new(|| FILES.iter().map(|(name, text)| Document::read(name, text)).collect());

impl Document {
    fn read(name: &'static str, text: &'static str) -> Self {
        let title = text.lines().next().unwrap_or_default().trim_start_matches("# ");
        let paragraph = text.split("\n\n").nth(1).unwrap_or_default();
        Self { name, text, title, description: first_sentence(paragraph), etag: super::etag(text) }
    }

    /// Whether the page is for users and operators, rather than for developers of the server.
    pub(super) fn is_guide(&self) -> bool {
        const INTERNALS: [&str; 4] = ["ARCHITECTURE.md", "GLOSSARY.md", "performance.md", "requirements.md"];
        !self.name.starts_with("decisions/") && !self.name.starts_with("adding-") && !INTERNALS.contains(&self.name)
    }
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
        assert!(DOCUMENTS.len() > 40, "{}", DOCUMENTS.len());
        for document in DOCUMENTS.iter() {
            assert!(document.text.starts_with("# "), "{}", document.name);
            assert!(document.description.len() > 20, "{}: {}", document.name, document.description);
            assert!(!document.description.contains(['[', '|', '\n']), "{}: {}", document.name, document.description);
        }
    }
}
