use serde_json::{Value, json};

use super::*;

fn value(write: impl FnOnce(&mut Writer)) -> Value {
    let mut writer = Writer::default();
    write(&mut writer);
    serde_json::from_slice(writer.bytes()).unwrap()
}

fn chunk() -> FoundChunk {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    FoundChunk {
        id: "7".to_owned(),
        collection: "code".to_owned(),
        path: "src/retry.rs".to_owned(),
        language: "rust".to_owned(),
        attributes: vec![pair("source", "amalgam"), pair("repo", "r"), pair("lines", "its own")],
        symbol: Some("retry".to_owned()),
        start_line: 3,
        end_line: 9,
        content: "fn retry()".to_owned(),
        score: 4.5,
        ranking: crate::store::ChunkRanking::default(),
        embedding: None,
    }
}

#[test]
fn a_result_has_the_published_fields_and_a_marker() {
    let file_id = file_id(&chunk());
    assert!(file_id.len() == 27 && file_id.starts_with("kb_"), "{file_id}");
    let expected = json!({
        "file_id": file_id, "filename": "src/retry.rs", "score": 0.75,
        "attributes": {"marker": "[kb:7]", "collection": "code", "lines": "3-9", "language": "rust", "symbol": "retry",
                       "repo": "r"},
        "text": "fn retry()",
    });
    assert_eq!(value(|writer| write_result(writer, &chunk(), 0.75)), expected);
    let output = json!([expected, {"file_id": "x"}, 5]).to_string();
    let source = CitationSource { id: "7".to_owned(), file_id, filename: "src/retry.rs".to_owned() };
    assert_eq!(CitationSource::all(Raw::parse(output.as_bytes()).unwrap()), [source]);
    assert_eq!(CitationSource::all(Raw::EMPTY_OBJECT), []);
}

#[test]
fn a_document_has_one_id_wherever_in_it_a_piece_is() {
    let other = FoundChunk { id: "8".to_owned(), start_line: 90, symbol: None, ..chunk() };
    assert_eq!(file_id(&other), file_id(&chunk()));
    let elsewhere = FoundChunk { attributes: Vec::new(), ..chunk() };
    let moved = FoundChunk { path: "retry.rs".to_owned(), ..chunk() };
    let ids: std::collections::HashSet<String> = [chunk(), elsewhere, moved].iter().map(file_id).collect();
    assert_eq!(ids.len(), 3);
}

#[test]
fn queries_are_read_in_either_form() {
    for (arguments, expected) in [
        (r#"{"queries": ["a", "b"]}"#, vec!["a", "b"]),
        (r#"{"queries": "a"}"#, vec!["a"]),
        (r#"{"query": "a"}"#, vec!["a"]),
        (r#"{"queries": null, "query": "a"}"#, vec!["a"]),
        (r#"{"queries": [1, "a"]}"#, vec!["a"]),
        ("{}", vec![]),
        ("[]", vec![]),
    ] {
        assert_eq!(queries(Raw::parse(arguments.as_bytes()).unwrap()), expected, "{arguments}");
    }
}

#[test]
fn a_marker_is_whole_begun_or_none() {
    for begun in ["[", "[k", "[kb", "[kb:", "[kb:7", "[kb:a_B-9"] {
        assert_eq!(CitationMarker::at(begun), CitationMarker::Partial, "{begun}");
    }
    for other in ["[x", "[kb]", "[kb:]", "[kb:7 ]", "[kb:ü]", "[KB:7]", &format!("[kb:{}", "7".repeat(65))] {
        assert_eq!(CitationMarker::at(other), CitationMarker::No, "{other}");
    }
    assert_eq!(CitationMarker::at("[kb:7] and"), CitationMarker::Whole("7", 6));
}

#[test]
fn what_is_kept_leaves_only_as_results_and_only_if_they_are_wanted() {
    let found = json!([{"file_id": "a"}]);
    let item =
        json!({"type": "file_search_call", "id": "fs_1", "queries": ["q"], "results": null, "kept_output": found});
    let shown = json!({"type": "file_search_call", "id": "fs_1", "queries": ["q"], "results": null});
    let again = |item: &Value, results| -> Value {
        let kept = Json::parse(&item.to_string().into()).unwrap();
        serde_json::from_slice(super::shown(kept, results).bytes()).unwrap()
    };
    assert_eq!(again(&item, Results::Hidden), shown);
    assert_eq!(again(&item, Results::Shown)["results"], found);
    assert_eq!(again(&item, Results::Shown).get("kept_output"), None);
    assert_eq!(again(&shown, Results::Shown), shown);
    let failed = json!({"results": null, "kept_output": {"error": "no"}});
    assert_eq!(again(&failed, Results::Shown), json!({"results": null}));
    assert_eq!(value(|writer| crate::write_item(writer, Raw::parse(item.to_string().as_bytes()).unwrap())), shown);
}
