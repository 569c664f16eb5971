//! Which requests are accepted, which are refused, with which errors and in which order.

use amalgam_testkit::{Client, HttpAnswer, Setup, Upstream};
use http::Method;
use serde_json::{Value, json};

use super::campus::{ALPHA, BETA, Campus, MODEL, RESPOND, TENANTS, respond, said};
use crate::support::{Script, stores};

/// Status and body of an answer.
fn told(answer: &HttpAnswer) -> (u16, Value) {
    assert_eq!(answer.header("content-type"), Some("application/json"), "{}", answer.text());
    (answer.status.as_u16(), answer.json())
}

async fn refused(campus: &Campus<'_>, client: &Client, body: &Value) -> (u16, Value) {
    let before = campus.asked().len();
    let answer = told(&respond(client, body).await);
    assert_eq!(campus.asked().len(), before, "the model was asked: {body}");
    answer
}

#[tokio::test]
async fn a_caller_without_a_key_gets_the_documented_error_of_this_wire() {
    // RNCC-02
    for store in stores() {
        let campus = Campus::on(&store).await;
        let expected = json!({"detail": "Authentication credentials were not provided or are not valid."});
        for client in [Client::new(campus.amalgam.url()), campus.admin("am_unknown")] {
            for (method, path) in [
                (Method::POST, RESPOND),
                (Method::POST, "/api/v2/ai-agent/respond"),
                (Method::GET, "/api/v2/ai-agent/respond/resp_1/"),
                (Method::GET, "/api/v2/ai-agent/health/"),
                (Method::GET, "/api/v2/ai-agent/sessions/"),
                (Method::GET, "/api/v2/ai-agent/sessions/1/messages/"),
                (Method::GET, "/api/v2/course-recommendations/?q=data"),
            ] {
                // What is said is not even looked at. RNCC-19
                let answer = client.request(method, path, &[("content-type", "application/json")], "{".into()).await;
                assert_eq!(told(&answer), (401, expected.clone()), "{path}");
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            }
        }
        assert_eq!(campus.asked(), Vec::<Value>::new());
    }
}

#[tokio::test]
async fn every_path_works_with_and_without_the_slash_at_its_end() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.upstream.always_for("/models/gpt-4o-mini", amalgam_testkit::Reply::json(json!({"id": MODEL})));
        let mut bodies = Vec::new();
        for end in ["", "/"] {
            campus.says(&[Script::text(&["Hello."])]);
            let path = format!("/api/v2/ai-agent/respond{end}");
            let answer = ana.post_json(&path, &json!({"message": "Hi"})).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            bodies.push(answer.json());
            for path in ["health", "sessions", &format!("sessions/{}/messages", bodies[0]["session_id"])] {
                let answer = ana.get(&format!("/api/v2/ai-agent/{path}{end}")).await;
                assert_eq!(answer.status, 200, "{path}{end}: {}", answer.text());
            }
            let answer = ana.get(&format!("/api/v2/course-recommendations{end}?q=data")).await;
            assert_eq!((answer.status.as_u16(), &answer.json()["count"]), (200, &json!(7)), "{}", answer.text());
        }
        assert_eq!(bodies[0]["session_id"], bodies[1]["session_id"]);
        // Errors about unknown paths have the shape of this wire, too.
        for (method, path, status) in [
            (Method::GET, RESPOND, 405),
            (Method::DELETE, "/api/v2/ai-agent/health/", 405),
            (Method::GET, "/api/v2/ai-agent/nothing/", 404),
            (Method::GET, "/api/v2/ai-agent/sessions/999999/messages/", 404),
            (Method::GET, "/api/v2/ai-agent/sessions/x/messages/", 404),
            (Method::GET, "/api/v2/ai-agent/respond/resp_nothing/", 404),
        ] {
            let answer = ana.request(method, path, &[], bytes::Bytes::new()).await;
            let (found, body) = told(&answer);
            assert_eq!(found, status, "{path}: {body}");
            assert!(body["detail"].is_string() && body.as_object().map(serde_json::Map::len) == Some(1), "{body}");
        }
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_by_field_in_known_words() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        let map = |field: &str, text: &str| json!({field: [text]});
        let metadata = |text: &str| map("metadata", text);
        let positive = "course_id must be a positive integer.";
        for (body, expected) in [
            // RNCC-03, RNCC-07
            (json!({}), map("message", "This field is required.")),
            (json!({"message": null}), map("message", "This field may not be null.")),
            (json!({"message": ""}), map("message", "This field may not be blank.")),
            (json!({"message": " \n\t\u{2003}"}), map("message", "This field may not be blank.")),
            (json!({"message": ["Hi"]}), map("message", "Not a valid string.")),
            // RNCC-08: characters, not bytes
            (
                json!({"message": "é".repeat(4001)}),
                map("message", "Ensure this field has no more than 4000 characters."),
            ),
            // RNCC-04
            (
                json!({"message": "Hi", "agent": "a".repeat(101)}),
                map("agent", "Ensure this field has no more than 100 characters."),
            ),
            (json!({"message": "Hi", "agent": 5}), map("agent", "Not a valid string.")),
            // RNCC-09
            (json!({"message": "Hi", "metadata": null}), metadata("This field may not be null.")),
            (
                json!({"message": "Hi", "metadata": [1]}),
                metadata("Expected a dictionary of items but got type \"list\"."),
            ),
            (
                json!({"message": "Hi", "metadata": "28"}),
                metadata("Expected a dictionary of items but got type \"str\"."),
            ),
            // RNCC-10
            (json!({"message": "Hi", "metadata": {"foo": 1}}), metadata("Unknown metadata keys: foo.")),
            (
                json!({"message": "Hi", "metadata": {"zoo": 1, "course_id": 28, "Bar": 2, "foo": null}}),
                metadata("Unknown metadata keys: Bar, foo, zoo."),
            ),
            // RNCC-11
            (json!({"message": "Hi", "metadata": {"course_id": 0}}), metadata(positive)),
            (json!({"message": "Hi", "metadata": {"course_id": -28}}), metadata(positive)),
            (json!({"message": "Hi", "metadata": {"course_id": 28.5}}), metadata(positive)),
            (json!({"message": "Hi", "metadata": {"course_id": true}}), metadata(positive)),
            (json!({"message": "Hi", "metadata": {"course_id": "28a"}}), metadata(positive)),
            (json!({"message": "Hi", "metadata": {"course_id": ""}}), metadata(positive)),
            (json!({"message": "Hi", "metadata": {"course_id": null}}), metadata(positive)),
            // All errors are reported at once.
            (
                json!({"message": " ", "agent": 5, "metadata": {"foo": 1, "course_id": 0}}),
                json!({
                    "agent": ["Not a valid string."], "message": ["This field may not be blank."],
                    "metadata": ["Unknown metadata keys: foo.", positive],
                }),
            ),
            (json!([]), json!({"non_field_errors": ["Invalid data. Expected a dictionary, but got list."]})),
        ] {
            assert_eq!(refused(&campus, &ana, &body).await, (400, expected), "{body}");
        }
        let broken = ana.post_raw(RESPOND, "application/json", "{\"message\": ").await;
        let (status, body) = told(&broken);
        assert_eq!(status, 400, "{body}");
        assert!(body["detail"].as_str().is_some_and(|text| text.starts_with("JSON parse error - ")), "{body}");
        let form = ana.post_raw(RESPOND, "application/x-www-form-urlencoded", "message=Hi").await;
        assert_eq!(told(&form).0, 415, "{}", form.text());
        let sessions = ana.get("/api/v2/ai-agent/sessions/").await.json();
        assert_eq!(sessions["results"], json!([]), "a request that was refused leaves no thread");
    }
}

#[tokio::test]
async fn what_is_just_inside_the_limits_is_answered() {
    // RNCC-08, RNCC-11, RNCC-12
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        for body in [
            json!({"message": "é".repeat(4000)}),
            json!({"message": format!("  {}\n", "x".repeat(4000))}),
            json!({"message": "Hi", "agent": "ü".repeat(100)}),
            json!({"message": "Hi", "agent": ""}),
            json!({"message": "Hi", "agent": null}),
            json!({"message": "Hi", "metadata": {}}),
            json!({"message": "Hi", "metadata": {"course_id": "28"}}),
            json!({"message": "Hi", "metadata": {"course_id": 9_007_199_254_740_991_i64}}),
            json!({"message": "Hi", "something_new": [1, 2]}),
        ] {
            campus.chat(&ana, body, "Fine.").await;
        }
        let (role, text) = said(&campus.asked()[1]).pop().expect("something was said");
        assert_eq!((role.as_str(), text.chars().count()), ("user", 4000), "white space around it is not said");

        // Bytes of the shortest JSON with the same meaning, as UTF-8.
        campus.configure(ALPHA, json!({"metadata_max_bytes": 20})).await;
        let sent = r#"{"message": "Hi", "metadata":   {  "course_id" : "\u0032\u0038" }  }"#;
        campus.says(&[Script::text(&["Fine."])]);
        let answer = ana.post_raw(RESPOND, "application/json", sent).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let too_large = json!({"metadata": ["Metadata is too large: it may have at most 20 bytes."]});
        for metadata in [json!({"course_id": 1_234_567_890_i64}), json!({"éééééééé": 1})] {
            let body = json!({"message": "Hi", "metadata": metadata});
            assert_eq!(refused(&campus, &ana, &body).await, (400, too_large.clone()), "{body}");
        }
    }
}

#[tokio::test]
async fn the_flag_comes_before_the_fields_and_the_fields_before_the_key() {
    // RNCC-17, RNCC-18, RNCC-19
    for store in stores() {
        let upstream = Upstream::start();
        let setup = Setup::new().extra(&format!(
            "[upstreams.up]\nkind = \"responses\"\nbase_url = \"{}\"\napi_key = \"env:OPENAI_API_KEY\"\nmodels = [\"{MODEL}\"]\n{TENANTS}",
            upstream.base_url()
        ));
        let campus = Campus::around(&store, setup, upstream).await;
        let (ana, ben) = (campus.user(ALPHA, "ana"), campus.user(BETA, "ben"));
        campus.cli().json(&["tenants", "set", "1", "ai_agent_enabled=false"]);
        let disabled = json!({"detail": "AI agent is disabled for this company."});
        let blank = json!({"message": ["This field may not be blank."]});
        let no_key = json!({"detail": "OPENAI_API_KEY is not configured."});
        assert_eq!(refused(&campus, &ana, &json!({"message": ""})).await, (403, disabled.clone()));
        assert_eq!(refused(&campus, &ana, &json!({"message": "Hi"})).await, (403, disabled));
        assert_eq!(refused(&campus, &ben, &json!({"message": ""})).await, (400, blank));
        assert_eq!(refused(&campus, &ben, &json!({"message": "Hi"})).await, (503, no_key.clone()));
        let body = json!({"message": "Hi", "agent": "home-assistant"});
        assert_eq!(refused(&campus, &ben, &body).await, (503, no_key));
        // A key of the tenant's own will do.
        campus.configure(BETA, json!({"api_key": "sk-beta"})).await;
        campus.chat(&ben, body, "Hello.").await;
        assert_eq!(campus.upstream.requests()[0].header("authorization"), Some("Bearer sk-beta"));
        // And the flag can be set again.
        campus.cli().json(&["tenants", "set", "1", "ai_agent_enabled=true"]);
        let answer = respond(&ana, &json!({"message": "Hi"})).await;
        assert_eq!(told(&answer).0, 503, "{}", answer.text());
    }
}
