//! Whose tools they are: tenants, the installation, several processes, and many turns at once.

use amalgam_testkit::{Client, Setup};

use super::*;
use crate::support::{TestStore, beside, response_of, shared_store};

const BOOT: &str = "boot-0123456789";
const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";

async fn tenants(store: &TestStore) -> (Workshop, [Client; 3]) {
    let setup = Setup::new().extra(TENANTS).env("AMALGAM_BOOTSTRAP_KEY", BOOT);
    let workshop = Workshop::with(store, setup).await;
    let clients = ["am_a", "am_b", BOOT].map(|key| Client::new(workshop.world.amalgam.url()).with_key(key));
    (workshop, clients)
}

/// What a caller's turn shows when the model calls the tool.
async fn called(workshop: &Workshop, client: &Client, ours: bool) -> Value {
    let script = [calls("call_1", "weather", "Oslo"), Script::text(&["Done."])];
    workshop.script(Wire::Chat, Delivery::Whole, &script[..if ours { 2 } else { 1 }]);
    let answer = client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &question())).await;
    let response = response_of(Delivery::Whole, &answer);
    assert_eq!(workshop.world.upstream(Wire::Chat).replies_left(), 0, "{response}");
    response
}

#[tokio::test]
async fn a_tool_is_its_tenants_alone_unless_the_operator_shares_it() {
    for store in stores() {
        let (workshop, [a, b, operator]) = tenants(&store).await;
        workshop.service.always_for("/weather", says(json!("of a")));
        workshop.service.always_for("/common", says(json!("of all")));
        assert_eq!(put_tool(&a, "weather", &workshop.tool("weather", json!({}))).await.status, 201);
        assert_eq!(called(&workshop, &a, true).await["output"][0]["output"], "of a", "{}", store.name);
        assert_eq!(shown(&called(&workshop, &b, false).await), ["function_call"], "{}", store.name);
        assert_eq!(b.get("/admin/tools/weather").await.status, 404);
        assert_eq!(b.get("/admin/tools").await.json()["data"], json!([]));

        // The operator's tool is for all tenants, and a tenant's own tool with the same name takes precedence.
        let common = workshop.tool("common", json!({}));
        let refused = put_tool(&b, "weather?common=true", &common).await;
        assert_eq!(refused.status, 403, "{}", refused.text());
        let put = put_tool(&operator, "weather?common=true", &common).await;
        assert_eq!(put.status, 201, "{}", put.text());
        assert_eq!(called(&workshop, &b, true).await["output"][0]["output"], "of all", "{}", store.name);
        assert_eq!(called(&workshop, &a, true).await["output"][0]["output"], "of a", "{}", store.name);
        // An own one that is switched off hides it.
        let off = workshop.tool("weather", json!({"active": false}));
        assert_eq!(put_tool(&b, "weather", &off).await.status, 201);
        assert_eq!(shown(&called(&workshop, &b, false).await), ["function_call"], "{}", store.name);
        // The statistics of calls are separate for each tenant.
        let count = async |client: &Client| client.get("/admin/tools/weather/statistics").await.json()["calls"].clone();
        assert_eq!((count(&a).await, count(&b).await), (json!(2), json!(1)), "{}", store.name);
    }
}

#[tokio::test]
async fn a_change_is_in_force_in_every_process() {
    let Some(store) = shared_store() else { return };
    let workshop = Workshop::on(&store).await;
    let second = workshop.world.another().await;
    let there = second.client();
    for (number, word) in ["first", "second", "third"].into_iter().enumerate() {
        workshop.service.always_for(&format!("/{word}"), says(json!(word)));
        let client = if number % 2 == 0 { workshop.client() } else { second.client() };
        let put = put_tool(&client, "weather", &workshop.tool(word, json!({}))).await;
        assert!(put.status.is_success(), "{}", put.text());
        for client in [&there, &workshop.client()] {
            assert_eq!(called(&workshop, client, true).await["output"][0]["output"], word);
        }
    }
    let gone = workshop.client().request(http::Method::DELETE, "/admin/tools/weather", &[], bytes::Bytes::new()).await;
    assert_eq!(gone.status, 200);
    assert_eq!(shown(&called(&workshop, &there, false).await), ["function_call"]);
}

#[tokio::test]
async fn many_turns_at_once_keep_their_calls_apart() {
    const TURNS: usize = 40;
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.service.answer_for("/weather", |request| says(json!(format!("grey in {}", request.json()["city"]))));
        // The model repeats the city that it received, so that each caller gets its own back.
        for wire in WIRES {
            workshop.world.upstream(wire).answer_for("", move |request| {
                let body = request.json();
                let said = told(&body);
                let script = match said.iter().find(|(who, _)| who == "output") {
                    Some((_, output)) => Script::text(&[output]),
                    None => calls("call_same", "weather", &said[0].1),
                };
                let delivery = if body["stream"] == true { Delivery::Stream } else { Delivery::Whole };
                script.reply(wire, delivery)
            });
        }
        let turns: Vec<_> = (0..TURNS)
            .map(|number| {
                let (wire, delivery) = (WIRES[number % 3], DELIVERIES[number % 2]);
                let request = json!({"input": format!("city {number}"), "tools": [named("weather")]});
                let (client, request) = (workshop.client(), asking(wire, delivery, &request));
                beside(async move { response_of(delivery, &client.post_json("/v1/responses", &request).await) })
            })
            .collect();
        for (number, turn) in turns.into_iter().enumerate() {
            let response = turn.end().await;
            let expected = format!("grey in \"city {number}\"");
            assert_eq!(response["output"][0]["output"], json!(expected), "{}", store.name);
            assert_eq!(text_of(&response), expected, "{}", store.name);
        }
        assert_eq!(workshop.service.requests().len(), TURNS);
        assert_calm(&workshop.world.amalgam);
    }
}
