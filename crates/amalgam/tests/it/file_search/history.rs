//! Searches of earlier turns: every upstream receives them, and what callers do not see never leaves.

use super::*;

/// What the upstream received last about searches: the call, and the results.
fn searches(library: &Library, wire: Wire) -> Vec<(String, String)> {
    let told = told(&library.world.sent(wire));
    let outputs = told.iter().skip(1).map(|(_, text)| text.clone());
    told.iter().zip(outputs).filter(|((who, _), _)| who == "call").map(|((_, call), out)| (call.clone(), out)).collect()
}

#[tokio::test]
async fn the_next_turn_is_told_the_search_and_what_it_found_on_any_upstream() {
    for store in stores() {
        let library = Library::on(&store).await;
        for (wire, delivery) in pairs() {
            for include in [json!([]), json!([RESULTS])] {
                let place = format!("{} {wire:?} {delivery:?} {include}", store.name);
                let mut request = question(&["docs"]);
                request["include"] = include;
                let first = library.turn(wire, delivery, &searching("retried", &["Twice."]), &request).await;
                let within = searches(&library, wire);

                for other in WIRES {
                    let next = json!({"input": "Sure?", "previous_response_id": first["id"]});
                    library.turn(other, delivery, &[Script::text(&["Sure."])], &next).await;
                    assert_eq!(searches(&library, other), within, "{place} to {other:?}");
                    assert!(!library.world.sent(other).to_string().contains("file_search_call"), "{place}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_caller_that_keeps_its_own_history_sends_back_what_it_was_shown() {
    for store in stores() {
        let library = Library::on(&store).await;
        for (include, expected) in [(json!([RESULTS]), "retried twice"), (json!([]), "Search again")] {
            let mut request = question(&["docs"]);
            request["include"] = include;
            request["store"] = json!(false);
            let wire = Wire::Chat;
            let first = library.turn(wire, Delivery::Whole, &searching("retried", &["Twice."]), &request).await;
            let mut input = first["output"].as_array().expect("output").clone();
            input.push(json!({"role": "user", "content": "Sure?"}));
            let next = json!({"input": input, "store": false});
            library.turn(wire, Delivery::Whole, &[Script::text(&["Sure."])], &next).await;
            let [(call, output)] = &searches(&library, wire)[..] else { panic!("one search was told") };
            assert_eq!(call, r#"file_search{"queries":["retried"]}"#, "{}", store.name);
            assert!(output.contains(expected), "{}: {output}", store.name);
        }
    }
}

#[tokio::test]
async fn what_a_caller_did_not_ask_for_is_in_no_answer() {
    for store in stores() {
        let library = Library::on(&store).await;
        let client = library.client();
        let conversation = client.post_json("/v1/conversations", &json!({})).await.json();
        let conversation = conversation["id"].as_str().expect("a conversation has an id");
        let mut request = question(&["docs"]);
        request["conversation"] = json!(conversation);
        let scripts = searching("retried", &["Twice."]);
        let first = library.turn(Wire::Chat, Delivery::Stream, &scripts, &request).await;
        let next = json!({"input": "Sure?", "conversation": conversation});
        let second = library.turn(Wire::Chat, Delivery::Whole, &[Script::text(&["Sure."])], &next).await;
        assert!(searches(&library, Wire::Chat)[0].1.contains("retried twice"), "{}: the model knows it", store.name);

        assert_eq!(second["status"], "completed", "{}", store.name);
        let next = json!({"input": "Really?", "previous_response_id": first["id"]});
        let third = library.turn(Wire::Chat, Delivery::Whole, &[Script::text(&["Yes."])], &next).await;

        let (first, third) = (id_of(&first), id_of(&third));
        let lists = [format!("/v1/responses/{third}/input_items"), format!("/v1/conversations/{conversation}/items")];
        let whole = [format!("/v1/responses/{first}"), format!("/v1/responses/{first}?stream=true")];
        for path in lists.iter().chain(&whole) {
            let text = client.get(path).await.text();
            assert!(text.contains("file_search_call"), "{} {path}: {text}", store.name);
            assert!(!text.contains("kept_output") && !text.contains("retried twice"), "{} {path}: {text}", store.name);
        }
        for path in &lists {
            let list = client.get(&format!("{path}?include[]={RESULTS}")).await.json();
            let items = list["data"].as_array().expect("a list");
            let search = items.iter().find(|item| item["type"] == "file_search_call").expect("the search is listed");
            assert_eq!(search["results"][0]["filename"], "guide.md", "{} {path}", store.name);
            let id = search["id"].as_str().expect("an item has an id");
            let path = format!("/v1/conversations/{conversation}/items/{id}");
            assert_eq!(client.get(&path).await.json()["results"], Value::Null, "{}", store.name);
            let shown = client.get(&format!("{path}?include[]={RESULTS}")).await.json();
            assert_eq!(&shown, search, "{}", store.name);
        }
    }
}

#[tokio::test]
async fn a_background_response_searches_as_well() {
    for store in stores() {
        let library = Library::on(&store).await;
        let marker = library.marker("retried", "docs");
        let mut request = question(&["docs"]);
        request["background"] = json!(true);
        request["model"] = json!(Wire::Chat.model());
        for script in searching("retried", &[&format!("Twice{marker}.")]) {
            library.world.upstream(Wire::Chat).enqueue(script.reply(Wire::Chat, Delivery::Stream));
        }
        let queued = library.client().post_json("/v1/responses", &request).await.json();
        let response = crate::support::ended(&library.client(), id_of(&queued)).await;
        let part = &response["output"][1]["content"][0];
        assert_eq!((&part["text"], &part["annotations"][0]["index"]), (&json!("Twice."), &json!(5)), "{response}");
    }
}
