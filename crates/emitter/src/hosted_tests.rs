//! Calls that the server ran, between what the model says.

use amalgam_protocol::{CreateResponse, Effective, Literal, ResponseSettings};
use amalgam_testkit::{check, sse};
use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::{Emitter, ResponseStart};
use amalgam_core::{Delivery, Finish, Ids, ModelEvent};

fn emitter(delivery: Delivery) -> Emitter {
    let settings =
        ResponseSettings::new(&CreateResponse::default(), Effective { model: "m", stored: false, background: false });
    Emitter::new(ResponseStart {
        response_id: "resp_AM-1700000000000-abcdefghijklmnopqrstuvwx".into(),
        created_at: 1_700_000_000,
        settings,
        delivery,
        ids: Ids::seeded(1),
        call_ids: true,
    })
}

fn usage(tokens: u64) -> ModelEvent {
    let usage = amalgam_protocol::Usage { input_tokens: tokens, output_tokens: 1, ..Default::default() };
    ModelEvent::Usage(usage)
}

/// Two rounds: a listing, a text and a call that goes well, then one that does not, one that waits, and a text.
fn play(emitter: &mut Emitter) {
    let say = |text: &str| ModelEvent::Text { delta: Literal::from_text(text), logprobs: None };
    let call = |id: &str| HostedCall {
        id: id.to_owned(),
        shown: CallDisplay::McpCall,
        call_id: "call_1".to_owned(),
        label: "bank".to_owned(),
        name: "look".to_owned(),
        arguments: r#"{"a":1}"#.to_owned(),
        approval_request_id: None,
    };
    emitter.begin();
    emitter.list_tools("crm", &Json::parse(&Bytes::from_static(br#"[{"name":"look"}]"#)).unwrap());
    emitter.on(say("I look.")).unwrap();
    emitter.on(usage(10)).unwrap();
    emitter.begin_hosted(&call("mcp_1"));
    emitter.end_hosted(&call("mcp_1"), &HostedCallResult { output: "found".to_owned(), error: None });
    emitter.begin_hosted(&call("mcp_2"));
    emitter.end_hosted(&call("mcp_2"), &HostedCallResult { output: "{}".to_owned(), error: Some("broken".to_owned()) });
    emitter.request_approval(&call("mcpr_1"));
    emitter.end_round();
    emitter.on(say("Done.")).unwrap();
    emitter.on(usage(20)).unwrap();
    emitter.on(ModelEvent::Finish(Finish::Stop)).unwrap();
    emitter.conclude(1_700_000_001);
}

#[test]
fn rounds_are_one_response_with_items_in_order_and_one_terminal_event() {
    let mut streamed = emitter(Delivery::Stream);
    play(&mut streamed);
    let bytes = streamed.take_frames();
    assert_eq!(check::body(&bytes), Vec::<String>::new(), "{}", String::from_utf8_lossy(&bytes));
    let mut whole = emitter(Delivery::Whole);
    play(&mut whole);
    let response: Value = serde_json::from_slice(&whole.response()).unwrap();
    let events = sse::json_events(&bytes);
    assert_eq!(events.last().unwrap()["response"], response);
    let kinds: Vec<&str> =
        response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["mcp_list_tools", "message", "mcp_call", "mcp_call", "mcp_approval_request", "message"]);
    assert_eq!(response["output"][2]["call_id"], "call_1");
    let error = json!({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "broken"}]});
    assert_eq!(response["output"][3]["error"], error);
    assert_eq!(response["output"][3]["status"], "failed");
    assert_eq!((&response["usage"]["input_tokens"], &response["usage"]["output_tokens"]), (&json!(30), &json!(2)));
}

#[test]
fn a_call_is_told_step_by_step() {
    let mut emitter = emitter(Delivery::Stream);
    play(&mut emitter);
    let events = sse::json_events(&emitter.take_frames());
    let of_call: Vec<&str> = events
        .iter()
        .filter(|event| event["item_id"] == "mcp_1" || event["item"]["id"] == "mcp_1")
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        of_call,
        [
            "response.output_item.added",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.mcp_call.in_progress",
            "response.mcp_call.completed",
            "response.output_item.done",
        ]
    );
}
