//! The tool bank, and what is written about the calls of its tools.

use amalgam_protocol::Json;

use super::Stored;
use crate::{
    audit::AuditDraft,
    scope::{Admin, Operator, Scope},
    tool::{Decider, Policy},
};

/// A tool as the bank has it.
#[derive(Debug, Clone, PartialEq)]
pub struct BankTool {
    /// The name that the model calls it by; unique in its bank whatever its case.
    pub name: String,
    /// Whether it is the installation's, for all tenants. A tenant's own tool of the same name goes before it.
    pub common: bool,
    /// What the model is told about it.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Json,
    /// What kind of tool it is.
    pub kind: BankKind,
    /// What its kind needs to know: a JSON object. Secrets in it are sealed before they get here.
    pub settings: Json,
    /// When and how to use it, for the prompt.
    pub guidance: Option<String>,
    /// How it is treated.
    pub policy: Policy,
    /// Whether it may be used.
    pub active: bool,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// What kind of tool it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BankKind {
    /// Part of the program.
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

    /// The name that it is stored and configured under.
    pub fn name(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Http => "http",
            Self::Mcp => "mcp",
            Self::Client => "client",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// How often a tool was called, and how that went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolStatistics {
    /// Calls that began.
    pub calls: u64,
    /// Calls that ended in an error.
    pub failed: u64,
    /// Calls whose end is not known.
    pub unknown: u64,
    /// Milliseconds that the others took, all together.
    pub duration_ms: u64,
    /// Milliseconds of the one that took longest.
    pub longest_ms: u64,
    /// When it was called last, in milliseconds since 1970.
    pub last_called_at_ms: Option<u64>,
}

/// One call of a tool that the server runs, as its turn writes it: once before it runs, and once after.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRun {
    /// From 0, within its turn.
    pub number: u32,
    /// The id of the item that shows it.
    pub item_id: String,
    /// The model's id for the call.
    pub call_id: String,
    /// Whose tool it is: the bank, or the MCP server.
    pub label: String,
    /// The tool's own name there.
    pub name: String,
    /// The exact text that the model sent.
    pub arguments: String,
    /// Whether running it twice is as good as once.
    pub idempotent: bool,
    /// When it was about to run, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// How it ended; none while that is not known.
    pub outcome: Option<ToolOutcome>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutcome {
    /// What the model was told: a JSON value.
    pub output: Json,
    /// Why it failed, or was not run: one of the names of [`crate::turn::ToolFailure`]. None when it went well.
    pub error: Option<String>,
    /// What happened, for the operator of the server.
    pub detail: Option<String>,
    /// Milliseconds that it took.
    pub duration_ms: u64,
}

/// A call that waits for an approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// `mcpr_…`: the id of the item that asks.
    pub id: String,
    /// The response that it was asked in.
    pub response_id: String,
    /// Whose turn it is.
    pub user: String,
    /// The model's id for the call.
    pub call_id: String,
    /// Whose tool it is.
    pub label: String,
    /// The tool's own name there.
    pub name: String,
    /// The exact text that the model sent.
    pub arguments: String,
    /// Who may decide.
    pub decider: Decider,
    /// Milliseconds since 1970.
    pub asked_at_ms: u64,
    /// When it runs out, in milliseconds since 1970: from then on it is refused.
    pub expires_at_ms: u64,
    /// What was decided.
    pub decision: Option<Decision>,
    /// The response that has acted on it.
    pub used_by: Option<String>,
}

/// What was decided about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may run.
    pub approve: bool,
    /// Why.
    pub reason: Option<String>,
    /// Who decided: a user.
    pub by: String,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// What came of deciding.
#[derive(Debug, Clone, PartialEq)]
pub enum DecisionOutcome {
    /// It is decided now, or was decided the same way before.
    Stands(Box<Approval>),
    /// It was decided the other way before, or has run out.
    TooLate(Box<Approval>),
    /// Only an administrator may.
    NotYours(Box<Approval>),
}

/// Whose tools an administrator deals with.
#[derive(Debug, Clone, Copy)]
pub enum BankOf<'a> {
    /// The tenant's own.
    Tenant(Admin<'a>),
    /// The installation's.
    Common(Operator),
}

/// The bank and the approvals.
pub trait BankStore: Send + Sync {
    /// The active tools that a caller's tenant has, its own and common ones, by name: those of `names`, or all for none.
    /// An own tool that is not active hides the common one of its name.
    fn tools_for<'a>(&'a self, scope: &'a Scope, names: Option<&'a [String]>) -> Stored<'a, Vec<BankTool>>;

    /// The tools of one bank by name, behind `after`, active or not.
    fn tools<'a>(&'a self, of: BankOf<'a>, after: Option<&'a str>, limit: usize) -> Stored<'a, Vec<BankTool>>;

    /// One tool of one bank.
    fn tool<'a>(&'a self, of: BankOf<'a>, name: &'a str) -> Stored<'a, Option<BankTool>>;

    /// Keeps a tool in the place of the one of its name; whether it is new. The moment of creation of an old one stays.
    fn put_tool<'a>(&'a self, of: BankOf<'a>, tool: BankTool, audit: AuditDraft) -> Stored<'a, bool>;

    /// Puts other settings in the place of a tool's, if they are still `before`; whether they were. Nothing else of it changes:
    /// they say the same, sealed anew.
    fn reseal_tool<'a>(&'a self, of: BankOf<'a>, name: &'a str, before: &'a Json, after: &'a Json) -> Stored<'a, bool>;

    /// Forgets a tool; whether there was one.
    fn delete_tool<'a>(&'a self, of: BankOf<'a>, name: &'a str, audit: AuditDraft) -> Stored<'a, bool>;

    /// How the calls of a label's tool went, in the administrator's tenant, since a moment in milliseconds since 1970.
    fn tool_statistics<'a>(
        &'a self,
        admin: Admin<'a>,
        label: &'a str,
        name: &'a str,
        since_ms: u64,
    ) -> Stored<'a, ToolStatistics>;

    /// One approval of the caller's.
    fn approval<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Approval>>;

    /// One approval of the administrator's tenant, of any user's turn.
    fn approval_of_tenant<'a>(&'a self, admin: Admin<'a>, id: &'a str) -> Stored<'a, Option<Approval>>;

    /// Approvals of the administrator's tenant, the newest first, after `after`; with `pending` only those without a
    /// decision that have not expired at `now_ms`.
    fn approvals<'a>(
        &'a self,
        admin: Admin<'a>,
        pending: bool,
        after: Option<&'a str>,
        limit: usize,
        now_ms: u64,
    ) -> Stored<'a, Vec<Approval>>;

    /// Decides as the caller. The first decision stands.
    fn decide<'a>(&'a self, scope: &'a Scope, id: &'a str, decision: Decision) -> Stored<'a, Option<DecisionOutcome>>;

    /// Decides as an administrator. The first decision stands.
    fn decide_as_admin<'a>(
        &'a self,
        admin: Admin<'a>,
        id: &'a str,
        decision: Decision,
        audit: AuditDraft,
    ) -> Stored<'a, Option<DecisionOutcome>>;

    /// Notes that a response acts on an approval that was granted; `false` when another one has, or it was not granted.
    fn use_approval<'a>(&'a self, scope: &'a Scope, id: &'a str, response_id: &'a str) -> Stored<'a, bool>;
}
