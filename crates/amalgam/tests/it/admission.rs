//! Which turns run, wait and are refused when there are more than may run at once.

use std::time::Duration;

use amalgam_testkit::{Client, Gate, Setup};
use serde_json::json;

use crate::support::{Delivery, Script, Wire, World, beside, eventually};

const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";

/// A server with these limits, whose upstream answers when the gate opens.
async fn gated(limits: &str) -> (World, Gate) {
    let world = World::with(Setup::new().extra(&format!("{TENANTS}\n[limits]\n{limits}")), &[]).await;
    let gate = Gate::new();
    let reply = Script::text(&["done"]).reply(Wire::Chat, Delivery::Whole);
    world.upstream(Wire::Chat).from_now_on(reply.behind(&gate));
    (world, gate)
}

fn caller(world: &World, key: &str) -> Client {
    Client::new(world.amalgam.url()).with_key(key)
}

fn turn(input: &str) -> serde_json::Value {
    json!({"model": Wire::Chat.model(), "input": input, "store": false})
}

async fn wait_until_waiting(world: &World, turns: usize) {
    let line = format!("amalgam_queue_depth{{queue=\"admission\"}} {turns}\n");
    let look = async || caller(world, "am_a").get("/metrics").await.text().contains(&line).then_some(());
    eventually("waiting turns", Duration::from_secs(60), look).await;
}

#[tokio::test]
async fn waiting_tenants_get_free_slots_in_turn() {
    let (world, gate) = gated("max_in_flight = 1\nqueue_wait = \"60s\"").await;
    let mut running = Vec::new();
    // The first runs; the others wait in this order.
    for (number, (key, input)) in
        [("am_a", "a1"), ("am_a", "a2"), ("am_a", "a3"), ("am_a", "a4"), ("am_b", "b1")].into_iter().enumerate()
    {
        let (client, body) = (caller(&world, key), turn(input));
        running.push(beside(async move { client.post_json("/v1/responses", &body).await }));
        match number {
            0 => drop(world.upstream(Wire::Chat).wait_for_requests(1).await),
            waiting => wait_until_waiting(&world, waiting).await,
        }
    }
    gate.open();
    for answer in running {
        let answer = answer.end().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let inputs: Vec<String> = world
        .upstream(Wire::Chat)
        .requests()
        .iter()
        .map(|request| request.json()["messages"][0]["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(inputs, ["a1", "a2", "b1", "a3", "a4"]);
    let metrics = caller(&world, "am_a").get("/metrics").await.text();
    assert!(metrics.contains("amalgam_queue_wait_seconds_count{queue=\"admission\"} 4\n"), "{metrics}");
}

#[tokio::test]
async fn a_tenant_at_its_own_limit_leaves_the_other_slots_to_others() {
    let (world, gate) = gated("max_in_flight = 8\nmax_in_flight_per_tenant = 1\nqueue_wait = \"100ms\"").await;
    let first = {
        let client = caller(&world, "am_a");
        beside(async move { client.post_json("/v1/responses", &turn("first")).await })
    };
    world.upstream(Wire::Chat).wait_for_requests(1).await;
    let refused = caller(&world, "am_a").post_json("/v1/responses", &turn("second")).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.json()["error"]["code"], refused.header("retry-after")),
        (429, &json!("server_is_overloaded"), Some("1"))
    );
    let other = {
        let client = caller(&world, "am_b");
        beside(async move { client.post_json("/v1/responses", &turn("of another tenant")).await })
    };
    world.upstream(Wire::Chat).wait_for_requests(2).await;
    gate.open();
    assert_eq!((first.end().await.status.as_u16(), other.end().await.status.as_u16()), (200, 200));
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let (world, gate) = gated("max_in_flight = 1\nmax_waiting = 1\nqueue_wait = \"60s\"").await;
    let mut accepted = Vec::new();
    for number in 0..2 {
        let client = caller(&world, "am_a");
        accepted.push(beside(async move { client.post_json("/v1/responses", &turn("Hi")).await }));
        match number {
            0 => drop(world.upstream(Wire::Chat).wait_for_requests(1).await),
            _ => wait_until_waiting(&world, 1).await,
        }
    }
    let refused = caller(&world, "am_b").post_json("/v1/responses", &turn("Hi")).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    gate.open();
    for answer in accepted {
        assert_eq!(answer.end().await.status, 200);
    }
}
