//! A tool's credentials arrive at its service and are found nowhere else. P12

use std::path::Path;

use super::*;
use crate::support::setup;

const HEADER: &str = "hush-tool-header-0123456789";
const TOKEN: &str = "hush-tool-token-0123456789";

fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push((path.display().to_string(), std::fs::read(&path).expect("the file can be read"))),
        }
    }
}

#[tokio::test]
async fn the_credentials_of_a_tool_reach_its_service_alone() {
    for store in stores() {
        let workshop = Workshop::with(&store, setup().env("AMALGAM_LOG", "trace")).await;
        let client = workshop.client();
        // The worst of services: it returns everything that it receives.
        workshop.service.answer_for("/weather", |request| {
            let headers: Vec<String> =
                request.headers.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
            says(json!({"told": headers, "as text": String::from_utf8_lossy(&request.body)}))
        });
        let settings = json!({
            "method": "POST", "url": format!("{}/weather", workshop.service.url()), "body": "arguments",
            "headers": {"x-tenant": {"secret": HEADER}, "authorization": format!("Bearer {TOKEN}")},
        });
        let mut said: Vec<(String, Vec<u8>)> = Vec::new();
        let put = put_tool(&client, "weather", &workshop.tool("weather", json!({"settings": settings}))).await;
        assert_eq!(put.status, 201, "{}", put.text());
        said.push(("put".to_owned(), put.body.to_vec()));
        // What is shown can be sent back, and keeps the secrets that it hides.
        let shown = client.get("/admin/tools/weather").await.json();
        assert_eq!(shown["settings"]["headers"]["x-tenant"], json!({"secret": "***"}), "{shown}");
        let again = put_tool(&client, "weather", &shown).await;
        assert_eq!(again.status, 200, "{}", again.text());

        for wire in WIRES {
            for delivery in DELIVERIES {
                workshop.script(wire, delivery, &[calls("call_1", "weather", "Oslo"), Script::text(&["x"])]);
                let answer = client.post_json("/v1/responses", &asking(wire, delivery, &question())).await;
                let response = crate::support::response_of(delivery, &answer);
                let turn = client.get(&format!("/admin/turns/{}", id_of(&response))).await;
                said.push((format!("{wire:?} {delivery:?}"), answer.body.to_vec()));
                said.push((format!("turn of {wire:?} {delivery:?}"), turn.body.to_vec()));
            }
            for request in workshop.world.upstream(wire).requests() {
                said.push((format!("what {wire:?} was told"), request.body.to_vec()));
            }
        }
        let requests = workshop.service.requests();
        assert_eq!(requests.len(), 6);
        for request in requests {
            assert_eq!(request.header("x-tenant"), Some(HEADER));
            assert_eq!(request.header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
        }
        for path in [
            "/admin/tools",
            "/admin/tools/weather",
            "/admin/tools/weather/statistics",
            "/admin/tools/usage?names=weather",
        ] {
            said.push((path.to_owned(), client.get(path).await.body.to_vec()));
        }
        let tried = client.post_json("/admin/tools/weather/try", &json!({"arguments": {"city": "Oslo"}})).await;
        said.push(("try".to_owned(), tried.body.to_vec()));
        // A secret does not follow its tool to another host, where the caller that moved the tool could read it.
        let mut moved = shown.clone();
        moved["settings"]["url"] = json!("https://elsewhere.example/weather");
        let refused = put_tool(&client, "weather", &moved).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        said.push(("moved".to_owned(), refused.body.to_vec()));

        files(workshop.world.amalgam.folder(), &mut said);
        assert_ne!(store.holds("Asks for weather."), Some(false), "the tool is in the database");
        for secret in [HEADER, TOKEN] {
            assert_ne!(store.holds(secret), Some(true), "{secret}");
        }
        let exit = workshop.world.amalgam.terminate().await;
        assert!(exit.stderr.contains("TRACE") || exit.stderr.contains("DEBUG"));
        said.push(("log".to_owned(), exit.stderr.into_bytes()));
        for (place, bytes) in &said {
            for secret in [HEADER, TOKEN] {
                let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!found, "{} {place} holds {secret}: {}", store.name, String::from_utf8_lossy(bytes));
            }
        }
    }
}
