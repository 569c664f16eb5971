//! User turns: the whole envelope, what the model receives, what is sent again, and what fails.

use amalgam_testkit::{Reply, Setup};
use serde_json::{Value, json};

use super::desk::{
    Desk, KEY, PROMPT, both, execute, heard, open, opened, put, refusal, results, standing, status, taken, turn, words,
};
use crate::support::{Said, Script, WIRES, Wire, stores};

#[tokio::test]
async fn a_turn_is_answered_with_the_whole_envelope() {
    // R004-01 to R004-06, R004-08, R004-09, R004-13, R004-16, R004-26, R034-26, C-08, C-11
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            desk.says(wire, [Script::text(&["Hello ", "there."])]);
            let mut envelope = taken(&ana, &turn(&id, "t1", "Hello")).await;
            let (response, raw) = (envelope["ResponseContinuationId"].take(), envelope["RawResponseJson"].take());
            let expected = json!({
                "Kind": "ok", "ConversationId": id, "TurnId": "t1", "AgentContextId": wire.kind(),
                "ConversationContextId": null, "ResponseContinuationId": null, "Mode": "general", "ModelId": "upstream-name",
                "Text": "Hello there.", "FinishReason": "stop",
                "Usage": {"PromptTokens": 11, "CompletionTokens": 7, "TotalTokens": 18},
                "Sources": [], "FileBundle": null, "Warnings": [], "ErrorCode": null, "ErrorMessage": null,
                "RawResponseJson": null, "ToolCalls": [],
            });
            assert_eq!(envelope, expected, "{wire:?}");
            let raw: Value = serde_json::from_str(raw.as_str().expect("the response is shown")).expect("it is JSON");
            assert_eq!(raw["model"], "upstream-name", "what the model's server sent");
            assert!(response.as_str().is_some_and(|id| id.starts_with("resp_AM-")), "{response}");
            assert_eq!(status(&ana, &id, "t1").await, ("completed".to_owned(), 1));
            desk.assert_asked(wire, 1, store.name);
        }
    }
}

#[tokio::test]
async fn the_model_is_told_its_task_its_mode_and_all_that_was_said() {
    // R003-10, R003-14, R003-15, R003-24, R003-25, R003-26, R004-08, C-05, C-25
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let mode = json!({"display_name": "Poems", "system_prompt": "Speak in verse.", "tools": []});
        put(&desk.admin(KEY), "/admin/modes/POETRY", &mode).await;
        for wire in WIRES {
            let id = opened(&ana, &json!({"AgentContextId": wire.kind(), "Mode": "poetry"})).await;
            desk.says(wire, [Script::text(&["One."]), Script::text(&["Two."])]);
            taken(&ana, &turn(&id, "t1", "# First\n\n*raw* ")).await;
            taken(&ana, &turn(&id, "t2", "Second")).await;
            let lines = heard(desk.asked(wire).last().expect("the model was asked"));
            let system: Vec<&(String, String)> = lines.iter().filter(|(who, _)| who == "system").collect();
            assert_eq!((system.len(), &lines[0]), (1, system[0]), "{wire:?}: {lines:?}");
            let places = [PROMPT, "Speak in verse."].map(|text| system[0].1.find(text));
            assert!(places[0].is_some() && places[0] < places[1], "{wire:?}: {lines:?}");
            let said: Vec<(&str, &str)> = lines[1..].iter().map(|(who, text)| (who.as_str(), text.as_str())).collect();
            let (first, second) = (words("POETRY", "# First\n\n*raw* "), words("POETRY", "Second"));
            assert_eq!(said, [("user", &*first), ("assistant", "One."), ("user", &second)], "{wire:?}");
        }
    }
}

#[tokio::test]
async fn the_same_turn_again_is_the_same_answer_without_another_model_call() {
    // C-11
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        desk.says(Wire::Responses, [Script::text(&["Once."])]);
        let body = turn(&id, "t1", "Hello");
        let first = execute(&ana, &body).await;
        assert_eq!(first.header("idempotent-replayed"), None);
        for _ in 0..3 {
            let again = execute(&ana, &body).await;
            assert_eq!((again.status, again.header("idempotent-replayed")), (first.status, Some("true")));
            assert_eq!(again.text(), first.text());
        }
        // Another body under the same `TurnId` is refused, and changes nothing.
        let mut others = vec![turn(&id, "t1", "Hello!")];
        for (name, value) in
            [("Repo", json!("r")), ("SolutionContextText", json!("s")), ("AgentContextId", json!("chat"))]
        {
            let mut other = body.clone();
            other[name] = value;
            others.push(other);
        }
        for other in &others {
            let answer = execute(&ana, other).await;
            let (status, code, _) = refusal(&answer);
            assert_eq!((status, code.as_str()), (409, "turn_id_reused"), "{other}: {}", answer.text());
        }
        assert_eq!(execute(&ana, &body).await.text(), first.text());
        // In another session the name is free.
        desk.says(Wire::Responses, [Script::text(&["Elsewhere."])]);
        let other = open(&ana, Wire::Responses).await;
        assert_eq!(taken(&ana, &turn(&other, "t1", "Hello")).await["Text"], "Elsewhere.");
        desk.assert_asked(Wire::Responses, 2, store.name);
    }
}

#[tokio::test]
async fn kinds_and_reasons_follow_what_the_model_did() {
    // R004-13, R004-15, R004-16, R004-18, R004-20, R004-21, R004-22, R004-31, R004-32, R004-34, R034-27, C-09, C-35
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let call = || Said::call("call_a", "read_file", &["{ \"path\" :", " \"src/é.rs\"}"]);
            let cases = [
                (Script::text(&["I cannot find it."]), "ok", Some("I cannot find it."), "stop", 0),
                (Script::text(&["half"]).cut_by_length(), "ok", Some("half"), "length", 0),
                (Script::new([Said::text(&["Let me look."]), call()]), "ok", Some("Let me look."), "tool_use", 1),
                (Script::new([call()]), "tool-only", None, "tool_use", 1),
                (both(), "tool-only", None, "tool_use", 2),
            ];
            for (number, (script, kind, text, reason, calls)) in cases.into_iter().enumerate() {
                let id = open(&ana, wire).await;
                desk.says(wire, [script]);
                let envelope = taken(&ana, &turn(&id, &format!("t{number}"), "Look")).await;
                let found = (envelope["Kind"].as_str(), envelope["Text"].as_str(), envelope["FinishReason"].as_str());
                assert_eq!(found, (Some(kind), text, Some(reason)), "{wire:?} {number}: {envelope}");
                let listed = envelope["ToolCalls"].as_array().expect("calls are a list");
                assert_eq!(listed.len(), calls, "{wire:?} {number}");
                if wire != Wire::Anthropic && calls > 0 {
                    // To the byte, spaces and all.
                    let exact =
                        json!({"CallId": "call_a", "Name": "read_file", "ArgumentsJson": "{ \"path\" : \"src/é.rs\"}"});
                    assert_eq!(listed[0], exact, "{wire:?} {number}");
                }
            }
        }
        let id = open(&ana, Wire::Responses).await;
        desk.says(Wire::Responses, [Script::new([Said::text(&["One."]), Said::text(&["Two."])])]);
        assert_eq!(taken(&ana, &turn(&id, "t1", "Hello")).await["Text"], "One.\n\nTwo.");
        desk.says(Wire::Responses, [Script::new([Said::refusal(&["I will not."])])]);
        let refused = taken(&ana, &turn(&id, "t2", "Do harm")).await;
        assert_eq!((&refused["Kind"], &refused["Text"]), (&json!("ok"), &json!("I will not.")));
        assert_ne!(refused["Warnings"], json!([]), "a refusal is flagged: {refused}");
        desk.says(Wire::Responses, [Script::new([])]);
        assert_eq!(taken(&ana, &turn(&id, "t3", "Say nothing")).await["Kind"], "empty");
    }
}

#[tokio::test]
async fn tools_of_the_server_run_inside_the_turn_and_are_not_the_clients() {
    // R034-26, O-28
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            let clock = || Said::call("call_s", "clock", &["{}"]);
            desk.says(wire, [Script::new([clock()]), Script::text(&["It is late."])]);
            let envelope = taken(&ana, &turn(&id, "t1", "What time is it?")).await;
            assert_eq!((&envelope["Text"], &envelope["ToolCalls"]), (&json!("It is late."), &json!([])), "{wire:?}");
            let shown = standing(&ana, &id, "t1").await;
            assert_eq!(shown["ServerToolCalls"][0]["Name"], "clock", "{shown}");
            // One of each: the server's runs, the client's is handed over.
            let mixed = Script::new([clock(), Said::call("call_a", "read_file", &["{\"path\":\"a\"}"])]);
            desk.says(wire, [mixed, Script::text(&["Done."])]);
            let envelope = taken(&ana, &turn(&id, "t2", "And now?")).await;
            let names: Vec<&str> =
                envelope["ToolCalls"].as_array().unwrap().iter().filter_map(|call| call["Name"].as_str()).collect();
            assert_eq!(names, ["read_file"], "{wire:?}: {envelope}");
            let call_id = envelope["ToolCalls"][0]["CallId"].as_str().unwrap();
            let done = taken(&ana, &results(&id, "t2", &[(call_id, "text")])).await;
            assert_eq!(done["Text"], "Done.", "{wire:?}");
            let lines = heard(desk.asked(wire).last().unwrap());
            assert_eq!(lines.iter().filter(|(who, _)| who == "output").count(), 3, "{wire:?}: {lines:?}");
        }
    }
}

#[tokio::test]
async fn a_turn_that_failed_is_answered_as_failed_and_runs_anew_when_it_is_sent_again() {
    // R004-03, R004-28, R004-30, C-20
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            let failures = [
                Reply::status(500).with_json(json!({"error": {"message": "out of order", "type": "server_error"}})),
                Reply::status(400)
                    .with_json(json!({"error": {"message": "too strange", "type": "invalid_request_error"}})),
                Reply::close(),
                Reply::bytes("application/json", "{\"id\": \"x\""),
            ];
            let body = turn(&id, "t1", "Hello");
            for (number, failure) in failures.into_iter().enumerate() {
                desk.replies(wire, failure);
                let answer = execute(&ana, &body).await;
                let envelope = taken_as_failed(&answer);
                let identity =
                    ["ConversationId", "TurnId", "AgentContextId", "Mode"].map(|name| envelope[name].clone());
                assert_eq!(identity, [json!(id), json!("t1"), json!(wire.kind()), json!("general")], "{envelope}");
                assert_eq!(envelope["FinishReason"], "error");
                assert_eq!(answer.header("idempotent-replayed"), None, "{wire:?} {number}: it ran anew");
                assert_eq!(status(&ana, &id, "t1").await, ("failed".to_owned(), 1), "{wire:?} {number}");
                assert_eq!(standing(&ana, &id, "t1").await["Result"], envelope, "{wire:?} {number}");
            }
            // Under its name nothing else may be sent meanwhile.
            assert_eq!(refusal(&execute(&ana, &turn(&id, "t1", "Other words")).await).1, "turn_id_reused");
            desk.says(wire, [Script::text(&["At last."]), Script::text(&["Next."])]);
            assert_eq!(taken(&ana, &body).await["Text"], "At last.", "{wire:?}");
            assert_eq!(taken(&ana, &turn(&id, "t2", "And?")).await["Text"], "Next.", "{wire:?}");
            // Nothing of the failures is in the history.
            let lines = heard(desk.asked(wire).last().unwrap());
            let who: Vec<&str> = lines.iter().map(|(who, _)| who.as_str()).collect();
            assert_eq!(who, ["system", "user", "assistant", "user"], "{wire:?}: {lines:?}");
            desk.assert_asked(wire, 6, store.name);
        }
    }
}

fn taken_as_failed(answer: &amalgam_testkit::HttpAnswer) -> Value {
    let (status, _, _) = refusal(answer);
    assert_eq!(status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn a_failure_in_between_takes_nothing_from_what_the_model_is_told() {
    // R003-10, C-05
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let wire = Wire::Responses;
        let fails = || Reply::status(500).with_json(json!({"error": {"message": "no", "type": "server_error"}}));
        let id = open(&ana, wire).await;
        desk.replies(wire, fails());
        taken_as_failed(&execute(&ana, &turn(&id, "t1", "Hello")).await);
        desk.says(wire, [Script::text(&["One."])]);
        taken(&ana, &turn(&id, "t2", "Hello")).await;
        assert!(heard(desk.asked(wire).last().unwrap())[0].1.contains(PROMPT));
        // The agent's prompt changes, and the first turn that would send it fails.
        let profile = json!({"prompt": "Be brief.", "tools": [], "model": wire.model()});
        put(&desk.admin(KEY), &format!("/admin/profiles/{}", wire.kind()), &profile).await;
        desk.replies(wire, fails());
        taken_as_failed(&execute(&ana, &turn(&id, "t3", "Hello")).await);
        desk.says(wire, [Script::text(&["Two."]), Script::text(&["Three."])]);
        // In a retry or in the next turn, the new prompt has to be sent.
        for (turn_id, said) in [("t3", "Hello"), ("t4", "Go on")] {
            taken(&ana, &turn(&id, turn_id, said)).await;
            let lines = heard(desk.asked(wire).last().unwrap());
            let system: String =
                lines.iter().filter(|(who, _)| who == "system").map(|(_, text)| text.as_str()).collect();
            assert!(system.contains("Be brief."), "{} {turn_id}: {lines:?}", store.name);
        }
        desk.assert_asked(wire, 5, store.name);
    }
}

#[tokio::test]
async fn a_tenant_may_keep_the_raw_response_to_itself() {
    // R004-26, C-12
    for store in stores() {
        let desk = Desk::with(&store, Setup::new()).await;
        let ana = desk.user("ana");
        let headers = [("content-type", "application/json")];
        let hidden = json!({"expose_raw_responses": false}).to_string();
        let answer = desk.admin(KEY).request(http::Method::PATCH, "/admin/configs/1", &headers, hidden.into()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = open(&ana, Wire::Chat).await;
        desk.says(Wire::Chat, [Script::text(&["Hi."])]);
        let body = turn(&id, "t1", "Hello");
        for _ in 0..2 {
            assert_eq!(taken(&ana, &body).await["RawResponseJson"], Value::Null, "{}", store.name);
        }
        assert_eq!(standing(&ana, &id, "t1").await["Result"]["RawResponseJson"], Value::Null);
    }
}

#[tokio::test]
async fn a_call_that_waits_for_approval_is_a_warning_and_is_decided_about_before_the_next_turn() {
    // C-08: the turn ends without calls for the client, and the session continues.
    for store in stores() {
        let desk = Desk::on(&store).await;
        let (ana, admin) = (desk.user("ana"), desk.admin(KEY));
        let tool = json!({
            "kind": "builtin", "description": "Tells the time.", "settings": {"function": "current_time"},
            "requires_approval": true,
        });
        put(&admin, "/admin/tools/careful_clock", &tool).await;
        let profile = json!({"prompt": PROMPT, "tools": ["careful_clock"], "model": Wire::Chat.model()});
        put(&admin, "/admin/profiles/careful", &profile).await;
        for (decision, outcome) in [("approve", "weekday"), ("deny", "denied")] {
            let id = opened(&ana, &json!({"AgentContextId": "careful"})).await;
            desk.says(
                Wire::Chat,
                [Script::new([Said::call("call_1", "careful_clock", &["{}"])]), Script::text(&["Well."])],
            );
            let first = taken(&ana, &turn(&id, "t1", "What time is it?")).await;
            assert_eq!((&first["Kind"], &first["ToolCalls"]), (&json!("empty"), &json!([])), "{first}");
            let warning = first["Warnings"][0].as_str().expect("the turn has a warning");
            let approval = warning.rsplit(' ').next().expect("it ends with an id");
            assert!(approval.starts_with("mcpr_"), "{warning}");
            let decided =
                admin.post_json(&format!("/admin/approvals/{approval}"), &json!({"decision": decision})).await;
            assert_eq!(decided.status, 200, "{}", decided.text());
            let second = taken(&ana, &turn(&id, "t2", "And now?")).await;
            assert_eq!((&second["Text"], &second["Warnings"]), (&json!("Well."), &json!([])), "{second}");
            let told = desk.asked(Wire::Chat).pop().expect("the model was asked");
            let outputs: Vec<&str> = told["messages"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|message| message["role"] == "tool")
                .filter_map(|message| message["content"].as_str())
                .collect();
            assert!(outputs.len() == 1 && outputs[0].contains(outcome), "{} {decision}: {told}", store.name);
        }
    }
}
