//! Upstreams that do not answer requests for their list of models.

use std::time::{Duration, Instant};

use amalgam_testkit::{Amalgam, Gate, Reply, Setup, Upstream};
use serde_json::json;

use crate::support::{BINARY, Delivery, Script, Wire, assert_refused, beside};

fn list_of(name: &str) -> Reply {
    Reply::json(json!({"object": "list", "data": [{"id": name, "object": "model"}]}))
}

fn listings(upstream: &Upstream) -> usize {
    upstream.requests().iter().filter(|request| request.path.ends_with("/models")).count()
}

async fn serving(upstreams: &[Upstream]) -> Amalgam {
    let add = |setup: Setup, (number, upstream): (usize, &Upstream)| {
        setup.upstream(&format!("u{number}"), "chat", &upstream.base_url())
    };
    Amalgam::start(BINARY, upstreams.iter().enumerate().fold(Setup::new(), add)).await
}

#[tokio::test]
async fn all_upstreams_are_asked_for_their_models_at_the_same_time() {
    // right E5: none answers before all were asked, so that one after the other would run into the deadline.
    let gate = Gate::new();
    let upstreams = [Upstream::start(), Upstream::start(), Upstream::start()];
    for (name, upstream) in ["a", "b", "c"].into_iter().zip(&upstreams) {
        upstream.always_for("/models", list_of(name).behind(&gate));
    }
    let amalgam = serving(&upstreams).await;
    let client = amalgam.client();
    let list = beside(async move { client.get("/v1/models").await.json() });
    for upstream in &upstreams {
        upstream.wait_for_requests(1).await;
    }
    gate.open();
    let list = list.end().await;
    let cards = list["data"].as_array().expect("a list has data").iter();
    let names: Vec<_> = cards.filter(|card| card["owned_by"] != "assistant").map(|card| card["id"].clone()).collect();
    assert_eq!(names, ["a", "b", "c"], "in the order of the configuration");
}

#[tokio::test]
async fn hanging_upstreams_share_one_deadline_and_their_failure_is_remembered() {
    // right E5
    const HANGING: usize = 8;
    let mut upstreams: Vec<Upstream> = (0..HANGING).map(|_| Upstream::start()).collect();
    for upstream in &upstreams {
        upstream.always_for("/models", Reply::hang());
    }
    let good = Upstream::start();
    good.always_for("/models", list_of("known"));
    good.from_now_on(Script::text(&["fine"]).reply(Wire::Chat, Delivery::Whole));
    upstreams.push(good);
    let amalgam = serving(&upstreams).await;
    let client = amalgam.client();
    let ask = async |model: &str| {
        client.post_json("/v1/responses", &json!({"model": model, "input": "Hi", "store": false})).await
    };

    let began = Instant::now();
    assert_refused(&ask("unknown").await, 404, Some("model"), "model_not_found");
    // One deadline is five seconds, and one for each would be forty.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(ask("known").await.status, 200);
    assert_refused(&ask("unknown").await, 404, Some("model"), "model_not_found");
    assert_eq!(client.get("/v1/models").await.status, 200);
    for upstream in &upstreams {
        assert_eq!(listings(upstream), 1);
    }
}
