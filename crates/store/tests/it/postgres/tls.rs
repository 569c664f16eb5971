//! TLS: an address that asks for it gets it, with the checks that it names, or nothing at all.

use std::path::Path;

use amalgam_core::Store as _;
use amalgam_store::postgres::{OpenError, Options, Postgres};
use amalgam_testkit::Certificates;

use super::given::{Aside, Cluster, Fresh, runtime};

async fn open(url: &str, options: &str) -> Result<Postgres, OpenError> {
    Postgres::open(&format!("{url}?{options}"), Options::default()).await
}

fn text(opened: Result<Postgres, OpenError>) -> String {
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
        let data = cluster.folder().join("data");
        for (name, file) in [("server.crt", ours.certificate()), ("server.key", ours.key())] {
            // Written into a file that the server owns, so that it stays the server's.
            std::fs::write(data.join(name), std::fs::read(file).unwrap()).unwrap();
            own_like(&data, &data.join(name));
        }
        let aside = Aside::connect(cluster.url()).await;
        aside.run("ALTER SYSTEM SET ssl = on").await;
        aside.run("SELECT pg_reload_conf()").await;
        let on = "SELECT count(*) FROM pg_settings WHERE name = 'ssl' AND setting = 'on'";
        aside.until(on, |count| count == 1).await;

        let by_name = cluster.url().replace("127.0.0.1", "localhost");
        let [authority, stranger] =
            [&ours, &strangers].map(|of| of.authority().display().to_string().replace('/', "%2F"));
        let checked = format!("sslmode=verify-full&sslrootcert={authority}");
        let store = open(&by_name, &checked).await.unwrap();
        store.ping().await.unwrap();
        let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
            WHERE application_name = 'amalgam' AND NOT ssl";
        assert_eq!(aside.count(encrypted).await, 0);

        // Another name than the certificate's, and an authority that nobody has heard of.
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

/// The server reads a key only if it is its own and nobody else's.
fn own_like(example: &Path, path: &Path) {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let owner = std::fs::metadata(example).unwrap();
    std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
