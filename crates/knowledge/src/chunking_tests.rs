use proptest::prelude::*;

use super::*;
use crate::language_of;

fn pieces(path: &str, text: &str) -> Vec<(Option<String>, u64, u64)> {
    chunks(path, language_of(path), text)
        .into_iter()
        .map(|piece| (piece.symbol, piece.start_line, piece.end_line))
        .collect()
}

fn function(name: &str, lines: usize) -> String {
    let body: String = (0..lines).map(|line| format!("    let value_{line} = compute({line});\n")).collect();
    format!("/// Does {name}.\n#[inline]\nfn {name}() {{\n{body}}}\n\n")
}

#[test]
fn source_code_is_cut_before_declarations_with_their_comments() {
    let text = ["use std::fmt;\n\n", &function("first", 30), &function("second", 25), &function("third", 4)].concat();
    // `use` and `first` are lines 1 to 36, behind a blank line comes the comment of `second`.
    assert_eq!(
        pieces("a.rs", &text),
        [(Some("first".into()), 1, 36), (Some("second".into()), 38, 66), (Some("third".into()), 68, 75)]
    );
    let found = chunks("a.rs", "rust", &text);
    assert!(found[1].content.starts_with("/// Does second.\n#[inline]\nfn second() {"), "{}", found[1].content);
    assert!(found[1].content.ends_with("\n}"));
}

#[test]
fn a_method_is_named_with_what_it_is_in_and_a_second_part_has_a_number() {
    let method = |name: &str, lines| {
        let body: String = (0..lines).map(|line| format!("        self.total_{line} += {line}\n")).collect();
        format!("    def {name}(self):\n{body}\n")
    };
    let text = ["class Account:\n", &method("open", 30), &method("close", 90)].concat();
    let symbols: Vec<Option<String>> = pieces("a.py", &text).into_iter().map(|(symbol, ..)| symbol).collect();
    let expected = ["Account", "Account.close", "Account.close (2)"].map(|symbol| Some(symbol.to_owned()));
    assert_eq!(symbols, expected);
}

#[test]
fn markdown_is_cut_at_headings_and_named_by_their_path() {
    let text =
        "# Guide\n\n## Install\n\nRun it.\n\n### Linux\n\n```sh\n# not a heading\nmake\n```\n\n## Use ##\nText.\n#no\n";
    assert_eq!(
        pieces("README.md", text),
        [
            (Some("Guide".into()), 1, 5),
            (Some("Guide > Install > Linux".into()), 7, 12),
            (Some("Guide > Use".into()), 14, 16)
        ]
    );
}

#[test]
fn paragraphs_stay_whole_where_they_can() {
    let paragraph = |word: &str| format!("{}\n\n", [word; 120].join(" "));
    let text: String = ["alpha", "beta", "gamma", "delta"].map(paragraph).concat();
    let found = chunks("notes.txt", "plaintext", &text);
    let lines: Vec<(u64, u64)> = found.iter().map(|piece| (piece.start_line, piece.end_line)).collect();
    assert_eq!(lines, [(1, 3), (5, 7)]);
    assert!(found.iter().all(|piece| piece.symbol.is_none()));
}

#[test]
fn pieces_share_lines_only_where_there_is_no_border() {
    let text: String = (1..=150).map(|line| format!("row {line}\n")).collect();
    assert_eq!(pieces("rows.txt", &text), [(None, 1, 60), (None, 58, 117), (None, 115, 150)]);
    let parted: String =
        (1..=150).map(|line| if line % 50 == 0 { "\n".into() } else { format!("row {line}\n") }).collect();
    assert_eq!(pieces("rows.txt", &parted), [(None, 1, 49), (None, 51, 99), (None, 101, 149)]);
}

#[test]
fn a_line_without_end_is_cut_and_stays_one_line() {
    let line: String = (0..100_000).map(|number| format!("a{number};")).collect();
    let found = chunks("bundle.min.js", "javascript", &format!("// first\n{line}\nlast = 1\n"));
    assert!(found.iter().all(|piece| piece.content.chars().count() <= MAX_CHARS + 1));
    let joined: String = found.iter().map(|piece| piece.content.as_str()).collect::<Vec<_>>().concat();
    assert_eq!(joined.replace('\n', ""), format!("// first{line}last = 1"), "nothing is lost or doubled");
    assert_eq!((found[0].start_line, found[1].start_line, found[1].end_line), (1, 2, 2));
    assert_eq!(found.last().map(|piece| piece.end_line), Some(3));
}

#[test]
fn what_is_no_text_or_says_nothing_has_no_pieces() {
    for text in ["", "\n\n \n", "MZ\u{0}\u{1}binary", "}\n;\n---\n", "\u{feff}"] {
        assert_eq!(pieces("a.rs", text), [], "{text:?}");
    }
}

#[test]
fn line_ends_of_other_systems_and_odd_characters_do_no_harm() {
    let found = chunks("a.txt", "plaintext", "\u{feff}one\r\ntwo\u{2028}\u{0b}three\r\n\r\nfour");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].start_line, found[0].end_line), (1, 4));
    assert_eq!(found[0].content, "one\ntwo\u{2028}\u{0b}three\n\nfour");
}

#[test]
fn a_piece_is_found_by_its_file_its_symbol_and_its_parts() {
    let found = chunks("src/turnStore.rs", "rust", "fn commit_turn() {\n    write(everything);\n}\n");
    for word in ["turn", "stor", "turnstore", "commit", "committurn", "writ", "everyth"] {
        assert!(found[0].words.iter().any(|own| own == word), "{word}: {:?}", found[0].words);
    }
}

#[test]
fn long_names_are_not_repeated_for_every_line_that_they_are_around() {
    let titles: String = (1..=5).map(|level| format!("{} {}\n", "#".repeat(level), "é".repeat(1900))).collect();
    let text = format!("{titles}{}", "###### x\nab\nab\n".repeat(100));
    let nested = format!("class {}:\n  class b:\n{}", "a".repeat(1900), "    def c():\n      d\n      d\n".repeat(100));
    for marks in [headings(&rows(&text)), declarations(&rows(&nested), "python")] {
        let within: Vec<&Rc<str>> = marks.iter().filter_map(|mark| mark.within.as_ref()).collect();
        assert!(within.len() > 300 && within.iter().all(|within| within.chars().count() <= 7 * SYMBOL_CHARS));
        let [.., one, other] = &*within else { panic!("there are lines") };
        assert!(Rc::ptr_eq(one, other));
    }
}

proptest! {
    #[test]
    fn every_word_of_a_text_is_in_a_piece(
        lines in prop::collection::vec("[ ]{0,4}(fn [a-z]{2,4}\\(\\) \\{|[a-z]{2,9}( [a-z]{2,9}){0,40}|#{1,3} [a-z]{3}|```|\\}|)", 0..150),
        path in prop::sample::select(vec!["a.rs", "a.md", "a.py", "a.c", "a.txt", "a.ts", "a.toml"]),
    ) {
        let text = lines.join("\n");
        let found = chunks(path, language_of(path), &text);
        let mut covered = vec![false; lines.len() + 1];
        let mut before = (0, 0);
        for piece in &found {
            prop_assert!(piece.content.chars().count() <= MAX_CHARS && piece.content.lines().count() <= MAX_LINES);
            prop_assert!(before < (piece.start_line, piece.end_line), "in order");
            before = (piece.start_line, piece.end_line);
            let range = piece.start_line as usize - 1..piece.end_line as usize;
            let expected = lines[range.clone()].join("\n");
            prop_assert_eq!(&piece.content, &expected);
            range.for_each(|line| covered[line] = true);
        }
        for (line, covered) in lines.iter().zip(covered) {
            prop_assert!(covered || words(line).is_empty(), "{line:?} is in no piece");
        }
        let mut symbols: Vec<String> = found.iter().filter_map(|piece| piece.symbol.clone()).collect();
        let count = symbols.len();
        symbols.sort();
        symbols.dedup();
        prop_assert_eq!(symbols.len(), count, "symbols are told apart");
    }
}
