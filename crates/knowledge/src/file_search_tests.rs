use serde_json::{Value, json};

use super::*;

fn asked_for(tool: &Value) -> Result<Option<FileSearchRequest>, String> {
    let text = tool.to_string();
    file_search_request(Raw::parse(text.as_bytes()).unwrap(), "tools[0]".to_owned(), false)
        .map_err(|error| format!("{}: {error}", error.path))
}

/// The conditions in short.
fn filtered(filters: &Value) -> Result<Vec<String>, String> {
    let tool = json!({"type": "file_search", "vector_store_ids": ["docs"], "filters": filters});
    let conditions = asked_for(&tool)?.unwrap().conditions;
    Ok(conditions.iter().map(|one| format!("{} {} {}", one.key, one.operator.name(), one.values.join("|"))).collect())
}

#[test]
fn a_search_says_where_it_looks_and_how_much_it_wants() {
    let search = asked_for(&json!({"type": "file_search", "vector_store_ids": ["docs", "code"]})).unwrap().unwrap();
    assert_eq!(search.collections, ["docs", "code"]);
    assert_eq!((search.limit, search.least_score, search.results), (10, 0.0, false));
    let tool = json!({"vector_store_ids": ["docs"], "max_num_results": 50, "filters": null,
                      "ranking_options": {"ranker": "auto", "score_threshold": 0.5}});
    let search = asked_for(&tool).unwrap().unwrap();
    assert_eq!((search.limit, search.least_score, search.conditions), (50, 0.5, Vec::new()));
}

#[test]
fn stores_of_an_upstream_are_left_to_it() {
    for ids in [json!(["vs_1"]), json!(["vs_1", "vs_2"]), json!([])] {
        assert_eq!(asked_for(&json!({"vector_store_ids": ids})), Ok(None), "{ids}");
    }
    let both = asked_for(&json!({"vector_store_ids": ["docs", "vs_1"]})).unwrap_err();
    assert!(both.starts_with("vector_store_ids: "), "{both}");
}

#[test]
fn filters_become_conditions_that_all_hold() {
    for (filters, expected) in [
        (json!({"type": "eq", "key": "language", "value": "rust"}), vec!["language == rust"]),
        (json!({"type": "ne", "key": "draft", "value": true}), vec!["draft != true"]),
        (json!({"type": "in", "key": "year", "value": [2025, "2026"]}), vec!["year == 2025|2026"]),
        (json!({"type": "nin", "key": "repo", "value": ["a", "b"]}), vec!["repo != a|b"]),
        (
            json!({"type": "and", "filters": [
                {"type": "eq", "key": "a", "value": "1"},
                {"type": "and", "filters": [{"type": "ne", "key": "b", "value": "2"}]},
            ]}),
            vec!["a == 1", "b != 2"],
        ),
        (
            json!({"type": "or", "filters": [
                {"type": "eq", "key": "a", "value": "1"},
                {"type": "in", "key": "a", "value": ["2", "3"]},
            ]}),
            vec!["a == 1|2|3"],
        ),
    ] {
        let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(filtered(&filters), Ok(expected), "{filters}");
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused_where_it_stands() {
    let eq = |key: &str| json!({"type": "eq", "key": key, "value": "1"});
    for (filters, at) in [
        (json!({"type": "gt", "key": "year", "value": 2025}), "filters.type: "),
        (json!({"type": "like", "key": "year", "value": 2025}), "filters.type: "),
        (json!({"type": "eq", "value": 1}), "filters.key: "),
        (json!({"type": "eq", "key": "a"}), "filters.value: "),
        (json!({"type": "eq", "key": "a", "value": null}), "filters.value: "),
        (json!({"type": "in", "key": "a", "value": "1"}), "filters.value: "),
        (json!({"type": "in", "key": "a", "value": []}), "filters.value: "),
        (json!({"type": "in", "key": "a", "value": ["1", {}]}), "filters.value[1]: "),
        (json!({"type": "or", "filters": [eq("a"), eq("b")]}), "filters.type: "),
        (json!({"type": "or", "filters": [{"type": "ne", "key": "a", "value": "1"}]}), "filters.type: "),
        (json!({"type": "or", "filters": []}), "filters.filters: "),
        (json!({"type": "and"}), "filters.filters: "),
        (
            json!({"type": "and", "filters": [eq("a"), {"type": "lte", "key": "b", "value": 1}]}),
            "filters.filters[1].type: ",
        ),
        (json!([]), "filters: "),
        (json!({"type": "and", "filters": vec![eq("a"); 33]}), "filters"),
    ] {
        let fault = filtered(&filters).unwrap_err();
        assert!(fault.starts_with(at), "{filters}: {fault}");
    }
    let mut deep = eq("a");
    for _ in 0..9 {
        deep = json!({"type": "and", "filters": [deep]});
    }
    assert!(filtered(&deep).unwrap_err().contains("deeper"));
    for (name, value) in [
        ("max_num_results", json!(0)),
        ("max_num_results", json!(51)),
        ("vector_store_ids", json!("docs")),
        ("ranking_options", json!({"score_threshold": 2})),
    ] {
        let mut tool = json!({"vector_store_ids": ["docs"]});
        tool[name] = value;
        let fault = asked_for(&tool).unwrap_err();
        assert!(fault.starts_with(name), "{fault}");
    }
}
