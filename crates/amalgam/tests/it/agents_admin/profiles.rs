//! `/admin/profiles`: stored completely, with every version, in the caller's own tenant.

use http::Method;
use serde_json::{Value, json};

use super::{Office, got, send, sent};
use crate::support::{assert_refused, stores};

const PATH: &str = "/admin/profiles/guide";

#[tokio::test]
async fn a_profile_is_kept_with_its_versions_and_what_each_changed() {
    for store in stores() {
        let office = Office::on(&store).await;
        let client = office.a();
        office.cli.json(&["seed", "tools"]);
        let first = json!({"prompt": "You guide.\nBe short.", "tools": ["get_course_detail", "nowhere"]});
        let answer = send(&client, Method::PUT, PATH, &first).await;
        assert_eq!(answer.status, 201, "{}: {}", store.name, answer.text());
        let made = answer.json();
        let fields = ["slug", "prompt", "tools", "model", "active", "version", "unknown_tools"];
        let shown = fields.map(|name| made[name].clone());
        let expected = [
            json!("guide"),
            first["prompt"].clone(),
            first["tools"].clone(),
            Value::Null,
            json!(true),
            json!(1),
            json!(["nowhere"]),
        ];
        assert_eq!(shown, expected, "{}", store.name);
        assert_eq!(got(&client, PATH).await, made);

        // What is shown can be put back, and makes no version.
        let again = send(&client, Method::PUT, PATH, &made).await;
        assert_eq!((again.status.as_u16(), again.json()), (200, made.clone()), "{}", store.name);
        let second =
            json!({"prompt": "You guide.\nBe brief.\nNever guess.", "tools": ["get_course_detail"], "model": "fast"});
        let changed = sent(&client, Method::PUT, PATH, &second).await;
        assert_eq!((&changed["version"], &changed["unknown_tools"]), (&json!(2), &json!([])));
        assert_ne!(changed["prompt_hash"], made["prompt_hash"]);
        sent(&client, Method::PUT, PATH, &json!({"prompt": "You guide.", "active": false})).await;

        let versions = got(&client, &format!("{PATH}/versions")).await;
        let numbers = |list: &Value| -> Vec<u64> {
            list["data"].as_array().into_iter().flatten().filter_map(|one| one["version"].as_u64()).collect()
        };
        assert_eq!(numbers(&versions), [3, 2, 1], "{}", store.name);
        assert_eq!(versions["data"][2]["prompt"], first["prompt"]);
        let page = got(&client, &format!("{PATH}/versions?limit=2")).await;
        assert_eq!((numbers(&page), &page["has_more"]), (vec![3, 2], &json!(true)));
        let rest = got(&client, &format!("{PATH}/versions?after={}", page["last_id"])).await;
        assert_eq!(numbers(&rest), [1]);

        let diff = got(&client, &format!("{PATH}/versions/2/diff")).await;
        let line = |change: &str, line: &str| json!({"change": change, "line": line});
        let lines = [
            line("same", "You guide."),
            line("removed", "Be short."),
            line("added", "Be brief."),
            line("added", "Never guess."),
        ];
        assert_eq!((&diff["against"], &diff["prompt"]), (&json!(1), &json!(lines)), "{}", store.name);
        assert_eq!((&diff["tools_added"], &diff["tools_removed"]), (&json!([]), &json!(["nowhere"])));
        assert_eq!(diff["model"], json!({"before": null, "after": "fast"}));
        let diff = got(&client, &format!("{PATH}/versions/1/diff?against=3")).await;
        assert_eq!(diff["active"], json!({"before": false, "after": true}));
        assert_eq!(got(&client, &format!("{PATH}/versions/1/diff")).await["against"], Value::Null);
        for path in ["versions/9/diff", "versions/x/diff", "versions/1/diff?against=9", "versions/1/diff?against=0"] {
            assert_eq!(client.get(&format!("{PATH}/{path}")).await.status, 404, "{path}");
        }

        assert_eq!(client.request(Method::DELETE, PATH, &[], Vec::new().into()).await.json()["deleted"], true);
        for path in [PATH.to_owned(), format!("{PATH}/versions"), format!("{PATH}/versions/1/diff")] {
            assert_eq!(client.get(&path).await.status, 404, "{}: {path}", store.name);
        }
        assert_eq!(client.request(Method::DELETE, PATH, &[], Vec::new().into()).await.status, 404);
    }
}

#[tokio::test]
async fn profiles_are_a_tenants_own_and_listed_in_pages() {
    for store in stores() {
        let office = Office::on(&store).await;
        for slug in ["b", "a", "c"] {
            sent(&office.a(), Method::PUT, &format!("/admin/profiles/{slug}"), &json!({"prompt": slug})).await;
        }
        let slugs = |list: &Value| -> Vec<String> {
            let data = list["data"].as_array().into_iter().flatten();
            data.map(|one| one["slug"].as_str().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(slugs(&got(&office.a(), "/admin/profiles").await), ["a", "b", "c"], "{}", store.name);
        let page = got(&office.a(), "/admin/profiles?limit=2").await;
        assert_eq!(
            (slugs(&page), &page["last_id"], &page["has_more"]),
            (vec!["a".into(), "b".into()], &json!("b"), &json!(true))
        );
        assert_eq!(slugs(&got(&office.a(), "/admin/profiles?after=b").await), ["c"]);
        assert_eq!(slugs(&got(&office.b(), "/admin/profiles").await), [""; 0]);
        assert_eq!(slugs(&got(&office.operator(), "/admin/profiles?tenant_id=1").await), ["a", "b", "c"]);
        assert_eq!(slugs(&got(&office.operator(), "/admin/profiles?tenant_id=2").await), [""; 0]);
        let foreign = sent(&office.operator(), Method::PUT, "/admin/profiles/d?tenant_id=2", &json!({})).await;
        assert_eq!(foreign["version"], 1);
        assert_eq!(slugs(&got(&office.b(), "/admin/profiles").await), ["d"], "{}", store.name);
        for (path, status) in
            [("/admin/profiles?tenant_id=1", 403), ("/admin/profiles?tenant_id=77", 403), ("/admin/profiles/a", 404)]
        {
            assert_eq!(office.b().get(path).await.status, status, "{path}");
        }
        assert_eq!(office.operator().get("/admin/profiles?tenant_id=77").await.status, 404);
        assert_eq!(office.user().get("/admin/profiles").await.status, 403);
        let put = |path: &'static str, body: Value| {
            let client = office.a();
            async move { send(&client, Method::PUT, path, &body).await }
        };
        assert_refused(&put("/admin/profiles/a%20b", json!({})).await, 400, Some("slug"), "invalid_value");
        assert_refused(&put("/admin/profiles/a", json!({"slug": "b"})).await, 400, Some("slug"), "invalid_value");
        assert_refused(
            &put("/admin/profiles/a", json!({"tools": ["no such name"]})).await,
            400,
            Some("tools"),
            "invalid_type",
        );
        assert_refused(
            &put("/admin/profiles/a", json!({"prompts": ""})).await,
            400,
            Some("prompts"),
            "unknown_parameter",
        );
    }
}
