use amalgam_testkit::{Gate, Reply, Upstream as Scripted};
use serde_json::json;

use crate::settings::{Dialect, Key};

use super::*;

struct NoSeal;

impl Seal for NoSeal {
    fn seal(&self, _context: &str, _plain: &[u8]) -> String {
        String::new()
    }

    fn open(&self, _context: &str, _sealed: &str) -> Option<Vec<u8>> {
        None
    }
}

fn settings(name: &str, kind: UpstreamKind, base_url: String) -> UpstreamSettings {
    let second = Duration::from_secs(1);
    UpstreamSettings {
        name: name.to_owned(),
        kind,
        base_url,
        proxy: None,
        key: Key::Given("sk-1".into()),
        headers: Vec::new(),
        models: Vec::new(),
        connect_timeout: second,
        first_byte_timeout: second,
        total_timeout: None,
        idle_timeout: second,
        retries: 2,
        fetch_images: false,
        history_recovery: false,
    }
}

fn responses() -> UpstreamKind {
    UpstreamKind::Responses { dialect: Dialect::Standard, keeps_state: false }
}

fn registry(upstreams: Vec<UpstreamSettings>) -> UpstreamRegistry {
    UpstreamRegistry::build(upstreams, Arc::new(NoSeal)).unwrap()
}

#[tokio::test]
async fn upstreams_are_found_by_name_in_the_operators_order() {
    let chat = UpstreamKind::Chat {
        tool_calls: Default::default(),
        system_role: Default::default(),
        stream_usage: true,
        replay_reasoning: Default::default(),
    };
    let anthropic = UpstreamKind::Anthropic {
        version: "2023-06-01".to_owned(),
        max_output_tokens: 10,
        structured_output: Default::default(),
    };
    let demo = UpstreamKind::Demo { pace: Duration::ZERO };
    let base = || "http://127.0.0.1:1/v1".to_owned();
    let registry = registry(vec![
        settings("z", responses(), base()),
        settings("a", chat, base()),
        settings("m", anthropic, base()),
        settings("d", demo, String::new()),
    ]);
    assert!(["z", "a", "m", "d"].iter().all(|name| registry.get(name).is_some()));
    assert!(registry.get("other").is_none());
    assert_eq!(*registry.listed("d").await, ["demo"]);
    assert!(registry.listed("other").await.is_empty());
}

#[tokio::test]
async fn configured_models_are_listed_without_asking() {
    let upstream = Scripted::start();
    let configured =
        UpstreamSettings { models: vec!["m1".to_owned()], ..settings("u", responses(), upstream.base_url()) };
    assert_eq!(*registry(vec![configured]).listed("u").await, ["m1"]);
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn an_upstream_is_asked_once_and_callers_share_the_answer() {
    let gate = Gate::new();
    let upstream = Scripted::start();
    let reply = Reply::json(json!({"data": [{"id": "m1"}, {"id": "m2"}]}));
    upstream.enqueue_for("/models", reply.hold_after(0, &gate));
    let registry = registry(vec![settings("u", responses(), upstream.base_url())]);

    let (one, two, ()) = tokio::join!(registry.listed("u"), registry.listed("u"), async {
        upstream.wait_for_requests(1).await;
        gate.open();
    });
    let again = registry.listed("u").await;
    assert_eq!((one, two), (again.clone(), again.clone()));
    assert_eq!(*again, ["m1", "m2"]);
    assert_eq!((upstream.requests().len(), upstream.unscripted().len()), (1, 0));
}

// right E5
#[tokio::test]
async fn a_request_for_the_list_survives_the_caller_that_started_it() {
    let gate = Gate::new();
    let upstream = Scripted::start();
    upstream.enqueue_for("/models", Reply::json(json!({"data": [{"id": "m1"}]})).hold_after(0, &gate));
    let registry = registry(vec![settings("u", responses(), upstream.base_url())]);
    tokio::select! {
        names = registry.listed("u") => panic!("the upstream has not answered: {names:?}"),
        _ = upstream.wait_for_requests(1) => {}
    }
    gate.open();
    assert_eq!(*registry.listed("u").await, ["m1"]);
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn an_upstream_that_does_not_say_is_not_asked_at_once_again() {
    let upstream = Scripted::start();
    upstream.enqueue_for("/models", Reply::status(500));
    let registry = registry(vec![settings("u", responses(), upstream.base_url())]);
    assert!(registry.listed("u").await.is_empty());
    assert!(registry.listed("u").await.is_empty());
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_messages_upstream_is_asked_in_its_own_way() {
    let upstream = Scripted::start();
    upstream.enqueue_for("/models", Reply::json(json!({"data": [{"id": "claude"}]})));
    let kind = UpstreamKind::Anthropic {
        version: "2023-06-01".to_owned(),
        max_output_tokens: 10,
        structured_output: Default::default(),
    };
    assert_eq!(*registry(vec![settings("u", kind, upstream.base_url())]).listed("u").await, ["claude"]);
    let request = upstream.request(0);
    let sent = ["x-api-key", "anthropic-version", "authorization"].map(|name| request.header(name));
    assert_eq!(sent, [Some("sk-1"), Some("2023-06-01"), None]);
}
