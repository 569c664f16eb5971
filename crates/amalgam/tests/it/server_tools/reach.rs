//! Where a tool cannot go: private addresses in every spelling, and nowhere by a redirect. S14, S17

use amalgam_testkit::{Client, Upstream};

use super::*;
use crate::support::{World, setup};

/// Spellings of this machine.
const HERE: [&str; 16] = [
    "127.0.0.1",
    "127.1",
    "127.0.0.2",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "0.0.0.0",
    "localhost",
    "LOCALHOST.",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
];

fn tool(url: &str) -> Value {
    json!({"description": "Looks.", "kind": "http", "settings": {"method": "GET", "url": url}})
}

/// A tool at this address is refused when it is stored, or at the latest when it runs.
async fn assert_unreachable(client: &Client, url: &str) {
    let answer = put_tool(client, "look", &tool(url)).await;
    if answer.status.is_client_error() {
        let error = crate::support::error_of(&answer);
        assert_eq!(error["param"], "settings.url", "{url}: {error}");
        return;
    }
    assert!(answer.status.is_success(), "{url}: {}", answer.text());
    let tried = client.post_json("/admin/tools/look/try", &json!({"arguments": {}})).await;
    assert_eq!(tried.status, 200, "{url}: {}", tried.text());
    let error = tried.json()["error"].clone();
    assert!(error.is_object(), "{url}: {}", tried.text());
}

#[tokio::test]
async fn no_tool_reaches_this_machine_in_any_spelling() {
    let world = World::with(setup(), &[]).await;
    let (client, canary) = (world.amalgam.client(), Upstream::always(says(json!("hush"))));
    let port = canary.address().port();
    for host in HERE {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{port}/mcp");
            assert_unreachable(&client, &url).await;
            let mcp = json!({"description": "Looks.", "kind": "mcp", "settings": {"server": url}});
            let answer = put_tool(&client, "remote", &mcp).await;
            if answer.status.is_success() {
                let tried = client.post_json("/admin/tools/remote/try", &json!({"arguments": {}})).await.json();
                assert!(tried["error"].is_object(), "{url}: {tried}");
            }
            let server = json!({"type": "mcp", "server_label": "here", "server_url": url, "require_approval": "never"});
            let request = json!({"model": Wire::Chat.model(), "input": "Hi", "tools": [server]});
            let answer = client.post_json("/v1/responses", &request).await;
            assert!(matches!(answer.status.as_u16(), 400 | 424), "{url}: {} {}", answer.status, answer.text());
            assert!(!answer.text().contains("hush") && !answer.text().contains(&port.to_string()), "{}", answer.text());
        }
    }
    assert_eq!(canary.connections(), 0, "the canary was reached");
    assert_eq!(world.upstream(Wire::Chat).requests().len(), 0, "no model was asked");
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn the_trial_of_a_tool_tells_neither_the_address_of_an_internal_name_nor_whether_it_exists() {
    // right E5
    let world = World::with(setup(), &[]).await;
    let client = world.amalgam.client();
    let tried = async |kind: &str, host: &str| {
        let settings = match kind {
            "http" => json!({"method": "GET", "url": format!("https://{host}/")}),
            _ => json!({"server": format!("https://{host}/")}),
        };
        let answer =
            put_tool(&client, "look", &json!({"description": "Looks.", "kind": kind, "settings": settings})).await;
        assert!(answer.status.is_success(), "{}", answer.text());
        let tried = client.post_json("/admin/tools/look/try", &json!({"arguments": {}})).await.json();
        assert!(tried["error"]["code"].is_string(), "{tried}");
        tried["error"].to_string().replace(host, "HOST")
    };
    for kind in ["http", "mcp"] {
        let internal = tried(kind, "localhost").await;
        assert!(!internal.contains("127.0.0.1") && !internal.contains("::1"), "{internal}");
        assert_eq!(internal, tried(kind, "unknown.invalid").await);
        assert!(internal.contains("[egress] allow_private"), "{internal}");
    }
}

#[tokio::test]
async fn what_the_operator_allows_is_one_address_and_one_port() {
    let workshop = Workshop::on(&stores()[0]).await;
    let canary = Upstream::always(says(json!("hush")));
    assert_unreachable(&workshop.client(), &format!("{}/look", canary.url())).await;
    assert_unreachable(&workshop.client(), &format!("http://[::1]:{}/look", workshop.service.address().port())).await;
    assert_eq!((canary.connections(), workshop.service.connections()), (0, 0));
    workshop.service.always_for("/look", says(json!("fine")));
    let answer = put_tool(&workshop.client(), "look", &tool(&format!("{}/look", workshop.service.url()))).await;
    assert!(answer.status.is_success(), "{}", answer.text());
    let tried = workshop.client().post_json("/admin/tools/look/try", &json!({"arguments": {}})).await.json();
    assert_eq!(tried["output"], "fine");
}

#[tokio::test]
async fn a_redirect_leads_nowhere() {
    let workshop = Workshop::on(&stores()[0]).await;
    let client = workshop.client();
    let canary = Upstream::always(says(json!("hush")));
    for status in [301, 302, 303, 307, 308] {
        for location in [format!("{}/look", canary.url()), format!("{}/allowed", workshop.service.url())] {
            workshop.service.always_for("/look", Reply::status(status).header("location", location.clone()));
            put_tool(&client, "look", &tool(&format!("{}/look", workshop.service.url()))).await;
            let tried = client.post_json("/admin/tools/look/try", &json!({"arguments": {}})).await.json();
            assert_eq!(tried["error"]["code"], "refused", "{tried}");
            let server = json!({
                "type": "mcp", "server_label": "away", "server_url": format!("{}/look", workshop.service.url()),
            });
            let request = json!({"model": Wire::Chat.model(), "input": "Hi", "tools": [server]});
            let answer = client.post_json("/v1/responses", &request).await;
            assert_eq!(answer.status, 424, "{}", answer.text());
        }
    }
    assert_eq!(canary.connections(), 0);
    assert!(workshop.service.requests().iter().all(|request| request.path == "/look"));
}

#[tokio::test]
async fn arguments_of_a_model_never_choose_the_host() {
    let workshop = Workshop::on(&stores()[0]).await;
    let canary = Upstream::always(says(json!("hush")));
    for url in ["http://{city}/", "http://127.0.0.1:{city}/", "http://{city}.example.com/"] {
        let answer = put_tool(
            &workshop.client(),
            "weather",
            &workshop.tool("weather", json!({"settings": {"method": "GET", "url": url}})),
        )
        .await;
        assert_eq!(answer.status, 400, "{url}: {}", answer.text());
    }
    let url = format!("{}/at/{{city}}/now?in={{city}}", workshop.service.url());
    workshop.put("weather", json!({"settings": {"method": "GET", "url": url}})).await;
    workshop.service.from_now_on(says(json!("fine")));
    let place = format!("@127.0.0.1:{}/../../x?y#z", canary.address().port());
    for city in ["..", "../../admin", "//evil.example/", &place, "a b\r\nx-injected: 1", "%2e%2e%2f"] {
        let scripts =
            [calls("call_1", "weather", &city.replace('\r', "\\r").replace('\n', "\\n")), Script::text(&["x"])];
        workshop.turn(Wire::Chat, Delivery::Whole, &scripts, &question()).await;
    }
    for request in workshop.service.requests() {
        assert!(request.path.starts_with("/at/") && request.path.contains("/now?in="), "{}", request.path);
        assert_eq!(request.path.matches('/').count(), 3, "{}", request.path);
        assert_eq!(request.header("x-injected"), None);
    }
    assert_eq!(canary.connections(), 0);
}
