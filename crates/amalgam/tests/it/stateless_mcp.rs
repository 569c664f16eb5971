//! MCP tools of a stateless tenant: one that cannot be used is left out and reported, and the request succeeds.

use amalgam_testkit::{Amalgam, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{BINARY, Delivery, Script, Wire};

const FUNCTION: &str = r#"{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}"#;

#[tokio::test]
async fn a_bare_or_unreachable_server_is_left_out_and_reported() {
    // right C7
    let upstream = Upstream::always(Script::text(&["Hello."]).reply(Wire::Chat, Delivery::Whole));
    let setup = Setup::new().tenant_key("am_one").stateless().upstream("up", "chat", &upstream.base_url());
    let closed = Upstream::unused_address();
    let setup = setup.option("models", "[\"m\"]").extra(&format!("[egress]\nallow_private = [\"{closed}\"]"));
    let amalgam = Amalgam::start(BINARY, setup).await;
    let client = amalgam.client();
    let function: Value = serde_json::from_str(FUNCTION).unwrap();
    let url = format!("http://{closed}/mcp");
    for (mcp, why) in [
        (json!({"type": "mcp"}), "needs a server"),
        (json!({"type": "mcp", "server_label": "city"}), "server_url"),
        (json!({"type": "mcp", "server_label": "city", "server_url": url}), "could not be asked"),
    ] {
        let body = json!({"model": "m", "input": "Hello", "tools": [mcp.clone(), function.clone()]});
        let answer = client.post_json("/v1/responses", &body).await;
        assert_eq!(answer.status, 200, "{mcp}: {}", answer.text());
        let losses = answer.headers["amalgam-losses"].to_str().unwrap().to_owned();
        assert!(losses.contains("tools[0]") && losses.contains(why), "{mcp}: {losses}");
        let asked = upstream.requests().pop().unwrap().json();
        let names: Vec<&Value> =
            asked["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, [&json!("look")], "{mcp}");

        let headers = [("content-type", "application/json"), ("amalgam-strict", "true")];
        let strict = client.request(http::Method::POST, "/v1/responses", &headers, body.to_string().into()).await;
        assert_eq!(strict.status, 400, "{mcp}: {}", strict.text());
    }
    // What is wrong about a tool is still refused.
    let wrong = json!({"type": "mcp", "server_label": "city", "server_url": 5});
    let body = json!({"model": "m", "input": "Hello", "tools": [wrong]});
    assert_eq!(client.post_json("/v1/responses", &body).await.status, 400);
}

#[tokio::test]
async fn a_tenant_that_keeps_state_is_refused_as_before() {
    let upstream = Upstream::start();
    let setup =
        Setup::new().tenant_key("am_one").upstream("up", "chat", &upstream.base_url()).option("models", "[\"m\"]");
    let amalgam = Amalgam::start(BINARY, setup).await;
    let body = json!({"model": "m", "input": "Hello", "tools": [{"type": "mcp", "server_label": "city"}]});
    assert_eq!(amalgam.client().post_json("/v1/responses", &body).await.status, 400);
}
