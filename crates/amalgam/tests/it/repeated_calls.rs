//! Calls that a model makes again and again: run twice at most, then answered without the tool.

use amalgam_testkit::{Amalgam, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, Delivery, Said, Script, Wire, stores};

#[tokio::test]
async fn a_number_and_its_text_are_the_same_call_and_what_stands_for_the_result_is_an_error() {
    // right B2
    for store in stores() {
        let upstream = Upstream::start();
        let setup = Setup::new().tenant_key("am_one").upstream("up", "chat", &upstream.base_url());
        let amalgam = Amalgam::start(BINARY, store.setup(setup.option("models", "[\"m\"]"))).await;
        Cli::beside(&amalgam, &store).text(&["seed", "profiles", "--tenant", "1"]);
        for (number, arguments) in
            [r#"{"course_id": 28}"#, r#"{"course_id": "28"}"#, r#"{"course_id":28.0}"#].iter().enumerate()
        {
            let call = Said::call(&format!("call_{number}"), "get_course_detail", &[arguments]);
            upstream.enqueue(Script::new([call]).reply(Wire::Chat, Delivery::Whole));
        }
        upstream.enqueue(Script::text(&["Done."]).reply(Wire::Chat, Delivery::Whole));
        let body = json!({"agent": "course-assistant", "message": "What is it about?"});
        let answer = amalgam.client().post_json("/api/v2/ai-agent/respond/", &body).await;
        assert_eq!(answer.status, 200, "{}: {}", store.name, answer.text());
        let answer = answer.json();
        let outputs: Vec<&Value> =
            answer["tool_results"].as_array().unwrap().iter().map(|one| &one["output"]).collect();
        assert_eq!(outputs.len(), 3, "{answer}");
        assert_eq!(outputs[0], outputs[1], "{}: the first two run", store.name);
        assert!(outputs[0].get("suppressed").is_none(), "{answer}");
        assert_eq!((&outputs[2]["suppressed"], &outputs[2]["tool"]), (&json!(true), &json!("get_course_detail")));
        let error = outputs[2]["error"].as_str().unwrap();
        assert!(error.contains("same arguments"), "{error}");
    }
}
