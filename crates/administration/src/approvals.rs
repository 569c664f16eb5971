//! Tool calls that require an approval.

use amalgam_app::not_found;
use amalgam_core::{
    AuditAction, Decider, Fault, FaultKind, Scope,
    store::{Approval, Decision, DecisionOutcome, Page},
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Administration,
    access::{admin, known_id},
    audit::snapshot,
    fields::{Prose, UnixSeconds, Vocabulary, Word},
    list::List,
    request,
};

/// The approval in not-found errors.
const APPROVAL: &str = "Approval";

const DECIDE: AuditAction = AuditAction::new("approval.decide");

/// A tool call that requires, or required, an approval.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Approval")]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct ApprovalView {
    /// The id of the approval request item.
    pub id: String,
    #[schemars(extend("const" = "approval"))]
    object: &'static str,
    #[schemars(extend("enum" = ["pending", "approved", "denied", "expired", "used"]))]
    pub status: &'static str,
    /// The response that requested the approval.
    response_id: String,
    /// The user who owns the turn.
    pub user: String,
    /// The model's id of the call.
    call_id: String,
    pub tool: ToolReference,
    /// The arguments exactly as the model sent them.
    pub arguments: String,
    /// Who may decide; an administrator always may.
    pub decider: Word<Decider>,
    pub asked_at: UnixSeconds,
    pub expires_at: UnixSeconds,
    decision: Option<DecisionView>,
    /// The response that used the decision.
    used_by: Option<String>,
}

// The tool of an approval.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct ToolReference {
    /// The origin of the tool.
    pub label: String,
    /// The name of the tool at its origin.
    pub name: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
struct DecisionView {
    approve: bool,
    /// The reason.
    reason: Option<String>,
    /// The user who decided.
    by: String,
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

/// What an administrator decides about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may run.
    Approve,
    /// It may not.
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

impl Administration<'_> {
    /// Approvals of the tenant, newest first; with `pending` those that can still be decided.
    pub async fn approvals(
        &self,
        scope: &Scope,
        pending: bool,
        page: &Page,
    ) -> Result<List<ApprovalView, String>, Fault> {
        let after = page.after.as_deref();
        let found = self.store.approvals(admin(scope)?, pending, after, page.limit + 1, self.now_ms).await?;
        let views = found.into_iter().map(|approval| ApprovalView::at(approval, self.now_ms)).collect();
        Ok(List::new(views, page.limit, |approval| approval.id.clone()))
    }

    /// One approval.
    pub async fn approval(&self, scope: &Scope, id: &str) -> Result<ApprovalView, Fault> {
        let found = self.store.approval_of_tenant(admin(scope)?, known_id(APPROVAL, id)?).await?;
        Ok(ApprovalView::at(found.ok_or_else(|| not_found(APPROVAL, id))?, self.now_ms))
    }

    /// Makes the decision that `body` describes.
    pub async fn decide_from(&self, scope: &Scope, id: &str, body: &Bytes) -> Result<ApprovalView, Fault> {
        let Decide { decision: Word(verdict), reason } = request::parse(body)?;
        self.decide(scope, id, verdict, reason.map(|reason| reason.0)).await
    }

    /// Decides about a call. Repeating the same decision has no effect; the opposite is a conflict.
    pub async fn decide(
        &self,
        scope: &Scope,
        id: &str,
        verdict: Verdict,
        reason: Option<String>,
    ) -> Result<ApprovalView, Fault> {
        let (approve, by) = (verdict == Verdict::Approve, scope.user().to_owned());
        let decision = Decision { approve, reason, by, at_ms: self.now_ms };
        let (admin, id) = (admin(scope)?, known_id(APPROVAL, id)?);
        let before = self.store.approval_of_tenant(admin, id).await?.ok_or_else(|| not_found(APPROVAL, id))?;
        let after = Approval { decision: Some(decision.clone()), ..before.clone() };
        let view = |approval| snapshot(&ApprovalView::at(approval, self.now_ms));
        let audit = self.change(admin.tenant_id(), DECIDE, id).before(view(before)).after(view(after));
        let decided = self.store.decide_as_admin(admin, id, decision, audit).await?;
        decision_outcome(decided, id, self.now_ms)
    }
}

/// The approval after an administrator has decided, or why the decision was not accepted.
fn decision_outcome(decided: Option<DecisionOutcome>, id: &str, now_ms: u64) -> Result<ApprovalView, Fault> {
    match decided {
        Some(DecisionOutcome::Stands(approval)) => Ok(ApprovalView::at(*approval, now_ms)),
        Some(DecisionOutcome::TooLate(approval)) => {
            let message = match status(&approval, now_ms) {
                "approved" | "used" => "This call was approved before.",
                "denied" => "This call was denied before.",
                _ => "The time to decide about this call is over.",
            };
            Err(Fault::new(FaultKind::Conflict, message))
        }
        Some(DecisionOutcome::NotYours(_)) => {
            Err(Fault::new(FaultKind::Forbidden, "Only an administrator of the tenant may decide about this call."))
        }
        None => Err(not_found(APPROVAL, id)),
    }
}

fn status(approval: &Approval, now_ms: u64) -> &'static str {
    match &approval.decision {
        _ if approval.used_by.is_some() => "used",
        Some(decision) if decision.approve => "approved",
        Some(_) => "denied",
        None if approval.expires_at_ms <= now_ms => "expired",
        None => "pending",
    }
}

impl ApprovalView {
    /// The approval at a time in milliseconds since 1970.
    pub fn at(approval: Approval, now_ms: u64) -> Self {
        Self {
            object: "approval",
            status: status(&approval, now_ms),
            id: approval.id,
            response_id: approval.response_id,
            user: approval.user,
            call_id: approval.call_id,
            tool: ToolReference { label: approval.label, name: approval.name },
            arguments: approval.arguments,
            decider: Word(approval.decider),
            asked_at: UnixSeconds::from_ms(approval.asked_at_ms),
            expires_at: UnixSeconds::from_ms(approval.expires_at_ms),
            decision: approval.decision.map(|decision| DecisionView {
                approve: decision.approve,
                reason: decision.reason,
                by: decision.by,
                at: UnixSeconds::from_ms(decision.at_ms),
            }),
            used_by: approval.used_by,
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
            assert_eq!(super::status(&approval, now_ms), status, "{approval:?} at {now_ms}");
        }
    }

    #[test]
    fn only_an_accepted_decision_is_returned() {
        let stands = approval(Some(true), None);
        let accepted = decision_outcome(Some(DecisionOutcome::Stands(Box::new(stands.clone()))), "mcpr_1", 9).unwrap();
        assert_eq!(accepted, ApprovalView::at(stands, 9));
        for (decided, kind, message) in [
            (None, FaultKind::NotFound, "Approval with id 'mcpr_1' not found."),
            (
                Some(DecisionOutcome::TooLate(Box::new(approval(Some(true), None)))),
                FaultKind::Conflict,
                "This call was approved before.",
            ),
            (
                Some(DecisionOutcome::TooLate(Box::new(approval(Some(false), None)))),
                FaultKind::Conflict,
                "This call was denied before.",
            ),
            (
                Some(DecisionOutcome::TooLate(Box::new(approval(None, None)))),
                FaultKind::Conflict,
                "The time to decide about this call is over.",
            ),
        ] {
            let fault = decision_outcome(decided, "mcpr_1", 10).unwrap_err();
            assert_eq!((fault.kind, fault.message.as_ref()), (kind, message));
        }
    }
}
