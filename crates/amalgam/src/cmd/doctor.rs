//! `amalgam doctor`: diagnoses the installation on this machine.
//!
//! Every finding contains the remedy. The command changes nothing: it does not create a missing data folder.

mod machine;

use std::fs::{self, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use amalgam_administration::keys::{SEALED_MEMORIES, memory_context};
use amalgam_core::{Operator, Seal, Store};
use amalgam_models::{Proxies, reach};
use amalgam_store::{KeyRing, Sealer};
use clap::Args;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::cli::ConfigArgs;
use crate::default_model::DisplayedModel;
use crate::storage::{self, StoreStatus};
use crate::terminal::{print_json, print_stdout};
use crate::wire_up::{self, SystemClock};
use amalgam_configuration::{Config, ListenAddress, McpConfig, McpTransport, Sources, StoreUrl, UpstreamConfig};

/// The timeout for another process on the same port.
const NEIGHBOUR_PATIENCE: Duration = Duration::from_secs(3);

/// A limit above the size of this server's OpenAPI document.
const NEIGHBOUR_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    check: String,
    status: Status,
    detail: String,
    /// The remedy.
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

pub(crate) async fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let findings = examine(args.config).await;
    let healthy = findings.iter().all(|finding| finding.status != Status::Fail);
    if args.json {
        print_json(&serde_json::json!({"ok": healthy, "checks": findings}))?;
    } else {
        for finding in &findings {
            print_stdout(finding.as_text())?;
        }
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::from(crate::FAILURE) })
}

async fn examine(args: ConfigArgs) -> Vec<Finding> {
    let loaded = match Sources::gather(args.into()).and_then(|sources| Config::load(&sources)) {
        Ok(loaded) => loaded,
        Err(faults) => {
            let hint = "correct these first; everything else depends on them";
            return faults.iter().map(|fault| Finding::fail("configuration", fault, hint)).collect();
        }
    };
    let config = loaded.config;
    let watch = machine::ClockWatch::start();
    let mut findings = vec![match &config.file {
        Some(path) => Finding::ok("configuration", path.display()),
        None => Finding::ok("configuration", "no file; defaults, environment and flags"),
    }];
    let hint = "see 'amalgam check' for every value and its origin";
    findings.extend(loaded.warnings.iter().map(|warning| Finding::warn("configuration", warning, hint)));
    findings.push(listener(&config.server.listen).await);
    if !config.is_local() {
        findings.push(listener(&config.server.admin_listen).await);
    }
    if let Some(metrics) = &config.metrics_listen {
        findings.push(listener(metrics).await);
    }
    findings.extend(config.server.tls.as_ref().map(machine::server_certificate));
    findings.push(machine::open_files(&config));
    findings.push(data_folder(&config.data));
    findings.push(machine::disk_space(existing_folder(&config.data)));
    let (look, store) = storage::inspect(&config.store, config.pool).await;
    findings.extend(store_findings(&config.store, look));
    findings.push(master_key(&config, store.as_deref()).await);
    findings.push(machine::proxies(&config, &loaded.settings));
    for upstream in &config.upstreams {
        findings.extend(upstream_findings(upstream, &config.proxies).await);
    }
    findings.extend(door_models(&config).await);
    for mcp in &config.mcp {
        findings.push(mcp_finding(mcp).await);
    }
    findings.push(watch.finding(&config).await);
    findings
}

/// The model for callers that name none.
async fn door_models(config: &Config) -> Vec<Finding> {
    // Upstreams are only asked for their models, so nothing is sealed.
    let seal: Arc<dyn Seal> = Arc::new(Sealer::new(&KeyRing::temporary()));
    let Ok(names) = wire_up::names(config, &seal, &SystemClock) else { return Vec::new() };
    let model = DisplayedModel::of(config, &names).await;
    let finding = |check: &str| match (&model.upstream, &model.missing_key) {
        (Some(_), None) => Finding::ok(check, &model),
        (Some(_), Some(variable)) => {
            Finding::warn(check, format!("{model}, without its key"), format!("set {variable}"))
        }
        (None, _) => Finding::warn(check, &model, "set `[assistant] model` to a model that an upstream has"),
    };
    vec![finding("assistant door"), finding("execute door")]
}

async fn listener(address: &ListenAddress) -> Finding {
    match address {
        ListenAddress::Tcp(address) => port(*address).await,
        ListenAddress::Unix(path) => socket(path),
    }
}

/// Whether a Unix socket can be created.
fn socket(path: &Path) -> Finding {
    let check = format!("socket {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match write_and_remove(folder) {
        Ok(()) => Finding::ok(&check, "its folder is writable"),
        Err(error) => {
            let detail = format!("cannot write in {}: {error}", folder.display());
            Finding::fail(&check, detail, "create the folder, or give this user the right to write there")
        }
    }
}

async fn port(listen: SocketAddr) -> Finding {
    let check = format!("port {}", listen.port());
    match TcpListener::bind(listen).await {
        Ok(_) if listen.port() == 0 => Finding::ok(&check, format!("a free port of {} will be taken", listen.ip())),
        Ok(_) => Finding::ok(&check, format!("{listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if is_amalgam(listen).await {
                let detail =
                    format!("another amalgam serves on {listen}: 'amalgam serve' with this configuration fails");
                Finding::warn(&check, detail, "stop that server first, or choose another address with --listen")
            } else {
                let hint = "stop the other program, or choose another address with --listen";
                Finding::fail(&check, format!("{listen} is taken by another program"), hint)
            }
        }
        Err(error) => {
            Finding::fail(&check, format!("cannot listen on {listen}: {error}"), "choose another address with --listen")
        }
    }
}

/// Whether the process on the port is an Amalgam server: it serves this program's OpenAPI document.
async fn is_amalgam(listen: SocketAddr) -> bool {
    let mut target = listen;
    if target.ip().is_unspecified() {
        let loopback = if target.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
        target.set_ip(loopback);
    }
    let asking = async {
        let mut stream = TcpStream::connect(target).await.ok()?;
        // HTTP/1.0, so that the response is not chunked and the server closes the connection after it.
        let request = format!("GET /openapi.json HTTP/1.0\r\nHost: {target}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.take(NEIGHBOUR_BYTES).read_to_end(&mut answer).await.ok()?;
        let answer = String::from_utf8(answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let document: serde_json::Value = serde_json::from_str(body).ok()?;
        Some(document["info"]["title"].as_str()?.starts_with("Amalgam"))
    };
    timeout(NEIGHBOUR_PATIENCE, asking).await.ok().flatten().unwrap_or(false)
}

fn data_folder(folder: &Path) -> Finding {
    const CHECK: &str = "data folder";
    let shown = folder.display();
    let existing = existing_folder(folder);
    if !existing.is_dir() {
        let detail = format!("{} is not a folder", existing.display());
        return Finding::fail(CHECK, detail, "choose another folder with --data");
    }
    match write_and_remove(existing) {
        Ok(()) if folder.is_dir() => Finding::ok(CHECK, format!("{shown} is writable")),
        Ok(()) => Finding::ok(CHECK, format!("{shown} will be created")),
        Err(error) => {
            let detail = format!("cannot write in {}: {error}", existing.display());
            Finding::fail(CHECK, detail, "give this user the right to write there, or choose another with --data")
        }
    }
}

/// The nearest folder that exists: a missing one would be created there.
fn existing_folder(folder: &Path) -> &Path {
    let existing = folder.ancestors().find(|path| path.as_os_str().is_empty() || path.exists());
    existing.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_and_remove(folder: &Path) -> io::Result<()> {
    let probe = folder.join(format!(".amalgam-doctor-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&probe)?;
    fs::remove_file(&probe)
}

fn store_findings(url: &StoreUrl, look: StoreStatus) -> Vec<Finding> {
    const CHECK: &str = "store";
    match look {
        StoreStatus::Absent => vec![Finding::ok(CHECK, format!("{url} will be set up at the first start"))],
        StoreStatus::Outdated { pending } => {
            let detail = format!("{url} has {pending} pending migrations");
            vec![Finding::warn(
                CHECK,
                detail,
                "the next start runs them, or 'amalgam migrate' does; a copy of an SQLite database is made first",
            )]
        }
        StoreStatus::Ready { version, warnings } => {
            let fine = Finding::ok(CHECK, format!("{url}, schema version {version}"));
            let hint = "what is acknowledged can be lost; see the settings of the database";
            [fine].into_iter().chain(warnings.iter().map(|warning| Finding::warn(CHECK, warning, hint))).collect()
        }
        StoreStatus::Unusable(error) => {
            vec![Finding::fail(CHECK, format!("{error:#}"), storage::remedy(&error))]
        }
    }
}

/// Whether the master keys are readable by this user alone, and open the data in the store.
async fn master_key(config: &Config, store: Option<&dyn Store>) -> Finding {
    const CHECK: &str = "master key";
    let path = config.key_file();
    let (place, ring) = match &config.secret_key {
        Some(keys) => ("AMALGAM_SECRET_KEY".to_owned(), KeyRing::from_text(keys.expose_secret())),
        None if !path.exists() => return Finding::ok(CHECK, format!("{} will be created", path.display())),
        None => (path.display().to_string(), KeyRing::load(&path)),
    };
    let ring = match ring {
        Ok(ring) => ring,
        Err(error) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            return Finding::fail(
                CHECK,
                format!("{error}{source}"),
                "restore the master key that the store was created with",
            );
        }
    };
    let seal = Sealer::new(&ring);
    for name in SEALED_MEMORIES {
        let remembered = match store {
            Some(store) => store.remembered(Operator::of_this_process(), name).await.ok().flatten(),
            None => None,
        };
        if remembered.is_some_and(|sealed| seal.open(&memory_context(name), &sealed).is_none()) {
            let detail = format!("{place} does not open the data in the store");
            return Finding::fail(CHECK, detail, "restore the master key that the store was created with");
        }
    }
    Finding::ok(CHECK, format!("{place} ({})", ring.ids().map(|id| id.to_string()).collect::<Vec<_>>().join(", ")))
}

/// Whether an upstream can be reached, and how long its certificate is valid.
async fn upstream_findings(upstream: &UpstreamConfig, proxies: &Proxies) -> Vec<Finding> {
    let check = format!("upstream {}", upstream.name);
    let kind = upstream.kind.name();
    let Some(remote) = &upstream.remote else {
        return vec![Finding::ok(&check, "built in")];
    };
    let proxy = proxies.for_upstream(&remote.base_url);
    let hint = match proxy {
        Some(_) => "check HTTP_PROXY and HTTPS_PROXY; NO_PROXY names the hosts that are reached without a proxy",
        None => way_to(&remote.base_url),
    };
    let expires = match reach(&remote.base_url, proxy.clone(), remote.connect_timeout).await {
        Ok(expires) => expires,
        Err(problem) => {
            return vec![Finding::fail(&check, format!("{kind} at {}: {problem}", remote.base_url), hint)];
        }
    };
    let way = proxy.map(|proxy| format!(" through the proxy {proxy}")).unwrap_or_default();
    let detail = format!("{kind} at {}{way}", remote.base_url);
    let reached = match remote.api_key.as_ref().and_then(|key| key.missing()) {
        Some(variable) => Finding::warn(&check, format!("{detail}, without its key"), format!("set {variable}")),
        None => Finding::ok(&check, detail),
    };
    [reached].into_iter().chain(expires.map(|at| machine::certificate(&upstream.name, at))).collect()
}

/// Whether an MCP server could be used. A program is located but not started.
async fn mcp_finding(mcp: &McpConfig) -> Finding {
    let check = format!("mcp {}", mcp.name);
    let found = match &mcp.reached {
        McpTransport::Process { command, env, .. } => {
            let path = env.get("PATH").and_then(|path| path.value()).map(|path| path.expose_secret());
            match amalgam_tools::find_program(command, path) {
                Some(program) => Ok(format!("the program {}", program.display())),
                None => Err((format!("there is no program `{command}`"), "install it, or write its whole path")),
            }
        }
        McpTransport::Http { url, .. } => match reach(url, None, mcp.timeout).await {
            Ok(_) => Ok(url.clone()),
            Err(problem) => Err((format!("{url}: {problem}"), way_to(url))),
        },
    };
    match (found, mcp.missing()) {
        (Err((detail, hint)), _) => Finding::fail(&check, detail, hint),
        (Ok(detail), Some(variable)) => {
            Finding::warn(&check, format!("{detail}, without its secret"), format!("set {variable}"))
        }
        (Ok(detail), None) => Finding::ok(&check, detail),
    }
}

/// Possible problems on the route to an address.
fn way_to(url: &str) -> &'static str {
    match url.starts_with("https:") {
        true => "check the address and the network; SSL_CERT_FILE names the authorities to trust, if not the system's",
        false => "check the address and the network",
    }
}

impl Finding {
    fn ok(check: &str, detail: impl ToString) -> Self {
        Self { check: check.to_owned(), status: Status::Ok, detail: detail.to_string(), hint: None }
    }

    fn warn(check: &str, detail: impl ToString, hint: impl Into<String>) -> Self {
        Self { check: check.to_owned(), status: Status::Warn, detail: detail.to_string(), hint: Some(hint.into()) }
    }

    fn fail(check: &str, detail: impl ToString, hint: impl Into<String>) -> Self {
        Self { check: check.to_owned(), status: Status::Fail, detail: detail.to_string(), hint: Some(hint.into()) }
    }

    fn as_text(&self) -> String {
        let status = match self.status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "fail",
        };
        let line = format!("{status:4}  {}: {}", self.check, self.detail);
        match &self.hint {
            Some(hint) => format!("{line}\n      {hint}"),
            None => line,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn mcp(reached: McpTransport) -> McpConfig {
        McpConfig { name: "files".to_owned(), reached, timeout: Duration::from_secs(5), tenants: None }
    }

    fn program(command: &str, env: BTreeMap<String, amalgam_configuration::Secret>) -> McpConfig {
        mcp(McpTransport::Process { command: command.to_owned(), args: Vec::new(), env })
    }

    async fn status(mcp: McpConfig) -> (Status, String) {
        let finding = mcp_finding(&mcp).await;
        (finding.status, format!("{} {}", finding.detail, finding.hint.unwrap_or_default()))
    }

    #[tokio::test]
    async fn a_program_of_an_mcp_server_is_looked_for_and_not_started() {
        assert_eq!(status(program("sh", BTreeMap::new())).await.0, Status::Ok);
        let (found, report) = status(program("no-such-program", BTreeMap::new())).await;
        assert_eq!(found, Status::Fail);
        assert!(report.contains("no-such-program"), "{report}");
        let absent = amalgam_configuration::Secret::Missing { name: "FILES_TOKEN".to_owned() };
        let (found, report) = status(program("sh", [("TOKEN".to_owned(), absent)].into())).await;
        assert_eq!(found, Status::Warn);
        assert!(report.contains("FILES_TOKEN"), "{report}");
    }

    #[tokio::test]
    async fn an_mcp_server_that_does_not_answer_is_a_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let at = |url: &str| mcp(McpTransport::Http { url: url.to_owned(), authorization: None });
        assert_eq!(status(at(&url)).await.0, Status::Ok);
        drop(listener);
        assert_eq!(status(at(&url)).await.0, Status::Fail);
    }
}
