//! TLS: an address that asks for it gets it, with the checks that it names, or nothing at all.

use std::path::Path;

use amalgam_core::Store as _;
use amalgam_store::SqlStore;
use amalgam_store_postgres::{Postgres, PostgresOpenError, PostgresOptions};
use amalgam_testkit::Certificates;

use super::given::{Aside, Cluster, Fresh, runtime};

async fn open(url: &str, options: &str) -> Result<SqlStore<Postgres>, PostgresOpenError> {
    Postgres::open(&format!("{url}?{options}"), PostgresOptions::default()).await
}

fn text(opened: Result<SqlStore<Postgres>, PostgresOpenError>) -> String {
    let error = opened.err().expect("it must be refused");
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_server_without_tls_is_refused_where_tls_is_asked_for() {
    let database = Fresh::make();
    runtime().block_on(async {
        for mode in ["require", "verify-ca", "verify-full"] {
            let refused = text(open(database.url(), &format!("sslmode={mode}")).await);
            assert!(refused.contains("TLS"), "{refused}");
        }
        open(database.url(), "sslmode=prefer").await.unwrap();
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn certificates_are_checked_as_far_as_the_address_asks() {
    let cluster = Cluster::start();
    let [ours, strangers] = [(); 2].map(|()| Certificates::for_names("DNS:localhost"));
    runtime().block_on(async {
        let aside = Aside::connect(cluster.url()).await;
        switch_tls_on(&cluster, &aside, &ours).await;

        let by_name = cluster.url().replace("127.0.0.1", "localhost");
        let [authority, stranger] =
            [&ours, &strangers].map(|of| of.authority().display().to_string().replace('/', "%2F"));
        let checked = format!("sslmode=verify-full&sslrootcert={authority}");
        let store = open(&by_name, &checked).await.unwrap();
        store.ping().await.unwrap();
        let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
            WHERE application_name = 'amalgam' AND NOT ssl";
        assert_eq!(aside.count(encrypted).await, 0);

        // Another name than the certificate's, and an unknown authority.
        let refused = text(open(cluster.url(), &checked).await);
        assert!(refused.contains("certificate"), "{refused}");
        open(cluster.url(), &format!("sslmode=verify-ca&sslrootcert={authority}")).await.unwrap();
        for mode in ["require", "verify-ca", "verify-full"] {
            let refused = text(open(&by_name, &format!("sslmode={mode}&sslrootcert={stranger}")).await);
            assert!(refused.contains("certificate"), "{mode}: {refused}");
        }
        open(cluster.url(), "sslmode=require").await.unwrap();
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_password_is_bound_to_the_tls_session_where_the_address_asks_for_it() {
    let cluster = Cluster::start();
    let certificates = Certificates::for_names("DNS:localhost");
    runtime().block_on(async {
        let aside = Aside::connect(cluster.url()).await;
        switch_tls_on(&cluster, &aside, &certificates).await;
        // Passwords in plain text cannot be bound to anything.
        let refused = text(open(cluster.url(), "sslmode=require&channel_binding=require").await);
        assert!(refused.contains("channel binding"), "{refused}");

        // With SCRAM over TLS the server offers SCRAM-SHA-256-PLUS, and an address that requires channel binding takes
        // nothing else.
        let rules = "host all all 127.0.0.1/32 scram-sha-256\nhost all all ::1/128 scram-sha-256\n";
        std::fs::write(cluster.folder().join("data/pg_hba.conf"), rules).unwrap();
        aside.run("SELECT pg_reload_conf()").await;
        let scram = "SELECT count(*) FROM pg_hba_file_rules WHERE auth_method <> 'scram-sha-256'";
        aside.until(scram, |others| others == 0).await;
        let authority = certificates.authority().display().to_string().replace('/', "%2F");
        let by_name = cluster.url().replace("127.0.0.1", "localhost");
        let checked = format!("sslmode=verify-full&sslrootcert={authority}&channel_binding=require");
        for (url, options) in [
            (cluster.url(), "sslmode=require&channel_binding=require"),
            (&by_name, &checked),
            (cluster.url(), "sslmode=require"),
            (cluster.url(), "sslmode=require&channel_binding=disable"),
            (cluster.url(), "sslmode=disable"),
        ] {
            open(url, options).await.unwrap().ping().await.unwrap();
        }

        // Without TLS there is no channel to bind to.
        let refused = text(open(cluster.url(), "sslmode=disable&channel_binding=require").await);
        assert!(refused.contains("channel binding"), "{refused}");
        let wrong = cluster.url().replace("amalgam:", "amalgam:wrong");
        let refused = text(open(&wrong, "sslmode=require&channel_binding=require").await);
        assert!(refused.contains("password authentication failed"), "{refused}");
    });
}

async fn switch_tls_on(cluster: &Cluster, aside: &Aside, certificates: &Certificates) {
    let data = cluster.folder().join("data");
    for (name, file) in [("server.crt", certificates.certificate()), ("server.key", certificates.key())] {
        // Written into a file that the server owns, so that it stays the server's.
        std::fs::write(data.join(name), std::fs::read(file).unwrap()).unwrap();
        own_like(&data, &data.join(name));
    }
    aside.run("ALTER SYSTEM SET ssl = on").await;
    aside.run("SELECT pg_reload_conf()").await;
    let on = "SELECT count(*) FROM pg_settings WHERE name = 'ssl' AND setting = 'on'";
    aside.until(on, |count| count == 1).await;
}

/// PostgreSQL reads a key file only if no other user may read it.
fn own_like(example: &Path, path: &Path) {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let owner = std::fs::metadata(example).unwrap();
    std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
