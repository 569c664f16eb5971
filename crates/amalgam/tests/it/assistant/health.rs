//! Whether an assistant would answer, without asking it anything.

use std::time::Duration;

use amalgam_assistant::prompt;
use amalgam_testkit::{Reply, Setup, Upstream};
use serde_json::{Value, json};

use super::campus::{ALPHA, BETA, Campus, GAMMA, MODEL, TENANTS};
use crate::support::stores;

const HEALTH: &str = "/api/v2/ai-agent/health/";

/// How often the model was looked up.
fn looks(upstream: &Upstream) -> usize {
    upstream.requests().iter().filter(|request| request.path.ends_with("/models/gpt-4o-mini")).count()
}

#[tokio::test]
async fn a_model_that_is_there_is_told_with_its_own_name_and_asked_for_once_in_ten_seconds() {
    // RNCC-21, RNCC-22
    for store in stores() {
        let campus = Campus::on(&store).await;
        campus.configure(ALPHA, json!({"system_prompt": "Config."})).await;
        campus
            .upstream
            .always_for("/models/gpt-4o-mini", Reply::json(json!({"id": "gpt-4o-mini-2024", "object": "model"})));
        let ana = campus.user(ALPHA, "ana");
        let answer = ana.get(HEALTH).await;
        let expected = format!(
            "{{\"ok\":true,\"checked\":true,\"model\":\"{MODEL}\",\"prompt\":{{\"version\":\"v1\",\"hash\":\"{}\"}},\
             \"feature_enabled\":true,\"model_id\":\"gpt-4o-mini-2024\"}}",
            prompt::hash("Config.")
        );
        assert_eq!((answer.status.as_u16(), answer.text()), (200, expected));
        for _ in 0..20 {
            assert_eq!(ana.get(HEALTH).await.status, 200);
        }
        assert_eq!(looks(&campus.upstream), 1, "what was heard is believed for a while");
        // Another tenant's result is its own, and what is not about the model is always fresh.
        assert_eq!(campus.user(BETA, "ben").get(HEALTH).await.status, 200);
        assert_eq!(looks(&campus.upstream), 2);
        campus.configure(ALPHA, json!({"prompt_version": "v2"})).await;
        assert_eq!(ana.get(HEALTH).await.json()["prompt"]["version"], "v2");
        assert_eq!(campus.asked(), Vec::<Value>::new(), "the model itself is not asked anything");
    }
}

#[tokio::test]
async fn an_assistant_that_could_not_answer_says_why_and_whether_anybody_was_asked() {
    // RNCC-21, RNCC-22
    for store in stores() {
        let upstream = Upstream::start();
        let setup = Setup::new().extra(&format!(
            "[upstreams.up]\nkind = \"responses\"\nbase_url = \"{}\"\napi_key = \"env:OPENAI_API_KEY\"\n\
             models = [\"{MODEL}\"]\n{TENANTS}",
            upstream.base_url()
        ));
        let campus = Campus::around(&store, setup, upstream).await;
        let failing = async |key: &str| {
            let answer = campus.user(key, "ana").get(HEALTH).await;
            let body = answer.json();
            let keys: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys.len(), 7, "{body}");
            assert_eq!(
                (answer.status.as_u16(), &body["ok"], &body["model_id"]),
                (503, &json!(false), &Value::Null),
                "{body}"
            );
            [body["checked"].clone(), body["feature_enabled"].clone(), body["error"].clone()]
        };
        // No key: no upstream was asked.
        let no_key = json!("OPENAI_API_KEY is not configured.");
        assert_eq!(failing(ALPHA).await, [json!(false), json!(true), no_key]);
        // Switched off: no upstream was asked.
        campus.configure(BETA, json!({"api_key": "sk-beta"})).await;
        campus.cli().json(&["tenants", "set", "2", "ai_agent_enabled=false"]);
        let off = json!("AI agent is disabled for this company.");
        assert_eq!(failing(BETA).await, [json!(false), json!(false), off]);
        assert_eq!(looks(&campus.upstream), 0);
        // The upstream refuses; its message is not shown.
        campus.configure(GAMMA, json!({"api_key": "sk-gamma"})).await;
        let refusal = json!({"error": {"message": "key of org-4711 is wrong", "type": "invalid_request_error"}});
        campus.upstream.always_for("/models/gpt-4o-mini", Reply::status(401).with_json(refusal));
        let unavailable = json!("AI service is temporarily unavailable.");
        assert_eq!(failing(GAMMA).await, [json!(true), json!(true), unavailable.clone()]);
        assert!(looks(&campus.upstream) >= 1);
        // Ten seconds later it is asked again.
        campus.upstream.always_for("/models/gpt-4o-mini", Reply::json(json!({"id": MODEL})));
        assert_eq!(failing(GAMMA).await[2], unavailable, "what was heard is believed for a while");
        tokio::time::sleep(Duration::from_millis(10_300)).await;
        let answer = campus.user(GAMMA, "ana").get(HEALTH).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["model_id"]), (200, &json!(MODEL)), "{}", answer.text());
    }
}
