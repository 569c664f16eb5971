use amalgam_protocol::ResponseParameters;
use std::collections::HashMap;

use amalgam_core::{Loss, normalise};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{reasoning_seal::Owner, testing::PlainSeal};

/// The body that is sent for a request, and what is lost.
fn converted(request: &Value, delivery: Delivery) -> (Value, Vec<Loss>) {
    chained(request, delivery, Chain::Standalone)
}

fn chained(request: &Value, delivery: Delivery, chain: Chain<'_>) -> (Value, Vec<Loss>) {
    let images = HashMap::from([("https://x/cat.png".to_owned(), "data:image/png;base64,AAAA".to_owned())]);
    let text = request.to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let history = normalise(settings.instructions.as_ref(), settings.input.as_ref());
    let request = ModelRequest {
        model: "real-model",
        settings: &settings,
        history: &history,
        delivery,
        chain,
        seal_context: "tenant 1",
        images: &images,
    };
    let prepared = convert(&request, "here", &PlainSeal);
    (serde_json::from_slice(&prepared.body).unwrap(), prepared.losses)
}

fn input(items: Value) -> (Value, Vec<Loss>) {
    let (body, losses) = converted(&json!({"model": "m", "input": items}), Delivery::Whole);
    (body["input"].clone(), losses)
}

#[test]
fn everything_that_the_caller_set_is_passed_on_and_state_is_not() {
    let request = json!({
        "model": "alias", "instructions": "Be kind.", "input": "Hi \"you\"\n",
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "x-own": 1}, {"type": "web_search"}],
        "tool_choice": {"type": "tool", "name": "f"}, "parallel_tool_calls": false, "max_tool_calls": 3,
        "text": {"format": {"type": "json_object"}, "verbosity": "low", "x": 1},
        "reasoning": {"effort": "low", "context": "all"}, "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 50, "temperature": 0.7, "top_p": 0.5, "presence_penalty": -1.5, "frequency_penalty": 0.5,
        "top_logprobs": 2, "truncation": "auto", "metadata": {"k": "v"}, "service_tier": "flex",
        "safety_identifier": "s", "prompt_cache_key": "p", "prompt_cache_retention": "24h", "user": "u",
        "prompt": {"id": "t"}, "context_management": [{"type": "compaction"}],
        "previous_response_id": "resp_1", "conversation": "conv_1", "background": true, "store": true, "stream": true,
        "stream_options": {"include_obfuscation": false}, "client_metadata": {"a": [1]}, "x \"odd\"": null,
    });
    let (body, losses) = converted(&request, Delivery::Stream);

    let mut expected = request.clone();
    for gone in ["previous_response_id", "conversation", "background"] {
        expected.as_object_mut().unwrap().remove(gone);
    }
    expected["model"] = json!("real-model");
    expected["input"] = json!([{"type": "message", "role": "user", "content": "Hi \"you\"\n"}]);
    expected["tool_choice"] = json!({"type": "function", "name": "f"});
    expected["store"] = json!(false);
    assert_eq!((body, losses), (expected, vec![]));
}

#[test]
fn a_small_request_stays_small() {
    let (body, losses) = converted(&json!({"model": "m", "input": "Hi", "stream_options": {}}), Delivery::Whole);
    let expected = json!({
        "model": "real-model", "input": [{"type": "message", "role": "user", "content": "Hi"}], "store": false,
    });
    assert_eq!((body, losses), (expected, vec![]));
}

#[test]
fn instructions_that_are_items_stand_before_the_input() {
    let instructions = json!([{"role": "developer", "content": "One"}, {"role": "system", "content": "Two"}]);
    let (body, _) = converted(&json!({"instructions": instructions, "input": "Hi"}), Delivery::Whole);
    let expected = json!([
        {"type": "message", "role": "developer", "content": "One"},
        {"type": "message", "role": "system", "content": "Two"},
        {"type": "message", "role": "user", "content": "Hi"},
    ]);
    assert_eq!((body.get("instructions"), &body["input"]), (None, &expected));
}

#[test]
fn texts_that_an_upstream_would_refuse_are_mended() {
    // RAM-19
    let (sent, losses) = input(json!([
        {"role": "user", "content": [{"type": "input_text", "text": null, "own": 2}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": null}, {"type": "output_text", "text": null}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": null}]},
    ]));
    let expected = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "", "own": 2}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": ""}, {"type": "output_text", "text": "", "annotations": []}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": ""}]},
    ]);
    assert_eq!((sent, losses), (expected, Vec::new()));
}

/// Items that nothing must be changed of.
const KEPT: [&str; 9] = [
    r#"{ "type":"message","id":"msg_AM-1","role":"assistant","phase":"final_answer","content":[{"type":"output_text","text":"\u00e9\/","annotations":[],"own":1.50}] }"#,
    r#"{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","namespace":"n","arguments":"{ \"a\": 1.0 }"}"#,
    r#"{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"x"}]}"#,
    r#"{"type":"custom_tool_call","call_id":"c2","name":"g","input":"raw"}"#,
    r#"{"type":"custom_tool_call_output","call_id":"c2","output":"ok"}"#,
    r#"{"type":"web_search_call","id":"ws_1","status":"completed"}"#,
    r#"{"type":"acme:thing","deep":{"er":[1.0e3]}}"#,
    r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"foreign"}"#,
    r#"{"type":"reasoning","id":"rs_2","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}"#,
];

/// The exact body that is sent for items.
fn sent(items: &[String]) -> String {
    let body = format!(r#"{{"input":[{}]}}"#, items.join(", "));
    let parameters = body.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let history = normalise(None, settings.input.as_ref());
    let request = ModelRequest {
        model: "m",
        settings: &settings,
        history: &history,
        delivery: Delivery::Whole,
        chain: Default::default(),
        seal_context: "",
        images: &HashMap::new(),
    };
    let prepared = convert(&request, "here", &PlainSeal);
    assert_eq!(prepared.losses, []);
    String::from_utf8(prepared.body.to_vec()).unwrap()
}

proptest! {
    #[test]
    fn items_pass_byte_for_byte_where_nothing_must_change(
        fields in prop::collection::vec(prop::collection::vec(("x_[a-zé]{0,6}", "[ -~é]{0,8}"), 0..3), KEPT.len()),
        space in prop::sample::select(vec!["", " ", "\n  ", "\r\n\t"]),
    ) {
        let grown = |(item, fields): (&&str, &Vec<(String, String)>)| {
            let more = fields.iter().map(|(key, text)| format!(",{space}{}{space}:{}", json!(key), json!([text, 1.5])));
            format!("{}{}{space}}}", item.trim_end().strip_suffix('}').unwrap(), more.collect::<String>())
        };
        let items: Vec<String> = KEPT.iter().zip(&fields).map(grown).collect();
        prop_assert_eq!(sent(&items), format!(r#"{{"model":"m","input":[{}],"store":false}}"#, items.join(",")));
    }
}

#[test]
fn messages_get_a_type_and_parts_get_the_name_of_their_role() {
    let (items, losses) = input(json!([
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "output_text", "text": "b", "annotations": []}]},
        {"role": "assistant", "id": "msg_1", "content": [{"type": "text", "text": "c"}, {"type": "input_text", "text": "d"}, {"type": "refusal", "refusal": "no"}]},
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "e"}]},
    ]));
    let expected = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "content": [
            {"type": "output_text", "text": "c", "annotations": []}, {"type": "output_text", "text": "d", "annotations": []},
            {"type": "refusal", "refusal": "no"}]},
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "e"}]},
    ]);
    assert_eq!((items, losses), (expected, vec![]));
}

#[test]
fn images_are_sent_in_the_published_shape_and_as_bytes_where_they_were_fetched() {
    let (items, _) = input(json!([{"type": "message", "role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://x/dog.png", "detail": "low"}},
        {"type": "input_image", "image_url": "https://x/cat.png", "detail": "high"},
        {"type": "input_image", "image_url": "https://x/dog.png"},
    ]}]));
    let expected = json!([
        {"type": "input_image", "image_url": "https://x/dog.png", "detail": "low"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "high"},
        {"type": "input_image", "image_url": "https://x/dog.png"},
    ]);
    assert_eq!(items[0]["content"], expected);
}

#[test]
fn the_chat_shapes_of_tools_and_schemas_are_brought_up_one_level() {
    let request = json!({
        "input": "Hi",
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": true}}],
        "text": {"verbosity": "low", "format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "own": 1}}},
    });
    let (body, _) = converted(&request, Delivery::Whole);
    assert_eq!(body["tools"], json!([{"type": "function", "name": "f", "parameters": {}, "strict": true}]));
    let text = json!({"verbosity": "low", "format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}, "own": 1}});
    assert_eq!(body["text"], text);
}

#[test]
fn a_call_id_that_was_used_before_is_replaced_in_call_and_output() {
    // O-44
    let pair = [
        json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}),
        json!({"type": "function_call_output", "call_id": "c", "output": [{"type": "text", "text": "x"}]}),
    ];
    let user = json!({"role": "user", "content": "again"});
    let (items, _) = input(json!([pair[0], pair[1], user, pair[0], pair[1]]));
    let ids: Vec<&str> = items.as_array().unwrap().iter().filter_map(|item| item["call_id"].as_str()).collect();
    assert_eq!((ids[0], ids[1], ids[2] != "c", ids[2] == ids[3]), ("c", "c", true, true));
    assert_eq!(items[4]["output"], json!([{"type": "input_text", "text": "x"}]));
}

#[test]
fn outputs_that_are_no_text_are_sent_as_one() {
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let (items, _) = input(json!([
        call("a"), call("b"), call("c"),
        {"type": "function_call_output", "call_id": "a", "output": {"ok": [1]}},
        {"type": "function_call_output", "call_id": "b", "output": false},
        {"type": "function_call_output", "call_id": "c"},
    ]));
    let outputs: Vec<&Value> = items.as_array().unwrap().iter().filter_map(|item| item.get("output")).collect();
    assert_eq!(outputs, [&json!("{\"ok\":[1]}"), &json!("false"), &json!("")]);
}

#[test]
fn what_we_sealed_ourselves_is_not_sent() {
    let (items, losses) = input(json!([
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "ams1.x"},
        {"type": "compaction", "id": "cmp_2", "encrypted_content": "theirs"},
    ]));
    assert_eq!(items, json!([{"type": "compaction", "id": "cmp_2", "encrypted_content": "theirs"}]));
    assert_eq!(losses.len(), 1);
}

#[test]
fn a_call_without_its_output_becomes_a_note_of_the_users() {
    let (items, _) = input(json!([{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]));
    let note = &items[0];
    assert_eq!(
        (&note["type"], &note["role"], &note["content"][0]["type"]),
        (&json!("message"), &json!("user"), &json!("input_text"))
    );
}

#[test]
fn reasoning_go_back_to_the_upstream_that_had_them_and_nowhere_else() {
    let sealed = |upstream: &str, model: &str, context: &str| {
        Owner { upstream, model, context, seal: &PlainSeal }.seal(|writer| {
            writer.key("id").string("rs_real");
            writer.key("encrypted_content").string("gAAA/secret");
        })
    };
    let item = |sealed: &str, summary: &str| {
        let parts = if summary.is_empty() { json!([]) } else { json!([{"type": "summary_text", "text": summary}]) };
        json!({"type": "reasoning", "id": "rs_AM-1", "summary": parts, "encrypted_content": sealed})
    };
    let own = json!({"type": "reasoning", "id": "rs_real", "encrypted_content": "gAAA/secret", "summary": [{"type": "summary_text", "text": "s"}]});
    let told = json!({"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "[Summary of earlier reasoning]\ns", "annotations": []}]});

    let unnamed =
        PlainSeal.seal("tenant 1", br#"{"upstream":"here","id":"rs_real","encrypted_content":"gAAA\/secret"}"#);
    for ours in [sealed("here", "real-model", "tenant 1"), unnamed] {
        assert_eq!(input(json!([item(&ours, "s")])), (json!([own]), vec![]));
    }
    for foreign in [
        sealed("elsewhere", "real-model", "tenant 1"),
        sealed("here", "other-model", "tenant 1"),
        sealed("here", "real-model", "tenant 2"),
        "ams1.broken".to_owned(),
    ] {
        let (items, losses) = input(json!([item(&foreign, "s"), item(&foreign, "")]));
        assert_eq!(items, json!([told]), "{foreign}");
        assert_eq!(losses.len(), 1, "each loss is told once");
        assert!(!items.to_string().contains("secret") && !items.to_string().contains("ams1"));
    }
}

#[test]
fn unreadable_reasoning_is_sent_as_its_summary() {
    let (items, losses) = input(json!([
        {"type": "reasoning", "id": "rs_AM-1", "summary": []},
        {"type": "reasoning", "id": "rs_AM-2", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": ""},
    ]));
    assert_eq!(items.as_array().unwrap().len(), 1);
    assert_eq!(items[0]["content"][0]["text"], "[Summary of earlier reasoning]\ns");
    assert_eq!(losses.len(), 1);
}

#[test]
fn the_note_remembers_what_reading_needs() {
    let text = r#"{"include":["reasoning.encrypted_content","message.output_text.logprobs"]}"#;
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let history = History::default();
    let images = HashMap::new();
    let request = ModelRequest {
        model: "m",
        settings: &settings,
        history: &history,
        delivery: Delivery::Whole,
        chain: Default::default(),
        seal_context: "tenant 1",
        images: &images,
    };
    let answer_context = answer_context(&request);
    assert_eq!(
        (answer_context.seal_context.as_str(), answer_context.wants_sealed_reasoning, answer_context.wants_logprobs),
        ("tenant 1", true, true)
    );
}

#[test]
fn a_call_that_goes_on_says_what_is_new_and_names_the_answer_before() {
    let request = json!({"instructions": "Be kind.", "tools": [{"type": "function", "name": "f"}], "input": [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ]});
    let (whole, _) = chained(&request, Delivery::Whole, Chain::Start);
    let (body, losses) = chained(&request, Delivery::Whole, Chain::Continue { id: "resp_up", known: 2 });
    let mut expected = whole.clone();
    expected["previous_response_id"] = json!("resp_up");
    expected["input"] = json!([whole["input"][2]]);
    assert_eq!((body, losses), (expected, vec![]));
    assert_eq!(
        [&whole["store"], &whole["instructions"], &whole["input"][2]["output"]],
        [&json!(true), &json!("Be kind."), &json!("done")]
    );
}

proptest! {
    #[test]
    fn calls_with_outputs_anywhere_behind_them_are_sent_in_their_order(items in crate::testing::answered_items()) {
        // right A1
        let (sent, losses) = input(Value::from(items.clone()));
        prop_assert_eq!(losses, []);
        let sent = sent.as_array().unwrap();
        // Reused ids differ; a message gets its type.
        let without_id = |item: &Value| {
            let mut item = item.clone();
            let fields = item.as_object_mut().unwrap();
            fields.remove("call_id");
            fields.entry("type").or_insert(json!("message"));
            item
        };
        // Outputs that follow each other have the order of their calls.
        let is_output = |item: &Value| item["output"].is_string();
        let in_order = |items: &[Value]| {
            let mut items: Vec<Value> = items.iter().map(without_id).collect();
            for outputs in items.chunk_by_mut(|one, next| is_output(one) && is_output(next)) {
                outputs.sort_by_key(Value::to_string);
            }
            items
        };
        prop_assert_eq!(in_order(sent), in_order(&items));
        let mut open = Vec::new();
        for item in sent.iter().filter(|item| item["call_id"].is_string()) {
            match is_output(item) {
                false => open.push(&item["call_id"]),
                true => {
                    let at = open.iter().position(|id| *id == &item["call_id"]);
                    prop_assert!(at.map(|at| open.remove(at)).is_some(), "{} has no call before it", item);
                }
            }
        }
        prop_assert!(open.is_empty());
    }
}
