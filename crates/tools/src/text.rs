//! Makes untrusted text safe for log lines and error messages.

/// The beginning of `text`: at most `chars` characters, on one line, without control characters.
pub(crate) fn printable(text: &str, chars: usize) -> String {
    let mut short = String::new();
    let mut left = chars;
    for piece in text.split(|character: char| character.is_whitespace() || character.is_control()) {
        // Direction marks make a line read as something else.
        let mut piece = piece.chars().filter(|character| !is_invisible(*character)).peekable();
        if piece.peek().is_none() {
            continue;
        }
        if !short.is_empty() {
            short.push(' ');
            left = left.saturating_sub(1);
        }
        for character in piece {
            if left == 0 {
                short.push('…');
                return short;
            }
            short.push(character);
            left -= 1;
        }
    }
    short
}

/// The beginning of `text`: at most `bytes` bytes, cut between two characters.
pub(crate) fn beginning(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_become_one_short_line_without_control_characters() {
        assert_eq!(printable("a\u{1b}[31m  b\r\nc\u{202e}d\0", 100), "a [31m b cd");
        assert_eq!(printable("ééééé", 3), "ééé…");
        assert_eq!((printable("", 3), printable("abc", 3)), (String::new(), "abc".to_owned()));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!((beginning("aé", 2), beginning("aé", 3), beginning("", 3)), ("a", "aé", ""));
    }
}
