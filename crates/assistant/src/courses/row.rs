//! One row: its named values become a course, or a list of errors.

use amalgam_core::store::{Course, LearnerCourse};
use serde_json::{Map, Value};

/// The values of a row by name. Values of a CSV file are strings, and those of a JSON file may be.
pub(super) type Fields = Map<String, Value>;

/// The valid field names.
pub(super) const NAMES: [&str; 15] = [
    "id",
    "title",
    "description",
    "modality",
    "type",
    "status",
    "content_in_sequence",
    "min_percentage_finish",
    "tags",
    "assets",
    "url",
    "progress",
    "is_eligible",
    "in_playlist",
    "active",
];

/// The fields that are lists of strings.
pub(super) const LISTS: [&str; 2] = ["tags", "assets"];

/// The maximum length of texts, in characters.
const TITLE: usize = 300;
const DESCRIPTION: usize = 20_000;
const NAME: usize = 60;
const USER: usize = 256;
const URL: usize = 2_000;
const TAG: usize = 100;
const ASSET: usize = 300;
/// The maximum length of lists.
const TAGS: usize = 50;
const ASSETS: usize = 200;

/// What the rows of a file describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns {
    /// The names of all fields.
    pub(super) names: &'static [&'static str],
    /// The fields that every row has.
    pub(super) needed: &'static [&'static str],
}

/// Those of a course.
pub(super) const COURSE: Columns = Columns { names: &NAMES, needed: &["id", "title"] };
/// Those of a learner's values of a course.
pub(super) const LEARNER: Columns = Columns {
    names: &["user", "course_id", "status", "progress", "is_eligible", "in_playlist"],
    needed: &["user", "course_id"],
};

/// The course of a row.
pub(super) fn course(fields: &Fields) -> Result<Course, String> {
    let mut row = Reader { fields, names: COURSE.names, faults: Vec::new() };
    row.unknown_names();
    let id = row.id("id");
    let title = row.text("title", TITLE);
    if title.is_none() {
        row.missing("title");
    }
    let course = Course {
        id: id.unwrap_or_default(),
        title: title.unwrap_or_default(),
        description: row.text("description", DESCRIPTION).unwrap_or_default(),
        modality: row.text("modality", NAME).unwrap_or_else(|| "Learn".to_owned()),
        kind: row.text("type", NAME).unwrap_or_else(|| "Course".to_owned()),
        status: row.text("status", NAME),
        content_in_sequence: row.boolean("content_in_sequence").unwrap_or(false),
        min_percentage_finish: row.percentage("min_percentage_finish").unwrap_or(100),
        tags: row.list("tags", TAGS, TAG),
        assets: row.list("assets", ASSETS, ASSET),
        url: row.url(),
        progress: row.percentage("progress").unwrap_or(0),
        is_eligible: row.boolean("is_eligible").unwrap_or(true),
        in_playlist: row.boolean("in_playlist").unwrap_or(false),
        active: row.boolean("active").unwrap_or(true),
    };
    if row.faults.is_empty() { Ok(course) } else { Err(row.faults.join("; ")) }
}

/// The learner's values of a row, without their time.
pub(super) fn learner_course(fields: &Fields) -> Result<LearnerCourse, String> {
    let mut row = Reader { fields, names: LEARNER.names, faults: Vec::new() };
    row.unknown_names();
    let user = row.text("user", USER);
    match &user {
        None => row.missing("user"),
        Some(user) if user.chars().any(char::is_control) => {
            row.faults.push("`user` must have no control characters".to_owned());
        }
        Some(_) => {}
    }
    let course = LearnerCourse {
        course_id: row.id("course_id").unwrap_or_default(),
        user: user.unwrap_or_default(),
        status: row.text("status", NAME),
        progress: row.percentage("progress"),
        is_eligible: row.boolean("is_eligible"),
        in_playlist: row.boolean("in_playlist"),
        updated_at_ms: 0,
    };
    if row.faults.is_empty() { Ok(course) } else { Err(row.faults.join("; ")) }
}

struct Reader<'a> {
    fields: &'a Fields,
    names: &'static [&'static str],
    faults: Vec<String>,
}

impl<'a> Reader<'a> {
    /// The value of a field, unless it is empty.
    fn value_of(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| match value {
            Value::Null => false,
            Value::String(text) => !text.trim().is_empty(),
            _ => true,
        })
    }

    fn refuse<T>(&mut self, name: &str, reason: &str) -> Option<T> {
        self.faults.push(format!("`{name}` {reason}"));
        None
    }

    /// Reports a missing field, unless it has another error already.
    fn missing(&mut self, name: &str) {
        if self.value_of(name).is_none() {
            self.faults.push(format!("`{name}` is missing"));
        }
    }

    fn unknown_names(&mut self) {
        let unknown = self.fields.keys().filter(|name| !self.names.contains(&name.as_str()));
        self.faults.extend(unknown.take(5).map(|name| format!("unknown field `{}`", shown(name))));
    }

    fn id(&mut self, name: &'static str) -> Option<i64> {
        let Some(value) = self.value_of(name) else {
            self.missing(name);
            return None;
        };
        match whole(value).filter(|id| *id > 0) {
            Some(id) => Some(id),
            None => self.refuse(name, "must be a positive integer"),
        }
    }

    fn text(&mut self, name: &str, max: usize) -> Option<String> {
        match self.value_of(name)? {
            Value::String(text) => match text_fault(text.trim(), max) {
                None => Some(text.trim().to_owned()),
                Some(reason) => self.refuse(name, &reason),
            },
            _ => self.refuse(name, "must be a text"),
        }
    }

    fn list(&mut self, name: &str, max: usize, max_chars: usize) -> Vec<String> {
        let Some(value) = self.value_of(name) else { return Vec::new() };
        let Value::Array(values) = value else {
            return self.refuse(name, "must be a list of texts").unwrap_or_default();
        };
        if values.len() > max {
            return self.refuse(name, &format!("must have at most {max} parts")).unwrap_or_default();
        }
        let mut texts = Vec::with_capacity(values.len());
        for value in values {
            match value.as_str().map(str::trim) {
                None => return self.refuse(name, "must be a list of texts").unwrap_or_default(),
                Some("") => {}
                Some(text) => match text_fault(text, max_chars) {
                    None => texts.push(text.to_owned()),
                    Some(reason) => {
                        return self.refuse(name, &format!("has a part that {reason}")).unwrap_or_default();
                    }
                },
            }
        }
        texts
    }

    fn boolean(&mut self, name: &str) -> Option<bool> {
        let value = self.value_of(name)?;
        let parsed = match value {
            Value::Bool(boolean) => Some(*boolean),
            Value::Number(number) => {
                number.as_i64().and_then(|number| [false, true].get(usize::try_from(number).ok()?).copied())
            }
            Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "yes" | "1" => Some(true),
                "false" | "no" | "0" => Some(false),
                _ => None,
            },
            _ => None,
        };
        if parsed.is_none() { self.refuse(name, "must be true or false") } else { parsed }
    }

    fn percentage(&mut self, name: &str) -> Option<i64> {
        let value = self.value_of(name)?;
        match whole(value).filter(|number| (0..=100).contains(number)) {
            Some(number) => Some(number),
            None => self.refuse(name, "must be a whole number from 0 to 100"),
        }
    }

    /// An HTTP or HTTPS URL.
    fn url(&mut self) -> Option<String> {
        let url = self.text("url", URL)?;
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let good = matches!(scheme.as_deref(), Some("http" | "https")) && !url.contains(|c: char| c.is_whitespace());
        if good { Some(url) } else { self.refuse("url", "must begin with http:// or https:// and have no spaces") }
    }
}

fn text_fault(text: &str, max: usize) -> Option<String> {
    if text.contains('\0') {
        return Some("must not have null characters".to_owned());
    }
    text.chars().nth(max).map(|_| format!("must have at most {max} characters"))
}

fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// An unknown name from the file, shortened and escaped for a message.
pub(super) fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(40).collect()
}
