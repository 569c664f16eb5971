//! Requests that are refused: every fault with its field, in the shape of the answer, and no model call.

use amalgam_testkit::{Client, Setup};
use serde_json::{Value, json};

use super::desk::{
    Desk, EXECUTE, KEY, OTHER, SESSIONS, execute, open, opened, refusal, result, results, status, taken, turn,
};
use crate::support::{Script, Wire, stores};

/// The faults of a request that is refused with 400.
async fn faults(client: &Client, body: &Value) -> Vec<(String, String)> {
    let answer = execute(client, body).await;
    let (status, code, faults) = refusal(&answer);
    assert_eq!((status, code.as_str()), (400, "invalid_request"), "{body}: {}", answer.text());
    faults
}

fn pairs(faults: &[(&str, &str)]) -> Vec<(String, String)> {
    faults.iter().map(|(field, code)| ((*field).to_owned(), (*code).to_owned())).collect()
}

fn with(body: &Value, more: Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().expect("a body is an object").extend(more.as_object().expect("fields are an object").clone());
    body
}

#[tokio::test]
async fn every_fault_of_a_request_is_told_at_once_and_names_its_field() {
    // R034-01, R034-02, R034-10, R034-11, R034-18, R034-21, R034-22, R034-25
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let body = json!({
            "SessionId": 7, "Instruction": "  ", "Wishes": true,
            "InputArtifacts": [{"RelativePath": "/etc/passwd", "FileName": "passwd", "Contents": "x", "Origin": "robot"}],
            "ClipboardImages": [{"Id": "i", "MimeType": " ", "DataBase64": "!"}],
            "RagScope": [{"Key": "path", "Operator": "like", "Values": ["x"]}],
        });
        let found = faults(&ana, &body).await;
        for expected in [
            ("SessionId", "wrong_type"),
            ("TurnId", "missing_field"),
            ("Wishes", "unknown_field"),
            ("InputArtifacts[0].RelativePath", "invalid_value"),
            ("InputArtifacts[0].Origin", "invalid_value"),
            ("ClipboardImages[0].DataBase64", "invalid_value"),
            ("RagScope[0].Operator", "invalid_value"),
        ] {
            assert!(found.contains(&pairs(&[expected])[0]), "{expected:?} is missing in {found:?}");
        }
        assert!(found.iter().any(|(field, _)| field == "ClipboardImages[0].MimeType"), "{found:?}");
        desk.assert_silent(store.name);
    }
}

#[tokio::test]
async fn what_belongs_to_the_server_is_refused_by_name() {
    // R034-03, R034-07, C-01, C-02, C-12
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let body = turn(&open(&ana, Wire::Chat).await, "t1", "Hello");
        for name in [
            "Mode",
            "ModeName",
            "ResponseContinuationId",
            "PreviousResponseId",
            "ConversationId",
            "RawResponseJson",
            "ModelId",
            "Temperature",
            "SystemPrompt",
            "ToolsJson",
            "ToolChoiceName",
            "CorrelationId",
            "Diagnostics",
        ] {
            let (first, rest) = name.split_at(1);
            let camel = format!("{}{rest}", first.to_lowercase());
            for name in [name, &camel] {
                let found = faults(&ana, &with(&body, json!({name: "x"}))).await;
                assert_eq!(found, pairs(&[(name, "forbidden_field")]), "{name}");
            }
        }
        desk.assert_silent(store.name);
    }
}

#[tokio::test]
async fn results_come_alone() {
    // R034-04, R034-05, R034-14
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let body = results(&open(&ana, Wire::Chat).await, "t1", &[("call_a", "x")]);
        for (name, value) in [
            ("Instruction", json!("x")),
            ("InputArtifacts", json!([])),
            ("ClipboardImages", json!([])),
            ("FileIds", json!(["file_AM-1"])),
            ("WorkspaceId", json!("w")),
            ("Repo", json!("r")),
            ("Language", json!("rust")),
            ("RagScope", json!([])),
            ("SolutionContextText", json!("x")),
            ("AgentContextId", json!("chat")),
            ("Streaming", json!(false)),
            ("Streaming", json!(true)),
        ] {
            let found = faults(&ana, &with(&body, json!({name: value}))).await;
            assert_eq!(found, pairs(&[(name, "forbidden_field")]), "{name}");
        }
        let neither = json!({"ToolCallId": "a", "ExecutionMs": 1});
        let both = json!({"ToolCallId": "a", "ExecutionMs": 1, "ResultJson": "x", "ErrorMessage": "y"});
        let timeless = json!({"ToolCallId": "a", "ResultJson": "x"});
        let found =
            faults(&ana, &with(&body, json!({"ToolResults": [neither, both, timeless, result("", "x")]}))).await;
        let expected = [
            ("ToolResults[0].ResultJson", "missing_field"),
            ("ToolResults[1].ErrorMessage", "invalid_value"),
            ("ToolResults[2].ExecutionMs", "missing_field"),
            ("ToolResults[3].ToolCallId", "invalid_value"),
        ];
        assert_eq!(found, pairs(&expected));
        assert_eq!(
            faults(&ana, &with(&body, json!({"ToolResults": []}))).await,
            pairs(&[("ToolResults", "invalid_value")])
        );
        desk.assert_silent(store.name);
    }
}

#[tokio::test]
async fn names_may_be_camel_case_and_come_back_as_the_installation_wants() {
    for (casing, id, kind) in [("pascal", "SessionId", "Kind"), ("camel", "sessionId", "kind")] {
        for store in stores() {
            let setup = Setup::new().extra(&format!("[execute]\ncasing = \"{casing}\""));
            let desk = Desk::with(&store, setup).await;
            let ana = desk.user("ana");
            let session = ana.post_json(SESSIONS, &json!({"agentContextId": "chat", "mode": "qa"})).await.json();
            assert!(session[id].is_string(), "{session}");
            desk.says(Wire::Chat, [Script::text(&["Hi."])]);
            let body = json!({"sessionId": session[id], "turnId": "t1", "instruction": "Hello", "streaming": false});
            let envelope = execute(&ana, &body).await;
            assert_eq!(envelope.json()[kind], "ok", "{}", envelope.text());
            // The same in the other spelling is the same turn.
            let pascal = turn(session[id].as_str().unwrap(), "t1", "Hello");
            let again = execute(&ana, &pascal).await;
            assert_eq!((again.header("idempotent-replayed"), again.json()), (Some("true"), envelope.json()));
            let refused = execute(&ana, &json!({"turnId": "t2"})).await.json();
            let fields = ["errors", "Errors"].map(|name| refused.get(name).is_some());
            assert_eq!(fields, [casing == "camel", casing == "pascal"], "{refused}");
            desk.assert_asked(Wire::Chat, 1, store.name);
        }
    }
}

#[tokio::test]
async fn unknown_fields_can_be_allowed() {
    // R034-08
    for store in stores() {
        let setup = Setup::new().extra("[execute]\nunknown_fields = \"ignore\"");
        let desk = Desk::with(&store, setup).await;
        let ana = desk.user("ana");
        let body = turn(&open(&ana, Wire::Chat).await, "t1", "Hello");
        desk.says(Wire::Chat, [Script::text(&["Hi."])]);
        assert_eq!(taken(&ana, &with(&body, json!({"Wishes": true}))).await["Text"], "Hi.");
        // What is forbidden stays forbidden.
        let found = faults(&ana, &with(&body, json!({"TurnId": "t2", "Mode": "QA"}))).await;
        assert_eq!(found, pairs(&[("Mode", "forbidden_field")]));
    }
}

#[tokio::test]
async fn bodies_that_are_no_requests_are_answered_in_the_same_shape() {
    // S16, S17
    for store in stores() {
        let setup = Setup::new().extra("[limits]\nbody_bytes = \"64KiB\"\nmedia_bytes = \"64KiB\"");
        let desk = Desk::with(&store, setup).await;
        let ana = desk.user("ana");
        for path in [EXECUTE, SESSIONS] {
            for (body, status) in [
                ("", 400),
                ("{", 400),
                ("[]", 400),
                ("null", 400),
                ("\"x\"", 400),
                ("{\"SessionId\": \"\\ud800\"}", 400),
                (&format!("{{\"SessionId\": {}1{}}}", "[".repeat(5000), "]".repeat(5000)), 400),
                (&format!("{{\"SessionId\": \"{}\"}}", "x".repeat(200 * 1024)), 413),
            ] {
                if path == SESSIONS && body.is_empty() {
                    continue;
                }
                let answer = ana.post_raw(path, "application/json", body.to_owned()).await;
                let (found, _, _) = refusal(&answer);
                assert_eq!(found, status, "{path} {:.60}: {}", body, answer.text());
            }
            let answer = ana.post_raw(path, "text/plain", "{}").await;
            assert_eq!(refusal(&answer).0, 415, "{path}");
            let answer =
                ana.request(http::Method::PUT, path, &[("content-type", "application/json")], "{}".into()).await;
            assert_eq!(refusal(&answer).0, 405, "{path}");
        }
        desk.assert_silent(store.name);
    }
}

#[tokio::test]
async fn who_may_not_ask_is_told_so_in_the_same_shape() {
    // S19
    for store in stores() {
        let desk = Desk::on(&store).await;
        let anonymous = Client::new(desk.world.amalgam.url());
        for client in [anonymous.clone(), anonymous.with_key("am_wrong")] {
            let answer = execute(&client, &turn("s", "t", "Hello")).await;
            assert_eq!(refusal(&answer).0, 401, "{}", answer.text());
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            assert_eq!(refusal(&client.get(SESSIONS).await).0, 401);
        }
        desk.assert_silent(store.name);
    }
}

#[tokio::test]
async fn sessions_and_turns_of_others_look_as_if_they_did_not_exist() {
    // S10, C-11
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Chat).await;
        desk.says(Wire::Chat, [super::desk::both()]);
        taken(&ana, &turn(&id, "t1", "Look")).await;
        let absent = "sess_AM-1760000000000-aaaaaaaaaaaaaaaaaaaaaaaa";
        let told = |text: &str| text.replace(&id, "ID").replace(absent, "ID");
        let strangers = [desk.user("ben"), desk.admin(OTHER).with_header("x-amalgam-user", "ana")];
        for stranger in &strangers {
            for body in [
                turn("ID", "t1", "Look"),
                turn("ID", "t9", "Look"),
                results("ID", "t1", &[("call_a", "1"), ("call_b", "2")]),
            ] {
                let at = |session: &str| with(&body, json!({"SessionId": session}));
                let foreign = execute(stranger, &at(&id)).await;
                let missing = execute(stranger, &at(absent)).await;
                let (status, code, _) = refusal(&foreign);
                assert_eq!((status, code.as_str()), (404, "session_not_found"), "{}", foreign.text());
                assert_eq!(told(&foreign.text()), told(&missing.text()), "{}", store.name);
            }
        }
        // To its owner, a turn that is not there is one that is not there.
        let answer = execute(&ana, &results(&id, "t7", &[("call_a", "1")])).await;
        let (found, code, _) = refusal(&answer);
        assert_eq!((found, code.as_str()), (404, "turn_not_found"), "{}", answer.text());
        assert_eq!(status(&ana, &id, "t1").await, ("pending".to_owned(), 1));
        desk.assert_asked(Wire::Chat, 1, store.name);
    }
}

#[tokio::test]
async fn a_refusal_says_whose_it_is_as_far_as_that_is_known() {
    // R004-03, R004-28
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = opened(&ana, &json!({"AgentContextId": "chat", "Mode": "CODE_EDIT"})).await;
        desk.says(Wire::Chat, [super::desk::both()]);
        taken(&ana, &turn(&id, "t1", "Look")).await;
        let refused = execute(&ana, &results(&id, "t1", &[("call_b", "1")])).await.json();
        let identity = ["ConversationId", "TurnId", "AgentContextId", "Mode"].map(|name| refused[name].clone());
        assert_eq!(identity, [json!(id), json!("t1"), json!("chat"), json!("CODE_EDIT")], "{refused}");
        // What is not in order is repeated all the same, so that a client finds its request.
        let refused = execute(&ana, &with(&turn(&id, "t2", "Hi"), json!({"Mode": "QA"}))).await.json();
        let identity = ["ConversationId", "TurnId"].map(|name| refused[name].clone());
        assert_eq!(identity, [json!(id), json!("t2")], "{refused}");
    }
}

#[tokio::test]
async fn a_session_begins_with_an_agent_and_a_mode_that_exist() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for (body, field) in [
            (json!({"AgentContextId": "unknown"}), "AgentContextId"),
            (json!({"AgentContextId": 7}), "AgentContextId"),
            (json!({"Mode": "DANCE"}), "Mode"),
            (json!({"SessionId": "mine"}), "SessionId"),
        ] {
            let answer = ana.post_json(SESSIONS, &body).await;
            let (status, _, faults) = refusal(&answer);
            assert_eq!((status, faults[0].0.as_str(), faults.len()), (400, field, 1), "{}", answer.text());
        }
        let list = desk.user("ana").get(SESSIONS).await.json();
        assert_eq!(list, json!({"Sessions": [], "HasMore": false}));
        assert_eq!(desk.admin(KEY).get(SESSIONS).await.json()["Sessions"], json!([]));
    }
}
