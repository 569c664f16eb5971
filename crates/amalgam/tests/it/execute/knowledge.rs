//! What a tenant knows, and what of it a turn is given: the block in the model's message, and the same as sources.

use std::fs;

use amalgam_testkit::Setup;
use serde_json::{Value, json};

use super::desk::{Desk, KEY, OTHER, open, opened, put, results, taken, turn};
use crate::support::{Cli, Script, TestStore, Wire, stores};

const FILES: [(&str, &str); 4] = [
    ("src/penguin.rs", "/// Feeds one penguin.\nfn feed_penguin(fish: u32) -> u32 {\n    fish + 1\n}\n"),
    ("docs/penguin.md", "# Penguins\n\nA penguin eats fish.\n\n```rust\nfeed_penguin(1);\n```\n"),
    ("src/heron.py", "def feed_heron(fish):\n    return fish\n"),
    ("notes.txt", "Nothing of interest.\n"),
];

/// A setup whose first tenant has these files.
async fn desk(store: &TestStore, setup: Setup) -> Desk {
    let desk = Desk::with(store, setup).await;
    let root = desk.world.amalgam.folder().join("zoo");
    for (path, text) in FILES {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder can be made");
        fs::write(path, text).expect("the folder of a test takes a file");
    }
    let root = root.to_str().expect("a temporary folder has a plain name");
    let import = ["knowledge", "import", root, "--collection", "zoo", "--company-id", "1", "--repo", "zoo-repo"];
    Cli::beside(&desk.world.amalgam, store).text(&[&import[..], &["--attribute", "team=birds"]].concat());
    desk
}

/// The block that the model was given last; nothing where there was none.
fn block(desk: &Desk) -> Option<String> {
    let request = desk.asked(Wire::Responses).pop().expect("the model was asked");
    let said = request["input"].as_array().expect("items").iter().rfind(|item| item["role"] == "user");
    let parts = said.expect("the user said something")["content"].as_array().expect("a message has parts").clone();
    let mut blocks = parts.iter().filter_map(|part| part["text"].as_str()).filter(|text| text.starts_with("[CONTEXT]"));
    let block = blocks.next().map(str::to_owned);
    assert_eq!(blocks.next(), None, "one block at most");
    block
}

/// What the block says of its pieces, and fails unless the answer's sources say the same. R004-27
fn sources(desk: &Desk, envelope: &Value) -> Vec<String> {
    let block = block(desk).unwrap_or_default();
    let lines =
        |name: &str| block.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect::<Vec<_>>();
    let (ids, paths, ranges, languages) = (lines("Id: "), lines("Path: "), lines("Lines: "), lines("Language: "));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let told: Vec<(String, String, String, String)> = envelope["Sources"]
        .as_array()
        .expect("sources are a list")
        .iter()
        .map(|source| {
            let range = format!("{}-{}", source["StartLine"], source["EndLine"]);
            (text(&source["Id"]), text(&source["Path"]), range, text(&source["Language"]))
        })
        .collect();
    let shown: Vec<_> = ids.into_iter().zip(paths.clone()).zip(ranges).zip(languages).collect();
    let shown: Vec<_> = shown.into_iter().map(|(((id, path), range), language)| (id, path, range, language)).collect();
    assert_eq!(told, shown, "{block}");
    paths
}

async fn asks(desk: &Desk, session: &str, turn_id: &str, instruction: &str, scope: Value) -> Value {
    desk.says(Wire::Responses, [Script::text(&["Ok."])]);
    let mut body = turn(session, turn_id, instruction);
    body["RagScope"] = scope;
    taken(&desk.user("ana"), &body).await
}

#[tokio::test]
async fn what_is_found_stands_in_the_message_and_is_told_as_its_sources() {
    // R003-28, R003-30, R003-32, R004-27, R034-11, O-01 to O-05, O-08
    for store in stores() {
        let desk = desk(&store, Setup::new()).await;
        let id = open(&desk.user("ana"), Wire::Responses).await;
        let envelope = asks(&desk, &id, "t1", "How is a penguin fed?", json!([])).await;
        let mut paths = sources(&desk, &envelope);
        let shown = block(&desk).expect("something was found");
        assert!(shown.starts_with("[CONTEXT]\n\n=== CHUNK 1 ===\nId: "), "{shown}");
        // The piece with a fence of its own is within a longer one.
        assert!(shown.contains("````markdown\n# Penguins") && shown.contains("```rust\n/// Feeds"), "{shown}");
        paths.sort_unstable();
        paths.dedup();
        assert!(
            paths.contains(&"src/penguin.rs".to_owned()) && paths.contains(&"docs/penguin.md".to_owned()),
            "{paths:?}"
        );
        // Nothing found is no block at all, and sent again it is still what it was.
        let nothing = asks(&desk, &id, "t2", "xylophone", json!([])).await;
        assert_eq!((block(&desk), &nothing["Sources"]), (None, &json!([])), "{}", store.name);
        assert_eq!(taken(&desk.user("ana"), &turn(&id, "t1", "How is a penguin fed?")).await, envelope);
    }
}

#[tokio::test]
async fn a_scope_keeps_out_what_it_does_not_admit() {
    // R034-11
    for store in stores() {
        let desk = desk(&store, Setup::new()).await;
        let id = open(&desk.user("ana"), Wire::Responses).await;
        let condition =
            |key: &str, operator: &str, values: &[&str]| json!({"Key": key, "Operator": operator, "Values": values});
        let cases = [
            (json!([condition("language", "==", &["python"])]), vec!["src/heron.py"]),
            (json!([condition("language", "!=", &["python", "markdown"])]), vec!["src/penguin.rs"]),
            (json!([condition("path", "contains", &["docs/"])]), vec!["docs/penguin.md"]),
            (json!([condition("path", "does_not_contain", &["penguin"])]), vec!["src/heron.py"]),
            (
                json!([condition("repo", "==", &["zoo-repo"]), condition("path", "contains", &["heron"])]),
                vec!["src/heron.py"],
            ),
            (json!([condition("team", "==", &["birds"]), condition("collection", "!=", &["zoo"])]), vec![]),
            (json!([condition("team", "==", &["cats"])]), vec![]),
            (json!({"Conditions": [condition("language", "==", &["rust"])]}), vec!["src/penguin.rs"]),
        ];
        for (number, (scope, expected)) in cases.into_iter().enumerate() {
            let envelope = asks(&desk, &id, &format!("t{number}"), "Who eats fish?", scope.clone()).await;
            let mut paths = sources(&desk, &envelope);
            paths.dedup();
            assert_eq!(paths, expected, "{} {scope}", store.name);
        }
    }
}

#[tokio::test]
async fn a_mode_looks_where_it_is_told_to_unless_the_turn_says_otherwise() {
    // R034-11
    for store in stores() {
        let desk = desk(&store, Setup::new()).await;
        let scope = json!([{"key": "language", "operator": "==", "values": ["python"]}]);
        let mode =
            json!({"display_name": "Snakes", "system_prompt": "Think of snakes.", "tools": [], "rag_scope": scope});
        put(&desk.admin(KEY), "/admin/modes/SNAKES", &mode).await;
        let id = opened(&desk.user("ana"), &json!({"AgentContextId": "responses", "Mode": "snakes"})).await;
        let envelope = asks(&desk, &id, "t1", "Who eats fish?", json!([])).await;
        assert_eq!(sources(&desk, &envelope), ["src/heron.py"], "{}", store.name);
        let own = json!([{"Key": "language", "Operator": "==", "Values": ["rust"]}]);
        let envelope = asks(&desk, &id, "t2", "Who eats fish?", own).await;
        assert_eq!(sources(&desk, &envelope), ["src/penguin.rs"], "{}", store.name);
    }
}

#[tokio::test]
async fn a_budget_bounds_the_block_and_says_so() {
    // R004-27
    for (tokens, least) in [(0, 0), (60, 1)] {
        for store in stores() {
            let setup = Setup::new().extra(&format!("[execute]\ncontext_tokens = {tokens}"));
            let desk = desk(&store, setup).await;
            let id = open(&desk.user("ana"), Wire::Responses).await;
            let envelope = asks(&desk, &id, "t1", "penguin fish feed", json!([])).await;
            let paths = sources(&desk, &envelope);
            let warned = envelope["Warnings"].to_string().contains("truncated");
            assert!(paths.len() >= least && (tokens == 0) == paths.is_empty(), "{tokens}: {envelope}");
            assert_eq!(warned, tokens > 0, "{tokens}: {envelope}");
        }
    }
}

#[tokio::test]
async fn what_one_tenant_knows_no_other_hears_of() {
    // S10
    for store in stores() {
        let desk = desk(&store, Setup::new()).await;
        let stranger = desk.admin(OTHER).with_header("x-amalgam-user", "ana");
        let id = open(&stranger, Wire::Responses).await;
        desk.says(Wire::Responses, [Script::text(&["Ok."])]);
        let envelope = taken(&stranger, &turn(&id, "t1", "How is a penguin fed?")).await;
        assert_eq!((block(&desk), &envelope["Sources"]), (None, &json!([])), "{}", store.name);
    }
}

#[tokio::test]
async fn the_rest_of_a_turn_has_the_sources_that_it_began_with() {
    // R004-27, C-07
    for store in stores() {
        let desk = desk(&store, Setup::new()).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        desk.says(Wire::Responses, [super::desk::both(), Script::text(&["Fed."])]);
        let waiting = taken(&ana, &turn(&id, "t1", "How is a penguin fed?")).await;
        let begun = block(&desk);
        assert!(!sources(&desk, &waiting).is_empty());
        let done = taken(&ana, &results(&id, "t1", &[("call_a", "1"), ("call_b", "2")])).await;
        // The model still reads them: they are in the history, and nothing is looked up a second time.
        assert_eq!((block(&desk), &done["Sources"]), (begun, &waiting["Sources"]), "{}", store.name);
    }
}
