use std::collections::BTreeMap;

use amalgam_core::{CallMap, Toolset, normalise};
use amalgam_protocol::ResponseParameters;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// `get`, `get_time` and `time` are functions, `patch` is a custom tool, `shell` is the client's.
fn offered() -> CallMap {
    let text = json!({"tools": [
        {"type": "function", "name": "get"}, {"type": "function", "name": "get_time"}, {"type": "function", "name": "time"},
        {"type": "custom", "name": "patch"}, {"type": "shell"},
        {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f"}]}
    ]})
    .to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    Toolset::plain(&settings, &normalise(None, None)).unwrap().call_map()
}

type CallFields = (CallKind, Option<String>, String, String);

fn calls_of(events: Vec<ModelEvent>) -> Vec<CallFields> {
    let mut calls: BTreeMap<u64, (CallFields, bool)> = BTreeMap::new();
    for event in events {
        match event {
            ModelEvent::CallStart { key, call } => {
                let name = [call.namespace.map(|namespace| namespace + "/").unwrap_or_default(), call.name].concat();
                assert!(calls.insert(key, ((call.kind, call.call_id, name, String::new()), false)).is_none());
            }
            ModelEvent::CallDelta { key, delta } => {
                let (call, ended) = calls.get_mut(&key).expect("a call begins before its arguments");
                assert!(!*ended);
                call.3.push_str(&delta.decode());
            }
            ModelEvent::CallEnd { key } => assert!(!std::mem::replace(&mut calls.get_mut(&key).unwrap().1, true)),
            other => panic!("unexpected {other:?}"),
        }
    }
    assert!(calls.values().all(|(_, ended)| *ended));
    calls.into_values().map(|(call, _)| call).collect()
}

/// Each element is the `tool_calls` of one chunk.
fn read(chunks: &[Value]) -> Vec<CallFields> {
    let mut calls = Calls::new(offered());
    let mut events = Vec::new();
    for chunk in chunks {
        let bytes = Bytes::from(chunk.to_string());
        calls.fragments(Raw::parse(&bytes).unwrap(), &bytes, &mut events);
    }
    calls.conclude(false, &mut events);
    calls_of(events)
}

fn function(id: Option<&str>, name: &str, arguments: &str) -> CallFields {
    (CallKind::Function, id.map(str::to_owned), name.to_owned(), arguments.to_owned())
}

#[test]
fn a_call_comes_out_whatever_the_server_leaves_out_or_says_twice() {
    let one = function(Some("c1"), "get", "{\"a\":1}");
    let bare = function(None, "get", "{\"a\":1}");
    for (what, chunks, expected) in [
        (
            "whole at once",
            vec![json!([{"index": 0, "id": "c1", "function": {"name": "get", "arguments": "{\"a\":1}"}}])],
            one.clone(),
        ),
        (
            "an object of arguments",
            vec![json!([{"id": "c1", "function": {"name": "get", "arguments": {"a": 1}}}])],
            one.clone(),
        ),
        ("no id", vec![json!([{"index": 0, "function": {"name": "get", "arguments": "{\"a\":1}"}}])], bare.clone()),
        (
            "an empty id",
            vec![json!([{"index": 0, "id": "", "function": {"name": "get", "arguments": "{\"a\":1}"}}])],
            bare,
        ),
        ("no wrapping", vec![json!([{"id": "c1", "name": "get", "arguments": "{\"a\":1}"}])], one.clone()),
        (
            "id and name in each chunk",
            vec![
                json!([{"index": 0, "id": "c1", "function": {"name": "get", "arguments": ""}}]),
                json!([{"index": 0, "id": "c1", "function": {"name": "get", "arguments": "{\"a\""}}]),
                json!([{"index": 0, "id": "c1", "function": {"name": "get", "arguments": ":1}"}}]),
            ],
            one.clone(),
        ),
        (
            "another id in each chunk, no name",
            vec![
                json!([{"index": 0, "id": "c1", "function": {"name": "get", "arguments": ""}}]),
                json!([{"index": 0, "id": "c9", "function": {"arguments": "{\"a\":1}"}}]),
            ],
            one.clone(),
        ),
        (
            "neither index nor id after the first chunk",
            vec![
                json!([{"id": "c1", "function": {"name": "get"}}]),
                json!([{"function": {"arguments": "{\"a\""}}]),
                json!([{"function": {"name": "", "arguments": ":1}"}}]),
            ],
            one.clone(),
        ),
        (
            "a name in two pieces that are names themselves",
            vec![
                json!([{"index": 0, "id": "c1", "function": {"name": "get"}}]),
                json!([{"index": 0, "function": {"name": "_time", "arguments": "{\"a\":1}"}}]),
            ],
            function(Some("c1"), "get_time", "{\"a\":1}"),
        ),
        (
            "white space after the end",
            vec![
                json!([{"index": 0, "id": "c1", "function": {"name": "get", "arguments": "{\"a\":1}"}}]),
                json!([null, {"index": 0, "function": {"arguments": null}}]),
            ],
            one,
        ),
    ] {
        assert_eq!(read(&chunks), [expected], "{what}");
    }
}

#[test]
fn two_calls_stay_two_whatever_they_share() {
    let two = |first: Option<&str>, second: Option<&str>| {
        [function(first, "get", "{\"a\":1}"), function(second, "get", "{\"a\":2}")]
    };
    let call = |index: Option<u64>, id: Option<&str>, arguments: &str| {
        let mut call = json!({"function": {"name": "get", "arguments": arguments}});
        if let Some(index) = index {
            call["index"] = json!(index);
        }
        if let Some(id) = id {
            call["id"] = json!(id);
        }
        call
    };
    let (one, other) = ("{\"a\":1}", "{\"a\":2}");
    for (what, index, ids, expected) in [
        ("distinct", [Some(0), Some(1)], [Some("c1"), Some("c2")], two(Some("c1"), Some("c2"))),
        ("one index", [Some(0), Some(0)], [Some("c1"), Some("c2")], two(Some("c1"), Some("c2"))),
        ("one index, no ids", [Some(0), Some(0)], [None, None], two(None, None)),
        ("nothing", [None, None], [None, None], two(None, None)),
        ("ids alone", [None, None], [Some("c1"), Some("c2")], two(Some("c1"), Some("c2"))),
        ("one id, two indices", [Some(0), Some(1)], [Some("c1"), Some("c1")], two(Some("c1"), None)),
        ("one id alone", [None, None], [Some("c1"), Some("c1")], two(Some("c1"), None)),
    ] {
        let calls = [call(index[0], ids[0], one), call(index[1], ids[1], other)];
        assert_eq!(read(&[json!([calls[0]]), json!([calls[1]])]), expected, "{what}, in two chunks");
        assert_eq!(read(&[json!(calls)]), expected, "{what}, in one chunk");
    }
    assert_eq!(
        read(&[json!([{"function": {"name": "get"}}]), json!([{"function": {"name": "time"}}])]),
        [function(None, "get", "{}"), function(None, "time", "{}")],
        "names that make no longer one"
    );
}

#[test]
fn wrapped_tools_come_out_as_what_they_are() {
    let (head, tail) = "{\"input\":\"*** é\\n\"}".split_at(9);
    assert_eq!(
        read(&[
            json!([{"index": 0, "id": "c1", "function": {"name": "patch", "arguments": head}}]),
            json!([{"index": 0, "function": {"arguments": tail}}]),
            json!([{"index": 1, "id": "c2", "function": {"name": "shell", "arguments": "{\"commands\":[\"ls\"]}"}}]),
            json!([{"index": 2, "id": "c3", "function": {"name": "ns__f", "arguments": "{}"}}]),
        ]),
        [
            (CallKind::Custom, Some("c1".into()), "patch".into(), "*** é\n".into()),
            (
                CallKind::Client(amalgam_protocol::ClientTool::Shell),
                Some("c2".into()),
                "shell".into(),
                "{\"commands\":[\"ls\"]}".into()
            ),
            function(Some("c3"), "ns/f", "{}"),
        ]
    );
}

#[test]
fn a_custom_call_ends_when_the_next_call_begins() {
    let mut calls = Calls::new(offered());
    let mut events = Vec::new();
    let chunk = Bytes::from(
        json!([
            {"index": 0, "function": {"name": "patch", "arguments": "{\"input\":\"x\"}"}},
            {"index": 1, "function": {"name": "get", "arguments": "{"}}
        ])
        .to_string(),
    );
    calls.fragments(Raw::parse(&chunk).unwrap(), &chunk, &mut events);
    assert!(
        matches!(
            &events[..],
            [
                ModelEvent::CallStart { key: 0, .. },
                ModelEvent::CallDelta { key: 0, .. },
                ModelEvent::CallEnd { key: 0 },
                ModelEvent::CallStart { key: 1, .. },
                ModelEvent::CallDelta { key: 1, .. }
            ]
        ),
        "{events:?}"
    );
}

/// A call with its fragments: the head, then the arguments cut anywhere.
fn fragments() -> impl Strategy<Value = (String, String, Vec<String>)> {
    let name = prop::sample::select(vec!["get", "get_time", "patch", "ns__f", "unknown_one"]);
    let value = prop::collection::btree_map("[a-z]{1,4}", "[ -~é😀\\n]{0,12}", 0..4);
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..8);
    (name, value, cuts).prop_map(|(name, value, cuts)| {
        let arguments = json!(value).to_string();
        let characters: Vec<char> = arguments.chars().collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(characters.len() + 1)).collect();
        cuts.extend([0, characters.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| characters[cut[0]..cut[1]].iter().collect()).collect();
        (name.to_owned(), arguments, pieces)
    })
}

proptest! {
    #[test]
    fn any_cut_and_any_interleaving_by_index_gives_the_same_calls(
        calls in prop::collection::vec(fragments(), 1..5),
        order in prop::collection::vec(any::<prop::sample::Index>(), 64),
        split_name in any::<prop::sample::Index>(),
        grouped in any::<bool>(),
    ) {
        let map = offered();
        let expected: Vec<CallFields> = calls.iter().enumerate().map(|(index, (name, arguments, _))| {
            let target = map.target(name);
            let arguments = if target.kind == CallKind::Custom { unwrap_custom(arguments) } else { arguments.clone() };
            let name = [target.namespace.map(|namespace| namespace + "/").unwrap_or_default(), target.name].concat();
            (target.kind, Some(format!("c{index}")), name, arguments)
        }).collect();
        // Heads arrive in order, as every upstream sends them; the pieces after them arrive in any order.
        let mut waiting: Vec<Vec<Value>> = calls.iter().enumerate().map(|(index, (name, _, pieces))| {
            let (head, tail) = name.split_at(split_name.index(name.len() + 1));
            let mut fragments = vec![json!({"index": index, "id": format!("c{index}"), "function": {"name": head, "arguments": ""}})];
            fragments.push(json!({"index": index, "function": {"name": tail}}));
            fragments.extend(pieces.iter().map(|piece| json!({"index": index, "function": {"arguments": piece}})));
            fragments.reverse();
            fragments
        }).collect();
        let mut list: Vec<Value> = waiting.iter_mut().filter_map(Vec::pop).collect();
        let mut order = order.iter().cycle();
        while waiting.iter().any(|rest| !rest.is_empty()) {
            let open: Vec<usize> = (0..waiting.len()).filter(|index| !waiting[*index].is_empty()).collect();
            let next = open[order.next().unwrap().index(open.len())];
            list.extend(waiting[next].pop());
        }
        let chunks: Vec<Value> = list.chunks(if grouped { 3 } else { 1 }).map(|chunk| json!(chunk)).collect();
        prop_assert_eq!(read(&chunks), expected);
    }
}
