//! Every storage engine that can be tested here: what holds on one has to hold on the other.

use std::{collections::HashMap, time::Duration};

use amalgam_testkit::{Amalgam, Database, Setup};

/// A store for one test; it is removed with its handle.
pub(crate) struct TestStore {
    /// For messages of failing tests.
    pub(crate) name: &'static str,
    database: Option<Database>,
}

/// The embedded store, and PostgreSQL where a server is named for tests.
pub(crate) fn stores() -> Vec<TestStore> {
    let postgres = Database::fresh().map(|database| TestStore { name: "postgres", database: Some(database) });
    [embedded_store()].into_iter().chain(postgres).collect()
}

/// The store that a server has by itself.
pub(crate) fn embedded_store() -> TestStore {
    TestStore { name: "sqlite", database: None }
}

/// PostgreSQL, which several processes can share; none where no server is named for tests.
pub(crate) fn shared_store() -> Option<TestStore> {
    let shared = Database::fresh().map(|database| TestStore { name: "postgres", database: Some(database) });
    if shared.is_none() {
        super::say("skipped: AMALGAM_TEST_POSTGRES names no server");
    }
    shared
}

impl TestStore {
    /// The set-up with this store: the embedded one is what a server has by itself.
    pub(crate) fn setup(&self, setup: Setup) -> Setup {
        self.environment().into_iter().fold(setup, |setup, (name, value)| setup.env(name, value))
    }

    /// The variables that name this store to a command. A machine that tests has more to do than to serve, so that the
    /// database gets more time than usual.
    pub(crate) fn environment(&self) -> Vec<(&str, &str)> {
        let named = |database| [("AMALGAM_STORE_URL", Database::url(database)), ("AMALGAM_STORE_TIMEOUT", "50s")];
        self.database.iter().flat_map(named).collect()
    }

    /// Has the database refuse writes with the error of a full disk, or take them again.
    pub(crate) fn disk_is_full(&self, full: bool) {
        let each = match full {
            true => "CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE OR DELETE ON %I EXECUTE FUNCTION full_disk()",
            false => "DROP TRIGGER full_disk ON %I",
        };
        self.server().ask(&format!(
            "CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$; \
             DO $$ DECLARE name text; BEGIN FOR name IN SELECT tablename FROM pg_tables \
             WHERE schemaname = 'public' LOOP EXECUTE format('{each}', name); END LOOP; END $$"
        ));
    }

    /// Responses that have not ended, as the database itself counts them; only of a store that others can look into.
    pub(crate) fn unfinished(&self) -> usize {
        let count = self.server().ask("SELECT count(*) FROM responses WHERE status IN ('queued', 'in_progress')");
        count.parse().expect("a count is a number")
    }

    /// Has the database note from now on which process has which turn.
    pub(crate) fn note_hands(&self) {
        const NOTE: &str = "
            CREATE TABLE hands (response text NOT NULL, process bytea, at timestamptz NOT NULL DEFAULT clock_timestamp());
            CREATE FUNCTION note_hands() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF TG_OP = 'INSERT' OR OLD.process IS DISTINCT FROM NEW.process THEN
                    INSERT INTO hands (response, process) VALUES (NEW.id, NEW.process);
                END IF;
                RETURN NULL;
            END $$;
            CREATE TRIGGER hands AFTER INSERT OR UPDATE OF process ON responses
                FOR EACH ROW EXECUTE FUNCTION note_hands()";
        self.server().ask(NOTE);
    }

    /// How long every turn that has not ended has been in the hands that it is in.
    pub(crate) fn in_hand(&self) -> HashMap<String, Duration> {
        const LAST: &str = "
            SELECT id || ' ' || extract(epoch FROM clock_timestamp() - max(hands.at))
            FROM responses JOIN hands ON hands.response = id WHERE status IN ('queued', 'in_progress') GROUP BY id";
        let told = self.server().ask(LAST);
        let each = told.lines().filter_map(|line| line.split_once(' '));
        each.map(|(id, passed)| {
            let passed = passed.parse().expect("seconds are a number");
            (id.to_owned(), Duration::from_secs_f64(passed))
        })
        .collect()
    }

    /// Runs statements on the database beside the server, as a person with a database shell can.
    pub(crate) fn run(&self, amalgam: &Amalgam, statements: &str) {
        match &self.database {
            Some(database) => drop(database.ask(statements)),
            None => {
                let path = amalgam.folder().join("data/amalgam.db");
                let connection = rusqlite::Connection::open(path).expect("the database can be opened");
                connection.busy_timeout(Duration::from_secs(30)).expect("a timeout can be set");
                connection.execute_batch(statements).expect("the statements can be run");
            }
        }
    }

    fn server(&self) -> &Database {
        self.database.as_ref().expect("this store is a server")
    }

    /// Whether the database holds a text, as it is or as bytes; none for a store that others cannot look into.
    pub(crate) fn holds(&self, text: &str) -> Option<bool> {
        const ALL: &str = "SET xmlbinary = hex; SELECT string_agg(query_to_xml(format('SELECT * FROM %I.%I', schemaname, \
                           tablename), true, false, '')::text, '') FROM pg_tables \
                           WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
        let dump = self.database.as_ref()?.ask(ALL).to_lowercase();
        let bytes: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        Some(dump.contains(&text.to_lowercase()) || dump.contains(&bytes))
    }
}
