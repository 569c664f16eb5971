//! Tools that this server runs: their definition, their policy, their calls and results, and the [`ToolProvider`] port.
//!
//! Tools that the client runs are not described here: the model is offered them as they were sent, and their calls are
//! returned to the client.

use std::{fmt, sync::Arc, time::Duration};

use amalgam_protocol::{Json, Raw};

use crate::{TraceContext, fault::Fault, ports::BoxFuture, retrieval::Condition, scope::Scope, store::BankTool};

/// A tool of one turn.
#[derive(Clone)]
pub struct ServerTool {
    /// The name that the model calls it by; unique in its turn.
    pub name: String,
    /// Where it comes from: the bank, or the label of an MCP server. Returned as `server_label`.
    pub label: String,
    /// Its name there. Returned as `name`.
    pub own_name: String,
    /// Its description for the model.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub parameters: Json,
    /// When and how to use it; added to the system prompt of every turn that offers it.
    pub guidance: Option<String>,
    /// Timeout, retries, failures and approval.
    pub policy: Policy,
    /// The output item of its calls.
    pub shown: CallDisplay,
    /// Checks arguments before the handler runs.
    pub check: Arc<dyn ArgumentCheck>,
    /// Runs it.
    pub handler: Arc<dyn Handler>,
}

impl fmt::Debug for ServerTool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.label, self.own_name)
    }
}

/// The kind of output item that a tool's calls produce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CallDisplay {
    /// `mcp_call`, with arguments and output.
    #[default]
    McpCall,
    /// `file_search_call`, with its queries.
    FileSearch {
        /// Whether the results are included.
        results: bool,
    },
}

/// How calls of a tool are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The timeout of one call.
    pub timeout: Duration,
    /// Whether a call may be repeated safely. Only then is it run again after a crash.
    pub idempotent: bool,
    /// The effect of a failure on the turn.
    pub on_error: OnError,
    /// An instruction for the model after a successful call.
    pub after_call_instruction: Option<String>,
    /// The role that must approve a call before it runs; none if no approval is needed.
    pub requires_approval: Option<Decider>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            idempotent: false,
            on_error: OnError::Continue,
            after_call_instruction: None,
            requires_approval: None,
        }
    }
}

/// The role that may approve a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decider {
    /// The user who owns the turn, or an administrator of its tenant.
    Caller,
    /// An administrator of the tenant.
    Admin,
}

impl Decider {
    /// The name in the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Admin => "admin",
        }
    }

    /// Looks one up by its name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Caller, Self::Admin].into_iter().find(|known| known.name() == name)
    }
}

/// The effect of a tool's failure on its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// The model gets the error as output and continues.
    #[default]
    Continue,
    /// The turn fails.
    FailTurn,
}

impl OnError {
    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::FailTurn => "fail_turn",
        }
    }

    /// Looks one up by its name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Continue, Self::FailTurn].into_iter().find(|known| known.name() == name)
    }
}

/// One call of a tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolCall<'a> {
    /// The caller of the turn.
    pub scope: &'a Scope,
    /// The model's id for the call.
    pub call_id: &'a str,
    /// The idempotency key: the same for every attempt of one call, and different for every other call.
    pub key: &'a str,
    /// The arguments: an object that matches the schema.
    pub arguments: Raw<'a>,
    /// The place of the call in a trace, for requests to other servers.
    pub trace: Option<TraceContext>,
}

/// The output of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// A JSON value. Text is a JSON string.
    pub output: Json,
}

/// Why a tool failed. The model reads the text, so it contains no secret, no address and no stack trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The tool refused the call, with its own message.
    #[error("{0}")]
    Refused(String),
    /// The tool could not be reached, or failed; `detail` is for the log.
    #[error("the tool could not be run")]
    Broken {
        /// The detail for the log.
        detail: String,
    },
    /// This version cannot use the tool; the text says what is missing.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The call exceeded its timeout.
    #[error("the tool did not answer in time")]
    TimedOut,
    /// The output is larger than allowed.
    #[error("the tool's output is too large")]
    TooLarge,
}

/// Runs a tool. The future is cancel-safe, and is dropped at the timeout.
pub trait Handler: Send + Sync {
    /// Runs one call.
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

/// Checks arguments against a tool's schema.
pub trait ArgumentCheck: Send + Sync {
    /// Fails with a message that names the path.
    fn check(&self, arguments: Raw<'_>) -> Result<(), String>;
}

/// Checks a complete answer of a model against the requested format.
pub trait AnswerCheck: Send + Sync {
    /// Fails with a message that names the path in the text.
    fn check_text(&self, text: &str) -> Result<(), String>;
}

/// The label of tools from the bank.
pub const BANK_LABEL: &str = "bank";

/// The label of tools that an API of this server adds itself.
pub const OWN_LABEL: &str = "amalgam";

/// Whether a label belongs to this server and not to an MCP server. The model calls such tools by their plain names.
pub fn is_house_label(label: &str) -> bool {
    [BANK_LABEL, OWN_LABEL].iter().any(|own| own.eq_ignore_ascii_case(label))
}

/// A tool in a request that this server may have to run.
#[derive(Debug, Clone)]
pub enum ToolRequest {
    /// `{"type": "function", "name"}` without further fields: possibly a tool of the bank.
    Named(String),
    /// `{"type": "mcp"}`
    Mcp(McpServerRequest),
    /// `{"type": "file_search"}` over collections of this server.
    FileSearch(FileSearchRequest),
}

/// A `file_search` tool of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct FileSearchRequest {
    /// Its path in the request, such as `tools[0]`.
    pub path: String,
    /// The collections that are searched; never empty.
    pub collections: Vec<String>,
    /// Conditions that every result has to meet.
    pub conditions: Vec<Condition<'static>>,
    /// The maximum number of results.
    pub limit: usize,
    /// The minimum score of a result, from 0 to 1.
    pub least_score: f64,
    /// Whether the caller sees the results.
    pub results: bool,
}

/// An MCP server of a request.
#[derive(Clone)]
pub struct McpServerRequest {
    /// Its label in this request.
    pub label: String,
    /// Its URL; none for a server that the operator has configured under this label.
    pub url: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// The caller's credential for it.
    pub authorization: Option<SecretText>,
    /// Further headers for it.
    pub headers: Vec<(String, SecretText)>,
    /// The only tools that may be used; none for all.
    pub allowed: Option<AllowedNames>,
    /// Which calls need approval.
    pub approval: ApprovalRule,
}

/// A secret. `Debug` prints `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

impl fmt::Debug for McpServerRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "MCP server {}", self.label)
    }
}

/// A filter on a server's tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedNames {
    /// Their names; empty for all.
    pub names: Vec<String>,
    /// Only tools that are annotated as read-only.
    pub read_only: bool,
}

impl AllowedNames {
    /// Whether a tool passes the filter.
    pub fn allow(&self, name: &str, read_only: bool) -> bool {
        (self.names.is_empty() || self.names.iter().any(|known| known == name)) && (read_only || !self.read_only)
    }
}

/// Which calls of an MCP server need approval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ApprovalRule {
    /// All of them.
    #[default]
    Always,
    /// No call.
    Never,
    /// Those in `always`; if only `never` is set, those that it does not list.
    Some {
        /// Calls that need approval.
        always: Option<AllowedNames>,
        /// Calls that do not.
        never: Option<AllowedNames>,
    },
}

impl ApprovalRule {
    /// Whether a call of this tool needs approval.
    pub fn is_due(&self, name: &str, read_only: bool) -> bool {
        let among = |names: &Option<AllowedNames>| names.as_ref().is_some_and(|names| names.allow(name, read_only));
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Some { always, never } => among(always) || !among(never),
        }
    }
}

/// What a tool of a request resolves to.
#[derive(Debug, Clone)]
pub enum ResolvedTool {
    /// Unknown to this server: a tool of the client, passed on unchanged.
    Unknown,
    /// A tool of the bank that the client runs.
    Client {
        /// Its description for the model.
        description: Option<String>,
        /// The JSON Schema of its arguments.
        parameters: Json,
        /// When and how to use it; added to the system prompt of every turn that offers it.
        guidance: Option<String>,
    },
    /// A tool that this server runs.
    Server(Box<ServerTool>),
    /// The tools of an MCP server that the request allows.
    Listed {
        /// The `tools` of the `mcp_list_tools` item: a JSON array of `{name, description, input_schema, annotations}`.
        shown: Json,
        /// The tools that may be called.
        tools: Vec<ServerTool>,
    },
}

/// Provides the tools of a turn: from the bank, from MCP servers, and built-in ones.
pub trait ToolProvider: Send + Sync {
    /// Resolves the tools of a request, in the same order. Fails with [`crate::FaultKind::ToolServer`] when an MCP server
    /// cannot be reached.
    fn equip<'a>(
        &'a self,
        scope: &'a Scope,
        asked: Vec<ToolRequest>,
    ) -> BoxFuture<'a, Result<Vec<ResolvedTool>, Fault>>;

    /// A check of answers against a JSON Schema; fails with the reason if the schema is not supported.
    fn answer_check<'a>(&'a self, schema: &'a Json) -> BoxFuture<'a, Result<Arc<dyn AnswerCheck>, String>>;

    /// A tool of the bank, active or not, ready to run; none if this server cannot run it.
    fn prepare<'a>(&'a self, scope: &'a Scope, tool: &'a BankTool) -> BoxFuture<'a, Result<Option<ServerTool>, Fault>>;

    /// A tool's settings as they are stored, with their secrets sealed for its bank. A secret that is sent as `***` keeps
    /// the value of `before`.
    fn seal_settings(&self, scope: &Scope, tool: &BankTool, before: Option<&BankTool>) -> Result<Json, BankFault>;

    /// A tool's settings for the API, with each secret as `***`.
    fn show_settings(&self, tool: &BankTool) -> Json;

    /// The description of a built-in tool; none if there is no such tool.
    fn builtin(&self, name: &str) -> Option<BuiltinDescription>;

    /// Checks a tool before it is stored, its settings already sealed; the error names the invalid field.
    fn check<'a>(&'a self, scope: &'a Scope, tool: &'a BankTool) -> BoxFuture<'a, Result<(), BankFault>>;
}

/// The description of a built-in tool, for bank entries that have none of their own.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltinDescription {
    /// Its description for the model.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Json,
    /// When and how to use it, for the prompt.
    pub guidance: Option<String>,
}

/// The error of a tool that cannot be stored in the bank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BankFault {
    /// The field: `parameters`, `settings.url`.
    pub field: String,
    /// The error message.
    pub reason: String,
}
