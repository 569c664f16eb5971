//! Counts how much of a JSON body is text rather than images and files, while it arrives.

/// A longer string in base64 is an image or a file.
const MIN_MEDIA_BYTES: usize = 4096;
/// The maximum number of other characters in a base64 string: `data:…;base64,` at its start, for instance.
const MAX_OTHER_CHARACTERS: usize = 128;

/// Counts the bytes of a body that are not part of an image or a file in base64.
#[derive(Debug, Default)]
pub(crate) struct TextShare {
    /// Bytes that are certainly text.
    text: usize,
    /// The current string.
    string: Option<StringState>,
    escaped: bool,
}

/// The part of a string that has arrived.
#[derive(Debug, Default)]
struct StringState {
    bytes: usize,
    odd: usize,
    /// Whether it is text, which is counted as it arrives.
    is_text: bool,
}

impl TextShare {
    /// Adds the next chunk of the body.
    pub(crate) fn take(&mut self, chunk: &[u8]) {
        for &byte in chunk {
            let Some(run) = &mut self.string else {
                self.text += 1;
                if byte == b'"' {
                    self.string = Some(StringState::default());
                }
                continue;
            };
            if byte == b'"' && !self.escaped {
                if !run.is_text && run.bytes < MIN_MEDIA_BYTES {
                    self.text += run.bytes;
                }
                self.text += 1;
                self.string = None;
                continue;
            }
            self.escaped = byte == b'\\' && !self.escaped;
            run.bytes += 1;
            if run.is_text {
                self.text += 1;
                continue;
            }
            if !is_base64(byte) {
                run.odd += 1;
                if run.odd > MAX_OTHER_CHARACTERS {
                    run.is_text = true;
                    self.text += run.bytes;
                }
            }
        }
    }

    /// Bytes of text so far; an unfinished string counts once it cannot be base64 any more.
    pub(crate) fn bytes(&self) -> usize {
        self.text
    }
}

/// Includes the URL-safe alphabet, and the characters that escape a slash or a line break.
fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_' | b'\\')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text_of(body: &str) -> usize {
        let mut share = TextShare::default();
        share.take(body.as_bytes());
        share.bytes()
    }

    // right E2
    #[test]
    fn images_and_files_are_not_text_and_everything_else_is() {
        let image = "A+/z".repeat(5000);
        let around = r#"{"input":[{"image_url":""}]}"#.len();
        assert_eq!(text_of(&format!(r#"{{"input":[{{"image_url":"{image}"}}]}}"#)), around);
        assert_eq!(text_of(&format!(r#"{{"input":[{{"image_url":"data:image/png;base64,{image}"}}]}}"#)), around);
        let wrapped = format!("{}\\r\\n", "A".repeat(76)).repeat(200);
        assert_eq!(text_of(&format!(r#"{{"input":[{{"image_url":"{wrapped}"}}]}}"#)), around);
        let words = format!(r#"{{"input":"{} said \"so\" \\"}}"#, "many words ".repeat(2000));
        assert_eq!(text_of(&words), words.len());
        let short = r#"{"input":"abc","model":"demo"}"#;
        assert_eq!(text_of(short), short.len());
        let numbers = format!("[{}1]", "1,".repeat(10_000));
        assert_eq!(text_of(&numbers), numbers.len());
    }

    proptest! {
        #[test]
        fn pieces_count_as_the_whole_does(body in "[a \"\\\\{}:]{0,400}", cut in 0_usize..400) {
            let cut = cut.min(body.len());
            let mut share = TextShare::default();
            share.take(&body.as_bytes()[..cut]);
            share.take(&body.as_bytes()[cut..]);
            prop_assert_eq!(share.bytes(), text_of(&body));
            prop_assert!(share.bytes() <= body.len());
        }
    }
}
