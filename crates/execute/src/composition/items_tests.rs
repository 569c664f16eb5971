//! Every rule of AGN-003 in the published shapes; the literal ones are tested beside `prompt.rs`.
//!
//! R003-07, R003-18, R003-42 and R003-44 hold by construction or concern callers; R003-20, R003-21, R003-22, R003-23 and
//! R003-33 are about texts that both shapes share; R003-43 is these two files.

use serde_json::{Value, json};

use super::super::{ComposeBlocks, ComposeRequest, ConversationContext};
use super::*;

const HEADER: &str = "[MODE: CODE_EDIT]\n\n[INSTRUCTION]\nFix it.";

fn base() -> Composition<'static> {
    Composition {
        context: ConversationContext { model_name: "gpt-test", system: "Boot.", temperature: Some(0.7) },
        request: ComposeRequest { mode: "CODE_EDIT", instruction: "Fix it.", ..ComposeRequest::default() },
        ..Composition::default()
    }
}

fn body(composition: &Composition<'_>) -> Value {
    serde_json::from_slice(&composition.body()).unwrap()
}

fn item(value: Value) -> Json {
    Json::parse(&value.to_string().into()).unwrap()
}

fn message(role: &str, texts: &[&str]) -> Value {
    let parts: Vec<Value> = texts.iter().map(|text| json!({"type": "input_text", "text": text})).collect();
    json!({"type": "message", "role": role, "content": parts})
}

fn output(call_id: &str, output: &str) -> Value {
    json!({"type": "function_call_output", "call_id": call_id, "output": output})
}

/// A request that goes on from another one.
fn going_on(more: ComposeRequest<'static>) -> Composition<'static> {
    Composition { request: ComposeRequest { response_continuation_id: Some("resp_1"), ..more }, ..base() }
}

#[test]
fn an_initial_request_has_the_published_shape() {
    // R003-01, R003-02, R003-03, R003-04, R003-06, R003-09, R003-10, R003-19, R003-24, R003-25, R003-30, R003-40, C-03, C-04, C-25
    let composition = Composition {
        request: ComposeRequest {
            tools_json: Some(r#"[{"type":"function","name":"f","strict":false,"x":[1]}]"#),
            tool_choice_name: Some("f"),
            system_prompt: Some("Be terse."),
            ..base().request
        },
        blocks: ComposeBlocks {
            rag_context_block: Some("[CONTEXT]\n\nchunk"),
            tool_usage_metadata_block: Some("usage"),
            stream: Some(true),
        },
        ..base()
    };
    assert_eq!(
        String::from_utf8(composition.body()).unwrap(),
        concat!(
            r#"{"model":"gpt-test","temperature":0.7,"stream":true,"input":["#,
            r#"{"type":"message","role":"system","content":[{"type":"input_text","text":"Boot."},{"type":"input_text","text":"Be terse."},{"type":"input_text","text":"usage"}]},"#,
            r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"[MODE: CODE_EDIT]\n\n[INSTRUCTION]\nFix it."},"#,
            r#"{"type":"input_text","text":"[CONTEXT]\n\nchunk"}]}],"#,
            r#""tools":[{"type":"function","name":"f","strict":false,"x":[1]}],"#,
            r#""tool_choice":{"type":"function","name":"f"}}"#,
        )
    );
}

#[test]
fn a_continuation_sends_outputs_alone() {
    // R003-09, R003-11, R003-12, R003-13, R003-29, R003-31, R003-40, C-05, C-06, C-07, O-16
    let composition = Composition {
        blocks: ComposeBlocks { tool_usage_metadata_block: Some("usage"), ..ComposeBlocks::default() },
        ..going_on(ComposeRequest {
            mode: "CODE_EDIT",
            tools_json: Some(r#"[{"type":"function","name":"f"}]"#),
            tool_choice_name: Some("f"),
            tool_results_json: Some(
                r#"[{"CallId":"c1","Name":"f","ResultJson":"{ \"a\":1 }"},{"callId":"c2","name":"f","ErrorMessage":"boom"}]"#,
            ),
            system_prompt: Some("Be terse."),
            ..ComposeRequest::default()
        })
    };
    assert_eq!(
        String::from_utf8(composition.body()).unwrap(),
        concat!(
            r#"{"model":"gpt-test","temperature":0.7,"previous_response_id":"resp_1","input":["#,
            r#"{"type":"function_call_output","call_id":"c1","output":"{ \"a\":1 }"},"#,
            r#"{"type":"function_call_output","call_id":"c2","output":"{\"status\":\"failed\",\"result\":\"boom\"}"}],"#,
            r#""tools":[{"type":"function","name":"f"}],"#,
            r#""tool_choice":{"type":"function","name":"f"}}"#,
        )
    );
}

#[test]
fn tools_are_sent_again_unless_the_document_is_to_be_followed() {
    // R003-39, C-05
    let again = going_on(ComposeRequest { tools_json: Some(r#"[{"name":"f"}]"#), ..base().request });
    assert_eq!(body(&again)["tools"], json!([{"name": "f"}]));
    assert_eq!(body(&Composition { tools: ToolsSent::OnInitialCalls, ..again }).get("tools"), None);
    let initial = Composition {
        tools: ToolsSent::OnInitialCalls,
        request: ComposeRequest { response_continuation_id: None, ..again.request },
        ..again
    };
    assert_eq!(body(&initial)["tools"], json!([{"name": "f"}]));
}

#[test]
fn what_is_not_set_does_not_appear() {
    // R003-05, R003-06, R003-41, C-34
    let context = ConversationContext { temperature: None, ..base().context };
    let value = body(&Composition { context, ..base() });
    assert_eq!(value.as_object().unwrap().keys().collect::<Vec<_>>(), ["input", "model"]);
    for stream in [Some(true), Some(false)] {
        let blocks = ComposeBlocks { stream, ..ComposeBlocks::default() };
        assert_eq!(body(&Composition { blocks, ..base() })["stream"].as_bool(), stream);
    }
}

#[test]
fn a_blank_continuation_id_is_an_initial_request() {
    // R003-08
    for id in [None, Some(""), Some("  ")] {
        let request = ComposeRequest { response_continuation_id: id, ..base().request };
        let value = body(&Composition { request, ..base() });
        let expected = json!([message("system", &["Boot."]), message("user", &[HEADER])]);
        assert_eq!((value.get("previous_response_id"), &value["input"]), (None, &expected), "{id:?}");
    }
}

#[test]
fn the_system_message_holds_its_texts_in_order_without_placeholders() {
    // R003-14, R003-15, R003-16, R003-17, C-25
    type Case = (&'static str, Option<&'static str>, Option<&'static str>, &'static [&'static str]);
    let cases: [Case; 6] = [
        ("Boot.", None, None, &["Boot."]),
        ("", None, None, &[""]),
        ("Boot.", Some(" keep\n"), None, &["Boot.", " keep\n"]),
        ("Boot.", None, Some("usage"), &["Boot.", "usage"]),
        ("Boot.", Some("own"), Some("usage"), &["Boot.", "own", "usage"]),
        ("Boot.", Some("  "), Some(" \n"), &["Boot."]),
    ];
    for (system, system_prompt, tool_usage_metadata_block, expected) in cases {
        let composition = Composition {
            context: ConversationContext { system, ..base().context },
            request: ComposeRequest { system_prompt, ..base().request },
            blocks: ComposeBlocks { tool_usage_metadata_block, ..ComposeBlocks::default() },
            ..base()
        };
        assert_eq!(body(&composition)["input"][0], message("system", expected));
    }
}

#[test]
fn the_instruction_is_raw_and_the_mode_never_empty() {
    // R003-25, R003-26, R003-27
    for (mode, instruction, expected) in [
        ("QA", "  **Why**?\r\n\"x\" ", "[MODE: QA]\n\n[INSTRUCTION]\n  **Why**?\r\n\"x\" "),
        ("QA", "", "[MODE: QA]\n\n[INSTRUCTION]\n"),
        (" ", "Go", "[MODE: general]\n\n[INSTRUCTION]\nGo"),
    ] {
        let request = ComposeRequest { mode, instruction, ..base().request };
        assert_eq!(body(&Composition { request, ..base() })["input"][1], message("user", &[expected]));
    }
}

#[test]
fn attachments_stand_between_the_instruction_and_the_context() {
    // R003-28, R003-30, R003-32
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA"});
    let file = json!({"type": "input_text", "text": "[FILE]\nx"});
    let attachments = [item(image.clone()), item(file.clone())];
    let blocks = ComposeBlocks { rag_context_block: Some(" chunk "), ..ComposeBlocks::default() };
    let composition = Composition { attachments: &attachments, blocks, ..base() };
    let text = |kind: &str, text: &str| json!({"type": kind, "text": text});
    let published = [text("input_text", HEADER), image.clone(), file, text("input_text", " chunk ")];
    assert_eq!(body(&composition)["input"][1]["content"], json!(published));
    let literal: Value = serde_json::from_slice(&composition.literal()).unwrap();
    let expected = [text("text", HEADER), image, text("text", "[FILE]\nx"), text("text", " chunk ")];
    assert_eq!(literal["input"][1]["content"], json!(expected));
}

#[test]
fn a_user_who_goes_on_is_heard_behind_the_outputs() {
    // R003-24, R003-28, R003-29, R003-31
    let results = Some(r#"[{"CallId":"c1","Name":"f","ResultJson":""}]"#);
    let composition = going_on(ComposeRequest { tool_results_json: results, ..base().request });
    assert_eq!(body(&composition)["input"], json!([output("c1", ""), message("user", &[HEADER])]));
    // Context alone is something to say.
    let blocks = ComposeBlocks { rag_context_block: Some("chunk"), ..ComposeBlocks::default() };
    let request = ComposeRequest { instruction: "", ..composition.request };
    let silent = "[MODE: CODE_EDIT]\n\n[INSTRUCTION]\n";
    assert_eq!(
        body(&Composition { request, blocks, ..composition })["input"],
        json!([output("c1", ""), message("user", &[silent, "chunk"])])
    );
}

#[test]
fn a_result_whose_call_cannot_be_seen_is_told_in_words() {
    // R003-29, R003-31, R003-33, C-06
    let results = r#"[{"CallId":"c1","Name":"f","ResultJson":"1"},{"CallId":"c2","Name":"g","ResultJson":"2"}]"#;
    let request = ComposeRequest { tool_results_json: Some(results), ..base().request };
    let words = "[TOOL_RESULTS]\n\n- CallId: c1\n  Name: f\n  ResultJson:\n    1\n\n- CallId: c2\n  Name: g\n  ResultJson:\n    2";
    let expected = json!([message("system", &["Boot."]), message("user", &[HEADER, words])]);
    assert_eq!(body(&Composition { request, ..base() })["input"], expected);

    // With the call in view it is an output, and only the other one is told.
    let call = json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"});
    let history = [item(message("user", &["earlier"])), item(call.clone())];
    let words = "[TOOL_RESULTS]\n\n- CallId: c2\n  Name: g\n  ResultJson:\n    2";
    let expected = json!([
        message("system", &["Boot."]),
        message("user", &["earlier"]),
        call,
        output("c1", "1"),
        message("user", &[HEADER, words]),
    ]);
    assert_eq!(body(&Composition { request, history: &history, ..base() })["input"], expected);

    // A call that has its output already does not get a second one.
    let answered = [item(json!({"type": "function_call", "call_id": "c1"})), item(output("c1", "0"))];
    let items = Composition { request, history: &answered, ..base() }.items();
    assert_eq!(
        items.iter().filter(|item| item.raw().get_str("type").as_deref() == Some("function_call_output")).count(),
        1
    );
}

#[test]
fn a_turn_is_rebuilt_for_an_upstream_that_keeps_nothing() {
    // R003-11, C-05, C-07
    let call = json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"});
    let history = [item(message("user", &[HEADER])), item(call.clone())];
    let results = Some(r#"[{"CallId":"c1","Name":"f","ResultJson":"1"}]"#);
    let request = ComposeRequest { instruction: "", tool_results_json: results, ..base().request };
    let value = body(&Composition { request, history: &history, ..base() });
    let expected = json!([message("system", &["Boot."]), message("user", &[HEADER]), call, output("c1", "1")]);
    assert_eq!((value.get("previous_response_id"), &value["input"]), (None, &expected));
}

#[test]
fn a_result_that_names_no_call_breaks_the_chain() {
    // C-06
    let results = Some(r#"[{"Name":"f","ResultJson":"1"}]"#);
    let value = body(&going_on(ComposeRequest { tool_results_json: results, ..base().request }));
    let words = "[TOOL_RESULTS]\n\n- CallId: (missing)\n  Name: f\n  ResultJson:\n    1";
    let expected = json!([message("system", &["Boot."]), message("user", &[HEADER, words])]);
    assert_eq!((value.get("previous_response_id"), &value["input"]), (None, &expected));
}

#[test]
fn an_output_is_the_result_or_what_went_wrong() {
    // R003-33, R034-20
    for (result, expected) in [
        (r#""ResultJson":"text""#, "text"),
        (r#""ResultJson":{"a": 1}"#, r#"{"a": 1}"#),
        (r#""ResultJson":"","ErrorMessage":"boom""#, r#"{"status":"failed","result":"boom"}"#),
        (r#""ResultJson":"kept","ErrorMessage":"late""#, "kept"),
        (r#""ErrorMessage":"[1]""#, r#"{"status":"failed","result":[1]}"#),
        (r#""ResultJson":null"#, r#"{"status":"failed","result":"the tool gave no result"}"#),
    ] {
        let results = format!(r#"[{{"CallId":"c",{result}}}]"#);
        let request = ComposeRequest {
            tool_results_json: Some(&results),
            response_continuation_id: Some("resp_1"),
            ..ComposeRequest::default()
        };
        assert_eq!(body(&Composition { request, ..base() })["input"], json!([output("c", expected)]));
    }
}

#[test]
fn results_and_tools_that_hold_nothing_leave_the_request_alone() {
    // R003-34, R003-35, R003-36, R003-37, R003-38
    for json in ["", "[]", "{}", "not json", "[1,\"x\",null]"] {
        let request = ComposeRequest { tool_results_json: Some(json), tools_json: Some(json), ..base().request };
        assert_eq!(body(&Composition { request, ..base() }), body(&base()), "{json}");
        let request = ComposeRequest { response_continuation_id: Some("resp_1"), ..request };
        assert_eq!(body(&Composition { request, ..base() })["input"], json!([message("user", &[HEADER])]));
    }
    let tools = Some(r#"[{"a":1},2,"x",null,{"b":{"c":[]}}]"#);
    let request = ComposeRequest { tools_json: tools, tool_choice_name: Some(" "), ..base().request };
    let value = body(&Composition { request, ..base() });
    assert_eq!((&value["tools"], value.get("tool_choice")), (&json!([{"a": 1}, {"b": {"c": []}}]), None));
}
