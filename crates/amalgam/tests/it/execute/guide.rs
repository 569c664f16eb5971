//! The guide for IDE clients is true: its requests are sent as they stand there, and answered as it says.

use amalgam_testkit::{Amalgam, Client, HttpAnswer, Setup};
use serde_json::Value;

use crate::support::{BINARY, assert_alike, blocks, curl, document, stores};

const KEY: &str = "am_guide-0123456789";
const GUIDE: &str = "docs/execute.md";

#[tokio::test]
async fn the_requests_of_the_guide_are_answered_as_it_says() {
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().env("AMALGAM_BOOTSTRAP_KEY", KEY))).await;
        let client = Client::new(amalgam.url());
        let (mut sent, mut compared) = (0, 0);
        let (mut session, mut call) = (String::new(), String::new());
        let mut last: Option<HttpAnswer> = None;
        for block in blocks(&document(GUIDE)) {
            match block.language.as_str() {
                "bash" => {
                    let command = block.code.replace("$AMALGAM_KEY", KEY).replace("$SESSION_ID", &session);
                    let answer = curl(&client, &command.replace("$CALL_ID", &call)).await;
                    assert!(answer.status.as_u16() < 500, "{}: {command}: {}", store.name, answer.text());
                    let id = |value: &Value| value.as_str().map(str::to_owned);
                    let told = answer.json();
                    session = id(&told["SessionId"]).unwrap_or(session);
                    call = id(&told["ToolCalls"][0]["CallId"]).unwrap_or(call);
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
                    let found = answer.json();
                    assert_alike(&told, &found, "body");
                    for name in ["Kind", "Mode", "TurnId", "FinishReason", "ErrorCode"] {
                        assert_eq!(told.get(name), found.get(name), "{name} of {found}");
                    }
                    compared += 1;
                }
                _ => {}
            }
        }
        assert_eq!((sent, compared), (6, 4), "every request is tried, every answer is compared");
    }
}

/// The words in backquotes of the cells of a table's column.
fn codes(guide: &str, head: &str, column: usize) -> Vec<String> {
    let table = guide.split(head).nth(1).expect("the table is there").split("\n\n").next().unwrap_or_default();
    let cells = table.lines().filter_map(|row| row.split(" | ").nth(column));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn every_status_that_the_door_is_published_with_is_explained() {
    let guide = document(GUIDE);
    let told = codes(&guide, "| status | `ErrorCode` | when | what to do |", 0);
    let published: Value = serde_json::from_str(&document("docs/openapi.json")).expect("the document is JSON");
    let answers =
        published["paths"]["/api/agent/execute"]["post"]["responses"].as_object().expect("the door is published");
    for status in answers.keys().filter(|status| *status != "default") {
        assert!(
            told.iter().any(|row| row.trim_start_matches(['|', ' ']) == status),
            "{status} is not in the table: {told:?}"
        );
    }
}
