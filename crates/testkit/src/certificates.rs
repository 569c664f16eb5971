//! Certificates for tests, created with the machine's `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A private certificate authority and a certificate that it issued; deleted when dropped.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Creates an authority, and a certificate that it issued for `names`, such as `DNS:localhost,IP:127.0.0.1`.
    pub fn for_names(names: &str) -> Self {
        Self::valid_for(names, 2)
    }

    /// The same with a certificate that expired a day ago.
    pub fn expired(names: &str) -> Self {
        Self::valid_for(names, -1)
    }

    fn valid_for(names: &str, days: i32) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let made = Self { folder };
        let extensions = format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n");
        std::fs::write(made.path("extensions"), extensions).expect("a new folder can be written to");
        made.openssl("req -x509 -subj /CN=authority -days 2 -keyout authority.key -out authority.crt", NEW_KEY);
        made.openssl("req -subj /CN=server -keyout server.key -out server.csr", NEW_KEY);
        made.openssl(
            "x509 -req -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial",
            &format!("-days {days} -extfile extensions -out server.crt"),
        );
        made
    }

    /// The CA file that a client has to trust.
    pub fn authority(&self) -> PathBuf {
        self.path("authority.crt")
    }

    /// The file of the certificate.
    pub fn certificate(&self) -> PathBuf {
        self.path("server.crt")
    }

    /// The file of its key.
    pub fn key(&self) -> PathBuf {
        self.path("server.key")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn openssl(&self, command: &str, more: &str) {
        let arguments = command.split(' ').chain(more.split(' '));
        let folder: &Path = self.folder.path();
        let output = Command::new("openssl").args(arguments).current_dir(folder).output();
        let output = output.expect("openssl is there; scripts/setup.sh test installs it");
        assert!(output.status.success(), "openssl {command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
