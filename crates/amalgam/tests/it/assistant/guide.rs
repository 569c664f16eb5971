//! The guide for front ends is true: its requests are sent as they stand there, and answered as it says.

use std::fs;
use std::path::Path;

use amalgam_core::assistant::settings::{KEY_VARIABLE, Settings};
use amalgam_testkit::{Amalgam, Answer, Client, Setup};
use http::Method;
use serde_json::Value;

use crate::support::{BINARY, stores};

const KEY: &str = "am_guide-0123456789";

fn guide() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/assistant.md");
    fs::read_to_string(path).expect("the guide is there")
}

/// A block of code with its language, and the text between the block before it and this one.
struct Block {
    before: String,
    language: String,
    code: String,
}

fn blocks(guide: &str) -> Vec<Block> {
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
async fn curl(client: &Client, command: &str) -> Answer {
    let words = words(command);
    assert_eq!(words[0], "curl", "{command}");
    let mut headers: Vec<(String, String)> = Vec::new();
    let (mut path, mut body) = (String::new(), None);
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
            url => path = url.strip_prefix("http://127.0.0.1:8080").expect("nothing else is asked").to_owned(),
        }
    }
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let method = if body.is_some() { Method::POST } else { Method::GET };
    client.request(method, &path, &headers, body.unwrap_or_default().into()).await
}

/// Fails unless two values have the same fields, of the same kinds. What is null once may be something else.
fn assert_alike(told: &Value, found: &Value, place: &str) {
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

/// The names of the events of a stream, repetitions left out.
fn event_names(stream: &str) -> Vec<&str> {
    let mut names: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    names.dedup();
    names
}

/// The number of the last event that comes before the model's own words.
fn before_the_words(stream: &str) -> u64 {
    let words = stream.find("event: message.delta").unwrap_or_default();
    let ids = stream.split_at(words).0.lines().filter_map(|line| line.strip_prefix("id: "));
    ids.filter_map(|id| id.parse().ok()).next_back().unwrap_or_default()
}

#[tokio::test]
async fn the_requests_of_the_guide_are_answered_as_it_says() {
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().env("AMALGAM_BOOTSTRAP_KEY", KEY))).await;
        let client = Client::new(amalgam.url());
        let (mut sent, mut compared) = (0, 0);
        let mut last: Option<Answer> = None;
        let (mut session, mut response, mut place) = (String::new(), String::new(), 0);
        for block in blocks(&guide()) {
            match block.language.as_str() {
                "bash" if block.code.starts_with("curl") => {
                    let command = block.code.replace("$AMALGAM_KEY", KEY).replace("$SESSION_ID", &session);
                    let command = command.replace("$RESPONSE_ID", &response);
                    let answer =
                        curl(&client, &command.replace("starting_after=7", &format!("starting_after={place}"))).await;
                    assert!(answer.status.as_u16() < 500, "{}: {command}: {}", store.name, answer.text());
                    if let Some(id) = answer.header("amalgam-response-id") {
                        response = id.to_owned();
                        place = before_the_words(&answer.text());
                    }
                    if answer.status == 200 && block.code.contains("/sessions/?") {
                        session = answer.json()["results"][0]["id"].to_string();
                    }
                    sent += 1;
                    last = Some(answer);
                }
                "json" => {
                    let answer = last.take().expect("a request comes before its answer");
                    let status = answer.status.as_str().to_owned();
                    assert!(
                        block.before.contains(&format!("Answer, `{status}`:")),
                        "{}: {}",
                        block.before,
                        answer.text()
                    );
                    let told: Value = serde_json::from_str(&block.code).expect("the guide has JSON");
                    assert_alike(&told, &answer.json(), "body");
                    if !answer.status.is_success() {
                        assert_eq!(told, answer.json());
                    }
                    compared += 1;
                }
                "text" => {
                    let answer = last.take().expect("a request comes before its answer");
                    assert_eq!(event_names(&block.code), event_names(&answer.text()), "{}", answer.text());
                    compared += 1;
                }
                _ => {}
            }
        }
        assert_eq!((sent, compared), (10, 9), "every request is tried, every answer is compared");
    }
}

#[test]
fn the_table_of_variables_has_every_setting_with_its_default() {
    // RNCC-40
    let guide = guide();
    let rows = guide.lines().filter(|line| line.starts_with("| `AI_AGENT_") || line.starts_with("| `OPENAI_"));
    let told: Vec<(String, String)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            assert_eq!(cells.len(), 3, "{row}");
            let plain = |cell: &str| cell.trim_matches(['|', ' ', '`']).to_owned();
            (plain(cells[0]), plain(cells[1]))
        })
        .collect();
    let shown: Value = serde_json::from_slice(Settings::defaults().shown().bytes()).expect("settings are JSON");
    let default = |key: &str| match &shown[key] {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let settings = Settings::KEYS.iter().map(|(key, variable)| ((*variable).to_owned(), default(key)));
    let expected: Vec<(String, String)> =
        [(KEY_VARIABLE.to_owned(), "none".to_owned())].into_iter().chain(settings).collect();
    assert_eq!(sorted(told), sorted(expected));
}

fn sorted(mut rows: Vec<(String, String)>) -> Vec<(String, String)> {
    rows.sort_unstable();
    rows
}
