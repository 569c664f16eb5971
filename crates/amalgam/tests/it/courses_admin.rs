//! `/admin/courses`: the catalogue, and what of it belongs to single learners, as both course tools and the
//! recommendations show it.

use amalgam_testkit::{Client, HttpAnswer, Setup};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::{Cli, TestStore, World, assert_refused, stores};

const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";

struct Catalogue {
    world: World,
    cli: Cli,
}

impl Catalogue {
    async fn on(store: &TestStore) -> Self {
        let world = World::with(store.setup(Setup::new().extra(TENANTS)), &[]).await;
        let cli = Cli::beside(&world.amalgam, store);
        let catalogue = Self { world, cli };
        for tool in ["get_course_detail", "get_course_recommendation"] {
            let builtin = json!({"kind": "builtin", "settings": {"function": tool}});
            let put = send(&catalogue.admin("am_a"), Method::PUT, &format!("/admin/tools/{tool}"), &builtin).await;
            assert!(put.status.is_success(), "{}", put.text());
        }
        catalogue
    }

    fn admin(&self, key: &str) -> Client {
        Client::new(self.world.amalgam.url()).with_key(key)
    }

    fn learner(&self, user: &str) -> Client {
        self.admin("am_a").with_header("x-amalgam-user", user)
    }

    /// What a learner is recommended for `rust`: number, status, progress, eligibility and list of each course.
    async fn recommended(&self, user: &str) -> Vec<Value> {
        let answer = self.learner(user).get("/api/v2/course-recommendations/?q=rust").await.json();
        let found = answer["results"].as_array().cloned().unwrap_or_default();
        let own =
            |one: &Value| json!([one["id"], one["status"], one["progress"], one["is_eligible"], one["in_playlist"]]);
        found.iter().map(own).collect()
    }
}

async fn send(client: &Client, method: Method, path: &str, body: &Value) -> HttpAnswer {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    client.request(method, path, &[("content-type", "application/json")], body).await
}

fn rust(id: i64) -> Value {
    json!({"id": id, "title": format!("Rust {id}"), "tags": ["systems"]})
}

#[tokio::test]
async fn a_course_is_created_replaced_listed_found_and_deleted() {
    for store in stores() {
        let catalogue = Catalogue::on(&store).await;
        let admin = catalogue.admin("am_a");
        let new =
            send(&admin, Method::PUT, "/admin/courses/7", &json!({"title": "Rust", "tags": ["a|b"], "progress": 5}))
                .await;
        assert_eq!(new.status, 201, "{}: {}", store.name, new.text());
        let mut shown = admin.get("/admin/courses/7").await.json();
        let expected = json!({
            "id": 7, "object": "course", "title": "Rust", "description": "", "modality": "Learn", "type": "Course",
            "status": null, "content_in_sequence": false, "min_percentage_finish": 100, "tags": ["a|b"], "assets": [],
            "url": null, "progress": 5, "is_eligible": true, "in_playlist": false, "active": true,
        });
        assert_eq!(shown, expected, "{}", store.name);
        // What is shown can be sent back.
        shown["active"] = json!(false);
        let changed = send(&admin, Method::PUT, "/admin/courses/7", &shown).await;
        assert_eq!((changed.status.as_u16(), changed.json()["active"].clone()), (200, json!(false)), "{}", store.name);
        for id in [3, 9] {
            send(&admin, Method::PUT, &format!("/admin/courses/{id}"), &rust(id)).await;
        }
        let page = admin.get("/admin/courses?limit=2").await.json();
        assert_eq!(
            (&page["data"][1]["id"], &page["has_more"]),
            (&json!(7), &json!(true)),
            "{}: also inactive",
            store.name
        );
        let page = admin.get("/admin/courses?limit=2&after=7").await.json();
        assert_eq!((&page["data"][0]["id"], &page["has_more"]), (&json!(9), &json!(false)), "{}", store.name);
        let first = admin.get("/admin/courses?q=rust&limit=1").await.json();
        assert_eq!((&first["data"][0]["id"], &first["has_more"]), (&json!(3), &json!(true)), "{}: {first}", store.name);
        let after = format!("/admin/courses?q=rust&limit=1&after={}", first["last_id"]);
        let second = admin.get(&after).await.json();
        assert_eq!((&second["data"][0]["id"], &second["has_more"]), (&json!(9), &json!(false)), "{}", store.name);

        assert_eq!(send(&admin, Method::DELETE, "/admin/courses/3", &Value::Null).await.status, 200, "{}", store.name);
        assert_eq!(admin.get("/admin/courses/3").await.status, 404, "{}", store.name);
        assert_eq!(send(&admin, Method::DELETE, "/admin/courses/3", &Value::Null).await.status, 404, "{}", store.name);
        assert_eq!(catalogue.recommended("ada").await, [json!([9, null, 0, true, false])], "{}", store.name);
        // Put again, it is found again: its words went with it and came back.
        send(&admin, Method::PUT, "/admin/courses/3", &rust(3)).await;
        assert_eq!(catalogue.recommended("ada").await.len(), 2, "{}", store.name);
    }
}

#[tokio::test]
async fn what_a_learner_has_of_a_course_is_its_own() {
    for store in stores() {
        let catalogue = Catalogue::on(&store).await;
        let admin = catalogue.admin("am_a");
        send(&admin, Method::POST, "/admin/courses/bulk", &json!({"upsert": [rust(1), rust(2)]})).await;
        let path = "/admin/courses/users/ada/1";
        let own = json!({"status": "Started", "progress": 40, "is_eligible": false, "in_playlist": true});
        assert_eq!(send(&admin, Method::PUT, path, &own).await.status, 201, "{}", store.name);
        let plain = |id: i64| json!([id, null, 0, true, false]);
        let adas = [json!([1, "Started", 40, false, true]), plain(2)];
        assert_eq!(catalogue.recommended("ada").await, adas, "{}", store.name);
        assert_eq!(catalogue.recommended("bert").await, [plain(1), plain(2)], "{}", store.name);

        // Both course tools show the same, as they run inside a turn of the learner.
        for (tool, arguments, place) in [
            ("get_course_detail", json!({"course_id": 1}), "/course/status"),
            ("get_course_recommendation", json!({"query": "rust"}), "/results/0/status"),
        ] {
            let tried = json!({"arguments": arguments});
            let tried =
                send(&catalogue.learner("ada"), Method::POST, &format!("/admin/tools/{tool}/try"), &tried).await;
            let tried = tried.json();
            assert_eq!(tried["output"].pointer(place), Some(&json!("Started")), "{}: {tool}: {tried}", store.name);
        }

        // A value that is left out is the catalogue's.
        let replaced = send(&admin, Method::PUT, path, &json!({"progress": 60})).await;
        assert_eq!(replaced.status, 200, "{}", store.name);
        assert_eq!(catalogue.recommended("ada").await[0], json!([1, null, 60, true, false]), "{}", store.name);
        let listed = admin.get("/admin/courses/users/ada").await.json();
        let expected = json!({
            "id": "1:ada", "object": "learner_course", "user": "ada", "course_id": 1, "status": null, "progress": 60,
            "is_eligible": null, "in_playlist": null, "updated_at": listed["data"][0]["updated_at"],
        });
        assert_eq!(listed["data"], json!([expected]), "{}", store.name);
        assert_eq!(admin.get(path).await.json(), expected, "{}", store.name);
        assert_eq!(send(&admin, Method::DELETE, path, &Value::Null).await.status, 200, "{}", store.name);
        assert_eq!(admin.get(path).await.status, 404, "{}", store.name);
        assert_eq!(catalogue.recommended("ada").await, [plain(1), plain(2)], "{}", store.name);
    }
}

#[tokio::test]
async fn ten_thousand_entries_are_written_in_one_call_or_none_at_all() {
    for store in stores() {
        let catalogue = Catalogue::on(&store).await;
        let admin = catalogue.admin("am_a");
        let many: Vec<Value> = (1..=9_999).map(rust).collect();
        let changed =
            send(&admin, Method::POST, "/admin/courses/bulk", &json!({"upsert": many, "delete": [20_000]})).await;
        let counts = json!({"object": "course.changes", "created": 9_999, "updated": 0, "unchanged": 0, "deleted": 0});
        assert_eq!(changed.json(), counts, "{}", store.name);
        let overlay: Vec<Value> = (1..=9_999)
            .map(|id| json!({"user": format!("u{}", id % 7), "course_id": id, "progress": id % 101}))
            .collect();
        let changed = send(&admin, Method::POST, "/admin/courses/users", &json!({"upsert": overlay})).await;
        let counts = json!({"object": "learner_course.changes", "written": 9_999, "deleted": 0});
        assert_eq!(changed.json(), counts, "{}", store.name);
        let page = admin.get("/admin/courses/users?limit=100").await.json();
        let next = admin
            .get(&format!("/admin/courses/users?limit=1&after={}", page["last_id"].as_str().unwrap_or_default()))
            .await;
        assert_eq!(next.json()["data"][0]["id"], "707:u0", "{}", store.name);

        let wrong = json!({"upsert": [rust(1), {"id": 2}], "delete": [3]});
        assert_refused(
            &send(&admin, Method::POST, "/admin/courses/bulk", &wrong).await,
            400,
            Some("upsert[1]"),
            "invalid_value",
        );
        for (body, param) in [
            (json!({"upsert": [rust(1), rust(1)]}), "upsert[1]"),
            (json!({"upsert": [rust(1)], "delete": [1]}), "delete[0]"),
            (json!({"delete": (1..=10_001).collect::<Vec<i64>>()}), "upsert"),
            (json!({"upsert": "all"}), "body"),
        ] {
            let refused = send(&admin, Method::POST, "/admin/courses/bulk", &body).await;
            assert_refused(&refused, 400, Some(param), "invalid_value");
        }
        for (body, param) in [
            (json!({"upsert": [{"user": "a", "course_id": 0}]}), "upsert[0]"),
            (json!({"upsert": [{"user": "a\u{0}b", "course_id": 1}]}), "upsert[0]"),
            (json!({"upsert": [{"course_id": 1}]}), "upsert[0]"),
            (json!({"upsert": [{"user": "a", "course_id": 1, "progress": 101}]}), "upsert[0]"),
            (json!({"delete": [{"user": "a\u{0}", "course_id": 1}]}), "delete[0].user"),
        ] {
            let refused = send(&admin, Method::POST, "/admin/courses/users", &body).await;
            assert_refused(&refused, 400, Some(param), "invalid_value");
        }
        assert_eq!(admin.get("/admin/courses/3").await.status, 200, "{}: nothing was deleted", store.name);

        let ids: Vec<i64> = (1..=9_999).collect();
        let changed = send(&admin, Method::POST, "/admin/courses/bulk", &json!({"delete": ids})).await.json();
        assert_eq!(changed["deleted"], 9_999, "{}: {changed}", store.name);
        assert_eq!(
            admin.get("/admin/courses/users").await.json()["data"],
            json!([]),
            "{}: theirs went too",
            store.name
        );
    }
}

#[tokio::test]
async fn another_tenant_reaches_neither_courses_nor_learners() {
    for store in stores() {
        let catalogue = Catalogue::on(&store).await;
        let (a, b) = (catalogue.admin("am_a"), catalogue.admin("am_b"));
        send(&a, Method::PUT, "/admin/courses/1", &rust(1)).await;
        send(&a, Method::PUT, "/admin/courses/users/ada/1", &json!({"progress": 3})).await;
        for path in ["/admin/courses/1", "/admin/courses/users/ada/1"] {
            assert_eq!(b.get(path).await.status, 404, "{}: {path}", store.name);
            assert_eq!(send(&b, Method::DELETE, path, &Value::Null).await.status, 404, "{}: {path}", store.name);
        }
        for path in ["/admin/courses", "/admin/courses?q=rust", "/admin/courses/users", "/admin/courses/users/ada"] {
            assert_eq!(b.get(path).await.json()["data"], json!([]), "{}: {path}", store.name);
        }
        assert_eq!(b.get("/admin/courses?tenant_id=1").await.status, 403, "{}", store.name);
        assert_eq!(
            send(&b, Method::DELETE, "/admin/courses/users/ada", &Value::Null).await.status,
            404,
            "{}",
            store.name
        );
        assert_eq!(a.get("/admin/courses/users/ada/1").await.status, 200, "{}", store.name);
    }
}

#[tokio::test]
async fn commands_show_change_and_import_what_the_api_does() {
    for store in stores() {
        let catalogue = Catalogue::on(&store).await;
        let admin = catalogue.admin("am_a");
        send(&admin, Method::POST, "/admin/courses/bulk", &json!({"upsert": [rust(1), rust(2)]})).await;
        let file = catalogue.world.amalgam.folder().join("learners.csv");
        let rows = "user,course_id,status,progress,in_playlist\nada,1,Started,40,yes\nbert,2,,100,\nada,1,,,\n,2,,,\n";
        std::fs::write(&file, rows).expect("the folder of a test takes a file");
        let file = file.to_str().expect("a temporary folder has a plain name");
        let imported = catalogue.cli.run(&["courses", "learners", "import", file, "--tenant", "1", "--json"]);
        assert!(!imported.status.success(), "{}: invalid rows are noticed", store.name);
        let told: Value = serde_json::from_slice(&imported.stdout).expect("it prints JSON");
        assert_eq!((&told["written"], &told["bad"]), (&json!(2), &json!(2)), "{}: {told}", store.name);
        assert_eq!(catalogue.recommended("ada").await[0], json!([1, "Started", 40, true, true]), "{}", store.name);
        let listed = catalogue.cli.json(&["courses", "learners", "list", "--user", "bert", "--tenant", "1"]);
        assert_eq!(listed["data"][0]["progress"], 100, "{}: {listed}", store.name);
        catalogue.cli.text(&["courses", "learners", "remove", "ada", "--tenant", "1"]);
        assert_eq!(catalogue.recommended("ada").await[0], json!([1, null, 0, true, false]), "{}", store.name);
        assert_eq!(catalogue.cli.json(&["courses", "show", "2", "--tenant", "1"])["title"], "Rust 2", "{}", store.name);
        catalogue.cli.text(&["courses", "remove", "1", "2", "--tenant", "1"]);
        assert_eq!(admin.get("/admin/courses").await.json()["data"], json!([]), "{}", store.name);
    }
}
