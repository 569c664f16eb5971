//! The assistant asks any model: callers read the same on every kind of upstream.

use amalgam_testkit::{Setup, Upstream};
use serde_json::{Value, json};

use super::campus::{ALPHA, Campus, MODEL, TENANTS};
use crate::support::{Delivery, Said, Script, WIRES, Wire, stores, told};

/// Whether a request leaves the model nothing but to call the tool.
fn is_forced(wire: Wire, request: &Value) -> bool {
    let (choice, tools) = (&request["tool_choice"], &request["tools"]);
    match wire {
        // Servers of this wire know it better so: the tool is the only one on offer.
        Wire::Chat => *choice == "required" && tools.as_array().map(Vec::len) == Some(1),
        Wire::Responses | Wire::Anthropic => choice["name"] == "get_course_detail",
    }
}

#[tokio::test]
async fn callers_read_the_same_whatever_the_upstream_speaks() {
    // RNCC-14, RNCC-16, RNCC-34
    for store in stores() {
        let mut bodies = Vec::new();
        for wire in WIRES {
            let upstream = Upstream::start();
            let setup = Setup::new().upstream("up", wire.kind(), &upstream.base_url()).extra(TENANTS);
            let setup = setup.option("models", &json!([MODEL]).to_string());
            let campus = Campus::around(&store, setup, upstream).await;
            // The store is the same for all three; the thread is not.
            let ana = campus.user(ALPHA, wire.kind());
            campus.configure(ALPHA, json!({"system_prompt": "Config."})).await;
            for script in [
                Script::new([Said::call("call_1", "get_course_detail", &["{\"course_id\":", "28}"])]),
                Script::text(&["It is ", "about leading."]),
            ] {
                campus.upstream.enqueue(script.reply(wire, Delivery::Whole));
            }
            let body = json!({"agent": "course-assistant", "message": "What is it?", "metadata": {"course_id": 28}});
            let mut answer = campus.told(&ana, body).await;
            let asked = campus.asked();
            assert!(is_forced(wire, &asked[0]), "{wire:?}: {}", asked[0]);
            assert!(!is_forced(wire, &asked[1]), "{wire:?}: {}", asked[1]);
            let lines = told(&asked[1]);
            let who: Vec<&str> = lines.iter().map(|(who, _)| who.as_str()).collect();
            assert_eq!(who, ["system", "user", "call", "output"], "{wire:?}");
            assert!(lines[0].1.starts_with("Config.\n\nAgent profile task:\n"), "{wire:?}: {lines:?}");
            assert!(answer["response_id"].as_str().is_some_and(|id| !id.is_empty()), "{answer}");
            let own = ["session_id", "user_message_id", "assistant_message_id", "response_id"];
            own.iter().for_each(|name| answer[name] = Value::Null);
            bodies.push(answer);
        }
        assert_eq!(bodies[0]["tool_results"][0]["id"], "call_1");
        assert_eq!(bodies[0], bodies[1]);
        assert_eq!(bodies[1], bodies[2]);
    }
}
