use std::{fs, path::Path};

use amalgam_store::sql::{Declared, Sql};
use rusqlite::{Connection, StatementStatus};

use super::{file, schema::MIGRATIONS};

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
    "course_words",
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
        super::ALL,
        super::approvals::ALL,
        super::claims::ALL,
        super::conversations::ALL,
        super::courses::ALL,
        super::execute::ALL,
        super::files::ALL,
        super::item_positions::ALL,
        super::journal::ALL,
        super::knowledge::ALL,
        super::processes::ALL,
        super::prune::ALL,
        super::responses::ALL,
        super::session_queue::ALL,
        super::transcripts::ALL,
        super::turn_list::ALL,
        super::turns::ALL,
    ];
    files.into_iter().flatten().copied().chain(super::prune::resets()).chain(super::statements::STATEMENTS.all())
}

fn migrated() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.pragma_update(None, "automatic_index", false).unwrap();
    for migration in MIGRATIONS {
        connection.execute_batch(migration.sql).unwrap();
    }
    connection
}

fn words(text: &str) -> Vec<&str> {
    text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == '?')).collect()
}

#[test]
fn every_statement_can_be_prepared() {
    let connection = migrated();
    for (_, name, Sql { sqlite: text, .. }) in all() {
        if let Err(error) = connection.prepare(text) {
            panic!("{name}: {error}");
        }
    }
}

#[test]
fn statements_about_what_callers_have_carry_the_scope() {
    // S10
    for (kind, name, Sql { sqlite: text, .. }) in all() {
        let words = words(text);
        let has = |word: &str| words.contains(&word);
        match kind {
            "UserSql" => {
                assert!(has("tenant_id") && has("user_id") && has("?1") && has("?2"), "{name} is not for one user");
                for part in text.split("UNION ALL") {
                    assert!(part.contains("tenant_id") && part.contains("user_id"), "a part of {name} has no scope");
                }
            }
            "TenantSql" => assert!(has("tenant_id") && has("?1"), "{name} is not for one tenant"),
            _ => {}
        }
        if let Some(place) = text.find("tenant_id =") {
            let rest = text.get(place..).unwrap_or_default();
            assert!(kind == "OperatorSql" || rest.starts_with("tenant_id = ?1"), "{name} has another tenant");
        }
    }
}

#[test]
fn only_the_installation_itself_touches_rows_of_all_tenants() {
    // The statements that may run without a scope: they end turns, take queued ones, delete by retention and reset.
    // Each has its reason.
    const KNOWN: &[&str] = &[
        // A dead process, a queue, and turns that another process takes.
        "REQUEUE_WAITING",
        "FAIL_HELD",
        "SET_ERROR",
        "CLAIMS_HELD",
        "ENTRIES_HELD",
        "TAKE_QUEUED",
        "COUNT_QUEUED",
        "GIVE_BACK",
        "HELD",
        // Old rows.
        "OLD_STREAMS",
        "STREAM_IS_GONE",
        "OLD_TRANSCRIPTS",
        "OLD_RUNS",
        "OLD_APPROVALS",
        "OLD_CLAIMS",
        "OLD_RESPONSES",
        "OLD_TURNS",
        "EXPIRED_FILES",
        // Everything.
        "RESET",
        "RESET_WORDS",
        "RESET_CHUNK_WORDS",
    ];
    for (kind, name, Sql { sqlite: text, .. }) in all().filter(|(kind, _, _)| *kind == "OperatorSql") {
        let scoped = words(text).into_iter().any(|word| SCOPED.contains(&word));
        let known = KNOWN.contains(&name);
        assert!(!scoped || known, "{name} ({kind}) touches rows of users without a scope");
    }
}

#[test]
fn no_statement_of_a_caller_walks_through_a_table() {
    let connection = migrated();
    for (_, name, Sql { sqlite: text, .. }) in all().filter(|(kind, _, _)| *kind != "OperatorSql") {
        let mut explain = connection.prepare(&["EXPLAIN QUERY PLAN ", text].concat()).unwrap();
        let count = explain.parameter_count();
        let params = rusqlite::params_from_iter((0..count).map(|_| 1));
        let plan: Vec<String> =
            explain.query_map(params, |row| row.get(3)).unwrap().map(|line| line.unwrap()).collect();
        // A full-text index is searched by words, and an argument is a list: the plan shows both after `INDEX`.
        let by_words = |line: &str| line.contains("VIRTUAL TABLE INDEX") && !line.ends_with("INDEX 0:");
        // So is what the statement itself has made.
        let own = |line: &str| line.contains("path") || matches!(line, "SCAN best" | "SCAN counted" | "SCAN looked_at");
        let walks = plan.iter().any(|line| line.starts_with("SCAN") && !own(line) && !by_words(line));
        assert!(!walks, "{name} walks: {plan:#?}");
        assert!(!plan.iter().any(|line| line.contains("AUTOMATIC")), "{name} makes an index: {plan:#?}");
        // What is found by words has to be put in its order, and what is summed in groups.
        let ranks = matches!(name, "FIND_COURSES" | "USAGE");
        assert!(ranks || !plan.iter().any(|line| line.contains("TEMP B-TREE")), "{name} sorts: {plan:#?}");
    }
}

#[test]
fn no_statement_is_planned_for_each_value_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("amalgam.db");
    file::create(&path).unwrap();
    let connection = file::open_writer(&path, None).unwrap();
    for migration in MIGRATIONS {
        connection.execute_batch(migration.sql).unwrap();
    }
    for (_, name, Sql { sqlite: text, .. }) in all() {
        let mut statement = connection.prepare(text).unwrap();
        for value in ["a", "b", "c"] {
            for index in 1..=statement.parameter_count() {
                statement.raw_bind_parameter(index, value).unwrap();
            }
            // Some columns refuse such a value. It is planned all the same.
            let _ = statement.raw_query().next();
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{name}");
    }
}

#[test]
fn statements_are_literals_and_nothing_is_formatted_into_them() {
    // S11: a statement is made from a literal by `statements!`. Other text runs only for transactions, settings and
    // migrations, and from the redo log of an older server. Copies use the names of the schema's tables and columns.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let source = fs::read_to_string(&path).unwrap();
        if name.ends_with("_tests.rs") {
            continue;
        }
        for (number, line) in source.lines().take_while(|line| *line != "#[cfg(test)]").enumerate() {
            let formats = line.contains("format!") || line.contains(".concat") || line.contains("push_str");
            let keyword = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WHERE ", "PRAGMA "];
            let is_sql = keyword.iter().any(|keyword| line.contains(keyword));
            assert!(!(formats && is_sql), "{name}:{}: text is put into SQL", number + 1);
            let preparing = ["query.rs", "writer.rs", "schema.rs", "legacy_redo_log.rs", "backup.rs", "export.rs"];
            let may_prepare = preparing.contains(&name.as_str());
            let prepares = line.contains(".prepare") || line.contains(".execute_batch") || line.contains(".query_row(");
            assert!(may_prepare || !prepares, "{name}:{}: a statement past `query.rs`", number + 1);
        }
    }
}
