//! Webhooks: events are delivered at least once, in order and signed, also if the server or the receiver fails
//! meanwhile.

use amalgam_testkit::{Amalgam, Client, HttpAnswer, Reply, Request, Setup, Upstream};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use ring::hmac;
use serde_json::{Value, json};

use crate::support::{
    Cli, Delivery, FINAL, Said, Script, TestStore, Wire, World, asking, cancel, eventually, id_of, shared_store,
    standing, stores,
};

const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";

/// A server, and a receiver on this machine that it may reach.
struct Post {
    world: World,
    receiver: Upstream,
}

impl Post {
    async fn on(store: &TestStore) -> Self {
        let receiver = Upstream::always(Reply::json(json!({})));
        let egress = format!("{TENANTS}\n[egress]\nallow_private = [\"{}\"]", receiver.address());
        let world = World::with(store.setup(Setup::new().extra(&egress)), &[]).await;
        Self { world, receiver }
    }

    fn client(&self) -> Client {
        of(&self.world.amalgam)
    }

    async fn endpoint(&self, events: &[&str]) -> Value {
        let body = json!({"url": format!("{}/hook", self.receiver.url()), "event_types": events});
        let answer = self.client().post_json("/v1/webhook_endpoints", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Starts a background turn.
    async fn turn(&self, reply: Reply) -> String {
        self.world.upstream(Wire::Chat).enqueue(reply);
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "background": true}));
        let answer = self.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        id_of(&answer.json()).to_owned()
    }

    async fn completed(&self) -> String {
        let id = self.turn(Script::text(&["Done."]).reply(Wire::Chat, Delivery::Whole)).await;
        standing(&self.client(), &id, "completed").await;
        id
    }

    /// The events that the receiver has got, once there are this many.
    async fn received(&self, count: usize) -> Vec<Request> {
        eventually(&format!("{count} webhooks"), FINAL, async || {
            let requests = self.receiver.requests();
            (requests.len() >= count).then_some(requests)
        })
        .await
    }

    async fn deliveries(&self, endpoint: &Value) -> Vec<Value> {
        let path = format!("/v1/webhook_endpoints/{}/deliveries", text(endpoint, "id"));
        let answer = self.client().get(&path).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["data"].as_array().cloned().unwrap_or_default()
    }

    async fn settled(&self, endpoint: &Value, statuses: &[&str]) -> Vec<Value> {
        eventually("the deliveries to end", FINAL, async || {
            let found = self.deliveries(endpoint).await;
            let now: Vec<&str> = found.iter().filter_map(|one| one["status"].as_str()).collect();
            (now == statuses).then_some(found)
        })
        .await
    }
}

fn of(amalgam: &Amalgam) -> Client {
    Client::new(amalgam.url()).with_key("am_a")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

async fn post(client: &Client, path: &str, body: &Value) -> HttpAnswer {
    client.request(Method::POST, path, &[("content-type", "application/json")], body.to_string().into()).await
}

/// Whether a request is signed with this secret, after Standard Webhooks.
fn is_signed(request: &Request, secret: &str) -> bool {
    let key = secret.strip_prefix("whsec_").and_then(|key| BASE64_STANDARD.decode(key).ok()).unwrap_or_default();
    let header = |name: &str| request.header(name).unwrap_or_default().to_owned();
    let signed = [header("webhook-id"), header("webhook-timestamp")].join(".");
    let content = [signed.as_bytes(), b".", &request.body[..]].concat();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &content);
    header("webhook-signature") == format!("v1,{}", BASE64_STANDARD.encode(tag))
}

fn kinds(requests: &[Request]) -> Vec<(String, String)> {
    let one = |request: &Request| {
        let event = request.json();
        (text(&event, "type").to_owned(), text(&event["data"], "id").to_owned())
    };
    requests.iter().map(one).collect()
}

#[tokio::test]
async fn the_end_of_a_background_turn_is_delivered_and_signed() {
    for store in stores() {
        let post_office = Post::on(&store).await;
        let endpoint = post_office.endpoint(&["response.completed"]).await;
        let secret = text(&endpoint, "signing_secret").to_owned();
        assert!(secret.starts_with("whsec_"), "{endpoint}");
        assert_ne!(store.holds(&secret), Some(true), "the secret is sealed");
        let id = post_office.completed().await;
        // A turn with a caller has its answer; it is no event.
        let request = json!({"input": "Hi"});
        let upstream = post_office.world.upstream(Wire::Chat);
        upstream.enqueue(Script::text(&["Hi."]).reply(Wire::Chat, Delivery::Whole));
        post_office.client().post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &request)).await;

        let request = post_office.received(1).await.remove(0);
        let event = request.json();
        let created_at = event["created_at"].as_u64().unwrap_or_default();
        let expected = json!({
            "id": request.header("webhook-id"), "object": "event", "created_at": created_at, "type": "response.completed",
            "data": {"id": id},
        });
        assert_eq!(event, expected, "{}", store.name);
        assert!(text(&event, "id").starts_with("evt_") && created_at > 1_700_000_000, "{event}");
        assert!(is_signed(&request, &secret) && !is_signed(&request, "whsec_AAAA"), "{}", store.name);
        let delivery = post_office.settled(&endpoint, &["delivered"]).await.remove(0);
        assert_eq!((&delivery["attempts"], &delivery["last_status_code"]), (&json!(1), &json!(200)), "{delivery}");
        assert_eq!(post_office.receiver.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_receiver_that_fails_gets_all_events_later_and_in_order() {
    for store in stores() {
        let post_office = Post::on(&store).await;
        post_office.receiver.enqueue(Reply::status(500));
        post_office.receiver.enqueue(Reply::close());
        let endpoint = post_office.endpoint(&["response.completed"]).await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(post_office.completed().await);
        }
        post_office.received(1).await;
        let waiting = eventually("the first attempt", FINAL, async || {
            let oldest = post_office.deliveries(&endpoint).await.pop()?;
            (oldest["attempts"] == 1).then_some(oldest)
        })
        .await;
        assert_eq!((&waiting["status"], &waiting["last_status_code"]), (&json!("pending"), &json!(500)), "{waiting}");
        assert!(text(&waiting, "last_error").contains("500"), "{waiting}");

        let told = kinds(&post_office.received(5).await);
        let expected =
            [&ids[0], &ids[0], &ids[0], &ids[1], &ids[2]].map(|id| ("response.completed".to_owned(), id.clone()));
        assert_eq!(told, expected, "{}", store.name);
        let ended = post_office.settled(&endpoint, &["delivered"; 3]).await;
        assert_eq!(ended.last().map(|first| &first["attempts"]), Some(&json!(3)));
        let first = post_office.receiver.requests();
        assert_eq!(first[0].header("webhook-id"), first[2].header("webhook-id"), "a retry is the same message");
    }
}

#[tokio::test]
async fn an_event_survives_the_death_of_the_server() {
    for store in stores() {
        let mut post_office = Post::on(&store).await;
        let endpoint = post_office.endpoint(&["response.completed", "response.failed"]).await;
        // The receiver takes the event and never answers: the server dies while it waits.
        post_office.receiver.enqueue(Reply::hang());
        let completed = post_office.completed().await;
        post_office.received(1).await;
        let running = post_office.turn(Reply::hang()).await;
        standing(&post_office.client(), &running, "in_progress").await;
        post_office.world.amalgam.kill();
        post_office.world.start_again().await;

        let told = kinds(&post_office.received(3).await);
        let event = |kind: &str, id: &str| (kind.to_owned(), id.to_owned());
        assert_eq!(
            told,
            [
                event("response.completed", &completed),
                event("response.completed", &completed),
                event("response.failed", &running),
            ],
            "{}",
            store.name
        );
        post_office.settled(&endpoint, &["delivered", "delivered"]).await;
    }
}

#[tokio::test]
async fn every_way_to_end_and_every_waiting_approval_is_an_event() {
    for store in stores() {
        let post_office = Post::on(&store).await;
        let client = post_office.client();
        post_office
            .endpoint(&[
                "response.failed",
                "response.cancelled",
                "response.incomplete",
                "response.completed",
                "amalgam.approval.requested",
            ])
            .await;
        let failed = post_office.turn(Reply::status(400).with_json(json!({"error": {"message": "no"}}))).await;
        standing(&client, &failed, "failed").await;
        let cancelled = post_office.turn(Reply::hang()).await;
        standing(&client, &cancelled, "in_progress").await;
        assert_eq!(cancel(&client, &cancelled).await.status, 200);
        let cut = Script::text(&["Do"]).cut_by_length().reply(Wire::Chat, Delivery::Whole);
        let incomplete = post_office.turn(cut).await;
        standing(&client, &incomplete, "incomplete").await;

        let tool = json!({"kind": "builtin", "settings": {"function": "current_time"}, "requires_approval": true});
        let put = client.request(
            Method::PUT,
            "/admin/tools/clock",
            &[("content-type", "application/json")],
            tool.to_string().into(),
        );
        assert_eq!(put.await.status, 201);
        let script = Script::new([Said::call("call_1", "clock", &["{}"])]);
        post_office.world.upstream(Wire::Chat).enqueue(script.reply(Wire::Chat, Delivery::Whole));
        let request = json!({"input": "Hi", "background": true, "tools": [{"type": "function", "name": "clock"}]});
        let asked = client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &request)).await.json();
        let asked = standing(&client, id_of(&asked), "completed").await;
        let approval =
            asked["output"].as_array().into_iter().flatten().find(|item| item["type"] == "mcp_approval_request");
        let approval = approval.map(|item| text(item, "id").to_owned()).unwrap_or_default();

        let requests = post_office.received(5).await;
        let mut told = kinds(&requests);
        let event = |kind: &str, id: &str| (kind.to_owned(), id.to_owned());
        let mut expected = vec![
            event("response.failed", &failed),
            event("response.cancelled", &cancelled),
            event("response.incomplete", &incomplete),
            event("response.completed", id_of(&asked)),
            event("amalgam.approval.requested", &approval),
        ];
        assert_eq!(told[..3], expected[..3], "{}", store.name);
        told.sort();
        expected.sort();
        assert_eq!(told, expected, "{}", store.name);
        let of_approval = requests.iter().map(Request::json).find(|event| event["data"]["response_id"] == asked["id"]);
        assert!(of_approval.is_some(), "{}", store.name);
    }
}

#[tokio::test]
async fn endpoints_are_managed_tested_and_their_events_sent_again() {
    for store in stores() {
        let post_office = Post::on(&store).await;
        let client = post_office.client();
        let made = post_office.endpoint(&["response.completed", "amalgam.budget.reached"]).await;
        let (path, secret) =
            (format!("/v1/webhook_endpoints/{}", text(&made, "id")), text(&made, "signing_secret").to_owned());
        let shown = client.get(&path).await.json();
        assert_eq!((shown["signing_secret"].clone(), &shown["url"]), (Value::Null, &made["url"]));
        assert_eq!(client.get("/v1/webhook_endpoints").await.json()["data"], json!([shown]));

        let tested = post(&client, &format!("{path}/test"), &Value::Null).await.json();
        assert_eq!(tested["event"]["type"], "amalgam.webhook.test");
        assert!(is_signed(&post_office.received(1).await[0], &secret));
        let id = post_office.completed().await;
        post_office.received(2).await;
        let ended = post_office.settled(&made, &["delivered", "delivered"]).await;

        let rotated = post(&client, &format!("{path}/rotate_secret"), &Value::Null).await.json();
        let new = text(&rotated, "signing_secret").to_owned();
        assert_ne!(new, secret);
        let again = post(&client, &format!("{path}/deliveries/{}/resend", text(&ended[0], "id")), &Value::Null).await;
        assert_eq!(again.status, 200, "{}", again.text());
        let requests = post_office.received(3).await;
        assert!(is_signed(&requests[2], &new) && !is_signed(&requests[2], &secret), "{}", store.name);
        assert_eq!(requests[2].header("webhook-id"), requests[1].header("webhook-id"));
        assert_eq!(requests[2].json()["data"]["id"], id.as_str());

        let changed = post(&client, &path, &json!({"event_types": ["response.failed"]})).await.json();
        assert_eq!(changed["event_types"], json!(["response.failed"]));
        for (body, param) in [
            (json!({"url": "not a url", "event_types": ["response.failed"]}), "url"),
            (json!({"url": "https://10.0.0.1/hook", "event_types": ["response.failed"]}), "url"),
            (json!({"url": "http://127.0.0.1:1/hook", "event_types": ["response.failed"]}), "url"),
            (json!({"url": "http://192.0.2.1/hook", "event_types": ["response.failed"]}), "url"),
            (json!({"url": made["url"], "event_types": ["response.created"]}), "event_types"),
            (json!({"url": made["url"], "event_types": []}), "event_types"),
            (json!({"event_types": ["response.failed"]}), "url"),
        ] {
            let answer = post(&client, "/v1/webhook_endpoints", &body).await;
            assert_eq!(
                (answer.status.as_u16(), &answer.json()["error"]["param"]),
                (400, &json!(param)),
                "{body}: {}",
                answer.text()
            );
        }
        let other = Client::new(post_office.world.amalgam.url()).with_key("am_b");
        assert_eq!(other.get(&path).await.status, 404);
        let cli = Cli::beside(&post_office.world.amalgam, &store);
        let user = cli.json(&["keys", "create", "--tenant", "1"]);
        let user = Client::new(post_office.world.amalgam.url()).with_key(text(&user, "key"));
        assert_eq!(user.get("/v1/webhook_endpoints").await.status, 403);

        let deleted = client.request(Method::DELETE, &path, &[], "".into()).await;
        assert_eq!(deleted.json()["deleted"], true);
        assert_eq!(client.get(&path).await.status, 404);
        let audit = cli.text(&["audit", "list", "--object", "webhook_endpoint", "--json"]);
        for action in ["create", "change", "rotate_secret", "delete"] {
            assert!(audit.contains(&format!("webhook_endpoint.{action}")), "{action}: {audit}");
        }
        assert!(!audit.contains(&secret) && !audit.contains(&new), "{}", store.name);
    }
}

#[tokio::test]
async fn two_processes_deliver_every_event_once() {
    let Some(store) = shared_store() else { return };
    let post_office = Post::on(&store).await;
    let other = post_office.world.another().await;
    let endpoint = post_office.endpoint(&["response.completed"]).await;
    let mut ids = Vec::new();
    for number in 0..20_usize {
        let client = if number % 2 == 0 { post_office.client() } else { of(&other) };
        post_office.world.upstream(Wire::Chat).enqueue(Script::text(&["Done."]).reply(Wire::Chat, Delivery::Whole));
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "background": true}));
        ids.push(id_of(&client.post_json("/v1/responses", &request).await.json()).to_owned());
    }
    post_office.settled(&endpoint, &["delivered"; 20]).await;
    let mut told: Vec<String> = kinds(&post_office.receiver.requests()).into_iter().map(|(_, id)| id).collect();
    told.sort();
    ids.sort();
    assert_eq!(told, ids);
}
