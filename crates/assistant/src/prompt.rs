//! The system prompt of an assistant: the tenant's text, the profile's text, and the course that the user is viewing.

use amalgam_core::{hex, store::Course};
use amalgam_protocol::Writer;
use sha2::{Digest as _, Sha256};

/// The separator between the tenant's text and the profile's.
const TASK: &str = "\n\nAgent profile task:\n";

/// The prefix of the line about the course.
const CONTEXT: &str = "Runtime context: ";

/// Limits of the line about the course, in characters: title, modality, one tag, one asset.
const TITLE_CHARS: usize = 200;
const MODALITY_CHARS: usize = 60;
const TAG_CHARS: usize = 60;
const ASSET_CHARS: usize = 100;
/// The maximum number of tags and assets.
const TAGS: usize = 12;
const ASSETS: usize = 20;

/// A composed prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The whole text; empty if no prompt is configured.
    pub text: String,
    /// SHA-256 of the configured text, in hexadecimal: the same for every user and course.
    pub hash: String,
}

/// Composes a prompt: the tenant's text, the profile's text, and the line about the course.
///
/// Blank text counts as none. The hash excludes the line about the course, so that it identifies the configured text.
pub fn compose(config: &str, profile: Option<&str>, course: Option<&Course>) -> Prompt {
    let configured = configured_text(config, profile);
    let hash = hash(&configured);
    let text = match course.map(course_line) {
        None => configured,
        Some(line) if configured.is_empty() => line,
        Some(line) => format!("{configured}\n\n{line}"),
    };
    Prompt { text, hash }
}

/// The tenant's text and the profile's.
pub fn configured_text(config: &str, profile: Option<&str>) -> String {
    let profile = profile.unwrap_or_default();
    match (config.trim().is_empty(), profile.trim().is_empty()) {
        (false, false) => format!("{config}{TASK}{profile}"),
        (false, true) => config.to_owned(),
        (true, false) => profile.to_owned(),
        (true, true) => String::new(),
    }
}

/// The parts of a composed prompt: the tenant's text, the profile's, and the line about the course. A prompt with only one of the
/// first two has it as the tenant's.
pub fn parts(prompt: &str) -> (&str, Option<&str>, Option<&str>) {
    let separator = format!("\n\n{CONTEXT}");
    let (configured, course) = match (prompt.rsplit_once(&*separator), prompt.strip_prefix(CONTEXT)) {
        (_, Some(_)) => ("", Some(prompt)),
        (Some((configured, line)), _) if !line.contains('\n') => (configured, prompt.get(configured.len() + 2..)),
        _ => (prompt, None),
    };
    match configured.split_once(TASK) {
        Some((config, profile)) => (config, Some(profile), course),
        None => (configured, None, course),
    }
}

/// SHA-256 of a text, in hexadecimal.
pub fn hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// A course in one short line. Its texts are quoted, so that they cannot pass for instructions.
pub fn course_line(course: &Course) -> String {
    let mut writer = Writer::with_capacity(512);
    writer.object(|writer| {
        writer.key("course").object(|writer| {
            writer.key("id").valid(course.id.to_string().as_bytes());
            writer.key("title").string(&short(&course.title, TITLE_CHARS));
            writer.key("modality").string(&short(&course.modality, MODALITY_CHARS));
            let lists = [("tags", &course.tags, TAGS, TAG_CHARS), ("assets", &course.assets, ASSETS, ASSET_CHARS)];
            for (key, texts, most, characters) in lists {
                writer.key(key).array(|writer| {
                    texts.iter().take(most).for_each(|text| writer.string(&short(text, characters)));
                });
            }
        });
    });
    format!("{CONTEXT}{}", String::from_utf8_lossy(writer.bytes()))
}

/// The text on one line, truncated.
fn short(text: &str, characters: usize) -> String {
    let line = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = line.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", line.split_at(end).0.trim_end()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn course() -> Course {
        Course {
            id: 28,
            title: "Leadership Foundations".to_owned(),
            description: "Long.".to_owned(),
            modality: "Learn".to_owned(),
            kind: "Course".to_owned(),
            status: Some("Started".to_owned()),
            content_in_sequence: false,
            min_percentage_finish: 100,
            tags: vec!["leadership".to_owned(), "communication".to_owned()],
            assets: vec!["Video: \"Why\"".to_owned()],
            url: None,
            progress: 0,
            is_eligible: true,
            in_playlist: false,
            active: true,
        }
    }

    const LINE: &str = r#"Runtime context: {"course":{"id":28,"title":"Leadership Foundations","modality":"Learn","tags":["leadership","communication"],"assets":["Video: \"Why\""]}}"#;

    #[test]
    fn prompts_are_joined_in_their_order_and_blank_ones_left_out() {
        // RNCC-23, RNCC-24, RNCC-25
        let course = course();
        for (config, profile, on_screen, expected) in [
            ("Config.", Some("Profile."), None, "Config.\n\nAgent profile task:\nProfile.".to_owned()),
            ("Config.", None, None, "Config.".to_owned()),
            ("Config.", Some(" \n"), None, "Config.".to_owned()),
            ("", Some("Profile."), None, "Profile.".to_owned()),
            (" ", None, None, String::new()),
            ("Config.", Some("Profile."), Some(&course), format!("Config.\n\nAgent profile task:\nProfile.\n\n{LINE}")),
            ("Config.", None, Some(&course), format!("Config.\n\n{LINE}")),
            ("", None, Some(&course), LINE.to_owned()),
        ] {
            assert_eq!(compose(config, profile, on_screen).text, expected);
        }
    }

    #[test]
    fn a_composed_prompt_is_taken_apart_again() {
        let course = course();
        for (config, profile, on_screen, expected) in [
            ("Config.", Some("Profile."), None, ("Config.", Some("Profile."), None)),
            ("Config.", Some("Profile."), Some(&course), ("Config.", Some("Profile."), Some(LINE))),
            ("Config.", None, Some(&course), ("Config.", None, Some(LINE))),
            ("", None, Some(&course), ("", None, Some(LINE))),
            ("Config.", None, None, ("Config.", None, None)),
        ] {
            assert_eq!(parts(&compose(config, profile, on_screen).text), expected);
        }
    }

    #[test]
    fn the_hash_names_what_is_configured_and_not_the_course() {
        // RNCC-15. printf 'Config.\n\nAgent profile task:\nProfile.' | sha256sum
        let plain = compose("Config.", Some("Profile."), None);
        assert_eq!(plain.hash, "d11c63cc1183c4155fe47b817df79588e85ce9ec19e015940172934ca0bbb5fe");
        assert_eq!(compose("Config.", Some("Profile."), Some(&course())).hash, plain.hash);
        assert_ne!(compose("Config!", Some("Profile."), None).hash, plain.hash);
        assert_ne!(compose("Config.", Some("Profile!"), None).hash, plain.hash);
        // The sha256sum of empty input.
        assert_eq!(compose("", None, None).hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn a_course_of_any_size_stays_one_short_line() {
        let mut large = course();
        large.title = "long\n".repeat(10_000);
        large.modality = "m\u{2028}".repeat(1_000);
        large.tags = vec!["t".repeat(1_000); 1_000];
        large.assets = vec!["\u{85}a\r\nb".repeat(1_000); 1_000];
        let line = course_line(&large);
        assert!(line.chars().count() < 3_600, "{}", line.chars().count());
        assert!(!line.contains(['\n', '\r', '\u{85}', '\u{2028}']));
        assert!(line.contains("long…"), "{line}");
    }

    proptest! {
        #[test]
        fn no_title_breaks_out_of_its_quotes(title in "\\PC{0,300}|[\"\\\\\n\u{2028}a]{0,300}") {
            let line = course_line(&Course { title, ..course() });
            prop_assert_eq!(line.lines().count(), 1);
            let json: serde_json::Value = serde_json::from_str(line.strip_prefix(CONTEXT).unwrap()).unwrap();
            prop_assert_eq!(&json["course"]["id"], 28);
            prop_assert!(json["course"]["title"].as_str().unwrap().chars().count() <= TITLE_CHARS + 1);
        }
    }
}
