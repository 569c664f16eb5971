//! Configured names with `*`, which stand for every name that fits.

use std::sync::Arc;

use amalgam_core::{Candidate, ModelCard, Route};

/// Whether a configured name is a pattern.
pub(super) fn is_pattern(name: &str) -> bool {
    name.contains('*')
}

/// The configured patterns with their routes.
#[derive(Default)]
pub(super) struct NamePatterns(Vec<(String, Route)>);

impl NamePatterns {
    /// The more a pattern says, the sooner it is asked; of two that say as much, the first in the alphabet.
    pub(super) fn new(mut routes: Vec<(String, Route)>) -> Self {
        let said = |pattern: &str| pattern.chars().filter(|c| *c != '*').count();
        routes.sort_by(|(one, _), (other, _)| said(other).cmp(&said(one)).then_with(|| one.cmp(other)));
        Self(routes)
    }

    /// The route of a name that no pattern spells out. A model that the configuration does not name has the name of the
    /// request at its upstream too.
    pub(super) fn route(&self, name: &str) -> Option<Route> {
        let (pattern, route) = self.0.iter().find(|(pattern, _)| fits(pattern, name))?;
        let candidates = route.candidates.iter().map(|candidate| match candidate.name == *pattern {
            true => Candidate { name: name.to_owned(), ..candidate.clone() },
            false => candidate.clone(),
        });
        let card = ModelCard { id: name.to_owned(), ..(*route.card).clone() };
        Some(Route { candidates: candidates.collect(), card: Arc::new(card) })
    }
}

/// Whether a name fits a pattern, in which each `*` stands for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(start) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let end = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some((_, after)) = left.split_once(piece) else { return false };
        left = after;
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("claude-*", "claude-opus-4-7", true),
            ("claude-*", "claude-", true),
            ("claude-*", "gpt-5", false),
            ("claude-*-haiku*", "claude-3-5-haiku-20241022", true),
            ("claude-*haiku*", "claude-haiku-4-5", true),
            ("*-mini", "gpt-5-mini", true),
            ("*-mini", "gpt-5-minimal", false),
            ("*", "anything", true),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
