//! A new installation can be talked to; one that has anything is left as it is.

use amalgam_testkit::{Amalgam, Client, Setup};
use http::Method;
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, TestStore, stores};

const BOOT: &str = "am_bootstrap-key-of-the-tests";

async fn started(store: &TestStore, setup: Setup) -> (Amalgam, Client) {
    let amalgam = Amalgam::start(BINARY, store.setup(setup.env("AMALGAM_BOOTSTRAP_KEY", BOOT))).await;
    let client = Client::new(amalgam.url()).with_key(BOOT);
    (amalgam, client)
}

async fn slugs(client: &Client) -> Vec<String> {
    let list = client.get("/admin/profiles").await.json();
    let slug = |profile: &Value| profile["slug"].as_str().unwrap_or_default().to_owned();
    list["data"].as_array().into_iter().flatten().map(slug).collect()
}

async fn says(client: &Client, agent: &str, message: &str) -> Value {
    let body = json!({"agent": agent, "message": message});
    let answer = client.post_json("/api/v2/ai-agent/respond/", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn a_new_installation_has_an_assistant_that_knows_courses() {
    for store in stores() {
        let (_amalgam, client) = started(&store, Setup::new()).await;
        assert_eq!(slugs(&client).await, ["course-assistant", "home-assistant"], "{}", store.name);
        let config = client.get("/admin/configs/1").await.json();
        // The tenant follows the installation's model: once an upstream is configured, that one answers.
        assert_eq!((&config["model"], &config["prompt_version"]), (&Value::Null, &json!("v1")));
        assert_eq!(config["resolved"]["model"], json!({"value": "demo", "origin": "default"}));
        let page = client.get("/api/v2/course-recommendations/?q=kepemimpinan&page_size=2").await.json();
        assert!(page["count"].as_u64().unwrap() > 0, "{page}");
        let all = client.get("/api/v2/course-recommendations/").await.json();
        assert!(all["count"].as_u64().unwrap() >= 60, "{}", all["count"]);

        let answer = says(&client, "home-assistant", "Call get_course_recommendation: leadership").await;
        assert_eq!(answer["tool_results"][0]["name"], "get_course_recommendation", "{answer}");
        assert!(answer["tool_results"][0]["output"]["count"].as_u64().unwrap() > 0, "{answer}");
    }
}

#[tokio::test]
async fn an_installation_with_an_upstream_begins_with_its_model() {
    let upstream = amalgam_testkit::Upstream::start();
    for store in stores() {
        let setup = Setup::new().upstream("local", "chat", &upstream.base_url()).option("models", "[\"llama\"]");
        let (_amalgam, client) = started(&store, setup).await;
        let config = client.get("/admin/configs/1").await.json();
        assert_eq!(config["resolved"]["model"], json!({"value": "llama", "origin": "default"}), "{}", store.name);
    }
}

#[tokio::test]
async fn a_store_that_has_anything_is_left_as_it_is() {
    for store in stores() {
        let (mut amalgam, client) = started(&store, Setup::new()).await;
        let gone = client.request(Method::DELETE, "/admin/profiles/home-assistant", &[], Vec::new().into()).await;
        assert_eq!(gone.status, 200, "{}", gone.text());
        amalgam.kill();
        let (_amalgam, client) = started(&store, Setup::new().home(&amalgam.home())).await;
        assert_eq!(slugs(&client).await, ["course-assistant"], "{}", store.name);
    }
}

#[tokio::test]
async fn tenant_1_of_the_configuration_is_seeded_unless_the_seed_is_switched_off() {
    // right B3
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key("am_own").seeded())).await;
        let client = amalgam.client();
        assert_eq!(slugs(&client).await, ["course-assistant", "home-assistant"], "{}", store.name);
        let answer = says(&client, "home-assistant", "Call get_course_recommendation: leadership").await;
        assert!(answer["tool_results"][0]["output"]["count"].as_u64().unwrap() > 0, "{answer}");
    }
    for store in stores() {
        let setup = Setup::new().tenant_key("am_own").seeded().extra("[seed]\ndemo = false");
        let amalgam = Amalgam::start(BINARY, store.setup(setup)).await;
        let client = amalgam.client();
        assert_eq!(slugs(&client).await, [""; 0], "{}", store.name);
        assert_eq!(client.get("/api/v2/course-recommendations/").await.json()["count"], 0);
        assert_eq!(client.get("/admin/configs/1").await.json()["revision"], 0);
    }
    for store in stores() {
        // Only the first tenant of an empty store: another one begins with nothing.
        let setup = Setup::new().extra("[tenants.two]\nid = 2\nkeys = [\"am_two\"]").seeded();
        let amalgam = Amalgam::start(BINARY, store.setup(setup)).await;
        assert_eq!(slugs(&Client::new(amalgam.url()).with_key("am_two")).await, [""; 0], "{}", store.name);
    }
}

#[tokio::test]
async fn runtime_data_goes_alone_and_after_a_full_wipe_everything_can_be_had_again() {
    // RNCC-46
    for store in stores() {
        let (amalgam, client) = started(&store, Setup::new()).await;
        let cli = Cli::beside(&amalgam, &store);
        says(&client, "home-assistant", "Hello").await;
        assert_eq!(client.get("/admin/sessions").await.json()["data"].as_array().map(Vec::len), Some(1));

        assert!(cli.failure(&["reset", "runtime"]).contains("--yes"), "{}: a confirmation is required", store.name);
        cli.text(&["reset", "runtime", "--yes"]);
        assert_eq!(client.get("/admin/sessions").await.json()["data"], json!([]), "{}", store.name);
        assert_eq!(slugs(&client).await.len(), 2, "{}: what was configured stays", store.name);
        says(&client, "home-assistant", "Hello again").await;

        let home = amalgam.home();
        amalgam.terminate().await;
        // right C5: tenants, keys and courses stay, so that the seed commands restore a working state.
        cli.text(&["reset", "all", "--yes"]);
        assert_eq!(cli.json(&["tenants", "list"])["data"].as_array().map(Vec::len), Some(1), "{}", store.name);
        assert_eq!(cli.json(&["tools", "list", "--common"])["data"], json!([]), "{}", store.name);
        for seed in [&["seed_ai_agent_tools"][..], &["seed_ai_agent_profiles", "--all-companies"]] {
            cli.json(seed);
        }
        cli.json(&["seed_ai_agent_configs", "--all-companies"]);
        let (_amalgam, client) = started(&store, Setup::new().home(&home)).await;
        assert_eq!(slugs(&client).await, ["course-assistant", "home-assistant"], "{}", store.name);
        assert_eq!(client.get("/admin/sessions").await.json()["data"], json!([]));
        let answer = says(&client, "home-assistant", "Call get_course_recommendation: leadership").await;
        assert!(answer["tool_results"][0]["output"]["count"].as_u64().unwrap() > 0, "{answer}");
    }
}
