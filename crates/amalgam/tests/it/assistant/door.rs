//! The same agent behind the other door: a profile in the place of a model.

use amalgam_assistant::prompt;
use http::Method;
use serde_json::{Value, json};

use super::campus::{ALPHA, BETA, COURSE, Campus, HOME, prompt_of, said, streamed, whole};
use crate::support::{
    Said, Script, assert_refused, checked_events, ended, error_of, id_of, last_response, shown, stores, text_of,
};

fn detail() -> Script {
    Script::new([Said::call("call_1", "get_course_detail", &["{\"course_id\":28}"])])
}

/// What a response of the profile says about itself.
fn about(words: &str, version: &str) -> Value {
    json!({
        "agent": "course-assistant", "agent_version": version, "prompt_version": "v1", "prompt_hash": prompt::hash(words),
    })
}

#[tokio::test]
async fn a_profile_answers_as_a_model_with_its_prompt_and_its_tools() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        campus.configure(ALPHA, json!({"system_prompt": "Config.", "temperature": 0.5, "max_output_tokens": 77})).await;
        let words = format!("Config.\n\nAgent profile task:\n{COURSE}");
        let ana = campus.user(ALPHA, "ana");
        campus.says(&[detail(), Script::text(&["About leading."])]);
        let request = json!({"model": "course-assistant", "input": "What is it?", "metadata": {"mine": "yes"}});
        let answer = ana.post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let response = answer.json();
        assert_eq!((&response["model"], text_of(&response)), (&json!("course-assistant"), "About leading.".to_owned()));
        assert_eq!(shown(&response), ["bank/get_course_detail({\"course_id\":28}) completed", "message"]);
        let mut metadata = about(&words, "1");
        metadata["mine"] = json!("yes");
        assert_eq!(response["metadata"], metadata);
        let asked = &campus.asked()[0];
        let sent = ["model", "temperature", "max_output_tokens"].map(|key| &asked[key]);
        assert_eq!(
            (sent, prompt_of(asked)),
            ([json!("gpt-4o-mini"), json!(0.5), json!(77)].each_ref(), words.as_str())
        );
        assert_eq!(asked["tools"][0]["name"], "get_course_detail");

        // Its prompt stays inside, also when the response is retrieved later.
        let id = id_of(&response);
        for path in [format!("/v1/responses/{id}"), format!("/v1/responses/{id}/input_items")] {
            let seen = ana.get(&path).await;
            assert_eq!(seen.status, 200);
            assert!(!seen.text().contains(COURSE) && !seen.text().contains("Config."), "{}", seen.text());
        }
        assert_eq!(response["instructions"], Value::Null);

        // A caller's own instructions come behind it; and they are what the response shows.
        campus.says(&[Script::text(&["And more."])]);
        let request = json!({
            "model": "course-assistant", "input": "And?", "previous_response_id": id, "instructions": "Rhyme.",
            "temperature": 0.75,
        });
        let next = ana.post_json("/v1/responses", &request).await.json();
        assert_eq!(next["instructions"], "Rhyme.");
        let asked = campus.last_asked();
        assert_eq!((prompt_of(&asked), &asked["temperature"]), (&*format!("{words}\n\nRhyme."), &json!(0.75)));
        let heard: Vec<String> = said(&asked).into_iter().map(|(_, text)| text).collect();
        assert_eq!(heard, ["What is it?", "About leading.", "And?"], "a chain goes on, and the prompt is there once");
        // No thread of the assistant's own door comes of it.
        assert_eq!(ana.get("/api/v2/ai-agent/sessions/").await.json()["results"], json!([]));
    }
}

#[tokio::test]
async fn a_profile_streams_and_runs_in_the_background_like_a_model() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.upstream.enqueue(streamed(&detail(), "resp_1"));
        campus.upstream.enqueue(streamed(&Script::text(&["About ", "leading."]), "resp_2"));
        let request = json!({"model": "course-assistant", "input": "What is it?", "stream": true});
        let response = last_response(&checked_events(&ana.post_json("/v1/responses", &request).await));
        assert_eq!((&response["model"], text_of(&response)), (&json!("course-assistant"), "About leading.".to_owned()));
        assert_eq!(response["metadata"], about(COURSE, "1"));

        campus.upstream.enqueue(whole(&detail(), "resp_1"));
        campus.upstream.enqueue(whole(&Script::text(&["Later."]), "resp_2"));
        let request = json!({"model": "course-assistant", "input": "Take your time", "background": true});
        let queued = ana.post_json("/v1/responses", &request).await.json();
        assert_eq!(queued["status"], "queued");
        let response = ended(&ana, id_of(&queued)).await;
        assert_eq!((&response["status"], text_of(&response)), (&json!("completed"), "Later.".to_owned()), "{response}");
        assert_eq!((&response["model"], &response["metadata"]), (&json!("course-assistant"), &about(COURSE, "1")));
        assert_eq!(prompt_of(&campus.last_asked()), COURSE);
        assert!(!response.to_string().contains(COURSE), "{response}");
    }
}

#[tokio::test]
async fn a_profile_counts_and_compacts_like_a_model() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        let count = async |model: &str| {
            let request = json!({"model": model, "input": "What is it?"});
            let answer = ana.post_json("/v1/responses/input_tokens", &request).await;
            assert_eq!(answer.status, 200, "{} {model}: {}", store.name, answer.text());
            answer.json()["input_tokens"].as_u64().expect("a count")
        };
        // The profile's prompt counts too.
        let (plain, profile) = (count("gpt-4o-mini").await, count("course-assistant").await);
        assert!(profile > plain, "{}: {profile} and {plain}", store.name);

        campus.says(&[Script::text(&["It was about leading."])]);
        let request = json!({"model": "course-assistant", "input": "What is it?"});
        let answer = ana.post_json("/v1/responses/compact", &request).await;
        assert_eq!(answer.status, 200, "{}: {}", store.name, answer.text());
        let output = answer.json()["output"].clone();
        assert_eq!(output[1]["type"], "compaction", "{output}");
        assert!(!answer.text().contains(COURSE), "{}", answer.text());
        let asked = campus.last_asked();
        assert_eq!((&asked["model"], &asked["instructions"]), (&json!("gpt-4o-mini"), &json!(COURSE)));
        assert!(asked.get("tools").is_none_or(|tools| tools == &json!([])), "{asked}");

        // Another tenant's, and one that is not active, is nothing here.
        campus.put_profile(BETA, "secret", json!({"prompt": "Beta's."})).await;
        campus.put_profile(ALPHA, "asleep", json!({"prompt": "Zzz.", "active": false})).await;
        for path in ["/v1/responses/input_tokens", "/v1/responses/compact"] {
            for model in ["secret", "asleep", "never"] {
                let refused = ana.post_json(path, &json!({"model": model, "input": "Hi"})).await;
                assert_refused(&refused, 404, Some("model"), "model_not_found");
            }
        }
    }
}

#[tokio::test]
async fn profiles_are_models_of_their_own_tenant_while_they_are_active() {
    // RNCC-06
    for store in stores() {
        let campus = Campus::on(&store).await;
        campus.put_profile(BETA, "secret", json!({"prompt": "Beta's."})).await;
        campus.put_profile(ALPHA, "asleep", json!({"prompt": "Zzz.", "active": false})).await;
        let names = async |key: &str| -> Vec<String> {
            let models = campus.user(key, "ana").get("/v1/models").await.json();
            let data = models["data"].as_array().cloned().unwrap_or_default();
            let profiles = data.iter().filter(|model| model["capabilities"]["wire"] == "profile");
            profiles.filter_map(|model| model["id"].as_str().map(str::to_owned)).collect()
        };
        assert_eq!(names(ALPHA).await, ["course-assistant", "home-assistant"]);
        assert_eq!(names(BETA).await, ["course-assistant", "home-assistant", "secret"]);
        let (ana, ben) = (campus.user(ALPHA, "ana"), campus.user(BETA, "ben"));
        assert_eq!(ben.get("/v1/models/secret").await.status, 200);
        let missing = ana.get("/v1/models/nothing").await;
        for slug in ["secret", "asleep"] {
            let seen = ana.get(&format!("/v1/models/{slug}")).await;
            assert_eq!((seen.status, seen.text().replace(slug, "nothing")), (missing.status, missing.text()));
            let refused = ana.post_json("/v1/responses", &json!({"model": slug, "input": "Hi"})).await;
            assert_eq!((refused.status.as_u16(), &error_of(&refused)["code"]), (404, &json!("model_not_found")));
        }
        assert_eq!(campus.asked(), Vec::<Value>::new());
        // A deleted profile cannot be found.
        let gone = campus.admin(ALPHA).request(Method::DELETE, "/admin/profiles/home-assistant", &[], "".into()).await;
        assert_eq!(gone.status, 200, "{}", gone.text());
        assert_eq!(names(ALPHA).await, ["course-assistant"]);
        campus.chat(&ana, json!({"message": "Hi", "agent": "home-assistant"}), "Fine.").await;
        let told = campus.last_asked()["instructions"].clone();
        assert!(told.as_str().is_none_or(|told| !told.contains(HOME)), "{told}");
    }
}
