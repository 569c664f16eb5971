//! Limits of tenants, keys, users and models: what is refused and how, what is counted, and who may change it.

mod fallbacks;
mod races;
mod spending;

use std::time::Duration;

use amalgam_testkit::{Client, Gate, HttpAnswer, Reply, Upstream};
use http::Method;
use serde_json::{Value, json};

use crate::socket::Socket;
use crate::support::{
    Cli, Delivery, FINAL, Script, TestStore, Wire, World, beside, error_of, eventually, setup, stores,
};

/// The tokens that the scripted upstream reports for every call.
pub(crate) const TOKENS: u64 = 18;

/// A key of tenant 1 with these scopes: its id and a client that uses it.
pub(crate) fn key(world: &World, store: &TestStore, scopes: &[&str]) -> (String, Client) {
    key_of(world, store, "1", scopes)
}

fn key_of(world: &World, store: &TestStore, tenant: &str, scopes: &[&str]) -> (String, Client) {
    let (id, secret) = created(world, store, tenant, scopes);
    (id, Client::new(world.amalgam.url()).with_key(&secret))
}

/// The id and the secret of a new key.
pub(crate) fn created(world: &World, store: &TestStore, tenant: &str, scopes: &[&str]) -> (String, String) {
    let cli = Cli::beside(&world.amalgam, store);
    let scopes = scopes.iter().flat_map(|scope| ["--scope", scope]);
    let arguments: Vec<&str> = ["keys", "create", "--tenant", tenant].into_iter().chain(scopes).collect();
    let created = cli.json(&arguments);
    let field = |name: &str| created[name].as_str().unwrap_or_default().to_owned();
    (field("id"), field("key"))
}

pub(crate) async fn put(client: &Client, path: &str, body: &Value) -> HttpAnswer {
    let headers = [("content-type", "application/json")];
    client.request(Method::PUT, &format!("/admin/limits/{path}"), &headers, body.to_string().into()).await
}

/// Sets a limit, which counts from then on in this process.
pub(crate) async fn set(client: &Client, path: &str, body: &Value) -> Value {
    let answer = put(client, path, body).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.text());
    answer.json()
}

pub(crate) async fn limit(client: &Client, path: &str) -> Value {
    let answer = client.get(&format!("/admin/limits/{path}")).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// A request with nothing else than a model and an input.
fn turn_of(input: &str) -> Value {
    json!({"model": Wire::Chat.model(), "input": input})
}

/// A turn that reserves its prompt and twenty tokens.
pub(crate) fn turn() -> Value {
    json!({"model": Wire::Chat.model(), "input": "Hi", "max_output_tokens": 20})
}

pub(crate) fn answers(world: &World) {
    world.upstream(Wire::Chat).from_now_on(Script::text(&["Hello."]).reply(Wire::Chat, Delivery::Whole));
}

/// Asks until a limit that was just set is in force: the caller is refused with this code.
async fn refused(client: &Client, request: &Value, code: &str) -> HttpAnswer {
    eventually(&format!("a refusal with {code}"), FINAL, async || {
        let answer = client.post_json("/v1/responses", request).await;
        (answer.status != 200 && error_of(&answer)["code"] == code).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn requests_above_the_limit_of_a_minute_are_refused_until_it_ends() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        answers(&world);
        let (id, caller) = key(&world, &store, &["use"]);
        let made = set(&world.amalgam.client(), &format!("keys/{id}"), &json!({"requests_per_minute": 1})).await;
        assert_eq!(
            (&made["kind"], &made["tenant_id"], &made["requests_per_minute"]),
            (&json!("keys"), &json!(1), &json!(1))
        );
        // The minute may end between two requests.
        let refusal = refused(&caller, &turn(), "rate_limit_exceeded").await;
        assert_eq!(refusal.status, 429, "{}", refusal.text());
        let error = error_of(&refusal);
        let message = format!("Rate limit reached for key {id}: requests_per_minute is 1.");
        assert_eq!((&error["message"], &error["type"]), (&json!(message), &json!("too_many_requests")));
        let seconds: u64 = refusal.header("retry-after").unwrap_or_default().parse().unwrap_or(99);
        assert!((1..=60).contains(&seconds), "{seconds}");
        let header = |answer: &HttpAnswer, name: &str| answer.header(&format!("x-ratelimit-{name}")).map(str::to_owned);
        assert_eq!(header(&refusal, "limit-requests").as_deref(), Some("1"));
        assert_eq!(header(&refusal, "remaining-requests").as_deref(), Some("0"));
        assert!(header(&refusal, "reset-requests").is_some_and(|reset| reset.ends_with('s')));
        // Another key of the same tenant is not limited, and has no such headers.
        let free = world.amalgam.client().post_json("/v1/responses", &turn()).await;
        assert_eq!((free.status.as_u16(), header(&free, "limit-requests")), (200, None), "{}", free.text());
        set(&world.amalgam.client(), &format!("keys/{id}"), &json!({"requests_per_minute": 1000})).await;
        let answer = eventually("the higher limit", FINAL, async || {
            let answer = caller.post_json("/v1/responses", &turn()).await;
            (answer.status == 200).then_some(answer)
        })
        .await;
        assert_eq!(header(&answer, "limit-requests").as_deref(), Some("1000"));
        let remaining: u64 = header(&answer, "remaining-requests").and_then(|text| text.parse().ok()).unwrap_or(0);
        assert!((900..1000).contains(&remaining), "{remaining}");
    }
}

#[tokio::test]
async fn tokens_above_the_limit_of_a_minute_are_refused_and_headers_tell_what_is_left() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        answers(&world);
        let (id, caller) = key(&world, &store, &["use"]);
        set(&world.amalgam.client(), &format!("keys/{id}"), &json!({"tokens_per_minute": 60})).await;
        let header = |answer: &HttpAnswer, name: &str| answer.header(&format!("x-ratelimit-{name}")).map(str::to_owned);
        let answer = eventually("the limit is in force", FINAL, async || {
            let answer = caller.post_json("/v1/responses", &turn()).await;
            header(&answer, "limit-tokens").is_some().then_some(answer)
        })
        .await;
        assert_eq!(header(&answer, "limit-tokens").as_deref(), Some("60"), "{}", store.name);
        // Two calls fit beside what the third one reserves.
        let refusal = refused(&caller, &turn(), "rate_limit_exceeded").await;
        assert_eq!(refusal.status, 429, "{}", refusal.text());
        let message = error_of(&refusal)["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(&format!("key {id}")) && message.contains("tokens_per_minute"), "{message}");
        let left: u64 = header(&refusal, "remaining-tokens").and_then(|text| text.parse().ok()).unwrap_or(99);
        assert!(left < 20 + TOKENS, "{left}");
        assert!(header(&refusal, "reset-tokens").is_some_and(|reset| reset.ends_with('s')));
        let seconds: u64 = refusal.header("retry-after").unwrap_or_default().parse().unwrap_or(99);
        assert!((1..=60).contains(&seconds), "{seconds}");
        // A request that never fits is told no time.
        let mut large = turn();
        large["max_output_tokens"] = json!(500);
        assert_eq!(refused(&caller, &large, "rate_limit_exceeded").await.header("retry-after"), None, "{}", store.name);
    }
}

#[tokio::test]
async fn a_limit_of_a_tenant_holds_on_every_wire_in_its_own_error_shape() {
    for store in stores() {
        let world = World::with(store.setup(setup()).seeded(), &[]).await;
        answers(&world);
        let (client, cli) = (world.amalgam.client(), Cli::beside(&world.amalgam, &store));
        let profile = json!({"prompt": "Help.", "model": Wire::Chat.model()}).to_string();
        let headers = [("content-type", "application/json")];
        let made = client.request(Method::PUT, "/admin/profiles/coder", &headers, profile.into()).await;
        assert!(made.status.is_success(), "{}", made.text());
        let programmer = client.clone().with_header("x-amalgam-user", "ana");
        let session = programmer.post_json("/api/agent/sessions", &json!({"AgentContextId": "coder"})).await;
        assert_eq!(session.status, 200, "{}", session.text());
        let session = session.json()["SessionId"].as_str().expect("a session has an id").to_owned();
        let shown = cli.json(&["limits", "set", "tenants", "1", "--requests-per-minute", "0"]);
        assert_eq!(shown["usage"]["requests_per_minute"]["remaining"], 0, "{shown}");
        refused(&client, &turn(), "rate_limit_exceeded").await;
        let asked = world.upstream(Wire::Chat).requests().len();
        let streamed = json!({"model": Wire::Chat.model(), "input": "Hi", "stream": true});
        assert_eq!(client.post_json("/v1/responses", &streamed).await.status, 429);
        let background = json!({"model": Wire::Chat.model(), "input": "Hi", "background": true});
        assert_eq!(client.post_json("/v1/responses", &background).await.status, 429);
        let assistant = client.clone().with_header("x-amalgam-user", "7");
        let body = json!({"profile": "recommendation", "message": "Hi", "user_id": 7, "company_id": 1});
        let refusal = assistant.post_json("/api/v2/ai-agent/respond/", &body).await;
        assert_eq!(refusal.status, 429, "{}", refusal.text());
        assert!(refusal.json()["detail"].as_str().unwrap_or_default().contains("tenant 1"), "{}", refusal.text());
        let execute = json!({"SessionId": session, "TurnId": "t-1", "Instruction": "Hi"});
        let refusal = programmer.post_json("/api/agent/execute", &execute).await;
        assert_eq!(refusal.status, 429, "{}", refusal.text());
        assert!(refusal.text().contains("tenant 1"), "{}", refusal.text());
        let compact = client.post_json("/v1/responses/compact", &turn_of("Hi")).await;
        assert_eq!((compact.status.as_u16(), &error_of(&compact)["code"]), (429, &json!("rate_limit_exceeded")));
        let mut socket =
            Socket::open_with(&world.amalgam, &[("authorization", "Bearer am_workshop")]).await.expect("a socket");
        let mut create = turn();
        create["type"] = json!("response.create");
        socket.say(&create).await;
        let event = socket.next().await.expect("an event");
        assert_eq!(
            (&event["type"], &event["status"], &event["error"]["code"]),
            (&json!("error"), &json!(429), &json!("rate_limit_exceeded")),
            "{event}"
        );
        assert_eq!(world.upstream(Wire::Chat).requests().len(), asked, "no model was called");
        // The refusal is in the log and in the metrics.
        let metrics = client.get("/metrics").await.text();
        assert!(metrics.contains("rate_limited"), "{metrics}");
        assert!(world.amalgam.stderr().contains("rate_limited"), "{}", world.amalgam.stderr());
        cli.text(&["limits", "remove", "tenants", "1"]);
        eventually("the limit to be gone", Duration::from_secs(20), async || {
            (client.post_json("/v1/responses", &turn()).await.status == 200).then_some(())
        })
        .await;
        assert_eq!(cli.json(&["limits", "list"])["data"], json!([]));
    }
}

#[tokio::test]
async fn turns_beyond_in_flight_wait_for_the_queue_wait_and_are_then_refused() {
    for store in stores() {
        let world = World::with(store.setup(setup().extra("[limits]\nqueue_wait = \"1s\"")), &[]).await;
        let gate = Gate::new();
        let reply = Script::text(&["done"]).reply(Wire::Chat, Delivery::Whole).behind(&gate);
        world.upstream(Wire::Chat).from_now_on(reply);
        let (id, caller) = key(&world, &store, &["use"]);
        let path = format!("keys/{id}");
        set(&world.amalgam.client(), &path, &json!({"in_flight": 1})).await;
        let ask = |caller: &Client| {
            let caller = caller.clone();
            beside(async move { caller.post_json("/v1/responses", &turn()).await })
        };
        let first = ask(&caller);
        world.upstream(Wire::Chat).wait_for_requests(1).await;
        let refusal = caller.post_json("/v1/responses", &turn()).await;
        assert_eq!(refusal.status, 429, "{}", refusal.text());
        assert_eq!(error_of(&refusal)["code"], "rate_limit_exceeded");
        assert!(error_of(&refusal)["message"].as_str().unwrap_or_default().contains("in_flight is 1"));
        assert_eq!(limit(&world.amalgam.client(), &path).await["usage"]["in_flight"], 1);
        let waiting = ask(&caller);
        gate.open();
        assert_eq!((first.end().await.status.as_u16(), waiting.end().await.status.as_u16()), (200, 200));
        eventually("both turns have ended", FINAL, async || {
            (limit(&world.amalgam.client(), &path).await["usage"]["in_flight"] == 0).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn models_and_tools_that_are_not_allowed_are_refused_and_not_offered() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        answers(&world);
        let operator = world.amalgam.client();
        let (id, caller) = key(&world, &store, &["use"]);
        let names = async |client: &Client| {
            let list = client.get("/v1/models").await.json();
            let names = list["data"].as_array().cloned().unwrap_or_default();
            names.iter().map(|card| card["id"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert!(names(&caller).await.contains(&Wire::Anthropic.model().to_owned()));
        let rules = json!({"models": [Wire::Chat.model()], "tools": ["current_time"]});
        set(&operator, &format!("keys/{id}"), &rules).await;
        let other = json!({"model": Wire::Anthropic.model(), "input": "Hi"});
        let refusal = refused(&caller, &other, "model_not_allowed").await;
        assert_eq!((refusal.status.as_u16(), &error_of(&refusal)["param"]), (403, &json!("model")));
        assert_eq!(caller.get(&format!("/v1/models/{}", Wire::Anthropic.model())).await.status, 403);
        assert_eq!(names(&caller).await, [Wire::Chat.model()]);
        assert_eq!(caller.post_json("/v1/responses", &turn()).await.status, 200);
        // By the name of its upstream it is the same model.
        let full = json!({"model": format!("chat/{}", Wire::Chat.model()), "input": "Hi"});
        assert_eq!(caller.post_json("/v1/responses", &full).await.status, 200);

        for name in ["current_time", "get_course_detail"] {
            let put = crate::support::put_tool(&operator, name, &json!({"kind": "builtin"})).await;
            assert!(put.status.is_success(), "{}", put.text());
        }
        let tools =
            json!([{"type": "function", "name": "current_time"}, {"type": "function", "name": "get_course_detail"}]);
        let with_tools = json!({"model": Wire::Chat.model(), "input": "Hi", "tools": tools});
        let answer = caller.post_json("/v1/responses", &with_tools).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let losses = answer.header("amalgam-losses").unwrap_or_default();
        assert!(losses.contains("the tool `get_course_detail` is not allowed"), "{losses}");
        let offered = world.sent(Wire::Chat)["tools"].to_string();
        assert!(offered.contains("current_time") && !offered.contains("get_course_detail"), "{offered}");
    }
}

#[tokio::test]
async fn an_administrator_manages_keys_and_users_of_its_tenant_and_nothing_else() {
    for store in stores() {
        let tenants = "[tenants.b]\nid = 2\nkeys = [\"am_other\"]";
        let world = World::with(store.setup(setup().extra(tenants)), &[]).await;
        let (own_key, admin) = key(&world, &store, &["use", "admin"]);
        let (foreign_key, _) = key_of(&world, &store, "2", &["use"]);
        let rules = json!({"requests_per_minute": 5});
        let cases = [
            (format!("keys/{own_key}"), 201),
            (format!("keys/{foreign_key}"), 404),
            ("keys/key_unknown".to_owned(), 404),
            ("users/anna".to_owned(), 201),
            ("users/anna?tenant=1".to_owned(), 200),
            ("users/anna?tenant=2".to_owned(), 403),
            ("tenants/1".to_owned(), 403),
            ("tenants/2".to_owned(), 403),
            ("models/m-chat".to_owned(), 403),
        ];
        for (path, status) in &cases {
            let answer = put(&admin, path, &rules).await;
            assert_eq!(answer.status.as_u16(), *status, "{path}: {}", answer.text());
        }
        assert_eq!(admin.get("/admin/limits/models/m-chat").await.status, 403);
        let (_, operator) = key(&world, &store, &["operator"]);
        for (path, status) in [
            ("tenants/1", 201),
            ("tenants/77", 404),
            ("models/chat/m-chat", 201),
            ("users/anna?tenant=2", 201),
            (&format!("keys/{foreign_key}"), 201),
        ] {
            let answer = put(&operator, path, &rules).await;
            assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text());
        }
        assert_eq!(
            limit(&admin, "tenants/1").await["requests_per_minute"],
            5,
            "an administrator sees its tenant's limit"
        );
        let listed = async |client: &Client, query: &str| {
            let list = client.get(&format!("/admin/limits{query}")).await.json();
            let data = list["data"].as_array().cloned().unwrap_or_default();
            let ids = data
                .iter()
                .map(|one| format!("{}/{}", one["kind"].as_str().unwrap_or(""), one["id"].as_str().unwrap_or("")));
            (ids.collect::<Vec<_>>(), list["last_id"].as_str().unwrap_or_default().to_owned())
        };
        let own = listed(&admin, "").await.0;
        assert_eq!(own, [format!("keys/{own_key}"), "tenants/1".to_owned(), "users/anna".to_owned()]);
        let (all, _) = listed(&operator, "").await;
        assert_eq!(all.len(), 6, "{all:?}");
        let (first, last) = listed(&operator, "?limit=4").await;
        assert_eq!(
            [first, listed(&operator, &format!("?limit=4&after={}", last.replace('/', "%2F"))).await.0].concat(),
            all
        );
        assert_eq!(listed(&operator, "?tenant=2").await.0.len(), 2);

        let wrong = put(&admin, "users/anna", &json!({"budget": {"amount": 5, "unit": "eur", "period": "day"}})).await;
        assert_eq!((wrong.status.as_u16(), &error_of(&wrong)["param"]), (400, &json!("budget.unit")));
        let deleted = admin.request(Method::DELETE, "/admin/limits/users/anna", &[], bytes::Bytes::new()).await;
        assert_eq!((deleted.status.as_u16(), &deleted.json()["object"]), (200, &json!("limit.deleted")));
        assert_eq!(admin.get("/admin/limits/users/anna").await.status, 404);
        // Every change is in the audit, without counters.
        let audit = admin.get("/admin/audit?object=limit").await.json();
        let actions: Vec<(&str, &str)> = audit["data"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|row| (row["action"].as_str().unwrap_or(""), row["target"]["id"].as_str().unwrap_or("")))
            .collect();
        assert_eq!(actions[0], ("limit.delete", "users/anna"), "{audit}");
        assert_eq!(audit["data"][0]["before"]["requests_per_minute"], 5, "{audit}");
        assert_eq!(audit["data"][0]["before"].get("usage"), None);
        Cli::beside(&world.amalgam, &store).text(&["audit", "verify"]);
    }
}

/// A receiver of webhooks that accepts everything.
pub(crate) fn receiver() -> Upstream {
    Upstream::always(Reply::json(json!({})))
}

#[tokio::test]
async fn a_key_of_the_configuration_has_an_id_for_usage_and_limits_of_its_own() {
    for store in stores() {
        let mut world = World::with(store.setup(setup()), &[]).await;
        answers(&world);
        let client = world.amalgam.client();
        assert_eq!(client.post_json("/v1/responses", &turn()).await.status, 200);
        let usage = client.get("/admin/usage?group_by=key").await.json();
        let id = usage["data"][0]["key"].as_str().unwrap_or_default().to_owned();
        assert!(id.starts_with("key_config-1-"), "{}: {usage}", store.name);
        set(&client, &format!("keys/{id}"), &json!({"requests_per_minute": 0})).await;
        let refusal = refused(&client, &turn(), "rate_limit_exceeded").await;
        assert!(error_of(&refusal)["message"].as_str().unwrap_or_default().contains(&id), "{}", refusal.text());
        // Another key of the tenant is not limited, and the id outlives the process.
        let (_, other) = key(&world, &store, &["use"]);
        assert_eq!(other.post_json("/v1/responses", &turn()).await.status, 200);
        world.amalgam.kill();
        world.start_again().await;
        refused(&world.amalgam.client(), &turn(), "rate_limit_exceeded").await;
        let of_another_tenant = id.replace("key_config-1-", "key_config-2-");
        for unknown in [of_another_tenant.as_str(), "key_config-1-", "key_config-x"] {
            let answer = put(&world.amalgam.client(), &format!("keys/{unknown}"), &json!({"in_flight": 1})).await;
            assert_eq!(answer.status, 404, "{unknown}: {}", answer.text());
        }
    }
}
