use amalgam_core::{ComparisonOperator, Condition, Rights, TenantState};
use amalgam_protocol::Raw;
use serde_json::{Value, json};

use super::*;
use crate::{
    Schema,
    knowledge::library::{Library, piece},
};

#[expect(clippy::disallowed_methods, reason = "the test is the authentication")]
fn scope() -> Scope {
    Scope::authenticated(1, "ana", TenantState::Stored, Rights::USE)
}

fn search(collections: &[&str]) -> FileSearchRequest {
    FileSearchRequest {
        path: "tools[2]".to_owned(),
        collections: collections.iter().map(|name| (*name).to_owned()).collect(),
        conditions: Vec::new(),
        limit: 3,
        least_score: 0.0,
        results: false,
    }
}

fn library() -> Library {
    Library::with(vec![
        (1, piece("1", "docs", "b.md", "timeout", 1.0)),
        (1, piece("2", "docs", "a.md", "timeout of a retry", 3.0)),
        (1, piece("3", "docs", "a.md", "retry", 1.0)),
        (1, piece("4", "code", "src/x.rs", "retry", 9.0)),
        (1, piece("5", "docs", "c.md", "timeout", 0.25)),
        (2, piece("6", "secret", "plans.md", "timeout", 9.0)),
    ])
}

async fn tool(library: Library, asked: FileSearchRequest) -> Result<ServerTool, Fault> {
    match equip(&library.ports(), &scope(), asked).await? {
        ResolvedTool::Server(tool) => Ok(*tool),
        other => panic!("{other:?}"),
    }
}

async fn found(library: Library, asked: FileSearchRequest, arguments: &str) -> Result<Value, ToolError> {
    let tool = tool(library, asked).await.unwrap();
    let arguments = Raw::parse(arguments.as_bytes()).unwrap();
    tool.check.check(arguments).unwrap();
    let call = ToolCall { scope: &scope(), call_id: "call_1", key: "k", arguments, trace: None };
    Ok(serde_json::from_slice(tool.handler.run(call).await?.output.bytes()).unwrap())
}

fn ids(found: &Value) -> Vec<&str> {
    found.as_array().unwrap().iter().map(|result| result["attributes"]["marker"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn what_is_found_is_told_as_the_published_results() {
    let results = found(library(), search(&["code"]), r#"{"queries": ["retry"]}"#).await.unwrap();
    let file_id = &results[0]["file_id"];
    assert!(file_id.as_str().unwrap().starts_with("kb_"), "{file_id}");
    let expected = json!([{
        "file_id": file_id, "filename": "src/x.rs", "score": 0.9,
        "attributes": {"marker": "[kb:4]", "collection": "code", "lines": "3-9", "language": "rust", "repo": "amalgam"},
        "text": "retry",
    }]);
    assert_eq!(results, expected);
}

#[tokio::test]
async fn several_queries_find_each_piece_once_and_the_best_first() {
    let results = found(library(), search(&["docs"]), r#"{"queries": ["timeout", "retry"]}"#).await.unwrap();
    assert_eq!(ids(&results), ["[kb:2]", "[kb:3]", "[kb:1]"], "of equal ones the first path, and no more than three");
    let one = found(library(), search(&["docs"]), r#"{"query": "retry"}"#).await.unwrap();
    assert_eq!(ids(&one), ["[kb:2]", "[kb:3]"]);
}

#[tokio::test]
async fn conditions_and_the_least_score_bound_what_is_found() {
    let asked = FileSearchRequest { least_score: 0.5, ..search(&["docs"]) };
    let results = found(library(), asked, r#"{"queries": ["timeout"]}"#).await.unwrap();
    assert_eq!(ids(&results), ["[kb:2]", "[kb:1]"], "0.25 counts as 0.2");
    let conditions =
        vec![Condition { key: "path".into(), operator: ComparisonOperator::Differs, values: vec!["a.md".into()] }];
    let asked = FileSearchRequest { conditions, ..search(&["docs"]) };
    let results = found(library(), asked, r#"{"queries": ["timeout"]}"#).await.unwrap();
    assert_eq!(ids(&results), ["[kb:1]", "[kb:5]"]);
}

#[tokio::test]
async fn a_collection_that_is_not_there_is_refused_by_its_name() {
    // S10: another tenant's looks like one that is not there.
    for name in ["secret", "nowhere"] {
        let fault = tool(library(), search(&["docs", name])).await.unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("tools[2].vector_store_ids"));
        assert!(fault.message.contains(name), "{fault}");
    }
}

#[tokio::test]
async fn the_model_is_told_how_to_search_and_how_to_cite() {
    let tool = tool(library(), FileSearchRequest { results: true, ..search(&["docs"]) }).await.unwrap();
    assert_eq!((tool.name.as_str(), tool.shown), ("file_search", CallDisplay::FileSearch { results: true }));
    assert!(tool.policy.idempotent && tool.policy.requires_approval.is_none());
    assert!(tool.policy.after_call_instruction.as_deref().unwrap().contains("[kb:12]"));
    Schema::compile(tool.parameters.raw()).unwrap();
    let check = |text: &str| tool.check.check(Raw::parse(text.as_bytes()).unwrap()).is_ok();
    for good in [r#"{"queries": ["a"]}"#, r#"{"query": "a"}"#, r#"{"queries": "a"}"#] {
        assert!(check(good), "{good}");
    }
    let (many, long) = (json!({"queries": vec!["a"; 6]}).to_string(), json!({"query": "a".repeat(5000)}).to_string());
    for bad in ["{}", r#"{"queries": []}"#, r#"{"queries": ["a", " "]}"#, r#"{"query": 5}"#, &many, &long] {
        assert!(!check(bad), "{bad}");
    }
}

#[tokio::test]
async fn a_search_that_fails_is_told_to_the_log_and_not_to_the_model() {
    let error = found(Library { broken: true, ..library() }, search(&["docs"]), r#"{"query": "x"}"#).await.unwrap_err();
    assert_eq!(error, ToolError::Broken { detail: "no route to 10.0.0.7".to_owned() });
}

#[test]
fn scores_are_published_between_nothing_and_one() {
    for (score, shown) in [(0.0, 0.0), (1.0, 0.5), (-3.0, 0.0), (f64::NAN, 0.0), (f64::INFINITY, 0.0)] {
        assert_eq!(shown_score(score), shown);
    }
    assert!(shown_score(40.0) < 1.0 && shown_score(40.0) > shown_score(39.0));
}
