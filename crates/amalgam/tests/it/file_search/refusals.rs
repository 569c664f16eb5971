//! Searches that cannot be made, and those over collections of other tenants.

use super::*;
use crate::support::assert_refused;

#[tokio::test]
async fn a_search_that_cannot_be_made_is_refused_before_anybody_is_asked() {
    // S10: a collection of another tenant looks like one that is not there.
    for store in stores() {
        let library = Library::on(&store).await;
        let gt = json!({"type": "gt", "key": "year", "value": 2025});
        for (settings, param, code) in [
            (json!({"vector_store_ids": ["docs", "nowhere"]}), "tools[0].vector_store_ids", "collection_not_found"),
            (json!({"vector_store_ids": ["secret"]}), "tools[0].vector_store_ids", "collection_not_found"),
            (json!({"vector_store_ids": ["docs", "vs_1"]}), "tools[0].vector_store_ids", "invalid_value"),
            (json!({"max_num_results": 51}), "tools[0].max_num_results", "invalid_value"),
            (json!({"filters": gt}), "tools[0].filters.type", "invalid_value"),
        ] {
            let mut request = question(&["docs"]);
            request["model"] = json!(Wire::Chat.model());
            for (name, value) in settings.as_object().expect("settings are an object") {
                request["tools"][0][name] = value.clone();
            }
            let answer = library.client().post_json("/v1/responses", &request).await;
            assert_refused(&answer, 400, Some(param), code);
            if code == "collection_not_found" {
                let named = settings["vector_store_ids"].as_array().and_then(|names| names.last()).expect("a name");
                assert!(answer.text().contains(named.as_str().expect("a name is text")), "{}", answer.text());
            }
        }
        assert_eq!(library.world.upstream(Wire::Chat).requests().len(), 0, "{}", store.name);
    }
}

#[tokio::test]
async fn stores_of_an_upstream_are_left_to_it_and_are_a_loss_elsewhere() {
    for store in stores() {
        let library = Library::on(&store).await;
        for (wire, delivery) in pairs() {
            let request = question(&["vs_abc"]);
            let answer = library.answer(wire, delivery, &[Script::text(&["Hm."])], &request).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let offered = library.world.sent(wire)["tools"].clone();
            let losses = answer.header("amalgam-losses").unwrap_or_default();
            match wire {
                Wire::Responses => assert_eq!((&offered, losses), (&request["tools"], "")),
                Wire::Chat | Wire::Anthropic => {
                    assert!(losses.contains("file_search") && offered.is_null(), "{losses}")
                }
            }
        }
    }
}

#[tokio::test]
async fn a_model_that_searches_for_nothing_is_told_so_and_the_search_is_shown_as_failed() {
    for store in stores() {
        let library = Library::on(&store).await;
        for (wire, delivery) in pairs() {
            let scripts = [Script::new([Said::call("call_1", "file_search", &["{}"])]), Script::text(&["Sorry."])];
            let response = library.turn(wire, delivery, &scripts, &question(&["docs"])).await;
            let call = &response["output"][0];
            assert_eq!(
                [&call["type"], &call["status"], &call["queries"], &call["results"]],
                [&json!("file_search_call"), &json!("failed"), &json!([]), &Value::Null],
                "{} {wire:?}",
                store.name
            );
            let told = told(&library.world.sent(wire));
            assert!(told.iter().any(|(who, text)| who == "output" && text.contains("\"error\"")), "{told:?}");
        }
    }
}
