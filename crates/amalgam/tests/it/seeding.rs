//! What tenants' assistants begin with: seeded by commands, imported from files, made at the first start, and removed again.

mod chat;
mod courses;
mod first_start;

use amalgam_testkit::{Amalgam, Client, Setup};
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, TestStore, stores};

const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n\n[tenants.c]\nid = 3\nkeys = [\"am_c\"]\n";

/// A server with three tenants that have nothing yet, and the command line beside it.
struct Campus {
    amalgam: Amalgam,
    cli: Cli,
}

impl Campus {
    async fn on(store: &TestStore, setup: Setup) -> Self {
        let amalgam = Amalgam::start(BINARY, store.setup(setup.extra(TENANTS))).await;
        let cli = Cli::beside(&amalgam, store);
        Self { amalgam, cli }
    }

    fn tenant(&self, key: &str) -> Client {
        Client::new(self.amalgam.url()).with_key(key)
    }

    async fn get(&self, key: &str, path: &str) -> Value {
        let answer = self.tenant(key).get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    /// Names of the tools of tenant 1's bank, with whether each is active.
    async fn tools(&self) -> Vec<(String, bool)> {
        let list = self.get("am_a", "/admin/tools").await;
        let tool = |tool: &Value| (tool["name"].as_str().unwrap_or_default().to_owned(), tool["active"] == true);
        list["data"].as_array().into_iter().flatten().map(tool).collect()
    }

    /// Slugs of a tenant's profiles, with the tools of each.
    async fn profiles(&self, key: &str) -> Vec<(String, Value)> {
        let list = self.get(key, "/admin/profiles").await;
        let profile =
            |profile: &Value| (profile["slug"].as_str().unwrap_or_default().to_owned(), profile["tools"].clone());
        list["data"].as_array().into_iter().flatten().map(profile).collect()
    }
}

fn outcomes(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|entry| entry["outcome"].as_str()).collect()
}

#[tokio::test]
async fn tools_are_listed_and_seeded_all_or_by_name_and_never_twice() {
    // RNCC-43
    for store in stores() {
        let campus = Campus::on(&store, Setup::new()).await;
        let cli = &campus.cli;
        let listed = "get_course_detail\nget_course_recommendation\nsearch_knowledge\n";
        assert_eq!(cli.text(&["seed", "tools", "--list"]), listed);
        assert_eq!(cli.text(&["seed_ai_agent_tools", "--list"]), cli.text(&["seed", "tools", "--list"]));
        assert_eq!(campus.tools().await, []);

        // A name that no profile has: nothing is written, not even for the name beside it.
        let wrong = ["seed", "tools", "--tool", "get_course_detail", "--tool", "get_curse"];
        assert!(cli.failure(&wrong).contains("get_curse"), "{}", store.name);
        assert_eq!(campus.tools().await, [], "{}", store.name);

        let one = cli.json(&["seed", "tools", "--tool", "get_course_detail"]);
        assert_eq!(outcomes(&one["data"]), ["created"]);
        assert_eq!(campus.tools().await, [("get_course_detail".to_owned(), true)]);
        assert_eq!(outcomes(&cli.json(&["seed_ai_agent_tools"])["data"]), ["unchanged", "created", "created"]);
        let before = campus.get("am_a", "/admin/tools").await;
        assert_eq!(outcomes(&cli.json(&["seed", "tools"])["data"]), ["unchanged"; 3]);
        assert_eq!(campus.get("am_a", "/admin/tools").await, before, "{}: twice is as good as once", store.name);
        assert_eq!(before["data"][0]["common"], true);
        assert!(before["data"][1]["after_call_instruction"].is_string(), "{before}");
    }
}

#[tokio::test]
async fn profiles_are_seeded_with_their_tools_for_the_companies_that_are_named() {
    // RNCC-44
    let bound = vec![
        ("course-assistant".to_owned(), json!(["get_course_detail"])),
        ("home-assistant".to_owned(), json!(["get_course_recommendation"])),
    ];
    for store in stores() {
        let campus = Campus::on(&store, Setup::new()).await;
        let cli = &campus.cli;
        for none in [&["seed", "profiles"][..], &["seed_ai_agent_profiles"], &["seed", "configs"]] {
            assert!(cli.failure(none).contains("--tenant"), "{}: a target is needed", store.name);
        }
        let both = ["seed", "profiles", "--company-id", "1", "--all-companies"];
        assert!(cli.failure(&both).contains("cannot be used with"), "{}", store.name);
        let wrong = ["seed", "profiles", "--company-id", "1", "--company-id", "77"];
        assert!(cli.failure(&wrong).contains("there is no tenant 77"), "{}", store.name);
        assert_eq!((campus.tools().await.len(), campus.profiles("am_a").await.len()), (0, 0), "{}", store.name);

        let seeded = cli.json(&["seed_ai_agent_profiles", "--company-id", "1", "--company-id", "2"]);
        assert_eq!(outcomes(&seeded["tools"]), ["created"; 3], "the tools come first");
        assert_eq!(seeded["data"].as_array().map(Vec::len), Some(2));
        assert_eq!((campus.profiles("am_a").await, campus.profiles("am_b").await), (bound.clone(), bound.clone()));
        assert_eq!(campus.profiles("am_c").await, [], "{}: no command named this one", store.name);

        // An administrator's settings of a profile stay; its prompt is that of the seed again, as one more version.
        let path = "/admin/profiles/home-assistant";
        let own = json!({"prompt": "Sell shoes.", "tools": [], "model": "fast", "active": false});
        let put = [("content-type", "application/json")];
        campus.tenant("am_a").request(http::Method::PUT, path, &put, own.to_string().into()).await;
        let seeded = cli.json(&["seed", "profiles", "--all-companies"]);
        assert_eq!(outcomes(&seeded["data"][0]["profiles"]), ["updated", "unchanged"]);
        assert_eq!(outcomes(&seeded["data"][1]["profiles"]), ["unchanged", "unchanged"]);
        assert_eq!(outcomes(&seeded["data"][2]["profiles"]), ["created", "created"]);
        let profile = campus.get("am_a", path).await;
        assert_eq!(
            (&profile["model"], &profile["active"], &profile["version"]),
            (&json!("fast"), &json!(false), &json!(3))
        );
        assert_eq!(campus.profiles("am_a").await, bound);
        assert_eq!(campus.profiles("am_c").await, bound);
    }
}

#[tokio::test]
async fn configs_are_filled_where_they_are_empty_and_replaced_on_request_but_for_the_key() {
    // RNCC-45
    for store in stores() {
        let campus = Campus::on(&store, Setup::new()).await;
        let cli = Cli::beside(&campus.amalgam, &store)
            .env("AI_AGENT_MODEL", "gpt-4o")
            .env("AI_AGENT_TEMPERATURE", "0.3")
            .env("AI_AGENT_SYSTEM_PROMPT_VERSION", "v7")
            .env("OPENAI_API_KEY", "sk-of-all");
        let own = json!({"model": "mine", "history_max_messages": 3, "api_key": "sk-mine"});
        let patch = [("content-type", "application/json")];
        let path = "/admin/configs/1";
        let answer = campus.tenant("am_a").request(http::Method::PATCH, path, &patch, own.to_string().into()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());

        let filled = cli.json(&["seed", "configs", "--company-id", "1"]);
        let names: Vec<&str> =
            filled["data"][0]["changed"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(names.contains(&"system_prompt") && !names.contains(&"model"), "{names:?}");
        let config = campus.get("am_a", path).await;
        let of = |config: &Value, name: &str| config[name].clone();
        for (name, value) in [
            ("model", json!("mine")),
            ("history_max_messages", json!(3)),
            ("temperature", json!(0.3)),
            ("prompt_version", json!("v7")),
            ("max_input_chars", json!(4000)),
            ("has_api_key", json!(true)),
            ("safety_salt", Value::Null),
        ] {
            assert_eq!(of(&config, name), value, "{}: {name}", store.name);
        }
        assert!(config["system_prompt"].as_str().unwrap().contains("learning assistant"), "{config}");
        assert_eq!(config["resolved"]["model"], json!({"value": "mine", "origin": "config"}));

        // Twice is as good as once: not even the revision moves.
        assert_eq!(cli.json(&["seed_ai_agent_configs", "--company-id", "1"])["data"][0]["changed"], json!([]));
        assert_eq!(campus.get("am_a", path).await["revision"], config["revision"]);

        cli.json(&["seed", "configs", "--all-companies", "--overwrite"]);
        let config = campus.get("am_a", path).await;
        assert_eq!((of(&config, "model"), of(&config, "history_max_messages")), (json!("gpt-4o"), json!(20)));
        assert_eq!(of(&config, "has_api_key"), json!(true), "{}: a key is never touched", store.name);
        let other = campus.get("am_b", "/admin/configs/2").await;
        assert_eq!((of(&other, "model"), of(&other, "has_api_key")), (json!("gpt-4o"), json!(false)));
        let failure = cli.failure(&["seed", "configs", "--company-id", "2", "--company-id", "9", "--overwrite"]);
        assert!(failure.contains("there is no tenant 9"), "{failure}");
    }
}

#[tokio::test]
async fn check_shows_what_counts_for_a_tenant_and_whose_word_it_is() {
    for store in stores() {
        let campus = Campus::on(&store, Setup::new()).await;
        let cli = Cli::beside(&campus.amalgam, &store)
            .env("AI_AGENT_MODEL", "gpt-4o")
            .env("AI_AGENT_SAFETY_SALT", "hush-hush");
        cli.json(&["seed", "profiles", "--company-id", "1"]);
        let patch = [("content-type", "application/json")];
        let own = json!({"temperature": 0.5, "api_key": "sk-hush"}).to_string();
        campus.tenant("am_a").request(http::Method::PATCH, "/admin/configs/1", &patch, own.into()).await;

        let assistant = cli.json(&["check", "--tenant", "1"])["assistant"].clone();
        let setting = |key: &str| {
            let settings = assistant["settings"].as_array().unwrap();
            let found = settings.iter().find(|setting| setting["key"] == key).unwrap_or(&Value::Null);
            (found["value"].clone(), found["origin"].clone())
        };
        assert_eq!(setting("model"), (json!("gpt-4o"), json!("settings")), "{}", store.name);
        assert_eq!(setting("temperature"), (json!(0.5), json!("config")));
        assert_eq!(setting("max_input_chars"), (json!(4000), json!("default")));
        assert_eq!(setting("api_key"), (json!("***"), json!("config")));
        assert_eq!(setting("safety_salt"), (json!("***"), json!("settings")));
        assert_eq!(assistant["profiles"][1]["slug"], "home-assistant");
        let text = cli.text(&["check", "--tenant", "1"]);
        assert!(text.contains("variable AI_AGENT_MODEL") && text.contains("profile home-assistant"), "{text}");
        assert!(!text.contains("hush"), "{text}");
        assert!(cli.failure(&["check", "--tenant", "9"]).contains("there is no tenant 9"));
    }
}

#[tokio::test]
async fn a_variable_that_cannot_be_used_stops_the_start_and_is_named() {
    // RNCC-40
    let setup = Setup::new().env("AI_AGENT_TOP_P", "lots").env("AI_AGENT_REQUEST_TIMEOUT", "-1");
    let exit = Amalgam::try_start(BINARY, setup).await.expect_err("these cannot be used");
    assert_eq!(exit.status.code(), Some(2), "{}", exit.stderr);
    assert!(
        exit.stderr.contains("AI_AGENT_TOP_P") && exit.stderr.contains("AI_AGENT_REQUEST_TIMEOUT"),
        "{}",
        exit.stderr
    );
}
