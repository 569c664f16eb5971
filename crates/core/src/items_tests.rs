//! Items are kept as they were written and read back in full.

use amalgam_protocol::{Raw, ResponseParameters};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ids::Stem;

fn within() -> Ids {
    let response = Ids::seeded(1).response(1_760_000_000_000);
    Ids::Within(Stem::of(&response).expect("our own id has a stem"))
}

/// The stored items of `{"input": …}`.
fn kept(input: &str) -> String {
    let body = format!("{{\"input\":{input}}}");
    let parameters = body.parse::<ResponseParameters>().unwrap();
    let request = parameters.view().unwrap();
    let kept = number_items(request.input.as_ref(), &mut within());
    Raw::parse(kept.bytes()).expect("what is kept is JSON");
    kept.raw().text().to_owned()
}

fn read_back(item: &str) -> Value {
    let mut writer = Writer::default();
    write_item(&mut writer, Raw::parse(item.as_bytes()).unwrap());
    serde_json::from_slice(writer.bytes()).unwrap()
}

/// Takes the ids that were given away out of the text again.
fn without_ids(text: &str) -> (String, Vec<String>) {
    let mut rest = text;
    let (mut plain, mut ids) = (String::new(), Vec::new());
    while let Some((before, after)) = rest.split_once("\"id\":\"") {
        let (id, after) = after.split_once("\",").expect("an id is the first of several keys");
        plain.push_str(before);
        ids.push(id.to_owned());
        rest = after;
    }
    plain.push_str(rest);
    (plain, ids)
}

#[test]
fn items_without_an_id_get_one_by_their_kind_and_are_otherwise_kept_byte_for_byte() {
    let items = [
        (r#"{"role":"user","content":"caf\u00e9 \/ \"x\""}"#, "msg"),
        ("{ \"type\" : \"message\" ,\n\"role\":\"assistant\",\"content\":[ ],\"own\": 1.50 }", "msg"),
        (r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\": 1e2}"}"#, "fc"),
        (r#"{"type":"function_call_output","call_id":"c","output":"42"}"#, "fco"),
        (r#"{"type":"custom_tool_call","call_id":"d","name":"f","input":"x"}"#, "ctc"),
        (r#"{"type":"custom_tool_call_output","call_id":"d","output":[]}"#, "ctco"),
        (r#"{"type":"reasoning","summary":[],"encrypted_content":"zzz"}"#, "rs"),
        (r#"{"type":"shell_call","call_id":"e","action":{}}"#, "sh"),
        (r#"{"type":"shell_call_output","call_id":"e","output":[]}"#, "item"),
        (r#"{"type":"local_shell_call","call_id":"g","action":{}}"#, "lsh"),
        (r#"{"type":"apply_patch_call","call_id":"h","operation":{}}"#, "apc"),
        (r#"{"type":"tool_search_call","call_id":"i","arguments":{}}"#, "tsc"),
        (r#"{"type":"computer_call","call_id":"j","action":{}}"#, "cu"),
        (r#"{"type":"compaction","encrypted_content":"ams1.x"}"#, "cmp"),
        (r#"{"type":"web_search_call","status":"completed"}"#, "item"),
        (r#"{"type":"acme:thing","deep":{"a":[1,2,{}]},"a":1,"a":2}"#, "item"),
    ];
    for (item, prefix) in items {
        let (plain, ids) = without_ids(&kept(&format!("[{item}]")));
        assert_eq!(plain, format!("[{item}]"));
        assert_eq!(ids.len(), 1, "{item}");
        assert_eq!(ids[0].split_once("_AM-").unwrap().0, prefix, "{item}");
        assert_eq!(Stem::of(&ids[0]), Stem::of(&Ids::seeded(1).response(1_760_000_000_000)), "{item}");
    }
    let all: Vec<&str> = items.iter().map(|(item, _)| *item).collect();
    let (plain, ids) = without_ids(&kept(&format!("[{}]", all.join(","))));
    assert_eq!((plain, ids.len()), (format!("[{}]", all.join(",")), items.len()));
}

#[test]
fn items_with_an_id_are_kept_byte_for_byte() {
    for items in [
        r#"[{"type":"message", "id":"msg_mine","role":"user","content":"x"},{"type":"acme:thing","id":"1"}]"#,
        r#"[{"type":"item_reference","id":"msg_1"}]"#,
        r#"[{"type":"local_shell_call_output","id":"call_1","output":"{}"}]"#,
        "[]",
    ] {
        assert_eq!(kept(items), items);
    }
}

#[test]
fn an_id_that_is_none_gives_way_to_a_real_one() {
    for none in ["null", "\"\"", "7"] {
        let item = format!("[{{\"type\":\"acme:thing\",\"id\":{none},\"a\": [1, 2]}}]");
        let text = kept(&item);
        assert_eq!(text.matches("\"id\"").count(), 1, "{text}");
        let (plain, ids) = without_ids(&text);
        assert_eq!(plain, r#"[{"type":"acme:thing","a":[1, 2]}]"#);
        assert!(ids[0].starts_with("item_AM-"), "{text}");
    }
}

#[test]
fn a_bare_text_is_kept_as_a_message_of_the_user_and_nothing_as_nothing() {
    let (plain, ids) = without_ids(&kept(r#""a \u0041 \"b\"""#));
    assert_eq!(plain, r#"[{"type":"message","role":"user","content":"a \u0041 \"b\""}]"#);
    assert!(ids[0].starts_with("msg_AM-"));
    assert_eq!(kept("null"), "[]");
    assert_eq!(kept("[null, null]"), "[]");
}

#[test]
fn one_item_is_kept_like_many_and_its_id_is_told() {
    let text = r#"{"role":"user","content":"x"}"#;
    let item = Item::read(Raw::parse(text.as_bytes()).unwrap()).unwrap();
    let numbered = number_item(&item, &mut Ids::seeded(3));
    assert_eq!(numbered.item.raw().get_str("id").as_deref(), Some(&*numbered.id));
    assert_eq!(without_ids(numbered.item.raw().text()).0, text);
    let text = r#"{"id":"mine","role":"user","content":"x"}"#;
    let item = Item::read(Raw::parse(text.as_bytes()).unwrap()).unwrap();
    let numbered = number_item(&item, &mut Ids::seeded(3));
    assert_eq!((numbered.id.as_str(), numbered.item.raw().text()), ("mine", text));
}

#[test]
fn messages_are_read_back_with_type_status_and_parts() {
    assert_eq!(
        read_back(r#"{"id":"msg_1","role":"user","content":"Hi \u00e9","own":{"a":1}}"#),
        json!({
            "id": "msg_1", "type": "message", "status": "completed", "role": "user",
            "content": [{"type": "input_text", "text": "Hi é"}], "own": {"a": 1},
        })
    );
    assert_eq!(
        read_back(r#"{"id":"msg_1","type":"message","status":"incomplete","role":"assistant","content":"Hi"}"#),
        json!({
            "id": "msg_1", "type": "message", "status": "incomplete", "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
        })
    );
    let parts = json!([
        {"type": "output_text", "text": "a", "annotations": [{"type": "x"}]},
        {"type": "acme:part", "deep": [1]},
        {"type": "input_image", "image_url": "data:image/png;base64,AA"},
    ]);
    let item = json!({"id": "msg_1", "type": "message", "status": null, "role": "developer", "content": parts});
    let mut expected = item.clone();
    expected["status"] = json!("completed");
    assert_eq!(read_back(&item.to_string()), expected);
    let bare = read_back(r#"{"id":"m","role":"assistant","content":[{"type":"output_text","text":"a"}]}"#);
    assert_eq!(bare["content"], json!([{"type": "output_text", "text": "a", "annotations": []}]));
}

#[test]
fn calls_and_their_outputs_are_read_back_with_a_status() {
    for kind in ["function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"] {
        let item = json!({"id": "x", "type": kind, "call_id": "c", "name": "f", "arguments": "{ }", "input": "", "output": "o"});
        let mut expected = item.clone();
        expected["status"] = json!("completed");
        assert_eq!(read_back(&item.to_string()), expected);
        expected["status"] = json!("in_progress");
        assert_eq!(read_back(&expected.to_string()), expected);
    }
}

#[test]
fn what_we_do_not_know_is_read_back_byte_for_byte() {
    for item in [
        r#"{ "id":"x", "type":"acme:thing" , "n": 1.50, "a":1,"a":2 }"#,
        r#"{"type":"reasoning","id":"rs_1","summary":[ ]}"#,
        r#"{"type":"web_search_call","id":"ws_1"}"#,
        r#"{"id":"x","type":"function_call"}"#,
    ] {
        let mut writer = Writer::default();
        write_item(&mut writer, Raw::parse(item.as_bytes()).unwrap());
        assert_eq!(String::from_utf8_lossy(writer.bytes()), item);
    }
}

proptest! {
    #[test]
    fn any_item_of_an_unknown_kind_survives(fields in proptest::collection::btree_map("[a-h]{1,4}", ".{0,12}", 0..5)) {
        let mut item = json!({"type": "acme:any"});
        for (key, value) in &fields {
            item[key] = json!(value);
        }
        let sent = item.to_string();
        let (plain, ids) = without_ids(&kept(&format!("[{sent}]")));
        prop_assert_eq!(plain, format!("[{}]", sent));
        prop_assert_eq!(ids.len(), 1);
    }
}
