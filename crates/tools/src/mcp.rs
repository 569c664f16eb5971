//! Tools of MCP servers, listed and called over HTTP or in a configured process.
//!
//! Text of a server is untrusted: bounded, checked, and never used as an instruction. The server receives the
//! credential that is stored for it, never the caller's.

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
use crate::headers::{CallTrace, HeaderText};

pub use self::listing::ListedTool;
pub use self::stdio::find_program;

/// How long a list of tools is cached.
const LIST_FRESH: Duration = Duration::from_secs(60);

/// A server with a URL.
#[derive(Debug, Clone)]
pub struct McpSettings {
    /// Its name in the log.
    pub label: String,
    /// Its address.
    pub url: String,
    /// Its credential, for the `Authorization` header. Without a scheme it is a bearer token.
    pub authorization: Option<SecretString>,
    /// Further headers of every request.
    pub headers: Vec<(String, HeaderText)>,
    /// The tenant that owns the server and alone may use it; `None` for a configured server of all tenants.
    pub tenant_id: Option<i64>,
    /// The timeout of one request. A tool's own timeout may end a call earlier.
    pub timeout: Duration,
}

/// A server in its own process. Only the configuration has these: no request starts a process.
#[derive(Debug, Clone)]
pub struct McpProcess {
    /// Its name in the log.
    pub label: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment, apart from a plain `PATH` if there is none.
    pub env: BTreeMap<String, SecretString>,
    /// The timeout of one request, including the start of the process.
    pub timeout: Duration,
}

/// An MCP server. Clones share its session and its list of tools; dropping the last one ends its process.
#[derive(Clone)]
pub struct McpServer(Arc<Inner>);

struct Inner {
    label: String,
    tenant_id: Option<i64>,
    timeout: Duration,
    link: Link,
    listed: Mutex<Option<ToolList>>,
}

enum Link {
    Http(Box<HttpLink>),
    Stdio(StdioLink),
}

struct ToolList {
    tools: Vec<ListedTool>,
    at: Instant,
    /// The number of change notifications before the list was requested.
    changes: u64,
}

impl McpServer {
    /// A server with a URL; it is connected when first needed. The error names the invalid setting.
    pub fn connect(settings: McpSettings, egress: Arc<Egress>) -> Result<Self, BankFault> {
        let link = Link::Http(Box::new(HttpLink::new(egress, &settings)?));
        let McpSettings { label, tenant_id, timeout, .. } = settings;
        Ok(Self(Arc::new(Inner { label, tenant_id, timeout, link, listed: Mutex::default() })))
    }

    /// A server in a process, which is started when first needed, and restarted after it has died.
    pub fn start(process: McpProcess) -> Self {
        let (label, timeout) = (process.label.clone(), process.timeout);
        let link = Link::Stdio(StdioLink::new(process));
        Self(Arc::new(Inner { label, tenant_id: None, timeout, link, listed: Mutex::default() }))
    }

    /// Its tools, cached for a minute or until it reports a change.
    pub async fn tools(&self, scope: &Scope) -> Result<Vec<ListedTool>, ToolError> {
        self.0.check_owner(scope)?;
        // All pages together, including the wait for another request that lists them, take at most the timeout of one
        // request.
        timeout(self.0.timeout, self.0.list()).await.unwrap_or(Err(ToolError::TimedOut))
    }

    /// A handler that calls the tool of this name, whether or not it was listed.
    pub fn handler(&self, name: &str) -> Arc<dyn Handler> {
        Arc::new(Tool { server: self.clone(), name: name.to_owned() })
    }

    /// The timeout of one request.
    pub(crate) fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// Whether it is in use elsewhere: a turn may call its tools.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Ends the session or the process. A later request begins a new one.
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
    /// P10: a tenant's server and its credential serve no other tenant.
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
        while listing.take(self.ask("tools/list", listing.params().raw(), None).await?.raw()) {}
        let tools = listing.finish(&self.label);
        *listed = Some(ToolList { tools: tools.clone(), at: Instant::now(), changes });
        Ok(tools)
    }

    async fn ask(&self, method: &'static str, params: Raw<'_>, trace: Option<CallTrace<'_>>) -> Result<Json, Failure> {
        let answer = timeout(self.timeout, self.link.ask(method, params, trace)).await;
        answer.unwrap_or(Err(Failure::Tool(ToolError::TimedOut)))
    }
}

impl ToolList {
    fn is_fresh(&self, changes: u64, now: Instant) -> bool {
        self.changes == changes && now.saturating_duration_since(self.at) < LIST_FRESH
    }
}

impl Link {
    /// A trace is passed on in headers; requests to a process have it in their parameters.
    async fn ask(&self, method: &'static str, params: Raw<'_>, trace: Option<CallTrace<'_>>) -> Result<Json, Failure> {
        match self {
            Self::Http(link) => link.ask(method, params, trace).await,
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
            let trace = CallTrace::of(&call);
            let mut params = Writer::default();
            params.object(|params| {
                params.key("name").string(&self.name);
                params.key("arguments").raw(call.arguments);
                if let (Some(trace), Link::Stdio(_)) = (trace, &self.server.0.link) {
                    trace.write_meta(params);
                }
            });
            let result = self.server.0.ask("tools/call", Json::from_writer(params).raw(), trace).await?;
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
        let listed = ToolList { tools: Vec::new(), at, changes: 3 };
        assert!(listed.is_fresh(3, at + Duration::from_secs(59)));
        assert!(!listed.is_fresh(3, at + Duration::from_secs(60)));
        assert!(!listed.is_fresh(4, at));
    }
}
