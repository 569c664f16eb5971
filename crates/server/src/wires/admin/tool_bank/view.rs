//! A tool as administrators see it, and how its calls went.

use amalgam_core::{
    Decider, OnError,
    store::{BankKind, BankTool, ToolStatistics},
};
use amalgam_protocol::Json;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::put_tool::{RequiresApproval, ToolTimeout};
use crate::wires::admin::fields::{Object, ToolKind, ToolStatisticsKind, UnixSeconds, Word};

/// A tool of the bank.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BankTool")]
pub(in crate::wires::admin) struct ToolView<'a> {
    /// The name that the model calls it by; unique in its bank whatever its case.
    name: &'a str,
    object: ToolKind,
    /// Whether it is the installation's, for all tenants.
    common: bool,
    /// Whether it may be used.
    active: bool,
    /// A function of the server; a request to an HTTP service; a tool of an MCP server; one that the client runs.
    kind: Word<BankKind>,
    /// What the model is told about it.
    description: &'a str,
    /// The JSON Schema of its arguments.
    parameters: Object,
    /// What its kind needs to know; each secret as `{"secret": "***"}`.
    settings: Object,
    /// When and how to use it, for the prompt.
    guidance: Option<&'a str>,
    /// Seconds that one call may take.
    timeout: ToolTimeout,
    /// Whether the model is told of a failure and goes on, or the turn fails.
    on_error: Word<OnError>,
    /// Whether running it twice is as good as once.
    idempotent: bool,
    /// What the model is told after a call that went well.
    after_call_instruction: Option<&'a str>,
    /// Who has to agree to a call first.
    requires_approval: RequiresApproval,
    created_at: UnixSeconds,
    updated_at: UnixSeconds,
}

impl<'a> ToolView<'a> {
    /// With its settings as they may be shown.
    pub(super) fn of(tool: &'a BankTool, settings: &Json) -> Self {
        Self {
            name: &tool.name,
            object: ToolKind,
            common: tool.common,
            active: tool.active,
            kind: Word(tool.kind),
            description: &tool.description,
            parameters: (&tool.parameters).into(),
            settings: settings.into(),
            guidance: tool.guidance.as_deref(),
            timeout: ToolTimeout(tool.policy.timeout),
            on_error: Word(tool.policy.on_error),
            idempotent: tool.policy.idempotent,
            after_call_instruction: tool.policy.after_call_instruction.as_deref(),
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

/// How the calls of a tool went.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ToolStatistics")]
pub(in crate::wires::admin) struct ToolStatisticsView<'a> {
    /// The tool.
    name: &'a str,
    object: ToolStatisticsKind,
    /// Calls that began.
    calls: u64,
    /// Calls that ended in an error.
    failed: u64,
    /// Calls whose end is not known.
    unknown: u64,
    /// What a call took whose end is known; null without one.
    #[schemars(with = "Option<i64>")]
    average_ms: Option<u64>,
    /// What the longest of them took.
    #[schemars(with = "Option<i64>")]
    longest_ms: Option<u64>,
    /// Seconds since 1970; null when never.
    last_called_at: Option<UnixSeconds>,
}

impl<'a> ToolStatisticsView<'a> {
    pub(super) fn of(tool: &'a BankTool, found: &ToolStatistics) -> Self {
        let ended = found.calls.saturating_sub(found.unknown);
        Self {
            name: &tool.name,
            object: ToolStatisticsKind,
            calls: found.calls,
            failed: found.failed,
            unknown: found.unknown,
            average_ms: found.duration_ms.checked_div(ended),
            longest_ms: (ended > 0).then_some(found.longest_ms),
            last_called_at: found.last_called_at_ms.map(UnixSeconds::from_ms),
        }
    }
}
