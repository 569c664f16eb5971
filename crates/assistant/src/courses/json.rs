//! Courses as JSON. Each element is parsed separately, so that an invalid one does not hide the others.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Row, RowFault, row::Fields};

/// The rows of a text.
pub(super) fn rows(text: &str) -> Result<impl Iterator<Item = Row>, RowFault> {
    #[derive(Deserialize)]
    struct Wrapped<'a> {
        #[serde(borrow)]
        courses: Vec<&'a RawValue>,
    }
    let refuse = |error: serde_json::Error| RowFault { line: error.line().max(1), reason: plain(&error) };
    let elements: Vec<&RawValue> = match text.trim_start().starts_with('{') {
        true => serde_json::from_str::<Wrapped<'_>>(text).map_err(refuse)?.courses,
        false => serde_json::from_str(text).map_err(refuse)?,
    };
    let mut lines = Lines { text, at: 0, line: 1 };
    Ok(elements.into_iter().map(move |element| (lines.of(element.get()), fields(element.get()))))
}

fn fields(element: &str) -> Result<Fields, String> {
    if !element.starts_with('{') {
        return Err("a row has to be an object".to_owned());
    }
    serde_json::from_str(element).map_err(|error| plain(&error))
}

/// The error message without its position, which is relative to the element.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason).to_owned()
}

/// Counts lines in a text from front to back.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Lines<'_> {
    /// The first line of a part of the text; parts have to come in order.
    fn of(&mut self, part: &str) -> usize {
        let start = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let between = self.text.as_bytes().get(self.at..start).unwrap_or_default();
        self.line += between.iter().filter(|byte| **byte == b'\n').count();
        self.at = self.at.max(start);
        self.line
    }
}
