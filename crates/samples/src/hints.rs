//! SampleHints in a message for the arguments of a call: quoted words, numbers, names, and `field: value`.

use std::cell::Cell;

/// Fields that take the whole message.
const WHOLE: [&str; 9] = ["query", "question", "q", "text", "message", "prompt", "input", "content", "topic"];

/// Words after which a name is likely.
const BEFORE_NAMES: [&str; 8] = ["in", "for", "of", "at", "to", "from", "about", "near"];

/// The part of a message that is read, so that a schema with many fields and a long message stay cheap.
const READ_CHARACTERS: usize = 4_000;

/// A parsed message. A hint that was used for one field is not offered to the next.
#[derive(Debug, Default)]
pub struct SampleHints {
    text: String,
    /// The message in lower case, with every punctuation character replaced by a space.
    plain: String,
    quoted: Vec<String>,
    names: Vec<String>,
    numbers: Vec<f64>,
    used: Cell<HintPositions>,
}

/// How many hints were used; saved before an attempt that may fail.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct HintPositions {
    quoted: usize,
    names: usize,
    numbers: usize,
}

impl SampleHints {
    /// Reads a message, up to a bound.
    pub fn new(text: &str) -> Self {
        let text = text.char_indices().nth(READ_CHARACTERS).and_then(|(end, _)| text.get(..end)).unwrap_or(text);
        let words: Vec<&str> = text.split_whitespace().collect();
        Self {
            text: text.trim().to_owned(),
            plain: plain(text),
            quoted: quoted(text),
            names: names(&words),
            numbers: words.iter().filter_map(|word| number(word)).collect(),
            used: Cell::default(),
        }
    }

    /// The present positions in the lists.
    pub(crate) fn used(&self) -> HintPositions {
        self.used.get()
    }

    /// Restores the positions after a failed attempt.
    pub(crate) fn restore(&self, used: HintPositions) {
        self.used.set(used);
    }

    /// Whether the message contains this word or phrase.
    pub fn says(&self, phrase: &str) -> bool {
        let phrase = plain(phrase);
        !phrase.trim().is_empty() && self.plain.contains(&phrase)
    }

    /// The value that the message assigns to a field: `city: Oslo`, `city=Oslo`, `city is "New York"`.
    pub(crate) fn named(&self, field: &str) -> Option<String> {
        if field.is_empty() {
            return None;
        }
        let lower = self.text.to_lowercase();
        let spaced = field.to_lowercase().replace(['_', '-'], " ");
        for name in [field.to_lowercase(), spaced] {
            for (at, _) in lower.match_indices(&name) {
                // Lower case may change the length; then the position is invalid and the name is not used.
                let (Some(before), Some(after)) = (self.text.get(..at), self.text.get(at + name.len()..)) else {
                    continue;
                };
                if before.chars().next_back().is_some_and(char::is_alphanumeric) {
                    continue;
                }
                let rest = after.trim_start();
                let value = rest.strip_prefix([':', '=']).or_else(|| rest.strip_prefix("is ")).map(first_value);
                if let Some(value) = value.filter(|value| !value.is_empty()) {
                    return Some(value);
                }
            }
        }
        None
    }

    /// A text for this field.
    pub(crate) fn string(&self, field: &str) -> Option<String> {
        if let Some(value) = self.named(field) {
            return Some(value);
        }
        let mut used = self.used.get();
        if let Some(value) = self.quoted.get(used.quoted) {
            used.quoted += 1;
            self.used.set(used);
            return Some(value.clone());
        }
        if WHOLE.contains(&field.to_lowercase().as_str()) && !self.text.is_empty() {
            return Some(self.text.clone());
        }
        let value = self.names.get(used.names)?;
        used.names += 1;
        self.used.set(used);
        Some(value.clone())
    }

    /// A number for this field that `fits`.
    pub(crate) fn number(&self, field: &str, fits: impl Fn(f64) -> bool) -> Option<f64> {
        if let Some(value) = self.named(field).and_then(|value| number(&value)).filter(|value| fits(*value)) {
            return Some(value);
        }
        let mut used = self.used.get();
        let rest = self.numbers.get(used.numbers..).unwrap_or_default();
        let place = rest.iter().position(|value| fits(*value))?;
        let value = rest.get(place).copied();
        used.numbers += place + 1;
        self.used.set(used);
        value
    }

    /// A yes or no for this field.
    pub(crate) fn boolean(&self, field: &str) -> Option<bool> {
        match self.named(field)?.to_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(true),
            "false" | "no" | "off" | "0" => Some(false),
            _ => None,
        }
    }

    /// Text for a tool that takes any: the quoted words, otherwise the whole message.
    pub fn free_text(&self) -> String {
        self.quoted.first().unwrap_or(&self.text).clone()
    }
}

fn plain(text: &str) -> String {
    let words: Vec<String> =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    format!(" {} ", words.join(" "))
}

/// The value at the beginning of a text: quoted, or up to a space or a punctuation character.
fn first_value(text: &str) -> String {
    let text = text.trim_start();
    match quoted(text).into_iter().next() {
        Some(value) if text.starts_with(['"', '\'', '`', '“']) => value,
        _ => text
            .split(|c: char| c.is_whitespace() || ",;".contains(c))
            .next()
            .unwrap_or_default()
            .trim_end_matches(['.', '?', '!', ')'])
            .to_owned(),
    }
}

fn quoted(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((at, open)) = rest.char_indices().find(|(_, c)| "\"`“".contains(*c)) {
        let close = if open == '“' { '”' } else { open };
        let Some(after) = rest.get(at + open.len_utf8()..) else { break };
        let Some((inside, behind)) = after.split_once(close) else { break };
        if !inside.is_empty() {
            found.push(inside.to_owned());
        }
        rest = behind;
    }
    found
}

/// Sequences of capitalised words; first those after a word such as `in`.
fn names(words: &[&str]) -> Vec<String> {
    let capital = |word: &str| word.chars().next().is_some_and(char::is_uppercase);
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let mut likely = Vec::new();
    let mut others = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let start = at;
        at += 1;
        if !capital(word) {
            continue;
        }
        let mut name = bare(word);
        let mut ended = !word.ends_with(char::is_alphanumeric);
        while let Some(next) = words.get(at).filter(|next| !ended && capital(next)) {
            name = format!("{name} {}", bare(next));
            ended = !next.ends_with(char::is_alphanumeric);
            at += 1;
        }
        let before = start.checked_sub(1).and_then(|index| words.get(index)).map(|word| word.to_lowercase());
        match before {
            Some(before) if BEFORE_NAMES.contains(&before.as_str()) => likely.push(name),
            // The first word of a sentence is capitalised anyway.
            Some(before) if !before.ends_with(['.', '!', '?', ':']) && name != "I" => others.push(name),
            _ => {}
        }
    }
    likely.append(&mut others);
    likely
}

fn number(word: &str) -> Option<f64> {
    let bare = word.trim_matches(|c: char| !c.is_ascii_digit() && c != '-' && c != '.').trim_end_matches(['.', '-']);
    bare.parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_finds_its_value_in_the_message() {
        let hints =
            SampleHints::new("Use get_weather for New York, days: 3 and unit is celsius. Note \"bring it\" please");
        assert_eq!(hints.named("unit").as_deref(), Some("celsius"));
        assert_eq!(hints.named("days").as_deref(), Some("3"));
        assert_eq!(hints.named("missing"), None);
        assert_eq!(hints.string("note").as_deref(), Some("bring it"));
        assert_eq!(hints.string("city").as_deref(), Some("New York"));
        assert_eq!(hints.string("country"), None);
        assert_eq!(hints.number("count", |value| value > 1.0), Some(3.0));
        assert_eq!(hints.number("count", |_| true), None);
        assert!(hints.says("get weather") && hints.says("get_weather") && !hints.says("weath"));
    }

    #[test]
    fn odd_texts_are_taken_apart_without_harm() {
        for text in ["", "\"", "``", "İİ city: x", "é=ü", "- . -.", "“a", "city:", "A B? C"] {
            let hints = SampleHints::new(text);
            for field in ["city", "i̇i̇", "", "é"] {
                hints.named(field);
                hints.string(field);
                hints.number(field, |_| true);
                hints.boolean(field);
            }
        }
        assert_eq!(SampleHints::new("é=ü").named("é").as_deref(), Some("ü"));
    }
}
