//! Requirement labels that the source cites can be looked up in `docs/requirements.md`.

use std::{collections::BTreeSet, path::Path};

use crate::house::{ROOT, files_where, read};

/// The prefixes of labels that have a number of two digits behind a hyphen.
const PREFIXES: [&str; 7] = ["R003-", "R004-", "R034-", "RNCC-", "RAM-", "C-", "O-"];

/// What source files end in.
const ENDINGS: [&str; 5] = [".rs", ".py", ".mjs", ".ts", ".md"];

#[test]
fn every_requirement_label_in_the_source_is_explained_in_the_documentation() {
    let page = read(&Path::new(ROOT).join("docs/requirements.md"));
    let explained: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).map(ToOwned::to_owned).collect();
    let is_source = |name: &str| ENDINGS.iter().any(|ending| name.ends_with(ending));
    let cited: BTreeSet<String> =
        files_where(&is_source, Path::new(ROOT)).iter().flat_map(|path| labels_in(&read(path))).collect();
    assert!(cited.len() > 100, "the walk finds the labels: {cited:?}");
    let unknown: Vec<&String> = cited.difference(&explained).collect();
    assert!(unknown.is_empty(), "not in docs/requirements.md: {unknown:?}");
}

/// Labels such as `R034-15`: a prefix that does not continue a word, and exactly two digits.
fn labels_in(text: &str) -> Vec<String> {
    let words =
        text.split(|character: char| !(character.is_ascii_alphanumeric() || character == '-' || character == '_'));
    let label = |word: &str| {
        let prefix = PREFIXES.iter().find(|prefix| word.starts_with(**prefix))?;
        let digits = word.get(prefix.len()..)?;
        (digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| word.to_owned())
    };
    words.filter_map(label).collect()
}

#[test]
fn labels_are_found_as_whole_words_only() {
    let text = "// R034-15: identity and order (C-13, `RNCC-33`).\nUTC-05 RAM-460 R-04 x_O-48 O-48.";
    assert_eq!(labels_in(text), ["R034-15", "C-13", "RNCC-33", "O-48"]);
}
