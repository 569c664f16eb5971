//! Calls that waited for somebody to agree, and have been decided about.

use std::collections::HashSet;

use amalgam_core::{
    Fault, FaultKind, Scope, Stem,
    store::{Approval, Decided, Decision},
    turn::{Mishap, Told},
};
use amalgam_engine::DecidedCall;
use amalgam_protocol::{HostedItem, Item, ItemKind, McpApprovalResponse};

use super::super::error;
use crate::app::App;

/// The calls that this turn has to run, or to tell the model that they were refused: those that the request decides about,
/// and those before it that somebody else has decided about or nobody in time. In the order in which they were asked for.
pub(super) async fn decided(
    app: &App,
    scope: &Scope,
    own: &[Item<'_>],
    said: &[Item<'_>],
) -> Result<Vec<DecidedCall>, Fault> {
    let settled: HashSet<String> = said
        .iter()
        .filter(|item| is(item, HostedItem::McpCall))
        .filter_map(|item| item.raw.get_str("approval_request_id"))
        .map(|id| id.into_owned())
        .collect();
    let mut decided = Vec::new();
    let mut seen = HashSet::new();
    for (index, item) in own.iter().enumerate() {
        if !is(item, HostedItem::McpApprovalResponse) {
            continue;
        }
        let word = McpApprovalResponse::of(item.raw).map_err(|fault| error::shape(fault.at(index).under("input")))?;
        let id = word.approval_request_id.clone().into_owned();
        // Approvals of others are their business, and what was acted on is told already.
        if Stem::of(&id).is_none() || settled.contains(&id) || !seen.insert(id.clone()) {
            continue;
        }
        let decision = Decision {
            approve: word.approve,
            reason: word.reason.clone().map(|reason| reason.into_owned()),
            by: scope.user().to_owned(),
            at_ms: app.clock.now_ms(),
        };
        let path = format!("input[{index}].approval_request_id");
        let approval = match app.store.decide(scope, &id, decision).await? {
            None => return Err(not_found(path, &id)),
            Some(Decided::NotYours(_)) => {
                return Err(
                    Fault::new(FaultKind::Forbidden, "Only an administrator may decide about this call.").param(path)
                );
            }
            Some(Decided::Stands(approval) | Decided::TooLate(approval)) => *approval,
        };
        decided.push(act(approval, Some(word.approve)));
    }
    for item in said.iter().filter(|item| is(item, HostedItem::McpApprovalRequest)) {
        let Some(id) = item.raw.get_str("id").filter(|id| Stem::of(id).is_some()) else { continue };
        if settled.contains(&*id) || !seen.insert(id.clone().into_owned()) {
            continue;
        }
        let Some(approval) = app.store.approval(scope, &id).await? else { continue };
        // What nobody has decided about can still be decided about, as long as there is time.
        if approval.decision.is_some() || approval.expires_at_ms <= app.clock.now_ms() {
            decided.push(act(approval, None));
        }
    }
    Ok(decided)
}

/// What is done about a decision; `word` is what the caller itself says now. Whoever runs the call takes the approval, and
/// finds out whether another response has.
fn act(approval: Approval, word: Option<bool>) -> DecidedCall {
    let granted = approval.decision.as_ref().is_some_and(|decision| decision.approve) && word != Some(false);
    let refused = (!granted).then(|| Told::error(Mishap::Denied, &refusal(&approval)));
    DecidedCall { approval, refused }
}

fn refusal(approval: &Approval) -> String {
    match &approval.decision {
        None => "Not run: nobody agreed to this call in time.".to_owned(),
        Some(Decision { reason: Some(reason), .. }) if !reason.is_empty() => {
            format!("Not run: the call was denied. {reason}")
        }
        Some(_) => "Not run: the call was denied.".to_owned(),
    }
}

fn is(item: &Item<'_>, kind: HostedItem) -> bool {
    matches!(item.kind, ItemKind::Hosted(hosted) if hosted == kind)
}

fn not_found(path: String, id: &str) -> Fault {
    let shown: String = id.chars().take(200).collect();
    Fault::invalid(path, format!("Approval request with id '{shown}' not found.")).code("approval_not_found")
}
