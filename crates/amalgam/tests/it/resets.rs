//! `amalgam reset`: what it takes and leaves, for all tenants and for some.

use amalgam_testkit::{Amalgam, Client, Setup};
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, stores};

const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";

/// How many profiles, threads and courses a tenant has.
async fn has(amalgam: &Amalgam, key: &str) -> (usize, usize, u64) {
    let client = Client::new(amalgam.url()).with_key(key);
    let count = |list: Value| list["data"].as_array().map_or(0, Vec::len);
    let profiles = count(client.get("/admin/profiles").await.json());
    let sessions = count(client.get("/admin/sessions").await.json());
    let courses = client.get("/api/v2/course-recommendations/").await.json()["count"].as_u64();
    (profiles, sessions, courses.unwrap_or_default())
}

async fn says(amalgam: &Amalgam, key: &str) -> Value {
    let client = Client::new(amalgam.url()).with_key(key);
    let body = json!({"agent": "home-assistant", "message": "Call get_course_recommendation: lead"});
    let answer = client.post_json("/api/v2/ai-agent/respond/", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn a_reset_takes_the_tenants_that_are_named_and_seeding_restores_a_working_state() {
    // right C5
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().extra(TENANTS))).await;
        let cli = Cli::beside(&amalgam, &store);
        let file = amalgam.folder().join("courses.json");
        let course = json!({"id": 7, "title": "Lead", "description": "x", "modality": "Learn", "type": "Course"});
        std::fs::write(&file, json!([course]).to_string()).unwrap();
        let seed = || {
            cli.text(&["seed", "profiles", "--all-tenants"]);
            cli.text(&["seed", "configs", "--all-tenants"]);
        };
        seed();
        for (number, key) in [("1", "am_a"), ("2", "am_b")] {
            cli.text(&["courses", "import", file.to_str().unwrap(), "--tenant", number]);
            says(&amalgam, key).await;
        }
        assert_eq!(
            (has(&amalgam, "am_a").await, has(&amalgam, "am_b").await),
            ((2, 1, 1), (2, 1, 1)),
            "{}",
            store.name
        );

        let unknown = cli.failure(&["reset", "all", "--tenant", "9", "--yes"]);
        assert!(unknown.contains("there is no tenant 9"), "{unknown}");
        let asks = cli.failure(&["reset", "all", "--company-id", "2"]);
        assert!(asks.contains("of tenant 2") && asks.contains("--yes"), "{asks}");
        cli.text(&["reset", "runtime", "--tenant", "2", "--yes"]);
        assert_eq!(
            (has(&amalgam, "am_a").await, has(&amalgam, "am_b").await),
            ((2, 1, 1), (2, 0, 1)),
            "{}",
            store.name
        );
        cli.text(&["reset", "all", "--company-id", "2", "--yes"]);
        assert_eq!(
            (has(&amalgam, "am_a").await, has(&amalgam, "am_b").await),
            ((2, 1, 1), (0, 0, 1)),
            "{}",
            store.name
        );
        assert_eq!(says(&amalgam, "am_a").await["tool_results"][0]["output"]["count"], 1, "common tools stay");

        cli.text(&["reset", "all", "--yes"]);
        assert_eq!(
            (has(&amalgam, "am_a").await, has(&amalgam, "am_b").await),
            ((0, 0, 1), (0, 0, 1)),
            "{}",
            store.name
        );
        seed();
        for key in ["am_a", "am_b"] {
            let answer = says(&amalgam, key).await;
            assert_eq!(answer["tool_results"][0]["output"]["count"], 1, "{}: {answer}", store.name);
        }
        let both = cli.failure(&["reset", "everything", "--tenant", "1", "--yes"]);
        assert!(both.contains("whole store"), "{both}");
    }
}
