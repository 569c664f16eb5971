//! Results of tools that the client ran: in identity and order, or every difference is reported and the turn stays pending.

use amalgam_testkit::Reply;
use serde_json::{Value, json};

use super::desk::{
    Desk, assert_envelope, both, execute, heard, open, refusal, result, results, session, standing, status, taken,
    turn, words,
};
use crate::support::{Said, Script, WIRES, Wire, stores, told};

/// The ids of the calls that an envelope hands over.
fn calls(envelope: &Value) -> Vec<&str> {
    let calls = envelope["ToolCalls"].as_array().expect("calls are a list");
    calls.iter().map(|call| call["CallId"].as_str().expect("a call has an id")).collect()
}

#[tokio::test]
async fn results_in_order_let_the_same_turn_go_on() {
    // R003-31, R034-04, R034-19, R034-27, C-06, C-07
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            desk.says(wire, [both(), Script::text(&["All is well."])]);
            let waiting = taken(&ana, &turn(&id, "t1", "Check it")).await;
            assert_eq!(
                (&waiting["Kind"], calls(&waiting)),
                (&json!("tool-only"), vec!["call_a", "call_b"]),
                "{wire:?}"
            );
            assert_eq!(status(&ana, &id, "t1").await, ("pending".to_owned(), 1));
            assert_eq!(session(&ana, &id).await["PendingTurnId"], "t1");

            let done = taken(&ana, &results(&id, "t1", &[("call_a", "{ \"ok\" : 1 }"), ("call_b", "green")])).await;
            let found = ["Kind", "ConversationId", "TurnId", "Text"].map(|name| done[name].clone());
            assert_eq!(found, [json!("ok"), json!(id), json!("t1"), json!("All is well.")], "{wire:?}");
            assert_ne!(done["ResponseContinuationId"], waiting["ResponseContinuationId"]);
            assert_eq!(status(&ana, &id, "t1").await, ("completed".to_owned(), 2));
            assert_eq!(standing(&ana, &id, "t1").await["Result"], done);
            assert_eq!(session(&ana, &id).await["PendingTurnId"], Value::Null);
            // The model receives the outputs of its calls, unchanged, and nothing in between.
            let lines = heard(desk.asked(wire).last().expect("the model was asked"));
            let said: Vec<(&str, &str)> = lines[1..].iter().map(|(who, text)| (who.as_str(), text.as_str())).collect();
            let expected = [
                ("user", &*words("general", "Check it")),
                ("call", "read_file{\"path\":\"src/é.rs\"}"),
                ("call", "run_tests{\"filter\":\"all\"}"),
                ("output", "{ \"ok\" : 1 }"),
                ("output", "green"),
            ];
            assert_eq!(sorted(said), sorted(expected.to_vec()), "{wire:?}");
            desk.assert_asked(wire, 2, store.name);
        }
    }
}

/// Wires differ in whether an output follows each call or all of them; `told` has checked their order.
fn sorted<'a>(mut lines: Vec<(&'a str, &'a str)>) -> Vec<(&'a str, &'a str)> {
    lines.sort_unstable();
    lines
}

/// The calls that are named, and the field and code of every difference.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);

#[tokio::test]
async fn any_mismatch_is_told_in_full_and_a_corrected_submission_still_works() {
    // R034-15, R034-18, C-13
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        desk.says(Wire::Responses, [both()]);
        taken(&ana, &turn(&id, "t1", "Check it")).await;
        let cases: [Case<'_>; 7] = [
            (&["call_a"], &[("ToolResults", "missing_result")]),
            (
                &["call_b", "call_a"],
                &[("ToolResults[0].ToolCallId", "reordered_result"), ("ToolResults[1].ToolCallId", "reordered_result")],
            ),
            (&["call_a", "call_b", "call_c"], &[("ToolResults[2].ToolCallId", "extra_result")]),
            (&["call_a", "call_b", "call_b"], &[("ToolResults[2].ToolCallId", "duplicate_result")]),
            (
                &["CALL_A", "call_b"],
                &[("ToolResults[0].ToolCallId", "extra_result"), ("ToolResults", "missing_result")],
            ),
            (
                &["call_a "],
                &[
                    ("ToolResults[0].ToolCallId", "extra_result"),
                    ("ToolResults", "missing_result"),
                    ("ToolResults", "missing_result"),
                ],
            ),
            (
                &["call_b", "x", "call_a", "call_a"],
                &[
                    ("ToolResults[1].ToolCallId", "extra_result"),
                    ("ToolResults[3].ToolCallId", "duplicate_result"),
                    ("ToolResults[0].ToolCallId", "reordered_result"),
                    ("ToolResults[2].ToolCallId", "reordered_result"),
                ],
            ),
        ];
        for (submitted, expected) in cases {
            let submitted: Vec<(&str, &str)> = submitted.iter().map(|call_id| (*call_id, "x")).collect();
            let answer = execute(&ana, &results(&id, "t1", &submitted)).await;
            let (found, code, faults) = refusal(&answer);
            let faults: Vec<(&str, &str)> = faults.iter().map(|(field, code)| (&**field, &**code)).collect();
            assert_eq!((found, &*code, faults), (409, "results_mismatch", expected.to_vec()), "{submitted:?}");
            assert_eq!(status(&ana, &id, "t1").await, ("pending".to_owned(), 1), "{submitted:?}");
        }
        desk.assert_asked(Wire::Responses, 1, store.name);
        desk.says(Wire::Responses, [Script::text(&["Fine."])]);
        let done = taken(&ana, &results(&id, "t1", &[("call_a", "1"), ("call_b", "2")])).await;
        assert_eq!(done["Text"], "Fine.", "{}", store.name);
        desk.assert_asked(Wire::Responses, 2, store.name);
    }
}

#[tokio::test]
async fn results_are_taken_once_and_sent_again_they_are_answered_from_what_is_kept() {
    // R034-17: another answer than the origin's, which has forgotten the turn by then. C-13
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Chat).await;
        desk.says(Wire::Chat, [both(), Script::text(&["Fine."])]);
        let begun = execute(&ana, &turn(&id, "t1", "Check it")).await;
        let body = results(&id, "t1", &[("call_a", "1"), ("call_b", "2")]);
        let first = execute(&ana, &body).await;
        assert_eq!((first.status.as_u16(), first.header("idempotent-replayed")), (200, None), "{}", first.text());
        let mut slower = body.clone();
        slower["ToolResults"][0]["ExecutionMs"] = json!(9.5);
        for again in [&body, &slower] {
            let again = execute(&ana, again).await;
            assert_eq!((again.text(), again.header("idempotent-replayed")), (first.text(), Some("true")));
        }
        // The step before is still there under its own body.
        let before = execute(&ana, &turn(&id, "t1", "Check it")).await;
        assert_eq!((before.text(), before.header("idempotent-replayed")), (begun.text(), Some("true")));
        // Other results come too late.
        for other in [[("call_a", "1"), ("call_b", "3")], [("call_b", "2"), ("call_a", "1")]] {
            let answer = execute(&ana, &results(&id, "t1", &other)).await;
            let (found, code, _) = refusal(&answer);
            assert_eq!((found, code.as_str()), (409, "turn_not_pending"), "{}", answer.text());
        }
        assert_eq!(status(&ana, &id, "t1").await, ("completed".to_owned(), 2));
        desk.assert_asked(Wire::Chat, 2, store.name);
    }
}

#[tokio::test]
async fn a_tool_that_failed_is_a_result_and_the_model_hears_of_it() {
    // R034-16, R034-20, C-14, C-15
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            desk.says(wire, [both(), Script::text(&["I see."])]);
            taken(&ana, &turn(&id, "t1", "Check it")).await;
            let failed = |call_id: &str, message: &str| json!({"ToolCallId": call_id, "ExecutionMs": 1, "ErrorMessage": message});
            let failed = [failed("call_a", "no such file"), failed("call_b", "{\"exit\": 2}")];
            let done = taken(&ana, &json!({"SessionId": id, "TurnId": "t1", "ToolResults": failed})).await;
            assert_eq!(done["Kind"], "ok", "{wire:?}");
            let outputs: Vec<Value> = told(desk.asked(wire).last().unwrap())
                .into_iter()
                .filter(|(who, _)| who == "output")
                .map(|(_, text)| serde_json::from_str(&text).expect("a failure is told as JSON"))
                .collect();
            let told = |result: Value| json!({"status": "failed", "result": result});
            assert_eq!(outputs, [told(json!("no such file")), told(json!({"exit": 2}))], "{wire:?}");
        }
    }
}

#[tokio::test]
async fn a_turn_may_ask_for_tools_again_and_again() {
    // R034-19
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            let mut waiting = {
                desk.says(wire, [Script::new([Said::call("call_0", "read_file", &["{\"path\":\"0\"}"])])]);
                taken(&ana, &turn(&id, "t1", "Read on")).await
            };
            for round in 1..5 {
                let next = format!("call_{round}");
                let script = match round {
                    4 => Script::text(&["The end."]),
                    _ => Script::new([Said::call(&next, "read_file", &["{\"path\":\"more\"}"])]),
                };
                desk.says(wire, [script]);
                let call_id = calls(&waiting)[0].to_owned();
                // What an earlier round waited for is no answer to this one.
                if round > 1 {
                    let late = execute(&ana, &results(&id, "t1", &[("call_0", "another text")])).await;
                    assert_eq!(refusal(&late).1, "results_mismatch", "{}", late.text());
                }
                waiting = taken(&ana, &results(&id, "t1", &[(&call_id, &format!("page {round}"))])).await;
            }
            assert_eq!((&waiting["Text"], &waiting["TurnId"]), (&json!("The end."), &json!("t1")), "{wire:?}");
            assert_eq!(status(&ana, &id, "t1").await, ("completed".to_owned(), 5), "{wire:?}");
            let outputs: Vec<String> = told(desk.asked(wire).last().unwrap())
                .into_iter()
                .filter(|(who, _)| who == "output")
                .map(|(_, text)| text)
                .collect();
            assert_eq!(outputs, ["page 1", "page 2", "page 3", "page 4"], "{wire:?}");
            desk.assert_asked(wire, 5, store.name);
        }
    }
}

#[tokio::test]
async fn a_new_turn_gives_up_one_that_waits_and_says_so() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            desk.says(wire, [both(), Script::text(&["As you wish."]), Script::text(&["Yes."])]);
            taken(&ana, &turn(&id, "t1", "Check it")).await;
            let next = taken(&ana, &turn(&id, "t2", "Never mind")).await;
            let warnings = next["Warnings"].to_string();
            assert!(warnings.contains("t1"), "{wire:?}: {warnings}");
            assert_eq!(status(&ana, &id, "t1").await, ("given_up".to_owned(), 1));
            let late = execute(&ana, &results(&id, "t1", &[("call_a", "1"), ("call_b", "2")])).await;
            let (found, code, _) = refusal(&late);
            assert_eq!((found, code.as_str()), (409, "turn_not_pending"), "{wire:?}: {}", late.text());
            // In the history that the model sees every call has its output (`told` checks that).
            told(desk.asked(wire).last().unwrap());
            let third = taken(&ana, &turn(&id, "t3", "Are you there?")).await;
            assert_eq!((&third["Text"], &third["Warnings"]), (&json!("Yes."), &json!([])), "{wire:?}");
            told(desk.asked(wire).last().unwrap());
            desk.assert_asked(wire, 3, store.name);
        }
    }
}

#[tokio::test]
async fn results_for_a_turn_that_waits_for_none_are_refused() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Chat).await;
        desk.says(Wire::Chat, [Script::text(&["Nothing to do."])]);
        taken(&ana, &turn(&id, "t1", "Hello")).await;
        let failing = Reply::status(500).with_json(json!({"error": {"message": "no"}}));
        desk.replies(Wire::Chat, failing);
        assert_eq!(execute(&ana, &turn(&id, "t2", "Hello")).await.json()["Kind"], "error");
        for turn_id in ["t1", "t2"] {
            let answer = execute(&ana, &results(&id, turn_id, &[("call_a", "1")])).await;
            let (found, code, _) = refusal(&answer);
            assert_eq!((found, code.as_str()), (409, "turn_not_pending"), "{turn_id}: {}", answer.text());
        }
        desk.assert_asked(Wire::Chat, 2, store.name);
    }
}

#[tokio::test]
async fn a_continuation_that_fails_can_be_sent_again() {
    // C-13, C-20
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            desk.says(wire, [both()]);
            taken(&ana, &turn(&id, "t1", "Check it")).await;
            desk.replies(wire, Reply::status(500).with_json(json!({"error": {"message": "no"}})));
            let body = results(&id, "t1", &[("call_a", "1"), ("call_b", "2")]);
            let failed = execute(&ana, &body).await;
            assert_envelope(&failed.json());
            assert_eq!((failed.status.as_u16(), &failed.json()["Kind"]), (200, &json!("error")), "{wire:?}");
            assert_eq!(failed.json()["TurnId"], "t1");
            desk.says(wire, [Script::text(&["At last."])]);
            assert_eq!(taken(&ana, &body).await["Text"], "At last.", "{wire:?}");
            assert_eq!(status(&ana, &id, "t1").await, ("completed".to_owned(), 2), "{wire:?}");
            desk.assert_asked(wire, 3, store.name);
        }
    }
}

#[tokio::test]
async fn results_may_be_any_json_and_reach_the_model_as_they_were_written() {
    // R034-14
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        for (number, (result_json, expected)) in [
            (json!("plain\n[TOOL_RESULTS]"), "plain\n[TOOL_RESULTS]"),
            (json!(""), ""),
            (json!({"a": [1, null]}), "{\"a\":[1,null]}"),
            (json!(false), "false"),
        ]
        .into_iter()
        .enumerate()
        {
            let turn_id = format!("t{number}");
            desk.says(
                Wire::Responses,
                [Script::new([Said::call("call_a", "read_file", &["{\"path\":\"x\"}"])]), Script::text(&["Ok."])],
            );
            let waiting = taken(&ana, &turn(&id, &turn_id, "Read")).await;
            let mut one = result(calls(&waiting)[0], "");
            one["ResultJson"] = result_json;
            taken(&ana, &json!({"SessionId": id, "TurnId": turn_id, "ToolResults": [one]})).await;
            let lines = told(desk.asked(Wire::Responses).last().unwrap());
            let output = lines.iter().rfind(|(who, _)| who == "output").map(|(_, text)| text.as_str());
            assert_eq!(output, Some(expected), "{}", store.name);
        }
    }
}

#[tokio::test]
async fn a_model_that_uses_the_id_of_a_call_again_is_answered_each_time() {
    // R034-15, R034-17, C-13
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            let same = || Script::new([Said::call("call_1", "read_file", &["{\"path\":\"a\"}"])]);
            desk.says(wire, [same(), same(), Script::text(&["Read twice."]), same(), Script::text(&["And again."])]);
            let first = taken(&ana, &turn(&id, "t1", "Read it twice")).await;
            assert_eq!(calls(&first), ["call_1"], "{wire:?}");
            let second = taken(&ana, &results(&id, "t1", &[("call_1", "text")])).await;
            let again = calls(&second)[0].to_owned();
            assert_ne!(again, "call_1", "{wire:?}: another call has another id");
            // The same result for the first call is a repeated submission, and no model is called.
            assert_eq!(taken(&ana, &results(&id, "t1", &[("call_1", "text")])).await, second, "{wire:?}");
            let done = taken(&ana, &results(&id, "t1", &[(&again, "text")])).await;
            assert_eq!(done["Text"], "Read twice.", "{wire:?}");
            assert_eq!(status(&ana, &id, "t1").await, ("completed".to_owned(), 3), "{wire:?}");
            let third = taken(&ana, &turn(&id, "t2", "Once more")).await;
            let third = calls(&third)[0].to_owned();
            assert!(third != "call_1" && third != again, "{wire:?}: {third}");
            assert_eq!(taken(&ana, &results(&id, "t2", &[(&third, "text")])).await["Text"], "And again.", "{wire:?}");
            // Each call is before its own output (`told` checks that).
            let lines = told(desk.asked(wire).last().unwrap());
            assert_eq!(lines.iter().filter(|(who, _)| who == "output").count(), 3, "{wire:?}: {lines:?}");
            desk.assert_asked(wire, 5, store.name);
        }
    }
}
