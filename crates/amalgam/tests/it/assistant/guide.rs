//! The tables of the guide for front ends agree with the code. Its commands are run by `tests/clients`.

use amalgam_assistant::settings::{AgentSettings, KEY_VARIABLE};
use serde_json::Value;

use crate::support::document;

const GUIDE: &str = "docs/assistant.md";

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
