//! Calls that wait for an approval: requested in one response, decided by an item, by an administrator or by the deadline.

use amalgam_testkit::{Client, HttpAnswer, Reply, Setup};
use serde_json::{Value, json};

use crate::support::{
    DELIVERIES, Delivery, FINAL, Script, TestStore, WIRES, Wire, Workshop, asking, assert_refused, beside, calls,
    error_of, eventually, id_of, named, put_tool, response_of, says, setup, shared_store, shown, standing, stores,
    text_of,
};

const DENIED: &str = r#"bank/refund({"city":"Oslo"}) failed"#;
const GRANTED: &str = r#"bank/refund({"city":"Oslo"}) completed"#;

async fn workshop(store: &TestStore, setup: Setup, decider: Value) -> Workshop {
    let workshop = Workshop::with(store, setup).await;
    workshop.put("refund", json!({"requires_approval": decider})).await;
    workshop.service.always_for("/refund", says(json!("paid")));
    workshop
}

fn question() -> Value {
    json!({"input": "Refund Oslo.", "tools": [named("refund")]})
}

/// A turn that ends with a question, and the id of that.
async fn asked(workshop: &Workshop, wire: Wire, delivery: Delivery) -> (Value, String) {
    let response = workshop.turn(wire, delivery, &[calls("call_1", "refund", "Oslo")], &question()).await;
    assert_eq!(response["status"], "completed");
    assert_eq!(shown(&response), ["mcp_approval_request"]);
    let item = &response["output"][0];
    assert_eq!([&item["server_label"], &item["name"], &item["arguments"]], ["bank", "refund", r#"{"city":"Oslo"}"#]);
    let id = item["id"].as_str().expect("an item has an id").to_owned();
    assert!(id.starts_with("mcpr_"), "{id}");
    (response, id)
}

/// The caller's decision, as a request that continues the turn.
fn word(before: &Value, id: &str, approve: bool) -> Value {
    let item = json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": approve});
    json!({"input": [item], "previous_response_id": before["id"], "tools": [named("refund")]})
}

fn going_on(before: &Value) -> Value {
    json!({"input": "Well?", "previous_response_id": before["id"], "tools": [named("refund")]})
}

async fn decide(client: &Client, id: &str, body: Value) -> HttpAnswer {
    client.post_json(&format!("/admin/approvals/{id}"), &body).await
}

#[tokio::test]
async fn a_call_that_its_caller_agrees_to_runs_and_one_that_it_denies_does_not() {
    for store in stores() {
        let workshop = workshop(&store, setup(), json!(true)).await;
        let mut ran = 0;
        for wire in WIRES {
            for delivery in DELIVERIES {
                let place = format!("{} {wire:?} {delivery:?}", store.name);
                let (first, id) = asked(&workshop, wire, delivery).await;
                assert_eq!(workshop.service.requests().len(), ran, "{place}");
                let second = workshop.turn(wire, delivery, &[Script::text(&["Paid."])], &word(&first, &id, true)).await;
                ran += 1;
                assert_eq!(shown(&second), [GRANTED, "message"], "{place}");
                assert_eq!(second["output"][0]["approval_request_id"], json!(id), "{place}");
                assert_eq!(workshop.service.requests().len(), ran, "{place}");
                // The model receives a call and its output, and nothing of the approval.
                let said = workshop.told(wire);
                let who: Vec<_> = said.iter().map(|(who, _)| who.as_str()).collect();
                assert_eq!(who, ["user", "call", "output"], "{place}: {said:?}");
                assert_eq!(said[2].1, "paid");

                let (first, id) = asked(&workshop, wire, delivery).await;
                let mut no = word(&first, &id, false);
                no["input"][0]["reason"] = json!("Too much money.");
                let second = workshop.turn(wire, delivery, &[Script::text(&["Sorry."])], &no).await;
                // right A9: nothing ran, so no call is shown; the model learns it, in this turn and in later ones.
                assert_eq!(shown(&second), ["message"], "{place}");
                assert_eq!(workshop.service.requests().len(), ran, "{place}");
                let refused = |said: &[(String, String)], place: &str| {
                    assert_eq!(
                        said[1],
                        ("call".to_owned(), r#"refund{"city":"Oslo"}"#.to_owned()),
                        "{place}: {said:?}"
                    );
                    assert_eq!(said[2].0, "output", "{place}: {said:?}");
                    let words = ["Not run: the call was denied.", "Too much money."];
                    assert!(words.iter().all(|words| said[2].1.contains(words)), "{place}: {said:?}");
                };
                refused(&workshop.told(wire), &place);
                let third = workshop.turn(wire, delivery, &[Script::text(&["Well."])], &going_on(&second)).await;
                assert_eq!(shown(&third), ["message"], "{place}");
                refused(&workshop.told(wire), &place);
            }
        }
        // The call needs another approval in the next turn: an approval is for one call.
        let (first, id) = asked(&workshop, Wire::Chat, Delivery::Whole).await;
        let again = [calls("call_2", "refund", "Rome")];
        let second = workshop.turn(Wire::Chat, Delivery::Whole, &again, &word(&first, &id, true)).await;
        assert_eq!(shown(&second), [GRANTED, "mcp_approval_request"]);
    }
}

#[tokio::test]
async fn an_administrator_decides_by_a_route_of_its_own() {
    for store in stores() {
        let workshop = workshop(&store, setup(), json!(true)).await;
        let client = workshop.client();
        for decision in ["approve", "deny"] {
            let (first, id) = asked(&workshop, Wire::Chat, Delivery::Stream).await;
            let pending = client.get("/admin/approvals?pending=true").await.json();
            let listed = pending["data"].as_array().unwrap().iter().find(|one| one["id"] == id.as_str()).unwrap();
            assert_eq!(
                [&listed["status"], &listed["tool"]["name"], &listed["response_id"], &listed["arguments"]],
                [&json!("pending"), &json!("refund"), &first["id"], &json!(r#"{"city":"Oslo"}"#)]
            );
            let decided = decide(&client, &id, json!({"decision": decision, "reason": "I say so."})).await;
            assert_eq!(decided.status, 200, "{}", decided.text());
            // The same again changes nothing, another decision comes too late.
            assert_eq!(decide(&client, &id, json!({"decision": decision})).await.status, 200);
            let other = if decision == "approve" { "deny" } else { "approve" };
            assert_refused(&decide(&client, &id, json!({"decision": other})).await, 409, None, "conflict");
            let second =
                workshop.turn(Wire::Anthropic, Delivery::Stream, &[Script::text(&["x"])], &going_on(&first)).await;
            match decision {
                "approve" => assert_eq!(shown(&second), [GRANTED, "message"], "{}", store.name),
                // right A9
                _ => {
                    assert_eq!(shown(&second), ["message"], "{}", store.name);
                    for _ in 0..2 {
                        let said = workshop.told(Wire::Anthropic);
                        let output = said.iter().find(|(who, _)| who == "output").expect("the model is told");
                        let words = ["Not run: the call was denied.", "I say so."];
                        assert!(words.iter().all(|words| output.1.contains(words)), "{said:?}");
                        let more = going_on(&second);
                        let third = [Script::text(&["y"])];
                        let third = workshop.turn(Wire::Anthropic, Delivery::Stream, &third, &more).await;
                        assert_eq!(shown(&third), ["message"], "{}", store.name);
                    }
                }
            }
            let shown = client.get(&format!("/admin/approvals/{id}")).await.json();
            let status = if decision == "approve" { "used" } else { "denied" };
            assert_eq!((&shown["status"], &shown["decision"]["reason"]), (&json!(status), &json!("I say so.")));
        }
        assert_eq!(workshop.service.requests().len(), 1);
        for body in [json!({}), json!({"decision": "maybe"}), json!({"decision": true})] {
            assert_eq!(decide(&client, "mcpr_AM-aaaaaaaaaaaaaaaaaaaaaaaa", body).await.status, 400);
        }
        let unknown = decide(&client, "mcpr_AM-aaaaaaaaaaaaaaaaaaaaaaaa", json!({"decision": "approve"})).await;
        assert_eq!(unknown.status, 404, "{}", unknown.text());
    }
}

#[tokio::test]
async fn a_call_without_a_decision_is_refused_in_the_end() {
    for store in stores() {
        let workshop = workshop(&store, setup().extra("[limits]\napproval_deadline = \"1s\""), json!(true)).await;
        let client = workshop.client();
        // A turn that continues before the decision leaves it open.
        let (first, id) = asked(&workshop, Wire::Chat, Delivery::Whole).await;
        let (late, late_id) = asked(&workshop, Wire::Chat, Delivery::Whole).await;
        eventually("the time to be over", FINAL, async || {
            let shown = client.get(&format!("/admin/approvals/{late_id}")).await.json();
            (shown["status"] == "expired").then_some(())
        })
        .await;
        assert_refused(&decide(&client, &id, json!({"decision": "approve"})).await, 409, None, "conflict");
        for (before, request) in [(&first, word(&first, &id, true)), (&late, going_on(&late))] {
            let second = workshop.turn(Wire::Chat, Delivery::Whole, &[Script::text(&["Sorry."])], &request).await;
            assert_eq!(shown(&second), ["message"], "{} {before}", store.name);
            let said = workshop.told(Wire::Chat);
            let output = said.iter().find(|(who, _)| who == "output").unwrap();
            assert!(output.1.contains("No decision was made before the deadline."), "{said:?}");
        }
        assert_eq!(workshop.service.requests().len(), 0);
        let pending = client.get("/admin/approvals?pending=true").await.json();
        assert_eq!(pending["data"], json!([]));
    }
}

#[tokio::test]
async fn going_on_without_a_word_leaves_the_question_open() {
    for store in stores() {
        let workshop = workshop(&store, setup(), json!(true)).await;
        let (first, id) = asked(&workshop, Wire::Chat, Delivery::Whole).await;
        let second =
            workshop.turn(Wire::Chat, Delivery::Whole, &[Script::text(&["Waiting."])], &going_on(&first)).await;
        assert_eq!(shown(&second), ["message"]);
        let third =
            workshop.turn(Wire::Chat, Delivery::Whole, &[Script::text(&["Paid."])], &word(&second, &id, true)).await;
        assert_eq!(shown(&third), [GRANTED, "message"], "{}", store.name);
        assert_eq!(workshop.service.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_approval_of_another_user_looks_like_none() {
    const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";
    for store in stores() {
        let workshop = Workshop::with(&store, Setup::new().extra(TENANTS)).await;
        let caller = |key: &str, user: &str| {
            Client::new(workshop.world.amalgam.url()).with_key(key).with_header("x-amalgam-user", user)
        };
        let ada = caller("am_a", "ada");
        let tool = workshop.tool("refund", json!({"requires_approval": true}));
        for key in ["am_a", "am_b"] {
            assert_eq!(put_tool(&caller(key, "admin"), "refund", &tool).await.status, 201);
        }
        workshop.service.always_for("/refund", says(json!("paid")));
        workshop.script(Wire::Chat, Delivery::Whole, &[calls("call_1", "refund", "Oslo")]);
        let first = ada.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &question())).await.json();
        let id = first["output"][0]["id"].as_str().unwrap();
        let nothing = "mcpr_AM-aaaaaaaaaaaaaaaaaaaaaaaa";
        for (key, user) in [("am_a", "bob"), ("am_b", "ada")] {
            let stranger = caller(key, user);
            // With the history in the request, since the response itself is missing for them as well.
            let refused = async |id: &str| {
                let item = json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": true});
                let request = json!({"input": [item], "tools": [named("refund")]});
                let answer = stranger.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &request)).await;
                (answer.status.as_u16(), error_of(&answer).to_string().replace(id, "ID"))
            };
            let (foreign, missing) = (refused(id).await, refused(nothing).await);
            assert_eq!(foreign, missing, "{} {key} {user}", store.name);
            assert!(foreign.1.contains("approval_not_found"), "{foreign:?}");
        }
        // An administrator of the tenant sees it for every user; one of another tenant does not.
        let other = caller("am_b", "admin");
        for id in [id, nothing] {
            assert_eq!(other.get(&format!("/admin/approvals/{id}")).await.status, 404);
            assert_eq!(decide(&other, id, json!({"decision": "approve"})).await.status, 404);
        }
        assert_eq!(other.get("/admin/approvals").await.json()["data"], json!([]));
        assert_eq!(caller("am_a", "admin").get(&format!("/admin/approvals/{id}")).await.json()["status"], "pending");
        assert_eq!(workshop.service.requests().len(), 0);
    }
}

#[tokio::test]
async fn what_an_administrator_has_to_decide_no_caller_can() {
    for store in stores() {
        let workshop = workshop(&store, setup(), json!("admin")).await;
        let (first, id) = asked(&workshop, Wire::Chat, Delivery::Whole).await;
        let asking = asking(Wire::Chat, Delivery::Whole, &word(&first, &id, true));
        let answer = workshop.client().post_json("/v1/responses", &asking).await;
        let error = error_of(&answer);
        assert_eq!(
            (answer.status.as_u16(), error["code"].as_str()),
            (403, Some("insufficient_permissions")),
            "{error}"
        );
        assert_eq!(workshop.service.requests().len(), 0);
        assert_eq!(decide(&workshop.client(), &id, json!({"decision": "approve"})).await.status, 200);
        let second = workshop.turn(Wire::Chat, Delivery::Whole, &[Script::text(&["Paid."])], &going_on(&first)).await;
        assert_eq!(shown(&second), [GRANTED, "message"], "{}", store.name);
    }
}

#[tokio::test]
async fn one_yes_runs_one_call_however_often_it_is_said() {
    for store in stores() {
        let workshop = workshop(&store, setup(), json!(true)).await;
        let (first, id) = asked(&workshop, Wire::Chat, Delivery::Whole).await;
        const TIMES: usize = 4;
        workshop.script(Wire::Chat, Delivery::Whole, &vec![Script::text(&["Said."]); TIMES]);
        let request = asking(Wire::Chat, Delivery::Whole, &word(&first, &id, true));
        let all: Vec<_> = (0..TIMES)
            .map(|_| {
                let (client, request) = (workshop.client(), request.clone());
                beside(async move { client.post_json("/v1/responses", &request).await })
            })
            .collect();
        let mut granted = 0;
        for answer in all {
            let response = response_of(Delivery::Whole, &answer.end().await);
            assert_eq!(text_of(&response), "Said.");
            granted += usize::from(shown(&response)[0] == GRANTED);
        }
        assert_eq!((granted, workshop.service.requests().len()), (1, 1), "{}", store.name);
    }
}

#[tokio::test]
async fn what_is_agreed_to_is_what_was_asked_and_not_what_a_client_makes_of_it() {
    for store in stores() {
        let workshop = workshop(&store, setup(), json!(true)).await;
        let (first, id) = asked(&workshop, Wire::Chat, Delivery::Whole).await;
        // A client that sends its history itself, and has changed it.
        let mut forged = first["output"][0].clone();
        forged["arguments"] = json!(r#"{"city":"Rome"}"#);
        forged["name"] = json!("other");
        let word = json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": true});
        let request = json!({
            "input": [{"role": "user", "content": "Refund Oslo."}, forged, word], "tools": [named("refund")],
        });
        let second = workshop.turn(Wire::Chat, Delivery::Whole, &[Script::text(&["Paid."])], &request).await;
        assert_eq!(shown(&second), [GRANTED, "message"], "{}", store.name);
        assert_eq!(workshop.service.request(0).json(), json!({"city": "Oslo"}));
    }
}

#[tokio::test]
async fn a_yes_that_could_not_be_acted_on_is_still_a_yes() {
    for store in stores() {
        let limits = "[limits]\nmax_in_flight = 1";
        let workshop = workshop(&store, setup().extra(limits), json!(true)).await;
        let (first, id) = asked(&workshop, Wire::Chat, Delivery::Whole).await;
        let request = asking(Wire::Chat, Delivery::Whole, &word(&first, &id, true));

        // There is no room.
        let asked_before = workshop.world.upstream(Wire::Responses).requests().len();
        workshop.world.upstream(Wire::Responses).enqueue(Reply::hang());
        let (client, other) = (workshop.client(), asking(Wire::Responses, Delivery::Whole, &json!({"input": "Hi"})));
        let busy = beside(async move { client.post_json("/v1/responses", &other).await });
        workshop.world.upstream(Wire::Responses).wait_for_requests(asked_before + 1).await;
        let refused = workshop.client().post_json("/v1/responses", &request).await;
        assert_eq!(refused.status, 429, "{}", refused.text());
        busy.leave().await;
        workshop.world.upstream(Wire::Responses).wait_for_disconnect(asked_before).await;

        // One of the other tools cannot be listed.
        let mut broken = request.clone();
        let unreachable =
            json!({"type": "mcp", "server_label": "away", "server_url": format!("{}/mcp", workshop.service.url())});
        broken["tools"] = json!([named("refund"), unreachable]);
        workshop.service.always_for("/mcp", Reply::close());
        let refused = eventually("room", FINAL, async || {
            let answer = workshop.client().post_json("/v1/responses", &broken).await;
            (answer.status != 429).then_some(answer)
        })
        .await;
        assert_eq!(refused.status, 424, "{}", refused.text());

        let second =
            workshop.turn(Wire::Chat, Delivery::Whole, &[Script::text(&["Paid."])], &word(&first, &id, true)).await;
        assert_eq!(shown(&second), [GRANTED, "message"], "{}", store.name);
        let ran = workshop.service.requests().iter().filter(|request| request.path == "/refund").count();
        assert_eq!(ran, 1, "{}", store.name);
    }
}

#[tokio::test]
async fn a_background_turn_takes_a_yes_too() {
    for store in stores() {
        let workshop = workshop(&store, setup(), json!(true)).await;
        for delivery in DELIVERIES {
            let before = workshop.service.requests().len();
            let (first, id) = asked(&workshop, Wire::Chat, delivery).await;
            let mut request = word(&first, &id, true);
            request["background"] = json!(true);
            workshop.script(Wire::Chat, delivery, &[Script::text(&["Paid."])]);
            let answer = workshop.client().post_json("/v1/responses", &asking(Wire::Chat, delivery, &request)).await;
            let queued = response_of(delivery, &answer);
            let ended = standing(&workshop.client(), id_of(&queued), "completed").await;
            assert_eq!(shown(&ended), [GRANTED, "message"], "{} {delivery:?}", store.name);
            assert_eq!(workshop.service.requests().len(), before + 1, "{} {delivery:?}", store.name);
        }
    }
}

#[tokio::test]
async fn a_question_outlives_the_process_and_is_answered_in_its_conversation() {
    for store in stores() {
        let mut workshop = workshop(&store, setup(), json!(true)).await;
        let conversation = workshop.client().post_json("/v1/conversations", &json!({})).await.json();
        let mut request = question();
        request["conversation"] = conversation["id"].clone();
        let first = workshop.turn(Wire::Chat, Delivery::Stream, &[calls("call_1", "refund", "Oslo")], &request).await;
        assert_eq!(shown(&first), ["mcp_approval_request"]);
        workshop.world.amalgam.kill();
        workshop.world.start_again().await;

        let id = first["output"][0]["id"].as_str().unwrap();
        request["input"] = json!([{"type": "mcp_approval_response", "approval_request_id": id, "approve": true}]);
        let second = workshop.turn(Wire::Anthropic, Delivery::Stream, &[Script::text(&["Paid."])], &request).await;
        assert_eq!(shown(&second), [GRANTED, "message"], "{}", store.name);
        let path = format!("/v1/conversations/{}/items?order=asc", conversation["id"].as_str().unwrap());
        let items = workshop.client().get(&path).await.json();
        let kinds: Vec<_> =
            items["data"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["message", "mcp_approval_request", "mcp_approval_response", "mcp_call", "message"]);
        // What was acted on is not acted on again.
        request["input"] = json!("Thanks.");
        let third = workshop.turn(Wire::Chat, Delivery::Whole, &[Script::text(&["Welcome."])], &request).await;
        assert_eq!(shown(&third), ["message"]);
        assert_eq!(workshop.service.requests().len(), 1, "{}", store.name);
    }
}

#[tokio::test]
async fn a_turn_that_is_not_stored_cannot_ask_anybody() {
    for store in stores() {
        let workshop = workshop(&store, setup(), json!(true)).await;
        let mut request = question();
        request["store"] = json!(false);
        let scripts = [calls("call_1", "refund", "Oslo"), Script::text(&["Sorry."])];
        let response = workshop.turn(Wire::Chat, Delivery::Stream, &scripts, &request).await;
        assert_eq!(shown(&response), [DENIED, "message"], "{}", store.name);
        assert_eq!(workshop.service.requests().len(), 0);
    }
}

#[tokio::test]
async fn what_one_process_asks_another_one_hears_decides_and_runs() {
    let Some(store) = shared_store() else { return };
    let workshop = workshop(&store, setup(), json!(true)).await;
    let second = workshop.world.another().await;
    let there = second.client();
    let (first, id) = asked(&workshop, Wire::Chat, Delivery::Whole).await;
    assert_eq!(decide(&there, &id, json!({"decision": "approve"})).await.status, 200);
    workshop.script(Wire::Chat, Delivery::Whole, &vec![Script::text(&["Paid."]); 2]);
    let request = asking(Wire::Chat, Delivery::Whole, &going_on(&first));
    // Both go on at once, and one of them runs it.
    let (client, same) = (workshop.client(), request.clone());
    let here = beside(async move { client.post_json("/v1/responses", &same).await });
    let one = response_of(Delivery::Whole, &there.post_json("/v1/responses", &request).await);
    let other = response_of(Delivery::Whole, &here.end().await);
    let granted = [&one, &other].iter().filter(|response| shown(response)[0] == GRANTED).count();
    assert_eq!((granted, workshop.service.requests().len()), (1, 1));

    // A background turn asks, too, and its question outlives the process that asked it.
    let mut background = question();
    background["background"] = json!(true);
    workshop.script(Wire::Chat, Delivery::Whole, &[calls("call_1", "refund", "Oslo")]);
    let mut victim = workshop.world.another().await;
    let queued =
        victim.client().post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &background)).await.json();
    let asked = standing(&there, id_of(&queued), "completed").await;
    assert_eq!(shown(&asked), ["mcp_approval_request"]);
    victim.kill();
    let id = asked["output"][0]["id"].as_str().unwrap();
    let granted =
        workshop.turn(Wire::Chat, Delivery::Stream, &[Script::text(&["Paid."])], &word(&asked, id, true)).await;
    assert_eq!(shown(&granted), [GRANTED, "message"]);
}
