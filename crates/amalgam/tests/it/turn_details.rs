//! What the console loads of one turn, part by part, and its overview of a day.

use amalgam_testkit::{Client, Reply};
use serde_json::{Value, json};

use crate::support::{
    Delivery, SOON, Script, Wire, Workshop, World, asking, calls, embedded_store, eventually, id_of, last_response,
    named, setup, stores,
};

async fn got(client: &Client, path: &str) -> Value {
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object[name].as_array().expect("the object has the list")
}

#[tokio::test]
async fn a_turn_is_loaded_without_bodies_and_each_call_by_itself() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[("retries", "0")]).await;
        let client = world.amalgam.client();
        let first = world.whole(Wire::Chat, &Script::text(&["a"]), &json!({"input": "Hi. ".repeat(300)})).await;
        let next = json!({"input": "And then?", "previous_response_id": first["id"]});
        let second = world.whole(Wire::Chat, &Script::text(&["b"]), &next).await;
        let id = id_of(&second);

        let whole = got(&client, &format!("/admin/turns/{id}")).await;
        let light = got(&client, &format!("/admin/turns/{id}?bodies=false")).await;
        let call = got(&client, &format!("/admin/turns/{id}/calls/0")).await;
        assert_eq!(list(&whole, "calls"), std::slice::from_ref(&call), "{}", store.name);
        let mut head = call.clone();
        (head["request"], head["response"]) = (Value::Null, Value::Null);
        assert_eq!(list(&light, "calls"), [head], "{}", store.name);
        assert_eq!((&light["response"], &light["input"]), (&whole["response"], &whole["input"]));
        let request = call["request"].as_str().expect("the request is text");
        assert_eq!(call["request_bytes"], request.len(), "{}: the shared beginning is counted", store.name);
        assert_eq!(serde_json::from_str::<Value>(request).expect("JSON"), world.sent(Wire::Chat));
        for path in ["calls/1", "calls/x", "calls/-1", "calls/99999999999", "context?call=7"] {
            assert_eq!(client.get(&format!("/admin/turns/{id}/{path}")).await.status, 404, "{path}");
        }
        for path in ["calls/0", "context", "events"] {
            assert_eq!(client.get(&format!("/admin/turns/resp_1/{path}")).await.status, 404, "{path}");
        }
        let wrong = client.get(&format!("/admin/turns/{id}/context?call=-1")).await;
        assert_eq!((wrong.status.as_u16(), &wrong.json()["error"]["param"]), (400, &json!("call")));
    }
}

#[tokio::test]
async fn a_turn_is_found_by_the_ids_of_its_items_and_calls() {
    for store in stores() {
        let world = Workshop::on(&store).await;
        world.put("look", json!({})).await;
        let client = world.client();
        let scripts = [calls("call_of_the_model", "look", "Rome"), Script::text(&["Warm."])];
        let request = json!({"input": "How warm?", "tools": [named("look")]});
        let response = world.turn(Wire::Chat, Delivery::Whole, &scripts, &request).await;
        let turn = got(&client, &format!("/admin/turns/{}", id_of(&response))).await;
        let mut ids: Vec<&str> = list(&response, "output").iter().filter_map(|item| item["id"].as_str()).collect();
        ids.extend(list(&turn, "input").iter().filter_map(|item| item["id"].as_str()));
        ids.extend(list(&turn, "tool_calls").iter().filter_map(|run| run["call_id"].as_str()));
        assert!(ids.len() >= 4, "{ids:?}");
        for id in ids {
            assert_eq!(got(&client, &format!("/admin/turns/{id}")).await["id"], response["id"], "{}: {id}", store.name);
        }
        // The right beginning and another end.
        let item = response["output"][0]["id"].as_str().expect("an id");
        let (beginning, _) = item.split_at(item.len() - 8);
        let other = format!("{beginning}zzzzzzzz");
        assert_eq!(client.get(&format!("/admin/turns/{other}")).await.status, 404, "{}", store.name);
    }
}

#[tokio::test]
async fn the_stored_events_of_a_turn_are_listed_page_by_page() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        let client = world.amalgam.client();
        let reply = Script::text(&["All ", "is ", "well."]).reply(Wire::Chat, Delivery::Stream);
        world.upstream(Wire::Chat).enqueue(reply);
        let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
        let sent = client.post_json("/v1/responses", &request).await.json_events();
        let id = id_of(&last_response(&sent)).to_owned();
        let (mut listed, mut after) = (Vec::new(), String::new());
        loop {
            let page = got(&client, &format!("/admin/turns/{id}/events?limit=3{after}")).await;
            listed.extend(list(&page, "data").iter().map(|event| event["event"].clone()));
            if page["has_more"] != true {
                break;
            }
            assert_eq!(list(&page, "data").len(), 3);
            after = format!("&after={}", page["last_id"]);
        }
        assert_eq!(listed, sent, "{}", store.name);
        let first = got(&client, &format!("/admin/turns/{id}/events?limit=1")).await;
        assert_eq!(first["data"][0]["type"], "response.created");
        let whole = world.whole(Wire::Chat, &Script::text(&["a"]), &json!({"input": "Hi"})).await;
        let none = got(&client, &format!("/admin/turns/{}/events", id_of(&whole))).await;
        assert_eq!((list(&none, "data").len(), &none["has_more"]), (0, &json!(false)), "it was not streamed");
        for query in ["limit=0", "limit=1001", "after=x"] {
            assert_eq!(client.get(&format!("/admin/turns/{id}/events?{query}")).await.status, 400, "{query}");
        }
    }
}

#[tokio::test]
async fn the_context_of_a_call_names_its_parts_and_where_it_differs_from_the_one_before() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        let client = world.amalgam.client();
        let tool = json!({"type": "function", "name": "look", "parameters": {"type": "object"}});
        let request = json!({"input": "Hi there", "instructions": "It is nine.", "tools": [tool]});
        let first = world.whole(Wire::Chat, &Script::text(&["Hello."]), &request).await;
        let mut request = request;
        request["previous_response_id"] = first["id"].clone();
        request["input"] = json!("And then?");
        let second = world.whole(Wire::Chat, &Script::text(&["b"]), &request).await;
        request["instructions"] = json!("It is ten.");
        let third = world.whole(Wire::Chat, &Script::text(&["c"]), &request).await;

        let context = got(&client, &format!("/admin/turns/{}/context", id_of(&second))).await;
        let kinds: Vec<&str> = list(&context, "parts").iter().filter_map(|part| part["kind"].as_str()).collect();
        assert_eq!(kinds, ["tools", "instructions", "history", "input"], "{}: {context}", store.name);
        let sum: u64 = list(&context, "parts").iter().filter_map(|part| part["tokens"].as_u64()).sum();
        assert!(sum > 0 && context["estimated_tokens"] == sum, "{context}");
        assert_eq!(context["reported_tokens"], second["usage"]["input_tokens"]);
        assert_eq!(context["cached_tokens"], second["usage"]["input_tokens_details"]["cached_tokens"]);
        let previous = &context["previous"];
        assert_eq!((&previous["response_id"], &previous["call"]), (&first["id"], &json!(0)));
        assert_eq!(previous["difference"], Value::Null, "{}: only something was added: {previous}", store.name);

        let context = got(&client, &format!("/admin/turns/{}/context", id_of(&third))).await;
        let difference = &context["previous"]["difference"];
        assert_eq!(difference["kind"], "instructions", "{}: {context}", store.name);
        assert!(difference["earlier"].as_str().is_some_and(|text| text.contains("nine")), "{difference}");
        assert!(difference["now"].as_str().is_some_and(|text| text.contains("ten")), "{difference}");
        let context = got(&client, &format!("/admin/turns/{}/context", id_of(&first))).await;
        assert_eq!(context["previous"], Value::Null, "nothing was before");
    }
}

#[tokio::test]
async fn the_overview_sums_the_last_day() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[("retries", "0")]).await;
        let client = world.amalgam.client();
        let empty = got(&client, "/admin/overview").await;
        assert_eq!((list(&empty, "hours").len(), &empty["total"]["turns"]), (0, &json!(0)));
        assert_eq!((&empty["latency"]["duration_ms"], &empty["setup"]["has_turn"]), (&Value::Null, &json!(false)));
        for _ in 0..3 {
            world.whole(Wire::Chat, &Script::text(&["a"]), &json!({"input": "Hi"})).await;
        }
        world.upstream(Wire::Chat).enqueue(Reply::status(500));
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}));
        assert_eq!(client.post_json("/v1/responses", &request).await.status, 502);
        let overview = eventually("all turns are counted", SOON, async || {
            let overview = got(&client, "/admin/overview").await;
            (overview["total"]["turns"] == 4).then_some(overview)
        })
        .await;
        let place = format!("{}: {overview}", store.name);
        assert_eq!(overview["total"]["failed_turns"], 1, "{place}");
        let hours: u64 = list(&overview, "hours").iter().filter_map(|hour| hour["turns"].as_u64()).sum();
        assert_eq!(hours, 4, "{place}");
        assert_eq!((&overview["latency"]["turns"], &overview["latency"]["partial"]), (&json!(4), &json!(false)));
        let percentiles = &overview["latency"]["duration_ms"];
        assert!(percentiles["p50"].as_u64() <= percentiles["p99"].as_u64() && percentiles["p50"].is_u64(), "{place}");
        let [error] = list(&overview, "errors") else { panic!("{place}") };
        assert_eq!(error["turns"], 1);
        let [failed] = list(&overview, "failed") else { panic!("{place}") };
        assert_eq!((&failed["status"], &failed["error"]), (&json!("failed"), &error["code"]));
        assert_eq!((&overview["running"], &overview["setup"]["has_turn"]), (&json!([]), &json!(true)));
    }
}

#[tokio::test]
async fn the_overview_of_another_tenant_is_for_operators() {
    let world = World::with(embedded_store().setup(setup()), &[]).await;
    let missing = world.amalgam.client().get("/admin/overview?tenant_id=999").await;
    assert!(missing.status == 404 || missing.status == 403, "{}", missing.text());
}
