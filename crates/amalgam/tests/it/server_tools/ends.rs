//! A process that ends in the middle of a tool's call. S2, S3

use amalgam_testkit::{Client, Gate};

use super::*;
use crate::{
    limits::set,
    support::{FINAL, ended, eventually, setup, shared_store},
};

fn background() -> Value {
    let mut request = question();
    request["background"] = json!(true);
    request
}

/// Expects a response that failed and names the tool whose outcome is unknown, and no further run of the tool.
async fn assert_named(workshop: &Workshop, client: &Client, id: &str) {
    // How soon is for the tests of deaths to say; a busy machine may take its time here.
    let response = eventually("the end of the response", 3 * FINAL, async || {
        let response = retrieved(client, id).await;
        (response["status"] != "in_progress").then_some(response)
    })
    .await;
    assert_eq!(
        (&response["status"], &response["error"]["code"]),
        (&json!("failed"), &json!("server_error")),
        "{response}"
    );
    let message = response["error"]["message"].as_str().expect("an error has a message");
    assert!(message.contains("`weather`") && message.contains("not known"), "{message}");
    let record = client.get(&format!("/admin/turns/{id}")).await.json();
    let call = &record["tool_calls"][0];
    assert_eq!(
        [&call["name"], &call["arguments"], &call["unknown"], &call["output"]],
        [&json!("weather"), &json!(r#"{"city":"Oslo"}"#), &json!(true), &Value::Null],
        "{record}"
    );
    let statistics = client.get("/admin/tools/weather/statistics").await.json();
    assert!(statistics["unknown"].as_u64() >= Some(1), "{statistics}");
    assert_eq!(workshop.service.requests().len(), 1, "nothing runs twice");
}

#[tokio::test]
async fn a_process_that_dies_in_a_call_names_the_tool_when_it_is_back() {
    for background_turn in [false, true] {
        let mut workshop = Workshop::on(&stores()[0]).await;
        workshop.put("weather", json!({})).await;
        workshop.service.always_for("/weather", Reply::hang());
        workshop.script(Wire::Chat, Delivery::Stream, &[calls("call_1", "weather", "Oslo")]);
        let request = if background_turn { background() } else { question() };
        let mut stream =
            workshop.client().post_stream("/v1/responses", &asking(Wire::Chat, Delivery::Stream, &request)).await;
        let created = stream.next_of_type("response.created").await;
        stream.next_of_type("response.mcp_call.in_progress").await;
        workshop.service.wait_for_requests(1).await;
        workshop.world.amalgam.kill();
        workshop.world.start_again().await;
        let client = workshop.client();
        assert_named(&workshop, &client, id_of(&created["response"])).await;
        // The earlier messages are still in the history, and the tool can be called again.
        workshop.service.always_for("/weather", says(json!("grey")));
        let scripts = [calls("call_1", "weather", "Oslo"), Script::text(&["Grey."])];
        let response = workshop.turn(Wire::Chat, Delivery::Stream, &scripts, &question()).await;
        assert_eq!(response["status"], "completed");
    }
}

#[tokio::test]
async fn only_calls_with_an_unknown_outcome_are_named() {
    let mut workshop = Workshop::on(&stores()[0]).await;
    for name in ["weather", "traffic"] {
        workshop.put(name, json!({})).await;
    }
    workshop.service.always_for("/weather", Reply::hang());
    workshop.service.always_for("/traffic", says(json!("jam")));
    let both = Script::new([asks("call_1", "weather", "Oslo"), asks("call_2", "traffic", "Oslo")]);
    workshop.script(Wire::Chat, Delivery::Stream, &[both]);
    let request = json!({"input": "Hi", "tools": [named("weather"), named("traffic")]});
    let request = asking(Wire::Chat, Delivery::Stream, &request);
    let mut stream = workshop.client().post_stream("/v1/responses", &request).await;
    let created = stream.next_of_type("response.created").await;
    let id = id_of(&created["response"]);
    // Its result is written down although it cannot be shown before the other one's.
    eventually("the second call to be over", FINAL, async || {
        let record = workshop.turn_record(id).await;
        (record["tool_calls"][1]["output"] == "jam").then_some(())
    })
    .await;
    workshop.world.amalgam.kill();
    workshop.world.start_again().await;
    let response = ended(&workshop.client(), id).await;
    let message = response["error"]["message"].as_str().unwrap();
    assert!(message.contains("`weather`") && !message.contains("`traffic`"), "{message}");
    let record = workshop.turn_record(id).await;
    let ends: Vec<Value> = record["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| json!([call["name"], call["unknown"], call["output"]]))
        .collect();
    assert_eq!(ends, [json!(["weather", true, null]), json!(["traffic", false, "jam"])]);
}

#[tokio::test]
async fn a_process_that_lives_names_the_tool_of_one_that_died() {
    let Some(store) = shared_store() else { return };
    let workshop = Workshop::on(&store).await;
    workshop.put("weather", json!({})).await;
    workshop.service.always_for("/weather", Reply::hang());
    workshop.script(Wire::Chat, Delivery::Stream, &[calls("call_1", "weather", "Oslo")]);
    let mut victim = workshop.world.another().await;
    // In the foreground, since any process may run what is queued.
    let request = asking(Wire::Chat, Delivery::Stream, &question());
    let mut stream = victim.client().post_stream("/v1/responses", &request).await;
    let created = stream.next_of_type("response.created").await;
    workshop.service.wait_for_requests(1).await;
    victim.kill();
    assert_named(&workshop, &workshop.client(), id_of(&created["response"])).await;
}

#[tokio::test]
async fn a_process_that_is_asked_to_stop_runs_no_tool_twice() {
    for store in stores() {
        let mut workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        let gate = Gate::new();
        workshop.service.always_for("/weather", says(json!("grey")).behind(&gate));
        workshop.script(Wire::Chat, Delivery::Whole, &[calls("call_1", "weather", "Oslo"), Script::text(&["Grey."])]);
        let request = asking(Wire::Chat, Delivery::Whole, &background());
        let queued = workshop.client().post_json("/v1/responses", &request).await.json();
        workshop.service.wait_for_requests(1).await;
        workshop.world.amalgam.signal("TERM");
        // The server is terminated before the call ends.
        let client = workshop.client();
        eventually("the door to close", FINAL, async || {
            client
                .try_request(http::Method::GET, "/readyz", &[], bytes::Bytes::new())
                .await
                .map_or(Some(()), |answer| (answer.status != 200).then_some(()))
        })
        .await;
        gate.open();
        workshop.world.amalgam.ended().await;
        workshop.world.start_again().await;
        let response = ended(&workshop.client(), id_of(&queued)).await;
        match response["status"].as_str() {
            Some("completed") => assert_eq!(text_of(&response), "Grey."),
            _ => {
                let message = response["error"]["message"].as_str().unwrap_or_default();
                assert!(message.contains("`weather`"), "{}: {response}", store.name);
            }
        }
        assert_eq!(workshop.service.requests().len(), 1, "{}", store.name);
    }
}

#[tokio::test]
async fn a_process_that_dies_in_a_call_has_booked_the_model_calls_before_it() {
    const PRICED: &str = "[models.priced]\nupstream = \"chat\"\nmodel = \"m-chat\"\n\
                          [models.priced.price]\ninput = 2\ncached_input = 1\noutput = 10\n";
    let cases = [false, true]
        .into_iter()
        .flat_map(|background_turn| stores().into_iter().map(move |store| (store, background_turn)));
    for (store, background_turn) in cases {
        let place = format!("{} {background_turn}", store.name);
        let mut workshop = Workshop::with(&store, setup().extra(PRICED)).await;
        workshop.put("weather", json!({})).await;
        workshop.service.always_for("/weather", Reply::hang());
        let budget = json!({"budget": {"amount": 100_000, "unit": "tokens", "period": "total"}});
        let client = workshop.client().with_header("x-amalgam-user", "anna");
        set(&client, "users/anna", &budget).await;
        workshop.script(Wire::Chat, Delivery::Stream, &[calls("call_1", "weather", "Oslo")]);
        let request = if background_turn { background() } else { question() };
        let mut request = asking(Wire::Chat, Delivery::Stream, &request);
        request["model"] = json!("priced");
        let mut stream = client.post_stream("/v1/responses", &request).await;
        let created = stream.next_of_type("response.created").await;
        let id = id_of(&created["response"]);
        workshop.service.wait_for_requests(1).await;
        let running = client.get("/admin/turns").await.json()["data"][0].clone();
        assert_eq!([&running["status"], &running["id"]], [&json!("in_progress"), &json!(id)], "{place} {running}");
        workshop.world.amalgam.kill();
        workshop.world.start_again().await;
        let client = workshop.client().with_header("x-amalgam-user", "anna");
        eventually("the end of the response", 3 * FINAL, async || {
            (retrieved(&client, id).await["status"] == "failed").then_some(())
        })
        .await;

        // 8 × 2 + 3 × 1 + 7 × 10 micro-USD.
        let row = client.get("/admin/turns").await.json()["data"][0].clone();
        let usage = client.get("/admin/usage?group_by=model").await.json()["data"][0].clone();
        for (what, counted) in [("turn", &row), ("usage", &usage)] {
            let numbers = ["calls", "input_tokens", "cached_input_tokens", "output_tokens", "cost_usd"];
            assert_eq!(
                numbers.map(|name| counted[name].clone()),
                [json!(1), json!(11), json!(3), json!(7), json!(0.000_089)],
                "{place}: {what} {counted}"
            );
            assert_eq!(counted["model"], "m-chat", "{place}: {counted}");
        }
        assert_eq!([&row["status"], &usage["failed_turns"]], [&json!("failed"), &json!(1)], "{place} {row}");
        let budget = eventually("the reservations of the dead process to end", 3 * FINAL, async || {
            let budget = client.get("/admin/limits/users/anna").await.json()["usage"]["budget"].clone();
            (budget["reserved"] == 0).then_some(budget)
        })
        .await;
        assert_eq!(budget["used"], 18, "{place}");
    }
}
