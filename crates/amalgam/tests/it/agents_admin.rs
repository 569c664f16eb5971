//! A tenant's assistants as administrators deal with them: settings, profiles, threads, and why something does not work.

mod modes;
mod profiles;
mod settings;
mod threads;

use amalgam_testkit::{Client, HttpAnswer, Setup};
use http::Method;
use serde_json::{Value, json};

use crate::support::{Cli, Delivery, Script, TestStore, Wire, World, stores};

const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";
const BOOT: &str = "am_bootstrap-key-of-the-tests";

/// Two tenants with administrators, and an operator.
struct Office {
    world: World,
    cli: Cli,
}

impl Office {
    async fn on(store: &TestStore) -> Self {
        let setup = Setup::new().extra(TENANTS).env("AMALGAM_BOOTSTRAP_KEY", BOOT);
        let world = World::with(store.setup(setup), &[]).await;
        let cli = Cli::beside(&world.amalgam, store).env("AMALGAM_BOOTSTRAP_KEY", BOOT);
        Self { world, cli }
    }

    fn with_key(&self, key: &str) -> Client {
        Client::new(self.world.amalgam.url()).with_key(key)
    }

    fn a(&self) -> Client {
        self.with_key("am_a")
    }

    fn b(&self) -> Client {
        self.with_key("am_b")
    }

    /// A key that can only use the doors.
    fn user(&self) -> Client {
        let made = self.cli.json(&["keys", "create", "--tenant", "1"]);
        self.with_key(made["key"].as_str().unwrap_or_default())
    }

    fn operator(&self) -> Client {
        self.with_key(BOOT)
    }

    /// What the assistant of tenant 1 answers when its model says `text`.
    async fn respond(&self, user: &str, agent: &str, message: &str, text: &str) -> Value {
        self.world.upstream(Wire::Chat).enqueue(Script::text(&[text]).reply(Wire::Chat, Delivery::Whole));
        let body = json!({"agent": agent, "message": message});
        let client = self.a().with_header("x-amalgam-user", user);
        let answer = client.post_json("/api/v2/ai-agent/respond/", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }
}

async fn send(client: &Client, method: Method, path: &str, body: &Value) -> HttpAnswer {
    client.request(method, path, &[("content-type", "application/json")], body.to_string().into()).await
}

async fn sent(client: &Client, method: Method, path: &str, body: &Value) -> Value {
    let answer = send(client, method, path, body).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.text());
    answer.json()
}

async fn got(client: &Client, path: &str) -> Value {
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

#[tokio::test]
async fn threads_are_shown_with_their_messages_and_all_that_is_known_about_them() {
    for store in stores() {
        let office = Office::on(&store).await;
        sent(&office.a(), Method::PATCH, "/admin/configs/1", &json!({"model": Wire::Chat.model()})).await;
        sent(&office.a(), Method::PUT, "/admin/profiles/greeter", &json!({"prompt": "Greet."})).await;
        let first = office.respond("ada", "greeter", "Good morning", "And to you").await;
        office.respond("ada", "greeter", "How are you?", "Fine").await;
        office.respond("bob", "unknown", "Hello", "Hi").await;

        let list = got(&office.a(), "/admin/sessions").await;
        let heads: Vec<(&str, &Value, &Value)> = list["data"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| (one["user"].as_str().unwrap_or_default(), &one["profile"], &one["message_count"]))
            .collect();
        assert_eq!(heads, [("bob", &Value::Null, &json!(2)), ("ada", &json!("greeter"), &json!(4))], "{}", store.name);
        let of_ada = got(&office.a(), "/admin/sessions?user=ada").await;
        assert_eq!(of_ada["data"].as_array().map(Vec::len), Some(1), "{of_ada}");
        assert_eq!(of_ada["data"][0]["id"], first["session_id"]);
        let page = got(&office.a(), "/admin/sessions?limit=1").await;
        assert_eq!(page["has_more"], true);
        let rest = got(&office.a(), &format!("/admin/sessions?limit=1&after={}", page["last_id"])).await;
        assert_eq!((&rest["data"][0]["user"], &rest["has_more"]), (&json!("ada"), &json!(false)));

        let path = format!("/admin/sessions/{}", first["session_id"]);
        let thread = got(&office.a(), &path).await;
        let said: Vec<(&str, &str)> = thread["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| (one["role"].as_str().unwrap_or_default(), one["content"].as_str().unwrap_or_default()))
            .collect();
        let expected =
            [("assistant", "Fine"), ("user", "How are you?"), ("assistant", "And to you"), ("user", "Good morning")];
        assert_eq!(said, expected, "{}", store.name);
        let kinds = |message: &Value| -> Vec<String> {
            let rows = message["metadata"].as_array().into_iter().flatten();
            rows.map(|row| row["kind"].as_str().unwrap_or_default().to_owned()).collect()
        };
        assert!(kinds(&thread["messages"][3]).contains(&"context".to_owned()), "{thread}");
        assert!(kinds(&thread["messages"][2]).contains(&"model_usage".to_owned()), "{thread}");
        // From a message to what its model was asked.
        let turn = thread["messages"][2]["response_id"].as_str().unwrap_or_default();
        assert_eq!(got(&office.a(), &format!("/admin/turns/{turn}")).await["id"], json!(turn));
        let newest = got(&office.a(), &format!("{path}?limit=1")).await;
        assert_eq!((&newest["messages"][0]["content"], &newest["has_more"]), (&json!("Fine"), &json!(true)));
        let older = got(&office.a(), &format!("{path}?limit=2&after={}", newest["last_id"])).await;
        assert_eq!(older["messages"][0]["content"], "How are you?", "{older}");

        assert_eq!(office.b().get(&path).await.status, 404, "{}", store.name);
        assert_eq!(got(&office.operator(), &format!("{path}?tenant_id=1")).await, thread);
        assert_eq!(office.operator().get(&format!("{path}?tenant_id=2")).await.status, 404);
        assert_eq!(office.user().get(&path).await.status, 403);
        assert_eq!(office.b().get("/admin/sessions?tenant_id=1").await.status, 403);
    }
}

#[tokio::test]
async fn a_diagnosis_says_what_is_wrong_and_nothing_when_all_is_well() {
    // RNCC-47
    for store in stores() {
        let office = Office::on(&store).await;
        let ask = |query: &'static str| {
            let client = office.a();
            async move { got(&client, &format!("/admin/diagnose?{query}")).await }
        };
        let words = |found: &Value| found["verdict"].to_string();
        const BOTH: &str = "agent=home-assistant&tool=get_course_recommendation";

        let found = ask(BOTH).await;
        assert_eq!(
            found["agent"],
            json!({"slug": "home-assistant", "exists": false, "active": false}),
            "{}",
            store.name
        );
        let tool = json!({
            "name": "get_course_recommendation", "in_bank": false, "active": false, "assigned": null,
            "handler_registered": true,
        });
        assert_eq!((&found["tool"], &found["feature_enabled"]), (&tool, &json!(true)));
        assert_eq!(found["model"], json!({"name": Wire::Chat.model(), "known": true}));
        assert_eq!(found["key"], json!({"configured": true, "origin": "upstream"}));
        assert!(words(&found).contains("no profile"), "{found}");

        office.cli.json(&["seed", "profiles", "--company-id", "1"]);
        let own = json!({"model": Wire::Chat.model(), "upstream": "chat", "api_key": "sk-own"});
        sent(&office.a(), Method::PATCH, "/admin/configs/1", &own).await;
        let found = ask(BOTH).await;
        assert_eq!(found["verdict"], json!(["Everything that a turn needs is in place."]), "{}: {found}", store.name);
        assert_eq!(found["key"], json!({"configured": true, "origin": "config"}));
        sent(&office.a(), Method::PATCH, "/admin/configs/1", &json!({"api_key": null})).await;
        assert_eq!(ask("").await["key"], json!({"configured": true, "origin": "upstream"}));

        let found = ask("agent=home-assistant&tool=get_course_detail").await;
        assert_eq!(found["tool"]["assigned"], false);
        assert!(words(&found).contains("does not have the tool"), "{found}");
        let profile = json!({"prompt": "x", "tools": ["get_course_recommendation"], "active": false});
        sent(&office.a(), Method::PUT, "/admin/profiles/home-assistant", &profile).await;
        assert!(words(&ask(BOTH).await).contains("is not active"));
        let unknown = json!({"upstream": "nowhere"});
        sent(&office.a(), Method::PATCH, "/admin/configs/1", &unknown).await;
        assert!(words(&ask("agent=course-assistant").await).contains("No upstream has the model"));
        office.cli.text(&["tenants", "set", "1", "ai_agent_enabled=false"]);
        assert!(words(&ask("agent=course-assistant").await).contains("switched off"), "{}", store.name);

        assert_eq!(office.user().get("/admin/diagnose").await.status, 403);
        assert_eq!(office.operator().get("/admin/diagnose?tenant_id=77").await.status, 404);
        assert_eq!(got(&office.operator(), "/admin/diagnose?tenant_id=2").await["feature_enabled"], true);
    }
}
