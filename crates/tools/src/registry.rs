//! The [`ToolProvider`] of this program: tools from the bank, from MCP servers, and built-in ones.
//!
//! A tool kind is a branch of `bank.rs`, which checks everything that callers and tenants write. Objects built for one
//! tenant are never used for another.

mod bank;
mod handler_cache;
mod request_servers;
mod sealing;
mod secret;
mod servers;
mod settings;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use amalgam_core::{
    AnswerCheck, BankFault, BoxFuture, BuiltinDescription, Clock, Fault, FileSearchRequest, ResolvedTool, Scope, Seal,
    ServerTool, ToolProvider, ToolRequest,
    store::{BankKind, BankStore, BankTool},
};
use amalgam_protocol::Json;
use futures_util::{StreamExt as _, TryStreamExt as _, future::join_all, stream};
use tokio::time::timeout;
use tracing::debug;

use self::handler_cache::HandlerCache;
use self::servers::Servers;
use crate::{
    builtin::Builtin,
    egress::Egress,
    file_search,
    knowledge::KnowledgePorts,
    mcp::McpServer,
    text,
    validate::{Schemas, check_name},
};

/// The maximum number of a request's MCP servers that are listed at once.
const MAX_CONCURRENT_LISTS: usize = 8;
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);
const MAX_SCHEMAS: usize = 1024;
/// How long MCP servers have to close their sessions at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The tool registry: the bank, MCP servers and built-in tools.
pub struct ToolRegistry {
    store: Arc<dyn BankStore>,
    seal: Arc<dyn Seal>,
    egress: Arc<Egress>,
    builtins: HashMap<&'static str, Builtin>,
    operators: BTreeMap<String, OperatorServer>,
    knowledge: Option<KnowledgePorts>,
    schemas: Schemas,
    handlers: HandlerCache,
    servers: Arc<Servers>,
}

/// The parts of a [`ToolRegistry`].
pub struct ToolRegistryParts {
    /// Stores the bank.
    pub store: Arc<dyn BankStore>,
    /// Opens the secrets of the bank's tools.
    pub seal: Arc<dyn Seal>,
    /// The guarded client for addresses of callers and tenants.
    pub egress: Arc<Egress>,
    /// The built-in tools.
    pub builtins: Vec<Builtin>,
    /// The documents that `file_search` searches; without them it is not available.
    pub knowledge: Option<KnowledgePorts>,
    /// The configured MCP servers by name.
    pub servers: BTreeMap<String, OperatorServer>,
    /// Measures how long a server is idle.
    pub clock: Arc<dyn Clock>,
}

/// A configured MCP server.
#[derive(Debug, Clone)]
pub struct OperatorServer {
    /// The server; or why it cannot be used, for the log.
    pub server: Result<McpServer, String>,
    /// The only tenants that it serves; `None` for all.
    pub tenants: Option<Vec<i64>>,
}

impl OperatorServer {
    fn serves(&self, tenant_id: i64) -> bool {
        self.tenants.as_ref().is_none_or(|tenants| tenants.contains(&tenant_id))
    }
}

impl ToolRegistry {
    /// A registry of these tools. Nothing is connected or started before it is needed.
    pub fn new(parts: ToolRegistryParts) -> Self {
        let ToolRegistryParts { store, seal, egress, builtins, knowledge, servers, clock } = parts;
        Self {
            store,
            seal,
            servers: Arc::new(Servers::new(Arc::clone(&egress), clock)),
            egress,
            builtins: builtins.into_iter().map(|builtin| (builtin.name, builtin)).collect(),
            operators: servers,
            knowledge,
            schemas: Schemas::new(MAX_SCHEMAS),
            handlers: HandlerCache::default(),
        }
    }

    /// Ends the configured processes and the sessions at servers. Later requests begin new ones.
    pub async fn close(&self) {
        let operators = self.operators.values().filter_map(|operator| operator.server.as_ref().ok());
        let closing = join_all(operators.map(McpServer::close));
        // A server that does not answer is not waited for: processes end with this one, and sessions expire.
        let _ = timeout(CLOSE_TIMEOUT, async { tokio::join!(closing, self.servers.close()) }).await;
    }

    async fn equip_all(&self, scope: &Scope, request: Vec<ToolRequest>) -> Result<Vec<ResolvedTool>, Fault> {
        let names: Vec<String> = request
            .iter()
            .filter_map(|request| match request {
                ToolRequest::Named(name) => Some(name.clone()),
                ToolRequest::Mcp(_) | ToolRequest::FileSearch(_) => None,
            })
            .collect();
        let rows = match names.is_empty() {
            true => Vec::new(),
            false => self.store.tools_for(scope, Some(&names)).await?,
        };
        let rows = &rows;
        // Boxed futures: a stream of plain futures that borrow is not `Send`.
        let found: Vec<BoxFuture<'_, Result<ResolvedTool, Fault>>> = request
            .into_iter()
            .map(|request| -> BoxFuture<'_, Result<ResolvedTool, Fault>> {
                Box::pin(async move {
                    match request {
                        ToolRequest::Named(name) => Ok(self.equip_named(scope, &name, rows).await),
                        ToolRequest::Mcp(server) => self.list(scope, &server).await,
                        ToolRequest::FileSearch(search) => self.file_search(scope, search).await,
                    }
                })
            })
            .collect();
        stream::iter(found).buffered(MAX_CONCURRENT_LISTS).try_collect().await
    }

    async fn equip_named(&self, scope: &Scope, name: &str, rows: &[BankTool]) -> ResolvedTool {
        let Some(tool) = rows.iter().find(|tool| tool.name == name) else {
            debug!(tenant.id = scope.tenant_id(), "tool {} is not in the bank", text::printable(name, 64));
            return ResolvedTool::Unknown;
        };
        if tool.kind == BankKind::Client {
            return ResolvedTool::Client {
                description: Some(tool.description.clone()),
                parameters: tool.parameters.clone(),
                guidance: tool.guidance.clone(),
            };
        }
        match self.server_tool(scope, tool).await {
            Some(tool) => ResolvedTool::Server(Box::new(tool)),
            None => ResolvedTool::Unknown,
        }
    }

    /// A search over collections of the caller's tenant.
    async fn file_search(&self, scope: &Scope, request: FileSearchRequest) -> Result<ResolvedTool, Fault> {
        let Some(knowledge) = &self.knowledge else { return Ok(ResolvedTool::Unknown) };
        file_search::equip(knowledge, scope, request).await
    }

    async fn check_all(&self, scope: &Scope, tool: &BankTool) -> Result<(), BankFault> {
        check_name(&tool.name).map_err(|reason| wrong("name", reason))?;
        if tool.description.trim().is_empty() {
            return Err(wrong("description", "a tool says what it is for"));
        }
        if tool.parameters.raw().get_str("type").as_deref() != Some("object") {
            return Err(wrong("parameters", "a tool takes an object: its schema has the `type` `object`"));
        }
        self.schemas.get(&tool.parameters).await.map_err(|reason| wrong("parameters", reason))?;
        if !(SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(&tool.policy.timeout) {
            return Err(wrong("timeout", "it is from 100 milliseconds to 10 minutes"));
        }
        self.check_settings(scope, tool)
    }
}

impl ToolProvider for ToolRegistry {
    fn equip<'a>(
        &'a self,
        scope: &'a Scope,
        request: Vec<ToolRequest>,
    ) -> BoxFuture<'a, Result<Vec<ResolvedTool>, Fault>> {
        Box::pin(self.equip_all(scope, request))
    }

    fn answer_check<'a>(&'a self, schema: &'a Json) -> BoxFuture<'a, Result<Arc<dyn AnswerCheck>, String>> {
        Box::pin(async move { Ok(self.schemas.get(schema).await? as Arc<dyn AnswerCheck>) })
    }

    fn prepare<'a>(&'a self, scope: &'a Scope, tool: &'a BankTool) -> BoxFuture<'a, Result<Option<ServerTool>, Fault>> {
        Box::pin(async move { Ok(self.server_tool(scope, tool).await) })
    }

    fn seal_settings(&self, scope: &Scope, tool: &BankTool, before: Option<&BankTool>) -> Result<Json, BankFault> {
        sealing::seal(&*self.seal, &sealing::context(scope, tool), tool, before)
    }

    fn show_settings(&self, tool: &BankTool) -> Json {
        sealing::show(tool)
    }

    fn builtin(&self, name: &str) -> Option<BuiltinDescription> {
        let builtin = self.builtins.get(name)?;
        Some(BuiltinDescription {
            description: builtin.description.to_owned(),
            parameters: builtin.parameters.clone(),
            guidance: Some(builtin.guidance.to_owned()),
        })
    }

    fn check<'a>(&'a self, scope: &'a Scope, tool: &'a BankTool) -> BoxFuture<'a, Result<(), BankFault>> {
        Box::pin(self.check_all(scope, tool))
    }
}

impl fmt::Debug for ToolRegistry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "registry of {} built-in tools and {} servers", self.builtins.len(), self.operators.len())
    }
}

/// The settings of a bank tool with every secret resealed with the newest key; `None` if one of them cannot be opened.
pub fn reseal_settings(seal: &dyn Seal, scope: &Scope, tool: &BankTool) -> Option<Json> {
    sealing::reseal(seal, &sealing::context(scope, tool), tool)
}

fn wrong(field: impl Into<String>, reason: impl Into<String>) -> BankFault {
    BankFault { field: field.into(), reason: reason.into() }
}
