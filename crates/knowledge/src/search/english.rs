//! The stemmer for English.
//!
//! Removes endings one after the other, the outermost first, until none is left that may go (`leaderships`,
//! `leadership`, `leader`, `lead`). The result names the family of words and need not be a word itself. Endings that
//! Indonesian has borrowed are removed too, so that `evaluasi` and `evaluation` have the same stem.

/// The minimum length of a stem, unless its ending says otherwise.
const MIN_CHARS: usize = 4;

/// Words whose stem the endings do not yield, with the stem.
#[rustfmt::skip] // one family a line
const IRREGULAR: &[(&str, &str)] = &[
    ("analyse", "analys"), ("analyses", "analys"), ("analysis", "analys"), ("analyst", "analys"), ("analysts", "analys"),
    ("analytics", "analys"), ("analytical", "analys"), ("analyze", "analys"), ("analyzed", "analys"), ("analyzing", "analys"),
    ("children", "child"),
    ("commercial", "commerc"),
    ("efektivitas", "efektif"),
    ("financial", "financ"), ("financially", "financ"),
    ("kreativitas", "kreatif"),
    ("led", "lead"),
    ("managerial", "manag"),
    ("men", "man"), ("women", "woman"),
    ("produktivitas", "produktif"),
    ("selling", "sell"), ("sold", "sell"),
    ("strategic", "strategi"), ("strategis", "strategi"),
    ("taught", "teach"),
    ("thought", "think"),
    ("written", "writ"), ("wrote", "writ"),
];

/// Words whose last letters only look like an ending.
#[rustfmt::skip] // alike ones on a line
const WHOLE: &[&str] = &[
    "answer", "buffer", "business", "career", "center", "centre", "chapter", "character", "consider", "corner",
    "counter", "customer", "december", "deliver", "differ", "discover", "doctor", "factor", "filter", "finger",
    "former", "gender", "important", "letter", "master", "matter", "member", "minister", "monitor", "news",
    "november", "number", "october", "offer", "partner", "poster", "prefer", "quarter", "register", "remember",
    "sector", "semester", "september", "something", "suffer", "summer", "template", "tender", "together",
    "transfer", "vector", "volunteer", "weather", "whether", "wonder",
];

/// The stem of a word of lower-case ASCII letters.
pub(super) fn stem(word: &str) -> String {
    let mut word = word.to_owned();
    loop {
        if let Some((_, family)) = IRREGULAR.iter().find(|(irregular, _)| *irregular == word) {
            return (*family).to_owned();
        }
        let shorter = match WHOLE.binary_search(&word.as_str()).is_ok() {
            true => None,
            false => singular(&word).or_else(|| derived(&word)).or_else(|| inflected(&word)),
        };
        match shorter {
            Some(shorter) => word = shorter,
            None => return unify_ending(word),
        }
    }
}

/// Removes the ending of the plural or of the third person.
fn singular(word: &str) -> Option<String> {
    if let Some(rest) = word.strip_suffix("ies") {
        return (rest.len() >= 3).then(|| format!("{rest}y"));
    }
    for hissing in ["sses", "xes", "ches", "shes", "zzes"] {
        if word.ends_with(hissing) {
            return word.strip_suffix("es").map(str::to_owned);
        }
    }
    let rest = word.strip_suffix('s')?;
    (rest.len() >= 3 && !rest.ends_with(['s', 'u', 'i'])).then(|| rest.to_owned())
}

/// Removes a derivational ending, the longest first.
fn derived(word: &str) -> Option<String> {
    #[rustfmt::skip] // endings, what takes their place, and what may not stand before them
    const ENDINGS: &[(&str, &str, &str)] = &[
        ("ational", "", ""), ("ization", "iz", ""), ("isation", "iz", ""), ("isasi", "iz", ""),
        ("ation", "", ""), ("ative", "", ""), ("ator", "", ""), ("ional", "ion", ""), ("asi", "", ""), ("ate", "", ""),
        ("ship", "", ""), ("ness", "", ""), ("less", "", ""), ("ful", "", ""),
        ("ment", "", "i"),
        ("ance", "", ""), ("ancy", "", ""), ("ence", "ent", ""), ("ency", "ent", ""),
        ("ical", "ic", ""), ("ity", "", ""), ("ive", "", ""), ("ism", "", ""), ("ist", "", ""), ("ant", "", ""),
        ("ly", "", "abfimopuwy"),
        ("iv", "", ""),
    ];
    for (ending, instead, not_after) in ENDINGS {
        if let Some(rest) = word.strip_suffix(ending) {
            let bare = rest.ends_with(|c| not_after.contains(c)) || rest.len() < MIN_CHARS || !has_vowel(rest);
            if !bare {
                return Some(format!("{rest}{instead}"));
            }
        }
    }
    // `action` and `mission` are complete words.
    if let Some(rest) = word.strip_suffix("ion") {
        return (rest.len() > MIN_CHARS && rest.ends_with(['s', 't'])).then(|| rest.to_owned());
    }
    if let Some(rest) = word.strip_suffix("or") {
        return (rest.len() >= MIN_CHARS && (rest.ends_with("ct") || rest.ends_with("st") || rest.ends_with("at")))
            .then(|| rest.to_owned());
    }
    if let Some(rest) = word.strip_suffix("er") {
        return (rest.len() >= MIN_CHARS && !rest.ends_with('e') && has_vowel(rest)).then(|| single(rest));
    }
    None
}

/// Removes the ending of a verb.
fn inflected(word: &str) -> Option<String> {
    if let Some(rest) = word.strip_suffix("ied") {
        return (rest.len() >= 3).then(|| format!("{rest}y"));
    }
    if word.ends_with("eed") {
        return None;
    }
    let rest = word.strip_suffix("ing").or_else(|| word.strip_suffix("ed"))?;
    if rest.len() < 3 || !has_vowel(rest) {
        return None;
    }
    let once = single(rest);
    // `coding` is from `code` and `evaluating` from `evaluate`; `planning` is from `plan` and `treating` from `treat`.
    let silent = is_short(rest) || (rest.ends_with("at") && !rest.ends_with("eat") && !rest.ends_with("oat"));
    Some(if once == rest && silent { format!("{rest}e") } else { once })
}

/// Removes a letter that the ending has doubled.
fn single(rest: &str) -> String {
    let mut letters = rest.chars().rev();
    match (letters.next(), letters.next()) {
        (Some(last), Some(before)) if last == before && !"aeiouflsz".contains(last) => {
            rest.strip_suffix(last).unwrap_or(rest).to_owned()
        }
        _ => rest.to_owned(),
    }
}

/// Whether it is one syllable that ends in a single consonant after a single vowel.
fn is_short(rest: &str) -> bool {
    let vowels: Vec<bool> = rest.chars().map(is_vowel).collect();
    vowels.iter().filter(|vowel| **vowel).count() == 1
        && matches!(vowels.as_slice(), [.., false, true, false])
        && !rest.ends_with(['w', 'x', 'y'])
}

/// Unifies last letters that differ within a family because of sound or spelling.
fn unify_ending(mut word: String) -> String {
    while word.len() > MIN_CHARS && word.ends_with('e') {
        word.pop();
    }
    if word.len() > 3 && word.ends_with('y') && !word.strip_suffix('y').is_some_and(|rest| rest.ends_with(is_vowel)) {
        word.pop();
        word.push('i');
    }
    // `controlled` and `control`.
    if word.len() > 5 && word.ends_with("ll") {
        word.pop();
    }
    // `certification` and `certify`, `organise` and `organize`.
    if word.len() > 6 && word.ends_with("ific") {
        word.pop();
    }
    if word.len() > 5 && word.ends_with("is") {
        word.pop();
        word.push('z');
    }
    word
}

fn has_vowel(text: &str) -> bool {
    text.contains(|c| is_vowel(c) || c == 'y')
}

fn is_vowel(c: char) -> bool {
    matches!(c, 'a' | 'e' | 'i' | 'o' | 'u')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_are_in_order_so_that_they_can_be_found() {
        assert!(WHOLE.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn short_words_keep_their_letters() {
        for word in ["red", "king", "use", "bus", "action", "mission", "feed", "ate", "ing", "s", "er", "data"] {
            assert_eq!(stem(word), word);
        }
    }

    #[test]
    fn a_letter_that_an_ending_has_doubled_is_single_again() {
        for (word, expected) in
            [("planning", "plan"), ("programmer", "program"), ("selling", "sell"), ("coding", "code")]
        {
            assert_eq!(stem(word), expected);
        }
    }
}
