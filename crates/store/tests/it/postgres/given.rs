//! Databases and servers for tests, each its own.

use std::{
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use amalgam_store_postgres::{Postgres, PostgresOptions};
use amalgam_testkit::Database;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use super::proxy::Proxy;
use crate::given::Engine;

/// A machine that tests has more to do than to serve.
pub(super) fn patient() -> PostgresOptions {
    let long = Duration::from_secs(60);
    PostgresOptions { wait: long, statement: long, deadline: long, ..PostgresOptions::default() }
}

/// Gives up soon, though not before a busy machine has made a connection.
pub(super) fn impatient() -> PostgresOptions {
    PostgresOptions { wait: Duration::from_secs(1), deadline: Duration::from_secs(2), ..PostgresOptions::default() }
}

/// A database that is dropped with its handle.
pub(super) struct Fresh(Database);

impl Fresh {
    pub(super) fn make() -> Self {
        Self(Database::fresh().expect("AMALGAM_TEST_POSTGRES names a server"))
    }

    pub(super) fn url(&self) -> &str {
        self.0.url()
    }

    pub(super) async fn store(&self) -> Engine {
        self.store_with(patient()).await
    }

    pub(super) async fn store_with(&self, options: PostgresOptions) -> Engine {
        Arc::new(Postgres::open(self.url(), options).await.unwrap())
    }

    /// A store that reaches its server through a proxy, which loses messages on request.
    pub(super) async fn store_behind_a_proxy(&self, options: PostgresOptions) -> (Proxy, Engine) {
        let proxy = Proxy::to(self.url()).await;
        let store = Postgres::open(proxy.url(), options).await.unwrap();
        (proxy, Arc::new(store))
    }

    /// A way in past the store.
    pub(super) async fn aside(&self) -> Aside {
        Aside::connect(self.url()).await
    }
}

/// A connection that is not the store's.
pub(super) struct Aside {
    pub(super) client: Client,
    _task: JoinSet<()>,
}

impl Aside {
    pub(super) async fn connect(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let _ = connection.await;
        });
        Self { client, _task: task }
    }

    pub(super) async fn run(&self, statement: &str) {
        self.client.batch_execute(statement).await.unwrap();
    }

    pub(super) async fn count(&self, statement: &str) -> i64 {
        self.client.query_one(statement, &[]).await.unwrap().get(0)
    }

    /// Waits until a count is something, which it must become soon.
    pub(super) async fn until(&self, statement: &str, is_enough: impl Fn(i64) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let count = self.count(statement).await;
            if is_enough(count) {
                return;
            }
            assert!(Instant::now() < deadline, "{statement} stays {count}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// How many of our statements wait for a lock.
pub(super) const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'amalgam' AND wait_event_type = 'Lock'";

/// A server of a test's own, which may go down.
pub(super) struct Cluster {
    folder: TempDir,
    url: String,
}

impl Cluster {
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = tell("start", &folder).trim().to_owned();
        Self { folder, url }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// At once, as when it is killed.
    pub(super) fn down(&self) {
        tell("down", &self.folder);
    }

    pub(super) fn up(&self) {
        tell("up", &self.folder);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        tell("stop", &self.folder);
    }
}

fn tell(verb: &str, folder: &TempDir) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres.sh");
    let mut command = Command::new(script);
    command.arg(verb).arg(folder.path()).stdin(Stdio::null());
    let output = command.output().expect("the script can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() && !std::thread::panicking() {
        panic!("{verb}: {}", String::from_utf8_lossy(&output.stderr));
    }
    text
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
