use amalgam_core::{Rights, Scope, TenantState};
use serde_json::{Value, json};

use super::*;
use crate::knowledge::library::{Library, piece};

#[expect(clippy::disallowed_methods, reason = "the test is the authentication")]
async fn run(library: Library, arguments: &str) -> Result<Value, ToolError> {
    let tool = builtin(&library.ports());
    let scope = Scope::authenticated(1, "ana", TenantState::Stored, Rights::USE);
    let arguments = Raw::parse(arguments.as_bytes()).unwrap();
    let output = tool.run.run(ToolCall { scope: &scope, call_id: "call_1", key: "k", arguments, trace: None }).await?;
    Ok(serde_json::from_slice(output.output.bytes()).unwrap())
}

fn library() -> Library {
    let mut pieces: Vec<(i64, FoundChunk)> =
        (0..30).map(|n| (1, piece(&format!("d{n}"), "docs", "guide.md", "timeout again", 0.1))).collect();
    pieces.push((1, piece("7", "code", "src/retry.rs", "fn retry(timeout: u64)", 4.5)));
    pieces.push((2, piece("8", "secret", "plans.md", "timeout of others", 9.0)));
    Library::with(pieces)
}

#[tokio::test]
async fn what_is_found_is_told_with_where_it_stands() {
    let found = run(library(), r#"{"query": "retry"}"#).await.unwrap();
    let expected = json!({"results": [{
        "id": "7", "collection": "code", "path": "src/retry.rs", "lines": "3-9", "language": "rust",
        "content": "fn retry(timeout: u64)", "score": 4.5,
    }]});
    assert_eq!(found, expected);
    assert_eq!(run(library(), r#"{"query": "nothing"}"#).await.unwrap(), json!({"results": []}));
}

#[tokio::test]
async fn collections_and_limit_bound_what_is_found_and_other_tenants_are_not_there() {
    for (arguments, count, first) in [
        (r#"{"query": "timeout"}"#, 8, "7"),
        (r#"{"query": "timeout", "collections": null, "limit": null}"#, 8, "7"),
        (r#"{"query": "timeout", "limit": 2}"#, 2, "7"),
        (r#"{"query": "timeout", "limit": 500}"#, 20, "7"),
        (r#"{"query": "timeout", "collections": ["docs"], "limit": 3}"#, 3, "d0"),
        (r#"{"query": "timeout", "collections": ["docs", "code"]}"#, 8, "7"),
    ] {
        let found = run(library(), arguments).await.unwrap();
        let results = found["results"].as_array().unwrap();
        assert_eq!((results.len(), &results[0]["id"]), (count, &json!(first)), "{arguments}");
    }
}

#[tokio::test]
async fn a_collection_that_is_not_there_is_refused_with_those_that_are() {
    // S10: another tenant's collection looks like one that is not there.
    for name in ["secret", "nowhere"] {
        let arguments = format!(r#"{{"query": "timeout", "collections": ["code", "{name}"]}}"#);
        let words = format!("There is no collection `{name}`. There are: code, docs.");
        assert_eq!(run(library(), &arguments).await, Err(ToolError::Refused(words)));
    }
    let empty = run(Library::default(), r#"{"query": "x", "collections": ["code"]}"#).await;
    assert!(matches!(empty, Err(ToolError::Refused(words)) if words.starts_with("Nothing was imported")));
}

#[tokio::test]
async fn a_search_that_fails_is_told_to_the_log_and_not_to_the_model() {
    let error = run(Library { broken: true, ..library() }, r#"{"query": "timeout"}"#).await.unwrap_err();
    assert_eq!(error, ToolError::Broken { detail: "no route to 10.0.0.7".to_owned() });
    assert_eq!(error.to_string(), "the tool could not be run");
}
