//! The nearest known name for an unknown one.

/// The candidate closest to `written`, if it is close enough.
///
/// A third of the letters may differ, and at most four: a wrong guess would mislead the reader.
pub(crate) fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    let allowed = (written.chars().count() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&written, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The end of a sentence about an unknown name: `; did you mean 'base_url'?`, or nothing.
pub(crate) fn did_you_mean<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(written, candidates).map(|name| format!("; did you mean '{name}'?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_missing_and_wrong_letters_find_the_key_that_was_meant() {
        let keys = ["base_url", "api_key", "models", "retries"];
        for (written, expected) in [
            ("base_ulr", Some("base_url")),
            ("apikey", Some("api_key")),
            ("Models", Some("models")),
            ("retrys", Some("retries")),
            ("listen", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, keys), expected, "{written:?}");
        }
    }

    #[test]
    fn the_closest_of_several_wins_and_the_first_of_equals() {
        assert_eq!(nearest("tool", ["tools", "tool_calls"]), Some("tools"));
        assert_eq!(nearest("mode", ["model", "modes"]), Some("model"));
    }
}
