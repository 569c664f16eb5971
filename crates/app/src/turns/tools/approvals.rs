//! Decisions about calls that waited for an approval.

use std::collections::HashSet;

use amalgam_core::{
    Fault, FaultKind, Scope, Stem,
    store::{Approval, Decision, DecisionOutcome},
};
use amalgam_protocol::{CreateResponse, HostedItem, Input, Item, ItemKind, Json, McpApprovalResponse, Writer};

use super::super::context::Context;
use crate::app::Application;

/// The output of a call whose approval expired.
const EXPIRED: &str = "No decision was made before the deadline.";

/// The approved calls that this turn has to run, in the order in which they were requested. Denials by an administrator
/// or by the deadline are appended to the history if it has no item for them, so that the model sees them.
pub(crate) async fn approved(
    app: &Application,
    scope: &Scope,
    request: &CreateResponse<'_>,
    context: &mut Context,
) -> Result<Vec<Approval>, Fault> {
    let own = items(request.input.as_ref());
    let decided = {
        let input = context.input(request.input.as_ref())?;
        decided(app, scope, own, items(input.as_ref().or(request.input.as_ref()))).await?
    };
    let denied: Vec<&Approval> = decided
        .iter()
        .filter(|decided| decided.action == CallAction::Denied)
        .map(|decided| &decided.approval)
        .collect();
    if !denied.is_empty() {
        context.add(denials(&denied));
    }
    let approved = decided.into_iter().filter(|decided| decided.action == CallAction::Approved);
    Ok(approved.map(|decided| decided.approval).collect())
}

fn items<'i, 'a>(input: Option<&'i Input<'a>>) -> &'i [Item<'a>] {
    match input {
        Some(Input::Items(items)) => items,
        _ => &[],
    }
}

/// An array of the items for denials.
fn denials(denied: &[&Approval]) -> Json {
    let mut writer = Writer::default();
    writer.array(|writer| {
        for approval in denied {
            let reason = match &approval.decision {
                None => Some(EXPIRED),
                Some(decision) => decision.reason.as_deref(),
            };
            writer.object(|writer| {
                writer.key("type").string("mcp_approval_response");
                writer.key("approval_request_id").string(&approval.id);
                writer.key("approve").bool(false);
                if let Some(reason) = reason {
                    writer.key("reason").string(reason);
                }
            });
        }
    });
    Json::from_writer(writer)
}

struct DecidedCall {
    approval: Approval,
    action: CallAction,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallAction {
    Approved,
    Denied,
    /// The request has an item for the denial.
    DeniedByCaller,
}

/// The decided calls: those that the request decides, and earlier ones that an administrator or the deadline decided.
async fn decided(
    app: &Application,
    scope: &Scope,
    own: &[Item<'_>],
    input: &[Item<'_>],
) -> Result<Vec<DecidedCall>, Fault> {
    let handled: HashSet<String> = input
        .iter()
        .filter(|item| is_hosted(item, HostedItem::McpCall))
        .filter_map(|item| item.raw.get_str("approval_request_id"))
        .map(|id| id.into_owned())
        .collect();
    let denials: HashSet<String> = input
        .iter()
        .filter(|item| is_hosted(item, HostedItem::McpApprovalResponse))
        .filter_map(|item| McpApprovalResponse::of(item.raw).ok())
        .filter(|answer| !answer.approve)
        .map(|answer| answer.approval_request_id.into_owned())
        .collect();
    let mut decided = Vec::new();
    let mut seen = HashSet::new();
    for (index, item) in own.iter().enumerate() {
        if !is_hosted(item, HostedItem::McpApprovalResponse) {
            continue;
        }
        let answer = McpApprovalResponse::of(item.raw).map_err(|fault| fault.at(index).under("input"))?;
        let id = answer.approval_request_id.clone().into_owned();
        // Skips approvals of other servers, and those that the history shows as done.
        if Stem::of(&id).is_none() || handled.contains(&id) || !seen.insert(id.clone()) {
            continue;
        }
        let decision = Decision {
            approve: answer.approve,
            reason: answer.reason.clone().map(|reason| reason.into_owned()),
            by: scope.user().to_owned(),
            at_ms: app.clock.now_ms(),
        };
        let path = format!("input[{index}].approval_request_id");
        let approval = match app.store.decide(scope, &id, decision).await? {
            None => return Err(not_found(path, &id)),
            Some(DecisionOutcome::NotYours(_)) => {
                return Err(
                    Fault::new(FaultKind::Forbidden, "Only an administrator may decide about this call.").param(path)
                );
            }
            Some(DecisionOutcome::Stands(approval) | DecisionOutcome::TooLate(approval)) => *approval,
        };
        decided.push(decide_action(approval, Some(answer.approve)));
    }
    for item in input.iter().filter(|item| is_hosted(item, HostedItem::McpApprovalRequest)) {
        let Some(id) = item.raw.get_str("id").filter(|id| Stem::of(id).is_some()) else { continue };
        if handled.contains(&*id) || denials.contains(&*id) || !seen.insert(id.clone().into_owned()) {
            continue;
        }
        let Some(approval) = app.store.approval(scope, &id).await? else { continue };
        // A call without a decision can be decided until it expires.
        if approval.decision.is_some() || approval.expires_at_ms <= app.clock.now_ms() {
            decided.push(decide_action(approval, None));
        }
    }
    Ok(decided)
}

/// The action for a decision; `answer` is the caller's decision in this request. The response that runs the call
/// consumes the approval in the store, which detects whether another response did.
fn decide_action(approval: Approval, answer: Option<bool>) -> DecidedCall {
    let granted = approval.decision.as_ref().is_some_and(|decision| decision.approve);
    let action = match (answer, granted) {
        (Some(false), _) => CallAction::DeniedByCaller,
        (_, true) => CallAction::Approved,
        (_, false) => CallAction::Denied,
    };
    DecidedCall { approval, action }
}

fn is_hosted(item: &Item<'_>, kind: HostedItem) -> bool {
    matches!(item.kind, ItemKind::Hosted(hosted) if hosted == kind)
}

fn not_found(path: String, id: &str) -> Fault {
    let shown: String = id.chars().take(200).collect();
    Fault::invalid(path, format!("Approval request with id '{shown}' not found.")).code("approval_not_found")
}
