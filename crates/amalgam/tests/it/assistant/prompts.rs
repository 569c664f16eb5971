//! What the model receives before everything else, and which profile it comes from.

use amalgam_assistant::prompt;
use amalgam_testkit::Setup;
use serde_json::{Value, json};

use super::campus::{ALPHA, BETA, COURSE, Campus, HOME, prompt_of, said};
use crate::support::stores;

/// The names of the tools that the model was offered.
fn offered(request: &Value) -> Vec<&str> {
    request["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect()
}

const LINE: &str = "Runtime context: {\"course\":{\"id\":28,\"title\":\"Leadership Foundations\",\"modality\":\"Learn\",\
                    \"tags\":[\"leadership\",\"communication\"],\"assets\":[\"Video: Start\"]}}";

#[tokio::test]
async fn a_prompt_is_composed_of_the_tenants_words_the_profiles_and_the_course() {
    // RNCC-15, RNCC-23, RNCC-24, RNCC-25
    for store in stores() {
        let campus = Campus::with(&store, Setup::new().env("AI_AGENT_SYSTEM_PROMPT", "Setting.")).await;
        let ana = campus.user(ALPHA, "ana");
        campus.put_profile(ALPHA, "wordless", json!({"prompt": ""})).await;
        let both = |config: &str| format!("{config}\n\nAgent profile task:\n{COURSE}");
        let (course, none) = (json!({"course_id": 28}), json!({}));
        let cases = [
            // Config, agent, metadata; then what is sent, and what of it is configured.
            (json!("Config."), "course-assistant", &course, format!("{}\n\n{LINE}", both("Config.")), both("Config.")),
            (json!("Config."), "course-assistant", &none, both("Config."), both("Config.")),
            (json!("Config."), "wordless", &none, "Config.".to_owned(), "Config.".to_owned()),
            (json!("Config."), "unknown", &course, format!("Config.\n\n{LINE}"), "Config.".to_owned()),
            // What the tenant has not set comes from the settings.
            (Value::Null, "course-assistant", &none, both("Setting."), both("Setting.")),
            (json!("  "), "unknown", &none, "Setting.".to_owned(), "Setting.".to_owned()),
        ];
        for (config, agent, metadata, told, configured) in cases {
            campus.configure(ALPHA, json!({"system_prompt": config})).await;
            let body = json!({"agent": agent, "message": "Hi", "metadata": metadata});
            let forced = agent == "course-assistant" && metadata == &course;
            let answer = campus.chat(&ana, body, "Fine.").await;
            assert_eq!(prompt_of(&campus.last_asked()), told, "{config} {agent}");
            let prompt = &answer["prompt"];
            assert_eq!(
                (&prompt["version"], &prompt["hash"]),
                (&json!("v1"), &json!(prompt::hash(&configured))),
                "{config} {agent}"
            );
            assert_eq!(campus.last_asked()["tool_choice"].is_object(), forced, "{config} {agent}");
        }
        campus.configure(ALPHA, json!({"prompt_version": "2026-11"})).await;
        let answer = campus.chat(&ana, json!({"message": "Hi"}), "Fine.").await;
        assert_eq!(answer["prompt"]["version"], "2026-11");
    }
}

#[tokio::test]
async fn without_any_words_the_course_stands_alone_or_nothing_is_told() {
    // RNCC-24, RNCC-25
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.chat(&ana, json!({"message": "Hi", "metadata": {"course_id": "28"}}), "Fine.").await;
        assert_eq!(campus.last_asked()["instructions"], LINE);
        // A course that does not exist, one that is not offered any more, one of another tenant alone.
        let file = campus.amalgam.folder().join("more.json");
        let course =
            json!([{"id": 777, "title": "Beta's own", "description": "x", "modality": "Learn", "type": "Course"}]);
        std::fs::write(&file, course.to_string()).unwrap();
        campus.cli().text(&["courses", "import", file.to_str().unwrap(), "--company-id", "2"]);
        for course_id in [12345, 29, 777] {
            let body = json!({"message": "Hi", "metadata": {"course_id": course_id}});
            let answer = campus.chat(&ana, body, "Fine.").await;
            let instructions = &campus.last_asked()["instructions"];
            assert!(instructions.is_null() || instructions == "", "{course_id}: {instructions}");
            assert_eq!(answer["prompt"]["hash"], prompt::hash(""));
        }
        let ben = campus.user(BETA, "ben");
        campus.chat(&ben, json!({"message": "Hi", "metadata": {"course_id": 777}}), "Fine.").await;
        assert!(campus.last_asked()["instructions"].as_str().is_some_and(|text| text.contains("Beta's own")));
    }
}

#[tokio::test]
async fn a_profile_that_is_unknown_inactive_or_another_tenants_is_not_found() {
    // RNCC-05, RNCC-06, RNCC-27
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.configure(ALPHA, json!({"system_prompt": "Config."})).await;
        let tools = json!(["get_course_recommendation"]);
        campus.put_profile(ALPHA, "asleep", json!({"prompt": "Zzz.", "tools": tools, "active": false})).await;
        campus.put_profile(BETA, "secret", json!({"prompt": "Beta's secret.", "tools": tools})).await;
        let mut sessions = Vec::new();
        for body in [
            json!({"message": "Hi"}),
            json!({"message": "Hi", "agent": "unknown"}),
            json!({"message": "Hi", "agent": "asleep"}),
            json!({"message": "Hi", "agent": "secret"}),
            json!({"message": "Hi", "agent": ""}),
            json!({"message": "Hi", "agent": "home-assistant' OR 1=1 --"}),
        ] {
            let answer = campus.chat(&ana, body.clone(), "Fine.").await;
            let asked = campus.last_asked();
            assert_eq!(asked["instructions"], "Config.", "{body}");
            assert_eq!(offered(&asked), Vec::<&str>::new(), "{body}");
            assert_eq!(answer.get("tool_results"), None, "{body}");
            sessions.push(answer["session_id"].clone());
        }
        sessions.dedup();
        assert_eq!(sessions.len(), 1, "all of them are the thread without a profile");
        assert_eq!(said(&campus.last_asked()).len(), 11);

        // The known ones have their prompts, their tools and a thread each. Space around a name is no part of it.
        for (agent, words, tool) in
            [("home-assistant", HOME, "get_course_recommendation"), (" course-assistant ", COURSE, "get_course_detail")]
        {
            let answer = campus.chat(&ana, json!({"message": "Hi", "agent": agent}), "Fine.").await;
            let asked = campus.last_asked();
            assert_eq!(prompt_of(&asked), format!("Config.\n\nAgent profile task:\n{words}"));
            assert_eq!((offered(&asked), said(&asked).len()), (vec![tool], 1), "{agent}");
            assert_ne!(answer["session_id"], sessions[0]);
        }
        let ben = campus.user(BETA, "ben");
        campus.chat(&ben, json!({"message": "Hi", "agent": "secret"}), "Fine.").await;
        assert_eq!(prompt_of(&campus.last_asked()), "Beta's secret.");
        // A changed profile takes effect from then on, in the same thread.
        let before = campus.chat(&ana, json!({"message": "Hi", "agent": "home-assistant"}), "Fine.").await;
        campus.put_profile(ALPHA, "home-assistant", json!({"prompt": "New words.", "model": "gpt-4o-mini"})).await;
        let after = campus.chat(&ana, json!({"message": "Hi", "agent": "home-assistant"}), "Fine.").await;
        assert_eq!(after["session_id"], before["session_id"]);
        assert_ne!(after["prompt"]["hash"], before["prompt"]["hash"]);
        // right C9
        let versions = [&before, &after].map(|answer| answer["prompt"]["profile_version"].as_u64());
        assert_eq!(versions, [Some(1), Some(2)]);
        assert_eq!(campus.last_asked()["instructions"], "Config.\n\nAgent profile task:\nNew words.");
        assert_eq!(offered(&campus.last_asked()), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn what_an_assistant_is_told_is_shown_to_its_administrators_alone() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        campus.configure(ALPHA, json!({"system_prompt": "Config words."})).await;
        let ana = campus.user(ALPHA, "ana");
        let answer = campus.chat(&ana, json!({"agent": "home-assistant", "message": "Hi"}), "Fine.").await;
        let thread = campus.thread(ALPHA, &answer["session_id"]).await;
        // A turn is a response, and its user may look at it at the other door: at all of it but the prompt.
        let turn = thread[1]["response_id"].as_str().expect("an answer belongs to a turn");
        let response = ana.get(&format!("/v1/responses/{turn}")).await;
        assert_eq!((response.status.as_u16(), &response.json()["instructions"]), (200, &Value::Null));
        let told = format!("Config words.\n\nAgent profile task:\n{HOME}");
        for path in ["", "/input_items", "?stream=true"] {
            let seen = ana.get(&format!("/v1/responses/{turn}{path}")).await.text();
            assert!(!seen.contains("Config words.") && !seen.contains(HOME), "{path}: {seen}");
        }
        let threads = ana.get(&format!("/api/v2/ai-agent/sessions/{}/messages/", answer["session_id"])).await.text();
        assert!(!threads.contains("Config words."), "{threads}");
        assert_eq!(super::campus::known(&thread[1], "system_prompt")[0]["text"], told);
    }
}
