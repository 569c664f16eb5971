//! The answers that a front end receives, and what the server stores of them.

use amalgam_assistant::prompt;
use serde_json::{Value, json};

use super::campus::{ALPHA, Campus, HOME, MODEL, kinds, known, prompt_of};
use crate::support::{Said, Script, stores, told};

#[tokio::test]
async fn an_answer_without_tools_has_the_published_fields_and_no_others() {
    // RNCC-13, RNCC-14, RNCC-15
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.says(&[Script::text(&["Hello", ", Ana."])]);
        let answer = super::campus::respond(&ana, &json!({"agent": "home-assistant", "message": "Hi"})).await;
        let text = answer.text();
        let body = answer.json();
        let number = |name: &str| body[name].as_i64().unwrap_or_else(|| panic!("{name} is an integer: {body}"));
        let hash = prompt::hash(HOME);
        // The order of the published example, too.
        let expected = format!(
            "{{\"session_id\":{},\"user_message_id\":{},\"assistant_message_id\":{},\"message\":\"Hello, Ana.\",\
             \"model\":\"{MODEL}\",\"response_id\":\"resp_up_1\",\"prompt\":{{\"version\":\"v1\",\"hash\":\"{hash}\",\
             \"profile_version\":1}}}}",
            number("session_id"),
            number("user_message_id"),
            number("assistant_message_id"),
        );
        assert_eq!(text, expected);
        assert!(number("user_message_id") < number("assistant_message_id"));

        // The next message is in the same session, with ids of its own.
        let next = campus.chat(&ana, json!({"agent": "home-assistant", "message": "And?"}), "Well.").await;
        assert_eq!(next["session_id"], body["session_id"]);
        assert!(next["user_message_id"].as_i64() > Some(number("assistant_message_id")), "{next}");
    }
}

#[tokio::test]
async fn tool_results_are_objects_under_the_models_own_ids_in_the_order_of_the_calls() {
    // RNCC-14, RNCC-16, RNCC-31, RNCC-36, RNCC-37
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        let call = |id: &str, arguments: &str| Said::call(id, "get_course_detail", &[arguments]);
        campus.says(&[
            Script::new([
                Said::text(&["Let me look."]),
                call("call_b", "{\"course_id\":28}"),
                call("call_a", "{\"course_id\":\"30\"}"),
            ]),
            Script::new([call("call_c", "{\"course_id\":29}")]),
            Script::text(&["Two courses."]),
        ]);
        let body = campus.told(&ana, json!({"agent": "course-assistant", "message": "Compare."})).await;
        // The text of the last call alone, and the id of the last call.
        assert_eq!((&body["message"], &body["response_id"]), (&json!("Two courses."), &json!("resp_up_3")));
        let leadership = json!({"course": {
            "id": 28, "title": "Leadership Foundations", "description": "About Leadership Foundations.",
            "modality": "Learn", "status": "Started", "content_in_sequence": false, "min_percentage_finish": 100,
            "tags": ["leadership", "communication"],
        }});
        let results = body["tool_results"].as_array().expect("tools ran");
        let expected = [
            json!({"id": "call_b", "name": "get_course_detail", "output": leadership}),
            json!({"id": "call_a", "name": "get_course_detail", "output": results[1]["output"]}),
            json!({"id": "call_c", "name": "get_course_detail", "output": {"error": "Course with id=29 was not found."}}),
        ];
        assert_eq!(*results, expected);
        assert_eq!(results[1]["output"]["course"]["title"], "Dasar Kepemimpinan");
        // The model received the same, each output behind its call.
        let told = told(&campus.last_asked());
        let outputs: Vec<Value> = told
            .iter()
            .filter(|(who, _)| who == "output")
            .map(|(_, output)| serde_json::from_str(output).expect("an output is JSON"))
            .collect();
        assert_eq!(outputs, results.iter().map(|one| one["output"].clone()).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn everything_about_an_answer_is_kept_under_the_published_kinds() {
    // RNCC-01
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.says(&[
            Script::new([Said::call("call_1", "get_course_detail", &["{\"course_id\":28}"])]),
            Script::text(&["It is about leading."]),
        ]);
        let body = json!({"agent": "course-assistant", "message": "Sum it up", "metadata": {"course_id": "28"}});
        let answer = campus.told(&ana, body).await;
        let thread = campus.thread(ALPHA, &answer["session_id"]).await;
        let rows: Vec<(&Value, &Value, &Value)> =
            thread.iter().map(|message| (&message["id"], &message["role"], &message["content"])).collect();
        assert_eq!(
            rows,
            [
                (&answer["user_message_id"], &json!("user"), &json!("Sum it up")),
                (&answer["assistant_message_id"], &json!("assistant"), &json!("It is about leading.")),
            ]
        );
        assert_eq!(kinds(&thread[0]), ["context"]);
        let context = json!({
            "agent": "course-assistant", "profile_found": true, "course_id": 28, "course_found": true,
        });
        assert_eq!(known(&thread[0], "context"), [&context]);
        assert_eq!(kinds(&thread[1]), ["system_prompt", "model_usage", "tool_call"]);
        let told = known(&thread[1], "system_prompt")[0];
        assert_eq!((&told["version"], &told["hash"]), (&json!("v1"), &answer["prompt"]["hash"]));
        assert_eq!(told["text"], prompt_of(&campus.last_asked()));
        let usage = known(&thread[1], "model_usage")[0];
        // Two calls of the model, each with 11 tokens in and 7 out.
        let counted = [&usage["model"], &usage["response_id"], &usage["input_tokens"], &usage["output_tokens"]];
        assert_eq!(counted, [&json!(MODEL), &json!("resp_up_2"), &json!(22), &json!(14)], "{usage}");
        let call = known(&thread[1], "tool_call")[0];
        assert_eq!(
            [&call["id"], &call["name"], &call["arguments"], &call["output"]],
            [
                &json!("call_1"),
                &json!("get_course_detail"),
                &json!("{\"course_id\":28}"),
                &answer["tool_results"][0]["output"]
            ]
        );
        // The requests and answers of the turn can be inspected.
        let turn = usage["turn_id"].as_str().expect("a turn has an id");
        let record = campus.admin(ALPHA).get(&format!("/admin/turns/{turn}")).await;
        assert_eq!(record.status, 200, "{}", record.text());
        assert_eq!(thread[1]["response_id"], *turn);
    }
}

#[tokio::test]
async fn a_model_that_stops_at_its_limit_still_answers() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.says(&[Script::text(&["Half an ans"]).cut_by_length()]);
        let body = campus.told(&ana, json!({"message": "Hi"})).await;
        assert_eq!(body["message"], "Half an ans");
        campus.says(&[Script::new([Said::refusal(&["I'd rather not."])])]);
        let answer = super::campus::respond(&ana, &json!({"message": "Do it"})).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["message"]),
            (200, &json!("I'd rather not.")),
            "{}",
            answer.text()
        );
    }
}
