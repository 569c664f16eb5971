//! Races, limits and strange values: in every case a turn is answered in order, and the next one can follow.

use amalgam_testkit::{Gate, Reply, Setup};
use http::Method;
use serde_json::{Value, json};

use super::desk::{
    Desk, KEY, SESSIONS, assert_envelope, both, execute, open, opened, put, refusal, result, results, standing, status,
    taken, turn,
};
use crate::support::{FINAL, Said, Script, WIRES, Wire, assert_calm, beside, eventually, shared_store, stores, told};

#[tokio::test]
async fn results_and_a_new_turn_at_once_never_both_go_on_from_the_same_place() {
    // C-11, C-13
    let Some(store) = shared_store() else { return };
    let desk = Desk::on(&store).await;
    let second = desk.world.another().await;
    let (here, there) = (desk.user("ana"), Desk::user_at(&second, "ana"));
    for round in 0..12 {
        let wire = WIRES[round % 3];
        let id = open(&here, wire).await;
        desk.says(wire, [both()]);
        taken(&here, &turn(&id, "t1", "Check it")).await;
        let asked = desk.asked(wire).len();
        desk.says(wire, [Script::text(&["First."]), Script::text(&["Second."])]);
        let (one, other) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
        let (one, other) = (one.clone(), other.clone());
        let (going_on, anew) = (results(&id, "t1", &[("call_a", "1"), ("call_b", "2")]), turn(&id, "t2", "Never mind"));
        let (sent, new) = (going_on.clone(), anew.clone());
        let caller = beside(async move { execute(&one, &sent).await });
        let newer = execute(&other, &new).await;
        let older = caller.end().await;
        let codes = [&older, &newer].map(|answer| {
            assert_envelope(&answer.json());
            let code = answer.json()["ErrorCode"].as_str().unwrap_or_default().to_owned();
            (answer.status.as_u16(), code)
        });
        let well = (200, String::new());
        match &codes {
            // The results were first: the new turn had to wait, or came when they were done.
            [first, second] if *first == well && *second == (409, "session_busy".to_owned()) => {
                assert_eq!(taken(&here, &anew).await["Text"], "Second.");
            }
            [first, second] if *first == well && *second == well => {}
            // The new turn was first, and the one that waited is given up.
            [first, second] if *first == (409, "turn_not_pending".to_owned()) && *second == well => {
                assert_eq!(status(&here, &id, "t1").await.0, "given_up");
                desk.says(wire, []);
                taken(&here, &turn(&id, "t3", "And?")).await;
            }
            // Both were looked at while the other was being taken.
            [first, second] if *first == (409, "session_busy".to_owned()) && *second == well => {
                desk.says(wire, []);
                taken(&here, &turn(&id, "t3", "And?")).await;
            }
            other => panic!("round {round}: {other:?}\n{}\n{}", older.text(), newer.text()),
        }
        // Every call in the model's history has its output (`told` checks that).
        told(desk.asked(wire).last().expect("the model was asked"));
        desk.assert_asked(wire, asked + 2, &format!("round {round}"));
    }
    assert_calm(&desk.world.amalgam);
    assert_calm(&second);
}

#[tokio::test]
async fn a_session_that_is_deleted_while_its_turn_runs_ends_it() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            for streams in [false, true] {
                let id = open(&ana, wire).await;
                let (gate, asked) = (Gate::new(), desk.world.upstream(wire).requests().len());
                desk.says_behind(wire, Script::text(&["Never ", "heard."]), &gate);
                let mut body = turn(&id, "t1", "Hello");
                body["Streaming"] = json!(streams);
                let client = ana.clone();
                let caller = beside(async move { execute(&client, &body).await });
                desk.world.upstream(wire).wait_for_requests(asked + 1).await;
                let deleted = ana.request(Method::DELETE, &format!("{SESSIONS}/{id}"), &[], "".into()).await;
                assert_eq!(deleted.status, 200, "{}", deleted.text());
                gate.open();
                let answer = caller.end().await;
                assert!(
                    !answer.text().contains("Internal") && answer.status.as_u16() != 500,
                    "{wire:?}: {}",
                    answer.text()
                );
                assert_eq!(refusal(&ana.get(&format!("{SESSIONS}/{id}")).await).0, 404);
                let list = ana.get("/v1/responses").await;
                assert!(!list.text().contains("heard"), "{}", list.text());
            }
        }
        assert_calm(&desk.world.amalgam);
    }
}

#[tokio::test]
async fn a_server_that_is_full_says_when_to_come_back_and_has_taken_nothing() {
    for store in stores() {
        let desk = Desk::with(&store, Setup::new().extra("[limits]\nmax_in_flight = 1")).await;
        let ana = desk.user("ana");
        let (busy, id) = (open(&ana, Wire::Chat).await, open(&ana, Wire::Chat).await);
        let gate = Gate::new();
        desk.says_behind(Wire::Chat, Script::text(&["I ", "am slow."]), &gate);
        let (client, body) = (ana.clone(), turn(&busy, "t1", "Hello"));
        let caller = beside(async move { taken(&client, &body).await });
        desk.world.upstream(Wire::Chat).wait_for_requests(1).await;
        for streaming in [false, true] {
            let mut body = turn(&id, "t1", "Me too");
            body["Streaming"] = json!(streaming);
            let answer = execute(&ana, &body).await;
            let (found, _, _) = refusal(&answer);
            assert_eq!(found, 429, "{}", answer.text());
            assert!(answer.header("retry-after").is_some());
            let path = format!("{SESSIONS}/{id}/turns");
            assert_eq!(ana.get(&path).await.json()["Turns"], json!([]), "{}", store.name);
        }
        gate.open();
        assert_eq!(caller.end().await["Text"], "I am slow.");
        desk.says(Wire::Chat, [Script::text(&["Now."])]);
        let answer = eventually("room", FINAL, async || {
            let answer = execute(&ana, &turn(&id, "t1", "Me too")).await;
            (answer.status == 200).then(|| answer.json())
        });
        assert_eq!(answer.await["Text"], "Now.");
        desk.assert_asked(Wire::Chat, 2, store.name);
    }
}

#[tokio::test]
async fn strange_characters_are_kept_as_they_are_or_refused_by_name() {
    // S17
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        for (number, strange) in ["a\u{0}b", "\u{feff}x", "e\u{301}\u{202e}", "\u{1f9ff}'\"\\;--", "%2F..%00", "\r\n\t"]
            .into_iter()
            .enumerate()
        {
            // As the name of a turn.
            desk.says(Wire::Responses, [Script::text(&["Ok."])]);
            let answer = execute(&ana, &turn(&id, strange, "Hello")).await;
            let taken_by_name = answer.status == 200;
            match taken_by_name {
                true => assert_eq!(answer.json()["TurnId"], strange, "{strange:?}"),
                false => {
                    let (found, _, faults) = refusal(&answer);
                    assert_eq!((found, faults[0].0.as_str()), (400, "TurnId"), "{strange:?}: {}", answer.text());
                    // The reply is for the next one.
                    taken(&ana, &turn(&id, &format!("other{number}"), "Hello")).await;
                }
            }
            // As what is said, kept, hinted and given.
            let turn_id = format!("t{number}");
            desk.says(Wire::Responses, [Script::new([Said::call("call_a", "read_file", &["{\"path\":\"x\"}"])])]);
            let mut body = turn(&id, &turn_id, &format!("Say {strange}"));
            body["SolutionContextText"] = json!(strange);
            body["InputArtifacts"] =
                json!([{"RelativePath": "a.txt", "FileName": "a.txt", "Contents": strange, "Origin": "ide"}]);
            let waiting = taken(&ana, &body).await;
            assert_eq!(waiting["Kind"], "tool-only", "{strange:?}: {waiting}");
            desk.says(Wire::Responses, [Script::text(&[strange, "."])]);
            let call_id = waiting["ToolCalls"][0]["CallId"].as_str().expect("the model wants something");
            let one = result(call_id, strange);
            let done = taken(&ana, &json!({"SessionId": id, "TurnId": turn_id, "ToolResults": [one]})).await;
            assert_eq!(done["Text"].as_str().map(str::trim), Some(format!("{strange}.").trim()), "{strange:?}");
            let heard = told(desk.asked(Wire::Responses).last().unwrap());
            let output = heard.iter().rfind(|(who, _)| who == "output").map(|(_, text)| text.as_str());
            assert_eq!(output, Some(strange), "{}", store.name);
            assert_eq!(standing(&ana, &id, &turn_id).await["Result"], done, "{strange:?}");
        }
        for path in ["sess_%00", "%FF", "x%0d%0a", &"x".repeat(2000)] {
            let answer = ana.get(&format!("{SESSIONS}/{path}")).await;
            assert!([400, 404].contains(&answer.status.as_u16()), "{path}: {}", answer.text());
            let answer = ana.get(&format!("{SESSIONS}/{id}/turns/{path}")).await;
            assert!([400, 404].contains(&answer.status.as_u16()), "{path}: {}", answer.text());
        }
        assert_calm(&desk.world.amalgam);
    }
}

#[tokio::test]
async fn a_session_outlives_its_agent_and_its_mode() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let (ana, admin) = (desk.user("ana"), desk.admin(KEY));
        let (headers, model) = ([("content-type", "application/json")], json!({"model": Wire::Responses.model()}));
        let answer = admin.request(Method::PATCH, "/admin/configs/1", &headers, model.to_string().into()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let profile = json!({"prompt": "You will leave.", "tools": ["read_file"], "model": Wire::Responses.model()});
        put(&admin, "/admin/profiles/leaving", &profile).await;
        put(&admin, "/admin/modes/BRIEF", &json!({"display_name": "Brief", "system_prompt": "Be brief.", "tools": []}))
            .await;
        let id = opened(&ana, &json!({"AgentContextId": "leaving", "Mode": "brief"})).await;
        desk.says(Wire::Responses, [Script::text(&["Here."]), Script::text(&["Still here."])]);
        taken(&ana, &turn(&id, "t1", "Hello")).await;
        for path in ["/admin/profiles/leaving", "/admin/modes/BRIEF"] {
            let answer = admin.request(Method::DELETE, path, &[], "".into()).await;
            assert!(answer.status.is_success(), "{path}: {}", answer.text());
        }
        let envelope = taken(&ana, &turn(&id, "t2", "Are you there?")).await;
        assert_eq!(
            (&envelope["Text"], &envelope["Mode"]),
            (&json!("Still here."), &json!("general")),
            "{}",
            store.name
        );
    }
}

#[tokio::test]
async fn a_model_that_cannot_be_asked_is_a_failed_turn_and_says_nothing_of_its_secrets() {
    // R004-28, C-20, S1
    // The key that the upstream is asked with.
    const KEY_OF_OURS: &str = "sk-responses";
    for store in stores() {
        let desk = Desk::on(&store).await;
        let (ana, admin) = (desk.user("ana"), desk.admin(KEY));
        put(&admin, "/admin/profiles/unknown", &json!({"prompt": "x", "tools": [], "model": "no-such-model"})).await;
        let id = opened(&ana, &json!({"AgentContextId": "unknown"})).await;
        let answer = execute(&ana, &turn(&id, "t1", "Hello")).await;
        assert_envelope(&answer.json());
        assert_eq!(answer.json()["Kind"], "error", "{}", answer.text());
        let id = open(&ana, Wire::Responses).await;
        let error = |status: u16, kind: &str| {
            Reply::status(status).with_json(
                json!({"error": {"message": format!("no {KEY_OF_OURS}"), "type": kind, "code": kind, "param": null}}),
            )
        };
        // The caller gets the upstream's message, without our secrets.
        for (status, kind) in
            [(401, "invalid_api_key"), (429, "insufficient_quota"), (500, "server_error"), (503, "overloaded")]
        {
            for streams in [false, true] {
                desk.replies(Wire::Responses, error(status, kind));
                let mut body = turn(&id, "t1", "Hello");
                body["Streaming"] = json!(streams);
                let answer = execute(&ana, &body).await;
                assert_eq!(answer.status, 200, "{kind}: {}", answer.text());
                assert!(answer.text().contains("\"Kind\":\"error\""), "{kind}: {}", answer.text());
                assert!(!answer.text().contains(KEY_OF_OURS), "{kind}: {}", answer.text());
                assert!(answer.text().contains(&format!("\"ErrorCode\":\"{kind}\"")), "{kind}: {}", answer.text());
            }
        }
    }
}

#[tokio::test]
async fn a_tenant_without_memory_elsewhere_has_one_here() {
    // C-18
    for store in stores() {
        let upstream = amalgam_testkit::Upstream::start();
        let setup = Setup::new().tenant_key(KEY).stateless().upstream("up", "responses", &upstream.base_url());
        let setup = setup.option("models", "[\"gpt-4o-mini\"]");
        let amalgam = amalgam_testkit::Amalgam::start(crate::support::BINARY, store.setup(setup)).await;
        let client = amalgam.client();
        let id = opened(&client, &json!({})).await;
        for (number, text) in ["One.", "Two."].into_iter().enumerate() {
            upstream.enqueue(Script::text(&[text]).reply(Wire::Responses, crate::support::Delivery::Whole));
            let envelope: Value = taken(&client, &turn(&id, &format!("t{number}"), "Go on")).await;
            assert_eq!(envelope["Text"], text, "{}", store.name);
        }
        let posted = upstream.requests().into_iter().rfind(|request| request.method == "POST").expect("it was asked");
        let said = told(&posted.json());
        assert!(said.iter().any(|(who, text)| who == "assistant" && text == "One."), "{said:?}");
    }
}
