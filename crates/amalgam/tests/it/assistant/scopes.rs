//! Whose thread is whose, and how a front end gets its own back.

use serde_json::{Value, json};

use super::campus::{ALPHA, BETA, Campus, said};
use crate::support::stores;

#[tokio::test]
async fn a_thread_belongs_to_one_user_of_one_company_with_one_profile() {
    // RNCC-26, RNCC-27, RNCC-29
    for store in stores() {
        let campus = Campus::on(&store).await;
        let mut threads: Vec<(Value, Vec<String>)> = Vec::new();
        for round in ["first", "second"] {
            let mut place = 0;
            for (key, user) in [(ALPHA, "ana"), (ALPHA, "ben"), (BETA, "ana")] {
                for agent in [json!("home-assistant"), json!("course-assistant"), Value::Null] {
                    let words = format!("{round} {key} {user} {agent}");
                    let body = json!({"agent": agent, "message": words});
                    let answer = campus.chat(&campus.user(key, user), body, &format!("to {words}")).await;
                    let heard: Vec<String> = said(&campus.last_asked()).into_iter().map(|(_, text)| text).collect();
                    match round {
                        "first" => {
                            assert_eq!(heard, [words.as_str()]);
                            threads.push((answer["session_id"].clone(), vec![words.clone(), format!("to {words}")]));
                        }
                        _ => {
                            let (session, before) = &threads[place];
                            assert_eq!(answer["session_id"], *session, "{words}");
                            assert_eq!(heard, [before.as_slice(), &[words]].concat());
                        }
                    }
                    place += 1;
                }
            }
        }
        let mut sessions: Vec<i64> = threads.iter().filter_map(|(session, _)| session.as_i64()).collect();
        sessions.sort_unstable();
        sessions.dedup();
        assert_eq!(sessions.len(), 9, "no two share a thread");
    }
}

#[tokio::test]
async fn users_get_their_own_threads_back_and_no_others() {
    // RNCC-29
    for store in stores() {
        let campus = Campus::on(&store).await;
        let (ana, ben, far) = (campus.user(ALPHA, "ana"), campus.user(ALPHA, "ben"), campus.user(BETA, "ana"));
        let first = campus.chat(&ana, json!({"message": "one"}), "two").await;
        let second = campus.chat(&ana, json!({"agent": "home-assistant", "message": "three"}), "four").await;
        campus.chat(&ana, json!({"message": "five"}), "six").await;
        let sessions = ana.get("/api/v2/ai-agent/sessions/").await.json();
        assert_eq!(sessions["next"], Value::Null);
        let shown: Vec<(&Value, &Value, &Value, &Value)> = sessions["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (&one["id"], &one["agent"], &one["status"], &one["message_count"]))
            .collect();
        let (active, null) = (json!("active"), Value::Null);
        let home = (&second["session_id"], &json!("home-assistant"), &active, &json!(2));
        let other = (&first["session_id"], &null, &active, &json!(4));
        assert_eq!(shown, [home, other], "the newest thread first");

        // The newest message first, page by page.
        let path = format!("/api/v2/ai-agent/sessions/{}/messages/", first["session_id"]);
        let mut texts = Vec::new();
        let mut after = String::new();
        loop {
            let page = ana.get(&format!("{path}?limit=3{after}")).await.json();
            for message in page["results"].as_array().unwrap() {
                assert_eq!(message.as_object().unwrap().len(), 4, "{message}");
                texts.push(format!("{} {}", message["role"].as_str().unwrap(), message["message"].as_str().unwrap()));
            }
            match page["next"].as_i64() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(texts, ["assistant six", "user five", "assistant two", "user one"]);
        let threads = ana.get("/api/v2/ai-agent/sessions/?limit=1").await.json();
        let next = &threads["next"];
        let rest = ana.get(&format!("/api/v2/ai-agent/sessions/?limit=1&after={next}")).await.json();
        assert_eq!(rest["results"][0]["id"], first["session_id"]);
        assert_eq!(rest["next"], Value::Null);

        // To all other callers it is as if it did not exist.
        let missing = ana.get("/api/v2/ai-agent/sessions/987654/messages/").await;
        assert_eq!((missing.status.as_u16(), missing.json()), (404, json!({"detail": "Not found."})));
        for client in [&ben, &far] {
            let answer = client.get(&path).await;
            assert_eq!((answer.status, answer.body), (missing.status, missing.body.clone()));
            assert_eq!(client.get("/api/v2/ai-agent/sessions/").await.json()["results"], json!([]));
        }
        for wrong in ["?limit=0", "?limit=101", "?limit=x", "?after=-1"] {
            let answer = ana.get(&format!("/api/v2/ai-agent/sessions/{wrong}")).await;
            assert_eq!(answer.status, 400, "{wrong}");
            assert!(answer.json()["detail"].is_string(), "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_tenant_that_keeps_no_responses_keeps_its_threads_all_the_same() {
    // C-18
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.cli().json(&["tenants", "set", "1", "state=stateless"]);
        let first = campus.chat(&ana, json!({"message": "one"}), "two").await;
        let second = campus.chat(&ana, json!({"message": "three"}), "four").await;
        assert_eq!(first["session_id"], second["session_id"]);
        let heard: Vec<String> = said(&campus.last_asked()).into_iter().map(|(_, text)| text).collect();
        assert_eq!(heard, ["one", "two", "three"]);
        assert_eq!(campus.thread(ALPHA, &first["session_id"]).await.len(), 4);
    }
}
