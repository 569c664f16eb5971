//! The tables of the guide for IDE clients agree with the published API. Its commands are run by `tests/clients`.

use serde_json::Value;

use crate::support::document;

const GUIDE: &str = "docs/execute.md";

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
