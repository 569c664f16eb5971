//! The one place that writes to standard output and standard error outside of the log.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use amalgam_protocol::{Json, Writer};
use serde::Serialize;

/// Writes what a command was asked for.
pub(crate) fn say(text: impl Display) -> io::Result<()> {
    quietly_closed(writeln!(io::stdout().lock(), "{text}"))
}

/// Writes a part of a line, which is to be seen at once.
pub(crate) fn say_part(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    quietly_closed(write!(stdout, "{text}").and_then(|()| stdout.flush()))
}

/// Writes data for other programs.
pub(crate) fn say_json(value: &impl Serialize) -> io::Result<()> {
    say(serde_json::to_string_pretty(value)?)
}

/// Writes data that is JSON already, one value a line and its fields in their order.
pub(crate) fn say_as_written(json: &str) -> io::Result<()> {
    say(indented(json))
}

/// Writes a list of what is JSON already, as the doors tell lists.
pub(crate) fn say_list(entries: impl Iterator<Item = Json>) -> io::Result<()> {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("object").string("list");
        writer.key("data").array(|writer| entries.for_each(|entry| writer.raw(entry.raw())));
    });
    say_as_written(Json::from_writer(writer).raw().text())
}

/// JSON with a line for each value. Nothing but the space between values changes.
fn indented(json: &str) -> String {
    let mut told = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let mut rest = json.chars().peekable();
    while let Some(character) = rest.next() {
        if in_text {
            told.push(character);
            in_text = escaped || character != '"';
            escaped = !escaped && character == '\\';
            continue;
        }
        let line = |told: &mut String, depth: usize| {
            told.push('\n');
            told.extend(std::iter::repeat_n("  ", depth));
        };
        match character {
            '"' => {
                told.push(character);
                in_text = true;
            }
            '{' | '[' => {
                told.push(character);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                match rest.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => told.push(end),
                    None => {
                        depth += 1;
                        line(&mut told, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut told, depth);
                told.push(character);
            }
            ',' => {
                told.push(character);
                line(&mut told, depth);
            }
            ':' => told.push_str(": "),
            space if space.is_ascii_whitespace() => {}
            other => told.push(other),
        }
    }
    told
}

/// Writes a line to standard error. A failure to write is ignored.
pub(crate) fn tell(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A reader that has seen enough (`amalgam check | head`) is no failure.
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
        let told = indented(json);
        let expected = "{\n  \"b\": [\n    1,\n    {\n      \"t\": \"a, {b}: \\\"c\\\" \\\\\"\n    }\n  ],\n  \"a\": {},\n  \"n\": [],\n  \"z\": null\n}";
        assert_eq!(told, expected);
        let values: [serde_json::Value; 2] = [json, &told].map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(values[0], values[1]);
    }
}
