//! Commands that list what is in the store: as tables, as JSON and as CSV, by both words for a tenant.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use amalgam_testkit::binary;
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, FINAL, TestStore, World, eventually, setup, stores};

/// A server with the sample data, which answers by itself.
async fn world(store: &TestStore) -> (World, Cli) {
    let world = World::with(store.setup(setup().seeded()), &[]).await;
    let cli = Cli::beside(&world.amalgam, store);
    (world, cli)
}

#[tokio::test]
async fn sessions_profiles_and_configs_are_listed_and_shown_by_both_words_for_a_tenant() {
    for store in stores() {
        let (world, cli) = world(&store).await;
        let client = world.amalgam.client().with_header("x-amalgam-user", "7");
        let upstream = world.upstream(crate::support::Wire::Chat);
        crate::limits::answers(&world);
        let model = json!({"model": "m-chat"});
        let headers = [("content-type", "application/json")];
        let put = client.request(http::Method::PATCH, "/admin/configs/1", &headers, model.to_string().into()).await;
        assert!(put.status.is_success(), "{}", put.text());
        let spoken = json!({"message": "Hi", "user_id": 7, "company_id": 1});
        let answer = client.post_json("/api/v2/ai-agent/respond/", &spoken).await;
        assert_eq!(answer.status, 200, "{} {}", answer.text(), upstream.requests().len());

        let by = |words: &[&str], word: &str| cli.json(&[words, &[word, "1"]].concat());
        let sessions = by(&["sessions", "list"], "--tenant");
        let session = &sessions["data"][0];
        assert_eq!(session["user"], "7", "{}: {sessions}", store.name);
        let id = session["id"].as_i64().map(|id| id.to_string()).or_else(|| session["id"].as_str().map(str::to_owned));
        let shown = by(&["sessions", "show", &id.expect("a session has an id")], "--company-id");
        assert!(shown.to_string().contains("Hi"), "{}: {shown}", store.name);
        let profiles = by(&["profiles", "list"], "--company-id");
        let slug = profiles["data"][0]["slug"].as_str().expect("the samples have profiles").to_owned();
        assert_eq!(by(&["profiles", "show", &slug], "--tenant")["slug"], json!(slug), "{}", store.name);
        let configs = cli.json(&["configs", "list"]);
        assert_eq!(configs["data"].as_array().map(Vec::len), Some(1), "{configs}");
        assert_eq!(by(&["configs", "show"], "--tenant"), by(&["configs", "show"], "--company-id"), "{}", store.name);
        for list in [&["sessions", "list", "--tenant", "1"][..], &["profiles", "list", "--company-id", "1"]] {
            assert!(cli.text(list).lines().count() >= 2, "{list:?} is a table with a heading");
        }
    }
}

#[tokio::test]
async fn usage_is_csv_by_its_parameter_and_by_the_header() {
    for store in stores() {
        let (world, _) = world(&store).await;
        crate::limits::answers(&world);
        let client = world.amalgam.client();
        assert_eq!(client.post_json("/v1/responses", &crate::limits::turn()).await.status, 200);
        let path = "/admin/usage?group_by=model";
        let by_parameter = client.get(&format!("{path}&format=csv")).await;
        let by_header = client.clone().with_header("accept", "text/csv").get(path).await;
        for answer in [&by_parameter, &by_header] {
            let kind = answer.header("content-type").unwrap_or_default();
            assert!(answer.status == 200 && kind.starts_with("text/csv"), "{}: {kind}", store.name);
        }
        assert_eq!(by_parameter.text(), by_header.text());
        let text = by_parameter.text();
        let mut lines = text.lines();
        let heading = lines.next().unwrap_or_default();
        assert!(heading.starts_with("model,") && heading.contains("input_tokens"), "{text}");
        assert!(lines.any(|line| line.starts_with("m-chat,")), "{text}");
        let wrong = client.get(&format!("{path}&format=xml")).await;
        assert_eq!((wrong.status.as_u16(), &wrong.json()["error"]["param"]), (400, &json!("format")), "{}", store.name);
    }
}

#[tokio::test]
async fn turns_are_printed_as_they_begin_and_end() {
    for store in stores() {
        let (world, _) = world(&store).await;
        crate::limits::answers(&world);
        let mut command = Command::new(binary(BINARY));
        command.args(["turns", "tail", "--json", "--user", "anna", "--data"]).arg(world.amalgam.folder().join("data"));
        command.arg("--config").arg(world.amalgam.folder().join("amalgam.toml"));
        command.env_clear().envs(store.environment()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the command starts");
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, lines) = std::sync::mpsc::channel::<String>();
        let reader = std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
        let [anna, boris] = ["anna", "boris"].map(|user| world.amalgam.client().with_header("x-amalgam-user", user));
        // The command shows what was created after its start.
        let line = eventually("a line", FINAL, async || {
            for caller in [&boris, &anna] {
                assert_eq!(caller.post_json("/v1/responses", &crate::limits::turn()).await.status, 200);
            }
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            lines.try_recv().ok()
        })
        .await;
        let row: Value = serde_json::from_str(&line).expect("a line is JSON");
        assert_eq!((&row["user"], &row["status"]), (&json!("anna"), &json!("completed")), "{}: {row}", store.name);
        child.kill().expect("it still runs");
        child.wait().expect("it has ended");
        drop(reader);
        assert!(lines.iter().all(|line| !line.contains("boris")), "{}", store.name);
    }
}
