//! Catalogues from files.

use amalgam_testkit::Setup;
use serde_json::{Value, json};

use super::Campus;
use crate::support::stores;

const CSV: &str = "id,title,description,tags,active\n\
    1,Leading Teams,\"How to lead,\nkindly\",leadership|teams,true\n\
    2,Public Speaking,Talk to people,speaking,true\n";

async fn found(campus: &Campus, key: &str, query: &str) -> Vec<u64> {
    let page = campus.get(key, &format!("/api/v2/course-recommendations/?q={query}&page_size=50")).await;
    page["results"].as_array().into_iter().flatten().filter_map(|course| course["id"].as_u64()).collect()
}

#[tokio::test]
async fn courses_of_a_file_are_found_at_once_and_by_their_own_tenant_alone() {
    for store in stores() {
        let campus = Campus::on(&store, Setup::new()).await;
        let file = |name: &str, text: &str| {
            let path = campus.amalgam.folder().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let csv = file("courses.csv", CSV);
        let import = |path: &str| campus.cli.json(&["courses", "import", path, "--company-id", "1"]);
        let counts = |told: &Value| ["created", "updated", "unchanged", "bad"].map(|name| told[name].as_u64().unwrap());

        assert_eq!(counts(&import(&csv)), [2, 0, 0, 0], "{}", store.name);
        assert_eq!(found(&campus, "am_a", "leadership").await, [1]);
        assert_eq!(found(&campus, "am_b", "leadership").await, [0; 0], "{}: another tenant's", store.name);
        assert_eq!(counts(&import(&csv)), [0, 0, 2, 0], "{}: twice is as good as once", store.name);

        // The same in JSON: one is changed, one is new, one is as it was.
        let json = json!([
            {"id": 1, "title": "Leading Teams", "description": "How to lead,\nkindly", "tags": ["leadership", "teams"]},
            {"id": 2, "title": "Storytelling", "description": "Talk to people", "tags": ["speaking"]},
            {"id": 3, "title": "Kepemimpinan Dasar", "tags": ["kepemimpinan"]},
        ]);
        let json = file("courses.json", &json.to_string());
        assert_eq!(counts(&import(&json)), [1, 1, 1, 0], "{}", store.name);
        assert_eq!(found(&campus, "am_a", "storytelling").await, [2]);
        assert_eq!(found(&campus, "am_a", "public").await, [0; 0], "{}: what it was before is not found", store.name);
        let listed = campus.cli.json(&["courses", "list", "--company-id", "1", "--query", "pemimpin"]);
        assert_eq!(listed["data"][0]["id"], 3, "{listed}");
        let table = campus.cli.text(&["courses", "list", "--company-id", "1"]);
        assert!(table.contains("Storytelling") && table.lines().count() == 4, "{table}");
    }
}

#[tokio::test]
async fn bad_rows_are_told_by_line_and_nothing_is_written_where_that_was_asked_for() {
    for store in stores() {
        let campus = Campus::on(&store, Setup::new()).await;
        let path = campus.amalgam.folder().join("bad.csv");
        std::fs::write(&path, "id,title\n1,One\nx,Two\n3,\n4,Four\n").unwrap();
        let path = path.to_str().unwrap();

        let strict = ["courses", "import", path, "--company-id", "1", "--all-or-nothing"];
        let failure = campus.cli.failure(&strict);
        assert!(failure.contains("line 3:") && failure.contains("line 4:"), "{failure}");
        assert!(failure.contains("nothing was imported"), "{failure}");
        assert_eq!(found(&campus, "am_a", "").await, [0; 0], "{}", store.name);

        let output = campus.cli.run(&["courses", "import", path, "--company-id", "1", "--json"]);
        assert_eq!(output.status.code(), Some(1), "{}: a script hears of bad rows", store.name);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&told["created"], &told["bad"]), (&json!(2), &json!(2)), "{told}");
        assert_eq!(told["faults"][0]["line"], 3, "{told}");
        assert_eq!(found(&campus, "am_a", "").await, [1, 4], "{}", store.name);

        for (arguments, words) in [
            (&["courses", "import", path, "--company-id", "9"][..], "there is no tenant 9"),
            (&["courses", "import", "nowhere.csv", "--company-id", "1"], "nowhere.csv"),
            (&["courses", "import", "courses.txt", "--company-id", "1"], "neither .csv nor .json"),
            (&["courses", "list", "--company-id", "9"], "there is no tenant 9"),
        ] {
            let failure = campus.cli.failure(arguments);
            assert!(failure.contains(words), "{arguments:?}: {failure}");
        }
    }
}
