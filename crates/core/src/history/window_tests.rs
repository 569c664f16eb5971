use amalgam_protocol::ResponseParameters;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::history::{
    normalise,
    normalise::tests::{items, paired, short},
};

/// Runs `check` on the history of these items.
fn with_history<T>(items: &Value, check: impl FnOnce(&History<'_>) -> T) -> T {
    let body = json!({"instructions": "Be brief.", "input": items}).to_string();
    let parameters = body.parse::<ResponseParameters>().unwrap();
    let request = parameters.view().unwrap();
    check(&normalise(request.instructions.as_ref(), request.input.as_ref()))
}

fn told(history: &History<'_>) -> Vec<String> {
    history.entries.iter().map(short).collect()
}

fn losses(history: &History<'_>) -> Vec<String> {
    history.losses.iter().map(ToString::to_string).collect()
}

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "done"})
}

/// Three turns; the first has a pair, the second has words of the application inside.
fn three_turns() -> Value {
    json!([
        said("developer", "rules"),
        said("user", "one"),
        {"type": "reasoning", "summary": []},
        call("a"),
        output("a"),
        said("assistant", "1"),
        said("user", "two"),
        said("developer", "more rules"),
        said("assistant", "2"),
        said("user", "three"),
    ])
}

/// Every entry weighs one.
fn fitted(items: &Value, budget: u64) -> Option<(Vec<String>, Vec<String>)> {
    with_history(items, |history| fit(history, budget, |_| 1).map(|fitted| (told(&fitted), losses(&fitted))))
}

#[test]
fn a_history_that_fits_stays_as_it_is() {
    assert_eq!(fitted(&three_turns(), 11), None);
}

#[test]
fn the_oldest_turns_go_as_wholes_and_words_of_the_application_stay() {
    let (told, losses) = fitted(&three_turns(), 10).unwrap();
    assert_eq!(
        told,
        ["developer: rules", "user: two", "developer: more rules", "assistant: 2", "user: three"],
        "one item too many costs the whole oldest turn"
    );
    assert_eq!(losses, ["input: the oldest turn (5 items) was left out to fit the context window"]);

    let (told, losses) = fitted(&three_turns(), 5).unwrap();
    assert_eq!(told, ["developer: rules", "developer: more rules", "user: three"]);
    assert_eq!(losses, ["input: the 2 oldest turns (7 items) were left out to fit the context window"]);
}

#[test]
fn the_last_turn_stays_even_if_it_is_too_long_and_a_single_one_is_left_alone() {
    assert_eq!(fitted(&three_turns(), 0).unwrap().0.last().unwrap(), "user: three");
    assert_eq!(fitted(&json!([said("user", "all"), call("a"), output("a")]), 0), None);
    assert_eq!(fitted(&json!([said("assistant", "a"), said("assistant", "b")]), 0), None);
    assert_eq!(fitted(&json!([]), 0), None);
}

#[test]
fn summaries_and_tools_stay_until_nothing_else_can_go() {
    let items = json!([
        said("user", "kept word for word"),
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"},
        {"type": "additional_tools", "tools": []},
        said("user", "old"),
        said("user", "new"),
    ]);
    let (told, _) = fitted(&items, 4).unwrap();
    assert_eq!(told, ["opaque compaction", "opaque additional_tools", "user: new"]);
    let (told, losses) = fitted(&items, 3).unwrap();
    assert_eq!(told, ["opaque additional_tools", "user: new"]);
    assert_eq!(losses, ["input: the 2 oldest turns (3 items) were left out to fit the context window"]);

    let only = json!([{"type": "compaction", "encrypted_content": "x"}, said("user", "new")]);
    let (told, losses) = fitted(&only, 1).unwrap();
    assert_eq!(told, ["user: new"]);
    assert_eq!(losses, ["input: the summary of what came before was left out to fit the context window"]);
}

#[test]
fn what_a_tool_gave_back_beside_text_does_not_begin_a_turn() {
    let items = json!([
        said("user", "one"),
        {"type": "function_call_output", "call_id": "lost", "output": [
            {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
        said("user", "two"),
    ]);
    let (told, _) = fitted(&items, 3).unwrap();
    assert_eq!(told, ["user: two"], "the image goes together with the turn that it belongs to");
}

#[test]
fn the_latest_turns_are_left_as_many_as_are_asked_for_and_one_at_least() {
    let items: Vec<Value> = (0..5).map(|n| said("user", &n.to_string())).collect();
    with_history(&Value::from(items), |history| {
        let left = |kept| latest(history, kept).map(|history| told(&history));
        assert_eq!(turns(history), 5);
        assert_eq!(left(5), None);
        assert_eq!(left(usize::MAX), None);
        assert_eq!(left(2).unwrap(), ["user: 3", "user: 4"]);
        assert_eq!(left(1).unwrap(), ["user: 4"]);
        assert_eq!(left(0), left(1));
        let one = latest(history, 1).unwrap();
        assert_eq!(turns(&one), 1);
        assert_eq!(losses(&one), ["input: the 4 oldest turns (4 items) were left out to fit the context window"]);
    });
    with_history(&three_turns(), |history| assert_eq!(turns(history), 3, "rules before the first turn are none"));
    with_history(&json!([]), |history| assert_eq!((turns(history), latest(history, 0)), (0, None)));
}

#[test]
fn an_answer_gets_its_share_of_the_window_but_never_more_than_half() {
    assert_eq!(room(1000, None), 850);
    assert_eq!(room(1000, Some(100)), 900);
    assert_eq!(room(1000, Some(100_000)), 500);
    assert_eq!(room(0, None), 0);
    assert!(room(u64::MAX, None) > 0);
}

#[test]
fn only_a_prompt_that_is_too_long_beyond_doubt_is_refused_unasked() {
    let count = |text, media| TokenCount { text, media };
    assert!(refuse(count(1250, 0), 1000, false).is_ok(), "the count may be a quarter too high");
    assert!(refuse(count(900, 100_000), 1000, false).is_ok(), "the cost of an image is unknown");
    let fault = refuse(count(1251, 9), 1000, false).unwrap_err();
    assert_eq!(fault.kind, FaultKind::ContextLength);
    assert_eq!((fault.param.as_deref(), fault.code.as_deref()), (Some("input"), Some("context_length_exceeded")));
    assert!(fault.message.contains("about 1260 tokens") && fault.message.contains("holds 1000"), "{fault}");
    assert!(refuse(count(u64::MAX, u64::MAX), 1, false).is_err());
}

#[test]
fn everything_that_is_said_is_weighed() {
    let items = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
        call("a"),
        output("a"),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "xxxxxxxx"},
    ]);
    with_history(&items, |history| {
        let spoken: Vec<(String, u64)> =
            history.entries.iter().map(CountableText::of).map(|CountableText { text, media }| (text, media)).collect();
        let expected = [("look", 1), ("f {}", 0), ("done", 0), ("hm", 0)];
        assert_eq!(spoken, expected.map(|(text, media)| (text.to_owned(), media)));
        let weight = CountableText::of(&history.entries[0]).weight(|text| text.len() as u64);
        assert_eq!(weight, 4 + TokenCount::PER_MEDIA + TokenCount::PER_MESSAGE);
    });
}

#[test]
fn a_message_between_a_call_and_its_output_begins_no_turn() {
    // right A1
    let items = json!([
        said("user", "one"),
        call("a"),
        said("user", "hurry"),
        output("a"),
        said("assistant", "1"),
        said("user", "two"),
    ]);
    let (left, lost) = fitted(&items, 4).unwrap();
    assert_eq!(left, ["user: two"]);
    assert_eq!(lost, ["input: the oldest turn (5 items) was left out to fit the context window"]);
}

/// The remaining entries when the `gone` oldest turns are dropped, by the simplest reading of the rule.
fn by_the_rule(entries: &[Entry<'_>], gone: usize) -> Vec<String> {
    // Entries before the first message of the user count as a turn if one of them may be dropped.
    let head = entries.iter().take_while(|entry| !starts_turn(entry)).any(|entry| !is_kept(entry));
    let mut begun = usize::from(head);
    let mut told = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let count = |is: fn(&Entry<'_>) -> bool| entries.iter().take(index).filter(|entry| is(entry)).count();
        let unanswered =
            count(|entry| matches!(entry, Entry::Call(_))) - count(|entry| matches!(entry, Entry::Output(_)));
        begun += usize::from(unanswered == 0 && starts_turn(entry));
        if is_kept(entry) || begun > gone {
            told.push(short(entry));
        }
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn whatever_the_list_the_longest_end_that_fits_is_left_and_pairs_stay_whole(items in items(), budget in 0_u64..30) {
        // Weights differ, so that what is dropped matters.
        fn weigh(entry: &Entry<'_>) -> u64 {
            1 + short(entry).len() as u64 % 3
        }
        with_history(&Value::from(items), |history| {
            let instructions: u64 = history.instructions.iter().map(weigh).sum();
            let total = |entries: &[Entry<'_>]| instructions + entries.iter().map(weigh).sum::<u64>();
            let turns = Turns::of(&history.entries);
            let fitted = fit(history, budget, weigh);
            let left = fitted.as_ref().map_or(&history.entries, |fitted| &fitted.entries);

            paired(left).unwrap();
            prop_assert_eq!(losses(history).len() + usize::from(fitted.is_some()), fitted.as_ref().unwrap_or(history).losses.len());
            // All ends, the longest first; summaries go with the last of them only.
            let mut ends: Vec<Vec<String>> = (0..turns.0.len().max(1)).map(|gone| by_the_rule(&history.entries, gone)).collect();
            let last = turns.range(turns.droppable()).start;
            let without = |(index, entry): (usize, &Entry<'_>)| {
                let goes = index < last && (!is_kept(entry) || is_summary(entry));
                (!goes).then(|| short(entry))
            };
            ends.push(history.entries.iter().enumerate().filter_map(without).collect());
            let place = ends.iter().position(|end| *end == told(&History { entries: left.clone(), ..History::default() }));
            prop_assert!(place.is_some(), "{:?} is no end of {:?}", left, history.entries);
            if total(left) > budget {
                prop_assert_eq!(ends.last(), Some(&left.iter().map(short).collect::<Vec<_>>()), "nothing more could go");
            }
            // Every longer end is too heavy.
            let weigh_told = |end: &Vec<String>| instructions + end.iter().map(|text| 1 + text.len() as u64 % 3).sum::<u64>();
            for longer in ends.iter().take(place.unwrap_or(0)).filter(|end| end.len() > left.len()) {
                prop_assert!(weigh_told(longer) > budget, "{:?} would have fitted into {}", longer, budget);
            }
            Ok(())
        })?;
    }
}
