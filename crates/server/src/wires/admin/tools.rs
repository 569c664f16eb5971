//! `/admin/tools`: the tool bank of the caller's tenant, and with `common=true` the common tools.

use amalgam_administration::{
    SMALL_BODY,
    tool_bank::{BankScope, TOOL_BODY, ToolBank},
};
use amalgam_core::Fault;
use axum::extract::Request;

use super::call::{Answer, Call, shown, stored};
use crate::wires::answer;

pub(super) async fn list(call: Call) -> Answer {
    let page = call.page()?;
    shown(&ToolBank::new(&call.app, call.actor()).list(&call.scope, bank_scope(&call)?, &page).await?)
}

pub(super) async fn retrieve(call: Call) -> Answer {
    shown(&ToolBank::new(&call.app, call.actor()).tool(&call.scope, bank_scope(&call)?, call.id()).await?)
}

pub(super) async fn put(call: Call, request: Request) -> Answer {
    let body = call.body(request, TOOL_BODY).await?;
    stored(ToolBank::new(&call.app, call.actor()).put(&call.scope, bank_scope(&call)?, Some(call.id()), &body).await?)
}

pub(super) async fn delete(call: Call) -> Answer {
    ToolBank::new(&call.app, call.actor()).delete(&call.scope, bank_scope(&call)?, call.id()).await?;
    Ok(answer::deleted(call.id(), "tool.deleted"))
}

/// Runs a tool once, outside of any turn.
pub(super) async fn try_out(call: Call, request: Request) -> Answer {
    let body = call.body(request, SMALL_BODY).await?;
    shown(&ToolBank::new(&call.app, call.actor()).try_from(&call.scope, bank_scope(&call)?, call.id(), &body).await?)
}

/// Statistics of a tool's calls in the caller's tenant.
pub(super) async fn statistics(call: Call) -> Answer {
    let (bank_scope, since) = (bank_scope(&call)?, call.query.number("since")?.unwrap_or_default());
    shown(&ToolBank::new(&call.app, call.actor()).statistics(&call.scope, bank_scope, call.id(), since).await?)
}

/// The guidance on the named tools as one block for a prompt, in their order.
pub(super) async fn usage(call: Call) -> Answer {
    shown(
        &ToolBank::new(&call.app, call.actor())
            .usage(&call.scope, call.query.get("names"), call.app.limits.tools)
            .await?,
    )
}

fn bank_scope(call: &Call) -> Result<BankScope, Fault> {
    Ok(if call.query.flag("common")? { BankScope::Common } else { BankScope::Own })
}
