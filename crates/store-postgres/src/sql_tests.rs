use std::{
    fs,
    path::{Path, PathBuf},
};

use amalgam_store::sql::{Declared, Sql};
use amalgam_testkit::Database;

use super::{Postgres, PostgresOptions, connection::Connection};

/// Tables whose rows belong to a user or a tenant.
const SCOPED: &[&str] = &[
    "responses",
    "items",
    "stream_events",
    "transcripts",
    "turns",
    "usage_hours",
    "tool_runs",
    "approvals",
    "agent_tools",
    "idempotency",
    "conversations",
    "conversation_items",
    "agent_configs",
    "agent_profiles",
    "profile_versions",
    "sessions",
    "session_queue",
    "messages",
    "message_metadata",
    "client_messages",
    "courses",
    "learner_courses",
    "agent_sessions",
    "agent_steps",
    "mode_changes",
    "agent_modes",
    "files",
    "file_contents",
    "knowledge_collections",
    "knowledge_documents",
    "knowledge_chunks",
    "knowledge_embeddings",
    "knowledge_words",
];

fn all() -> impl Iterator<Item = Declared> {
    let files = [
        super::batch::ALL,
        super::chains::ALL,
        super::courses::ALL,
        super::execute::ALL,
        super::journal::ALL,
        super::knowledge::ALL,
        super::pool::ALL,
        super::processes::ALL,
        super::prune::ALL,
        super::responses::ALL,
        super::session_queue::ALL,
        super::shared::ALL,
        super::turn_list::ALL,
        super::turns::ALL,
    ];
    files.into_iter().flatten().copied().chain(super::statements::STATEMENTS.all())
}

fn words(text: &str) -> Vec<&str> {
    text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == '$')).collect()
}

/// A connection to a database that has every table and no row.
fn with_connection(check: impl AsyncFnOnce(Connection)) {
    let database = Database::fresh().expect("AMALGAM_TEST_POSTGRES names a server");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        Postgres::open(database.url(), PostgresOptions::default()).await.unwrap();
        let (_, connector) = super::connector(database.url(), &PostgresOptions::default()).await.unwrap();
        check(connector.connect().await.unwrap()).await;
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn every_statement_can_be_prepared() {
    with_connection(async |connection| {
        for (_, name, sql) in all() {
            connection.prepared(sql).await.unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn no_statement_of_a_caller_walks_through_a_table() {
    with_connection(async |connection| {
        for (_, name, sql) in all().filter(|(kind, ..)| *kind != "OperatorSql") {
            // The only way to explain a statement without its values that all server versions support.
            let statement = connection.prepared(sql).await.unwrap();
            let nulls = vec!["NULL"; statement.params().len()].join(", ");
            let steps = [
                ["PREPARE walked AS ", sql.text].concat(),
                if nulls.is_empty() {
                    "EXPLAIN EXECUTE walked".into()
                } else {
                    format!("EXPLAIN EXECUTE walked ({nulls})")
                },
                "DEALLOCATE walked".into(),
            ];
            let mut plan = String::new();
            for step in &steps {
                for message in
                    connection.client().simple_query(step).await.unwrap_or_else(|error| panic!("{name}: {error}"))
                {
                    if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                        plan.push_str(row.get(0).unwrap_or_default());
                        plan.push('\n');
                    }
                }
            }
            assert!(!plan.contains("Seq Scan"), "{name} walks:\n{plan}");
        }
    });
}

#[test]
fn statements_about_what_callers_have_carry_the_scope() {
    // S10
    for (kind, name, Sql { text, .. }) in all() {
        let words = words(text);
        let has = |word: &str| words.contains(&word);
        match kind {
            "UserSql" => {
                assert!(has("tenant_id") && has("user_id") && has("$1") && has("$2"), "{name} is not for one user");
                // Every part of a statement that reads or changes rows names their owner.
                for part in text.split("WHERE ").skip(1) {
                    let scoped = part.contains("tenant_id");
                    let by_place = [
                        "NOT EXISTS",
                        "before <",
                        "fork.parent_chain",
                        "needed.",
                        "call.",
                        "k.",
                        "parent_chain IS NULL",
                        "id IN",
                        "active DO",
                    ];
                    assert!(scoped || by_place.iter().any(|known| part.starts_with(known)), "{name}: WHERE {part}");
                }
            }
            "TenantSql" => assert!(has("tenant_id") && has("$1"), "{name} is not for one tenant"),
            _ => {}
        }
        for (place, _) in text.match_indices("tenant_id = ").filter(|_| kind != "OperatorSql") {
            let bound = text.get(place + "tenant_id = ".len()..).unwrap_or_default();
            let same = ["$1", "r.tenant_id", "new.tenant_id"].iter().any(|known| bound.starts_with(known));
            assert!(same, "{name} has another tenant: {bound}");
        }
    }
}

#[test]
fn only_the_installation_itself_touches_rows_of_all_tenants() {
    // The statements that may run without a scope: they end turns, take queued ones, delete by retention and reset.
    // Each has its reason.
    const KNOWN: &[&str] = &[
        // A dead process, a queue, and turns that another process takes.
        "REQUEUE",
        "FAIL",
        "UNKNOWN_RUNS",
        "SET_ERRORS",
        "ANSWER_CLAIMS",
        "FREE_CLAIMS",
        "CLAIMS_HELD",
        "ENTRIES_HELD",
        "ADD_ERRORS",
        "TAKE_QUEUED",
        "COUNT_QUEUED",
        "TAKEN",
        "GIVE_BACK",
        "HELD",
        // Turns of several tenants that end together.
        "PUT_TURNS",
        "FAIL_TURNS",
        // Old rows.
        "OLD_TURNS",
        "OLD_STREAMS",
        "OLD_TRANSCRIPTS",
        "OLD_RUNS",
        "OLD_APPROVALS",
        "OLD_CLAIMS",
        "OLD_RESPONSES",
        "EXPIRED_FILES",
        // Everything.
        "RESET_RUNTIME",
        "RESET_RUNTIME_OF",
        "RESET_ASSISTANTS",
        "RESET_ASSISTANTS_OF",
    ];
    for (_, name, Sql { text, .. }) in all().filter(|(kind, ..)| *kind == "OperatorSql") {
        let scoped = words(text).into_iter().any(|word| SCOPED.contains(&word));
        let known = KNOWN.contains(&name) || name == "RESET_ALL";
        assert!(!scoped || known, "{name} touches rows of users without a scope");
    }
}

/// The files below a folder that are not tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect();
    files.retain(|path| !path.to_string_lossy().ends_with("_tests.rs"));
    files
}

/// The mistakes in a file's use of the database.
fn spoken_wrongly(name: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let formats = line.contains("format!") || line.contains("concat") || line.contains("push_str");
        let keyword = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WHERE ", "SET ", "CREATE "];
        if formats && keyword.iter().any(|keyword| line.contains(keyword)) {
            wrong.push(format!("{name}:{}: text is put into SQL", number + 1));
        }
    }
    // However a call is broken into lines, it is one.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace(" .", ".").replace("( ", "(");
    // Dumps and copies name the tables and columns that the schema has.
    let names_tables = ["backup.rs", "copy.rs"].contains(&name);
    let may_prepare = names_tables || ["connection.rs", "schema.rs", "batch.rs", "listener.rs"].contains(&name);
    for call in [".prepare(", ".batch_execute(", ".simple_query(", "_typed("] {
        if !may_prepare && text.contains(call) {
            wrong.push(format!("{name}: `{call}` is a statement past `connection.rs`"));
        }
    }
    for call in [".query(", ".query_one(", ".query_opt(", ".query_raw(", ".execute(", ".execute_raw("] {
        for (place, _) in text.match_indices(call) {
            let given = text.get(place + call.len()..).unwrap_or_default().split(',').next().unwrap_or_default();
            if !(is_statement(given) || names_tables) {
                wrong.push(format!("{name}: `{call}{given}` is given something else than a statement"));
            }
        }
    }
    wrong
}

/// Whether what a call is given is a constant, one of several, or a variable that holds one or what was made of it.
fn is_statement(given: &str) -> bool {
    given.split(|letter: char| " &{}".contains(letter)).filter(|word| !word.is_empty()).all(|word| {
        let is_constant = word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_');
        is_constant || ["statement", "sql", "if", "else", "replace"].contains(&word)
    })
}

#[test]
fn statements_are_literals_and_nothing_is_formatted_into_them() {
    // S11: a statement is made from a literal by `statements!`. Other text is passed to the driver only for
    // transactions, settings, listening and migrations.
    let files = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(files.iter().any(|path| path.ends_with("batch/columns.rs")), "folders are looked into");
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(spoken_wrongly(name, &fs::read_to_string(&path).unwrap()), Vec::<String>::new());
    }
}

#[test]
fn text_that_goes_to_the_driver_past_the_constants_is_found() {
    for wrong in [
        "client().query(&format!(\"SELECT {x}\"), &[])",
        "connection\n    .client()\n    .query(\n        &text,\n        &[],\n    )",
        "client.execute(text.as_str(), &[])",
        "client\n    .batch_execute(&text)",
        "client.query_typed(&text, &[])",
        "connection.execute(&format!(\"DELETE FROM x\"), &[])",
    ] {
        assert_ne!(spoken_wrongly("turns.rs", wrong), Vec::<String>::new(), "{wrong}");
    }
    for right in ["client.query(&statement, &params)", "connection.execute(&FORGET_TOOL, &[])"] {
        assert_eq!(spoken_wrongly("turns.rs", right), Vec::<String>::new(), "{right}");
    }
}
