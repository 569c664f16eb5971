//! `/admin/approvals`: calls of tools that wait for somebody to agree.

use std::sync::Arc;

use amalgam_core::{
    Fault, FaultKind, Scope,
    store::{Approval, Decided, Decision},
};
use amalgam_protocol::{Json, Writer};
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};

use super::{
    bank::admin,
    fields::{self, Fields},
    page, write_text,
};
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{Query, id_of, missing},
    },
};

/// What a missing approval is called.
const APPROVAL: &str = "Approval";

/// The longest reason.
const LONGEST_REASON: usize = 2_000;

/// Approvals of the tenant, the newest first; with `pending=true` those that can still be decided.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let (asked, pending, now_ms) = (query.page()?, query.flag("pending")?, app.clock.now_ms());
    let found = app.store.approvals(admin(&scope)?, pending, asked.after.as_deref(), asked.limit + 1, now_ms);
    let approvals = found.await.map_err(Fault::from)?;
    let id = |writer: &mut Writer, approval: &Approval| writer.string(&approval.id);
    Ok(page(&approvals, asked.limit, id, |writer, approval| write(writer, approval, now_ms)))
}

pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let id = id_of(APPROVAL, id)?;
    let found = app.store.approval_of_tenant(admin(&scope)?, &id).await.map_err(Fault::from)?;
    Ok(told(&found.ok_or_else(|| missing(APPROVAL, &id))?, app.clock.now_ms()))
}

/// Decides. The same again changes nothing; anything else is too late.
pub(super) async fn decide(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, WireError> {
    let fields = Fields::read(&app, request, &["decision", "reason"]).await?;
    let (id, now_ms) = (id_of(APPROVAL, id)?, app.clock.now_ms());
    let approve = match fields.text("decision", 16)? {
        Some("approve") => true,
        Some("deny") => false,
        Some(_) => return Err(fields::wrong("decision", "`approve` or `deny`").into()),
        None => return Err(fields::missing("decision").into()),
    };
    let reason = fields.prose("reason", LONGEST_REASON)?.map(str::to_owned);
    let decision = Decision { approve, reason, by: scope.user().to_owned(), at_ms: now_ms };
    let decided = app.store.decide_as_admin(admin(&scope)?, &id, decision).await.map_err(Fault::from)?;
    Ok(told(&settled(decided, &id, now_ms)?, now_ms))
}

/// The approval as it stands after an administrator has decided, or why that came to nothing.
pub fn settled(decided: Option<Decided>, id: &str, now_ms: u64) -> Result<Approval, Fault> {
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
    let mut writer = Writer::with_capacity(approval.arguments.len() + 1024);
    write(&mut writer, approval, now_ms);
    Json::from_writer(writer)
}

/// Where it stands.
pub fn approval_status(approval: &Approval, now_ms: u64) -> &'static str {
    match &approval.decision {
        _ if approval.used_by.is_some() => "used",
        Some(decision) if decision.approve => "approved",
        Some(_) => "denied",
        None if approval.expires_at_ms <= now_ms => "expired",
        None => "pending",
    }
}

fn told(approval: &Approval, now_ms: u64) -> Response {
    answer::json(show_approval(approval, now_ms).bytes().clone())
}

fn write(writer: &mut Writer, approval: &Approval, now_ms: u64) {
    writer.object(|writer| {
        writer.key("id").string(&approval.id);
        writer.key("object").string("approval");
        writer.key("status").string(approval_status(approval, now_ms));
        writer.key("response_id").string(&approval.response_id);
        writer.key("user").string(&approval.user);
        writer.key("call_id").string(&approval.call_id);
        writer.key("tool").object(|writer| {
            writer.key("label").string(&approval.label);
            writer.key("name").string(&approval.name);
        });
        writer.key("arguments").string(&approval.arguments);
        writer.key("decider").string(approval.decider.name());
        writer.key("asked_at").number(approval.asked_at_ms / 1000);
        writer.key("expires_at").number(approval.expires_at_ms / 1000);
        match &approval.decision {
            None => writer.key("decision").null(),
            Some(decision) => writer.key("decision").object(|writer| {
                writer.key("approve").bool(decision.approve);
                write_text(writer, "reason", decision.reason.as_deref());
                writer.key("by").string(&decision.by);
                writer.key("at").number(decision.at_ms / 1000);
            }),
        }
        write_text(writer, "used_by", approval.used_by.as_deref());
    });
}

#[cfg(test)]
mod tests {
    use amalgam_core::Decider;

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
            // What was decided in time stays decided.
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
        assert_eq!(settled(Some(Decided::Stands(Box::new(stands.clone()))), "mcpr_1", 9).unwrap(), stands);
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
            let fault = settled(decided, "mcpr_1", 10).unwrap_err();
            assert_eq!((fault.kind, fault.message.as_ref()), (kind, message));
        }
    }
}
