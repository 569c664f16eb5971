use amalgam_core::{CallSummary, TurnOrigin};
use amalgam_protocol::{Status, Usage};

use super::*;

fn call(model: &str, tokens: Option<u64>, cost: Option<u64>) -> CallSummary {
    CallSummary {
        upstream: "u".into(),
        model: model.into(),
        asked_at_ms: 0,
        first_token_ms: None,
        duration_ms: 0,
        retries: 0,
        usage: tokens.map(|tokens| Usage { input_tokens: tokens, ..Usage::default() }),
        cost: cost.map(Cost::from_nano_usd),
        failed: false,
    }
}

fn turn(calls: Vec<CallSummary>) -> TurnSummary {
    TurnSummary {
        response_id: "resp_1".into(),
        tenant_id: 1,
        user: "anna".into(),
        origin: TurnOrigin::default(),
        status: Status::Failed,
        error: None,
        created_at_ms: 2 * MS_PER_HOUR + 5,
        ended_at_ms: Some(2 * MS_PER_HOUR + 9),
        first_token_ms: None,
        calls,
        tools: Vec::new(),
        spans: Vec::new(),
        losses: 0,
        stored: true,
    }
}

#[test]
fn a_turn_counts_once_and_its_calls_count_with_their_models() {
    let turn = turn(vec![call("a", Some(5), Some(10)), call("b", Some(7), None), call("a", None, None)]);
    let rows: Vec<_> = usage_rows(&turn)
        .into_iter()
        .map(|row| {
            let sums = &row.sums;
            let counts = (sums.turns, sums.failed_turns, sums.calls, sums.unpriced_calls);
            (row.model, row.hour(), counts, sums.tokens.input, sums.cost.nano_usd())
        })
        .collect();
    assert_eq!(rows, [("a", 2, (1, 1, 2, 0), 5, 10), ("b", 2, (0, 0, 1, 1), 7, 0)]);
}

#[test]
fn a_turn_without_a_call_counts_without_a_model() {
    let turn = turn(Vec::new());
    let rows = usage_rows(&turn);
    assert_eq!(rows.iter().map(|row| (row.model, row.sums.turns, row.sums.calls)).collect::<Vec<_>>(), [("", 1, 0)]);
}

fn listed(at: u64) -> ListedTurn {
    ListedTurn {
        tenant_id: 1,
        response_id: format!("resp_{at}"),
        request_id: None,
        key_id: None,
        user: String::new(),
        wire: Wire::Responses,
        session_id: None,
        profile: None,
        requested_model: String::new(),
        upstream: None,
        model: None,
        status: String::new(),
        error: None,
        created_at_ms: at,
        ended_at_ms: None,
        first_token_ms: None,
        tokens: TokenSums::default(),
        cost: None,
        calls: 0,
        retries: 0,
        losses: 0,
        tools: Vec::new(),
        stored: true,
        trace_id: None,
    }
}

fn cursor(at: u64) -> TurnCursor {
    TurnCursor { created_at_ms: at, response_id: format!("resp_{at}") }
}

#[test]
fn a_page_over_several_tenants_ends_where_one_of_them_was_not_looked_at_further() {
    let pages = vec![
        TurnPage { turns: vec![listed(9), listed(5)], next: Some(cursor(5)) },
        TurnPage { turns: vec![listed(8), listed(2)], next: None },
    ];
    let page = merged(pages, 10);
    let times: Vec<u64> = page.turns.iter().map(|turn| turn.created_at_ms).collect();
    assert_eq!((times, page.next), (vec![9, 8, 5], Some(cursor(5))));
}

#[test]
fn a_page_over_several_tenants_has_no_more_turns_than_were_asked_for() {
    let pages = vec![
        TurnPage { turns: vec![listed(9), listed(5)], next: None },
        TurnPage { turns: vec![listed(8)], next: None },
    ];
    let page = merged(pages, 2);
    assert_eq!((page.turns.len(), page.next), (2, Some(cursor(8))));
}

#[test]
fn text_is_searched_as_it_stands_in_json_and_marks_of_patterns_are_letters() {
    assert_eq!(escaped(&json_text("50% \"a_b\"")), "50\\% \\\\\"a\\_b\\\\\"");
}
