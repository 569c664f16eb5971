//! The queue of webhooks: events are enqueued once, deliveries are claimed once and in order.

use amalgam_core::{DeliveryAttempt, DeliveryStatus, WebhookEndpoint, WebhookEvent, store::Within};

use crate::given::*;

fn endpoint(id: &str, events: &[&str]) -> WebhookEndpoint {
    WebhookEndpoint {
        id: id.to_owned(),
        url: "https://example.com/".to_owned(),
        event_types: events.iter().map(|event| (*event).to_owned()).collect(),
        secret: "sealed".to_owned(),
        created_at_ms: NOW,
        updated_at_ms: NOW,
    }
}

fn budget(id: &str) -> WebhookEvent {
    let (kind, data) = ("amalgam.budget.reached".to_owned(), r#"{"id":"limit_1"}"#.to_owned());
    WebhookEvent { id: id.to_owned(), kind, data, created_at_ms: NOW }
}

async fn taken(store: &Engine, now_ms: u64) -> Vec<(u64, String)> {
    let taken = store.take_deliveries(operator(), HERE, now_ms, 10).await.unwrap();
    taken.into_iter().map(|due| (due.delivery.number, due.delivery.event.id)).collect()
}

async fn end(store: &Engine, number: u64, status: DeliveryStatus, next_at_ms: u64) {
    let attempt = DeliveryAttempt { number, status, answer: Some(500), error: None, at_ms: NOW, next_at_ms };
    store.end_attempt(operator(), attempt).await.unwrap();
}

pub(crate) async fn an_event_is_enqueued_once_for_each_endpoint_that_receives_it(store: Engine) {
    let (anna, other) = (anna(), scope(2, "anna"));
    for (scope, id, events) in [
        (&anna, "we_1", &["amalgam.budget.reached", "response.failed"][..]),
        (&anna, "we_2", &["response.completed"]),
        (&other, "we_3", &["amalgam.budget.reached"]),
    ] {
        store.put_endpoint(Within::Own(scope.admin().unwrap()), endpoint(id, events), audit()).await.unwrap();
    }
    assert_eq!(store.enqueue_event(operator(), 1, budget("evt_1"), NOW).await.unwrap(), 1);
    assert_eq!(store.enqueue_event(operator(), 1, budget("evt_1"), NOW).await.unwrap(), 0);
    let of_anna = Within::Own(anna.admin().unwrap());
    let found = store.deliveries(of_anna, "we_1", None, 10).await.unwrap();
    assert_eq!(
        found.iter().map(|one| (one.event.clone(), one.status)).collect::<Vec<_>>(),
        [(budget("evt_1"), DeliveryStatus::Pending)]
    );
    assert_eq!(store.deliveries(of_anna, "we_2", None, 10).await.unwrap(), []);
    // Another tenant has neither the endpoint nor its deliveries.
    let of_other = Within::Own(other.admin().unwrap());
    assert_eq!(store.endpoint(of_other, "we_1").await.unwrap(), None);
    assert_eq!(store.deliveries(of_other, "we_1", None, 10).await.unwrap(), []);
    assert!(!store.delete_endpoint(of_other, "we_1", audit()).await.unwrap());
    assert!(store.delete_endpoint(of_anna, "we_1", audit()).await.unwrap());
    assert_eq!(taken(&store, NOW + 1).await, []);
}

pub(crate) async fn deliveries_are_claimed_once_and_in_order(store: Engine) {
    let anna = anna();
    let within = Within::Own(anna.admin().unwrap());
    store.beat(operator(), HERE, 1).await.unwrap();
    store.put_endpoint(within, endpoint("we_1", &["amalgam.budget.reached"]), audit()).await.unwrap();
    for id in ["evt_1", "evt_2"] {
        store.enqueue_event(operator(), 1, budget(id), NOW).await.unwrap();
    }
    let first = taken(&store, NOW).await;
    assert_eq!(first.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>(), ["evt_1"]);
    assert_eq!(taken(&store, NOW).await, [], "a living process has it");
    end(&store, first[0].0, DeliveryStatus::Pending, NOW + 100).await;
    assert_eq!(taken(&store, NOW + 99).await, [], "the second waits for the first");
    assert_eq!(taken(&store, NOW + 100).await, first);
    // A claim ends with its process.
    store.end_dead_process(operator(), HERE, 1, |_| String::new(), NOW).await.unwrap();
    store.beat(operator(), HERE, 2).await.unwrap();
    assert_eq!(taken(&store, NOW + 100).await, [], "the process is known again");
    end(&store, first[0].0, DeliveryStatus::Delivered, NOW).await;
    let second = taken(&store, NOW + 100).await;
    assert_eq!(second.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>(), ["evt_2"]);
    end(&store, second[0].0, DeliveryStatus::Failed, NOW).await;
    let found = store.deliveries(within, "we_1", None, 10).await.unwrap();
    let states: Vec<_> = found.iter().map(|one| (one.status, one.attempts)).collect();
    assert_eq!(states, [(DeliveryStatus::Failed, 1), (DeliveryStatus::Delivered, 2)]);
    assert_eq!(store.prune_deliveries(operator(), NOW).await.unwrap(), 0);
    assert_eq!(store.prune_deliveries(operator(), NOW + 1).await.unwrap(), 2);
}

pub(crate) async fn the_write_that_ends_a_background_turn_enqueues_its_event(store: Engine) {
    let anna = anna();
    let within = Within::Own(anna.admin().unwrap());
    store.put_endpoint(within, endpoint("we_1", &["response.completed"]), audit()).await.unwrap();
    for background in [false, true] {
        let turn = Turn::new("Hi");
        let mut write = turn.whole(None);
        write.begin.as_mut().unwrap().background = background;
        store.write(&anna, write.into()).await.unwrap();
        let found = store.deliveries(within, "we_1", None, 10).await.unwrap();
        let events: Vec<_> = found.iter().map(|one| (one.event.kind.clone(), one.event.data.clone())).collect();
        let expected = background.then(|| ("response.completed".to_owned(), format!(r#"{{"id":"{}"}}"#, turn.id)));
        assert_eq!(events, expected.into_iter().collect::<Vec<_>>());
    }
}
