//! Closing and deleting what users have said, and reading sessions and conversations of all users.

use bytes::Bytes;

use super::*;

async fn delete(client: &Client, path: &str) -> HttpAnswer {
    client.request(Method::DELETE, path, &[], Bytes::new()).await
}

#[tokio::test]
async fn a_closed_session_is_followed_by_another_one_and_a_deleted_one_is_gone_with_its_responses() {
    for store in stores() {
        let office = Office::on(&store).await;
        sent(&office.a(), Method::PUT, "/admin/profiles/home", &json!({"prompt": "Hi."})).await;
        let first = office.respond("ada", "home", "One.", "Yes.").await;
        let session = first["session_id"].as_i64().unwrap_or_default();
        let path = format!("/admin/sessions/{session}");
        let closed = sent(&office.a(), Method::POST, &format!("{path}/close"), &json!({})).await;
        assert_eq!((&closed["status"], &closed["message_count"]), (&json!("closed"), &json!(2)), "{}", store.name);
        let again = sent(&office.a(), Method::POST, &format!("{path}/close"), &json!({})).await;
        assert_eq!(again["status"], "closed", "{}", store.name);
        let second = office.respond("ada", "home", "Two.", "No.").await;
        assert_ne!(second["session_id"], first["session_id"], "{}", store.name);

        let shown = got(&office.a(), &path).await;
        let response = shown["messages"][0]["response_id"].as_str().unwrap_or_default().to_owned();
        let ada = office.a().with_header("x-amalgam-user", "ada");
        assert_eq!(ada.get(&format!("/v1/responses/{response}")).await.status, 200, "{}", store.name);
        for client in [office.b(), office.user()] {
            assert!([403, 404].contains(&delete(&client, &path).await.status.as_u16()), "{}", store.name);
        }
        let gone = delete(&office.a(), &path).await.json();
        assert_eq!(
            gone,
            json!({"id": session.to_string(), "object": "session.deleted", "deleted": true}),
            "{}",
            store.name
        );
        assert_eq!(office.a().get(&path).await.status, 404, "{}", store.name);
        assert_eq!(ada.get(&format!("/v1/responses/{response}")).await.status, 404, "{}", store.name);
        assert_eq!(delete(&office.a(), &path).await.status, 404, "{}", store.name);
        let close = send(&office.a(), Method::POST, &format!("{path}/close"), &json!({})).await;
        assert_eq!(close.status, 404, "{}", store.name);

        let other = second["session_id"].to_string();
        office.cli.text(&["sessions", "close", &other, "--tenant", "1"]);
        assert_eq!(
            office.cli.json(&["sessions", "show", &other, "--tenant", "1"])["status"],
            "closed",
            "{}",
            store.name
        );
        office.cli.text(&["sessions", "delete", &other, "--tenant", "1"]);
        assert_eq!(got(&office.a(), "/admin/sessions").await["data"], json!([]), "{}", store.name);
    }
}

#[tokio::test]
async fn a_session_whose_turn_runs_is_not_deleted() {
    for store in stores() {
        let office = Office::on(&store).await;
        sent(&office.a(), Method::PUT, "/admin/profiles/home", &json!({"prompt": "Hi."})).await;
        office.respond("ada", "home", "One.", "Yes.").await;
        let session = got(&office.a(), "/admin/sessions").await["data"][0]["id"].to_string();
        let gate = amalgam_testkit::Gate::new();
        let reply = Script::text(&["Later."]).reply(Wire::Chat, Delivery::Whole);
        office.world.upstream(Wire::Chat).enqueue(reply.behind(&gate));
        let client = office.a().with_header("x-amalgam-user", "ada");
        let path = format!("/admin/sessions/{session}");
        let body = json!({"agent": "home", "message": "Two."});
        let (answer, busy) = tokio::join!(client.post_json("/api/v2/ai-agent/respond/", &body), async {
            office.world.upstream(Wire::Chat).wait_for_requests(2).await;
            let busy = delete(&office.a(), &path).await;
            gate.open();
            busy
        });
        let error = &busy.json()["error"];
        assert_eq!(
            (busy.status.as_u16(), error["code"].as_str()),
            (409, Some("session_busy")),
            "{}: {error}",
            store.name
        );
        assert_eq!(answer.status, 200, "{}", store.name);
        let shown = got(&office.a(), &path).await;
        assert_eq!((&shown["status"], &shown["message_count"]), (&json!("active"), &json!(4)), "{}", store.name);
    }
}

#[tokio::test]
async fn execute_sessions_and_conversations_of_all_users_are_listed_read_and_deleted() {
    for store in stores() {
        let office = Office::on(&store).await;
        let mut sessions = Vec::new();
        let mut conversations = Vec::new();
        for user in ["ada", "bert"] {
            let client = office.a().with_header("x-amalgam-user", user);
            let made = sent(&client, Method::POST, "/api/agent/sessions", &json!({"Mode": "QA"})).await;
            sessions.push(made["SessionId"].as_str().unwrap_or_default().to_owned());
            office.world.upstream(Wire::Chat).enqueue(Script::text(&["Yes."]).reply(Wire::Chat, Delivery::Whole));
            let step = json!({"SessionId": sessions.last(), "TurnId": "turn-1", "Instruction": "Well?"});
            sent(&client, Method::POST, "/api/agent/execute", &step).await;
            let items = json!({"items": [{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}], "metadata": {"of": user}});
            let made = sent(&client, Method::POST, "/v1/conversations", &items).await;
            conversations.push(made["id"].as_str().unwrap_or_default().to_owned());
        }
        let page = got(&office.a(), "/admin/agent-sessions?limit=1").await;
        assert_eq!((&page["data"][0]["user"], &page["has_more"]), (&json!("bert"), &json!(true)), "{}", store.name);
        let page = got(&office.a(), &format!("/admin/agent-sessions?limit=1&after={}", sessions[1])).await;
        assert_eq!((&page["data"][0]["id"], &page["has_more"]), (&json!(sessions[0]), &json!(false)), "{}", store.name);
        let of_ada = got(&office.a(), "/admin/agent-sessions?user=ada").await;
        assert_eq!(of_ada["data"].as_array().map(Vec::len), Some(1), "{}", store.name);
        let path = format!("/admin/agent-sessions/{}", sessions[0]);
        let shown = got(&office.a(), &path).await;
        let turn = &shown["data"][0];
        assert_eq!((&shown["user"], &shown["mode"]), (&json!("ada"), &json!("QA")), "{}: {shown}", store.name);
        assert_eq!((&turn["turn_id"], &turn["steps"][0]["status"]), (&json!("turn-1"), &json!("completed")), "{shown}");
        let response = turn["steps"][0]["response_id"].as_str().unwrap_or_default();
        assert_eq!(office.a().get(&format!("/admin/turns/{response}")).await.status, 200, "{}", store.name);

        let of_ada = got(&office.a(), "/admin/conversations?user=ada").await;
        assert_eq!(of_ada["data"][0]["metadata"], json!({"of": "ada"}), "{}: {of_ada}", store.name);
        assert_eq!(
            got(&office.a(), "/admin/conversations").await["data"].as_array().map(Vec::len),
            Some(2),
            "{}",
            store.name
        );
        let of_conversation = format!("/admin/conversations/{}", conversations[0]);
        let first = got(&office.a(), &format!("{of_conversation}?limit=1&order=asc")).await;
        assert_eq!(
            (&first["data"][0]["content"][0]["text"], &first["has_more"]),
            (&json!("One."), &json!(true)),
            "{first}"
        );
        let next = format!("{of_conversation}?order=asc&after={}", first["last_id"].as_str().unwrap_or_default());
        assert_eq!(got(&office.a(), &next).await["data"][0]["content"][0]["text"], "Two.", "{}", store.name);

        for path in [&path, &of_conversation] {
            assert_eq!(office.b().get(path).await.status, 404, "{}: {path}", store.name);
            assert_eq!(delete(&office.b(), path).await.status, 404, "{}: {path}", store.name);
            assert_eq!(delete(&office.a(), path).await.status, 200, "{}: {path}", store.name);
            assert_eq!(office.a().get(path).await.status, 404, "{}: {path}", store.name);
        }
        let ada = office.a().with_header("x-amalgam-user", "ada");
        assert_eq!(ada.get(&format!("/v1/responses/{response}")).await.status, 404, "{}: it went too", store.name);
        assert_eq!(office.b().get("/admin/conversations").await.json()["data"], json!([]), "{}", store.name);
    }
}
