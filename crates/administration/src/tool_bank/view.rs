//! A tool as administrators see it, and statistics of its calls.

use amalgam_core::{
    Decider, OnError,
    store::{BankKind, BankTool, ToolStatistics},
};
use amalgam_protocol::Json;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::put_tool::{RequiresApproval, ToolTimeout};
use crate::fields::{Object, UnixSeconds, Word};

/// A tool in the tool bank.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BankTool")]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct ToolView {
    /// The name that the model uses; unique within its bank, ignoring case.
    pub name: String,
    #[schemars(extend("const" = "tool"))]
    object: &'static str,
    /// Whether the tool is shared by all tenants.
    pub common: bool,
    /// Whether the tool can be used.
    pub active: bool,
    /// A function of the server, a request to an HTTP service, a tool of an MCP server, or a tool that the client runs.
    pub kind: Word<BankKind>,
    /// The description sent to the model.
    description: String,
    /// The JSON Schema of the arguments.
    parameters: Object,
    /// The settings of the tool's kind; secrets are shown as `{"secret": "***"}`.
    settings: Object,
    /// When and how to use the tool; added to the prompt.
    guidance: Option<String>,
    /// The timeout of one call, in seconds.
    pub timeout: ToolTimeout,
    /// Whether the model receives the error and continues, or the turn fails.
    on_error: Word<OnError>,
    /// Whether running the tool twice has the same effect as running it once.
    pub idempotent: bool,
    /// Instruction sent to the model after a successful call.
    after_call_instruction: Option<String>,
    /// Who must approve a call.
    pub requires_approval: RequiresApproval,
    created_at: UnixSeconds,
    pub updated_at: UnixSeconds,
}

impl ToolView {
    /// With its settings as they may be shown.
    pub(crate) fn of(tool: BankTool, settings: Json) -> Self {
        Self {
            name: tool.name,
            object: "tool",
            common: tool.common,
            active: tool.active,
            kind: Word(tool.kind),
            description: tool.description,
            parameters: tool.parameters.into(),
            settings: settings.into(),
            guidance: tool.guidance,
            timeout: ToolTimeout(tool.policy.timeout),
            on_error: Word(tool.policy.on_error),
            idempotent: tool.policy.idempotent,
            after_call_instruction: tool.policy.after_call_instruction,
            requires_approval: RequiresApproval(tool.policy.requires_approval),
            created_at: UnixSeconds::from_ms(tool.created_at_ms),
            updated_at: UnixSeconds::from_ms(tool.updated_at_ms),
        }
    }
}

/// Whole seconds as a whole number.
impl Serialize for ToolTimeout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.subsec_nanos() {
            0 => serializer.serialize_u64(self.0.as_secs()),
            _ => serializer.serialize_f64(self.0.as_secs_f64()),
        }
    }
}

impl Serialize for RequiresApproval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.map(Decider::name) {
            Some(decider) => serializer.serialize_str(decider),
            None => serializer.serialize_bool(false),
        }
    }
}

/// Statistics of a tool's calls.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ToolStatistics")]
pub struct ToolStatisticsView {
    /// The tool.
    name: String,
    #[schemars(extend("const" = "tool.statistics"))]
    object: &'static str,
    /// Calls that were started.
    calls: u64,
    /// Calls that failed.
    failed: u64,
    /// Calls with an unknown outcome.
    unknown: u64,
    /// The average duration of calls with a known outcome; null if there are none.
    #[schemars(with = "Option<i64>")]
    average_ms: Option<u64>,
    /// The duration of the longest call.
    #[schemars(with = "Option<i64>")]
    longest_ms: Option<u64>,
    /// Unix time in seconds; null if never called.
    last_called_at: Option<UnixSeconds>,
}

impl ToolStatisticsView {
    pub(super) fn of(name: String, found: &ToolStatistics) -> Self {
        let ended = found.calls.saturating_sub(found.unknown);
        Self {
            name,
            object: "tool.statistics",
            calls: found.calls,
            failed: found.failed,
            unknown: found.unknown,
            average_ms: found.duration_ms.checked_div(ended),
            longest_ms: (ended > 0).then_some(found.longest_ms),
            last_called_at: found.last_called_at_ms.map(UnixSeconds::from_ms),
        }
    }
}
