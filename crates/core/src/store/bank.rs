//! The tool bank, the records of server-run tool calls, and approvals.

use amalgam_protocol::Json;

use super::Stored;
use crate::{
    audit::AuditDraft,
    scope::{Admin, Operator, Scope},
    tool::{Decider, Policy},
};

/// A tool of the bank.
#[derive(Debug, Clone, PartialEq)]
pub struct BankTool {
    /// The name in calls of the model; unique in its bank, ignoring case.
    pub name: String,
    /// Whether the tool is common to all tenants. A tenant's own tool with the same name hides it.
    pub common: bool,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub parameters: Json,
    /// How the tool runs.
    pub kind: BankKind,
    /// The settings of the kind, as a JSON object. The caller of the store seals secrets in it.
    pub settings: Json,
    /// Instructions for the system prompt on when and how to use the tool.
    pub guidance: Option<String>,
    /// Time-out, idempotency, errors and approval.
    pub policy: Policy,
    /// Whether requests can use the tool.
    pub active: bool,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// How a tool of the bank runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BankKind {
    /// Code of this program.
    Builtin,
    /// A request to an HTTP service.
    Http,
    /// A tool of an MCP server.
    Mcp,
    /// The client runs it.
    Client,
}

impl BankKind {
    const ALL: [Self; 4] = [Self::Builtin, Self::Http, Self::Mcp, Self::Client];

    /// The name in the store and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Http => "http",
            Self::Mcp => "mcp",
            Self::Client => "client",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Statistics of the calls of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolStatistics {
    /// Calls that were started.
    pub calls: u64,
    /// Calls that ended in an error.
    pub failed: u64,
    /// Calls without a recorded end.
    pub unknown: u64,
    /// The duration of all ended calls, in milliseconds.
    pub duration_ms: u64,
    /// The duration of the longest call, in milliseconds.
    pub longest_ms: u64,
    /// The start of the last call, in milliseconds since 1970.
    pub last_called_at_ms: Option<u64>,
}

/// A call of a server-run tool. The turn writes it before the tool runs, and again when it has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRun {
    /// From 0, within its turn.
    pub number: u32,
    /// The id of the output item for the call.
    pub item_id: String,
    /// The model's id for the call.
    pub call_id: String,
    /// The origin of the tool: the bank, or the label of an MCP server.
    pub label: String,
    /// The tool's name at its origin.
    pub name: String,
    /// The arguments, exactly as the model sent them.
    pub arguments: String,
    /// Whether the tool may run twice with the same effect.
    pub idempotent: bool,
    /// When the call was started, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// The outcome; `None` until the end of the call is recorded.
    pub outcome: Option<ToolOutcome>,
}

/// The outcome of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutcome {
    /// The output for the model, a JSON value.
    pub output: Json,
    /// Why the call failed or did not run, as a name of [`crate::turn::ToolFailure`]; `None` if it succeeded.
    pub error: Option<String>,
    /// Details for the operator.
    pub detail: Option<String>,
    /// The duration of the call, in milliseconds.
    pub duration_ms: u64,
}

/// A tool call that needs an approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// `mcpr_…`, the id of the output item that requests the approval.
    pub id: String,
    /// The response that has the request.
    pub response_id: String,
    /// The user who owns the response.
    pub user: String,
    /// The model's id for the call.
    pub call_id: String,
    /// The origin of the tool: the bank, or the label of an MCP server.
    pub label: String,
    /// The tool's name at its origin.
    pub name: String,
    /// The arguments, exactly as the model sent them.
    pub arguments: String,
    /// The role that may decide.
    pub decider: Decider,
    /// Milliseconds since 1970.
    pub asked_at_ms: u64,
    /// When the request expires, in milliseconds since 1970. From then on it counts as refused.
    pub expires_at_ms: u64,
    /// The decision; `None` until there is one.
    pub decision: Option<Decision>,
    /// The response that used the approval; `None` until one has.
    pub used_by: Option<String>,
}

/// A decision on an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether the call may run.
    pub approve: bool,
    /// The reason that the user gave.
    pub reason: Option<String>,
    /// The user who decided.
    pub by: String,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// The result of a decision.
#[derive(Debug, Clone, PartialEq)]
pub enum DecisionOutcome {
    /// The decision is recorded now, or the same decision was recorded before.
    Stands(Box<Approval>),
    /// Not recorded: the opposite decision was recorded before, or the request has expired.
    TooLate(Box<Approval>),
    /// Not recorded: only an administrator may decide.
    NotYours(Box<Approval>),
}

/// The bank whose tools are managed.
#[derive(Debug, Clone, Copy)]
pub enum BankOf<'a> {
    /// The tools of the administrator's tenant.
    Tenant(Admin<'a>),
    /// The common tools of the installation.
    Common(Operator),
}

/// The tool bank and approvals.
pub trait BankStore: Send + Sync {
    /// Returns the active tools of the caller's tenant and the common ones, sorted by name: those in `names`, or all
    /// for `None`. A tool of the tenant that is not active still hides the common tool with its name.
    fn tools_for<'a>(&'a self, scope: &'a Scope, names: Option<&'a [String]>) -> Stored<'a, Vec<BankTool>>;

    /// Returns at most `limit` tools of a bank with names above `after`, active or not, sorted by name.
    fn tools<'a>(&'a self, of: BankOf<'a>, after: Option<&'a str>, limit: usize) -> Stored<'a, Vec<BankTool>>;

    /// Returns a tool of a bank; `None` if it has no tool with this name.
    fn tool<'a>(&'a self, of: BankOf<'a>, name: &'a str) -> Stored<'a, Option<BankTool>>;

    /// Adds a tool, or replaces the one with the same name but keeps its creation time. Returns whether the tool is
    /// new.
    fn put_tool<'a>(&'a self, of: BankOf<'a>, tool: BankTool, audit: AuditDraft) -> Stored<'a, bool>;

    /// Replaces the settings of a tool by the same settings, sealed with another key, if they are still `before`.
    /// Returns `false` and changes nothing if they are not.
    fn reseal_tool<'a>(&'a self, of: BankOf<'a>, name: &'a str, before: &'a Json, after: &'a Json) -> Stored<'a, bool>;

    /// Deletes a tool. Returns whether it existed.
    fn delete_tool<'a>(&'a self, of: BankOf<'a>, name: &'a str, audit: AuditDraft) -> Stored<'a, bool>;

    /// Returns the statistics of a tool's calls in the administrator's tenant that started at `since_ms` or later.
    fn tool_statistics<'a>(
        &'a self,
        admin: Admin<'a>,
        label: &'a str,
        name: &'a str,
        since_ms: u64,
    ) -> Stored<'a, ToolStatistics>;

    /// Returns an approval of the caller's turns; `None` if the caller has none with this id.
    fn approval<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Approval>>;

    /// Returns an approval of any user of the administrator's tenant; `None` if there is none with this id.
    fn approval_of_tenant<'a>(&'a self, admin: Admin<'a>, id: &'a str) -> Stored<'a, Option<Approval>>;

    /// Returns at most `limit` approvals of the administrator's tenant after `after`, newest first. With `pending`,
    /// only those that have no decision and have not expired at `now_ms`.
    fn approvals<'a>(
        &'a self,
        admin: Admin<'a>,
        pending: bool,
        after: Option<&'a str>,
        limit: usize,
        now_ms: u64,
    ) -> Stored<'a, Vec<Approval>>;

    /// Records the caller's decision, unless there is one. `None` if the caller has no such approval.
    fn decide<'a>(&'a self, scope: &'a Scope, id: &'a str, decision: Decision) -> Stored<'a, Option<DecisionOutcome>>;

    /// Records an administrator's decision, unless there is one. `None` if the tenant has no such approval.
    fn decide_as_admin<'a>(
        &'a self,
        admin: Admin<'a>,
        id: &'a str,
        decision: Decision,
        audit: AuditDraft,
    ) -> Stored<'a, Option<DecisionOutcome>>;

    /// Marks a granted approval as used by a response. `false` if it was not granted or another response has used it.
    fn use_approval<'a>(&'a self, scope: &'a Scope, id: &'a str, response_id: &'a str) -> Stored<'a, bool>;
}
