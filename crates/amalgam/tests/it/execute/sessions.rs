//! Sessions, the list of their turns, and the modes that they are in.

use http::Method;
use serde_json::{Value, json};

use super::desk::{
    Desk, KEY, OTHER, SESSIONS, both, execute, open, opened, put, refusal, results, session, standing, taken, turn,
    words,
};
use crate::support::{Said, Script, Wire, stores, told};

#[tokio::test]
async fn a_session_tells_what_it_is_and_what_became_of_it() {
    // C-11
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let answer = ana.post_json(SESSIONS, &json!({"AgentContextId": "chat", "Mode": "code_edit"})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let opened = answer.json();
        let id = opened["SessionId"].as_str().expect("a session has an id").to_owned();
        let at = opened["CreatedAt"].as_u64().expect("seconds");
        assert!(id.starts_with("sess_") && at > 1_700_000_000, "{opened}");
        let expected = json!({
            "SessionId": id, "AgentContextId": "chat", "Mode": "CODE_EDIT", "Turns": 0, "PendingTurnId": null,
            "CreatedAt": at, "UpdatedAt": at,
        });
        assert_eq!(opened, expected, "{}", store.name);
        let mut shown = session(&ana, &id).await;
        let (context, history) = (shown["SolutionContextText"].take(), shown["ModeHistory"].take());
        assert_eq!((context, history), (Value::Null, json!([])));
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&shown[name], value, "{name}");
        }
        desk.says(Wire::Chat, [both()]);
        taken(&ana, &turn(&id, "t1", "Check it")).await;
        let shown = session(&ana, &id).await;
        assert_eq!((&shown["Turns"], &shown["PendingTurnId"]), (&json!(1), &json!("t1")));
        assert!(shown["UpdatedAt"].as_u64() >= Some(at));
        // Without a body it is the tenant's usual assistant, in the usual mode.
        let plain = ana.post_raw(SESSIONS, "application/json", "{}").await.json();
        assert_eq!((&plain["AgentContextId"], &plain["Mode"]), (&Value::Null, &json!("general")));
    }
}

#[tokio::test]
async fn sessions_are_listed_newest_first_and_in_pages_to_their_owner() {
    // S10
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(open(&ana, Wire::Chat).await);
        }
        ids.reverse();
        open(&desk.user("ben"), Wire::Chat).await;
        let (mut found, mut path) = (Vec::new(), format!("{SESSIONS}?limit=2"));
        loop {
            let page = ana.get(&path).await.json();
            let sessions = page["Sessions"].as_array().expect("a page has sessions").clone();
            assert!(sessions.len() <= 2, "{page}");
            found.extend(sessions.iter().map(|session| session["SessionId"].as_str().unwrap().to_owned()));
            if page["HasMore"] == false {
                break;
            }
            path = format!("{SESSIONS}?limit=2&after={}", found.last().unwrap());
        }
        assert_eq!(found, ids, "{}", store.name);
        for limit in ["0", "101", "few"] {
            assert_eq!(refusal(&ana.get(&format!("{SESSIONS}?limit={limit}")).await).0, 400, "{limit}");
        }
    }
}

#[tokio::test]
async fn turns_are_listed_newest_first_with_how_they_stand() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Chat).await;
        desk.says(Wire::Chat, [both(), Script::text(&["One."]), both(), Script::text(&["Three."]), both()]);
        taken(&ana, &turn(&id, "t/1 ä", "Check it")).await;
        taken(&ana, &results(&id, "t/1 ä", &[("call_a", "1"), ("call_b", "2")])).await;
        for number in 2..5 {
            taken(&ana, &turn(&id, &format!("t{number}"), "Go on")).await;
        }
        let page = ana.get(&format!("{SESSIONS}/{id}/turns?limit=3")).await.json();
        let rows = |page: &Value| -> Vec<(String, u64, String, u64)> {
            let turns = page["Turns"].as_array().expect("a page has turns").iter();
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            turns
                .map(|turn| {
                    assert_eq!(turn["Mode"], "general");
                    assert!(turn["CreatedAt"].as_u64().is_some_and(|at| at > 1_700_000_000), "{turn}");
                    let (number, steps) = (turn["Number"].as_u64().unwrap(), turn["Steps"].as_u64().unwrap());
                    (text(&turn["TurnId"]), number, text(&turn["Status"]), steps)
                })
                .collect()
        };
        let row = |id: &str, number, status: &str, steps| (id.to_owned(), number, status.to_owned(), steps);
        let newest = [row("t4", 4, "pending", 1), row("t3", 3, "completed", 1), row("t2", 2, "given_up", 1)];
        assert_eq!((rows(&page), &page["HasMore"]), (newest.to_vec(), &json!(true)), "{}", store.name);
        let page = ana.get(&format!("{SESSIONS}/{id}/turns?limit=3&before=2")).await.json();
        assert_eq!((rows(&page), &page["HasMore"]), (vec![row("t/1 ä", 1, "completed", 2)], &json!(false)));
        // A turn is found by any name that its client has given it.
        assert_eq!(standing(&ana, &id, "t%2F1%20%C3%A4").await["Result"]["Text"], "One.");
        for path in [
            format!("{SESSIONS}/{id}/turns/t9"),
            format!("{SESSIONS}/sess_absent/turns"),
            format!("{SESSIONS}/sess_absent"),
        ] {
            assert_eq!(refusal(&ana.get(&path).await).0, 404, "{path}");
        }
        for stranger in [desk.user("ben"), desk.admin(OTHER)] {
            for path in
                [format!("{SESSIONS}/{id}"), format!("{SESSIONS}/{id}/turns"), format!("{SESSIONS}/{id}/turns/t2")]
            {
                assert_eq!(refusal(&stranger.get(&path).await).0, 404, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn a_deleted_session_is_gone_with_all_that_was_said_in_it() {
    // S10
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let (id, kept) = (open(&ana, Wire::Chat).await, open(&ana, Wire::Chat).await);
        desk.says(Wire::Chat, [both(), Script::text(&["secret word"]), Script::text(&["Kept."])]);
        taken(&ana, &turn(&id, "t1", "secret question")).await;
        let done = taken(&ana, &results(&id, "t1", &[("call_a", "secret result"), ("call_b", "2")])).await;
        taken(&ana, &turn(&kept, "t1", "Hello")).await;
        let path = format!("{SESSIONS}/{id}");
        assert_eq!(refusal(&desk.user("ben").request(Method::DELETE, &path, &[], "".into()).await).0, 404);
        let deleted = ana.request(Method::DELETE, &path, &[], "".into()).await;
        assert_eq!((deleted.status.as_u16(), deleted.json()), (200, json!({"SessionId": id, "Deleted": true})));
        assert_eq!(refusal(&ana.request(Method::DELETE, &path, &[], "".into()).await).0, 404);
        for body in
            [turn(&id, "t1", "secret question"), turn(&id, "t2", "More"), results(&id, "t1", &[("call_a", "1")])]
        {
            assert_eq!(refusal(&execute(&ana, &body).await).0, 404);
        }
        let response = format!("/v1/responses/{}", done["ResponseContinuationId"].as_str().unwrap());
        assert_eq!(ana.get(&response).await.status, 404, "{}", store.name);
        assert_eq!(standing(&ana, &kept, "t1").await["Result"]["Text"], "Kept.");
        desk.assert_asked(Wire::Chat, 3, store.name);
    }
}

/// A model that changes the mode.
fn changes(id: &str, mode: &str) -> Said {
    Said::call(id, "change_mode", &[&json!({"mode": mode, "reason": format!("for {mode}")}).to_string()])
}

#[tokio::test]
async fn the_model_may_change_the_mode_and_the_next_turn_is_in_it() {
    // O-35
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        let wire = Wire::Responses;
        desk.says(
            wire,
            [Script::new([changes("c1", "CODE_EDIT")]), Script::text(&["I edit now."]), Script::text(&["Edited."])],
        );
        let changing = taken(&ana, &turn(&id, "t1", "Edit it")).await;
        let found = ["Mode", "Text", "ToolCalls", "Warnings"].map(|name| changing[name].clone());
        assert_eq!(found, [json!("general"), json!("I edit now."), json!([]), json!([])], "{}", store.name);
        let shown = session(&ana, &id).await;
        let mut history = shown["ModeHistory"].clone();
        assert!(history[0]["At"].take().as_u64().is_some_and(|at| at > 1_700_000_000), "{shown}");
        let change =
            json!({"Previous": "general", "Mode": "CODE_EDIT", "Reason": "for CODE_EDIT", "TurnId": "t1", "At": null});
        assert_eq!((&shown["Mode"], history), (&json!("CODE_EDIT"), json!([change])));
        let next = taken(&ana, &turn(&id, "t2", "Go on")).await;
        assert_eq!(next["Mode"], "CODE_EDIT");
        let lines = told(desk.asked(wire).last().unwrap());
        assert_eq!(lines.last(), Some(&("user".to_owned(), words("CODE_EDIT", "Go on"))));
        // Twice in one turn: the last one counts, and the log says so. What is no mode changes nothing.
        desk.says(
            wire,
            [
                Script::new([changes("c1", "QA")]),
                Script::new([changes("c2", "DANCE")]),
                Script::new([changes("c3", "DDR_CREATION")]),
                Script::text(&["Settled."]),
            ],
        );
        let twice = taken(&ana, &turn(&id, "t3", "Hesitate")).await;
        assert_eq!(twice["Warnings"].as_array().map(Vec::len), Some(1), "{}", twice["Warnings"]);
        let shown = session(&ana, &id).await;
        let modes: Vec<&str> =
            shown["ModeHistory"].as_array().unwrap().iter().filter_map(|change| change["Mode"].as_str()).collect();
        assert_eq!((&shown["Mode"], modes), (&json!("DDR_CREATION"), vec!["CODE_EDIT", "QA", "DDR_CREATION"]));
    }
}

#[tokio::test]
async fn a_mode_brings_tools_of_its_own() {
    // C-02, O-35
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let admin = desk.admin(KEY);
        let tool = json!({"kind": "client", "description": "Opens a window.", "parameters": {"type": "object", "properties": {}}});
        put(&admin, "/admin/tools/open_window", &tool).await;
        let mode = json!({"display_name": "Windows", "system_prompt": "Use windows.", "tools": ["open_window"]});
        put(&admin, "/admin/modes/WINDOWS", &mode).await;
        let names = |request: &Value| -> Vec<String> {
            let tools = request["tools"].as_array().into_iter().flatten();
            tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
        };
        for (mode, has) in [("general", false), ("windows", true)] {
            let id = opened(&ana, &json!({"AgentContextId": "responses", "Mode": mode})).await;
            desk.says(Wire::Responses, [Script::text(&["Ok."])]);
            taken(&ana, &turn(&id, "t1", "Hello")).await;
            let names = names(desk.asked(Wire::Responses).last().unwrap());
            for always in ["read_file", "run_tests", "clock", "change_mode"] {
                assert!(names.iter().any(|name| name == always), "{mode}: {names:?}");
            }
            assert_eq!(names.iter().any(|name| name == "open_window"), has, "{mode}: {names:?}");
        }
    }
}
