//! Search terms of texts and queries, in English and Indonesian.
//!
//! Both storage engines index the output of [`words`] and search for it, so they find the same. A word is reduced to
//! its stem (`evaluations` and `evaluating`, `pelatihan` and `melatih`). The language of a word is not given: a word
//! that Indonesian affixes reduce to a known root is Indonesian, and all others go through the English endings, which
//! leave most other words unchanged.

mod english;
mod indonesian;
mod stop;

use std::collections::HashSet;

/// The maximum length of a word, in characters: databases refuse unlimited words.
const MAX_CHARS: usize = 64;

/// The search terms of a text, without duplicates, in order: lower case, without accents, as stems.
///
/// They consist of letters and digits. A text of only stop words (`give me a course`) has none.
pub fn words(text: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut word = String::new();
    // A space after the text ends its last word.
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

/// Whether a character inside a word is ignored: apostrophes, combining accents, soft hyphens. The lower case of a
/// dotted capital I ends in such an accent.
pub(crate) fn is_inside(c: char) -> bool {
    matches!(c, '\'' | '\u{2019}' | '\u{02bc}' | '\u{00ad}' | '\u{200d}' | '\u{0300}'..='\u{036f}')
}

/// The stem of one word in unaccented lower-case letters; empty for a stop word.
fn stem(word: &str) -> String {
    match stop::is_empty(word) {
        true => String::new(),
        false => family(word),
    }
}

/// The stem of one word in unaccented lower-case letters.
pub(crate) fn family(word: &str) -> String {
    if let Some((end, _)) = word.char_indices().nth(MAX_CHARS) {
        return word.split_at(end).0.to_owned();
    }
    match word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        true => match indonesian::root(word) {
            // A loanword with its ending: English has the same root.
            Some(root) if root.ends_with("asi") => english::stem(root),
            Some(root) => root.to_owned(),
            None => english::stem(indonesian::loosened(word)),
        },
        // Other scripts, and words with digits.
        false => word.to_owned(),
    }
}

/// Appends a letter without its accent.
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
