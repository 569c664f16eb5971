//! Documents of this project as tests read them: their blocks of code, the commands in these, and answers like those they show.

#![expect(clippy::expect_used, reason = "the helpers of a test fail by panicking, as the test does")]

use std::{fs, path::Path};

use amalgam_testkit::{Client, HttpAnswer};
use http::Method;
use serde_json::Value;

/// A document, by its path in the project.
pub(crate) fn document(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(path).expect("the document is there")
}

/// A block of code with its language, and the text between the block before it and this one.
pub(crate) struct Block {
    pub(crate) before: String,
    pub(crate) language: String,
    pub(crate) code: String,
}

/// The blocks of a document, in order.
pub(crate) fn blocks(guide: &str) -> Vec<Block> {
    let mut parts = guide.split("\n```");
    let mut before = parts.next().unwrap_or_default().to_owned();
    let mut blocks = Vec::new();
    while let (Some(code), after) = (parts.next(), parts.next()) {
        let (language, code) = code.split_once('\n').expect("a block has lines");
        blocks.push(Block { before, language: language.to_owned(), code: code.to_owned() });
        before = after.unwrap_or_default().to_owned();
    }
    blocks
}

/// The words of a command line.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None | Some('"'), '\\') => word.extend(characters.next().filter(|next| *next != '\n')),
            (None, space) if space.is_whitespace() => {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()))
            }
            _ => word.push(character),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// What a command of the guide asks for.
pub(crate) async fn curl(client: &Client, command: &str) -> HttpAnswer {
    let words = words(command);
    assert_eq!(words[0], "curl", "{command}");
    let mut headers: Vec<(String, String)> = Vec::new();
    let (mut path, mut body, mut method) = (String::new(), None, None);
    let mut rest = words.into_iter().skip(1);
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-N" => {}
            "-H" => {
                let header = rest.next().expect("a header follows");
                let (name, value) = header.split_once(": ").expect("a header has a value");
                headers.push((name.to_owned(), value.to_owned()));
            }
            "-d" => body = rest.next(),
            "-X" => method = rest.next().and_then(|name| name.parse::<Method>().ok()),
            url => path = url.strip_prefix("http://127.0.0.1:8080").expect("nothing else is asked").to_owned(),
        }
    }
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let method = method.unwrap_or(if body.is_some() { Method::POST } else { Method::GET });
    client.request(method, &path, &headers, body.unwrap_or_default().into()).await
}

/// Fails unless two values have the same fields, of the same kinds. What is null once may be something else.
pub(crate) fn assert_alike(told: &Value, found: &Value, place: &str) {
    match (told, found) {
        (Value::Object(told), Value::Object(found)) => {
            let names = |fields: &serde_json::Map<String, Value>| fields.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(told), names(found), "{place}");
            told.iter().for_each(|(name, value)| assert_alike(value, &found[name], &format!("{place}.{name}")));
        }
        (Value::Array(told), Value::Array(found)) => {
            assert_eq!(told.is_empty(), found.is_empty(), "{place}");
            told.iter().zip(found).for_each(|(told, found)| assert_alike(told, found, &format!("{place}[]")));
        }
        (Value::Null, _) | (_, Value::Null) => {}
        _ => assert_eq!(std::mem::discriminant(told), std::mem::discriminant(found), "{place}: {told} and {found}"),
    }
}
