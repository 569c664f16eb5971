//! Answers, stored records and hidden details when a part of the server or an upstream fails.

use std::time::Duration;

use amalgam_testkit::{Reply, Setup};
use serde_json::{Value, json};

use super::campus::{ALPHA, Campus, kinds, known, respond, said};
use crate::support::{Said, Script, stores};

const UNAVAILABLE: &str = "{\"detail\":\"AI service is temporarily unavailable.\"}";

/// An upstream's message that no caller may read.
const INSIDE: &str = "org-4711 sk-secret quota of Acme";

fn error(status: u16, kind: &str) -> Reply {
    Reply::status(status).with_json(json!({"error": {"message": INSIDE, "type": kind, "code": kind, "param": null}}))
}

#[tokio::test]
async fn a_failure_behind_the_door_says_nothing_about_itself_and_keeps_what_the_user_said() {
    // RNCC-17, RNCC-18, RNCC-20
    for store in stores() {
        let campus = Campus::with(&store, Setup::new().extra("[limits]\nturn_deadline = \"20s\"")).await;
        let failures = || {
            [
                ("unknown model", vec![error(404, "model_not_found")]),
                ("wrong key", vec![error(401, "invalid_api_key")]),
                ("quota", vec![error(429, "insufficient_quota")]),
                ("too long", vec![error(400, "context_length_exceeded")]),
                ("policy", vec![error(400, "content_policy_violation")]),
                ("down", vec![error(500, "server_error"); 10]),
                ("cut", vec![Reply::close(); 10]),
                ("a page", vec![Reply::html(502, INSIDE); 10]),
                ("no JSON", vec![Reply::bytes("application/json", INSIDE); 10]),
                ("says nothing", vec![super::campus::whole(&Script::new([]), "resp_up_1"); 10]),
                ("blank", vec![super::campus::whole(&Script::text(&["  \n"]), "resp_up_1"); 10]),
            ]
        };
        for (what, replies) in failures() {
            let user = campus.user(ALPHA, &what.replace(' ', "-"));
            replies.into_iter().for_each(|reply| campus.upstream.enqueue(reply));
            let answer = respond(&user, &json!({"message": "Hi there"})).await;
            assert_eq!((answer.status.as_u16(), answer.text().as_str()), (503, UNAVAILABLE), "{what}");
            for (name, value) in &answer.headers {
                assert!(!String::from_utf8_lossy(value.as_bytes()).contains("4711"), "{what}: {name}");
            }
            let session = user.get("/api/v2/ai-agent/sessions/").await.json()["results"][0]["id"].clone();
            let thread = campus.thread(ALPHA, &session).await;
            let rows: Vec<(&Value, &Value)> = thread.iter().map(|row| (&row["role"], &row["content"])).collect();
            assert_eq!(rows, [(&json!("user"), &json!("Hi there"))], "{what}");
            assert_eq!(kinds(&thread[0]), ["context", "error"], "{what}: {}", thread[0]);
            let told = known(&thread[0], "error")[0];
            assert!(told["code"].is_string() && told["message"].is_string(), "{what}: {told}");
            // The rest of the script is not used.
            while campus.upstream.replies_left() > 0 {
                let spare = amalgam_testkit::Client::new(&campus.upstream.url());
                let _ = spare.try_request(http::Method::POST, "/v1/responses", &[], "{}".into()).await;
            }
            // The thread continues, and the model receives the messages before.
            let body = campus.chat(&user, json!({"message": "Again"}), "Now.").await;
            assert_eq!(body["session_id"], session, "{what}");
            let expected = ["user Hi there", "user Again"];
            let heard: Vec<String> =
                said(&campus.last_asked()).into_iter().map(|(role, text)| format!("{role} {text}")).collect();
            assert_eq!(heard, expected, "{what}");
        }
        assert!(!campus.amalgam.stderr().contains("panic"), "{}", campus.amalgam.stderr());
    }
}

#[tokio::test]
async fn a_tool_that_failed_is_told_as_its_output_and_the_turn_goes_on() {
    // RNCC-32, RNCC-37, RNCC-39
    for store in stores() {
        let service = amalgam_testkit::Upstream::always(Reply::reset());
        let setup = Setup::new().extra(&format!("[egress]\nallow_private = [\"{}\"]", service.address()));
        let campus = Campus::with(&store, setup).await;
        let broken = json!({
            "description": "Breaks.", "kind": "http", "parameters": {"type": "object"},
            "settings": {"method": "POST", "url": format!("{}/broken", service.url()), "body": "arguments"},
        });
        let put = crate::support::put_tool(&campus.admin(ALPHA), "broken", &broken).await;
        assert!(put.status.is_success(), "{}", put.text());
        let tools = json!({"prompt": "x", "tools": ["get_course_detail", "get_course_recommendation", "broken"]});
        campus.put_profile(ALPHA, "clumsy", tools).await;
        let ana = campus.user(ALPHA, "ana");
        campus.says(&[
            Script::new([
                Said::call("call_1", "get_course_detail", &["{\"course\":28}"]),
                Said::call("call_2", "get_course_detail", &["{\"course_id\":"]),
                Said::call("call_3", "get_course_detail", &["{\"course_id\":0}"]),
                Said::call("call_4", "get_course_detail", &["{\"course_id\":12345}"]),
                Said::call("call_5", "no_such_tool", &["{}"]),
                Said::call("call_6", "broken", &["{}"]),
                Said::call("call_7", "get_course_recommendation", &["{\"query\":5}"]),
            ]),
            Script::text(&["Sorry."]),
        ]);
        let body = campus.told(&ana, json!({"agent": "clumsy", "message": "Try"})).await;
        assert_eq!(body["message"], "Sorry.");
        let results = body["tool_results"].as_array().expect("calls were dealt with");
        let ids: Vec<&str> = results.iter().filter_map(|result| result["id"].as_str()).collect();
        assert_eq!(ids, ["call_1", "call_2", "call_3", "call_4", "call_5", "call_6", "call_7"], "{body}");
        for result in results {
            let output = result["output"].as_object().expect("an output is an object");
            assert!(output["error"].is_string(), "{result}");
        }
        assert_eq!(results[2]["output"], json!({"error": "course_id must be a positive integer."}));
        assert_eq!(results[3]["output"], json!({"error": "Course with id=12345 was not found."}));
        assert_eq!(results[4]["name"], "no_such_tool");
        // The handler of a call with wrong arguments did not run; that of the broken one did, and has an error of its own.
        assert_eq!(service.requests().len(), 1);
        let thread = campus.thread(ALPHA, &body["session_id"]).await;
        let errors = known(&thread[1], "error");
        assert_eq!(errors.len(), 1, "{}", thread[1]);
        assert_eq!(errors[0]["tool_call_id"], "call_6");
        assert_eq!(known(&thread[1], "tool_call").len(), 7);
    }
}

#[tokio::test]
async fn a_model_that_takes_too_long_is_given_up_and_the_line_moves_on() {
    // RNCC-40: AI_AGENT_REQUEST_TIMEOUT
    for store in stores() {
        let campus = Campus::with(&store, Setup::new().env("AI_AGENT_REQUEST_TIMEOUT", "1")).await;
        let ana = campus.user(ALPHA, "ana");
        for _ in 0..10 {
            campus.upstream.enqueue(Reply::hang());
        }
        let started = std::time::Instant::now();
        let answer = respond(&ana, &json!({"message": "Hi"})).await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (503, UNAVAILABLE));
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    }
}
