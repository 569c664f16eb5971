//! The guide for front ends is true: its requests are sent as they stand there, and answered as it says.

use amalgam_core::assistant::settings::{AgentSettings, KEY_VARIABLE};
use amalgam_testkit::{Amalgam, Client, HttpAnswer, Setup};
use serde_json::Value;

use crate::support::{BINARY, assert_alike, blocks, curl, document, stores};

const KEY: &str = "am_guide-0123456789";
const GUIDE: &str = "docs/assistant.md";

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
        let mut last: Option<HttpAnswer> = None;
        let (mut session, mut response, mut place) = (String::new(), String::new(), 0);
        for block in blocks(&document(GUIDE)) {
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
    let guide = document(GUIDE);
    let rows = guide.lines().filter(|line| line.starts_with("| `AI_AGENT_") || line.starts_with("| `OPENAI_"));
    let told: Vec<(String, String)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            assert_eq!(cells.len(), 3, "{row}");
            let plain = |cell: &str| cell.trim_matches(['|', ' ', '`']).to_owned();
            (plain(cells[0]), plain(cells[1]))
        })
        .collect();
    let shown: Value = serde_json::from_slice(AgentSettings::defaults().shown().bytes()).expect("settings are JSON");
    let default = |key: &str| match &shown[key] {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let settings = AgentSettings::KEYS.iter().map(|(key, variable)| ((*variable).to_owned(), default(key)));
    let expected: Vec<(String, String)> =
        [(KEY_VARIABLE.to_owned(), "none".to_owned())].into_iter().chain(settings).collect();
    assert_eq!(sorted(told), sorted(expected));
}

fn sorted(mut rows: Vec<(String, String)>) -> Vec<(String, String)> {
    rows.sort_unstable();
    rows
}
