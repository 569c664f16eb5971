//! `file_search` and `search_knowledge` from outside: what was imported is found, shown, sent and cited, on every wire and
//! every store.

mod bank;
mod history;
mod refusals;

use std::fs;

use amalgam_testkit::{Client, HttpAnswer, Setup};
use serde_json::{Value, json};

use crate::support::{
    Cli, DELIVERIES, Delivery, Said, Script, TestStore, WIRES, Wire, World, asking, checked_events, id_of,
    last_response, response_of, retrieved, stores, told, types,
};

const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";
const RESULTS: &str = "file_search_call.results";

/// A server with two tenants. The first has two collections, the second has one of its own.
struct Library {
    world: World,
    cli: Cli,
}

impl Library {
    async fn on(store: &TestStore) -> Self {
        let world = World::with(store.setup(Setup::new().extra(TENANTS)), &[("retries", "0")]).await;
        let cli = Cli::beside(&world.amalgam, store);
        let library = Self { world, cli };
        library.import("1", "docs", &[("guide.md", "# Retries\n\nA request is retried twice, with a pause.\n")]);
        library.import("1", "code", &[("src/retry.rs", "fn retried() {}\n"), ("src/pause.py", "retried = True\n")]);
        library.import("2", "secret", &[("plans.md", "What is retried by others.\n")]);
        library
    }

    fn import(&self, tenant: &str, collection: &str, files: &[(&str, &str)]) {
        let folder = self.world.amalgam.folder().join("shelf").join(collection);
        for (path, contents) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder can be made");
            fs::write(path, contents).expect("a file can be written");
        }
        let folder = folder.to_str().expect("the folder's name is text");
        self.cli.json(&["knowledge", "import", folder, "--company-id", tenant, "--collection", collection]);
    }

    /// The marker of the one piece that a collection has about this.
    fn marker(&self, text: &str, collection: &str) -> String {
        let found = self.cli.json(&["knowledge", "search", text, "--company-id", "1", "--collection", collection]);
        format!("[kb:{}]", found["data"][0]["id"].as_str().expect("a piece has an id"))
    }

    fn client(&self) -> Client {
        self.world.amalgam.client().with_key("am_a")
    }

    /// The answer to a turn in which the upstream says these one after the other.
    async fn answer(&self, wire: Wire, delivery: Delivery, scripts: &[Script], request: &Value) -> HttpAnswer {
        scripts.iter().for_each(|script| self.world.upstream(wire).enqueue(script.reply(wire, delivery)));
        let answer = self.client().post_json("/v1/responses", &asking(wire, delivery, request)).await;
        assert_eq!(self.world.upstream(wire).replies_left(), 0, "{wire:?} {delivery:?}: {}", answer.text());
        answer
    }

    async fn turn(&self, wire: Wire, delivery: Delivery, scripts: &[Script], request: &Value) -> Value {
        response_of(delivery, &self.answer(wire, delivery, scripts, request).await)
    }
}

fn question(collections: &[&str]) -> Value {
    json!({"input": "How often?", "tools": [{"type": "file_search", "vector_store_ids": collections}]})
}

/// A model that searches once, and then says this.
fn searching(query: &str, said: &[&str]) -> [Script; 2] {
    [Script::new([search("call_1", query)]), Script::text(said)]
}

fn search(id: &str, query: &str) -> Said {
    Said::call(id, "file_search", &["{\"queries\":", &format!("[\"{query}\"]}}")])
}

fn pairs() -> impl Iterator<Item = (Wire, Delivery)> {
    WIRES.into_iter().flat_map(|wire| DELIVERIES.map(|delivery| (wire, delivery)))
}

#[tokio::test]
async fn what_was_found_is_cited_in_one_response_on_every_wire() {
    for store in stores() {
        let library = Library::on(&store).await;
        let marker = library.marker("retried", "docs");
        let (begun, rest) = marker.split_at(4);
        let said = ["Twice".to_owned(), begun.to_owned(), format!("{rest}, says [kb:0-0]")];
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        for (wire, delivery) in pairs() {
            let place = format!("{} {wire:?} {delivery:?}", store.name);
            let response = library.turn(wire, delivery, &searching("retried", &said), &question(&["docs"])).await;
            assert_eq!(response["status"], "completed", "{place}");
            let [call, message] = &response["output"].as_array().expect("output")[..] else { panic!("{response}") };
            let id = call["id"].as_str().unwrap_or_default();
            assert!(id.starts_with("fs_"), "{place}: {call}");
            let expected = json!({"type": "file_search_call", "id": id, "status": "completed", "queries": ["retried"],
                                  "results": null});
            assert_eq!(call, &expected, "{place}");

            // The marker of the result is removed from the text; the other marker stays text.
            let part = &message["content"][0];
            assert_eq!(part["text"], "Twice, says [kb:0-0]", "{place}");
            let file_id = part["annotations"][0]["file_id"].as_str().unwrap_or_default();
            assert!(file_id.starts_with("kb_"), "{place}: {part}");
            let citation = json!({"type": "file_citation", "index": 5, "file_id": file_id, "filename": "guide.md"});
            assert_eq!(part["annotations"], json!([citation]), "{place}");

            // To the model it was a function of this server, and its results have the marker.
            let sent = library.world.sent(wire);
            assert!(sent["tools"].to_string().contains("\"queries\""), "{place}: {}", sent["tools"]);
            assert!(!sent.to_string().contains("vector_store_ids"), "{place}");
            let told = told(&sent);
            let call = ("call".to_owned(), r#"file_search{"queries":["retried"]}"#.to_owned());
            let found = told.iter().skip_while(|line| **line != call).nth(1).expect("the call is told with its output");
            let results: Value = serde_json::from_str(&found.1).expect("the output is JSON");
            assert_eq!(results[0]["attributes"]["marker"], json!(marker), "{place}");
            assert_eq!(results[0]["text"].as_str().map(|text| text.contains("retried twice")), Some(true), "{place}");
            assert!(!found.1.contains(&*library.world.amalgam.folder().to_string_lossy()), "{place}: {}", found.1);

            // Read again, it is what it was.
            assert_eq!(retrieved(&library.client(), id_of(&response)).await, response, "{place}");
        }
    }
}

#[tokio::test]
async fn a_stream_tells_the_search_step_by_step_and_each_citation_where_it_stands() {
    for store in stores() {
        let library = Library::on(&store).await;
        let marker = library.marker("retried", "docs");
        for wire in WIRES {
            let place = format!("{} {wire:?}", store.name);
            let said = ["Twice[", marker.trim_start_matches('['), "."];
            let scripts = searching("retried", &said);
            let answer = library.answer(wire, Delivery::Stream, &scripts, &question(&["docs"])).await;
            let events = checked_events(&answer);
            let about = ["file_search_call", "annotation", "output_text.delta"];
            let steps: Vec<&str> =
                types(&events).into_iter().filter(|name| about.iter().any(|one| name.contains(one))).collect();
            let expected = [
                "response.file_search_call.in_progress",
                "response.file_search_call.searching",
                "response.file_search_call.completed",
                "response.output_text.delta",
                "response.output_text.annotation.added",
                "response.output_text.delta",
            ];
            assert_eq!(steps, expected, "{place}");
            let added = events.iter().find(|event| event["type"] == "response.output_text.annotation.added");
            let added = added.expect("it was told");
            assert_eq!([&added["annotation_index"], &added["content_index"], &added["output_index"]], [0, 0, 1]);
            assert_eq!(added["annotation"]["filename"], "guide.md", "{place}");
            let item = events.iter().find(|event| event["type"] == "response.output_item.added").expect("an item");
            assert_eq!((&item["item"]["status"], &item["item"]["queries"]), (&json!("in_progress"), &json!([])));

            // A later reader of the stream gets the same.
            let response = last_response(&events);
            let again = library.client().get(&format!("/v1/responses/{}?stream=true", id_of(&response))).await;
            assert_eq!(checked_events(&again), events, "{place}");
        }
    }
}

#[tokio::test]
async fn results_are_shown_to_callers_that_include_them_at_once_or_later() {
    for store in stores() {
        let library = Library::on(&store).await;
        for (wire, delivery) in pairs() {
            let place = format!("{} {wire:?} {delivery:?}", store.name);
            let mut request = question(&["docs"]);
            request["include"] = json!([RESULTS]);
            let scripts = searching("retried", &["Twice."]);
            let with = library.turn(wire, delivery, &scripts, &request).await;
            let results = &with["output"][0]["results"];
            let result = &results[0];
            assert_eq!(result["filename"], "guide.md", "{place}: {with}");
            assert_eq!(
                [&result["attributes"]["collection"], &result["attributes"]["language"]],
                ["docs", "markdown"],
                "{place}"
            );
            // The upstream has nothing to include.
            assert!(!library.world.sent(wire).to_string().contains(RESULTS), "{place}");
            let score = result["score"].as_f64().unwrap_or(-1.0);
            assert!(score > 0.0 && score < 1.0, "{place}: {score}");
            assert_eq!(retrieved(&library.client(), id_of(&with)).await, with, "{place}");

            let without = library.turn(wire, delivery, &scripts, &question(&["docs"])).await;
            let id = id_of(&without);
            assert_eq!(without["output"][0]["results"], Value::Null, "{place}");
            let later = library.client().get(&format!("/v1/responses/{id}?include[]={RESULTS}")).await.json();
            assert_eq!(&later["output"][0]["results"], results, "{place}: the same was found");
            assert_eq!(later["output"][1], without["output"][1], "{place}");
        }
    }
}

#[tokio::test]
async fn filters_and_limits_bound_what_is_found() {
    for store in stores() {
        let library = Library::on(&store).await;
        for (settings, expected) in [
            (json!({}), vec!["src/pause.py", "src/retry.rs"]),
            (json!({"filters": {"type": "eq", "key": "language", "value": "rust"}}), vec!["src/retry.rs"]),
            (json!({"filters": {"type": "ne", "key": "language", "value": "rust"}}), vec!["src/pause.py"]),
            (json!({"filters": {"type": "nin", "key": "path", "value": ["src/pause.py", "x"]}}), vec!["src/retry.rs"]),
            (json!({"ranking_options": {"score_threshold": 1}}), vec![]),
        ] {
            let mut request = question(&["code"]);
            request["include"] = json!([RESULTS]);
            for (name, value) in settings.as_object().expect("settings are an object") {
                request["tools"][0][name] = value.clone();
            }
            let response = library.turn(Wire::Chat, Delivery::Whole, &searching("retried", &["Ok."]), &request).await;
            let results = response["output"][0]["results"].as_array().expect("results are shown");
            let mut paths: Vec<&str> = results.iter().filter_map(|result| result["filename"].as_str()).collect();
            paths.sort_unstable();
            assert_eq!(paths, expected, "{}: {settings}", store.name);
        }
        let mut request = question(&["code", "docs"]);
        request["tools"][0]["max_num_results"] = json!(1);
        request["include"] = json!([RESULTS]);
        let response = library.turn(Wire::Chat, Delivery::Whole, &searching("retried", &["Ok."]), &request).await;
        assert_eq!(response["output"][0]["results"].as_array().map(Vec::len), Some(1), "{}", store.name);
    }
}

#[tokio::test]
async fn a_search_can_be_demanded_and_demands_nothing_of_the_next_round() {
    for store in stores() {
        let library = Library::on(&store).await;
        for (wire, delivery) in pairs() {
            let mut request = question(&["docs"]);
            request["tool_choice"] = json!({"type": "file_search"});
            let before = library.world.upstream(wire).requests().len();
            let response = library.turn(wire, delivery, &searching("retried", &["Twice."]), &request).await;
            assert_eq!(response["tool_choice"], json!({"type": "file_search"}), "{wire:?}");
            let choices: Vec<Value> = library
                .world
                .upstream(wire)
                .requests_from(before)
                .iter()
                .map(|request| request.json()["tool_choice"].clone())
                .collect();
            let is_forced = |choice: &Value| match wire {
                // Servers of this wire know it better so: the tool is the only one on offer.
                Wire::Chat => *choice == "required",
                Wire::Responses | Wire::Anthropic => choice["name"] == "file_search",
            };
            let forced: Vec<bool> = choices.iter().map(is_forced).collect();
            assert_eq!(forced, [true, false], "{} {wire:?}: {choices:?}", store.name);
        }
    }
}
