//! Models with fallbacks, and the time that upstreams are given.

use std::time::Duration;

use amalgam_testkit::{Amalgam, Reply, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{BINARY, DELIVERIES, Delivery, Script, WIRES, Wire, World, asking, error_of, text_of};

fn request(delivery: Delivery) -> Value {
    json!({"model": "m", "input": "Hi", "stream": delivery == Delivery::Stream})
}

fn ended(answer: &amalgam_testkit::HttpAnswer, delivery: Delivery) -> Value {
    match delivery {
        Delivery::Whole => answer.json(),
        Delivery::Stream => crate::support::last_response(&answer.json_events()),
    }
}

#[tokio::test]
async fn a_fallback_to_the_demo_works_with_and_without_an_upstream_of_that_kind() {
    // right C10
    let model = "[models.m]\nupstream = \"first\"\nmodel = \"m1\"\nfallback = [\"demo\"]";
    for (demo, name) in [("", "demo/demo"), ("[upstreams.toy]\nkind = \"demo\"\npace = \"0s\"\n", "toy/demo")] {
        let first = Upstream::start();
        let setup = Setup::new().upstream("first", "chat", &first.base_url()).option("retries", "0");
        let amalgam = Amalgam::start(BINARY, setup.extra(&format!("{demo}{model}"))).await;
        for delivery in DELIVERIES {
            first.enqueue(Reply::status(500));
            let answer = amalgam.client().post_json("/v1/responses", &request(delivery)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.header("amalgam-model"), Some(name));
            let response = ended(&answer, delivery);
            assert!(!text_of(&response).is_empty(), "{response}");
            assert_eq!(response["amalgam"]["model"], name);
        }
    }
}

#[tokio::test]
async fn credentials_and_models_that_an_upstream_does_not_know_lead_to_the_fallback() {
    // right C10
    let (first, second) = (Upstream::start(), Upstream::start());
    let setup = Setup::new().upstream("first", "responses", &first.base_url()).option("retries", "0");
    let setup = setup.upstream("second", "chat", &second.base_url());
    let model = "[models.m]\nupstream = \"first\"\nmodel = \"m1\"\nfallback = [\"second/m2\"]";
    let amalgam = Amalgam::start(BINARY, setup.extra(model)).await;
    for delivery in DELIVERIES {
        for status in [401, 402, 403, 404, 429, 500, 503] {
            first.enqueue(Reply::status(status));
            second.enqueue(Script::text(&["me"]).reply(Wire::Chat, delivery));
            let answer = amalgam.client().post_json("/v1/responses", &request(delivery)).await;
            assert_eq!((answer.status.as_u16(), answer.header("amalgam-model")), (200, Some("second/m2")), "{status}");
            assert_eq!(text_of(&ended(&answer, delivery)), "me", "{status}");
        }
        // What concerns the request itself would be refused again.
        for status in [400, 422] {
            first.enqueue(Reply::status(status));
            let asked = second.requests().len();
            let answer = amalgam.client().post_json("/v1/responses", &request(delivery)).await;
            assert_eq!(answer.status.as_u16(), 400, "{status}: {}", answer.text());
            assert_eq!(second.requests().len(), asked, "{status}");
        }
    }
}

#[tokio::test]
async fn only_streams_are_bounded_by_the_time_for_their_first_byte() {
    // right A3
    let options = [("first_byte_timeout", "\"300ms\""), ("idle_timeout", "\"300ms\""), ("retries", "0")];
    let world = World::with(Setup::new(), &options).await;
    for wire in WIRES {
        let slow = Script::text(&["ok"]).reply(wire, Delivery::Whole).after(Duration::from_secs(2));
        world.upstream(wire).enqueue(slow);
        let request = json!({"input": "Hi"});
        let answer = world.amalgam.client().post_json("/v1/responses", &asking(wire, Delivery::Whole, &request)).await;
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        assert_eq!(text_of(&answer.json()), "ok");
        world.upstream(wire).enqueue(Reply::hang());
        let answer = world.amalgam.client().post_json("/v1/responses", &asking(wire, Delivery::Stream, &request)).await;
        assert_eq!((answer.status.as_u16(), &error_of(&answer)["code"]), (504, &json!("upstream_timeout")), "{wire:?}");
    }
}

#[tokio::test]
async fn whole_answers_are_bounded_by_the_total_time() {
    // right A3
    let world = World::with(Setup::new(), &[("total_timeout", "\"500ms\""), ("retries", "0")]).await;
    for wire in WIRES {
        for reply in [Reply::hang(), Script::text(&["ok"]).reply(wire, Delivery::Whole).after(Duration::from_secs(40))]
        {
            world.upstream(wire).enqueue(reply);
            let request = asking(wire, Delivery::Whole, &json!({"input": "Hi"}));
            let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
            assert_eq!(
                (answer.status.as_u16(), &error_of(&answer)["code"]),
                (504, &json!("upstream_timeout")),
                "{wire:?}"
            );
        }
    }
}
