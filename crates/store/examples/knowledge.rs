//! What a search costs in a large collection: CPU time of this process for each, and of the server where there is one.
//!
//! `cargo run --release -p amalgam-store --example knowledge [PIECES] [postgres://…]`, in a folder on a real disk with some
//! gigabytes of room; a million pieces unless told otherwise. With the address of a database that is used, whose server has to
//! run on this machine and whose name has to be its own for its time to be seen; else SQLite in the folder. Pieces that are
//! there already are used again: a folder stays if `keep` is among the arguments.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use amalgam_core::{
    ComparisonOperator, Condition, Rights, Scope, Store, TenantState,
    store::{KnowledgeQuery, NewDocument, Within},
};
use amalgam_knowledge::{chunks, question};
use amalgam_store_postgres::{Postgres, PostgresOptions};
use amalgam_store_sqlite::{Sqlite, SqliteOptions};

/// A document has so many pieces, and so many documents are brought in at once.
const PIECES: u64 = 20;
const AT_ONCE: u64 = 50;
/// Words that others are made of.
const SYLLABLES: [&str; 24] = [
    "ba", "co", "du", "fe", "gi", "ha", "jo", "ku", "la", "mi", "no", "pa", "qui", "ro", "su", "ta", "ul", "ve", "wo",
    "xa", "yo", "zi", "tri", "sol",
];

#[expect(clippy::print_stdout, reason = "an example tells what it found")]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let pieces: u64 = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(1_000_000);
    let url = arguments.iter().find(|argument| argument.starts_with("postgres://"));
    let folder = std::env::current_dir().expect("there is a folder").join("knowledge.tmp");
    let path = folder.join("amalgam.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("threads can be started");
    let store: Arc<dyn Store> = match url {
        Some(url) => Arc::new(
            runtime.block_on(Postgres::open(url, PostgresOptions::default())).expect("the database can be used"),
        ),
        None => Arc::new(Sqlite::open(&path, SqliteOptions::default()).expect("the database can be made")),
    };

    let known = runtime.block_on(store.collections(&caller())).expect("it can be read");
    let known: u64 = known.iter().map(|collection| collection.chunks).sum();
    if known < pieces {
        let (begun, spent) = (Instant::now(), Spent::by(url));
        runtime.block_on(import(&store, known / PIECES..pieces / PIECES));
        let (took, [own, server]) = (begun.elapsed(), spent.since());
        println!("{} pieces in {took:.0?}: CPU {own:.0?} here, {server:.0?} in the server", pieces - known);
    }

    let repo = [Condition { key: "repo".into(), operator: ComparisonOperator::Equals, values: vec!["repo7".into()] }];
    let folder_of =
        [Condition { key: "path".into(), operator: ComparisonOperator::Contains, values: vec!["/m3/".into()] }];
    let long: Vec<String> = (0..200).map(|rank| word(rank * rank)).collect();
    let cases: [(&str, String, &[Condition<'_>]); 9] = [
        ("a rare word", word(30_000), &[]),
        ("a word of one piece in a thousand", word(400), &[]),
        ("three words of all kinds", [word(3), word(300), word(20_000)].join(" "), &[]),
        ("the most frequent word", word(0), &[]),
        ("eight of the most frequent words", (0..8).map(word).collect::<Vec<_>>().join(" "), &[]),
        ("eight frequent words", (20..28).map(word).collect::<Vec<_>>().join(" "), &[]),
        ("two hundred words", long.join(" "), &[]),
        ("frequent words in one repository", [word(1), word(25)].join(" "), &repo),
        ("frequent words in folders", [word(1), word(25)].join(" "), &folder_of),
    ];
    for (name, text, conditions) in cases {
        let words = question(&text);
        let query = KnowledgeQuery { collections: &[], words: &words, conditions, limit: 24, embeddings: false };
        let search = || runtime.block_on(store.search_knowledge(&caller(), query)).expect("it can be read");
        // Statements are prepared and pages are read.
        let found = (0..3).map(|_| search().len()).max().unwrap_or_default();
        let times = 40;
        let (begun, spent) = (Instant::now(), Spent::by(url));
        (0..times).for_each(|_| drop(search()));
        let (took, [own, server]) = (begun.elapsed() / times, spent.since().map(|time| time / times));
        println!(
            "{name}: {found} found, CPU {:.1?} ({own:.1?} here, {server:.1?} in the server), took {took:.1?}",
            own + server
        );
    }
    drop(store);
    if let Ok(file) = std::fs::metadata(&path) {
        println!("{} bytes of database a piece", file.len() / pieces);
        if !arguments.iter().any(|argument| argument == "keep") {
            std::fs::remove_dir_all(folder).expect("the folder can be removed");
        }
    }
}

async fn import(store: &Arc<dyn Store>, documents: std::ops::Range<u64>) {
    for first in documents.clone().step_by(AT_ONCE as usize) {
        let batch = (first..(first + AT_ONCE).min(documents.end)).map(document).collect();
        let caller = caller();
        let within = Within::Own(caller.admin().expect("the caller may"));
        let put = store.put_documents(within, "code", "here", None, batch, 1_700_000_000_000).await;
        put.expect("there is room").expect("the tenant is there");
    }
}

/// A file of about forty lines a piece, with words as frequent as those of real texts: the second half as often as the first,
/// the third a third as often.
fn document(number: u64) -> NewDocument {
    let mut random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut text = String::new();
    for piece in 0..PIECES {
        text.push_str(&format!("fn {}_{piece}() {{\n", word(number * PIECES + piece + 100)));
        for _ in 0..30 {
            // Ranks by Zipf's law over a vocabulary of some hundred thousand.
            let mut draw = || word((300_000_f64.powf(next()) - 1.0) as u64);
            let (first, second, third, fourth) = (draw(), draw(), draw(), draw());
            text.push_str(&format!("    {first}.{second}({third}, {fourth});\n"));
        }
        text.push_str("}\n\n");
    }
    let path = format!("repo{}/m{}/file{number}.rs", number % 40, number % 13);
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&number.to_le_bytes());
    NewDocument {
        chunks: chunks(&path, "rust", &text),
        path,
        digest,
        language: "rust".into(),
        attributes: vec![("repo".into(), format!("repo{}", number % 40))],
    }
}

/// The word of a rank.
fn word(rank: u64) -> String {
    let (mut word, mut rest) = (String::from("k"), rank + 24);
    while rest > 0 {
        word.push_str(SYLLABLES[(rest % 24) as usize]);
        rest /= 24;
    }
    word
}

#[expect(clippy::disallowed_methods, reason = "an example needs a caller without authentication")]
fn caller() -> Scope {
    Scope::authenticated(1, "anna", TenantState::Stored, Rights::USE.and(Rights::ADMIN))
}

/// User and system time so far, of this process and of what serves it, in steps of 10 ms.
struct Spent<'a> {
    /// Processes of the server say which database they work for.
    database: Option<&'a str>,
    before: [Duration; 2],
}

impl<'a> Spent<'a> {
    fn by(url: Option<&'a String>) -> Self {
        let database = url.and_then(|url| url.rsplit('/').next());
        Self { database, before: Self::now(database) }
    }

    fn now(database: Option<&str>) -> [Duration; 2] {
        let own = cpu_time(Path::new("/proc/self")).unwrap_or_default();
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
        let works = |name: &str| database.is_some_and(|database| name.contains(&format!(" {database} ")));
        let servers = all.filter(|path| {
            let name = std::fs::read_to_string(path.join("cmdline")).unwrap_or_default();
            name.starts_with("postgres:") && works(&name)
        });
        [own, servers.filter_map(|path| cpu_time(&path)).sum()]
    }

    fn since(&self) -> [Duration; 2] {
        let [own, server] = Self::now(self.database);
        let [own_before, server_before] = self.before;
        [own.saturating_sub(own_before), server.saturating_sub(server_before)]
    }
}

fn cpu_time(process: &Path) -> Option<Duration> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    let behind_the_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = behind_the_name.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks * 10))
}
