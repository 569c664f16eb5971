//! Search terms of texts and queries, in English and Indonesian.
//!
//! Both storage engines index the output of [`words`] and search for it, so they find the same. A word is reduced to its stem (`evaluations` and `evaluating`, `pelatihan` and `melatih`). The
//! language of a word is not given: a word that Indonesian affixes lead back to a root that we know is Indonesian, and
//! everything else goes through the endings of English, which leave most other words alone.

mod english;
mod indonesian;
mod stop;

use std::collections::HashSet;

/// No word is longer, in characters: databases refuse words without end.
const LONGEST: usize = 64;

/// The words of a text that can be searched for, each once, in their order: lower case, without accents, as stems.
///
/// They consist of letters and digits alone. A text of nothing but empty words (`give me a course`) has none.
pub fn words(text: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut word = String::new();
    // A space behind the text ends its last word.
    for c in text.chars().chain([' ']) {
        if is_inside(c) {
            continue;
        }
        if c.is_alphanumeric() {
            c.to_lowercase().for_each(|c| push_plain(&mut word, c));
            continue;
        }
        if !word.is_empty() {
            let stem = stem(&word);
            word.clear();
            if !stem.is_empty() && seen.insert(stem.clone()) {
                found.push(stem);
            }
        }
    }
    found
}

/// What belongs to the word around it without being searched for: apostrophes, accents that stand by themselves, soft
/// hyphens. What lower case makes of a dotted capital I ends in such an accent.
pub(crate) fn is_inside(c: char) -> bool {
    matches!(c, '\'' | '\u{2019}' | '\u{02bc}' | '\u{00ad}' | '\u{200d}' | '\u{0300}'..='\u{036f}')
}

/// The stem of one word in plain lower-case letters; empty for a word that says nothing.
fn stem(word: &str) -> String {
    match stop::is_empty(word) {
        true => String::new(),
        false => family(word),
    }
}

/// The stem of one word in plain lower-case letters.
pub(crate) fn family(word: &str) -> String {
    if let Some((end, _)) = word.char_indices().nth(LONGEST) {
        return word.split_at(end).0.to_owned();
    }
    match word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        true => match indonesian::root(word) {
            // Borrowed with its ending: the rest is what English has too.
            Some(root) if root.ends_with("asi") => english::stem(root),
            Some(root) => root.to_owned(),
            None => english::stem(indonesian::loosened(word)),
        },
        // Other scripts, and what has a digit in it.
        false => word.to_owned(),
    }
}

/// Adds a letter without its accent.
pub(crate) fn push_plain(word: &mut String, c: char) {
    let plain = match c {
        'à'..='å' | 'ā' | 'ă' | 'ą' => "a",
        'æ' => "ae",
        'ç' | 'ć' | 'č' => "c",
        'ď' | 'đ' => "d",
        'è'..='ë' | 'ē' | 'ė' | 'ę' | 'ě' => "e",
        'ğ' | 'ģ' => "g",
        'ì'..='ï' | 'ī' | 'į' | 'ı' => "i",
        'ķ' => "k",
        'ļ' | 'ľ' | 'ł' => "l",
        'ñ' | 'ń' | 'ņ' | 'ň' => "n",
        'ò'..='ö' | 'ø' | 'ō' | 'ő' => "o",
        'œ' => "oe",
        'ŕ' | 'ř' => "r",
        'ś' | 'š' | 'ş' | 'ș' => "s",
        'ß' => "ss",
        'ť' | 'ţ' | 'ț' => "t",
        'ù'..='ü' | 'ū' | 'ů' | 'ű' | 'ų' => "u",
        'ý' | 'ÿ' => "y",
        'ź' | 'ż' | 'ž' => "z",
        c if is_inside(c) => "",
        c => return word.push(c),
    };
    word.push_str(plain);
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
