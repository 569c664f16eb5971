//! The one place that writes to standard output and standard error outside the log.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use serde::Serialize;

/// Writes the output of a command.
pub(crate) fn print_stdout(text: impl Display) -> io::Result<()> {
    quietly_closed(writeln!(io::stdout().lock(), "{text}"))
}

/// Writes a part of a line and flushes it.
pub(crate) fn print_part(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    quietly_closed(write!(stdout, "{text}").and_then(|()| stdout.flush()))
}

/// Writes data for other programs.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    print_stdout(serde_json::to_string_pretty(value)?)
}

/// Writes JSON, one value per line, with its fields in order.
pub(crate) fn print_json_text(json: &str) -> io::Result<()> {
    print_stdout(indented(json))
}

/// Writes an object of the API, with its fields in order.
pub(crate) fn print_object(object: &impl Serialize) -> io::Result<()> {
    print_json_text(&serde_json::to_string(object)?)
}

/// Writes objects of the API as a list.
pub(crate) fn print_list<T: Serialize>(data: &[T]) -> io::Result<()> {
    #[derive(Serialize)]
    struct All<'a, T> {
        object: &'static str,
        data: &'a [T],
    }
    print_object(&All { object: "list", data })
}

/// Indents JSON; changes only the white space between values.
fn indented(json: &str) -> String {
    let mut output = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let mut rest = json.chars().peekable();
    while let Some(character) = rest.next() {
        if in_text {
            output.push(character);
            in_text = escaped || character != '"';
            escaped = !escaped && character == '\\';
            continue;
        }
        let line = |output: &mut String, depth: usize| {
            output.push('\n');
            output.extend(std::iter::repeat_n("  ", depth));
        };
        match character {
            '"' => {
                output.push(character);
                in_text = true;
            }
            '{' | '[' => {
                output.push(character);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                match rest.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => output.push(end),
                    None => {
                        depth += 1;
                        line(&mut output, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut output, depth);
                output.push(character);
            }
            ',' => {
                output.push(character);
                line(&mut output, depth);
            }
            ':' => output.push_str(": "),
            space if space.is_ascii_whitespace() => {}
            other => output.push(other),
        }
    }
    output
}

/// Writes a line to standard error. A failure to write is ignored.
pub(crate) fn print_stderr(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A closed pipe (`amalgam check | head`) is not a failure.
fn quietly_closed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_told_with_its_fields_in_their_order_and_its_texts_untouched() {
        let json = r#"{"b": [1,{"t":"a, {b}: \"c\" \\"}] ,"a":{ },"n":[], "z":null}"#;
        let output = indented(json);
        let expected = "{\n  \"b\": [\n    1,\n    {\n      \"t\": \"a, {b}: \\\"c\\\" \\\\\"\n    }\n  ],\n  \"a\": {},\n  \"n\": [],\n  \"z\": null\n}";
        assert_eq!(output, expected);
        let values: [serde_json::Value; 2] = [json, &output].map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(values[0], values[1]);
    }
}
