//! `search_knowledge`: the same as a tool of the bank.

use super::*;
use crate::support::{named, shown};

#[tokio::test]
async fn a_tool_of_the_bank_searches_what_was_imported() {
    for store in stores() {
        let library = Library::on(&store).await;
        library.cli.json(&["seed", "tools", "--tool", "search_knowledge"]);
        for (wire, delivery) in pairs() {
            let place = format!("{} {wire:?} {delivery:?}", store.name);
            let arguments = r#"{"collections":["docs"],"limit":2,"query":"retried"}"#;
            let scripts =
                [Script::new([Said::call("call_1", "search_knowledge", &[arguments])]), Script::text(&["Twice."])];
            let request = json!({"input": "How often?", "tools": [named("search_knowledge")]});
            let response = library.turn(wire, delivery, &scripts, &request).await;
            assert_eq!(
                shown(&response),
                [&format!("bank/search_knowledge({arguments}) completed"), "message"],
                "{place}"
            );
            let output = response["output"][0]["output"].as_str().expect("a call has an output");
            let found: Value = serde_json::from_str(output).expect("the output is JSON");
            let result = &found["results"][0];
            assert_eq!(
                [&result["collection"], &result["path"], &result["language"]],
                ["docs", "guide.md", "markdown"],
                "{place}: {found}"
            );
            let lines = result["lines"].as_str().unwrap_or_default();
            assert!(lines.contains('-') && result["score"].is_number() && result["id"].is_string(), "{place}: {found}");
            assert!(result["content"].as_str().unwrap_or_default().contains("retried twice"), "{place}: {found}");
        }
        // A collection of another tenant looks like one that is not there. S10
        let arguments = r#"{"query":"retried","collections":["secret"]}"#;
        let scripts = [Script::new([Said::call("call_1", "search_knowledge", &[arguments])]), Script::text(&["No."])];
        let request = json!({"input": "?", "tools": [named("search_knowledge")]});
        let response = library.turn(Wire::Chat, Delivery::Whole, &scripts, &request).await;
        let output = response["output"][0]["output"].as_str().expect("a call has an output");
        assert!(output.contains("There is no collection `secret`. There are: code, docs."), "{output}");
    }
}
