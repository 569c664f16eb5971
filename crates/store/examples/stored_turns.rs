//! What a stored turn costs: writers that each wait for the disk, CPU time of this process for each turn.
//!
//! `cargo run --release -p amalgam-store --example stored_turns [WRITERS] [TURNS] [postgres://…]`, in a folder on a real disk.
//! With the address of an empty database that is used, else SQLite in the folder.

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use amalgam_core::{
    Ids, Rights, Scope, Stem, Store, TenantState,
    store::{Begin, ChainPosition, Ending, ProcessId, ResponseState, Transcript, TurnWrite, WriteOutcome},
};
use amalgam_protocol::{Json, Provenance, Status, Usage};
use amalgam_store_postgres::{Postgres, PostgresOptions};
use amalgam_store_sqlite::{Sqlite, SqliteOptions};
use bytes::Bytes;
use tokio::task::JoinSet;

/// Ids begin with the time, which puts rows of the same time beside each other.
static CLOCK: LazyLock<Instant> = LazyLock::new(Instant::now);

#[expect(clippy::print_stdout, reason = "an example tells what it found")]
fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let (writers, turns) = (arguments.next().unwrap_or(16), arguments.next().unwrap_or(50_000));
    let folder = std::env::current_dir().expect("there is a folder").join("stored-turns.tmp");
    let path = folder.join("amalgam.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("threads can be started");
    let store: Arc<dyn Store> = match std::env::args().find(|argument| argument.starts_with("postgres://")) {
        Some(url) => Arc::new(
            runtime.block_on(Postgres::open(&url, PostgresOptions::default())).expect("the database can be used"),
        ),
        None => Arc::new(Sqlite::open(&path, SqliteOptions::default()).expect("the database can be made")),
    };

    let (begun, cpu) = (Instant::now(), cpu_time());
    let mut waited = runtime.block_on(write_all(store.clone(), writers, turns));
    let (took, spent) = (begun.elapsed(), cpu_time().saturating_sub(cpu));
    waited.sort_unstable();
    let per_turn = |time: Duration| time.as_secs_f64() * 1e6 / waited.len() as f64;
    let at = |part: usize| waited.get(waited.len() * part / 1000).copied().unwrap_or_default();
    println!("{} turns by {writers} writers: {:.0} turns/s", waited.len(), waited.len() as f64 / took.as_secs_f64());
    println!("CPU {:.1} µs a turn; waited p50 {:?}, p99 {:?}, p99.9 {:?}", per_turn(spent), at(500), at(990), at(999));

    let reads = 2000;
    let (begun, cpu) = (Instant::now(), cpu_time());
    let length = runtime.block_on(read_chain(&store, reads));
    let (took, spent) = (begun.elapsed(), cpu_time().saturating_sub(cpu));
    let each = |time: Duration| time.as_secs_f64() * 1e6 / reads as f64;
    println!("a line of {length} turns: {:.0} µs, CPU {:.0} µs", each(took), each(spent));
    drop(store);
    if let Ok(file) = std::fs::metadata(&path) {
        println!("{} bytes of database a turn", file.len() / waited.len() as u64);
        std::fs::remove_dir_all(folder).expect("the folder can be removed");
    }
}

async fn write_all(store: Arc<dyn Store>, writers: usize, turns: usize) -> Vec<Duration> {
    let mut racing = JoinSet::new();
    for _ in 0..writers {
        let store = store.clone();
        racing.spawn(async move {
            let mut waited = Vec::with_capacity(turns / writers);
            for _ in 0..turns / writers {
                let begun = Instant::now();
                let write = turn(None);
                assert_eq!(store.write(&caller(), write.into()).await.expect("there is room"), WriteOutcome::Kept);
                waited.push(begun.elapsed());
            }
            waited
        });
    }
    racing.join_all().await.into_iter().flatten().collect()
}

async fn read_chain(store: &Arc<dyn Store>, reads: usize) -> usize {
    let (mut parent, mut last) = (None, String::new());
    for _ in 0..100 {
        let write = turn(parent);
        last.clone_from(&write.response_id);
        store.write(&caller(), write.into()).await.expect("there is room");
        parent = store.lineage(&caller(), &last).await.expect("it can be read").map(|lineage| lineage.place);
    }
    let mut length = 0;
    for _ in 0..reads {
        let lineage = store.lineage(&caller(), &last).await.expect("it can be read");
        length = lineage.map_or(0, |lineage| lineage.turns.len());
    }
    length
}

#[expect(clippy::disallowed_methods, reason = "an example needs a caller without authentication")]
fn caller() -> Scope {
    Scope::authenticated(1, "anna", TenantState::Stored, Rights::USE)
}

/// A turn of about 2 KB with one call.
fn turn(parent: Option<ChainPosition>) -> TurnWrite {
    let now_ms = 1_700_000_000_000 + CLOCK.elapsed().as_millis() as u64;
    let id = Ids::Unguessable.response(now_ms);
    let stem = Stem::of(&id).expect("the id is ours");
    let item = |role: &str, length: usize| {
        let text = format!(
            r#"[{{"id":"msg_AM-{}12345678","type":"message","role":"{role}","content":"{}"}}]"#,
            stem.as_str(),
            "x".repeat(length)
        );
        Json::parse(&Bytes::from(text)).expect("it is JSON")
    };
    let begin = Begin {
        parent,
        status: Status::InProgress,
        created_at_ms: now_ms,
        settings: Bytes::from(format!(r#""model":"demo","instructions":"{}""#, "y".repeat(500))),
        input: item("user", 400),
        background: false,
        streamed: false,
        conversation: None,
        request: None,
    };
    let usage = Usage { input_tokens: 100, output_tokens: 200, total_tokens: Some(300), ..Usage::default() };
    let state = ResponseState {
        status: Status::Completed,
        completed_at_ms: Some(now_ms + 900),
        error: None,
        incomplete_reason: None,
        usage: Some(usage),
        provenance: Provenance::default(),
    };
    let call = Transcript {
        number: 0,
        upstream: "up".into(),
        model: "m".into(),
        asked_at_ms: now_ms,
        first_token_ms: Some(100),
        duration_ms: 900,
        retries: 0,
        base: None,
        request: Bytes::from(vec![b'q'; 1000]),
        response: Bytes::from(vec![b'a'; 1500]),
        cut: false,
        usage: None,
        losses: Vec::new(),
        error: None,
    };
    TurnWrite {
        response_id: id,
        process: ProcessId(7),
        begin: Some(Box::new(begin)),
        started: false,
        events: None,
        end: Some(Box::new(Ending { state, output: item("assistant", 1100), upstream: None })),
        transcripts: vec![call],
        raw_answer: None,
        summary: None,
        tools: Vec::new(),
        approvals: Vec::new(),
        session: None,
        answer: None,
        settlements: Vec::new(),
    }
}

/// User and system time of this process so far, in steps of 10 ms.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("this runs on Linux");
    let behind_the_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = behind_the_name.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
