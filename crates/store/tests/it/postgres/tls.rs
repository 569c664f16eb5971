//! TLS: an address that asks for it gets it, with the checks that it names, or nothing at all.

use std::{path::Path, process::Command};

use amalgam_core::Store as _;
use amalgam_store::postgres::{OpenError, Options, Postgres};

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
    let keys = tempfile::tempdir().unwrap();
    make_certificates(keys.path());
    runtime().block_on(async {
        let data = cluster.folder().join("data");
        for name in ["server.crt", "server.key"] {
            // Written into a file that the server owns, so that it stays the server's.
            std::fs::write(data.join(name), std::fs::read(keys.path().join(name)).unwrap()).unwrap();
            own_like(&data, &data.join(name));
        }
        let aside = Aside::connect(cluster.url()).await;
        aside.run("ALTER SYSTEM SET ssl = on").await;
        aside.run("SELECT pg_reload_conf()").await;
        let on = "SELECT count(*) FROM pg_settings WHERE name = 'ssl' AND setting = 'on'";
        aside.until(on, |count| count == 1).await;

        let by_name = cluster.url().replace("127.0.0.1", "localhost");
        let authority = keys.path().join("authority.crt").display().to_string().replace('/', "%2F");
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
        let stranger = keys.path().join("stranger.crt").display().to_string().replace('/', "%2F");
        for mode in ["require", "verify-ca", "verify-full"] {
            let refused = text(open(&by_name, &format!("sslmode={mode}&sslrootcert={stranger}")).await);
            assert!(refused.contains("certificate"), "{mode}: {refused}");
        }
        open(cluster.url(), "sslmode=require").await.unwrap();
    });
}

/// An authority, a certificate of it for `localhost`, and another authority.
fn make_certificates(folder: &Path) {
    let authority = |name: &str| {
        openssl(
            folder,
            &[
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=test authority",
                "-keyout",
                &format!("{name}.key"),
                "-out",
                &format!("{name}.crt"),
            ],
        );
    };
    authority("authority");
    authority("stranger");
    std::fs::write(folder.join("server.ext"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").unwrap();
    openssl(
        folder,
        &[
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=localhost",
            "-keyout",
            "server.key",
            "-out",
            "server.csr",
        ],
    );
    openssl(
        folder,
        &[
            "x509",
            "-req",
            "-in",
            "server.csr",
            "-CA",
            "authority.crt",
            "-CAkey",
            "authority.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "server.ext",
            "-out",
            "server.crt",
        ],
    );
}

fn openssl(folder: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(folder).output().expect("openssl is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The server reads a key only if it is its own and nobody else's.
fn own_like(example: &Path, path: &Path) {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let owner = std::fs::metadata(example).unwrap();
    std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
