//! Guessed keys slow down the address that guesses, and never a valid key.

use amalgam_testkit::{Amalgam, Client, Setup};
use serde_json::json;

use crate::support::{BINARY, Cli, error_of, stores};

const KEY: &str = "am_boot-key-0123456789";

/// Tries unknown keys until that is too much.
#[expect(clippy::panic, reason = "a helper of a test fails by panicking, as the test does")]
async fn guess(client: &Client, name: &str) {
    for number in 0..200 {
        let answer = client.clone().with_key(&format!("am_{name}-{number}")).get("/v1/models").await;
        if answer.status == 429 {
            assert_eq!(error_of(&answer)["code"], "too_many_failed_attempts");
            assert!(answer.header("retry-after").is_some());
            return;
        }
        assert_eq!(answer.status, 401, "{number}");
    }
    panic!("two hundred unknown keys are not too many");
}

// right E4
#[tokio::test]
async fn a_stored_key_works_at_once_whatever_was_guessed_from_its_address() {
    for store in stores() {
        let setup = store.setup(Setup::new().env("AMALGAM_BOOTSTRAP_KEY", KEY));
        let amalgam = Amalgam::start(BINARY, setup).await;
        let client = Client::new(amalgam.url());
        let administrator = client.clone().with_key(KEY);
        let made = administrator.post_json("/admin/keys", &json!({"tenant_id": 1, "user": "ada"})).await.json();
        let good = made["key"].as_str().expect("a new key").to_owned();
        guess(&client, "first").await;
        // The server has never seen the key before, and guessing continues at the same time.
        assert_eq!(client.clone().with_key(&good).get("/v1/models").await.status, 200, "{}", store.name);
        guess(&client, "second").await;
        assert_eq!(client.clone().with_key(&good).get("/v1/models").await.status, 200, "{}", store.name);
        // A key that is made meanwhile by a command, too.
        let made = Cli::beside(&amalgam, &store).json(&["keys", "create", "--tenant", "1"]);
        let new = made["key"].as_str().expect("a new key");
        guess(&client, "third").await;
        assert_eq!(client.clone().with_key(new).get("/v1/models").await.status, 200, "{}", store.name);
    }
}

// right E4
#[tokio::test]
async fn failures_count_for_the_client_behind_a_trusted_proxy_and_for_no_other() {
    let setup = Setup::new().tenant_key(KEY).extra("[server]\ntrusted_proxies = [\"127.0.0.0/8\"]");
    let amalgam = Amalgam::start(BINARY, setup).await;
    let from = |address: &str| Client::new(amalgam.url()).with_header("x-forwarded-for", address);
    guess(&from("198.51.100.1"), "one").await;
    assert_eq!(from("198.51.100.2").with_key("am_another").get("/v1/models").await.status, 401);
    assert_eq!(from("198.51.100.1").with_key("am_another-one").get("/v1/models").await.status, 429);

    // Without it any client can write the header.
    let amalgam = Amalgam::start(BINARY, Setup::new().tenant_key(KEY)).await;
    let from = |address: &str| Client::new(amalgam.url()).with_header("x-forwarded-for", address);
    guess(&from("198.51.100.1"), "one").await;
    assert_eq!(from("198.51.100.2").with_key("am_another").get("/v1/models").await.status, 429);
}

// right E5
#[tokio::test]
async fn a_service_key_cannot_name_the_own_user_of_another_key() {
    for store in stores() {
        let setup = store.setup(Setup::new().env("AMALGAM_BOOTSTRAP_KEY", KEY));
        let amalgam = Amalgam::start(BINARY, setup).await;
        let administrator = Client::new(amalgam.url()).with_key(KEY);
        let make = async || administrator.post_json("/admin/keys", &json!({"tenant_id": 1})).await.json();
        let (first, second) = (make().await, make().await);
        let text = |made: &serde_json::Value, name: &str| made[name].as_str().expect("a text").to_owned();
        let [one, other] = [&first, &second].map(|made| Client::new(amalgam.url()).with_key(&text(made, "key")));
        let kept = one.post_json("/v1/conversations", &json!({})).await.json();
        let path = format!("/v1/conversations/{}", text(&kept, "id"));
        let own = format!("key:{}", text(&first, "id"));
        assert_eq!(one.clone().with_header("x-amalgam-user", &own).get(&path).await.status, 200);
        for client in [other, administrator.clone()] {
            assert_eq!(client.with_header("x-amalgam-user", &own).get(&path).await.status, 403, "{}", store.name);
        }
        let named = administrator.post_json("/admin/keys", &json!({"tenant_id": 1, "user": own})).await;
        assert_eq!(named.status, 400, "{}", named.text());
    }
}
