//! `/admin/modes` and `amalgam modes`: those that every tenant has, and those that it defines itself.

use http::Method;
use serde_json::{Value, json};

use super::{Office, got, send, sent};
use crate::support::{assert_refused, error_of, stores};

const PATH: &str = "/admin/modes/review";

/// The names in a list, each with whether it is as every tenant has it.
fn names(list: &Value) -> Vec<(&str, bool)> {
    let listed = list["data"].as_array().into_iter().flatten();
    listed.map(|mode| (mode["name"].as_str().unwrap_or_default(), mode["seeded"] == true)).collect()
}

const SEEDED: [(&str, bool); 4] = [("CODE_EDIT", true), ("DDR_CREATION", true), ("general", true), ("QA", true)];

#[tokio::test]
async fn a_mode_is_kept_whole_and_can_be_sent_back_as_it_is_shown() {
    // O-35
    for store in stores() {
        let office = Office::on(&store).await;
        let client = office.a();
        assert_eq!(names(&got(&client, "/admin/modes").await), SEEDED, "{}", store.name);
        office.cli.json(&["seed", "tools"]);
        let scope = json!([{"Key": "language", "Operator": "==", "Values": ["rust"]}]);
        let order = json!({"display_name": "Reviewing", "system_prompt": "Look.\nTell.",
            "tools": ["get_course_detail", "nowhere"], "tool_choice": "get_course_detail", "rag_scope": scope});
        let answer = send(&client, Method::PUT, PATH, &order).await;
        assert_eq!(answer.status, 201, "{}: {}", store.name, answer.text());
        let made = answer.json();
        let mut expected = json!({
            "name": "review", "object": "mode", "display_name": "Reviewing", "system_prompt": "Look.\nTell.",
            "tools": ["get_course_detail", "nowhere"], "tool_choice": "get_course_detail",
            "rag_scope": [{"key": "language", "operator": "==", "values": ["rust"]}],
            "seeded": false, "unknown_tools": ["nowhere"],
        });
        for time in ["created_at", "updated_at"] {
            assert!(made[time].as_u64().is_some_and(|seconds| seconds > 0), "{made}");
            expected[time] = made[time].clone();
        }
        assert_eq!(made, expected, "{}", store.name);
        assert_eq!(got(&client, "/admin/modes/REVIEW").await, made, "a name is the same whatever its case");
        let again = send(&client, Method::PUT, PATH, &made).await;
        assert_eq!((again.status.as_u16(), &again.json()["rag_scope"]), (200, &made["rag_scope"]), "{}", store.name);
        // Paged by name.
        let page = got(&client, "/admin/modes?limit=3").await;
        assert_eq!((names(&page), &page["has_more"]), (SEEDED[..3].to_vec(), &json!(true)));
        let rest = got(&client, "/admin/modes?limit=3&after=general").await;
        assert_eq!((names(&rest), &rest["has_more"]), (vec![("QA", true), ("review", false)], &json!(false)));
        // No other tenant has it.
        assert_eq!(office.b().get(PATH).await.status, 404);
        assert_eq!(names(&got(&office.b(), "/admin/modes").await), SEEDED);
        assert_eq!(got(&office.operator(), &format!("{PATH}?tenant_id=1")).await["name"], "review");
        let gone = sent(&client, Method::DELETE, PATH, &json!({})).await;
        assert_eq!(gone, json!({"id": "review", "object": "mode.deleted", "deleted": true}));
        assert_eq!(client.get(PATH).await.status, 404);
    }
}

#[tokio::test]
async fn a_seeded_mode_can_be_defined_anew_and_comes_back() {
    for store in stores() {
        let office = Office::on(&store).await;
        let client = office.a();
        let seeded = got(&client, "/admin/modes/QA").await;
        assert_eq!([&seeded["seeded"], &seeded["created_at"]], [&json!(true), &json!(null)]);
        let refused = send(&client, Method::DELETE, "/admin/modes/QA", &json!({})).await;
        assert_refused(&refused, 409, Some("name"), "mode_is_seeded");
        assert!(error_of(&refused)["message"].as_str().is_some_and(|why| why.contains("every tenant")));

        let own = json!({"name": "qa", "system_prompt": "Ours."});
        assert_eq!(send(&client, Method::PUT, "/admin/modes/QA", &own).await.status, 201, "{}", store.name);
        let shown = got(&client, "/admin/modes/QA").await;
        let fields = ["name", "display_name", "system_prompt", "seeded"];
        assert_eq!(fields.map(|name| &shown[name]), [&json!("qa"), &json!("qa"), &json!("Ours."), &json!(false)]);
        let expected = [&SEEDED[..3], &[("qa", false)]].concat();
        assert_eq!(names(&got(&client, "/admin/modes").await), expected, "{}", store.name);
        assert_eq!(got(&office.b(), "/admin/modes/QA").await, seeded, "{}: others keep theirs", store.name);
        sent(&client, Method::DELETE, "/admin/modes/Qa", &json!({})).await;
        assert_eq!(got(&client, "/admin/modes/QA").await, seeded, "{}", store.name);
    }
}

#[tokio::test]
async fn faults_of_a_mode_name_the_field_and_only_administrators_reach_modes() {
    let [store, ..] = &stores()[..] else { return };
    let office = Office::on(store).await;
    let client = office.a();
    let wrong = json!([{"key": "path", "operator": "like", "values": ["x"]}]);
    for (path, body, param, code) in [
        (PATH, json!({"tools": ["a b"]}), "tools", "invalid_type"),
        (PATH, json!({"rag_scope": wrong}), "rag_scope[0].operator", "invalid_value"),
        (PATH, json!({"name": "other"}), "name", "invalid_value"),
        (PATH, json!({"prompt": "x"}), "prompt", "unknown_parameter"),
        ("/admin/modes/a%20b", json!({}), "name", "invalid_value"),
    ] {
        assert_refused(&send(&client, Method::PUT, path, &body).await, 400, Some(param), code);
    }
    assert_eq!(send(&client, Method::DELETE, PATH, &json!({})).await.status, 404);
    assert_eq!(names(&got(&client, "/admin/modes").await), SEEDED, "nothing was kept");
    let user = office.user();
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        assert_eq!(send(&user, method.clone(), PATH, &json!({})).await.status, 403, "{method}");
    }
    assert_eq!(client.get("/admin/modes?tenant_id=2").await.status, 403);
}

#[tokio::test]
async fn modes_from_the_command_line_are_the_servers_at_once_and_the_other_way_round() {
    for store in stores() {
        let office = Office::on(&store).await;
        let file = office.world.amalgam.folder().join("mode.json");
        let path = file.to_str().unwrap();
        std::fs::write(&file, json!({"name": "review", "tools": ["nowhere"], "system_prompt": "Look."}).to_string())
            .unwrap();
        let made = office.cli.json(&["modes", "put", path, "--company-id", "1"]);
        assert_eq!(got(&office.a(), PATH).await, made, "{}", store.name);
        sent(&office.a(), Method::PUT, PATH, &json!({"display_name": "Reviewing"})).await;
        let shown = office.cli.json(&["modes", "show", "REVIEW", "--tenant", "1"]);
        assert_eq!(shown["display_name"], "Reviewing");
        std::fs::write(&file, shown.to_string()).unwrap();
        let put = office.cli.text(&["modes", "put", path, "--company-id", "1"]);
        assert!(put.contains("replaced mode"), "{put}");
        let listed = office.cli.json(&["modes", "list", "--company-id", "1"]);
        assert_eq!(names(&listed), [&SEEDED[..], &[("review", false)]].concat());
        let table = office.cli.text(&["modes", "list", "--company-id", "2"]);
        assert!(table.contains("DDR_CREATION") && !table.contains("review"), "{table}");
        assert_eq!(office.cli.text(&["modes", "delete", "review", "--company-id", "1"]), "removed review\n");
        assert_eq!(office.a().get(PATH).await.status, 404);
        std::fs::write(&file, json!({"name": "general"}).to_string()).unwrap();
        office.cli.text(&["modes", "put", path, "--company-id", "1"]);
        let back = office.cli.text(&["modes", "delete", "general", "--company-id", "1"]);
        assert!(back.contains("built-in mode applies again"), "{back}");
        for (arguments, word) in [
            (&["modes", "show", "review", "--company-id", "1"][..], "not found"),
            (&["modes", "delete", "general", "--company-id", "1"], "cannot be deleted"),
            (&["modes", "list", "--company-id", "99"], "there is no tenant 99"),
            (&["modes", "list"], "--tenant"),
            (&["modes", "put", "nowhere.json", "--company-id", "1"], "nowhere.json"),
        ] {
            let failure = office.cli.failure(arguments);
            assert!(failure.contains(word), "{arguments:?}: {failure}");
        }
    }
}
