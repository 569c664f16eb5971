//! Tools of MCP servers: listed and called, over HTTP or in a process that the operator configured.
//!
//! Text from a server is untrusted: bounded, checked, and never used as an instruction. The server sees the credential that
//! was stored for it, and never the caller's.

mod http;
mod listing;
mod result;
mod rpc;
mod stdio;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use amalgam_core::{BankFault, BoxFuture, Handler, Scope, ToolCall, ToolError, ToolOutput};
use amalgam_protocol::{Json, Raw, Writer};
use secrecy::SecretString;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use self::http::HttpLink;
use self::listing::Listing;
use self::rpc::Failure;
use self::stdio::StdioLink;
use crate::egress::Egress;
use crate::headers::HeaderText;

pub use self::listing::ListedTool;
pub use self::stdio::find_program;

/// How long a list of tools is believed.
const LIST_FRESH: Duration = Duration::from_secs(60);

/// A server behind a URL.
#[derive(Debug, Clone)]
pub struct McpSettings {
    /// What it is called in the log.
    pub label: String,
    /// Where it is.
    pub url: String,
    /// Its own credential, for the `Authorization` header. Without a scheme it is a bearer's token.
    pub authorization: Option<SecretString>,
    /// Further headers for every request to it.
    pub headers: Vec<(String, HeaderText)>,
    /// The tenant that owns the server and alone may use it; none for a server that the operator offers to all.
    pub tenant_id: Option<i64>,
    /// The longest that one request may take. A tool's own limit may end a call before.
    pub timeout: Duration,
}

/// A server in a process of its own. Only the operator's configuration has these: no request starts a process.
#[derive(Debug, Clone)]
pub struct McpProcess {
    /// What it is called in the log.
    pub label: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// All that its environment has, apart from a plain `PATH` where none is given.
    pub env: BTreeMap<String, SecretString>,
    /// The longest that one request may take, starting the process included.
    pub timeout: Duration,
}

/// An MCP server. Clones share its session and its list of tools; the last one ends its process.
#[derive(Clone)]
pub struct McpServer(Arc<Inner>);

struct Inner {
    label: String,
    tenant_id: Option<i64>,
    timeout: Duration,
    link: Link,
    listed: Mutex<Option<Listed>>,
}

enum Link {
    Http(Box<HttpLink>),
    Stdio(StdioLink),
}

struct Listed {
    tools: Vec<ListedTool>,
    at: Instant,
    /// What the server had said about changes when it was asked.
    changes: u64,
}

impl McpServer {
    /// A server behind a URL, which is reached when it is first needed. The error names the setting that is wrong.
    pub fn connect(settings: McpSettings, egress: Arc<Egress>) -> Result<Self, BankFault> {
        let link = Link::Http(Box::new(HttpLink::new(egress, &settings)?));
        let McpSettings { label, tenant_id, timeout, .. } = settings;
        Ok(Self(Arc::new(Inner { label, tenant_id, timeout, link, listed: Mutex::default() })))
    }

    /// A server in a process, which is started when it is first needed, and again when it has died.
    pub fn start(process: McpProcess) -> Self {
        let (label, timeout) = (process.label.clone(), process.timeout);
        let link = Link::Stdio(StdioLink::new(process));
        Self(Arc::new(Inner { label, tenant_id: None, timeout, link, listed: Mutex::default() }))
    }

    /// The tools that it offers; asked for again after a minute, or when it says that they have changed.
    pub async fn tools(&self, scope: &Scope) -> Result<Vec<ListedTool>, ToolError> {
        self.0.check_owner(scope)?;
        // All pages together, including the wait for another request that lists already, take no longer than one request may.
        timeout(self.0.timeout, self.0.list()).await.unwrap_or(Err(ToolError::TimedOut))
    }

    /// Runs the tool of this name, whether or not it was listed.
    pub fn handler(&self, name: &str) -> Arc<dyn Handler> {
        Arc::new(Tool { server: self.clone(), name: name.to_owned() })
    }

    /// The longest that one request may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// Whether it has another holder: a turn that may call its tools.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Ends the session at the server, or the process. What comes after begins a new one.
    pub async fn close(&self) {
        match &self.0.link {
            Link::Http(link) => link.close().await,
            Link::Stdio(link) => link.close().await,
        }
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "MCP server {}", self.0.label)
    }
}

impl Inner {
    /// P10: one tenant's server and its credential serve no other tenant.
    fn check_owner(&self, scope: &Scope) -> Result<(), ToolError> {
        match self.tenant_id {
            Some(owner) if owner != scope.tenant_id() => Err(rpc::broken("the MCP server belongs to another tenant")),
            _ => Ok(()),
        }
    }

    async fn list(&self) -> Result<Vec<ListedTool>, ToolError> {
        let mut listed = self.listed.lock().await;
        let changes = self.link.changes();
        if let Some(known) = listed.as_ref().filter(|known| known.is_fresh(changes, Instant::now())) {
            return Ok(known.tools.clone());
        }
        let mut listing = Listing::default();
        while listing.take(self.ask("tools/list", listing.params().raw()).await?.raw()) {}
        let tools = listing.finish(&self.label);
        *listed = Some(Listed { tools: tools.clone(), at: Instant::now(), changes });
        Ok(tools)
    }

    async fn ask(&self, method: &'static str, params: Raw<'_>) -> Result<Json, Failure> {
        let asked = timeout(self.timeout, self.link.ask(method, params)).await;
        asked.unwrap_or(Err(Failure::Tool(ToolError::TimedOut)))
    }
}

impl Listed {
    fn is_fresh(&self, changes: u64, now: Instant) -> bool {
        self.changes == changes && now.saturating_duration_since(self.at) < LIST_FRESH
    }
}

impl Link {
    async fn ask(&self, method: &'static str, params: Raw<'_>) -> Result<Json, Failure> {
        match self {
            Self::Http(link) => link.ask(method, params).await,
            Self::Stdio(link) => link.ask(method, params).await,
        }
    }

    fn changes(&self) -> u64 {
        match self {
            Self::Http(link) => link.changes(),
            Self::Stdio(link) => link.changes(),
        }
    }
}

struct Tool {
    server: McpServer,
    name: String,
}

impl Handler for Tool {
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            self.server.0.check_owner(call.scope)?;
            let mut params = Writer::default();
            params.object(|params| {
                params.key("name").string(&self.name);
                params.key("arguments").raw(call.arguments);
            });
            let result = self.server.0.ask("tools/call", Json::from_writer(params).raw()).await?;
            result::output(result.raw())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_believed_for_a_minute_or_until_the_server_says_that_it_has_changed() {
        let at = Instant::now();
        let listed = Listed { tools: Vec::new(), at, changes: 3 };
        assert!(listed.is_fresh(3, at + Duration::from_secs(59)));
        assert!(!listed.is_fresh(3, at + Duration::from_secs(60)));
        assert!(!listed.is_fresh(4, at));
    }
}
