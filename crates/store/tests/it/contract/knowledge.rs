//! Knowledge: what is brought in, and what is found.

use amalgam_core::{
    ComparisonOperator, Condition, Scope,
    store::{
        Collection, DocumentListing, DocumentRecord, FoundChunk, ImportCounts, KnowledgeQuery, NewChunk, NewDocument,
        Within,
    },
};
use amalgam_knowledge::{chunks, language_of, question};
use tokio::task::JoinSet;

use crate::given::*;

fn of(scope: &Scope) -> Within<'_> {
    Within::Own(scope.admin().unwrap())
}

/// A document of one piece for each text.
fn document(path: &str, texts: &[&str]) -> NewDocument {
    let pieces = texts.iter().enumerate().map(|(at, text)| {
        let mut pieces = chunks(path, "plaintext", text);
        let piece = pieces.pop().unwrap();
        NewChunk { start_line: at as u64 * 10 + 1, end_line: at as u64 * 10 + 9, ..piece }
    });
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&texts.concat().len().to_le_bytes());
    NewDocument {
        path: path.into(),
        digest,
        language: language_of(path).into(),
        attributes: Vec::new(),
        chunks: pieces.collect(),
    }
}

fn attributed(path: &str, text: &str, attributes: &[(&str, &str)]) -> NewDocument {
    let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    NewDocument { attributes, ..document(path, &[text]) }
}

async fn put(store: &Engine, scope: &Scope, collection: &str, documents: &[NewDocument]) -> ImportCounts {
    store.put_documents(of(scope), collection, "here", None, documents.to_vec(), NOW).await.unwrap().unwrap()
}

fn condition<'a>(key: &'a str, operator: ComparisonOperator, values: &[&'a str]) -> Condition<'a> {
    Condition { key: key.into(), operator, values: values.iter().map(|value| (*value).into()).collect() }
}

async fn search(store: &Engine, scope: &Scope, text: &str, conditions: &[Condition<'_>]) -> Vec<FoundChunk> {
    let words = question(text);
    let query = KnowledgeQuery { collections: &[], words: &words, conditions, limit: 50, embeddings: false };
    store.search_knowledge(scope, query).await.unwrap()
}

/// Paths and first lines of what is found.
async fn found(store: &Engine, scope: &Scope, text: &str) -> Vec<String> {
    places(search(store, scope, text, &[]).await)
}

fn places(found: Vec<FoundChunk>) -> Vec<String> {
    assert!(found.is_sorted_by(|one, next| one.score >= next.score), "the best first");
    found.iter().map(|piece| format!("{}:{}", piece.path, piece.start_line)).collect()
}

async fn listed(store: &Engine, scope: &Scope, collection: &str) -> Vec<(String, String)> {
    let listing = DocumentListing { source: None, after: None, limit: 99 };
    let documents = store.documents_within(of(scope), collection, listing).await.unwrap();
    documents.into_iter().map(|document| (document.source, document.path)).collect()
}

pub(crate) async fn a_piece_is_read_back_as_it_was_brought_in(store: Engine) {
    let anna = anna();
    let text = "fn commit_turn() {\n    write(\"it's\", 'é🦀');\n}\n";
    let source = NewDocument {
        chunks: chunks("src/turns.rs", "rust", text),
        attributes: vec![("repo".into(), "amalgam \"x\"".into()), ("it's".into(), "a\\b\n".into())],
        ..document("src/turns.rs", &[])
    };
    let created = ImportCounts { created: 1, updated: 0, unchanged: 0 };
    assert_eq!(put(&store, &anna, "code", std::slice::from_ref(&source)).await, created);
    let pieces = search(&store, &scope(1, "bert"), "commit", &[]).await;
    let [piece] = pieces.as_slice() else { panic!("{pieces:?}") };
    let expected = FoundChunk {
        id: piece.id.clone(),
        collection: "code".into(),
        path: "src/turns.rs".into(),
        language: "rust".into(),
        attributes: source.attributes.clone(),
        symbol: Some("commit_turn".into()),
        start_line: 1,
        end_line: 3,
        content: text.trim_end().into(),
        score: piece.score,
        ranking: piece.ranking,
        embedding: None,
    };
    assert_eq!(*piece, expected);
    assert!(piece.score > 0.0 && piece.id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{}", piece.id);

    let listing = DocumentListing { source: None, after: None, limit: 9 };
    let record = DocumentRecord {
        source: "here".into(),
        path: source.path.clone(),
        digest: source.digest,
        language: "rust".into(),
        attributes: source.attributes.clone(),
        chunks: 1,
        updated_at_ms: NOW,
    };
    assert_eq!(store.documents_within(of(&anna), "code", listing).await.unwrap(), [record]);
    let collection = Collection {
        name: "code".into(),
        documents: 1,
        chunks: 1,
        embedding_model: None,
        created_at_ms: NOW,
        updated_at_ms: NOW,
    };
    assert_eq!(store.collections(&anna).await.unwrap(), std::slice::from_ref(&collection));
    assert_eq!(store.collections_within(Within::Named(operator(), 1)).await.unwrap(), [collection]);
}

pub(crate) async fn a_piece_is_found_by_a_word_and_by_a_part_of_a_name(store: Engine) {
    let anna = anna();
    let documents = [
        document("store.rs", &["fn putDocuments(batch) writes everything", "fn take_parked_turn waits"]),
        document("guide.md", &["Evaluations of courses are explained here", "東京都のデータ"]),
        document("odd.txt", &["the émigré's naïve HTTPServer2 sha256"]),
    ];
    put(&store, &anna, "code", &documents).await;
    for (text, expected) in [
        ("documents", &["store.rs:1"][..]),
        ("put_documents", &["store.rs:1"]),
        ("PutDocuments?", &["store.rs:1"]),
        ("parked", &["store.rs:11"]),
        ("evaluating a course", &["guide.md:1"]),
        ("東京", &["guide.md:11"]),
        ("emigre", &["odd.txt:1"]),
        ("http server", &["odd.txt:1"]),
        ("SHA-256", &["odd.txt:1"]),
        // Names of files are words, too.
        ("odd", &["odd.txt:1"]),
        ("quantum", &[]),
        ("", &[]),
        ("the of and", &[]),
    ] {
        assert_eq!(found(&store, &anna, text).await, expected, "{text}");
    }
}

pub(crate) async fn the_piece_that_says_most_is_found_first(store: Engine) {
    let anna = anna();
    let long = ["alpha", &["filler words that say nothing at all"; 40].join(" ")].join(" ");
    let documents = [
        document("a.txt", &["alpha beta", "alpha alpha alpha alpha gamma delta", &long]),
        document("b.txt", &["beta gamma rare", "beta gamma delta", "beta one", "beta two"]),
        document("c.txt", &["same twin", "same twin"]),
        document("d.txt", &["same twin"]),
    ];
    put(&store, &anna, "notes", &documents).await;
    // Often beats once, and a short piece beats a long one.
    assert_eq!(found(&store, &anna, "alpha").await, ["a.txt:11", "a.txt:1", "a.txt:21"]);
    // The chunk with more of the words, and the rarer ones, is first.
    assert_eq!(found(&store, &anna, "alpha beta").await[0], "a.txt:1");
    assert_eq!(found(&store, &anna, "beta rare").await[0], "b.txt:1");
    // Equals come by path and line.
    assert_eq!(found(&store, &anna, "twin").await, ["c.txt:1", "c.txt:11", "d.txt:1"]);
    let words = question("twin");
    let query = KnowledgeQuery { collections: &[], words: &words, conditions: &[], limit: 2, embeddings: false };
    assert_eq!(places(store.search_knowledge(&anna, query).await.unwrap()), ["c.txt:1", "c.txt:11"]);
    let none = KnowledgeQuery { limit: 0, ..query };
    assert_eq!(store.search_knowledge(&anna, none).await.unwrap(), []);
}

pub(crate) async fn conditions_say_which_documents_are_searched(store: Engine) {
    // R034-11
    let anna = anna();
    let documents = [
        attributed("src/a.rs", "needle", &[("repo", "one"), ("Team", "core")]),
        attributed("src/b.rs", "needle needle", &[("repo", "two")]),
        attributed("docs/a.md", "needle in prose", &[("repo", "one"), ("repo", "two")]),
        attributed("lib/c.py", "needle", &[("größe", "s")]),
    ];
    put(&store, &anna, "code", &documents).await;
    put(&store, &anna, "other", &[attributed("src/d.rs", "needle", &[("repo", "one")])]).await;
    use ComparisonOperator::{Contains, Differs, DoesNotContain, Equals};
    for (conditions, expected) in [
        (vec![condition("repo", Equals, &["one"])], &["docs/a.md", "src/a.rs", "src/d.rs"][..]),
        (vec![condition("Repo", Equals, &["one", "two"])], &["docs/a.md", "src/a.rs", "src/b.rs", "src/d.rs"]),
        (vec![condition("repo", Equals, &["ONE"])], &[]),
        (vec![condition("repo", Differs, &["one"])], &["lib/c.py", "src/b.rs"]),
        (vec![condition("repo", Differs, &["one", "two"])], &["lib/c.py"]),
        (vec![condition("path", Contains, &["src/"])], &["src/a.rs", "src/b.rs", "src/d.rs"]),
        (vec![condition("path", Contains, &["docs", ".py"])], &["docs/a.md", "lib/c.py"]),
        (vec![condition("path", DoesNotContain, &["src/", ".md"])], &["lib/c.py"]),
        (vec![condition("path", Equals, &["src/a.rs"])], &["src/a.rs"]),
        (vec![condition("language", Equals, &["rust"])], &["src/a.rs", "src/b.rs", "src/d.rs"]),
        (vec![condition("language", Differs, &["rust", "python"])], &["docs/a.md"]),
        (vec![condition("team", Contains, &["or"])], &["src/a.rs"]),
        (vec![condition("team", DoesNotContain, &["or"])], &["docs/a.md", "lib/c.py", "src/b.rs", "src/d.rs"]),
        (vec![condition("team", Equals, &[""])], &[]),
        // Only ASCII has no case.
        (vec![condition("GRößE", Equals, &["s"])], &["lib/c.py"]),
        (vec![condition("GRÖßE", Differs, &["s"])], &["docs/a.md", "lib/c.py", "src/a.rs", "src/b.rs", "src/d.rs"]),
        (vec![condition("collection", Equals, &["other"])], &["src/d.rs"]),
        (vec![condition("collection", DoesNotContain, &["oth"])], &["docs/a.md", "lib/c.py", "src/a.rs", "src/b.rs"]),
        (vec![condition("collection", Equals, &["none"])], &[]),
        // All of them have to hold.
        (
            vec![condition("repo", Equals, &["one"]), condition("language", Differs, &["markdown"])],
            &["src/a.rs", "src/d.rs"],
        ),
        (vec![condition("repo", Equals, &["one"]), condition("path", Contains, &["a."])], &["docs/a.md", "src/a.rs"]),
        (vec![condition("repo", Equals, &["one"]), condition("repo", Equals, &["two"])], &[]),
        (vec![condition("repo' OR \"x", Equals, &["' & !\"1:needle\" NOT *"])], &[]),
    ] {
        let found = search(&store, &anna, "needle", &conditions).await;
        let mut paths: Vec<&str> = found.iter().map(|piece| piece.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, expected, "{conditions:?}");
    }
    let many: Vec<String> = (0..500).map(|number| format!("repo {number}")).chain(["two".to_owned()]).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let found = search(&store, &anna, "needle", &[condition("repo", Equals, &many)]).await;
    assert_eq!(found.iter().map(|piece| piece.path.as_str()).collect::<Vec<_>>(), ["src/b.rs"]);
}

pub(crate) async fn only_the_collections_that_are_named_are_searched(store: Engine) {
    let anna = anna();
    for (collection, path) in [("a", "one.txt"), ("b", "two.txt"), ("c", "three.txt")] {
        put(&store, &anna, collection, &[document(path, &["needle"])]).await;
    }
    let words = question("needle");
    for (collections, expected) in [
        (&[][..], &["one.txt:1", "three.txt:1", "two.txt:1"][..]),
        (&["a"], &["one.txt:1"]),
        (&["c", "a", "none"], &["one.txt:1", "three.txt:1"]),
        (&["none"], &[]),
        (&["A"], &[]),
    ] {
        let collections: Vec<String> = collections.iter().map(|name| (*name).to_owned()).collect();
        let query =
            KnowledgeQuery { collections: &collections, words: &words, conditions: &[], limit: 9, embeddings: false };
        let found = store.search_knowledge(&anna, query).await.unwrap();
        assert_eq!(places(found), expected, "{collections:?}");
    }
}

pub(crate) async fn a_document_that_comes_again_takes_the_place_of_the_one_before(store: Engine) {
    let anna = anna();
    let before = [document("a.txt", &["first words", "second words"]), document("b.txt", &["other words"])];
    put(&store, &anna, "notes", &before).await;
    let old = search(&store, &anna, "first", &[]).await.remove(0).id;
    assert_eq!(put(&store, &anna, "notes", &before).await, ImportCounts { created: 0, updated: 0, unchanged: 2 });
    assert_eq!(search(&store, &anna, "first", &[]).await[0].id, old, "nothing was touched");

    let after = [document("a.txt", &["third words"]), before[1].clone(), document("c.txt", &["new words"])];
    assert_eq!(put(&store, &anna, "notes", &after).await, ImportCounts { created: 1, updated: 1, unchanged: 1 });
    assert_eq!(found(&store, &anna, "first second").await, [""; 0]);
    assert_eq!(found(&store, &anna, "third").await, ["a.txt:1"]);
    assert_ne!(search(&store, &anna, "third", &[]).await[0].id, old);
    assert_eq!(found(&store, &anna, "words").await.len(), 3);
    let collections = store.collections(&anna).await.unwrap();
    assert_eq!((collections[0].documents, collections[0].chunks), (3, 3));
    // Another attribute is a change, too; of the same path the last one stays.
    let twice = [attributed("b.txt", "twice words", &[]), attributed("b.txt", "other words", &[("repo", "x")])];
    assert_eq!(put(&store, &anna, "notes", &twice).await, ImportCounts { created: 0, updated: 1, unchanged: 0 });
    assert_eq!(found(&store, &anna, "twice").await, [""; 0]);
    assert_eq!(found(&store, &anna, "other").await, ["b.txt:1"]);

    // A document of the same path from elsewhere is another one.
    let there = vec![document("a.txt", &["there words"])];
    store.put_documents(of(&anna), "notes", "there", None, there, NOW + 5).await.unwrap().unwrap();
    assert_eq!(found(&store, &anna, "third").await, ["a.txt:1"]);
    assert_eq!(found(&store, &anna, "there words").await.len(), 4);
    let collection = store.collections(&anna).await.unwrap().remove(0);
    assert_eq!((collection.documents, collection.created_at_ms, collection.updated_at_ms), (4, NOW, NOW + 5));
}

pub(crate) async fn what_was_forgotten_is_not_found(store: Engine) {
    let anna = anna();
    let documents =
        [document("a.txt", &["alpha", "alpha beta"]), document("b.txt", &["alpha"]), document("c.txt", &["beta"])];
    put(&store, &anna, "notes", &documents).await;
    let paths = ["a.txt", "nowhere.txt", "a\0b", "a.txt"].map(String::from);
    let delete = async |collection: &str, source: &str| {
        store.delete_documents(of(&anna), collection, source, &paths, NOW + 1).await.unwrap()
    };
    assert_eq!(delete("notes", "elsewhere").await, 0);
    assert_eq!(delete("nothing", "here").await, 0);
    assert_eq!(store.collections(&anna).await.unwrap()[0].updated_at_ms, NOW, "nothing was changed");
    assert_eq!(delete("notes", "here").await, 1);
    assert_eq!(delete("notes", "here").await, 0);
    assert_eq!(found(&store, &anna, "alpha").await, ["b.txt:1"]);
    assert_eq!(found(&store, &anna, "beta").await, ["c.txt:1"]);
    let collection = store.collections(&anna).await.unwrap().remove(0);
    assert_eq!((collection.documents, collection.chunks, collection.updated_at_ms), (2, 2, NOW + 1));

    assert!(store.delete_collection(of(&anna), "notes").await.unwrap(), "with what is in it");
    assert!(!store.delete_collection(of(&anna), "notes").await.unwrap());
    assert_eq!(found(&store, &anna, "alpha beta").await, [""; 0]);
    assert_eq!(store.collections(&anna).await.unwrap(), []);
    assert_eq!(listed(&store, &anna, "notes").await, []);
    put(&store, &anna, "notes", &documents[1..]).await;
    assert_eq!(found(&store, &anna, "alpha").await, ["b.txt:1"], "it can come again");
    store.reset(operator(), amalgam_core::store::Reset::Everything).await.unwrap();
    assert_eq!(store.collections(&anna).await.unwrap(), []);
    assert_eq!(found(&store, &anna, "alpha").await, [""; 0]);
}

pub(crate) async fn documents_are_listed_by_source_and_path_in_pages(store: Engine) {
    let anna = anna();
    for (source, paths) in [("b", ["x", "a"]), ("B", ["é", "z"]), ("a", ["m", "M"])] {
        let documents = paths.map(|path| document(path, &["words"])).to_vec();
        store.put_documents(of(&anna), "notes", source, None, documents, NOW).await.unwrap();
    }
    let all = [("B", "z"), ("B", "é"), ("a", "M"), ("a", "m"), ("b", "a"), ("b", "x")];
    let list = async |listing: DocumentListing<'_>| {
        let documents = store.documents_within(of(&anna), "notes", listing).await.unwrap();
        documents.into_iter().map(|document| (document.source, document.path)).collect::<Vec<_>>()
    };
    let expected = |range: std::ops::Range<usize>| {
        all[range].iter().map(|(source, path)| ((*source).to_owned(), (*path).to_owned())).collect::<Vec<_>>()
    };
    let whole = DocumentListing { source: None, after: None, limit: 99 };
    assert_eq!(list(whole).await, expected(0..6), "by their bytes");
    assert_eq!(list(DocumentListing { limit: 2, ..whole }).await, expected(0..2));
    assert_eq!(list(DocumentListing { after: Some(("a", "M")), limit: 2, ..whole }).await, expected(3..5));
    let of_source = DocumentListing { source: Some("a"), ..whole };
    assert_eq!(list(of_source).await, expected(2..4));
    assert_eq!(list(DocumentListing { after: Some(("a", "M")), ..of_source }).await, expected(3..4));
    assert_eq!(list(DocumentListing { after: Some(("B", "zz")), ..of_source }).await, expected(2..4));
    assert_eq!(list(DocumentListing { after: Some(("b", "a")), ..of_source }).await, []);
    for nowhere in ["none", "a\0"] {
        assert_eq!(list(DocumentListing { source: Some(nowhere), ..whole }).await, []);
    }
    assert_eq!(listed(&store, &anna, "none").await, []);
}

pub(crate) async fn knowledge_of_another_tenant_looks_missing(store: Engine) {
    // S10
    let (anna, other) = (anna(), scope(2, "anna"));
    put(&store, &anna, "notes", &[document("secret.txt", &["secret plan"])]).await;
    assert_eq!(store.collections(&other).await.unwrap(), []);
    assert_eq!(found(&store, &other, "secret plan").await, [""; 0]);
    assert_eq!(listed(&store, &other, "notes").await, []);
    let paths = ["secret.txt".to_owned()];
    assert_eq!(store.delete_documents(of(&other), "notes", "here", &paths, NOW).await.unwrap(), 0);
    assert!(!store.delete_collection(of(&other), "notes").await.unwrap());
    for word in ["1:secret", "#:secret", "1:plan:1"] {
        let words = [word.to_owned()];
        let query = KnowledgeQuery { collections: &[], words: &words, conditions: &[], limit: 9, embeddings: false };
        assert_eq!(store.search_knowledge(&other, query).await.unwrap(), [], "{word}");
    }
    // The same name and path of another tenant are others.
    put(&store, &other, "notes", &[document("secret.txt", &["their plan"])]).await;
    assert_eq!(found(&store, &anna, "plan").await, ["secret.txt:1"]);
    assert_eq!(search(&store, &anna, "plan", &[]).await[0].content, "secret plan");
    assert_eq!(search(&store, &other, "plan", &[]).await[0].content, "their plan");

    // What others have changes neither what comes first nor what it is worth.
    let own = [document("a.txt", &["alpha common", "beta common", "beta other"]), document("b.txt", &["gamma"])];
    put(&store, &anna, "own", &own).await;
    let before = search(&store, &anna, "alpha beta common", &[]).await;
    let theirs: Vec<NewDocument> = (0..40).map(|number| document(&format!("{number}.txt"), &["alpha alpha"])).collect();
    put(&store, &other, "own", &theirs).await;
    assert_eq!(search(&store, &anna, "alpha beta common", &[]).await, before);
    // A tenant that is not there has nothing.
    let missing = Within::Named(operator(), 4711);
    let put = store.put_documents(missing, "notes", "here", None, vec![document("x", &["words"])], NOW).await.unwrap();
    assert_eq!(put, None);
}

pub(crate) async fn words_that_look_like_questions_are_only_words(store: Engine) {
    // S11
    let anna = anna();
    put(&store, &anna, "notes", &[document("a.txt", &["near beacon or not"])]).await;
    for odd in [
        "\"",
        "'",
        "\"beacon\"",
        "beacon*",
        "nee*",
        "NEAR(beacon",
        "words : beacon",
        "^beacon",
        "beacon OR x",
        "' | 'x",
        "!x",
        "beacon:*",
        "a & b",
        "\\",
        "\u{0}",
        "beacon\u{0}",
        " ",
        "",
        "#:beacon",
        "1:beacon",
        "1?beacon",
        "=c1",
        "--",
        "%",
        "_",
    ] {
        let words = [odd.to_owned()];
        let query = KnowledgeQuery { collections: &[], words: &words, conditions: &[], limit: 9, embeddings: false };
        assert_eq!(store.search_knowledge(&anna, query).await.unwrap(), [], "{odd:?}");
        let collections = [odd.to_owned()];
        let words = question("beacon");
        let query = KnowledgeQuery { collections: &collections, words: &words, ..query };
        assert_eq!(store.search_knowledge(&anna, query).await.unwrap(), [], "{odd:?}");
    }
    // Ten thousand words, among the first of which is the one.
    let many: Vec<String> = ["beacon".to_owned()].into_iter().chain((0..10_000).map(|n| format!("w{n}"))).collect();
    let query =
        KnowledgeQuery { collections: &[], words: &many, conditions: &[], limit: usize::MAX, embeddings: false };
    assert_eq!(places(store.search_knowledge(&anna, query).await.unwrap()), ["a.txt:1"]);
    let long = ["x".repeat(100_000)];
    assert_eq!(store.search_knowledge(&anna, KnowledgeQuery { words: &long, ..query }).await.unwrap(), []);
    // Words that no query can contain do no harm in a document.
    let mut odd = document("odd.txt", &["plain"]);
    odd.chunks[0].words.extend(["it's", "\"", "a b", "", "\0", "'x' & y", "ünïcödé"].map(String::from));
    odd.chunks[0].words.push("y".repeat(5000));
    odd.chunks[0].content = "nul \0 inside".into();
    odd.chunks[0].symbol = Some("sym\0bol".into());
    put(&store, &anna, "notes", &[odd]).await;
    let piece = search(&store, &anna, "plain", &[]).await.remove(0);
    assert_eq!((piece.content.as_str(), piece.symbol.as_deref()), ("nul \u{fffd} inside", Some("sym\u{fffd}bol")));
}

pub(crate) async fn documents_come_in_all_or_none(store: Engine) {
    let anna = anna();
    let fits = document("a.txt", &["needle"]);
    for odd in [document(&"p".repeat(5000), &["needle"]), document("a\0b", &["needle"])] {
        let both = vec![fits.clone(), odd];
        assert!(store.put_documents(of(&anna), "notes", "here", None, both, NOW).await.is_err());
    }
    assert!(store.put_documents(of(&anna), "no\0tes", "here", None, vec![fits.clone()], NOW).await.is_err());
    assert_eq!(store.collections(&anna).await.unwrap(), []);
    assert_eq!(found(&store, &anna, "needle").await, [""; 0]);
    // A collection without documents is there; one of a document without pieces, too.
    assert_eq!(put(&store, &anna, "notes", &[]).await, ImportCounts::default());
    put(&store, &anna, "notes", &[NewDocument { chunks: Vec::new(), ..fits.clone() }]).await;
    let collection = store.collections(&anna).await.unwrap().remove(0);
    assert_eq!((collection.documents, collection.chunks), (1, 0));
    assert_eq!(found(&store, &anna, "needle").await, [""; 0]);

    // Imports at once: each document is new once, and the counts are right.
    let mut racing = JoinSet::new();
    for _ in 0..6 {
        let store = store.clone();
        racing.spawn(async move {
            let documents: Vec<NewDocument> =
                (0..20).map(|number| document(&format!("{number}.txt"), &["raced words"])).collect();
            put(&store, &scope(1, "anna"), "raced", &documents).await
        });
    }
    let raced = racing.join_all().await;
    assert_eq!(raced.iter().map(|imported| imported.created).sum::<u64>(), 20);
    assert_eq!(raced.iter().map(|imported| imported.unchanged).sum::<u64>(), 100);
    let collection = store.collections(&anna).await.unwrap().into_iter().find(|one| one.name == "raced").unwrap();
    assert_eq!((collection.documents, collection.chunks), (20, 20));
    assert_eq!(found(&store, &anna, "raced").await.len(), 20);
}

pub(crate) async fn embeddings_belong_to_the_model_of_their_collection(store: Engine) {
    let anna = anna();
    let embedded = |path: &str, embedding: &[f32]| {
        let mut document = document(path, &["needle", "needle without"]);
        document.chunks[0].embedding = Some(embedding.to_vec());
        document
    };
    let put = async |model: Option<&str>, documents: Vec<NewDocument>| {
        store.put_documents(of(&anna), "notes", "here", model, documents, NOW).await.unwrap().unwrap()
    };
    let embeddings = async |wanted: bool| {
        let words = question("needle");
        let query = KnowledgeQuery { collections: &[], words: &words, conditions: &[], limit: 9, embeddings: wanted };
        let mut found = store.search_knowledge(&anna, query).await.unwrap();
        found.sort_by(|one, other| (&one.path, one.start_line).cmp(&(&other.path, other.start_line)));
        found.into_iter().map(|piece| piece.embedding).collect::<Vec<_>>()
    };
    let model = async || store.collections(&anna).await.unwrap().remove(0).embedding_model;

    let numbers = [0.25, -1.0, f32::MIN_POSITIVE, 1e30];
    put(Some("small"), vec![embedded("a.txt", &numbers), embedded("b.txt", &[1.0; 1536])]).await;
    assert_eq!(embeddings(true).await, [Some(numbers.to_vec()), None, Some(vec![1.0; 1536]), None]);
    assert_eq!(embeddings(false).await, [None, None, None, None]);
    assert_eq!(model().await.as_deref(), Some("small"));
    // The same document with embeddings is written again: they may be others.
    let again = put(Some("small"), vec![embedded("a.txt", &[2.0])]).await;
    assert_eq!(again, ImportCounts { created: 0, updated: 1, unchanged: 0 });
    assert_eq!(embeddings(true).await, [Some(vec![2.0]), None, Some(vec![1.0; 1536]), None]);
    // Another model takes the place of the one before, and none does, too.
    put(Some("large"), vec![embedded("b.txt", &[3.0, 4.0])]).await;
    assert_eq!(embeddings(true).await, [None, None, Some(vec![3.0, 4.0]), None]);
    assert_eq!(model().await.as_deref(), Some("large"));
    put(None, Vec::new()).await;
    assert_eq!(embeddings(true).await, [None, None, None, None]);
    assert_eq!(model().await, None);
    // What is forgotten takes its embeddings along.
    put(Some("small"), vec![embedded("a.txt", &[5.0])]).await;
    store.delete_documents(of(&anna), "notes", "here", &["a.txt".to_owned()], NOW).await.unwrap();
    assert_eq!(embeddings(true).await, [None, None]);
}

pub(crate) async fn frequent_words_are_found_where_they_say_most(store: Engine) {
    // More pieces than a search reads for one word.
    let anna = anna();
    for batch in 0..18 {
        let documents: Vec<NewDocument> = (0..100).map(|number| frequent(batch * 100 + number)).collect();
        put(&store, &anna, "many", &documents).await;
    }
    let best = document("zz/best.txt", &[&"common ".repeat(30), "common rare unique"]);
    put(
        &store,
        &anna,
        "many",
        &[best, attributed("zz/small.txt", "common words of a small repo", &[("repo", "small")])],
    )
    .await;
    assert_eq!(found(&store, &anna, "common").await[0], "zz/best.txt:1");
    assert_eq!(found(&store, &anna, "common unique").await[0], "zz/best.txt:11");
    assert_eq!(found(&store, &anna, "common").await.len(), 50);
    let small = condition("repo", ComparisonOperator::Equals, &["small"]);
    assert_eq!(places(search(&store, &anna, "common", &[small]).await), ["zz/small.txt:1"]);
    // Where there is nothing else to tell pieces apart, any of them will do.
    assert_eq!(found(&store, &anna, "twin").await.len(), 50);
}

/// Ten pieces that all have two words, and none of which these say much about.
fn frequent(number: usize) -> NewDocument {
    let path = format!("d{number:05}");
    let words = |piece: usize| {
        let others = (0..4).map(move |word| format!("w{}", (number * 31 + piece * 7 + word * 13) % 5000));
        ["common".to_owned(), "twin".to_owned()].into_iter().chain((0..200).map(|_| "filler".to_owned())).chain(others)
    };
    let chunk = |piece: usize| NewChunk {
        symbol: None,
        start_line: piece as u64 + 1,
        end_line: piece as u64 + 1,
        content: "text".into(),
        words: words(piece).collect(),
        embedding: None,
    };
    NewDocument { chunks: (0..10).map(chunk).collect(), ..document(&path, &[]) }
}
