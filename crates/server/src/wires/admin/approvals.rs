//! `/admin/approvals`: tool calls that require an approval.

use std::sync::Arc;

use amalgam_core::{
    Decider, Fault, FaultKind, Scope,
    store::{Approval, Decided, Decision},
};
use amalgam_protocol::Json;
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    answer,
    fields::{ApprovalKind, Prose, UnixSeconds, Vocabulary, Word},
    json, list_page, request,
    tool_bank::admin,
};
use crate::{
    app::App,
    wires::{
        WireError,
        query::{Query, id_of, missing},
    },
};

/// The approval in not-found errors.
const APPROVAL: &str = "Approval";

/// A tool call that requires, or required, an approval.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Approval")]
pub(super) struct ApprovalView<'a> {
    /// The id of the approval request item.
    id: &'a str,
    object: ApprovalKind,
    #[schemars(extend("enum" = ["pending", "approved", "denied", "expired", "used"]))]
    status: &'static str,
    /// The response that requested the approval.
    response_id: &'a str,
    /// The user who owns the turn.
    user: &'a str,
    /// The model's id of the call.
    call_id: &'a str,
    tool: ToolReference<'a>,
    /// The arguments exactly as the model sent them.
    arguments: &'a str,
    /// Who may decide; an administrator always may.
    decider: Word<Decider>,
    asked_at: UnixSeconds,
    expires_at: UnixSeconds,
    decision: Option<DecisionView<'a>>,
    /// The response that used the decision.
    used_by: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct ToolReference<'a> {
    /// The origin of the tool.
    label: &'a str,
    /// The name of the tool at its origin.
    name: &'a str,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct DecisionView<'a> {
    approve: bool,
    /// The reason.
    reason: Option<&'a str>,
    /// The user who decided.
    by: &'a str,
    at: UnixSeconds,
}

/// A decision about an approval.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decide {
    decision: Word<Verdict>,
    /// The reason; the model receives it if the call is denied.
    reason: Option<Prose<2_000>>,
}

#[derive(Clone, Copy)]
pub(super) enum Verdict {
    Approve,
    Deny,
}

impl Vocabulary for Verdict {
    const WORDS: &'static [&'static str] = &["approve", "deny"];

    fn word(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        [Self::Approve, Self::Deny].into_iter().find(|verdict| verdict.word() == word)
    }
}

/// Approvals of the tenant, newest first; with `pending=true` those that can still be decided.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let (asked, pending, now_ms) = (query.page()?, query.flag("pending")?, app.clock.now_ms());
    let found = app.store.approvals(admin(&scope)?, pending, asked.after.as_deref(), asked.limit + 1, now_ms);
    let approvals = found.await.map_err(Fault::from)?;
    let view = |approval| ApprovalView::at(approval, now_ms);
    Ok(list_page(&approvals, asked.limit, |approval| approval.id.as_str(), view))
}

pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let id = id_of(APPROVAL, id)?;
    let found = app.store.approval_of_tenant(admin(&scope)?, &id).await.map_err(Fault::from)?;
    Ok(respond(&found.ok_or_else(|| missing(APPROVAL, &id))?, app.clock.now_ms()))
}

/// Decides. Repeating the same decision has no effect; the opposite is a conflict.
pub(super) async fn decide(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, WireError> {
    let Decide { decision, reason } = request::read(&app, request).await?;
    let (id, now_ms) = (id_of(APPROVAL, id)?, app.clock.now_ms());
    let approve = matches!(decision, Word(Verdict::Approve));
    let reason = reason.map(|reason| reason.0);
    let decision = Decision { approve, reason, by: scope.user().to_owned(), at_ms: now_ms };
    let decided = app.store.decide_as_admin(admin(&scope)?, &id, decision).await.map_err(Fault::from)?;
    Ok(respond(&decision_outcome(decided, &id, now_ms)?, now_ms))
}

/// The approval after an administrator has decided, or why the decision was not accepted.
pub fn decision_outcome(decided: Option<Decided>, id: &str, now_ms: u64) -> Result<Approval, Fault> {
    match decided {
        Some(Decided::Stands(approval)) => Ok(*approval),
        Some(Decided::TooLate(approval)) => {
            let message = match approval_status(&approval, now_ms) {
                "approved" | "used" => "This call was approved before.",
                "denied" => "This call was denied before.",
                _ => "The time to decide about this call is over.",
            };
            Err(Fault::new(FaultKind::Conflict, message))
        }
        Some(Decided::NotYours(_)) => {
            Err(Fault::new(FaultKind::Forbidden, "Only an administrator of the tenant may decide about this call."))
        }
        None => Err(missing(APPROVAL, id)),
    }
}

/// An approval as administrators see it: a JSON object.
pub fn show_approval(approval: &Approval, now_ms: u64) -> Json {
    json(&ApprovalView::at(approval, now_ms))
}

/// The status that is shown.
pub fn approval_status(approval: &Approval, now_ms: u64) -> &'static str {
    match &approval.decision {
        _ if approval.used_by.is_some() => "used",
        Some(decision) if decision.approve => "approved",
        Some(_) => "denied",
        None if approval.expires_at_ms <= now_ms => "expired",
        None => "pending",
    }
}

fn respond(approval: &Approval, now_ms: u64) -> Response {
    answer(&ApprovalView::at(approval, now_ms))
}

impl<'a> ApprovalView<'a> {
    fn at(approval: &'a Approval, now_ms: u64) -> Self {
        Self {
            id: &approval.id,
            object: ApprovalKind,
            status: approval_status(approval, now_ms),
            response_id: &approval.response_id,
            user: &approval.user,
            call_id: &approval.call_id,
            tool: ToolReference { label: &approval.label, name: &approval.name },
            arguments: &approval.arguments,
            decider: Word(approval.decider),
            asked_at: UnixSeconds::from_ms(approval.asked_at_ms),
            expires_at: UnixSeconds::from_ms(approval.expires_at_ms),
            decision: approval.decision.as_ref().map(|decision| DecisionView {
                approve: decision.approve,
                reason: decision.reason.as_deref(),
                by: &decision.by,
                at: UnixSeconds::from_ms(decision.at_ms),
            }),
            used_by: approval.used_by.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(decision: Option<bool>, used_by: Option<&str>) -> Approval {
        let text = str::to_owned;
        let decision = decision.map(|approve| Decision { approve, reason: None, by: text("bob"), at_ms: 5 });
        Approval {
            id: text("mcpr_1"),
            response_id: text("resp_1"),
            user: text("ada"),
            call_id: text("call_1"),
            label: text("bank"),
            name: text("refund"),
            arguments: text("{}"),
            decider: Decider::Admin,
            asked_at_ms: 0,
            expires_at_ms: 10,
            decision,
            used_by: used_by.map(text),
        }
    }

    #[test]
    fn an_approval_is_pending_until_it_is_decided_or_runs_out() {
        for (approval, now_ms, status) in [
            (approval(None, None), 9, "pending"),
            (approval(None, None), 10, "expired"),
            (approval(Some(true), None), 9, "approved"),
            // A decision made in time stays valid after the deadline.
            (approval(Some(true), None), 11, "approved"),
            (approval(Some(false), None), 11, "denied"),
            (approval(Some(true), Some("resp_2")), 11, "used"),
        ] {
            assert_eq!(approval_status(&approval, now_ms), status, "{approval:?} at {now_ms}");
        }
    }

    #[test]
    fn only_a_decision_that_stands_is_told_as_one() {
        let stands = approval(Some(true), None);
        assert_eq!(decision_outcome(Some(Decided::Stands(Box::new(stands.clone()))), "mcpr_1", 9).unwrap(), stands);
        for (decided, kind, message) in [
            (None, FaultKind::NotFound, "Approval with id 'mcpr_1' not found."),
            (
                Some(Decided::TooLate(Box::new(approval(Some(true), None)))),
                FaultKind::Conflict,
                "This call was approved before.",
            ),
            (
                Some(Decided::TooLate(Box::new(approval(Some(false), None)))),
                FaultKind::Conflict,
                "This call was denied before.",
            ),
            (
                Some(Decided::TooLate(Box::new(approval(None, None)))),
                FaultKind::Conflict,
                "The time to decide about this call is over.",
            ),
        ] {
            let fault = decision_outcome(decided, "mcpr_1", 10).unwrap_err();
            assert_eq!((fault.kind, fault.message.as_ref()), (kind, message));
        }
    }
}
