use amalgam_core::{Cost, TurnOrigin, Wire};
use amalgam_protocol::Usage;

use super::*;

fn metrics() -> Arc<Metrics> {
    let build = BuildInfo { version: "1.2.3".into(), commit: "abc".into(), started_at_ms: 1_500 };
    Metrics::new(&build, MetricSources::default())
}

fn text(metrics: &Metrics) -> String {
    metrics.render(LiveState::default(), ExpositionFormat::Text)
}

fn summary(calls: Vec<CallSummary>) -> TurnSummary {
    TurnSummary {
        response_id: "resp_1".into(),
        tenant_id: 7,
        user: "anna".into(),
        origin: TurnOrigin { wire: Wire::Execute, ..TurnOrigin::default() },
        status: Status::Completed,
        error: None,
        created_at_ms: 0,
        ended_at_ms: Some(40),
        first_token_ms: Some(20),
        calls,
        tools: Vec::new(),
        spans: Vec::new(),
        losses: 0,
        stored: true,
    }
}

fn call(model: &str, usage: Usage) -> CallSummary {
    CallSummary {
        upstream: "openai".into(),
        model: model.into(),
        asked_at_ms: 0,
        first_token_ms: Some(20),
        duration_ms: 40,
        retries: 2,
        usage: Some(usage),
        cost: Some(Cost::from_nano_usd(250_000_000)),
        failed: false,
    }
}

#[test]
fn a_turn_is_counted_for_its_model_upstream_tenant_and_door() {
    let metrics = metrics();
    let usage = Usage { input_tokens: 10, cached_tokens: 4, output_tokens: 3, reasoning_tokens: 1, ..Usage::default() };
    metrics.turn_ended(&summary(vec![call("gpt", usage), call("gpt", usage)]));
    let text = text(&metrics);
    for line in [
        r#"amalgam_turns_total{door="execute",model="gpt",upstream="openai",status="completed"} 1"#,
        r#"amalgam_tokens_total{model="gpt",kind="input"} 20"#,
        r#"amalgam_tokens_total{model="gpt",kind="cached_input"} 8"#,
        r#"amalgam_tokens_total{model="gpt",kind="output"} 6"#,
        r#"amalgam_tokens_total{model="gpt",kind="reasoning"} 2"#,
        r#"amalgam_cost_usd_total{model="gpt"} 0.5"#,
        r#"amalgam_tenant_cost_usd_total{tenant="7"} 0.5"#,
        r#"amalgam_tenant_turns_total{tenant="7",status="ended"} 1"#,
        r#"amalgam_upstream_requests_total{upstream="openai",status="ok"} 2"#,
        r#"amalgam_upstream_retries_total{upstream="openai"} 4"#,
        r#"amalgam_time_to_first_token_seconds_count{upstream="openai"} 1"#,
        r#"gen_ai_client_token_usage_sum{gen_ai_operation_name="chat",gen_ai_provider_name="_OTHER",gen_ai_request_model="gpt",gen_ai_token_type="input"} 20.0"#,
        r#"gen_ai_client_token_usage_count{gen_ai_operation_name="chat",gen_ai_provider_name="_OTHER",gen_ai_request_model="gpt",gen_ai_token_type="output"} 2"#,
        r#"gen_ai_client_operation_duration_seconds_count{gen_ai_operation_name="chat",gen_ai_provider_name="_OTHER",gen_ai_request_model="gpt"} 2"#,
        r#"amalgam_build_info{version="1.2.3",commit="abc"} 1"#,
        "process_start_time_seconds 1.5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
    }
}

#[test]
fn no_label_has_more_than_two_hundred_values() {
    let metrics = metrics();
    for number in 0..1000 {
        metrics.turn_ended(&summary(vec![call(&format!("model-{number}"), Usage::default())]));
        metrics.tool_ended(&format!("tool-{number}"), None, Duration::ZERO);
        metrics.failed(Door::Responses, &format!("class-{number}"));
    }
    let text = text(&metrics);
    for (name, label) in [
        ("amalgam_turns_total{", "model=\""),
        ("amalgam_tool_calls_total{", "tool=\""),
        ("amalgam_errors_total{", "class=\""),
    ] {
        let lines = text.lines().filter(|line| line.starts_with(name));
        let values: std::collections::HashSet<&str> =
            lines.filter_map(|line| line.split_once(label)?.1.split('"').next()).collect();
        assert!(values.len() <= 200 && values.contains("other"), "{name} has {} values", values.len());
    }
}

#[test]
fn a_queue_that_cannot_be_counted_is_left_out() {
    let metrics = metrics();
    let depth = |depth| LiveState { queued: vec![(TurnQueue::Background, depth)], ..LiveState::default() };
    let line = r#"amalgam_queue_depth{queue="background"} 3"#;
    assert!(metrics.render(depth(Some(3)), ExpositionFormat::Text).contains(line));
    assert!(!metrics.render(depth(None), ExpositionFormat::Text).contains("amalgam_queue_depth{"));
}
