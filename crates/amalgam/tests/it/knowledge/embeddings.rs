//! Meaning beside words: embeddings of an upstream.

use amalgam_testkit::{Reply, Request};
use serde_json::{Value, json};

use super::{Library, counts};
use crate::support::{Wire, stores};

/// Texts about the sea are in one direction, and all others in another.
fn place(text: &str) -> Value {
    match text.contains("harbour") || text.contains("ship") {
        true => json!([1.0, 0.0]),
        false => json!([0.0, 1.0]),
    }
}

fn places(request: &Request) -> Reply {
    let request = request.json();
    let texts = request["input"].as_array().expect("texts are sent as a list");
    let data: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| json!({"object": "embedding", "index": index, "embedding": place(text.as_str().expect("a text is a string"))}))
        .collect();
    let usage = json!({"prompt_tokens": 4 * data.len(), "total_tokens": 4 * data.len()});
    Reply::json(json!({"object": "list", "data": data, "model": request["model"], "usage": usage}))
}

/// A piece with more of the word, and one with more of the meaning.
fn write(library: &Library) {
    library.write("repo/box.md", "Container container container: a box for things.\n");
    library.write("repo/sea.md", "The harbour takes one container after the other.\n");
}

/// The texts that the upstream was asked to place.
fn placed(library: &Library, wire: Wire) -> usize {
    let requests = library.world.upstream(wire).requests();
    let asked = requests.iter().filter(|request| request.path.ends_with("/embeddings"));
    asked.map(|request| request.json()["input"].as_array().map_or(0, Vec::len)).sum()
}

#[tokio::test]
async fn meaning_orders_what_words_have_found_and_a_failing_upstream_leaves_the_words() {
    for wire in [Wire::Chat, Wire::Responses] {
        for store in stores() {
            let library = Library::on(&store).await;
            let about = format!("{} {wire:?}", store.name);
            library.world.upstream(wire).answer_for("/embeddings", places);
            write(&library);
            let model = format!("{}/embed-1", wire.kind());

            assert_eq!(counts(&library.import("repo", &[])), [2, 0, 0, 0, 0], "{about}");
            assert_eq!(library.paths("container ship", &[]), ["box.md", "sea.md"], "{about}: by words");
            assert_eq!(placed(&library, wire), 0, "{about}: no upstream is asked without need");

            let told = library.import("repo", &["--embed", &model]);
            assert_eq!((counts(&told), &told["embedding_model"]), ([0, 2, 0, 0, 0], &json!(model)), "{about}");
            assert_eq!(placed(&library, wire), 2, "{about}");
            assert_eq!(library.paths("container ship", &[]), ["sea.md", "box.md"], "{about}: by meaning");
            assert_eq!(placed(&library, wire), 3, "{about}: the question has a place");

            // The next import uses the collection's model, and embeds nothing twice.
            library.write("repo/more.md", "The ship with the container.\n");
            assert_eq!(counts(&library.import("repo", &[])), [1, 0, 2, 0, 0], "{about}");
            assert_eq!(placed(&library, wire), 4, "{about}");

            // What embeddings used is in the usage, and in no turn: two imports, and a search of two commands.
            let usage = library.cli.json(&["usage", "--group-by", "upstream,model,user"]);
            let rows = usage["data"].as_array().cloned().unwrap_or_default();
            let of_model = rows.iter().filter(|row| row["model"] == "embed-1" && row["upstream"] == wire.kind());
            let sum = |name: &str| of_model.clone().filter_map(|row| row[name].as_u64()).sum::<u64>();
            assert_eq!((sum("turns"), sum("calls"), sum("input_tokens")), (0, 3, 16), "{about}: {usage}");
            assert!(of_model.clone().any(|row| row["user"] == "import"), "{about}: {usage}");

            library.world.upstream(wire).always_for("/embeddings", Reply::status(500));
            let found = library.search("container ship", &["--where", "path != more.md"]);
            assert_eq!(found["data"][0]["path"], "box.md", "{about}: {found}");
            let warning = found["warnings"][0].as_str().unwrap_or_default();
            assert!(warning.contains(&model) && warning.contains("by its words alone"), "{about}: {found}");
        }
    }
}

#[tokio::test]
async fn an_import_that_an_upstream_cuts_short_goes_on_the_next_time() {
    for store in stores() {
        let library = Library::on(&store).await;
        write(&library);
        let upstream = library.world.upstream(Wire::Chat);
        upstream
            .enqueue_for("/embeddings", Reply::status(400).with_json(json!({"error": {"message": "no such model"}})));
        let path = library.path("repo");
        let import = [
            "knowledge",
            "import",
            path.as_str(),
            "--company-id",
            "1",
            "--collection",
            "code",
            "--embed",
            "chat/embed-1",
        ];
        let failure = library.cli.failure(&import);
        assert!(failure.contains("requesting embeddings from chat/embed-1"), "{}: {failure}", store.name);
        upstream.answer_for("/embeddings", places);
        assert_eq!(counts(&library.cli.json(&import)), [2, 0, 0, 0, 0], "{}", store.name);

        // Another model, and then none: everything is imported again, and the collection names its model.
        let listed =
            || library.cli.json(&["knowledge", "list", "--company-id", "1"])["data"][0]["embedding_model"].clone();
        assert_eq!(listed(), json!("chat/embed-1"), "{}", store.name);
        let told = library.import("repo", &["--embed", "chat/embed-2"]);
        assert_eq!((counts(&told), listed()), ([0, 2, 0, 0, 0], json!("chat/embed-2")), "{}", store.name);
        let told = library.import("repo", &["--no-embed"]);
        assert_eq!((counts(&told), listed()), ([0, 2, 0, 0, 0], json!(null)), "{}", store.name);
        assert_eq!(library.paths("container ship", &[]), ["box.md", "sea.md"], "{}: by words again", store.name);
    }
}
