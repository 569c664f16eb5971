//! Commands beside a running server: the same configuration, the same data, the same store.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use amalgam_testkit::{Amalgam, binary};
use serde_json::Value;

use super::{BINARY, TestStore};

/// The command line of an installation.
pub(crate) struct Cli {
    folder: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl Cli {
    /// Beside this server, on this store.
    pub(crate) fn beside(amalgam: &Amalgam, store: &TestStore) -> Self {
        let cli = Self { folder: amalgam.folder().to_owned(), environment: Vec::new() };
        store.environment().into_iter().fold(cli, |cli, (name, value)| cli.env(name, value))
    }

    /// In a folder without a server.
    pub(crate) fn within(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), environment: Vec::new() }
    }

    /// The same with a variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary(BINARY));
        command.args(arguments).arg("--data").arg(self.folder.join("data"));
        let config = self.folder.join("amalgam.toml");
        if config.exists() {
            command.arg("--config").arg(config);
        }
        // psql and the like are not needed, but the loader's variables may be.
        command.current_dir(&self.folder).env_clear().envs(self.environment.iter().cloned()).output().unwrap()
    }

    /// What a command says that succeeds.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it says with `--json`.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.text(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// What it says on standard error when it fails.
    pub(crate) fn failure(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }
}
