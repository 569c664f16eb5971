//! Folders on the command line.

use amalgam_testkit::Client;
use serde_json::json;

use super::{Library, counts};
use crate::support::{Cli, Delivery, Script, Wire, asking, stores};

#[tokio::test]
async fn a_second_import_touches_only_what_has_changed_and_forgets_what_is_gone() {
    for store in stores() {
        let library = Library::on(&store).await;
        library.write(
            "repo/src/parser.rs",
            "/// Reads a header.\npub fn parse_header(text: &str) -> Header {\n    todo\n}\n",
        );
        library.write("repo/docs/guide.md", "# Guide\n\n## Installing\n\nRun the wombat installer.\n");
        library.write("repo/notes.txt", "Wombats sleep all day.\n");
        assert_eq!(counts(&library.import("repo", &[])), [3, 0, 0, 0, 0], "{}", store.name);

        // By a word, by a part of a name, and by another form of a word.
        assert_eq!(library.paths("header", &[]), ["src/parser.rs"], "{}", store.name);
        assert_eq!(library.paths("installing", &[]), ["docs/guide.md"], "{}", store.name);
        let mut both = library.paths("wombat", &[]);
        both.sort();
        assert_eq!(both, ["docs/guide.md", "notes.txt"], "{}", store.name);
        let found = library.search("parse_header", &["--limit", "1"]);
        let found = &found["data"][0];
        assert_eq!((&found["language"], &found["start_line"]), (&json!("rust"), &json!(1)), "{found}");
        assert!(found["content"].as_str().is_some_and(|text| text.contains("pub fn parse_header")), "{found}");

        assert_eq!(counts(&library.import("repo", &[])), [0, 0, 3, 0, 0], "{}: twice is as good as once", store.name);

        library.write("repo/notes.txt", "Badgers dig all night.\n");
        library.write("repo/new.md", "# New\n\nSomething about otters.\n");
        library.remove("repo/docs/guide.md");
        assert_eq!(counts(&library.import("repo", &[])), [1, 1, 1, 1, 0], "{}", store.name);
        assert_eq!(library.paths("badgers", &[]), ["notes.txt"], "{}", store.name);
        assert_eq!(library.paths("otters", &[]), ["new.md"], "{}", store.name);
        assert_eq!(library.paths("wombat installer", &[]), [""; 0], "{}: what is gone is not found", store.name);

        // The document of a file that is no longer text is deleted as well.
        library.write("repo/notes.txt", b"\0\x01\x02");
        assert_eq!(counts(&library.import("repo", &[])), [0, 0, 2, 1, 1], "{}", store.name);
        assert_eq!(library.paths("badgers", &[]), [""; 0], "{}", store.name);
    }
}

#[tokio::test]
async fn folders_of_one_collection_leave_each_other_alone() {
    for store in stores() {
        let library = Library::on(&store).await;
        library.write("one/README.md", "The aardvark project.\n");
        library.write("two/README.md", "The buffalo project.\n");
        library.write("two/more.md", "More about the buffalo.\n");
        assert_eq!(counts(&library.import("one", &["--repo", "one"])), [1, 0, 0, 0, 0], "{}", store.name);
        assert_eq!(counts(&library.import("two", &["--repo", "two"])), [2, 0, 0, 0, 0], "{}", store.name);
        assert_eq!(library.search("project", &[])["data"].as_array().map(Vec::len), Some(2), "{}", store.name);

        library.remove("two/more.md");
        assert_eq!(counts(&library.import("two", &["--repo", "two"])), [0, 0, 1, 1, 0], "{}", store.name);
        assert_eq!(library.paths("aardvark", &[]), ["README.md"], "{}", store.name);

        // A single file says nothing about the others of its folder.
        library.write("one/extra.md", "Extra aardvark.\n");
        assert_eq!(counts(&library.import("one/extra.md", &["--repo", "one"])), [1, 0, 0, 0, 0], "{}", store.name);
        assert_eq!(counts(&library.import("one", &["--repo", "one"])), [0, 0, 2, 0, 0], "{}", store.name);

        // A name stays the same wherever the folder is.
        library.write("checkout-1/a.md", "The cheetah.\n");
        library.write("checkout-1/b.md", "The dingo.\n");
        library.write("checkout-2/a.md", "The cheetah.\n");
        let named = ["--source", "zoo"];
        assert_eq!(counts(&library.import("checkout-1", &named)), [2, 0, 0, 0, 0], "{}", store.name);
        assert_eq!(counts(&library.import("checkout-2", &named)), [0, 0, 1, 1, 0], "{}", store.name);
        assert_eq!(library.paths("dingo", &[]), [""; 0], "{}", store.name);

        // One source is forgotten by its name.
        let gone =
            library.cli.json(&["knowledge", "delete", "--company-id", "1", "--collection", "code", "--source", "zoo"]);
        assert_eq!(gone, json!({"collection": "code", "source": "zoo", "deleted": 1}));
        assert_eq!(library.paths("cheetah", &[]), [""; 0], "{}", store.name);
        assert_eq!(library.paths("aardvark project", &["--limit", "1"]), ["README.md"], "{}", store.name);
    }
}

#[tokio::test]
async fn what_is_no_text_hidden_or_ignored_is_left_out() {
    for store in stores() {
        let library = Library::on(&store).await;
        library.write("repo/.gitignore", "*.log\nbuild/\n");
        for path in ["a.log", "build/x.md", ".secret/x.md", ".env", "node_modules/p/x.md", "target/x.md", ".git/x.md"] {
            library.write(&format!("repo/{path}"), "The flamingo.\n");
        }
        library.write("repo/kept.md", "The flamingo.\n");
        library.write("repo/picture.png", b"\x89PNG\0\0flamingo");
        library.write("repo/latin.txt", b"flamingo \xe9\xe8\n");
        library.write("repo/empty.txt", "");
        library.write("repo/large.txt", "flamingo ".repeat(500));
        library.write("outside/x.md", "The flamingo outside.\n");
        std::os::unix::fs::symlink(library.path("outside"), library.path("repo/link")).unwrap();
        let told = library.import("repo", &["--max-file-kib", "4"]);
        assert_eq!(counts(&told), [1, 0, 0, 0, 4], "{}: {told}", store.name);
        assert_eq!(told["skipped_because"], json!({"binary": 2, "large": 1, "empty": 1, "name": 0}));
        assert_eq!(library.paths("flamingo", &[]), ["kept.md"], "{}", store.name);
        let told = library.import("repo", &["--no-ignore"]);
        assert_eq!(counts(&told), [3, 0, 1, 0, 3], "{}: {told}", store.name);
        let listed = library.cli.json(&["knowledge", "list", "--collection", "code", "--company-id", "1"]);
        let paths: Vec<&str> =
            listed["data"].as_array().unwrap().iter().filter_map(|one| one["path"].as_str()).collect();
        assert_eq!(paths, ["a.log", "build/x.md", "kept.md", "large.txt"], "{}", store.name);
    }
}

#[tokio::test]
async fn searches_are_narrowed_by_what_is_known_about_documents() {
    // R034-11
    for store in stores() {
        let library = Library::on(&store).await;
        library.write("one/src/a.rs", "// the gazelle\nfn a() {}\n");
        library.write("one/docs/a.md", "The gazelle.\n");
        library.write("two/b.rs", "// the gazelle\nfn b() {}\n");
        library.import("one", &["--repo", "one", "--attribute", "team=savanna"]);
        library.import("two", &["--repo", "two", "--attribute", "team=steppe"]);
        let found = |conditions: &[&str]| {
            let conditions: Vec<&str> = conditions.iter().flat_map(|condition| ["--where", condition]).collect();
            let mut paths = library.paths("gazelle", &conditions);
            paths.sort();
            paths
        };
        assert_eq!(found(&[]), ["b.rs", "docs/a.md", "src/a.rs"], "{}", store.name);
        assert_eq!(found(&["language == rust"]), ["b.rs", "src/a.rs"], "{}", store.name);
        assert_eq!(found(&["repo == one"]), ["docs/a.md", "src/a.rs"], "{}", store.name);
        assert_eq!(found(&["repo != one"]), ["b.rs"], "{}", store.name);
        assert_eq!(found(&["path contains src/"]), ["src/a.rs"], "{}", store.name);
        assert_eq!(found(&["path does_not_contain docs", "team == savanna"]), ["src/a.rs"], "{}", store.name);
        assert_eq!(found(&["team == tundra"]), [""; 0], "{}", store.name);
        // What is known about them has changed, and nothing else.
        let told = library.import("two", &["--repo", "two", "--attribute", "team=tundra"]);
        assert_eq!(counts(&told), [0, 1, 0, 0, 0], "{}: {told}", store.name);
        assert_eq!(found(&["team == tundra"]), ["b.rs"], "{}", store.name);
    }
}

#[tokio::test]
async fn knowledge_is_its_tenants_alone() {
    // S10
    for store in stores() {
        let library = Library::on(&store).await;
        library.write("repo/a.md", "The hyena.\n");
        library.import("repo", &[]);
        let foreign = library.cli.json(&["knowledge", "search", "hyena", "--company-id", "2", "--collection", "code"]);
        assert_eq!(
            foreign,
            json!({"object": "list", "data": [], "warnings": ["There is no knowledge collection 'code'."]}),
            "{}",
            store.name
        );
        let listed = library.cli.json(&["knowledge", "list", "--company-id", "2"]);
        assert_eq!(listed, json!({"object": "list", "data": []}), "{}", store.name);
        let failure = library.cli.failure(&["knowledge", "delete", "--company-id", "2", "--collection", "code"]);
        assert!(failure.contains("there is no collection code"), "{failure}");
        assert_eq!(library.paths("hyena", &[]), ["a.md"], "{}", store.name);
    }
}

#[tokio::test]
async fn turns_go_on_while_a_folder_is_brought_in() {
    for store in stores() {
        let library = Library::on(&store).await;
        for number in 0..400 {
            let lines = (0..40).map(|line| format!("fn jackal_{number}_{line}() {{ howl({line}) }}\n"));
            library.write(&format!("repo/file_{number}.rs"), lines.collect::<String>());
        }
        let upstream = library.world.upstream(Wire::Chat);
        upstream.from_now_on(Script::text(&["Hello"]).reply(Wire::Chat, Delivery::Whole));
        let (cli, path) = (Cli::beside(&library.world.amalgam, &store), library.path("repo"));
        let import = tokio::task::spawn_blocking(move || {
            cli.json(&["knowledge", "import", &path, "--company-id", "1", "--collection", "code"])
        });
        let client = Client::new(library.world.amalgam.url()).with_key("am_a");
        let mut turns = 0;
        while !import.is_finished() {
            let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}));
            let answer = client.post_json("/v1/responses", &request).await;
            assert_eq!(answer.status, 200, "{}: {}", store.name, answer.text());
            turns += 1;
        }
        assert!(turns > 0, "{}: turns ran meanwhile", store.name);
        assert_eq!(counts(&import.await.unwrap()), [400, 0, 0, 0, 0], "{}", store.name);
        assert_eq!(library.paths("jackal_17_3", &["--limit", "1"]), ["file_17.rs"], "{}", store.name);
    }
}

#[tokio::test]
async fn a_wrong_command_says_what_is_wrong_and_changes_nothing() {
    for store in stores() {
        let library = Library::on(&store).await;
        library.write("one/a.md", "x\n");
        library.write("two/a.md", "x\n");
        let (one, two) = (library.path("one"), library.path("two"));
        for (arguments, words) in [
            (&[one.as_str(), "--collection", "code"][..], "several tenants"),
            (&[&one, "--collection", "code", "--company-id", "9"], "there is no tenant 9"),
            (&[&one, "--collection", "no name", "--company-id", "1"], "letters, digits"),
            (&["nowhere", "--collection", "code", "--company-id", "1"], "reading nowhere"),
            (&[&one, "--collection", "code", "--company-id", "1", "--attribute", "Path=x"], "built-in field"),
            (&[&one, "--collection", "code", "--company-id", "1", "--attribute", "a=1", "--attribute", "A=2"], "twice"),
            (&[&one, &two, "--collection", "code", "--company-id", "1", "--source", "s"], "a.md is in"),
            (&[&one, "--collection", "code", "--company-id", "1", "--embed", "unknown/m"], "unknown/m"),
            (&[&one, "--collection", "code", "--company-id", "1", "--embed", "anthropic/m"], "has no embeddings"),
        ] {
            let failure = library.cli.failure(&[&["knowledge", "import"], arguments].concat());
            assert!(failure.contains(words), "{arguments:?}: {failure}");
        }
        let listed = library.cli.json(&["knowledge", "list", "--company-id", "1"]);
        assert_eq!(listed["data"], json!([]), "{}", store.name);
    }
}
