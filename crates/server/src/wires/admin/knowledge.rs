//! `/admin/knowledge`: a tenant's collections and documents.

use super::call::{Answer, Call, shown};
use crate::wires::answer;

pub(super) async fn list(call: Call) -> Answer {
    shown(&call.administration().collections(&call.tenant().await?, &call.page()?).await?)
}

pub(super) async fn retrieve(call: Call) -> Answer {
    shown(&call.administration().collection(&call.tenant().await?, call.id()).await?)
}

/// With `source` only the documents of that source.
pub(super) async fn delete(call: Call) -> Answer {
    let source = call.query.get("source");
    call.administration().delete_collection(&call.tenant().await?, call.id(), source).await?;
    Ok(match source {
        None => answer::deleted(call.id(), "knowledge.collection.deleted"),
        Some(source) => answer::deleted(source, "knowledge.source.deleted"),
    })
}

/// With `source` only those of that source.
pub(super) async fn documents(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().documents(&tenant, call.id(), call.query.get("source"), &page).await?)
}
