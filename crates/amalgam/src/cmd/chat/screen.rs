//! Prints an answer in a terminal: streamed text, tool calls in brackets, courses as a table.
//!
//! Output of models and catalogues is untrusted: terminal control sequences are removed.

use std::io::{self, IsTerminal as _};

use serde_json::Value;

use crate::table::table;
use crate::terminal::{print_part, print_stdout};

/// The number of characters of arguments, titles and addresses that are shown.
const ARGUMENTS: usize = 100;
const TITLE: usize = 60;

/// The output of answers on the terminal.
pub(super) struct Screen {
    /// Whether whole answers are printed, for programs, instead of parts, for users.
    data: bool,
    /// Whether secondary text can be printed dimmed.
    dims: bool,
    /// Whether a line was begun.
    inside: bool,
    /// Whether a part of the answer's text was shown.
    has_text: bool,
}

impl Screen {
    pub(super) fn people() -> Self {
        Self { data: false, dims: io::stdout().is_terminal(), inside: false, has_text: false }
    }

    pub(super) fn data() -> Self {
        Self { data: true, dims: false, inside: false, has_text: false }
    }

    /// A part of the text.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        if self.data || text.is_empty() {
            return Ok(());
        }
        self.inside = !text.ends_with('\n');
        self.has_text = true;
        print_part(visible(text))
    }

    /// A tool that runs.
    pub(super) fn tool(&mut self, name: &str, arguments: &str) -> io::Result<()> {
        if self.data {
            return Ok(());
        }
        self.end()?;
        self.has_text = false;
        let line = format!("[{} {}]", visible(name), shortened(&visible(arguments), ARGUMENTS));
        print_stdout(if self.dims { format!("\x1b[2m{line}\x1b[0m") } else { line })
    }

    /// The whole answer.
    pub(super) fn done(&mut self, answer: &str) -> io::Result<()> {
        if self.data {
            return print_stdout(answer);
        }
        let answer: Value = serde_json::from_str(answer)?;
        if !self.has_text {
            self.text(answer["message"].as_str().unwrap_or_default())?;
        }
        self.end()?;
        self.has_text = false;
        for result in answer["tool_results"].as_array().into_iter().flatten() {
            if let Some(table) = courses(&result["output"]) {
                print_stdout(format_args!("\n{table}"))?;
            }
        }
        print_stdout("")
    }

    /// Ends a line that was begun.
    pub(super) fn end(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.inside) {
            true => print_stdout(""),
            false => Ok(()),
        }
    }
}

/// Formats the courses that a tool has found, with their number.
fn courses(output: &Value) -> Option<String> {
    let results = output["results"].as_array()?;
    let text = |course: &Value, name: &str| visible(course[name].as_str().unwrap_or("-"));
    let row = |course: &Value| {
        [
            course["id"].to_string(),
            shortened(&text(course, "title"), TITLE),
            text(course, "type"),
            course["status"].as_str().map_or_else(|| "-".to_owned(), visible),
            text(course, "url"),
        ]
    };
    if results.is_empty() {
        return None;
    }
    let found = table(["id", "course", "type", "status", "url"], &results.iter().map(row).collect::<Vec<_>>());
    let count = output["count"].as_u64().unwrap_or_default();
    let more = count.saturating_sub(results.len() as u64);
    Some(if more > 0 { format!("{found}\n… and {more} more") } else { found })
}

/// Removes characters that a terminal would act on.
fn visible(text: &str) -> String {
    text.chars().filter(|character| !character.is_control() || matches!(character, '\n' | '\t')).collect()
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.split_at(end).0),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn courses_are_a_table_with_what_is_behind_it() {
        let course = json!({"id": 7, "title": "Lead\u{1b}[31m", "type": "Course", "status": null, "url": null});
        let output = json!({"count": 3, "next": null, "previous": null, "results": [course]});
        let expected = "id  course    type    status  url\n7   Lead[31m  Course  -       -\n… and 2 more";
        assert_eq!(courses(&output).as_deref(), Some(expected));
        assert_eq!(courses(&json!({"count": 0, "results": []})), None);
        assert_eq!(courses(&json!({"course": {"id": 7}})), None);
    }

    #[test]
    fn nothing_that_a_terminal_acts_on_comes_through() {
        assert_eq!(visible("a\u{1b}]0;x\u{7}b\r\nc\td\u{9b}e"), "a]0;xb\nc\tde");
    }
}
