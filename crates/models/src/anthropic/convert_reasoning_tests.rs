//! Sampling, thinking and the replay of reasoning.

use super::*;

#[test]
fn sampling_follows_what_the_generation_takes() {
    let sampled = |model: &str, reasoning: Value| {
        let (body, losses) = converted(
            json!({"model": model, "input": "x", "temperature": 1.5, "top_p": 0.9, "top_k": 5, "reasoning": reasoning}),
        );
        (json!([body["temperature"], body["top_p"], body["top_k"]]), losses)
    };
    let fields = |fields: &[&str]| fields.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>();
    assert_eq!(sampled("claude-3-opus", Value::Null), (json!([1, 0.9, 5]), fields(&["temperature"])));
    assert_eq!(sampled("claude-sonnet-4-5", Value::Null), (json!([1, null, 5]), fields(&["top_p", "temperature"])));
    assert_eq!(
        sampled("claude-opus-4-7", Value::Null),
        (json!([null, null, null]), fields(&["temperature", "top_p", "top_k"]))
    );
    assert_eq!(
        sampled("claude-sonnet-4-5", json!({"effort": "low"})),
        (json!([null, null, null]), fields(&["temperature", "top_p", "top_k"]))
    );
}

#[test]
fn newer_models_think_by_effort() {
    let (body, losses) = converted(json!({"model": "claude-opus-4-7", "input": "x", "reasoning": {"effort": "high"}}));
    assert_eq!(body["thinking"], json!({"type": "adaptive", "display": "summarized"}));
    assert_eq!(body["output_config"], json!({"effort": "high"}));
    assert_eq!(body["max_tokens"], 4096 + 16_384);
    assert_eq!(losses, Vec::<String>::new());
}

fn tool_loop(encrypted: &str, effort: &str) -> Value {
    json!({
        "input": [{"role": "user", "content": "x"}, reasoning(encrypted), call("a", "weather", "{}"), output("a", json!("ok"))],
        "tools": [weather()], "reasoning": {"effort": effort}
    })
}

#[test]
fn own_reasoning_are_replayed_before_the_call_they_led_to() {
    let blocks = json!([{"type": "thinking", "thinking": "hm \"x\"", "signature": "sig"}, {"type": "redacted_thinking", "data": "zz"}]);
    let (body, losses) = converted(tool_loop(&sealed("claude", "tenant-1", blocks), "low"));
    assert_eq!(
        body["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": "hm \"x\"", "signature": "sig"},
            {"type": "redacted_thinking", "data": "zz"},
            {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
        ])
    );
    assert_eq!(body["thinking"]["type"], "enabled");
    assert_eq!(losses, Vec::<String>::new());
}

#[test]
fn reasoning_of_others_is_sent_as_their_summary_and_a_loop_without_its_reasoning_goes_on_without_thinking() {
    let blocks = json!([{"type": "thinking", "thinking": "t", "signature": "s"}]);
    for foreign in [
        sealed("other", "tenant-1", blocks.clone()),
        sealed_by("claude-opus-4-1", "claude", "tenant-1", blocks.clone()),
        sealed("claude", "tenant-2", blocks),
        "gAAAA".to_owned(),
    ] {
        let prepared = prepared(tool_loop(&foreign, "high"));
        let text = String::from_utf8(prepared.body.to_vec()).unwrap();
        assert!(!text.contains("signature") && !text.contains(&foreign), "{text}");
        assert_eq!(
            body(&prepared)["messages"][1]["content"],
            json!([
                {"type": "text", "text": "[Summary of earlier reasoning]\nshown"},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
            ])
        );
        assert_eq!(body(&prepared).get("thinking"), None);
        assert_eq!(body(&prepared)["max_tokens"], 4096);
        assert_eq!(lost(&prepared), vec!["reasoning.effort", "input.reasoning"]);
    }
}

#[test]
fn reasoning_of_others_without_a_summary_are_left_out_and_told_once() {
    let thought = json!({"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"});
    let (body, losses) = converted(json!({"input": [{"role": "user", "content": "x"}, thought, thought,
        {"role": "assistant", "content": "y"}, {"role": "user", "content": "z"}]}));
    assert_eq!(body["messages"][1], json!({"role": "assistant", "content": [{"type": "text", "text": "y"}]}));
    assert_eq!(losses, vec!["input.reasoning"]);
}

#[test]
fn own_reasoning_sealed_before_models_were_noted_are_replayed() {
    let blocks = json!([{"type": "thinking", "thinking": "t", "signature": "s"}]);
    let unnamed = PlainSeal.seal("tenant-1", json!({"upstream": "claude", "blocks": blocks}).to_string().as_bytes());
    let (body, losses) = converted(tool_loop(&unnamed, "low"));
    assert_eq!(body["messages"][1]["content"][0]["signature"], "s");
    assert_eq!(losses, Vec::<String>::new());
}

#[test]
fn a_model_that_decides_for_itself_goes_on_thinking_in_a_loop_without_reasoning() {
    let mut request = tool_loop("gAAAA", "low");
    request["model"] = json!("claude-opus-4-6");
    let (body, losses) = converted(request);
    assert_eq!(body["thinking"], json!({"type": "adaptive"}));
    assert_eq!(losses, vec!["input.reasoning"]);
}

#[test]
fn a_demanded_call_switches_thinking_off() {
    let request =
        json!({"input": "x", "tools": [weather()], "tool_choice": "required", "reasoning": {"effort": "low"}});
    let (body, losses) = converted(request);
    assert_eq!(body.get("thinking"), None);
    assert_eq!(losses, vec!["reasoning.effort"]);
}
