//! Tools that the server runs, and profiles as models.

use amalgam_testkit::Reply;
use serde_json::json;

use super::{message, post, request};
use crate::support::{DELIVERIES, Script, Wire, Workshop, calls, stores};

#[tokio::test]
async fn a_tool_of_the_bank_is_offered_by_its_name_and_its_calls_are_not_shown() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        for delivery in DELIVERIES {
            workshop.service.enqueue(Reply::json(json!({"sky": "clear"})));
            workshop.script(Wire::Chat, delivery, &[calls("call_1", "weather", "Oslo"), Script::text(&["Clear."])]);
            let body = request(Wire::Chat, delivery, &json!({"tools": [{"name": "weather"}]}));
            let answer = post(&workshop.client(), &[("amalgam-store", "true")], &body).await;
            let message = message(delivery, &answer);
            assert_eq!(message["content"], json!([{"type": "text", "text": "Clear."}]), "{}", store.name);
            assert_eq!(message["stop_reason"], "end_turn");
            assert_eq!(message["usage"]["output_tokens"], 14, "both calls of the model count");
            let told = workshop.world.sent(Wire::Chat)["messages"].to_string();
            assert!(told.contains("clear"), "the model got the result: {told}");
            let id = answer.header("amalgam-response-id").expect("an answer names its response");
            let record = workshop.turn_record(id).await.to_string();
            assert!(record.contains("weather"), "the record of the turn has the call: {record}");
        }
    }
}

#[tokio::test]
async fn calls_of_the_server_and_of_the_client_mix() {
    let store = crate::support::embedded_store();
    let workshop = Workshop::on(&store).await;
    workshop.put("weather", json!({})).await;
    let own = json!({"name": "note", "description": "Notes.", "input_schema": {"type": "object", "properties": {}}});
    for delivery in DELIVERIES {
        workshop.service.enqueue(Reply::json(json!({"sky": "clear"})));
        workshop.script(
            Wire::Chat,
            delivery,
            &[calls("call_1", "weather", "Oslo"), Script::new([crate::support::Said::call("call_2", "note", &["{}"])])],
        );
        let body = request(Wire::Chat, delivery, &json!({"tools": [{"name": "weather"}, own]}));
        let message = message(delivery, &post(&workshop.client(), &[], &body).await);
        assert_eq!(message["content"], json!([{"type": "tool_use", "id": "call_2", "name": "note", "input": {}}]));
        assert_eq!(message["stop_reason"], "tool_use");
    }
}
