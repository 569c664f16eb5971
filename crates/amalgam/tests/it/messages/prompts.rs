//! What the models are told.

use serde_json::{Value, json};

use super::{ask, post, request};
use crate::support::{Delivery, Said, Script, WIRES, Wire, World};

/// A request with everything that an agent sends.
fn agent_request() -> Value {
    let cache = json!({"type": "ephemeral", "ttl": "1h"});
    json!({
        "max_tokens": 32000, "temperature": 1, "top_k": 40, "stop_sequences": ["END"],
        "metadata": {"user_id": "u-1"}, "service_tier": "standard_only",
        "thinking": {"type": "enabled", "budget_tokens": 4096},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "system": [{"type": "text", "text": "You are an agent."},
                   {"type": "text", "text": "Be brief.", "cache_control": cache}],
        "tools": [
            {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}},
             "cache_control": cache, "input_examples": [{}]},
            {"name": "later", "input_schema": {"type": "object", "properties": {}}, "description": "L.",
             "defer_loading": true},
            {"type": "bash_20250124", "name": "bash"},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        ],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "Look"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
                {"type": "document", "title": "a.pdf", "citations": {"enabled": true},
                 "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQ="}},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "EqQBCkYIBhgC"},
                {"type": "text", "text": "I look."},
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "x"}},
                {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "nothing", "is_error": true},
                {"type": "tool_result", "tool_use_id": "toolu_2",
                 "content": [{"type": "text", "text": "all", "cache_control": cache}]},
                {"type": "text", "text": "Go on", "cache_control": cache},
            ]},
            {"role": "system", "content": [{"type": "text", "text": "Hurry."}], "output_config": {"effort": "low"}},
            {"role": "user", "content": [{"type": "text", "text": "Faster"}]},
            {"role": "system", "output_config": {"effort": "high"}, "content": [
                {"type": "text", "text": "One more tool."},
                {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {
                    "name": "extra", "description": "E.", "input_schema": {"type": "object", "properties": {}},
                }}},
            ]},
        ],
    })
}

#[tokio::test]
async fn an_upstream_with_the_same_api_gets_the_request_as_it_came() {
    let world = World::start().await;
    let fields = agent_request();
    let sent = request(Wire::Anthropic, Delivery::Whole, &fields);
    world.upstream(Wire::Anthropic).enqueue(Script::text(&["Yes"]).reply(Wire::Anthropic, Delivery::Whole));
    let flags = [("anthropic-beta", "context-management-2025-06-27,unheard-of-2031-01-01")];
    let answer = post(&world.amalgam.client(), &flags, &sent).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("amalgam-losses"), None, "nothing is lost");
    let mut expected = sent;
    // The only differences: a text is a block.
    expected["model"] = json!(Wire::Anthropic.model());
    assert_eq!(world.sent(Wire::Anthropic), expected);
    let request = world.upstream(Wire::Anthropic).request(0);
    assert_eq!(request.header("anthropic-beta"), Some("context-management-2025-06-27,unheard-of-2031-01-01"));
}

#[tokio::test]
async fn a_chat_upstream_gets_what_it_can_express_and_the_rest_is_reported() {
    let world = World::start().await;
    let answer = ask(&world, Wire::Chat, Delivery::Whole, &Script::text(&["Yes"]), &agent_request()).await;
    let sent = world.sent(Wire::Chat);
    assert_eq!((&sent["stop"], &sent["top_k"]), (&json!(["END"]), &json!(40)));
    assert_eq!((&sent["max_tokens"], &sent["reasoning_effort"]), (&json!(32000), &json!("medium")));
    let text = sent.to_string();
    assert!(!text.contains("anthropic") && !text.contains("cache_control"), "{text}");
    let names: Vec<&str> =
        sent["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["look", "later", "bash", "extra"]);
    let losses = answer.header("amalgam-losses").expect("losses are reported");
    for field in [
        "cache_control: ",
        "thinking.budget_tokens: ",
        "context_management: ",
        "tools.input_examples: ",
        "tools.defer_loading: ",
        "tools: `bash_20250124`",
        "is_error: ",
        "tools[3]: `web_search`",
    ] {
        assert!(losses.contains(field), "{field} in {losses}");
    }
    assert!(!losses.contains("top_k") && !losses.contains("stop_sequences"), "{losses}");
}

#[tokio::test]
async fn a_responses_upstream_gets_no_field_that_it_does_not_know() {
    let world = World::start().await;
    let answer = ask(&world, Wire::Responses, Delivery::Whole, &Script::text(&["Yes"]), &agent_request()).await;
    let sent = world.sent(Wire::Responses);
    let text = sent.to_string();
    for unknown in ["anthropic", "cache_control", "top_k", "stop_sequences", "messages_block", "is_error"] {
        assert!(!text.contains(unknown), "{unknown} in {text}");
    }
    assert_eq!(sent["reasoning"], json!({"effort": "medium", "summary": "auto"}));
    assert_eq!(sent["safety_identifier"], "u-1");
    let extra = json!({"type": "function", "name": "extra", "description": "E.",
                       "parameters": {"type": "object", "properties": {}}});
    let added = sent["input"].as_array().unwrap().last().unwrap();
    assert_eq!((&added["type"], &added["tools"]), (&json!("additional_tools"), &json!([extra])));
    let kinds: Vec<&str> =
        sent["tools"].as_array().unwrap().iter().map(|tool| tool["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["function", "function", "function", "web_search"]);
    let losses = answer.header("amalgam-losses").expect("losses are reported");
    for field in ["top_k: ", "stop_sequences: ", "cache_control: ", "messages: a block"] {
        assert!(losses.contains(field), "{field} in {losses}");
    }
}

#[tokio::test]
async fn a_loss_is_an_error_in_strict_mode() {
    let world = World::start().await;
    let strict = [("amalgam-strict", "true")];
    let fields = json!({"top_k": 3});
    let refused = post(&world.amalgam.client(), &strict, &request(Wire::Responses, Delivery::Whole, &fields)).await;
    let (status, kind, message) = super::error_of(&refused);
    assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
    assert!(message.contains("top_k"), "{message}");
    let unknown = [("amalgam-strict", "true"), ("anthropic-beta", "unheard-of-2031-01-01")];
    let refused = post(&world.amalgam.client(), &unknown, &request(Wire::Chat, Delivery::Whole, &json!({}))).await;
    assert!(super::error_of(&refused).2.contains("unheard-of-2031-01-01"), "{}", refused.text());
    assert!(WIRES.iter().all(|wire| world.upstream(*wire).requests().is_empty()));
}

#[tokio::test]
async fn reasoning_goes_back_to_the_model_that_had_it() {
    let world = World::start().await;
    let tool = json!({"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}});
    let fields = json!({
        "tools": [tool], "thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 9000,
    });
    let script = Script::new([Said::reasoning(&["I remember this."]), Said::call("call_1", "look", &["{}"])]);
    for wire in WIRES {
        let first = super::message(Delivery::Stream, &ask(&world, wire, Delivery::Stream, &script, &fields).await);
        let mut next = fields.clone();
        next["messages"] = json!([
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "seen"}]},
        ]);
        ask(&world, wire, Delivery::Whole, &Script::text(&["Done"]), &next).await;
        let sent = world.sent(wire);
        let found = match wire {
            Wire::Chat => sent["messages"][1]["reasoning_content"].clone(),
            // The script's reasoning is not encrypted: only its summary is left.
            Wire::Responses => sent["input"][1]["content"][0]["text"].clone(),
            Wire::Anthropic => sent["messages"][1]["content"][0]["thinking"].clone(),
        };
        let found = found.as_str().unwrap_or_default();
        assert!(found.ends_with("I remember this."), "{wire:?}: {sent}");
        let stranger = Wire::Chat;
        if wire != stranger {
            ask(&world, stranger, Delivery::Whole, &Script::text(&["Done"]), &next).await;
            let text = world.sent(stranger).to_string();
            assert!(!text.contains("ams2."), "no other model gets it: {text}");
        }
    }
}

#[tokio::test]
async fn a_prefilled_answer_ends_the_prompt_of_an_upstream_with_the_same_api() {
    let world = World::start().await;
    let fields = json!({"messages": [{"role": "user", "content": "Say A"}, {"role": "assistant", "content": "A"}]});
    ask(&world, Wire::Anthropic, Delivery::Whole, &Script::text(&["BC"]), &fields).await;
    let messages = world.sent(Wire::Anthropic)["messages"].clone();
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    assert_eq!(
        messages,
        json!([{"role": "user", "content": text("Say A")}, {"role": "assistant", "content": text("A")}])
    );
}
