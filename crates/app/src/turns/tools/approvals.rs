//! Calls that waited for an approval and have been decided.

use std::collections::HashSet;

use amalgam_core::{
    Fault, FaultKind, Scope, Stem,
    store::{Approval, Decided, Decision},
};
use amalgam_protocol::{CreateResponse, HostedItem, Input, Item, ItemKind, Json, McpApprovalResponse, Writer};

use super::super::context::Context;
use crate::app::Application;

/// What the model is told of a call that was not decided about in time.
const EXPIRED: &str = "No decision was made before the deadline.";

/// The calls that this turn has to run, in the order in which they were asked for. Denials that the items do not tell yet,
/// made by an administrator or by the deadline, are added to what was said before, so that the model hears of them.
pub(crate) async fn approved(
    app: &Application,
    scope: &Scope,
    request: &CreateResponse<'_>,
    context: &mut Context,
) -> Result<Vec<Approval>, Fault> {
    let own = items(request.input.as_ref());
    let decided = {
        let said = context.input(request.input.as_ref())?;
        decided(app, scope, own, items(said.as_ref().or(request.input.as_ref()))).await?
    };
    let denied: Vec<&Approval> =
        decided.iter().filter(|decided| decided.fate == Fate::Denied).map(|decided| &decided.approval).collect();
    if !denied.is_empty() {
        context.add(denials(&denied));
    }
    let approved = decided.into_iter().filter(|decided| decided.fate == Fate::Approved);
    Ok(approved.map(|decided| decided.approval).collect())
}

fn items<'i, 'a>(input: Option<&'i Input<'a>>) -> &'i [Item<'a>] {
    match input {
        Some(Input::Items(items)) => items,
        _ => &[],
    }
}

/// An array of the items that tell of denials.
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
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Approved,
    Denied,
    /// The caller's own item says so.
    DeniedByCaller,
}

/// What was decided about calls: those that the request decides about, and those before it that an administrator or the
/// deadline has decided about.
async fn decided(
    app: &Application,
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
    let denials: HashSet<String> = said
        .iter()
        .filter(|item| is(item, HostedItem::McpApprovalResponse))
        .filter_map(|item| McpApprovalResponse::of(item.raw).ok())
        .filter(|word| !word.approve)
        .map(|word| word.approval_request_id.into_owned())
        .collect();
    let mut decided = Vec::new();
    let mut seen = HashSet::new();
    for (index, item) in own.iter().enumerate() {
        if !is(item, HostedItem::McpApprovalResponse) {
            continue;
        }
        let word = McpApprovalResponse::of(item.raw).map_err(|fault| fault.at(index).under("input"))?;
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
        if settled.contains(&*id) || denials.contains(&*id) || !seen.insert(id.clone().into_owned()) {
            continue;
        }
        let Some(approval) = app.store.approval(scope, &id).await? else { continue };
        // A call without a decision can still be decided until it expires.
        if approval.decision.is_some() || approval.expires_at_ms <= app.clock.now_ms() {
            decided.push(act(approval, None));
        }
    }
    Ok(decided)
}

/// What is done about a decision; `word` is what the caller itself says now. The response that runs the call takes the
/// approval, and finds out whether another response has.
fn act(approval: Approval, word: Option<bool>) -> DecidedCall {
    let granted = approval.decision.as_ref().is_some_and(|decision| decision.approve);
    let fate = match (word, granted) {
        (Some(false), _) => Fate::DeniedByCaller,
        (_, true) => Fate::Approved,
        (_, false) => Fate::Denied,
    };
    DecidedCall { approval, fate }
}

fn is(item: &Item<'_>, kind: HostedItem) -> bool {
    matches!(item.kind, ItemKind::Hosted(hosted) if hosted == kind)
}

fn not_found(path: String, id: &str) -> Fault {
    let shown: String = id.chars().take(200).collect();
    Fault::invalid(path, format!("Approval request with id '{shown}' not found.")).code("approval_not_found")
}
