//! Profiles, threads and courses: what they mean, the same for every engine.

use std::{borrow::Cow, collections::HashMap};

use amalgam_core::{
    search::words,
    store::{AgentProfile, Course, Imported, MetadataRecord},
};
use amalgam_protocol::{ErrorObject, Json, Status, Writer};

use crate::rows::json;

/// The numbers of the user's message and of its answer, derived from the number of the queue entry: so those of a session
/// are in order, and known before anything is written.
pub(crate) fn message_ids(number: i64) -> (i64, i64) {
    (2 * number - 1, 2 * number)
}

/// A profile as it stands in the column of a thread.
pub(crate) fn profile_column(profile: Option<&str>) -> &str {
    profile.unwrap_or_default()
}

/// A profile from its column.
pub(crate) fn profile_from(column: String) -> Option<String> {
    (!column.is_empty()).then_some(column)
}

/// Whether nothing would change.
pub(crate) fn is_same(one: &AgentProfile, other: &AgentProfile) -> bool {
    one.prompt == other.prompt
        && one.tools == other.tools
        && one.model == other.model
        && one.tool_choice == other.tool_choice
        && one.active == other.active
}

/// What is said, as every engine can keep it: PostgreSQL has no text with the character of number 0.
pub(crate) fn content(text: &str) -> Cow<'_, str> {
    match text.contains('\0') {
        true => Cow::Owned(text.replace('\0', "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

/// A message of a thread.
pub(crate) struct Said {
    pub(crate) role: String,
    pub(crate) content: String,
    pub(crate) response_id: Option<String>,
}

/// Role and content of messages that are given newest first, oldest first; and the turn that gave the newest answer among them.
pub(crate) fn history(said: Vec<Said>) -> (Vec<(String, String)>, Option<String>) {
    let answered_by = said.iter().find(|said| said.role == "assistant").and_then(|said| said.response_id.clone());
    (said.into_iter().rev().map(|said| (said.role, said.content)).collect(), answered_by)
}

/// Where an entry is in the queue of its session.
pub(crate) enum QueuePosition {
    /// It is not there any more.
    Gone,
    First,
    /// Another entry is first.
    Waiting,
    /// The turn of the first entry has ended without releasing it.
    BehindEnded {
        response_id: String,
        status: Status,
    },
}

/// Strings as an array.
pub(crate) fn strings_json(strings: &[String]) -> Json {
    let mut writer = Writer::default();
    writer.array(|writer| strings.iter().for_each(|string| writer.string(string)));
    Json::from_writer(writer)
}

/// Strings from their array.
pub(crate) fn strings(text: &str) -> Vec<String> {
    json(text).raw().elements().filter_map(|string| Some(string.as_str()?.decode().into_owned())).collect()
}

/// What is known about a message whose turn failed with this error object.
pub(crate) fn failure(error: &str) -> MetadataRecord {
    let error = ErrorObject::read(json(error).raw());
    error_record(error.code.as_deref().unwrap_or(Status::Failed.name()), &error.message)
}

/// What is known about a message whose turn has ended without a word to its thread; nothing where it ended well.
pub(crate) fn ended(status: Status) -> Option<MetadataRecord> {
    let told = !matches!(status, Status::Completed | Status::Incomplete);
    told.then(|| error_record(status.name(), "The turn did not come to its end."))
}

/// What is known about a message whose turn was deleted while it ran.
pub(crate) fn deleted() -> MetadataRecord {
    error_record("deleted", "The response was deleted before it came to its end.")
}

fn error_record(code: &str, message: &str) -> MetadataRecord {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("code").string(code);
        writer.key("message").string(message);
    });
    MetadataRecord { kind: "error".to_owned(), value: Json::from_writer(writer) }
}

/// What an import comes to: the counts, and what is to be written, each course once and in the order of numbers. `known`
/// are those that are there.
pub(crate) fn import(mut known: HashMap<i64, Course>, courses: &[Course]) -> (Imported, Vec<Course>) {
    let mut imported = Imported::default();
    let mut changed: HashMap<i64, &Course> = HashMap::new();
    for course in courses {
        match known.insert(course.id, course.clone()) {
            Some(before) if before == *course => {
                imported.unchanged += 1;
                continue;
            }
            Some(_) => imported.updated += 1,
            None => imported.created += 1,
        }
        changed.insert(course.id, course);
    }
    let mut changed: Vec<Course> = changed.into_values().cloned().collect();
    changed.sort_by_key(|course| course.id);
    (imported, changed)
}

/// A word of title or tags is worth so many of the description.
pub(crate) const STRONG: u32 = 4;

/// The words of a course as they are searched for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CourseWords {
    /// Those of title and tags.
    pub(crate) strong: Vec<String>,
    /// Those that only the description has.
    pub(crate) weak: Vec<String>,
}

impl CourseWords {
    pub(crate) fn of(course: &Course) -> Self {
        let strong = words(&[course.title.as_str(), " ", &course.tags.join(" ")].concat());
        let mut weak = words(&course.description);
        weak.retain(|word| !strong.contains(word));
        Self { strong, weak }
    }
}

/// The words of a question that can be in an index at all.
pub(crate) fn searchable(words: &[String]) -> Vec<&str> {
    let mut known: Vec<&str> = Vec::with_capacity(words.len());
    for word in words {
        let is_word = !word.is_empty() && word.chars().all(char::is_alphanumeric);
        if is_word && !known.contains(&word.as_str()) {
            known.push(word);
        }
    }
    known
}

/// An object that has all the fields of what is known about a message.
pub(crate) fn record(kind: String, value: &str) -> MetadataRecord {
    MetadataRecord { kind, value: json(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(id: i64, title: &str) -> Course {
        Course {
            id,
            title: title.into(),
            description: "Python from the start, with exercises.".into(),
            modality: "Learn".into(),
            kind: "Course".into(),
            status: None,
            content_in_sequence: false,
            min_percentage_finish: 100,
            tags: vec!["data".into()],
            assets: Vec::new(),
            url: None,
            progress: 0,
            is_eligible: true,
            in_playlist: false,
            active: true,
        }
    }

    #[test]
    fn an_import_counts_every_line_and_writes_every_course_once() {
        let known = HashMap::from([(1, course(1, "one")), (2, course(2, "two"))]);
        let lines = [course(3, "three"), course(1, "one"), course(2, "second"), course(3, "third"), course(3, "third")];
        let (imported, changed) = import(known, &lines);
        assert_eq!(imported, Imported { created: 1, updated: 2, unchanged: 2 });
        assert_eq!(changed, [course(2, "second"), course(3, "third")]);
    }

    #[test]
    fn a_word_is_as_strong_as_the_strongest_place_that_it_is_in() {
        let found = CourseWords::of(&course(1, "Python basics"));
        assert!(found.strong.contains(&"python".to_owned()) && found.strong.contains(&"data".to_owned()));
        assert!(!found.weak.contains(&"python".to_owned()));
        assert!(!found.weak.is_empty());
    }

    #[test]
    fn what_is_no_word_is_not_searched_for() {
        let asked = ["a", "", "a", "b\"c", "' | x", "ö9"].map(String::from);
        assert_eq!(searchable(&asked), ["a", "ö9"]);
    }

    #[test]
    fn what_is_known_of_a_failure_is_its_code_and_message() {
        let told = failure(r#"{"message":"it \"died\"","type":"server_error","param":null,"code":null}"#);
        assert_eq!(told, record("error".into(), r#"{"code":"failed","message":"it \"died\""}"#));
        assert_eq!(ended(Status::Completed), None);
        assert!(ended(Status::Cancelled).is_some_and(|told| told.value.raw().get("code").is_some()));
        let names = vec!["a\"b".to_owned(), String::new()];
        assert_eq!(strings(strings_json(&names).raw().text()), names);
    }
}
