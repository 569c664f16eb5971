//! The tool bank, the calls of tools and the approvals: what they mean, the same for every engine.

use std::{collections::BTreeMap, time::Duration};

use amalgam_core::{
    Decider, OnError, StoreError,
    store::{Approval, BankKind, BankTool, Decided, Decision, ToolOutcome},
};

use crate::rows::{json, unknown};

/// The number that the installation's own tools are kept under. No tenant has it.
pub(crate) const COMMON: i64 = 0;

/// What a name is found by: in one bank there are no two tools whose names differ by case alone. O-33
pub(crate) fn key(name: &str) -> String {
    name.to_lowercase()
}

/// The kind of a tool.
pub(crate) fn kind(name: &str) -> Result<BankKind, StoreError> {
    BankKind::named(name).ok_or_else(|| unknown("kind of tool", name))
}

/// What a tool's failure does.
pub(crate) fn on_error(name: &str) -> Result<OnError, StoreError> {
    OnError::named(name).ok_or_else(|| unknown("way to treat a failure", name))
}

/// Who may agree to a call.
pub(crate) fn decider(name: &str) -> Result<Decider, StoreError> {
    Decider::named(name).ok_or_else(|| unknown("one who decides", name))
}

/// A time-out as it is kept.
pub(crate) fn timeout_ms(timeout: Duration) -> i64 {
    i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX)
}

/// How a call ended, from its columns; nothing while that is not known.
pub(crate) fn outcome(
    output: Option<&str>,
    error: Option<String>,
    detail: Option<String>,
    duration_ms: Option<u64>,
) -> Option<ToolOutcome> {
    let output = json(output?);
    Some(ToolOutcome { output, error, detail, duration_ms: duration_ms.unwrap_or_default() })
}

/// What a tenant's callers may use of its own tools and the common ones, by name.
pub(crate) fn offered(tools: Vec<BankTool>) -> Vec<BankTool> {
    let (common, own): (Vec<_>, Vec<_>) = tools.into_iter().partition(|tool| tool.common);
    // A tenant's own tool takes the place of the common one before it is asked which of them are active.
    let by_key: BTreeMap<String, BankTool> =
        common.into_iter().chain(own).map(|tool| (key(&tool.name), tool)).collect();
    by_key.into_values().filter(|tool| tool.active).collect()
}

/// What a decision about an approval comes to without being written; nothing when it is to be written. The first one
/// stands, if it comes in time and from a user who may decide.
pub(crate) fn settled(approval: &Approval, decision: &Decision, by: Decider) -> Option<fn(Box<Approval>) -> Decided> {
    match &approval.decision {
        _ if approval.decider == Decider::Admin && by == Decider::Caller => Some(Decided::NotYours),
        Some(before) if before.approve == decision.approve => Some(Decided::Stands),
        Some(_) => Some(Decided::TooLate),
        None if decision.at_ms >= approval.expires_at_ms => Some(Decided::TooLate),
        None => None,
    }
}
