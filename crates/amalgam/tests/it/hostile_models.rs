//! A model that is malicious or confused: the turn ends after any call, the server lives, and all of it is
//! recorded.

use std::{collections::BTreeMap, time::Duration};

use amalgam_testkit::Gate;
use serde_json::{Value, json};

use crate::support::{
    DELIVERIES, Delivery, Said, Script, WIRES, Wire, Workshop, asking, asks, assert_calm, beside, calls, id_of, named,
    response_of, says, shown, stores, text_of,
};

fn question() -> Value {
    json!({"input": "What about Oslo?", "tools": [named("weather")]})
}

async fn workshop(store: &crate::support::TestStore) -> Workshop {
    let workshop = Workshop::on(store).await;
    workshop.put("weather", json!({})).await;
    workshop.service.always_for("/weather", says(json!("grey")));
    workshop
}

/// The number of calls of a turn that were recorded with each error; `-` for successful calls.
async fn written_down(workshop: &Workshop, response: &Value) -> BTreeMap<String, usize> {
    let record = workshop.turn_record(id_of(response)).await;
    let mut counts = BTreeMap::new();
    for (number, call) in record["tool_calls"].as_array().expect("a turn has calls").iter().enumerate() {
        assert_eq!(call["number"], number);
        *counts.entry(call["error"].as_str().unwrap_or("-").to_owned()).or_default() += 1;
    }
    counts
}

fn counts<const N: usize>(expected: [(&str, usize); N]) -> BTreeMap<String, usize> {
    expected.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

#[tokio::test]
async fn a_tool_that_was_not_offered_is_not_run_and_not_handed_to_the_client() {
    for store in stores() {
        let workshop = workshop(&store).await;
        // There, but not in this request; the name of a path of the server; nothing at all; far too much.
        workshop.put("traffic", json!({})).await;
        let long = "x".repeat(10_000);
        for wire in WIRES {
            for delivery in DELIVERIES {
                for name in ["traffic", "../../admin/keys", "bank", "weather ", "WEATHER", long.as_str()] {
                    let scripts = [calls("call_1", name, "Oslo"), Script::text(&["Sorry."])];
                    let response = workshop.turn(wire, delivery, &scripts, &question()).await;
                    let short: String = name.chars().take(40).collect();
                    let place = format!("{} {wire:?} {delivery:?} {short}", store.name);
                    assert_eq!(response["status"], "completed", "{place}");
                    assert_eq!(response["output"][0]["type"], "mcp_call", "{place}");
                    assert_eq!(response["output"][0]["status"], "failed", "{place}");
                    assert_eq!(text_of(&response), "Sorry.", "{place}");
                    assert_eq!(written_down(&workshop, &response).await, counts([("unknown_tool", 1)]), "{place}");
                }
            }
        }
        assert_eq!(workshop.service.requests().len(), 0);
        assert_calm(&workshop.world.amalgam);
    }
}

#[tokio::test]
async fn two_hundred_calls_at_once_are_a_few_at_a_time_and_then_no_more() {
    for store in stores() {
        let workshop = workshop(&store).await;
        let crowd = || {
            let said: Vec<Said> =
                (0..200).map(|number| asks(&format!("call_{number}"), "weather", &format!("city {number}"))).collect();
            Script::new(said)
        };
        for (turn, wire) in WIRES.into_iter().enumerate() {
            let gate = Gate::new();
            workshop.service.always_for("/weather", says(json!("grey")).behind(&gate));
            workshop.script(wire, Delivery::Stream, &[crowd(), Script::text(&["Enough."])]);
            let (client, request) = (workshop.client(), asking(wire, Delivery::Stream, &question()));
            let asked = beside(async move { client.post_json("/v1/responses", &request).await });
            workshop.service.wait_for_requests(32 * turn + 8).await;
            // A ninth would have had the time to come.
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(workshop.service.requests().len(), 32 * turn + 8, "{} {wire:?}", store.name);
            gate.open();
            let response = response_of(Delivery::Stream, &asked.end().await);
            assert_eq!((&response["status"], text_of(&response).as_str()), (&json!("completed"), "Enough."));
            assert_eq!(response["output"].as_array().map(Vec::len), Some(201));
            assert_eq!(workshop.service.requests().len(), 32 * (turn + 1), "{} {wire:?}", store.name);
            let expected = counts([("-", 32), ("too_many_calls_at_once", 168)]);
            assert_eq!(written_down(&workshop, &response).await, expected, "{} {wire:?}", store.name);
            // Every call has its own output.
            assert_eq!(workshop.told(wire).iter().filter(|(who, _)| who == "output").count(), 200);
        }
        assert_calm(&workshop.world.amalgam);
    }
}

#[tokio::test]
async fn the_same_call_for_ever_is_run_twice_and_ends_at_the_bound() {
    // O-29
    for store in stores() {
        let workshop = workshop(&store).await;
        for (turn, (wire, delivery)) in
            WIRES.into_iter().flat_map(|wire| DELIVERIES.map(|delivery| (wire, delivery))).enumerate()
        {
            let place = format!("{} {wire:?} {delivery:?}", store.name);
            workshop.world.upstream(wire).from_now_on(calls("call_1", "weather", "Oslo").reply(wire, delivery));
            let before = workshop.world.upstream(wire).requests().len();
            let answer = workshop.client().post_json("/v1/responses", &asking(wire, delivery, &question())).await;
            let response = response_of(delivery, &answer);
            assert_eq!(response["status"], "incomplete", "{place}");
            assert_eq!(response["incomplete_details"]["reason"], "max_tool_iterations", "{place}");
            assert_eq!(workshop.world.upstream(wire).requests().len() - before, 9, "{place}");
            assert_eq!(workshop.service.requests().len(), 2 * (turn + 1), "{place}");
            assert_eq!(written_down(&workshop, &response).await, counts([("-", 2), ("repeated", 6)]), "{place}");
            let told = workshop.told(wire);
            let repeated = told.iter().filter(|(who, _)| who == "output").nth(2).unwrap();
            assert!(repeated.1.contains("repeat_tool_call_detected"), "{place}: {repeated:?}");
        }
        // The same with its keys in another order, or with other spaces, is the same.
        let scripts = [
            Said::call("call_1", "weather", &[r#"{"city":"Rome"}"#]),
            Said::call("call_2", "weather", &[r#"{ "city" : "Rome" }"#]),
            Said::call("call_3", "weather", &["{\n\"city\":\"Rome\"\n}"]),
        ];
        let mut scripts: Vec<Script> = scripts.into_iter().map(|said| Script::new([said])).collect();
        scripts.push(Script::text(&["Grey."]));
        let before = workshop.service.requests().len();
        let response = workshop.turn(Wire::Chat, Delivery::Whole, &scripts, &question()).await;
        assert_eq!(response["status"], "completed");
        assert_eq!(workshop.service.requests().len() - before, 2);
    }
}

#[tokio::test]
async fn endless_bad_arguments_are_repaired_a_few_times_and_never_reach_the_tool() {
    let deep = format!("{}1{}", "[".repeat(2_000), "]".repeat(2_000));
    let large = format!(r#"{{"city":"x","more":"{}"}}"#, "y".repeat(200_000));
    let cases = [
        "{}",
        r#"{"city":1}"#,
        r#"{"city":"Oslo","and":"more"}"#,
        r#"["Oslo"]"#,
        "null",
        r#"{"city":"#,
        "city=Oslo",
        deep.as_str(),
        large.as_str(),
    ];
    for store in stores() {
        let workshop = workshop(&store).await;
        for arguments in cases {
            let bad = Script::new([Said::call("call_1", "weather", &[arguments])]);
            workshop.world.upstream(Wire::Chat).from_now_on(bad.reply(Wire::Chat, Delivery::Stream));
            let asked = asking(Wire::Chat, Delivery::Stream, &question());
            let response = response_of(Delivery::Stream, &workshop.client().post_json("/v1/responses", &asked).await);
            let place = format!("{} {}", store.name, arguments.chars().take(40).collect::<String>());
            assert_eq!(response["incomplete_details"]["reason"], "max_tool_repairs", "{place}: {}", response["status"]);
            assert_eq!(written_down(&workshop, &response).await, counts([("invalid_arguments", 3)]), "{place}");
            let error = response["output"][0]["output"].as_str().unwrap();
            assert!(error.contains("Not run: ") && error.len() < 2_000, "{place}: {error}");
        }
        assert_eq!(workshop.service.requests().len(), 0);
        assert_calm(&workshop.world.amalgam);
    }
}

#[tokio::test]
async fn calls_that_share_an_id_or_have_none_are_calls_of_their_own() {
    for store in stores() {
        let workshop = workshop(&store).await;
        for wire in WIRES {
            for delivery in DELIVERIES {
                let twins = Script::new([
                    asks("call_1", "weather", "Oslo"),
                    asks("call_1", "weather", "Rome"),
                    asks("", "weather", "Bonn"),
                ]);
                let response = workshop.turn(wire, delivery, &[twins, Script::text(&["Grey."])], &question()).await;
                let cities =
                    ["Oslo", "Rome", "Bonn"].map(|city| format!(r#"bank/weather({{"city":"{city}"}}) completed"#));
                assert_eq!(shown(&response)[..3], cities, "{} {wire:?} {delivery:?}", store.name);
                assert_eq!(workshop.told(wire).len(), 7, "three pairs after the question");
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_runs_nothing() {
    for store in stores() {
        let workshop = workshop(&store).await;
        for wire in WIRES {
            for delivery in DELIVERIES {
                let cut = Script::new([Said::text(&["I "]), asks("call_1", "weather", "Oslo")]).cut_by_length();
                let response = workshop.turn(wire, delivery, &[cut], &question()).await;
                let place = format!("{} {wire:?} {delivery:?}", store.name);
                assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens", "{place}");
                assert_eq!(shown(&response), ["message"], "{place}");
            }
        }
        assert_eq!(workshop.service.requests().len(), 0);
    }
}
