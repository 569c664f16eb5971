//! Starts the processes of a report and makes sure that they end with it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use tokio::task::spawn_blocking;

use crate::client::KEY;
use crate::mock::MODELS;

/// A release build on an idle machine is ready within a tenth of this.
const START_TIME: Duration = Duration::from_secs(20);

/// Where a server keeps its state.
#[derive(Clone, Copy)]
pub(crate) enum Store<'a> {
    /// In a file of this folder, beside the configuration.
    File(&'a str),
    /// In this database.
    Url(&'a str),
}

/// A running server. Dropping it ends the process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
    /// Kept open: a server that logs to a closed pipe would fail.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// This binary in another role.
    pub(crate) async fn start_own(role: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let binary = std::env::current_exe().context("finding this binary")?;
        let mut command = Command::new(binary);
        // The pipe on standard input is how the child notices that this process is gone, however it went.
        command.arg(role).args(arguments).arg("--with-parent").stdin(Stdio::piped());
        Self::start(role, command).await
    }

    /// The server under test, with one upstream of each kind at the mock.
    pub(crate) async fn start_amalgam(
        binary: &Path,
        mock: SocketAddr,
        folder: &Path,
        store: Store<'_>,
    ) -> anyhow::Result<Self> {
        let config_file = folder.join("amalgam.toml");
        let data = folder.join(match store {
            Store::File(name) => name,
            Store::Url(_) => "data",
        });
        fs::write(&config_file, config(mock, store)).context("writing the configuration")?;
        let log_file = folder.join("amalgam.log");
        let log = File::options().create(true).append(true).open(&log_file).context("creating the log file")?;
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(&config_file).arg("--data").arg(&data);
        command.args(["--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stderr(log);
        // Settings of the person at the keyboard must not change what is measured.
        for (name, _) in std::env::vars_os() {
            let is_proxy = |name: &str| name.to_ascii_uppercase().ends_with("_PROXY");
            if name.to_str().is_some_and(|name| name.starts_with("AMALGAM_") || name == "RUST_LOG" || is_proxy(name)) {
                command.env_remove(&name);
            }
        }
        Self::start("amalgam", command).await.map_err(|error| {
            let log = fs::read_to_string(&log_file).unwrap_or_default();
            if log.is_empty() { error } else { anyhow!("{error:#}; its log says:\n{}", log.trim_end()) }
        })
    }

    async fn start(name: &str, mut command: Command) -> anyhow::Result<Self> {
        let program = PathBuf::from(command.get_program());
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {name} ({})", program.display()))?;
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout was asked for as a pipe"));
        let reading = spawn_blocking(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).map(|_| (line, stdout))
        });
        let announced = match tokio::time::timeout(START_TIME, reading).await {
            Ok(Ok(read)) => read.context("reading its address"),
            Ok(Err(panicked)) => Err(anyhow!(panicked)),
            Err(_) => Err(anyhow!("no address within {START_TIME:?}")),
        };
        let address = announced.and_then(|(line, stdout)| Ok((address_in(&line)?, stdout)));
        match address {
            Ok((address, stdout)) => Ok(Self { address, child, _stdout: stdout }),
            Err(error) => {
                end(&mut child);
                Err(error.context(format!("starting {name} ({})", program.display())))
            }
        }
    }
}

impl Server {
    /// Ends it as an operator would, and waits until it has put its things in order.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let status = Command::new("kill").arg(self.pid().to_string()).status().context("running kill")?;
        ensure!(status.success(), "the server could not be told to stop");
        let until = tokio::time::Instant::now() + START_TIME;
        while self.child.try_wait().context("waiting for the server")?.is_none() {
            ensure!(tokio::time::Instant::now() < until, "the server did not stop within {START_TIME:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Killing is enough: nothing that it has stored is read again.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn address_in(line: &str) -> anyhow::Result<SocketAddr> {
    let Some((_, address)) = line.trim().split_once(" listening on http://") else {
        bail!("expected `… listening on http://ADDRESS`, got `{}`", line.trim());
    };
    address.parse().with_context(|| format!("`{address}` is no address"))
}

fn config(mock: SocketAddr, store: Store<'_>) -> String {
    let store = match store {
        Store::File(_) => String::new(),
        Store::Url(url) => format!("[store]\nurl = \"{url}\"\n\n"),
    };
    let models = MODELS.map(|name| format!("\"{name}\"")).join(", ");
    format!(
        "{store}[tenants.demo]\nid = 1\nkeys = [\"{KEY}\"]\n\n\
         [upstreams.chat]\nkind = \"chat\"\nbase_url = \"http://{mock}/v1\"\napi_key = \"upstream-key\"\nmodels = [{models}]\n\n\
         [upstreams.resp]\nkind = \"responses\"\nbase_url = \"http://{mock}/v1\"\napi_key = \"upstream-key\"\nmodels = [{models}]\n\n\
         [upstreams.anth]\nkind = \"anthropic\"\nbase_url = \"http://{mock}/v1\"\napi_key = \"upstream-key\"\nmodels = [{models}]\n\n\
         [assistant]\nmodel = \"chat/plain\"\n\n\
         [limits]\nmax_in_flight = 4096\n"
    )
}

/// A folder for configuration, data and log of one report, removed at its end.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
}

impl Scratch {
    pub(crate) fn create() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("amalgam-bench-{}", std::process::id()));
        // Fails when it exists: a folder of another process is neither used nor removed.
        fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_announcement() {
        assert_eq!(
            address_in("amalgam listening on http://127.0.0.1:8080\n").unwrap(),
            SocketAddr::from(([127, 0, 0, 1], 8080))
        );
        assert!(address_in("").is_err());
        assert!(address_in("amalgam listening on http://nowhere\n").is_err());
    }
}
