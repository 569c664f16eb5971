//! The real binary as a child process, with a configuration, a data folder and a port of its own.
//!
//! Tests use the same interfaces as users: command line, configuration file,
//! environment, signals, HTTP. The child is killed when its handle is dropped.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::watch;

use crate::client::Client;

/// How long the binary may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(90);

/// The interval at which a stopping child is polled.
const LOOK: Duration = Duration::from_millis(5);

/// The configuration, environment and arguments that the binary is started with.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    key: Option<String>,
    state: Option<String>,
    upstreams: Vec<UpstreamTable>,
    extra: String,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    home: Option<Home>,
    ignored: Option<String>,
    full_disk: bool,
    seeded: bool,
    listen: Option<String>,
    passed: Option<Arc<TcpListener>>,
}

/// A folder with a configuration and data, removed with its last handle. Servers that follow each other, or that run
/// beside each other on one database, can share one.
#[derive(Clone, Debug)]
pub struct Home(Arc<TempDir>);

#[derive(Clone, Debug)]
struct UpstreamTable {
    name: String,
    lines: String,
}

/// A running server.
#[derive(Debug)]
pub struct Amalgam {
    child: Child,
    url: String,
    key: Option<String>,
    output: Output,
    home: Home,
}

/// How a server ended.
#[derive(Debug)]
pub struct Exit {
    /// The status of the process.
    pub status: ExitStatus,
    /// Everything it wrote to standard output.
    pub stdout: String,
    /// Everything it wrote to standard error.
    pub stderr: String,
}

#[derive(Debug)]
struct Output {
    stdout: watch::Receiver<String>,
    stderr: watch::Receiver<String>,
    readers: Vec<thread::JoinHandle<()>>,
}

/// The program that tests run: `AMALGAM_BIN` if it is set, otherwise the one that was built with them.
#[expect(clippy::disallowed_methods, reason = "the environment of the test run names the program")]
pub fn binary(built: &str) -> PathBuf {
    std::env::var_os("AMALGAM_BIN").map_or_else(|| built.into(), PathBuf::from)
}

impl Setup {
    /// A configuration without tenants and upstreams.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `[upstreams.NAME]` with this kind and address, and a key that tests can check.
    pub fn upstream(mut self, name: &str, kind: &str, base_url: &str) -> Self {
        let lines = format!("kind = {}\nbase_url = {}\napi_key = \"sk-{name}\"\n", quoted(kind), quoted(base_url));
        self.upstreams.push(UpstreamTable { name: name.to_owned(), lines });
        self
    }

    /// Adds a key to the table of the upstream that was added last; `value` is TOML (`"\"1s\""`, `"true"`).
    pub fn option(mut self, key: &str, value: &str) -> Self {
        match self.upstreams.last_mut() {
            Some(upstream) => writeln!(upstream.lines, "{key} = {value}").expect("a string takes everything"),
            None => panic!("`{key}` is an option of an upstream, and there is none yet"),
        }
        self
    }

    /// Gives tenant 1 this key; the client sends it.
    pub fn tenant_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Makes tenant 1 stateless.
    pub fn stateless(mut self) -> Self {
        self.state = Some("stateless".to_owned());
        self
    }

    /// Adds TOML at the end of the file. The tables `[server]`, `[limits]`, `[egress]` and `[models.…]` are free.
    pub fn extra(mut self, toml: &str) -> Self {
        self.extra.push_str(toml);
        self.extra.push('\n');
        self
    }

    /// Sets a variable of the environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an argument after `serve --config … --listen … --data …`.
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Listens here instead of on a free port of 127.0.0.1.
    pub fn listen(mut self, address: &str) -> Self {
        self.listen = Some(address.to_owned());
        self
    }

    /// Passes a listening socket to the server, as systemd does.
    pub fn pass_socket(mut self, socket: TcpListener) -> Self {
        self.passed = Some(Arc::new(socket));
        self
    }

    /// Uses an existing folder with its contents.
    pub fn home(mut self, home: &Home) -> Self {
        self.home = Some(home.clone());
        self
    }

    /// Leaves `[seed] demo` at its default also if the configuration has tenants. Without this, tenants of the
    /// configuration are not seeded, so that a test sees only what it has created.
    pub fn seeded(mut self) -> Self {
        self.seeded = true;
        self
    }

    /// Starts the server with a signal ignored (such as `XFSZ`, which a process receives if a file becomes too large).
    pub fn deaf_to(mut self, signal: &str) -> Self {
        self.ignored = Some(signal.to_owned());
        self
    }

    /// Starts the server with files that it cannot write to, as on a full disk, until [`Amalgam::limit_files`] changes
    /// that.
    pub fn full_disk(mut self) -> Self {
        self.full_disk = true;
        self.deaf_to("XFSZ")
    }

    /// The configuration file.
    pub fn toml(&self) -> String {
        let mut toml = String::new();
        if self.key.is_some() || self.state.is_some() {
            toml.push_str("[tenants.demo]\nid = 1\n");
            if let Some(key) = &self.key {
                toml.push_str(&format!("keys = [{}]\n", quoted(key)));
            }
            if let Some(state) = &self.state {
                toml.push_str(&format!("state = {}\n", quoted(state)));
            }
        }
        for upstream in &self.upstreams {
            toml.push_str(&format!("\n[upstreams.{}]\n{}", upstream.name, upstream.lines));
        }
        toml.push('\n');
        toml.push_str(&self.extra);
        toml
    }
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("amalgam-").tempdir();
        Self(Arc::new(folder.expect("a temporary folder can be made")))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Amalgam {
    /// Starts the binary and waits until it accepts connections.
    pub async fn start(binary: &str, setup: Setup) -> Self {
        let toml = setup.toml();
        match Self::try_start(binary, setup).await {
            Ok(amalgam) => amalgam,
            Err(exit) => {
                panic!("amalgam did not start ({})\n{}\nwith the configuration\n{toml}", exit.status, exit.stderr)
            }
        }
    }

    /// Starts the binary and waits until it accepts connections or has ended.
    pub async fn try_start(built: &str, setup: Setup) -> Result<Self, Exit> {
        let binary = binary(built);
        let home = setup.home.clone().unwrap_or_else(Home::new);
        let folder = home.path();
        let config = folder.join("amalgam.toml");
        std::fs::write(&config, setup.toml()).expect("a fresh folder takes a file");

        let mut command = match (&setup.ignored, &setup.passed) {
            (None, None) => Command::new(&binary),
            (None, Some(_)) => {
                // The socket arrives as standard input; the shell makes it the first passed descriptor, and its process
                // becomes the server's.
                let mut shell = Command::new("sh");
                let script = "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" \"$@\"";
                shell.args(["-c", script]).arg(&binary);
                shell
            }
            (Some(signal), _) => {
                // A program inherits the ignored signals of the shell that executes it.
                let mut shell = Command::new("sh");
                let limit = if setup.full_disk { "ulimit -S -f 0;" } else { "" };
                shell.args(["-c", &format!("trap '' {signal}; {limit} exec \"$0\" \"$@\"")]).arg(&binary);
                shell
            }
        };
        let listen = setup.listen.as_deref().unwrap_or("127.0.0.1:0");
        command.arg("serve").arg("--config").arg(&config).args(["--listen", listen]);
        command.arg("--data").arg(folder.join("data")).args(&setup.arguments);
        let input = setup.passed.as_ref().map(|socket| OwnedFd::from(socket.try_clone().expect("a socket has copies")));
        command.stdin(input.map_or_else(Stdio::null, Stdio::from));
        command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The environment of the test run must not affect the server.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let is_proxy = text.to_ascii_uppercase().ends_with("_PROXY");
            if is_proxy
                || ["AMALGAM_", "AI_AGENT_", "OPENAI_", "ANTHROPIC_"].iter().any(|prefix| text.starts_with(prefix))
            {
                command.env_remove(&name);
            }
        }
        if !setup.seeded && setup.toml().contains("[tenants.") {
            command.env("AMALGAM_SEED_DEMO", "false");
        }
        command.envs(setup.environment);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("{} cannot be started: {error}", binary.display()),
        };
        let output = Output::of(&mut child);
        let mut amalgam = Self { child, url: String::new(), key: setup.key, output, home };

        let mut stdout = amalgam.output.stdout.clone();
        // The channel closes with standard output, which means that the process has ended without listening.
        let listening = stdout.wait_for(|text| listening_on(text).is_some());
        let url = match tokio::time::timeout(PATIENCE, listening).await {
            Ok(Ok(text)) => listening_on(&text),
            Ok(Err(_)) => None,
            Err(_) => panic!("amalgam said nothing on standard output for {PATIENCE:?}\n{}", amalgam.stderr()),
        };
        match url {
            Some(url) => {
                amalgam.url = url;
                Ok(amalgam)
            }
            None => Err(amalgam.wait().await),
        }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client that sends the tenant's key, if there is one.
    pub fn client(&self) -> Client {
        let client = Client::new(&self.url);
        match &self.key {
            Some(key) => client.with_key(key),
            None => client,
        }
    }

    /// Everything it wrote to standard output so far.
    pub fn stdout(&self) -> String {
        self.output.stdout.borrow().clone()
    }

    /// Everything it wrote to standard error so far.
    pub fn stderr(&self) -> String {
        self.output.stderr.borrow().clone()
    }

    /// Waits until standard error contains `text`, and returns all of it.
    pub async fn wait_for_stderr(&self, text: &str) -> String {
        let mut stderr = self.output.stderr.clone();
        match tokio::time::timeout(PATIENCE, stderr.wait_for(|all| all.contains(text))).await {
            Ok(Ok(all)) => all.clone(),
            _ => panic!("amalgam never wrote {text:?} to standard error:\n{}", self.stderr()),
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The folder with its configuration (`amalgam.toml`) and its data (`data`).
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    /// The administrator's key that the first start wrote to the data folder.
    pub fn first_key(&self) -> String {
        let path = self.folder().join("data/admin.key");
        match std::fs::read_to_string(&path) {
            Ok(key) => key.trim().to_owned(),
            Err(error) => panic!("{} cannot be read: {error}; the server printed {:?}", path.display(), self.stdout()),
        }
    }

    /// The same folder, to start another server in.
    pub fn home(&self) -> Home {
        self.home.clone()
    }

    /// Kills the server without a warning, as a power failure does. Returns when the process has ended.
    pub fn kill(&mut self) {
        self.child.kill().expect("a process of ours can be killed");
        self.child.wait().expect("a process that was killed ends");
    }

    /// Suspends the server until [`Amalgam::wake`].
    pub fn put_to_sleep(&self) {
        self.signal("STOP");
    }

    /// Resumes the server.
    pub fn wake(&self) {
        self.signal("CONT");
    }

    /// Changes the size limit of the server's files while it runs.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let limit = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        let status =
            Command::new("prlimit").args(["--pid", &self.pid().to_string(), &format!("--fsize={limit}:")]).status();
        assert!(status.is_ok_and(|status| status.success()), "prlimit cannot change the limits of {}", self.pid());
    }

    /// Sends a signal by name (`TERM`, `INT`, `HUP`).
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(status.is_ok_and(|status| status.success()), "process {} cannot be signalled", self.pid());
    }

    /// Sends SIGTERM, as a service manager does, and waits until the server has ended.
    pub async fn terminate(self) -> Exit {
        self.signal("TERM");
        self.wait().await
    }

    /// Waits until the server has ended by itself.
    pub async fn wait(mut self) -> Exit {
        let status = self.end().await;
        for reader in self.output.readers.drain(..) {
            reader.join().expect("a reader of output does not panic");
        }
        Exit { status, stdout: self.output.stdout.borrow().clone(), stderr: self.stderr() }
    }

    /// Sends SIGTERM and waits until the server has ended; its folder stays.
    pub async fn stop(&mut self) {
        self.signal("TERM");
        self.ended().await;
    }

    /// Waits until the server has ended by itself with success; its folder stays.
    pub async fn ended(&mut self) {
        let status = self.end().await;
        assert!(status.success(), "amalgam ended with {status}:\n{}", self.stderr());
    }

    async fn end(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status,
                Ok(None) if started.elapsed() > PATIENCE => {
                    panic!("amalgam is still running after {PATIENCE:?}:\n{}", self.stderr())
                }
                Ok(None) => tokio::time::sleep(LOOK).await,
                Err(error) => panic!("process {} cannot be waited for: {error}", self.pid()),
            }
        }
    }
}

impl Drop for Amalgam {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Output {
    fn of(child: &mut Child) -> Self {
        let stdout = child.stdout.take().expect("standard output is piped");
        let stderr = child.stderr.take().expect("standard error is piped");
        let (stdout, stdout_reader) = collect(stdout);
        let (stderr, stderr_reader) = collect(stderr);
        Self { stdout, stderr, readers: vec![stdout_reader, stderr_reader] }
    }
}

/// Reads lines on a thread until the other end closes.
fn collect(pipe: impl Read + Send + 'static) -> (watch::Receiver<String>, thread::JoinHandle<()>) {
    let (sender, receiver) = watch::channel(String::new());
    let reader = thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            sender.send_modify(|text| text.push_str(&String::from_utf8_lossy(&line)));
            line.clear();
        }
    });
    (receiver, reader)
}

fn listening_on(stdout: &str) -> Option<String> {
    let lines = stdout.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines.filter_map(|line| line.strip_prefix("amalgam listening on ")).next().map(str::to_owned)
}

/// A TOML basic string; its escapes are those of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
