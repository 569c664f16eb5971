//! Tools that this server runs: what one is, what it is told, how it ends.
//!
//! A tool that the client runs is none of these: it is offered to the model as it was sent, and its calls are handed back.

use std::{fmt, sync::Arc, time::Duration};

use amalgam_protocol::{Json, Raw};

use crate::{execute::request::Condition, fault::Fault, ports::BoxFuture, scope::Scope, store::BankTool};

/// A tool as one turn has it.
#[derive(Clone)]
pub struct ServerTool {
    /// The name that the model calls it by; unique in its turn.
    pub name: String,
    /// Whose it is: the bank, or the MCP server. Shown as `server_label`.
    pub label: String,
    /// Its own name there. Shown as `name`.
    pub own_name: String,
    /// What the model is told about it.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub parameters: Json,
    /// When and how to use it: stands in the system prompt of every turn that offers it.
    pub guidance: Option<String>,
    /// How it is treated.
    pub policy: Policy,
    /// How its calls are shown.
    pub shown: ShownAs,
    /// Checks arguments before anything runs.
    pub check: Arc<dyn ArgumentCheck>,
    /// Runs it.
    pub handler: Arc<dyn Handler>,
}

impl fmt::Debug for ServerTool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.label, self.own_name)
    }
}

/// How calls of a tool are shown to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ShownAs {
    /// As `mcp_call` with arguments and output.
    #[default]
    McpCall,
    /// As `file_search_call` with the queries alone.
    FileSearch {
        /// And with what was found.
        results: bool,
    },
}

/// How a tool is treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The most that one call may take.
    pub timeout: Duration,
    /// Whether running it twice is as good as once: only then it is run again after a crash.
    pub idempotent: bool,
    /// What a failure does.
    pub on_error: OnError,
    /// What the model is told after a call that went well.
    pub after_call_instruction: Option<String>,
    /// Who has to agree first, if anybody has to.
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

/// Who may agree to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decider {
    /// The user whose turn it is, or an administrator of its tenant.
    Caller,
    /// An administrator of the tenant.
    Admin,
}

impl Decider {
    /// The name that it is stored under.
    pub fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Admin => "admin",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Caller, Self::Admin].into_iter().find(|known| known.name() == name)
    }
}

/// What a tool's failure does to its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// The model is told, and goes on.
    #[default]
    Continue,
    /// The turn fails.
    FailTurn,
}

impl OnError {
    /// The name that it is configured under.
    pub fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::FailTurn => "fail_turn",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Continue, Self::FailTurn].into_iter().find(|known| known.name() == name)
    }
}

/// One call of a tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolCall<'a> {
    /// On whose behalf.
    pub scope: &'a Scope,
    /// The model's id for the call.
    pub call_id: &'a str,
    /// The same for every try of one call and for no other: what an idempotent service wants to see.
    pub key: &'a str,
    /// The arguments: an object that its schema allows.
    pub arguments: Raw<'a>,
}

/// What came out of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// A JSON value. Text is a JSON string.
    pub output: Json,
}

/// How a tool fails. The text is for the model: no secret, no address, no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// It says no, in its own words.
    #[error("{0}")]
    Refused(String),
    /// It could not be reached or broke; `detail` is for the log.
    #[error("the tool could not be run")]
    Broken {
        /// What happened.
        detail: String,
    },
    /// It cannot be used with this version; the text says what it would need.
    #[error("{0}")]
    Unsupported(&'static str),
    /// It took too long.
    #[error("the tool did not answer in time")]
    TimedOut,
    /// It gave more than is taken.
    #[error("the tool's output is too large")]
    TooLarge,
}

/// Runs a tool. It may be dropped at any moment, and is when its time is up.
pub trait Handler: Send + Sync {
    /// Runs one call.
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

/// Checks arguments against a tool's schema.
pub trait ArgumentCheck: Send + Sync {
    /// What is wrong, with its path; nothing when all is well.
    fn check(&self, arguments: Raw<'_>) -> Result<(), String>;
}

/// Says whether a whole answer of a model follows the format that it was asked for.
pub trait AnswerCheck: Send + Sync {
    /// What is wrong with the text, with its path; nothing when it follows the format.
    fn check_text(&self, text: &str) -> Result<(), String>;
}

/// The label of tools that are in the bank.
pub const BANK_LABEL: &str = "bank";

/// The label of tools that a door brings itself.
pub const OWN_LABEL: &str = "amalgam";

/// Whether a label is none of an MCP server: its tools are called by their own names.
pub fn is_house_label(label: &str) -> bool {
    [BANK_LABEL, OWN_LABEL].iter().any(|own| own.eq_ignore_ascii_case(label))
}

/// A tool of a request that this server may have to run.
#[derive(Debug, Clone)]
pub enum AskedTool {
    /// `{"type": "function", "name"}` and nothing more: maybe one of the bank's.
    Named(String),
    /// `{"type": "mcp"}`
    Mcp(AskedServer),
    /// `{"type": "file_search"}` over collections of this server.
    FileSearch(AskedSearch),
}

/// A search as a request asks for it.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedSearch {
    /// Where it stands in the request, such as `tools[0]`.
    pub path: String,
    /// Where it looks; never none.
    pub collections: Vec<String>,
    /// What all documents have in common that may be found.
    pub conditions: Vec<Condition<'static>>,
    /// The most results.
    pub limit: usize,
    /// The least score of a result, from 0 to 1.
    pub least_score: f64,
    /// Whether the caller sees the results.
    pub results: bool,
}

/// An MCP server as a request names it.
#[derive(Clone)]
pub struct AskedServer {
    /// What it is called in this request.
    pub label: String,
    /// Where it is; none for one that the operator has under this label.
    pub url: Option<String>,
    /// What is told about it.
    pub description: Option<String>,
    /// The credential for it, which the caller sends along.
    pub authorization: Option<SecretText>,
    /// Further headers for it.
    pub headers: Vec<(String, SecretText)>,
    /// The only tools that may be used; none for all.
    pub allowed: Option<AllowedNames>,
    /// Which calls somebody has to agree to.
    pub approval: AskedApproval,
}

/// A text that never comes out again.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

impl fmt::Debug for AskedServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "MCP server {}", self.label)
    }
}

/// A choice among a server's tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedNames {
    /// These; empty for any.
    pub names: Vec<String>,
    /// Only those that say that they change nothing.
    pub read_only: bool,
}

impl AllowedNames {
    /// Whether a tool is one of these.
    pub fn allow(&self, name: &str, read_only: bool) -> bool {
        (self.names.is_empty() || self.names.iter().any(|known| known == name)) && (read_only || !self.read_only)
    }
}

/// Which calls of a server somebody has to agree to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AskedApproval {
    /// All of them.
    #[default]
    Always,
    /// None.
    Never,
    /// Those in the first list, and those that are not in the second where there is only that.
    Some {
        /// Calls that need it.
        always: Option<AllowedNames>,
        /// Calls that do not.
        never: Option<AllowedNames>,
    },
}

impl AskedApproval {
    /// Whether a call of this tool has to be agreed to.
    pub fn is_due(&self, name: &str, read_only: bool) -> bool {
        let among = |names: &Option<AllowedNames>| names.as_ref().is_some_and(|names| names.allow(name, read_only));
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Some { always, never } => among(always) || !among(never),
        }
    }
}

/// What a tool of a request turns out to be.
#[derive(Debug, Clone)]
pub enum Equipped {
    /// Nothing of ours: it stays the client's, as it was sent.
    Unknown,
    /// The bank has it, and the client runs it.
    Client {
        /// What the model is told about it.
        description: Option<String>,
        /// The JSON Schema of its arguments.
        parameters: Json,
        /// When and how to use it: stands in the system prompt of every turn that offers it.
        guidance: Option<String>,
    },
    /// This server runs it.
    Server(Box<ServerTool>),
    /// A server's tools, as far as the request allows them.
    Listed {
        /// The tools as an `mcp_list_tools` item shows them: a JSON array of `{name, description, input_schema, annotations}`.
        shown: Json,
        /// What may be called.
        tools: Vec<ServerTool>,
    },
}

/// Where the tools of a turn come from: the bank, MCP servers, what is built in.
pub trait Toolbox: Send + Sync {
    /// What each of these is, in the same order. Fails with [`crate::FaultKind::ToolServer`] when a server cannot be asked.
    fn equip<'a>(&'a self, scope: &'a Scope, asked: Vec<AskedTool>) -> BoxFuture<'a, Result<Vec<Equipped>, Fault>>;

    /// What checks an answer against a JSON Schema; the reason where the schema cannot be checked here.
    fn answer_check<'a>(&'a self, schema: &'a Json) -> BoxFuture<'a, Result<Arc<dyn AnswerCheck>, String>>;

    /// A tool of the bank, active or not, ready to be run; nothing when nothing can run it.
    fn prepare<'a>(&'a self, scope: &'a Scope, tool: &'a BankTool) -> BoxFuture<'a, Result<Option<ServerTool>, Fault>>;

    /// A tool's settings as they are kept: secrets sealed for the bank that it is in. One that comes as `***` is the one of
    /// the tool that was there before.
    fn seal_settings(&self, scope: &Scope, tool: &BankTool, before: Option<&BankTool>) -> Result<Json, BankFault>;

    /// A tool's settings as they are shown: each secret as `***`.
    fn show_settings(&self, tool: &BankTool) -> Json;

    /// What a built-in tool says about itself; nothing when there is none of this name.
    fn builtin(&self, name: &str) -> Option<BuiltinWords>;

    /// Checks a tool before it is kept, its settings sealed already; the error names the field that is wrong.
    fn check<'a>(&'a self, scope: &'a Scope, tool: &'a BankTool) -> BoxFuture<'a, Result<(), BankFault>>;
}

/// What a built-in tool says about itself, for whoever puts it into a bank without words of their own.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltinWords {
    /// What the model is told about it.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Json,
    /// When and how to use it, for the prompt.
    pub guidance: Option<String>,
}

/// What is wrong with a tool that is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BankFault {
    /// The field: `parameters`, `settings.url`.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}
