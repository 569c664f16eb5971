//! The bank from the command line, beside a running server.

use amalgam_testkit::Reply;
use serde_json::{Value, json};

use super::{SECRET, Shop, names, put};
use crate::support::{Cli, stores};

#[tokio::test]
async fn a_tool_from_the_command_line_is_the_servers_at_once_and_the_other_way_round() {
    for store in stores() {
        let shop = Shop::open(&store).await;
        let cli = Cli::beside(&shop.world.amalgam, &store);
        let file = shop.world.amalgam.folder().join("tool.json");
        let path = file.to_str().unwrap();
        let mut tool = shop.lookup();
        tool["name"] = json!("lookup_order");
        std::fs::write(&file, tool.to_string()).unwrap();

        let made = cli.json(&["tools", "put", path, "--company-id", "1"]);
        assert_eq!(made["settings"]["headers"]["x-api-key"], json!({"secret": "***"}), "{}", store.name);
        assert_eq!(shop.a().get("/admin/tools/lookup_order").await.json(), made);
        assert_eq!(shop.b().get("/admin/tools/lookup_order").await.status, 404);
        shop.service.enqueue(Reply::json(json!({"status": "sent"})));
        shop.turn(&shop.a(), "lookup_order", r#"{"order_id": "1"}"#).await;
        assert_eq!(shop.service.request(0).header("x-api-key"), Some(SECRET));

        // A change through the server is seen by the command, and what it shows can be put back.
        let mut changed = made.clone();
        changed["timeout"] = json!(20);
        assert_eq!(put(&shop.a(), "/admin/tools/lookup_order", &changed).await.status, 200);
        let shown = cli.json(&["tools", "show", "lookup_order", "--company-id", "1"]);
        assert_eq!(shown["timeout"], json!(20));
        std::fs::write(&file, shown.to_string()).unwrap();
        assert!(cli.text(&["tools", "put", path, "--tenant", "1"]).contains("replaced "));
        shop.service.enqueue(Reply::json(json!({"b": 1, "a": 2})));
        let arguments = r#"{"order_id": "2"}"#;
        let output = cli.text(&["tools", "try", "lookup_order", "--company-id", "1", "--arguments", arguments]);
        assert_eq!(serde_json::from_str::<Value>(&output).unwrap(), json!({"b": 1, "a": 2}), "{output}");
        assert_eq!(shop.service.request(1).header("x-api-key"), Some(SECRET));
        let failure = cli.failure(&["tools", "try", "lookup_order", "--company-id", "1"]);
        assert!(failure.contains("invalid_arguments") && failure.contains("order_id"), "{failure}");

        std::fs::write(&file, json!({"name": "current_time", "kind": "builtin"}).to_string()).unwrap();
        cli.text(&["tools", "put", path, "--common"]);
        let listed = cli.json(&["tools", "list", "--company-id", "2"]);
        assert_eq!(names(&listed), [("current_time", true)]);
        let table = cli.text(&["tools", "list", "--company-id", "1"]);
        assert!(table.contains("lookup_order") && table.contains("common") && !table.contains(SECRET), "{table}");
        assert_eq!(names(&shop.b().get("/admin/tools").await.json()), [("current_time", true)]);

        cli.text(&["tools", "delete", "lookup_order", "--company-id", "1"]);
        assert_eq!(shop.a().get("/admin/tools/lookup_order").await.status, 404);
        for (arguments, word) in [
            (&["tools", "show", "lookup_order", "--company-id", "1"][..], "not found"),
            (&["tools", "delete", "current_time", "--company-id", "1"], "not found"),
            (&["tools", "list", "--company-id", "99"], "there is no tenant 99"),
            (&["tools", "list"], "--tenant"),
            (&["tools", "list", "--company-id", "1", "--common"], "cannot be used with"),
            (&["tools", "put", "nowhere.json", "--common"], "nowhere.json"),
        ] {
            let failure = cli.failure(arguments);
            assert!(failure.contains(word), "{arguments:?}: {failure}");
        }
        std::fs::write(&file, json!({"name": "x", "kind": "http", "description": "x"}).to_string()).unwrap();
        let failure = cli.failure(&["tools", "put", path, "--company-id", "1"]);
        assert!(failure.contains("settings"), "{failure}");
    }
}
