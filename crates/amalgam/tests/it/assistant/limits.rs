//! How much a model may say: in each call, and in all calls of a turn together.

use amalgam_testkit::Setup;
use serde_json::{Value, json};

use super::campus::{ALPHA, Campus, respond, said};
use crate::support::{Said, Script, stores};

/// Seven tokens of output, by the scripted upstream's count.
fn detail(id: &str) -> Script {
    Script::new([Said::call(id, "get_course_detail", &["{\"course_id\":28}"])])
}

fn limits(asked: &[Value]) -> Vec<Option<u64>> {
    asked.iter().map(|request| request["max_output_tokens"].as_u64()).collect()
}

// right C6
#[tokio::test]
async fn the_assistants_limit_of_output_bounds_each_call_of_the_model() {
    for store in stores() {
        let campus = Campus::with(&store, Setup::new().env("AI_AGENT_MAX_OUTPUT_TOKENS", "8")).await;
        let ana = campus.user(ALPHA, "ana");
        campus.says(&[detail("call_1"), detail("call_2"), Script::text(&["Enough."])]);
        let answer = campus.told(&ana, json!({"agent": "course-assistant", "message": "Hi"})).await;
        assert_eq!((&answer["message"], answer.get("incomplete_details")), (&json!("Enough."), None));
        assert_eq!(limits(&campus.asked()), [Some(8); 3], "{}", store.name);
        // A profile in the place of a model: its default bounds each call, the caller's own limit the whole response.
        let door = async |extra: Value| {
            let mut request = json!({"model": "course-assistant", "input": "Hi"});
            extra.as_object().expect("fields").iter().for_each(|(key, value)| request[key] = value.clone());
            campus.says(&[detail("call_1"), Script::text(&["Enough."])]);
            let answer = ana.post_json("/v1/responses", &request).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let asked = campus.asked();
            (answer.json()["status"].clone(), limits(&asked[asked.len() - 2..]))
        };
        assert_eq!(door(json!({})).await, (json!("completed"), vec![Some(8), Some(8)]), "{}", store.name);
        let own = door(json!({"max_output_tokens": 20})).await;
        assert_eq!(own, (json!("completed"), vec![Some(20), Some(13)]), "{}", store.name);
    }
}

// right C6
#[tokio::test]
async fn an_answer_that_its_limit_cuts_before_the_first_word_is_incomplete_and_no_failure() {
    for store in stores() {
        let campus = Campus::with(&store, Setup::new().env("AI_AGENT_MAX_OUTPUT_TOKENS", "8")).await;
        let ana = campus.user(ALPHA, "ana");
        let mut cut = Script::new([Said::reasoning(&["Let me see"])]);
        cut.cut_by_length = true;
        campus.says(&[cut]);
        let answer = respond(&ana, &json!({"message": "Hi"})).await;
        assert_eq!(answer.status, 200, "{}: {}", store.name, answer.text());
        let body = answer.json();
        assert_eq!(
            (&body["message"], &body["incomplete_details"]["reason"]),
            (&json!(""), &json!("max_output_tokens"))
        );
        // The session continues without an empty message.
        campus.chat(&ana, json!({"message": "Again"}), "Now.").await;
        let heard: Vec<String> =
            said(&campus.last_asked()).into_iter().map(|(role, text)| format!("{role} {text}")).collect();
        assert_eq!(heard, ["user Hi", "user Again"], "{}", store.name);
    }
}
