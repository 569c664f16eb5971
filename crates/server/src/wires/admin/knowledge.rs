//! `/admin/knowledge`: a tenant's collections and documents.

mod document_form;

use amalgam_administration::SMALL_BODY;
use axum::extract::Request;

use super::call::{Answer, Call, shown, stored};
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

/// Searches as an agent does.
pub(super) async fn search(call: Call, request: Request) -> Answer {
    let body = call.body(request, SMALL_BODY).await?;
    let tenant = call.tenant().await?;
    shown(&call.administration().search_knowledge_from(&tenant, &*call.app.knowledge, &body).await?)
}

/// Stores a file as a document.
pub(super) async fn upload(call: Call, request: Request) -> Answer {
    let (tenant, form) = (call.tenant().await?, document_form::read(&call, request).await?);
    let upload = form.upload(call.path.text(0))?;
    stored(call.administration().upload_document(&tenant, &call.app, upload).await?)
}

/// Deletes one document.
pub(super) async fn delete_document(call: Call) -> Answer {
    let id = call.path.text(1);
    call.administration().delete_document(&call.tenant().await?, call.id(), id).await?;
    Ok(answer::deleted(id, "knowledge.document.deleted"))
}

/// With `source` only those of that source.
pub(super) async fn documents(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().documents(&tenant, call.id(), call.query.get("source"), &page).await?)
}
