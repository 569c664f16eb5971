//! `/admin/configs`: what a tenant sets, what takes effect, and that its key stays its own.

use amalgam_testkit::Client;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use super::{Office, got, send, sent};
use crate::support::{Cli, Delivery, FINAL, Script, Wire, assert_refused, eventually, stores};

const PATH: &str = "/admin/configs/1";
const SECRET: &str = "sk-tenant-secret-0123456789";

async fn patch(client: &Client, body: Value) -> Value {
    sent(client, Method::PATCH, PATH, &body).await
}

#[tokio::test]
async fn settings_are_set_unset_and_shown_with_what_counts() {
    for store in stores() {
        let office = Office::on(&store).await;
        let fresh = got(&office.a(), PATH).await;
        assert_eq!(
            (&fresh["model"], &fresh["revision"], &fresh["updated_at"]),
            (&Value::Null, &json!(0), &Value::Null)
        );
        assert_eq!(fresh["resolved"]["model"], json!({"value": "m-chat", "origin": "default"}));
        assert_eq!(fresh["resolved"]["api_key"], json!({"value": null, "origin": "default"}));

        let set = json!({"model": "m-chat", "temperature": 0.25, "request_timeout": "90s", "safety_salt": "hush-salt",
            "parallel_tool_calls": false});
        let config = patch(&office.a(), set).await;
        let shown = ["model", "temperature", "request_timeout", "safety_salt", "parallel_tool_calls", "revision"];
        let shown = shown.map(|name| config[name].clone());
        let expected = [json!("m-chat"), json!(0.25), json!(90), json!("***"), json!(false), json!(1)];
        assert_eq!(shown, expected, "{}", store.name);
        assert_eq!(config["resolved"]["temperature"], json!({"value": 0.25, "origin": "config"}));
        assert_eq!(config["resolved"]["safety_salt"], json!({"value": "***", "origin": "config"}));
        assert_eq!(got(&office.a(), PATH).await, config);
        assert!(!config.to_string().contains("hush"), "{config}");

        // Null and nothing unset; what is hidden may come back; everything else stays.
        let config =
            patch(&office.a(), json!({"temperature": null, "request_timeout": "", "safety_salt": "***"})).await;
        let shown = ["model", "temperature", "request_timeout", "safety_salt"].map(|name| config[name].clone());
        assert_eq!(shown, [json!("m-chat"), Value::Null, Value::Null, json!("***")]);
        assert_eq!(config["resolved"]["request_timeout"], json!({"value": 60, "origin": "default"}));

        // Faults name the field, and no part of an invalid change is stored.
        for (body, param, code) in [
            (json!({"temperature": 3, "model": "other"}), "temperature", "invalid_value"),
            (json!({"max_input_chars": 0}), "max_input_chars", "invalid_value"),
            (json!({"truncation": "maybe"}), "truncation", "invalid_value"),
            (json!({"modle": "x"}), "modle", "unknown_parameter"),
            (json!({"resolved": {}}), "resolved", "unknown_parameter"),
            (json!({"api_key": "two words"}), "api_key", "invalid_value"),
            (json!({"api_key": 7}), "api_key", "invalid_type"),
        ] {
            assert_refused(&send(&office.a(), Method::PATCH, PATH, &body).await, 400, Some(param), code);
        }
        assert_eq!(got(&office.a(), PATH).await, config, "{}", store.name);

        // Who may: the tenant's own administrator, and the operator.
        assert_eq!(got(&office.operator(), PATH).await, config);
        sent(&office.operator(), Method::PATCH, "/admin/configs/2", &json!({"top_p": 0.5})).await;
        assert_eq!(got(&office.b(), "/admin/configs/2").await["top_p"], 0.5);
        for (client, path, status) in [
            (office.b(), PATH, 403),
            (office.b(), "/admin/configs/77", 403),
            (office.user(), PATH, 403),
            (office.operator(), "/admin/configs/77", 404),
            (office.operator(), "/admin/configs/x", 404),
        ] {
            assert_eq!(client.get(path).await.status, status, "{path}");
            assert_eq!(send(&client, Method::PATCH, path, &json!({"model": "stolen"})).await.status, status, "{path}");
        }
        assert_eq!(got(&office.a(), PATH).await, config, "{}", store.name);
    }
}

#[tokio::test]
async fn changes_at_the_same_time_do_not_lose_each_other() {
    for store in stores() {
        let office = Office::on(&store).await;
        let changes = [
            json!({"model": "m"}),
            json!({"upstream": "u"}),
            json!({"system_prompt": "p"}),
            json!({"prompt_version": "v"}),
            json!({"temperature": 1}),
            json!({"top_p": 1}),
            json!({"max_output_tokens": 1}),
            json!({"truncation": "auto"}),
            json!({"request_timeout": 1}),
            json!({"parallel_tool_calls": true}),
            json!({"max_tool_iterations": 1}),
            json!({"max_input_chars": 1}),
            json!({"history_max_messages": 1}),
            json!({"history_max_chars": 1}),
            json!({"metadata_max_bytes": 2}),
            json!({"api_key": SECRET}),
        ];
        let client = office.a();
        let all = join_all(changes.iter().map(|change| sent(&client, Method::PATCH, PATH, change))).await;
        assert_eq!(all.len(), changes.len());
        let config = got(&client, PATH).await;
        let kept = changes.iter().flat_map(|change| change.as_object().into_iter().flatten());
        for (name, value) in kept.filter(|(name, _)| *name != "api_key") {
            assert_eq!(&config[name], value, "{}: {name} in {config}", store.name);
        }
        assert_eq!(
            (&config["has_api_key"], &config["revision"]),
            (&json!(true), &json!(changes.len())),
            "{}",
            store.name
        );
    }
}

#[tokio::test]
async fn a_tenants_key_is_sent_to_its_upstream_never_shown_and_outlives_master_keys() {
    // RNCC-41, P12
    for store in stores() {
        let office = Office::on(&store).await;
        let own = json!({"model": Wire::Chat.model(), "upstream": "chat", "api_key": SECRET});
        let mut told = vec![patch(&office.a(), own).await.to_string()];
        let bearer = |at: usize| {
            office.world.upstream(Wire::Chat).request(at).header("authorization").unwrap_or_default().to_owned()
        };
        office.respond("ada", "", "Hello", "Hi").await;
        assert_eq!(bearer(0), format!("Bearer {SECRET}"), "{}", store.name);

        let rotated = office.cli.json(&["keys", "rotate-master"]);
        assert_eq!(rotated["configs"], 1, "{rotated}");
        // The server takes the new master key up within seconds; until then it has the old one, which stays good.
        let sealed_anew = |cli: &Cli| cli.json(&["keys", "rotate-master"])["configs"].clone();
        assert_eq!(sealed_anew(&office.cli), 1);
        let before = got(&office.a(), PATH).await;
        assert_eq!((&before["has_api_key"], &before["model"]), (&json!(true), &json!(Wire::Chat.model())));
        eventually("an answer with the key that was sealed anew", FINAL, async || {
            office.world.upstream(Wire::Chat).enqueue(Script::text(&["Hi"]).reply(Wire::Chat, Delivery::Whole));
            let body = json!({"message": "Hello again"});
            let answer = office.a().post_json("/api/v2/ai-agent/respond/", &body).await;
            (answer.status == 200).then_some(())
        })
        .await;
        let last = office.world.upstream(Wire::Chat).requests().len() - 1;
        assert_eq!(bearer(last), format!("Bearer {SECRET}"), "{}", store.name);

        for path in [PATH, "/admin/diagnose", "/admin/sessions", "/admin/sessions/1"] {
            told.push(office.a().get(path).await.text());
        }
        told.push(office.cli.text(&["check", "--tenant", "1"]));
        told.push(office.world.amalgam.stderr());
        assert!(told.iter().all(|text| !text.contains(SECRET)), "{}", store.name);
        // Without it, the operator's is sent again.
        assert_eq!(patch(&office.a(), json!({"api_key": null})).await["has_api_key"], false);
        let next = office.world.upstream(Wire::Chat).requests().len();
        office.respond("ada", "", "Hello", "Hi").await;
        assert_eq!(bearer(next), "Bearer sk-chat", "{}", store.name);
    }
}
