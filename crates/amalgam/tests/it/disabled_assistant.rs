//! A tenant whose assistant is switched off has no profiles on any door.

use amalgam_testkit::{Amalgam, Client, Setup};
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, stores};

#[tokio::test]
async fn a_tenant_without_the_feature_reaches_its_profiles_through_no_door() {
    // right C7
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key("am_one").seeded())).await;
        let (client, cli) = (amalgam.client(), Cli::beside(&amalgam, &store));
        let profile = json!({"model": "home-assistant", "input": "Hello"});
        let names = async |client: &Client| -> Vec<String> {
            let listed = client.get("/v1/models").await.json();
            let name = |model: &Value| model["id"].as_str().unwrap_or_default().to_owned();
            listed["data"].as_array().unwrap().iter().map(name).collect()
        };
        let session =
            client.post_json("/api/agent/sessions", &json!({"AgentContextId": "home-assistant"})).await.json();
        let turn = |id: &str| json!({"SessionId": session["SessionId"], "TurnId": id, "Instruction": "Hello"});
        assert_eq!(client.post_json("/v1/responses", &profile).await.status, 200, "{}", store.name);
        assert_eq!(client.post_json("/api/agent/execute", &turn("one")).await.status, 200, "{}", store.name);
        assert!(names(&client).await.contains(&"home-assistant".to_owned()));

        cli.text(&["tenants", "set", "1", "ai_agent_enabled=false"]);
        for (path, body) in [
            ("/v1/responses", profile.clone()),
            ("/v1/responses", json!({"model": "home-assistant", "input": "Hello", "stream": true})),
            ("/v1/responses/input_tokens", profile.clone()),
            ("/v1/responses/compact", profile.clone()),
            ("/api/v2/ai-agent/respond/", json!({"agent": "home-assistant", "message": "Hello"})),
            ("/api/agent/sessions", json!({"AgentContextId": "home-assistant"})),
            ("/api/agent/execute", turn("two")),
        ] {
            let answer = client.post_json(path, &body).await;
            assert_eq!(answer.status, 403, "{}: {path}: {}", store.name, answer.text());
        }
        let error = client.post_json("/v1/responses", &profile).await.json()["error"].clone();
        assert_eq!(error["code"], "ai_agent_disabled", "{error}");
        assert_eq!(client.get("/v1/models/home-assistant").await.status, 403);
        assert!(!names(&client).await.contains(&"home-assistant".to_owned()), "{}", store.name);
        // Models and agents that are no profiles stay.
        let plain = json!({"model": "demo", "input": "Hello"});
        assert_eq!(client.post_json("/v1/responses", &plain).await.status, 200, "{}", store.name);
        assert_eq!(client.post_json("/api/agent/sessions", &json!({})).await.status, 200, "{}", store.name);

        cli.text(&["tenants", "set", "1", "ai_agent_enabled=true"]);
        assert_eq!(client.post_json("/v1/responses", &profile).await.status, 200, "{}", store.name);
    }
}
